// The gated delta rule sub-layer over our kernels: the token recurrence, prompts too, one state tile in the cache while
// the row's tokens run through it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/bodies.h"
#include "ops/checks.h"
#include "ops/cpu_linear.h"

namespace tutti::ops::cpu {
namespace {

struct Buffers {
  float* qkv;    // [T, C] before the convolution
  float* conv;   // [T, C] after it: q and k normed
  float* z;      // [T, Hv, Dv]
  float* a;      // [T, Hv]
  float* b;      // [T, Hv]
  float* decay;  // [T, Hv]
  float* beta;   // [T, Hv]
  float* o;      // [T, Hv, Dv]
};

class GatedDelta {
 public:
  GatedDelta(const StepContext& step, const DeltaWeights& w, const CpuState& cache)
      : step_(step),
        batch_(step.batch),
        table_(*step.table),
        w_(w),
        cache_(cache),
        T_(batch_.T()),
        H_(in_features(w.qkv)),
        C_(out_features(w.qkv)) {}

  void run(const float* x, float* out, Scratch& scratch) {
    project(x, scratch);
    convolve();
    const kernels::Matrix& o = matrix_of(w_.out);
    Inputs next(scratch, step_, b_.o, T_, w_.value_heads * w_.value_dim);
    next.want(o);
    recur(next);
    run_residual(step_, {.w = &o, .in = next.of(o), .M = T_, .y = out, .y_stride = H_}, x);
  }

 private:
  void project(const float* x, Scratch& scratch) {
    const kernels::Matrix &qkv = matrix_of(w_.qkv), &z = matrix_of(w_.z), &a = matrix_of(w_.a), &b = matrix_of(w_.b);
    float* normed = scratch.floats(int64_t{T_} * H_);
    Inputs in(scratch, step_, normed, T_, H_);
    for (const auto* w : {&qkv, &z, &a, &b}) in.want(*w);
    run_norm(step_, {.x = x, .gamma = &w_.input_norm, .eps = w_.eps, .normed = normed}, in);
    const int64_t gates = int64_t{T_} * w_.value_heads, channels = int64_t{T_} * C_, values = gates * w_.value_dim;
    b_ = {.qkv = scratch.floats(channels),
          .conv = scratch.floats(channels),
          .z = scratch.floats(values),
          .a = scratch.floats(gates),
          .b = scratch.floats(gates),
          .decay = scratch.floats(gates),
          .beta = scratch.floats(gates),
          .o = scratch.floats(values)};
    const Product products[] = {{.w = &qkv, .in = in.of(qkv), .M = T_, .y = b_.qkv, .y_stride = C_},
                                {.w = &z, .in = in.of(z), .M = T_, .y = b_.z, .y_stride = z.N},
                                {.w = &a, .in = in.of(a), .M = T_, .y = b_.a, .y_stride = a.N},
                                {.w = &b, .in = in.of(b), .M = T_, .y = b_.b, .y_stride = b.N}};
    run_products(step_, products);
  }

  // Convolution, norms of the q and k heads, gates. A unit is the channels of one head; the last unit of a row is its
  // gates.
  void convolve() {
    const int Hk = w_.key_heads, units = 2 * Hk + w_.value_heads + 1;
    const int per_tile = std::clamp(units * batch_.R() / (thread_count(step_) * 8), 1, units);
    const int row_tiles = (units + per_tile - 1) / per_tile;
    run_tiles(step_, batch_.R() * row_tiles, [&](int tile, int) {
      const int r = tile / row_tiles, begin = tile % row_tiles * per_tile;
      for (int unit = begin; unit < std::min(units, begin + per_tile); ++unit) {
        if (unit == units - 1)
          gates(r);
        else
          convolve_head(r, unit);
      }
    });
  }

  void gates(int r) {
    const int Hv = w_.value_heads;
    for (int64_t t = batch_.row_begin[r]; t < batch_.row_begin[r + 1]; ++t) {
      table_.delta_gates(b_.a + t * Hv, b_.b + t * Hv, w_.A_log.values.data(), w_.dt_bias.values.data(), Hv,
                         b_.decay + t * Hv, b_.beta + t * Hv);
    }
  }

  void convolve_head(int r, int unit) {
    const int Hk = w_.key_heads, Dk = w_.key_dim, Dv = w_.value_dim;
    const bool value = unit >= 2 * Hk;
    const int begin = value ? 2 * Hk * Dk + (unit - 2 * Hk) * Dv : unit * Dk, end = begin + (value ? Dv : Dk);
    float* window = cache_.conv + int64_t{batch_.slot[r]} * 3 * C_;
    if (batch_.first[r] == 0) {
      for (int j = 0; j < 3; ++j) std::fill(window + int64_t{j} * C_ + begin, window + int64_t{j} * C_ + end, 0.0f);
    }
    const int n = batch_.row_tokens(r);
    const int64_t at = int64_t{batch_.row_begin[r]} * C_;
    emit_windows(r, window, begin, end);
    table_.conv_silu(b_.qkv + at, C_, n, C_, w_.conv.values.data(), window, b_.conv + at, begin, end);
    if (value) return;
    const float scale = unit < Hk ? 1.0f / std::sqrt(static_cast<float>(Dk)) : 1.0f;
    table_.l2_norm(b_.conv + at + begin, C_, n, Dk, scale);
  }

  // Channels [begin, end) of the windows after the row's emitted tokens: the last 3 of (window, inputs so far).
  void emit_windows(int r, const float* window, int begin, int end) {
    const int64_t channels = end - begin;
    for (const StepBatch::Emit& emit : batch_.emits_of(r)) {
      const int done = emit.token - batch_.row_begin[r] + 1;
      float* to = cache_.conv + int64_t{emit.slot} * 3 * C_;
      for (int j = 0; j < 3; ++j) {
        const int64_t input = int64_t{done} + j - 3;  // < 0: still the window's
        const float* from =
            input < 0 ? window + (3 + input) * C_ : b_.qkv + (int64_t{batch_.row_begin[r]} + input) * C_;
        std::copy_n(from + begin, channels, to + int64_t{j} * C_ + begin);
      }
    }
  }

  // The recurrence by row, value head and columns of 16; then the gated norm and the conversion for the output product.
  void recur(const Inputs& next) {
    const int Hv = w_.value_heads, tiles = w_.value_dim / 16;
    const int heads = batch_.R() * Hv;
    // Whole heads when there are enough of them: the norm follows while the head is hot.
    const bool whole = heads >= 4 * thread_count(step_) && w_.value_dim % next.column_unit() == 0;
    const int cuts = whole ? 1 : tiles;
    run_tiles(step_, heads * cuts, [&](int tile, int) {
      const int r = tile / cuts / Hv, h = tile / cuts % Hv, cut = tile % cuts;
      recur_tile(r, h, whole ? 0 : cut, whole ? tiles : cut + 1);
      if (whole) finish_head(r, h, next);
    });
    if (whole) return;
    const int chunk = row_chunk(step_, T_);
    run_tiles(step_, (T_ + chunk - 1) / chunk, [&](int tile, int) {
      const int begin = tile * chunk, end = std::min(T_, begin + chunk);
      const int64_t at = int64_t{begin} * Hv * w_.value_dim;
      table_.gated_rms_norm(b_.o + at, b_.z + at, w_.norm.values.data(), w_.eps, (end - begin) * Hv, w_.value_dim,
                            b_.o + at);
      next.fill_rows(begin, end);
    });
  }

  float* state_of(int slot, int h) const {
    return cache_.state + (int64_t{slot} * w_.value_heads + h) * w_.value_dim * w_.key_dim;
  }

  // The row's tokens, cut where the state is emitted.
  void recur_tile(int r, int h, int tile_begin, int tile_end) {
    float* state = state_of(batch_.slot[r], h);
    const int64_t begin = int64_t{tile_begin} * 16 * w_.key_dim, end = int64_t{tile_end} * 16 * w_.key_dim;
    if (batch_.first[r] == 0) std::fill(state + begin, state + end, 0.0f);
    int token = batch_.row_begin[r];
    for (const StepBatch::Emit& emit : batch_.emits_of(r)) {
      recur_tokens(h, token, emit.token + 1, {state, tile_begin, tile_end});
      std::copy(state + begin, state + end, state_of(emit.slot, h) + begin);
      token = emit.token + 1;
    }
    recur_tokens(h, token, batch_.row_begin[r + 1], {state, tile_begin, tile_end});
  }

  struct StateTiles {
    float* state;  // of one head
    int begin, end;
  };
  void recur_tokens(int h, int64_t t, int64_t end, const StateTiles& tiles) {
    if (t == end) return;
    const int Hk = w_.key_heads, Hv = w_.value_heads, Dk = w_.key_dim, Dv = w_.value_dim;
    const int key_head = h / (Hv / Hk);
    const float* row = b_.conv + t * C_;
    table_.delta_rule({.n = static_cast<int>(end - t),
                       .Dk = Dk,
                       .Dv = Dv,
                       .q = row + key_head * Dk,
                       .k = row + (Hk + key_head) * Dk,
                       .qk_stride = C_,
                       .v = row + 2 * Hk * Dk + h * Dv,
                       .v_stride = C_,
                       .decay = b_.decay + t * Hv + h,
                       .beta = b_.beta + t * Hv + h,
                       .gate_stride = Hv,
                       .state = tiles.state,
                       .o = b_.o + (t * Hv + h) * Dv,
                       .o_stride = int64_t{Hv} * Dv,
                       .tile_begin = tiles.begin,
                       .tile_end = tiles.end});
  }

  void finish_head(int r, int h, const Inputs& next) {
    const int Hv = w_.value_heads, Dv = w_.value_dim;
    for (int t = batch_.row_begin[r]; t < batch_.row_begin[r + 1]; ++t) {
      const int64_t at = (int64_t{t} * Hv + h) * Dv;
      table_.gated_rms_norm(b_.o + at, b_.z + at, w_.norm.values.data(), w_.eps, 1, Dv, b_.o + at);
      next.fill_columns(t, h * Dv, (h + 1) * Dv);
    }
  }

  const StepContext& step_;
  const StepBatch& batch_;
  const kernels::KernelTable& table_;
  const DeltaWeights& w_;
  CpuState cache_;
  int T_, H_, C_;
  Buffers b_{};
};

}  // namespace

mx::array gated_delta(const mx::array& x, const Step& step, const DeltaWeights& w, const CpuState& cache) {
  auto body = [&step = *step, &w, cache](const float* in, float* out, Scratch& scratch) {
    GatedDelta(step, w, cache).run(in, out, scratch);
  };
  return cpu_node({.op = "gated_delta", .step = step, .inputs = {x}, .shape = x.shape(), .body = std::move(body)});
}

}  // namespace tutti::ops::cpu
