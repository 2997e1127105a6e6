#include <cmath>
#include <utility>

#include "kernels/fill.h"
#include "kernels/reference/matmul.h"
#include "kernels/scalar/vec.h"

namespace tutti::kernels::scalar {
namespace {

struct Bytes {
  static constexpr int kSize = 8;
  uint64_t v;

  static TUTTI_INLINE Bytes load(const uint8_t* p) {
    Bytes r;
    std::memcpy(&r.v, p, sizeof r.v);
    return r;
  }
  static TUTTI_INLINE Bytes fill(int byte) { return {0x0101010101010101ull * static_cast<uint64_t>(byte)}; }
  TUTTI_INLINE void store(uint8_t* p) const { std::memcpy(p, &v, sizeof v); }
  template <int s>
  TUTTI_INLINE Bytes shift_right() const {
    return {v >> s};
  }
  template <int s>
  TUTTI_INLINE Bytes shift_left() const {
    return {v << s};
  }
};
TUTTI_INLINE Bytes operator&(Bytes a, Bytes b) {
  return {a.v & b.v};
}
TUTTI_INLINE Bytes operator|(Bytes a, Bytes b) {
  return {a.v | b.v};
}

template <int kk>
TUTTI_INLINE Vec quad_floats(const uint8_t* p) {
  return {Vec::Raw{static_cast<float>(p[kk]), static_cast<float>(p[4 + kk]), static_cast<float>(p[8 + kk]),
                   static_cast<float>(p[12 + kk])}};
}

#include "kernels/generic/matmul_common.inl.h"

// ---- float ----

struct Bf16Pairs {
  using Value = bf16;
  static constexpr int kPartStride = 2 * Vec::kWidth;
  static TUTTI_INLINE void load(const bf16* p, Vec& even, Vec& odd) {
    typedef uint32_t Words __attribute__((vector_size(16)));
    Words pairs;
    std::memcpy(&pairs, p, sizeof pairs);
    even.v = std::bit_cast<Vec::Raw>(pairs << 16);
    odd.v = std::bit_cast<Vec::Raw>(pairs & 0xffff0000u);
  }
};

constexpr int kFloatRows = 2;
template <int MR>
constexpr int kFloatPanels = 1;

#include "kernels/generic/matmul_float.inl.h"

// ---- int8 ----

struct Sum {
  int32_t v[4];
};
TUTTI_INLINE Vec to_float(Sum s) {
  return {Vec::Raw{static_cast<float>(s.v[0]), static_cast<float>(s.v[1]), static_cast<float>(s.v[2]),
                   static_cast<float>(s.v[3])}};
}
// Rounded once, as the rule says, even where that is a library call: two a group.
TUTTI_INLINE Vec fused(Vec a, Vec b, Vec c) {
  return {Vec::Raw{std::fma(a.v[0], b.v[0], c.v[0]), std::fma(a.v[1], b.v[1], c.v[1]), std::fma(a.v[2], b.v[2], c.v[2]),
                   std::fma(a.v[3], b.v[3], c.v[3])}};
}

template <int kBits>
struct Dot {
  static constexpr int kRows = 1;  // no registers to share between rows
  template <int MR>
  static TUTTI_INLINE void dot(const uint8_t* codes, const int8_t* const* x, int quads, Sum* sum) {
    for (int i = 0; i < MR; ++i) {
      sum[i] = {};
      for (int q = 0; q < quads; ++q) {
        const uint8_t* code = codes + q * 64;
        const int8_t* a = x[i] + 4 * q;
        for (int r = 0; r < 4; ++r) {
          sum[i].v[r] += code[4 * r] * a[0] + code[4 * r + 1] * a[1] + code[4 * r + 2] * a[2] + code[4 * r + 3] * a[3];
        }
      }
    }
  }
};

#include "kernels/generic/matmul_int8.inl.h"

// ---- inputs ----

TUTTI_INLINE uint32_t max_magnitude(const float* x, int n) {
  uint32_t max = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    max = magnitude > max ? magnitude : max;
  }
  return max;
}

TUTTI_INLINE int round_int8(const float* x, int n, Vec inverse, int8_t* q) {
  int total = 0;
  for (int i = 0; i < n; i += Vec::kWidth) {
    const Vec r = round_even(mul(Vec::load(x + i), inverse));
    for (int j = 0; j < Vec::kWidth; ++j) {
      q[i + j] = static_cast<int8_t>(r.v[j]);
      total += q[i + j];
    }
  }
  return total;
}

#include "kernels/generic/quantize.inl.h"

}  // namespace

void fill_matmul(KernelTable& table) noexcept {
  table.round_bf16 = round_bf16;
  table.quantize_int8 = quantize_int8;
  table.matmul_float = matmul_float;
  table.matmul_affine_int8 = matmul_affine_int8;
  table.matmul_affine_float = matmul_affine_float;
  table.read_row = reference::read_row;
}

}  // namespace tutti::kernels::scalar
