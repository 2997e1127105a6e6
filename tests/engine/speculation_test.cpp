// Speculation under the whole engine, with a fake head that is right most of the time: the same answers in fewer steps.
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "client.h"

namespace tutti::engine {
namespace {

struct Counting {
  explicit Counting(KitchenOptions o) : kitchen(o, [this](const ops::StepBatch&) { ++steps; }) {}
  std::atomic<int> steps{0};
  Kitchen kitchen;
};

TEST(EngineSpeculation, RightGuessesSaveSteps) {
  Counting plain({}), guessing({.drafts = 3, .wrong_of = 0});
  const Ids prompt = {1, 2, 3, 4, 5};
  for (Counting* c : {&plain, &guessing}) {
    Client client;
    client.send(*c->kitchen.engine, prompt, 41);
    EXPECT_EQ(client.wait().tokens, test::expected_answer(prompt, 41));
  }
  EXPECT_EQ(plain.steps, 41);
  EXPECT_EQ(guessing.steps, 1 + 10);
}

TEST(EngineSpeculation, WrongGuessesChangeNothing) {
  for (const uint64_t wrong_of : {1, 2, 3, 7}) {
    Counting c({.drafts = 3, .wrong_of = wrong_of});
    for (int seed = 0; seed < 20; ++seed) {
      const Ids prompt = prompt_of(seed);
      Client client;
      client.send(*c.kitchen.engine, prompt, 60);
      EXPECT_EQ(client.wait().tokens, test::expected_answer(prompt, 60)) << wrong_of << " " << seed;
    }
    const Metrics& metrics = c.kitchen.engine->metrics();
    if (wrong_of > 1) {
      EXPECT_GT(metrics.spec_accepted_tokens, 0);
    }
    EXPECT_LT(metrics.spec_accepted_tokens, metrics.spec_draft_tokens);
  }
}

TEST(EngineSpeculation, SampledAnswersAndTheirLogProbabilitiesAreTheSame) {
  Kitchen plain, guessing({.drafts = 3});
  for (int seed = 0; seed < 10; ++seed) {
    std::vector<Answer> answers;
    for (Kitchen* kitchen : {&plain, &guessing}) {
      Client client;
      Submission s = client.request(prompt_of(seed), 50);
      s.sampling.temperature = seed % 2 == 0 ? 0.3f : 1.2f;
      s.sampling.seed = static_cast<uint64_t>(seed);
      s.sampling.presence_penalty = 0.7f;
      s.sampling.repetition_penalty = 1.2f;
      s.sampling.logprobs = true;
      s.sampling.top_logprobs = 3;
      answers.push_back(client.send(*kitchen->engine, s).wait());
    }
    EXPECT_EQ(answers[0].tokens, answers[1].tokens) << seed;
    ASSERT_EQ(answers[1].logprobs.size(), answers[1].tokens.size());
    for (size_t i = 0; i < answers[0].logprobs.size(); ++i) {
      EXPECT_EQ(answers[0].logprobs[i].chosen.logprob, answers[1].logprobs[i].chosen.logprob);
      EXPECT_EQ(answers[0].logprobs[i].chosen.token, answers[1].tokens[i]);
    }
  }
}

TEST(EngineSpeculation, AStopIdInsideTheGuessesEndsThere) {
  Kitchen kitchen({.snapshots = 4, .drafts = 3, .wrong_of = 0});
  const Ids prompt = {9, 8, 7};
  const Ids whole = test::expected_answer(prompt, 30);
  for (size_t at = 0; at < 12; ++at) {
    const Ids wanted = test::expected_answer(prompt, 30, whole[at]);
    Client client;
    Submission s = client.request(prompt, 30);
    s.stop_ids = {whole[at]};
    const Answer a = client.send(*kitchen.engine, s).wait();
    EXPECT_EQ(a.tokens, wanted);
    EXPECT_EQ(a.finish, schedule::FinishReason::stop);
    EXPECT_EQ(a.generated, static_cast<int>(wanted.size()));
  }
}

TEST(EngineSpeculation, LengthLimitsHoldInsideABlock) {
  Kitchen kitchen({.drafts = 3, .max_model_len = 64, .wrong_of = 0});
  for (int max_tokens = 1; max_tokens < 12; ++max_tokens) {
    Client client;
    client.send(*kitchen.engine, {1, 2, 3}, max_tokens);
    EXPECT_EQ(client.wait().tokens, test::expected_answer({1, 2, 3}, max_tokens));
  }
  for (int n = 55; n < 63; ++n) {
    Ids prompt(static_cast<size_t>(n), 5);
    Client client;
    client.send(*kitchen.engine, prompt, 64 - n);
    EXPECT_EQ(client.wait().tokens, test::expected_answer(prompt, 64 - n));
  }
}

TEST(EngineSpeculation, ARequestMayRefuseIt) {
  Kitchen kitchen({.drafts = 3});
  Client client;
  Submission s = client.request({1, 2, 3}, 30);
  s.max_drafts = 0;
  EXPECT_EQ(client.send(*kitchen.engine, s).wait().tokens, test::expected_answer({1, 2, 3}, 30));
  EXPECT_EQ(kitchen.engine->metrics().spec_draft_tokens, 0);
}

TEST(EngineSpeculation, HopelessGuessesAreGivenUp) {
  Kitchen kitchen({.drafts = 3, .wrong_of = 1});
  Client client;
  client.send(*kitchen.engine, {1, 2, 3}, 400);
  EXPECT_EQ(client.wait().tokens, test::expected_answer({1, 2, 3}, 400));
  EXPECT_LT(kitchen.engine->metrics().spec_draft_tokens, 60);
}

TEST(EngineSpeculation, AFailedStepLosesNoToken) {
  for (const bool loses_all : {false, true}) {
    std::atomic<int> steps{0};
    Kitchen kitchen({.snapshots = 4, .drafts = 3, .loses_all = loses_all}, [&](const ops::StepBatch&) {
      if (++steps % 7 == 0) throw std::runtime_error("now and then");
    });
    for (int seed = 0; seed < 6; ++seed) {
      Client client;
      client.send(*kitchen.engine, prompt_of(seed, 60), 40);
      EXPECT_EQ(client.wait().tokens, test::expected_answer(prompt_of(seed, 60), 40)) << loses_all << seed;
    }
  }
}

// A prefix that ends with a block is shared whole: what the head writes behind the prefix lies in blocks of its own.
TEST(EngineSpeculation, TheHeadWritesIntoNoSharedBlock) {
  std::vector<std::pair<int, int32_t>> written;  // first entry of a row, the block it lies in
  Kitchen kitchen({.snapshots = 8, .drafts = 3}, {}, [&](const ops::StepBatch& batch) {
    for (int r = 0; r < batch.R(); ++r) written.emplace_back(batch.first[r], batch.blocks(r)[batch.first[r] / 64]);
  });
  const Ids prompt = Ids(129, 7);
  for (int round = 0; round < 2; ++round) {
    written.clear();
    Client client;
    client.send(*kitchen.engine, prompt, 10);
    const Answer& answer = client.wait();
    EXPECT_EQ(answer.tokens, test::expected_answer(prompt, 10));
    EXPECT_EQ(answer.cached_tokens, round == 0 ? 0 : 128);
  }
  ASSERT_FALSE(written.empty());
  for (const auto& [first, block] : written) EXPECT_GE(first, 128);
}

// Together, with little memory, prefix hits, choices, readers that leave.
TEST(EngineSpeculation, AnswersAreThoseOfARequestAlone) {
  int64_t accepted = 0, hits = 0, preemptions = 0;
  for (int seed = 0; seed < 12; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    Kitchen kitchen({.blocks = 16 + below(8),
                     .slots = 4 + below(9),
                     .snapshots = below(12),
                     .drafts = 1 + below(5),
                     .rows = 12,
                     .cap = 1 + below(100),
                     .loses_all = seed % 2 == 0,
                     .adapt_drafts = seed % 3 == 0,
                     .wrong_of = static_cast<uint64_t>(2 + below(6))});
    Crowd crowd;
    for (int i = 0; i < 30; ++i) {
      Ids prompt = prompt_of(below(6), 300);
      for (int more = below(200); more > 0; --more) prompt.push_back(below(test::kVocab));
      const int max_tokens = 1 + below(90), choices = 1 + below(3);
      crowd.send(
          *kitchen.engine, [&](const Client& client) { return client.request(prompt, max_tokens, choices); },
          below(8) == 0);
    }
    crowd.expect_answers_as_alone(seed);
    accepted += kitchen.engine->metrics().spec_accepted_tokens;
    hits += kitchen.engine->metrics().prefix_cache_hits;
    preemptions += kitchen.engine->metrics().preemptions;
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(hits, 100);
  EXPECT_GT(preemptions, 0);
}

}  // namespace
}  // namespace tutti::engine
