// config.json as the model needs it: nested or flat, checked, with the defaults of the reference (docs/model.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weights/checkpoint.h"

namespace tutti::model {

enum class LayerType { linear_attention, full_attention };

struct RopeConfig {
  std::string type = "default";  // default or yarn
  double theta = 0;
  double partial_rotary_factor = 0.25;
  std::vector<int> mrope_section = {11, 11, 10};
  double yarn_factor = 1;
  int64_t yarn_original_max_positions = 0;
  double yarn_beta_fast = 32, yarn_beta_slow = 1;
  double yarn_attention_factor = 0;  // 0: 0.1 ln f + 1
};

struct Config {
  std::string model_type;  // of the text part: qwen3_5_text, qwen3_5_moe_text
  int vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0;
  int num_attention_heads = 0, num_key_value_heads = 0, head_dim = 256;
  int64_t max_position_embeddings = 32768;
  double rms_norm_eps = 1e-6;
  std::vector<LayerType> layers;
  int linear_conv_kernel_dim = 4;
  int linear_key_head_dim = 128, linear_value_head_dim = 128, linear_num_key_heads = 16, linear_num_value_heads = 32;
  int num_experts = 0, num_experts_per_tok = 0, moe_intermediate_size = 0, shared_expert_intermediate_size = 0;
  bool tie_word_embeddings = false;
  RopeConfig rope;
  std::vector<int> eos_token_ids;  // config's own; the stop set also takes generation_config's and the tokenizer's
  bool has_vision = false, has_mtp = false;  // promised by the config
  weights::QuantizationConfig quantization;

  bool moe() const { return num_experts > 0; }
};

// Throws LoadError naming every bad field at once; an unknown model_type (qwen3_next, qwen4_exp, …) is refused by name.
Config parse_config(const std::string& json, const std::string& label);

}  // namespace tutti::model
