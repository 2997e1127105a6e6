// A step that throws at any of its nodes costs the rows of that step and nothing else.
#include <gtest/gtest.h>

#include <cstring>

#include "model/session.h"

namespace tutti::test {
namespace {

const std::string kFolder = std::string(TUTTI_SOURCE_DIR) + "/tests/golden/dense";

std::vector<const void*> pointers(Session& session, const model::Model& model) {
  std::vector<const void*> all;
  const auto specs = model.cache_specs();
  for (int i = 0; i < static_cast<int>(specs.size()); ++i) {
    if (specs[static_cast<size_t>(i)].paged()) {
      const auto kv = std::get<kernels::KvLayer>(session.store().kv(i));
      all.insert(all.end(), {kv.k, kv.v});
    } else {
      const auto state = std::get<ops::CpuState>(session.store().state(i));
      all.insert(all.end(), {state.state, state.conv});
    }
  }
  return all;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Fault, AThrowInAnyNodeCostsOnlyTheRowsOfItsStep) {
  Mode mode;
  mode.isa = kernels::available().back();
  const auto model = load_model(kFolder, mode);
  const std::vector<int32_t> bystander = {5, 9, 2, 31, 7}, victim = {11, 4, 4, 90};
  Session reference(model, mode, 2, 64);
  feed(reference, 0, bystander, 0, 1);
  const auto next_of_bystander = reference.step({{0, {17}}}).back();
  const auto last_of_victim = feed(reference, 1, victim, 0, 1).back();

  const int nodes = 2 + 2 * static_cast<int>(model->cache_specs().size());
  for (int fault = 0; fault < nodes; ++fault) {
    Session session(model, mode, 2, 64);
    feed(session, 0, bystander, 0, 1);
    const auto before = pointers(session, *model);
    int node = 0;
    session.before_node = [&](const char*) {
      if (node++ == fault) throw std::runtime_error("injected");
    };
    EXPECT_THROW(session.step({{1, victim}}), std::runtime_error) << "node " << fault;
    session.before_node = nullptr;
    EXPECT_FALSE(session.store().recover());
    EXPECT_EQ(pointers(session, *model), before);
    session.restart(1);
    EXPECT_TRUE(same(feed(session, 1, victim, 0, 1).back(), last_of_victim)) << "node " << fault;
    EXPECT_TRUE(same(session.step({{0, {17}}}).back(), next_of_bystander)) << "node " << fault;
  }
}

TEST(Fault, TheGraphStoreIsRebuiltAndEverySequenceRecomputed) {
  Mode mode;
  mode.numerics = float32_mode(ops::Body::graph);
  const auto model = load_model(kFolder, mode);
  Session session(model, mode, 1, 64);
  const auto want = feed(session, 0, {5, 9, 2}, 0, 1).back();
  EXPECT_TRUE(session.store().recover());
  session.restart(0);
  EXPECT_TRUE(same(feed(session, 0, {5, 9, 2}, 0, 1).back(), want));
}

TEST(Fault, ABatchThatContradictsItselfIsRefusedBeforeAnythingIsWritten) {
  Mode mode;
  mode.isa = kernels::available().back();
  const auto model = load_model(kFolder, mode);
  Session session(model, mode, 2, 64);
  EXPECT_THROW(session.step({{0, {5}}, {0, {6}}}), std::invalid_argument);  // one slot twice
  EXPECT_THROW(session.step({{0, {100000}}}), std::invalid_argument);       // no such row of the embedding
  EXPECT_THROW(session.step({{0, {}}}), std::invalid_argument);             // no tokens
}

TEST(Fault, StepsWithoutLogitsStillWriteTheCaches) {
  Mode mode;
  mode.isa = kernels::available().back();
  const auto model = load_model(kFolder, mode);
  Session session(model, mode, 2, 64);
  const auto want = feed(session, 0, {5, 9, 2, 31}, 0, 1).back();
  EXPECT_TRUE(session.step({{1, {5, 9, 2}, 0}}).empty());
  EXPECT_TRUE(same(session.step({{1, {31}}}).back(), want));
}

}  // namespace
}  // namespace tutti::test
