// Where the files of a checkpoint come from: a folder, or memory.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weights/checkpoint.h"

namespace tutti::weights {

class FileSource {
 public:
  virtual ~FileSource() = default;
  virtual std::vector<std::string> names() const = 0;  // sorted
  // The bytes, alive as long as the source; nullopt when there is no such file. Throws LoadError naming the file when
  // it can't be read. `name` is a plain file name (is_plain_name).
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
