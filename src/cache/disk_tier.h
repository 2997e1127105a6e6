// Entries of the prefix cache in a folder, so that they outlive the memory and the process. Two threads of its own read
// and write; nobody waits for them. What can't be read, or isn't what it says, is a miss. Several processes may share a
// folder: files appear and vanish as a whole. Thread rule: one
// thread calls.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/digest.h"
#include "cache/entry.h"

namespace tutti::cache {

struct DiskTierOptions {
  std::filesystem::path folder;        // made with mode 0700 when it is not there
  int64_t max_bytes = 0;               // of the folder's entries, whoever wrote them; those used longest ago go first
  Digest256 identity{};                // everything that an entry's bits depend on
  size_t queue_bytes = 256 << 20;      // payloads that wait for the disk; more are dropped
  size_t read_ahead_bytes = 64 << 20;  // payloads that wait for next()
  std::chrono::seconds rescan{10};     // at least, between two looks at what other processes have written
};

struct DiskCounts {
  std::atomic<int64_t> entries{0}, bytes{0};  // in the folder, of any identity
  std::atomic<int64_t> written{0}, read{0};   // entries
  std::atomic<int64_t> dropped{0};            // not written: the queue was full, or the disk failing
  std::atomic<int64_t> bad{0};                // damaged, foreign or newer files, removed
  std::atomic<int64_t> given_up{0};           // removed to keep max_bytes
  std::atomic<int64_t> failures{0};           // reads and writes that the system refused
};

class DiskTier final : public EntryLookup {
 public:
  // Reads the names of what is there. Throws std::system_error when the folder can't be made or listed.
  explicit DiskTier(DiskTierOptions options);
  ~DiskTier() override;  // what is queued is still written

  bool has_block(const PrefixKey& key) const override;
  std::optional<std::vector<TokenId>> longest_state(const PrefixKey& parent,
                                                    std::span<const TokenId> tokens) const override;

  // Whether the entry is to be put(): it is not there, and the queue has room for so many bytes, or has some before
  // wait_until. A drop is counted.
  enum class Answer { wanted, known, dropped };
  Answer wants(const EntryName& name, size_t payload_bytes, std::chrono::steady_clock::time_point wait_until = {});
  void put(EntryName name, std::vector<std::byte> payload);

  struct Loaded {
    uint64_t job = 0;
    EntryName name;
    std::vector<std::byte> payload;
    bool good = false;  // false: a miss, after all
    bool last = false;  // of its job
  };
  // `wake` is called, on another thread, whenever next() has something. Before the first read().
  void on_loaded(std::function<void()> wake);
  void read(uint64_t job, std::vector<EntryName> entries);  // in this order; at least one
  std::optional<Loaded> next();
  // Looks soon at what other processes have written, unless it has just done so.
  void refresh();

  void flush();  // until all that was put is written or has failed

  const DiskCounts& counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::cache
