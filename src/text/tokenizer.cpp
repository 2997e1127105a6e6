#include "text/tokenizer.h"

#include <cstring>
#include <stdexcept>

#include "base/error.h"
#include "text/tokenizer_impl.h"

namespace tutti::text {

// Kinds of the table that tutti_tokenizer_table writes.
enum Kind : uint8_t { kNone, kOrdinary, kAdded, kSpecial };

Tokenizer::Tokenizer(const std::string& tokenizer_json, const std::optional<std::string>& tokenizer_config_json)
    : impl_(std::make_unique<Impl>()) {
  RustBytes error;
  const uint8_t* config = tokenizer_config_json ? bytes_of(*tokenizer_config_json) : nullptr;
  size_t config_size = tokenizer_config_json ? tokenizer_config_json->size() : 0;
  impl_->rust.reset(
      tutti_tokenizer_new(bytes_of(tokenizer_json), tokenizer_json.size(), config, config_size, error.out()));
  if (!impl_->rust) throw LoadError("tokenizer: " + error.str());
  impl_->read_table();
  if (TokenId eos = tutti_tokenizer_eos(impl_->rust.get()); eos >= 0) impl_->eos = eos;
}

Tokenizer::~Tokenizer() = default;

void Tokenizer::Impl::read_table() {
  RustBytes bytes, error;
  if (!tutti_tokenizer_table(rust.get(), bytes.out(), error.out())) throw LoadError("tokenizer: " + error.str());
  std::string_view rest = bytes.view();
  while (!rest.empty()) {
    Kind kind = static_cast<Kind>(rest[0]);
    uint32_t size;
    std::memcpy(&size, rest.data() + 1, sizeof size);
    std::string text(rest.substr(1 + sizeof size, size));
    rest.remove_prefix(1 + sizeof size + size);
    if (kind >= kAdded) added.push_back({static_cast<TokenId>(table.size()), text, kind == kSpecial});
    table.push_back({std::move(text), kind == kSpecial});
  }
  for (const AddedToken& token : added) added_ids.emplace(token.content, token.id);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool with_added) const {
  RustIds ids;
  RustBytes error;
  if (!tutti_tokenizer_encode(impl_->rust.get(), bytes_of(text), text.size(), with_added, ids.out(), error.out())) {
    throw std::runtime_error("tokenizer: " + error.str());
  }
  return ids.vector();
}

const std::string& Tokenizer::token_bytes(TokenId id) const {
  static const std::string none;
  return id >= 0 && id < vocab() ? impl_->table[id].bytes : none;
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab() && impl_->table[id].special;
}

std::optional<TokenId> Tokenizer::id_of(std::string_view added_token) const {
  auto it = impl_->added_ids.find(added_token);
  return it == impl_->added_ids.end() ? std::nullopt : std::optional(it->second);
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return impl_->added;
}

int Tokenizer::vocab() const {
  return static_cast<int>(impl_->table.size());
}

std::optional<TokenId> Tokenizer::eos() const {
  return impl_->eos;
}

}  // namespace tutti::text
