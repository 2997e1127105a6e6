// Tests that run once for every instruction set of this machine, and data for them.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/table.h"

namespace tutti::kernels::test {

class PerIsa : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    ASSERT_NE(table(GetParam()), nullptr);
    ASSERT_EQ(kernels().isa, GetParam());
  }
  const KernelTable& kernels() const { return *table(GetParam()); }
  const KernelTable& reference() const { return *table(Isa::reference); }
};

#define TUTTI_FOR_EACH_ISA(Suite)                                      \
  INSTANTIATE_TEST_SUITE_P(Isa, Suite, testing::ValuesIn(available()), \
                           [](const testing::TestParamInfo<Isa>& info) { return std::string(isa_name(info.param)); })

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr double kEps = 0x1p-24;  // half a unit of the last place at 1

inline std::vector<float> normal(size_t n, uint32_t seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0, scale);
  std::vector<float> out(n);
  for (float& x : out) x = distribution(generator);
  return out;
}

// The bits of n floats, for comparisons to the last one.
inline std::vector<uint32_t> bits(const float* x, size_t n) {
  std::vector<uint32_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = std::bit_cast<uint32_t>(x[i]);
  return out;
}
inline std::vector<uint32_t> bits(const std::vector<float>& x) {
  return bits(x.data(), x.size());
}

// |got - want| <= absolute + relative * |want| everywhere.
inline void expect_near(const std::vector<float>& got, const std::vector<float>& want, double absolute,
                        double relative = 0) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::fabs(static_cast<double>(got[i]) - want[i]), absolute + relative * std::fabs(want[i]))
        << "at " << i << ": " << got[i] << " instead of " << want[i];
  }
}

}  // namespace tutti::kernels::test
