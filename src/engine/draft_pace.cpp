#include "engine/draft_pace.h"

#include <algorithm>
#include <bit>

namespace tutti::engine {

namespace {

constexpr int kTrialSteps = 6;        // before a level is judged
constexpr int kMostTrials = 60;       // where hardly a row guesses there is nothing to judge
constexpr int64_t kRetryEvery = 256;  // steps; then one of the others is tried again
constexpr int64_t kRetrySteps = 4;
constexpr double kRate = 0.1;
constexpr size_t kFewRows = 3, kSomeRows = 4;  // bit widths: up to 7 rows, up to 15

// A full step is bound by arithmetic, and every guess is more of it: not even tried there.
int most_per_row(int max_drafts, size_t width) {
  return width <= kFewRows ? max_drafts : width <= kSomeRows ? std::min(1, max_drafts) : 0;
}

}  // namespace

DraftPace::DraftPace(int max_drafts) : max_drafts_(max_drafts) {
  for (size_t width = 0; width < buckets_.size(); ++width) {
    const int most = most_per_row(max_drafts, width);
    std::vector<Level>& levels = buckets_[width].levels;
    for (const int drafts : {0, 1, most})
      if (drafts <= most && (levels.empty() || levels.back().drafts < drafts)) levels.push_back({.drafts = drafts});
  }
}

int DraftPace::most_guesses(int max_drafts, int rows) {
  int most = 0;
  for (const size_t width : {kFewRows, kSomeRows})
    most = std::max(most, std::min(rows, (1 << width) - 1) * most_per_row(max_drafts, width));
  return most;
}

DraftPace::Bucket& DraftPace::bucket(int rows) {
  const auto width = static_cast<size_t>(std::bit_width(static_cast<unsigned>(std::max(rows, 1))));
  return buckets_[std::min(width, buckets_.size() - 1)];
}

int DraftPace::best_of(const Bucket& bucket) {
  const Level* best = &bucket.levels.front();
  for (const Level& level : bucket.levels)
    if (level.steps > 0 && (best->steps == 0 || level.token_s < best->token_s)) best = &level;
  return best->drafts;
}

int DraftPace::choose(int rows, bool beside_prompts) {
  before_ = now_;
  if (max_drafts_ == 0) return now_ = 0;
  Bucket& b = bucket(rows);
  if (beside_prompts) return now_ = best_of(b);
  const int64_t turn = b.chosen++;
  // Most guesses first: that is what a lone row wants.
  for (auto level = b.levels.rbegin(); level != b.levels.rend(); ++level)
    if (level->steps < kTrialSteps && level->trials++ < kMostTrials) return now_ = level->drafts;
  if (turn % kRetryEvery < kRetrySteps) {
    const auto other = static_cast<size_t>(turn / kRetryEvery) % b.levels.size();
    return now_ = b.levels[other].drafts;
  }
  if (b.levels.size() == 1) return now_ = b.levels.front().drafts;
  return now_ = best_of(b);
}

void DraftPace::observe(int rows, int guessed, int tokens, double seconds) {
  if (tokens < 1 || now_ != before_) return;  // a step between two levels says nothing of either
  if (now_ == 0 ? guessed > 0 : 2 * guessed < rows) return;
  for (Level& level : bucket(rows).levels) {
    if (level.drafts != now_) continue;
    const double token_s = seconds / tokens;
    level.token_s += (level.steps == 0 ? 1 : std::max(kRate, 1.0 / (level.steps + 1))) * (token_s - level.token_s);
    ++level.steps;
  }
}

}  // namespace tutti::engine
