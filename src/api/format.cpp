#include "api/format.h"

#include "api/json.h"

namespace tutti::api {

void append_usage(std::string& out, const Usage& usage) {
  out += R"({"prompt_tokens":)";
  append_int(out, usage.prompt_tokens);
  out += R"(,"completion_tokens":)";
  append_int(out, usage.completion_tokens);
  out += R"(,"total_tokens":)";
  append_int(out, usage.prompt_tokens + usage.completion_tokens);
  out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  append_int(out, usage.cached_tokens);
  out += R"(},"completion_tokens_details":{"reasoning_tokens":)";
  append_int(out, usage.reasoning_tokens);
  out += R"(,"accepted_prediction_tokens":)";
  append_int(out, usage.drafts_accepted);
  out += R"(,"rejected_prediction_tokens":)";
  append_int(out, usage.drafts_rejected);
  out += "}}";
}

namespace pieces {

std::string head(const FormatOptions& options, std::string_view object) {
  std::string out = R"({"id":)";
  append_string(out, options.id);
  out += R"(,"object":)";
  append_string(out, object);
  out += R"(,"created":)";
  append_int(out, options.created);
  out += R"(,"model":)";
  append_string(out, options.model);
  out += R"(,"system_fingerprint":)";
  append_string(out, options.fingerprint);
  if (!options.service_tier.empty()) out += R"(,"service_tier":"default")";
  return out;
}

void append_ids(std::string& out, const std::vector<TokenId>& ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_int(out, ids[i]);
  }
  out += ']';
}

void append_ending(std::string& out, const Ending& ending) {
  out += ending.length ? R"("finish_reason":"length","stop_reason":)" : R"("finish_reason":"stop","stop_reason":)";
  if (const auto* text = std::get_if<std::string>(&ending.reason)) {
    append_string(out, *text);
  } else if (const auto* id = std::get_if<TokenId>(&ending.reason)) {
    append_int(out, *id);
  } else {
    out += "null";
  }
}

void append_chunk_end(std::string& out, const FormatOptions& options, const Usage& running) {
  out += "}]";
  if (options.continuous_usage) {
    out += R"(,"usage":)";
    append_usage(out, running);
  } else if (options.include_usage) {
    out += R"(,"usage":null)";
  }
  out += "}\n\n";
}

}  // namespace pieces
}  // namespace tutti::api
