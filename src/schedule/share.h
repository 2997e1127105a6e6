// How the prompts of a step share its tokens.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::schedule {

struct PromptShare {
  int want = 0;       // tokens left to compute
  int64_t level = 0;  // effective priority; the list is ordered by it, within a level by age
  int given = 0;      // out
};

// Level by level: half of what is left goes to the oldest prompt, the rest to those that want least, what then remains
// to the oldest again. Σ given = min(budget, Σ want), and the oldest gets at least half of the budget or all that it
// wants.
void share_tokens(std::span<PromptShare> prompts, int budget);

}  // namespace tutti::schedule
