#include "cache/block_pool.h"

#include <algorithm>

#include "base/error.h"

namespace tutti::cache {

BlockPool::BlockPool(int blocks) : blocks_(static_cast<size_t>(blocks)) {
  free_.reserve(blocks_.size());
  for (int block = blocks - 1; block >= 0; --block) free_.emplace_back(block);
}

BlockPool::Taken BlockPool::take() {
  TUTTI_CHECK(can_take());
  Taken taken;
  if (!free_.empty()) {
    taken.block = free_.back();
    free_.pop_back();
  } else {
    taken.block = idle_.begin()->second;
    idle_.erase(idle_.begin());
    Block& block = at(taken.block);
    block.idle_since = 0;
    taken.lost = {.block = taken.block, .key = block.key, .tokens = std::move(block.tokens)};
    unpublish(block);
  }
  at(taken.block).sequences = 1;
  ++in_use_;
  return taken;
}

void BlockPool::hold(BlockId id, Holder holder) {
  Block& block = at(id);
  if (block.idle_since > 0) {
    idle_.erase(block.idle_since);
    block.idle_since = 0;
  }
  if (holder == Holder::snapshot)
    ++block.snapshots;
  else if (++block.sequences == 1)
    ++in_use_;
}

void BlockPool::let_go(BlockId id, Holder holder) {
  Block& block = at(id);
  int& holders = holder == Holder::snapshot ? block.snapshots : block.sequences;
  TUTTI_CHECK(holders > 0);
  --holders;
  if (holder == Holder::sequence && holders == 0) --in_use_;
  if (block.sequences == 0 && block.snapshots == 0) settle(id);
}

void BlockPool::settle(BlockId id) {
  Block& block = at(id);
  if (!block.published) {
    free_.push_back(id);
    return;
  }
  block.idle_since = ++clock_;
  idle_.emplace(block.idle_since, id);
}

bool BlockPool::publish(BlockId id, const PrefixKey& key, std::span<const TokenId> tokens) {
  Block& block = at(id);
  TUTTI_CHECK(block.sequences > 0 && !block.published);
  if (!by_key_.emplace(key, id).second) return false;
  block.published = true;
  block.key = key;
  block.tokens.assign(tokens.begin(), tokens.end());
  return true;
}

void BlockPool::unpublish(Block& block) {
  by_key_.erase(block.key);
  block.published = false;
  block.tokens.clear();
}

BlockId BlockPool::find(const PrefixKey& key, std::span<const TokenId> tokens) const {
  const auto it = by_key_.find(key);
  if (it == by_key_.end() || !std::ranges::equal(at(it->second).tokens, tokens)) return {};
  return it->second;
}

void BlockPool::touch(BlockId id) {
  Block& block = at(id);
  if (block.idle_since == 0) return;
  idle_.erase(block.idle_since);
  block.idle_since = ++clock_;
  idle_.emplace(block.idle_since, id);
}

std::vector<BlockPool::Published> BlockPool::all_published() const {
  std::vector<Published> all;
  const auto append = [&](BlockId id) { all.push_back({id, at(id).key, at(id).tokens}); };
  for (const auto& [key, id] : by_key_)
    if (at(id).idle_since == 0) append(id);
  for (auto it = idle_.rbegin(); it != idle_.rend(); ++it) append(it->second);
  return all;
}

void BlockPool::forget() {
  for (const auto& [since, id] : idle_) {
    at(id).idle_since = 0;
    free_.push_back(id);
  }
  idle_.clear();
  while (!by_key_.empty()) unpublish(at(by_key_.begin()->second));
}

void BlockPool::check(std::span<const int> sequences, std::span<const int> snapshots) const {
  TUTTI_CHECK(sequences.size() == blocks_.size() && snapshots.size() == blocks_.size());
  std::vector<int> free(blocks_.size(), 0);
  for (const BlockId id : free_) ++free.at(static_cast<size_t>(id.value));
  int in_use = 0, published = 0, idle = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const bool held = block.sequences + block.snapshots > 0;
    TUTTI_CHECK(block.sequences == sequences[i] && block.snapshots == snapshots[i]);
    TUTTI_CHECK(free[i] == (held || block.published ? 0 : 1));
    TUTTI_CHECK((block.idle_since > 0) == (!held && block.published));
    in_use += block.sequences > 0 ? 1 : 0;
    idle += block.idle_since > 0 ? 1 : 0;
    published += block.published ? 1 : 0;
    if (block.published) TUTTI_CHECK(by_key_.at(block.key).value == static_cast<int32_t>(i));
  }
  TUTTI_CHECK(in_use == in_use_ && published == static_cast<int>(by_key_.size()));
  TUTTI_CHECK(idle == static_cast<int>(idle_.size()));
}

}  // namespace tutti::cache
