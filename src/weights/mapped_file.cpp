#include "weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "weights/problems.h"

namespace tutti::weights {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw LoadError(fmt::format("{}: {}", printable(path.filename().string()), what));
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe in the folder must not hang the start.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(path, fmt::format("can't be opened: {}", std::strerror(errno)));
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) fail(path, fmt::format("can't be read: {}", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) fail(path, "is not a regular file");
  if (info.st_size == 0) return;
  const auto size = static_cast<size_t>(info.st_size);
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (at == MAP_FAILED) fail(path, fmt::format("can't be mapped: {}", std::strerror(errno)));
  bytes_ = {static_cast<const std::byte*>(at), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace tutti::weights
