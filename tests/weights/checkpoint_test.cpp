#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "weights/checkpoint_files.h"

namespace tutti::weights {
namespace {

using ::testing::AllOf;
using testing::bf16_tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::load_error;
using testing::MemoryCheckpoint;
using ::testing::Not;
using testing::safetensors;
using testing::TempFolder;
using testing::TestTensor;

constexpr const char* kIndex = "model.safetensors.index.json";

std::vector<std::string> names(const Checkpoint& checkpoint) {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : checkpoint.tensors()) out.push_back(name);
  return out;
}

std::string open_error(const TempFolder& folder) {
  return load_error([&] { Checkpoint::open(folder.path()); });
}

TEST(CheckpointTest, OpensASingleFile) {
  TempFolder folder;
  folder.write("config.json", "{\"x\":1}").write("tokenizer.json", "tok");
  folder.write("model.safetensors", safetensors({bf16_tensor("model.norm.weight", {4}, 1, 1)}));
  folder.write("expected.safetensors", "not looked at");
  const auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(checkpoint->label(), folder.path().string());
  EXPECT_EQ(checkpoint->config_json(), "{\"x\":1}");
  EXPECT_EQ(checkpoint->text_file("tokenizer.json"), "tok");
  EXPECT_EQ(checkpoint->text_file("chat_template.jinja"), std::nullopt);
  const Tensor* norm = checkpoint->find("norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->stored_name, "model.norm.weight");
  EXPECT_EQ(norm->file, "model.safetensors");
  EXPECT_EQ(norm->stored_dtype, "BF16");
  EXPECT_EQ(norm->size(), 4);
  EXPECT_EQ(norm->data.size(), 8u);
  EXPECT_EQ(checkpoint->find("model.norm.weight"), nullptr);
}

TEST(CheckpointTest, FollowsTheWeightMap) {
  TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("odd-name.safetensors", safetensors({bf16_tensor("model.norm.weight", {4}, 1)}));
  // A second copy of the norm, and a file that no entry names: neither counts.
  folder.write("model-2.safetensors",
               safetensors({bf16_tensor("model.norm.weight", {4}, 2), bf16_tensor("lm_head.weight", {4, 4})}));
  folder.write("model-3.safetensors", "garbage");
  folder.write(
      kIndex,
      R"({"metadata":{"total_size":1},"weight_map":{"model.norm.weight":"odd-name.safetensors","lm_head.weight":"model-2.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_THAT(names(*checkpoint), ElementsAre("lm_head.weight", "norm.weight"));
  EXPECT_EQ(checkpoint->find("norm.weight")->file, "odd-name.safetensors");
}

TEST(CheckpointTest, WithoutAnIndexTakesEveryModelFile) {
  const MemoryCheckpoint files = MemoryCheckpoint::of_files(
      {{"config.json", "{}"},
       {"model-00001-of-00002.safetensors", safetensors({bf16_tensor("norm.weight", {4})})},
       {"model-00002-of-00002.safetensors", safetensors({bf16_tensor("lm_head.weight", {4, 4})})},
       {"model-mtp.safetensors", safetensors({bf16_tensor("norm.weight", {4}), bf16_tensor("fc.weight", {4})})}});
  const auto checkpoint = files.open();
  EXPECT_THAT(names(*checkpoint), ElementsAre("lm_head.weight", "mtp.fc.weight", "mtp.norm.weight", "norm.weight"));
  EXPECT_EQ(checkpoint->mtp_tensors(), 2);
}

TEST(CheckpointTest, CountsWhatItSkipsAndKeepsUnknownNames) {
  const auto checkpoint = MemoryCheckpoint({bf16_tensor("model.visual.a", {2}), bf16_tensor("vision_tower.b", {2}),
                                            bf16_tensor("mtp.fc.weight", {2}), bf16_tensor("strange.weight", {2}),
                                            bf16_tensor("layers.0.rotary_emb.inv_freq", {2})})
                              .open();
  EXPECT_EQ(checkpoint->vision_tensors(), 2);
  EXPECT_EQ(checkpoint->mtp_tensors(), 1);
  EXPECT_THAT(names(*checkpoint), ElementsAre("mtp.fc.weight", "strange.weight"));
}

TEST(CheckpointTest, TwoNamesOfOneTensorAreAnError) {
  EXPECT_THAT(
      MemoryCheckpoint({bf16_tensor("model.norm.weight", {4}), bf16_tensor("language_model.model.norm.weight", {4})})
          .error(),
      AllOf(HasSubstr("model.safetensors: language_model.model.norm.weight"),
            HasSubstr("same tensor as model.norm.weight"), HasSubstr("both are norm.weight")));
}

TEST(CheckpointTest, MissingPiecesAreReportedTogether) {
  TempFolder folder;
  folder.write("a.safetensors", safetensors({bf16_tensor("norm.weight", {4})}));
  folder.write("b.safetensors", "short");
  std::filesystem::create_directory(folder.path() / "d.safetensors");
  folder.write(kIndex,
               R"({"weight_map":{"norm.weight":"a.safetensors","lm_head.weight":"a.safetensors","x":"b.safetensors",
    "y":"c.safetensors","z":"c.safetensors","w":"d.safetensors"}})");
  EXPECT_THAT(
      open_error(folder),
      AllOf(HasSubstr("5 problems"), HasSubstr("config.json: no such file"),
            HasSubstr("c.safetensors: no such file, but model.safetensors.index.json names it for 2 tensors"),
            HasSubstr("b.safetensors: expected a safetensors file, found 5 bytes"),
            HasSubstr("d.safetensors: is not a regular file"),
            HasSubstr("a.safetensors: lm_head.weight: the index names this file, but the tensor is not in it")));
}

TEST(CheckpointTest, TheIndexCannotLeaveTheFolder) {
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..", "",
                           "x\\\\y.safetensors", "a\\u0000.safetensors", "config.json"}) {
    TempFolder folder;
    folder.write("config.json", "{}").write(kIndex, fmt::format(R"({{"weight_map":{{"norm.weight":"{}"}}}})", name));
    EXPECT_THAT(open_error(folder),
                AllOf(HasSubstr("norm.weight: expected the name of a safetensors file"), HasSubstr("1 problem")))
        << name;
  }
}

TEST(CheckpointTest, WrongIndexes) {
  const auto error = [](const std::string& index) {
    TempFolder folder;
    return open_error(folder.write("config.json", "{}").write(kIndex, index));
  };
  EXPECT_THAT(error(""), HasSubstr("model.safetensors.index.json: not valid JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("expected an object with a \"weight_map\""));
  EXPECT_THAT(error(R"({"weight_map":[]})"), HasSubstr("expected an object with a \"weight_map\""));
  EXPECT_THAT(error(R"({"weight_map":{}})"), HasSubstr("the weight_map is empty"));
  EXPECT_THAT(error(R"({"weight_map":{"a":1}})"),
              HasSubstr("a: expected the name of a safetensors file in this folder, found 1"));
  EXPECT_THAT(error(R"({"weight_map":{"a":"m.safetensors","a":"n.safetensors"}})"), HasSubstr("\"a\" occurs twice"));
  EXPECT_THAT(error(std::string(100000, '[')), HasSubstr("nested deeper"));
}

TEST(CheckpointTest, FoldersWithoutWeights) {
  TempFolder folder;
  folder.write("config.json", "{}");
  EXPECT_THAT(open_error(folder), HasSubstr("no model.safetensors.index.json and no model*.safetensors"));
  folder.write("model-q4_k_m.gguf", "GGUF");
  EXPECT_THAT(open_error(folder), HasSubstr("gguf files are not supported"));
  EXPECT_THAT(load_error([&] { Checkpoint::open(folder.path() / "model-q4_k_m.gguf"); }),
              HasSubstr("gguf files are not supported"));
  EXPECT_THAT(load_error([&] { Checkpoint::open(folder.path() / "config.json"); }), HasSubstr("not a folder"));
  EXPECT_THAT(load_error([&] { Checkpoint::open(folder.path() / "none"); }), HasSubstr("none: no such folder"));
}

TestTensor conv(int layer, std::vector<int64_t> shape) {
  return bf16_tensor(fmt::format("layers.{}.linear_attn.conv1d.weight", layer), std::move(shape));
}

TEST(NormConventionTest, FollowsTheConvLayout) {
  EXPECT_EQ(MemoryCheckpoint({conv(0, {8, 1, 4})}, "mlx").open()->norm_convention(), NormConvention::zero_centred);
  EXPECT_EQ(MemoryCheckpoint({conv(0, {8, 4, 1})}, "pt").open()->norm_convention(), NormConvention::gamma);
}

TEST(NormConventionTest, WithoutAConvFollowsTheMetadata) {
  // The head's own: as the body's in Hugging Face's layout; by its file's word or its values elsewhere.
  const auto head = [](std::vector<int64_t> taps, const char* file, const char* format, float norm) {
    return MemoryCheckpoint::of_files(
               {{"config.json", "{}"},
                {"model.safetensors", safetensors({conv(0, std::move(taps))})},
                {file, safetensors({testing::f32_tensor("mtp.norm.weight", {4}, {norm, norm, norm, norm})}, format)}})
        .open()
        ->draft_norm_convention();
  };
  for (const char* file : {"model-mtp.safetensors", "mtp/weights.safetensors"}) {
    EXPECT_EQ(head({8, 1, 4}, file, "mlx", 0.1f), NormConvention::gamma);
    EXPECT_EQ(head({8, 1, 4}, file, "pt", 0.1f), NormConvention::zero_centred);
    EXPECT_EQ(head({8, 1, 4}, file, "pt", 1.1f), NormConvention::gamma);
    EXPECT_EQ(head({8, 4, 1}, file, "pt", 0.1f), NormConvention::zero_centred);
  }
  EXPECT_EQ(head({8, 1, 4}, "model-2.safetensors", "pt", 1.1f), NormConvention::zero_centred);
  EXPECT_EQ(head({8, 4, 1}, "model-2.safetensors", "mlx", 1.1f), NormConvention::gamma);
  EXPECT_EQ(head({8, 4, 1}, "model-2.safetensors", "mlx", 0.1f), NormConvention::zero_centred);  // grafted later
  EXPECT_EQ(MemoryCheckpoint({bf16_tensor("norm.weight", {4})}, "mlx").open()->norm_convention(),
            NormConvention::gamma);
  EXPECT_EQ(MemoryCheckpoint({bf16_tensor("norm.weight", {4})}, "pt").open()->norm_convention(),
            NormConvention::zero_centred);
}

TEST(NormConventionTest, MtpTensorsDoNotCount) {
  EXPECT_EQ(
      MemoryCheckpoint({conv(0, {8, 4, 1}), bf16_tensor("mtp.conv1d.weight", {8, 1, 4})}).open()->norm_convention(),
      NormConvention::gamma);
}

TEST(NormConventionTest, ContradictionsAreRefused) {
  EXPECT_THAT(MemoryCheckpoint({conv(0, {8, 1, 4}), conv(1, {8, 4, 1})}).error(),
              AllOf(HasSubstr("layers.0.linear_attn.conv1d.weight has the layout of Hugging Face"),
                    HasSubstr("layers.1.linear_attn.conv1d.weight that of MLX")));
  EXPECT_THAT(MemoryCheckpoint({conv(0, {8, 4})}).error(), HasSubstr("expected [C, 1, K] or [C, K, 1], found [8, 4]"));
  EXPECT_THAT(MemoryCheckpoint({conv(0, {8, 1, 1})}).error(), HasSubstr("found [8, 1, 1]"));
}

TEST(CheckpointTest, DeclaredFaultsOfAFileAreNotRepeatedByTheIndex) {
  TempFolder folder;
  folder.write("config.json", "{}").write("a.safetensors", "short");
  folder.write(kIndex, R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors"}})");
  EXPECT_THAT(open_error(folder), AllOf(HasSubstr("1 problem"), Not(HasSubstr("is not in it"))));
}

}  // namespace
}  // namespace tutti::weights
