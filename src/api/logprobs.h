// Log-probabilities as the two endpoints write them. Values are printed so that they read back as the same float.
#pragma once

#include <string>
#include <vector>

#include "api/lane.h"
#include "text/tokenizer.h"

namespace tutti::api {

struct LogprobStyle {
  const text::Tokenizer* tokenizer = nullptr;
  bool ids_as_tokens = false;  // token strings are "token_id:N"
};

// Chat: [{"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]}, …]
void append_chat_logprobs(std::string& out, const std::vector<TokenEntry>& entries, const LogprobStyle& style);

// Completions: {"tokens":[…],"token_logprobs":[…],"top_logprobs":[…],"text_offset":[…]}
struct CompletionLogprobs {
  std::string tokens, token_logprobs, top_logprobs, text_offset;  // the lists without their brackets
  void add(const TokenEntry& entry, int64_t offset, const LogprobStyle& style);
  void add_first(TokenId token, const LogprobStyle& style);  // the first prompt token, which nothing predicts
  void append_to(std::string& out) const;
};

// [null, {"<id>":{"logprob":…,"rank":…,"decoded_token":…}, …}, …]; values cover the prompt from its second token on.
// top: entries per position, the token's own aside.
void append_prompt_logprobs(std::string& out, const std::vector<sample::Logprobs>& values, int top,
                            const LogprobStyle& style);

}  // namespace tutti::api
