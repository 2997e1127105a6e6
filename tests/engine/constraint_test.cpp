// A grammar under the whole engine: it masks each token of a verified block, and what is not accepted leaves no trace.
#include <gtest/gtest.h>

#include "client.h"
#include "sample/brackets.h"

namespace tutti::engine {
namespace {

using test::Brackets;

Submission constrained(const Client& client, int seed, float temperature) {
  Submission s = client.request(prompt_of(seed, 60), 60);
  s.choices = 1 + seed % 3;
  s.sampling.temperature = temperature;
  s.sampling.seed = static_cast<uint64_t>(seed);
  s.sampling.constraint = std::make_shared<Brackets>();
  s.stop_ids = {Brackets::kEnd};
  if (seed % 4 == 0) s.sampling.frequency_penalty = 0.5f;
  if (seed % 5 == 0) s.sampling.logit_bias = {{Brackets::kEnd, 2.0f}};
  s.sampling.logprobs = true;
  return s;
}

std::map<int, Answer> answers_of(Kitchen& kitchen, int seed, float temperature) {
  Client client;
  return client.send(*kitchen.engine, constrained(client, seed, temperature)).wait_all();
}

TEST(EngineConstraint, AnswersAreOfTheLanguage) {
  int64_t accepted = 0, rejected = 0;
  int ended = 0;
  Kitchen plain;
  Kitchen guessing({.drafts = 3, .wrong_of = 2});
  for (int seed = 0; seed < 60; ++seed) {
    const float temperature = seed % 2 == 0 ? 0.0f : 1.2f;
    const auto alone = answers_of(plain, seed, temperature), with = answers_of(guessing, seed, temperature);
    for (const auto& [choice, answer] : alone) {
      EXPECT_TRUE(Brackets::begins(answer.tokens)) << seed;
      EXPECT_TRUE(answer.finish == schedule::FinishReason::stop || answer.tokens.size() == 60u) << seed;
      ended += answer.finish == schedule::FinishReason::stop ? 1 : 0;
      EXPECT_EQ(with.at(choice).tokens, answer.tokens) << seed;
      EXPECT_EQ(with.at(choice).finish, answer.finish) << seed;
      for (size_t i = 0; i < answer.logprobs.size(); ++i)
        EXPECT_EQ(with.at(choice).logprobs[i].chosen.logprob, answer.logprobs[i].chosen.logprob);
    }
  }
  accepted = guessing.engine->metrics().spec_accepted_tokens;
  rejected = guessing.engine->metrics().spec_draft_tokens - accepted;
  EXPECT_GT(accepted, 20);  // the fake guesses without knowing the grammar
  EXPECT_GT(rejected, 100);
  EXPECT_GT(ended, 10);
}

TEST(EngineConstraint, InACrowdUnderLittleMemoryAndAfterFaults) {
  std::atomic<int> steps{0};
  Kitchen plain;
  Kitchen crowded({.blocks = 8, .snapshots = 3, .drafts = 2, .cap = 40, .max_model_len = 384, .wrong_of = 4},
                  [&](const ops::StepBatch&) {
                    if (++steps % 9 == 0) throw std::runtime_error("now and then");
                  });
  std::vector<Client> clients(20);
  for (int i = 0; i < 20; ++i) clients[i].send(*crowded.engine, constrained(clients[i], i, 1.0f));
  for (int i = 0; i < 20; ++i) {
    const auto alone = answers_of(plain, i, 1.0f);
    for (const auto& [choice, answer] : clients[i].wait_all()) {
      if (answer.error_code == "internal_error") continue;  // its step failed twice
      EXPECT_EQ(answer.tokens, alone.at(choice).tokens) << i;
    }
  }
}

TEST(EngineConstraint, WhereNothingMayComeTheRowEndsWithGrammarError) {
  Kitchen kitchen({.drafts = 2});
  Client client;
  Submission s = constrained(client, 1, 0);
  s.choices = 1;
  s.sampling.bad_words = {{Brackets::kOpen}};
  EXPECT_EQ(client.send(*kitchen.engine, s).wait().error_code, "grammar_error");
}

}  // namespace
}  // namespace tutti::engine
