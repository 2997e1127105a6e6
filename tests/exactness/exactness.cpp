// Random schedules, each request of which must be answered as if it were alone, to the last bit.
//
//   exactness [--schedules N] [--seed S] [--subject NAME] [--seconds T]
//   exactness --replay FILE      a schedule as a failure printed it
//
// Exit code 0: no difference; 1: a difference, shrunk and printed; 2: wrong arguments.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "exactness/generate.h"
#include "exactness/play.h"
#include "exactness/shrink.h"
#include "exactness/subject.h"

namespace tutti::exactness {
namespace {

struct Arguments {
  int64_t schedules = 200;
  uint64_t seed = 1;
  double seconds = 1e9;
  std::string subject, replay;
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return std::nullopt;
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--schedules")
      a.schedules = std::stoll(value);
    else if (flag == "--seed")
      a.seed = std::stoull(value);
    else if (flag == "--seconds")
      a.seconds = std::stod(value);
    else if (flag == "--subject")
      a.subject = value;
    else if (flag == "--replay")
      a.replay = value;
    else
      return std::nullopt;
  }
  return a;
}

int report(Player& player, const Schedule& schedule, const std::string& what) {
  fmt::print("DIFFERENCE: {}\nof the schedule of seed {} on {}; shrinking it\n", what, schedule.seed,
             schedule.setting.subject);
  const auto fails = [&](const Schedule& s) { return player.differences(s).has_value(); };
  const Schedule smallest = shrunk(schedule, fails);
  const auto last = player.differences(smallest);
  fmt::print("{} jobs left: {}\nexactness --replay FILE, the file being:\n{}\n", smallest.jobs.size(),
             last ? *last : "it does not fail every time", written(smallest));
  return 1;
}

void print_tally(const Tally& t) {
  fmt::print(
      "{} schedules, {} answers, {} tokens: no difference. Prompt tokens from the cache {}, entries read from disk "
      "{}, preemptions {}, guesses accepted {} and rejected {}, engines with a failing step {}, answers aborted "
      "{}.\n",
      t.schedules, t.answers, t.tokens, t.cached, t.read_from_disk, t.preemptions, t.accepted, t.rejected, t.reruns,
      t.ended_early);
}

int run(const Arguments& a) {
  log::set_level(log::Level::off);
  Player player;
  if (!a.replay.empty()) {
    std::ifstream file(a.replay);
    const Schedule schedule = read_schedule({std::istreambuf_iterator<char>(file), {}});
    const auto found = player.differences(schedule);
    fmt::print("{}\n", found ? "DIFFERENCE: " + *found : "no difference");
    return found ? 1 : 0;
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < a.schedules; ++i) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > a.seconds) break;
    const Schedule schedule = make_schedule(a.seed + static_cast<uint64_t>(i), a.subject);
    if (const auto found = player.differences(schedule)) return report(player, schedule, *found);
  }
  print_tally(player.tally());
  // A run of some length that meets none of these tests nothing.
  const Tally& t = player.tally();
  const bool thorough = t.cached > 0 && t.preemptions > 0 && t.accepted > 0 && t.rejected > 0 && t.read_from_disk > 0;
  return t.schedules < 200 || thorough || !a.subject.empty() ? 0 : 1;
}

}  // namespace
}  // namespace tutti::exactness

int main(int argc, char** argv) {
  const auto arguments = tutti::exactness::parse(argc, argv);
  if (!arguments) {
    std::fputs("usage: exactness [--schedules N] [--seed S] [--subject NAME] [--seconds T] | --replay FILE\n", stderr);
    return 2;
  }
  try {
    return tutti::exactness::run(*arguments);
  } catch (const std::exception& e) {
    fmt::print(stderr, "exactness: {}\n", e.what());
    return 2;
  }
}
