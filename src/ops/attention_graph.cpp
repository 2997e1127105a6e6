#include <mlx/ops.h>

#include <cmath>
#include <limits>

#include "ops/bodies.h"
#include "ops/graph_ops.h"
#include "ops/rope.h"

namespace tutti::ops::graph {
namespace {

struct Angles {
  mx::array cos, sin;  // [T, 1, half]
};
Angles angles(const Rope& rope, const StepBatch& batch) {
  const int T = batch.T(), half = rope.rotary_dim / 2;
  std::vector<float> cos(static_cast<size_t>(T) * half), sin(cos.size());
  for (int t = 0; t < T; ++t)
    rope_angles(rope, batch, t, &cos[static_cast<size_t>(t) * half], &sin[static_cast<size_t>(t) * half]);
  return {mx::array(cos.begin(), {T, 1, half}), mx::array(sin.begin(), {T, 1, half})};
}

// x [T, heads, D]: dims i and i + half rotate, the rest passes.
mx::array rotate(const mx::array& x, const Angles& a) {
  const int T = x.shape(0), heads = x.shape(1), D = x.shape(2), half = a.cos.shape(2);
  const auto part = [&](int begin, int end) { return mx::slice(x, {0, 0, begin}, {T, heads, end}); };
  const auto low = part(0, half), high = part(half, 2 * half);
  return mx::concatenate({low * a.cos - high * a.sin, high * a.cos + low * a.sin, part(2 * half, D)}, -1);
}

// Numbers of the cache entries of tokens [begin, end) of row r, in a pool flattened to [blocks * 64, …].
mx::array entries(const StepBatch& batch, int r, int begin, int end) {
  std::vector<int32_t> at;
  for (int i = begin; i < end; ++i) {
    at.push_back(batch.blocks(r)[i / kernels::kBlockTokens] * kernels::kBlockTokens + i % kernels::kBlockTokens);
  }
  return int_array(at);
}

// Moves the pool through the write of `values` [n, G, D] and returns the entries `all` of it in float32.
mx::array write_and_read(mx::array& pool, const mx::array& values, const mx::array& written, const mx::array& all) {
  const mx::Shape shape = pool.shape();
  const int n = values.shape(0), G = shape[2], D = shape[3];
  const auto updates = mx::reshape(mx::astype(values, pool.dtype()), {n, 1, G, D});
  auto flat = mx::reshape(std::move(pool), {shape[0] * shape[1], G, D});
  flat = mx::scatter(flat, written, updates, 0);
  const auto read = mx::astype(mx::take(flat, all, 0), mx::float32);
  pool = mx::reshape(flat, shape);
  return read;
}

// q [n, heads, D], k and v [S, G, D]; query t sees keys 0 … first + t.
mx::array attend(const mx::array& q, const mx::array& k, const mx::array& v, int first) {
  const int n = q.shape(0), heads = q.shape(1), D = q.shape(2), S = k.shape(0), G = k.shape(1);
  const auto queries = mx::transpose(mx::reshape(q, {n, G, heads / G, D}), {1, 2, 0, 3});  // [G, per group, n, D]
  const auto keys = mx::expand_dims(mx::transpose(k, {1, 2, 0}), 1);                       // [G, 1, D, S]
  const auto values = mx::expand_dims(mx::transpose(v, {1, 0, 2}), 1);                     // [G, 1, S, D]
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  const auto scores = mx::matmul(queries * mx::array(scale), keys);
  const auto last = mx::reshape(mx::arange(first, first + n, mx::int32), {n, 1});
  const auto visible = mx::less_equal(mx::reshape(mx::arange(S, mx::int32), {1, S}), last);
  const auto masked = mx::where(visible, scores, mx::array(-std::numeric_limits<float>::infinity()));
  const auto o = mx::matmul(mx::softmax(masked, -1, true), values);
  return mx::reshape(mx::transpose(o, {2, 0, 1, 3}), {n, heads, D});
}

}  // namespace

mx::array attention(const mx::array& x, const Step& step, const AttentionWeights& w, const Rope& rope,
                    const GraphKv& cache) {
  const StepBatch& batch = step->batch;
  const int T = batch.T(), heads = w.heads, G = w.kv_heads, D = w.head_dim;
  const auto n = rms(x, w.input_norm, w.eps);
  const auto qg = mx::reshape(linear(n, w.q), {T, heads, 2, D});
  const auto half_of = [&](int i) {
    return mx::reshape(mx::slice(qg, {0, 0, i, 0}, {T, heads, i + 1, D}), {T, heads, D});
  };
  const auto a = angles(rope, batch);
  const auto q = rotate(rms(half_of(0), w.q_norm, w.eps), a);
  const auto k = rotate(rms(mx::reshape(linear(n, w.k), {T, G, D}), w.k_norm, w.eps), a);
  const auto v = mx::reshape(linear(n, w.v), {T, G, D});

  std::vector<mx::array> outputs;
  for (int r = 0; r < batch.R(); ++r) {
    const int begin = batch.row_begin[r], end = batch.row_begin[r + 1], first = batch.first[r], S = first + end - begin;
    const auto written = entries(batch, r, first, S), all = entries(batch, r, 0, S);
    const auto keys = write_and_read(*cache.k, rows(k, begin, end), written, all);
    const auto values = write_and_read(*cache.v, rows(v, begin, end), written, all);
    outputs.push_back(attend(rows(q, begin, end), keys, values, first));
  }
  const auto o = mx::concatenate(outputs, 0) * mx::sigmoid(half_of(1));
  return x + linear(mx::reshape(o, {T, heads * D}), w.o);
}

}  // namespace tutti::ops::graph
