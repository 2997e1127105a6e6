#include "api/endpoints.h"

#include <array>

namespace tutti::api {

std::span<const Endpoint> endpoints() {
  static constexpr std::array<Endpoint, 9> kEndpoints = {{
      {"/v1/chat/completions", "POST", Access::key, chat_completions},
      {"/v1/completions", "POST", Access::key, completions},
      {"/v1/models", "GET", Access::key, list_models},
      {"/v1/models/*", "GET", Access::key, get_model},
      {"/health", "GET", Access::open, health},
      {"/ping", "GET", Access::open, health},
      {"/ready", "GET", Access::open, ready},
      {"/metrics", "GET", Access::metrics, metrics},
      {"/version", "GET", Access::open, version},
  }};
  return kEndpoints;
}

std::span<const std::string_view> unsupported_paths() {
  static constexpr std::array<std::string_view, 26> kPaths = {
      "/v1/embeddings",
      "/v1/rerank",
      "/v1/score",
      "/v1/classify",
      "/pooling",
      "/v1/moderations",
      "/v1/audio/*",
      "/v1/images/*",
      "/v1/files",
      "/v1/files/*",
      "/v1/batches",
      "/v1/batches/*",
      "/v1/fine_tuning/*",
      "/v1/realtime",
      "/v1/realtime/*",
      "/v1/conversations",
      "/v1/conversations/*",
      "/v1/responses",
      "/v1/responses/*",
      "/v1/messages",
      "/v1/messages/*",
      "/tokenize",
      "/detokenize",
      "/apply-template",
      "/v1/chat/completions/render",
      "/v1/completions/render",
  };
  return kPaths;
}

bool path_matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

}  // namespace tutti::api
