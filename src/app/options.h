// The command line of `tutti serve`: a field per flag in the options struct of the room that uses it; the table of
// flags is options.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/service.h"
#include "engine/engine.h"
#include "http/server.h"
#include "ops/numerics.h"

namespace tutti::app {

struct ServeOptions {
  std::string model_folder;  // empty: the embedded canary
  http::ServerOptions http;
  engine::EngineOptions engine;
  api::ApiOptions api;
  ops::Numerics numerics;
  int64_t kv_cache_memory_bytes = 0;  // 0: chosen from the memory that is free
  int64_t snapshot_bytes = -1;        // of the prefix cache; -1: a part of the KV cache's
  std::string disk_folder;            // of the prefix cache; empty: none
  int64_t disk_bytes = int64_t{16} << 30;
  std::string warm_prefix;  // file of prompts to compute at start; empty: none
  int threads = 0;          // of the kernel pool; 0: the processors this process may use
  int drain_s = 30;
  bool special_tokens_in_text = false;
  bool ignore_unused_tensors = false;
  bool generation_config = true;  // false: --generation-config none
  std::string log_level = "info";
};

// What a command line asks for: options, or text to print and an exit code.
struct Parsed {
  std::optional<ServeOptions> serve;
  std::string text;
  int exit_code = 0;
};
Parsed parse_command_line(int argc, const char* const* argv);

}  // namespace tutti::app
