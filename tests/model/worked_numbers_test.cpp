// The worked numbers of the specification: tiny models from a formula, expected values of an independent float64
// implementation. Their heads are too narrow for the kernels, so the graph bodies run them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "model/safetensors_file.h"
#include "model/session.h"

namespace tutti::test {
namespace {

using nlohmann::json;
constexpr float kTolerance = 2e-4f;

float generated(int64_t n, uint32_t id, double scale, double offset) {
  auto h = static_cast<uint32_t>(static_cast<uint64_t>(n) * 2654435761u) + id * 40503u + 12345u;
  h ^= h >> 16;
  h *= 2246822519u;
  h ^= h >> 13;
  h *= 3266489917u;
  h ^= h >> 16;
  return static_cast<float>(offset + scale * (2.0 * h / 4294967296.0 - 1));
}

// A checkpoint in memory, as a Hugging Face folder would hold it.
struct Made {
  std::string config, file;
  std::map<std::string, std::vector<float>> values;
  std::shared_ptr<const weights::Checkpoint> checkpoint;
};

std::string config_of(const json& c) {
  const bool moe = c["moe"];
  json text = {{"model_type", moe ? "qwen3_5_moe_text" : "qwen3_5_text"},
               {"hidden_size", c["H"]},
               {"num_hidden_layers", c["L"]},
               {"full_attention_interval", c["interval"]},
               {"num_attention_heads", c["nh"]},
               {"num_key_value_heads", c["nkv"]},
               {"head_dim", c["hd"]},
               {"vocab_size", c["V"]},
               {"rms_norm_eps", c["eps"]},
               {"linear_num_key_heads", c["hk"]},
               {"linear_num_value_heads", c["hv"]},
               {"linear_key_head_dim", c["dk"]},
               {"linear_value_head_dim", c["dv"]},
               {"linear_conv_kernel_dim", c["K"]},
               {"tie_word_embeddings", c["tie"]},
               {"rope_parameters",
                {{"rope_type", "default"},
                 {"rope_theta", c["theta"]},
                 {"partial_rotary_factor", c["prf"]},
                 {"mrope_section", c["sec"]},
                 {"mrope_interleaved", true}}}};
  if (moe) {
    text["num_experts"] = c["E"];
    text["num_experts_per_tok"] = c["k"];
    text["moe_intermediate_size"] = c["mI"];
    text["shared_expert_intermediate_size"] = c["sI"];
  } else {
    text["intermediate_size"] = c["I"];
  }
  return text.dump();
}

// with_head: also the multi-token-prediction head.
std::unique_ptr<Made> make(const json& model, bool with_head = false) {
  auto made = std::make_unique<Made>();
  made->config = config_of(model["config"]);
  json header = json::object();
  std::string data;
  for (const auto& t : model["tensors"]) {
    const std::string name = t["name"];
    if (name.starts_with("mtp.") && !with_head) continue;
    int64_t n = 1;
    for (const int64_t d : t["shape"]) n *= d;
    auto& values = made->values[name];
    for (int64_t i = 0; i < n; ++i) values.push_back(generated(i, t["id"], t["scale"], t["offset"]));
    header[name] = {
        {"dtype", "F32"}, {"shape", t["shape"]}, {"data_offsets", {data.size(), data.size() + 4 * values.size()}}};
    data.append(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  made->file.append(reinterpret_cast<const char*>(&length), 8);
  made->file += text + data;
  const auto bytes = [](const std::string& s) { return std::as_bytes(std::span(s.data(), s.size())); };
  made->checkpoint = weights::Checkpoint::from_memory(
      "worked numbers", {{"config.json", bytes(made->config)}, {"model.safetensors", bytes(made->file)}});
  return made;
}

void expect_near(const std::vector<float>& got, const json& want, const std::string& what) {
  ASSERT_GE(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i].get<float>(), kTolerance) << what << " " << i;
}

class WorkedNumbers : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ifstream in(std::string(TUTTI_SOURCE_DIR) + "/tests/golden/worked_numbers.json");
    w_ = json::parse(in)[GetParam()];
    made_ = make(w_);
    mode_.numerics = float32_mode(ops::Body::graph);
    model::LoadOptions options;
    options.numerics = mode_.numerics;
    model_ = model::load(made_->checkpoint, options);
  }
  std::vector<int32_t> ids(const json& list) const { return list.get<std::vector<int32_t>>(); }

  // The logits that a final hidden gives.
  json logits_of(const json& hidden) const {
    const auto it = made_->values.find("lm_head.weight");
    const bool tied = w_["config"]["tie"];
    const auto& head = tied ? made_->values.at("model.embed_tokens.weight") : it->second;
    json logits = json::array();
    for (size_t v = 0; v < head.size() / hidden.size(); ++v) {
      double sum = 0;
      for (size_t h = 0; h < hidden.size(); ++h) sum += hidden[h].get<double>() * head[v * hidden.size() + h];
      logits.push_back(sum);
    }
    return logits;
  }

  json w_;
  std::unique_ptr<Made> made_;
  Mode mode_;
  std::shared_ptr<const model::Model> model_;
};

TEST_P(WorkedNumbers, TheGeneratorIsTheSame) {
  for (const auto& [name, values] : w_["generator_check"].items()) {
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(made_->values.at(name)[i], values[i].get<float>(), 1e-6) << name;
    }
  }
}

TEST_P(WorkedNumbers, PromptStatesAndDecoding) {
  Session session(model_, mode_, 1, 64);
  const auto prompt = ids(w_["prompt"]);
  const int n = static_cast<int>(prompt.size());
  auto logits = feed(session, 0, prompt, 0, n);
  for (int t = 0; t < n; ++t) EXPECT_EQ(argmax(logits[static_cast<size_t>(t)]), w_["argmax_every_position"][t]) << t;
  expect_near(logits.back(), w_["logits_last_token"], "logits");
  expect_near(logits.back(), logits_of(w_["final_hidden_last_token"]), "logits of the final hidden");

  const auto state = std::get<ops::GraphState>(session.store().state(0));
  const auto conv = std::get<ops::GraphState>(session.store().state(0)).conv;
  const json& states = w_["state_after_prompt"];
  const int dk = w_["config"]["dk"], dv = w_["config"]["dv"], hv = w_["config"]["hv"], C = conv->shape(2);
  for (int k = 0; k < dk; ++k) {
    const float* row = state.state->data<float>() + ((int64_t{1} * hv + 3) * dk + k) * dv;  // slot 1, head 3
    expect_near({row, row + dv}, states["layer0_S_head3_dk_by_dv"][k], "S");
  }
  for (int j = 0; j < 3; ++j) {
    const float* row = conv->data<float>() + (int64_t{1} * 3 + j) * C;
    expect_near({row, row + 4}, states["layer0_conv_state_first4_channels_oldest_first"][j], "conv");
  }
  const auto kv = std::get<ops::GraphKv>(session.store().kv(3));
  const int hd = w_["config"]["hd"], G = w_["config"]["nkv"];
  const int64_t at = (int64_t{1} * 64 + n - 1) * G * hd;  // block 1
  expect_near({kv.k->data<float>() + at, kv.k->data<float>() + at + hd}, states["layer3_k_head0_last_pos"], "k");
  expect_near({kv.v->data<float>() + at, kv.v->data<float>() + at + hd}, states["layer3_v_head0_last_pos"], "v");

  for (const auto& step : w_["decode"]) {
    const auto row = session.step({{0, {step["token"].get<int32_t>()}}}).back();
    expect_near(row, step["logits_first8"], "decoded");
    EXPECT_EQ(argmax(row), step["argmax"]);
  }
}

// Numbers that are given for the dense model only.
class DenseNumbers : public WorkedNumbers {};

TEST_P(DenseNumbers, APromptBeyondABlock) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 70; ++i) prompt.push_back((7 * i + 3) % 40);
  for (const int chunk : {0, 33}) {
    Session session(model_, mode_, 1, 128);
    const auto logits = feed(session, 0, prompt, chunk, 70);
    expect_near(logits.back(), logits_of(w_["long_prompt"]["final_hidden_last_token"]), "last");
    expect_near(logits[63], logits_of(w_["long_prompt"]["final_hidden_token63"]), "token 63");
    EXPECT_EQ(argmax(logits.back()), w_["long_prompt"]["argmax_last"]);
  }
}

TEST_P(DenseNumbers, ThreeAxesOfPositions) {
  const json& m = w_["mrope_prompt"];
  Session session(model_, mode_, 1, 64);
  for (const auto& axis : m["positions_thw"]) {
    for (const int32_t p : axis) session.positions.push_back(p);
  }
  expect_near(feed(session, 0, ids(m["ids"]), 0, 1).back(), logits_of(m["final_hidden_last_token"]), "last");
  session.positions.assign(3, m["next_position"].get<int32_t>());
  expect_near(session.step({{0, {m["next_token"].get<int32_t>()}}}).back(), logits_of(m["final_hidden_next"]), "next");
}

TEST_P(DenseNumbers, TheDraftHeadsChain) {
  const json& m = w_["mtp"];
  const auto made = make(w_, true);
  model::LoadOptions options;
  options.numerics = mode_.numerics;
  options.drafts = true;
  const auto model = model::load(made->checkpoint, options);
  ASSERT_TRUE(model->info().drafts) << model->info().no_drafts;
  Session session(model, mode_, 1, 64);
  const auto prompt = ids(w_["prompt"]);
  const auto logits = feed(session, 0, prompt, 0, 1);
  const int32_t sampled = m["sampled_next_token"];
  EXPECT_EQ(argmax(logits.back()), sampled);
  auto inputs = std::vector<int32_t>(prompt.begin() + 1, prompt.end());
  inputs.push_back(sampled);
  EXPECT_EQ(inputs, ids(m["draft_inputs"]));

  const auto first = session.draft(0, 0, inputs, session.last_hidden);
  const std::vector<float> last(first.second.end() - model->info().hidden, first.second.end());
  expect_near(last, m["mtp_hidden_last"], "hidden of the first guess");
  expect_near(first.first.back(), m["draft1_logits_first8"], "logits of the first guess");
  EXPECT_EQ(argmax(first.first.back()), m["draft1"]);

  const json& step = m["step2"];
  const auto second = session.draft(0, step["position"], {step["token"].get<int32_t>()}, last);
  expect_near(second.second, step["mtp_hidden"], "hidden of the second guess");
  EXPECT_EQ(argmax(second.first.back()), step["draft2"]);

  // The block that verifies them.
  const json& block = m["target_argmax_on_verify_block"];
  const auto verified = session.step({{0, {sampled, m["draft1"], step["draft2"]}, 3}});
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(argmax(verified[i]), block[i]) << i;
}

TEST_P(WorkedNumbers, TheKernelsRefuseHeadsThatAreTooNarrow) {
  try {
    model::load(made_->checkpoint, {});
    FAIL() << "loaded";
  } catch (const LoadError& e) {
    EXPECT_NE(std::string(e.what()).find("linear_value_head_dim is 8"), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DenseNumbers, ::testing::Values("dense"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Models, WorkedNumbers, ::testing::Values("dense", "moe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutti::test
