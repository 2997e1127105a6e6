#include <algorithm>

#include "api/format.h"
#include "api/json.h"

namespace tutti::api {
namespace {

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

class CompletionFormat final : public Format {
 public:
  CompletionFormat(FormatOptions options, int choices) : options_(std::move(options)) {
    const std::string head = "data: " + pieces::head(options_, "text_completion");
    for (int i = 0; i < choices; ++i)
      heads_.push_back(head + R"(,"choices":[{"index":)" + std::to_string(i) + R"(,"text":)");
    no_choices_ = head + R"(,"choices":[],"usage":)";
  }

  bool opens_early() const override { return false; }

  void opening(const ChoiceView& choice, const Usage& running, std::string& out) override {
    if (!options_.echo && !options_.return_token_ids && !options_.return_prompt_text) return;
    out += head(choice);
    append_string(out, options_.echo ? choice.prompt.text : "");
    append_logprobs(out, {}, choice.prompt);
    append_prompt(out, choice.prompt);
    out += R"(,"finish_reason":null)";
    pieces::append_chunk_end(out, options_, running);
  }

  void delta(const ChoiceView& choice, const Usage& running, std::string& out) override {
    if (choice.delta.content.empty()) return;
    out += head(choice);
    append_string(out, choice.delta.content.text);
    append_logprobs(out, choice.delta.content.entries, choice.prompt, false);
    if (options_.return_token_ids) append_token_ids(out, choice.delta.ids);
    out += R"(,"finish_reason":null)";
    pieces::append_chunk_end(out, options_, running);
  }

  void ending(const ChoiceView& choice, const Usage& running, std::string& out) override {
    out += head(choice);
    out += R"("","logprobs":null,)";
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
    std::string out = pieces::head(options_, "text_completion") + R"(,"choices":[)";
    for (const ChoiceView& choice : choices) {
      if (choice.index > 0) out += ',';
      append_choice(out, choice);
    }
    out += R"(],"usage":)";
    append_usage(out, usage);
    out += '}';
    return out;
  }

 private:
  const std::string& head(const ChoiceView& choice) const { return heads_[static_cast<size_t>(choice.index)]; }

  void append_prompt(std::string& out, const PromptRecord& prompt) const {
    if (options_.return_token_ids) {
      out += R"(,"prompt_token_ids":)";
      pieces::append_ids(out, prompt.ids);
    }
    if (options_.return_prompt_text) {
      out += R"(,"prompt_text":)";
      append_string(out, prompt.text);
    }
  }

  static void append_token_ids(std::string& out, const std::vector<TokenId>& ids) {
    out += R"(,"token_ids":)";
    pieces::append_ids(out, ids);
  }

  // The prompt's own tokens, as an echo shows them.
  void add_prompt(CompletionLogprobs& lists, const PromptRecord& prompt) const {
    if (prompt.ids.empty()) return;
    text::Utf8Assembler assembler;
    const auto bytes = [&](size_t i) { return std::string_view(options_.style.tokenizer->token_bytes(prompt.ids[i])); };
    lists.add_first(prompt.ids[0], options_.style);
    int64_t offset = count_characters(assembler.push(bytes(0)));
    for (size_t i = 1; i < prompt.ids.size() && i <= prompt.logprobs.size(); ++i) {
      TokenEntry entry{.values = prompt.logprobs[i - 1]};
      entry.values.top.resize(std::min(entry.values.top.size(), static_cast<size_t>(options_.top_logprobs)));
      lists.add(entry, offset, options_.style);
      offset += count_characters(assembler.push(bytes(i)));
    }
  }

  void append_logprobs(std::string& out, const std::vector<TokenEntry>& entries, const PromptRecord& prompt,
                       bool with_prompt = true) const {
    out += R"(,"logprobs":)";
    if (!options_.logprobs) {
      out += "null";
      return;
    }
    CompletionLogprobs lists;
    if (options_.echo && with_prompt) add_prompt(lists, prompt);
    const int64_t base = options_.echo ? count_characters(prompt.text) : 0;
    for (const TokenEntry& entry : entries) lists.add(entry, base + entry.text_offset, options_.style);
    lists.append_to(out);
  }

  void append_choice(std::string& out, const ChoiceView& choice) const {
    out += R"({"index":)";
    append_int(out, choice.index);
    out += R"(,"text":)";
    append_string(out, options_.echo ? choice.prompt.text + choice.delta.content.text : choice.delta.content.text);
    append_logprobs(out, choice.delta.content.entries, choice.prompt);
    append_prompt(out, choice.prompt);
    if (options_.return_token_ids) append_token_ids(out, choice.delta.ids);
    if (options_.prompt_logprobs >= 0) {
      out += R"(,"prompt_logprobs":)";
      append_prompt_logprobs(out, choice.prompt.logprobs, options_.prompt_logprobs, options_.style);
    }
    out += ',';
    pieces::append_ending(out, *choice.ending);
    out += '}';
  }

  const FormatOptions options_;
  std::vector<std::string> heads_;  // up to the value of "text", per choice
  std::string no_choices_;
};

}  // namespace

std::unique_ptr<Format> make_completion_format(FormatOptions options, int choices) {
  return std::make_unique<CompletionFormat>(std::move(options), choices);
}

}  // namespace tutti::api
