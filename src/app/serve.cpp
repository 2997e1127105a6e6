#include "app/serve.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <mlx/version.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "api/warm_up.h"
#include "app/cache_identity.h"
#include "app/canary.h"
#include "app/memory_plan.h"
#include "app/progress.h"
#include "app/version.h"
#include "base/log.h"
#include "base/memory.h"
#include "cache/cache_store.h"
#include "cache/disk_tier.h"
#include "engine/draft_pace.h"
#include "model/model.h"
#include "run/runner.h"

namespace tutti::app {
namespace {

// Everything that lives while the server runs, in the order in which it is taken down (last first).
struct Running {
  std::unique_ptr<ThreadPool> pool;
  const kernels::KernelTable* table = nullptr;
  std::shared_ptr<const weights::Checkpoint> checkpoint;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  std::shared_ptr<const model::Model> model;
  MemoryPlan memory;
  std::unique_ptr<TaskPool> tasks;
  std::unique_ptr<engine::Engine> engine;
  std::shared_ptr<api::Service> service;
};

// Answers while the model loads; then what the service answers.
class Switchboard {
 public:
  void set(http::Handler handler) {
    handler_ = std::move(handler);
    ready_.store(true, std::memory_order_release);
  }
  void operator()(std::shared_ptr<http::Exchange> exchange) const {
    if (ready_.load(std::memory_order_acquire)) return handler_(std::move(exchange));
    http::Response loading = api::error_response(503, "the model is still loading");
    loading.headers.emplace_back("Retry-After", "1");
    exchange->respond(std::move(loading));
  }

 private:
  http::Handler handler_;
  std::atomic<bool> ready_{false};
};

std::shared_ptr<const weights::Checkpoint> open_checkpoint(const ServeOptions& options) {
  return options.model_folder.empty() ? open_canary() : weights::Checkpoint::open(options.model_folder);
}

std::string default_model_name(const ServeOptions& options) {
  if (options.model_folder.empty()) return "canary";
  auto path = std::filesystem::weakly_canonical(options.model_folder);
  return path.filename().empty() ? path.parent_path().filename().string() : path.filename().string();
}

void load_text(const ServeOptions& options, Running& r) {
  const auto tokenizer_json = r.checkpoint->text_file("tokenizer.json");
  if (!tokenizer_json) throw LoadError(r.checkpoint->label() + ": tokenizer.json is missing");
  r.tokenizer = std::make_shared<text::Tokenizer>(*tokenizer_json, r.checkpoint->text_file("tokenizer_config.json"));
  const model::Config config = model::parse_config(r.checkpoint->config_json(), r.checkpoint->label());
  if (r.tokenizer->vocab() > config.vocab_size) {
    throw LoadError(fmt::format("{}: the tokenizer has {} ids, config.json's vocab_size is {}", r.checkpoint->label(),
                                r.tokenizer->vocab(), config.vocab_size));
  }
  auto source = r.checkpoint->text_file("chat_template.jinja");
  if (!source) {
    if (const auto text = r.checkpoint->text_file("tokenizer_config.json")) {
      const auto json = nlohmann::json::parse(*text, nullptr, false);
      if (json.is_object() && json.contains("chat_template") && json["chat_template"].is_string())
        source = json["chat_template"];
    }
  }
  if (!source) {
    log::warn("{} has no chat template: the canary's is used", r.checkpoint->label());
    source = canary_chat_template();
  }
  r.chat_template = std::make_shared<text::ChatTemplate>(std::move(*source), r.tokenizer,
                                                         text::TemplateOptions{options.special_tokens_in_text});
}

void load_model(const ServeOptions& options, Running& r) {
  Progress progress("loading " + r.checkpoint->label());
  model::LoadOptions load;
  load.numerics = options.numerics;
  load.vocab = r.tokenizer->vocab();
  load.drafts = options.engine.schedule.max_drafts > 0;
  load.ignore_unused_tensors = options.ignore_unused_tensors;
  load.pool = r.pool.get();
  load.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  r.model = model::load(r.checkpoint, load);
}

// Null without --prefix-cache-dir. Throws OptionError when the folder can't be had.
std::unique_ptr<cache::DiskTier> open_disk_tier(const ServeOptions& options, const Running& r) {
  if (options.disk_folder.empty()) return nullptr;
  const CacheIdentity identity{.checkpoint = *r.checkpoint,
                               .info = r.model->info(),
                               .numerics = options.numerics,
                               .isa = std::string(kernels::isa_name(r.table->isa))};
  try {
    auto tier = std::make_unique<cache::DiskTier>(cache::DiskTierOptions{
        .folder = options.disk_folder, .max_bytes = options.disk_bytes, .identity = digest_of(identity, *r.pool)});
    log::info("prefix cache on disk: {} entries, {:.1f} MiB in {}", tier->counts().entries.load(),
              static_cast<double>(tier->counts().bytes.load()) / (1 << 20), options.disk_folder);
    return tier;
  } catch (const std::system_error& e) {
    throw OptionError(fmt::format("--prefix-cache-dir: {}", e.what()));
  }
}

void start_engine(const ServeOptions& options, Running& r) {
  const auto specs = r.model->cache_specs();
  auto engine_options = options.engine;
  const int drafts = r.model->info().drafts ? options.engine.schedule.max_drafts : 0;
  r.memory =
      plan_memory(specs, {.budget = options.kv_cache_memory_bytes,
                          .available = available_memory(),
                          .model_max_len = r.model->info().max_positions,
                          .max_model_len = options.engine.schedule.max_model_len,
                          .max_num_seqs = options.engine.schedule.max_num_seqs,
                          .draft_slots = engine::DraftPace::most_guesses(drafts, options.engine.schedule.max_num_seqs),
                          .prefix_caching = options.engine.schedule.prefix_caching,
                          .snapshot_bytes = options.snapshot_bytes});
  engine_options.schedule.max_drafts = drafts;
  engine_options.schedule.snapshot_every = r.memory.snapshot_every;
  engine_options.schedule.max_model_len = r.memory.max_model_len;
  for (const auto& problem : engine_options.schedule.validate()) throw OptionError(problem);
  auto caches =
      std::make_unique<cache::CacheManager>(cache::ManagerOptions{.blocks = r.memory.blocks,
                                                                  .slots = r.memory.slots,
                                                                  .snapshots = r.memory.snapshots,
                                                                  .drafts = r.memory.draft_slots,
                                                                  .stateful = cache::bytes_per_slot(specs) > 0,
                                                                  .record_given_up = !options.disk_folder.empty()});
  auto make_runner = [&r, &options, specs] {
    auto store = cache::make_store(specs, r.memory.blocks, r.memory.slots + r.memory.snapshots + r.memory.draft_slots,
                                   options.numerics);
    return std::make_unique<run::Runner>(r.model, std::move(store), options.numerics, r.pool.get(), r.table);
  };
  r.engine =
      std::make_unique<engine::Engine>(engine_options, std::move(caches), make_runner, open_disk_tier(options, r));
  r.engine->metrics().memory_weights = r.model->info().weight_bytes;
  r.engine->metrics().memory_caches = r.memory.bytes;
  r.engine->metrics().snapshot_bytes = cache::bytes_per_slot(specs);
  r.engine->metrics().kv_blocks_total = r.memory.blocks;
}

// The stop set: the chat end tokens, and whatever the tokenizer, generation_config.json and config.json name.
std::vector<TokenId> end_ids(const Running& r) {
  std::vector<TokenId> ids;
  for (const char* token : {"<|im_end|>", "<|endoftext|>"}) {
    if (const auto id = r.tokenizer->id_of(token)) ids.push_back(*id);
  }
  if (const auto id = r.tokenizer->eos()) ids.push_back(*id);
  for (const int id : model::parse_config(r.checkpoint->config_json(), r.checkpoint->label()).eos_token_ids)
    ids.push_back(id);
  if (const auto text = r.checkpoint->text_file("generation_config.json")) {
    const auto json = nlohmann::json::parse(*text, nullptr, false);
    const auto eos = json.is_object() ? json.value("eos_token_id", nlohmann::json()) : nlohmann::json();
    for (const auto& id : eos.is_array() ? eos : nlohmann::json::array({eos})) {
      if (id.is_number_integer()) ids.push_back(id.get<TokenId>());
    }
  }
  std::erase_if(ids, [&](TokenId id) { return id < 0 || id >= r.tokenizer->vocab(); });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string version_json(const ServeOptions& options, const Running& r) {
  const bool graph = options.numerics.body == ops::Body::graph;
  nlohmann::ordered_json v;
  v["version"] = kVersion;
  v["mlx"] = mlx::core::version();
  v["build"] = {{"compiler", __VERSION__}, {"isa", graph ? "mlx" : std::string(kernels::isa_name(r.table->isa))}};
  v["device"] = "cpu";
  v["exact"] = !graph;
  v["speculative"] = r.model->info().drafts;
  v["dtype"] = options.numerics.float32 ? "float32" : "auto";
  v["kv_dtype"] = options.numerics.kv == kernels::KvType::float32 ? "float32" : "bfloat16";
  v["weights"] = r.model->info().format;
  v["media_formats"] = nlohmann::ordered_json::array();
  v["features"] = {{"text", true},
                   {"image", false},
                   {"video", false},
                   {"tools", false},
                   {"structured_output", false},
                   {"prefix_cache", options.engine.schedule.prefix_caching},
                   {"special_tokens_in_text", options.special_tokens_in_text}};
  return v.dump();
}

uint64_t fnv1a(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325u) {
  for (const unsigned char c : bytes) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

void make_service(const ServeOptions& options, Running& r) {
  auto service = std::make_shared<api::Service>();
  service->options = options.api;
  if (service->options.served_model_names.empty()) service->options.served_model_names = {default_model_name(options)};
  if (options.generation_config)
    service->options.generation_config = r.checkpoint->text_file("generation_config.json").value_or("");
  service->engine = r.engine.get();
  service->tokenizer = r.tokenizer;
  service->chat_template = r.chat_template;
  service->tasks = r.tasks.get();
  service->end_ids = end_ids(r);
  service->max_model_len = r.memory.max_model_len;
  service->vocab = r.tokenizer->vocab();
  service->drafts = r.model->info().drafts;
  service->version_json = version_json(options, r);
  const uint64_t hash = fnv1a(service->version_json, fnv1a(r.checkpoint->config_json()));
  service->system_fingerprint = fmt::format("tt-{:016x}", hash);
  service->started_unix = std::time(nullptr);
  r.service = std::move(service);
}

void warm_up(const ServeOptions& options, const Running& r) {
  if (options.warm_prefix.empty()) return;
  std::ifstream file(options.warm_prefix, std::ios::binary);
  const std::string lines{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw OptionError("--warm-prefix: can't read " + options.warm_prefix);
  try {
    api::warm_up(r.service, lines);
  } catch (const OptionError& e) {
    throw OptionError(fmt::format("--warm-prefix: {}, {}", options.warm_prefix, e.what()));
  }
}

void log_model(const Running& r) {
  const auto& info = r.model->info();
  log::info("{}: {}, {:.1f} MiB of weights, {} threads, kernels {}", info.name, info.format,
            static_cast<double>(info.weight_bytes) / (1 << 20), r.pool->threads(), kernels::isa_name(r.table->isa));
  if (info.vision) log::info("{}: vision tower recognised and not used by this version", info.name);
  if (!info.no_drafts.empty()) log::info("{}: {}: no speculation", info.name, info.no_drafts);
  log::info("context limit {} tokens; {} sequences at once; caches up to {:.1f} MiB", r.memory.max_model_len,
            r.memory.slots, static_cast<double>(r.memory.bytes) / (1 << 20));
}

// Where a client on this machine finds the server.
std::string local_address(const std::string& host, int port) {
  const std::string shown = host == "0.0.0.0" || host == "::" ? "127.0.0.1" : host;
  return fmt::format("http://{}:{}", shown.find(':') == std::string::npos ? shown : "[" + shown + "]", port);
}

void print_banner(const ServeOptions& options, const Running& r, const std::string& address) {
  const std::string key = options.api.api_keys.empty() ? "" : " -H 'Authorization: Bearer YOUR_KEY'";
  fmt::print("\ntutti {} serves {} on {}\n", kVersion, r.service->options.served_model_names.front(), address);
  if (options.model_folder.empty()) {
    fmt::print(
        "\nThis is the canary: a toy of 11 million parameters with a handful of skills (capitals, sums, counting, "
        "copying,\n"
        "stories), there to show that everything works. A real model, from a Hugging Face or MLX folder:\n"
        "  tutti serve /path/to/Qwen3.5-0.8B\n");
  }
  fmt::print(
      "\nTry:\n  curl {}/v1/chat/completions{} -H 'Content-Type: application/json' \\\n"
      "    -d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"What is the capital of Norway?\"}}]}}'\n\n",
      address, key);
  std::fflush(stdout);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

void warn_if_open(const ServeOptions& options) {
  if (is_loopback(options.http.host) || !options.api.api_keys.empty()) return;
  log::warn("******************************************************************************");
  log::warn("Listening on {} WITHOUT an API key: everybody who reaches this address can use", options.http.host);
  log::warn("the model. Set --api-key or --api-key-file, or bind to 127.0.0.1.");
  log::warn("******************************************************************************");
}

log::Level level_of(const std::string& name) {
  if (name == "debug") return log::Level::debug;
  if (name == "warn") return log::Level::warn;
  return name == "error" ? log::Level::error : log::Level::info;
}

// SIGTERM and SIGINT. While the model loads, or the second time, they end the process at once; else wait() returns.
// A handler and a pipe, not a blocked mask: libraries start threads before main() that would not inherit the mask.
class StopSignal {
 public:
  StopSignal() {
    if (pipe2(pipe_, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    struct sigaction action{};
    action.sa_handler = [](int received) {
      const auto byte = static_cast<char>(received);
      [[maybe_unused]] const auto written = write(pipe_[1], &byte, 1);
    };
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
    std::thread([this] { take(); }).detach();
  }
  // From here on the first signal asks for a clean stop.
  int wait() {
    std::unique_lock lock(mutex_);
    serving_ = true;
    asked_.wait(lock, [this] { return received_ != 0; });
    return received_;
  }

 private:
  void take() {
    for (;;) {
      char received = 0;
      if (read(pipe_[0], &received, 1) != 1) continue;
      std::lock_guard lock(mutex_);
      if (!serving_ || received_ != 0) _exit(128 + received);
      received_ = received;
      asked_.notify_all();
    }
  }

  static inline int pipe_[2] = {-1, -1};
  std::mutex mutex_;
  std::condition_variable asked_;
  bool serving_ = false;  // guarded by mutex_
  int received_ = 0;      // guarded by mutex_
};

}  // namespace

int serve(const ServeOptions& options) {
  log::set_level(level_of(options.log_level));
  static StopSignal stop;  // static: its thread lives as long as the process
  std::signal(SIGPIPE, SIG_IGN);

  Running running;
  running.table = &kernels::select();
  running.pool = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_cpus());
  Switchboard switchboard;
  http::Server server(
      options.http, [&](std::shared_ptr<http::Exchange> e) { switchboard(std::move(e)); }, api::error_response);
  warn_if_open(options);
  server.start();
  const std::string address = local_address(options.http.host, server.port());
  log::info("listening on {}", address);

  running.checkpoint = open_checkpoint(options);
  log::info("loading {}", running.checkpoint->label());
  load_text(options, running);
  load_model(options, running);
  start_engine(options, running);
  running.tasks = std::make_unique<TaskPool>(std::clamp(available_cpus(), 1, 4));
  make_service(options, running);
  warm_up(options, running);
  switchboard.set(api::make_handler(running.service));
  log_model(running);
  print_banner(options, running, address);

  const int received = stop.wait();
  log::info("{}: finishing what runs, at most {} s", received == SIGINT ? "interrupted" : "asked to stop",
            options.drain_s);
  running.engine->drain(std::chrono::seconds(options.drain_s));
  server.stop_accepting();
  for (int i = 0; i < 20 && server.connections() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server.stop();
  running.service.reset();
  running.engine.reset();  // with a disk tier it has something to keep
  log::info("stopped");
  return 0;
}

}  // namespace tutti::app
