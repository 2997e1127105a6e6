#include "engine/disk_cache.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"

namespace tutti::engine {

namespace {
// How long the end of the process may be put off by what is worth keeping.
constexpr std::chrono::seconds kKeepLimit{20};
}  // namespace

void DiskCache::put(cache::EntryPlace&& entry, std::chrono::steady_clock::time_point wait_until) {
  if (tier_.wants(entry.name, runner_.most_bytes(entry.name), wait_until) != cache::DiskTier::Answer::wanted) return;
  std::vector<std::byte> bytes = runner_.save(entry);
  tier_.put(std::move(entry.name), std::move(bytes));
}

void DiskCache::spill() {
  for (cache::EntryPlace& entry : caches_.take_given_up()) put(std::move(entry), {});
}

bool DiskCache::fetch(SequenceId sequence, const cache::Prefix& prefix, int limit) {
  tier_.refresh();
  cache::CacheManager::Fetch fetch = caches_.plan_fetch(prefix, limit, tier_);
  if (fetch.entries.empty()) return false;
  caches_.touch(prefix, fetch.position);
  for (auto& [job, known] : jobs_) {
    if (known.last != fetch.entries.back()) continue;
    known.waiting.push_back(sequence);
    return true;
  }
  jobs_[next_job_] = {.last = fetch.entries.back(), .waiting = {sequence}};
  tier_.read(next_job_++, std::move(fetch.entries));
  return true;
}

std::vector<SequenceId> DiskCache::install() {
  std::vector<SequenceId> ready;
  while (auto loaded = tier_.next()) {
    install(*loaded);
    if (!loaded->last) continue;
    const auto job = jobs_.find(loaded->job);
    ready.insert(ready.end(), job->second.waiting.begin(), job->second.waiting.end());
    jobs_.erase(job);
  }
  return ready;
}

void DiskCache::install(cache::DiskTier::Loaded& loaded) {
  if (!loaded.good || !runner_.fits(loaded.name, loaded.payload.size())) return;
  caches_.install(loaded.name, [&](const cache::EntryPlace& place) {
    spill();  // what lay there until now
    runner_.load(place, loaded.payload);
  });
}

void DiskCache::keep_all() {
  const auto begin = std::chrono::steady_clock::now(), end = begin + kKeepLimit;
  spill();
  for (cache::EntryPlace& entry : caches_.entries()) put(std::move(entry), end);
  tier_.flush();
  log::info("prefix cache on disk: {} entries, {:.1f} MiB, kept in {:.1f} s", tier_.counts().entries.load(),
            static_cast<double>(tier_.counts().bytes.load()) / (1 << 20),
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

}  // namespace tutti::engine
