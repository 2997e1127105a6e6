#include "kernels/avx2/bytes.h"

#if defined(TUTTI_KERNELS_X86)
#include <cpuid.h>

#include <utility>

#include "kernels/avx2/int8.h"

#if defined(__clang__)
TUTTI_TARGET_PRAGMA(clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function))
#else
TUTTI_TARGET_PRAGMA(GCC push_options)
TUTTI_TARGET_PRAGMA(GCC target("avx2,fma,f16c,avxvnni"))
#endif
namespace tutti::kernels::avx2 {
namespace {

#include "kernels/generic/matmul_common.inl.h"

template <int kBits>
struct Dot {
  static constexpr int kRows = 8;
  template <int MR>
  static TUTTI_INLINE void dot(const uint8_t* codes, const int8_t* const* x, int quads, Sum* sum) {
    constexpr int kChains = MR >= 4 ? 1 : 4;  // few rows: more sums in flight than the latency of one
    __m256i part[MR][kChains];
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
      TUTTI_UNROLL for (int c = 0; c < kChains; ++c) part[i][c] = _mm256_setzero_si256();
    }
    for (int q = 0; q < quads; q += 8) {
      TUTTI_UNROLL for (int j = 0; j < 8; ++j) {
        const __m256i code = load_bytes(codes + (q + j) * 64);
        TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
          part[i][j % kChains] =
              _mm256_dpbusd_avx_epi32(part[i][j % kChains], code, broadcast_quad(x[i] + 4 * (q + j)));
        }
      }
    }
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
      sum[i].v = part[i][0];
      TUTTI_UNROLL for (int c = 1; c < kChains; ++c) sum[i].v = _mm256_add_epi32(sum[i].v, part[i][c]);
    }
  }
};

#include "kernels/generic/matmul_int8.inl.h"

}  // namespace

void matmul_affine_int8_vnni(const MatmulArgs& args) noexcept {
  matmul_affine_int8(args);
}

}  // namespace tutti::kernels::avx2
#if defined(__clang__)
TUTTI_TARGET_PRAGMA(clang attribute pop)
#else
TUTTI_TARGET_PRAGMA(GCC pop_options)
#endif

namespace tutti::kernels::avx2 {

bool has_vnni() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;  // AVX-VNNI
}

}  // namespace tutti::kernels::avx2
#endif
