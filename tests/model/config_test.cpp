#include "model/config.h"

#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"

namespace tutti::model {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

json dense_text() {
  return json::parse(R"({"model_type":"qwen3_5_text","vocab_size":1000,"hidden_size":64,"num_hidden_layers":8,
    "num_attention_heads":8,"num_key_value_heads":2,"rope_parameters":{"rope_theta":10000000,"mrope_section":[11,11,10]}})");
}
json moe_text() {
  json text = dense_text();
  text["model_type"] = "qwen3_5_moe_text";
  return text;
}
json wrapped(json text, const std::string& type = "qwen3_5") {
  return {{"model_type", type}, {"text_config", std::move(text)}};
}

Config parse(const json& j) {
  return parse_config(j.dump(), "model");
}

std::string error_of_text(const std::string& text) {
  try {
    parse_config(text, "model");
  } catch (const LoadError& e) {
    return e.what();
  }
  return "";
}
std::string error(const json& j) {
  return error_of_text(j.dump());
}

// The error of a flat dense (or MoE) config with these fields put in; a null removes the field.
std::string error_with(const json& fields, json text = dense_text()) {
  text.merge_patch(fields);
  return error(text);
}

TEST(ConfigTest, DefaultsOfADenseModel) {
  const Config c = parse(wrapped(dense_text()));
  EXPECT_EQ(c.model_type, "qwen3_5_text");
  EXPECT_EQ(c.vocab_size, 1000);
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.intermediate_size, 12288);
  EXPECT_EQ(c.num_attention_heads, 8);
  EXPECT_EQ(c.num_key_value_heads, 2);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.max_position_embeddings, 32768);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.linear_conv_kernel_dim, 4);
  EXPECT_EQ(c.linear_key_head_dim, 128);
  EXPECT_EQ(c.linear_value_head_dim, 128);
  EXPECT_EQ(c.linear_num_key_heads, 16);
  EXPECT_EQ(c.linear_num_value_heads, 32);
  EXPECT_FALSE(c.moe());
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_FALSE(c.has_vision);
  EXPECT_FALSE(c.has_mtp);
  EXPECT_TRUE(c.eos_token_ids.empty());
  EXPECT_EQ(c.rope.type, "default");
  EXPECT_EQ(c.rope.theta, 1e7);
  EXPECT_EQ(c.rope.partial_rotary_factor, 0.25);
  EXPECT_FALSE(c.quantization.by_default.has_value());
  EXPECT_TRUE(c.quantization.overrides.empty());
}

TEST(ConfigTest, DefaultsOfAMixtureModel) {
  const Config c = parse(wrapped(moe_text(), "qwen3_5_moe"));
  EXPECT_EQ(c.model_type, "qwen3_5_moe_text");
  EXPECT_TRUE(c.moe());
  EXPECT_EQ(c.num_experts, 256);
  EXPECT_EQ(c.num_experts_per_tok, 8);
  EXPECT_EQ(c.moe_intermediate_size, 512);
  EXPECT_EQ(c.shared_expert_intermediate_size, 512);
}

TEST(ConfigTest, NestedAndFlatAreTheSame) {
  for (const json& j : {wrapped(dense_text()), wrapped(dense_text(), "qwen3_5_text"), dense_text()}) {
    const Config c = parse(j);
    EXPECT_EQ(c.model_type, "qwen3_5_text");
    EXPECT_EQ(c.num_hidden_layers, 8);
  }
  json flat = dense_text();
  flat["model_type"] = "qwen3_5";
  EXPECT_EQ(parse(flat).model_type, "qwen3_5_text");
  json untyped = wrapped(dense_text());
  untyped["text_config"].erase("model_type");
  EXPECT_EQ(parse(untyped).model_type, "qwen3_5_text");
}

TEST(ConfigTest, OtherFamiliesAreRefusedByName) {
  for (const char* type : {"qwen3_next", "qwen4_exp", "llama", "qwen3_5_mtp"}) {
    EXPECT_THAT(error_with({{"model_type", type}}), AllOf(HasSubstr(type), HasSubstr("is not supported")));
    EXPECT_THAT(error(wrapped(dense_text(), type)), HasSubstr(type));
    json text = dense_text();
    text["model_type"] = type;
    EXPECT_THAT(error(wrapped(text)), HasSubstr(type));
  }
  EXPECT_THAT(error_with({{"model_type", nullptr}}), HasSubstr("model_type: expected a value, found none"));
  EXPECT_THAT(error_with({{"model_type", 5}}), HasSubstr("model_type 5 is not supported"));
  EXPECT_THAT(error(wrapped(moe_text(), "qwen3_5")), HasSubstr("contradicts"));
}

TEST(ConfigTest, TextThatIsNoConfig) {
  EXPECT_THAT(error_of_text(""), HasSubstr("model: config.json: not valid JSON"));
  EXPECT_THAT(error_of_text("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of_text(std::string(100000, '[')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(error_of_text(R"({"model_type":"qwen3_5","text_config":3})"),
              HasSubstr("text_config: expected an object, found 3"));
  EXPECT_THAT(error_of_text(R"({"model_type":"qwen3_5","model_type":"llama"})"), HasSubstr("occurs twice"));
}

TEST(ConfigTest, EveryBadFieldIsListedAtOnce) {
  const std::string text = error({{"model_type", "qwen3_5_text"},
                                  {"hidden_size", -4},
                                  {"num_hidden_layers", 2000000},
                                  {"num_attention_heads", "8"},
                                  {"head_dim", 2.5},
                                  {"rms_norm_eps", -1}});
  EXPECT_THAT(
      text, AllOf(HasSubstr("model: 8 problems"), HasSubstr("vocab_size: expected a value, found none"),
                  HasSubstr("hidden_size: expected a whole number from 1 to 1048576, found -4"),
                  HasSubstr("num_hidden_layers: expected a whole number from 1 to 4096, found 2000000"),
                  HasSubstr("num_attention_heads: expected a whole number from 1 to 4096, found \"8\""),
                  HasSubstr("num_key_value_heads: expected a value, found none"),
                  HasSubstr("head_dim: expected a whole number from 2 to 4096, found 2.5"),
                  HasSubstr("rms_norm_eps: expected a number"), HasSubstr("rope_theta: expected a value, found none")));
}

TEST(ConfigTest, EachRequiredFieldIsRequired) {
  for (const char* name :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"})
    EXPECT_THAT(error_with({{name, nullptr}}), HasSubstr(std::string(name) + ": expected a value, found none"));
  EXPECT_THAT(error_with({{"rope_parameters", {{"rope_theta", nullptr}}}}),
              HasSubstr("rope_theta: expected a value, found none"));
}

TEST(ConfigTest, AbsurdNumbersAreRefused) {
  EXPECT_THAT(error_with({{"vocab_size", 0}}), HasSubstr("vocab_size"));
  EXPECT_THAT(error_with({{"vocab_size", true}}), HasSubstr("found true"));
  EXPECT_THAT(error_with({{"hidden_size", 18446744073709551615u}}), HasSubstr("found 18446744073709551615"));
  EXPECT_THAT(error_with({{"num_attention_heads", 1 << 20}}), HasSubstr("num_attention_heads"));
  EXPECT_THAT(error_with({{"max_position_embeddings", 0}}), HasSubstr("max_position_embeddings"));
  EXPECT_THAT(error_with({{"linear_conv_kernel_dim", 1}}), HasSubstr("linear_conv_kernel_dim"));
  EXPECT_THAT(error_with({{"intermediate_size", -1}}), HasSubstr("intermediate_size"));
  EXPECT_THAT(error_with({{"linear_key_head_dim", 0}}), HasSubstr("linear_key_head_dim"));
}

TEST(ConfigTest, HeadsMustDivide) {
  EXPECT_THAT(error_with({{"num_key_value_heads", 3}}),
              HasSubstr("num_key_value_heads: expected a divisor of num_attention_heads (8), found 3"));
  EXPECT_THAT(error_with({{"linear_num_key_heads", 5}}),
              HasSubstr("linear_num_key_heads: expected a divisor of linear_num_value_heads (32), found 5"));
}

std::vector<int> full_layers(const Config& c) {
  std::vector<int> out;
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (c.layers[i] == LayerType::full_attention) out.push_back(static_cast<int>(i));
  }
  return out;
}

TEST(LayerTypesTest, IntervalWithoutAList) {
  EXPECT_THAT(full_layers(parse(dense_text())), ElementsAre(3, 7));
  json text = dense_text();
  text["full_attention_interval"] = 3;
  text["layer_types"] = nullptr;
  EXPECT_THAT(full_layers(parse(text)), ElementsAre(2, 5));
  EXPECT_THAT(error_with({{"full_attention_interval", 0}}), HasSubstr("full_attention_interval"));
}

TEST(LayerTypesTest, TheListIsHonoured) {
  json text = dense_text();
  text["layer_types"] = json::array();
  for (int i = 0; i < 8; ++i) text["layer_types"].push_back(i == 0 || i == 5 ? "full_attention" : "linear_attention");
  EXPECT_THAT(full_layers(parse(text)), ElementsAre(0, 5));
  text["layer_types"].erase(0);
  EXPECT_THAT(error(text), HasSubstr("layer_types: expected 8 entries (num_hidden_layers), found 7"));
  text["layer_types"].push_back("sliding_attention");
  EXPECT_THAT(error(text), HasSubstr("found \"sliding_attention\""));
  EXPECT_THAT(error_with({{"layer_types", "full_attention"}}), HasSubstr("layer_types: expected a list"));
}

TEST(RopeTest, SearchOrder) {
  json text = dense_text();
  text["rope_theta"] = 5.0;
  text["partial_rotary_factor"] = 0.5;
  text["rope_parameters"] = {{"mrope_section", {22, 21, 21}}};
  EXPECT_EQ(parse(text).rope.theta, 5);
  EXPECT_EQ(parse(text).rope.partial_rotary_factor, 0.5);
  text["rope_parameters"]["rope_theta"] = 7;
  text["rope_parameters"]["partial_rotary_factor"] = 0.25;
  text["rope_parameters"]["mrope_section"] = {11, 11, 10};
  EXPECT_EQ(parse(text).rope.theta, 7);
  EXPECT_EQ(parse(text).rope.partial_rotary_factor, 0.25);
}

TEST(RopeTest, OldNamesWork) {
  json text = dense_text();
  text.erase("rope_parameters");
  text["rope_theta"] = 1e6;
  EXPECT_THAT(parse(text).rope.mrope_section, ElementsAre(11, 11, 10));
  text["rope_scaling"] = {{"type", "yarn"}, {"factor", 2.0}};
  EXPECT_EQ(parse(text).rope.type, "yarn");
  EXPECT_EQ(parse(text).rope.yarn_factor, 2);
  EXPECT_EQ(parse(text).rope.yarn_original_max_positions, 32768);
}

TEST(RopeTest, Yarn) {
  json text = dense_text();
  text["rope_parameters"].update({{"rope_type", "yarn"},
                                  {"type", "yarn"},
                                  {"factor", 4},
                                  {"original_max_position_embeddings", 262144},
                                  {"beta_fast", 16},
                                  {"beta_slow", 2},
                                  {"attention_factor", 1.5}});
  const RopeConfig rope = parse(text).rope;
  EXPECT_EQ(rope.yarn_factor, 4);
  EXPECT_EQ(rope.yarn_original_max_positions, 262144);
  EXPECT_EQ(rope.yarn_beta_fast, 16);
  EXPECT_EQ(rope.yarn_beta_slow, 2);
  EXPECT_EQ(rope.yarn_attention_factor, 1.5);
}

std::string rope_error(const json& fields) {
  return error_with({{"rope_parameters", fields}});
}

TEST(RopeTest, WhatIsRefused) {
  EXPECT_THAT(rope_error({{"rope_type", "llama3"}}),
              HasSubstr("rope_parameters.rope_type: expected \"default\" or \"yarn\", found \"llama3\""));
  EXPECT_THAT(rope_error({{"type", "dynamic"}}), HasSubstr("rope_parameters.type: expected"));
  EXPECT_THAT(rope_error({{"rope_type", "default"}, {"type", "yarn"}}), HasSubstr("the same as rope_type"));
  EXPECT_THAT(rope_error({{"mrope_interleaved", false}}), HasSubstr("mrope_interleaved: expected true"));
  EXPECT_EQ(rope_error({{"mrope_interleaved", true}}), "");
  EXPECT_THAT(rope_error({{"mrope_section", {11, 11, 11}}}),
              HasSubstr("mrope_section: expected a sum of 32 (half the rotated dimensions), found [11,11,11]"));
  EXPECT_THAT(rope_error({{"mrope_section", {32}}}), HasSubstr("three whole numbers"));
  EXPECT_THAT(rope_error({{"mrope_section", {-11, 33, 10}}}), HasSubstr("three whole numbers"));
  EXPECT_THAT(rope_error({{"partial_rotary_factor", 1.5}}), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(rope_error({{"partial_rotary_factor", 0.004}}), HasSubstr("even number of rotated dimensions, found 1"));
  EXPECT_THAT(rope_error({{"rope_theta", 0}}), HasSubstr("rope_theta: expected a number"));
  EXPECT_THAT(rope_error({{"rope_type", "yarn"}}), HasSubstr("factor: expected a value, found none"));
  EXPECT_THAT(rope_error({{"rope_type", "yarn"}, {"factor", 0.5}}), HasSubstr("rope_parameters.factor"));
  EXPECT_THAT(rope_error({{"rope_type", "yarn"}, {"factor", 4}, {"mscale", 1.0}}), HasSubstr("mscale: this variant"));
  EXPECT_THAT(rope_error({{"rope_type", "yarn"}, {"factor", 4}, {"truncate", false}}),
              HasSubstr("truncate: this variant"));
  EXPECT_THAT(error_with({{"rope_parameters", 3}}), HasSubstr("rope_parameters: expected an object"));
}

TEST(ConfigTest, SwitchesThatWouldChangeTheFormulas) {
  EXPECT_THAT(error_with({{"hidden_act", "gelu"}}), HasSubstr("hidden_act: expected \"silu\", found \"gelu\""));
  EXPECT_THAT(error_with({{"attention_bias", true}}), HasSubstr("attention_bias"));
  EXPECT_THAT(error_with({{"attn_output_gate", false}}), HasSubstr("attn_output_gate"));
  EXPECT_THAT(error_with({{"output_gate_type", "sigmoid"}}), HasSubstr("output_gate_type"));
  for (const char* gate : {"swish", "silu"})
    EXPECT_EQ(error_with({{"output_gate_type", gate}, {"attn_output_gate", true}}), "");
  EXPECT_THAT(error_with({{"vision_config", {{"deepstack_visual_indexes", {1}}}}}), HasSubstr("deepstack"));
  EXPECT_EQ(error_with({{"vision_config", {{"deepstack_visual_indexes", json::array()}}}}), "");
}

TEST(ConfigTest, TyingIsStatedByEitherLevel) {
  json j = wrapped(dense_text());
  j["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(j).tie_word_embeddings);
  j["text_config"]["tie_word_embeddings"] = false;
  EXPECT_TRUE(parse(j).tie_word_embeddings);
  j["tie_word_embeddings"] = false;
  EXPECT_FALSE(parse(j).tie_word_embeddings);
  j["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(j).tie_word_embeddings);
}

TEST(ConfigTest, EndTokens) {
  json j = wrapped(dense_text());
  j["text_config"]["eos_token_id"] = 7;
  j["eos_token_id"] = {7, 999};
  EXPECT_THAT(parse(j).eos_token_ids, ElementsAre(7, 999));
  j["eos_token_id"] = {1000, -1, "x"};
  EXPECT_THAT(error(j),
              AllOf(HasSubstr("3 problems"), HasSubstr("eos_token_id: expected ids below vocab_size, found 1000")));
}

TEST(ConfigTest, ExpertsOfAMixture) {
  EXPECT_THAT(error_with({{"num_experts", 0}}, moe_text()), HasSubstr("num_experts"));
  EXPECT_THAT(error_with({{"num_experts", 4}, {"num_experts_per_tok", 5}}, moe_text()),
              HasSubstr("num_experts_per_tok: expected a whole number from 1 to 4"));
  EXPECT_THAT(error_with({{"mlp_only_layers", {1}}}, moe_text()), HasSubstr("mlp_only_layers"));
  EXPECT_EQ(error_with({{"mlp_only_layers", json::array()}, {"decoder_sparse_step", 1}, {"intermediate_size", -7}},
                       moe_text()),
            "");
  EXPECT_THAT(error_with({{"decoder_sparse_step", 2}}, moe_text()), HasSubstr("decoder_sparse_step"));
  EXPECT_THAT(error_with({{"num_experts", 4}}), HasSubstr("dense model"));
  EXPECT_EQ(error_with({{"num_experts", 0}}), "");
}

TEST(ConfigTest, PromisesOfOtherParts) {
  json j = wrapped(dense_text());
  j["vision_config"] = {{"depth", 2}};
  j["text_config"]["mtp_num_hidden_layers"] = 1;
  EXPECT_TRUE(parse(j).has_vision);
  EXPECT_TRUE(parse(j).has_mtp);
}

json with_quantization(const json& quantization) {
  json j = wrapped(dense_text());
  j["quantization"] = quantization;
  return j;
}

TEST(QuantizationTest, DefaultsAndOverridesInCanonicalForm) {
  const json q = json::parse(R"({"group_size":32,"bits":6,"mode":"affine",
    "language_model.model.layers.0.mlp.gate":{"group_size":64,"bits":8},
    "model.embed_tokens":{"bits":3},
    "language_model.model.layers.1.mlp.switch_mlp.down_proj":{"group_size":128,"bits":2,"mode":"affine"},
    "language_model.lm_head":false,
    "vision_tower.blocks.0.attn.qkv":{"group_size":32,"bits":8,"mode":"mxfp8"}})");
  json j = with_quantization(q);
  j["quantization_config"] = q;
  const weights::QuantizationConfig c = parse(j).quantization;
  EXPECT_EQ(c.by_default, (quant::AffineSpec{6, 32}));
  ASSERT_EQ(c.overrides.size(), 4u);
  EXPECT_EQ(c.overrides.at("layers.0.mlp.gate"), (quant::AffineSpec{8, 64}));
  EXPECT_EQ(c.overrides.at("embed_tokens"), (quant::AffineSpec{3, 64}));
  EXPECT_EQ(c.overrides.at("layers.1.mlp.experts.down_proj"), (quant::AffineSpec{2, 128}));
  EXPECT_EQ(c.overrides.at("lm_head"), std::nullopt);
}

TEST(QuantizationTest, EitherNameAndEitherLevel) {
  json j = wrapped(dense_text());
  j["text_config"]["quantization_config"] = {{"bits", 8}, {"group_size", 32}};
  EXPECT_EQ(parse(j).quantization.by_default, (quant::AffineSpec{8, 32}));
  j["quantization"] = {{"bits", 4}, {"group_size", 32}};
  EXPECT_THAT(error(j), HasSubstr("quantization_config: differs from another copy"));
}

TEST(QuantizationTest, UnsupportedFormatsAreNamed) {
  EXPECT_THAT(error(with_quantization({{"mode", "mxfp8"}, {"bits", 8}, {"group_size", 32}})),
              HasSubstr("format mxfp8 is not supported by this build: the default"));
  EXPECT_THAT(error(with_quantization({{"bits", 4}, {"model.layers.0.mlp.up_proj", {{"mode", "mxfp4"}, {"bits", 4}}}})),
              AllOf(HasSubstr("format mxfp4"), HasSubstr("model.layers.0.mlp.up_proj")));
  for (const char* method : {"fp8", "awq", "gptq", "compressed-tensors", "modelopt", "bitsandbytes"}) {
    json j = wrapped(dense_text());
    j["quantization_config"] = {{"quant_method", method}, {"bits", 4}};
    EXPECT_THAT(error(j),
                AllOf(HasSubstr("1 problem"), HasSubstr(std::string("format ") + method + " is not supported")));
  }
}

TEST(QuantizationTest, AnOverrideWithoutModeIsAffineUnderAnyDefault) {
  EXPECT_THAT(error(with_quantization({{"mode", "mxfp4"},
                                       {"bits", 4},
                                       {"group_size", 32},
                                       {"model.layers.0.mlp.gate", {{"bits", 8}, {"group_size", 64}}}})),
              AllOf(HasSubstr("the default"), Not(HasSubstr("mlp.gate"))));
}

TEST(QuantizationTest, WrongValues) {
  EXPECT_THAT(error(with_quantization({{"bits", 7}, {"group_size", 64}})), HasSubstr("found 7 bits and groups of 64"));
  EXPECT_THAT(error(with_quantization({{"bits", 4}, {"group_size", 48}})), HasSubstr("groups of 48"));
  EXPECT_THAT(error(with_quantization({{"bits", "4"}})), HasSubstr("quantization.bits: expected a whole number"));
  EXPECT_THAT(error(with_quantization(3)), HasSubstr("quantization: expected an object, found 3"));
  EXPECT_THAT(
      error(with_quantization(
          {{"bits", 4}, {"model.embed_tokens", {{"bits", 8}}}, {"language_model.model.embed_tokens", {{"bits", 4}}}})),
      HasSubstr("another entry for the same module says otherwise"));
}

std::string file(const std::string& path) {
  std::ifstream in(std::string(TUTTI_SOURCE_DIR) + "/" + path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

TEST(ConfigTest, TheFoldersOfTheProject) {
  const Config canary = parse_config(file("models/canary/config.json"), "canary");
  EXPECT_EQ(canary.hidden_size, 256);
  EXPECT_TRUE(canary.tie_word_embeddings);
  EXPECT_TRUE(canary.has_vision);
  EXPECT_THAT(full_layers(canary), ElementsAre(3, 7));
  EXPECT_THAT(canary.rope.mrope_section, ElementsAre(3, 3, 2));
  const Config moe = parse_config(file("tests/golden/quant/moe-affine4-g32/config.json"), "moe");
  EXPECT_EQ(moe.num_experts, 8);
  EXPECT_EQ(moe.quantization.by_default, (quant::AffineSpec{4, 32}));
  EXPECT_EQ(moe.quantization.overrides.at("layers.3.mlp.shared_expert_gate"), (quant::AffineSpec{8, 32}));
  EXPECT_THAT(error_of_text(file("tests/golden/quant/realdims-uneven/config.json")),
              AllOf(HasSubstr("1 problem"), HasSubstr("mxfp4"), HasSubstr("layers.3.mlp.up_proj")));
}

}  // namespace
}  // namespace tutti::model
