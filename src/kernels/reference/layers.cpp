#include "kernels/fill.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/delta.h"
#include "kernels/reference/elementwise.h"
#include "kernels/reference/norms.h"
#include "kernels/reference/select.h"

namespace tutti::kernels::reference {

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

}  // namespace tutti::kernels::reference
