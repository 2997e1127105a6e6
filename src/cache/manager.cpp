#include "cache/manager.h"

#include <unordered_map>

#include "base/error.h"

namespace tutti::cache {

namespace {
// What one sequence holds.
struct Owned {
  std::vector<BlockId> blocks;  // in token order
  SlotId slot;
};
}  // namespace

// Every block is in exactly one of: free_blocks, one sequence's blocks. Every slot likewise. The free lists are stacks,
// so that memory that has been touched is used again before fresh memory is.
struct CacheManager::Impl {
  ManagerOptions options;
  std::vector<BlockId> free_blocks;
  std::vector<SlotId> free_slots;
  std::unordered_map<SequenceId, Owned> owned;
};

CacheManager::CacheManager(ManagerOptions options) : impl_(std::make_unique<Impl>()) {
  TUTTI_CHECK(options.blocks >= 1 && options.slots >= 1);
  impl_->options = options;
  impl_->free_blocks.reserve(options.blocks);
  impl_->free_slots.reserve(options.slots);
  for (int block = options.blocks - 1; block >= 0; --block) impl_->free_blocks.emplace_back(block);
  for (int slot = options.slots - 1; slot >= 0; --slot) impl_->free_slots.emplace_back(slot);
}

CacheManager::~CacheManager() = default;

bool CacheManager::reserve(SequenceId sequence, int tokens) {
  TUTTI_CHECK(tokens >= 0);
  const auto it = impl_->owned.find(sequence);
  const bool fresh = it == impl_->owned.end();
  const int held = fresh ? 0 : static_cast<int>(it->second.blocks.size());
  const int missing = blocks_for(tokens) - held;
  if (fresh && impl_->free_slots.empty()) return false;
  if (missing > free_blocks()) return false;
  Owned& owned = fresh ? impl_->owned[sequence] : it->second;
  if (missing > 0) owned.blocks.reserve(owned.blocks.size() + missing);
  if (fresh) {
    owned.slot = impl_->free_slots.back();
    impl_->free_slots.pop_back();
  }
  for (int i = 0; i < missing; ++i) {
    owned.blocks.push_back(impl_->free_blocks.back());
    impl_->free_blocks.pop_back();
  }
  return true;
}

void CacheManager::release(SequenceId sequence) {
  const auto it = impl_->owned.find(sequence);
  if (it == impl_->owned.end()) return;
  const std::vector<BlockId>& blocks = it->second.blocks;
  impl_->free_blocks.insert(impl_->free_blocks.end(), blocks.rbegin(), blocks.rend());
  impl_->free_slots.push_back(it->second.slot);
  impl_->owned.erase(it);
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

int CacheManager::total_blocks() const {
  return impl_->options.blocks;
}
int CacheManager::free_blocks() const {
  return static_cast<int>(impl_->free_blocks.size());
}
int CacheManager::free_slots() const {
  return static_cast<int>(impl_->free_slots.size());
}

void CacheManager::check() const {
  std::vector<int> block_owners(impl_->options.blocks, 0), slot_owners(impl_->options.slots, 0);
  const auto take = [](std::vector<int>& owners, int index) {
    TUTTI_CHECK(index >= 0 && index < static_cast<int>(owners.size()));
    ++owners[index];
  };
  for (const BlockId block : impl_->free_blocks) take(block_owners, block.value);
  for (const SlotId slot : impl_->free_slots) take(slot_owners, slot.value);
  for (const auto& [sequence, owned] : impl_->owned) {
    for (const BlockId block : owned.blocks) take(block_owners, block.value);
    take(slot_owners, owned.slot.value);
  }
  for (const int owners : block_owners) TUTTI_CHECK(owners == 1);
  for (const int owners : slot_owners) TUTTI_CHECK(owners == 1);
}

}  // namespace tutti::cache
