#include <gtest/gtest.h>

#include "kernels/per_isa.h"

namespace tutti::kernels::test {
namespace {

using Delta = PerIsa;

// One value head: inputs of `n` tokens, a state, and the outputs.
struct Head {
  int n, Dk, Dv;
  std::vector<float> q, k, v, decay, beta, state, o;

  Head(int tokens, int dk, int dv, uint32_t seed = 1)
      : n(tokens),
        Dk(dk),
        Dv(dv),
        q(normal(size(n, Dk), seed, 0.1f)),
        k(normal(size(n, Dk), seed + 1)),
        v(normal(size(n, Dv), seed + 2)),
        decay(size(n, 1)),
        beta(size(n, 1)),
        state(normal(size(padded(), Dk), seed + 3)),
        o(size(n, Dv)) {
    std::mt19937 generator(seed + 4);
    std::uniform_real_distribution<float> uniform(0, 1);
    for (float& x : decay) x = uniform(generator);
    for (float& x : beta) x = uniform(generator);
    table(Isa::reference)->l2_norm(k.data(), Dk, n, Dk, 1);
    for (int j = Dv; j < padded(); ++j) {  // columns that do not exist are zero
      for (int i = 0; i < Dk; ++i) state[size(j / 16, 16 * Dk) + size(i, 16) + static_cast<size_t>(j % 16)] = 0;
    }
  }
  static size_t size(int a, int b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }
  int tiles() const { return (Dv + 15) / 16; }
  int padded() const { return 16 * tiles(); }
  DeltaArgs args() {
    return {.n = n,
            .Dk = Dk,
            .Dv = Dv,
            .q = q.data(),
            .k = k.data(),
            .qk_stride = Dk,
            .v = v.data(),
            .v_stride = Dv,
            .decay = decay.data(),
            .beta = beta.data(),
            .gate_stride = 1,
            .state = state.data(),
            .o = o.data(),
            .o_stride = Dv,
            .tile_begin = 0,
            .tile_end = tiles()};
  }
  // Tokens [begin, end) only.
  DeltaArgs args(int begin, int end) {
    DeltaArgs a = args();
    a.n = end - begin;
    a.q += size(begin, Dk);
    a.k += size(begin, Dk);
    a.v += size(begin, Dv);
    a.decay += begin;
    a.beta += begin;
    a.o += size(begin, Dv);
    return a;
  }
};

TEST_P(Delta, RuleHasTheValuesOfTheSpec) {
  Head h(2, 2, 2);
  h.q = {1, 0, 0, 1};
  h.k = {1, 0, .6f, .8f};
  h.v = {1, 2, 3, 4};
  h.decay = {std::exp(-.5f), std::exp(-.25f)};
  h.beta = {.5f, .75f};
  h.state.assign(32, 0.0f);
  h.state[0] = .2f;
  h.state[16 + 1] = .4f;
  kernels().delta_rule(h.args());
  expect_near(h.o, {.5606530660f, 1.0f, 1.6428106631f, 2.2178839611f}, 4e-7);
  expect_near({h.state[0], h.state[1], h.state[16], h.state[17]},
              {1.6687450442f, 2.3005037880f, 1.6428106631f, 2.2178839611f}, 4e-7);
}

TEST_P(Delta, RuleAgreesWithTheReference) {
  for (auto [dk, dv] : {std::pair{32, 32}, {128, 128}, {128, 32}, {32, 128}, {8, 8}, {64, 48}, {128, 24}}) {
    SCOPED_TRACE(testing::Message() << dk << " x " << dv);
    Head got(20, dk, dv), want(20, dk, dv);
    kernels().delta_rule(got.args());
    reference().delta_rule(want.args());
    // Each token adds rounding errors of sums over Dk unit-sized terms; beta and decay below 1 keep them from growing.
    expect_near(got.o, want.o, 20 * kEps * std::sqrt(dk) * 4, 8 * kEps);
    expect_near(got.state, want.state, 20 * kEps * std::sqrt(dk) * 4, 8 * kEps);
  }
}

TEST_P(Delta, RuleOfAChunkIsTheRuleTokenByToken) {
  for (auto [dk, dv] : {std::pair{128, 128}, {32, 16}, {8, 8}}) {
    Head whole(13, dk, dv), single(13, dk, dv), pieces(13, dk, dv);
    kernels().delta_rule(whole.args());
    for (int t = 0; t < 13; ++t) kernels().delta_rule(single.args(t, t + 1));
    for (auto [begin, end] : {std::pair{0, 2}, {2, 7}, {7, 13}}) kernels().delta_rule(pieces.args(begin, end));
    EXPECT_EQ(bits(whole.o), bits(single.o));
    EXPECT_EQ(bits(whole.state), bits(single.state));
    EXPECT_EQ(bits(whole.o), bits(pieces.o));
    EXPECT_EQ(bits(whole.state), bits(pieces.state));
  }
}

TEST_P(Delta, RuleOfATileDoesNotDependOnTheOtherTiles) {
  Head whole(5, 64, 80), tiled(5, 64, 80);
  kernels().delta_rule(whole.args());
  for (auto [begin, end] : {std::pair{3, 5}, {0, 1}, {1, 2}, {2, 3}}) {
    DeltaArgs a = tiled.args();
    a.tile_begin = begin;
    a.tile_end = end;
    kernels().delta_rule(a);
  }
  EXPECT_EQ(bits(whole.o), bits(tiled.o));
  EXPECT_EQ(bits(whole.state), bits(tiled.state));
}

TEST_P(Delta, RuleFollowsItsStrides) {
  Head dense(3, 32, 16), spread(3, 32, 16);
  kernels().delta_rule(dense.args());
  auto apart = [](const std::vector<float>& x, size_t width, size_t stride) {
    std::vector<float> out(3 * stride, kNan);
    for (size_t t = 0; t < 3; ++t) std::copy_n(&x[t * width], width, &out[t * stride]);
    return out;
  };
  const auto q = apart(spread.q, 32, 96), k = apart(spread.k, 32, 96), v = apart(spread.v, 16, 40);
  const auto decay = apart(spread.decay, 1, 8), beta = apart(spread.beta, 1, 8);
  std::vector<float> o(3 * 24, 7.0f);
  DeltaArgs a = spread.args();
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.decay = decay.data(), a.beta = beta.data(), a.o = o.data();
  a.qk_stride = 96, a.v_stride = 40, a.gate_stride = 8, a.o_stride = 24;
  kernels().delta_rule(a);
  for (size_t t = 0; t < 3; ++t) {
    EXPECT_EQ(bits(&dense.o[t * 16], 16), bits(&o[t * 24], 16));
    for (size_t i = 16; i < 24; ++i) EXPECT_EQ(o[t * 24 + i], 7.0f);
  }
  EXPECT_EQ(bits(dense.state), bits(spread.state));
}

TEST_P(Delta, RuleWithoutTokensDoesNothing) {
  Head h(1, 32, 16), before = h;
  kernels().delta_rule(h.args(0, 0));
  EXPECT_EQ(bits(h.state), bits(before.state));
}

TEST_P(Delta, GatesHaveTheValuesOfTheSpec) {
  const float a = .3f, b = 0, A_log = std::log(2.0f), dt = .5f;
  float decay = 0, beta = 0;
  kernels().delta_gates(&a, &b, &A_log, &dt, 1, &decay, &beta);
  EXPECT_NEAR(decay, .0961158224f, 5e-8);
  EXPECT_EQ(beta, .5f);
}

TEST_P(Delta, GatesAgreeWithTheReferenceAndDoNotDependOnTheirNeighbours) {
  std::vector<float> a, b, A_log, dt;
  for (float x = -30; x < 40; x += 0.37f) {
    a.push_back(x);
    b.push_back(-x);
    A_log.push_back(std::fmod(std::fabs(x), 3.0f) - 2);
    dt.push_back(0.25f);
  }
  const int n = static_cast<int>(a.size());
  std::vector<float> decay(a.size()), beta(a.size()), want_decay(a.size()), want_beta(a.size());
  kernels().delta_gates(a.data(), b.data(), A_log.data(), dt.data(), n, decay.data(), beta.data());
  reference().delta_gates(a.data(), b.data(), A_log.data(), dt.data(), n, want_decay.data(), want_beta.data());
  expect_near(beta, want_beta, 0, 6 * kEps);
  for (size_t i = 0; i < a.size(); ++i) {  // an error of g, relative to g, is one of exp(g) times |g|
    const double g = std::fabs(std::log(static_cast<double>(want_decay[i])));
    ASSERT_NEAR(decay[i], want_decay[i], want_decay[i] * (12 * kEps * g + 4 * kEps) + 1e-44) << a[i];
    float one_decay, one_beta;
    kernels().delta_gates(&a[i], &b[i], &A_log[i], &dt[i], 1, &one_decay, &one_beta);
    ASSERT_EQ(bits(&one_decay, 1), bits(&decay[i], 1));
    ASSERT_EQ(bits(&one_beta, 1), bits(&beta[i], 1));
  }
}

TEST_P(Delta, ConvHasTheValuesOfTheSpec) {
  const std::vector<float> u = {1, 2, 3, 4, 5}, w = {.1f, .2f, .3f, .4f};
  std::vector<float> window(3, 0.0f), y(5);
  kernels().conv_silu(u.data(), 1, 5, 1, w.data(), window.data(), y.data(), 0, 1);
  expect_near(y, {.23947506f, .82528612f, 1.76159416f, 2.85772238f, 3.92805516f}, 5e-7);
  EXPECT_EQ(window, (std::vector<float>{3, 4, 5}));
}

TEST_P(Delta, ConvAgreesWithTheReference) {
  for (int C : {1, 13, 64, 101}) {
    SCOPED_TRACE(C);
    const size_t width = static_cast<size_t>(C);
    const std::vector<float> u = normal(9 * width, 1), w = normal(4 * width, 2);
    std::vector<float> window = normal(3 * width, 3), want_window = window, y(9 * width), want(9 * width);
    kernels().conv_silu(u.data(), C, 9, C, w.data(), window.data(), y.data(), 0, C);
    reference().conv_silu(u.data(), C, 9, C, w.data(), want_window.data(), want.data(), 0, C);
    expect_near(y, want, 32 * kEps, 8 * kEps);
    EXPECT_EQ(bits(window), bits(want_window));
  }
}

TEST_P(Delta, ConvDoesNotDependOnChunksOrChannelRanges) {
  constexpr int kC = 77, kTokens = 7, kStride = 90;
  const std::vector<float> u = normal(kStride * kTokens, 1), w = normal(4 * kC, 2), start = normal(3 * kC, 3);
  std::vector<float> whole_window = start, whole(kC * kTokens), window = start, y(kC * kTokens);
  kernels().conv_silu(u.data(), kStride, kTokens, kC, w.data(), whole_window.data(), whole.data(), 0, kC);
  for (auto [first, last] : {std::pair{40, 77}, {0, 3}, {3, 40}}) {
    for (auto [begin, end] : {std::pair{0, 1}, {1, 3}, {3, 7}}) {
      kernels().conv_silu(&u[static_cast<size_t>(begin * kStride)], kStride, end - begin, kC, w.data(), window.data(),
                          &y[static_cast<size_t>(begin * kC)], first, last);
    }
  }
  EXPECT_EQ(bits(whole), bits(y));
  EXPECT_EQ(bits(whole_window), bits(window));
}

TUTTI_FOR_EACH_ISA(Delta);

}  // namespace
}  // namespace tutti::kernels::test
