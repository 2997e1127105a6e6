// The bodies of the two generating endpoints, read and checked: everything that needs neither tokenizer nor template.
#pragma once

#include <variant>

#include "api/messages.h"
#include "api/sampling_fields.h"
#include "api/thinking.h"

namespace tutti::api {

struct ChatRequest : GenerationFields {
  std::vector<Message> messages;
  bool has_messages = false;
  ThinkingWish thinking;
  bool include_reasoning = true;
  bool logprobs = false;
  int64_t top_logprobs = 0;
  std::optional<bool> add_generation_prompt;
  bool continue_final_message = false;
  std::string service_tier;
  std::string tool_choice;
};

using PromptSource = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest : GenerationFields {
  std::vector<PromptSource> prompts;
  bool echo = false;
  bool parse_special = true;
  std::optional<int64_t> logprobs;
  std::optional<int64_t> truncate_prompt_tokens;
  std::string truncation_side = "left";
};

// The tables, made once per server.
class RequestReader {
 public:
  explicit RequestReader(const Limits& limits);

  // ignored: names of unknown fields that were passed over (only with Limits::report_unknown).
  Result<ChatRequest, ApiError> chat(const Json& body, std::vector<std::string>& ignored) const;
  Result<CompletionRequest, ApiError> completion(const Json& body, std::vector<std::string>& ignored) const;

  const FieldTable<ChatRequest>& chat_table() const { return chat_; }
  const FieldTable<CompletionRequest>& completion_table() const { return completion_; }

 private:
  Limits limits_;
  FieldTable<ChatRequest> chat_;
  FieldTable<CompletionRequest> completion_;
};

}  // namespace tutti::api
