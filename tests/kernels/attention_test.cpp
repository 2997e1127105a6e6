#include <gtest/gtest.h>

#include <algorithm>

#include "base/bfloat16.h"
#include "kernels/per_isa.h"

namespace tutti::kernels::test {
namespace {

using Attention = PerIsa;

size_t product(int a, int b, int c = 1) {
  return static_cast<size_t>(a) * static_cast<size_t>(b) * static_cast<size_t>(c);
}

struct Shape {
  int H = 4, G = 1, D = 64;
  KvType type = KvType::bfloat16;
};

// One sequence of `length` tokens in a pool of blocks that is full of NaN wherever nothing was written.
class Sequence {
 public:
  Sequence(const KernelTable& kernels, const Shape& shape, int length)
      : shape_(shape),
        k(normal(product(length, shape.G, shape.D), 1)),
        v(normal(product(length, shape.G, shape.D), 2)),
        q(normal(product(length, shape.H, shape.D), 3)) {
    const int used = (length + kBlockTokens - 1) / kBlockTokens, pool = used + 2;
    bytes_k_.resize(product(pool, shape.G, shape.D) * kBlockTokens * sizeof(float), 0xff);
    bytes_v_ = bytes_k_;
    for (int i = 0; i < pool; ++i) blocks_.push_back(i);
    std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937(5));
    const size_t row = product(shape.G, shape.D);
    for (int t = 0; t < length; ++t) {
      kernels.kv_write(layer(), blocks_.data(), t, &k[static_cast<size_t>(t) * row], &v[static_cast<size_t>(t) * row]);
    }
  }

  // The same vector as k and v of every kv head.
  void overwrite(const KernelTable& kernels, int position, const std::vector<float>& x) {
    kernels.kv_write(layer(), blocks(), position, x.data(), x.data());
  }

  KvLayer layer() { return {shape_.type, bytes_k_.data(), bytes_v_.data(), shape_.G, shape_.D}; }
  const int32_t* blocks() const { return blocks_.data(); }

  // o / l of queries [first, first + n), computed `tile` queries at a time: [n, H, D].
  std::vector<float> attend(const KernelTable& kernels, int first, int n, int tile) {
    const int heads = shape_.H / shape_.G, D = shape_.D;
    std::vector<float> out(product(n, shape_.H, D), kNan);
    AttentionArgs args{.kv = layer(), .blocks = blocks(), .first = first, .n = n, .H = shape_.H};
    args.q = &q[product(first, shape_.H, D)];
    args.scale = 1 / std::sqrt(static_cast<float>(D));
    for (int g = 0; g < shape_.G; ++g) {
      for (int begin = 0; begin < n; begin += tile) {
        const int end = std::min(n, begin + tile), rows = (end - begin) * heads;
        const std::vector<float> o = attend_tile(kernels, args, begin, end, g);
        for (int r = 0; r < rows; ++r) {
          const int query = begin + r / heads, head = g * heads + r % heads;
          std::copy_n(&o[product(r, D)], D, &out[product(query * shape_.H + head, D)]);
        }
      }
    }
    return out;
  }

 private:
  std::vector<float> attend_tile(const KernelTable& kernels, const AttentionArgs& args, int begin, int end, int g) {
    const int heads = shape_.H / shape_.G, D = shape_.D, rows = (end - begin) * heads;
    const size_t count = static_cast<size_t>(rows),
                 scratch_size = static_cast<size_t>(attention_scratch(end - begin, heads, D));
    std::vector<float> m(count, -kInf), l(count, kNan), o(product(rows, D), kNan);
    std::vector<float> part_m(count, kNan), part_l(count, kNan), part_o(product(rows, D), kNan);
    std::vector<float> scratch(scratch_size + 1, kNan);
    scratch.back() = 12345;
    for (int range = 0; range * kRangeTokens < args.first + end; ++range) {
      const AttentionPartial part{part_m.data(), part_l.data(), part_o.data()};
      kernels.attention_range(args, begin, end, g, range, part, scratch.data());
      kernels.attention_merge({m.data(), l.data(), o.data()}, part, rows, D);
    }
    EXPECT_EQ(scratch.back(), 12345) << "beyond the scratch";
    for (size_t i = 0; i < o.size(); ++i) o[i] /= l[i / static_cast<size_t>(D)];
    return o;
  }

  Shape shape_;
  std::vector<uint8_t> bytes_k_, bytes_v_;
  std::vector<int32_t> blocks_;

 public:
  std::vector<float> k, v;  // [length, G, D]
  std::vector<float> q;     // [length, H, D]
};

// Scores of size 1 with errors of a sum over D, weights that sum to 1, values of size 1.
double tolerance(int D) {
  return kEps * (8 * std::sqrt(D) + 64);
}

constexpr int kLengths[] = {1, 2, 63, 64, 65, 1023, 1024, 1025, 3000};

TEST_P(Attention, AgreesWithTheReferenceAtEveryLength) {
  for (KvType type : {KvType::bfloat16, KvType::float32}) {
    for (int length : kLengths) {
      SCOPED_TRACE(length);
      Sequence s(kernels(), {.H = 2, .G = 1, .D = 64, .type = type}, length);
      const int n = std::min(length, 3);
      expect_near(s.attend(kernels(), length - n, n, n), s.attend(reference(), length - n, n, n), tolerance(64));
    }
  }
}

TEST_P(Attention, AgreesWithTheReferenceAtEveryShape) {
  for (int D : {16, 64, 128, 256}) {
    for (int heads : {1, 2, 4, 6, 8}) {
      SCOPED_TRACE(testing::Message() << D << ", " << heads);
      Sequence s(kernels(), {.H = 2 * heads, .G = 2, .D = D}, 75);
      expect_near(s.attend(kernels(), 70, 5, 5), s.attend(reference(), 70, 5, 5), tolerance(D));
    }
  }
}

TEST_P(Attention, AgreesWithASoftmaxOverAllKeys) {
  constexpr int kLength = 1100, kD = 64;
  Sequence s(kernels(), {.H = 1, .G = 1, .D = kD, .type = KvType::float32}, kLength);
  std::vector<double> p(kLength);
  double top = -kInf, sum = 0;
  const float* q = &s.q[product(kLength - 1, kD)];
  for (size_t t = 0; t < kLength; ++t) {
    for (size_t d = 0; d < kD; ++d) p[t] += static_cast<double>(q[d]) * s.k[t * kD + d] / 8;
    top = std::max(top, p[t]);
  }
  for (double& x : p) sum += x = std::exp(x - top);
  std::vector<float> want(kD);
  for (size_t d = 0; d < kD; ++d) {
    double o = 0;
    for (size_t t = 0; t < kLength; ++t) o += p[t] * s.v[t * kD + d];
    want[d] = static_cast<float>(o / sum);
  }
  expect_near(s.attend(kernels(), kLength - 1, 1, 1), want, tolerance(kD));
}

// The promise of the project at its hardest place: prompt chunk, verify block and decode give the same bits.
TEST_P(Attention, AQueryIsTheSameInAChunkInAVerifyBlockAndAlone) {
  for (Shape shape : {Shape{.H = 4, .G = 1, .D = 64}, Shape{.H = 12, .G = 2, .D = 32, .type = KvType::float32},
                      Shape{.H = 1, .G = 1, .D = 128}, Shape{.H = 8, .G = 1, .D = 16}}) {
    constexpr int kLength = 1150;
    Sequence s(kernels(), shape, kLength);
    const int n = GetParam() == Isa::reference ? 2 : 37;  // its loops are slow
    for (int first : {57, 1010, 1100}) {
      const auto chunk = bits(s.attend(kernels(), first, n, n));
      EXPECT_EQ(chunk, bits(s.attend(kernels(), first, n, 1)));
      EXPECT_EQ(chunk, bits(s.attend(kernels(), first, n, 5)));
      std::vector<uint32_t> alone;
      for (int t = 0; t < n; ++t) {
        const auto one = bits(s.attend(kernels(), first + t, 1, 1));
        alone.insert(alone.end(), one.begin(), one.end());
      }
      EXPECT_EQ(chunk, alone);
    }
  }
}

TEST_P(Attention, LaterTokensInTheCacheCannotBeSeen) {
  Sequence before(kernels(), {.H = 4, .G = 2, .D = 64}, 100);
  const auto want = bits(before.attend(kernels(), 90, 10, 10));
  std::vector<float> nan(2 * 64, kNan);
  for (int t = 100; t < 192; ++t) before.overwrite(kernels(), t, nan);
  EXPECT_EQ(want, bits(before.attend(kernels(), 90, 10, 10)));
}

TEST_P(Attention, NanInAKeyThatIsAttendedIsNotHidden) {
  Sequence s(kernels(), {.H = 1, .G = 1, .D = 16}, 70);
  s.overwrite(kernels(), 3, std::vector<float>(16, kNan));
  const auto o = s.attend(kernels(), 0, 70, 70);
  for (size_t i = 0; i < o.size(); ++i) ASSERT_EQ(std::isnan(o[i]), i >= 3 * 16) << i / 16;
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  Sequence s(kernels(), {.H = 2, .G = 1, .D = 64, .type = KvType::float32}, 200);
  for (float& x : s.q) x *= 300;
  const auto o = s.attend(kernels(), 190, 10, 10);
  for (float x : o) ASSERT_TRUE(std::isfinite(x));
}

TEST_P(Attention, ARangeWithoutKeysIsEmpty) {
  Sequence s(kernels(), {.H = 1, .G = 1, .D = 64}, 70);
  std::vector<float> m(1, 5.0f), l(1, 5.0f), o(64, kNan), scratch(static_cast<size_t>(attention_scratch(1, 1, 64)));
  AttentionArgs args{.kv = s.layer(), .blocks = s.blocks(), .first = 69, .n = 1, .H = 1, .q = s.q.data(), .scale = 1};
  kernels().attention_range(args, 0, 1, 0, 1, {m.data(), l.data(), o.data()}, scratch.data());
  EXPECT_EQ(m[0], -kInf);
  EXPECT_EQ(l[0], 0);
  EXPECT_EQ(o, std::vector<float>(64, 0.0f));
}

TEST_P(Attention, MergingIsByRowAndSkipsEmptyParts) {
  constexpr int kRows = 4, kD = 32;
  const std::vector<float> m = {-kInf, 1, 2, -kInf}, part_m = {3, -kInf, 2.5f, -kInf};
  const std::vector<float> l = {kNan, 2, 3, 0}, part_l = {5, kNan, 7, 0};
  std::vector<float> o = normal(kRows * kD, 1), part_o = normal(kRows * kD, 2);
  std::fill_n(o.begin(), kD, kNan);
  std::fill_n(part_o.begin() + kD, kD, kNan);
  std::vector<float> got_m = m, got_l = l, got_o = o, in_m = part_m, in_l = part_l;
  kernels().attention_merge({got_m.data(), got_l.data(), got_o.data()}, {in_m.data(), in_l.data(), part_o.data()},
                            kRows, kD);
  EXPECT_EQ(got_m, (std::vector<float>{3, 1, 2.5f, -kInf}));
  EXPECT_EQ(got_l[0], 5);
  EXPECT_EQ(got_l[1], 2);
  EXPECT_NEAR(got_l[2], 3 * std::exp(-.5) + 7, 1e-6);
  EXPECT_EQ(bits(&got_o[0], kD), bits(&part_o[0], kD));
  EXPECT_EQ(bits(&got_o[kD], kD), bits(&o[kD], kD));
  for (size_t i = 2 * kD; i < 3 * kD; ++i) EXPECT_NEAR(got_o[i], o[i] * std::exp(-.5) + part_o[i], 1e-6);
}

TEST_P(Attention, KvWriteRoundsAndPutsEveryValueInItsPlace) {
  constexpr int kG = 2, kD = 32, kPool = 3;
  std::vector<float> k = normal(kG * kD, 1), v = normal(kG * kD, 2);
  k[0] = std::bit_cast<float>(0x3f808000u);  // halfway, to even: down
  k[1] = std::bit_cast<float>(0x3f818000u);  // halfway, to even: up
  k[2] = kNan;
  v[5] = kInf;
  v[6] = std::bit_cast<float>(0x7f7fffffu);  // rounds to infinity
  const std::vector<int32_t> blocks = {2, 0};
  const auto at_k = [](size_t g, size_t d) {
    return (0 * kG + g) * kD * 64 + d * 64 + 6;
  };  // position 70: block 0, slot 6
  const auto at_v = [](size_t g, size_t d) { return (0 * kG + g) * kD * 64 + 6 * kD + d; };

  std::vector<bf16> bk(kPool * kG * kD * 64, 0x1234), bv = bk, want_k = bk, want_v = bk;
  kernels().kv_write({KvType::bfloat16, bk.data(), bv.data(), kG, kD}, blocks.data(), 70, k.data(), v.data());
  std::vector<float> fk(bk.size(), 7.0f), fv = fk, want_fk = fk, want_fv = fk;
  kernels().kv_write({KvType::float32, fk.data(), fv.data(), kG, kD}, blocks.data(), 70, k.data(), v.data());
  for (size_t g = 0; g < kG; ++g) {
    for (size_t d = 0; d < kD; ++d) {
      want_k[at_k(g, d)] = float_to_bf16(k[g * kD + d]);
      want_v[at_v(g, d)] = float_to_bf16(v[g * kD + d]);
      want_fk[at_k(g, d)] = k[g * kD + d];
      want_fv[at_v(g, d)] = v[g * kD + d];
    }
  }
  EXPECT_EQ(bk, want_k);
  EXPECT_EQ(bv, want_v);
  EXPECT_EQ(bits(fk), bits(want_fk));
  EXPECT_EQ(bits(fv), bits(want_fv));
  EXPECT_EQ(bk[at_k(0, 0)], 0x3f80);
  EXPECT_EQ(bk[at_k(0, 1)], 0x3f82);
}

TEST_P(Attention, RopeTurnsPairsOfTheFirstDimsOnly) {
  for (int half : {2, 8, 32}) {
    constexpr int kHeads = 3, kStride = 80;
    const std::vector<float> x = normal(kHeads * kStride, 1);
    std::vector<float> cos, sin, got = x, want = x;
    for (int i = 0; i < half; ++i) {
      cos.push_back(std::cos(0.3f * static_cast<float>(i) + 1));
      sin.push_back(std::sin(0.3f * static_cast<float>(i) + 1));
    }
    kernels().rope(got.data(), kStride, kHeads, cos.data(), sin.data(), half);
    for (size_t h = 0; h < kHeads; ++h) {
      for (size_t i = 0; i < static_cast<size_t>(half); ++i) {
        const double a = x[h * kStride + i], b = x[h * kStride + i + static_cast<size_t>(half)];
        want[h * kStride + i] = static_cast<float>(a * cos[i] - b * sin[i]);
        want[h * kStride + i + static_cast<size_t>(half)] = static_cast<float>(b * cos[i] + a * sin[i]);
      }
      const size_t rest = h * kStride + 2 * static_cast<size_t>(half), end = (h + 1) * kStride;
      EXPECT_EQ(bits(&got[rest], end - rest), bits(&x[rest], end - rest));
      std::vector<float> alone(&x[h * kStride], &x[h * kStride] + kStride);
      kernels().rope(alone.data(), 0, 1, cos.data(), sin.data(), half);
      EXPECT_EQ(bits(alone), bits(&got[h * kStride], kStride));
    }
    expect_near(got, want, 8 * kEps);
  }
}

TUTTI_FOR_EACH_ISA(Attention);

}  // namespace
}  // namespace tutti::kernels::test
