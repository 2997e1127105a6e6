// What happens to a row of logits between the model and the draw, as one ordered table. To add a filter: a function in
// filters.cpp and a row in the table there.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sample/params.h"

namespace tutti::sample {

// The row while it passes through the table. Logit filters edit `logits`; the temperature turns them into (l - max) / T
// ≤ 0; candidate filters then shrink the set of ids that can be drawn.
struct Work {
  const SamplingParams& params;
  std::span<const TokenId> output;                  // generated tokens
  std::span<const std::pair<TokenId, int>> counts;  // of generated tokens
  std::span<const TokenId> seen;                    // prompt and generated, no doubles
  std::span<float> logits;                          // [V]
  std::span<const float> source;  // [V] what the temperature divides: `logits`, or the raw row if unedited
  float max = 0;                  // of source
  const TokenConstraint* constraint = nullptr;  // where the row's is now

  bool all = true;       // every id of the vocabulary is a candidate and `ids` is empty
  std::vector<int> ids;  // candidates, ascending, when !all
  // e^logit of each candidate (of each id when all), 0 of one that a filter took out; empty: not computed yet.
  std::vector<float> weights;
};

enum class Stage { logits, temperature, candidates };

struct Filter {
  std::string_view name;
  Stage stage;
  bool (*active)(const SamplingParams& params);
  void (*apply)(Work& work);
};

std::span<const Filter> filters();

// Whether any filter of the stage has something to do.
bool any_active(Stage stage, const SamplingParams& params);
void apply_filters(Stage stage, Work& work);

// Fills work.weights.
void weigh(Work& work);

}  // namespace tutti::sample
