// The multi-token-prediction head against the float32 reference, and against itself in pieces.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "model/safetensors_file.h"
#include "model/session.h"

namespace tutti::test {
namespace {

constexpr float kTolerance = 2e-4f;

std::string golden(const std::string& folder) {
  return std::string(TUTTI_SOURCE_DIR) + "/tests/golden/" + folder;
}

struct Drafted {
  explicit Drafted(const std::string& folder, const Mode& mode, const std::vector<int32_t>& prompt)
      : model(load_model(golden(folder), mode, 0, true)), session(model, mode, 1, 128) {
    const auto logits = feed(session, 0, prompt, 0, 1);
    hidden = session.last_hidden;
    tokens.assign(prompt.begin() + 1, prompt.end());
    tokens.push_back(argmax(logits.back()));
  }
  std::shared_ptr<const model::Model> model;
  Session session;
  std::vector<int32_t> tokens;  // each the one after that of its hidden vector
  std::vector<float> hidden;
};

class GoldenDraft : public ::testing::TestWithParam<std::tuple<const char*, ops::Body>> {};

TEST_P(GoldenDraft, LogitsAreThoseOfTheReference) {
  const auto& [folder, body] = GetParam();
  Mode mode;
  mode.numerics = float32_mode(body);
  mode.isa = kernels::available().back();
  auto expected = read_safetensors(golden(folder) + "/expected.safetensors");
  for (const int n : {1, 7, 65}) {
    const std::string name = "p" + std::to_string(n);
    Drafted d(folder, mode, expected.at(name + ".ids").i);
    const Logits got = d.session.draft(0, 0, d.tokens, d.hidden).first;
    const Values& want = expected.at(name + ".mtp_logits_last4");
    const auto rows = static_cast<size_t>(want.shape[0]), V = static_cast<size_t>(want.shape[1]);
    for (size_t r = 0; r < rows; ++r)
      for (size_t i = 0; i < V; ++i)
        ASSERT_NEAR(got[got.size() - rows + r][i], want.f[r * V + i], kTolerance) << name << " row " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, GoldenDraft,
                         ::testing::Combine(::testing::Values("dense", "moe", "realdims",
                                                              "quant/dense-vlm-affine4-g32"),
                                            ::testing::Values(ops::Body::cpu, ops::Body::graph)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           std::ranges::replace_if(name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name + (std::get<1>(info.param) == ops::Body::cpu ? "_cpu" : "_graph");
                         });

TEST(Draft, EntriesInPiecesAreThoseInOnePass) {
  Mode mode;
  mode.isa = kernels::available().back();
  std::vector<int32_t> prompt;
  for (int i = 0; i < 70; ++i) prompt.push_back((37 * i + 5) % 500);
  Drafted whole("dense", mode, prompt), parts("dense", mode, prompt);
  const auto [logits, made] = whole.session.draft(0, 0, whole.tokens, whole.hidden);
  const auto H = static_cast<size_t>(whole.model->info().hidden);
  for (size_t begin = 0; begin < 70; begin += 11) {
    const size_t end = std::min<size_t>(70, begin + 11);
    const auto [part, part_made] = parts.session.draft(
        0, static_cast<int>(begin),
        {parts.tokens.begin() + static_cast<long>(begin), parts.tokens.begin() + static_cast<long>(end)},
        {parts.hidden.begin() + static_cast<long>(begin * H), parts.hidden.begin() + static_cast<long>(end * H)});
    for (size_t t = begin; t < end; ++t) EXPECT_EQ(part[t - begin], logits[t]) << t;
    EXPECT_EQ(std::memcmp(part_made.data(), made.data() + begin * H, (end - begin) * H * sizeof(float)), 0);
  }
}

TEST(Draft, TheTrunkIsTheSameWithTheHeadLoaded) {
  Mode mode;
  mode.isa = kernels::available().back();
  const std::vector<int32_t> prompt = {5, 6, 7, 8};
  Session with(load_model(golden("dense"), mode, 0, true), mode, 1, 64),
      without(load_model(golden("dense"), mode), mode, 1, 64);
  EXPECT_EQ(feed(with, 0, prompt, 0, 4), feed(without, 0, prompt, 0, 4));
}

TEST(Draft, AHeadThatIsNotThereIsSaidSo) {
  Mode mode;
  mode.isa = kernels::available().back();
  const auto model = load_model(golden("quant/dense-affine8-g32"), mode, 0, true);
  EXPECT_FALSE(model->info().drafts);
  EXPECT_EQ(model->info().no_drafts, "the checkpoint has no multi-token-prediction head");
  const auto unwanted = load_model(golden("dense"), mode);
  EXPECT_FALSE(unwanted->info().drafts);
  EXPECT_EQ(unwanted->info().no_drafts, "");
}

// golden/dense with one piece of its header replaced by another of the same length.
std::shared_ptr<const model::Model> load_changed(const std::string& before, const std::string& after) {
  const auto bytes_of = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string config = bytes_of(golden("dense/config.json"));
  std::string weights = bytes_of(golden("dense/model.safetensors"));
  const size_t at = weights.find(before);
  if (at == std::string::npos || before.size() != after.size()) throw std::logic_error("nothing to change");
  weights.replace(at, before.size(), after);
  const auto span = [](const std::string& s) {
    return std::span(reinterpret_cast<const std::byte*>(s.data()), s.size());
  };
  model::LoadOptions options;
  options.drafts = true;
  return model::load(weights::Checkpoint::from_memory(
                         "changed", {{"config.json", span(config)}, {"model.safetensors", span(weights)}}),
                     options);
}

TEST(Draft, AnIncompleteHeadIsRefusedWithItsReason) {
  const auto model = load_changed("mtp.fc.weight", "mtp.xx.weight");
  EXPECT_FALSE(model->info().drafts);
  EXPECT_EQ(model->info().no_drafts,
            "its multi-token-prediction head is incomplete: 1 of 15 tensors are missing, among them mtp.fc");
}

// The model is served all the same.
TEST(Draft, AHeadOfWrongShapesOrInAFormatThatCantBeReadIsRefusedWithItsReason) {
  const auto misshapen = load_changed(R"("mtp.fc.weight":{"dtype":"BF16","shape":[96,192])",
                                      R"("mtp.fc.weight":{"dtype":"BF16","shape":[192,96])");
  EXPECT_FALSE(misshapen->info().drafts);
  EXPECT_EQ(
      misshapen->info().no_drafts,
      "its multi-token-prediction head can't be used: model.safetensors: mtp.fc.weight: expected [96, 192], found "
      "[192, 96]");
  const auto integers = load_changed(R"("mtp.fc.weight":{"dtype":"BF16")", R"("mtp.fc.weight":{"dtype":"I16" )");
  EXPECT_TRUE(integers->info().no_drafts.starts_with("its multi-token-prediction head can't be used: "));
  const auto scaled = load_changed("mtp.pre_fc_norm_hidden.weight", "mtp.pre_fc_norm_.weight_scale");
  EXPECT_TRUE(scaled->info().no_drafts.starts_with("its multi-token-prediction head is incomplete: "));
}

}  // namespace
}  // namespace tutti::test
