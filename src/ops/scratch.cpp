#include "ops/scratch.h"

#include <algorithm>

namespace tutti::ops {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kSmallestChunk = 1 << 20;

}  // namespace

void* Scratch::take_bytes(int64_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const int64_t room = chunks_.empty() ? 0 : static_cast<int64_t>(chunks_.back().bytes()) - used_;
  if (bytes > room) {
    chunks_.emplace_back(static_cast<size_t>(std::max(bytes, kSmallestChunk)));
    used_ = 0;
  }
  void* p = chunks_.back().as<std::byte>() + used_;
  used_ += bytes;
  return p;
}

void Scratch::reset() {
  used_ = 0;
  if (chunks_.size() <= 1) return;
  size_t bytes = 0;
  for (const auto& chunk : chunks_) bytes += chunk.bytes();
  chunks_.clear();
  chunks_.emplace_back(bytes);
}

}  // namespace tutti::ops
