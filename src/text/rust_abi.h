// RAII for what rust/text hands out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "tutti_text.h"

namespace tutti::text {

inline const uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

class RustBytes {
 public:
  RustBytes() = default;
  ~RustBytes() { tutti_bytes_free(raw_); }
  RustBytes(const RustBytes&) = delete;
  RustBytes& operator=(const RustBytes&) = delete;

  tutti_bytes* out() { return &raw_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(raw_.data), raw_.size}; }
  std::string str() const { return std::string(view()); }

 private:
  tutti_bytes raw_{};
};

class RustIds {
 public:
  RustIds() = default;
  ~RustIds() { tutti_ids_free(raw_); }
  RustIds(const RustIds&) = delete;
  RustIds& operator=(const RustIds&) = delete;

  tutti_ids* out() { return &raw_; }
  std::vector<TokenId> vector() const { return {raw_.data, raw_.data + raw_.size}; }

 private:
  tutti_ids raw_{};
};

}  // namespace tutti::text
