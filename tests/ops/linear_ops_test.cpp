// Embedding, MLP, experts and head: the CPU body against the graph body, in the float32 mode.
#include <gtest/gtest.h>

#include "fixtures.h"

namespace tutti::test {
namespace {

constexpr float kTolerance = 2e-5f;
constexpr int kH = 128;

TEST(Embed, ReadsTheRowsOfTheTokens) {
  Random random(1);
  for (const auto& format : formats()) {
    const auto table = random_weight(random, format, 50, kH);
    const auto step = step_of(batch_of({{0, 3}, {7, 1}}, random));
    EXPECT_EQ(worst_difference(ops::embed(step, table.packed, kH), ops::embed(step, table.graph, kH)), 0);
  }
}

TEST(Embed, RefusesTokensOutsideTheTable) {
  Random random(1);
  const auto table = random_weight(random, formats()[0], 50, kH);
  auto batch = batch_of({{0, 3}}, random);
  batch.tokens[1] = 50;
  EXPECT_THROW(ops::embed(step_of(batch), table.packed, kH), std::invalid_argument);
  batch.tokens[1] = -1;
  EXPECT_THROW(ops::embed(step_of(batch), table.graph, kH), std::invalid_argument);
}

struct Mlps {
  ops::MlpWeights packed, graph;
};
Mlps random_mlp(Random& random, const quant::WeightFormat& format, int I) {
  auto norm = random_vector(random, kH, 0.2f, 1);
  auto gate = random_weight(random, format, I, kH), up = random_weight(random, format, I, kH),
       down = random_weight(random, format, kH, I);
  return {{norm, std::move(gate.packed), std::move(up.packed), std::move(down.packed)},
          {norm, std::move(gate.graph), std::move(up.graph), std::move(down.graph)}};
}

TEST(Mlp, BodiesAgree) {
  Random random(2);
  ThreadPool pool(2);
  for (const auto& format : formats()) {
    const auto mlp = random_mlp(random, format, 192);
    for (const int T : {1, 5, 150}) {
      const auto step = step_of(batch_of({{0, T}}, random), true, &pool);
      const auto x = random_x(random, T, kH);
      EXPECT_LT(worst_difference(ops::mlp(x, step, mlp.packed), ops::mlp(x, step, mlp.graph)), kTolerance);
    }
  }
}

TEST(Mlp, TheDefaultModeIsCloseAndNotTheSame) {
  Random random(3);
  for (const auto& format : {formats()[1], formats()[2]}) {
    const auto mlp = random_mlp(random, format, 192);
    const auto batch = batch_of({{0, 9}}, random);
    const auto x = random_x(random, 9, kH);
    const float d =
        worst_difference(ops::mlp(x, step_of(batch, false), mlp.packed), ops::mlp(x, step_of(batch), mlp.graph));
    EXPECT_GT(d, 0);
    EXPECT_LT(d, 0.03f);
  }
}

TEST(Mlp, RefusesShapesThatDontFit) {
  Random random(4);
  auto mlp = random_mlp(random, formats()[0], 192);
  const auto step = step_of(batch_of({{0, 2}}, random));
  EXPECT_THROW(ops::mlp(random_x(random, 3, kH), step, mlp.packed), std::invalid_argument);
  EXPECT_THROW(ops::mlp(random_x(random, 2, kH / 2), step, mlp.packed), std::invalid_argument);
  mlp.packed.down = random_weight(random, formats()[0], kH, 64).packed;
  EXPECT_THROW(ops::mlp(random_x(random, 2, kH), step, mlp.packed), std::invalid_argument);
  mlp.graph.down = random_weight(random, formats()[0], kH, 192).packed;  // the other kind
  EXPECT_THROW(ops::mlp(random_x(random, 2, kH), step, mlp.graph), std::invalid_argument);
}

struct Moes {
  ops::MoeWeights packed, graph;
};
Moes random_moe(Random& random, const quant::WeightFormat& format, int E, int top_k) {
  constexpr int kI = 64, kS = 128;
  auto norm = random_vector(random, kH, 0.2f, 1);
  std::vector<Both> w;
  w.push_back(random_weight(random, {quant::Format::affine, {8, 64}}, E, kH));
  w.push_back(random_weight(random, format, kI, kH, E, true));
  w.push_back(random_weight(random, format, kI, kH, E, true));
  w.push_back(random_weight(random, format, kH, kI, E, true));
  w.push_back(random_weight(random, format, kS, kH));
  w.push_back(random_weight(random, format, kS, kH));
  w.push_back(random_weight(random, format, kH, kS));
  w.push_back(random_weight(random, format, 1, kH));
  const auto build = [&](ops::Weight Both::* kind) {
    return ops::MoeWeights{norm,
                           std::move(w[0].*kind),
                           std::move(w[1].*kind),
                           std::move(w[2].*kind),
                           std::move(w[3].*kind),
                           std::move(w[4].*kind),
                           std::move(w[5].*kind),
                           std::move(w[6].*kind),
                           std::move(w[7].*kind),
                           E,
                           top_k};
  };
  auto packed = build(&Both::packed);
  return {std::move(packed), build(&Both::graph)};
}

TEST(Moe, BodiesAgree) {
  Random random(5);
  ThreadPool pool(2);
  for (const auto& format : formats()) {
    const auto moe = random_moe(random, format, 8, 3);
    for (const int T : {1, 4, 70}) {
      const auto step = step_of(batch_of({{0, T}}, random), true, &pool);
      const auto x = random_x(random, T, kH);
      EXPECT_LT(worst_difference(ops::moe(x, step, moe.packed), ops::moe(x, step, moe.graph)), kTolerance);
    }
  }
}

TEST(Moe, ATokenDoesNotDependOnTheOthers) {
  Random random(6);
  const auto moe = random_moe(random, {quant::Format::affine, {4, 64}}, 8, 3);
  const auto x = random_x(random, 33, kH);
  const auto together = values_of(ops::moe(x, step_of(batch_of({{0, 33}}, random), false), moe.packed));
  for (int t = 0; t < 33; ++t) {
    const auto own = mx::contiguous(mx::slice(x, {t, 0}, {t + 1, kH}));
    const auto alone = values_of(ops::moe(own, step_of(batch_of({{0, 1}}, random), false), moe.packed));
    EXPECT_EQ(std::memcmp(alone.data(), together.data() + t * kH, alone.size() * sizeof(float)), 0) << t;
  }
}

TEST(Head, BodiesAgreeAndIdsThatDontExistAreMinusInfinity) {
  Random random(7);
  constexpr int kV = 100, kVocab = 90;
  for (const auto& format : formats()) {
    const auto w = random_weight(random, format, kV, kH);
    const auto norm = random_vector(random, kH, 0.2f, 1);
    const ops::HeadWeights packed{norm, &w.packed, kVocab}, graph{norm, &w.graph, kVocab};
    const auto step = step_of(batch_of({{0, 3}, {0, 2}, {4, 1}}, random));
    const auto x = random_x(random, 6, kH);
    const auto logits = ops::head(x, step, packed);
    EXPECT_EQ(logits.shape(), (mx::Shape{3, kV}));
    EXPECT_LT(worst_difference(logits, ops::head(x, step, graph)), kTolerance);
    const auto v = values_of(logits);
    for (int row = 0; row < 3; ++row) {
      EXPECT_TRUE(std::isfinite(v[static_cast<size_t>(row * kV + kVocab - 1)]));
      EXPECT_EQ(v[static_cast<size_t>(row * kV + kVocab)], -INFINITY);
      EXPECT_EQ(v[static_cast<size_t>(row * kV + kV - 1)], -INFINITY);
    }
  }
}

// Chosen panels only: what they hold is what the whole head gives, bit for bit.
TEST(Head, SomePanelsOnly) {
  Random random(9);
  for (const auto& format : formats()) {
    const auto w = random_weight(random, format, 2000, kH);
    const auto norm = random_vector(random, kH, 0.2f, 1);
    const ops::HeadWeights head{norm, &w.packed, 1990};
    auto batch = batch_of({{0, 3}}, random);
    batch.logits_of = {0, 2};
    const auto x = random_x(random, 3, kH);
    auto all = ops::head(x, step_of(batch), head);
    auto some_step = std::make_shared<ops::StepContext>(*step_of(batch));
    some_step->head_ranges = {{0, 1}, {3, 80}, {124, 125}};
    auto some = ops::head(x, some_step, head);
    mx::eval(all, some);
    for (int row = 0; row < 2; ++row)
      for (const ops::PanelRange& range : some_step->head_ranges)
        EXPECT_EQ(std::memcmp(all.data<float>() + row * 2000 + range.begin * 16,
                              some.data<float>() + row * 2000 + range.begin * 16,
                              sizeof(float) * 16 * static_cast<size_t>(range.end - range.begin)),
                  0)
            << row << " " << range.begin;
  }
}

TEST(Head, NoRowsWanted) {
  Random random(8);
  const auto w = random_weight(random, formats()[1], 100, kH);
  const auto norm = random_vector(random, kH, 0.2f, 1);
  auto batch = batch_of({{0, 3}}, random);
  batch.logits_of.clear();
  const auto x = random_x(random, 3, kH);
  for (const auto* weight : {&w.packed, &w.graph}) {
    const ops::HeadWeights head{norm, weight, 100};  // lives until the step is evaluated
    auto logits = ops::head(x, step_of(batch), head);
    mx::eval(logits);
    EXPECT_EQ(logits.shape(), (mx::Shape{0, 100}));
  }
}

}  // namespace
}  // namespace tutti::test
