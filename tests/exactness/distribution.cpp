// Whether guesses change what is sampled: tokens drawn with and without them, under different seeds, are compared by a
// chi-square test per prompt, temperature and position. Same seeds give the same tokens anyway (exactness.cpp); this
// sees what would be wrong with both.
//
//   distribution [TOKENS]      so many tokens a side (default 200000); exit code 1 when a position has p ≤ 0.001
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <span>

#include "base/log.h"
#include "exactness/play.h"
#include "exactness/subject.h"
#include "kernels/table.h"

namespace tutti::exactness {
namespace {

constexpr int kLength = 8;     // tokens of an answer
constexpr int kChoices = 16;   // of a job
constexpr double kLeast = 10;  // counts of a category; rarer tokens share one
constexpr double kRefused = 0.001;

using Counts = std::vector<std::map<TokenId, int>>;  // by position

// P(chi-square with so many degrees of freedom ≥ x), by Wilson and Hilferty's transform to a normal variable.
double chi_square_tail(double x, int degrees) {
  const double k = degrees, z = (std::cbrt(x / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k));
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

// p of two samples from the same distribution.
double p_value(const std::map<TokenId, int>& a, const std::map<TokenId, int>& b) {
  double in_a = 0, in_b = 0, rare_a = 0, rare_b = 0;
  std::map<TokenId, std::pair<double, double>> both;
  for (const auto& [token, n] : a) both[token].first = n, in_a += n;
  for (const auto& [token, n] : b) both[token].second = n, in_b += n;
  double x = 0;
  int categories = 0;
  const auto add = [&](double na, double nb) {
    const double all = na + nb, want_a = all * in_a / (in_a + in_b), want_b = all - want_a;
    x += (na - want_a) * (na - want_a) / want_a + (nb - want_b) * (nb - want_b) / want_b;
    ++categories;
  };
  for (const auto& [token, n] : both) {
    if (n.first + n.second >= 2 * kLeast) {
      add(n.first, n.second);
    } else {
      rare_a += n.first;
      rare_b += n.second;
    }
  }
  if (rare_a + rare_b >= 2 * kLeast) add(rare_a, rare_b);
  return categories < 2 ? 1 : chi_square_tail(x, categories - 1);
}

struct Side {
  Counts counts;
  int64_t accepted = 0, rejected = 0;
};

Side draw(const std::vector<TokenId>& prompt, float temperature, int drafts, int jobs, uint64_t seed) {
  Setting setting{.subject = "canary", .threads = 2, .blocks = 400, .slots = 16, .rows = 16, .snapshot_every = 0};
  setting.isa = kernels::isa_name(kernels::select().isa);
  setting.snapshots = 4;  // the prompt is computed once
  setting.drafts = drafts;
  setting.draft_slots = 16 * drafts;
  std::mt19937_64 seeds(seed);
  std::vector<Job> all(static_cast<size_t>(jobs), Job{.prompt = prompt, .max_tokens = kLength, .choices = kChoices});
  for (Job& job : all) {
    job.sampling.temperature = temperature;
    job.sampling.seed = seeds();
  }
  Side side{.counts = Counts(kLength)};
  for (const auto& answers : play(setting, all)) {
    for (const Answer& answer : answers) {
      for (size_t i = 0; i < answer.tokens.size(); ++i) ++side.counts[i][answer.tokens[i]];
      side.accepted += answer.drafts_accepted;
      side.rejected += answer.drafts_rejected;
    }
  }
  return side;
}

int run(int64_t tokens) {
  log::set_level(log::Level::off);
  const auto& texts = subject("canary").texts;
  // Two that it knows how to answer, two that break off in the middle; it is sure of itself, so the temperatures are
  // high.
  std::vector<std::vector<TokenId>> prompts(texts.begin(), texts.begin() + 4);
  for (size_t p = 2; p < 4; ++p) prompts[p].resize(prompts[p].size() / 2);
  const std::vector<float> temperatures{1.0f, 2.0f, 3.0f};
  const auto combinations = static_cast<int64_t>(prompts.size() * temperatures.size());
  const int jobs = static_cast<int>(std::max<int64_t>(1, tokens / (combinations * kLength * kChoices)));
  int64_t drawn = 0, accepted = 0, rejected = 0;
  double lowest = 1;
  int tests = 0, spread = 0;
  for (size_t p = 0; p < prompts.size(); ++p) {
    for (const float temperature : temperatures) {
      const uint64_t seed = 1000 * (p + 1) + static_cast<uint64_t>(temperature * 10);
      const Side without = draw(prompts[p], temperature, 0, jobs, seed);
      const Side with = draw(prompts[p], temperature, 3, jobs, seed + 500);
      for (size_t i = 0; i < kLength; ++i, ++tests) {
        const double one = p_value(with.counts[i], without.counts[i]);
        lowest = std::min(lowest, one);
        spread += with.counts[i].size() > 3 ? 1 : 0;
        if (one <= kRefused) fmt::print("prompt {}, temperature {}, position {}: p = {:.2g}\n", p, temperature, i, one);
      }
      drawn += int64_t{jobs} * kChoices * kLength;
      accepted += with.accepted;
      rejected += with.rejected;
    }
  }
  fmt::print(
      "{} tokens a side, {} guesses accepted and {} rejected; lowest p of {} positions ({} with more "
      "than three tokens): {:.3g}\n",
      drawn, accepted, rejected, tests, spread, lowest);
  return lowest > kRefused && spread > tests / 3 && accepted > 0 && rejected > 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti::exactness

int main(int argc, char** argv) {
  try {
    return tutti::exactness::run(argc > 1 ? std::stoll(argv[1]) : 200'000);
  } catch (const std::exception& e) {
    fmt::print(stderr, "distribution: {}\n", e.what());
    return 2;
  }
}
