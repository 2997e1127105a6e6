#include "model/config_quantization.h"

#include <fmt/format.h>

#include "model/config_fields.h"
#include "weights/names.h"

namespace tutti::model {
namespace {

using nlohmann::json;
using weights::Problems;

constexpr const char* kName = "quantization";

class QuantizationReader {
 public:
  explicit QuantizationReader(Problems& problems) : problems_(problems) {}

  weights::QuantizationConfig read(const json& object) {
    if (!object.is_object()) {
      problems_.add(fmt::format("config.json: {}: expected an object, found {}", kName, shown(object)));
      return {};
    }
    const Fields fields(object, std::string(kName) + ".", problems_);
    if (const std::optional<std::string> method = fields.text("quant_method"); method && *method != "mlx") {
      problems_.add(
          fmt::format("config.json: the weight format {} is not supported by this build", weights::printable(*method)));
      return {};
    }
    result_.by_default = spec(object, "", "the default");
    for (const auto& [key, value] : object.items()) {
      if (value.is_object()) {
        add_override(key, spec(value, key + ".", key));
      } else if (value.is_boolean() && key.find('.') != std::string::npos) {
        add_override(key, value.get<bool>() ? result_.by_default : std::nullopt);
      }
    }
    for (const auto& [mode, modules] : unsupported_) {
      problems_.add(fmt::format("config.json: the weight format {} is not supported by this build: {}", mode,
                                weights::printable_list(modules)));
    }
    return std::move(result_);
  }

 private:
  // {group_size, bits, mode}; a missing mode is affine, whatever the file's default is.
  std::optional<quant::AffineSpec> spec(const json& object, const std::string& key, const std::string& module) {
    const bool skipped = !key.empty() && is_skipped(module);
    Problems ignored;
    const Fields fields(object, fmt::format("{}.{}", kName, weights::printable(key)), skipped ? ignored : problems_);
    const std::string mode = fields.text("mode").value_or("affine");
    if (mode != "affine") {
      if (!skipped) unsupported_[mode].push_back(module);
      return std::nullopt;
    }
    const quant::AffineSpec spec{static_cast<int>(fields.integer("bits", {1, 32}).value_or(4)),
                                 static_cast<int>(fields.integer("group_size", {1, 1 << 20}).value_or(64))};
    if (!quant::is_supported(spec) && !skipped) {
      problems_.add(
          fmt::format("config.json: {}: {}: expected 2, 3, 4, 5, 6 or 8 bits and groups of 32, 64 or 128, found {} "
                      "bits and groups of {}",
                      kName, weights::printable(module), spec.bits, spec.group));
    }
    return spec;
  }

  static bool is_skipped(const std::string& module) {
    const weights::Part part = weights::canonical_module(module).part;
    return part == weights::Part::vision || part == weights::Part::mtp;
  }

  void add_override(const std::string& module, std::optional<quant::AffineSpec> spec) {
    if (weights::canonical_module(module).part == weights::Part::vision) return;
    const auto [it, fresh] = result_.overrides.emplace(weights::canonical_module(module).name, spec);
    if (!fresh && it->second != spec) {
      problems_.add(fmt::format("config.json: {}: {}: another entry for the same module says otherwise", kName,
                                weights::printable(module)));
    }
  }

  Problems& problems_;
  weights::QuantizationConfig result_;
  std::map<std::string, std::vector<std::string>> unsupported_;  // mode → modules
};

}  // namespace

weights::QuantizationConfig parse_quantization(const json& wrapper, const json& text, Problems& problems) {
  const json* chosen = nullptr;
  for (const json* object : {&wrapper, &text}) {
    for (const char* name : {"quantization", "quantization_config"}) {
      const auto it = object->find(name);
      if (it == object->end() || it->is_null()) continue;
      if (chosen == nullptr) {
        chosen = &*it;
      } else if (*it != *chosen) {
        problems.add(fmt::format("config.json: {}: differs from another copy of the quantisation in this file", name));
      }
    }
  }
  return chosen == nullptr ? weights::QuantizationConfig{} : QuantizationReader(problems).read(*chosen);
}

std::map<std::string, std::optional<quant::AffineSpec>> parse_draft_quantization(
    const std::string& config_json, const std::vector<std::string>& modules) {
  const json config = json::parse(config_json, nullptr, false);
  if (!config.is_object()) return {};
  Problems problems;
  const weights::QuantizationConfig read = parse_quantization(config, json::object(), problems);
  if (problems.count() > 0) return {};
  std::map<std::string, std::optional<quant::AffineSpec>> specs;
  for (const std::string& module : modules) {
    const auto own = read.overrides.find(module.substr(module.find('.') + 1));  // bare names there
    specs[module] = own != read.overrides.end() ? own->second : read.by_default;
  }
  return specs;
}

}  // namespace tutti::model
