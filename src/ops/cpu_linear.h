// Products of the CPU bodies: inputs in the precision that each weight asks for, prepared once, and tiles over panels
// and rows handed to the pool. How the work is cut never changes a result (kernels/table.h).
#pragma once

#include <span>
#include <vector>

#include "ops/cpu_node.h"

namespace tutti::ops {

// x [M, K] in every precision that a set of weights asks for: as it is (float32 weights, the float32 mode), rounded to
// bf16 (bf16 weights), int8 with a group of 32, 64 or 128 (affine weights).
class Inputs {
 public:
  Inputs(Scratch& scratch, const StepContext& step, const float* x, int M, int K);
  // Makes room for what w asks for; before any fill.
  void want(const kernels::Matrix& w);
  // Converts rows, or columns of one row; columns begin and end at multiples of column_unit().
  void fill_rows(int row_begin, int row_end) const;
  void fill_columns(int row, int begin, int end) const;
  int column_unit() const { return unit_; }
  kernels::Activations of(const kernels::Matrix& w) const;
  int M() const { return M_; }

 private:
  struct Int8 {
    int group = 0;
    int8_t* q = nullptr;
    float* scale = nullptr;
    float* sum = nullptr;
  };

  Scratch& scratch_;
  const kernels::KernelTable& table_;
  bool float32_;
  const float* x_;
  int M_, K_, unit_ = 1;
  float* rounded_ = nullptr;
  std::vector<Int8> int8_;
};

// y[m, 0 … N) = x[in_row(m)] · wᵀ.
struct Product {
  const kernels::Matrix* w = nullptr;
  kernels::Activations in;
  int M = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  const int32_t* in_row = nullptr;
};

// A part of a product: rows [row_begin, row_end), panels [panel_begin, panel_end).
struct Tile {
  int product = 0, row_begin = 0, row_end = 0, panel_begin = 0, panel_end = 0;
  int col_begin() const { return panel_begin * kernels::kPanel; }
};
void multiply(const kernels::KernelTable& table, const Product& product, const Tile& tile);

// Cuts products into tiles of whole `unit`s of panels, enough for every thread to take several.
class Tiling {
 public:
  Tiling(std::span<const Product> products, int threads, int unit = 1);
  int count() const { return first_.back(); }
  Tile at(int index) const;

 private:
  struct Cut {
    int rows, panels, row_step, panel_step;
  };
  std::vector<Cut> cuts_;
  std::vector<int> first_;  // [products + 1] number of the product's first tile
};

// All products in one fork-join.
void run_products(const StepContext& step, std::span<const Product> products);
// out = x + input · wᵀ, rows of N.
void run_residual(const StepContext& step, const Product& product, const float* x);

// h = silu(gate) * up, then h converted for the product that reads it. gate and up have one shape and one input; the
// columns of gate's buffer become h, and `next` reads it.
struct GatedPair {
  Product gate, up;
  const Inputs* next = nullptr;
  int next_row = 0;  // row of `next` that row 0 of the pair becomes
};
void run_gated(const StepContext& step, std::span<const GatedPair> pairs);

// n[r] = rms(x[row(r)]) * gamma for all rows of `inputs`, converted; row(r) = rows[r], or r.
struct NormArgs {
  const float* x = nullptr;
  const int32_t* rows = nullptr;
  const Vector* gamma = nullptr;
  float eps = 0;
  float* normed = nullptr;  // [M, H]
};
void run_norm(const StepContext& step, const NormArgs& args, const Inputs& inputs);

// Rows per tile of passes that do a little work per row: all of them for a few, so that no thread is woken.
int row_chunk(const StepContext& step, int rows);

}  // namespace tutti::ops
