#include "api/messages.h"

#include <gtest/gtest.h>

namespace tutti::api {
namespace {

constexpr Limits kLimits{.vocab = 100};

ApiError fault(const std::string& messages) {
  std::vector<Message> out;
  auto body = parse_json(messages);
  EXPECT_TRUE(body.ok()) << messages;
  auto error = read_messages(body.value(), {&kLimits, nullptr, "messages"}, out);
  return error.value_or(ApiError{.status = 200, .code = "ok"});
}

// What the template gets.
std::string arranged_json(const std::string& messages, bool late_system = false) {
  std::vector<Message> out;
  auto error = read_messages(parse_json(messages).value(), {&kLimits, nullptr, "messages"}, out);
  EXPECT_FALSE(error) << messages << error->message;
  return template_messages(arranged(std::move(out), {.late_system = late_system})).dump();
}

struct Wrong {
  const char* messages;
  const char* code;
  const char* param;
};

TEST(Messages, refuse_with_code_and_path) {
  const Wrong cases[] = {
      {R"("Hi")", "invalid_type", "messages"},
      {R"(["Hi"])", "invalid_type", "messages[0]"},
      {R"([{"content":"x"}])", "missing_required_parameter", "messages[0].role"},
      {R"([{"role":5,"content":"x"}])", "invalid_type", "messages[0].role"},
      {R"([{"role":"cat","content":"x"}])", "invalid_value", "messages[0].role"},
      {R"([{"role":"function","content":"x"}])", "unsupported_value", "messages[0].role"},
      {R"([{"role":"user"}])", "missing_required_parameter", "messages[0].content"},
      {R"([{"role":"user","content":null}])", "missing_required_parameter", "messages[0].content"},
      {R"([{"role":"user","content":5}])", "invalid_type", "messages[0].content"},
      {R"([{"role":"user","content":"x","mood":1}])", "unknown_parameter", "messages[0].mood"},
      {R"([{"role":"user","content":"x","tool_calls":[]}])", "unknown_parameter", "messages[0].tool_calls"},
      {R"([{"role":"user","content":"x"},{"role":"user","content":[{"type":"text"}]}])", "missing_required_parameter",
       "messages[1].content[0].text"},
      {R"([{"role":"user","content":[{"text":"x"}]}])", "missing_required_parameter", "messages[0].content[0].type"},
      {R"([{"role":"user","content":[{"type":"text","text":5}]}])", "invalid_type", "messages[0].content[0].text"},
      {R"([{"role":"user","content":[{"type":"text","text":"x","size":1}]}])", "unknown_parameter",
       "messages[0].content[0].size"},
      {R"([{"role":"user","content":["x"]}])", "invalid_type", "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}])",
       "unsupported_media", "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"type":"video_url","video_url":{"url":"x"}}]}])", "unsupported_media",
       "messages[0].content[0]"},
      {R"([{"role":"system","content":[{"type":"image_url","image_url":{"url":"x"}}]}])", "invalid_value",
       "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}])", "unsupported_value",
       "messages[0].content[0].type"},
      {R"([{"role":"user","content":[{"type":"smell"}]}])", "invalid_value", "messages[0].content[0].type"},
      {R"([{"role":"assistant","content":"x","audio":{"id":"a"}}])", "unsupported_parameter", "messages[0].audio"},
      {R"([{"role":"assistant","content":"x","function_call":{"name":"f"}}])", "unsupported_parameter",
       "messages[0].function_call"},
      {R"([{"role":"assistant","content":"x","reasoning":"a","reasoning_content":"b"}])", "invalid_value",
       "messages[0].reasoning"},
      {R"([{"role":"assistant","tool_calls":{}}])", "invalid_type", "messages[0].tool_calls"},
      {R"([{"role":"assistant","tool_calls":[{"id":"a"}]}])", "missing_required_parameter",
       "messages[0].tool_calls[0].function"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}])", "missing_required_parameter",
       "messages[0].tool_calls[0].function.name"},
      {R"([{"role":"assistant","tool_calls":[{"type":"custom","function":{"name":"f"}}]}])", "unsupported_value",
       "messages[0].tool_calls[0].type"},
      {R"([{"role":"tool","content":"x","tool_call_id":5}])", "invalid_type", "messages[0].tool_call_id"},
  };
  for (const Wrong& c : cases) {
    const ApiError error = fault(c.messages);
    EXPECT_EQ(error.code, c.code) << c.messages << " " << error.message;
    EXPECT_EQ(error.param.value_or(""), c.param) << c.messages;
  }
}

TEST(Messages, take_what_clients_send_back) {
  EXPECT_EQ(fault(R"([{"role":"user","content":"Hi","name":"Ann"},
    {"role":"assistant","content":"Hello","refusal":null,"annotations":[],"audio":null,"function_call":null,"tool_calls":null,
     "reasoning_content":"r","reasoning":"r"},
    {"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"input_text","text":"b"}]}])")
                .code,
            "ok");
}

TEST(Messages, parts_are_joined_without_separator) {
  EXPECT_EQ(arranged_json(R"([{"role":"user","content":[{"type":"text","text":"a "},{"type":"output_text","text":"b"}]},
                              {"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}])"),
            R"([{"role":"user","content":"a b"},{"role":"assistant","content":"no"}])");
}

TEST(Messages, one_leading_system_message_stays_as_it_is) {
  EXPECT_EQ(arranged_json(R"([{"role":"developer","content":" s "},{"role":"user","content":"u"}])"),
            R"([{"role":"system","content":" s "},{"role":"user","content":"u"}])");
}

TEST(Messages, leading_system_messages_are_merged) {
  EXPECT_EQ(
      arranged_json(
          R"([{"role":"system","content":" a\n"},{"role":"developer","content":"\u00a0 "},{"role":"system","content":"b"},
                              {"role":"user","content":"u"}])"),
      R"([{"role":"system","content":"a\n\nb"},{"role":"user","content":"u"}])");
}

TEST(Messages, late_system_messages_go_to_the_front_unless_the_template_takes_them) {
  const std::string messages =
      R"([{"role":"system","content":"a"},{"role":"user","content":"u"},{"role":"system","content":" b "},{"role":"developer","content":"c"}])";
  EXPECT_EQ(arranged_json(messages), R"([{"role":"system","content":"a\n\nb\n\nc"},{"role":"user","content":"u"}])");
  EXPECT_EQ(
      arranged_json(messages, true),
      R"([{"role":"system","content":"a"},{"role":"user","content":"u"},{"role":"system","content":" b "},{"role":"system","content":"c"}])");
  EXPECT_EQ(arranged_json(R"([{"role":"user","content":"u"},{"role":"system","content":"b"}])"),
            R"([{"role":"system","content":"b"},{"role":"user","content":"u"}])");
}

TEST(Messages, arguments_become_an_object) {
  const auto arguments = [](const std::string& json) {
    auto text = arranged_json(
        R"([{"role":"assistant","content":null,"tool_calls":[{"id":"i","type":"function","function":{"name":"f","arguments":)" +
        json + "}}]}]");
    return Json::parse(text)[0]["tool_calls"][0]["function"]["arguments"].dump();
  };
  EXPECT_EQ(arguments(R"("{\"a\": 1, \"b\": [true]}")"), R"({"a":1,"b":[true]})");
  EXPECT_EQ(arguments(R"({"a":1})"), R"({"a":1})");
  EXPECT_EQ(arguments(R"("")"), "{}");
  EXPECT_EQ(arguments("null"), "{}");
  EXPECT_EQ(arguments(R"("{broken")"), R"({"arguments":"{broken"})");
  EXPECT_EQ(arguments(R"("[1,2]")"), R"({"arguments":"[1,2]"})");
  EXPECT_EQ(arguments("[1,2]"), R"({"arguments":"[1,2]"})");
  EXPECT_EQ(arguments("7"), R"({"arguments":"7"})");
  EXPECT_EQ(arguments(R"("{\"a\":1,\"a\":2}")"), R"({"arguments":"{\"a\":1,\"a\":2}"})");
}

std::string tool_history(const std::string& first, const std::string& second) {
  return R"([{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"f"}},{"id":"c2","function":{"name":"g"}}]},
    {"role":"tool","content":"one","tool_call_id":")" +
         first + R"("},{"role":"tool","content":"two","tool_call_id":")" + second + R"("}])";
}

TEST(Messages, tool_results_take_the_order_of_their_calls) {
  const auto order = [](const std::string& first, const std::string& second) {
    const Json m = Json::parse(arranged_json(tool_history(first, second)));
    return m[2]["content"].get<std::string>() + m[3]["content"].get<std::string>();
  };
  EXPECT_EQ(order("c1", "c2"), "onetwo");
  EXPECT_EQ(order("c2", "c1"), "twoone");
  EXPECT_EQ(order("c2", "x"), "onetwo");   // one matches no call: as given
  EXPECT_EQ(order("c2", "c2"), "onetwo");  // two for one call: as given
}

TEST(Messages, reasoning_reaches_the_template) {
  EXPECT_EQ(arranged_json(R"([{"role":"assistant","content":"c","reasoning":"r"}])"),
            R"([{"role":"assistant","content":"c","reasoning_content":"r"}])");
  EXPECT_EQ(arranged_json(R"([{"role":"assistant"}])"), R"([{"role":"assistant","content":""}])");
}

TEST(Trimmed, takes_unicode_white_space) {
  EXPECT_EQ(trimmed(" \t\r\n\v\f\u00a0\u2003\u3000a b\u0085\u2028 "), "a b");
  EXPECT_EQ(trimmed("\u200bx"), "\u200bx");  // zero-width space is none
  EXPECT_EQ(trimmed("  "), "");
  EXPECT_EQ(trimmed(""), "");
}

}  // namespace
}  // namespace tutti::api
