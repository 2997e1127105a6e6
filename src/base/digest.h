// Cryptographic digests of byte strings, of OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

using Digest256 = std::array<uint64_t, 4>;  // 256 bits, in the order in which the bytes come

// One digest, fed piece by piece.
class Digester {
 public:
  enum class Kind {
    sha256,
    blake2b,  // BLAKE2b-512, the first half: about twice as fast where the processor has no SHA instructions
  };
  explicit Digester(Kind kind);
  ~Digester();

  Digester& add(const void* data, size_t bytes);
  Digester& add(std::string_view text) { return add(text.data(), text.size()); }
  Digest256 finish();  // once

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string hex(const Digest256& digest);  // 64 digits

}  // namespace tutti
