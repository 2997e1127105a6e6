// Rotary frequencies, the fake model, and what a loaded model says of itself.
#include <gtest/gtest.h>

#include "model/rope_table.h"
#include "model/session.h"

namespace tutti::test {
namespace {

model::Config released() {
  model::Config c;
  c.head_dim = 256;
  c.rope.theta = 1e7;
  return c;
}

TEST(Rope, FrequenciesAndAxesOfTheReleases) {
  const auto rope = model::make_rope(released());
  EXPECT_EQ(rope.rotary_dim, 64);
  ASSERT_EQ(rope.inv_freq.size(), 32u);
  EXPECT_FLOAT_EQ(rope.inv_freq[0], 1);
  EXPECT_FLOAT_EQ(rope.inv_freq[1], 0.604296390f);
  EXPECT_FLOAT_EQ(rope.inv_freq[31], 1.65481710e-7f);
  EXPECT_FLOAT_EQ(rope.attention_factor, 1);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(rope.axis[static_cast<size_t>(i)], i % 3) << i;
  EXPECT_EQ(rope.axis[30], 0);
  EXPECT_EQ(rope.axis[31], 1);
}

TEST(Rope, YarnBlendsBetweenTheCorrectionDims) {
  auto c = released();
  const auto plain = model::make_rope(c);
  c.rope.type = "yarn";
  c.rope.yarn_factor = 4;
  c.rope.yarn_original_max_positions = 262144;
  const auto rope = model::make_rope(c);
  EXPECT_FLOAT_EQ(rope.attention_factor, 1.138629436f);
  EXPECT_FLOAT_EQ(rope.inv_freq[14], plain.inv_freq[14]);           // ramp 0 up to 14
  EXPECT_FLOAT_EQ(rope.inv_freq[22], plain.inv_freq[22] / 4);       // ramp 1 from 22
  EXPECT_FLOAT_EQ(rope.inv_freq[18], plain.inv_freq[18] * 0.625f);  // half of each
  c.rope.yarn_attention_factor = 2;
  EXPECT_FLOAT_EQ(model::make_rope(c).attention_factor, 2);
}

TEST(Echo, PredictsAFixedFunctionOfTokenAndPosition) {
  const auto model = model::make_echo(97);
  Session session(model, {}, 2, 64);
  const auto logits = session.step({{0, {5, 6}, 2}, {1, {9}}});
  ASSERT_EQ(logits.size(), 3u);
  EXPECT_EQ(argmax(logits[0]), (3 * 5 + 0 + 1) % 97);
  EXPECT_EQ(argmax(logits[1]), (3 * 6 + 1 + 1) % 97);
  EXPECT_EQ(argmax(logits[2]), (3 * 9 + 0 + 1) % 97);
  EXPECT_EQ(argmax(session.step({{0, {7}}}).back()), (3 * 7 + 2 + 1) % 97);
  EXPECT_EQ(logits[0][static_cast<size_t>(argmax(logits[0]))], 8);
}

TEST(Echo, ThrowsOnTheTokensItIsToldTo) {
  Session session(model::make_echo(97, {13}), {}, 1, 64);
  EXPECT_NO_THROW(session.step({{0, {5}}}));
  EXPECT_THROW(session.step({{0, {13}}}), std::runtime_error);
}

TEST(Load, SaysWhatItLoadedAndReportsProgress) {
  const std::string folder = std::string(TUTTI_SOURCE_DIR) + "/tests/golden/";
  int64_t last = 0, total = 0;
  ThreadPool pool(2);
  model::LoadOptions options;
  options.pool = &pool;
  options.vocab = 500;
  options.progress = [&](int64_t done, int64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  };
  const auto dense = model::load(weights::Checkpoint::open(folder + "dense"), options);
  EXPECT_GT(last, 0);
  EXPECT_LE(last, total);
  EXPECT_EQ(dense->info().format, "bfloat16");
  EXPECT_EQ(dense->info().vocab, 500);
  EXPECT_EQ(dense->info().logits, 512);
  EXPECT_GT(dense->info().weight_bytes, 0);
  last = 0;
  const auto mixed = model::load(weights::Checkpoint::open(folder + "quant/realdims-mixed_3_6"), options);
  EXPECT_TRUE(mixed->info().format.starts_with("mixed: affine")) << mixed->info().format;
}

TEST(Load, IdsThatTheTokenizerLacksAreMinusInfinity) {
  Mode mode;
  mode.isa = kernels::available().back();
  const auto model = load_model(std::string(TUTTI_SOURCE_DIR) + "/tests/golden/dense", mode, 500);
  Session session(model, mode, 1, 64);
  const auto logits = session.step({{0, {1}}}).back();
  EXPECT_TRUE(std::isfinite(logits[499]));
  for (size_t i = 500; i < 512; ++i) EXPECT_EQ(logits[i], -INFINITY);
}

TEST(Load, ATokenizerWithMoreIdsThanRowsIsRefused) {
  model::LoadOptions options;
  options.vocab = 513;
  EXPECT_THROW(model::load(weights::Checkpoint::open(std::string(TUTTI_SOURCE_DIR) + "/tests/golden/dense"), options),
               LoadError);
}

}  // namespace
}  // namespace tutti::test
