#include "exactness/schedule.h"

#include <nlohmann/json.hpp>

namespace tutti::sample {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SamplingParams, temperature, top_k, top_p, min_p, presence_penalty,
                                   frequency_penalty, repetition_penalty, logit_bias, seed, min_tokens, blocked_early,
                                   bad_words, allowed, logprobs, top_logprobs, logprob_ids, prompt_logprobs)
}  // namespace tutti::sample

namespace tutti::exactness {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Job, prompt, max_tokens, choices, sampling, stop_ids, max_drafts, use_prefix_cache,
                                   cache_salt, boundaries, priority, brackets, life, arrives, aborts, stops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Setting, subject, isa, threads, blocks, slots, snapshots, draft_slots, rows, cap,
                                   max_model_len, prefix_caching, snapshot_every, drafts, adapt_drafts, fails_at, disk,
                                   disk_bytes, lives)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Schedule, seed, setting, jobs)

std::string written(const Schedule& schedule) {
  return nlohmann::json(schedule).dump();
}

Schedule read_schedule(const std::string& json) {
  return nlohmann::json::parse(json).get<Schedule>();
}

std::string question(const Job& job, const Setting& setting) {
  Job bare = job;
  bare.max_drafts = 0;
  bare.use_prefix_cache = false;
  bare.cache_salt.clear();
  bare.boundaries.clear();
  bare.priority = bare.life = bare.arrives = 0;
  bare.aborts = bare.stops = -1;
  return setting.subject + " " + setting.isa + " " + nlohmann::json(bare).dump();
}

}  // namespace tutti::exactness
