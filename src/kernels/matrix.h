// A weight matrix in the kernels' own order. Lanes run over the output rows (N), never over K: a panel is 16 rows.
//
// float32   panel p, then k: 16 values, rows 16p … 16p+15.
// bfloat16  the same with pairs of k interleaved: [K/2][16 rows][2].
// affine    codes in bytes of one "vec": 16 rows × 4 consecutive k, byte 4*row + k%4 (what VNNI, AVX2 halves and NEON
//           quarters all take). A code of b bits is split into planes:
//             2 = {2}, 3 = {2,1}, 4 = {4}, 5 = {4,1}, 6 = {4,2}, 8 = {8}: code = base | extra << base_bits.
//           A plane of w bits packs 8/w vecs into one 64-byte vector: vec j in bits [j*w, (j+1)*w) of every byte.
//           Plane layout: [N/16][K/4 * w/8][64 bytes].
//           scales, biases: bf16 [N/16][K/group][16] (float32 when the file's own are not exact in bf16: scale_float32)
//
// N is padded to a multiple of 16 with zero rows, K (float formats) to a multiple of 2 with zero columns.
#pragma once

#include <cstdint>

#include "base/bfloat16.h"
#include "quant/formats.h"

namespace tutti::kernels {

inline constexpr int kPanel = 16;

struct Matrix {
  quant::WeightFormat format;
  int N = 0;                     // output features
  int K = 0;                     // input features
  const void* values = nullptr;  // float32 / bfloat16 panels, or the base plane
  const void* extra = nullptr;   // the second plane (3, 5, 6 bits)
  const void* scales = nullptr;  // bf16 or float32, see scale_float32
  const void* biases = nullptr;
  bool scale_float32 = false;

  int panels() const { return (N + kPanel - 1) / kPanel; }
};

// Sizes and repacking (plain loops; packing.cpp). The caller owns the memory and calls pack_* per panel, in parallel.
struct PackedSizes {
  int64_t values = 0, extra = 0, scales = 0;  // bytes; biases take as many as scales
};
PackedSizes packed_sizes(const quant::WeightFormat& format, int N, int K, bool scale_float32);

// What a file holds for one matrix: row-major [N, K].
enum class SourceType { float32, float16, bfloat16, affine };
struct SourceMatrix {
  SourceType type = SourceType::bfloat16;
  const void* values = nullptr;  // [N, K], or uint32 words [N, K*bits/32]; any alignment
  const void* scales = nullptr;  // affine: [N, K/group] in scale_type
  const void* biases = nullptr;
  SourceType scale_type = SourceType::bfloat16;
};
// Writes panels [panel_begin, panel_end) of m, whose pointers must be writable memory of packed_sizes().
void pack_panels(const SourceMatrix& source, const Matrix& m, int panel_begin, int panel_end);
// The reverse, for tests: row n of m as float32 [K] (affine: scale * code + bias).
void unpack_row(const Matrix& m, int n, float* out);

}  // namespace tutti::kernels
