#include "schedule/scheduler.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "schedule/desk.h"

namespace tutti::schedule {
namespace {

TEST(Scheduler, a_prompt_runs_in_chunks_and_then_decodes) {
  Desk desk;
  desk.add({.id = 1, .prompt = 100, .max_tokens = 3});
  EXPECT_EQ(desk.step(64), "1@0+64");
  EXPECT_EQ(desk.step(64), "1@64+36!");
  EXPECT_EQ(desk.step(64), "1@100+1!");
  EXPECT_EQ(desk.scheduler.decoding(), 1);
  EXPECT_EQ(desk.step(64), "1@101+1!");
  EXPECT_EQ(desk.ended.at(1).finish, FinishReason::length);
  EXPECT_EQ(desk.ended.at(1).prompt_tokens, 100);
  EXPECT_EQ(desk.ended.at(1).generated, 3);
  EXPECT_EQ(desk.scheduler.find(Desk::seq(1)), nullptr);
  EXPECT_EQ(desk.caches.free_blocks(), 1000);
  EXPECT_FALSE(desk.scheduler.has_work());
  EXPECT_EQ(desk.step(), "");
}

TEST(Scheduler, prompts_and_decoded_tokens_share_a_step) {
  Desk desk;
  desk.add({.id = 1, .prompt = 10});
  EXPECT_EQ(desk.step(), "1@0+10!");
  desk.add({.id = 2, .prompt = 100});
  EXPECT_EQ(desk.step(41), "1@10+1! 2@0+40");
  EXPECT_EQ(desk.step(41), "1@11+1! 2@40+40");
  EXPECT_EQ(desk.step(41), "1@12+1! 2@80+20!");
  EXPECT_EQ(desk.step(41), "1@13+1! 2@100+1!");
}

TEST(Scheduler, a_small_budget_still_gives_prompts_their_minimum_under_the_cap) {
  Desk desk({.cap = 20, .min_prompt = 16});
  desk.add({.id = 1, .prompt = 5});
  desk.step();
  desk.add({.id = 2, .prompt = 100});
  EXPECT_EQ(desk.step(1), "1@5+1! 2@0+16");
  Desk tight({.cap = 8, .min_prompt = 16});
  tight.add({.id = 1, .prompt = 5});
  tight.step();
  tight.add({.id = 2, .prompt = 100});
  EXPECT_EQ(tight.step(1), "1@5+1! 2@0+7");
}

TEST(Scheduler, a_short_prompt_is_not_stuck_behind_a_long_one_nor_the_long_one_behind_short_ones) {
  Desk desk;
  desk.add({.id = 1, .prompt = 4000});
  desk.step(100);
  desk.add({.id = 2, .prompt = 30, .max_tokens = 1});
  EXPECT_EQ(desk.step(100), "1@100+70 2@0+30!");
  for (int id = 3; id < 20; ++id) desk.add({.id = id, .prompt = 40, .max_tokens = 1});
  EXPECT_EQ(desk.step(100), "1@170+50 3@0+40! 4@0+10");
  EXPECT_EQ(desk.step(100), "1@220+50 4@10+30! 5@0+20");
}

TEST(Scheduler, rows_take_turns_when_the_cap_is_below_their_number) {
  Desk desk({.cap = 2, .min_prompt = 1});
  for (int id = 1; id <= 3; ++id) desk.add({.id = id, .prompt = 1});
  while (desk.scheduler.decoding() < 3) desk.step();
  std::map<int64_t, int> served;
  for (int i = 0; i < 30; ++i) {
    const StepPlan plan = desk.plan();
    EXPECT_LE(plan.tokens(), 2);
    for (const PlannedRow& row : plan.rows) ++served[row.sequence.value];
    desk.commit(plan);
  }
  EXPECT_EQ(served.size(), 3u);
  for (const auto& [id, n] : served) EXPECT_NEAR(n, 20, 1) << id;
}

TEST(Scheduler, a_prompt_gets_in_when_decoding_rows_fill_the_cap) {
  for (const int cap : {1, 2, 4, 16}) {
    Desk desk({.cap = cap, .min_prompt = 16});
    for (int id = 1; id <= cap; ++id) {
      desk.add({.id = id, .prompt = 1});
      while (desk.scheduler.decoding() < id) desk.step();
    }
    desk.add({.id = 99, .prompt = 8, .max_tokens = 1});
    std::map<int64_t, int> last;
    for (int i = 0; i < 40 && !desk.ended.contains(99); ++i) {
      const StepPlan plan = desk.plan();
      for (const PlannedRow& row : plan.rows) last[row.sequence.value] = i;
      desk.commit(plan);
      for (int id = 1; id <= cap; ++id) EXPECT_GE(last[id], i - 1) << "a stream stalls for more than one step";
    }
    EXPECT_TRUE(desk.ended.contains(99)) << cap;
  }
}

TEST(Scheduler, a_row_is_admitted_when_its_next_step_fits) {
  Desk desk({.blocks = 3, .max_model_len = 192});
  desk.add({.id = 1, .prompt = 100});
  EXPECT_EQ(desk.step(), "1@0+100!");
  desk.add({.id = 2, .prompt = 100});
  EXPECT_EQ(desk.step(), "1@100+1! 2@0+64");  // one block is free
  EXPECT_EQ(desk.step(), "1@101+1!");         // 2 waits with its caches
  EXPECT_EQ(desk.scheduler.running(), 2);
}

TEST(Scheduler, waits_for_a_slot) {
  Desk desk({.slots = 1});
  desk.add({.id = 1, .prompt = 10, .max_tokens = 2});
  desk.add({.id = 2, .prompt = 10, .max_tokens = 2});
  EXPECT_EQ(desk.step(), "1@0+10!");
  EXPECT_EQ(desk.scheduler.waiting(), 1);
  EXPECT_EQ(desk.step(), "1@10+1!");
  EXPECT_EQ(desk.step(), "2@0+10!");
}

TEST(Scheduler, the_youngest_is_preempted_and_recomputed_when_all_of_it_fits) {
  Desk desk({.blocks = 4, .max_model_len = 256});
  desk.add({.id = 1, .prompt = 127, .max_tokens = 3});
  desk.add({.id = 2, .prompt = 127});
  EXPECT_EQ(desk.step(), "1@0+127! 2@0+127!");
  EXPECT_EQ(desk.step(), "1@127+1! 2@127+1!");
  EXPECT_EQ(desk.preempted, "");
  EXPECT_EQ(desk.step(), "1@128+1!");  // needs a third block
  EXPECT_EQ(desk.preempted, "2");
  EXPECT_EQ(desk.scheduler.preemptions(), 1);
  EXPECT_EQ(desk.ended.at(1).generated, 3);
  EXPECT_EQ(desk.step(), "2@0+129!");  // prompt and what was generated
  EXPECT_EQ(desk.step(), "2@129+1!");
  EXPECT_EQ(desk.scheduler.find(Desk::seq(2))->generated(), 4);
}

TEST(Scheduler, a_new_prompt_does_not_take_the_memory_that_a_preempted_one_waits_for) {
  Desk desk({.blocks = 4, .max_model_len = 256});
  desk.add({.id = 1, .prompt = 127});
  desk.add({.id = 2, .prompt = 127});
  while (desk.preempted.empty()) desk.step();
  desk.add({.id = 3, .prompt = 10, .max_tokens = 1});
  EXPECT_EQ(desk.step(), "1@129+1!");  // one block is free, 2 needs three and comes before 3
  desk.scheduler.abort(Desk::seq(1));
  EXPECT_EQ(desk.step(), "2@0+129! 3@0+10!");
}

TEST(Scheduler, lower_priority_comes_first_and_is_preempted_last) {
  Desk desk({.blocks = 4, .rows = 2, .max_model_len = 256});
  desk.add({.id = 1, .prompt = 127, .priority = 5});
  desk.add({.id = 2, .prompt = 127, .priority = -5});
  desk.add({.id = 3, .prompt = 10, .priority = 5});
  EXPECT_EQ(desk.step(127), "2@0+127!");
  EXPECT_EQ(desk.step(128), "2@127+1! 1@0+127!");
  EXPECT_EQ(desk.step(), "2@128+1!");
  EXPECT_EQ(desk.preempted, "1");
}

TEST(Scheduler, waiting_raises_a_low_priority_until_it_counts_by_age) {
  Desk desk({.rows = 1});
  desk.add({.id = 1, .prompt = 10, .max_tokens = 1, .priority = 3});
  desk.scheduler.advance_clock(59'000);
  desk.add({.id = 2, .prompt = 10, .max_tokens = 1, .priority = 1});
  desk.add({.id = 3, .prompt = 10, .max_tokens = 1, .priority = 2});
  EXPECT_EQ(desk.step(), "2@0+10!");
  desk.scheduler.advance_clock(61'000);  // 1 has gained two steps: no better than 2 was, as good as any that is left
  desk.add({.id = 4, .prompt = 10, .max_tokens = 1, .priority = 1});
  EXPECT_EQ(desk.step(), "1@0+10!");
  EXPECT_EQ(desk.step(), "4@0+10!");
  EXPECT_EQ(desk.step(), "3@0+10!");
}

TEST(Scheduler, priorities_at_the_ends_of_their_range_do_not_overflow) {
  Desk desk({.rows = 1});
  desk.add({.id = 1, .prompt = 10, .max_tokens = 1, .priority = INT64_MAX});
  desk.add({.id = 2, .prompt = 10, .max_tokens = 1, .priority = INT64_MIN});
  desk.scheduler.advance_clock(INT64_MAX);
  EXPECT_EQ(desk.step(), "2@0+10!");
  EXPECT_EQ(desk.step(), "1@0+10!");
}

TEST(Scheduler, the_most_senior_row_goes_on_when_the_budget_went_to_one_without_blocks) {
  Desk desk({.blocks = 3, .cap = 8, .rows = 3, .max_model_len = 192, .min_prompt = 1});
  desk.add({.id = 2, .prompt = 190, .priority = 6});
  desk.add({.id = 3, .prompt = 190, .priority = 5});
  desk.scheduler.advance_clock(150'000);  // five steps of priority
  desk.add({.id = 1, .prompt = 1, .priority = 0});
  EXPECT_EQ(desk.step(8), "3@0+7 1@0+1!");
  desk.scheduler.set_paused(Desk::seq(3), true);
  EXPECT_EQ(desk.step(8), "1@1+1! 2@0+7");  // admitted behind 3
  desk.scheduler.abort(Desk::seq(1));
  desk.scheduler.set_paused(Desk::seq(3), false);
  // Now both have the same priority and 2 is older, so it gets the only token of each step: until its blocks run out.
  for (int position = 7; position < 128; ++position) EXPECT_EQ(desk.step(1), "2@" + std::to_string(position) + "+1");
  EXPECT_EQ(desk.step(1), "3@7+8");
}

TEST(Scheduler, paused_rows_stay_out_of_plans_and_keep_their_caches) {
  Desk desk;
  desk.add({.id = 1, .prompt = 10});
  desk.add({.id = 2, .prompt = 10});
  desk.step();
  desk.scheduler.set_paused(Desk::seq(1), true);
  EXPECT_EQ(desk.step(), "2@10+1!");
  EXPECT_TRUE(desk.caches.holds(Desk::seq(1)));
  desk.scheduler.set_paused(Desk::seq(2), true);
  EXPECT_FALSE(desk.scheduler.has_work());
  EXPECT_EQ(desk.step(), "");
  desk.scheduler.set_paused(Desk::seq(1), false);
  EXPECT_TRUE(desk.scheduler.has_work());
  EXPECT_EQ(desk.step(), "1@10+1!");
}

TEST(Scheduler, a_paused_row_loses_its_caches_first) {
  Desk desk({.blocks = 4, .max_model_len = 256});
  desk.add({.id = 1, .prompt = 127});
  desk.add({.id = 2, .prompt = 127});
  desk.step();
  desk.step();
  desk.scheduler.set_paused(Desk::seq(1), true);
  EXPECT_EQ(desk.step(), "2@128+1!");
  EXPECT_EQ(desk.preempted, "1");
  EXPECT_EQ(desk.step(), "2@129+1!");
}

TEST(Scheduler, paused_rows_that_hold_everything_give_way_when_nothing_else_runs) {
  Desk desk({.slots = 1});
  desk.add({.id = 1, .prompt = 10});
  desk.step();
  desk.scheduler.set_paused(Desk::seq(1), true);
  desk.add({.id = 2, .prompt = 10, .max_tokens = 1});
  EXPECT_EQ(desk.step(), "2@0+10!");
  EXPECT_EQ(desk.preempted, "1");
  desk.scheduler.set_paused(Desk::seq(1), false);
  EXPECT_EQ(desk.step(), "1@0+11!");
}

TEST(Scheduler, stops_at_stop_ids_not_before_min_tokens) {
  Desk desk;
  desk.add({.id = 1, .prompt = 4, .max_tokens = 10, .stop_ids = {7}});
  desk.step();
  EXPECT_EQ(desk.ended.at(1).finish, FinishReason::stop);
  EXPECT_EQ(desk.ended.at(1).stop_token, 7);
  EXPECT_EQ(desk.ended.at(1).token, 7);
  EXPECT_EQ(desk.ended.at(1).generated, 1);
  desk.add({.id = 2, .prompt = 4, .max_tokens = 10, .min_tokens = 3, .stop_ids = {7}});
  while (!desk.ended.contains(2)) desk.step();
  EXPECT_EQ(desk.ended.at(2).generated, 3);
}

TEST(Scheduler, ends_where_the_context_ends) {
  Desk desk({.blocks = 1, .max_model_len = 64});
  desk.add({.id = 1, .prompt = 60, .max_tokens = 1000});
  while (!desk.ended.contains(1)) desk.step();
  EXPECT_EQ(desk.ended.at(1).finish, FinishReason::length);
  EXPECT_EQ(desk.ended.at(1).generated, 4);
  desk.add({.id = 2, .prompt = 63, .max_tokens = 1000});
  EXPECT_EQ(desk.step(), "2@0+63!");
  EXPECT_EQ(desk.ended.at(2).generated, 1);
}

TEST(Scheduler, abort_ends_a_row_wherever_it_is) {
  Desk desk({.rows = 1});
  desk.add({.id = 1, .prompt = 100});
  desk.add({.id = 2, .prompt = 100});
  desk.step(50);
  const auto last = desk.scheduler.abort(Desk::seq(1));
  desk.scheduler.check();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].finish, FinishReason::abort);
  EXPECT_EQ(last[0].prompt_tokens, 100);
  EXPECT_EQ(last[0].generated, 0);
  EXPECT_EQ(desk.scheduler.abort(Desk::seq(2)).size(), 1u);
  EXPECT_TRUE(desk.scheduler.abort(Desk::seq(2)).empty());
  EXPECT_TRUE(desk.scheduler.abort(Desk::seq(77)).empty());
  EXPECT_FALSE(desk.scheduler.has_work());
  EXPECT_EQ(desk.caches.free_blocks(), 1000);
  desk.scheduler.check();
}

TEST(Scheduler, an_abort_between_plan_and_commit_is_no_fault) {
  Desk desk;
  desk.add({.id = 1, .prompt = 10});
  desk.add({.id = 2, .prompt = 10});
  const StepPlan plan = desk.plan();
  desk.scheduler.abort(Desk::seq(1));
  desk.commit(plan);
  EXPECT_EQ(desk.step(), "2@10+1!");
}

TEST(Scheduler, a_row_fault_ends_that_row_only) {
  Desk desk;
  desk.add({.id = 1, .prompt = 10});
  desk.add({.id = 2, .prompt = 10});
  desk.step();
  desk.failing = 1;
  desk.step();
  EXPECT_EQ(desk.ended.at(1).finish, FinishReason::error);
  EXPECT_EQ(desk.ended.at(1).generated, 1);
  EXPECT_EQ(desk.step(), "2@11+1!");
}

TEST(Scheduler, a_step_rolled_back_is_recomputed_from_the_start) {
  Desk desk;
  desk.add({.id = 1, .prompt = 10});
  desk.add({.id = 2, .prompt = 10});
  desk.step();
  const StepPlan plan = desk.plan();
  desk.scheduler.roll_back(plan, false);
  desk.scheduler.check();
  EXPECT_EQ(desk.caches.free_blocks(), 1000);
  EXPECT_EQ(desk.scheduler.preemptions(), 0);
  const StepPlan alone = desk.scheduler.plan_alone(Desk::seq(2));
  EXPECT_EQ(Desk::words(alone), "2@0+11!");
  desk.commit(alone);
  EXPECT_EQ(desk.step(), "2@11+1! 1@0+11!");
}

TEST(Scheduler, a_roll_back_of_all_takes_the_rows_that_were_not_in_the_step_too) {
  Desk desk;
  desk.add({.id = 1, .prompt = 10});
  desk.add({.id = 2, .prompt = 10});
  desk.step();
  desk.scheduler.set_paused(Desk::seq(1), true);
  const StepPlan plan = desk.plan();
  desk.scheduler.roll_back(plan, true);
  desk.scheduler.check();
  EXPECT_EQ(desk.scheduler.running(), 0);
  EXPECT_EQ(desk.caches.free_slots(), 64);
}

TEST(Scheduler, a_plan_alone_keeps_to_the_cap_and_knows_when_the_sequence_is_gone) {
  Desk desk({.cap = 8});
  desk.add({.id = 1, .prompt = 12});
  const StepPlan plan = desk.scheduler.plan_alone(Desk::seq(1));
  EXPECT_EQ(Desk::words(plan), "1@0+8");
  desk.commit(plan);
  EXPECT_EQ(Desk::words(desk.scheduler.plan_alone(Desk::seq(1))), "1@8+4!");
  EXPECT_TRUE(desk.scheduler.plan_alone(Desk::seq(9)).empty());
}

TEST(Scheduler, a_plan_alone_is_empty_when_nothing_fits) {
  Desk desk({.blocks = 1, .max_model_len = 64});
  desk.add({.id = 1, .prompt = 10});
  desk.step();
  desk.add({.id = 2, .prompt = 10});
  EXPECT_TRUE(desk.scheduler.plan_alone(Desk::seq(2)).empty());
  desk.scheduler.check();
}

TEST(Scheduler, fail_ends_with_error_and_true_counts) {
  Desk desk;
  desk.add({.id = 1, .prompt = 10});
  desk.step();
  desk.step();
  const auto last = desk.scheduler.fail(Desk::seq(1));
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].finish, FinishReason::error);
  EXPECT_EQ(last[0].generated, 2);
  EXPECT_TRUE(desk.scheduler.fail(Desk::seq(1)).empty());
}

TEST(Scheduler, prompt_logits_cover_each_prompt_token_once_also_over_a_roll_back) {
  Desk desk({.max_logits = 8});
  desk.add({.id = 1, .prompt = 20, .max_tokens = 2, .logits_from = 0});
  EXPECT_EQ(desk.step(), "1@0+8^8");
  EXPECT_EQ(desk.step(), "1@8+8^8");
  desk.scheduler.roll_back(desk.plan(), false);
  EXPECT_EQ(desk.step(), "1@0+20!^4");  // 16 … 18 for the prompt, 19 for the answer
  EXPECT_EQ(desk.step(), "1@20+1!");
}

TEST(Scheduler, prompt_logits_from_an_index_on) {
  Desk desk;
  desk.add({.id = 1, .prompt = 20, .max_tokens = 1, .logits_from = 15});
  EXPECT_EQ(desk.step(10), "1@0+16^1");
  EXPECT_EQ(desk.step(), "1@16+4!^4");
}

TEST(Scheduler, no_tokens_but_prompt_logits) {
  Desk desk;
  desk.add({.id = 1, .prompt = 20, .max_tokens = 0, .logits_from = 0});
  EXPECT_EQ(desk.step(), "1@0+20^20");
  EXPECT_EQ(desk.ended.at(1).finish, FinishReason::length);
  EXPECT_EQ(desk.ended.at(1).token, -1);
  EXPECT_EQ(desk.ended.at(1).generated, 0);
}

TEST(Scheduler, refuses_what_breaks_its_promises) {
  Desk desk({.blocks = 2, .max_model_len = 128});
  EXPECT_THROW(desk.add({.id = 1, .prompt = 0}), InvariantError);
  EXPECT_THROW(desk.add({.id = 1, .prompt = 128}), InvariantError);
  EXPECT_THROW(desk.add({.id = 1, .prompt = 10, .max_tokens = 0}), InvariantError);
  desk.add({.id = 1, .prompt = 127});
  EXPECT_THROW(desk.add({.id = 1, .prompt = 10}), InvariantError);
  EXPECT_THROW(Desk({.blocks = 2, .max_model_len = 129}), InvariantError);  // one full row must fit
  desk.scheduler.check();
}

TEST(Scheduler, options_list_all_their_problems) {
  EXPECT_EQ((SchedulerOptions{.max_num_batched_tokens = 0, .max_num_seqs = 0, .max_model_len = 0}).validate().size(),
            3u);
  EXPECT_TRUE((SchedulerOptions{.max_model_len = 2}).validate().empty());
}

}  // namespace
}  // namespace tutti::schedule
