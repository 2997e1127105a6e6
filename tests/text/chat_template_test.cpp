#include "text/chat_template.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "text/text_fixture.h"

namespace tutti::text {
namespace {

using testing::HasSubstr;

Json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
Json assistant(const std::string& text) { return {{"role", "assistant"}, {"content", text}}; }

Json prompt_context(const Json& c) {
  Json messages = c["messages"];
  for (Json& message : messages) {
    if (!message.contains("tool_calls")) continue;
    for (Json& call : message["tool_calls"]) {
      Json& arguments = call["function"]["arguments"];
      arguments = Json::parse(arguments.get<std::string>());
    }
  }
  Json context = {{"messages", messages}, {"add_generation_prompt", true}, {"enable_thinking", c["thinking"]}};
  if (!c["tools"].is_null()) context["tools"] = c["tools"];
  return context;
}

// The prompt ids in the files of the canary were made by the reference (jinja2 and the tokenizers package).
TEST(CanaryTemplate, PromptIdsEqualTheReference) {
  int checked = 0;
  const Json cases = Json::parse(source_file("tests/canary/canary_cases.json"));
  for (const Json& c : cases["cases"]) {
    std::string id = c["id"];
    bool pictures = c["messages"].dump().find("data:image") != std::string::npos;
    if (pictures) continue;
    auto prompt = canary_template().render(prompt_context(c).dump());
    ASSERT_TRUE(prompt.ok()) << id << ": " << prompt.error().message;
    EXPECT_EQ(prompt->ids, c["prompt_ids"].get<std::vector<TokenId>>()) << id << "\n" << prompt->text;
    EXPECT_EQ(prompt->in_reasoning, c["thinking"].get<bool>()) << id;
    auto upstream = canary_template(true).render(prompt_context(c).dump());
    EXPECT_EQ(upstream->ids, prompt->ids) << id;
    ++checked;
  }
  EXPECT_GE(checked, 34);
}

}  // namespace
}  // namespace tutti::text
