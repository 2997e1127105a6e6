// The disk tier over real files: what comes back, what is refused, and that nothing a disk can do stops the service.
#include "cache/disk_tier.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <semaphore>
#include <thread>

#include "cache/entry_file.h"
#include "cache/specs.h"
#include "temporary_folder.h"

namespace tutti::cache {
namespace {

namespace fs = std::filesystem;

const Digest256 kIdentity{11, 22, 33, 44};
constexpr size_t kPayload = 1000;
constexpr int64_t kFile = kPayload + static_cast<int64_t>(kEntryHeaderBytes);

EntryName block(int number) {
  EntryName name{.kind = EntryName::Kind::block, .key = {{static_cast<uint64_t>(number), 5}}};
  name.tokens.assign(kBlockTokens, number);
  return name;
}
EntryName state(int parent, std::vector<TokenId> tail) {
  return {.kind = EntryName::Kind::state,
          .key = {{static_cast<uint64_t>(parent), 5}},
          .tokens = std::move(tail),
          .position = 64};
}
std::vector<std::byte> payload(int number) {
  return std::vector<std::byte>(kPayload, static_cast<std::byte>(number));
}

struct Tier {
  explicit Tier(const fs::path& folder, DiskTierOptions options = {}) : tier(complete(std::move(options), folder)) {
    tier.on_loaded([this] { loaded.release(); });
  }
  static DiskTierOptions complete(DiskTierOptions o, const fs::path& folder) {
    o.folder = folder;
    if (o.max_bytes == 0) o.max_bytes = 1 << 30;
    if (o.identity == Digest256{}) o.identity = kIdentity;
    return o;
  }
  bool put(const EntryName& name, int number) {
    if (tier.wants(name, kPayload) != DiskTier::Answer::wanted) return false;
    tier.put(name, payload(number));
    return true;
  }
  std::vector<DiskTier::Loaded> read(const std::vector<EntryName>& names) {
    tier.read(7, names);
    std::vector<DiskTier::Loaded> all;
    while (all.empty() || !all.back().last) {
      if (auto next = tier.next())
        all.push_back(std::move(*next));
      else if (!loaded.try_acquire_for(std::chrono::seconds(60)))
        throw std::runtime_error("nothing came");
    }
    return all;
  }
  std::counting_semaphore<> loaded{0};
  DiskTier tier;
};

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(folder)) files.push_back(file.path());
  return files;
}

TEST(DiskTier, EntriesOutliveTheProcess) {
  const test::TemporaryFolder folder;
  const fs::path place = folder.path() / "deep" / "kv";
  {
    Tier first(place);
    EXPECT_TRUE(first.put(block(1), 1));
    EXPECT_TRUE(first.put(state(1, {7, 8}), 2));
  }
  struct stat info{};
  ASSERT_EQ(stat(place.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  Tier second(place);
  EXPECT_EQ(second.tier.counts().entries, 2);
  EXPECT_EQ(second.tier.counts().bytes, 2 * kFile);
  EXPECT_TRUE(second.tier.has_block(block(1).key));
  const std::vector<TokenId> tokens{7, 8, 9};
  EXPECT_EQ(second.tier.longest_state(block(1).key, tokens), (std::vector<TokenId>{7, 8}));
  const auto all = second.read({block(1), block(2), state(1, {7, 8})});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(all[0].good && !all[1].good && all[2].good);
  EXPECT_EQ(all[0].payload, payload(1));
  EXPECT_EQ(all[2].payload, payload(2));
  EXPECT_EQ(all[2].job, 7u);
  EXPECT_EQ(second.tier.counts().bad, 0);
}

TEST(DiskTier, AnEntryIsWrittenOnce) {
  const test::TemporaryFolder folder;
  Tier t(folder.path());
  EXPECT_TRUE(t.put(block(1), 1));
  EXPECT_FALSE(t.put(block(1), 1));  // queued, or written already
  t.tier.flush();
  EXPECT_FALSE(t.put(block(1), 1));
  EXPECT_EQ(t.tier.counts().written, 1);
  EXPECT_EQ(t.tier.counts().dropped, 0);
}

TEST(DiskTier, WhatWasUsedLongestAgoGoesFirst) {
  const test::TemporaryFolder folder;
  Tier t(folder.path(), {.max_bytes = 3 * kFile});
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(t.put(block(i), i));
  t.tier.flush();
  t.read({block(1)});
  ASSERT_TRUE(t.put(block(4), 4));
  t.tier.flush();
  EXPECT_TRUE(t.tier.has_block(block(1).key));
  EXPECT_FALSE(t.tier.has_block(block(2).key));
  EXPECT_TRUE(t.tier.has_block(block(4).key));
  EXPECT_EQ(t.tier.counts().bytes, 3 * kFile);
  EXPECT_EQ(t.tier.counts().given_up, 1);
  EXPECT_EQ(files_in(folder.path()).size(), 3u);
  // The order outlives the process, too.
  Tier again(folder.path(), {.max_bytes = 3 * kFile});
  ASSERT_TRUE(again.put(block(5), 5));
  again.tier.flush();
  EXPECT_FALSE(again.tier.has_block(block(3).key));
}

TEST(DiskTier, MoreThanTheQueueHoldsIsDropped) {
  const test::TemporaryFolder folder;
  Tier t(folder.path(), {.max_bytes = 0, .queue_bytes = 2 * kPayload});
  int taken = 0;
  for (int i = 0; i < 500; ++i) taken += t.put(block(i), i) ? 1 : 0;
  t.tier.flush();
  EXPECT_EQ(t.tier.counts().written, taken);
  EXPECT_EQ(t.tier.counts().dropped, 500 - taken);
  const auto later = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int i = 1000; i < 1050; ++i) {
    ASSERT_EQ(t.tier.wants(block(i), kPayload, later), DiskTier::Answer::wanted);
    t.tier.put(block(i), payload(i));
  }
  t.tier.flush();
  EXPECT_EQ(t.tier.counts().written, taken + 50);
}

TEST(DiskTier, ReadingWaitsForItsReader) {
  const test::TemporaryFolder folder;
  Tier t(folder.path(), {.max_bytes = 0, .read_ahead_bytes = 3 * kPayload});
  std::vector<EntryName> names;
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(t.put(block(i), i));
    names.push_back(block(i));
  }
  t.tier.flush();
  const auto all = t.read(names);
  ASSERT_EQ(all.size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].payload, payload(i));
}

TEST(DiskTier, BadFilesAreMissesAndGo) {
  const test::TemporaryFolder folder;
  {
    Tier t(folder.path());
    for (int i = 0; i < 7; ++i) ASSERT_TRUE(t.put(block(i), i));
  }
  const auto path = [&](int i) { return folder.path() / entry_file_name(kIdentity, block(i)); };
  const auto poke = [&](int i, std::streamoff at, char value) {
    std::fstream file(path(i), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put(value);
  };
  fs::resize_file(path(0), 100);
  fs::resize_file(path(1), 600);
  poke(2, 8, 2);     // a newer format
  poke(3, 0, 'x');   // no entry at all
  poke(4, 16, 99);   // of another identity, under our name
  poke(6, 40, 99);   // the same, in a part that the name doesn't hold
  poke(5, 900, 99);  // damaged
  Tier t(folder.path());
  EXPECT_EQ(t.tier.counts().bad, 6);
  EXPECT_EQ(t.tier.counts().entries, 1);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(t.tier.has_block(block(i).key));
  EXPECT_TRUE(t.tier.has_block(block(5).key));  // only reading all of it shows
  EXPECT_FALSE(t.read({block(5)})[0].good);
  EXPECT_FALSE(t.tier.has_block(block(5).key));
  EXPECT_EQ(t.tier.counts().bad, 7);
  EXPECT_TRUE(files_in(folder.path()).empty());
}

TEST(DiskTier, FilesOfOthersStay) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "notes.txt") << "mine";
  fs::create_directory(folder.path() / "tutti-folder.kv");
  std::ofstream(folder.path() / ("tutti-tmp-" + std::to_string(getpid()) + "-9")) << "being written";
  std::ofstream(folder.path() / "tutti-tmp-999999999-1") << "its process died";
  {
    Tier other(folder.path(), {.max_bytes = 0, .identity = {1}});
    ASSERT_TRUE(other.put(block(1), 1));
  }
  Tier t(folder.path(), {.max_bytes = 2 * kFile});
  EXPECT_EQ(t.tier.counts().bad, 0);
  EXPECT_EQ(files_in(folder.path()).size(), 4u);
  EXPECT_FALSE(t.tier.has_block(block(1).key));  // of another model
  EXPECT_EQ(t.tier.counts().entries, 1);
  // It takes its part of the bytes, and its turn.
  ASSERT_TRUE(t.put(block(2), 2));
  ASSERT_TRUE(t.put(block(3), 3));
  t.tier.flush();
  EXPECT_EQ(t.tier.counts().given_up, 1);
  EXPECT_FALSE(fs::exists(folder.path() / entry_file_name({1}, block(1))));
  EXPECT_TRUE(fs::exists(folder.path() / "notes.txt"));
}

TEST(DiskTier, TwoOnOneFolder) {
  const test::TemporaryFolder folder;
  Tier a(folder.path(), {.max_bytes = 0, .rescan = std::chrono::seconds(0)});
  Tier b(folder.path(), {.max_bytes = 0, .rescan = std::chrono::seconds(0)});
  ASSERT_TRUE(a.put(block(1), 1));
  a.tier.flush();
  EXPECT_FALSE(b.tier.has_block(block(1).key));
  for (int i = 0; i < 5000 && !b.tier.has_block(block(1).key); ++i) {
    b.tier.refresh();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(b.read({block(1)})[0].payload, payload(1));
  // What the other has removed is a miss, and no fault.
  fs::remove(folder.path() / entry_file_name(kIdentity, block(1)));
  EXPECT_FALSE(a.read({block(1)})[0].good);
  EXPECT_FALSE(a.tier.has_block(block(1).key));
  EXPECT_EQ(a.tier.counts().bad + a.tier.counts().failures, 0);
}

TEST(DiskTier, AFullDiskIsNoFault) {
  const test::TemporaryFolder folder;
  Tier t(folder.path());
  ASSERT_TRUE(t.put(block(1), 1));
  t.tier.flush();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{.rlim_cur = 700, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  ASSERT_TRUE(t.put(block(2), 2));
  t.tier.flush();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(t.tier.counts().failures, 1);
  EXPECT_FALSE(t.tier.has_block(block(2).key));
  EXPECT_FALSE(t.put(block(3), 3));  // for a while nothing is tried
  EXPECT_EQ(t.read({block(1)})[0].payload, payload(1));
  EXPECT_EQ(files_in(folder.path()).size(), 1u);  // nothing half written
}

TEST(DiskTier, AFolderThatIsGoneIsNoFault) {
  const test::TemporaryFolder folder;
  const fs::path place = folder.path() / "kv";
  Tier t(place, {.max_bytes = 0, .rescan = std::chrono::seconds(0)});
  ASSERT_TRUE(t.put(block(1), 1));
  t.tier.flush();
  fs::remove_all(place);
  t.put(block(2), 2);
  t.tier.flush();
  EXPECT_FALSE(t.read({block(1)})[0].good);
  t.tier.refresh();
  EXPECT_GE(t.tier.counts().failures, 1);
}

TEST(DiskTier, AFolderThatCannotBeIsSaid) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_THROW(Tier(folder.path() / "file"), std::system_error);
  EXPECT_THROW(Tier(folder.path() / "file" / "kv"), std::system_error);
}

}  // namespace
}  // namespace tutti::cache
