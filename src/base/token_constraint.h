// What may come next in an answer, token by token: a grammar on its way through it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/ids.h"

namespace tutti {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets bit t % 32 of word t / 32 for each token t that may come next, end tokens included; all bits are 0 before.
  virtual void allow(std::span<uint32_t> mask) const = 0;
  // A token that allow() has named has come. Must not throw.
  virtual void accept(TokenId token) = 0;
  // The same place, on its own: tokens that are only guessed are accepted by a copy, which is forgotten afterwards.
  virtual std::unique_ptr<TokenConstraint> clone() const = 0;
};

// A constraint that is copied with what holds it; may hold none.
class ConstraintHolder {
 public:
  ConstraintHolder() = default;
  explicit ConstraintHolder(const TokenConstraint* beginning) : held_(beginning ? beginning->clone() : nullptr) {}
  ConstraintHolder(const ConstraintHolder& other) : ConstraintHolder(other.held_.get()) {}
  ConstraintHolder(ConstraintHolder&&) = default;
  ConstraintHolder& operator=(ConstraintHolder other) {
    held_ = std::move(other.held_);
    return *this;
  }
  TokenConstraint* get() { return held_.get(); }
  const TokenConstraint* get() const { return held_.get(); }

 private:
  std::unique_ptr<TokenConstraint> held_;
};

}  // namespace tutti
