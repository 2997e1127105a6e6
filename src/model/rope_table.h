// The rotary frequencies of a configuration (docs/model.md 4.1–4.3).
#pragma once

#include "model/config.h"
#include "ops/layers.h"

namespace tutti::model {

ops::Rope make_rope(const Config& config);

}  // namespace tutti::model
