#include <algorithm>
#include <limits>

#include "ops/bodies.h"
#include "ops/checks.h"
#include "ops/cpu_linear.h"

namespace tutti::ops::cpu {
namespace {

// Cut so that every thread has some; single panels are as they are.
std::vector<Tile> tiles_of(const std::vector<PanelRange>& ranges, int rows) {
  constexpr int kPanelsPerTile = 32;
  std::vector<Tile> tiles;
  for (const PanelRange& range : ranges)
    for (int panel = range.begin; panel < range.end; panel += kPanelsPerTile)
      tiles.push_back({0, 0, rows, panel, std::min(range.end, panel + kPanelsPerTile)});
  return tiles;
}

// The rows that want logits → final norm → product; ids that don't exist become -inf.
void run_head(const StepContext& step, const HeadWeights& w, const float* x, float* out, Scratch& scratch) {
  const kernels::Matrix& m = matrix_of(*w.head);
  const int L = step.batch.L(), H = m.K, V = m.N;
  if (L == 0) return;
  float* normed = scratch.floats(int64_t{L} * H);
  Inputs in(scratch, step, normed, L, H);
  in.want(m);
  run_norm(step, {.x = x, .rows = step.batch.logits_of.data(), .gamma = &w.norm, .eps = w.eps, .normed = normed}, in);

  const Product product{.w = &m, .in = in.of(m), .M = L, .y = out, .y_stride = V};
  const Tiling tiling({&product, 1}, thread_count(step));
  const std::vector<Tile> chosen = tiles_of(step.head_ranges, L);
  run_tiles(step, chosen.empty() ? tiling.count() : static_cast<int>(chosen.size()), [&](int index, int) {
    const Tile tile = chosen.empty() ? tiling.at(index) : chosen[static_cast<size_t>(index)];
    multiply(*step.table, product, tile);
    const int begin = std::max(tile.col_begin(), w.vocab), end = std::min(V, tile.panel_end * kernels::kPanel);
    for (int row = tile.row_begin; begin < end && row < tile.row_end; ++row) {
      float* y = out + int64_t{row} * V;
      std::fill(y + begin, y + end, -std::numeric_limits<float>::infinity());
    }
  });
}

}  // namespace

mx::array head(const mx::array& x, const Step& step, const HeadWeights& w) {
  const int L = step->batch.L(), V = matrix_of(*w.head).N;
  auto body = [&step = *step, &w](const float* in, float* out, Scratch& scratch) {
    run_head(step, w, in, out, scratch);
  };
  return cpu_node({.op = "head", .step = step, .inputs = {x}, .shape = {L, V}, .body = std::move(body)});
}

}  // namespace tutti::ops::cpu
