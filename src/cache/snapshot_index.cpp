#include "cache/snapshot_index.h"

#include <algorithm>

#include "base/error.h"

namespace tutti::cache {

void SnapshotIndex::add(Snapshot snapshot) {
  TUTTI_CHECK(find(snapshot.parent, snapshot.tail) == nullptr && !by_slot_.contains(snapshot.slot));
  const SlotId slot = snapshot.slot;
  by_parent_[snapshot.parent].push_back(slot);
  by_use_.emplace(++clock_, slot);
  by_slot_.emplace(slot, Entry{std::move(snapshot), clock_});
}

const Snapshot* SnapshotIndex::find(const PrefixKey& parent, std::span<const TokenId> tail) const {
  const Snapshot* found = longest(parent, tail);
  return found != nullptr && found->tail.size() == tail.size() ? found : nullptr;
}

const Snapshot* SnapshotIndex::longest(const PrefixKey& parent, std::span<const TokenId> tokens) const {
  const auto it = by_parent_.find(parent);
  if (it == by_parent_.end()) return nullptr;
  const Snapshot* best = nullptr;
  for (const SlotId slot : it->second) {
    const Snapshot& s = by_slot_.at(slot).snapshot;
    if (s.tail.size() > tokens.size() || (best != nullptr && s.tail.size() <= best->tail.size())) continue;
    if (std::equal(s.tail.begin(), s.tail.end(), tokens.begin())) best = &s;
  }
  return best;
}

void SnapshotIndex::touch(SlotId slot) {
  Entry& entry = by_slot_.at(slot);
  by_use_.erase(entry.used);
  entry.used = ++clock_;
  by_use_.emplace(entry.used, slot);
}

Snapshot SnapshotIndex::remove(SlotId slot) {
  auto node = by_slot_.extract(slot);
  TUTTI_CHECK(!node.empty());
  Entry& entry = node.mapped();
  by_use_.erase(entry.used);
  const auto siblings = by_parent_.find(entry.snapshot.parent);
  std::erase(siblings->second, slot);
  if (siblings->second.empty()) by_parent_.erase(siblings);
  return std::move(entry.snapshot);
}

std::vector<SlotId> SnapshotIndex::by_age() const {
  std::vector<SlotId> slots;
  for (const auto& [used, slot] : by_use_) slots.push_back(slot);
  return slots;
}

std::vector<SlotId> SnapshotIndex::under(const PrefixKey& parent) const {
  const auto it = by_parent_.find(parent);
  return it == by_parent_.end() ? std::vector<SlotId>{} : it->second;
}

std::optional<SlotId> SnapshotIndex::oldest() const {
  if (by_use_.empty()) return std::nullopt;
  return by_use_.begin()->second;
}

}  // namespace tutti::cache
