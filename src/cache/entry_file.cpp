#include "cache/entry_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include "cache/specs.h"

namespace tutti::cache {

namespace {

static_assert(std::endian::native == std::endian::little, "entry files are little-endian");

constexpr std::array<char, 8> kMagic{'t', 'u', 't', 't', 'i', 'k', 'v', '\n'};
constexpr uint32_t kVersion = 1;
constexpr std::string_view kPrefix = "tutti-", kTemporary = "tutti-tmp-", kSuffix = ".kv";
constexpr size_t kIdentityDigits = 16, kNameDigits = 40;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t kind = 0;
  Digest256 identity{};
  Digest256 key{};
  int32_t position = 0;
  int32_t tokens = 0;
  uint64_t payload_bytes = 0;
  std::array<TokenId, kBlockTokens> ids{};
  Digest256 digest{};  // of everything before it and of the payload
  std::array<std::byte, 128> zero{};
};
static_assert(sizeof(TokenId) == 4 && sizeof(Header) == kEntryHeaderBytes && offsetof(Header, digest) == 352);

class File {
 public:
  File(const std::filesystem::path& path, int flags) : path_(path), fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    if (fd_ < 0) fail("open");
  }
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write_all(const void* data, size_t bytes) {
    for (const auto* at = static_cast<const char*>(data); bytes > 0;) {
      const ssize_t done = write(fd_, at, bytes);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail("write");
      at += done;
      bytes -= static_cast<size_t>(done);
    }
  }
  void sync() {
    if (fsync(fd_) != 0) fail("fsync");
  }
  size_t size() const {
    struct stat info{};
    if (fstat(fd_, &info) != 0) fail("stat");
    return static_cast<size_t>(info.st_size);
  }
  void read_all(void* data, size_t bytes) {
    for (auto* at = static_cast<char*>(data); bytes > 0;) {
      const ssize_t done = read(fd_, at, bytes);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail("read");
      if (done == 0) throw BadEntry(path_.string() + ": cut off");
      at += done;
      bytes -= static_cast<size_t>(done);
    }
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw std::system_error(errno, std::generic_category(), std::string(what) + " " + path_.string());
  }
  std::filesystem::path path_;
  int fd_;
};

Digest256 digest_of(const Header& header, std::span<const std::byte> payload) {
  return Digester(Digester::Kind::blake2b)
      .add(&header, offsetof(Header, digest))
      .add(payload.data(), payload.size())
      .finish();
}

Header read_header(File& file, const std::filesystem::path& path) {
  const auto refuse = [&](const char* why) { throw BadEntry(path.string() + ": " + why); };
  Header header;
  const size_t size = file.size();
  if (size < sizeof header) refuse("too short");
  file.read_all(&header, sizeof header);
  if (header.magic != kMagic) refuse("not an entry of this cache");
  if (header.version != kVersion) refuse("another version of the format");
  if (header.kind != 1 && header.kind != 2) refuse("an unknown kind");
  const int most = header.kind == 1 ? kBlockTokens : kBlockTokens - 1, least = header.kind == 1 ? kBlockTokens : 0;
  if (header.tokens < least || header.tokens > most) refuse("a wrong number of tokens");
  if (header.payload_bytes != size - sizeof header) refuse("not as long as it says");
  return header;
}

EntryName name_in(const Header& header) {
  EntryName name{.kind = EntryName::Kind{header.kind}, .key = {header.key}, .position = header.position};
  name.tokens.assign(header.ids.begin(), header.ids.begin() + header.tokens);
  return name;
}

Header header_of(const Digest256& identity, const EntryName& name, size_t payload) {
  Header header;
  header.kind = static_cast<uint32_t>(name.kind);
  header.identity = identity;
  header.key = name.key.words;
  header.position = name.position;
  header.tokens = static_cast<int32_t>(name.tokens.size());
  header.payload_bytes = payload;
  std::ranges::copy(name.tokens, header.ids.begin());
  return header;
}

}  // namespace

std::string entry_file_name(const Digest256& identity, const EntryName& name) {
  const uint32_t kind = static_cast<uint32_t>(name.kind);
  Digester digester(Digester::Kind::sha256);
  digester.add(&kind, sizeof kind).add(name.key.words.data(), sizeof name.key.words);
  digester.add(name.tokens.data(), name.tokens.size() * sizeof(TokenId));
  std::string file_name(kPrefix);
  file_name += hex(identity).substr(0, kIdentityDigits) + "-" + hex(digester.finish()).substr(0, kNameDigits);
  file_name += kSuffix;
  return file_name;
}

std::string identity_in_name(const std::string& file_name) {
  const size_t length = kPrefix.size() + kIdentityDigits + 1 + kNameDigits + kSuffix.size();
  if (file_name.size() != length || !file_name.starts_with(kPrefix) || !file_name.ends_with(kSuffix)) return {};
  const std::string identity = file_name.substr(kPrefix.size(), kIdentityDigits);
  const bool digits = identity.find_first_not_of("0123456789abcdef") == std::string::npos;
  return digits ? identity : std::string{};
}

int temporary_owner(const std::string& file_name) {
  int owner = 0;
  if (file_name.starts_with(kTemporary))
    std::from_chars(file_name.data() + kTemporary.size(), file_name.data() + file_name.size(), owner);
  return owner;
}

void write_entry(const std::filesystem::path& folder, const Digest256& identity, const EntryName& name,
                 std::span<const std::byte> payload) {
  static std::atomic<int64_t> next{0};
  const std::filesystem::path temporary =
      folder / (std::string(kTemporary) + std::to_string(getpid()) + "-" + std::to_string(next++));
  Header header = header_of(identity, name, payload.size());
  header.digest = digest_of(header, payload);
  try {
    File file(temporary, O_WRONLY | O_CREAT | O_EXCL);
    file.write_all(&header, sizeof header);
    file.write_all(payload.data(), payload.size());
    file.sync();
    std::filesystem::rename(temporary, folder / entry_file_name(identity, name));
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

EntryFile read_entry_header(const std::filesystem::path& path) {
  File file(path, O_RDONLY);
  const Header header = read_header(file, path);
  EntryFile found{.identity = header.identity,
                  .name = name_in(header),
                  .bytes = static_cast<int64_t>(sizeof header + header.payload_bytes)};
  if (entry_file_name(found.identity, found.name) != path.filename())
    throw BadEntry(path.string() + ": another entry than its name says");
  return found;
}

std::vector<std::byte> read_entry(const std::filesystem::path& folder, const Digest256& identity,
                                  const EntryName& name) {
  const std::filesystem::path path = folder / entry_file_name(identity, name);
  File file(path, O_RDONLY);
  const Header header = read_header(file, path);
  if (header.identity != identity) throw BadEntry(path.string() + ": of another model, numerics or build");
  if (name_in(header) != name) throw BadEntry(path.string() + ": another entry than its name says");
  std::vector<std::byte> payload(header.payload_bytes);
  file.read_all(payload.data(), payload.size());
  if (header.digest != digest_of(header, payload)) throw BadEntry(path.string() + ": damaged");
  return payload;
}

}  // namespace tutti::cache
