// THE table of endpoints: path, methods, who may call it, and the function that answers.
#pragma once

#include <span>
#include <string_view>

#include "api/call.h"
#include "api/core.h"

namespace tutti::api {

// Answers the call, now or later; must not block: it runs on an io thread.
using EndpointFunction = void (*)(std::shared_ptr<Core> core, std::shared_ptr<Call> call);

enum class Access {
  key,      // needs an API key where keys are set
  open,     // never
  metrics,  // only with --protect-metrics
};

struct Endpoint {
  std::string_view path;    // "…/*" stands for everything below, at least one character
  std::string_view method;  // GET (answers HEAD too) or POST
  Access access = Access::key;
  EndpointFunction answer;
};

std::span<const Endpoint> endpoints();

// What generative checkpoints have no answer for: paths and prefixes ("…*") that get a 501.
std::span<const std::string_view> unsupported_paths();

// Does `pattern` (with a trailing "*" for a prefix) stand for the path?
bool path_matches(std::string_view pattern, std::string_view path);

// One per file.
void chat_completions(std::shared_ptr<Core> core, std::shared_ptr<Call> call);
void completions(std::shared_ptr<Core> core, std::shared_ptr<Call> call);
void list_models(std::shared_ptr<Core> core, std::shared_ptr<Call> call);
void get_model(std::shared_ptr<Core> core, std::shared_ptr<Call> call);
void health(std::shared_ptr<Core> core, std::shared_ptr<Call> call);
void ready(std::shared_ptr<Core> core, std::shared_ptr<Call> call);
void metrics(std::shared_ptr<Core> core, std::shared_ptr<Call> call);
void version(std::shared_ptr<Core> core, std::shared_ptr<Call> call);

}  // namespace tutti::api
