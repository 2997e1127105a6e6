#include <mlx/ops.h>

#include <cmath>

#include "ops/bodies.h"
#include "ops/graph_ops.h"

namespace tutti::ops::graph {
namespace {

// The tokens of one row, normed and gated.
struct Tokens {
  mx::array q, k;         // [n, Hv, Dk]
  mx::array v;            // [n, Hv, Dv]
  mx::array decay, beta;  // [n, Hv]
};

// Slot `slot` of a pool [slots, …], without the first axis.
mx::array read_slot(const mx::array& pool, int slot) {
  return mx::squeeze(rows(pool, slot, slot + 1), 0);
}
void write_slot(mx::array& pool, int slot, const mx::array& value) {
  mx::Shape start(pool.ndim(), 0), stop = pool.shape();
  start[0] = slot;
  stop[0] = slot + 1;
  pool = mx::slice_update(std::move(pool), mx::expand_dims(value, 0), start, stop);
}

// Row r's inputs u [n, C] → silu of the causal convolution; the pool's window becomes the last 3 inputs.
mx::array convolve(const mx::array& u, mx::array& pool, const StepBatch& batch, int r, const Vector& taps) {
  const int n = u.shape(0), C = u.shape(1), slot = batch.slot[r];
  const auto window = batch.first[r] == 0 ? mx::zeros({3, C}, mx::float32) : read_slot(pool, slot);
  const auto c = mx::concatenate({window, u}, 0);
  write_slot(pool, slot, rows(c, n, n + 3));
  for (const StepBatch::Emit& emit : batch.emits_of(r)) {
    const int done = emit.token - batch.row_begin[r] + 1;
    write_slot(pool, emit.slot, rows(c, done, done + 3));
  }
  auto y = rows(taps.array, 0, 1) * rows(c, 0, n);
  for (int j = 1; j < 4; ++j) y = y + rows(taps.array, j, j + 1) * rows(c, j, j + n);
  return silu(y);
}

mx::array l2_norm(const mx::array& x) {
  return x * mx::rsqrt(mx::sum(mx::square(x), -1, true) + mx::array(1e-6f));
}

// y [n, C] after the convolution → heads; key heads are repeated for their value heads.
Tokens split(const mx::array& y, const mx::array& decay, const mx::array& beta, const DeltaWeights& w) {
  const int n = y.shape(0), Hk = w.key_heads, Dk = w.key_dim, Hv = w.value_heads, Dv = w.value_dim, kd = Hk * Dk;
  const auto part = [&](int begin, int heads, int D) {
    return mx::reshape(mx::slice(y, {0, begin}, {n, begin + heads * D}), {n, heads, D});
  };
  const auto q = l2_norm(part(0, Hk, Dk)) * mx::array(1.0f / std::sqrt(static_cast<float>(Dk)));
  const auto k = l2_norm(part(kd, Hk, Dk));
  return {mx::repeat(q, Hv / Hk, 1), mx::repeat(k, Hv / Hk, 1), part(2 * kd, Hv, Dv), decay, beta};
}

// The recurrence (docs/model.md 6.4) over row r's tokens, from and to its slot of the pool. → [n, Hv, Dv]
mx::array recur(const Tokens& t, mx::array& pool, const StepBatch& batch, int r) {
  const int n = t.q.shape(0), Hv = t.q.shape(1), Dk = t.q.shape(2), Dv = t.v.shape(2);
  auto state = batch.first[r] == 0 ? mx::zeros({Hv, Dk, Dv}, mx::float32) : read_slot(pool, batch.slot[r]);
  auto emits = batch.emits_of(r);
  std::vector<mx::array> outputs;
  for (int i = 0; i < n; ++i) {
    const auto token = [&](const mx::array& a, mx::Shape shape) {
      return mx::reshape(rows(a, i, i + 1), std::move(shape));
    };
    const auto k = token(t.k, {Hv, Dk, 1}), q = token(t.q, {Hv, Dk, 1});
    state = state * token(t.decay, {Hv, 1, 1});
    const auto predicted = mx::sum(state * k, 1, true);  // [Hv, 1, Dv]
    const auto u = token(t.beta, {Hv, 1, 1}) * (token(t.v, {Hv, 1, Dv}) - predicted);
    state = state + k * u;
    outputs.push_back(mx::reshape(mx::sum(state * q, 1), {1, Hv, Dv}));
    for (; !emits.empty() && emits.front().token == batch.row_begin[r] + i; emits = emits.subspan(1))
      write_slot(pool, emits.front().slot, state);
  }
  write_slot(pool, batch.slot[r], state);
  return mx::concatenate(outputs, 0);
}

mx::array softplus(const mx::array& x) {
  return mx::where(mx::greater(x, mx::array(20.0f)), x, mx::log1p(mx::exp(x)));
}

}  // namespace

mx::array gated_delta(const mx::array& x, const Step& step, const DeltaWeights& w, const GraphState& cache) {
  const StepBatch& batch = step->batch;
  const int T = batch.T(), Hv = w.value_heads, Dv = w.value_dim;
  const auto n = rms(x, w.input_norm, w.eps);
  const auto u = linear(n, w.qkv);
  const auto z = mx::reshape(linear(n, w.z), {T, Hv, Dv});
  const auto beta = mx::sigmoid(linear(n, w.b));
  const auto decay = mx::exp(-mx::exp(w.A_log.array) * softplus(linear(n, w.a) + w.dt_bias.array));

  std::vector<mx::array> outputs;
  for (int r = 0; r < batch.R(); ++r) {
    const int begin = batch.row_begin[r], end = batch.row_begin[r + 1];
    const auto y = convolve(rows(u, begin, end), *cache.conv, batch, r, w.conv);
    const auto tokens = split(y, rows(decay, begin, end), rows(beta, begin, end), w);
    outputs.push_back(recur(tokens, *cache.state, batch, r));
  }
  const auto o = rms(mx::concatenate(outputs, 0), w.norm, w.eps) * silu(z);
  return x + linear(mx::reshape(o, {T, Hv * Dv}), w.out);
}

}  // namespace tutti::ops::graph
