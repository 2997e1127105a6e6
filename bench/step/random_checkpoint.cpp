#include "step/random_checkpoint.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/bfloat16.h"
#include "model/qwen3_5.h"

namespace tutti::bench {
namespace {

constexpr int kBits = 4, kGroup = 64;

constexpr const char* kConfig = R"({
  "model_type": "qwen3_5", "tie_word_embeddings": true,
  "quantization": {"group_size": 64, "bits": 4},
  "text_config": {
    "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 1024, "intermediate_size": 3584,
    "num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 16, "max_position_embeddings": 262144, "mtp_num_hidden_layers": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
                        "mrope_section": [11, 11, 10], "mrope_interleaved": true}
  }})";

class Xorshift {
 public:
  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>(state_ >> 16);
  }
  float unit() { return static_cast<float>(next() % 65536) / 65536.0f; }

 private:
  uint64_t state_ = 88172645463325252ull;
};

struct Entry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  float low = 0, high = 0;  // bfloat16 values; codes are any
};

// scale * code + bias is centred and about 1 / sqrt(K) wide.
void add_linear(std::vector<Entry>& entries, const std::string& module, int64_t N, int64_t K) {
  const float step = 0.4f / std::sqrt(static_cast<float>(K));
  entries.push_back({module + ".weight", "U32", {N, K * kBits / 32}, N * K * kBits / 8});
  entries.push_back({module + ".scales", "BF16", {N, K / kGroup}, N * (K / kGroup) * 2, 0.9f * step, 1.1f * step});
  entries.push_back({module + ".biases", "BF16", {N, K / kGroup}, N * (K / kGroup) * 2, -8.25f * step, -6.75f * step});
}

void add_vector(std::vector<Entry>& entries, const weights::TensorSpec& spec, const std::string& module) {
  int64_t n = 1;
  for (const int64_t d : spec.shape) n *= d;
  auto shape = spec.shape;
  if (shape.size() == 3) std::swap(shape[1], shape[2]);  // the convolution as MLX stores it, [C, K, 1]
  const bool gamma = module.ends_with("norm");
  entries.push_back(
      {module + (spec.bare ? "" : ".weight"), "BF16", shape, n * 2, gamma ? 0.9f : -0.5f, gamma ? 1.1f : 0.5f});
}

std::vector<Entry> entries_of(const std::vector<weights::TensorSpec>& specs) {
  std::vector<Entry> entries;
  for (const auto& spec : specs) {
    const bool draft = spec.module.starts_with("mtp.");
    const std::string module = (draft ? "language_model." : "language_model.model.") + spec.module;
    if (spec.kind == weights::Kind::linear)
      add_linear(entries, module, spec.shape[0], spec.shape[1]);
    else
      add_vector(entries, spec, module);
  }
  return entries;
}

std::string header_of(const std::vector<Entry>& entries) {
  std::string json = "{";
  int64_t at = 0;
  for (const auto& e : entries) {
    json += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", at > 0 ? "," : "",
                        e.name, e.dtype, fmt::join(e.shape, ","), at, at + e.bytes);
    at += e.bytes;
  }
  return json + "}";
}

void fill(const Entry& e, std::byte* to, Xorshift& random) {
  if (e.dtype == "U32") {
    for (int64_t i = 0; i < e.bytes / 4; ++i) {
      const uint32_t word = random.next();
      std::memcpy(to + 4 * i, &word, sizeof word);
    }
    return;
  }
  for (int64_t i = 0; i < e.bytes / 2; ++i) {
    const bf16 value = float_to_bf16(e.low + (e.high - e.low) * random.unit());
    std::memcpy(to + 2 * i, &value, sizeof value);
  }
}

}  // namespace

std::unique_ptr<RandomCheckpoint> make_random_checkpoint() {
  auto made = std::make_unique<RandomCheckpoint>();
  made->config = kConfig;
  const auto config = model::parse_config(made->config, "random 0.8B");
  auto specs = model::qwen3_5_tensors(config);
  for (auto& spec : model::qwen3_5_draft_tensors(config)) specs.push_back(std::move(spec));
  const auto entries = entries_of(specs);
  const std::string header = header_of(entries);
  int64_t bytes = 8 + static_cast<int64_t>(header.size());
  for (const auto& e : entries) bytes += e.bytes;
  made->file = AlignedBuffer(static_cast<size_t>(bytes));
  auto* at = made->file.as<std::byte>();
  const uint64_t length = header.size();
  std::memcpy(at, &length, sizeof length);
  std::memcpy(at + 8, header.data(), header.size());
  at += 8 + header.size();
  Xorshift random;
  for (const auto& e : entries) {
    fill(e, at, random);
    at += e.bytes;
  }
  const auto bytes_of = [](const void* p, size_t n) { return std::span(static_cast<const std::byte*>(p), n); };
  made->checkpoint = weights::Checkpoint::from_memory(
      "random 0.8B", {{"config.json", bytes_of(made->config.data(), made->config.size())},
                      {"model.safetensors", bytes_of(made->file.data(), made->file.bytes())}});
  return made;
}

void write_random_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& tokenizer_folder) {
  namespace fs = std::filesystem;
  fs::create_directories(folder);
  const auto made = make_random_checkpoint();
  const auto write = [&](const char* name, const void* data, size_t bytes) {
    std::ofstream file(folder / name, std::ios::binary);
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    if (!file.flush())
      throw fs::filesystem_error("cannot write", folder / name, std::make_error_code(std::errc::io_error));
  };
  write("config.json", made->config.data(), made->config.size());
  write("model.safetensors", made->file.data(), made->file.bytes());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"})
    fs::copy_file(tokenizer_folder / name, folder / name, fs::copy_options::overwrite_existing);
}

}  // namespace tutti::bench
