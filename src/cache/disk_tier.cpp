#include "cache/disk_tier.h"

#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cache/disk_index.h"
#include "cache/entry_file.h"

namespace tutti::cache {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kAfterFailure{10};  // without writing
constexpr std::chrono::seconds kBetweenWarnings{60};
constexpr std::chrono::hours kTemporaryLife{1};  // of another process's unfinished file

int64_t nanoseconds(fs::file_time_type time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
int64_t now_ns() {
  return nanoseconds(fs::file_time_type::clock::now());
}

}  // namespace

struct DiskTier::Impl {
  explicit Impl(DiskTierOptions o) : options(std::move(o)) {}

  // The folder.
  void make_folder();
  void scan();
  void look_at(const fs::directory_entry& file, std::unordered_set<std::string>& seen);
  void remove_bad(const std::string& file_name, const std::string& why);
  void make_room(int64_t bytes);
  void failed(const std::string& what);
  void publish_counts();  // mutex held

  // The threads.
  struct Entry {
    EntryName name;
    std::string file_name;
    std::vector<std::byte> payload;
  };
  struct Order {
    uint64_t job = 0;
    EntryName name;
    bool last = false;
  };
  void write_entries();
  void write_one(const Entry& entry);
  void read_entries();
  Loaded read_one(Order order);

  const DiskTierOptions options;
  DiskCounts counts;
  std::function<void()> wake;  // set before the first read()

  std::mutex mutex;
  std::condition_variable for_writer, for_reader, written;
  bool stopping = false, rescan = false;                    // guarded by mutex
  DiskIndex index;                                          // guarded by mutex
  std::deque<Entry> queue;                                  // guarded by mutex; the first is being written
  std::unordered_set<std::string> in_queue;                 // guarded by mutex: file names
  size_t queued_bytes = 0;                                  // guarded by mutex
  std::deque<Order> orders;                                 // guarded by mutex
  std::deque<Loaded> loaded;                                // guarded by mutex
  size_t loaded_bytes = 0;                                  // guarded by mutex
  Clock::time_point broken_until, last_warning, last_scan;  // guarded by mutex
  std::thread writer, reader;
};

// ---- the folder

void DiskTier::Impl::make_folder() {
  std::error_code error;
  if (fs::is_directory(options.folder, error)) return;
  fs::create_directories(options.folder.parent_path(), error);
  if (mkdir(options.folder.c_str(), 0700) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make the folder " + options.folder.string());
}

void DiskTier::Impl::scan() {
  std::unordered_set<std::string> seen;
  {
    const std::lock_guard lock(mutex);
    last_scan = Clock::now();
  }
  for (const fs::directory_entry& file : fs::directory_iterator(options.folder)) look_at(file, seen);
  const std::lock_guard lock(mutex);
  for (const std::string& file_name : index.file_names())
    if (!seen.contains(file_name)) index.remove(file_name);
  publish_counts();
}

void DiskTier::Impl::look_at(const fs::directory_entry& file, std::unordered_set<std::string>& seen) {
  const std::string file_name = file.path().filename();
  std::error_code error;
  const fs::file_time_type changed = file.last_write_time(error);
  if (error || !file.is_regular_file(error)) return;
  if (const int owner = temporary_owner(file_name); owner > 0) {
    const bool dead = kill(owner, 0) != 0 && errno == ESRCH;
    if (dead || fs::file_time_type::clock::now() - changed > kTemporaryLife) fs::remove(file.path(), error);
    return;
  }
  if (identity_in_name(file_name).empty()) return;  // not ours
  {
    const std::lock_guard lock(mutex);
    if (index.has(file_name)) {
      seen.insert(file_name);
      return;
    }
  }
  try {
    EntryFile entry = read_entry_header(file.path());
    const bool usable = entry.identity == options.identity;
    if (!usable && entry_file_name(options.identity, entry.name) == file_name)
      throw BadEntry(file.path().string() + ": another identity than its name says");
    const std::lock_guard lock(mutex);
    index.add(file_name, entry.bytes, nanoseconds(changed),
              usable ? std::optional(std::move(entry.name)) : std::nullopt);
    seen.insert(file_name);
  } catch (const BadEntry& e) {
    remove_bad(file_name, e.what());
  } catch (const std::system_error& e) {  // gone, or not ours to read
    if (e.code() != std::errc::no_such_file_or_directory) failed(e.what());
  }
}

void DiskTier::Impl::remove_bad(const std::string& file_name, const std::string& why) {
  ++counts.bad;
  log::warn("prefix cache on disk: {}; removed", why);
  std::error_code error;
  fs::remove(options.folder / file_name, error);
}

// Removes entries until `bytes` more fit. Only the writer.
void DiskTier::Impl::make_room(int64_t bytes) {
  for (;;) {
    std::string oldest;
    {
      const std::lock_guard lock(mutex);
      const auto found = index.oldest();
      if (!found || index.bytes() + bytes <= options.max_bytes) return;
      oldest = *found;
      index.remove(oldest);
    }
    std::error_code error;
    fs::remove(options.folder / oldest, error);
    ++counts.given_up;
  }
}

void DiskTier::Impl::failed(const std::string& what) {
  ++counts.failures;
  const std::lock_guard lock(mutex);
  if (last_warning != Clock::time_point{} && Clock::now() - last_warning < kBetweenWarnings) return;
  last_warning = Clock::now();
  log::warn("prefix cache on disk: {}; serving goes on without", what);
}

void DiskTier::Impl::publish_counts() {
  counts.entries = index.size();
  counts.bytes = index.bytes();
}

// ---- the writer

void DiskTier::Impl::write_entries() {
  std::unique_lock lock(mutex);
  for (;;) {
    for_writer.wait(lock, [&] { return stopping || rescan || !queue.empty(); });
    if (queue.empty() && stopping) return;
    if (std::exchange(rescan, false) && Clock::now() - last_scan >= options.rescan) {
      lock.unlock();
      try {
        scan();
      } catch (const std::exception& e) {
        failed(e.what());
      }
      lock.lock();
    }
    if (queue.empty()) continue;
    const Entry& entry = queue.front();  // only this thread takes from the front
    lock.unlock();
    write_one(entry);
    lock.lock();
    queued_bytes -= entry.payload.size();
    in_queue.erase(entry.file_name);
    queue.pop_front();
    publish_counts();
    written.notify_all();
  }
}

void DiskTier::Impl::write_one(const Entry& entry) {
  const int64_t bytes = static_cast<int64_t>(kEntryHeaderBytes + entry.payload.size());
  {
    const std::lock_guard lock(mutex);
    if (Clock::now() < broken_until || bytes > options.max_bytes) {
      ++counts.dropped;
      return;
    }
  }
  make_room(bytes);
  try {
    write_entry(options.folder, options.identity, entry.name, entry.payload);
    ++counts.written;
    const std::lock_guard lock(mutex);
    index.add(entry.file_name, bytes, now_ns(), entry.name);
  } catch (const std::exception& e) {
    ++counts.dropped;
    failed(e.what());
    const std::lock_guard lock(mutex);
    broken_until = Clock::now() + kAfterFailure;
  }
}

// ---- the reader

void DiskTier::Impl::read_entries() {
  std::unique_lock lock(mutex);
  for (;;) {
    for_reader.wait(lock, [&] { return stopping || (!orders.empty() && loaded_bytes < options.read_ahead_bytes); });
    if (stopping) return;
    Order order = std::move(orders.front());
    orders.pop_front();
    lock.unlock();
    Loaded entry = read_one(std::move(order));
    lock.lock();
    loaded_bytes += entry.payload.size();
    loaded.push_back(std::move(entry));
    lock.unlock();
    wake();
    lock.lock();
  }
}

DiskTier::Loaded DiskTier::Impl::read_one(Order order) {
  Loaded entry{.job = order.job, .name = std::move(order.name), .last = order.last};
  const std::string file_name = entry_file_name(options.identity, entry.name);
  const fs::path path = options.folder / file_name;
  try {
    entry.payload = read_entry(options.folder, options.identity, entry.name);
    entry.good = true;
    ++counts.read;
    const fs::file_time_type now = fs::file_time_type::clock::now();
    std::error_code error;  // a folder that can only be read keeps its order
    fs::last_write_time(path, now, error);
    const std::lock_guard lock(mutex);
    index.touch(file_name, nanoseconds(now));
    return entry;
  } catch (const BadEntry& e) {
    remove_bad(file_name, e.what());
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::no_such_file_or_directory) failed(e.what());
  } catch (const std::bad_alloc&) {
    failed("no memory to read an entry");
  }
  const std::lock_guard lock(mutex);
  index.remove(file_name);
  publish_counts();
  return entry;
}

// ---- the tier

DiskTier::DiskTier(DiskTierOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->make_folder();
  impl_->scan();
  impl_->writer = std::thread([this] { impl_->write_entries(); });
  impl_->reader = std::thread([this] { impl_->read_entries(); });
}

DiskTier::~DiskTier() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->for_writer.notify_all();
  impl_->for_reader.notify_all();
  impl_->writer.join();
  impl_->reader.join();
}

bool DiskTier::has_block(const PrefixKey& key) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->index.has_block(key);
}

std::optional<std::vector<TokenId>> DiskTier::longest_state(const PrefixKey& parent,
                                                            std::span<const TokenId> tokens) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->index.longest_state(parent, tokens);
}

DiskTier::Answer DiskTier::wants(const EntryName& name, size_t payload_bytes, Clock::time_point wait_until) {
  const std::string file_name = entry_file_name(impl_->options.identity, name);
  std::unique_lock lock(impl_->mutex);
  if (impl_->index.has(file_name) || impl_->in_queue.contains(file_name)) return Answer::known;
  const auto fits = [&] {
    return impl_->queue.empty() || impl_->queued_bytes + payload_bytes <= impl_->options.queue_bytes;
  };
  impl_->written.wait_until(lock, wait_until, fits);
  if (fits() && Clock::now() >= impl_->broken_until) return Answer::wanted;
  ++impl_->counts.dropped;
  return Answer::dropped;
}

void DiskTier::put(EntryName name, std::vector<std::byte> payload) {
  std::string file_name = entry_file_name(impl_->options.identity, name);
  const std::lock_guard lock(impl_->mutex);
  impl_->queued_bytes += payload.size();
  impl_->in_queue.insert(file_name);
  impl_->queue.push_back({std::move(name), std::move(file_name), std::move(payload)});
  impl_->for_writer.notify_one();
}

void DiskTier::on_loaded(std::function<void()> wake) {
  impl_->wake = std::move(wake);
}

void DiskTier::read(uint64_t job, std::vector<EntryName> entries) {
  TUTTI_CHECK(!entries.empty() && impl_->wake != nullptr);
  const std::lock_guard lock(impl_->mutex);
  for (EntryName& name : entries) impl_->orders.push_back({.job = job, .name = std::move(name)});
  impl_->orders.back().last = true;
  impl_->for_reader.notify_one();
}

std::optional<DiskTier::Loaded> DiskTier::next() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->loaded.empty()) return std::nullopt;
  Loaded entry = std::move(impl_->loaded.front());
  impl_->loaded.pop_front();
  impl_->loaded_bytes -= entry.payload.size();
  impl_->for_reader.notify_one();
  return entry;
}

void DiskTier::refresh() {
  const std::lock_guard lock(impl_->mutex);
  if (Clock::now() - impl_->last_scan < impl_->options.rescan) return;
  impl_->rescan = true;
  impl_->for_writer.notify_one();
}

void DiskTier::flush() {
  std::unique_lock lock(impl_->mutex);
  impl_->written.wait(lock, [&] { return impl_->queue.empty(); });
}

const DiskCounts& DiskTier::counts() const {
  return impl_->counts;
}

}  // namespace tutti::cache
