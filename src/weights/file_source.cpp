#include "weights/file_source.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <system_error>

#include "weights/mapped_file.h"
#include "weights/problems.h"

namespace tutti::weights {
namespace {

namespace fs = std::filesystem;

class FolderSource final : public FileSource {
 public:
  explicit FolderSource(fs::path folder) : folder_(std::move(folder)) {
    std::error_code error;
    const fs::file_status status = fs::status(folder_, error);
    const std::string where = printable(folder_.string());
    if (!fs::exists(status)) throw LoadError(where + ": no such folder");
    if (folder_.extension() == ".gguf") throw LoadError(where + ": gguf files are not supported by this build");
    if (!fs::is_directory(status)) throw LoadError(where + ": not a folder");
    for (auto it = fs::directory_iterator(folder_, error); !error && it != fs::directory_iterator();
         it.increment(error)) {
      names_.push_back(it->path().filename().string());
    }
    if (error) throw LoadError(where + ": can't be listed: " + error.message());
    for (const std::string_view name : kDraftFolderFiles)
      if (fs::exists(folder_ / name, error)) names_.emplace_back(name);
    std::sort(names_.begin(), names_.end());
  }

  std::vector<std::string> names() const override { return names_; }

  std::optional<std::span<const std::byte>> open(const std::string& name) override {
    const std::scoped_lock lock(mutex_);
    if (const auto it = open_.find(name); it != open_.end()) return it->second.bytes();
    if (!std::binary_search(names_.begin(), names_.end(), name)) return std::nullopt;
    return open_.emplace(name, MappedFile(folder_ / name)).first->second.bytes();
  }

 private:
  fs::path folder_;
  std::vector<std::string> names_;
  std::mutex mutex_;  // guards open_
  std::map<std::string, MappedFile> open_;
};

class MemorySource final : public FileSource {
 public:
  explicit MemorySource(std::vector<NamedBytes> files) {
    for (NamedBytes& f : files) files_.emplace(std::move(f.name), f.bytes);
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files_) names.push_back(name);
    return names;
  }

  std::optional<std::span<const std::byte>> open(const std::string& name) override {
    const auto it = files_.find(name);
    return it == files_.end() ? std::nullopt : std::optional(it->second);
  }

 private:
  std::map<std::string, std::span<const std::byte>> files_;
};

}  // namespace

bool is_plain_name(const std::string& name) {
  if (name.empty() || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

std::unique_ptr<FileSource> folder_source(const fs::path& folder) {
  return std::make_unique<FolderSource>(folder);
}

std::unique_ptr<FileSource> memory_source(std::vector<NamedBytes> files) {
  return std::make_unique<MemorySource>(std::move(files));
}

std::optional<std::string> read_text(FileSource& source, const std::string& name) {
  constexpr size_t kMaxText = size_t{256} << 20;
  const auto bytes = source.open(name);
  if (!bytes) return std::nullopt;
  if (bytes->size() > kMaxText)
    throw LoadError(fmt::format("{}: {} bytes, at most {} are allowed", name, bytes->size(), kMaxText));
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

}  // namespace tutti::weights
