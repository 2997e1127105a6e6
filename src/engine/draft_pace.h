// How many guesses per row pay, from what steps took: for each size of a batch, the time per token with none, with one
// and with all that are allowed; now and then each is tried again. Only speed hangs on it. Engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tutti::engine {

class DraftPace {
 public:
  explicit DraftPace(int max_drafts);

  // The most guesses that one step of up to `rows` rows can hold: so many states between guesses are needed.
  static int most_guesses(int max_drafts, int rows);

  // Guesses per row for the step after next, while so many rows decode. beside_prompts: what the step takes will not
  // say anything, so nothing is tried out.
  int choose(int rows, bool beside_prompts = false);
  // A step of decoding rows alone, of which `guessed` had guesses to verify, gave `tokens` tokens in so many seconds.
  // What choose() said before is not always what happened: rows may have given up guessing, or not want it.
  void observe(int rows, int guessed, int tokens, double seconds);

 private:
  struct Level {
    int drafts = 0;
    double token_s = 0;  // running mean
    int steps = 0;       // observed
    int trials = 0;      // times that it was chosen for want of observations
  };
  struct Bucket {
    std::vector<Level> levels;
    int64_t chosen = 0;  // times
  };
  Bucket& bucket(int rows);
  static int best_of(const Bucket& bucket);

  int max_drafts_;
  std::array<Bucket, 16> buckets_;  // by the bit width of the number of rows
  int now_ = 0, before_ = 0;        // what choose() said last, and the time before
};

}  // namespace tutti::engine
