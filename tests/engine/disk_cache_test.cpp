// The disk tier under the whole engine: answers stay those of a request alone, and what is on disk is not computed.
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "cache/temporary_folder.h"
#include "client.h"

namespace tutti::engine {
namespace {

Answer ask(Engine& engine, const Ids& prompt, int max_tokens = 5) {
  Client client;
  return client.send(engine, prompt, max_tokens).wait();
}

TEST(EngineDiskCache, ARestartedEngineGoesOnFromWhatTheLastOneKept) {
  const test::TemporaryFolder folder;
  const Ids prompt = tokens(300);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> computed{0};
    Kitchen kitchen({.snapshots = 8, .drafts = round == 2 ? 3 : 0, .disk = folder.path()},
                    [&](const ops::StepBatch& b) { computed += b.T(); });
    const Answer answer = ask(*kitchen.engine, prompt);
    EXPECT_EQ(answer.tokens, test::expected_answer(prompt, 5));
    EXPECT_EQ(answer.cached_tokens, round == 0 ? 0 : 299);
    EXPECT_TRUE(round != 1 || computed == 1 + 4) << computed;
    EXPECT_EQ(kitchen.engine->metrics().prefix_cache_hits, round == 0 ? 0 : 299);
  }
}

TEST(EngineDiskCache, WhatTheMemoryGivesUpComesBack) {
  const test::TemporaryFolder folder;
  Kitchen kitchen({.blocks = 16, .snapshots = 3, .disk = folder.path()});
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 6; ++i) {  // 5 blocks each: the memory holds three
      const Answer answer = ask(*kitchen.engine, tokens(290, i));
      EXPECT_EQ(answer.tokens, test::expected_answer(tokens(290, i), 5));
      EXPECT_EQ(answer.cached_tokens, round == 0 ? 0 : 289) << i;
      ASSERT_TRUE(soon([&] { return kitchen.disk->counts().written + kitchen.disk->counts().dropped >= 6 * i - 18; }));
      kitchen.disk->flush();
    }
  }
  EXPECT_EQ(kitchen.disk->counts().failures + kitchen.disk->counts().bad, 0);
}

// What is read takes the place of what was never written: that goes to disk first.
TEST(EngineDiskCache, ReadingMakesRoomByWriting) {
  const test::TemporaryFolder folder;
  const Ids a = tokens(500, 1), b = tokens(500, 2);
  {
    Kitchen kitchen({.snapshots = 4, .disk = folder.path()});
    ask(*kitchen.engine, b);
  }
  Kitchen kitchen({.blocks = 12, .snapshots = 4, .max_model_len = 600, .disk = folder.path()});
  int round = 0;
  for (const Ids& prompt : {a, b, a}) {
    const Answer answer = ask(*kitchen.engine, prompt);
    EXPECT_EQ(answer.tokens, test::expected_answer(prompt, 5));
    EXPECT_EQ(answer.cached_tokens, round++ == 0 ? 0 : 499);
    kitchen.disk->flush();
  }
}

TEST(EngineDiskCache, RequestsAtTheSameTimeShareOneReading) {
  const test::TemporaryFolder folder;
  const Ids prompt = tokens(300);
  {
    Kitchen kitchen({.snapshots = 8, .disk = folder.path()});
    ask(*kitchen.engine, prompt);
  }
  Kitchen kitchen({.snapshots = 8, .disk = folder.path()});
  Client client;
  client.send(*kitchen.engine, client.request(prompt, 2, 4)).wait_all();
  for (const auto& [choice, answer] : client.answers) {
    EXPECT_EQ(answer.tokens, test::expected_answer(prompt, 2));
    EXPECT_EQ(answer.cached_tokens, 299);
  }
  EXPECT_EQ(kitchen.disk->counts().read, 5);  // four blocks and a state
}

TEST(EngineDiskCache, SaltsAndRefusalsShareNothing) {
  const test::TemporaryFolder folder;
  const Ids prompt = tokens(300);
  {
    Kitchen kitchen({.snapshots = 8, .disk = folder.path()});
    ask(*kitchen.engine, prompt);
  }
  const auto cached = [&](const std::string& salt, bool use, int prompt_logprobs = -1) {
    Kitchen kitchen({.snapshots = 8, .disk = folder.path()});
    Client client;
    Submission s = client.request(prompt, 2);
    s.cache_salt = salt;
    s.use_prefix_cache = use;
    s.sampling.prompt_logprobs = prompt_logprobs;
    return client.send(*kitchen.engine, s).wait().cached_tokens;
  };
  EXPECT_EQ(cached("a", true), 0);
  EXPECT_EQ(cached("", false), 0);
  EXPECT_EQ(cached("", true, 0), 0);
  EXPECT_EQ(cached("", true), 299);
}

TEST(EngineDiskCache, AReaderThatLeavesWhileItsPrefixIsReadIsNoTrouble) {
  const test::TemporaryFolder folder;
  const Ids prompt = tokens(300);
  {
    Kitchen kitchen({.snapshots = 8, .disk = folder.path()});
    ask(*kitchen.engine, prompt);
  }
  for (int round = 0; round < 20; ++round) {
    Kitchen kitchen({.snapshots = 8, .disk = folder.path()});
    Client leaves;
    leaves.send(*kitchen.engine, prompt, 5);
    kitchen.engine->abort(leaves.ticket);
    leaves.wait();
    EXPECT_EQ(ask(*kitchen.engine, prompt).tokens, test::expected_answer(prompt, 5));
  }
}

TEST(EngineDiskCache, DamagedEntriesAreComputedAgain) {
  const test::TemporaryFolder folder;
  const Ids prompt = tokens(300);
  {
    Kitchen kitchen({.snapshots = 8, .disk = folder.path()});
    ask(*kitchen.engine, prompt);
  }
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    std::FILE* f = std::fopen(file.path().c_str(), "r+b");
    std::fseek(f, 600 % static_cast<int>(file.file_size()), SEEK_SET);
    std::fputc(0x5A, f);
    std::fclose(f);
  }
  Kitchen kitchen({.snapshots = 8, .disk = folder.path()});
  const Answer answer = ask(*kitchen.engine, prompt);
  EXPECT_EQ(answer.tokens, test::expected_answer(prompt, 5));
  EXPECT_EQ(answer.cached_tokens, 0);
  EXPECT_GE(kitchen.disk->counts().bad, 5);  // all of the prompt's
}

// Many conversations that share beginnings, too little memory, readers that leave, steps that fail, engines that end.
TEST(EngineDiskCache, AnswersAreThoseOfARequestAlone) {
  const test::TemporaryFolder folder;
  int64_t read = 0, written = 0;
  for (int seed = 0; seed < 16; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    std::atomic<int> steps{0};
    const int fails_at = 20 + below(40);
    Kitchen kitchen({.blocks = 16 + below(30),
                     .slots = 1 + below(8),
                     .snapshots = 1 + below(8),
                     .drafts = below(4),
                     .rows = 8,
                     .cap = 1 + below(200),
                     .loses_all = seed % 2 == 0,
                     .disk = folder.path(),
                     .disk_bytes = (seed % 3 == 0 ? 40 : 4000) * 1000},
                    [&](const ops::StepBatch&) {
                      if (++steps == fails_at) throw std::runtime_error("once");
                    });
    Crowd crowd;
    for (int i = 0; i < 40; ++i) {
      Ids prompt = tokens(1 + below(300), below(4));
      if (below(2) == 0)
        for (const TokenId token : tokens(below(100), i)) prompt.push_back(token);
      const int max_tokens = 1 + below(40);
      crowd.send(
          *kitchen.engine, [&](const Client& client) { return client.request(prompt, max_tokens); }, below(8) == 0);
      if (below(4) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(below(4)));
    }
    crowd.expect_answers_as_alone(seed);
    kitchen.disk->flush();
    read += kitchen.disk->counts().read;
    written += kitchen.disk->counts().written;
    EXPECT_EQ(kitchen.disk->counts().bad + kitchen.disk->counts().failures, 0);
  }
  EXPECT_GT(read, 10);  // how many depends on how fast the disk is
  EXPECT_GT(written, 10);
}

}  // namespace
}  // namespace tutti::engine
