#include "engine/engine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <latch>
#include <random>

#include "base/error.h"
#include "engine/client.h"

namespace tutti::engine {
namespace {

using schedule::FinishReason;
using test::expected_answer;
using test::kNan;
using test::kThrows;

void expect_answer(const Answer& answer, const Ids& prompt, int max_tokens) {
  EXPECT_EQ(answer.tokens, expected_answer(prompt, max_tokens));
  EXPECT_EQ(answer.finish, FinishReason::length);
  EXPECT_EQ(answer.starts, 1);
  EXPECT_EQ(answer.events_before_start, 0);
  EXPECT_EQ(answer.prompt_tokens, static_cast<int>(prompt.size()));
  EXPECT_EQ(answer.generated, max_tokens);
}

// n requests at once; each must be answered as if it were alone.
void run_many(Kitchen& kitchen, int n, int longest, int max_tokens) {
  std::vector<Client> clients(n);
  for (int i = 0; i < n; ++i) clients[i].send(*kitchen.engine, prompt_of(i, longest), max_tokens + i % 7);
  for (int i = 0; i < n; ++i) expect_answer(clients[i].wait(), prompt_of(i, longest), max_tokens + i % 7);
  EXPECT_TRUE(soon([&] { return kitchen.engine->health().running == 0; }));
  EXPECT_EQ(kitchen.engine->health().waiting, 0);
}

TEST(Engine, answers_one) {
  Kitchen kitchen;
  Client client;
  expect_answer(client.send(*kitchen.engine, {1, 2, 3}, 5).wait(), {1, 2, 3}, 5);
}

TEST(Engine, answers_many_as_if_each_were_alone) {
  for (const int cap : {2048, 64, 16, 3}) {
    Kitchen kitchen({.cap = cap});
    run_many(kitchen, 40, 200, 20);
  }
}

TEST(Engine, preemption_changes_no_answer) {
  Kitchen kitchen({.blocks = 6, .max_model_len = 384});
  run_many(kitchen, 30, 150, 60);
  EXPECT_GT(kitchen.engine->metrics().preemptions, 0);
}

TEST(Engine, one_slot_serves_all) {
  Kitchen kitchen({.slots = 1});
  run_many(kitchen, 20, 50, 5);
}

TEST(Engine, stops_at_a_stop_id) {
  const Ids whole = expected_answer({9, 8, 7}, 40);
  const TokenId stop = whole[5];
  Kitchen kitchen;
  Client client;
  Submission s = client.request({9, 8, 7}, 40);
  s.stop_ids = {99, stop, 3000};
  const Answer& answer = client.send(*kitchen.engine, s).wait();
  EXPECT_EQ(answer.tokens, expected_answer({9, 8, 7}, 40, stop));
  EXPECT_EQ(answer.finish, FinishReason::stop);
  EXPECT_EQ(answer.stop_token, stop);
}

TEST(Engine, choices_draw_for_themselves_and_the_same_in_any_company) {
  std::map<int, Ids> alone;
  for (const bool company : {false, true}) {
    Kitchen kitchen({.cap = company ? 16 : 2048});
    std::vector<Client> others(company ? 20 : 0);
    for (size_t i = 0; i < others.size(); ++i) others[i].send(*kitchen.engine, prompt_of(static_cast<int>(i)), 30);
    Client client;
    Submission s = client.request({4, 5, 6}, 25, 3);
    s.first_choice = company ? 6 : 0;  // its place in a larger request changes nothing
    s.sampling.temperature = 1;
    s.sampling.seed = 42;
    for (const auto& [choice, answer] : client.send(*kitchen.engine, s).wait_all()) {
      EXPECT_EQ(answer.tokens.size(), 25u);
      const int index = choice - s.first_choice;
      if (company)
        EXPECT_EQ(answer.tokens, alone[index]);
      else
        alone[index] = answer.tokens;
    }
    EXPECT_EQ(client.answers.size(), 3u);
    for (Client& other : others) other.wait();
  }
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_NE(alone[1], alone[2]);
}

TEST(Engine, an_abort_frees_the_row_and_disturbs_nobody) {
  Gate gate(400);
  Kitchen kitchen({.cap = 32}, [&](const ops::StepBatch&) { gate.pass(); });
  std::vector<Client> stay(8), leave(24);
  for (int i = 0; i < 8; ++i) stay[i].send(*kitchen.engine, prompt_of(i), 200);
  for (int i = 0; i < 24; ++i) leave[i].send(*kitchen.engine, prompt_of(100 + i), 500);
  std::mt19937 random(1);
  for (Client& client : leave) {
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    kitchen.engine->abort(client.ticket);
    kitchen.engine->abort(client.ticket);
  }
  gate.open();
  for (int i = 0; i < 24; ++i) {
    const Answer& answer = leave[i].wait();
    EXPECT_EQ(answer.finish, FinishReason::abort);
    EXPECT_EQ(answer.generated, static_cast<int>(answer.tokens.size()));
    EXPECT_EQ(answer.prompt_tokens, static_cast<int>(prompt_of(100 + i).size()));
    const Ids whole = expected_answer(prompt_of(100 + i), 500);
    EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.begin()));
  }
  for (int i = 0; i < 8; ++i) expect_answer(stay[i].wait(), prompt_of(i), 200);
  EXPECT_TRUE(soon([&] { return kitchen.engine->health().running == 0; }));
  EXPECT_EQ(kitchen.engine->metrics().kv_blocks_used, 0);
}

TEST(Engine, one_choice_can_be_stopped_and_an_ended_ticket_aborted) {
  Gate gate(20);
  Kitchen kitchen({}, [&](const ops::StepBatch&) { gate.pass(); });
  Client client;
  client.send(*kitchen.engine, client.request({1, 2}, 900, 3));
  kitchen.engine->stop_choice(client.ticket, 1);
  kitchen.engine->stop_choice(client.ticket, 7);
  gate.open();
  client.wait_all();
  EXPECT_EQ(client.answers[0].finish, FinishReason::length);
  EXPECT_EQ(client.answers[1].finish, FinishReason::stop);
  EXPECT_EQ(client.answers[2].generated, 900);
  EXPECT_TRUE(soon([&] { return kitchen.engine->metrics().finished_stop == 1; }));
  EXPECT_EQ(kitchen.engine->metrics().finished_abort, 0);
  kitchen.engine->abort(client.ticket);
  kitchen.engine->abort(Ticket{});
  run_many(kitchen, 3, 20, 3);
}

TEST(Engine, a_full_stream_pauses_its_row_and_goes_on_when_read) {
  Kitchen kitchen;
  Client slow(5), quick;
  slow.send(*kitchen.engine, {1, 2, 3}, 300);
  expect_answer(quick.send(*kitchen.engine, {4, 5}, 200).wait(), {4, 5}, 200);
  ASSERT_TRUE(soon([&] { return slow.full(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(kitchen.engine->health().last_progress_s, 0) << "waiting for a reader is not a stall";
  slow.read();
  EXPECT_LE(slow.answers[0].tokens.size(), 5u);
  expect_answer(slow.wait(), {1, 2, 3}, 300);
}

TEST(Engine, slow_readers_under_little_memory_get_true_answers) {
  Kitchen kitchen({.blocks = 6, .max_model_len = 384});
  std::vector<Client> clients;
  for (int i = 0; i < 12; ++i) clients.emplace_back(3 + i % 4);
  for (int i = 0; i < 12; ++i) clients[i].send(*kitchen.engine, prompt_of(i, 100), 100);
  for (int i = 11; i >= 0; --i) expect_answer(clients[i].wait(), prompt_of(i, 100), 100);
}

TEST(Engine, a_row_that_throws_fails_alone_with_its_true_counts) {
  for (const bool loses_all : {false, true}) {
    Kitchen kitchen({.loses_all = loses_all});
    std::vector<Client> clients(10);
    for (int i = 0; i < 10; ++i) clients[i].send(*kitchen.engine, prompt_of(i), 50);
    for (Client& client : clients) client.wait_for_tokens(3);
    Client bad;
    const Answer& failed = bad.send(*kitchen.engine, {1, 2, kThrows, 4}, 50).wait();
    EXPECT_EQ(failed.finish, FinishReason::error);
    EXPECT_EQ(failed.error_code, "internal_error");
    EXPECT_EQ(failed.prompt_tokens, 4);
    EXPECT_EQ(failed.generated, 0);
    for (int i = 0; i < 10; ++i) expect_answer(clients[i].wait(), prompt_of(i), 50);
    run_many(kitchen, 5, 50, 5);
  }
}

TEST(Engine, a_fault_in_the_last_chunk_of_a_long_prompt_is_found) {
  Kitchen kitchen({.cap = 16});
  Client bad, good;
  Ids prompt(200, 3);
  prompt.push_back(kThrows);
  bad.send(*kitchen.engine, prompt, 50);
  good.send(*kitchen.engine, {1, 2, 3}, 400);
  EXPECT_EQ(bad.wait().error_code, "internal_error");
  expect_answer(good.wait(), {1, 2, 3}, 400);
}

TEST(Engine, a_step_that_fails_once_is_noticed_by_nobody) {
  std::atomic<int> steps = 0;
  Kitchen kitchen({.blocks = 12, .max_model_len = 384}, [&](const ops::StepBatch& batch) {
    if (batch.R() > 1 && ++steps % 5 == 0) throw std::bad_alloc();
  });
  run_many(kitchen, 20, 100, 30);
}

TEST(Engine, rows_that_fail_only_together_still_finish) {
  Kitchen kitchen({}, [](const ops::StepBatch& batch) {
    if (batch.R() > 1) throw 42;  // not even an exception
  });
  run_many(kitchen, 5, 50, 10);
}

TEST(Engine, logits_that_are_not_finite_end_their_row_with_numerical_error) {
  Kitchen kitchen;
  Client bad, good;
  good.send(*kitchen.engine, {1, 2, 3}, 100);
  const Answer& failed = bad.send(*kitchen.engine, {1, kNan, 3}, 100).wait();
  EXPECT_EQ(failed.finish, FinishReason::error);
  EXPECT_EQ(failed.error_code, "numerical_error");
  EXPECT_EQ(failed.prompt_tokens, 3);
  EXPECT_EQ(failed.generated, 0);
  expect_answer(good.wait(), {1, 2, 3}, 100);
}

TEST(Engine, no_legal_token_ends_the_row_with_grammar_error) {
  Kitchen kitchen;
  Client client;
  Submission s = client.request({1, 2, 3}, 10);
  s.sampling.allowed = {7};
  s.sampling.bad_words = {{7}};
  const Answer& failed = client.send(*kitchen.engine, s).wait();
  EXPECT_EQ(failed.finish, FinishReason::error);
  EXPECT_EQ(failed.error_code, "grammar_error");
}

TEST(Engine, a_submission_that_breaks_the_rules_ends_alone) {
  Kitchen kitchen({.max_model_len = 128});
  Client bad;
  const Answer& failed = bad.send(*kitchen.engine, Ids(500, 1), 10).wait();
  EXPECT_EQ(failed.finish, FinishReason::error);
  EXPECT_EQ(failed.error_code, "internal_error");
  EXPECT_EQ(failed.prompt_tokens, 500);
  run_many(kitchen, 3, 20, 3);
}

TEST(Engine, lives_on_when_even_the_recovery_throws) {
  std::atomic<bool> fails = false;
  Kitchen* self = nullptr;
  Kitchen kitchen({}, [&](const ops::StepBatch&) {
    self->store->recover_throws = fails.load();
    if (fails) throw std::runtime_error("broken");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // nobody may be done before it fails
  });
  self = &kitchen;
  std::vector<Client> clients(3);
  for (Client& client : clients) client.send(*kitchen.engine, {1, 2, 3}, 900);
  for (Client& client : clients) client.wait_for_tokens(2);
  fails = true;
  for (Client& client : clients) {
    const Answer& answer = client.wait();
    EXPECT_EQ(answer.error_code, "internal_error");
    EXPECT_EQ(answer.generated, static_cast<int>(answer.tokens.size()));
  }
  fails = false;
  run_many(kitchen, 5, 50, 10);
  EXPECT_EQ(kitchen.engine->metrics().kv_blocks_used, 0);
}

TEST(Engine, a_reader_whose_notification_throws_harms_nobody) {
  Kitchen kitchen;
  Client good;
  Submission s = good.request({5}, 3);
  s.stream = std::make_shared<Stream>(100, [] { throw std::runtime_error("reader is gone"); });
  kitchen.engine->submit(s);
  run_many(kitchen, 3, 20, 3);
}

TEST(Engine, prompt_logprobs_arrive_once_and_also_without_tokens) {
  for (const int max_tokens : {0, 3}) {
    Kitchen kitchen({.cap = 16});
    Client client, other;
    other.send(*kitchen.engine, {1, 2, 3}, 100);
    Submission s = client.request(Ids(100, 5), max_tokens);
    s.sampling.prompt_logprobs = 1;
    s.sampling.logprobs = true;
    const Answer& answer = client.send(*kitchen.engine, s).wait();
    EXPECT_EQ(answer.prompt_logprobs.size(), 99u);
    EXPECT_EQ(answer.logprobs.size(), static_cast<size_t>(max_tokens));
    EXPECT_EQ(answer.generated, max_tokens);
    EXPECT_EQ(answer.finish, FinishReason::length);
    other.wait();
  }
}

TEST(Engine, refuses_when_the_queue_is_full) {
  std::latch gate(1);
  Kitchen kitchen({.rows = 1, .max_queue = 2}, [&](const ops::StepBatch&) { gate.wait(); });
  std::vector<Client> clients(4);
  for (Client& client : clients) client.send(*kitchen.engine, {1, 2, 3}, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(clients[i].ticket.admission, Admission::accepted);
  EXPECT_EQ(clients[3].ticket.admission, Admission::queue_full);
  EXPECT_EQ(kitchen.engine->health().waiting + kitchen.engine->health().running, 3);
  EXPECT_GE(kitchen.engine->retry_after_s(), 1);
  EXPECT_LE(kitchen.engine->retry_after_s(), 60);
  gate.count_down();
  for (int i = 0; i < 3; ++i) expect_answer(clients[i].wait(), {1, 2, 3}, 3);
  EXPECT_EQ(clients[3].send(*kitchen.engine, {1, 2, 3}, 3).ticket.admission, Admission::accepted);
  clients[3].wait();
}

TEST(Engine, drain_lets_rows_finish_and_refuses_new_ones) {
  Kitchen kitchen;
  Client client, late;
  client.send(*kitchen.engine, {1, 2, 3}, 300);
  kitchen.engine->drain(std::chrono::seconds(60));
  late.send(*kitchen.engine, {1, 2, 3}, 3);
  EXPECT_EQ(late.ticket.admission, Admission::draining);
  expect_answer(client.wait(), {1, 2, 3}, 300);
}

TEST(Engine, drain_ends_what_is_left_at_the_deadline) {
  Kitchen kitchen;
  Client stuck(4);  // nobody reads: it would never finish
  stuck.send(*kitchen.engine, {1, 2, 3}, 300);
  ASSERT_TRUE(soon([&] { return stuck.full(); }));
  kitchen.engine->drain(std::chrono::seconds(0));
  const Answer& answer = stuck.wait();
  EXPECT_EQ(answer.finish, FinishReason::error);
  EXPECT_EQ(answer.error_code, "server_draining");
  EXPECT_EQ(answer.generated, static_cast<int>(answer.tokens.size()));
  EXPECT_EQ(answer.prompt_tokens, 3);
}

TEST(Engine, the_destructor_ends_what_runs_and_what_waits) {
  std::vector<Client> clients(30);
  {
    Kitchen kitchen({.rows = 2});
    for (Client& client : clients) client.send(*kitchen.engine, {1, 2, 3}, 1000);
  }
  for (Client& client : clients) EXPECT_EQ(client.wait().error_code, "server_draining");
}

TEST(Engine, is_unhealthy_only_while_work_waits_and_nothing_moves) {
  std::latch gate(1);
  Kitchen kitchen({.watchdog = std::chrono::seconds(0)}, [&](const ops::StepBatch&) { gate.wait(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(kitchen.engine->health().healthy);
  EXPECT_EQ(kitchen.engine->health().last_progress_s, 0);
  Client client;
  client.send(*kitchen.engine, {1, 2, 3}, 3);
  EXPECT_TRUE(soon([&] { return !kitchen.engine->health().healthy; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GT(kitchen.engine->health().last_progress_s, 0.004);
  gate.count_down();
  client.wait();
  EXPECT_TRUE(soon([&] { return kitchen.engine->health().healthy; }));
  EXPECT_EQ(kitchen.engine->health().last_progress_s, 0);
}

TEST(Engine, sleeps_while_idle) {
  Kitchen kitchen;
  run_many(kitchen, 2, 10, 3);
  const auto processor_ms = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return 1e3 * static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-3 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  // The calmest of several windows: libraries' threads may still be settling after the requests; a loop that spins
  // never is calm.
  double calmest = 1e9;
  for (int window = 0; window < 10 && calmest > 10; ++window) {
    const double before = processor_ms();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    calmest = std::min(calmest, processor_ms() - before);
  }
  EXPECT_LT(calmest, 10);
}

TEST(Engine, keeps_chunks_within_the_time_of_a_step) {
  std::atomic<int> steps = 0, longest = 0;
  Kitchen kitchen({.blocks = 300, .max_model_len = 16000, .step_budget = std::chrono::milliseconds(5)},
                  [&](const ops::StepBatch& batch) {
                    std::this_thread::sleep_for(std::chrono::microseconds(20 * batch.T()));
                    ++steps;
                    longest = std::max(longest.load(), batch.T());
                  });
  Client decoding, client;
  decoding.send(*kitchen.engine, {1, 2, 3}, 8000);
  decoding.wait_for_tokens(3);
  client.send(*kitchen.engine, Ids(4000, 3), 1).wait();
  kitchen.engine->abort(decoding.ticket);
  decoding.wait();
  EXPECT_LT(longest, 750);  // 5 ms are 250 tokens; without the budget it would be the cap of 2048
}

TEST(Engine, what_make_runner_throws_comes_out_of_the_constructor) {
  EXPECT_THROW(
      Engine({.schedule = {.max_model_len = 64}}, std::make_unique<cache::CacheManager>(cache::ManagerOptions{1, 1}),
             []() -> std::unique_ptr<run::Runner> { throw LoadError("no weights"); }),
      LoadError);
  EXPECT_THROW(Kitchen({.blocks = 1, .max_model_len = 128}), InvariantError);
}

TEST(Engine, tells_how_far_a_long_prompt_is) {
  Kitchen kitchen({.cap = 50, .progress_every = std::chrono::milliseconds(0)});
  Client slow, quick;
  const Answer& answer = slow.send(*kitchen.engine, Ids(220, 3), 5).wait();
  ASSERT_GE(answer.progress.size(), 4u);  // at most 50 tokens a step
  EXPECT_TRUE(std::ranges::is_sorted(answer.progress));
  EXPECT_LT(answer.progress.back(), 220);
  EXPECT_TRUE(quick.send(*kitchen.engine, Ids(40, 3), 5).wait().progress.empty());
}

TEST(Engine, counts_add_up) {
  Kitchen kitchen({.blocks = 6, .max_model_len = 384});
  std::vector<Client> clients(20);
  for (int i = 0; i < 20; ++i)
    clients[i].send(*kitchen.engine, i == 3 ? Ids{1, kThrows} : i == 4 ? Ids{1, kNan} : prompt_of(i), 30);
  kitchen.engine->abort(clients[7].ticket);
  int64_t generated = 0, prompts = 0;
  for (Client& client : clients) {
    const Answer& answer = client.wait();
    generated += static_cast<int64_t>(answer.tokens.size());
    if (answer.finish == FinishReason::length) prompts += answer.prompt_tokens;
  }
  const Metrics& m = kitchen.engine->metrics();
  EXPECT_TRUE(soon([&] { return m.kv_blocks_used == 0 && m.running == 0; }));
  EXPECT_EQ(m.generation_tokens, generated);
  EXPECT_GE(m.prompt_tokens, prompts);
  EXPECT_EQ(m.finished_error, 2);
  EXPECT_EQ(m.finished_length + m.finished_abort, 18);
  EXPECT_EQ(m.waiting, 0);
}

TEST(Engine, answers_a_thousand_quick_ones_from_several_threads) {
  Kitchen kitchen({.cap = 256, .max_queue = 2000});
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<Client> clients(250);
      for (int i = 0; i < 250; ++i) clients[i].send(*kitchen.engine, prompt_of(1000 * t + i, 12), 4);
      for (int i = 0; i < 250; ++i)
        right += clients[i].wait().tokens == expected_answer(prompt_of(1000 * t + i, 12), 4) ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 1000);
}

}  // namespace
}  // namespace tutti::engine
