// The safetensors container: 8 bytes of little-endian header length, a JSON header, the data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/problems.h"

namespace tutti::weights {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxTensorsPerFile = 1'000'000;
inline constexpr size_t kMaxRank = 8;

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::other;
  std::string stored_dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

struct SafetensorsFile {
  std::vector<SafetensorsEntry> entries;  // those without a fault
  std::string format;                     // __metadata__.format: "pt", "mlx" or empty
};

// Reads the header and checks it against the file: every byte of the data belongs to exactly one tensor, every tensor's
// bytes are those of its dtype and shape. Faults go to `problems` as "file: tensor: …"; never throws for bad input.
SafetensorsFile read_safetensors(std::span<const std::byte> bytes, const std::string& file, Problems& problems);

}  // namespace tutti::weights
