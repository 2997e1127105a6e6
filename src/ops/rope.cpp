#include "ops/rope.h"

#include <cmath>

namespace tutti::ops {

void rope_angles(const Rope& rope, const StepBatch& batch, int t, float* cos, float* sin) {
  const int T = batch.T(), half = rope.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float angle =
        static_cast<float>(batch.positions[static_cast<size_t>(rope.axis[i]) * T + t]) * rope.inv_freq[i];
    cos[i] = std::cos(angle) * rope.attention_factor;
    sin[i] = std::sin(angle) * rope.attention_factor;
  }
}

}  // namespace tutti::ops
