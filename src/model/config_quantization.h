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

}  // namespace tutti::model
