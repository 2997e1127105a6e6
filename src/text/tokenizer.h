// The checkpoint's tokenizer. RAII over rust/text; immutable after construction, any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace tutti::text {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;  // left out of decoded text when specials are skipped
};

class Tokenizer {
 public:
  // tokenizer.json and tokenizer_config.json (added_tokens_decoder completes the former). Throws LoadError, also when
  // the two disagree about an id.
  Tokenizer(const std::string& tokenizer_json, const std::optional<std::string>& tokenizer_config_json);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of valid UTF-8 text. with_added: literals of added tokens become their ids (raw prompts); without: ordinary
  // text only.
  std::vector<TokenId> encode(std::string_view text, bool with_added) const;
  // The bytes of one token (not necessarily whole characters); added tokens: their content. Empty for ids without text.
  const std::string& token_bytes(TokenId id) const;
  bool is_special(TokenId id) const;
  std::optional<TokenId> id_of(std::string_view added_token) const;  // "<|im_end|>", "</think>", …
  const std::vector<AddedToken>& added_tokens() const;
  int vocab() const;                   // highest id + 1
  std::optional<TokenId> eos() const;  // of tokenizer_config

 private:
  friend class ChatTemplate;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::text
