// The trunk of the Qwen3.5 family (3.5, 3.6, 3.8; dense and mixture of experts): docs/model.md 2.
#pragma once

#include <variant>
#include <vector>

#include "model/model.h"
#include "weights/tensor_table.h"

namespace tutti::model {

// What a checkpoint of this configuration must hold.
std::vector<weights::TensorSpec> qwen3_5_tensors(const Config& config);

class Qwen35 : public Model {
 public:
  // Throws LoadError: what the checkpoint lacks, and what the chosen body can't run.
  Qwen35(std::shared_ptr<const weights::Checkpoint> checkpoint, Config config, const LoadOptions& options);

  const ModelInfo& info() const override { return info_; }
  cache::CacheSpecs cache_specs() const override;
  ForwardOutput forward(const ops::Step& step, cache::CacheStore& caches) const override;

 private:
  struct Layer {
    std::variant<ops::AttentionWeights, ops::DeltaWeights> mixer;
    std::variant<ops::MlpWeights, ops::MoeWeights> mlp;
  };

  Config config_;
  kernels::KvType kv_;
  ModelInfo info_;
  ops::Rope rope_;
  ops::Weight embedding_;
  std::vector<Layer> layers_;
  std::optional<ops::Weight> lm_head_;    // absent when tied
  std::optional<ops::HeadWeights> head_;  // refers to lm_head_ or embedding_
};

}  // namespace tutti::model
