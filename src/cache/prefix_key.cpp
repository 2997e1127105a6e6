#include "cache/prefix_key.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/error.h"
#include "cache/specs.h"

namespace tutti::cache {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    TUTTI_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1);
  }
  ~Sha256() { EVP_MD_CTX_free(context_); }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& add(const void* data, size_t bytes) {
    TUTTI_CHECK(EVP_DigestUpdate(context_, data, bytes) == 1);
    return *this;
  }
  PrefixKey finish() {
    PrefixKey key;
    TUTTI_CHECK(EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(key.words.data()), nullptr) == 1);
    return key;
  }

 private:
  EVP_MD_CTX* context_;
};

}  // namespace

PrefixKey prefix_root(std::string_view salt) {
  constexpr std::string_view kWhat = "tutti prefix";
  return Sha256().add(kWhat.data(), kWhat.size()).add(salt.data(), salt.size()).finish();
}

void PrefixChain::extend(std::span<const TokenId> tokens) {
  const size_t full = tokens.size() / kBlockTokens;
  for (size_t block = keys_.size() - 1; block < full; ++block) {
    const auto& parent = keys_.back().words;
    const auto part = tokens.subspan(block * kBlockTokens, kBlockTokens);
    keys_.push_back(Sha256().add(parent.data(), sizeof parent).add(part.data(), part.size_bytes()).finish());
  }
}

}  // namespace tutti::cache
