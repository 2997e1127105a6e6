#include "cache/prefix_key.h"

#include "base/digest.h"
#include "cache/specs.h"

namespace tutti::cache {

PrefixKey prefix_root(std::string_view salt) {
  constexpr std::string_view kWhat = "tutti prefix";
  return {Digester(Digester::Kind::sha256).add(kWhat).add(salt).finish()};
}

void PrefixChain::extend(std::span<const TokenId> tokens) {
  const size_t full = tokens.size() / kBlockTokens;
  for (size_t block = keys_.size() - 1; block < full; ++block) {
    const auto& parent = keys_.back().words;
    const auto part = tokens.subspan(block * kBlockTokens, kBlockTokens);
    Digester digester(Digester::Kind::sha256);
    keys_.push_back({digester.add(parent.data(), sizeof parent).add(part.data(), part.size_bytes()).finish()});
  }
}

}  // namespace tutti::cache
