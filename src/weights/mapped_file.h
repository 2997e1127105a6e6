// A regular file mapped read-only. Pages are file-backed: they count as cache, not as memory of the process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace tutti::weights {

class MappedFile {
 public:
  // Throws LoadError naming the file when it is absent, unreadable or not a regular file (links are followed).
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace tutti::weights
