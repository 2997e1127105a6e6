// The checks of a step, the environment switch, the node and its scratch memory.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "fixtures.h"
#include "ops/cpu_node.h"
#include "ops/runtime.h"

namespace tutti::test {
namespace {

TEST(StepBatch, AGoodBatchPasses) {
  Random random(31);
  EXPECT_NO_THROW(ops::check_batch("test", batch_of({{0, 3}, {64, 1}}, random)));
}

TEST(StepBatch, ContradictionsAreNamed) {
  Random random(31);
  const auto good = batch_of({{0, 3}, {64, 1}}, random);
  const auto expect_refused = [&](const char* word, const std::function<void(ops::StepBatch&)>& damage) {
    auto bad = good;
    damage(bad);
    try {
      ops::check_batch("test", bad);
      FAIL() << "accepted: " << word;
    } catch (const std::invalid_argument& e) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  };
  expect_refused("no tokens", [](auto& b) { b = {}; });
  expect_refused("positions", [](auto& b) { b.positions.pop_back(); });
  expect_refused("row_begin", [](auto& b) { b.row_begin.back() = 3; });
  expect_refused("row_begin", [](auto& b) { b.row_begin[1] = 4; });
  expect_refused("block_begin", [](auto& b) { b.block_begin.back() += 1; });
  expect_refused("blocks for", [](auto& b) { b.first[0] = 64; });
  expect_refused("first", [](auto& b) { b.first[0] = -1; });
  expect_refused("block is negative", [](auto& b) { b.block_table[0] = -1; });
  expect_refused("slot", [](auto& b) { b.slot[0] = b.slot[1]; });
  expect_refused("logits_of", [](auto& b) { b.logits_of.back() = 4; });
}

TEST(Body, TheEnvironmentNamesIt) {
  unsetenv("TUTTI_OPS");
  EXPECT_EQ(ops::body_from_environment(), ops::Body::cpu);
  setenv("TUTTI_OPS", "graph", 1);
  EXPECT_EQ(ops::body_from_environment(), ops::Body::graph);
  setenv("TUTTI_OPS", "gpu", 1);
  EXPECT_THROW(ops::body_from_environment(), OptionError);
  unsetenv("TUTTI_OPS");
}

TEST(Scratch, MemoryIsReusedAndPointersStayValid) {
  ops::Scratch scratch;
  float* a = scratch.floats(100);
  float* b = scratch.floats(1 << 20);
  a[99] = 1;
  b[0] = 2;
  EXPECT_EQ(a[99], 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 64, 0u);
  scratch.reset();
  float* c = scratch.floats(100);
  float* d = scratch.floats(1 << 20);
  scratch.reset();
  EXPECT_EQ(scratch.floats(100), c);
  EXPECT_EQ(scratch.floats(1 << 20), d);
}

TEST(CpuNode, AThrowReachesTheCallerAndTheNextStepRuns) {
  Random random(32);
  ops::prepare_runtime();
  const auto step = step_of(batch_of({{0, 1}}, random));
  const auto node = [&](bool fails) {
    return ops::cpu_node({.op = "test",
                          .step = step,
                          .inputs = {},
                          .shape = {2},
                          .body = [fails](const float*, float* out, ops::Scratch&) {
                            if (fails) throw std::runtime_error("injected");
                            out[0] = out[1] = 3;
                          }});
  };
  auto bad = node(true);
  EXPECT_THROW(mx::eval(bad), std::runtime_error);
  auto good = node(false);
  mx::eval(good);
  EXPECT_EQ(good.data<float>()[1], 3);
}

TEST(CpuNode, AStepWithoutKernelsIsRefused) {
  Random random(33);
  ops::StepContext context;
  context.batch = batch_of({{0, 1}}, random);
  EXPECT_THROW(ops::cpu_node({.op = "test",
                              .step = std::make_shared<const ops::StepContext>(context),
                              .inputs = {},
                              .shape = {1},
                              .body = {}}),
               std::invalid_argument);
}

}  // namespace
}  // namespace tutti::test
