#include "sample/numeric.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

namespace tutti::sample {
namespace {

// Four floats as one value, the width that every machine has; kGroups of them go side by side to hide latency.
constexpr size_t kLanes = 4, kGroups = 4, kStride = kLanes * kGroups;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t IntLanes __attribute__((vector_size(kLanes * sizeof(int32_t))));
using Groups = std::array<Lanes, kGroups>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline Lanes load(const float* x) {
  Lanes v;
  std::memcpy(&v, x, sizeof v);
  return v;
}

// Fewer than kLanes values; the other lanes hold `fill`.
inline Lanes load_part(const float* x, size_t count, float fill) {
  float v[kLanes];
  std::fill_n(v, kLanes, fill);
  std::copy_n(x, count, v);
  return load(v);
}

// Calls f(group, lanes, index of the first lane) over x; lanes beyond the end hold `fill`.
template <class F>
inline void for_lanes(const float* x, size_t count, float fill, F f) {
  size_t i = 0;
  for (; i + kStride <= count; i += kStride) {
    f(0, load(x + i), i);
    f(1, load(x + i + kLanes), i + kLanes);
    f(2, load(x + i + 2 * kLanes), i + 2 * kLanes);
    f(3, load(x + i + 3 * kLanes), i + 3 * kLanes);
  }
  for (size_t group = 0; i < count; ++group, i += kLanes) {
    const size_t left = count - i;
    f(group, left >= kLanes ? load(x + i) : load_part(x + i, left, fill), i);
  }
}

inline double add_lanes(const Groups& groups) {
  double sum = 0;
  for (const Lanes& v : groups)
    for (size_t l = 0; l < kLanes; ++l) sum += v[l];
  return sum;
}

// Cody-Waite reduction by ln 2 and a polynomial of degree 7 (Cephes expf).
inline Lanes exp_lanes(Lanes x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer in the low mantissa bits
  constexpr float kLowest = -87.0f;
  const IntLanes in_range = x > kLowest;
  const Lanes c = in_range ? x : Lanes{} + kLowest;
  const Lanes rounded = c * 1.44269504f + kMagic;
  const Lanes n = rounded - kMagic;
  const Lanes r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
  Lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const IntLanes exponent = (reinterpret_cast<IntLanes>(rounded) - std::bit_cast<int32_t>(kMagic)) << 23;
  return reinterpret_cast<Lanes>((reinterpret_cast<IntLanes>(p) + exponent) & in_range);
}

// The greatest value of x; NaN and +inf set lanes of *bad.
inline float max_of(const float* x, size_t count, IntLanes* bad) {
  Groups max;
  max.fill(Lanes{} - kInfinity);
  for_lanes(x, count, -kInfinity, [&](size_t group, Lanes v, size_t) {
    max[group] = v > max[group] ? v : max[group];
    *bad |= ~(v <= FLT_MAX);
  });
  float greatest = -kInfinity;
  for (const Lanes& v : max)
    for (size_t l = 0; l < kLanes; ++l) greatest = std::max(greatest, v[l]);
  return greatest;
}

// A value that at least k entries reach, close below the k-th greatest: the k-th greatest of the blocks' maxima.
float top_threshold(const std::vector<float>& maxima, size_t k) {
  if (k > maxima.size()) return -FLT_MAX;
  std::vector<float> copy = maxima;
  std::nth_element(copy.begin(), copy.begin() + static_cast<ptrdiff_t>(k - 1), copy.end(), std::greater<>());
  return std::max(copy[k - 1], -FLT_MAX);
}

}  // namespace

Scan scan(std::span<const float> x) {
  Scan s{-kInfinity, -1, true};
  size_t best_block = 0;
  IntLanes bad{};
  for (size_t at = 0; at < x.size(); at += kSumBlock) {
    const float max = max_of(x.data() + at, std::min(kSumBlock, x.size() - at), &bad);
    if (max > s.max) {
      s.max = max;
      best_block = at;
    }
  }
  for (size_t l = 0; l < kLanes; ++l) s.finite = s.finite && bad[l] == 0;
  if (s.max > -kInfinity && s.finite)
    s.argmax = static_cast<int>(std::find(x.begin() + static_cast<ptrdiff_t>(best_block), x.end(), s.max) - x.begin());
  return s;
}

void exp_nonpositive(std::span<const float> x, float* out) {
  for_lanes(x.data(), x.size(), 0, [&](size_t, Lanes v, size_t i) {
    const Lanes e = exp_lanes(v);
    std::memcpy(out + i, &e, std::min(kLanes, x.size() - i) * sizeof(float));
  });
}

double sum_exp(std::span<const float> x, float shift) {
  double total = 0;
  for (size_t at = 0; at < x.size(); at += kSumBlock) {
    Groups sum{};
    for_lanes(x.data() + at, std::min(kSumBlock, x.size() - at), -kInfinity,
              [&](size_t group, Lanes v, size_t) { sum[group] += exp_lanes(v - shift); });
    total += add_lanes(sum);
  }
  return total;
}

double block_sums(std::span<const float> x, std::vector<double>& sums) {
  sums.clear();
  double total = 0;
  for (size_t at = 0; at < x.size(); at += kSumBlock) {
    Groups sum{};
    for_lanes(x.data() + at, std::min(kSumBlock, x.size() - at), 0,
              [&](size_t group, Lanes v, size_t) { sum[group] += v; });
    sums.push_back(add_lanes(sum));
    total += sums.back();
  }
  return total;
}

void shift_and_scale(std::span<const float> x, float shift, float divisor, float* out) {
  for (size_t i = 0; i < x.size(); ++i) out[i] = (x[i] - shift) / divisor;
}

int rank_of(std::span<const float> x, int i) {
  const float value = x[static_cast<size_t>(i)];
  int before = 0;
  for (float v : x) before += v > value ? 1 : 0;
  for (float v : x.first(static_cast<size_t>(i))) before += v == value ? 1 : 0;
  return 1 + before;
}

void select_top(std::span<const float> x, int k, std::vector<int>& out) {
  constexpr size_t kBlock = 64;
  out.clear();
  if (k <= 0 || x.empty()) return;
  std::vector<float> maxima((x.size() + kBlock - 1) / kBlock);
  IntLanes bad{};
  for (size_t b = 0; b < maxima.size(); ++b)
    maxima[b] = max_of(x.data() + b * kBlock, std::min(kBlock, x.size() - b * kBlock), &bad);
  const float threshold = top_threshold(maxima, static_cast<size_t>(k));
  for (size_t b = 0; b < maxima.size(); ++b) {
    if (maxima[b] < threshold) continue;
    for (size_t i = b * kBlock; i < std::min(x.size(), (b + 1) * kBlock); ++i)
      if (x[i] >= threshold) out.push_back(static_cast<int>(i));
  }
  const auto first = [&](int a, int b) {
    const float va = x[static_cast<size_t>(a)], vb = x[static_cast<size_t>(b)];
    return va != vb ? va > vb : a < b;
  };
  if (out.size() > static_cast<size_t>(k)) {
    std::nth_element(out.begin(), out.begin() + (k - 1), out.end(), first);
    out.resize(static_cast<size_t>(k));
  }
  std::sort(out.begin(), out.end(), first);
}

}  // namespace tutti::sample
