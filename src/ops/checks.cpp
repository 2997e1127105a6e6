#include "ops/checks.h"

#include <stdexcept>

namespace tutti::ops {
namespace {

std::string shape_text(const mx::Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

void reject(const char* op, const std::string& what) {
  throw std::invalid_argument(std::string("[").append(op) + "] " + what);
}

void require_x(const char* op, const mx::array& x, const StepBatch& batch, int H) {
  if (x.dtype() != mx::float32 || x.ndim() != 2 || x.shape(0) != batch.T() || x.shape(1) != H) {
    reject(op, "x is " + shape_text(x.shape()) + ", expected float32 [" + std::to_string(batch.T()) + ", " +
                   std::to_string(H) + "]");
  }
}

bool require_weights(const char* op, std::initializer_list<WeightShape> weights) {
  const bool packed = is_packed(*weights.begin()->w);
  for (const auto& s : weights) {
    if (is_packed(*s.w) != packed) reject(op, std::string(s.name) + " is held by the other kind of body");
    const int N = out_features(*s.w), K = in_features(*s.w), count = expert_count(*s.w);
    if (N == s.N && K == s.K && count == s.count) continue;
    reject(op, std::string(s.name) + " is " + std::to_string(count) + " × [" + std::to_string(N) + ", " +
                   std::to_string(K) + "], expected " + std::to_string(s.count) + " × [" + std::to_string(s.N) + ", " +
                   std::to_string(s.K) + "]");
  }
  return packed;
}

void require_vector(const char* op, const char* name, const Vector& v, int n) {
  if (static_cast<int>(v.values.size()) != n) {
    reject(op,
           std::string(name) + " has " + std::to_string(v.values.size()) + " values, expected " + std::to_string(n));
  }
}

}  // namespace tutti::ops
