#include "run/runner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "run/fake_model.h"

namespace tutti::run {
namespace {

using schedule::StepPlan;
using test::FakeModel;
using test::FakeStore;

sample::SamplingParams greedy() {
  sample::SamplingParams params;
  params.temperature = 0;
  return params;
}

// One runner with its scheduler and caches, stepped by hand.
struct Bench {
  Bench() : Bench(100) {}
  explicit Bench(int blocks)
      : caches({.blocks = blocks, .slots = 8}), scheduler({.max_model_len = 64 * blocks}, caches) {
    auto made = std::make_unique<FakeStore>(blocks, 8);
    store = made.get();
    runner = std::make_unique<Runner>(model, std::move(made), ops::Numerics{}, nullptr, nullptr);
    model->before = [this](const ops::StepBatch& b) {
      batch = b;
      if (throws) throw std::runtime_error("broken");
    };
  }

  void add(int id, std::vector<TokenId> prompt, sample::SamplingParams params, int max_tokens = 100) {
    auto request = std::make_shared<schedule::Request>();
    request->id = SequenceId{id};
    request->prompt = prompt;
    request->max_tokens = max_tokens;
    request->logits_from = params.prompt_logprobs >= 0 ? 0 : -1;
    scheduler.add(request);
    runner->add(SequenceId{id}, std::move(params), 0, prompt);
  }

  std::vector<RowResult> step(int budget = 1 << 20) {
    plan = scheduler.plan(budget);
    std::vector<RowResult> results = runner->run(plan, scheduler, caches);
    std::vector<schedule::SampledToken> sampled;
    for (const RowResult& r : results) sampled.push_back(r.token);
    scheduler.commit(plan, sampled);
    return results;
  }

  std::shared_ptr<FakeModel> model = std::make_shared<FakeModel>();
  FakeStore* store = nullptr;
  cache::CacheManager caches;
  schedule::Scheduler scheduler;
  std::unique_ptr<Runner> runner;
  StepPlan plan;
  ops::StepBatch batch;
  bool throws = false;
};

using Ints = std::vector<int32_t>;

TEST(Runner, assembles_rows_one_after_another_without_padding) {
  Bench bench;
  bench.add(1, {5, 6, 7}, greedy());
  bench.step();
  const TokenId next = bench.scheduler.find(SequenceId{1})->tokens.back();
  bench.add(2, Ints(70, 9), greedy());
  bench.step();
  EXPECT_EQ(bench.batch.T(), 71);
  EXPECT_EQ(bench.batch.R(), 2);
  EXPECT_EQ(bench.batch.tokens[0], next);
  EXPECT_EQ(bench.batch.row_begin, Ints({0, 1, 71}));
  EXPECT_EQ(bench.batch.first, Ints({3, 0}));
  EXPECT_EQ(bench.batch.block_begin, Ints({0, 1, 3}));
  EXPECT_EQ(bench.batch.block_table.size(), 3u);
  EXPECT_NE(bench.batch.slot[0], bench.batch.slot[1]);
  EXPECT_EQ(bench.batch.logits_of, Ints({0, 70}));
  ASSERT_EQ(bench.batch.positions.size(), 3u * 71);
  for (int axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(bench.batch.positions[axis * 71], 3);
    EXPECT_EQ(bench.batch.positions[axis * 71 + 1], 0);
    EXPECT_EQ(bench.batch.positions[axis * 71 + 70], 69);
  }
}

TEST(Runner, an_unfinished_prompt_wants_no_logits_and_samples_nothing) {
  Bench bench;
  bench.add(1, Ints(50, 3), greedy());
  const auto results = bench.step(20);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(bench.batch.L(), 0);
  EXPECT_EQ(results[0].token.token, -1);
  EXPECT_FALSE(results[0].token.failed);
}

TEST(Runner, samples_what_the_model_says) {
  Bench bench;
  const std::vector<TokenId> prompt{1, 2, 3};
  bench.add(1, prompt, greedy());
  bench.add(2, Ints(100, 4), greedy());
  std::vector<TokenId> answer;
  for (int i = 0; i < 10; ++i) answer.push_back(bench.step(30)[0].token.token);
  EXPECT_EQ(answer, test::expected_answer(prompt, 10));
}

TEST(Runner, prompt_logprobs_cover_the_prompt_whatever_the_chunks) {
  sample::SamplingParams params = greedy();
  params.prompt_logprobs = 2;
  const std::vector<TokenId> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  std::vector<std::vector<sample::Logprobs>> seen;
  for (const int budget : {100, 16, 17}) {
    Bench bench;
    bench.add(1, prompt, params);
    std::vector<sample::Logprobs>& all = seen.emplace_back();
    while (bench.scheduler.decoding() == 0) {
      const auto results = bench.step(budget);
      all.insert(all.end(), results[0].prompt_logprobs.begin(), results[0].prompt_logprobs.end());
    }
    ASSERT_EQ(all.size(), prompt.size() - 1);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].chosen.token, prompt[i + 1]);
      EXPECT_EQ(all[i].chosen.logprob, seen[0][i].chosen.logprob);
      EXPECT_EQ(all[i].top.size(), 2u);
    }
    EXPECT_TRUE(bench.step()[0].prompt_logprobs.empty());
  }
}

TEST(Runner, logits_that_are_not_finite_fail_their_row_only) {
  Bench bench;
  bench.add(1, {1, test::kNan}, greedy());
  bench.add(2, {1, 2}, greedy());
  const auto results = bench.step();
  EXPECT_TRUE(results[0].token.failed);
  EXPECT_EQ(results[0].token.token, -1);
  EXPECT_EQ(results[0].fault, sample::Fault::non_finite_logits);
  EXPECT_FALSE(results[1].token.failed);
  EXPECT_EQ(results[1].token.token, test::expected_answer({1, 2}, 1)[0]);
}

TEST(Runner, prompt_logprobs_that_are_not_finite_fail_the_row) {
  sample::SamplingParams params = greedy();
  params.prompt_logprobs = 0;
  Bench bench;
  bench.add(1, {1, test::kNan, 3, 4}, params);
  const auto results = bench.step();
  EXPECT_TRUE(results[0].token.failed);
  EXPECT_TRUE(results[0].prompt_logprobs.empty());
}

TEST(Runner, a_step_that_throws_changes_no_row_state) {
  Bench bench;
  sample::SamplingParams params = greedy();
  params.frequency_penalty = 1.5f;
  std::vector<std::vector<TokenId>> answers;
  for (const bool fail : {false, true}) {
    bench.add(fail, {1, 2, 3}, params, 30);
    std::vector<TokenId>& answer = answers.emplace_back();
    while (bench.scheduler.has_work()) {
      if (fail && answer.size() % 3 == 1 && !bench.throws) {
        bench.throws = true;
        const StepPlan plan = bench.scheduler.plan(100);
        EXPECT_THROW(bench.runner->run(plan, bench.scheduler, bench.caches), std::runtime_error);
        bench.scheduler.roll_back(plan, bench.runner->recover());
        bench.throws = false;
        const auto results = bench.step();  // recomputes all of it
        answer.push_back(results[0].token.token);
        continue;
      }
      answer.push_back(bench.step()[0].token.token);
    }
    bench.runner->remove(SequenceId{fail});
  }
  EXPECT_EQ(answers[0].size(), 30u);
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_GT(bench.store->recoveries, 3);
}

TEST(Runner, says_when_all_sequences_lost_their_caches) {
  Bench bench;
  EXPECT_FALSE(bench.runner->recover());
  bench.store->loses_all = true;
  EXPECT_TRUE(bench.runner->recover());
}

}  // namespace
}  // namespace tutti::run
