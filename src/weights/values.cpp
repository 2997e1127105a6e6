#include "weights/values.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bfloat16.h"
#include "weights/half.h"

namespace tutti::weights {
namespace {

// Index of the first NaN or infinity among n values whose exponent bits are `mask`; n when there is none.
template <class Bits>
int64_t first_non_finite(const std::byte* data, int64_t n, Bits mask) {
  constexpr int64_t kChunk = 4096;
  std::array<Bits, kChunk> chunk;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(kChunk, n - begin);
    std::memcpy(chunk.data(), data + begin * static_cast<int64_t>(sizeof(Bits)),
                static_cast<size_t>(count) * sizeof(Bits));
    unsigned bad = 0;
    for (int64_t i = 0; i < count; ++i) bad |= (chunk[static_cast<size_t>(i)] & mask) == mask ? 1u : 0u;
    if (bad == 0) continue;
    for (int64_t i = 0; i < count; ++i) {
      if ((chunk[static_cast<size_t>(i)] & mask) == mask) return begin + i;
    }
  }
  return n;
}

}  // namespace

bool is_float(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float16 || dtype == DType::bfloat16;
}

int64_t float_bytes(DType dtype) {
  return dtype == DType::float32 ? 4 : 2;
}

int64_t first_non_finite(const Tensor& t) {
  switch (t.dtype) {
    case DType::float32:
      return first_non_finite<uint32_t>(t.data.data(), t.size(), 0x7f800000u);
    case DType::float16:
      return first_non_finite<uint16_t>(t.data.data(), t.size(), 0x7c00u);
    case DType::bfloat16:
      return first_non_finite<uint16_t>(t.data.data(), t.size(), 0x7f80u);
    default:
      return t.size();
  }
}

std::vector<float> to_float(const Tensor& t) {
  const auto n = static_cast<size_t>(t.size());
  std::vector<float> out(n);
  if (t.dtype == DType::float32) {
    std::memcpy(out.data(), t.data.data(), n * sizeof(float));
    return out;
  }
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, t.data.data() + 2 * i, sizeof bits);
    out[i] = t.dtype == DType::bfloat16 ? bf16_to_float(bits) : half_to_float(bits);
  }
  return out;
}

}  // namespace tutti::weights
