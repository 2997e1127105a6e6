// A schedule: requests, when they come and go, and the engine that they meet. A value that can be written and read.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/ids.h"
#include "sample/params.h"

namespace tutti::exactness {

struct Job {
  std::vector<TokenId> prompt;
  int max_tokens = 1;
  int choices = 1;
  sample::SamplingParams sampling;
  std::vector<TokenId> stop_ids;  // sorted
  int max_drafts = 8;
  bool use_prefix_cache = true;
  std::string cache_salt;
  std::vector<int> boundaries;
  int64_t priority = 0;
  bool brackets = false;  // the answer must be balanced brackets (sample/brackets.h)
  int life = 0;           // of the engine: which one it is sent to
  int arrives = 0;        // at this step of that engine
  int aborts = -1;        // at this step; -1: never
  int stops = -1;         // at this step its first choice is told that it has all that its reader wants; -1: never
};

struct Setting {
  std::string subject;  // the model
  std::string isa;
  int threads = 1;
  int blocks = 64, slots = 4, snapshots = 0, draft_slots = 0, rows = 4, cap = 2048, max_model_len = 1024;
  bool prefix_caching = true;
  int snapshot_every = 128;
  int drafts = 0;
  bool adapt_drafts = false;
  int fails_at = -1;  // this step of each engine throws, once; -1: none
  bool disk = false;  // the lives share a folder
  int64_t disk_bytes = 1 << 28;
  int lives = 1;  // engines, one after the other
};

struct Schedule {
  uint64_t seed = 0;  // that it was made from
  Setting setting;
  std::vector<Job> jobs;
};

std::string written(const Schedule& schedule);    // JSON
Schedule read_schedule(const std::string& json);  // throws nlohmann::json::exception
// What decides a request's answer: its own fields and the model; not when it comes, nor what it meets.
std::string question(const Job& job, const Setting& setting);

}  // namespace tutti::exactness
