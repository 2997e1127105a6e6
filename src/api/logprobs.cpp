#include "api/logprobs.h"

#include <unordered_set>

#include "api/json.h"

namespace tutti::api {
namespace {

void comma(std::string& out) {
  if (!out.empty() && out.back() != '[' && out.back() != '{') out += ',';
}

std::string token_id_name(TokenId id) {
  return "token_id:" + std::to_string(id);
}

// A string that is unlike that of any other byte sequence: the text, or "bytes:\xe2\x82" where it is no text.
std::string unique_name(TokenId id, std::string_view bytes, bool ids_as_tokens) {
  static constexpr char kHex[] = "0123456789abcdef";
  if (ids_as_tokens) return token_id_name(id);
  if (valid_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += "\\x";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

// "token":…,"logprob":…,"bytes":[…]
void append_token(std::string& out, const sample::TokenLogprob& token, size_t skip, const LogprobStyle& style) {
  const std::string_view bytes = std::string_view(style.tokenizer->token_bytes(token.token)).substr(skip);
  out += R"("token":)";
  append_string(out, style.ids_as_tokens ? token_id_name(token.token) : lossy_utf8(bytes));
  out += R"(,"logprob":)";
  append_float(out, token.logprob);
  out += R"(,"bytes":[)";
  for (const char c : bytes) {
    comma(out);
    append_int(out, static_cast<unsigned char>(c));
  }
  out += ']';
}

}  // namespace

void append_chat_logprobs(std::string& out, const std::vector<TokenEntry>& entries, const LogprobStyle& style) {
  out += '[';
  for (const TokenEntry& entry : entries) {
    comma(out);
    out += '{';
    append_token(out, entry.values.chosen, entry.skip, style);
    out += R"(,"top_logprobs":[)";
    for (const auto& top : entry.values.top) {
      comma(out);
      out += '{';
      append_token(out, top, 0, style);
      out += '}';
    }
    out += "]}";
  }
  out += ']';
}

void CompletionLogprobs::add(const TokenEntry& entry, int64_t offset, const LogprobStyle& style) {
  const auto name = [&](TokenId id) { return unique_name(id, style.tokenizer->token_bytes(id), style.ids_as_tokens); };
  comma(tokens);
  append_string(tokens, name(entry.values.chosen.token));
  comma(token_logprobs);
  append_float(token_logprobs, entry.values.chosen.logprob);
  comma(text_offset);
  append_int(text_offset, offset);
  comma(top_logprobs);
  top_logprobs += '{';
  std::unordered_set<std::string> names;
  for (const auto& top : entry.values.top) {
    auto [key, fresh] = names.insert(name(top.token));
    if (!fresh) continue;
    comma(top_logprobs);
    append_string(top_logprobs, *key);
    top_logprobs += ':';
    append_float(top_logprobs, top.logprob);
  }
  top_logprobs += '}';
}

void CompletionLogprobs::add_first(TokenId token, const LogprobStyle& style) {
  append_string(tokens, unique_name(token, style.tokenizer->token_bytes(token), style.ids_as_tokens));
  token_logprobs += "null";
  top_logprobs += "null";
  text_offset += '0';
}

void CompletionLogprobs::append_to(std::string& out) const {
  out += R"({"tokens":[)" + tokens + R"(],"token_logprobs":[)" + token_logprobs + R"(],"top_logprobs":[)" +
         top_logprobs + R"(],"text_offset":[)" + text_offset + "]}";
}

void append_prompt_logprobs(std::string& out, const std::vector<sample::Logprobs>& values, int top,
                            const LogprobStyle& style) {
  out += "[null";
  for (const auto& position : values) {
    out += ",{";
    const auto one = [&](const sample::TokenLogprob& token) {
      comma(out);
      append_string(out, std::to_string(token.token));
      out += R"(:{"logprob":)";
      append_float(out, token.logprob);
      out += R"(,"rank":)";
      append_int(out, token.rank);
      out += R"(,"decoded_token":)";
      append_string(out, style.ids_as_tokens ? token_id_name(token.token)
                                             : lossy_utf8(style.tokenizer->token_bytes(token.token)));
      out += '}';
    };
    one(position.chosen);
    for (size_t i = 0; i < position.top.size() && i < static_cast<size_t>(top); ++i) {
      if (position.top[i].token != position.chosen.token) one(position.top[i]);
    }
    out += '}';
  }
  out += ']';
}

}  // namespace tutti::api
