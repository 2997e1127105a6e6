#include "base/digest.h"

#include <openssl/evp.h>

#include <cstring>

#include "base/error.h"

namespace tutti {

struct Digester::Impl {
  Impl() : context(EVP_MD_CTX_new()) {}
  ~Impl() { EVP_MD_CTX_free(context); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  EVP_MD_CTX* context;
};

Digester::Digester(Kind kind) : impl_(std::make_unique<Impl>()) {
  const EVP_MD* method = kind == Kind::sha256 ? EVP_sha256() : EVP_blake2b512();
  TUTTI_CHECK(impl_->context != nullptr && EVP_DigestInit_ex(impl_->context, method, nullptr) == 1);
}

Digester::~Digester() = default;

Digester& Digester::add(const void* data, size_t bytes) {
  TUTTI_CHECK(EVP_DigestUpdate(impl_->context, data, bytes) == 1);
  return *this;
}

Digest256 Digester::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  TUTTI_CHECK(EVP_DigestFinal_ex(impl_->context, bytes.data(), nullptr) == 1);
  Digest256 digest;
  std::memcpy(digest.data(), bytes.data(), sizeof digest);
  return digest;
}

std::string hex(const Digest256& digest) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::array<unsigned char, sizeof digest> bytes;
  std::memcpy(bytes.data(), digest.data(), sizeof digest);
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace tutti
