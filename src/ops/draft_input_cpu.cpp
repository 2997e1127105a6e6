#include <algorithm>

#include "ops/bodies.h"
#include "ops/cpu_linear.h"

namespace tutti::ops::cpu {

mx::array draft_input(const mx::array& hidden, const Step& step, const DraftInputWeights& w) {
  const kernels::Matrix &fc = std::get<PackedWeight>(w.fc).matrix(), &table = std::get<PackedWeight>(*w.table).matrix();
  const int T = step->batch.T(), H = fc.N;
  auto body = [&step = *step, &w, &fc, &table, T, H](const float* in, float* out, Scratch& scratch) {
    float* both = scratch.floats(int64_t{T} * 2 * H);  // [T, 2H]: embedding, hidden
    Inputs inputs(scratch, step, both, T, 2 * H);
    inputs.want(fc);
    const int chunk = row_chunk(step, T);
    run_tiles(step, (T + chunk - 1) / chunk, [&](int tile, int) {
      const int begin = tile * chunk, end = std::min(T, begin + chunk);
      for (int t = begin; t < end; ++t) {
        float* embedding = both + int64_t{t} * 2 * H;
        step.table->read_row(table, step.batch.tokens[static_cast<size_t>(t)], embedding);
        step.table->rms_norm(embedding, w.embedding_norm.values.data(), w.eps, 1, H, embedding);
        step.table->rms_norm(in + int64_t{t} * H, w.hidden_norm.values.data(), w.eps, 1, H, embedding + H);
      }
      inputs.fill_rows(begin, end);
    });
    const Product product{.w = &fc, .in = inputs.of(fc), .M = T, .y = out, .y_stride = H};
    run_products(step, {&product, 1});
  };
  return cpu_node(
      {.op = "draft_input", .step = step, .inputs = {hidden}, .shape = hidden.shape(), .body = std::move(body)});
}

mx::array norm(const mx::array& x, const Step& step, const Vector& gamma, float eps) {
  const int T = step->batch.T(), H = static_cast<int>(gamma.values.size());
  auto body = [&step = *step, &gamma, eps, T, H](const float* in, float* out, Scratch&) {
    const int chunk = row_chunk(step, T);
    run_tiles(step, (T + chunk - 1) / chunk, [&](int tile, int) {
      const int begin = tile * chunk, end = std::min(T, begin + chunk);
      step.table->rms_norm(in + int64_t{begin} * H, gamma.values.data(), eps, end - begin, H, out + int64_t{begin} * H);
    });
  };
  return cpu_node({.op = "norm", .step = step, .inputs = {x}, .shape = x.shape(), .body = std::move(body)});
}

}  // namespace tutti::ops::cpu
