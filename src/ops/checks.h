// Shape checks that the ops share; they run when the graph is built, before anything is written.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "ops/layers.h"

namespace tutti::ops {

// Throws std::invalid_argument("[op] what").
[[noreturn]] void reject(const char* op, const std::string& what);
inline void require(bool ok, const char* op, const char* what) {
  if (!ok) reject(op, what);
}
// x is [T, H] float32 of the step's tokens.
void require_x(const char* op, const mx::array& x, const StepBatch& batch, int H);
// w is `count` matrices of [N, K].
struct WeightShape {
  const char* name;
  const Weight* w;
  int N, K;
  int count = 1;
};
// Shapes as stated, and all weights of one kind; returns whether they are packed.
bool require_weights(const char* op, std::initializer_list<WeightShape> weights);
void require_vector(const char* op, const char* name, const Vector& v, int n);

inline const kernels::Matrix& matrix_of(const Weight& w) {
  return std::get<PackedWeight>(w).matrix();
}

}  // namespace tutti::ops
