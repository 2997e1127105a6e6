#include "sample/philox.h"

#include <gtest/gtest.h>

#include <set>

#include "sample/sampler.h"

namespace tutti::sample {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, EveryPartOfTheKeyMatters) {
  std::set<double> seen;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32, ~0ull})
    for (uint32_t choice : {0u, 1u, 15u})
      for (uint64_t position : {0ull, 1ull, 1ull << 32})
        for (uint32_t purpose : {1u, 2u}) seen.insert(uniform(seed, choice, position, static_cast<Purpose>(purpose)));
  EXPECT_EQ(seen.size(), 4u * 3u * 3u * 2u);
}

TEST(Uniform, IsAPureFunctionInTheUnitInterval) {
  double sum = 0, squares = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform(42, 3, static_cast<uint64_t>(i), Purpose::token);
    ASSERT_EQ(u, uniform(42, 3, static_cast<uint64_t>(i), Purpose::token));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.01);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.01);
}

}  // namespace
}  // namespace tutti::sample
