#include "api/format.h"
#include "api/json.h"

namespace tutti::api {
namespace {

class ChatFormat final : public Format {
 public:
  ChatFormat(FormatOptions options, int choices) : options_(std::move(options)) {
    const std::string head = "data: " + pieces::head(options_, "chat.completion.chunk");
    for (int i = 0; i < choices; ++i)
      heads_.push_back(head + R"(,"choices":[{"index":)" + std::to_string(i) + R"(,"delta":{)");
    no_choices_ = head + R"(,"choices":[],"usage":)";
    if (options_.reasoning_field != "reasoning") reasoning_keys_.push_back(R"("reasoning_content":)");
    if (options_.reasoning_field != "reasoning_content") reasoning_keys_.push_back(R"("reasoning":)");
  }

  bool opens_early() const override { return true; }

  void opening(const ChoiceView& choice, const Usage& running, std::string& out) override {
    const size_t start = out.size();
    out += head(choice);
    out += R"("role":"assistant","content":""},"logprobs":null,"finish_reason":null)";
    pieces::append_chunk_end(out, options_, running);
    if (std::exchange(opened_, true)) return;
    std::string extra;  // the stream's first chunk also says what the prompt was
    append_prompt(extra, choice.prompt);
    const size_t at = out.find(R"("choices":[)", start);
    out.insert(at, extra);
  }

  void delta(const ChoiceView& choice, const Usage& running, std::string& out) override {
    const Delta& delta = choice.delta;
    bool ids_written = !options_.return_token_ids;
    if (options_.include_reasoning && !delta.reasoning.empty()) {
      out += head(choice);
      append_reasoning(out, delta.reasoning.text);
      out += '}';
      append_logprobs(out, {}, delta.reasoning.entries);
      if (!std::exchange(ids_written, true)) append_token_ids(out, delta.ids);
      out += R"(,"finish_reason":null)";
      pieces::append_chunk_end(out, options_, running);
    }
    if (delta.content.empty()) return;
    out += head(choice);
    out += R"("content":)";
    append_string(out, delta.content.text);
    out += '}';
    append_logprobs(out, delta.content.entries, {});
    if (!ids_written) append_token_ids(out, delta.ids);
    out += R"(,"finish_reason":null)";
    pieces::append_chunk_end(out, options_, running);
  }

  void ending(const ChoiceView& choice, const Usage& running, std::string& out) override {
    out += head(choice);
    out += R"(},"logprobs":null,)";
    if (options_.return_token_ids) {
      out += R"("token_ids":)";
      pieces::append_ids(out, choice.delta.ids);
      out += ',';
    }
    pieces::append_ending(out, *choice.ending);
    pieces::append_chunk_end(out, options_, running);
  }

  void usage(const Usage& total, std::string& out) override {
    out += no_choices_;
    append_usage(out, total);
    out += "}\n\n";
  }

  std::string whole(const std::vector<ChoiceView>& choices, const Usage& usage) override {
    std::string out = pieces::head(options_, "chat.completion") + R"(,"choices":[)";
    for (const ChoiceView& choice : choices) {
      if (choice.index > 0) out += ',';
      append_choice(out, choice);
    }
    out += R"(],"usage":)";
    append_usage(out, usage);
    std::string extra;
    append_prompt(extra, choices.front().prompt);
    if (!extra.empty()) {
      extra.pop_back();
      out += ',' + extra;
    }
    if (options_.prompt_logprobs >= 0) {
      out += R"(,"prompt_logprobs":)";
      append_prompt_logprobs(out, choices.front().prompt.logprobs, options_.prompt_logprobs, options_.style);
    }
    out += '}';
    return out;
  }

 private:
  const std::string& head(const ChoiceView& choice) const { return heads_[static_cast<size_t>(choice.index)]; }

  // Members about the prompt, each with a comma behind it.
  void append_prompt(std::string& out, const PromptRecord& prompt) const {
    if (options_.return_token_ids) {
      out += R"("prompt_token_ids":)";
      pieces::append_ids(out, prompt.ids);
      out += ',';
    }
    if (options_.return_prompt_text) {
      out += R"("prompt_text":)";
      append_string(out, prompt.text);
      out += ',';
    }
  }

  void append_reasoning(std::string& out, std::string_view text) const {
    for (size_t i = 0; i < reasoning_keys_.size(); ++i) {
      if (i > 0) out += ',';
      out += reasoning_keys_[i];
      append_string(out, text);
    }
  }

  void append_logprobs(std::string& out, const std::vector<TokenEntry>& content,
                       const std::vector<TokenEntry>& reasoning) const {
    if (!options_.logprobs) {
      out += R"(,"logprobs":null)";
      return;
    }
    out += R"(,"logprobs":{"content":)";
    append_chat_logprobs(out, content, options_.style);
    if (!reasoning.empty()) {
      out += R"(,"reasoning":)";
      append_chat_logprobs(out, reasoning, options_.style);
    }
    out += '}';
  }

  static void append_token_ids(std::string& out, const std::vector<TokenId>& ids) {
    out += R"(,"token_ids":)";
    pieces::append_ids(out, ids);
  }

  void append_choice(std::string& out, const ChoiceView& choice) const {
    const Piece& reasoning = choice.delta.reasoning;
    const bool thought = options_.include_reasoning && !reasoning.text.empty();
    out += R"({"index":)";
    append_int(out, choice.index);
    out += R"(,"message":{"role":"assistant","content":)";
    append_string(out, choice.delta.content.text);
    out += R"(,"refusal":null)";
    if (thought) {
      out += ',';
      append_reasoning(out, reasoning.text);
    }
    out += '}';
    append_logprobs(out, choice.delta.content.entries, thought ? reasoning.entries : std::vector<TokenEntry>{});
    if (options_.return_token_ids) append_token_ids(out, choice.delta.ids);
    out += ',';
    pieces::append_ending(out, *choice.ending);
    out += '}';
  }

  const FormatOptions options_;
  std::vector<std::string> heads_;  // up to the inside of "delta", per choice
  std::string no_choices_;
  std::vector<std::string> reasoning_keys_;
  bool opened_ = false;
};

}  // namespace

std::unique_ptr<Format> make_chat_format(FormatOptions options, int choices) {
  return std::make_unique<ChatFormat>(std::move(options), choices);
}

}  // namespace tutti::api
