// Where the files of a checkpoint come from: a folder, or memory.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"

namespace tutti::weights {

// A multi-token-prediction head in a folder of its own below the model's: the only files that are not in the folder
// itself. The second as mlx-vlm writes it, with its own configuration.
inline constexpr std::array<std::string_view, 3> kDraftFolderFiles = {"mtp/weights.safetensors",
                                                                      "mtp/model.safetensors", "mtp/config.json"};

class FileSource {
 public:
  virtual ~FileSource() = default;
  virtual std::vector<std::string> names() const = 0;  // sorted
  // The bytes, alive as long as the source; nullopt when there is no such file. Throws LoadError naming the file when
  // it can't be read. `name` is a plain file name (is_plain_name) or one of kDraftFolderFiles.
  virtual std::optional<std::span<const std::byte>> open(const std::string& name) = 0;
};

// No path: not empty, no separator, not "." or "..", no control character.
bool is_plain_name(const std::string& name);

// Throws LoadError when the folder is no readable folder.
std::unique_ptr<FileSource> folder_source(const std::filesystem::path& folder);
std::unique_ptr<FileSource> memory_source(std::vector<NamedBytes> files);

// A small text file (config.json, tokenizer.json); nullopt when absent. Throws LoadError for one of more than 256 MiB.
std::optional<std::string> read_text(FileSource& source, const std::string& name);

}  // namespace tutti::weights
