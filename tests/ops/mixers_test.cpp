// Attention and the gated delta rule: the CPU body against the graph body over several steps, caches included.
#include <gtest/gtest.h>

#include "fixtures.h"

namespace tutti::test {
namespace {

constexpr float kTolerance = 5e-5f;
constexpr int kH = 128;

struct AttentionFixture {
  static constexpr int kHeads = 4, kGroups = 2, kD = 32, kBlocks = 64;
  ops::AttentionWeights packed, graph;
  ops::Rope rope;
  AlignedBuffer k{sizeof(float) * kBlocks * kGroups * kD * 64}, v{sizeof(float) * kBlocks * kGroups * kD * 64};
  mx::array graph_k = mx::zeros({kBlocks, 64, kGroups, kD}), graph_v = mx::zeros({kBlocks, 64, kGroups, kD});

  explicit AttentionFixture(Random& random, const quant::WeightFormat& format)
      : AttentionFixture(build(random, format)) {
    rope.rotary_dim = 16;
    for (int i = 0; i < 8; ++i) {
      rope.inv_freq.push_back(std::pow(10000.0f, -static_cast<float>(i) / 8));
      rope.axis.push_back(i % 3);
    }
    rope.attention_factor = 1.1f;
  }
  kernels::KvLayer cpu_cache() { return {kernels::KvType::float32, k.data(), v.data(), kGroups, kD}; }
  ops::GraphKv graph_cache() { return {&graph_k, &graph_v}; }

 private:
  struct Parts {
    ops::AttentionWeights packed, graph;
  };
  explicit AttentionFixture(Parts parts) : packed(std::move(parts.packed)), graph(std::move(parts.graph)) {}
  static Parts build(Random& random, const quant::WeightFormat& format) {
    auto norm = random_vector(random, kH, 0.2f, 1), qn = random_vector(random, kD, 0.2f, 1),
         kn = random_vector(random, kD, 0.2f, 1);
    auto q = random_weight(random, format, 2 * kHeads * kD, kH), k = random_weight(random, format, kGroups * kD, kH),
         v = random_weight(random, format, kGroups * kD, kH), o = random_weight(random, format, kH, kHeads * kD);
    return {{norm, std::move(q.packed), std::move(k.packed), std::move(v.packed), std::move(o.packed), qn, kn, kHeads,
             kGroups, kD},
            {norm, std::move(q.graph), std::move(k.graph), std::move(v.graph), std::move(o.graph), qn, kn, kHeads,
             kGroups, kD}};
  }
};

TEST(Attention, BodiesAgreeOverSteps) {
  ThreadPool pool(2);
  for (const auto& format : formats()) {
    Random random(11);
    AttentionFixture f(random, format);
    for (const auto& rows :
         std::vector<std::vector<std::pair<int, int>>>{{{0, 70}, {0, 3}}, {{70, 1}, {3, 90}}, {{71, 5}, {93, 1}}}) {
      auto batch = batch_of(rows, random);
      // The same blocks in every step: row 0 has 0 … 3, row 1 has 4 … 7.
      batch.block_table.clear();
      batch.block_begin = {0};
      for (int r = 0; r < 2; ++r) {
        for (int b = 0; b < 4; ++b) batch.block_table.push_back(4 * r + 3 - b);
        batch.block_begin.push_back(4 * (r + 1));
      }
      for (auto& p : batch.positions) p += random.below(3);  // as images have them: axes that differ
      const auto step = step_of(batch, true, &pool);
      const auto x = random_x(random, batch.T(), kH);
      const auto cpu = ops::attention(x, step, f.packed, f.rope, f.cpu_cache());
      const auto graph = ops::attention(x, step, f.graph, f.rope, f.graph_cache());
      EXPECT_LT(worst_difference(cpu, graph), kTolerance);
    }
  }
}

// One query over more than one outer range of keys goes through the split path, a longer prompt through the whole path.
TEST(Attention, LongContextsAgreeAndTheCutDoesNotShow) {
  Random random(12);
  AttentionFixture f(random, formats()[1]);
  const int n = 2500;
  const auto x = random_x(random, n, kH);
  const auto part = [&](int begin, int end) { return mx::contiguous(mx::slice(x, {begin, 0}, {end, kH})); };
  ThreadPool pool(2);
  const auto whole_batch = batch_of({{0, n}}, random);
  const auto whole = values_of(ops::attention(x, step_of(whole_batch, true, &pool), f.packed, f.rope, f.cpu_cache()));
  const auto graph = values_of(ops::attention(x, step_of(whole_batch), f.graph, f.rope, f.graph_cache()));
  for (const int t : {0, 63, 64, 1023, 1024, 2047, 2048, 2499}) {
    const auto step = step_of(batch_of({{t, 1}}, random), true, &pool);
    auto batch = step->batch;
    batch.block_table = {whole_batch.block_table.begin(),
                         whole_batch.block_table.begin() + static_cast<long>(batch.block_table.size())};
    const auto alone =
        values_of(ops::attention(part(t, t + 1), step_of(batch, true, &pool), f.packed, f.rope, f.cpu_cache()));
    EXPECT_EQ(std::memcmp(alone.data(), whole.data() + int64_t{t} * kH, kH * sizeof(float)), 0) << t;
    for (int h = 0; h < kH; ++h)
      EXPECT_NEAR(alone[static_cast<size_t>(h)], graph[static_cast<size_t>(t) * kH + h], kTolerance) << t;
  }
}

TEST(Attention, RefusesCachesOfTheOtherKindAndOfAnotherShape) {
  Random random(13);
  AttentionFixture f(random, formats()[1]);
  const auto step = step_of(batch_of({{0, 2}}, random));
  const auto x = random_x(random, 2, kH);
  EXPECT_THROW(ops::attention(x, step, f.packed, f.rope, f.graph_cache()), std::invalid_argument);
  EXPECT_THROW(ops::attention(x, step, f.graph, f.rope, f.cpu_cache()), std::invalid_argument);
  auto other = f.cpu_cache();
  other.D = 64;
  EXPECT_THROW(ops::attention(x, step, f.packed, f.rope, other), std::invalid_argument);
}

struct DeltaFixture {
  static constexpr int kHk = 2, kHv = 6, kDk = 32, kDv = 32, kC = 2 * kHk * kDk + kHv * kDv, kSlots = 4;
  ops::DeltaWeights packed, graph;
  AlignedBuffer state{sizeof(float) * kSlots * kHv * kDk * kDv}, conv{sizeof(float) * kSlots * 3 * kC};
  mx::array graph_state = mx::zeros({kSlots, kHv, kDk, kDv}), graph_conv = mx::zeros({kSlots, 3, kC});

  explicit DeltaFixture(Random& random, const quant::WeightFormat& format) : DeltaFixture(build(random, format)) {}
  ops::CpuState cpu_cache() { return {state.as<float>(), conv.as<float>()}; }
  ops::GraphState graph_cache() { return {&graph_state, &graph_conv}; }
  // State and window of a slot.
  std::vector<float> slot(int slot, bool of_graph) {
    std::vector<float> values;
    const auto part = [&](const float* all, int64_t n) {
      values.insert(values.end(), all + slot * n, all + (slot + 1) * n);
    };
    if (of_graph) {
      part(values_of(graph_state).data(), kHv * kDk * kDv);
      part(values_of(graph_conv).data(), 3 * kC);
    } else {
      part(state.as<float>(), kHv * kDk * kDv);
      part(conv.as<float>(), 3 * kC);
    }
    return values;
  }

 private:
  struct Parts {
    ops::DeltaWeights packed, graph;
  };
  explicit DeltaFixture(Parts parts) : packed(std::move(parts.packed)), graph(std::move(parts.graph)) {}
  static Parts build(Random& random, const quant::WeightFormat& format) {
    std::vector<Both> w;
    for (const auto& [N, K] :
         std::vector<std::pair<int, int>>{{kC, kH}, {kHv * kDv, kH}, {kHv, kH}, {kHv, kH}, {kH, kHv * kDv}}) {
      w.push_back(random_weight(random, format, N, K));
    }
    auto norm = random_vector(random, kH, 0.2f, 1), A = random_vector(random, kHv, 1, 0),
         dt = random_vector(random, kHv, 0.5f, 0), out_norm = random_vector(random, kDv, 0.2f, 1);
    auto taps = ops::make_vector(random.values(4 * kC, 0.6f), {4, kC});
    const auto weights = [&](ops::Weight Both::* kind) {
      return ops::DeltaWeights{norm,
                               std::move(w[0].*kind),
                               std::move(w[1].*kind),
                               std::move(w[2].*kind),
                               std::move(w[3].*kind),
                               std::move(w[4].*kind),
                               taps,
                               A,
                               dt,
                               out_norm,
                               kHk,
                               kHv,
                               kDk,
                               kDv};
    };
    auto packed = weights(&Both::packed);
    return {std::move(packed), weights(&Both::graph)};
  }
};

TEST(GatedDelta, BodiesAgreeOverStepsAndFreshRowsStartFromZero) {
  ThreadPool pool(2);
  for (const auto& format : formats()) {
    Random random(21);
    DeltaFixture f(random, format);
    // Garbage where the rows begin: a slot that another sequence has left.
    std::fill_n(f.state.as<float>(), f.state.bytes() / sizeof(float), NAN);
    std::fill_n(f.conv.as<float>(), f.conv.bytes() / sizeof(float), NAN);
    for (const auto& rows :
         std::vector<std::vector<std::pair<int, int>>>{{{0, 20}, {0, 3}}, {{20, 1}, {3, 2}}, {{21, 7}, {0, 4}}}) {
      const auto batch = batch_of(rows, random);
      const auto step = step_of(batch, true, &pool);
      const auto x = random_x(random, batch.T(), kH);
      const auto cpu = ops::gated_delta(x, step, f.packed, f.cpu_cache());
      const auto graph = ops::gated_delta(x, step, f.graph, f.graph_cache());
      EXPECT_LT(worst_difference(cpu, graph), kTolerance);
    }
  }
}

// The state after a token of a chunk, written to another slot on the way: what the row would hold had it ended there.
// Neither the chunk's output nor its last state show it.
TEST(GatedDelta, EmittedStatesAreThoseOfAShorterRow) {
  ThreadPool pool(2);
  const auto make = [] {  // the same weights, caches of its own
    Random same(23);
    return std::make_unique<DeltaFixture>(same, quant::WeightFormat{quant::Format::affine, {4, 64}});
  };
  const auto emitter = make(), without = make(), ended = make();
  DeltaFixture &f = *emitter, &plain = *without, &shorter = *ended;
  Random random(24);
  const auto x = random_x(random, 3 + 12, kH);
  const auto rows = batch_of({{0, 3}, {0, 12}}, random);
  const auto run = [&](DeltaFixture& to, const ops::StepBatch& batch, const mx::array& in, bool graph) {
    const auto step = step_of(batch, true, &pool);
    return values_of(graph ? ops::gated_delta(in, step, to.graph, to.graph_cache())
                           : ops::gated_delta(in, step, to.packed, to.cpu_cache()));
  };
  for (const bool graph : {false, true}) {
    for (const int emitted : {0, 1, 2, 6, 10, 11}) {  // of the second row's tokens; the window reaches back 3
      auto emitting = rows;
      emitting.emits = {{.token = 3 + emitted, .slot = 3}};
      EXPECT_EQ(run(f, emitting, x, graph), run(plain, rows, x, graph)) << graph << emitted;
      EXPECT_EQ(f.slot(2, graph), plain.slot(2, graph)) << graph << emitted;
      // The same row, ended after that token.
      run(shorter, batch_of({{0, 3}, {0, emitted + 1}}, random),
          mx::contiguous(mx::slice(x, {0, 0}, {4 + emitted, kH})), graph);
      const auto got = f.slot(3, graph), wanted = shorter.slot(2, graph);
      // MLX's own products depend on the number of rows in their last bits.
      for (size_t i = 0; graph && i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], kTolerance) << emitted;
      if (!graph) {
        EXPECT_EQ(got, wanted) << emitted;
      }
      EXPECT_EQ(f.slot(1, graph), plain.slot(1, graph)) << graph << emitted;
    }
  }
}

TEST(GatedDelta, RowsDoNotDependOnTheirCompany) {
  Random random(22);
  DeltaFixture together(random, {quant::Format::affine, {4, 64}});
  const auto x = random_x(random, 40, kH);
  ThreadPool pool(2);
  const auto step = step_of(batch_of({{0, 5}, {0, 30}, {0, 5}}, random), false, &pool);
  const auto got = values_of(ops::gated_delta(x, step, together.packed, together.cpu_cache()));
  const auto own = mx::contiguous(mx::slice(x, {5, 0}, {35, kH}));
  std::vector<float> alone;
  for (int begin = 0; begin < 30; begin += 10) {
    const auto part = mx::contiguous(mx::slice(own, {begin, 0}, {begin + 10, kH}));
    const auto chunk = step_of(batch_of({{begin, 10}}, random), false);
    const auto v = values_of(ops::gated_delta(part, chunk, together.packed, together.cpu_cache()));
    alone.insert(alone.end(), v.begin(), v.end());
  }
  EXPECT_EQ(std::memcmp(alone.data(), got.data() + 5 * kH, alone.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace tutti::test
