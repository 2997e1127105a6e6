// What a cached prefix is found by: SHA-256 over its tokens, chained block by block, from a root that separates
// tenants.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace tutti::cache {

struct PrefixKey {
  std::array<uint64_t, 4> words{};
  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
};

// Prefixes under different salts are never shared.
PrefixKey prefix_root(std::string_view salt);

// The keys of a token list: keys()[i] stands for its first i blocks.
class PrefixChain {
 public:
  explicit PrefixChain(const PrefixKey& root) : keys_{root} {}
  // Goes on to all full blocks of `tokens`, which begins with what was there before.
  void extend(std::span<const TokenId> tokens);
  const std::vector<PrefixKey>& keys() const { return keys_; }
  int blocks() const { return static_cast<int>(keys_.size()) - 1; }
  const PrefixKey& after(int blocks) const { return keys_.at(static_cast<size_t>(blocks)); }

 private:
  std::vector<PrefixKey> keys_;
};

}  // namespace tutti::cache

template <>
struct std::hash<tutti::cache::PrefixKey> {
  size_t operator()(const tutti::cache::PrefixKey& key) const noexcept { return static_cast<size_t>(key.words[0]); }
};
