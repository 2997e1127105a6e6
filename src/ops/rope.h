// Cosines and sines of one token's rotary positions, in float32 (docs/model.md 4.1–4.3).
#pragma once

#include "ops/layers.h"

namespace tutti::ops {

// cos, sin: [rotary_dim / 2]. t is the index of the token in the step.
void rope_angles(const Rope& rope, const StepBatch& batch, int t, float* cos, float* sin);

}  // namespace tutti::ops
