// A checkpoint folder opened, checked and mapped: named tensors in canonical form, nothing copied yet.
// Formats and names: docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "quant/formats.h"

namespace tutti::weights {

enum class DType { float32, float16, bfloat16, uint32, uint8, int32, float8_e4m3, other };
std::string_view dtype_name(DType dtype);

struct Tensor {
  std::string name;         // canonical: "layers.3.self_attn.q_proj.weight", "embed_tokens.weight", "lm_head.weight", …
  std::string stored_name;  // as in the file
  std::string file;         // file name, for messages
  DType dtype = DType::other;
  std::string stored_dtype;  // as in the file: "BF16", "F64", …
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // mapped; lives as long as the checkpoint; any alignment

  int64_t size() const;  // elements
};

// Hugging Face stores norm weights zero-centred (gamma = 1 + w), MLX as gamma. Decided once, from the conv1d layout.
enum class NormConvention { zero_centred, gamma };

// MLX quantisation of one module, from config.quantization (default and overrides, canonical module paths).
struct QuantizationConfig {
  std::optional<quant::AffineSpec> by_default;
  std::map<std::string, std::optional<quant::AffineSpec>> overrides;  // nullopt: "false", a plain module
};

// Where the bytes come from: files of a folder, or memory (the embedded canary).
struct NamedBytes {
  std::string name;
  std::span<const std::byte> bytes;
};

class Checkpoint {
 public:
  // Opens every shard that the index names, or without an index every model*.safetensors of the folder. Throws
  // LoadError listing every problem of every file: truncated or lying headers, missing shards, duplicate names, unknown
  // dtypes, offsets outside the file.
  static std::shared_ptr<const Checkpoint> open(const std::filesystem::path& folder);
  static std::shared_ptr<const Checkpoint> from_memory(std::string label, std::vector<NamedBytes> files);
  virtual ~Checkpoint() = default;

  virtual const std::string& label() const = 0;        // for messages and logs
  virtual const std::string& config_json() const = 0;  // config.json
  // Of a multi-token-prediction head in a folder of its own, if it has one.
  virtual const std::optional<std::string>& draft_config_json() const = 0;
  virtual std::optional<std::string> text_file(
      const std::string& name) const = 0;                         // tokenizer.json, chat_template.jinja, …
  virtual const Tensor* find(const std::string& name) const = 0;  // text-body tensors only
  // Text-body tensors by canonical name, and those that no rule of names.h knows by their stored name.
  virtual const std::map<std::string, Tensor>& tensors() const = 0;
  virtual int vision_tensors() const = 0;  // recognised and skipped
  virtual int mtp_tensors() const = 0;
  virtual NormConvention norm_convention() const = 0;        // of the body
  virtual NormConvention draft_norm_convention() const = 0;  // of the multi-token-prediction head
};

}  // namespace tutti::weights
