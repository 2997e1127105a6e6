// The embedded model in the numerics that users get: greedy ids equal those of the float32 reference, and what the
// default costs against the float32 mode.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/session.h"

namespace tutti::test {
namespace {

const std::string kCanary = std::string(TUTTI_SOURCE_DIR) + "/models/canary";

nlohmann::json read_json(const std::string& name) {
  std::ifstream in(std::string(TUTTI_SOURCE_DIR) + "/tests/canary/" + name);
  return nlohmann::json::parse(in);
}

Mode mode_of(bool float32) {
  Mode mode;
  if (float32) mode.numerics = float32_mode(ops::Body::cpu);
  mode.isa = kernels::available().back();
  return mode;
}

// Entries whose prompt is text only; pictures come with a later model part.
bool has_pictures(const nlohmann::json& entry, const nlohmann::json& config) {
  for (const int id : entry["prompt_ids"]) {
    if (id == config["image_token_id"] || id == config["video_token_id"]) return true;
  }
  return false;
}

TEST(Canary, GreedyIdsEqualTheReferenceInTheDefaultMode) {
  const Mode mode = mode_of(false);
  const auto model = load_model(kCanary, mode);
  std::ifstream in(kCanary + "/config.json");
  const auto config = nlohmann::json::parse(in);
  int checked = 0;
  const auto reference = read_json("reference.json");
  for (const auto& entry : reference["references"]) {
    if (has_pictures(entry, config)) continue;
    const auto prompt = entry["prompt_ids"].get<std::vector<int32_t>>();
    const auto want = entry["output_ids"].get<std::vector<int32_t>>();
    Session session(model, mode, 1, static_cast<int>(prompt.size() + want.size()));
    auto logits = feed(session, 0, prompt, 48, 1);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(argmax(logits.back()), want[i]) << entry["id"] << " token " << i;
      if (i + 1 < want.size()) logits = session.step({{0, {want[i]}}});
    }
    ++checked;
  }
  EXPECT_GE(checked, 16);
}

TEST(Canary, Float32ModeGivesTheReferenceLogits) {
  const Mode mode = mode_of(true);
  const auto model = load_model(kCanary, mode);
  const auto entry = read_json("reference.json")["references"][0];
  const auto prompt = entry["prompt_ids"].get<std::vector<int32_t>>();
  Session session(model, mode, 1, static_cast<int>(prompt.size()) + 8);
  auto logits = feed(session, 0, prompt, 0, 1);
  for (size_t i = 0; i < entry["top8"].size(); ++i) {
    for (const auto& top : entry["top8"][i]) {
      const auto id = top[0].get<size_t>();
      EXPECT_NEAR(logits.back()[id], top[1].get<float>(), 5e-4) << "token " << i << " id " << id;
    }
    logits = session.step({{0, {entry["output_ids"][i].get<int32_t>()}}});
  }
}

std::vector<double> log_softmax(const std::vector<float>& x) {
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float v : x) sum += std::exp(v - max);
  std::vector<double> out;
  for (const float v : x) out.push_back(v - max - std::log(sum));
  return out;
}

// Σ p log(p / q), p of the float32 mode.
double divergence(const std::vector<float>& p_logits, const std::vector<float>& q_logits) {
  const auto p = log_softmax(p_logits), q = log_softmax(q_logits);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
  return kl;
}

// Over the prompts and answers of the reference, each token's prediction.
TEST(Canary, TheDefaultModeLosesLittle) {
  const Mode exact = mode_of(true), usual = mode_of(false);
  const auto exact_model = load_model(kCanary, exact), usual_model = load_model(kCanary, usual);
  std::ifstream in(kCanary + "/config.json");
  const auto config = nlohmann::json::parse(in);
  double sum = 0, worst = 0;
  int tokens = 0;
  const auto reference = read_json("reference.json");
  for (const auto& entry : reference["references"]) {
    if (has_pictures(entry, config)) continue;
    auto ids = entry["prompt_ids"].get<std::vector<int32_t>>();
    for (const int32_t id : entry["output_ids"]) ids.push_back(id);
    const int n = static_cast<int>(ids.size());
    Session a(exact_model, exact, 1, n), b(usual_model, usual, 1, n);
    const auto p = feed(a, 0, ids, 256, n), q = feed(b, 0, ids, 256, n);
    for (int t = 0; t < n; ++t) {
      const double kl = divergence(p[static_cast<size_t>(t)], q[static_cast<size_t>(t)]);
      sum += kl;
      worst = std::max(worst, kl);
    }
    tokens += n;
  }
  const double mean = sum / tokens;
  std::printf("KL of the default mode on the canary, %d tokens: mean %.3g, max %.3g nats\n", tokens, mean, worst);
  EXPECT_LT(mean, 1e-3);
  EXPECT_LT(worst, 0.1);
}

}  // namespace
}  // namespace tutti::test
