#include "kernels/neon/bytes.h"

#if defined(TUTTI_KERNELS_NEON)
#include <utility>

#include "kernels/fill.h"
#include "kernels/neon/int8.h"
#include "kernels/reference/matmul.h"

namespace tutti::kernels::neon {
namespace {

#include "kernels/generic/matmul_common.inl.h"

// ---- float ----

struct Bf16Pairs {
  using Value = bf16;
  static constexpr int kPartStride = 2 * Vec::kWidth;
  static TUTTI_INLINE void load(const bf16* p, Vec& even, Vec& odd) {
    const uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(p));
    even.v = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    odd.v = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
  }
};

constexpr int kFloatRows = 4;
template <int MR>
constexpr int kFloatPanels = MR <= 2 ? 2 : 1;

#include "kernels/generic/matmul_float.inl.h"

// ---- int8: products in 16 bits, summed in 32; lane k % 4 of a row's sum, joined at the end of a group ----

template <int kBits>
struct Dot {
  static constexpr int kRows = 4;
  template <int MR>
  static TUTTI_INLINE void dot(const uint8_t* codes, const int8_t* const* x, int quads, Sum* sum) {
    int32x4_t part[MR][4];
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
      TUTTI_UNROLL for (int r = 0; r < 4; ++r) part[i][r] = vdupq_n_s32(0);
    }
    for (int q = 0; q < quads; ++q) {
      const uint8x16_t code = vld1q_u8(codes + q * 64);
      const int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(code)));
      const int16x8_t high = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(code)));
      TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
        const int16x4_t a = vget_low_s16(vmovl_s8(vget_low_s8(broadcast_quad(x[i] + 4 * q))));
        part[i][0] = vmlal_s16(part[i][0], vget_low_s16(low), a);
        part[i][1] = vmlal_s16(part[i][1], vget_high_s16(low), a);
        part[i][2] = vmlal_s16(part[i][2], vget_low_s16(high), a);
        part[i][3] = vmlal_s16(part[i][3], vget_high_s16(high), a);
      }
    }
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
      sum[i].v = vpaddq_s32(vpaddq_s32(part[i][0], part[i][1]), vpaddq_s32(part[i][2], part[i][3]));
    }
  }
};

#include "kernels/generic/matmul_int8.inl.h"

// ---- inputs ----

TUTTI_INLINE uint32_t max_magnitude(const float* x, int n) {
  uint32x4_t max = vdupq_n_u32(0);
  for (int i = 0; i < n; i += 4) {
    max = vmaxq_u32(max, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffffu)));
  }
  return vmaxvq_u32(max);
}

TUTTI_INLINE int round_int8(const float* x, int n, Vec inverse, int8_t* q) {
  int32x4_t total = vdupq_n_s32(0);
  for (int i = 0; i < n; i += 8) {
    const int32x4_t a = vcvtnq_s32_f32(mul(Vec::load(x + i), inverse).v);
    const int32x4_t b = vcvtnq_s32_f32(mul(Vec::load(x + i + 4), inverse).v);
    vst1_s8(q + i, vqmovn_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b))));
    total = vaddq_s32(total, vaddq_s32(a, b));
  }
  return vaddvq_s32(total);
}

#include "kernels/generic/quantize.inl.h"

}  // namespace

void matmul_affine_int8_products(const MatmulArgs& args) noexcept {
  matmul_affine_int8(args);
}

void fill_matmul(KernelTable& table) noexcept {
  table.round_bf16 = round_bf16;
  table.quantize_int8 = quantize_int8;
  table.matmul_float = matmul_float;
  table.matmul_affine_int8 = has_dot() ? matmul_affine_int8_dot : matmul_affine_int8_products;
  table.matmul_affine_float = matmul_affine_float;
  table.read_row = reference::read_row;
}

}  // namespace tutti::kernels::neon
#endif
