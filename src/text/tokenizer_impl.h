// What a Tokenizer holds; chat_template.cpp hands its Rust part to the renderer.
#pragma once

#include <unordered_map>

#include "text/rust_abi.h"
#include "text/tokenizer.h"

namespace tutti::text {

struct Tokenizer::Impl {
  struct Free {
    void operator()(tutti_tokenizer* t) const { tutti_tokenizer_free(t); }
  };
  struct Token {
    std::string bytes;
    bool special = false;
  };

  void read_table();

  std::unique_ptr<tutti_tokenizer, Free> rust;
  std::vector<Token> table;                                 // by id
  std::vector<AddedToken> added;                            // by id
  std::unordered_map<std::string_view, TokenId> added_ids;  // keys view into added
  std::optional<TokenId> eos;
};

}  // namespace tutti::text
