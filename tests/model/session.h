// Drives a model without scheduler or engine: sequences with caches of their own, steps made of rows.
#pragma once

#include <mlx/transforms.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "base/thread_pool.h"
#include "model/model.h"

namespace tutti::test {

// What a test fixes of a run: bodies, kernels, threads.
struct Mode {
  ops::Numerics numerics;
  kernels::Isa isa = kernels::Isa::reference;
  int threads = 2;
};

inline ops::Numerics float32_mode(ops::Body body) {
  return {.body = body, .float32 = true, .kv = kernels::KvType::float32};
}

// n tokens of sequence `sequence`, and how many of the last of them want logits.
struct Row {
  int sequence = 0;
  std::vector<int32_t> tokens;
  int wanted = 1;
};
using Logits = std::vector<std::vector<float>>;  // one vector per wanted token

class Session {
 public:
  Session(std::shared_ptr<const model::Model> model, const Mode& mode, int sequences, int max_tokens)
      : model_(std::move(model)),
        mode_(mode),
        pool_(mode.threads),
        blocks_each_((max_tokens + cache::kBlockTokens - 1) / cache::kBlockTokens),
        store_(cache::make_store(model_->cache_specs(), sequences * blocks_each_ + 1, sequences + 1, mode.numerics)),
        length_(static_cast<size_t>(sequences), 0) {
    // Block b of sequence s is scattered over the pool, never block 0.
    for (int s = 0; s < sequences; ++s) {
      std::vector<int32_t> table;
      for (int b = 0; b < blocks_each_; ++b) table.push_back(1 + b * sequences + (s + b) % sequences);
      tables_.push_back(table);
    }
  }

  int length(int sequence) const { return length_[static_cast<size_t>(sequence)]; }
  void restart(int sequence) { length_[static_cast<size_t>(sequence)] = 0; }
  cache::CacheStore& store() { return *store_; }
  std::function<void(const char*)> before_node;
  // Rotary positions of the next step, [3, T]; empty: those of text.
  std::vector<int32_t> positions;

  // The draft head over one row: token t is the one after position first + t of the sequence, hidden [tokens, H].
  // (logits, hidden) of every token.
  std::pair<Logits, std::vector<float>> draft(int sequence, int first, const std::vector<int32_t>& tokens,
                                              const std::vector<float>& hidden) {
    const int kept = length(sequence), n = static_cast<int>(tokens.size()), H = model_->info().hidden;
    length_[static_cast<size_t>(sequence)] = first;
    ops::StepContext context;
    context.batch = batch_of({{sequence, tokens, n}});
    length_[static_cast<size_t>(sequence)] = kept;
    context.numerics = mode_.numerics;
    context.pool = &pool_;
    context.table = kernels::table(mode_.isa);
    const auto step = std::make_shared<const ops::StepContext>(std::move(context));
    const ops::mx::array in(hidden.begin(), {n, H}, ops::mx::float32);
    auto out = model_->draft(step, in, *store_);
    std::vector<ops::mx::array> all = store_->pending();
    all.insert(all.end(), {out.logits, *out.hidden});
    ops::mx::eval(all);
    const int V = model_->info().logits;
    Logits logits;
    for (int t = 0; t < n; ++t) {
      const float* p = out.logits.data<float>() + int64_t{t} * V;
      logits.emplace_back(p, p + V);
    }
    const float* h = out.hidden->data<float>();
    return {std::move(logits), {h, h + int64_t{n} * H}};
  }

  std::vector<float> last_hidden;  // [T, H] of the last step, of models that draft

  // Logits of the wanted tokens, row after row.
  Logits step(const std::vector<Row>& rows) {
    ops::StepContext context;
    context.batch = batch_of(rows);
    context.numerics = mode_.numerics;
    context.pool = &pool_;
    context.table = kernels::table(mode_.isa);
    context.before_node = before_node;
    const auto step = std::make_shared<const ops::StepContext>(std::move(context));
    auto out = model_->forward(step, *store_);
    std::vector<ops::mx::array> all = store_->pending();
    all.push_back(out.logits);
    if (out.hidden) all.push_back(*out.hidden);
    ops::mx::eval(all);
    if (out.hidden) last_hidden.assign(out.hidden->data<float>(), out.hidden->data<float>() + out.hidden->size());
    for (const Row& row : rows) length_[static_cast<size_t>(row.sequence)] += static_cast<int>(row.tokens.size());
    const int V = model_->info().logits;
    Logits logits;
    for (int l = 0; l < step->batch.L(); ++l) {
      const float* p = out.logits.data<float>() + int64_t{l} * V;
      logits.emplace_back(p, p + V);
    }
    return logits;
  }

 private:
  ops::StepBatch batch_of(const std::vector<Row>& rows) const {
    ops::StepBatch b;
    b.row_begin = b.block_begin = {0};
    std::vector<int32_t> at;
    for (const Row& row : rows) {
      const int first = length(row.sequence), n = static_cast<int>(row.tokens.size());
      const auto& table = tables_[static_cast<size_t>(row.sequence)];
      for (int t = 0; t < n; ++t) {
        b.tokens.push_back(row.tokens[static_cast<size_t>(t)]);
        at.push_back(first + t);
        if (t >= n - row.wanted) b.logits_of.push_back(static_cast<int32_t>(b.tokens.size()) - 1);
      }
      b.row_begin.push_back(b.T());
      b.first.push_back(first);
      const int blocks = (first + n + cache::kBlockTokens - 1) / cache::kBlockTokens;
      b.block_table.insert(b.block_table.end(), table.begin(), table.begin() + blocks);
      b.block_begin.push_back(static_cast<int32_t>(b.block_table.size()));
      b.slot.push_back(row.sequence + 1);
    }
    for (int axis = 0; axis < 3; ++axis) b.positions.insert(b.positions.end(), at.begin(), at.end());
    if (!positions.empty()) b.positions = positions;
    return b;
  }

  std::shared_ptr<const model::Model> model_;
  Mode mode_;
  ThreadPool pool_;
  int blocks_each_;
  std::unique_ptr<cache::CacheStore> store_;
  std::vector<int> length_;
  std::vector<std::vector<int32_t>> tables_;
};

inline int argmax(const std::vector<float>& x) {
  return static_cast<int>(std::max_element(x.begin(), x.end()) - x.begin());
}

// The prompt in chunks of `chunk` tokens (0: all at once); logits of its last `wanted` tokens.
inline Logits feed(Session& session, int sequence, const std::vector<int32_t>& prompt, int chunk, int wanted) {
  Logits all;
  const int n = static_cast<int>(prompt.size());
  if (chunk <= 0) chunk = n;
  for (int begin = 0; begin < n; begin += chunk) {
    const int end = std::min(n, begin + chunk);
    const int from = std::max(begin, n - wanted);
    Row row{sequence, {prompt.begin() + begin, prompt.begin() + end}, std::max(0, end - from)};
    for (auto& logits : session.step({row})) all.push_back(std::move(logits));
  }
  return all;
}

inline std::shared_ptr<const model::Model> load_model(const std::string& folder, const Mode& mode, int vocab = 0,
                                                      bool drafts = false) {
  ThreadPool pool(2);
  model::LoadOptions options;
  options.drafts = drafts;
  options.numerics = mode.numerics;
  options.vocab = vocab;
  options.pool = &pool;
  return model::load(weights::Checkpoint::open(folder), options);
}

}  // namespace tutti::test
