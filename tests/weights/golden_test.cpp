// The reference folders: every layout that real publishers write, with all tensors of the model.
#include <gmock/gmock.h>

#include <cmath>

#include "quant/affine.h"
#include "weights/checkpoint_files.h"
#include "weights/half.h"
#include "weights/tensor_table.h"

namespace tutti::weights {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Dims {
  int64_t hidden, layers, heads, kv_heads, head_dim, key_heads, value_heads, linear_dim, ffn;
  int64_t experts = 0, moe_ffn = 0, shared_ffn = 0;
  bool tied = false;
};

constexpr int64_t kVocab = 512;
constexpr Dims kDense = {96, 8, 4, 2, 64, 4, 8, 32, 192};
constexpr Dims kMoe = {96, 4, 4, 2, 64, 4, 8, 32, 0, 8, 32, 64};
constexpr Dims kMoe128 = {128, 4, 2, 1, 64, 2, 4, 32, 0, 8, 64, 64};
constexpr Dims kRealdims = {128, 4, 4, 1, 256, 2, 6, 128, 256, 0, 0, 0, true};

std::vector<TensorSpec> specs_of(const Dims& d) {
  std::vector<TensorSpec> specs = {{"embed_tokens", Kind::linear, {kVocab, d.hidden}},
                                   {"norm", Kind::vector, {d.hidden}}};
  if (!d.tied) specs.push_back({"lm_head", Kind::linear, {kVocab, d.hidden}});
  for (int64_t i = 0; i < d.layers; ++i) {
    const auto add = [&](const std::string& name, Kind kind, std::vector<int64_t> shape, bool bare = false) {
      specs.push_back({fmt::format("layers.{}.{}", i, name), kind, std::move(shape), bare});
    };
    add("input_layernorm", Kind::vector, {d.hidden});
    add("post_attention_layernorm", Kind::vector, {d.hidden});
    if (i % 4 == 3) {
      add("self_attn.q_proj", Kind::linear, {2 * d.heads * d.head_dim, d.hidden});
      add("self_attn.k_proj", Kind::linear, {d.kv_heads * d.head_dim, d.hidden});
      add("self_attn.v_proj", Kind::linear, {d.kv_heads * d.head_dim, d.hidden});
      add("self_attn.o_proj", Kind::linear, {d.hidden, d.heads * d.head_dim});
      add("self_attn.q_norm", Kind::vector, {d.head_dim});
      add("self_attn.k_norm", Kind::vector, {d.head_dim});
    } else {
      const int64_t values = d.value_heads * d.linear_dim, channels = 2 * d.key_heads * d.linear_dim + values;
      add("linear_attn.in_proj_qkv", Kind::linear, {channels, d.hidden});
      add("linear_attn.in_proj_z", Kind::linear, {values, d.hidden});
      add("linear_attn.in_proj_a", Kind::linear, {d.value_heads, d.hidden});
      add("linear_attn.in_proj_b", Kind::linear, {d.value_heads, d.hidden});
      add("linear_attn.out_proj", Kind::linear, {d.hidden, values});
      add("linear_attn.conv1d", Kind::vector, {channels, 4});
      add("linear_attn.A_log", Kind::vector, {d.value_heads}, true);
      add("linear_attn.dt_bias", Kind::vector, {d.value_heads}, true);
      add("linear_attn.norm", Kind::vector, {d.linear_dim});
    }
    const auto mlp = [&](const std::string& name, Kind kind, int64_t width) {
      const auto shape = [&](int64_t N, int64_t K) {
        return kind == Kind::linear ? std::vector{N, K} : std::vector{d.experts, N, K};
      };
      add(name + "gate_proj", kind, shape(width, d.hidden));
      add(name + "up_proj", kind, shape(width, d.hidden));
      add(name + "down_proj", kind, shape(d.hidden, width));
    };
    if (d.experts == 0) {
      mlp("mlp.", Kind::linear, d.ffn);
      continue;
    }
    add("mlp.gate", Kind::linear, {d.experts, d.hidden});
    mlp("mlp.experts.", Kind::experts, d.moe_ffn);
    mlp("mlp.shared_expert.", Kind::linear, d.shared_ffn);
    add("mlp.shared_expert_gate", Kind::linear, {1, d.hidden});
  }
  return specs;
}

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(TUTTI_SOURCE_DIR) / "tests/golden" / name;
}

struct Folder {
  const char* name;
  Dims dims;
  NormConvention norms;
  int vision, mtp;
};
void PrintTo(const Folder& folder, std::ostream* out) {
  *out << folder.name;
}

class GoldenFolderTest : public ::testing::TestWithParam<Folder> {};

TEST_P(GoldenFolderTest, HasEveryTensorAndNoOther) {
  const Folder& folder = GetParam();
  const auto checkpoint = Checkpoint::open(golden(folder.name));
  EXPECT_EQ(checkpoint->norm_convention(), folder.norms);
  EXPECT_EQ(checkpoint->vision_tensors(), folder.vision);
  EXPECT_EQ(checkpoint->mtp_tensors(), folder.mtp);
  EXPECT_EQ(testing::load_error([&] { TensorTable(checkpoint, specs_of(folder.dims), {}, false); }), "");
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFolderTest,
                         ::testing::Values(Folder{"dense", kDense, NormConvention::zero_centred, 33, 15},
                                           Folder{"moe", kMoe, NormConvention::zero_centred, 33, 19},
                                           Folder{"realdims", kRealdims, NormConvention::zero_centred, 33, 15},
                                           Folder{"quant/dense-affine2-g32", kDense, NormConvention::gamma, 0, 0},
                                           Folder{"quant/dense-affine8-g32", kDense, NormConvention::gamma, 0, 0},
                                           Folder{"quant/dense-vlm-affine4-g32", kDense, NormConvention::gamma, 33, 31},
                                           Folder{"quant/moe-affine4-g32", kMoe, NormConvention::gamma, 0, 0},
                                           Folder{"quant/moe128-affine4-g64", kMoe128, NormConvention::gamma, 0, 0},
                                           Folder{"quant/realdims-affine4-g64", kRealdims, NormConvention::gamma, 0, 0},
                                           Folder{"quant/realdims-mixed_3_6", kRealdims, NormConvention::gamma, 0, 0}));

TEST(GoldenTest, AFolderWithMxfp4ModulesIsRefusedByName) {
  const auto checkpoint = Checkpoint::open(golden("quant/realdims-uneven"));
  EXPECT_THAT(testing::load_error([&] { TensorTable(checkpoint, specs_of(kRealdims), {}, false); }),
              AllOf(HasSubstr("1 problem"), HasSubstr("mxfp4"), HasSubstr("layers.0.mlp.up_proj"),
                    HasSubstr("layers.3.mlp.up_proj")));
}

float scalar(const std::byte* p, DType dtype, int64_t i) {
  uint16_t bits;
  std::memcpy(&bits, p + 2 * i, 2);
  return dtype == DType::bfloat16 ? bf16_to_float(bits) : half_to_float(bits);
}

// Row n as float32.
std::vector<float> row(const StoredFormat& stored, size_t matrix, int64_t n) {
  const MatrixView& m = stored.matrices[matrix];
  std::vector<float> out(static_cast<size_t>(m.cols));
  if (stored.format.format != quant::Format::affine) {
    for (int64_t k = 0; k < m.cols; ++k) out[static_cast<size_t>(k)] = scalar(m.values, m.dtype, n * m.cols + k);
    return out;
  }
  const quant::AffineSpec spec = stored.format.affine;
  const int64_t words = quant::affine_words(m.cols, spec.bits), groups = m.cols / spec.group;
  std::vector<uint32_t> codes(static_cast<size_t>(words));
  std::memcpy(codes.data(), m.values + n * words * 4, static_cast<size_t>(words) * 4);
  std::vector<float> scales, biases;
  for (int64_t g = 0; g < groups; ++g) {
    scales.push_back(scalar(m.scales, m.scale_dtype, n * groups + g));
    biases.push_back(scalar(m.biases, m.scale_dtype, n * groups + g));
  }
  quant::dequantize_affine_row(codes.data(), scales.data(), biases.data(), m.cols, spec, out.data());
  return out;
}

// The quantised folder was made from the plain one: each module must be near its original and far from any other.
void expect_near(const TensorTable& plain, const TensorTable& affine, const std::vector<TensorSpec>& specs,
                 double tolerance) {
  for (const TensorSpec& spec : specs) {
    const StoredFormat& a = plain.at(spec.module);
    const StoredFormat& b = affine.at(spec.module);
    ASSERT_EQ(a.matrices.size(), b.matrices.size());
    for (size_t e = 0; e < a.matrices.size(); ++e) {
      double error = 0, size = 0;
      for (int64_t n = 0; n < a.matrices[e].rows; ++n) {
        const std::vector<float> x = row(a, e, n), y = row(b, e, n);
        for (size_t k = 0; k < x.size(); ++k) {
          error += (x[k] - y[k]) * (x[k] - y[k]);
          size += x[k] * x[k];
        }
      }
      ASSERT_LT(std::sqrt(error / size), tolerance) << spec.module << " " << e;
    }
  }
}

void compare(const std::string& plain, const std::string& affine, const Dims& dims, double tolerance) {
  const std::vector<TensorSpec> specs = specs_of(dims);
  const TensorTable a(Checkpoint::open(golden(plain)), specs, {}, false),
      b(Checkpoint::open(golden(affine)), specs, {}, false);
  expect_near(a, b, specs, tolerance);
}

TEST(GoldenTest, AffineFoldersHoldTheWeightsOfTheirOriginals) {
  compare("dense", "quant/dense-affine8-g32", kDense, 0.02);
  compare("dense", "quant/dense-vlm-affine4-g32", kDense, 0.15);
  compare("realdims", "quant/realdims-mixed_3_6", kRealdims, 0.35);
}

TEST(GoldenTest, StackedExpertsAreThoseStoredOneByOne) {
  compare("moe", "quant/moe-affine4-g32", kMoe, 0.15);
}

TEST(GoldenTest, BothNormConventionsGiveTheSameGammas) {
  const TensorTable hf(Checkpoint::open(golden("dense")), specs_of(kDense), {}, false);
  const TensorTable mlx(Checkpoint::open(golden("quant/dense-affine8-g32")), specs_of(kDense), {}, false);
  const std::vector<float> w = hf.vector("layers.0.input_layernorm"), gamma = mlx.vector("layers.0.input_layernorm");
  for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(1 + w[i], gamma[i], 0.01);
  EXPECT_EQ(hf.vector("layers.0.linear_attn.norm"), mlx.vector("layers.0.linear_attn.norm"));
  EXPECT_EQ(hf.vector("layers.0.linear_attn.conv1d"), mlx.vector("layers.0.linear_attn.conv1d"));
}

}  // namespace
}  // namespace tutti::weights
