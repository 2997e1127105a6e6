#include "app/options.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/version.h"
#include "base/env.h"
#include "base/error.h"

namespace tutti::app {
namespace {

// What CLI11 parses into before it goes to the rooms' own structs.
struct RawFlags {
  std::string dtype = "auto", kv_dtype = "auto", generation_config = "auto";
  std::string api_key, api_key_file;
  double max_body_mib = 64;
  int step_budget_ms = 250, watchdog_s = 60, stream_stall_s = 60;
};

void add_server_flags(CLI::App& cmd, ServeOptions& o, RawFlags& raw) {
  cmd.add_option("--host", o.http.host, "address to bind")->capture_default_str();
  cmd.add_option("--port", o.http.port, "port to bind; 0: any free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  cmd.add_option("--api-key", raw.api_key, "key that clients must send (also TUTTI_API_KEY)");
  cmd.add_option("--api-key-file", raw.api_key_file, "file with one key per line");
  cmd.add_flag("--protect-metrics", o.api.protect_metrics, "/metrics needs the key, too");
  cmd.add_option("--allowed-origins", o.http.allowed_origins, "origins that browsers may call from (CORS)")
      ->delimiter(',');
  cmd.add_option("--max-body-mib", raw.max_body_mib, "largest request body")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 4096.0));
  cmd.add_option("--max-connections", o.http.max_connections, "open connections")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  cmd.add_option("--io-threads", o.http.io_threads, "threads for sockets")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  cmd.add_option("--stream-stall-s", raw.stream_stall_s, "cut off a client that reads nothing for so long")
      ->capture_default_str()
      ->check(CLI::Range(1, 86400));
  cmd.add_option("--sse-keepalive", o.api.sse_keepalive_s, "seconds between comments on a silent stream")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600));
  cmd.add_option("--drain-s", o.drain_s, "seconds that running requests get after SIGTERM")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
  cmd.add_option("--log-level", o.log_level, "debug, info, warn or error")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
}

void add_api_flags(CLI::App& cmd, ServeOptions& o, RawFlags& raw) {
  cmd.add_option("--served-model-name", o.api.served_model_names, "names that requests may use; the first is shown");
  cmd.add_option("--default-chat-template-kwargs", o.api.default_chat_template_kwargs,
                 "JSON object of template variables");
  cmd.add_option("--generation-config", raw.generation_config, "auto: generation_config.json of the model; none")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "none"}));
  cmd.add_option("--override-generation-config", o.api.override_generation_config, "JSON object of sampling defaults");
  cmd.add_option("--max-n", o.api.max_n, "largest n of a request")->capture_default_str()->check(CLI::Range(1, 1024));
  cmd.add_option("--max-logprobs", o.api.max_logprobs, "largest top_logprobs of a request")
      ->capture_default_str()
      ->check(CLI::Range(0, 20));
  cmd.add_option("--reasoning-field", o.api.reasoning_field, "reasoning_content, reasoning or both")
      ->capture_default_str()
      ->check(CLI::IsMember({"reasoning_content", "reasoning", "both"}));
  cmd.add_option("--unknown-fields", o.api.unknown_fields, "reject, or report in the header X-Tutti-Ignored")
      ->capture_default_str()
      ->check(CLI::IsMember({"reject", "report"}));
  cmd.add_flag("--special-tokens-in-text", o.special_tokens_in_text,
               "literals of control tokens in messages become control tokens");
}

void add_engine_flags(CLI::App& cmd, ServeOptions& o, RawFlags& raw) {
  auto& s = o.engine.schedule;
  cmd.add_option("--max-num-batched-tokens", s.max_num_batched_tokens, "most tokens of one step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  cmd.add_option("--max-num-seqs", s.max_num_seqs, "sequences that run at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  cmd.add_option("--max-model-len", s.max_model_len,
                 "longest prompt and answer; default: the model's, or what memory allows")
      ->check(CLI::Range(1, 1 << 30));
  cmd.add_option("--kv-cache-memory-bytes", o.kv_cache_memory_bytes,
                 "memory of the KV cache and states; default: part of what is free")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50));
  cmd.add_option("--num-speculative-tokens", s.max_drafts,
                 "guesses of a model's draft head to verify per step; 0: none; results are the same")
      ->default_val(3)
      ->check(CLI::Range(0, 8));
  cmd.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", s.prefix_caching,
               "reuse what earlier prompts and answers left in the caches (default: on)");
  cmd.add_option("--prefix-cache-snapshot-bytes", o.snapshot_bytes,
                 "memory of recurrent states kept for reuse; default: 0.4 of the KV cache's")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 50));
  cmd.add_option("--prefix-cache-dir", o.disk_folder,
                 "folder in which the prefix cache goes on beyond the memory and the process; default: none");
  cmd.add_option("--prefix-cache-disk-bytes", o.disk_bytes, "most bytes of that folder's entries")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 50));
  cmd.add_option(
      "--warm-prefix", o.warm_prefix,
      "file of prompts to compute before the server is ready: bodies of chat completions or completions, one "
      "a line");
  cmd.add_option("--max-queue", o.engine.max_queue, "requests that may wait")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  cmd.add_option("--step-budget-ms", raw.step_budget_ms, "time of one step while prompts wait")
      ->capture_default_str()
      ->check(CLI::Range(1, 60000));
  cmd.add_option("--watchdog-s", raw.watchdog_s, "unhealthy after so long without progress")
      ->capture_default_str()
      ->check(CLI::Range(1, 86400));
  cmd.add_option("--threads", o.threads, "threads of the kernels; default: the processors")->check(CLI::Range(1, 1024));
  cmd.add_option("--dtype", raw.dtype, "auto, or float32: weights as stored, everything else float32")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32"}));
  cmd.add_option("--kv-cache-dtype", raw.kv_dtype, "auto (bfloat16), bfloat16 or float32")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "bfloat16", "float32"}));
  cmd.add_flag("--ignore-unused-tensors", o.ignore_unused_tensors, "load a checkpoint that has tensors nothing uses");
}

std::vector<std::string> read_keys(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw OptionError("--api-key-file: can't read " + path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) keys.push_back(line);
  }
  if (keys.empty()) throw OptionError("--api-key-file: no key in " + path);
  return keys;
}

void require_json_object(const char* flag, const std::string& text) {
  const auto parsed = nlohmann::json::parse(text, nullptr, false);
  if (!parsed.is_object()) throw OptionError(std::string(flag) + ": not a JSON object: " + text);
}

void resolve(ServeOptions& o, const RawFlags& raw) {
  o.http.max_body_bytes = static_cast<size_t>(raw.max_body_mib * (1 << 20));
  o.http.stream_stall = std::chrono::seconds(raw.stream_stall_s);
  o.engine.step_budget = std::chrono::milliseconds(raw.step_budget_ms);
  o.engine.watchdog = std::chrono::seconds(raw.watchdog_s);
  o.numerics.float32 = raw.dtype == "float32";
  o.numerics.kv = raw.kv_dtype == "float32" ? kernels::KvType::float32 : kernels::KvType::bfloat16;
  o.numerics.body = ops::body_from_environment();
  o.generation_config = raw.generation_config != "none";
  if (!raw.api_key.empty()) o.api.api_keys.push_back(raw.api_key);
  if (const auto key = env::api_key()) o.api.api_keys.push_back(*key);
  if (!raw.api_key_file.empty()) {
    for (auto& key : read_keys(raw.api_key_file)) o.api.api_keys.push_back(std::move(key));
  }
  for (const auto& [flag, value] :
       {std::pair("--prefix-cache-dir", &o.disk_folder), std::pair("--warm-prefix", &o.warm_prefix)}) {
    if (!value->empty() && !o.engine.schedule.prefix_caching)
      throw OptionError(std::string(flag) + ": of no use with --no-enable-prefix-caching");
  }
  require_json_object("--default-chat-template-kwargs", o.api.default_chat_template_kwargs);
  require_json_object("--override-generation-config", o.api.override_generation_config);
  for (const auto& problems : {o.http.validate(), o.api.validate()}) {
    if (!problems.empty()) throw OptionError(problems.front());
  }
}

}  // namespace

Parsed parse_command_line(int argc, const char* const* argv) {
  CLI::App app{"tutti: serves Qwen3.5 / 3.6 / 3.8 models. Every conversation is answered exactly as if it were alone."};
  app.set_version_flag("--version", std::string("tutti ") + kVersion);
  app.require_subcommand(1);
  auto* serve = app.add_subcommand("serve", "serve a model over HTTP (OpenAI's API)");
  ServeOptions options;
  RawFlags raw;
  serve->add_option("MODEL_FOLDER", options.model_folder,
                    "a Hugging Face or MLX checkpoint; none: the embedded canary");
  add_server_flags(*serve, options, raw);
  add_api_flags(*serve, options, raw);
  add_engine_flags(*serve, options, raw);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::ostringstream out, err;
    const int code = app.exit(e, out, err);
    return {std::nullopt, out.str() + err.str(), code == 0 ? 0 : 2};
  }
  resolve(options, raw);
  return {std::move(options), "", 0};
}

}  // namespace tutti::app
