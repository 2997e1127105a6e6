// The attention sub-layer over our kernels. Results never depend on how it is cut: keys are reduced in ranges of 1024
// that are merged in order, whether one tile walks through them or many tiles compute one each.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/bodies.h"
#include "ops/checks.h"
#include "ops/cpu_linear.h"
#include "ops/rope.h"

namespace tutti::ops::cpu {
namespace {

constexpr int kQueries = 16;                 // queries of a tile
constexpr int64_t kPartialBytes = 32 << 20;  // most that the partial results of a step may take

struct Shape {
  int T, H, heads, groups, D;
  int per_group() const { return heads / groups; }
};

struct Buffers {
  float* qg;  // [T, heads, 2, D] query and gate
  float* q;   // [T, heads, D] normed and rotated
  float* k;   // [T, groups, D]
  float* v;   // [T, groups, D]
  float* o;   // [T, heads, D]
};

// Queries [begin, end) of a row, one kv head.
struct Span {
  int row, begin, end, group;
  int ranges;       // key ranges that its last query sees
  int64_t partial;  // number of its first partial, in rows of queries × heads, when ranges are split
};

kernels::AttentionPartial carve(float* memory, int64_t rows, int D) {
  return {.m = memory, .l = memory + rows, .o = memory + 2 * rows};
}
int64_t partial_floats(int64_t rows, int D) {
  return rows * (D + 2);
}

class Attention {
 public:
  Attention(const StepContext& step, const AttentionWeights& w, const Rope& rope, const kernels::KvLayer& kv)
      : step_(step),
        table_(*step.table),
        w_(w),
        rope_(rope),
        kv_(kv),
        s_{step.batch.T(), in_features(w.q), w.heads, w.kv_heads, w.head_dim} {}

  void run(const float* x, float* out, Scratch& scratch) {
    project(x, scratch);
    rotate_and_store(scratch);
    const kernels::Matrix& o = matrix_of(w_.o);
    Inputs next(scratch, step_, b_.o, s_.T, s_.heads * s_.D);
    next.want(o);
    attend(scratch);
    gate(next);
    run_residual(step_, {.w = &o, .in = next.of(o), .M = s_.T, .y = out, .y_stride = s_.H}, x);
  }

 private:
  void project(const float* x, Scratch& scratch) {
    const kernels::Matrix &q = matrix_of(w_.q), &k = matrix_of(w_.k), &v = matrix_of(w_.v);
    float* normed = scratch.floats(int64_t{s_.T} * s_.H);
    Inputs in(scratch, step_, normed, s_.T, s_.H);
    for (const auto* w : {&q, &k, &v}) in.want(*w);
    run_norm(step_, {.x = x, .gamma = &w_.input_norm, .eps = w_.eps, .normed = normed}, in);
    const int64_t queries = int64_t{s_.T} * s_.heads * s_.D, keys = int64_t{s_.T} * s_.groups * s_.D;
    b_ = {.qg = scratch.floats(2 * queries),
          .q = scratch.floats(queries),
          .k = scratch.floats(keys),
          .v = scratch.floats(keys),
          .o = scratch.floats(queries)};
    const Product products[] = {{.w = &q, .in = in.of(q), .M = s_.T, .y = b_.qg, .y_stride = q.N},
                                {.w = &k, .in = in.of(k), .M = s_.T, .y = b_.k, .y_stride = k.N},
                                {.w = &v, .in = in.of(v), .M = s_.T, .y = b_.v, .y_stride = v.N}};
    run_products(step_, products);
  }

  // Norms of the heads, rotation, and the new keys and values into their blocks.
  void rotate_and_store(Scratch& scratch) {
    const StepBatch& batch = step_.batch;
    row_of_ = scratch.take<int32_t>(s_.T);
    for (int r = 0; r < batch.R(); ++r) std::fill(row_of_ + batch.row_begin[r], row_of_ + batch.row_begin[r + 1], r);
    const int half = rope_.rotary_dim / 2, chunk = row_chunk(step_, s_.T);
    float* angles = scratch.floats(int64_t{thread_count(step_)} * 2 * half);
    run_tiles(step_, (s_.T + chunk - 1) / chunk, [&](int tile, int thread) {
      float* cos = angles + int64_t{thread} * 2 * half;
      for (int t = tile * chunk; t < std::min(s_.T, (tile + 1) * chunk); ++t) {
        rope_angles(rope_, batch, t, cos, cos + half);
        store_token(t, cos, cos + half);
      }
    });
  }

  void store_token(int t, const float* cos, const float* sin) {
    const int half = rope_.rotary_dim / 2, D = s_.D;
    float* q = b_.q + int64_t{t} * s_.heads * D;
    float* k = b_.k + int64_t{t} * s_.groups * D;
    for (int h = 0; h < s_.heads; ++h) {
      const float* from = b_.qg + (int64_t{t} * s_.heads + h) * 2 * D;
      table_.rms_norm(from, w_.q_norm.values.data(), w_.eps, 1, D, q + int64_t{h} * D);
    }
    table_.rms_norm(k, w_.k_norm.values.data(), w_.eps, s_.groups, D, k);
    table_.rope(q, D, s_.heads, cos, sin, half);
    table_.rope(k, D, s_.groups, cos, sin, half);
    const int r = row_of_[t];
    table_.kv_write(kv_, step_.batch.blocks(r), step_.batch.first[r] + t - step_.batch.row_begin[r], k,
                    b_.v + int64_t{t} * s_.groups * D);
  }

  void attend(Scratch& scratch) {
    const StepBatch& batch = step_.batch;
    std::vector<Span> spans;
    int64_t partials = 0;
    int most = 1;
    for (int r = 0; r < batch.R(); ++r) {
      const int n = batch.row_tokens(r);
      for (int begin = 0; begin < n; begin += kQueries) {
        const int end = std::min(n, begin + kQueries);
        const int ranges = (batch.first[r] + end + kernels::kRangeTokens - 1) / kernels::kRangeTokens;
        most = std::max(most, ranges);
        for (int g = 0; g < s_.groups; ++g) {
          spans.push_back({r, begin, end, g, ranges, partials});
          partials += int64_t{ranges} * (end - begin) * s_.per_group();
        }
      }
    }
    const bool few = static_cast<int>(spans.size()) < 4 * thread_count(step_);
    const int64_t bytes = partial_floats(partials, s_.D) * static_cast<int64_t>(sizeof(float));
    if (few && most > 1 && bytes <= kPartialBytes) return attend_split(spans, partials, scratch);
    attend_whole(spans, scratch);
  }

  kernels::AttentionArgs arguments(int r) const {
    const StepBatch& batch = step_.batch;
    return {.kv = kv_,
            .blocks = batch.blocks(r),
            .first = batch.first[r],
            .n = batch.row_tokens(r),
            .H = s_.heads,
            .q = b_.q + int64_t{batch.row_begin[r]} * s_.heads * s_.D,
            .scale = 1.0f / std::sqrt(static_cast<float>(s_.D))};
  }

  int64_t scratch_floats() const { return kernels::attention_scratch(kQueries, s_.per_group(), s_.D); }

  // A tile walks through all ranges of its queries.
  void attend_whole(const std::vector<Span>& spans, Scratch& scratch) {
    const int64_t rows = int64_t{kQueries} * s_.per_group();
    const int64_t stride = (scratch_floats() + 2 * partial_floats(rows, s_.D) + 15) / 16 * 16;
    float* memory = scratch.floats(stride * thread_count(step_));
    run_tiles(step_, static_cast<int>(spans.size()), [&](int tile, int thread) {
      const Span& span = spans[tile];
      float* own = memory + thread * stride;
      const auto total = carve(own + scratch_floats(), rows, s_.D);
      const auto part = carve(own + scratch_floats() + partial_floats(rows, s_.D), rows, s_.D);
      const int used = (span.end - span.begin) * s_.per_group();
      clear(total, used);
      for (int range = 0; range < span.ranges; ++range) {
        table_.attention_range(arguments(span.row), span.begin, span.end, span.group, range, part, own);
        table_.attention_merge(total, part, used, s_.D);
      }
      finish(span, total);
    });
  }

  // A tile computes one range; then each span's ranges are merged in order.
  void attend_split(const std::vector<Span>& spans, int64_t partials, Scratch& scratch) {
    struct Piece {
      int span, range;
    };
    std::vector<Piece> pieces;
    for (int i = 0; i < static_cast<int>(spans.size()); ++i) {
      for (int range = 0; range < spans[i].ranges; ++range) pieces.push_back({i, range});
    }
    const int64_t stride = (scratch_floats() + 15) / 16 * 16;
    float* memory = scratch.floats(stride * thread_count(step_));
    float* parts = scratch.floats(partial_floats(partials, s_.D));
    const auto part_of = [&](const Span& span, int range) {
      const int64_t rows = int64_t{span.end - span.begin} * s_.per_group();
      return carve(parts + partial_floats(span.partial + range * rows, s_.D), rows, s_.D);
    };
    run_tiles(step_, static_cast<int>(pieces.size()), [&](int tile, int thread) {
      const Span& span = spans[pieces[tile].span];
      table_.attention_range(arguments(span.row), span.begin, span.end, span.group, pieces[tile].range,
                             part_of(span, pieces[tile].range), memory + thread * stride);
    });
    const int64_t rows = int64_t{kQueries} * s_.per_group();
    float* totals = scratch.floats(partial_floats(rows, s_.D) * thread_count(step_));
    run_tiles(step_, static_cast<int>(spans.size()), [&](int tile, int thread) {
      const Span& span = spans[tile];
      const auto total = carve(totals + thread * partial_floats(rows, s_.D), rows, s_.D);
      const int used = (span.end - span.begin) * s_.per_group();
      clear(total, used);
      for (int range = 0; range < span.ranges; ++range) {
        table_.attention_merge(total, part_of(span, range), used, s_.D);
      }
      finish(span, total);
    });
  }

  void clear(const kernels::AttentionPartial& total, int rows) const {
    std::fill(total.m, total.m + rows, -std::numeric_limits<float>::infinity());
    std::fill(total.l, total.l + rows, 0.0f);
    std::fill(total.o, total.o + int64_t{rows} * s_.D, 0.0f);
  }

  // o = Σ exp(s - m) v / Σ exp(s - m).
  void finish(const Span& span, const kernels::AttentionPartial& total) {
    const int per_group = s_.per_group(), D = s_.D;
    for (int q = span.begin; q < span.end; ++q) {
      const int64_t t = step_.batch.row_begin[span.row] + q;
      for (int h = 0; h < per_group; ++h) {
        const int64_t row = int64_t{q - span.begin} * per_group + h;
        const float l = total.l[row];
        const float* from = total.o + row * D;
        float* to = b_.o + (t * s_.heads + span.group * per_group + h) * D;
        for (int d = 0; d < D; ++d) to[d] = from[d] / l;
      }
    }
  }

  // o *= sigmoid(gate), converted for the output product.
  void gate(const Inputs& next) {
    const int chunk = row_chunk(step_, s_.T), D = s_.D;
    run_tiles(step_, (s_.T + chunk - 1) / chunk, [&](int tile, int) {
      const int begin = tile * chunk, end = std::min(s_.T, begin + chunk);
      for (int64_t row = int64_t{begin} * s_.heads; row < int64_t{end} * s_.heads; ++row) {
        table_.sigmoid_mul(b_.o + row * D, b_.qg + (2 * row + 1) * D, D, b_.o + row * D);
      }
      next.fill_rows(begin, end);
    });
  }

  const StepContext& step_;
  const kernels::KernelTable& table_;
  const AttentionWeights& w_;
  const Rope& rope_;
  kernels::KvLayer kv_;
  Shape s_;
  Buffers b_{};
  int32_t* row_of_ = nullptr;  // [T]
};

}  // namespace

mx::array attention(const mx::array& x, const Step& step, const AttentionWeights& w, const Rope& rope,
                    const kernels::KvLayer& cache) {
  auto body = [&step = *step, &w, &rope, cache](const float* in, float* out, Scratch& scratch) {
    Attention(step, w, rope, cache).run(in, out, scratch);
  };
  return cpu_node({.op = "attention", .step = step, .inputs = {x}, .shape = x.shape(), .body = std::move(body)});
}

}  // namespace tutti::ops::cpu
