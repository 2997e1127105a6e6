#include "ops/bodies.h"
#include "ops/cpu_linear.h"

namespace tutti::ops::cpu {

mx::array embed(const Step& step, const PackedWeight& table) {
  const kernels::Matrix& w = table.matrix();
  const int T = step->batch.T(), H = w.K;
  auto body = [&step = *step, &w, T, H](const float*, float* out, Scratch&) {
    const int chunk = row_chunk(step, T);
    run_tiles(step, (T + chunk - 1) / chunk, [&](int tile, int) {
      for (int t = tile * chunk; t < std::min(T, (tile + 1) * chunk); ++t) {
        step.table->read_row(w, step.batch.tokens[t], out + int64_t{t} * H);
      }
    });
  };
  return cpu_node({.op = "embed", .step = step, .inputs = {}, .shape = {T, H}, .body = std::move(body)});
}

}  // namespace tutti::ops::cpu
