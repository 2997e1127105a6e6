#include "weights/names.h"

#include <gtest/gtest.h>

namespace tutti::weights {
namespace {

struct Case {
  const char* stored;
  Part part;
  const char* canonical;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.stored;
}

class CanonicalNameTest : public ::testing::TestWithParam<Case> {};

TEST_P(CanonicalNameTest, Maps) {
  const Case& c = GetParam();
  const CanonicalName got = canonical_name(c.stored);
  EXPECT_EQ(got.part, c.part);
  EXPECT_EQ(got.name, c.canonical);
}

INSTANTIATE_TEST_SUITE_P(
    Prefixes, CanonicalNameTest,
    ::testing::Values(
        Case{"model.language_model.embed_tokens.weight", Part::text, "embed_tokens.weight"},
        Case{"language_model.model.layers.3.self_attn.q_proj.weight", Part::text, "layers.3.self_attn.q_proj.weight"},
        Case{"language_model.lm_head.weight", Part::text, "lm_head.weight"},
        Case{"model.language_model.model.norm.weight", Part::text, "norm.weight"},
        Case{"model.layers.0.linear_attn.A_log", Part::text, "layers.0.linear_attn.A_log"},
        Case{"text_model.layers.0.linear_attn.dt_bias", Part::text, "layers.0.linear_attn.dt_bias"},
        Case{"language_model.norm.weight", Part::text, "norm.weight"},
        Case{"layers.11.mlp.gate.scales", Part::text, "layers.11.mlp.gate.scales"},
        Case{"lm_head.weight", Part::text, "lm_head.weight"},
        Case{"model.lm_head.weight", Part::text, "lm_head.weight"},
        Case{"module._orig_mod.model.norm.weight", Part::text, "norm.weight"},
        Case{"model._orig_mod.layers.0._orig_mod.mlp.up_proj.weight", Part::text, "layers.0.mlp.up_proj.weight"}));

INSTANTIATE_TEST_SUITE_P(
    Parts, CanonicalNameTest,
    ::testing::Values(Case{"model.visual.blocks.0.norm1.bias", Part::vision, "visual.blocks.0.norm1.bias"},
                      Case{"visual.pos_embed.weight", Part::vision, "visual.pos_embed.weight"},
                      Case{"vision_tower.merger.norm.weight", Part::vision, "visual.merger.norm.weight"},
                      Case{"model.vision_tower.merger.norm.weight", Part::vision, "visual.merger.norm.weight"},
                      Case{"model.language_model.visual.merger.norm.weight", Part::vision, "visual.merger.norm.weight"},
                      Case{"mtp.fc.weight", Part::mtp, "mtp.fc.weight"},
                      Case{"model.mtp.layers.0.mlp.up_proj.weight", Part::mtp, "mtp.layers.0.mlp.up_proj.weight"},
                      Case{"language_model.mtp.norm.weight", Part::mtp, "mtp.norm.weight"},
                      Case{"model.layers.0.self_attn.rotary_emb.inv_freq", Part::ignored,
                           "model.layers.0.self_attn.rotary_emb.inv_freq"},
                      Case{"model.embeddings.position_ids", Part::ignored, "model.embeddings.position_ids"},
                      Case{"bn.num_batches_tracked", Part::ignored, "bn.num_batches_tracked"},
                      Case{"model.normalizer.weight", Part::unknown, "model.normalizer.weight"},
                      Case{"transformer.h.0.attn.weight", Part::unknown, "transformer.h.0.attn.weight"},
                      Case{"", Part::unknown, ""}));

INSTANTIATE_TEST_SUITE_P(Experts, CanonicalNameTest,
                         ::testing::Values(Case{"language_model.model.layers.0.mlp.switch_mlp.gate_proj.weight",
                                                Part::text, "layers.0.mlp.experts.gate_proj.weight"},
                                           Case{"language_model.model.layers.0.mlp.switch_mlp.down_proj.scales",
                                                Part::text, "layers.0.mlp.experts.down_proj.scales"},
                                           Case{"model.language_model.layers.0.mlp.experts.gate_up_proj", Part::text,
                                                "layers.0.mlp.experts.gate_up_proj.weight"},
                                           Case{"model.language_model.layers.0.mlp.experts.down_proj", Part::text,
                                                "layers.0.mlp.experts.down_proj.weight"},
                                           Case{"model.language_model.layers.0.mlp.experts.7.down_proj.weight",
                                                Part::text, "layers.0.mlp.experts.7.down_proj.weight"}));

TEST(CanonicalModuleTest, IsThePathWithoutWeight) {
  EXPECT_EQ(canonical_module("language_model.model.layers.0.mlp.gate").name, "layers.0.mlp.gate");
  EXPECT_EQ(canonical_module("model.embed_tokens").name, "embed_tokens");
  EXPECT_EQ(canonical_module("lm_head").name, "lm_head");
  EXPECT_EQ(canonical_module("language_model.model.layers.0.mlp.switch_mlp.down_proj").name,
            "layers.0.mlp.experts.down_proj");
  EXPECT_EQ(canonical_module("language_model.model.layers.0.mlp.switch_mlp.gate_proj").name,
            "layers.0.mlp.experts.gate_proj");
  EXPECT_EQ(canonical_module("vision_tower.blocks.0.attn.qkv").part, Part::vision);
}

}  // namespace
}  // namespace tutti::weights
