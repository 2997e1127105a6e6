#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/config_fields.h"
#include "model/config_quantization.h"
#include "weights/json.h"

namespace tutti::model {
namespace {

using nlohmann::json;
using weights::Problems;

constexpr int kMaxWidth = 1 << 20;  // hidden and intermediate sizes
constexpr int kMaxHeads = 4096;
constexpr int kMaxHeadDim = 4096;

constexpr std::string_view kWrapperTypes[] = {"qwen3_5", "qwen3_5_moe"};
constexpr std::string_view kTextTypes[] = {"qwen3_5_text", "qwen3_5_moe_text"};

// qwen3_5 → qwen3_5_text; empty for a type of another family.
std::string text_type(const std::string& model_type) {
  for (size_t i = 0; i < std::size(kTextTypes); ++i) {
    if (model_type == kWrapperTypes[i] || model_type == kTextTypes[i]) return std::string(kTextTypes[i]);
  }
  return "";
}

class ConfigReader {
 public:
  ConfigReader(const json& root, const json& text, Problems& problems)
      : root_json_(root),
        text_json_(text),
        root_(root, "", problems),
        text_(text, prefix(root, text), problems),
        problems_(problems) {}

  Config read(const std::string& type) {
    c_.model_type = type;
    read_sizes();
    read_linear_attention();
    if (type == "qwen3_5_moe_text") {
      read_experts();
    } else {
      read_dense();
    }
    read_layer_types();
    read_rope();
    read_switches();
    read_eos();
    read_vision();
    c_.has_mtp = text_.integer("mtp_num_hidden_layers", {0, 1000}).value_or(0) > 0;
    c_.quantization = parse_quantization(root_json_, text_json_, problems_);
    return std::move(c_);
  }

 private:
  static std::string prefix(const json& root, const json& text) { return &root == &text ? "" : "text_config."; }

  int required(const char* name, int max) {
    text_.require(name);
    return static_cast<int>(text_.integer(name, {1, max}).value_or(0));
  }
  int optional(const char* name, IntRange range, int otherwise) {
    return static_cast<int>(text_.integer(name, range).value_or(otherwise));
  }
  void divides(const char* name, int value, const char* of, int whole) {
    if (value > 0 && whole % value != 0)
      text_.problem(name, fmt::format("expected a divisor of {} ({}), found {}", of, whole, value));
  }

  void read_sizes() {
    c_.vocab_size = required("vocab_size", 1 << 24);
    c_.hidden_size = required("hidden_size", kMaxWidth);
    c_.num_hidden_layers = required("num_hidden_layers", 4096);
    c_.num_attention_heads = required("num_attention_heads", kMaxHeads);
    c_.num_key_value_heads = required("num_key_value_heads", kMaxHeads);
    c_.head_dim = optional("head_dim", {2, kMaxHeadDim}, c_.head_dim);
    c_.max_position_embeddings =
        text_.integer("max_position_embeddings", {1, int64_t{1} << 31}).value_or(c_.max_position_embeddings);
    c_.rms_norm_eps = text_.real("rms_norm_eps", {1e-30, 0.1}).value_or(c_.rms_norm_eps);
    divides("num_key_value_heads", c_.num_key_value_heads, "num_attention_heads", c_.num_attention_heads);
  }

  void read_linear_attention() {
    c_.linear_conv_kernel_dim = optional("linear_conv_kernel_dim", {2, 64}, c_.linear_conv_kernel_dim);
    c_.linear_key_head_dim = optional("linear_key_head_dim", {1, kMaxHeadDim}, c_.linear_key_head_dim);
    c_.linear_value_head_dim = optional("linear_value_head_dim", {1, kMaxHeadDim}, c_.linear_value_head_dim);
    c_.linear_num_key_heads = optional("linear_num_key_heads", {1, kMaxHeads}, c_.linear_num_key_heads);
    c_.linear_num_value_heads = optional("linear_num_value_heads", {1, kMaxHeads}, c_.linear_num_value_heads);
    divides("linear_num_key_heads", c_.linear_num_key_heads, "linear_num_value_heads", c_.linear_num_value_heads);
  }

  void read_dense() {
    c_.intermediate_size = optional("intermediate_size", {1, kMaxWidth}, 12288);
    if (text_.integer("num_experts", {0, 1 << 16}).value_or(0) > 0)
      text_.problem("num_experts", fmt::format("{} is a dense model and can't have experts", c_.model_type));
  }

  void read_experts() {
    c_.num_experts = optional("num_experts", {1, 1 << 16}, 256);
    c_.num_experts_per_tok = optional("num_experts_per_tok", {1, c_.num_experts}, std::min(8, c_.num_experts));
    c_.moe_intermediate_size = optional("moe_intermediate_size", {1, kMaxWidth}, 512);
    c_.shared_expert_intermediate_size = optional("shared_expert_intermediate_size", {1, kMaxWidth}, 512);
    if (const json* only = text_.find("mlp_only_layers"); only != nullptr && !(only->is_array() && only->empty()))
      text_.wrong("mlp_only_layers", "an empty list (every layer has experts)");
    text_.integer("decoder_sparse_step", {1, 1});
  }

  void read_layer_types() {
    const auto count = static_cast<size_t>(c_.num_hidden_layers);
    const int interval = optional("full_attention_interval", {1, 4096}, 4);
    const json* types = text_.find("layer_types");
    if (types == nullptr) {
      for (int i = 1; i <= c_.num_hidden_layers; ++i)
        c_.layers.push_back(i % interval == 0 ? LayerType::full_attention : LayerType::linear_attention);
      return;
    }
    if (!types->is_array()) return text_.wrong("layer_types", "a list");
    if (count > 0 && types->size() != count)
      text_.problem("layer_types",
                    fmt::format("expected {} entries (num_hidden_layers), found {}", count, types->size()));
    for (const json& type : *types) {
      if (type != "linear_attention" && type != "full_attention") {
        text_.problem("layer_types", fmt::format("expected linear_attention or full_attention, found {}", shown(type)));
        return;
      }
      c_.layers.push_back(type == "full_attention" ? LayerType::full_attention : LayerType::linear_attention);
    }
  }

  void read_rope() {
    static const json kEmpty = json::object();
    const json* found = nullptr;
    const char* name = "rope_parameters";
    for (const char* candidate : {"rope_scaling", "rope_parameters"}) {  // the new name wins
      if (const json* value = text_.find(candidate)) {
        found = value;
        name = candidate;
      }
    }
    if (found != nullptr && !found->is_object()) return text_.wrong(name, "an object");
    const Fields rope(found == nullptr ? kEmpty : *found, std::string(name) + ".", problems_);
    read_rope_type(rope);
    constexpr RealRange kTheta = {1e-3, 1e15}, kFactor = {1e-6, 1};
    if (!rope.has("rope_theta")) text_.require("rope_theta");
    c_.rope.theta = (rope.has("rope_theta") ? rope : text_).real("rope_theta", kTheta).value_or(0);
    const Fields& factor = rope.has("partial_rotary_factor") ? rope : text_;
    c_.rope.partial_rotary_factor =
        factor.real("partial_rotary_factor", kFactor).value_or(c_.rope.partial_rotary_factor);
    if (rope.boolean("mrope_interleaved") == false)
      rope.problem("mrope_interleaved", "expected true (contiguous sections are those of another family), found false");
    read_sections(rope);
    if (c_.rope.type == "yarn") read_yarn(rope);
  }

  void read_rope_type(const Fields& rope) {
    const std::optional<std::string> type = rope.text("rope_type"), alias = rope.text("type");
    if (type && alias && *type != *alias) rope.wrong("type", fmt::format("the same as rope_type, {}", shown(*type)));
    c_.rope.type = type ? *type : alias.value_or("default");
    if (c_.rope.type != "default" && c_.rope.type != "yarn")
      rope.wrong(type ? "rope_type" : "type", "\"default\" or \"yarn\"");
  }

  void read_sections(const Fields& rope) {
    if (const json* list = rope.find("mrope_section")) {
      const bool good =
          list->is_array() && list->size() == 3 && std::all_of(list->begin(), list->end(), [](const json& n) {
            return n.is_number_unsigned() && n.get<uint64_t>() <= kMaxHeadDim;
          });
      if (!good) return rope.wrong("mrope_section", "three whole numbers");
      c_.rope.mrope_section = list->get<std::vector<int>>();
    }
    const int rotary = static_cast<int>(c_.head_dim * c_.rope.partial_rotary_factor);
    const int sum = std::accumulate(c_.rope.mrope_section.begin(), c_.rope.mrope_section.end(), 0);
    if (rotary < 2 || rotary % 2 != 0)
      rope.problem("partial_rotary_factor",
                   fmt::format("expected an even number of rotated dimensions, found {}", rotary));
    else if (sum != rotary / 2)
      rope.problem("mrope_section", fmt::format("expected a sum of {} (half the rotated dimensions), found {}",
                                                rotary / 2, shown(json(c_.rope.mrope_section))));
  }

  void read_yarn(const Fields& rope) {
    rope.require("factor");
    c_.rope.yarn_factor = rope.real("factor", {1, 1e6}).value_or(1);
    c_.rope.yarn_original_max_positions =
        rope.integer("original_max_position_embeddings", {1, int64_t{1} << 31}).value_or(c_.max_position_embeddings);
    c_.rope.yarn_beta_fast = rope.real("beta_fast", {1e-3, 1e6}).value_or(c_.rope.yarn_beta_fast);
    c_.rope.yarn_beta_slow = rope.real("beta_slow", {1e-3, 1e6}).value_or(c_.rope.yarn_beta_slow);
    c_.rope.yarn_attention_factor = rope.real("attention_factor", {1e-6, 1e6}).value_or(0);
    for (const char* name : {"mscale", "mscale_all_dim"}) {
      if (rope.has(name)) rope.problem(name, "this variant of yarn is not supported");
    }
    if (rope.boolean("truncate") == false) rope.problem("truncate", "this variant of yarn is not supported");
  }

  // Fields that would change the formulas: only the family's value is accepted.
  void read_switches() {
    if (text_.text("hidden_act").value_or("silu") != "silu") text_.wrong("hidden_act", "\"silu\"");
    if (text_.boolean("attention_bias").value_or(false)) text_.problem("attention_bias", "biases are not supported");
    if (!text_.boolean("attn_output_gate").value_or(true))
      text_.problem("attn_output_gate", "expected true, found false");
    const std::string gate = text_.text("output_gate_type").value_or("swish");
    if (gate != "swish" && gate != "silu") text_.wrong("output_gate_type", "\"swish\" or \"silu\"");
    const bool text_tied = text_.boolean("tie_word_embeddings").value_or(false);
    c_.tie_word_embeddings = root_.boolean("tie_word_embeddings").value_or(false) || text_tied;
  }

  void read_eos() {
    const auto add = [this](const Fields& fields, const json& id) {
      const bool good =
          id.is_number_unsigned() && (c_.vocab_size == 0 || id.get<uint64_t>() < static_cast<uint64_t>(c_.vocab_size));
      if (!good)
        return fields.problem("eos_token_id", fmt::format("expected ids below vocab_size, found {}", shown(id)));
      const auto value = static_cast<int>(id.get<uint64_t>());
      if (std::find(c_.eos_token_ids.begin(), c_.eos_token_ids.end(), value) == c_.eos_token_ids.end())
        c_.eos_token_ids.push_back(value);
    };
    for (const Fields* fields : {&text_, &root_}) {
      const json* value = fields->find("eos_token_id");
      if (value != nullptr && value->is_array()) {
        for (const json& id : *value) add(*fields, id);
      } else if (value != nullptr) {
        add(*fields, *value);
      }
      if (&root_json_ == &text_json_) break;
    }
  }

  void read_vision() {
    const json* vision = root_.find("vision_config");
    if (vision == nullptr) return;
    if (!vision->is_object()) return root_.wrong("vision_config", "an object");
    c_.has_vision = true;
    const Fields fields(*vision, "vision_config.", problems_);
    const json* deepstack = fields.find("deepstack_visual_indexes");
    if (deepstack != nullptr && !(deepstack->is_array() && deepstack->empty()))
      fields.wrong("deepstack_visual_indexes", "an empty list (deepstack is not supported)");
  }

  const json& root_json_;
  const json& text_json_;
  Fields root_, text_;
  Problems& problems_;
  Config c_;
};

// The text part's type, or a LoadError naming a type of another family.
std::string checked_type(const json& root, const json& text, const std::string& label) {
  std::string result;
  for (const json* object : {&root, &text}) {
    const auto it = object->find("model_type");
    if (it == object->end() || it->is_null()) continue;
    const std::string* name = it->get_ptr<const std::string*>();
    const std::string type = name == nullptr ? "" : text_type(*name);
    if (type.empty())
      throw LoadError(
          fmt::format("{}: config.json: model_type {} is not supported; supported are qwen3_5, qwen3_5_moe, "
                      "qwen3_5_text and qwen3_5_moe_text",
                      label, name == nullptr ? shown(*it) : weights::printable(*name)));
    if (!result.empty() && type != result)
      throw LoadError(fmt::format("{}: config.json: text_config.model_type {} contradicts model_type", label, *name));
    result = type;
  }
  if (result.empty()) throw LoadError(label + ": config.json: model_type: expected a value, found none");
  return result;
}

}  // namespace

Config parse_config(const std::string& text, const std::string& label) {
  const json root = weights::parse_json(text, label + ": config.json");
  if (!root.is_object()) throw LoadError(label + ": config.json: expected an object");
  const auto nested = root.find("text_config");
  const bool has_text = nested != root.end() && !nested->is_null();
  if (has_text && !nested->is_object())
    throw LoadError(label + ": config.json: text_config: expected an object, found " + shown(*nested));
  const json& body = has_text ? *nested : root;
  const std::string type = checked_type(root, body, label);
  Problems problems;
  Config config = ConfigReader(root, body, problems).read(type);
  problems.raise(label);
  return config;
}

}  // namespace tutti::model
