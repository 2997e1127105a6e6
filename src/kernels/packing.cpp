#include "kernels/packing.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace tutti::kernels {
namespace {

using quant::Format;

float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude < 0x400u) {  // zero and subnormals: multiples of 2^-24
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f));
  }
  const uint32_t exponent = magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u;  // infinity and NaN keep all ones
  return std::bit_cast<float>(sign | ((magnitude << 13) + exponent));
}

template <class T>
T load(const void* p, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(p) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float source_float(SourceType type, const void* p, int64_t index) {
  switch (type) {
    case SourceType::float32:
      return load<float>(p, index);
    case SourceType::float16:
      return half_to_float(load<uint16_t>(p, index));
    default:
      return bf16_to_float(load<bf16>(p, index));
  }
}

void pack_float_panel(const SourceMatrix& source, const Matrix& m, int panel) {
  const int64_t begin = static_cast<int64_t>(panel) * padded_k(m.K) * kPanel;
  const int rows = std::min(kPanel, m.N - panel * kPanel);
  if (m.format.format == Format::float32) {
    float* out = static_cast<float*>(const_cast<void*>(m.values)) + begin;
    std::fill_n(out, static_cast<int64_t>(padded_k(m.K)) * kPanel, 0.0f);
    for (int r = 0; r < rows; ++r) {
      const int64_t row = static_cast<int64_t>(panel * kPanel + r) * m.K;
      for (int k = 0; k < m.K; ++k) out[float32_index(m.K, r, k)] = source_float(source.type, source.values, row + k);
    }
    return;
  }
  bf16* out = static_cast<bf16*>(const_cast<void*>(m.values)) + begin;
  std::fill_n(out, static_cast<int64_t>(padded_k(m.K)) * kPanel, bf16{0});
  for (int r = 0; r < rows; ++r) {
    const int64_t row = static_cast<int64_t>(panel * kPanel + r) * m.K;
    for (int k = 0; k < m.K; ++k) {
      out[bfloat16_index(m.K, r, k)] = source.type == SourceType::bfloat16
                                           ? load<bf16>(source.values, row + k)
                                           : float_to_bf16(source_float(source.type, source.values, row + k));
    }
  }
}

void pack_scales(const void* from, SourceType type, const Matrix& m, void* plane, int panel) {
  const int groups = m.K / m.format.affine.group;
  for (int r = 0; r < kPanel; ++r) {
    const int n = panel * kPanel + r;
    for (int g = 0; g < groups; ++g) {
      const float value = n < m.N ? source_float(type, from, static_cast<int64_t>(n) * groups + g) : 0.0f;
      const int64_t i = scale_index(groups, n, g);
      if (m.scale_float32) {
        static_cast<float*>(plane)[i] = value;
      } else {
        static_cast<bf16*>(plane)[i] = float_to_bf16(value);
      }
    }
  }
}

// One plane of a panel from its codes as [K/4][16 rows] words of four codes: the bits [from, from + width) of each.
void pack_plane(const std::vector<uint32_t>& quads, int from, int width, void* plane, int panel) {
  const int per_vector = 8 / width;
  const size_t words = quads.size() / static_cast<size_t>(per_vector);
  auto* out = static_cast<uint32_t*>(plane) + static_cast<size_t>(panel) * words;
  const uint32_t mask = 0x01010101u * static_cast<uint32_t>((1 << width) - 1);
  for (size_t w = 0; w < words; ++w) {
    const size_t first = w / kPanel * kPanel * static_cast<size_t>(per_vector) + w % kPanel;
    uint32_t word = 0;
    for (int j = 0; j < per_vector; ++j) {
      word |= ((quads[first + static_cast<size_t>(j) * kPanel] >> from) & mask) << (j * width);
    }
    out[w] = word;
  }
}

void pack_affine_panel(const SourceMatrix& source, const Matrix& m, int panel) {
  const int bits = m.format.affine.bits;
  const size_t row_bytes = static_cast<size_t>(quant::affine_words(m.K, bits)) * 4;
  std::vector<uint32_t> words(row_bytes / 4);
  std::vector<uint8_t> codes(static_cast<size_t>(m.K));
  std::vector<uint32_t> quads(static_cast<size_t>(m.K) / 4 * kPanel);
  for (int r = 0; r < kPanel; ++r) {
    const int n = panel * kPanel + r;
    if (n >= m.N) break;  // quads of padding rows stay zero
    std::memcpy(words.data(), static_cast<const char*>(source.values) + static_cast<size_t>(n) * row_bytes, row_bytes);
    quant::unpack_affine_row(words.data(), m.K, bits, codes.data());
    for (int k = 0; k < m.K; k += 4) {
      std::memcpy(&quads[static_cast<size_t>(k) / 4 * kPanel + static_cast<size_t>(r)], &codes[static_cast<size_t>(k)],
                  4);
    }
  }
  const Planes planes = planes_of(bits);
  pack_plane(quads, 0, planes.base, const_cast<void*>(m.values), panel);
  if (planes.extra != 0) pack_plane(quads, planes.base, planes.extra, const_cast<void*>(m.extra), panel);
  pack_scales(source.scales, source.scale_type, m, const_cast<void*>(m.scales), panel);
  pack_scales(source.biases, source.scale_type, m, const_cast<void*>(m.biases), panel);
}

}  // namespace

PackedSizes packed_sizes(const quant::WeightFormat& format, int N, int K, bool scale_float32) {
  const int64_t rows = static_cast<int64_t>((N + kPanel - 1) / kPanel) * kPanel;
  if (format.format != Format::affine) {
    return {.values = rows * padded_k(K) * (format.format == Format::float32 ? 4 : 2)};
  }
  const Planes planes = planes_of(format.affine.bits);
  return {.values = rows * K * planes.base / 8,
          .extra = rows * K * planes.extra / 8,
          .scales = rows * (K / format.affine.group) * (scale_float32 ? 4 : 2)};
}

void pack_panels(const SourceMatrix& source, const Matrix& m, int panel_begin, int panel_end) {
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    if (m.format.format == Format::affine) {
      pack_affine_panel(source, m, panel);
    } else {
      pack_float_panel(source, m, panel);
    }
  }
}

void unpack_row(const Matrix& m, int n, float* out) {
  if (m.format.format != Format::affine) {
    for (int k = 0; k < m.K; ++k) out[k] = float_value(m, n, k);
    return;
  }
  const int group = m.format.affine.group;
  for (int g = 0; g < m.K / group; ++g) {
    const float scale = scale_value(m, m.scales, n, g);
    const float bias = scale_value(m, m.biases, n, g);
    for (int k = g * group; k < (g + 1) * group; ++k) out[k] = scale * static_cast<float>(affine_code(m, n, k)) + bias;
  }
}

}  // namespace tutti::kernels
