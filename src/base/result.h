// A value or the error that stands in its place (C++20 has no std::expected).
#pragma once

#include <utility>
#include <variant>

#include "base/error.h"

namespace tutti {

template <class T, class E>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(E error) : v_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return v_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() {
    TUTTI_CHECK(ok());
    return std::get<0>(v_);
  }
  const T& value() const {
    TUTTI_CHECK(ok());
    return std::get<0>(v_);
  }
  E& error() {
    TUTTI_CHECK(!ok());
    return std::get<1>(v_);
  }
  const E& error() const {
    TUTTI_CHECK(!ok());
    return std::get<1>(v_);
  }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<T, E> v_;
};

}  // namespace tutti
