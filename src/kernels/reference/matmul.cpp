#include "kernels/reference/matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/bfloat16.h"
#include "kernels/fill.h"
#include "kernels/packing.h"

namespace tutti::kernels::reference {
namespace {

int input_row(const MatmulArgs& args, int m) {
  return args.in_row != nullptr ? args.in_row[m] : m;
}

struct Columns {
  int begin, end;
};
Columns columns(const MatmulArgs& args) {
  return {args.panel_begin * kPanel, std::min(args.w->N, args.panel_end * kPanel)};
}

}  // namespace

void round_bf16(const float* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = bf16_to_float(float_to_bf16(x[i]));
}

void quantize_int8(const float* x, int M, int K, int group, int8_t* q, float* scale, float* sum) noexcept {
  const int64_t groups = static_cast<int64_t>(M) * (K / group);
  for (int64_t g = 0; g < groups; ++g, x += group, q += group) {
    float max = 0;
    bool finite = true;
    for (int i = 0; i < group; ++i) {
      finite = finite && std::isfinite(x[i]);
      max = std::max(max, std::abs(x[i]));
    }
    std::fill_n(q, group, int8_t{0});
    scale[g] = sum[g] = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    if (!finite || max < kSmallestGroup) continue;
    const float inverse = 127.0f / max;
    int total = 0;
    for (int i = 0; i < group; ++i) {
      q[i] = static_cast<int8_t>(std::lrint(x[i] * inverse));
      total += q[i];
    }
    scale[g] = max / 127.0f;
    sum[g] = scale[g] * static_cast<float>(total);
  }
}

void matmul_float(const MatmulArgs& args) noexcept {
  const auto [begin, end] = columns(args);
  for (int m = 0; m < args.M; ++m) {
    const float* x = args.in.x + static_cast<int64_t>(input_row(args, m)) * args.in.K;
    for (int n = begin; n < end; ++n) {
      float acc = 0;
      for (int k = 0; k < args.w->K; ++k) acc = std::fma(x[k], float_value(*args.w, n, k), acc);
      args.y[m * args.y_stride + n] = acc;
    }
  }
}

void matmul_affine_int8(const MatmulArgs& args) noexcept {
  const Matrix& w = *args.w;
  const int group = w.format.affine.group, groups = w.K / group;
  const auto [begin, end] = columns(args);
  for (int m = 0; m < args.M; ++m) {
    const int64_t row = input_row(args, m);
    const int8_t* q = args.in.q + row * args.in.K;
    for (int n = begin; n < end; ++n) {
      float acc = 0;
      for (int g = 0; g < groups; ++g) {
        int dot = 0;
        for (int k = g * group; k < (g + 1) * group; ++k) dot += affine_code(w, n, k) * q[k];
        const float product = static_cast<float>(dot) * scale_value(w, w.scales, n, g);
        acc = std::fma(product, args.in.scale[row * groups + g], acc);
        acc = std::fma(scale_value(w, w.biases, n, g), args.in.sum[row * groups + g], acc);
      }
      args.y[m * args.y_stride + n] = acc;
    }
  }
}

void matmul_affine_float(const MatmulArgs& args) noexcept {
  const Matrix& w = *args.w;
  const int group = w.format.affine.group;
  const auto [begin, end] = columns(args);
  for (int m = 0; m < args.M; ++m) {
    const float* x = args.in.x + static_cast<int64_t>(input_row(args, m)) * args.in.K;
    for (int n = begin; n < end; ++n) {
      float acc = 0;
      for (int k = 0; k < w.K; ++k) {
        const float scaled = scale_value(w, w.scales, n, k / group) * static_cast<float>(affine_code(w, n, k));
        acc = std::fma(x[k], scaled + scale_value(w, w.biases, n, k / group), acc);
      }
      args.y[m * args.y_stride + n] = acc;
    }
  }
}

void read_row(const Matrix& w, int n, float* out) noexcept {
  unpack_row(w, n, out);
}

void fill_matmul(KernelTable& table) noexcept {
  table.round_bf16 = round_bf16;
  table.quantize_int8 = quantize_int8;
  table.matmul_float = matmul_float;
  table.matmul_affine_int8 = matmul_affine_int8;
  table.matmul_affine_float = matmul_affine_float;
  table.read_row = read_row;
}

}  // namespace tutti::kernels::reference
