#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tutti::model {
namespace {

// The frequency index at which `rotations` full turns fit into the original context.
double correction(const RopeConfig& rope, int dims, double rotations) {
  const double turns = static_cast<double>(rope.yarn_original_max_positions) / (rotations * 2 * std::numbers::pi);
  return dims * std::log(turns) / (2 * std::log(rope.theta));
}

void apply_yarn(const RopeConfig& config, ops::Rope& rope) {
  const int dims = rope.rotary_dim;
  const double low = std::max(std::floor(correction(config, dims, config.yarn_beta_fast)), 0.0);
  double high = std::min(std::ceil(correction(config, dims, config.yarn_beta_slow)), dims - 1.0);
  if (high == low) high += 0.001;
  for (int i = 0; i < dims / 2; ++i) {
    const double frequency = std::pow(config.theta, -2.0 * i / dims);
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    rope.inv_freq[static_cast<size_t>(i)] =
        static_cast<float>(frequency / config.yarn_factor * ramp + frequency * (1 - ramp));
  }
  const double given = config.yarn_attention_factor;
  rope.attention_factor = static_cast<float>(given > 0 ? given : 0.1 * std::log(config.yarn_factor) + 1);
}

}  // namespace

ops::Rope make_rope(const Config& config) {
  const RopeConfig& c = config.rope;
  ops::Rope rope;
  rope.rotary_dim = static_cast<int>(config.head_dim * c.partial_rotary_factor);
  const int half = rope.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    rope.inv_freq.push_back(static_cast<float>(std::pow(c.theta, -2.0 * i / rope.rotary_dim)));
    // Interleaved sections: T H W T H W … while the sections of H and W last, then T.
    const bool height = i % 3 == 1 && i < 3 * c.mrope_section[1], width = i % 3 == 2 && i < 3 * c.mrope_section[2];
    rope.axis.push_back(height ? 1 : width ? 2 : 0);
  }
  if (c.type == "yarn") apply_yarn(c, rope);
  return rope;
}

}  // namespace tutti::model
