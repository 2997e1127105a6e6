// Random weights in both kinds, and steps made of rows, for the tests that compare an op's two bodies.
#pragma once

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/bfloat16.h"
#include "ops/layers.h"
#include "ops/pack.h"

namespace tutti::test {

namespace mx = ops::mx;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::vector<float> values(int64_t n, float scale, float offset = 0) {
    std::uniform_real_distribution<float> d(-scale, scale);
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = offset + d(engine_);
    return v;
  }
  int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }

 private:
  std::mt19937 engine_;
};

// One weight in both kinds, from the same stored bytes.
struct Both {
  ops::Weight packed, graph;
};

// `count` matrices [N, K] of random values in a format.
inline Both random_weight(Random& random, const quant::WeightFormat& format, int N, int K, int count = 1,
                          bool stacked = false) {
  ops::WeightSource source{.format = format, .N = N, .K = K, .stacked = stacked};
  std::vector<std::vector<float>> f32;
  std::vector<std::vector<bf16>> half;
  std::vector<std::vector<uint32_t>> words;
  const auto to_half = [&](const std::vector<float>& v) {
    std::vector<bf16> out;
    for (const float x : v) out.push_back(float_to_bf16(x));
    half.push_back(std::move(out));
    return half.back().data();
  };
  half.reserve(static_cast<size_t>(count) * 2);
  for (int e = 0; e < count; ++e) {
    f32.push_back(random.values(int64_t{N} * K, 1.0f / std::sqrt(static_cast<float>(K))));
    kernels::SourceMatrix m;
    if (format.format == quant::Format::float32) {
      m.type = kernels::SourceType::float32;
      m.values = f32.back().data();
    } else if (format.format == quant::Format::bfloat16) {
      m.type = kernels::SourceType::bfloat16;
      m.values = to_half(f32.back());
    } else {
      const auto& spec = format.affine;
      const int64_t row_words = quant::affine_words(K, spec.bits);
      words.emplace_back(static_cast<size_t>(N * row_words));
      for (auto& w : words.back())
        w = static_cast<uint32_t>(random.below(1 << 16)) << 16 | static_cast<uint32_t>(random.below(1 << 16));
      const int64_t groups = int64_t{N} * (K / spec.group);
      const float step = 1.0f / std::sqrt(static_cast<float>(K)) / static_cast<float>(1 << spec.bits);
      m.type = kernels::SourceType::affine;
      m.values = words.back().data();
      m.scales = to_half(random.values(groups, step, 2 * step));
      m.biases = to_half(random.values(groups, step, -static_cast<float>(1 << spec.bits) * step));
    }
    source.matrices.push_back(m);
  }
  return {ops::pack(source, nullptr), ops::as_arrays(source)};
}

inline ops::Vector random_vector(Random& random, int n, float scale, float offset) {
  return ops::make_vector(random.values(n, scale, offset), {n});
}

// Rows {first, n}; row r owns slot r + 1 and blocks of its own, in descending order.
inline ops::StepBatch batch_of(const std::vector<std::pair<int, int>>& rows, Random& random, int vocab = 50) {
  ops::StepBatch b;
  b.row_begin = b.block_begin = {0};
  std::vector<int32_t> at;
  int next_block = 0;
  for (const auto& [first, n] : rows) {
    for (int t = 0; t < n; ++t) {
      b.tokens.push_back(random.below(vocab));
      at.push_back(first + t);
    }
    b.row_begin.push_back(b.T());
    b.first.push_back(first);
    const int blocks = (first + n + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
    for (int i = blocks; i-- > 0;) b.block_table.push_back(next_block + i);
    next_block += blocks;
    b.block_begin.push_back(static_cast<int32_t>(b.block_table.size()));
    b.slot.push_back(b.R());
    b.logits_of.push_back(b.T() - 1);
  }
  for (int axis = 0; axis < 3; ++axis) b.positions.insert(b.positions.end(), at.begin(), at.end());
  return b;
}

// The float32 mode on the best kernels here.
inline ops::Step step_of(ops::StepBatch batch, bool float32 = true, ThreadPool* pool = nullptr) {
  ops::StepContext context;
  context.batch = std::move(batch);
  context.numerics.float32 = float32;
  context.numerics.kv = kernels::KvType::float32;
  context.pool = pool;
  context.table = kernels::table(kernels::available().back());
  return std::make_shared<const ops::StepContext>(std::move(context));
}

inline std::vector<float> values_of(mx::array a) {
  a = mx::contiguous(mx::astype(a, mx::float32));
  mx::eval(a);
  return {a.data<float>(), a.data<float>() + a.size()};
}

inline float worst_difference(const mx::array& a, const mx::array& b) {
  const auto x = values_of(a), y = values_of(b);
  if (x.size() != y.size()) return INFINITY;
  float worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;  // equal infinities
    const float d = std::abs(x[i] - y[i]);
    worst = std::max(worst, std::isnan(d) ? INFINITY : d);
  }
  return worst;
}

inline mx::array random_x(Random& random, int T, int H) {
  const auto v = random.values(int64_t{T} * H, 1.0f);
  return mx::array(v.begin(), {T, H});
}

inline const std::vector<quant::WeightFormat>& formats() {
  static const std::vector<quant::WeightFormat> all = {{quant::Format::float32, {}},
                                                       {quant::Format::bfloat16, {}},
                                                       {quant::Format::affine, {4, 64}},
                                                       {quant::Format::affine, {6, 32}}};
  return all;
}

}  // namespace tutti::test
