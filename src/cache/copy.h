// A copy inside the cache memory that a plan asks for before its step runs.
#pragma once

#include <cstdint>

namespace tutti::cache {

struct Copy {
  enum class What { block, slot };
  What what = What::block;
  int32_t from = 0, to = 0;
  friend bool operator==(const Copy&, const Copy&) = default;
};

}  // namespace tutti::cache
