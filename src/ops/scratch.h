// Temporary memory of the node that runs: one arena per thread that runs nodes, reused from node to node and step to
// step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"

namespace tutti::ops {

class Scratch {
 public:
  // Uninitialised, aligned to 64 bytes, valid until reset(). Throws std::bad_alloc.
  template <class T>
  T* take(int64_t count) {
    return static_cast<T*>(take_bytes(count * static_cast<int64_t>(sizeof(T))));
  }
  float* floats(int64_t count) { return take<float>(count); }

  // Everything taken is free again. Memory grows to the largest node and stays; several chunks become one.
  void reset();

 private:
  void* take_bytes(int64_t bytes);

  std::vector<AlignedBuffer> chunks_;
  int64_t used_ = 0;  // of the last chunk
};

}  // namespace tutti::ops
