#include "kernels/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "kernels/per_isa.h"

namespace tutti::kernels {
namespace {

using testing::HasSubstr;

// Sets TUTTI_ISA for one test.
class Selection : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* old = std::getenv("TUTTI_ISA")) old_ = old;
    unsetenv("TUTTI_ISA");
  }
  void TearDown() override {
    if (old_.empty()) {
      unsetenv("TUTTI_ISA");
    } else {
      setenv("TUTTI_ISA", old_.c_str(), 1);
    }
  }
  static void ask_for(const char* name) { setenv("TUTTI_ISA", name, 1); }
  static std::string refusal() {
    try {
      select();
    } catch (const OptionError& e) {
      return e.what();
    }
    return "accepted";
  }

 private:
  std::string old_;
};

TEST(Names, EveryNameNamesItsIsa) {
  for (Isa isa : {Isa::reference, Isa::scalar, Isa::avx2, Isa::avx512, Isa::neon}) {
    EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
  }
  EXPECT_EQ(isa_name(Isa::avx512), "avx512");
  EXPECT_FALSE(isa_from_name("sse9"));
  EXPECT_FALSE(isa_from_name(""));
}

TEST(Available, BeginsWithThePortableOnesAndHasATableForEach) {
  const std::vector<Isa> isas = available();
  ASSERT_GE(isas.size(), 2u);
  EXPECT_EQ(isas[0], Isa::reference);
  EXPECT_EQ(isas[1], Isa::scalar);
  for (Isa isa : {Isa::reference, Isa::scalar, Isa::avx2, Isa::avx512, Isa::neon}) {
    const bool listed = std::find(isas.begin(), isas.end(), isa) != isas.end();
    EXPECT_EQ(table(isa) != nullptr, listed) << isa_name(isa);
  }
#if defined(__x86_64__)
  EXPECT_EQ(table(Isa::neon), nullptr);
  EXPECT_EQ(table(Isa::avx2) != nullptr, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
#endif
}

TEST_F(Selection, TakesTheLastOneByDefault) {
  EXPECT_EQ(select().isa, available().back());
}

TEST_F(Selection, TakesTheNamedOne) {
  for (Isa isa : available()) {
    ask_for(std::string(isa_name(isa)).c_str());
    EXPECT_EQ(select().isa, isa);
  }
}

TEST_F(Selection, RefusesAnUnknownNameAndSaysWhatThereIs) {
  ask_for("avx1024");
  EXPECT_THAT(refusal(), HasSubstr("avx1024"));
  EXPECT_THAT(refusal(), HasSubstr("not known"));
  for (Isa isa : available()) EXPECT_THAT(refusal(), HasSubstr(std::string(isa_name(isa))));
}

TEST_F(Selection, RefusesAnIsaThatThisMachineLacks) {
  for (Isa isa : {Isa::avx2, Isa::avx512, Isa::neon}) {
    if (table(isa)) continue;
    ask_for(std::string(isa_name(isa)).c_str());
    EXPECT_THAT(refusal(), HasSubstr("TUTTI_ISA=" + std::string(isa_name(isa)) + " is not available"));
  }
}

using Table = test::PerIsa;

TEST_P(Table, HasEveryKernel) {
  const KernelTable& t = kernels();
  EXPECT_TRUE(t.rms_norm && t.gated_rms_norm && t.l2_norm);
  EXPECT_TRUE(t.round_bf16 && t.quantize_int8 && t.read_row);
  EXPECT_TRUE(t.matmul_float && t.matmul_affine_int8 && t.matmul_affine_float);
  EXPECT_TRUE(t.silu_mul && t.sigmoid_mul && t.add_scaled);
  EXPECT_TRUE(t.conv_silu && t.delta_gates && t.delta_rule);
  EXPECT_TRUE(t.rope && t.kv_write && t.attention_range && t.attention_merge);
  EXPECT_TRUE(t.top_k_softmax && t.argmax && t.log_sum_exp);
}

TUTTI_FOR_EACH_ISA(Table);

}  // namespace
}  // namespace tutti::kernels
