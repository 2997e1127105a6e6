#include "api/core.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tutti::api {
namespace {

constexpr std::chrono::milliseconds kTick{100};

Json parse_object(const std::string& source, const std::string& json) {
  if (json.empty()) return Json::object();
  auto parsed = parse_json(json);
  if (!parsed.ok()) throw OptionError(fmt::format("{}: {}", source, parsed.error().message));
  if (!parsed.value().is_object()) throw OptionError(fmt::format("{}: must be a JSON object", source));
  return std::move(parsed.value());
}

std::string what_is_wrong(const std::function<void()>& check) {
  try {
    check();
  } catch (const OptionError& e) {
    return e.what();
  }
  return {};
}

Limits limits_of(const Service& service) {
  return {.vocab = service.vocab,
          .max_n = service.options.max_n,
          .max_logprobs = service.options.max_logprobs,
          .report_unknown = service.options.unknown_fields == "report"};
}

}  // namespace

std::vector<std::string> ApiOptions::validate() const {
  std::vector<std::string> problems;
  const auto one_of = [&](const char* flag, const std::string& value, std::vector<std::string_view> allowed) {
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      problems.push_back(fmt::format("{}: '{}' is not one of {}", flag, value, fmt::join(allowed, ", ")));
    }
  };
  const auto in_range = [&](const char* flag, int value, int min, int max) {
    if (value < min || value > max)
      problems.push_back(fmt::format("{}: {} is not between {} and {}", flag, value, min, max));
  };
  in_range("--max-n", max_n, 1, 1024);
  in_range("--max-logprobs", max_logprobs, 0, 20);
  in_range("--sse-keepalive", sse_keepalive_s, 1, 3600);
  one_of("--reasoning-field", reasoning_field, {"reasoning_content", "reasoning", "both"});
  one_of("--unknown-fields", unknown_fields, {"reject", "report"});
  one_of("--eos-in-reasoning", eos_in_reasoning, {"close", "stop"});
  for (const auto& key : api_keys) {
    if (key.empty()) problems.push_back("--api-key: must not be empty");
  }
  for (const auto& name : served_model_names) {
    if (name.empty()) problems.push_back("--served-model-name: must not be empty");
  }
  const auto kwargs =
      what_is_wrong([&] { parse_object("--default-chat-template-kwargs", default_chat_template_kwargs); });
  if (!kwargs.empty()) problems.push_back(kwargs);
  const auto defaults = what_is_wrong([&] { sampling_defaults(*this); });
  if (!defaults.empty()) problems.push_back(defaults);
  return problems;
}

Core::Core(std::shared_ptr<const Service> served, std::unique_ptr<Backend> engine)
    : service(std::move(served)),
      backend(std::move(engine)),
      reader(limits_of(*service)),
      defaults(sampling_defaults(service->options)),
      default_kwargs(parse_object("--default-chat-template-kwargs", service->options.default_chat_template_kwargs)),
      template_names(service->chat_template ? service->chat_template->variables() : std::vector<std::string>{}),
      in_flight(kTick) {
  TUTTI_CHECK(!service->options.served_model_names.empty());
}

Result<std::string, ApiError> Core::accepted_model(const std::string& wished) const {
  const auto& names = service->options.served_model_names;
  if (wished.empty()) return names.front();
  if (std::find(names.begin(), names.end(), wished) == names.end()) return model_not_found(wished);
  return wished;
}

}  // namespace tutti::api
