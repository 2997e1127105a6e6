#include "model/qwen3_5.h"

#include <fmt/format.h>

#include "base/error.h"
#include "model/config_quantization.h"
#include "model/loader.h"
#include "model/rope_table.h"

namespace tutti::model {
namespace {

using weights::Kind;
using weights::TensorSpec;

// ---- the table of tensors
// ----------------------------------------------------------------------------------------------

struct Widths {
  int64_t H, key, value, C;  // hidden; linear attention: all key heads, all value heads, convolution channels
  int64_t q, kv, o;          // full attention: rows of q (with gates), of k and v, columns of o
};
Widths widths(const Config& c) {
  const int64_t key = int64_t{c.linear_num_key_heads} * c.linear_key_head_dim;
  const int64_t value = int64_t{c.linear_num_value_heads} * c.linear_value_head_dim;
  const int64_t o = int64_t{c.num_attention_heads} * c.head_dim;
  return {c.hidden_size, key, value, 2 * key + value, 2 * o, int64_t{c.num_key_value_heads} * c.head_dim, o};
}

class Specs {
 public:
  explicit Specs(const Config& c) : c_(c), w_(widths(c)) {}

  std::vector<TensorSpec> build() {
    linear("embed_tokens", c_.vocab_size, w_.H);
    for (int i = 0; i < c_.num_hidden_layers; ++i)
      layer(fmt::format("layers.{}.", i), c_.layers[static_cast<size_t>(i)]);
    vector("norm", {w_.H});
    if (!c_.tie_word_embeddings) linear("lm_head", c_.vocab_size, w_.H);
    return std::move(specs_);
  }

  std::vector<TensorSpec> build_draft() {
    prefix_ = "mtp.";
    linear("fc", w_.H, 2 * w_.H);
    for (const char* norm : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}) vector(norm, {w_.H});
    layer("mtp.layers.0.", LayerType::full_attention);
    for (TensorSpec& spec : specs_) spec.optional = true;
    return std::move(specs_);
  }

 private:
  void linear(const std::string& name, int64_t N, int64_t K) {
    specs_.push_back({prefix_ + name, Kind::linear, {N, K}});
  }
  void experts(const std::string& name, int64_t N, int64_t K) {
    specs_.push_back({prefix_ + name, Kind::experts, {c_.num_experts, N, K}});
  }
  void vector(const std::string& name, std::vector<int64_t> shape, bool bare = false) {
    specs_.push_back({prefix_ + name, Kind::vector, std::move(shape), bare});
  }

  void layer(const std::string& prefix, LayerType type) {
    prefix_ = prefix;
    vector("input_layernorm", {w_.H});
    if (type == LayerType::full_attention)
      attention();
    else
      delta();
    vector("post_attention_layernorm", {w_.H});
    if (c_.moe())
      moe();
    else
      swiglu("mlp.", c_.intermediate_size);
    prefix_.clear();
  }

  void attention() {
    linear("self_attn.q_proj", w_.q, w_.H);
    linear("self_attn.k_proj", w_.kv, w_.H);
    linear("self_attn.v_proj", w_.kv, w_.H);
    linear("self_attn.o_proj", w_.H, w_.o);
    vector("self_attn.q_norm", {c_.head_dim});
    vector("self_attn.k_norm", {c_.head_dim});
  }

  void delta() {
    linear("linear_attn.in_proj_qkv", w_.C, w_.H);
    linear("linear_attn.in_proj_z", w_.value, w_.H);
    linear("linear_attn.in_proj_a", c_.linear_num_value_heads, w_.H);
    linear("linear_attn.in_proj_b", c_.linear_num_value_heads, w_.H);
    vector("linear_attn.conv1d", {w_.C, 1, c_.linear_conv_kernel_dim});
    vector("linear_attn.A_log", {c_.linear_num_value_heads}, true);
    vector("linear_attn.dt_bias", {c_.linear_num_value_heads}, true);
    vector("linear_attn.norm", {c_.linear_value_head_dim});
    linear("linear_attn.out_proj", w_.H, w_.value);
  }

  void swiglu(const std::string& name, int64_t I) {
    linear(name + "gate_proj", I, w_.H);
    linear(name + "up_proj", I, w_.H);
    linear(name + "down_proj", w_.H, I);
  }

  void moe() {
    linear("mlp.gate", c_.num_experts, w_.H);
    experts("mlp.experts.gate_proj", c_.moe_intermediate_size, w_.H);
    experts("mlp.experts.up_proj", c_.moe_intermediate_size, w_.H);
    experts("mlp.experts.down_proj", w_.H, c_.moe_intermediate_size);
    swiglu("mlp.shared_expert.", c_.shared_expert_intermediate_size);
    linear("mlp.shared_expert_gate", 1, w_.H);
  }

  const Config& c_;
  Widths w_;
  std::string prefix_;
  std::vector<TensorSpec> specs_;
};

// ---- weights from the table
// --------------------------------------------------------------------------------------------

class LayerBuilder {
 public:
  LayerBuilder(const Config& config, Loader& loader, std::string prefix)
      : c_(config), load_(loader), prefix_(std::move(prefix)), eps_(static_cast<float>(config.rms_norm_eps)) {}

  ops::AttentionWeights attention() {
    return {.input_norm = load_.norm(prefix_ + "input_layernorm"),
            .q = weight("self_attn.q_proj"),
            .k = weight("self_attn.k_proj"),
            .v = weight("self_attn.v_proj"),
            .o = weight("self_attn.o_proj"),
            .q_norm = load_.norm(prefix_ + "self_attn.q_norm"),
            .k_norm = load_.norm(prefix_ + "self_attn.k_norm"),
            .heads = c_.num_attention_heads,
            .kv_heads = c_.num_key_value_heads,
            .head_dim = c_.head_dim,
            .eps = eps_};
  }

  ops::DeltaWeights delta() {
    return {.input_norm = load_.norm(prefix_ + "input_layernorm"),
            .qkv = weight("linear_attn.in_proj_qkv"),
            .z = weight("linear_attn.in_proj_z"),
            .a = weight("linear_attn.in_proj_a"),
            .b = weight("linear_attn.in_proj_b"),
            .out = weight("linear_attn.out_proj"),
            .conv = load_.conv_taps(prefix_ + "linear_attn.conv1d", static_cast<int>(widths(c_).C)),
            .A_log = load_.vector(prefix_ + "linear_attn.A_log"),
            .dt_bias = load_.vector(prefix_ + "linear_attn.dt_bias"),
            .norm = load_.vector(prefix_ + "linear_attn.norm"),  // a plain gamma in every layout
            .key_heads = c_.linear_num_key_heads,
            .value_heads = c_.linear_num_value_heads,
            .key_dim = c_.linear_key_head_dim,
            .value_dim = c_.linear_value_head_dim,
            .eps = eps_};
  }

  ops::MlpWeights mlp() {
    return {.norm = load_.norm(prefix_ + "post_attention_layernorm"),
            .gate = weight("mlp.gate_proj"),
            .up = weight("mlp.up_proj"),
            .down = weight("mlp.down_proj"),
            .eps = eps_};
  }

  ops::MoeWeights moe() {
    return {.norm = load_.norm(prefix_ + "post_attention_layernorm"),
            .router = weight("mlp.gate"),
            .gate = weight("mlp.experts.gate_proj"),
            .up = weight("mlp.experts.up_proj"),
            .down = weight("mlp.experts.down_proj"),
            .shared_gate = weight("mlp.shared_expert.gate_proj"),
            .shared_up = weight("mlp.shared_expert.up_proj"),
            .shared_down = weight("mlp.shared_expert.down_proj"),
            .shared_expert_gate = weight("mlp.shared_expert_gate"),
            .experts = c_.num_experts,
            .top_k = c_.num_experts_per_tok,
            .eps = eps_};
  }

  template <class Layer>
  Layer layer(LayerType type) {
    Layer made = {
        type == LayerType::full_attention ? decltype(Layer::mixer)(attention()) : decltype(Layer::mixer)(delta()),
        c_.moe() ? decltype(Layer::mlp)(moe()) : decltype(Layer::mlp)(mlp())};
    return made;
  }

 private:
  ops::Weight weight(const std::string& name) { return load_.weight(prefix_ + name); }

  const Config& c_;
  Loader& load_;
  std::string prefix_;
  float eps_;
};

// What the kernels ask of shapes; the graph bodies ask nothing.
void check_body(const Config& c, const LoadOptions& options, const std::string& label) {
  std::vector<std::string> problems;
  const auto multiple = [&](const char* name, int value, int of) {
    if (value % of != 0)
      problems.push_back(fmt::format("config.json: {} is {}: the CPU kernels need a multiple of {}", name, value, of));
  };
  if (c.linear_conv_kernel_dim != 4) {
    problems.push_back(fmt::format("config.json: linear_conv_kernel_dim is {}, expected 4", c.linear_conv_kernel_dim));
  }
  if (options.numerics.body == ops::Body::cpu) {
    multiple("head_dim", c.head_dim, 16);
    multiple("linear_key_head_dim", c.linear_key_head_dim, 16);
    multiple("linear_value_head_dim", c.linear_value_head_dim, 16);
  }
  if (options.vocab < 0 || options.vocab > c.vocab_size) {
    problems.push_back(
        fmt::format("the tokenizer knows {} ids, the model has {} rows (vocab_size)", options.vocab, c.vocab_size));
  }
  if (!problems.empty()) throw LoadError(label, problems);
}

}  // namespace

std::vector<TensorSpec> qwen3_5_tensors(const Config& config) {
  return Specs(config).build();
}

std::vector<TensorSpec> qwen3_5_draft_tensors(const Config& config) {
  return Specs(config).build_draft();
}

Qwen35::Qwen35(std::shared_ptr<const weights::Checkpoint> checkpoint, Config config, const LoadOptions& options)
    : config_(std::move(config)), kv_(options.numerics.kv), rope_(make_rope(config_)) {
  check_body(config_, options, checkpoint->label());
  auto specs = qwen3_5_tensors(config_);
  const auto draft_specs = options.drafts ? qwen3_5_draft_tensors(config_) : std::vector<TensorSpec>{};
  specs.insert(specs.end(), draft_specs.begin(), draft_specs.end());
  if (checkpoint->draft_config_json()) {
    std::vector<std::string> modules;
    for (const TensorSpec& spec : draft_specs) modules.push_back(spec.module);
    for (const auto& [module, spec] : parse_draft_quantization(*checkpoint->draft_config_json(), modules))
      config_.quantization.overrides[module] = spec;
  }
  const weights::TensorTable table(checkpoint, specs, config_.quantization, options.ignore_unused_tensors);
  Loader loader(table, options);
  embedding_ = loader.weight("embed_tokens");
  for (int i = 0; i < config_.num_hidden_layers; ++i) {
    LayerBuilder build(config_, loader, fmt::format("layers.{}.", i));
    layers_.push_back(build.layer<Layer>(config_.layers[static_cast<size_t>(i)]));
  }
  if (!config_.tie_word_embeddings) lm_head_ = loader.weight("lm_head");
  info_ = {.name = checkpoint->label(),
           .vocab = options.vocab > 0 ? options.vocab : config_.vocab_size,
           .logits = config_.vocab_size,
           .max_positions = config_.max_position_embeddings,
           .weight_bytes = 0,
           .hidden = config_.hidden_size,
           .vision = config_.has_vision || checkpoint->vision_tensors() > 0,
           .format = loader.format()};
  head_ = ops::HeadWeights{.norm = loader.norm("norm"),
                           .head = lm_head_ ? &*lm_head_ : &embedding_,
                           .vocab = info_.vocab,
                           .eps = static_cast<float>(config_.rms_norm_eps)};
  if (options.drafts) load_drafter(table, draft_specs, loader);
  info_.weight_bytes = loader.bytes();
}

// All of the head or none of it: one with a part missing would draft nonsense.
void Qwen35::load_drafter(const weights::TensorTable& table, const std::vector<TensorSpec>& specs, Loader& loader) {
  std::vector<std::string> missing;
  for (const TensorSpec& spec : specs)
    if (!table.has(spec.module)) missing.push_back(spec.module);
  if (!table.refused().empty()) {
    info_.no_drafts = "its multi-token-prediction head can't be used: " + table.refused().front();
  } else if (missing.size() == specs.size()) {
    info_.no_drafts = "the checkpoint has no multi-token-prediction head";
  } else if (!missing.empty()) {
    info_.no_drafts =
        fmt::format("its multi-token-prediction head is incomplete: {} of {} tensors are missing, among them {}",
                    missing.size(), specs.size(), missing.front());
  }
  info_.drafts = missing.empty();
  if (!info_.drafts) return;
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  drafter_ = Drafter{.input = {.embedding_norm = loader.norm("mtp.pre_fc_norm_embedding"),
                               .hidden_norm = loader.norm("mtp.pre_fc_norm_hidden"),
                               .fc = loader.weight("mtp.fc"),
                               .table = &embedding_,
                               .eps = eps},
                     .layer = LayerBuilder(config_, loader, "mtp.layers.0.").layer<Layer>(LayerType::full_attention),
                     .head = {.norm = loader.norm("mtp.norm"), .head = head_->head, .vocab = info_.vocab, .eps = eps}};
}

cache::CacheSpecs Qwen35::cache_specs() const {
  cache::CacheSpecs specs;
  for (const LayerType type : config_.layers) {
    cache::LayerSpec spec;
    if (type == LayerType::full_attention) {
      spec.kv = attention_spec();
    } else {
      spec.state = {.value_heads = config_.linear_num_value_heads,
                    .key_dim = config_.linear_key_head_dim,
                    .value_dim = config_.linear_value_head_dim,
                    .conv_channels = static_cast<int>(widths(config_).C)};
    }
    specs.push_back(spec);
  }
  if (drafter_) {  // the draft layer's K and V: one more layer behind the trunk's
    cache::LayerSpec spec;
    spec.kv = attention_spec();
    specs.push_back(spec);
  }
  return specs;
}

cache::PagedKvSpec Qwen35::attention_spec() const {
  return {.kv_heads = config_.num_key_value_heads,
          .head_dim = config_.head_dim,
          .bytes_per_value = kv_ == kernels::KvType::float32 ? 4 : 2};
}

ForwardOutput Qwen35::forward(const ops::Step& step, cache::CacheStore& caches) const {
  auto x = ops::embed(step, embedding_, config_.hidden_size);
  for (int i = 0; i < config_.num_hidden_layers; ++i)
    x = run_layer(x, step, layers_[static_cast<size_t>(i)], i, caches);
  ForwardOutput out{ops::head(x, step, *head_), std::nullopt};
  if (drafter_) out.hidden = ops::norm(x, step, head_->norm, head_->eps);
  return out;
}

ForwardOutput Qwen35::draft(const ops::Step& step, const ops::mx::array& hidden, cache::CacheStore& caches) const {
  TUTTI_CHECK(drafter_.has_value());
  auto x = ops::draft_input(hidden, step, drafter_->input);
  x = run_layer(x, step, drafter_->layer, config_.num_hidden_layers, caches);
  return {ops::head(x, step, drafter_->head), ops::norm(x, step, drafter_->head.norm, drafter_->head.eps)};
}

ops::mx::array Qwen35::run_layer(const ops::mx::array& x, const ops::Step& step, const Layer& layer, int index,
                                 cache::CacheStore& caches) const {
  const auto* attention = std::get_if<ops::AttentionWeights>(&layer.mixer);
  const auto mixed = attention != nullptr
                         ? ops::attention(x, step, *attention, rope_, caches.kv(index))
                         : ops::gated_delta(x, step, std::get<ops::DeltaWeights>(layer.mixer), caches.state(index));
  const auto* mlp = std::get_if<ops::MlpWeights>(&layer.mlp);
  return mlp != nullptr ? ops::mlp(mixed, step, *mlp) : ops::moe(mixed, step, std::get<ops::MoeWeights>(layer.mlp));
}

}  // namespace tutti::model
