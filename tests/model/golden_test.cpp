// The golden checkpoints in the float32 mode, both bodies: logits within 2e-4 of the float32 reference, in one piece
// and in chunks, and the reference's greedy continuations.
#include <gtest/gtest.h>

#include <cmath>

#include "model/safetensors_file.h"
#include "model/session.h"

namespace tutti::test {
namespace {

constexpr float kTolerance = 2e-4f;
constexpr int kPrompts[] = {1, 2, 7, 63, 64, 65, 130, 200};
constexpr int kDecoded = 24;

struct Case {
  std::string folder;
  ops::Body body;
};

class Golden : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string folder = std::string(TUTTI_SOURCE_DIR) + "/tests/golden/" + GetParam().folder;
    expected_ = read_safetensors(folder + "/expected.safetensors");
    mode_.numerics = float32_mode(GetParam().body);
    mode_.isa = kernels::available().back();
    model_ = load_model(folder, mode_);
  }
  const Values& expected(int n, const std::string& key) const {
    return expected_.at("p" + std::to_string(n) + "." + key);
  }

  void expect_row(const std::vector<float>& got, const Values& want, int row, const std::string& what) {
    const int V = static_cast<int>(want.shape.back());
    ASSERT_EQ(static_cast<int>(got.size()), V);
    float worst = 0;
    for (int i = 0; i < V; ++i) {
      const float difference = std::abs(got[static_cast<size_t>(i)] - want.f[static_cast<size_t>(row) * V + i]);
      worst = std::max(worst, std::isnan(difference) ? INFINITY : difference);
    }
    EXPECT_LE(worst, kTolerance) << what << " row " << row;
  }
  void expect_rows(const Logits& got, const Values& want, const std::string& what) {
    ASSERT_EQ(static_cast<int64_t>(got.size()), want.shape[0]) << what;
    for (size_t row = 0; row < got.size(); ++row) expect_row(got[row], want, static_cast<int>(row), what);
  }

  std::map<std::string, Values> expected_;
  Mode mode_;
  std::shared_ptr<const model::Model> model_;
};

// The graph bodies take a node per operation and token: a part of the prompts, and one long continuation.
bool graph(const Case& c) {
  return c.body == ops::Body::graph;
}

TEST_P(Golden, PromptLogitsAndGreedyContinuation) {
  for (const int n : kPrompts) {
    if (graph(GetParam()) && n != 1 && n != 7 && n != 65) continue;
    const int steps = graph(GetParam()) && n != 65 ? 2 : kDecoded;
    const std::string name = "p" + std::to_string(n);
    const auto& want = expected(n, "logits");
    const auto& greedy = expected(n, "greedy").i;
    const auto& decoded = expected(n, "decode_logits_0_1_23");
    Session session(model_, mode_, 1, n + kDecoded);
    Logits logits = feed(session, 0, expected(n, "ids").i, 0, static_cast<int>(want.shape[0]));
    expect_rows(logits, want, name);
    // Where a margin is below the tolerance the choice may fall either way; the reference's own tokens are fed.
    const bool decisive = expected(n, "min_margin").f[0] > 2 * kTolerance;
    for (int i = 0; i < steps; ++i) {
      const int32_t token = greedy[static_cast<size_t>(i)];
      if (decisive) {
        EXPECT_EQ(argmax(logits.back()), token) << name << " token " << i;
      }
      logits = session.step({{0, {token}}});
      if (i < 2) expect_row(logits.back(), decoded, i, name + " decoded");
      if (i == 23) expect_row(logits.back(), decoded, 2, name + " decoded");
    }
  }
}

TEST_P(Golden, ChunkedPromptsGiveTheSameLogits) {
  for (const int n : {65, 130, 200}) {
    for (const int chunk : {1, 13, 64, 100}) {
      if (graph(GetParam()) && (n != 130 || chunk != 100)) continue;
      Session session(model_, mode_, 1, n);
      const auto& want = expected(n, "logits");
      const auto logits = feed(session, 0, expected(n, "ids").i, chunk, static_cast<int>(want.shape[0]));
      expect_rows(logits, want, "p" + std::to_string(n) + " in chunks of " + std::to_string(chunk));
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* folder : {"dense", "moe", "realdims", "quant/dense-affine2-g32", "quant/dense-affine8-g32",
                             "quant/dense-vlm-affine4-g32", "quant/moe-affine4-g32", "quant/moe128-affine4-g64",
                             "quant/realdims-affine4-g64", "quant/realdims-mixed_3_6"}) {
    for (const auto body : {ops::Body::cpu, ops::Body::graph}) all.push_back({folder, body});
  }
  return all;
}
std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.folder + (info.param.body == ops::Body::cpu ? "_cpu" : "_graph");
  std::replace_if(name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Folders, Golden, ::testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace tutti::test
