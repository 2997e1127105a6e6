#include "api/thinking.h"

#include <algorithm>
#include <array>

namespace tutti::api {
namespace {

// Set by the fields of the request that carry them; never by chat_template_kwargs.
constexpr std::array<std::string_view, 5> kReserved = {"messages", "tools", "documents", "add_generation_prompt",
                                                       "continue_final_message"};

struct Effort {
  std::string_view name;
  std::string_view variable;  // for a template that reads `reasoning_effort`
  int64_t limit;              // for one that doesn't
};
constexpr Effort kEfforts[] = {
    {"minimal", "low", 1024}, {"low", "low", 4096},   {"medium", "medium", 16384},
    {"high", "xhigh", -1},    {"xhigh", "xhigh", -1}, {"max", "xhigh", -1},
};

MaybeError check_kwargs(const Json& kwargs, const TemplateNames& names) {
  for (const auto& [name, value] : kwargs.items()) {
    const std::string path = "chat_template_kwargs." + name;
    if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end()) {
      return unsupported_parameter(path, fmt::format("'{}' is set by the request's own field.", path));
    }
    if (!names.reads(name)) return unknown_parameter(path);
    if (name == "enable_thinking" && !value.is_boolean() && !value.is_null()) {
      return invalid_type(path, fmt::format("'{}' must be a boolean, not {}.", path, type_name(value)));
    }
  }
  return std::nullopt;
}

ApiError no_switch(const char* param) {
  return unsupported_value(param, fmt::format("'{}': this model's chat template has no switch for thinking.", param));
}

MaybeError apply_effort(const std::string& effort, const TemplateNames& names, TemplateVariables& out) {
  const bool wants = effort != "none";
  Json& values = out.values;
  if (values.contains("enable_thinking")) {
    if (values["enable_thinking"] != wants) {
      return invalid_value("reasoning_effort", "'reasoning_effort' contradicts 'enable_thinking'.");
    }
  } else if (names.reads("enable_thinking")) {
    values["enable_thinking"] = wants;
  } else if (!wants) {
    return no_switch("reasoning_effort");
  }
  if (!wants) return std::nullopt;
  const auto* known =
      std::find_if(std::begin(kEfforts), std::end(kEfforts), [&](const Effort& e) { return e.name == effort; });
  TUTTI_CHECK(known != std::end(kEfforts));
  if (names.reads("reasoning_effort")) {
    if (!values.contains("reasoning_effort")) values["reasoning_effort"] = std::string(known->variable);
  } else {
    out.reasoning_limit = known->limit;
  }
  return std::nullopt;
}

}  // namespace

bool TemplateNames::reads(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

Result<TemplateVariables, ApiError> template_variables(const ThinkingWish& wish, const Json& defaults,
                                                       const TemplateNames& names) {
  if (auto error = check_kwargs(wish.kwargs, names)) return *error;
  TemplateVariables out;
  for (const auto& [name, value] : wish.kwargs.items()) {
    if (!value.is_null()) out.values[name] = value;
  }
  if (wish.enable_thinking) {
    if (!names.reads("enable_thinking")) return no_switch("enable_thinking");
    Json& value = out.values["enable_thinking"];
    if (!value.is_null() && value != *wish.enable_thinking) {
      return invalid_value("enable_thinking", "'enable_thinking' differs from 'chat_template_kwargs.enable_thinking'.");
    }
    value = *wish.enable_thinking;
  }
  if (!wish.effort.empty()) {
    if (auto error = apply_effort(wish.effort, names, out)) return *error;
  }
  for (const auto& [name, value] : defaults.items()) {
    if (!out.values.contains(name) && names.reads(name)) out.values[name] = value;
  }
  return out;
}

}  // namespace tutti::api
