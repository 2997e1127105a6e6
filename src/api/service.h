// Everything the endpoints need, wired by app/. Immutable while the server runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/task_pool.h"
#include "engine/engine.h"
#include "http/server.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tutti::api {

struct ApiOptions {
  std::vector<std::string> served_model_names;  // the first is primary
  std::vector<std::string> api_keys;            // empty: open
  bool protect_metrics = false;
  std::string default_chat_template_kwargs = "{}";  // JSON object
  std::string generation_config;                    // JSON of generation_config.json, or empty
  std::string override_generation_config = "{}";
  int max_n = 16;
  int max_logprobs = 20;
  int sse_keepalive_s = 10;
  std::string reasoning_field = "reasoning_content";  // reasoning_content, reasoning or both
  std::string unknown_fields = "reject";              // reject or report
  std::string eos_in_reasoning = "close";
  std::vector<std::string> validate() const;
};

struct Service {
  ApiOptions options;
  engine::Engine* engine = nullptr;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  TaskPool* tasks = nullptr;     // tokenizing and rendering, off the io threads
  std::vector<TokenId> end_ids;  // stop set of the model
  bool drafts = false;           // the model guesses ahead
  int max_model_len = 0;         // effective
  int vocab = 0;                 // ids < vocab exist
  std::string version_json;      // the body of /version
  std::string system_fingerprint;
  int64_t started_unix = 0;
};

// The dispatcher for http::Server: the table of endpoints (endpoints.cpp), authentication, request ids, metrics.
http::Handler make_handler(std::shared_ptr<const Service> service);
http::Response error_response(int status, const std::string& message);

}  // namespace tutti::api
