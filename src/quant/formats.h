// THE list of weight formats. A new one is a row here and a file of its own beside this one.
#pragma once

#include <optional>
#include <string_view>

#include "quant/affine.h"

namespace tutti::quant {

enum class Format {
  float32,  // also what float16 files become (exact)
  bfloat16,
  affine,  // affine.h
};

// Names that a checkpoint may state but that this build can't load yet; loading refuses them by name.
inline constexpr std::string_view kUnsupportedModes[] = {
    "mxfp4", "mxfp8", "nvfp4", "fp8", "awq", "gptq", "compressed-tensors", "modelopt", "bitsandbytes", "gguf"};

struct WeightFormat {
  Format format = Format::bfloat16;
  AffineSpec affine;  // only for Format::affine
};

// Values along the input axis that share one activation scale when inputs are quantised to int8.
constexpr int activation_group(const WeightFormat& f) {
  return f.format == Format::affine ? f.affine.group : 32;
}

}  // namespace tutti::quant
