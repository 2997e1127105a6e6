// A checkpoint of random weights in the 0.8B shape, affine 4-bit with groups of 64, held in memory as an MLX conversion
// would be on disk.
#pragma once

#include <filesystem>
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

// The same as a folder that `tutti serve` takes: the checkpoint with the tokenizer and template of another model folder
// (its ids must fit the vocabulary of 248,320). Throws std::filesystem::filesystem_error.
void write_random_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& tokenizer_folder);

}  // namespace tutti::bench
