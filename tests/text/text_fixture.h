// What the tests of the room share: files, the canary's tokenizer, ids of plain text.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tutti::text {

using Json = nlohmann::ordered_json;

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

inline std::string source_file(const std::string& path) {
  return read_file(std::string(TUTTI_SOURCE_DIR) + "/" + path);
}

inline std::shared_ptr<const Tokenizer> canary_tokenizer() {
  static const auto tokenizer = std::make_shared<const Tokenizer>(source_file("models/canary/tokenizer.json"),
                                                                  source_file("models/canary/tokenizer_config.json"));
  return tokenizer;
}

inline const ChatTemplate& canary_template(bool special_tokens_in_text = false) {
  static const std::string source = source_file("models/canary/chat_template.jinja");
  static const ChatTemplate safe(source, canary_tokenizer(), {});
  static const ChatTemplate upstream(source, canary_tokenizer(), {.special_tokens_in_text = true});
  return special_tokens_in_text ? upstream : safe;
}

inline std::string decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string bytes;
  for (TokenId id : ids) bytes += tokenizer.token_bytes(id);
  return bytes;
}

inline std::string render_text(const ChatTemplate& t, const Json& context) {
  auto prompt = t.render(context.dump());
  return prompt.ok() ? prompt->text : "error: " + prompt.error().message;
}

}  // namespace tutti::text
