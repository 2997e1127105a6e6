#include "cache/manager.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "cache/block_pool.h"
#include "cache/snapshot_index.h"

namespace tutti::cache {

namespace {

using Holder = BlockPool::Holder;

// A tier must give so many tokens more than the memory does.
constexpr int kFetchTokens = 32;

// What one sequence holds.
struct Owned {
  std::vector<BlockId> blocks;  // in token order
  SlotId slot;
  int published = 0;              // blocks that publish() has been asked for
  std::vector<SlotId> drafts;     // of the states that the step in planning writes on its way
  std::vector<Snapshot> planned;  // written by the step in planning; `partial` is not set yet
  bool committed = false;         // its state is what commit() said last
};

// The longest prefix found.
struct Match {
  int position = 0;
  std::vector<BlockId> blocks;         // the full ones
  const Snapshot* snapshot = nullptr;  // null for models without recurrent layers
};

EntryPlace place_of(BlockPool::Published&& block) {
  return {{.kind = EntryName::Kind::block, .key = block.key, .tokens = std::move(block.tokens)}, block.block, {}};
}

EntryPlace place_of(Snapshot&& snapshot) {
  return {{.kind = EntryName::Kind::state,
           .key = snapshot.parent,
           .tokens = std::move(snapshot.tail),
           .position = snapshot.position},
          snapshot.partial,
          snapshot.slot};
}

std::span<const TokenId> block_tokens(std::span<const TokenId> tokens, int block) {
  return tokens.subspan(static_cast<size_t>(block) * kBlockTokens, kBlockTokens);
}

}  // namespace

struct CacheManager::Impl {
  explicit Impl(const ManagerOptions& o) : options(o), pool(o.blocks) {
    for (int slot = o.slots + o.snapshots + o.drafts - 1; slot >= 0; --slot) free_slots.emplace_back(slot);
  }

  Match match(const Prefix& prefix, int limit) const;
  bool install_block(const EntryName& name, const std::function<void(const EntryPlace&)>& fill);
  bool install_state(const EntryName& name, const std::function<void(const EntryPlace&)>& fill);
  BlockId take_block();
  SlotId take_slot();
  void drop(SlotId snapshot);
  bool has_room_for_snapshot();  // drops an old one when that helps
  Snapshot snapshot_at(const Prefix& prefix, int position) const;
  void add_snapshot(Snapshot snapshot, const Owned& owner);
  void publish(Owned& owned, const Prefix& prefix, int computed);
  void give_back(SequenceId sequence);

  ManagerOptions options;
  BlockPool pool;
  SnapshotIndex snapshots;
  std::vector<SlotId> free_slots;  // a stack
  std::unordered_map<SequenceId, Owned> owned;
  int planned = 0;  // snapshots in Owned::planned
  int drafts = 0;   // slots in Owned::drafts
  std::vector<EntryPlace> given_up;
};

Match CacheManager::Impl::match(const Prefix& prefix, int limit) const {
  Match found;
  const auto tokens = prefix.tokens.first(static_cast<size_t>(limit));
  const int full = std::min(limit / kBlockTokens, prefix.chain.blocks());
  for (int i = 0; i < full; ++i) {
    const BlockId block = pool.find(prefix.chain.after(i + 1), block_tokens(tokens, i));
    if (!block.valid()) break;
    found.blocks.push_back(block);
  }
  if (!options.stateful) {
    found.position = static_cast<int>(found.blocks.size()) * kBlockTokens;
    return found;
  }
  for (int blocks = static_cast<int>(found.blocks.size()); blocks >= 0; --blocks) {
    const auto rest = tokens.subspan(static_cast<size_t>(blocks) * kBlockTokens);
    const Snapshot* snapshot = snapshots.longest(prefix.chain.after(blocks), rest);
    if (snapshot == nullptr) continue;
    found.blocks.resize(static_cast<size_t>(blocks));
    found.position = snapshot->position;
    found.snapshot = snapshot;
    return found;
  }
  return {};
}

// One must be available.
BlockId CacheManager::Impl::take_block() {
  if (!pool.can_take()) {
    // All that is left is held by snapshots alone: the oldest of those goes.
    for (const SlotId slot : snapshots.by_age()) {
      const BlockId partial = snapshots.at(slot).partial;
      if (!partial.valid() || pool.in_use_by_sequences(partial) > 0) continue;
      drop(slot);
      if (pool.can_take()) break;
    }
  }
  BlockPool::Taken taken = pool.take();
  if (taken.lost) {
    for (const SlotId slot : snapshots.under(taken.lost->key)) drop(slot);  // can't be reached any more
    if (options.record_given_up) given_up.push_back(place_of(std::move(*taken.lost)));
  }
  return taken.block;
}

SlotId CacheManager::Impl::take_slot() {
  TUTTI_CHECK(!free_slots.empty());
  const SlotId slot = free_slots.back();
  free_slots.pop_back();
  return slot;
}

void CacheManager::Impl::drop(SlotId slot) {
  Snapshot dropped = snapshots.remove(slot);
  free_slots.push_back(slot);
  if (dropped.partial.valid()) pool.let_go(dropped.partial, Holder::snapshot);
  if (options.record_given_up) given_up.push_back(place_of(std::move(dropped)));
}

bool CacheManager::Impl::has_room_for_snapshot() {
  if (snapshots.size() + planned < options.snapshots) return true;
  const std::optional<SlotId> oldest = snapshots.oldest();
  if (!oldest) return false;
  drop(*oldest);
  return snapshots.size() + planned < options.snapshots;
}

Snapshot CacheManager::Impl::snapshot_at(const Prefix& prefix, int position) const {
  const int full = position / kBlockTokens;
  const auto tail =
      prefix.tokens.subspan(static_cast<size_t>(full) * kBlockTokens, static_cast<size_t>(position % kBlockTokens));
  return {.position = position, .parent = prefix.chain.after(full), .tail = {tail.begin(), tail.end()}};
}

void CacheManager::Impl::add_snapshot(Snapshot snapshot, const Owned& owner) {
  if (!snapshot.tail.empty()) {
    snapshot.partial = owner.blocks.at(static_cast<size_t>(snapshot.position / kBlockTokens));
    pool.hold(snapshot.partial, Holder::snapshot);
  }
  snapshots.add(std::move(snapshot));
}

void CacheManager::Impl::publish(Owned& owner, const Prefix& prefix, int computed) {
  const int full = std::min(computed / kBlockTokens, prefix.chain.blocks());
  for (; owner.published < full; ++owner.published) {
    const int i = owner.published;
    pool.publish(owner.blocks.at(static_cast<size_t>(i)), prefix.chain.after(i + 1), block_tokens(prefix.tokens, i));
  }
}

void CacheManager::Impl::give_back(SequenceId sequence) {
  const auto it = owned.find(sequence);
  if (it == owned.end()) return;
  Owned& owner = it->second;
  for (const Snapshot& snapshot : owner.planned) free_slots.push_back(snapshot.slot);
  planned -= static_cast<int>(owner.planned.size());
  free_slots.insert(free_slots.end(), owner.drafts.begin(), owner.drafts.end());
  drafts -= static_cast<int>(owner.drafts.size());
  // The last block first: of a prefix, the end is given up before the beginning.
  for (auto block = owner.blocks.rbegin(); block != owner.blocks.rend(); ++block) pool.let_go(*block, Holder::sequence);
  if (owner.slot.valid()) free_slots.push_back(owner.slot);
  owned.erase(it);
}

CacheManager::CacheManager(ManagerOptions options) {
  TUTTI_CHECK(options.blocks >= 1 && options.slots >= 1 && options.snapshots >= 0);
  impl_ = std::make_unique<Impl>(options);
}

CacheManager::~CacheManager() = default;

bool CacheManager::reserve(SequenceId sequence, int tokens) {
  TUTTI_CHECK(tokens >= 0);
  const auto it = impl_->owned.find(sequence);
  const bool fresh = it == impl_->owned.end();
  const int held = fresh ? 0 : static_cast<int>(it->second.blocks.size());
  const int missing = blocks_for(tokens) - held;
  if (fresh && free_slots() == 0) return false;
  if (missing > free_blocks()) return false;
  Owned& owner = fresh ? impl_->owned[sequence] : it->second;
  if (missing > 0) owner.blocks.reserve(owner.blocks.size() + static_cast<size_t>(missing));
  if (fresh) owner.slot = impl_->take_slot();
  for (int i = 0; i < missing; ++i) owner.blocks.push_back(impl_->take_block());
  return true;
}

void CacheManager::release(SequenceId sequence) {
  impl_->give_back(sequence);
}

bool CacheManager::plan_drafts(SequenceId sequence, int n) {
  Owned& owner = impl_->owned.at(sequence);
  TUTTI_CHECK(owner.drafts.empty());
  if (!impl_->options.stateful) return true;
  if (n > impl_->options.drafts - impl_->drafts) return false;
  for (int i = 0; i < n; ++i) owner.drafts.push_back(impl_->take_slot());
  impl_->drafts += n;
  return true;
}

std::span<const SlotId> CacheManager::draft_slots(SequenceId sequence) const {
  return impl_->owned.at(sequence).drafts;
}

void CacheManager::accept_drafts(SequenceId sequence, int kept) {
  Owned& owner = impl_->owned.at(sequence);
  TUTTI_CHECK(kept >= 1);
  const auto state = static_cast<size_t>(kept) - 1;
  if (state < owner.drafts.size()) std::swap(owner.slot, owner.drafts[state]);
  impl_->free_slots.insert(impl_->free_slots.end(), owner.drafts.begin(), owner.drafts.end());
  impl_->drafts -= static_cast<int>(owner.drafts.size());
  owner.drafts.clear();
}

int CacheManager::match_prefix(const Prefix& prefix, int limit) const {
  return impl_->match(prefix, limit).position;
}

int CacheManager::restore(SequenceId sequence, const Prefix& prefix, int limit, std::vector<Copy>& copies) {
  TUTTI_CHECK(!holds(sequence));
  const Match found = impl_->match(prefix, limit);
  if (found.position == 0 || free_slots() == 0) return 0;
  BlockPool& pool = impl_->pool;
  const BlockId partial = found.snapshot != nullptr ? found.snapshot->partial : BlockId{};
  const auto idle = [&](BlockId block) { return pool.in_use_by_sequences(block) == 0; };
  int needed = static_cast<int>(std::ranges::count_if(found.blocks, idle));
  if (partial.valid()) needed += 1 + (idle(partial) ? 1 : 0);
  if (needed > free_blocks()) return 0;

  Owned& owner = impl_->owned[sequence];
  owner.blocks = found.blocks;
  owner.published = static_cast<int>(found.blocks.size());
  for (const BlockId block : found.blocks) pool.hold(block, Holder::sequence);
  if (partial.valid()) {
    pool.hold(partial, Holder::sequence);  // so that the block taken is not this one
    owner.blocks.push_back(impl_->take_block());
    pool.let_go(partial, Holder::sequence);
    copies.push_back({Copy::What::block, partial.value, owner.blocks.back().value});
  }
  owner.slot = impl_->take_slot();
  if (found.snapshot != nullptr) {
    copies.push_back({Copy::What::slot, found.snapshot->slot.value, owner.slot.value});
    impl_->snapshots.touch(found.snapshot->slot);
  }
  return found.position;
}

SlotId CacheManager::plan_snapshot(SequenceId sequence, const Prefix& prefix, int position) {
  Owned& owner = impl_->owned.at(sequence);
  if (!impl_->options.stateful || impl_->options.snapshots == 0) return {};
  Snapshot snapshot = impl_->snapshot_at(prefix, position);
  if (const Snapshot* known = impl_->snapshots.find(snapshot.parent, snapshot.tail)) {
    impl_->snapshots.touch(known->slot);
    return {};
  }
  if (!impl_->has_room_for_snapshot()) return {};
  const SlotId slot = snapshot.slot = impl_->take_slot();
  owner.planned.push_back(std::move(snapshot));
  ++impl_->planned;
  return slot;
}

void CacheManager::commit(SequenceId sequence, const Prefix& prefix, int computed) {
  Owned& owner = impl_->owned.at(sequence);
  owner.committed = true;
  impl_->publish(owner, prefix, computed);
  for (Snapshot& snapshot : owner.planned) {
    // Another row of the same step may have written the same.
    if (snapshot.position > computed || impl_->snapshots.find(snapshot.parent, snapshot.tail) != nullptr)
      impl_->free_slots.push_back(snapshot.slot);
    else
      impl_->add_snapshot(std::move(snapshot), owner);
  }
  impl_->planned -= static_cast<int>(owner.planned.size());
  owner.planned.clear();
}

void CacheManager::keep(SequenceId sequence, const Prefix& prefix, int computed) {
  const auto it = impl_->owned.find(sequence);
  if (it != impl_->owned.end() && it->second.committed && computed > 0 && impl_->options.stateful &&
      impl_->options.snapshots > 0) {
    Owned& owner = it->second;
    Snapshot snapshot = impl_->snapshot_at(prefix, computed);
    if (impl_->snapshots.find(snapshot.parent, snapshot.tail) == nullptr && impl_->has_room_for_snapshot()) {
      snapshot.slot = owner.slot;
      owner.slot = {};
      impl_->add_snapshot(std::move(snapshot), owner);
    }
  }
  impl_->give_back(sequence);
}

void CacheManager::forget() {
  TUTTI_CHECK(impl_->owned.empty());
  for (const SlotId slot : impl_->snapshots.by_age()) impl_->drop(slot);
  impl_->pool.forget();
  impl_->given_up.clear();
}

std::vector<EntryPlace> CacheManager::take_given_up() {
  return std::exchange(impl_->given_up, {});
}

std::vector<EntryPlace> CacheManager::entries() const {
  std::vector<EntryPlace> all;
  for (BlockPool::Published& block : impl_->pool.all_published()) all.push_back(place_of(std::move(block)));
  const std::vector<SlotId> by_age = impl_->snapshots.by_age();
  for (auto slot = by_age.rbegin(); slot != by_age.rend(); ++slot)
    all.push_back(place_of(Snapshot(impl_->snapshots.at(*slot))));
  return all;
}

CacheManager::Fetch CacheManager::plan_fetch(const Prefix& prefix, int limit, const EntryLookup& tier) const {
  const BlockPool& pool = impl_->pool;
  const auto tokens = prefix.tokens.first(static_cast<size_t>(limit));
  const int full = std::min(limit / kBlockTokens, prefix.chain.blocks());
  const auto in_memory = [&](int block) {
    return pool.find(prefix.chain.after(block + 1), block_tokens(tokens, block)).valid();
  };
  int blocks = 0;
  while (blocks < full && (in_memory(blocks) || tier.has_block(prefix.chain.after(blocks + 1)))) ++blocks;

  Fetch fetch;
  std::optional<EntryName> state;
  if (!stateful()) {
    fetch.position = blocks * kBlockTokens;
  } else if (impl_->options.snapshots > 0) {
    for (; blocks >= 0 && fetch.position == 0; --blocks) {
      const PrefixKey& parent = prefix.chain.after(blocks);
      const auto rest = tokens.subspan(static_cast<size_t>(blocks) * kBlockTokens);
      const Snapshot* here = impl_->snapshots.longest(parent, rest);
      std::optional<std::vector<TokenId>> there = tier.longest_state(parent, rest);
      const int tail = there ? static_cast<int>(there->size()) : -1;
      const int held = here != nullptr ? static_cast<int>(here->tail.size()) : -1;
      if (tail < 0 && held < 0) continue;
      fetch.position = blocks * kBlockTokens + std::max(tail, held);
      if (fetch.position == 0) break;
      if (tail > held)
        state = {
            .kind = EntryName::Kind::state, .key = parent, .tokens = std::move(*there), .position = fetch.position};
    }
  }
  if (fetch.position < impl_->match(prefix, limit).position + kFetchTokens) return {};
  // The last block first, so that the first ones are the youngest.
  for (int block = fetch.position / kBlockTokens - 1; block >= 0; --block) {
    if (in_memory(block)) continue;
    const auto part = block_tokens(tokens, block);
    fetch.entries.push_back(
        {.kind = EntryName::Kind::block, .key = prefix.chain.after(block + 1), .tokens = {part.begin(), part.end()}});
  }
  if (state) fetch.entries.push_back(std::move(*state));
  if (fetch.position / kBlockTokens + 2 > free_blocks()) return {};
  return fetch;
}

void CacheManager::touch(const Prefix& prefix, int position) {
  const Snapshot wanted = impl_->snapshot_at(prefix, position);
  if (const Snapshot* known = impl_->snapshots.find(wanted.parent, wanted.tail)) impl_->snapshots.touch(known->slot);
  for (int i = position / kBlockTokens - 1; i >= 0; --i) {
    const BlockId block = impl_->pool.find(prefix.chain.after(i + 1), block_tokens(prefix.tokens, i));
    if (block.valid()) impl_->pool.touch(block);
  }
}

bool CacheManager::install(const EntryName& name, const std::function<void(const EntryPlace&)>& fill) {
  if (free_blocks() == 0) return false;
  return name.kind == EntryName::Kind::block ? impl_->install_block(name, fill) : impl_->install_state(name, fill);
}

bool CacheManager::Impl::install_block(const EntryName& name, const std::function<void(const EntryPlace&)>& fill) {
  if (pool.find(name.key, name.tokens).valid()) return false;
  const BlockId block = take_block();
  try {
    fill({name, block, {}});
  } catch (...) {
    pool.let_go(block, Holder::sequence);
    throw;
  }
  pool.publish(block, name.key, name.tokens);
  pool.let_go(block, Holder::sequence);
  return true;
}

bool CacheManager::Impl::install_state(const EntryName& name, const std::function<void(const EntryPlace&)>& fill) {
  if (!options.stateful || options.snapshots == 0 || snapshots.find(name.key, name.tokens) != nullptr) return false;
  if (!has_room_for_snapshot()) return false;
  Snapshot snapshot{.position = name.position, .parent = name.key, .tail = name.tokens};
  snapshot.slot = take_slot();
  if (!snapshot.tail.empty()) snapshot.partial = take_block();
  const auto let_go = [&] {
    if (snapshot.partial.valid()) pool.let_go(snapshot.partial, Holder::sequence);
  };
  try {
    fill({name, snapshot.partial, snapshot.slot});
  } catch (...) {
    let_go();
    free_slots.push_back(snapshot.slot);
    throw;
  }
  if (snapshot.partial.valid()) pool.hold(snapshot.partial, Holder::snapshot);
  let_go();
  snapshots.add(std::move(snapshot));
  return true;
}

bool CacheManager::holds(SequenceId sequence) const {
  return impl_->owned.contains(sequence);
}

std::span<const BlockId> CacheManager::blocks(SequenceId sequence) const {
  const auto it = impl_->owned.find(sequence);
  if (it == impl_->owned.end()) return {};
  return it->second.blocks;
}

SlotId CacheManager::slot(SequenceId sequence) const {
  const auto it = impl_->owned.find(sequence);
  return it == impl_->owned.end() ? SlotId{} : it->second.slot;
}

bool CacheManager::stateful() const {
  return impl_->options.stateful;
}
bool CacheManager::keeps_prefixes() const {
  return !impl_->options.stateful || impl_->options.snapshots > 0;
}
int CacheManager::total_blocks() const {
  return impl_->options.blocks;
}
int CacheManager::free_blocks() const {
  return impl_->pool.available();
}
int CacheManager::free_slots() const {
  return impl_->options.slots - static_cast<int>(impl_->owned.size());
}
int CacheManager::cached_blocks() const {
  return impl_->pool.published();
}
int CacheManager::snapshots() const {
  return impl_->snapshots.size();
}

void CacheManager::check() const {
  const ManagerOptions& o = impl_->options;
  std::vector<int> by_sequence(static_cast<size_t>(o.blocks), 0), by_snapshot = by_sequence;
  std::vector<int> slot_owners(
      static_cast<size_t>(o.slots) + static_cast<size_t>(o.snapshots) + static_cast<size_t>(o.drafts), 0);
  const auto take = [](std::vector<int>& owners, int index) { ++owners.at(static_cast<size_t>(index)); };
  int planned = 0, drafts = 0;
  for (const SlotId slot : impl_->free_slots) take(slot_owners, slot.value);
  for (const auto& [sequence, owner] : impl_->owned) {
    for (const BlockId block : owner.blocks) take(by_sequence, block.value);
    for (const Snapshot& snapshot : owner.planned) take(slot_owners, snapshot.slot.value);
    for (const SlotId slot : owner.drafts) take(slot_owners, slot.value);
    drafts += static_cast<int>(owner.drafts.size());
    take(slot_owners, owner.slot.value);
    planned += static_cast<int>(owner.planned.size());
  }
  for (const SlotId slot : impl_->snapshots.by_age()) {
    const Snapshot& snapshot = impl_->snapshots.at(slot);
    TUTTI_CHECK(snapshot.slot == slot && snapshot.partial.valid() == !snapshot.tail.empty());
    TUTTI_CHECK(snapshot.position % kBlockTokens == static_cast<int>(snapshot.tail.size()));
    take(slot_owners, slot.value);
    if (snapshot.partial.valid()) take(by_snapshot, snapshot.partial.value);
  }
  TUTTI_CHECK(std::ranges::all_of(slot_owners, [](int owners) { return owners == 1; }));
  TUTTI_CHECK(drafts == impl_->drafts && drafts <= o.drafts && planned == impl_->planned &&
              impl_->snapshots.size() + planned <= o.snapshots);
  TUTTI_CHECK(static_cast<int>(impl_->owned.size()) <= o.slots);
  impl_->pool.check(by_sequence, by_snapshot);
}

}  // namespace tutti::cache
