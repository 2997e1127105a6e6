#include "engine/metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "cache/specs.h"

namespace tutti::engine {

namespace {

// The bounds that vLLM uses, so that its dashboards fit.
const std::vector<double> kFirstTokenBounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                               1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const std::vector<double> kTokenBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                                          0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
const std::vector<double> kRequestBounds = {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5, 5,    10,
                                            15,   20,   30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
const std::vector<double> kStepTokenBounds = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

std::vector<double> token_count_bounds() {  // 1, 2, 5, 10, … 500000
  std::vector<double> bounds;
  for (double power = 1; power <= 100000; power *= 10)
    for (const double digit : {1, 2, 5}) bounds.push_back(digit * power);
  return bounds;
}

std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

// Writes families: # HELP and # TYPE once, then the samples.
class Page {
 public:
  explicit Page(const std::string& model_name) : model_(fmt::format("model_name=\"{}\"", escaped(model_name))) {}

  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <class T>
  void sample(T value, const std::string& labels = {}) {
    out_ += fmt::format("{}{{{}{}{}}} {}\n", name_, model_, labels.empty() ? "" : ",", labels, value);
  }
  template <class T>
  void single(const char* name, const char* type, const char* help, T value) {
    family(name, type, help);
    sample(value);
  }
  void histogram(const char* name, const char* help, const Histogram& histogram) {
    family(name, "histogram", help);
    histogram.write(out_, name, model_);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string model_, out_;
  const char* name_ = "";
};

void disk_families(Page& page, const cache::DiskCounts& disk) {
  page.single("tutti:prefix_cache_disk_entries", "gauge", "Entries in the disk tier's folder.", disk.entries.load());
  page.single("tutti:prefix_cache_disk_bytes", "gauge", "Their bytes.", disk.bytes.load());
  page.single("tutti:prefix_cache_disk_written_total", "counter", "Entries written.", disk.written.load());
  page.single("tutti:prefix_cache_disk_read_total", "counter", "Entries read back.", disk.read.load());
  page.single("tutti:prefix_cache_disk_dropped_total", "counter", "Entries not written: queue full or disk failing.",
              disk.dropped.load());
  page.single("tutti:prefix_cache_disk_bad_total", "counter", "Damaged, foreign or newer files, removed.",
              disk.bad.load());
  page.single("tutti:prefix_cache_disk_given_up_total", "counter", "Entries removed to keep the folder's size.",
              disk.given_up.load());
  page.single("tutti:prefix_cache_disk_failures_total", "counter", "Reads and writes that the system refused.",
              disk.failures.load());
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1, 0) {}

void Histogram::observe(double value) {
  const size_t bucket = static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  const std::lock_guard lock(mutex_);
  ++counts_[bucket];
  sum_ += value;
  ++total_;
}

void Histogram::write(std::string& out, const std::string& name, const std::string& labels) const {
  const std::lock_guard lock(mutex_);
  const char* comma = labels.empty() ? "" : ",";
  int64_t below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    out += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, bounds_[i], below);
  }
  out += fmt::format("{}_bucket{{{}{}le=\"+Inf\"}} {}\n", name, labels, comma, total_);
  out += fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, total_);
}

Metrics::Metrics()
    : time_to_first_token(kFirstTokenBounds),
      inter_token_latency(kTokenBounds),
      e2e_latency(kRequestBounds),
      queue_time(kRequestBounds),
      prefill_time(kRequestBounds),
      decode_time(kRequestBounds),
      iteration_tokens(kStepTokenBounds),
      request_prompt_tokens(token_count_bounds()),
      request_generation_tokens(token_count_bounds()) {}

void Metrics::count_http(const std::string& path, int code) {
  const std::lock_guard lock(mutex_);
  ++http_[{path, code}];
}

void Metrics::count_rejected(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  ++rejected_[reason];
}

void Metrics::count_ignored_field() {
  ++ignored_fields_;
}

std::string Metrics::prometheus(const std::string& model_name) const {
  Page page(model_name);
  const int64_t total = kv_blocks_total;
  page.single("vllm:num_requests_running", "gauge", "Sequences that hold caches.", running.load());
  page.single("vllm:num_requests_waiting", "gauge", "Sequences that wait to run.", waiting.load());
  page.single("vllm:kv_cache_usage_perc", "gauge", "Part of the KV blocks in use, 1 = all.",
              total > 0 ? static_cast<double>(kv_blocks_used) / static_cast<double>(total) : 0.0);
  page.single("vllm:prompt_tokens_total", "counter", "Prompt tokens computed.", prompt_tokens.load());
  page.single("vllm:generation_tokens_total", "counter", "Tokens generated.", generation_tokens.load());
  page.single("vllm:num_preemptions_total", "counter", "Sequences that lost their caches to others.",
              preemptions.load());
  page.single("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for in the prefix cache.",
              prefix_cache_queries.load());
  page.single("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found there.", prefix_cache_hits.load());
  page.single("vllm:spec_decode_num_drafts_total", "counter", "Rows with guesses that were verified.",
              spec_drafts.load());
  page.single("vllm:spec_decode_num_draft_tokens_total", "counter", "Guesses that were verified.",
              spec_draft_tokens.load());
  page.single("vllm:spec_decode_num_accepted_tokens_total", "counter", "Guesses that were right.",
              spec_accepted_tokens.load());
  page.family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", "Guesses that were right, by place.");
  for (size_t i = 0; i < spec_accepted_at.size(); ++i)
    page.sample(spec_accepted_at[i].load(), fmt::format("position=\"{}\"", i));
  page.family("vllm:request_success_total", "counter", "Sequences that ended, by reason.");
  page.sample(finished_stop.load(), "finished_reason=\"stop\"");
  page.sample(finished_length.load(), "finished_reason=\"length\"");
  page.sample(finished_abort.load(), "finished_reason=\"abort\"");
  page.sample(finished_error.load(), "finished_reason=\"error\"");
  page.histogram("vllm:request_prompt_tokens", "Prompt tokens of a sequence.", request_prompt_tokens);
  page.histogram("vllm:request_generation_tokens", "Tokens generated for a sequence.", request_generation_tokens);
  page.histogram("vllm:time_to_first_token_seconds", "From submission to the first token.", time_to_first_token);
  page.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a sequence.", inter_token_latency);
  page.histogram("vllm:e2e_request_latency_seconds", "From submission to the end.", e2e_latency);
  page.histogram("vllm:request_queue_time_seconds", "From submission to the first prompt chunk.", queue_time);
  page.histogram("vllm:request_prefill_time_seconds", "From the first prompt chunk to the first token.", prefill_time);
  page.histogram("vllm:request_decode_time_seconds", "From the first token to the last.", decode_time);
  page.histogram("vllm:iteration_tokens_total", "Tokens of a step.", iteration_tokens);
  page.family("tutti:memory_bytes", "gauge", "Memory by what it holds.");
  page.sample(memory_weights.load(), "kind=\"weights\"");
  page.sample(memory_caches.load(), "kind=\"caches\"");
  page.single("tutti:prefix_cache_tokens", "gauge", "Tokens in whole blocks that the prefix cache can give back.",
              cached_tokens.load());
  page.family("tutti:cache_entries", "gauge", "Entries of the prefix cache.");
  page.sample(cached_tokens.load() / cache::kBlockTokens, "kind=\"block\"");
  page.sample(snapshots.load(), "kind=\"snapshot\"");
  page.single("tutti:prefix_cache_snapshot_bytes", "gauge", "Bytes of the snapshots of recurrent states.",
              snapshots.load() * snapshot_bytes.load());
  if (const cache::DiskCounts* tier = disk) disk_families(page, *tier);
  page.single("tutti:engine_steps_total", "counter", "Steps of the engine.", engine_steps.load());
  page.single("tutti:ignored_fields_total", "counter", "Request fields accepted without effect.",
              ignored_fields_.load());
  const std::lock_guard lock(mutex_);
  page.family("tutti:http_requests_total", "counter", "HTTP requests answered.");
  for (const auto& [key, count] : http_)
    page.sample(count, fmt::format("path=\"{}\",code=\"{}\"", escaped(key.first), key.second));
  page.family("tutti:rejected_total", "counter", "Requests refused before they ran.");
  for (const auto& [reason, count] : rejected_) page.sample(count, fmt::format("reason=\"{}\"", escaped(reason)));
  return page.take();
}

}  // namespace tutti::engine
