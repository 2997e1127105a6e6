// Tensor and module names of all publishers → one canonical form (docs/checkpoints.md).
#pragma once

#include <string>
#include <string_view>

namespace tutti::weights {

enum class Part {
  text,     // embed_tokens…, layers.N…, norm…, lm_head…
  vision,   // visual.…
  mtp,      // mtp.…
  ignored,  // buffers and training leftovers that carry no weights
  unknown,
};

struct CanonicalName {
  Part part = Part::unknown;
  std::string name;  // the stored name for Part::unknown
};

// Takes a tensor name ("model.language_model.layers.0.mlp.gate.weight") or a module path ("…layers.0.mlp.gate").
// Prefixes and wrappers go; switch_mlp becomes experts; the bare fused experts.gate_up_proj and experts.down_proj of
// Hugging Face get the ".weight" that all other weights have (a module path of that form comes back with it, too).
CanonicalName canonical_name(std::string_view stored);

// The canonical path of a module, without ".weight"; for Part::unknown the path as given.
CanonicalName canonical_module(std::string_view path);

}  // namespace tutti::weights
