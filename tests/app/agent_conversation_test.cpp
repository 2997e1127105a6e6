// A five-turn agent conversation with tools and reasoning, rendered by the chat template: what the prefix cache leaves
// to be computed. Integers only: the answers are given, no model runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "api/generate.h"
#include "app/canary.h"
#include "cache/manager.h"
#include "schedule/scheduler.h"
#include "text/chat_template.h"

namespace tutti::app {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<TokenId>;

class AgentConversation : public testing::Test {
 protected:
  AgentConversation()
      : tokenizer_(std::make_shared<const text::Tokenizer>(*open_canary()->text_file("tokenizer.json"),
                                                           open_canary()->text_file("tokenizer_config.json"))),
        template_(canary_chat_template(), tokenizer_, {}) {
    service_.tokenizer = tokenizer_;
    service_.end_ids = {*tokenizer_->id_of("<|im_end|>")};
    for (const char* name : {"read_file", "run_command", "search"}) {
      const std::string description = std::string("Use it to ") + name + " when the task needs it; paths are relative.";
      tools_.push_back(
          {{"type", "function"},
           {"function",
            {{"name", name},
             {"description", description},
             {"parameters",
              {{"type", "object"}, {"properties", {{"argument", {{"type", "string"}, {"description", "what"}}}}}}}}}});
    }
  }

  Ids rendered(const Json& messages, bool answer_follows) const {
    const Json context = {{"messages", messages}, {"tools", tools_}, {"add_generation_prompt", answer_follows}};
    auto prompt = template_.render(context.dump());
    EXPECT_TRUE(prompt.ok()) << (prompt.ok() ? "" : prompt.error().message);
    return prompt->ids;
  }

  // What the model says to the messages so that the history shows `assistant`: from behind the prompt to the end token.
  Ids answer_to(const Json& messages, const Json& assistant, const Ids& prompt) const {
    Json with = messages;
    with.push_back(assistant);
    const Ids whole = rendered(with, false);
    EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), whole.begin()));
    const auto end =
        std::find(whole.begin() + static_cast<std::ptrdiff_t>(prompt.size()), whole.end(), service_.end_ids.front());
    return {whole.begin() + static_cast<std::ptrdiff_t>(prompt.size()), end + 1};
  }

  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const text::ChatTemplate template_;
  api::Service service_;
  Json tools_ = Json::array();
};

// Runs one request to its end with the given answer; counts the tokens that are computed.
struct Counter {
  int run(const Ids& prompt, const Ids& answer, std::vector<int> boundaries) {
    auto request = std::make_shared<schedule::Request>();
    request->id = SequenceId{next++};
    request->prompt = prompt;
    request->max_tokens = static_cast<int>(answer.size());
    request->boundaries = std::move(boundaries);
    scheduler.add(std::move(request));
    int computed = 0;
    size_t said = 0;
    while (scheduler.has_work()) {
      const schedule::StepPlan plan = scheduler.plan(512);
      computed += plan.tokens();
      std::vector<schedule::SampledToken> sampled;
      for (const auto& row : plan.rows)
        sampled.push_back({.sequence = row.sequence, .token = row.samples ? answer.at(said++) : -1});
      scheduler.commit(plan, sampled);
      scheduler.check();
    }
    EXPECT_EQ(said, answer.size());
    return computed;
  }

  int64_t next = 0;
  cache::CacheManager caches{{.blocks = 600, .slots = 4, .snapshots = 40}};
  schedule::Scheduler scheduler{{.max_model_len = 32768, .snapshot_every = 1600}, caches};
};

size_t common(const Ids& a, const Ids& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

TEST_F(AgentConversation, FiveTurnsComputeLittleMoreThanWhatIsNew) {
  const auto words = [](int n, int seed) {
    std::string text;
    for (int i = 0; i < n; ++i) text += "item " + std::to_string((i * 37 + seed * 101) % 997) + ", ";
    return text;
  };
  Counter counter;
  std::vector<Ids> earlier;  // prompts with their answers
  size_t computed = 0, added = 0, prompts = 0;
  Json messages = {{{"role", "system"}, {"content", "You are a careful agent. Facts: " + words(300, 0)}}};
  const auto ask = [&](const Json& assistant) {
    const Ids prompt = rendered(messages, true);
    const Ids answer = answer_to(messages, assistant, prompt);
    size_t known = 0;
    for (const Ids& one : earlier) known = std::max(known, common(prompt, one));
    computed += static_cast<size_t>(counter.run(prompt, answer, api::boundaries(prompt, service_)));
    added += prompt.size() - known + answer.size();
    prompts += prompt.size();
    earlier.push_back(prompt);
    earlier.back().insert(earlier.back().end(), answer.begin(), answer.end());
    messages.push_back(assistant);
  };
  for (int turn = 0; turn < 5; ++turn) {
    messages.push_back({{"role", "user"}, {"content", "Question " + std::to_string(turn) + ": " + words(20, turn)}});
    for (int call = 0; call < 2; ++call) {
      ask({{"role", "assistant"},
           {"reasoning_content", "I should look that up. " + words(30, 10 * turn + call)},
           {"content", ""},
           {"tool_calls",
            {{{"type", "function"},
              {"function", {{"name", "search"}, {"arguments", {{"argument", words(3, turn)}}}}}}}}});
      messages.push_back({{"role", "tool"}, {"content", "Found: " + words(60, 50 + 10 * turn + call)}});
    }
    ask({{"role", "assistant"},
         {"reasoning_content", "Now I know. " + words(40, turn)},
         {"content", "The answer is " + words(15, turn)}});
  }
  EXPECT_GT(prompts, 20 * added / 10);  // most of what was asked was there before
  EXPECT_LE(static_cast<double>(computed), 1.15 * static_cast<double>(added)) << computed << " of " << added << " new";
  RecordProperty("computed", static_cast<int>(computed));
  RecordProperty("added", static_cast<int>(added));
  std::printf("%zu prompt tokens in all; new %zu, computed %zu: %.3f x\n", prompts, added, computed,
              static_cast<double>(computed) / static_cast<double>(added));
}

}  // namespace
}  // namespace tutti::app
