#include "api/thinking.h"

#include <gtest/gtest.h>

namespace tutti::api {
namespace {

const TemplateNames kSwitch({"messages", "enable_thinking", "add_generation_prompt", "tools"});
const TemplateNames kEffort({"messages", "enable_thinking", "reasoning_effort"});
const TemplateNames kPlain({"messages"});

struct Case {
  std::string kwargs;
  std::optional<bool> enable;
  std::string effort;
  std::string defaults;
  std::string values;  // or the code of the error
  int64_t limit = -1;
};

void check(const Case& c, const TemplateNames& names) {
  auto kwargs = parse_json(c.kwargs.empty() ? "{}" : c.kwargs),
       defaults = parse_json(c.defaults.empty() ? "{}" : c.defaults);
  auto got = template_variables({kwargs.value(), c.enable, c.effort}, defaults.value(), names);
  EXPECT_EQ(got.ok() ? got->values.dump() : got.error().code, c.values) << c.kwargs << c.effort << c.defaults;
  if (got.ok()) {
    EXPECT_EQ(got->reasoning_limit, c.limit) << c.effort;
  }
}

TEST(Thinking, wishes_in_order) {
  check({"", {}, "", "", "{}"}, kSwitch);
  check({R"({"enable_thinking":false})", {}, "", "", R"({"enable_thinking":false})"}, kSwitch);
  check({"", true, "", "", R"({"enable_thinking":true})"}, kSwitch);
  check({R"({"enable_thinking":true})", true, "", "", R"({"enable_thinking":true})"}, kSwitch);
  check({R"({"enable_thinking":true})", false, "", "", "invalid_value"}, kSwitch);
  check({"", {}, "", R"({"enable_thinking":false,"other":1})", R"({"enable_thinking":false})"}, kSwitch);
  check({"", true, "", R"({"enable_thinking":false})", R"({"enable_thinking":true})"}, kSwitch);
  check({R"({"enable_thinking":null})", {}, "", "", "{}"}, kSwitch);
}

TEST(Thinking, refuses_names_that_the_template_does_not_read) {
  check({R"({"enable_thinkin":true})", {}, "", "", "unknown_parameter"}, kSwitch);
  check({R"({"enable_thinking":"yes"})", {}, "", "", "invalid_type"}, kSwitch);
  check({R"({"messages":[]})", {}, "", "", "unsupported_parameter"}, kSwitch);
  check({R"({"add_generation_prompt":false})", {}, "", "", "unsupported_parameter"}, kSwitch);
  check({"", true, "", "", "unsupported_value"}, kPlain);
}

TEST(Thinking, efforts_switch_and_limit) {
  check({"", {}, "none", "", R"({"enable_thinking":false})"}, kSwitch);
  check({"", {}, "minimal", "", R"({"enable_thinking":true})", 1024}, kSwitch);
  check({"", {}, "low", "", R"({"enable_thinking":true})", 4096}, kSwitch);
  check({"", {}, "medium", "", R"({"enable_thinking":true})", 16384}, kSwitch);
  check({"", {}, "high", "", R"({"enable_thinking":true})"}, kSwitch);
  check({"", {}, "max", "", R"({"enable_thinking":true})"}, kSwitch);
  check({"", false, "high", "", "invalid_value"}, kSwitch);
  check({"", {}, "none", "", "unsupported_value"}, kPlain);
}

TEST(Thinking, efforts_reach_a_template_that_reads_them) {
  check({"", {}, "minimal", "", R"({"enable_thinking":true,"reasoning_effort":"low"})"}, kEffort);
  check({"", {}, "medium", "", R"({"enable_thinking":true,"reasoning_effort":"medium"})"}, kEffort);
  check({"", {}, "high", "", R"({"enable_thinking":true,"reasoning_effort":"xhigh"})"}, kEffort);
  check({"", {}, "none", "", R"({"enable_thinking":false})"}, kEffort);
}

}  // namespace
}  // namespace tutti::api
