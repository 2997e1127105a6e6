// Philox-4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11): ten rounds of a keyed
// bijection of 128-bit counters. No state: the same counter and key always give the same four words.
#pragma once

#include <array>
#include <cstdint>

namespace tutti::sample {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key);

}  // namespace tutti::sample
