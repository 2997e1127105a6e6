// How an answer is written: the chunks of a stream and the whole object, for Chat and for Completions. The JSON is
// written by hand behind prefixes made once per choice, because a chunk is made per token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/answer.h"
#include "api/logprobs.h"

namespace tutti::api {

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, reasoning_tokens = 0, cached_tokens = 0;
  int64_t drafts_accepted = 0, drafts_rejected = 0;
};

// {"prompt_tokens":…, …}
void append_usage(std::string& out, const Usage& usage);

// One prompt of a request and what came back about it.
struct PromptRecord {
  std::vector<TokenId> ids;
  std::string text;
  std::vector<sample::Logprobs> logprobs;  // from the second token on
  int cached_tokens = 0;
};

struct FormatOptions {
  std::string id, model, fingerprint, service_tier;  // service_tier empty: not asked for
  int64_t created = 0;
  bool include_usage = false, continuous_usage = false;
  bool logprobs = false;
  int top_logprobs = 0;      // Completions: of the echoed prompt
  int prompt_logprobs = -1;  // top entries per prompt token; -1: not asked for
  bool return_token_ids = false, return_prompt_text = false;
  bool include_reasoning = true, echo = false;
  std::string reasoning_field = "reasoning_content";
  LogprobStyle style;
};

// A choice as the formats see it: what is not yet written (streams) or all of it (whole answers).
struct ChoiceView {
  int index = 0;
  const PromptRecord& prompt;
  const Delta& delta;
  const Ending* ending = nullptr;  // null while it goes on
};

class Format {
 public:
  virtual ~Format() = default;

  // Streams: each call appends whole events.
  virtual bool opens_early() const = 0;  // the opening is written when the prompt starts, else with the first token
  virtual void opening(const ChoiceView& choice, const Usage& running, std::string& out) = 0;
  virtual void delta(const ChoiceView& choice, const Usage& running, std::string& out) = 0;
  virtual void ending(const ChoiceView& choice, const Usage& running, std::string& out) = 0;
  virtual void usage(const Usage& total, std::string& out) = 0;

  // The body of an answer in one piece.
  virtual std::string whole(const std::vector<ChoiceView>& choices, const Usage& usage) = 0;
};

std::unique_ptr<Format> make_chat_format(FormatOptions options, int choices);
std::unique_ptr<Format> make_completion_format(FormatOptions options, int choices);

// Pieces that both formats use.
namespace pieces {
// {"id":…,"object":…,"created":…,"model":…,"system_fingerprint":…, and no closing brace
std::string head(const FormatOptions& options, std::string_view object);
void append_ids(std::string& out, const std::vector<TokenId>& ids);
// "finish_reason":…,"stop_reason":…
void append_ending(std::string& out, const Ending& ending);
// The end of a chunk after its choice: usage where asked for, and the event's blank line.
void append_chunk_end(std::string& out, const FormatOptions& options, const Usage& running);
}  // namespace pieces

}  // namespace tutti::api
