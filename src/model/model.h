// A const network: tokens and caches in, logits out. Knows no request.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cache/cache_store.h"
#include "cache/specs.h"
#include "model/config.h"
#include "ops/layers.h"
#include "weights/checkpoint.h"

namespace tutti::model {

struct ModelInfo {
  std::string name;  // label of the checkpoint
  int vocab = 0;     // ids that exist (logits beyond are -inf)
  int logits = 0;    // width of a logits row
  int64_t max_positions = 0;
  int64_t weight_bytes = 0;  // packed
  int hidden = 0;            // width of ForwardOutput::hidden
  bool vision = false;       // promised by the checkpoint and not served by this build
  bool drafts = false;       // draft() works
  std::string no_drafts;     // why it doesn't; empty when it does, or is not wanted
  std::string format;        // "bfloat16", "affine 4-bit, group 64", "mixed: …"
};

struct ForwardOutput {
  ops::mx::array logits;  // [L, info().logits] float32, lazy
  // [T, info().hidden] float32, lazy: every token after the final norm; only of models that draft.
  std::optional<ops::mx::array> hidden;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual cache::CacheSpecs cache_specs() const = 0;
  // Logits of batch.logits_of; the caller evaluates them together with caches.pending().
  virtual ForwardOutput forward(const ops::Step& step, cache::CacheStore& caches) const = 0;
  // The multi-token-prediction head: token t of the batch is the one after position first + t, hidden [T, hidden] what
  // the trunk (or the head itself, for a chain of drafts) made of that position. Logits predict the token after it.
  virtual ForwardOutput draft(const ops::Step& step, const ops::mx::array& hidden, cache::CacheStore& caches) const;
};

struct LoadOptions {
  ops::Numerics numerics;
  int vocab = 0;  // ids that the tokenizer knows; 0: all rows of the head
  bool ignore_unused_tensors = false;
  bool drafts = false;                                        // load the multi-token-prediction head, if there is one
  ThreadPool* pool = nullptr;                                 // repacking
  std::function<void(int64_t done, int64_t total)> progress;  // bytes; called now and then from the loading thread
};

// Builds the model that config.json names (model/registry.cpp). Throws LoadError.
std::shared_ptr<const Model> load(std::shared_ptr<const weights::Checkpoint> checkpoint, const LoadOptions& options);

// A fake for tests of the layers above: next token = (3 * token + position + 1) % vocab gets logit 8, others a fixed
// pattern of (token, position); caches are asked for (so that memory rules apply) and left untouched. `throw_on` tokens
// throw in forward.
std::shared_ptr<const Model> make_echo(int vocab, std::vector<int32_t> throw_on = {});

}  // namespace tutti::model
