// All kernels but the matrix products, over the Vec of the ISA that includes this inside its namespace and target
// region. Included before: <cmath> <cstdint> <cstring>, "kernels/fill.h", "kernels/<isa>/vec.h".

namespace {
#include "kernels/generic/attention.inl.h"
#include "kernels/generic/delta.inl.h"
#include "kernels/generic/elementwise.inl.h"
#include "kernels/generic/norms.inl.h"
#include "kernels/generic/select.inl.h"
}  // namespace

void fill_layers(KernelTable& table) noexcept {
  table.rms_norm = rms_norm;
  table.gated_rms_norm = gated_rms_norm;
  table.l2_norm = l2_norm;
  table.silu_mul = silu_mul;
  table.sigmoid_mul = sigmoid_mul;
  table.add_scaled = add_scaled;
  table.conv_silu = conv_silu;
  table.delta_gates = delta_gates;
  table.delta_rule = delta_rule;
  table.rope = rope;
  table.kv_write = kv_write;
  table.attention_range = attention_range;
  table.attention_merge = attention_merge;
  table.top_k_softmax = top_k_softmax;
  table.argmax = argmax;
  table.log_sum_exp = log_sum_exp;
}
