// Counters and histograms in Prometheus text, with vLLM's names where they exist. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cache/disk_tier.h"

namespace tutti::engine {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void observe(double value);
  void write(std::string& out, const std::string& name, const std::string& labels) const;

 private:
  const std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<int64_t> counts_;  // guarded by mutex_
  double sum_ = 0;               // guarded by mutex_
  int64_t total_ = 0;            // guarded by mutex_
};

struct Metrics {
  Metrics();
  std::atomic<int64_t> running{0}, waiting{0};
  std::atomic<int64_t> kv_blocks_used{0}, kv_blocks_total{0};
  std::atomic<int64_t> prompt_tokens{0}, generation_tokens{0}, preemptions{0}, engine_steps{0};
  std::atomic<int64_t> prefix_cache_queries{0}, prefix_cache_hits{0};  // prompt tokens: looked for, found
  std::atomic<int64_t> cached_tokens{0}, snapshots{0};                 // that can be found now
  std::atomic<int64_t> snapshot_bytes{0};                              // of one
  std::atomic<const cache::DiskCounts*> disk{nullptr};                 // of the disk tier; null: none
  std::atomic<int64_t> spec_drafts{0}, spec_draft_tokens{0}, spec_accepted_tokens{0};
  std::array<std::atomic<int64_t>, 8> spec_accepted_at{};  // by place of the guess in its row
  std::atomic<int64_t> finished_stop{0}, finished_length{0}, finished_abort{0}, finished_error{0};
  std::atomic<int64_t> memory_weights{0}, memory_caches{0};
  Histogram time_to_first_token, inter_token_latency, e2e_latency, queue_time, prefill_time, decode_time;
  Histogram iteration_tokens, request_prompt_tokens, request_generation_tokens;

  void count_http(const std::string& path, int code);
  void count_rejected(const std::string& reason);
  void count_ignored_field();
  std::string prometheus(const std::string& model_name) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> http_;  // guarded by mutex_
  std::map<std::string, int64_t> rejected_;              // guarded by mutex_
  std::atomic<int64_t> ignored_fields_{0};
};

}  // namespace tutti::engine
