// The prefix cache under the whole engine: answers stay those of a request alone, and what is cached is not computed.
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "client.h"

namespace tutti::engine {
namespace {

// Counts the tokens that the model computes.
struct Counting {
  explicit Counting(KitchenOptions o) : kitchen(o, [this](const ops::StepBatch& b) { computed += b.T(); }) {}
  std::atomic<int> computed{0};
  Kitchen kitchen;
};

Answer ask(Engine& engine, const Submission& submission, Client& client) {
  return client.send(engine, submission).wait();
}

TEST(EnginePrefixCache, ARepetitionComputesOneToken) {
  Counting c({.snapshots = 8});
  const Ids prompt = tokens(300);
  for (int round = 0; round < 3; ++round) {
    Client client;
    const Answer a = ask(*c.kitchen.engine, client.request(prompt, 5), client);
    EXPECT_EQ(a.tokens, test::expected_answer(prompt, 5));
    EXPECT_EQ(a.cached_tokens, round == 0 ? 0 : 299);
    EXPECT_EQ(a.starts, 1);
    EXPECT_EQ(a.prompt_tokens, 300);
    EXPECT_EQ(c.computed.exchange(0), (round == 0 ? 300 : 1) + 4);
  }
  EXPECT_EQ(c.kitchen.engine->metrics().prefix_cache_queries, 900);
  EXPECT_EQ(c.kitchen.engine->metrics().prefix_cache_hits, 598);
}

TEST(EnginePrefixCache, TheNextTurnGoesOnFromTheAnswer) {
  Counting c({.snapshots = 8});
  Ids conversation = tokens(100);
  for (int turn = 0; turn < 4; ++turn) {
    Client client;
    const Answer a = ask(*c.kitchen.engine, client.request(conversation, 20), client);
    EXPECT_EQ(a.tokens, test::expected_answer(conversation, 20));
    // All but the last token of the answer before is there.
    EXPECT_EQ(a.cached_tokens, turn == 0 ? 0 : static_cast<int>(conversation.size()) - 31);
    conversation.insert(conversation.end(), a.tokens.begin(), a.tokens.end());
    for (const TokenId token : tokens(30, turn)) conversation.push_back(token);
  }
}

TEST(EnginePrefixCache, MessageEndsAreWhereAnotherTurnCanBegin) {
  Counting c({.snapshots = 8});
  Ids first = tokens(200), second = first;
  second.resize(90);
  for (const TokenId token : tokens(40, 9)) second.push_back(token);
  Client a, b;
  Submission s = a.request(first, 3);
  s.boundaries = {40, 90, 150};
  ask(*c.kitchen.engine, s, a);
  const Answer answer = ask(*c.kitchen.engine, b.request(second, 3), b);
  EXPECT_EQ(answer.cached_tokens, 90);
  EXPECT_EQ(answer.tokens, test::expected_answer(second, 3));
}

TEST(EnginePrefixCache, ChoicesComputeTheirPromptOnce) {
  Counting c({.snapshots = 8});
  const Ids prompt = tokens(500);
  Client client;
  client.send(*c.kitchen.engine, client.request(prompt, 2, 4)).wait_all();
  for (const auto& [choice, answer] : client.answers) EXPECT_EQ(answer.tokens, test::expected_answer(prompt, 2));
  EXPECT_EQ(c.computed, 500 + 3 * 1 + 4);
}

TEST(EnginePrefixCache, ARequestAtTheSameTimeWaitsForWhatItShares) {
  Counting c({.snapshots = 8, .cap = 64});
  const Ids prompt = tokens(600);
  Ids other = prompt;
  other.push_back(5);
  std::vector<Client> clients(3);
  clients[0].send(*c.kitchen.engine, prompt, 2);
  clients[1].send(*c.kitchen.engine, other, 2);
  clients[2].send(*c.kitchen.engine, prompt, 2);
  EXPECT_EQ(clients[0].wait().tokens, test::expected_answer(prompt, 2));
  EXPECT_EQ(clients[1].wait().tokens, test::expected_answer(other, 2));
  EXPECT_EQ(clients[2].wait().tokens, test::expected_answer(prompt, 2));
  EXPECT_LT(c.computed, 600 + 30);
}

TEST(EnginePrefixCache, TheOneThatWaitsGoesOnWhenTheOtherIsAborted) {
  std::atomic<int> steps{0};
  Kitchen kitchen({.snapshots = 8, .cap = 16}, [&](const ops::StepBatch&) {
    ++steps;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  const Ids prompt = tokens(900);
  Client first, second;
  first.send(*kitchen.engine, prompt, 2);
  second.send(*kitchen.engine, prompt, 2);
  ASSERT_TRUE(soon([&] { return steps > 5; }));
  kitchen.engine->abort(first.ticket);
  EXPECT_EQ(second.wait().tokens, test::expected_answer(prompt, 2));
}

TEST(EnginePrefixCache, SaltsAndRefusalsShareNothing) {
  Counting c({.snapshots = 8});
  const Ids prompt = tokens(300);
  const auto cached = [&](const std::string& salt, bool use) {
    Client client;
    Submission s = client.request(prompt, 2);
    s.cache_salt = salt;
    s.use_prefix_cache = use;
    return ask(*c.kitchen.engine, s, client).cached_tokens;
  };
  EXPECT_EQ(cached("", false), 0);
  EXPECT_EQ(cached("", true), 0);
  EXPECT_EQ(cached("", false), 0);
  EXPECT_EQ(cached("a", true), 0);
  EXPECT_EQ(cached("", true), 299);
  EXPECT_EQ(cached("a", true), 299);
  EXPECT_EQ(c.kitchen.engine->metrics().prefix_cache_queries, 4 * 300);  // not of those that refused
  EXPECT_EQ(c.kitchen.engine->metrics().prefix_cache_hits, 2 * 299);
}

TEST(EnginePrefixCache, PromptLogProbabilitiesAreComputedInFull) {
  Counting c({.snapshots = 8});
  const Ids prompt = tokens(100);
  for (int round = 0; round < 2; ++round) {
    Client client;
    Submission s = client.request(prompt, 2);
    s.sampling.prompt_logprobs = 0;
    const Answer a = ask(*c.kitchen.engine, s, client);
    EXPECT_EQ(a.cached_tokens, 0);
    EXPECT_EQ(a.prompt_logprobs.size(), 99u);
  }
}

// What a failed step has written is never found: the rows that were rerun answer as ever, and so do those after them.
TEST(EnginePrefixCache, AFailedStepLeavesNothing) {
  for (const bool loses_all : {false, true}) {
    std::atomic<int> steps{0};
    Kitchen kitchen({.snapshots = 8, .cap = 50, .loses_all = loses_all}, [&](const ops::StepBatch&) {
      if (++steps == 4) throw std::runtime_error("once");
    });
    const Ids prompt = tokens(300);
    for (int round = 0; round < 3; ++round) {
      Client client;
      client.send(*kitchen.engine, prompt, 5);
      EXPECT_EQ(client.wait().tokens, test::expected_answer(prompt, 5)) << loses_all << round;
    }
  }
}

// Many conversations that share beginnings, too little memory for all of them, readers that leave.
TEST(EnginePrefixCache, AnswersAreThoseOfARequestAlone) {
  int64_t hits = 0, preemptions = 0;
  for (int seed = 0; seed < 12; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    Kitchen kitchen({.blocks = 16 + below(40),
                     .slots = 1 + below(8),
                     .snapshots = below(12),
                     .drafts = below(4),
                     .rows = 8,
                     .cap = 1 + below(200),
                     .loses_all = seed % 2 == 0});
    Crowd crowd;
    for (int i = 0; i < 40; ++i) {
      Ids prompt = tokens(1 + below(300), below(2));
      if (below(2) == 0)
        for (const TokenId token : tokens(below(100), i)) prompt.push_back(token);
      const int max_tokens = 1 + below(60);
      std::vector<int> boundaries;
      for (int b = 10 + below(60); b < static_cast<int>(prompt.size()); b += 10 + below(60)) boundaries.push_back(b);
      const auto make = [&](const Client& client) {
        Submission s = client.request(prompt, max_tokens);
        s.boundaries = boundaries;
        return s;
      };
      crowd.send(*kitchen.engine, make, below(8) == 0);
      if (below(6) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(below(4)));
    }
    crowd.expect_answers_as_alone(seed);
    hits += kitchen.engine->metrics().prefix_cache_hits;
    preemptions += kitchen.engine->metrics().preemptions;
  }
  EXPECT_GT(hits, 1000);
  EXPECT_GT(preemptions, 0);
}

}  // namespace
}  // namespace tutti::engine
