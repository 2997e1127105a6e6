// Entry files: what was written comes back to the last bit, or is refused.
#include "cache/entry_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "cache/specs.h"
#include "temporary_folder.h"

namespace tutti::cache {
namespace {

const Digest256 kIdentity{1, 2, 3, 4}, kOther{1, 2, 3, 5};

std::vector<std::byte> payload_of(size_t bytes, unsigned seed = 1) {
  std::vector<std::byte> payload(bytes);
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>((i * 31 + seed * 7 + i / 256) & 255);
  return payload;
}

EntryName block_name() {
  EntryName name{.kind = EntryName::Kind::block, .key = {{9, 8, 7, 6}}};
  for (int i = 0; i < kBlockTokens; ++i) name.tokens.push_back(1000 + i);
  return name;
}

EntryName state_name(int tail) {
  EntryName name{.kind = EntryName::Kind::state, .key = {{9, 8, 7, 6}}, .position = 128 + tail};
  for (int i = 0; i < tail; ++i) name.tokens.push_back(50 + i);
  return name;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void replace(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(EntryFile, WhatWasWrittenComesBack) {
  const test::TemporaryFolder folder;
  for (const EntryName& name : {block_name(), state_name(0), state_name(1), state_name(63)}) {
    for (const size_t bytes : {0, 1, 5000}) {
      write_entry(folder.path(), kIdentity, name, payload_of(bytes));
      EXPECT_EQ(read_entry(folder.path(), kIdentity, name), payload_of(bytes));
      const EntryFile file = read_entry_header(folder.path() / entry_file_name(kIdentity, name));
      EXPECT_EQ(file.name, name);
      EXPECT_EQ(file.identity, kIdentity);
      EXPECT_EQ(file.bytes, static_cast<int64_t>(kEntryHeaderBytes + bytes));
    }
  }
}

TEST(EntryFile, NobodyElseMayReadIt) {
  const test::TemporaryFolder folder;
  write_entry(folder.path(), kIdentity, block_name(), payload_of(10));
  struct stat info{};
  ASSERT_EQ(stat((folder.path() / entry_file_name(kIdentity, block_name())).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// As docs/caches.md says.
TEST(EntryFile, TheFormatByteByByte) {
  const test::TemporaryFolder folder;
  write_entry(folder.path(), kIdentity, state_name(2), payload_of(3));
  const std::string file_name = entry_file_name(kIdentity, state_name(2));
  EXPECT_EQ(file_name.size(), 66u);
  EXPECT_EQ(file_name.substr(0, 23), "tutti-0100000000000000-");
  const std::string bytes = contents(folder.path() / file_name);
  ASSERT_EQ(bytes.size(), 515u);
  const auto at32 = [&](size_t i) { return *reinterpret_cast<const uint32_t*>(bytes.data() + i); };
  const auto at64 = [&](size_t i) { return *reinterpret_cast<const uint64_t*>(bytes.data() + i); };
  EXPECT_EQ(bytes.substr(0, 8), "tuttikv\n");
  EXPECT_EQ(at32(8), 1u);     // version
  EXPECT_EQ(at32(12), 2u);    // kind
  EXPECT_EQ(at64(16), 1u);    // identity
  EXPECT_EQ(at64(40), 4u);    //
  EXPECT_EQ(at64(48), 9u);    // key
  EXPECT_EQ(at32(80), 130u);  // position
  EXPECT_EQ(at32(84), 2u);    // tokens
  EXPECT_EQ(at64(88), 3u);    // bytes of the payload
  EXPECT_EQ(at32(96), 50u);   // token ids
  EXPECT_EQ(at32(100), 51u);
  EXPECT_EQ(at32(104), 0u);
  EXPECT_EQ(bytes.substr(384, 128), std::string(128, '\0'));
}

TEST(EntryFile, EveryFlippedBitIsSeen) {
  const test::TemporaryFolder folder;
  const EntryName name = state_name(5);
  write_entry(folder.path(), kIdentity, name, payload_of(700));
  const std::filesystem::path path = folder.path() / entry_file_name(kIdentity, name);
  const std::string good = contents(path);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    if (bit / 8 >= 384 && bit / 8 < kEntryHeaderBytes) continue;  // zeros that nothing reads
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    replace(path, bad);
    ASSERT_THROW(read_entry(folder.path(), kIdentity, name), BadEntry) << bit;
  }
  replace(path, good);
  EXPECT_EQ(read_entry(folder.path(), kIdentity, name), payload_of(700));
}

TEST(EntryFile, WhatIsCutOffIsRefused) {
  const test::TemporaryFolder folder;
  write_entry(folder.path(), kIdentity, block_name(), payload_of(100));
  const std::filesystem::path path = folder.path() / entry_file_name(kIdentity, block_name());
  const std::string good = contents(path);
  for (size_t size = 0; size < good.size(); ++size) {
    replace(path, good.substr(0, size));
    ASSERT_THROW(read_entry(folder.path(), kIdentity, block_name()), BadEntry) << size;
    ASSERT_THROW(read_entry_header(path), BadEntry) << size;
  }
  replace(path, good + "x");
  EXPECT_THROW(read_entry(folder.path(), kIdentity, block_name()), BadEntry);
}

TEST(EntryFile, FilesOfOthersUnderItsNameAreRefused) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / entry_file_name(kIdentity, block_name());
  write_entry(folder.path(), kOther, block_name(), payload_of(10));
  std::filesystem::rename(folder.path() / entry_file_name(kOther, block_name()), path);
  EXPECT_THROW(read_entry(folder.path(), kIdentity, block_name()), BadEntry);
  write_entry(folder.path(), kIdentity, state_name(1), payload_of(10));
  std::filesystem::rename(folder.path() / entry_file_name(kIdentity, state_name(1)), path);
  EXPECT_THROW(read_entry(folder.path(), kIdentity, block_name()), BadEntry);
  EXPECT_THROW(read_entry_header(path), BadEntry);
}

TEST(EntryFile, NoFileIsNoBadFile) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(read_entry(folder.path(), kIdentity, block_name()), std::system_error);
  EXPECT_THROW(write_entry(folder.path() / "none", kIdentity, block_name(), {}), std::system_error);
}

TEST(EntryFile, NamesOfOtherFiles) {
  for (const char* name : {"", "tutti-", "notes.txt", "tutti-tmp-12-3", "tutti-0100000000000000-00.kv"})
    EXPECT_EQ(identity_in_name(name), "") << name;
  EXPECT_EQ(identity_in_name(entry_file_name(kIdentity, block_name())), "0100000000000000");
  EXPECT_EQ(temporary_owner("tutti-tmp-12-3"), 12);
  EXPECT_EQ(temporary_owner("tutti-tmp-x"), 0);
  EXPECT_EQ(temporary_owner("other"), 0);
}

}  // namespace
}  // namespace tutti::cache
