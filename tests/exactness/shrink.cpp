#include "exactness/shrink.h"

#include <algorithm>
#include <vector>

namespace tutti::exactness {

namespace {

using Change = std::function<void(Schedule&)>;

// What may be taken away from the engine.
std::vector<Change> engine_changes() {
  return {
      [](Schedule& s) { s.setting.fails_at = -1; },
      [](Schedule& s) { s.setting.disk = false; },
      [](Schedule& s) {
        s.setting.lives = 1;
        for (Job& job : s.jobs) job.life = 0;
      },
      [](Schedule& s) { s.setting.drafts = s.setting.draft_slots = 0; },
      [](Schedule& s) { s.setting.drafts = std::min(s.setting.drafts, 1); },
      [](Schedule& s) { s.setting.adapt_drafts = false; },
      [](Schedule& s) {
        s.setting.prefix_caching = s.setting.disk = false;
        s.setting.snapshots = 0;
      },
      [](Schedule& s) { s.setting.snapshots = std::min(s.setting.snapshots, 1); },
      [](Schedule& s) { s.setting.threads = 1; },
      [](Schedule& s) { s.setting.blocks = std::max(s.setting.blocks, 1000); },
      [](Schedule& s) { s.setting.rows = s.setting.slots = 1; },
      [](Schedule& s) { s.setting.rows = s.setting.slots = std::max(s.setting.rows, 16); },
      [](Schedule& s) { s.setting.cap = 2048; },
      [](Schedule& s) { s.setting.disk_bytes = 1 << 28; },
  };
}

// What may be taken away from job j.
std::vector<Change> job_changes(size_t j) {
  return {
      [j](Schedule& s) { s.jobs[j].choices = 1; },
      [j](Schedule& s) { s.jobs[j].aborts = s.jobs[j].stops = -1; },
      [j](Schedule& s) { s.jobs[j].arrives = 0; },
      [j](Schedule& s) { s.jobs[j].boundaries.clear(); },
      [j](Schedule& s) { s.jobs[j].priority = 0; },
      [j](Schedule& s) { s.jobs[j].cache_salt.clear(); },
      [j](Schedule& s) { s.jobs[j].use_prefix_cache = false; },
      [j](Schedule& s) { s.jobs[j].max_drafts = 0; },
      [j](Schedule& s) { s.jobs[j].stop_ids.clear(); },
      [j](Schedule& s) { s.jobs[j].sampling = {.temperature = 0}; },
      [j](Schedule& s) { s.jobs[j].brackets = false; },
      [j](Schedule& s) { s.jobs[j].sampling.logprobs = false; },
      [j](Schedule& s) { s.jobs[j].sampling.prompt_logprobs = -1; },
      [j](Schedule& s) { s.jobs[j].sampling.bad_words.clear(); },
      [j](Schedule& s) { s.jobs[j].sampling.allowed.clear(); },
      [j](Schedule& s) { s.jobs[j].sampling.logit_bias.clear(); },
      [j](Schedule& s) { s.jobs[j].max_tokens = 1; },
      [j](Schedule& s) { s.jobs[j].max_tokens = (s.jobs[j].max_tokens + 1) / 2; },
      [j](Schedule& s) { s.jobs[j].max_tokens = std::max(1, s.jobs[j].max_tokens - 1); },
      [j](Schedule& s) { s.jobs[j].prompt.resize((s.jobs[j].prompt.size() + 1) / 2); },
      [j](Schedule& s) { s.jobs[j].prompt.resize(std::max<size_t>(1, s.jobs[j].prompt.size() - 8)); },
      [j](Schedule& s) { s.jobs[j].prompt.resize(std::max<size_t>(1, s.jobs[j].prompt.size() - 1)); },
  };
}

void tidy(Schedule& s) {
  for (Job& job : s.jobs)
    std::erase_if(job.boundaries, [&](int at) { return at >= static_cast<int>(job.prompt.size()); });
}

}  // namespace

Schedule shrunk(Schedule schedule, const std::function<bool(const Schedule&)>& fails, int tries) {
  const auto attempt = [&](const Change& change) {
    Schedule smaller = schedule;
    change(smaller);
    tidy(smaller);
    if (tries <= 0 || written(smaller) == written(schedule)) return false;
    --tries;
    if (!fails(smaller)) return false;
    schedule = std::move(smaller);
    return true;
  };
  for (bool again = true; again && tries > 0;) {
    again = false;
    for (size_t j = schedule.jobs.size(); j-- > 0 && schedule.jobs.size() > 1;)
      again |= attempt([j](Schedule& s) { s.jobs.erase(s.jobs.begin() + static_cast<std::ptrdiff_t>(j)); });
    for (const Change& change : engine_changes()) again |= attempt(change);
    for (size_t j = 0; j < schedule.jobs.size(); ++j)
      for (const Change& change : job_changes(j)) again |= attempt(change);
  }
  return schedule;
}

}  // namespace tutti::exactness
