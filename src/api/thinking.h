// What a request says about thinking, and the variables of the template that follow from it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/fields.h"

namespace tutti::api {

struct ThinkingWish {
  Json kwargs = Json::object();  // chat_template_kwargs
  std::optional<bool> enable_thinking;
  std::string effort;  // reasoning_effort, or empty
};

struct TemplateVariables {
  Json values = Json::object();
  int64_t reasoning_limit = -1;  // tokens of reasoning that an effort allows; -1: no limit
};

// The names that a template reads.
class TemplateNames {
 public:
  explicit TemplateNames(std::vector<std::string> names) : names_(std::move(names)) {}
  bool reads(std::string_view name) const;

 private:
  std::vector<std::string> names_;
};

// request → server defaults → the template's own default. defaults: a JSON object; names that the template doesn't read
// are left out.
Result<TemplateVariables, ApiError> template_variables(const ThinkingWish& wish, const Json& defaults,
                                                       const TemplateNames& names);

}  // namespace tutti::api
