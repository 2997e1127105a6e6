#include "weights/tensor_table.h"

#include <gmock/gmock.h>

#include <limits>

#include "weights/checkpoint_files.h"
#include "weights/problems.h"

namespace tutti::weights {
namespace {

using ::testing::AllOf;
using testing::bf16_tensor;
using testing::bytes_of;
using ::testing::ElementsAre;
using testing::f32_tensor;
using ::testing::HasSubstr;
using testing::load_error;
using testing::MemoryCheckpoint;
using ::testing::Not;
using testing::TestTensor;
using testing::u32_tensor;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TensorSpec linear(const std::string& module, int64_t N, int64_t K) {
  return {module, Kind::linear, {N, K}};
}
TensorSpec experts(const std::string& projection, int64_t E, int64_t N, int64_t K) {
  return {"layers.0.mlp.experts." + projection, Kind::experts, {E, N, K}};
}
TensorSpec vec(const std::string& module, std::vector<int64_t> shape) {
  return {module, Kind::vector, std::move(shape)};
}

// Keeps the bytes alive beside the table that points into them.
struct Table {
  Table(const std::vector<TestTensor>& tensors, const std::vector<TensorSpec>& specs, QuantizationConfig q = {},
        bool ignore = false)
      : files(tensors), table(files.open(), specs, q, ignore) {}
  MemoryCheckpoint files;
  TensorTable table;
};

std::string table_error(const std::vector<TestTensor>& tensors, const std::vector<TensorSpec>& specs,
                        QuantizationConfig q = {}) {
  return load_error([&] { Table(tensors, specs, q); });
}

std::vector<TestTensor> affine(const std::string& module, std::vector<int64_t> shape, quant::AffineSpec spec) {
  std::vector<int64_t> codes = shape, scales = shape;
  codes.back() = shape.back() * spec.bits / 32;
  scales.back() = shape.back() / spec.group;
  return {u32_tensor(module + ".weight", codes), bf16_tensor(module + ".scales", scales, 1, 0.5f),
          bf16_tensor(module + ".biases", scales, -1)};
}

std::vector<TestTensor> joined(std::vector<std::vector<TestTensor>> parts) {
  std::vector<TestTensor> out;
  for (auto& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

template <class T>
T value_at(const std::byte* p, int64_t i) {
  T v;
  std::memcpy(&v, p + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}

TEST(TensorTableTest, PlainLinearsOfEachDType) {
  const Table t({bf16_tensor("a.weight", {2, 3}),
                 {"b.weight", "F16", {2, 3}, std::string(12, 1)},
                 f32_tensor("c.weight", {1, 2}, {1, 2})},
                {linear("a", 2, 3), linear("b", 2, 3), linear("c", 1, 2)});
  EXPECT_EQ(t.table.at("a").format.format, quant::Format::bfloat16);
  EXPECT_EQ(t.table.at("b").format.format, quant::Format::float32);
  EXPECT_EQ(t.table.at("b").matrices[0].dtype, DType::float16);
  const StoredFormat& c = t.table.at("c");
  ASSERT_EQ(c.matrices.size(), 1u);
  EXPECT_EQ(c.matrices[0].rows, 1);
  EXPECT_EQ(c.matrices[0].cols, 2);
  EXPECT_EQ(value_at<float>(c.matrices[0].values, 1), 2);
  EXPECT_EQ(c.matrices[0].scales, nullptr);
  EXPECT_EQ(c.weight->name, "c.weight");
}

class AffineTest : public ::testing::TestWithParam<quant::AffineSpec> {};

TEST_P(AffineTest, TheWidthsDecide) {
  const quant::AffineSpec spec = GetParam();
  for (const auto& stated : {std::optional<quant::AffineSpec>(), std::optional(spec)}) {
    const Table t(affine("a", {2, 384}, spec), {linear("a", 2, 384)}, {stated, {}});
    const StoredFormat& a = t.table.at("a");
    EXPECT_EQ(a.format.format, quant::Format::affine);
    EXPECT_EQ(a.format.affine, spec);
    EXPECT_EQ(a.matrices[0].cols, 384);
    EXPECT_EQ(a.matrices[0].scale_dtype, DType::bfloat16);
    EXPECT_EQ(value_at<bf16>(a.matrices[0].scales, 1), float_to_bf16(1.5f));
    EXPECT_EQ(value_at<bf16>(a.matrices[0].biases, 1), float_to_bf16(-1.f));
  }
}

std::vector<quant::AffineSpec> all_specs() {
  std::vector<quant::AffineSpec> specs;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) specs.push_back({bits, group});
  }
  return specs;
}
INSTANTIATE_TEST_SUITE_P(All, AffineTest, ::testing::ValuesIn(all_specs()), [](const auto& info) {
  return fmt::format("{}bit_group{}", info.param.bits, info.param.group);
});

TEST(TensorTableTest, ConfigMustAgreeWithTheWidths) {
  const auto tensors = affine("layers.0.mlp.gate", {2, 128}, {8, 64});
  const std::vector<TensorSpec> specs = {linear("layers.0.mlp.gate", 2, 128)};
  EXPECT_EQ(table_error(tensors, specs, {quant::AffineSpec{4, 64}, {{"layers.0.mlp.gate", quant::AffineSpec{8, 64}}}}),
            "");
  EXPECT_THAT(table_error(tensors, specs, {quant::AffineSpec{4, 64}, {}}),
              AllOf(HasSubstr("model.safetensors: layers.0.mlp.gate.weight: expected affine 4-bit, group 64"),
                    HasSubstr("found affine 8-bit, group 64")));
  EXPECT_THAT(
      table_error(tensors, specs, {quant::AffineSpec{8, 64}, {{"layers.0.mlp.gate", quant::AffineSpec{8, 32}}}}),
      HasSubstr("expected affine 8-bit, group 32"));
  EXPECT_THAT(table_error(tensors, specs, {quant::AffineSpec{8, 64}, {{"layers.0.mlp.gate", std::nullopt}}}),
              HasSubstr("expected a plain tensor (config.json)"));
}

TEST(TensorTableTest, PlainModulesOfAQuantisedFile) {
  const std::vector<TestTensor> tensors = {bf16_tensor("a.weight", {2, 64})};
  const quant::AffineSpec four{4, 64};
  EXPECT_EQ(table_error(tensors, {linear("a", 2, 64)}, {four, {}}), "");
  EXPECT_EQ(table_error(tensors, {linear("a", 2, 64)}, {four, {{"a", std::nullopt}}}), "");
  EXPECT_THAT(table_error(tensors, {linear("a", 2, 64)}, {four, {{"a", four}}}),
              HasSubstr("a.weight: expected affine 4-bit, group 64 (config.json), found no scales"));
}

TEST(TensorTableTest, WrongAffineTensors) {
  const std::vector<TensorSpec> specs = {linear("a", 2, 128)};
  const auto with = [](size_t i, TestTensor t) {
    auto tensors = affine("a", {2, 128}, {4, 64});
    tensors[i] = std::move(t);
    return tensors;
  };
  EXPECT_THAT(table_error(affine("a", {2, 256}, {4, 64}), specs, {quant::AffineSpec{4, 64}, {}}),
              HasSubstr("for [2, 128], found affine 8-bit, group 32: codes [2, 32]"));
  EXPECT_THAT(table_error(with(0, u32_tensor("a.weight", {2, 17})), specs),
              HasSubstr("found codes [2, 17] and scales [2, 2]"));
  EXPECT_THAT(table_error(with(0, u32_tensor("a.weight", {3, 16})), specs), HasSubstr("found codes [3, 16]"));
  EXPECT_THAT(table_error(with(0, u32_tensor("a.weight", {2, 4})), specs), HasSubstr("found affine 1-bit, group 64"));
  EXPECT_THAT(table_error(with(0, bf16_tensor("a.weight", {2, 16})), specs),
              HasSubstr("expected U32 codes beside its scales, found BF16"));
  EXPECT_THAT(table_error(with(1, u32_tensor("a.scales", {2, 2})), specs),
              HasSubstr("a.scales: expected bfloat16, float16 or float32, found U32"));
  EXPECT_THAT(table_error(with(2, bf16_tensor("a.biases", {2, 1})), specs),
              HasSubstr("a.biases: expected BF16 [2, 2]"));
  EXPECT_THAT(table_error(with(2, f32_tensor("a.biases", {2, 2}, {1, 2, 3, 4})), specs), HasSubstr("found F32 [2, 2]"));
  EXPECT_THAT(table_error({u32_tensor("a.weight", {2, 16}), bf16_tensor("a.scales", {2, 2})}, specs),
              HasSubstr("expected biases"));
  EXPECT_THAT(table_error({u32_tensor("a.weight", {2, 16})}, specs),
              HasSubstr("or scales beside it; found U32 [2, 16]"));
  EXPECT_THAT(table_error({bf16_tensor("a.weight", {2, 128}), bf16_tensor("a.biases", {2, 2})}, specs),
              HasSubstr("a.biases: nothing uses"));
}

TEST(TensorTableTest, NonFiniteScalesNormsAndTheirPlaces) {
  auto tensors = affine("a", {2, 128}, {4, 64});
  tensors[1] = f32_tensor("a.scales", {2, 2}, {1, 1, kNaN, 1});
  tensors[2] = f32_tensor("a.biases", {2, 2}, {1, kInf, 1, 1});
  tensors.push_back(f32_tensor("n.weight", {3}, {0, 0, -kInf}));
  tensors.push_back({"h.weight", "F16", {2}, bytes_of<uint16_t>({0x7bff, 0x7c00})});
  tensors.push_back({"b.weight", "BF16", {2}, bytes_of<uint16_t>({0xff7f, 0xffc0})});
  EXPECT_THAT(
      table_error(tensors, {linear("a", 2, 128), vec("n", {3}), vec("h", {2}), vec("b", {2})}),
      AllOf(HasSubstr("5 problems"), HasSubstr("a.scales: expected finite values, found NaN or infinity at element 2"),
            HasSubstr("a.biases: expected finite values, found NaN or infinity at element 1"),
            HasSubstr("n.weight: expected finite values, found NaN or infinity at element 2"),
            HasSubstr("h.weight: expected finite"), HasSubstr("b.weight: expected finite")));
  std::vector<float> many(10000, 1.f);
  many[9999] = kNaN;
  EXPECT_THAT(table_error({f32_tensor("n.weight", {10000}, many)}, {vec("n", {10000})}), HasSubstr("at element 9999"));
}

TEST(TensorTableTest, Vectors) {
  TensorSpec bare = vec("layers.0.linear_attn.A_log", {2});
  bare.bare = true;
  const Table t({bf16_tensor("n.weight", {3}, 1, 1),
                 {"h.weight", "F16", {2}, bytes_of<uint16_t>({0x3c00, 0xc000})},
                 f32_tensor("layers.0.linear_attn.A_log", {2}, {0.1f, 0.2f}),
                 bf16_tensor("c.weight", {2, 1, 4}, 0, 1),
                 bf16_tensor("d.weight", {2, 4, 1}, 0, 1)},
                {vec("n", {3}), vec("h", {2}), bare, vec("c", {2, 4}), vec("d", {2, 4})});
  EXPECT_THAT(t.table.vector("n"), ElementsAre(1, 2, 3));
  EXPECT_THAT(t.table.vector("h"), ElementsAre(1, -2));
  EXPECT_THAT(t.table.vector("layers.0.linear_attn.A_log"), ElementsAre(0.1f, 0.2f));
  EXPECT_THAT(t.table.vector("c"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(t.table.vector("c"), t.table.vector("d"));
  EXPECT_THROW(t.table.vector("none"), InvariantError);
}

TEST(TensorTableTest, WrongVectors) {
  EXPECT_THAT(table_error({bf16_tensor("n.weight", {4})}, {vec("n", {3})}),
              HasSubstr("n.weight: expected [3], found [4]"));
  EXPECT_THAT(table_error({bf16_tensor("n.weight", {1, 3})}, {vec("n", {3})}), HasSubstr("expected [3], found [1, 3]"));
  EXPECT_THAT(table_error({bf16_tensor("c.weight", {4, 1, 2})}, {vec("c", {2, 4})}),
              HasSubstr("expected [2, 4], found [4, 1, 2]"));
  EXPECT_THAT(table_error({u32_tensor("n.weight", {3})}, {vec("n", {3})}), HasSubstr("found U32"));
}

TEST(TensorTableTest, EverythingWrongAtOnce) {
  EXPECT_THAT(
      table_error(
          {bf16_tensor("model.layers.0.a.weight", {2, 3}), bf16_tensor("model.extra.weight", {1}),
           bf16_tensor("x", {1})},
          {linear("layers.0.a", 3, 2), linear("layers.0.b", 4, 5), vec("norm", {7}), experts("gate_proj", 2, 3, 4)}),
      AllOf(HasSubstr("test: 6 problems"),
            HasSubstr("model.safetensors: model.layers.0.a.weight: expected [3, 2], found [2, 3]"),
            HasSubstr("layers.0.b.weight: expected a tensor [4, 5], found none"),
            HasSubstr("norm.weight: expected a tensor [7]"),
            HasSubstr("layers.0.mlp.experts.gate_proj.weight: expected a tensor [2, 3, 4]"),
            HasSubstr("model.extra.weight: nothing uses this tensor"), HasSubstr("x: nothing uses this tensor")));
}

TEST(TensorTableTest, OptionalAndUnused) {
  TensorSpec optional = linear("b", 2, 2);
  optional.optional = true;
  const Table t({bf16_tensor("a.weight", {2, 2}), bf16_tensor("lm_head.weight", {9, 9}), bf16_tensor("x", {1})},
                {linear("a", 2, 2), optional}, {}, true);
  EXPECT_TRUE(t.table.has("a"));
  EXPECT_FALSE(t.table.has("b"));
  EXPECT_THROW(t.table.at("b"), InvariantError);
}

TEST(TensorTableTest, AHeadIsRequiredWhenUntiedAndFreeWhenTied) {
  const std::vector<TestTensor> body = {bf16_tensor("embed_tokens.weight", {4, 2})};
  EXPECT_THAT(table_error(body, {linear("embed_tokens", 4, 2), linear("lm_head", 4, 2)}),
              HasSubstr("lm_head.weight: expected a tensor [4, 2]"));
  EXPECT_EQ(table_error(joined({body, affine("lm_head", {4, 64}, {4, 32})}), {linear("embed_tokens", 4, 2)}), "");
}

// The same 3 experts of [2, 4] in four layouts.
class ExpertsTest : public ::testing::Test {
 protected:
  static constexpr int64_t E = 3, N = 2, K = 4;

  static float gate(int64_t e, int64_t n, int64_t k) { return static_cast<float>(100 * e + 10 * n + k); }
  static float up(int64_t e, int64_t n, int64_t k) { return gate(e, n, k) + 1000; }

  static std::vector<float> rows(int64_t e, float (*value)(int64_t, int64_t, int64_t)) {
    std::vector<float> out;
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < K; ++k) out.push_back(value(e, n, k));
    }
    return out;
  }
  static void append(std::vector<float>& to, const std::vector<float>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }

  static void expect_all(const TensorTable& table) {
    for (int64_t e = 0; e < E; ++e) {
      for (int64_t n = 0; n < N; ++n) {
        for (int64_t k = 0; k < K; ++k) {
          const auto at = [&](const char* projection) {
            const StoredFormat& stored = table.at(std::string("layers.0.mlp.experts.") + projection);
            EXPECT_EQ(stored.matrices.size(), static_cast<size_t>(E));
            EXPECT_EQ(stored.matrices[0].rows, N);
            return value_at<float>(stored.matrices[static_cast<size_t>(e)].values, n * K + k);
          };
          ASSERT_EQ(at("gate_proj"), gate(e, n, k));
          ASSERT_EQ(at("up_proj"), up(e, n, k));
        }
      }
    }
  }
  const std::vector<TensorSpec> specs_ = {experts("gate_proj", E, N, K), experts("up_proj", E, N, K)};
};

TEST_F(ExpertsTest, FusedGateUp) {
  std::vector<float> fused;
  for (int64_t e = 0; e < E; ++e) {
    append(fused, rows(e, gate));
    append(fused, rows(e, up));
  }
  for (const char* name : {"model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.gate_up_proj.weight"})
    expect_all(Table({f32_tensor(name, {E, 2 * N, K}, fused)}, specs_).table);
}

TEST_F(ExpertsTest, Stacked) {
  std::vector<float> gates, ups;
  for (int64_t e = 0; e < E; ++e) {
    append(gates, rows(e, gate));
    append(ups, rows(e, up));
  }
  expect_all(Table({f32_tensor("layers.0.mlp.switch_mlp.gate_proj.weight", {E, N, K}, gates),
                    f32_tensor("layers.0.mlp.switch_mlp.up_proj.weight", {E, N, K}, ups)},
                   specs_)
                 .table);
}

TEST_F(ExpertsTest, OneTensorEachInAnyOrder) {
  std::vector<TestTensor> tensors;
  for (int64_t e = E - 1; e >= 0; --e) {
    tensors.push_back(f32_tensor(fmt::format("model.layers.0.mlp.experts.{}.up_proj.weight", e), {N, K}, rows(e, up)));
    tensors.push_back(
        f32_tensor(fmt::format("model.layers.0.mlp.experts.{}.gate_proj.weight", e), {N, K}, rows(e, gate)));
  }
  expect_all(Table(tensors, specs_).table);
}

TEST_F(ExpertsTest, QuantisedFusedHalves) {
  const Table t(affine("layers.0.mlp.experts.gate_up_proj", {2, 6, 64}, {4, 32}),
                {experts("gate_proj", 2, 3, 64), experts("up_proj", 2, 3, 64)},
                {quant::AffineSpec{8, 64}, {{"layers.0.mlp.experts.gate_up_proj", quant::AffineSpec{4, 32}}}});
  const MatrixView& m = t.table.at("layers.0.mlp.experts.up_proj").matrices[1];  // rows 9, 10, 11 of 12
  EXPECT_EQ(value_at<uint32_t>(m.values, 0), 9u * 8);
  EXPECT_EQ(value_at<bf16>(m.scales, 0), float_to_bf16(1 + 0.5f * 18));
  EXPECT_EQ(m.rows, 3);
  EXPECT_EQ(m.cols, 64);
}

TEST_F(ExpertsTest, QuantisedOneTensorEachFollowsTheOverrideOfTheStack) {
  const QuantizationConfig q{quant::AffineSpec{4, 64}, {{"layers.0.mlp.experts.down_proj", quant::AffineSpec{8, 32}}}};
  const auto tensors = joined({affine("layers.0.mlp.experts.0.down_proj", {3, 64}, {8, 32}),
                               affine("layers.0.mlp.experts.1.down_proj", {3, 64}, {8, 32})});
  const Table t(tensors, {experts("down_proj", 2, 3, 64)}, q);
  EXPECT_EQ(t.table.at("layers.0.mlp.experts.down_proj").format.affine, (quant::AffineSpec{8, 32}));
}

TEST_F(ExpertsTest, Faults) {
  const auto one = [](int e, std::vector<int64_t> shape) {
    return bf16_tensor(fmt::format("layers.0.mlp.experts.{}.down_proj.weight", e), std::move(shape));
  };
  const std::vector<TensorSpec> down = {experts("down_proj", 4, 2, 3)};
  EXPECT_THAT(table_error({one(0, {2, 3}), one(2, {2, 3})}, down),
              HasSubstr("layers.0.mlp.experts.E.down_proj.weight: expected 4 experts, found none for E in [1, 3]"));
  EXPECT_THAT(table_error({one(0, {2, 3}), one(1, {2, 3}), one(2, {3, 2}), one(3, {2, 3}), one(4, {2, 3})}, down),
              AllOf(HasSubstr("experts.2.down_proj.weight: expected [2, 3], found [3, 2]"),
                    HasSubstr("experts.4.down_proj.weight: nothing uses")));
  EXPECT_THAT(table_error({one(0, {2, 3}), one(1, {2, 3}), one(2, {2, 3}),
                           f32_tensor("layers.0.mlp.experts.3.down_proj.weight", {2, 3}, {1, 2, 3, 4, 5, 6})},
                          down),
              HasSubstr("experts.3.down_proj.weight: expected the format of the layer's other experts"));
  const std::string wrong = table_error({bf16_tensor("layers.0.mlp.experts.gate_up_proj", {4, 3, 3})},
                                        {experts("gate_proj", 4, 2, 3), experts("up_proj", 4, 2, 3)});
  EXPECT_THAT(wrong, AllOf(HasSubstr("1 problem"), HasSubstr("expected [4, 4, 3], found [4, 3, 3]")));
}

TEST(UnsupportedFormatsTest, AreRefusedByNameAlone) {
  const TestTensor odd = bf16_tensor("odd", {1});
  const auto error = [&](std::vector<TestTensor> tensors) {
    tensors.push_back(odd);
    const std::string text = table_error(tensors, {linear("layers.0.a", 2, 64)});
    EXPECT_THAT(
        text, AllOf(HasSubstr("not supported by this build"), HasSubstr("layers.0.a"), Not(HasSubstr("nothing uses"))));
    return text;
  };
  const auto u8 = [](const std::string& name, std::vector<int64_t> shape) {
    const auto n = static_cast<size_t>(testing::elements(shape));
    return TestTensor{name, "U8", std::move(shape), std::string(n, 1)};
  };
  EXPECT_THAT(error({u32_tensor("layers.0.a.weight", {2, 8}), u8("layers.0.a.scales", {2, 2})}),
              HasSubstr("format mxfp4 "));
  EXPECT_THAT(error({u32_tensor("layers.0.a.weight", {2, 16}), u8("layers.0.a.scales", {2, 2})}),
              HasSubstr("format mxfp8 "));
  EXPECT_THAT(error({u32_tensor("layers.0.a.weight", {2, 8}), u8("layers.0.a.scales", {2, 4})}),
              HasSubstr("format nvfp4 "));
  EXPECT_THAT(error({{"layers.0.a.weight", "F8_E4M3", {2, 64}, std::string(128, 1)},
                     bf16_tensor("layers.0.a.weight_scale_inv", {1, 1})}),
              HasSubstr("format fp8 "));
  EXPECT_THAT(error({u32_tensor("layers.0.a.qweight", {2, 8})}), HasSubstr("format awq or gptq "));
  EXPECT_THAT(error({u32_tensor("layers.0.a.weight_packed", {2, 8})}), HasSubstr("format compressed-tensors "));
  EXPECT_THAT(error({u8("layers.0.a.weight", {2, 8}), bf16_tensor("layers.0.a.weight.absmax", {2})}),
              HasSubstr("format bitsandbytes "));
}

TEST(UnsupportedFormatsTest, LongListsAreCut) {
  std::vector<TestTensor> tensors;
  for (int i = 0; i < 30; ++i) tensors.push_back(bf16_tensor(fmt::format("layers.{}.a.weight_scale_inv", i), {1}));
  EXPECT_THAT(table_error(tensors, {}), HasSubstr("and 10 more"));
}

TEST(ProblemsTest, AFloodIsCounted) {
  Problems problems;
  for (int i = 0; i < 1500; ++i) problems.add("line");
  EXPECT_EQ(problems.count(), 1500u);
  EXPECT_THAT(load_error([&] { problems.raise("x"); }), HasSubstr("… and 500 more"));
}

}  // namespace
}  // namespace tutti::weights
