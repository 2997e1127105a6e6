#include "weights/names.h"

#include <array>

namespace tutti::weights {
namespace {

constexpr std::string_view kWeight = ".weight";

bool starts_with_component(std::string_view name, std::string_view head) {
  return name.starts_with(head) && (name.size() == head.size() || name[head.size()] == '.');
}

bool ends_with_component(std::string_view name, std::string_view tail) {
  return name.ends_with(tail) && (name.size() == tail.size() || name[name.size() - tail.size() - 1] == '.');
}

std::string without_wrappers(std::string_view stored) {
  std::string name(stored);
  constexpr std::array<std::string_view, 2> kWrappers = {"module.", "_orig_mod."};
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view wrapper : kWrappers) {
      if (name.starts_with(wrapper)) {
        name.erase(0, wrapper.size());
        found = true;
      }
    }
  }
  constexpr std::string_view kInner = "._orig_mod.";
  for (size_t at = name.find(kInner); at != std::string::npos; at = name.find(kInner))
    name.erase(at, kInner.size() - 1);
  return name;
}

// Longest first: the first that leaves a known head wins.
constexpr std::array<std::string_view, 7> kPrefixes = {"model.language_model.model.",
                                                       "model.language_model.",
                                                       "language_model.model.",
                                                       "language_model.",
                                                       "text_model.",
                                                       "model.",
                                                       ""};

struct Head {
  std::string_view component;
  Part part;
  std::string_view canonical;
};
constexpr std::array<Head, 7> kHeads = {{
    {"embed_tokens", Part::text, "embed_tokens"},
    {"layers", Part::text, "layers"},
    {"norm", Part::text, "norm"},
    {"lm_head", Part::text, "lm_head"},
    {"visual", Part::vision, "visual"},
    {"vision_tower", Part::vision, "visual"},
    {"mtp", Part::mtp, "mtp"},
}};

constexpr std::array<std::string_view, 3> kIgnored = {"rotary_emb.inv_freq", "position_ids", "num_batches_tracked"};

// layers.N.mlp.switch_mlp.* → layers.N.mlp.experts.*
void rename_experts(std::string& name) {
  constexpr std::string_view kMlx = ".mlp.switch_mlp.";
  const size_t at = name.find(kMlx);
  if (at != std::string::npos) name.replace(at, kMlx.size(), ".mlp.experts.");
  for (const std::string_view fused : {".mlp.experts.gate_up_proj", ".mlp.experts.down_proj"}) {
    if (name.ends_with(fused)) name += kWeight;
  }
}

}  // namespace

CanonicalName canonical_name(std::string_view stored) {
  for (const std::string_view tail : kIgnored) {
    if (ends_with_component(stored, tail)) return {Part::ignored, std::string(stored)};
  }
  const std::string name = without_wrappers(stored);
  for (const std::string_view prefix : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = std::string_view(name).substr(prefix.size());
    for (const Head& head : kHeads) {
      if (!starts_with_component(rest, head.component)) continue;
      std::string canonical(head.canonical);
      canonical += rest.substr(head.component.size());
      rename_experts(canonical);
      return {head.part, std::move(canonical)};
    }
  }
  return {Part::unknown, std::string(stored)};
}

CanonicalName canonical_module(std::string_view path) {
  CanonicalName result = canonical_name(path);
  if (result.part != Part::unknown && result.name.ends_with(kWeight)) {
    result.name.resize(result.name.size() - kWeight.size());
  }
  return result;
}

}  // namespace tutti::weights
