// Matrices with their memory, inputs, and the list of kernel sets under test, for the tests of the matrix products.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/bfloat16.h"
#include "kernels/packing.h"
#include "kernels/table.h"
#include "kernels/target.h"

#if defined(TUTTI_KERNELS_X86)
#include "kernels/avx2/int8.h"
#include "kernels/avx512/int8.h"
#elif defined(TUTTI_KERNELS_NEON)
#include "kernels/neon/int8.h"
#endif

namespace tutti::kernels::testing {

struct KernelSet {
  std::string name;
  KernelTable table;
};

// Every instruction set of this machine, and where an integer product has two bodies, both.
inline std::vector<KernelSet> kernel_sets() {
  std::vector<KernelSet> sets;
  for (Isa isa : available()) {
    sets.push_back({std::string(isa_name(isa)), *table(isa)});
    [[maybe_unused]] const auto add = [&](const char* name, void (*int8)(const MatmulArgs&) noexcept) {
      KernelSet set{name, *table(isa)};
      set.table.matmul_affine_int8 = int8;
      sets.push_back(set);
    };
#if defined(TUTTI_KERNELS_X86)
    if (isa == Isa::avx2) add("avx2 pairs", avx2::matmul_affine_int8_pairs);
    if (isa == Isa::avx2 && avx2::has_vnni()) add("avx2 vnni", avx2::matmul_affine_int8_vnni);
    if (isa == Isa::avx512) add("avx512 pairs", avx512::matmul_affine_int8_pairs);
    if (isa == Isa::avx512 && avx512::has_vnni()) add("avx512 vnni", avx512::matmul_affine_int8_vnni);
#elif defined(TUTTI_KERNELS_NEON)
    if (isa == Isa::neon) add("neon products", neon::matmul_affine_int8_products);
    if (isa == Isa::neon && neon::has_dot()) add("neon dot", neon::matmul_affine_int8_dot);
#endif
  }
  return sets;
}

struct TestMatrix {
  Matrix m;
  AlignedBuffer values, extra, scales, biases;

  TestMatrix(quant::WeightFormat format, int N, int K, bool scale_float32) {
    const PackedSizes sizes = packed_sizes(format, N, K, scale_float32);
    values = AlignedBuffer(static_cast<size_t>(sizes.values));
    extra = AlignedBuffer(static_cast<size_t>(std::max<int64_t>(sizes.extra, 1)));
    scales = AlignedBuffer(static_cast<size_t>(std::max<int64_t>(sizes.scales, 1)));
    biases = AlignedBuffer(static_cast<size_t>(std::max<int64_t>(sizes.scales, 1)));
    m = {format, N, K, values.data(), extra.data(), scales.data(), biases.data(), scale_float32};
  }
};

// Codes given row-major [N, K]; scales and biases random.
inline TestMatrix affine_matrix(quant::AffineSpec spec, int N, int K, bool scale_float32,
                                const std::vector<uint8_t>& codes, std::mt19937& rng) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  const int64_t words = quant::affine_words(K, spec.bits);
  std::vector<uint32_t> packed(static_cast<size_t>(N * words));
  for (int n = 0; n < N; ++n) {
    quant::pack_affine_row(codes.data() + static_cast<size_t>(n) * K, K, spec.bits, packed.data() + n * words);
  }
  std::vector<float> scales(static_cast<size_t>(N * (K / spec.group))), biases(scales.size());
  for (auto& s : scales) s = uniform(rng) * 0.1f;
  for (auto& b : biases) b = uniform(rng);
  if (!scale_float32) {
    for (auto& s : scales) s = bf16_to_float(float_to_bf16(s));
    for (auto& b : biases) b = bf16_to_float(float_to_bf16(b));
  }
  TestMatrix t({quant::Format::affine, spec}, N, K, scale_float32);
  pack_panels({SourceType::affine, packed.data(), scales.data(), biases.data(), SourceType::float32}, t.m, 0,
              t.m.panels());
  return t;
}

inline TestMatrix random_affine(quant::AffineSpec spec, int N, int K, bool scale_float32, std::mt19937& rng) {
  std::vector<uint8_t> codes(static_cast<size_t>(N) * K);
  for (auto& c : codes) c = static_cast<uint8_t>(rng() & ((1u << spec.bits) - 1));
  return affine_matrix(spec, N, K, scale_float32, codes, rng);
}

inline TestMatrix random_float(quant::Format format, int N, int K, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> w(static_cast<size_t>(N) * K);
  for (auto& x : w) x = normal(rng);
  TestMatrix t({format, {}}, N, K, false);
  pack_panels({.type = SourceType::float32, .values = w.data()}, t.m, 0, t.m.panels());
  return t;
}

// Inputs of `rows` rows in both precisions, quantised by the reference.
struct TestInputs {
  int K = 0, group = 0;
  std::vector<float> x, scale, sum;
  std::vector<int8_t> q;

  TestInputs(int rows, int K, int group, std::mt19937& rng)
      : K(K), group(group), x(static_cast<size_t>(rows) * K), scale(x.size() / group), sum(scale.size()), q(x.size()) {
    std::normal_distribution<float> normal;
    for (auto& v : x) v = bf16_to_float(float_to_bf16(normal(rng)));
    table(Isa::reference)->quantize_int8(x.data(), rows, K, group, q.data(), scale.data(), sum.data());
  }
  // K odd or without groups: floats only.
  TestInputs(int rows, int K, std::mt19937& rng) : K(K), x(static_cast<size_t>(rows) * K) {
    std::normal_distribution<float> normal;
    for (auto& v : x) v = bf16_to_float(float_to_bf16(normal(rng)));
  }
  Activations activations() const { return {K, x.data(), q.data(), scale.data(), sum.data(), group}; }
};

inline constexpr float kUntouched = -12345.0f;

using Product = void (*)(const MatmulArgs&) noexcept;

// y [M, N] of the whole product or of panels [begin, end); rows have kSpare floats after N that must stay untouched.
inline constexpr int kSpare = 20;
inline std::vector<float> multiply(Product product, const Matrix& w, const TestInputs& in, int M,
                                   const std::vector<int32_t>& in_row = {}, int begin = 0, int end = -1) {
  const int64_t stride = w.N + kSpare;
  std::vector<float> y(static_cast<size_t>(M * stride), kUntouched);
  MatmulArgs args{.w = &w, .in = in.activations(), .M = M, .y = y.data(), .y_stride = stride};
  args.in_row = in_row.empty() ? nullptr : in_row.data();
  args.panel_begin = begin;
  args.panel_end = end < 0 ? w.panels() : end;
  product(args);
  return y;
}

// Bits, so that NaN equals NaN and -0 differs from 0.
inline ::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " values against " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "value " << i << ": " << a[i] << " against " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline std::vector<float> rows_of(const std::vector<float>& y, int64_t stride, int begin, int count) {
  return {y.begin() + begin * stride, y.begin() + (begin + count) * stride};
}

}  // namespace tutti::kernels::testing
