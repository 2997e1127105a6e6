// Passes over a row of logits. Sums run in one fixed order (16 lanes, blocks of 256), whatever the machine's vector
// width, so that the same row always gives the same bits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::sample {

struct Scan {
  float max;    // -inf for a row of nothing but -inf
  int argmax;   // the lowest index that holds max; -1 when max is -inf
  bool finite;  // neither NaN nor +inf (-inf is a mask and allowed)
};
Scan scan(std::span<const float> x);

// e^x for x ≤ 0 within 2 ulp; exactly 0 below -87 and for -inf; exactly 1 for 0.
void exp_nonpositive(std::span<const float> x, float* out);

// Σ e^(x - shift); shift ≥ every x and finite.
double sum_exp(std::span<const float> x, float shift);

// Σ x over each block of kSumBlock values, and over all.
constexpr size_t kSumBlock = 256;
double block_sums(std::span<const float> x, std::vector<double>& sums);

// out ← (x - shift) / divisor. shift ≥ every x, divisor > 0: results are ≤ 0. out may be x.
void shift_and_scale(std::span<const float> x, float shift, float divisor, float* out);

// 1 + how many entries rank before index i: those greater, and those equal with a lower index.
int rank_of(std::span<const float> x, int i);

// The (at most) k entries that rank first by value, equal values by lower index; in that order. -inf is never selected.
void select_top(std::span<const float> x, int k, std::vector<int>& out);

}  // namespace tutti::sample
