// A model whose answer depends on every token of the sequence, read back through its state slot and its block table: a
// wrong slot, block, position or a row recomputed in part gives another answer. Special prompt tokens make it fail.
#pragma once

#include <mlx/array.h>
#include <mlx/ops.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "cache/specs.h"
#include "model/model.h"

namespace tutti::test {

namespace mx = mlx::core;

inline constexpr int kVocab = 48, kWidth = 50;  // two padding columns
inline constexpr TokenId kThrows = 1000;        // a row that holds it throws when it is computed
inline constexpr TokenId kNan = 1001;           // logits of a row that has seen it are NaN

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15ull + b + 0x7F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 27);
}

inline void fill_logits(uint64_t state, uint64_t keys, bool nan, float* out) {
  for (int v = 0; v < kVocab; ++v)
    out[v] = nan ? std::numeric_limits<float>::quiet_NaN()
                 : static_cast<float>(mix(mix(state, keys), static_cast<uint64_t>(v)) % 100000) / 12500.0f;
  for (int v = kVocab; v < kWidth; ++v) out[v] = -std::numeric_limits<float>::infinity();
}

class FakeStore final : public cache::CacheStore {
 public:
  FakeStore(int blocks, int slots) : keys(static_cast<size_t>(blocks) * cache::kBlockTokens), slots(slots) {}

  ops::KvView kv(int) override { throw std::logic_error("the fake has no views"); }
  ops::StateView state(int) override { throw std::logic_error("the fake has no views"); }
  std::vector<mx::array> pending() override { return {}; }
  bool recover() override {
    ++recoveries;
    if (recover_throws) throw std::runtime_error("the store can't be rebuilt");
    if (!loses_all) return false;
    std::fill(keys.begin(), keys.end(), -1);
    std::fill(slots.begin(), slots.end(), Slot{});
    return true;
  }
  int64_t bytes() const override { return 0; }
  size_t bytes_of(cache::Copy::What what) const override {
    return what == cache::Copy::What::slot ? sizeof(Slot) : sizeof(int) * cache::kBlockTokens;
  }
  void save(cache::Copy::What what, int index, std::span<std::byte> to) override {
    std::ranges::copy(part(what, index), to.begin());
  }
  void load(cache::Copy::What what, int index, std::span<const std::byte> from) override {
    std::ranges::copy(from, part(what, index).begin());
  }

  struct Slot {
    uint64_t state = 0;
    int tokens = -1;
    bool nan = false;
  };

 private:
  void copy_one(const cache::Copy& copy) override {
    const std::span<std::byte> from = part(copy.what, copy.from);
    std::ranges::copy(from, part(copy.what, copy.to).begin());
  }
  std::span<std::byte> part(cache::Copy::What what, int index) {
    const auto i = static_cast<size_t>(index);
    if (what == cache::Copy::What::slot) return std::as_writable_bytes(std::span(slots).subspan(i, 1));
    return std::as_writable_bytes(std::span(keys).subspan(i * cache::kBlockTokens, cache::kBlockTokens));
  }

 public:
  std::vector<int> keys;  // token by block and place
  std::vector<Slot> slots;
  bool loses_all = false, recover_throws = false;
  int recoveries = 0;
};

// What the fake knows after a token, as numbers that a hidden vector can carry: 8 parts of 16 bits.
inline constexpr int kHidden = 8;
inline void write_hidden(uint64_t state, uint64_t keys, float* out) {
  for (int i = 0; i < 4; ++i) {
    out[i] = static_cast<float>(state >> (16 * i) & 0xFFFF);
    out[4 + i] = static_cast<float>(keys >> (16 * i) & 0xFFFF);
  }
}
inline std::pair<uint64_t, uint64_t> read_hidden(const float* hidden) {
  uint64_t state = 0, keys = 0;
  for (int i = 0; i < 4; ++i) {
    state |= static_cast<uint64_t>(hidden[i]) << (16 * i);
    keys |= static_cast<uint64_t>(hidden[4 + i]) << (16 * i);
  }
  return {state, keys};
}

// drafts: it guesses ahead, and is wrong one time in `wrong_of` (0: never).
class FakeModel final : public model::Model {
 public:
  explicit FakeModel(bool drafts = false, uint64_t wrong_of = 3) : wrong_of_(wrong_of) {
    info_.drafts = drafts;
    info_.hidden = kHidden;
    info_.name = "fake";
    info_.vocab = kVocab;
    info_.logits = kWidth;
  }
  const model::ModelInfo& info() const override { return info_; }
  cache::CacheSpecs cache_specs() const override { return {}; }

  model::ForwardOutput forward(const ops::Step& step, cache::CacheStore& caches) const override {
    const ops::StepBatch& batch = step->batch;
    auto& store = dynamic_cast<FakeStore&>(caches);
    if (before) before(batch);
    std::vector<float> logits(static_cast<size_t>(batch.L()) * kWidth);
    std::vector<float> hidden(static_cast<size_t>(batch.T()) * kHidden);
    size_t line = 0;
    for (int r = 0; r < batch.R(); ++r) line = run_row(batch, r, store, {logits, hidden}, line);
    return {logits.empty() ? mx::zeros({0, kWidth}, mx::float32)
                           : mx::array(logits.begin(), {batch.L(), kWidth}, mx::float32),
            mx::array(hidden.begin(), {batch.T(), kHidden}, mx::float32)};
  }

  model::ForwardOutput draft(const ops::Step& step, const mx::array& in, cache::CacheStore&) const override {
    const ops::StepBatch& batch = step->batch;
    if (before_draft) before_draft(batch);
    std::vector<float> logits(static_cast<size_t>(batch.L()) * kWidth), made(static_cast<size_t>(batch.T()) * kHidden);
    size_t line = 0;
    for (int t = 0; t < batch.T(); ++t) {
      auto [state, keys] = read_hidden(in.data<float>() + t * kHidden);
      state = mix(state, static_cast<uint64_t>(batch.tokens[static_cast<size_t>(t)]));
      keys = mix(keys, static_cast<uint64_t>(batch.tokens[static_cast<size_t>(t)]));
      write_hidden(state, keys, made.data() + t * kHidden);
      if (line >= batch.logits_of.size() || batch.logits_of[line] != t) continue;
      const bool wrong = wrong_of_ > 0 && mix(state, 77) % wrong_of_ == 0;
      fill_logits(wrong ? ~state : state, keys, false, logits.data() + line++ * kWidth);
    }
    return {logits.empty() ? mx::zeros({0, kWidth}, mx::float32)
                           : mx::array(logits.begin(), {batch.L(), kWidth}, mx::float32),
            mx::array(made.begin(), {batch.T(), kHidden}, mx::float32)};
  }

  std::function<void(const ops::StepBatch&)> before, before_draft;  // on the engine thread; may throw

 private:
  struct Out {
    std::vector<float>&logits, &hidden;
  };
  static size_t run_row(const ops::StepBatch& batch, int r, FakeStore& store, const Out& out, size_t line) {
    FakeStore::Slot& slot = store.slots.at(static_cast<size_t>(batch.slot[r]));
    if (batch.first[r] == 0) slot = {.state = 1, .tokens = 0};
    if (slot.tokens != batch.first[r]) throw std::logic_error("a state of another position");
    for (int t = batch.row_begin[r]; t < batch.row_begin[r + 1]; ++t) {
      const TokenId token = batch.tokens[t];
      if (token == kThrows) throw std::runtime_error("a token that throws");
      const int position = slot.tokens++;
      if (batch.positions[t] != position) throw std::logic_error("a position of another token");
      store.keys.at(batch.blocks(r)[position / 64] * 64 + position % 64) = token;
      slot.state = mix(slot.state, static_cast<uint64_t>(token));
      slot.nan = slot.nan || token == kNan;
      for (const auto& emit : batch.emits_of(r))
        if (emit.token == t) store.slots.at(static_cast<size_t>(emit.slot)) = slot;
      uint64_t keys = 0;
      for (int p = 0; p <= position; ++p) keys = mix(keys, store.keys.at(batch.blocks(r)[p / 64] * 64 + p % 64));
      write_hidden(slot.state, keys, out.hidden.data() + t * kHidden);
      if (line >= batch.logits_of.size() || batch.logits_of[line] != t) continue;
      fill_logits(slot.state, keys, slot.nan, out.logits.data() + line++ * kWidth);
    }
    return line;
  }

  model::ModelInfo info_;
  uint64_t wrong_of_;
};

// Greedy decoding by hand: what a request must answer whatever runs beside it.
inline std::vector<TokenId> expected_answer(std::vector<TokenId> tokens, int max_tokens, TokenId stop = -1) {
  std::vector<TokenId> answer;
  uint64_t state = 1, keys = 0;
  for (const TokenId token : tokens) state = mix(state, token), keys = mix(keys, token);
  while (static_cast<int>(answer.size()) < max_tokens) {
    float logits[kWidth];
    fill_logits(state, keys, false, logits);
    const TokenId token = static_cast<TokenId>(std::max_element(logits, logits + kVocab) - logits);
    answer.push_back(token);
    if (token == stop) break;
    state = mix(state, token), keys = mix(keys, token);
  }
  return answer;
}

}  // namespace tutti::test
