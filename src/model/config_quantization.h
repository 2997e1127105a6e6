// The quantisation part of config.json.
#pragma once

#include <nlohmann/json.hpp>

#include "weights/checkpoint.h"
#include "weights/problems.h"

namespace tutti::model {

// Reads `quantization` and `quantization_config` of the wrapper and of its text part (the same object when flat);
// copies must be equal. Formats that this build can't read are refused by name, with the modules that use them.
weights::QuantizationConfig parse_quantization(const nlohmann::json& wrapper, const nlohmann::json& text,
                                               weights::Problems& problems);

// The quantisation of a multi-token-prediction head by its own configuration: an entry for each of `modules`
// ("mtp.fc", …). Nothing when it can't be read: then the body's rule holds, and what doesn't fit it is refused there.
std::map<std::string, std::optional<quant::AffineSpec>> parse_draft_quantization(
    const std::string& config_json, const std::vector<std::string>& modules);

}  // namespace tutti::model
