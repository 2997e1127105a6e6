// Between the caches in memory and the disk tier: what the memory gives up goes to disk, and a sequence whose prefix is
// there waits until it has been read. Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/disk_tier.h"
#include "cache/manager.h"
#include "run/runner.h"

namespace tutti::engine {

class DiskCache {
 public:
  DiskCache(cache::DiskTier& tier, cache::CacheManager& caches, run::Runner& runner)
      : tier_(tier), caches_(caches), runner_(runner) {}

  // Before anything writes to the caches: what they have given up goes to the tier.
  void spill();
  // True when the tier has more of the prefix than the memory: the sequence is to wait for install() to name it.
  bool fetch(SequenceId sequence, const cache::Prefix& prefix, int limit);
  // Takes in what has been read; the sequences that need not wait any longer.
  std::vector<SequenceId> install();
  // The end: everything that can be found goes to the tier, as far as that is done in time.
  void keep_all();

 private:
  void install(cache::DiskTier::Loaded& loaded);
  void put(cache::EntryPlace&& entry, std::chrono::steady_clock::time_point wait_until);

  struct Job {
    cache::EntryName last;  // jobs that end with the same entry are the same
    std::vector<SequenceId> waiting;
  };
  cache::DiskTier& tier_;
  cache::CacheManager& caches_;
  run::Runner& runner_;
  std::map<uint64_t, Job> jobs_;  // being read
  uint64_t next_job_ = 0;
};

}  // namespace tutti::engine
