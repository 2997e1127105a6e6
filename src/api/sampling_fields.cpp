#include "api/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "api/call.h"
#include "base/error.h"

namespace tutti::api {
namespace {

using G = GenerationFields;
constexpr size_t kMaxStops = 32, kMaxStopBytes = 1024, kMaxBadWords = 1024;
constexpr int64_t kMaxPattern = 4096;

MaybeError read_stop(const Json& value, const ReadContext& context, G& target) {
  const auto one = [&](const Json& item, const ReadContext& at) -> MaybeError {
    std::string text;
    if (auto error = read_string(item, at, text)) return error;
    if (text.empty()) return at.bad_value("must not be empty");
    if (text.size() > kMaxStopBytes) return at.bad_value(fmt::format("must have at most {} bytes", kMaxStopBytes));
    target.stop.push_back(std::move(text));
    return std::nullopt;
  };
  if (value.is_string()) return one(value, context);
  if (!value.is_array()) return context.bad_type("a string or a list of strings", value);
  if (value.size() > kMaxStops) return context.bad_value(fmt::format("must hold at most {} strings", kMaxStops));
  for (size_t i = 0; i < value.size(); ++i) {
    if (auto error = one(value[i], context.item(i))) return error;
  }
  return std::nullopt;
}

MaybeError read_bad_words(const Json& value, const ReadContext& context, G& target) {
  if (!value.is_array()) return context.bad_type("a list of strings", value);
  if (value.size() > kMaxBadWords) return context.bad_value(fmt::format("must hold at most {} words", kMaxBadWords));
  for (size_t i = 0; i < value.size(); ++i) {
    std::string word;
    if (auto error = read_string(value[i], context.item(i), word)) return error;
    if (word.empty()) return context.item(i).bad_value("must not be empty");
    target.bad_words.push_back(std::move(word));
  }
  return std::nullopt;
}

MaybeError read_logit_bias(const Json& value, const ReadContext& context, G& target) {
  if (!value.is_object()) return context.bad_type("an object of token ids", value);
  for (const auto& [key, bias] : value.items()) {
    const ReadContext at = context.member(key);
    TokenId id = -1;
    const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (fault != std::errc{} || end != key.data() + key.size() || id < 0 || id >= context.limits->vocab) {
      return invalid_value(at.path,
                           fmt::format("'{}': a key must be a token id below {}.", at.path, context.limits->vocab));
    }
    double read = 0;
    if (auto error = read_number(bias, at, {-100, 100}, read)) return error;
    target.logit_bias.emplace_back(id, static_cast<float>(read));
  }
  // "5" and "05" name one token: the last one holds.
  std::stable_sort(target.logit_bias.begin(), target.logit_bias.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return std::nullopt;
}

MaybeError read_allowed(const Json& value, const ReadContext& context, G& target) {
  if (auto error = read_token_ids(value, context, target.allowed_token_ids)) return error;
  return target.allowed_token_ids.empty() ? MaybeError{context.bad_value("must not be empty")} : std::nullopt;
}

MaybeError read_repetition(const Json& value, const ReadContext& context, G& target) {
  static const FieldTable<RepetitionDetection> table({
      integer("max_pattern_size", &RepetitionDetection::max_pattern_size, {1, kMaxPattern}),
      integer("min_pattern_size", &RepetitionDetection::min_pattern_size, {1, kMaxPattern}),
      integer("min_count", &RepetitionDetection::min_count, {2, 1 << 20}),
  });
  RepetitionDetection read;
  if (auto error = table.read(value, context, read)) return error;
  if (read.max_pattern_size == 0) return missing_parameter(context.member("max_pattern_size").path);
  if (read.min_count == 0) return missing_parameter(context.member("min_count").path);
  if (read.min_pattern_size > read.max_pattern_size) {
    return context.member("min_pattern_size").bad_value("must not exceed max_pattern_size");
  }
  target.repetition = read;
  return std::nullopt;
}

MaybeError read_stream_options(const Json& value, const ReadContext& context, G& target) {
  static const FieldTable<G> table({
      boolean("include_usage", &G::include_usage),
      boolean("continuous_usage_stats", &G::continuous_usage_stats),
      ignored<G>("include_obfuscation", Kind::boolean),
  });
  target.has_stream_options = true;
  return table.read(value, context, target);
}

MaybeError read_request_id(const Json& value, const ReadContext& context, G& target) {
  if (auto error = read_string(value, context, target.request_id)) return error;
  return valid_request_id(target.request_id)
             ? std::nullopt
             : MaybeError{context.bad_value("must be 1 to 128 characters of [A-Za-z0-9._:-]")};
}

MaybeError read_salt(const Json& value, const ReadContext& context, G& target) {
  if (auto error = read_string(value, context, target.cache_salt)) return error;
  const auto characters = std::count_if(target.cache_salt.begin(), target.cache_salt.end(),
                                        [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
  if (characters < 1 || characters > 1024) return context.bad_value("must have 1 to 1024 characters");
  return std::nullopt;
}

// -1 asks for nothing; anything else needs the forced close of reasoning.
MaybeError read_thinking_budget(const Json& value, const ReadContext& context, G&) {
  int64_t budget = -1;
  if (auto error = read_int(value, context, {-1}, budget)) return error;
  if (budget == -1) return std::nullopt;
  return unsupported_parameter(context.path, fmt::format("'{}' is not offered; -1 means no budget.", context.path));
}

std::vector<Field<G>> distribution_rows(const Limits& limits) {
  return {
      number("temperature", &G::temperature, {0, 2}),
      number("top_p", &G::top_p, {0, 1}),
      integer("top_k", &G::top_k, {-1}),
      number("min_p", &G::min_p, {0, 1}),
      number("presence_penalty", &G::presence_penalty, {-2, 2}),
      number("frequency_penalty", &G::frequency_penalty, {-2, 2}),
      number("repetition_penalty", &G::repetition_penalty, {0, 10, true}),
      {"logit_bias", Use::honoured, read_logit_bias},
      integer("seed", &G::seed),
      integer("n", &G::n, {1, limits.max_n}),
      integer("best_of", &G::best_of, {1}),
      {"bad_words", Use::honoured, read_bad_words},
      {"allowed_token_ids", Use::honoured, read_allowed},
      integer("prompt_logprobs", &G::prompt_logprobs, {0, limits.max_logprobs}),
      token_ids("logprob_token_ids", &G::logprob_token_ids),
  };
}

std::vector<Field<G>> ending_rows() {
  return {
      integer("max_completion_tokens", &G::max_completion_tokens, {1}),
      integer("min_tokens", &G::min_tokens, {0}),
      {"stop", Use::honoured, read_stop},
      token_ids("stop_token_ids", &G::stop_token_ids),
      boolean("include_stop_str_in_output", &G::include_stop_str_in_output),
      boolean("ignore_eos", &G::ignore_eos),
      boolean("skip_special_tokens", &G::skip_special_tokens),
      ignored<G>("spaces_between_special_tokens", Kind::boolean),
      {"repetition_detection", Use::honoured, read_repetition},
      {"thinking_token_budget", Use::refused, read_thinking_budget},
      refused<G>("min_response_tokens", {.off = 0}),
  };
}

std::vector<Field<G>> delivery_rows() {
  return {
      text("model", &G::model),
      boolean("stream", &G::stream),
      {"stream_options", Use::honoured, read_stream_options},
      integer("stream_interval", &G::stream_interval, {1}),
      integer("priority", &G::priority),
      number("timeout", &G::timeout, {0, 1e9, true}),
      {"cache_salt", Use::honoured, read_salt},
      {"request_id", Use::honoured, read_request_id},
      boolean("use_prefix_cache", &G::use_prefix_cache),
      integer("num_speculative_tokens", &G::num_speculative_tokens, {0, 8}),
      boolean("return_token_ids", &G::return_token_ids),
      boolean("return_tokens_as_token_ids", &G::return_tokens_as_token_ids),
      boolean("return_prompt_text", &G::return_prompt_text),
      ignored<G>("user", Kind::string),
      ignored<G>("add_special_tokens", Kind::boolean),
      ignored<G>("session_id", Kind::string),
  };
}

// Samplers of other servers. A companion of a switch carries no meaning while the switch is off.
std::vector<Field<G>> foreign_rows() {
  constexpr Refusal kZero{.off = 0}, kOne{.off = 1};
  return {
      refused<G>("use_beam_search"),
      refused<G>("length_penalty", kOne),
      refused<G>("logits_processors"),
      refused<G>("watermarking"),
      refused<G>("top_a", kZero),
      refused<G>("typical_p", kOne),
      refused<G>("typical", kOne),
      refused<G>("tfs", kOne),
      refused<G>("tfs_z", kOne),
      refused<G>("top_n_sigma", {.off = -1}),
      refused<G>("xtc_probability", kZero),
      ignored<G>("xtc_threshold", Kind::number),
      refused<G>("dry_multiplier", kZero),
      ignored<G>("dry_base", Kind::number),
      ignored<G>("dry_allowed_length", Kind::integer),
      ignored<G>("dry_penalty_last_n", Kind::integer),
      ignored<G>("dry_sequence_breakers", Kind::list),
      refused<G>("mirostat", kZero),
      refused<G>("mirostat_mode", kZero),
      ignored<G>("mirostat_tau", Kind::number),
      ignored<G>("mirostat_eta", Kind::number),
      refused<G>("dynatemp_range", kZero),
      ignored<G>("dynatemp_exponent", Kind::number),
  };
}

MaybeError read_response_format(const Json& value, const ReadContext& context, G&) {
  if (!value.is_object()) return context.bad_type("an object", value);
  const auto type = value.find("type");
  const ReadContext at = context.member("type");
  if (type == value.end()) return missing_parameter(at.path);
  if (!type->is_string()) return at.bad_type("a string", *type);
  const auto& name = type->get_ref<const std::string&>();
  if (name == "json_object" || name == "json_schema" || name == "structural_tag") {
    return unsupported_value(context.path, fmt::format("'{}': only the type \"text\" is offered.", context.path));
  }
  if (name != "text") return at.bad_value("must be \"text\"");
  for (const auto& [key, member] : value.items()) {
    if (key != "type") return unknown_parameter(context.member(key).path);
  }
  return std::nullopt;
}

std::vector<Field<G>> structure_rows() {
  return {
      {"response_format", Use::honoured, read_response_format},
      refused<G>("structured_outputs"),
      refused<G>("guided_json"),
      refused<G>("guided_regex"),
      refused<G>("guided_choice"),
      refused<G>("guided_grammar"),
      refused<G>("guided_whitespace_pattern"),
      ignored<G>("guided_decoding_backend", Kind::string),
  };
}

// One source of defaults; in `strict` every key must be one that a default can have.
SamplingDefaults read_defaults(const std::string& source, const std::string& json, bool strict) {
  using D = SamplingDefaults;
  static const FieldTable<D> table({
      number("temperature", &D::temperature, {0, 2}),
      number("top_p", &D::top_p, {0, 1}),
      integer("top_k", &D::top_k, {-1}),
      number("min_p", &D::min_p, {0, 1}),
      number("presence_penalty", &D::presence_penalty, {-2, 2}),
      number("frequency_penalty", &D::frequency_penalty, {-2, 2}),
      number("repetition_penalty", &D::repetition_penalty, {0, 10, true}),
  });
  auto parsed = parse_json(json);
  if (!parsed.ok()) throw OptionError(fmt::format("{}: {}", source, parsed.error().message));
  Limits limits{.report_unknown = !strict};
  std::vector<std::string> unknown;
  D defaults;
  if (auto error = table.read(parsed.value(), {&limits, &unknown, ""}, defaults)) {
    throw OptionError(fmt::format("{}: {}", source, error->message));
  }
  return defaults;
}

uint64_t random_seed() {
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seeds{device(), device(), device(), device()};
    return std::mt19937_64(seeds);
  }();
  return generator();
}

}  // namespace

std::vector<Field<GenerationFields>> sampling_rows(const Limits& limits) {
  std::vector<Field<G>> rows;
  for (auto part : {distribution_rows(limits), ending_rows(), delivery_rows(), foreign_rows(), structure_rows()}) {
    for (auto& row : part) rows.push_back(std::move(row));
  }
  return rows;
}

MaybeError check_generation(const GenerationFields& fields, bool logprobs) {
  if (fields.has_stream_options && !fields.stream) {
    return invalid_value("stream_options", "'stream_options' needs \"stream\": true.");
  }
  if (fields.best_of && *fields.best_of != fields.n) {
    return unsupported_value("best_of", "'best_of' is only offered equal to 'n'.");
  }
  if (fields.prompt_logprobs && fields.stream) {
    return invalid_value("prompt_logprobs", "'prompt_logprobs' can't be streamed; leave out \"stream\": true.");
  }
  if (!fields.logprob_token_ids.empty() && !logprobs) {
    return invalid_value("logprob_token_ids", "'logprob_token_ids' needs 'logprobs'.");
  }
  const auto max_tokens = fields.max_completion_tokens ? fields.max_completion_tokens : fields.max_tokens;
  if (max_tokens && fields.min_tokens > *max_tokens) {
    return invalid_value("min_tokens",
                         fmt::format("'min_tokens' is {}, more than max_tokens {}.", fields.min_tokens, *max_tokens));
  }
  return std::nullopt;
}

SamplingDefaults sampling_defaults(const ApiOptions& options) {
  const std::string& file = options.generation_config;
  SamplingDefaults defaults = file.empty() ? SamplingDefaults{} : read_defaults("generation_config.json", file, false);
  const std::string& wished = options.override_generation_config;
  if (wished.empty()) return defaults;
  const auto over = read_defaults("--override-generation-config", wished, true);
  const auto prefer = [](auto& value, const auto& other) {
    if (other) value = other;
  };
  prefer(defaults.temperature, over.temperature);
  prefer(defaults.top_p, over.top_p);
  prefer(defaults.top_k, over.top_k);
  prefer(defaults.min_p, over.min_p);
  prefer(defaults.presence_penalty, over.presence_penalty);
  prefer(defaults.frequency_penalty, over.frequency_penalty);
  prefer(defaults.repetition_penalty, over.repetition_penalty);
  return defaults;
}

sample::SamplingParams resolve_sampling(const ResolveInput& input) {
  const G& fields = input.fields;
  const SamplingDefaults& defaults = input.defaults;
  const auto chosen = [](const std::optional<double>& wish, const std::optional<double>& standard, double neutral) {
    return static_cast<float>(wish.value_or(standard.value_or(neutral)));
  };
  sample::SamplingParams params;
  params.temperature = chosen(fields.temperature, defaults.temperature, 1);
  params.top_p = chosen(fields.top_p, defaults.top_p, 1);
  params.min_p = chosen(fields.min_p, defaults.min_p, 0);
  params.presence_penalty = chosen(fields.presence_penalty, defaults.presence_penalty, 0);
  params.frequency_penalty = chosen(fields.frequency_penalty, defaults.frequency_penalty, 0);
  params.repetition_penalty = chosen(fields.repetition_penalty, defaults.repetition_penalty, 1);
  const int64_t top_k = fields.top_k.value_or(defaults.top_k.value_or(0));
  params.top_k = static_cast<int>(std::clamp<int64_t>(top_k, 0, input.service.vocab));
  for (size_t i = 0; i < fields.logit_bias.size(); ++i) {
    const bool last = i + 1 == fields.logit_bias.size() || fields.logit_bias[i + 1].first != fields.logit_bias[i].first;
    if (last) params.logit_bias.push_back(fields.logit_bias[i]);
  }
  params.seed = fields.seed ? static_cast<uint64_t>(*fields.seed) : random_seed();
  params.min_tokens = static_cast<int>(std::min<int64_t>(fields.min_tokens, input.max_tokens));
  params.allowed = fields.allowed_token_ids;
  for (const std::string& word : fields.bad_words) {
    for (const std::string& text : {word, " " + word}) {
      auto ids = input.service.tokenizer->encode(text, false);
      if (!ids.empty()) params.bad_words.push_back(std::move(ids));
    }
  }
  if (params.min_tokens > 0) {
    params.blocked_early = input.service.end_ids;
    params.blocked_early.insert(params.blocked_early.end(), fields.stop_token_ids.begin(), fields.stop_token_ids.end());
  }
  return params;
}

std::vector<TokenId> stop_ids(const GenerationFields& fields, const Service& service) {
  std::vector<TokenId> ids = fields.stop_token_ids;
  if (!fields.ignore_eos) ids.insert(ids.end(), service.end_ids.begin(), service.end_ids.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace tutti::api
