#include "ops/pack.h"

#include <mlx/allocator.h>

#include <algorithm>
#include <cstring>

#include "base/bfloat16.h"

namespace tutti::ops {
namespace {

using kernels::SourceType;

constexpr int kPanelsPerTile = 8;

int64_t aligned(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

bool float32_fits_bf16(const void* data, int64_t n) {
  const auto* bytes = static_cast<const std::byte*>(data);
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes + 4 * i, sizeof bits);
    if ((bits & 0xffffu) != 0) return false;
  }
  return true;
}

// A float16 of normal range has 10 bits behind the point, a bfloat16 7; subnormals of float16 are rare: they count as
// inexact unless zero.
bool float16_fits_bf16(const void* data, int64_t n) {
  const auto* bytes = static_cast<const std::byte*>(data);
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes + 2 * i, sizeof bits);
    const bool subnormal = (bits & 0x7c00u) == 0 && (bits & 0x3ffu) != 0;
    if (subnormal || (bits & 0x7u) != 0) return false;
  }
  return true;
}

// Scales and biases keep float32 only where bfloat16 would change them.
bool needs_float32_scales(const WeightSource& source) {
  if (source.format.format != quant::Format::affine) return false;
  const int64_t n = int64_t{source.N} * (source.K / source.format.affine.group);
  for (const auto& m : source.matrices) {
    for (const void* data : {m.scales, m.biases}) {
      if (m.scale_type == SourceType::float32 && !float32_fits_bf16(data, n)) return true;
      if (m.scale_type == SourceType::float16 && !float16_fits_bf16(data, n)) return true;
    }
  }
  return false;
}

mx::Dtype dtype_of(SourceType type) {
  switch (type) {
    case SourceType::float32:
      return mx::float32;
    case SourceType::float16:
      return mx::float16;
    case SourceType::bfloat16:
      return mx::bfloat16;
    case SourceType::affine:
      return mx::uint32;
  }
  return mx::float32;
}

// [N, columns] or [E, N, columns], filled from the matrices' parts, one after the other.
template <class Part>
mx::array stacked_array(const WeightSource& source, int columns, SourceType type, Part part) {
  mx::Shape shape{source.N, columns};
  if (source.stacked) shape.insert(shape.begin(), static_cast<int>(source.matrices.size()));
  const mx::Dtype dtype = dtype_of(type);
  size_t total = mx::size_of(dtype);
  for (const int n : shape) total *= static_cast<size_t>(n);
  mx::array a(mx::allocator::malloc(total), shape, dtype);
  const size_t bytes = a.nbytes() / source.matrices.size();
  auto* to = reinterpret_cast<std::byte*>(a.data<uint8_t>());
  for (const auto& m : source.matrices) {
    std::memcpy(to, part(m), bytes);
    to += bytes;
  }
  return a;
}

}  // namespace

PackedWeight pack(const WeightSource& source, ThreadPool* pool) {
  const bool wide = needs_float32_scales(source);
  const auto sizes = kernels::packed_sizes(source.format, source.N, source.K, wide);
  const int64_t values = aligned(sizes.values), extra = aligned(sizes.extra), scales = aligned(sizes.scales);
  const int64_t bytes = values + extra + 2 * scales;
  PackedWeight packed;
  packed.memory = AlignedBuffer(static_cast<size_t>(bytes) * source.matrices.size());
  auto* at = packed.memory.as<std::byte>();
  for (size_t e = 0; e < source.matrices.size(); ++e, at += bytes) {
    kernels::Matrix m{.format = source.format, .N = source.N, .K = source.K, .values = at, .scale_float32 = wide};
    if (sizes.extra > 0) m.extra = at + values;
    if (sizes.scales > 0) {
      m.scales = at + values + extra;
      m.biases = at + values + extra + scales;
    }
    packed.experts.push_back(m);
  }
  const int panels = packed.matrix().panels(), chunks = (panels + kPanelsPerTile - 1) / kPanelsPerTile;
  const auto pack_tile = [&](int tile, int) {
    const int e = tile / chunks, begin = tile % chunks * kPanelsPerTile;
    kernels::pack_panels(source.matrices[e], packed.experts[e], begin, std::min(panels, begin + kPanelsPerTile));
  };
  const int tiles = chunks * static_cast<int>(source.matrices.size());
  if (pool != nullptr)
    pool->run(tiles, pack_tile);
  else
    for (int tile = 0; tile < tiles; ++tile) pack_tile(tile, 0);
  return packed;
}

GraphWeight as_arrays(const WeightSource& source) {
  const SourceType type = source.matrices.front().type;
  const auto values = [](const kernels::SourceMatrix& m) { return m.values; };
  if (type != SourceType::affine) {
    return {stacked_array(source, source.K, type, values), std::nullopt, std::nullopt, source.format};
  }
  const auto& spec = source.format.affine;
  const SourceType scale_type = source.matrices.front().scale_type;
  const int words = static_cast<int>(quant::affine_words(source.K, spec.bits)), groups = source.K / spec.group;
  return {stacked_array(source, words, type, values),
          stacked_array(source, groups, scale_type, [](const kernels::SourceMatrix& m) { return m.scales; }),
          stacked_array(source, groups, scale_type, [](const kernels::SourceMatrix& m) { return m.biases; }),
          source.format};
}

int64_t weight_bytes(const Weight& w) {
  if (const auto* packed = std::get_if<PackedWeight>(&w)) return static_cast<int64_t>(packed->memory.bytes());
  const auto& graph = std::get<GraphWeight>(w);
  const auto bytes = [](const std::optional<mx::array>& a) { return a ? static_cast<int64_t>(a->nbytes()) : 0; };
  return static_cast<int64_t>(graph.w.nbytes()) + bytes(graph.scales) + bytes(graph.biases);
}

}  // namespace tutti::ops
