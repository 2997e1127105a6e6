// The trunk of the Qwen3.5 family (3.5, 3.6, 3.8; dense and mixture of experts): docs/model.md 2.
#pragma once

#include <variant>
#include <vector>

#include "model/model.h"
#include "weights/tensor_table.h"

namespace tutti::model {

class Loader;

// What a checkpoint of this configuration must hold.
std::vector<weights::TensorSpec> qwen3_5_tensors(const Config& config);
// What its multi-token-prediction head consists of (docs/speculation.md), all optional: a checkpoint may lack it.
std::vector<weights::TensorSpec> qwen3_5_draft_tensors(const Config& config);

class Qwen35 : public Model {
 public:
  // Throws LoadError: what the checkpoint lacks, and what the chosen body can't run.
  Qwen35(std::shared_ptr<const weights::Checkpoint> checkpoint, Config config, const LoadOptions& options);

  const ModelInfo& info() const override { return info_; }
  cache::CacheSpecs cache_specs() const override;
  ForwardOutput forward(const ops::Step& step, cache::CacheStore& caches) const override;
  ForwardOutput draft(const ops::Step& step, const ops::mx::array& hidden, cache::CacheStore& caches) const override;

 private:
  struct Layer {
    std::variant<ops::AttentionWeights, ops::DeltaWeights> mixer;
    std::variant<ops::MlpWeights, ops::MoeWeights> mlp;
  };
  struct Drafter {
    ops::DraftInputWeights input;
    Layer layer;
    ops::HeadWeights head;
  };
  void load_drafter(const weights::TensorTable& table, const std::vector<weights::TensorSpec>& specs, Loader& loader);
  cache::PagedKvSpec attention_spec() const;
  ops::mx::array run_layer(const ops::mx::array& x, const ops::Step& step, const Layer& layer, int index,
                           cache::CacheStore& caches) const;

  Config config_;
  kernels::KvType kv_;
  ModelInfo info_;
  ops::Rope rope_;
  ops::Weight embedding_;
  std::vector<Layer> layers_;
  std::optional<ops::Weight> lm_head_;    // absent when tied
  std::optional<ops::HeadWeights> head_;  // refers to lm_head_ or embedding_
  std::optional<Drafter> drafter_;        // so does its head
};

}  // namespace tutti::model
