// What is in the disk tier's folder, and in which order it goes when there is too much. No input or output.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/entry.h"

namespace tutti::cache {

class DiskIndex {
 public:
  // name: of an entry that can be looked up; null for one of another identity. used: any clock, the smallest goes
  // first. A file that is known is replaced.
  void add(const std::string& file_name, int64_t bytes, int64_t used, std::optional<EntryName> name);
  void remove(const std::string& file_name);  // unknown files are no error
  void touch(const std::string& file_name, int64_t used);

  bool has(const std::string& file_name) const { return files_.contains(file_name); }
  bool has_block(const PrefixKey& key) const { return blocks_.contains(key); }
  std::optional<std::vector<TokenId>> longest_state(const PrefixKey& parent, std::span<const TokenId> tokens) const;

  std::optional<std::string> oldest() const;
  std::vector<std::string> file_names() const;
  int64_t bytes() const { return bytes_; }
  int64_t size() const { return static_cast<int64_t>(files_.size()); }

 private:
  struct File {
    int64_t bytes = 0;
    std::multimap<int64_t, std::string>::iterator use;
    std::optional<EntryName> name;
  };
  std::unordered_map<std::string, File> files_;
  std::multimap<int64_t, std::string> by_use_;
  std::unordered_map<PrefixKey, std::string> blocks_;
  std::unordered_map<PrefixKey, std::vector<std::vector<TokenId>>> states_;  // by parent: their tokens
  int64_t bytes_ = 0;
};

}  // namespace tutti::cache
