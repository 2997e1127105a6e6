// The checkpoint's own chat template, executed; the prompt comes back as token ids in which nothing that a request
// wrote is a control token (docs/tokens.md says how). Immutable after construction, any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace tutti::text {

struct RenderError {
  std::string message;  // what the template raised, or what the interpreter says
};

struct Prompt {
  std::vector<TokenId> ids;
  std::string text;           // as rendered, for people; text that came from messages may look like control text here
  bool in_reasoning = false;  // the tail is an open <think>
};

struct TemplateOptions {
  bool special_tokens_in_text = false;  // upstream behaviour: literals in message text become control tokens
};

class ChatTemplate {
 public:
  // Throws LoadError naming the construct when the template can't be compiled.
  ChatTemplate(std::string source, std::shared_ptr<const Tokenizer> tokenizer, TemplateOptions options);
  ~ChatTemplate();

  // context_json: the variables of the template as one JSON object: messages, tools, add_generation_prompt,
  // enable_thinking, … Messages are in the template's own shape (content a string or a list of items; tool call
  // arguments an object).
  Result<Prompt, RenderError> render(const std::string& context_json) const;
  // The template up to the end of the last message's content, for continue_final_message.
  Result<Prompt, RenderError> render_open(const std::string& context_json) const;

  bool accepts_late_system() const;                   // probed once with [user, system, user]
  const std::vector<std::string>& variables() const;  // free variables that the template reads
  bool reads(std::string_view variable) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::text
