#include "kernels/neon/bytes.h"

#if defined(TUTTI_KERNELS_NEON)
#include <utility>

#include "kernels/neon/int8.h"

#if defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__clang__)
TUTTI_TARGET_PRAGMA(clang attribute push(__attribute__((target("dotprod"))), apply_to = function))
#else
TUTTI_TARGET_PRAGMA(GCC push_options)
TUTTI_TARGET_PRAGMA(GCC target("arch=armv8.2-a+dotprod"))
#endif
namespace tutti::kernels::neon {
namespace {

#include "kernels/generic/matmul_common.inl.h"

// Σ of the inputs of a group.
TUTTI_INLINE int32_t sum_inputs(const int8_t* x, int n) {
  int32x4_t sum = vdupq_n_s32(0);
  for (int i = 0; i < n; i += 16) sum = vdotq_s32(sum, vdupq_n_s8(1), vld1q_s8(x + i));
  return vaddvq_s32(sum);
}

template <int kBits>
struct Dot {
  static constexpr int kRows = 8;
  template <int MR>
  static TUTTI_INLINE void dot(const uint8_t* codes, const int8_t* const* x, int quads, Sum* sum) {
    constexpr int kChains = MR >= 4 ? 1 : 4;  // few rows: more sums in flight than the latency of one
    int32x4_t part[MR][kChains];
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
      TUTTI_UNROLL for (int c = 0; c < kChains; ++c) part[i][c] = vdupq_n_s32(0);
    }
    for (int q = 0; q < quads; q += 4) {
      TUTTI_UNROLL for (int j = 0; j < 4; ++j) {
        uint8x16_t code = vld1q_u8(codes + (q + j) * 64);
        // The operands are signed: 8-bit codes take part less 128, which the sum of the inputs gives back.
        if constexpr (kBits == 8) code = veorq_u8(code, vdupq_n_u8(0x80));
        TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
          part[i][j % kChains] =
              vdotq_s32(part[i][j % kChains], vreinterpretq_s8_u8(code), broadcast_quad(x[i] + 4 * (q + j)));
        }
      }
    }
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
      sum[i].v = part[i][0];
      TUTTI_UNROLL for (int c = 1; c < kChains; ++c) sum[i].v = vaddq_s32(sum[i].v, part[i][c]);
      if constexpr (kBits == 8) sum[i].v = vaddq_s32(sum[i].v, vdupq_n_s32(128 * sum_inputs(x[i], 4 * quads)));
    }
  }
};

#include "kernels/generic/matmul_int8.inl.h"

}  // namespace

void matmul_affine_int8_dot(const MatmulArgs& args) noexcept {
  matmul_affine_int8(args);
}

}  // namespace tutti::kernels::neon
#if defined(__clang__)
TUTTI_TARGET_PRAGMA(clang attribute pop)
#else
TUTTI_TARGET_PRAGMA(GCC pop_options)
#endif

namespace tutti::kernels::neon {

bool has_dot() noexcept {
#if defined(__APPLE__) || defined(__ARM_FEATURE_DOTPROD)
  return true;
#elif defined(__linux__)
  constexpr unsigned long kDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotProduct) != 0;
#else
  return false;
#endif
}

}  // namespace tutti::kernels::neon
#endif
