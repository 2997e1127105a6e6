// One entry of the disk tier as a file. The format, byte by byte: docs/caches.md.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/digest.h"
#include "cache/entry.h"

namespace tutti::cache {

inline constexpr size_t kEntryHeaderBytes = 512;

// The file can't be an entry, or not one of this identity: damaged, cut off, foreign, or of a newer format.
struct BadEntry : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The same entry has the same name, whoever writes it. `identity` is everything that its bits depend on.
std::string entry_file_name(const Digest256& identity, const EntryName& name);
// The first digits of the identity in a file's name; empty when no entry is called so.
std::string identity_in_name(const std::string& file_name);

// Of which process a temporary file's name says it is; 0 when it is no such name.
int temporary_owner(const std::string& file_name);

// Writes folder/entry_file_name(), complete or not at all: a temporary file, fsync, rename. Throws std::system_error.
void write_entry(const std::filesystem::path& folder, const Digest256& identity, const EntryName& name,
                 std::span<const std::byte> payload);
struct EntryFile {
  Digest256 identity{};
  EntryName name;
  int64_t bytes = 0;  // of the file
};
// What a file's header says; throws BadEntry unless it is a header of this version that fits the file's name and
// length, std::system_error when it can't be read. The payload is not looked at.
EntryFile read_entry_header(const std::filesystem::path& path);
// The payload of `name`, checked to the last bit; throws as read_entry_header.
std::vector<std::byte> read_entry(const std::filesystem::path& folder, const Digest256& identity,
                                  const EntryName& name);

}  // namespace tutti::cache
