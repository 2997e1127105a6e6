// A checkpoint of random weights in the 0.8B shape, affine 4-bit with groups of 64, held in memory as an MLX conversion
// would be on disk.
#pragma once

#include <memory>

#include "base/aligned_buffer.h"
#include "weights/checkpoint.h"

namespace tutti::bench {

struct RandomCheckpoint {
  std::string config;
  AlignedBuffer file;                                     // model.safetensors
  std::shared_ptr<const weights::Checkpoint> checkpoint;  // refers to the two above
};
std::unique_ptr<RandomCheckpoint> make_random_checkpoint();

}  // namespace tutti::bench
