#include "ops/cpu_linear.h"

#include <algorithm>

namespace tutti::ops {
namespace {

constexpr int kTilesPerThread = 12;           // enough that a thread slowed by a neighbour costs its share and no more
constexpr int64_t kTileBytes = 8 << 10;       // weights of the smallest tile: a fork-join must be small beside it
constexpr int64_t kTileBytesMax = 256 << 10;  // a tile's weights stay in the second-level cache while rows pass
constexpr int kTileRows = 128;                // rows of a tile: their inputs stay in the second-level cache

bool is_affine(const kernels::Matrix& w) {
  return w.format.format == quant::Format::affine;
}

int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

int64_t panel_bytes(const kernels::Matrix& w) {
  switch (w.format.format) {
    case quant::Format::float32:
      return int64_t{4} * kernels::kPanel * w.K;
    case quant::Format::bfloat16:
      return int64_t{2} * kernels::kPanel * w.K;
    case quant::Format::affine:
      break;
  }
  return int64_t{kernels::kPanel} * w.K * w.format.affine.bits / 8;
}

}  // namespace

Inputs::Inputs(Scratch& scratch, const StepContext& step, const float* x, int M, int K)
    : scratch_(scratch), table_(*step.table), float32_(step.numerics.float32), x_(x), M_(M), K_(K) {}

void Inputs::want(const kernels::Matrix& w) {
  if (float32_ || w.format.format == quant::Format::float32) return;
  if (!is_affine(w)) {
    if (rounded_ == nullptr) rounded_ = scratch_.floats(int64_t{M_} * K_);
    return;
  }
  const int group = quant::activation_group(w.format);
  for (const auto& have : int8_) {
    if (have.group == group) return;
  }
  const int64_t groups = int64_t{M_} * (K_ / group);
  int8_.push_back({group, scratch_.take<int8_t>(int64_t{M_} * K_), scratch_.floats(groups), scratch_.floats(groups)});
  unit_ = std::max(unit_, group);
}

void Inputs::fill_rows(int row_begin, int row_end) const {
  const int rows = row_end - row_begin;
  const int64_t at = int64_t{row_begin} * K_;
  if (rounded_ != nullptr) table_.round_bf16(x_ + at, int64_t{rows} * K_, rounded_ + at);
  for (const auto& i : int8_) {
    const int64_t group_at = int64_t{row_begin} * (K_ / i.group);
    table_.quantize_int8(x_ + at, rows, K_, i.group, i.q + at, i.scale + group_at, i.sum + group_at);
  }
}

void Inputs::fill_columns(int row, int begin, int end) const {
  const int64_t at = int64_t{row} * K_ + begin;
  if (rounded_ != nullptr) table_.round_bf16(x_ + at, end - begin, rounded_ + at);
  for (const auto& i : int8_) {
    const int64_t group_at = int64_t{row} * (K_ / i.group) + begin / i.group;
    table_.quantize_int8(x_ + at, 1, end - begin, i.group, i.q + at, i.scale + group_at, i.sum + group_at);
  }
}

kernels::Activations Inputs::of(const kernels::Matrix& w) const {
  kernels::Activations in;
  in.K = K_;
  if (float32_ || w.format.format == quant::Format::float32) {
    in.x = x_;
  } else if (!is_affine(w)) {
    in.x = rounded_;
  } else {
    for (const auto& i : int8_) {
      if (i.group != quant::activation_group(w.format)) continue;
      in.q = i.q;
      in.scale = i.scale;
      in.sum = i.sum;
      in.group = i.group;
    }
  }
  return in;
}

void multiply(const kernels::KernelTable& table, const Product& product, const Tile& tile) {
  kernels::MatmulArgs args;
  args.w = product.w;
  args.in = product.in;
  args.M = tile.row_end - tile.row_begin;
  args.y = product.y + int64_t{tile.row_begin} * product.y_stride;
  args.y_stride = product.y_stride;
  args.panel_begin = tile.panel_begin;
  args.panel_end = tile.panel_end;
  if (product.in_row != nullptr) {
    args.in_row = product.in_row + tile.row_begin;
  } else {
    const int64_t at = int64_t{tile.row_begin} * product.in.K;
    if (args.in.x != nullptr) args.in.x += at;
    if (args.in.q != nullptr) {
      args.in.q += at;
      args.in.scale += at / args.in.group;
      args.in.sum += at / args.in.group;
    }
  }
  if (!is_affine(*product.w)) return table.matmul_float(args);
  if (product.in.q != nullptr) return table.matmul_affine_int8(args);
  table.matmul_affine_float(args);
}

Tiling::Tiling(std::span<const Product> products, int threads, int unit) {
  int64_t bytes = 0;
  for (const auto& p : products) bytes += panel_bytes(*p.w) * p.w->panels();
  const int64_t tile_bytes = std::clamp(bytes / (int64_t{threads} * kTilesPerThread), kTileBytes, kTileBytesMax);
  first_.push_back(0);
  for (const auto& p : products) {
    const int64_t panels = std::max<int64_t>(tile_bytes / panel_bytes(*p.w), 1);
    const int step = static_cast<int>(std::min<int64_t>(panels, p.w->panels()) + unit - 1) / unit * unit;
    cuts_.push_back({p.M, p.w->panels(), std::min(p.M, kTileRows), step});
    first_.push_back(first_.back() + (p.M > 0 ? ceil_div(p.M, kTileRows) * ceil_div(p.w->panels(), step) : 0));
  }
}

Tile Tiling::at(int index) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), index);
  const int product = static_cast<int>(after - first_.begin()) - 1;
  const Cut& cut = cuts_[product];
  const int local = index - first_[product];
  // Row blocks are the inner loop: consecutive tiles share the panels that have just been read.
  const int row_tiles = ceil_div(cut.rows, cut.row_step);
  const int panel = local / row_tiles * cut.panel_step, row = local % row_tiles * cut.row_step;
  return {product, row, std::min(cut.rows, row + cut.row_step), panel, std::min(cut.panels, panel + cut.panel_step)};
}

void run_products(const StepContext& step, std::span<const Product> products) {
  const Tiling tiling(products, thread_count(step));
  run_tiles(step, tiling.count(), [&](int index, int) {
    const Tile tile = tiling.at(index);
    multiply(*step.table, products[tile.product], tile);
  });
}

void run_residual(const StepContext& step, const Product& product, const float* x) {
  const Tiling tiling({&product, 1}, thread_count(step));
  run_tiles(step, tiling.count(), [&](int index, int) {
    const Tile tile = tiling.at(index);
    multiply(*step.table, product, tile);
    const int begin = tile.col_begin(), n = std::min(product.w->N, tile.panel_end * kernels::kPanel) - begin;
    for (int m = tile.row_begin; m < tile.row_end; ++m) {
      const int64_t at = m * product.y_stride + begin;
      step.table->add_scaled(x + at, 1.0f, n, product.y + at);
    }
  });
}

void run_gated(const StepContext& step, std::span<const GatedPair> pairs) {
  std::vector<Product> gates;
  int unit = 1;
  for (const auto& pair : pairs) {
    gates.push_back(pair.gate);
    unit = std::max(unit, ceil_div(pair.next->column_unit(), kernels::kPanel));
  }
  const Tiling tiling(gates, thread_count(step), unit);
  run_tiles(step, tiling.count(), [&](int index, int) {
    const Tile tile = tiling.at(index);
    const GatedPair& pair = pairs[tile.product];
    multiply(*step.table, pair.gate, tile);
    multiply(*step.table, pair.up, tile);
    const int begin = tile.col_begin(), end = std::min(pair.gate.w->N, tile.panel_end * kernels::kPanel);
    for (int m = tile.row_begin; m < tile.row_end; ++m) {
      float* h = pair.gate.y + m * pair.gate.y_stride + begin;
      step.table->silu_mul(h, pair.up.y + m * pair.up.y_stride + begin, end - begin, h);
      pair.next->fill_columns(pair.next_row + m, begin, end);
    }
  });
}

int row_chunk(const StepContext& step, int rows) {
  if (rows <= 4) return std::max(rows, 1);
  return std::clamp(rows / (thread_count(step) * 4), 1, 16);
}

void run_norm(const StepContext& step, const NormArgs& args, const Inputs& inputs) {
  const int rows = inputs.M(), H = static_cast<int>(args.gamma->values.size());
  const int chunk = row_chunk(step, rows);
  run_tiles(step, ceil_div(rows, chunk), [&](int tile, int) {
    const int begin = tile * chunk, end = std::min(rows, begin + chunk);
    for (int r = begin; r < end; ++r) {
      const int64_t from = args.rows != nullptr ? args.rows[r] : r;
      step.table->rms_norm(args.x + from * H, args.gamma->values.data(), args.eps, 1, H, args.normed + int64_t{r} * H);
    }
    inputs.fill_rows(begin, end);
  });
}

}  // namespace tutti::ops
