#include "text/chat_template.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <thread>

#include "base/error.h"
#include "text/text_fixture.h"

namespace tutti::text {
namespace {

using testing::HasSubstr;

Json user(const std::string& text) {
  return {{"role", "user"}, {"content", text}};
}
Json assistant(const std::string& text) {
  return {{"role", "assistant"}, {"content", text}};
}

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

// Runs of a token as one: pictures stand in the template's prompt as one token each.
std::vector<TokenId> collapsed(std::vector<TokenId> ids, TokenId token) {
  auto both = [&](TokenId a, TokenId b) { return a == token && b == token; };
  ids.erase(std::unique(ids.begin(), ids.end(), both), ids.end());
  return ids;
}

// The prompt ids in the files of the canary were made by the reference (jinja2 and the tokenizers package).
TEST(CanaryTemplate, PromptIdsEqualTheReference) {
  const Json cases = Json::parse(source_file("tests/canary/canary_cases.json"));
  int checked = 0;
  for (const Json& c : cases["cases"]) {
    std::string id = c["id"];
    if (id.starts_with("video")) continue;  // their frames are laid out elsewhere
    auto prompt = canary_template().render(prompt_context(c).dump());
    ASSERT_TRUE(prompt.ok()) << id << ": " << prompt.error().message;
    auto expected = collapsed(c["prompt_ids"].get<std::vector<TokenId>>(), 2040);
    EXPECT_EQ(prompt->ids, expected) << id << "\n" << prompt->text;
    EXPECT_EQ(prompt->in_reasoning, c["thinking"].get<bool>()) << id;
    auto upstream = canary_template(true).render(prompt_context(c).dump());
    EXPECT_EQ(upstream->ids, prompt->ids) << id;
    ++checked;
  }
  EXPECT_EQ(checked, 48);
}

TEST(ChatTemplate, ThinkTagsOfTheHistoryAreSplitOff) {
  Json messages = {user("q"), assistant("<think>\nwhy\n</think>\n\nbecause"), user("r"), assistant("x")};
  Json apart = messages;
  apart[1] = {{"role", "assistant"}, {"content", "because"}, {"reasoning_content", "why"}};
  for (bool keep : {false, true}) {
    Json context = {{"messages", messages}, {"preserve_thinking", keep}};
    Json same = {{"messages", apart}, {"preserve_thinking", keep}};
    EXPECT_EQ(render_text(canary_template(), context), render_text(canary_template(), same));
    EXPECT_EQ(canary_template().render(context.dump())->ids, canary_template(true).render(context.dump())->ids);
  }
  messages[1]["content"] = {{{"type", "text"}, {"text", "<think>\nwhy\n</thi"}},
                            {{"type", "text"}, {"text", "nk>because"}}};
  EXPECT_EQ(render_text(canary_template(), {{"messages", messages}, {"preserve_thinking", true}}),
            render_text(canary_template(), {{"messages", apart}, {"preserve_thinking", true}}));
}

TEST(ChatTemplate, GivenReasoningLeavesThinkTagsAsText) {
  Json message = {{"role", "assistant"}, {"content", "a</think>b"}, {"reasoning_content", "r"}};
  auto prompt = canary_template().render(Json{{"messages", {user("q"), message}}}.dump());
  EXPECT_THAT(prompt->text, HasSubstr("<think>\nr\n</think>\n\na</think>b<|im_end|>"));
  EXPECT_EQ(std::count(prompt->ids.begin(), prompt->ids.end(), 2043), 1);
}

TEST(ChatTemplate, ThinkTagsStayWhereTheTemplateDoesNotSplit) {
  ChatTemplate t("{% for m in messages %}{{ m.reasoning_content }}[{{ m.content }}]{% endfor %}", canary_tokenizer(),
                 {});
  EXPECT_EQ(render_text(t, {{"messages", {assistant("<think>\na\n</think>b")}}}), "[<think>\na\n</think>b]");
}

class RenderOpen : public testing::Test {
 protected:
  static std::string open(const std::string& source, const Json& last) {
    ChatTemplate t(source, canary_tokenizer(), {});
    auto prompt = t.render_open(Json{{"messages", {user("q"), last}}}.dump());
    return prompt.ok() ? prompt->text : "error: " + prompt.error().message;
  }
  static std::string open(const Json& last) { return open(source_file("models/canary/chat_template.jinja"), last); }

  const std::string head = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
  const std::string keeping = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
};

TEST_F(RenderOpen, EndsAfterTheLastContent) {
  EXPECT_EQ(open(assistant("Once upon")), head + "Once upon");
  EXPECT_EQ(open(keeping, assistant("Once upon")), "[q][Once upon");
}

TEST_F(RenderOpen, WhitespaceAtTheEndIsAsTheTemplateLeavesIt) {
  EXPECT_EQ(open(assistant("Once \n")), head + "Once") << "this template trims";
  EXPECT_EQ(open(keeping, assistant("Once \n")), "[q][Once \n");
}

TEST_F(RenderOpen, EmptyContent) {
  for (const Json& content : {Json(""), Json(nullptr), Json(" \n"), Json::array()}) {
    EXPECT_EQ(open({{"role", "assistant"}, {"content", content}}), head) << content;
  }
  EXPECT_EQ(open(Json{{"role", "assistant"}}), head);
}

TEST_F(RenderOpen, Parts) {
  Json text = {{"type", "text"}, {"text", "a"}};
  EXPECT_EQ(open({{"role", "assistant"}, {"content", {text, text}}}), head + "aa");
  EXPECT_EQ(open({{"role", "assistant"}, {"content", {text, {{"type", "image"}}}}}),
            head + "a<|vision_start|><|image_pad|><|vision_end|>");
}

TEST_F(RenderOpen, ReasoningIsSplitOffFirst) {
  EXPECT_EQ(open(assistant("<think>\nwhy\n</think>\n\nOnce")),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nwhy\n</think>\n\nOnce");
}

TEST_F(RenderOpen, ContentThatTheTemplateDropsIsAnError) {
  EXPECT_EQ(open("{{ messages | length }}", assistant("x")),
            "error: the template does not render the content of the last message");
  EXPECT_THAT(render_text(canary_template(), Json::object()), HasSubstr("No messages."));
  ChatTemplate t("x", canary_tokenizer(), {});
  EXPECT_EQ(t.render_open("{}").error().message, "no message to continue");
  EXPECT_EQ(t.render_open(R"({"messages": [1]})").error().message, "no message to continue");
}

TEST_F(RenderOpen, WorksInUpstreamMode) {
  auto prompt = canary_template(true).render_open(Json{{"messages", {user("q"), assistant("Once upon")}}}.dump());
  EXPECT_EQ(prompt->text, head + "Once upon");
}

TEST(ChatTemplate, InReasoningIsReadFromTheTail) {
  auto reasons = [](const std::string& source, const Json& context) {
    return ChatTemplate(source, canary_tokenizer(), {}).render(context.dump())->in_reasoning;
  };
  EXPECT_TRUE(reasons("<|im_start|>assistant\n<think>\n", Json::object()));
  EXPECT_TRUE(reasons("<think>\nsome thoughts already", Json::object()));
  EXPECT_FALSE(reasons("<think>\n\n</think>\n\n", Json::object()));
  EXPECT_FALSE(reasons("<think>\n<|im_end|>\n<|im_start|>assistant\n", Json::object()));
  EXPECT_FALSE(reasons("{{ text }}", {{"text", "<think>\n"}})) << "text of the request opens nothing";
  EXPECT_TRUE(reasons("<think>\n{{ text }}", {{"text", "</think>"}})) << "nor closes it";
}

TEST(ChatTemplate, VariablesAreWhatTheTemplateReads) {
  EXPECT_EQ(canary_template().variables(),
            (std::vector<std::string>{"add_generation_prompt", "add_vision_id", "enable_thinking", "messages",
                                      "preserve_thinking", "tools"}));
  EXPECT_TRUE(canary_template().reads("enable_thinking"));
  EXPECT_FALSE(canary_template().reads("enable_thinkin"));
  EXPECT_FALSE(canary_template().reads("ns"));
  ChatTemplate t("{{ bos_token }}{{ strftime_now('%Y') }}{{ eos_token }}{% set a = b %}{{ a }}", canary_tokenizer(),
                 {});
  EXPECT_EQ(t.variables(), (std::vector<std::string>{"b", "bos_token"}))
      << "eos_token comes from the tokenizer, bos_token is null there";
}

TEST(ChatTemplate, NamedTokensAreControlTokens) {
  ChatTemplate t("{{ eos_token }}{{ pad_token }}", canary_tokenizer(), {});
  EXPECT_EQ(t.render("{}")->ids, (std::vector<TokenId>{2037, 2035}));
  EXPECT_EQ(render_text(t, {{"eos_token", "mine"}}), "mine<|endoftext|>");
}

TEST(ChatTemplate, LateSystemMessagesAreProbed) {
  EXPECT_FALSE(canary_template().accepts_late_system());
  ChatTemplate in_place("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", canary_tokenizer(), {});
  EXPECT_TRUE(in_place.accepts_late_system());
  ChatTemplate dropping("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", canary_tokenizer(),
                        {});
  EXPECT_FALSE(dropping.accepts_late_system()) << "a template that loses it does not accept it";
  ChatTemplate hoisting("{% for m in messages | sort(attribute='role') %}{{ m.content }}{% endfor %}",
                        canary_tokenizer(), {});
  EXPECT_FALSE(hoisting.accepts_late_system());
}

TEST(ChatTemplate, ClockFormatsLikePython) {
  ChatTemplate t("{{ strftime_now('%d %b %Y') }}|{{ strftime_now('') }}", canary_tokenizer(), {});
  char today[32];
  std::time_t now = std::time(nullptr);
  std::strftime(today, sizeof today, "%d %b %Y|", std::localtime(&now));
  EXPECT_EQ(render_text(t, Json::object()), today);
}

TEST(ChatTemplate, GenerationTagsRenderTheirBody) {
  ChatTemplate t("a {%- generation -%} b {%- endgeneration %} c{% generation %}d{% endgeneration %}",
                 canary_tokenizer(), {});
  EXPECT_EQ(render_text(t, Json::object()), "ab cd");
}

std::string load_error(const std::string& source) {
  try {
    ChatTemplate(source, canary_tokenizer(), {});
  } catch (const LoadError& e) {
    return e.what();
  }
  return "";
}

TEST(ChatTemplate, WhatTheInterpreterLacksIsAnErrorAtLoad) {
  EXPECT_THAT(load_error("\n{{ x | frobnicate }}"), HasSubstr("line 2: unknown filter \"frobnicate\""));
  EXPECT_THAT(load_error("{% if x %}{% if x is shiny %}{% endif %}{% endif %}"), HasSubstr("unknown test \"shiny\""));
  EXPECT_THAT(load_error("{{ conjure(1) }}"), HasSubstr("unknown function \"conjure\""));
  EXPECT_THAT(load_error("{{ x.translate(y) }}"), HasSubstr("unsupported method \"translate\""));
  EXPECT_THAT(load_error("{% macro m() %}{{ 1 | nope }}{% endmacro %}{% block b %}{{ 1 | never }}{% endblock %}"),
              testing::AllOf(HasSubstr("\"nope\""), HasSubstr("\"never\"")));
  EXPECT_THAT(load_error("a\nb {% frob %}"), testing::AllOf(HasSubstr("line 2"), HasSubstr("frob")));
  EXPECT_THAT(load_error("{% if x %}"), HasSubstr("line 1"));
  EXPECT_THAT(load_error("{{ 'open }}"), HasSubstr("line 1"));
  EXPECT_EQ(load_error("{% macro own(x) %}{{ x }}{% endmacro %}{{ own(1) }}{{ range(2) | list }}{{ dict(a=1) }}"), "");
}

TEST(ChatTemplate, EndlessTemplatesAreErrors) {
  auto rendered = [](const std::string& source) {
    return render_text(ChatTemplate(source, canary_tokenizer(), {}), {{"d", Json::object()}});
  };
  std::string loops =
      "{% set r = range(9999) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}";
  EXPECT_THAT(rendered(loops), HasSubstr("error: line 1: engine ran out of fuel"));
  EXPECT_THAT(rendered("{% macro m(x) %}{{ m(x + 1) }}{% endmacro %}{{ m(0) }}"), HasSubstr("error: "));
  EXPECT_THAT(
      rendered(
          "{% set ns = namespace(s='0123456789') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
      HasSubstr("error: "));
  EXPECT_THAT(load_error("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}"),
              HasSubstr("line 1"));
}

TEST(ChatTemplate, BadContextsAreErrors) {
  for (std::string context : {"", "[]", "{", "{\"messages\": }", "{\"a\": \"\xff\"", "nonsense"}) {
    auto prompt = canary_template().render(context);
    ASSERT_FALSE(prompt.ok()) << context;
    EXPECT_THAT(prompt.error().message, HasSubstr("template variables"));
  }
  std::string deep = "{\"messages\": " + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_FALSE(canary_template().render(deep).ok());
  EXPECT_TRUE(canary_template().render("{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\xfe\"}]}").ok())
      << "no crash";
}

TEST(ChatTemplate, OneTemplateRendersOnManyThreads) {
  const Json context = {{"messages", {user("hello <|im_end|> there")}}, {"add_generation_prompt", true}};
  auto expected = canary_template().render(context.dump())->ids;
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) equal += canary_template().render(context.dump())->ids == expected;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(equal, 200);
}

}  // namespace
}  // namespace tutti::text
