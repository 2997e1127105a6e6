// The fields that Chat and Completions share: sampling, length, stops, streaming, priority.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/fields.h"
#include "api/service.h"
#include "sample/params.h"

namespace tutti::api {

// Ends a row whose tail is one pattern, repeated.
struct RepetitionDetection {
  int64_t min_pattern_size = 1, max_pattern_size = 0, min_count = 0;  // max_pattern_size 0: off
  bool on() const { return max_pattern_size > 0; }
};

struct GenerationFields {
  std::string model;
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> top_k, seed, max_tokens, max_completion_tokens, best_of;
  int64_t n = 1, min_tokens = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<std::string> stop, bad_words;
  std::vector<TokenId> stop_token_ids, allowed_token_ids, logprob_token_ids;
  bool include_stop_str_in_output = false, ignore_eos = false, skip_special_tokens = true;
  std::optional<int64_t> prompt_logprobs;
  RepetitionDetection repetition;

  bool stream = false, has_stream_options = false, include_usage = false, continuous_usage_stats = false;
  int64_t stream_interval = 1;
  int64_t priority = 0;
  std::optional<double> timeout;  // seconds from arrival
  std::string cache_salt, request_id;
  bool use_prefix_cache = true;
  int64_t num_speculative_tokens = -1;  // -1: as the server has it
  bool return_token_ids = false, return_tokens_as_token_ids = false, return_prompt_text = false;
};

std::vector<Field<GenerationFields>> sampling_rows(const Limits& limits);

// Rules that join two fields. logprobs: whether the endpoint's own field asked for them.
MaybeError check_generation(const GenerationFields& fields, bool logprobs);

// The values that stand in for absent ones: --override-generation-config over generation_config.json.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> top_k;
};

// Throws OptionError when one of them can't be used.
SamplingDefaults sampling_defaults(const ApiOptions& options);

struct ResolveInput {
  const GenerationFields& fields;
  const SamplingDefaults& defaults;
  const Service& service;
  int max_tokens = 0;  // already cut to the room left
};

// Everything but the log-probabilities, which each endpoint asks for in its own way.
sample::SamplingParams resolve_sampling(const ResolveInput& input);
// End tokens (unless ignore_eos) and stop_token_ids.
std::vector<TokenId> stop_ids(const GenerationFields& fields, const Service& service);

}  // namespace tutti::api
