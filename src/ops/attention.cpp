#include "ops/bodies.h"
#include "ops/checks.h"

namespace tutti::ops {
namespace {

void check_rope(const Rope& rope, int head_dim) {
  const int half = rope.rotary_dim / 2;
  require(rope.rotary_dim % 2 == 0 && rope.rotary_dim <= head_dim, "attention", "rotary_dim is odd or beyond the head");
  require(static_cast<int>(rope.inv_freq.size()) == half && static_cast<int>(rope.axis.size()) == half, "attention",
          "inv_freq or axis is not [rotary_dim / 2]");
  for (const int axis : rope.axis) require(axis >= 0 && axis < 3, "attention", "axis is not 0, 1 or 2");
}

}  // namespace

mx::array attention(const mx::array& x, const Step& step, const AttentionWeights& w, const Rope& rope, KvView cache) {
  constexpr const char* kOp = "attention";
  const int H = in_features(w.q), heads = w.heads, groups = w.kv_heads, D = w.head_dim;
  check_batch(kOp, step->batch);
  require(groups > 0 && heads % groups == 0, kOp, "heads are no multiple of kv_heads");
  require_x(kOp, x, step->batch, H);
  require_vector(kOp, "input_norm", w.input_norm, H);
  require_vector(kOp, "q_norm", w.q_norm, D);
  require_vector(kOp, "k_norm", w.k_norm, D);
  check_rope(rope, D);
  const bool packed = require_weights(kOp, {{"q", &w.q, 2 * heads * D, H},
                                            {"k", &w.k, groups * D, H},
                                            {"v", &w.v, groups * D, H},
                                            {"o", &w.o, H, heads * D}});
  require(packed == std::holds_alternative<kernels::KvLayer>(cache), kOp,
          "the cache belongs to the other kind of body");
  if (!packed) {
    const auto& kv = std::get<GraphKv>(cache);
    for (const auto* a : {kv.k, kv.v}) {
      require(a != nullptr && a->ndim() == 4 && a->shape(2) == groups && a->shape(3) == D, kOp,
              "the cache has another shape");
    }
    return graph::attention(x, step, w, rope, kv);
  }
  const auto& kv = std::get<kernels::KvLayer>(cache);
  require(kv.k != nullptr && kv.v != nullptr && kv.G == groups && kv.D == D, kOp, "the cache has another shape");
  require(D % 16 == 0, kOp, "head_dim is no multiple of 16");
  return cpu::attention(x, step, w, rope, kv);
}

}  // namespace tutti::ops
