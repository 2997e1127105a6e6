#include "schedule/share.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tutti::schedule {

namespace {

// One level; returns what is left of the budget.
int share_level(std::span<PromptShare> prompts, int budget) {
  PromptShare& oldest = prompts.front();
  oldest.given = std::min(oldest.want, (budget + 1) / 2);
  budget -= oldest.given;
  std::vector<int> order(prompts.size() - 1);
  std::iota(order.begin(), order.end(), 1);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return prompts[a].want != prompts[b].want ? prompts[a].want < prompts[b].want : a < b;
  });
  for (const int i : order) {
    prompts[i].given = std::min(prompts[i].want, budget);
    budget -= prompts[i].given;
    if (budget == 0) break;
  }
  const int more = std::min(oldest.want - oldest.given, budget);
  oldest.given += more;
  return budget - more;
}

}  // namespace

void share_tokens(std::span<PromptShare> prompts, int budget) {
  for (size_t begin = 0; begin < prompts.size() && budget > 0;) {
    size_t end = begin + 1;
    while (end < prompts.size() && prompts[end].level == prompts[begin].level) ++end;
    budget = share_level(prompts.subspan(begin, end - begin), budget);
    begin = end;
  }
}

}  // namespace tutti::schedule
