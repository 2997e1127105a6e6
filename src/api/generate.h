// The steps that Chat and Completions share on the way from a body to a session. They run on the task pool.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/call.h"
#include "api/core.h"
#include "api/session.h"

namespace tutti::api {

// Runs `work` on the task pool; whatever it throws becomes a 500.
void on_task_pool(const std::shared_ptr<Core>& core, const std::shared_ptr<Call>& call, std::function<void()> work);

// The tokens that an answer may have: the wish (absent: `standard`; -1 = all that fits) cut to the room behind the
// prompt.
struct Room {
  size_t prompt_tokens = 0;
  std::optional<int64_t> wish;
  int64_t standard = -1;
};
Result<int, ApiError> answer_tokens(const Core& core, const Room& room, const char* param);

// Ascending positions of the prompt at which a later prompt may part from it: where its messages end, and where the
// answer begins to think.
std::vector<int> boundaries(const std::vector<TokenId>& prompt, const Service& service);

// A submission and the parser's options, as far as the shared fields say.
engine::Submission make_submission(const Core& core, const GenerationFields& fields, const std::vector<TokenId>& prompt,
                                   int max_tokens);
AnswerOptions make_answer_options(const Core& core, const GenerationFields& fields);
FormatOptions make_format_options(const Core& core, const GenerationFields& fields, const std::string& model);

// A body read, checked, rendered and tokenized.
template <class Request>
struct Planned {
  Request request;
  std::string model;                 // the served name that it means
  std::vector<std::string> ignored;  // unknown fields that were passed over
  std::vector<PromptPlan> prompts;
};
Result<Planned<ChatRequest>, ApiError> plan_chat(const Core& core, const std::string& body);              // of a chat
Result<Planned<CompletionRequest>, ApiError> plan_completion(const Core& core, const std::string& body);  // of a text

struct Launch {
  std::shared_ptr<Core> core;
  std::shared_ptr<Call> call;
  const GenerationFields& fields;
  std::vector<std::string> ignored;  // unknown fields that were passed over
  std::vector<PromptPlan> prompts;
  FormatOptions format;
  std::string id_prefix;  // "chatcmpl-", "cmpl-"
  std::unique_ptr<Format> (*make_format)(FormatOptions, int choices);
};

// Claims the request id, fills in the plan and starts the session.
void launch(Launch launch);

}  // namespace tutti::api
