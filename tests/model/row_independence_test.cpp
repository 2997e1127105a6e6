// The promise, on whole models: the logits of every token are the same to the last bit, whatever shares its step and
// however its prompt was cut.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "model/session.h"

namespace tutti::test {
namespace {

struct Case {
  std::string folder;
  bool float32;
  kernels::Isa isa;
};

std::vector<std::vector<int32_t>> random_prompts(std::mt19937& random, const std::vector<int>& lengths, int vocab) {
  std::vector<std::vector<int32_t>> prompts;
  for (const int n : lengths) {
    std::vector<int32_t> ids;
    for (int i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(vocab)));
    prompts.push_back(ids);
  }
  return prompts;
}

// Feeds all prompts together: every step takes a random set of unfinished sequences, each with a random number of
// tokens.
std::vector<Logits> feed_together(Session& session, const std::vector<std::vector<int32_t>>& prompts,
                                  std::mt19937& random) {
  std::vector<Logits> logits(prompts.size());
  std::vector<int> order(prompts.size());
  std::iota(order.begin(), order.end(), 0);
  for (;;) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Row> rows;
    bool unfinished = false;
    for (const int s : order) {
      const auto& prompt = prompts[static_cast<size_t>(s)];
      const int done = session.length(s), left = static_cast<int>(prompt.size()) - done;
      if (left == 0) continue;
      unfinished = true;
      if (random() % 4 == 0) continue;
      const int sizes[] = {1, 1, 2, 5, 17, 40, 70};
      const int n = std::min(left, sizes[random() % std::size(sizes)]);
      rows.push_back({s, {prompt.begin() + done, prompt.begin() + done + n}, n});
    }
    if (!unfinished) return logits;
    if (rows.empty()) continue;
    auto step = session.step(rows);
    size_t at = 0;
    for (const Row& row : rows) {
      for (int i = 0; i < row.wanted; ++i) logits[static_cast<size_t>(row.sequence)].push_back(std::move(step[at++]));
    }
  }
}

class RowIndependence : public ::testing::TestWithParam<Case> {};

TEST_P(RowIndependence, EveryTokenOfARandomScheduleEqualsItsRunAlone) {
  Mode mode;
  mode.numerics.float32 = GetParam().float32;
  mode.numerics.kv = GetParam().float32 ? kernels::KvType::float32 : kernels::KvType::bfloat16;
  mode.isa = GetParam().isa;
  const auto model = load_model(std::string(TUTTI_SOURCE_DIR) + "/tests/golden/" + GetParam().folder, mode);
  std::mt19937 random(7);
  const auto prompts = random_prompts(random, {1, 3, 37, 64, 90, 131}, model->info().vocab);
  const int n = static_cast<int>(prompts.size());
  Session together(model, mode, n, 140);
  const auto got = feed_together(together, prompts, random);

  Mode single = mode;
  single.threads = 1;
  Session alone(model, single, n, 140);
  for (int s = 0; s < n; ++s) {
    const auto& prompt = prompts[static_cast<size_t>(s)];
    const auto want = feed(alone, s, prompt, 0, static_cast<int>(prompt.size()));
    ASSERT_EQ(got[static_cast<size_t>(s)].size(), want.size());
    for (size_t t = 0; t < want.size(); ++t) {
      ASSERT_EQ(std::memcmp(got[static_cast<size_t>(s)][t].data(), want[t].data(), want[t].size() * sizeof(float)), 0)
          << "sequence of " << prompt.size() << " tokens, token " << t;
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto isa : kernels::available()) {
    if (isa == kernels::Isa::reference) continue;
    for (const char* folder : {"dense", "moe", "quant/realdims-mixed_3_6", "quant/moe128-affine4-g64"}) {
      for (const bool float32 : {false, true}) {
        // The scalar loops are slow: the default mode of the small models.
        const bool small = std::string(folder).find("moe") != std::string::npos;
        if (isa == kernels::Isa::scalar && (float32 || !small)) continue;
        all.push_back({folder, float32, isa});
      }
    }
  }
  return all;
}
std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = std::string(kernels::isa_name(info.param.isa)) + "_" + info.param.folder +
                     (info.param.float32 ? "_float32" : "_default");
  std::replace_if(name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Models, RowIndependence, ::testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace tutti::test
