#include "cache/disk_index.h"

#include <algorithm>

namespace tutti::cache {

void DiskIndex::add(const std::string& file_name, int64_t bytes, int64_t used, std::optional<EntryName> name) {
  remove(file_name);
  if (name && name->kind == EntryName::Kind::block) blocks_[name->key] = file_name;
  if (name && name->kind == EntryName::Kind::state) states_[name->key].push_back(name->tokens);
  bytes_ += bytes;
  files_.emplace(file_name, File{.bytes = bytes, .use = by_use_.emplace(used, file_name), .name = std::move(name)});
}

void DiskIndex::remove(const std::string& file_name) {
  const auto it = files_.find(file_name);
  if (it == files_.end()) return;
  const File& file = it->second;
  if (file.name && file.name->kind == EntryName::Kind::block) blocks_.erase(file.name->key);
  if (file.name && file.name->kind == EntryName::Kind::state) {
    const auto siblings = states_.find(file.name->key);
    std::erase(siblings->second, file.name->tokens);
    if (siblings->second.empty()) states_.erase(siblings);
  }
  bytes_ -= file.bytes;
  by_use_.erase(file.use);
  files_.erase(it);
}

void DiskIndex::touch(const std::string& file_name, int64_t used) {
  const auto it = files_.find(file_name);
  if (it == files_.end()) return;
  by_use_.erase(it->second.use);
  it->second.use = by_use_.emplace(used, file_name);
}

std::optional<std::vector<TokenId>> DiskIndex::longest_state(const PrefixKey& parent,
                                                             std::span<const TokenId> tokens) const {
  const auto it = states_.find(parent);
  if (it == states_.end()) return std::nullopt;
  const std::vector<TokenId>* best = nullptr;
  for (const std::vector<TokenId>& tail : it->second) {
    if (tail.size() > tokens.size() || (best != nullptr && tail.size() <= best->size())) continue;
    if (std::equal(tail.begin(), tail.end(), tokens.begin())) best = &tail;
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

std::optional<std::string> DiskIndex::oldest() const {
  if (by_use_.empty()) return std::nullopt;
  return by_use_.begin()->second;
}

std::vector<std::string> DiskIndex::file_names() const {
  std::vector<std::string> names;
  names.reserve(files_.size());
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

}  // namespace tutti::cache
