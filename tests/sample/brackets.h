// A small grammar of the tests' own over token ids: balanced brackets. 0 opens, 1 closes (at most 4 deep), 2 … 9 may
// come anywhere inside, 10 ends what is balanced and not empty.
#pragma once

#include <vector>

#include "base/token_constraint.h"

namespace tutti::test {

class Brackets final : public TokenConstraint {
 public:
  static constexpr TokenId kOpen = 0, kClose = 1, kFirstFiller = 2, kLastFiller = 9, kEnd = 10;
  static constexpr int kDeepest = 4;

  bool may_come(TokenId token) const {
    if (ended_) return false;
    if (token == kOpen) return depth_ < kDeepest;
    if (token == kEnd) return depth_ == 0 && length_ > 0;
    return depth_ > 0 && token > kOpen && token <= kLastFiller;
  }
  void allow(std::span<uint32_t> mask) const override {
    for (TokenId token = kOpen; token <= kEnd; ++token)
      if (may_come(token)) mask[0] |= 1u << token;
  }
  void accept(TokenId token) override {
    ++length_;
    ended_ = token == kEnd;
    if (token == kOpen) ++depth_;
    if (token == kClose) --depth_;
  }
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<Brackets>(*this); }

  // Whether all of it may come, from the beginning.
  static bool begins(const std::vector<TokenId>& tokens) {
    Brackets grammar;
    for (const TokenId token : tokens) {
      if (!grammar.may_come(token)) return false;
      grammar.accept(token);
    }
    return true;
  }

 private:
  int depth_ = 0, length_ = 0;
  bool ended_ = false;
};

}  // namespace tutti::test
