#include "app/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tutti::app {

namespace {

void plan_snapshots(MemoryPlan& plan, const MemoryWishes& wishes, int64_t block, int64_t slot) {
  if (!wishes.prefix_caching || slot == 0) return;
  const int64_t bytes = wishes.snapshot_bytes >= 0 ? wishes.snapshot_bytes : plan.blocks * block / 10 * 4;
  plan.snapshots = static_cast<int>(std::min<int64_t>(bytes / slot, 1 << 20));
  plan.snapshot_every = static_cast<int>(std::min<int64_t>((slot + block - 1) / block, 1 << 20)) * cache::kBlockTokens;
}

}  // namespace

MemoryPlan plan_memory(const cache::CacheSpecs& specs, const MemoryWishes& wishes) {
  const int64_t block = std::max<int64_t>(cache::bytes_per_block(specs), 1), slot = cache::bytes_per_slot(specs);
  const int64_t budget = wishes.budget > 0 ? wishes.budget : wishes.available / 2;
  const int64_t wanted_len =
      wishes.max_model_len > 0 ? std::min<int64_t>(wishes.max_model_len, wishes.model_max_len) : wishes.model_max_len;

  MemoryPlan plan;
  // States may take half of the budget: what is left must still hold conversations.
  plan.slots = wishes.max_num_seqs;
  if (slot > 0) {
    // Rows that find no slot do without guesses.
    plan.draft_slots = static_cast<int>(std::min<int64_t>(wishes.draft_slots, budget / 8 / slot));
    const int64_t fit = budget / 2 / slot - plan.draft_slots;
    plan.slots = static_cast<int>(std::clamp<int64_t>(fit, 1, wishes.max_num_seqs));
  }
  const int64_t states = (int64_t{plan.slots} + plan.draft_slots) * slot;
  const int64_t blocks_per_row = (wanted_len + cache::kBlockTokens - 1) / cache::kBlockTokens;
  const int64_t blocks = std::min((budget - states) / block, blocks_per_row * plan.slots);
  if (blocks < 1) {
    throw OptionError(fmt::format(
        "the cache memory of {} bytes does not hold one sequence: a state takes {} bytes, a block of {} tokens {}",
        budget, slot, cache::kBlockTokens, block));
  }
  plan.blocks = static_cast<int>(std::min<int64_t>(blocks, 1 << 30));
  plan.max_model_len = static_cast<int>(std::min<int64_t>(wanted_len, int64_t{plan.blocks} * cache::kBlockTokens));
  if (wishes.max_model_len > 0 && plan.max_model_len < wanted_len) {
    throw OptionError(fmt::format("--max-model-len {} needs {} bytes of cache memory, there are {}", wanted_len,
                                  blocks_per_row * block + states, budget));
  }
  plan_snapshots(plan, wishes, block, slot);
  plan.bytes = plan.blocks * block + states + plan.snapshots * slot;
  return plan;
}

}  // namespace tutti::app
