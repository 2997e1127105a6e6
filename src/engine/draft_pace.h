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

  // Guesses per row for the step after next, while so many rows decode.
  int choose(int rows);
  // A step of decoding rows alone gave `tokens` tokens in so many seconds; it verified what choose() said before.
  void observe(int rows, int tokens, double seconds);

 private:
  struct Level {
    int drafts = 0;
    double token_s = 0;  // running mean
    int steps = 0;       // observed
  };
  struct Bucket {
    std::vector<Level> levels;
    int64_t chosen = 0;  // times
  };
  Bucket& bucket(int rows);

  int max_drafts_;
  std::array<Bucket, 16> buckets_;  // by the bit width of the number of rows
  int now_ = 0, before_ = 0;        // what choose() said last, and the time before
};

}  // namespace tutti::engine
