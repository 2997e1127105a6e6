#include "weights/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::weights {
namespace {

TEST(HalfTest, EveryValueIsExact) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float sign = (bits & 0x8000) != 0 ? -1.f : 1.f;
    const float got = half_to_float(static_cast<uint16_t>(bits));
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(got), mantissa != 0) << bits;
      EXPECT_EQ(std::isinf(got), mantissa == 0) << bits;
      EXPECT_EQ(std::signbit(got), sign < 0) << bits;
      continue;
    }
    const int scale = exponent == 0 ? -24 : static_cast<int>(exponent) - 25;
    const float expected = sign * std::ldexp(static_cast<float>(exponent == 0 ? mantissa : mantissa + 1024), scale);
    ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected)) << bits;
  }
}

}  // namespace
}  // namespace tutti::weights
