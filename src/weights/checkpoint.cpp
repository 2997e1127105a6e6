#include "weights/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "weights/file_source.h"
#include "weights/json.h"
#include "weights/names.h"
#include "weights/problems.h"
#include "weights/safetensors.h"
#include "weights/values.h"

namespace tutti::weights {
namespace {

constexpr std::string_view kIndex = "model.safetensors.index.json";
// A multi-token-prediction head beside the model, maybe with bare names; the first that is there.
constexpr std::string_view kDraftFiles[] = {"model-mtp.safetensors", kDraftFolderFiles[0], kDraftFolderFiles[1]};
constexpr std::string_view kDraftConfig = kDraftFolderFiles[2];
constexpr std::string_view kExtension = ".safetensors";

struct Contents {
  std::string label;
  std::unique_ptr<FileSource> source;
  std::string config_json;
  std::optional<std::string> draft_config_json;
  std::map<std::string, Tensor> tensors;
  int vision = 0, mtp = 0;
  NormConvention norms = NormConvention::zero_centred, draft_norms = NormConvention::zero_centred;
};

class FileCheckpoint final : public Checkpoint {
 public:
  explicit FileCheckpoint(Contents contents) : c_(std::move(contents)) {}

  const std::string& label() const override { return c_.label; }
  const std::string& config_json() const override { return c_.config_json; }
  const std::optional<std::string>& draft_config_json() const override { return c_.draft_config_json; }
  std::optional<std::string> text_file(const std::string& name) const override {
    TUTTI_CHECK(is_plain_name(name));
    try {
      return read_text(*c_.source, name);
    } catch (const LoadError& e) {
      throw LoadError(c_.label + ": " + e.what());
    }
  }
  const Tensor* find(const std::string& name) const override {
    const auto it = c_.tensors.find(name);
    return it == c_.tensors.end() ? nullptr : &it->second;
  }
  const std::map<std::string, Tensor>& tensors() const override { return c_.tensors; }
  int vision_tensors() const override { return c_.vision; }
  int mtp_tensors() const override { return c_.mtp; }
  NormConvention norm_convention() const override { return c_.norms; }
  NormConvention draft_norm_convention() const override { return c_.draft_norms; }

 private:
  Contents c_;
};

class Reader {
 public:
  explicit Reader(Contents contents) : c_(std::move(contents)) {}

  std::shared_ptr<const Checkpoint> read() {
    read_config();
    if (has_file(kIndex)) {
      read_index();
    } else {
      list_files();
    }
    choose_draft_file();
    for (const std::string& file : files_) read_file(file);
    check_index_was_met();
    decide_norm_convention();
    decide_draft_norm_convention();
    problems_.raise(c_.label);
    if (c_.vision > 0) log::debug("{}: {} vision tensors are skipped: this build serves text", c_.label, c_.vision);
    return std::make_shared<FileCheckpoint>(std::move(c_));
  }

 private:
  bool has_file(std::string_view name) const {
    const std::vector<std::string> names = c_.source->names();
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  void choose_draft_file() {
    for (const std::string_view file : kDraftFiles) {
      if (!has_file(file)) continue;
      draft_file_ = file;
      if (std::ranges::find(files_, draft_file_) == files_.end()) files_.push_back(draft_file_);
      if (draft_file_.starts_with("mtp/")) c_.draft_config_json = read_text(*c_.source, std::string(kDraftConfig));
      return;
    }
  }

  void read_config() {
    try {
      std::optional<std::string> text = read_text(*c_.source, "config.json");
      if (text) {
        c_.config_json = std::move(*text);
      } else {
        problems_.add("config.json: no such file");
      }
    } catch (const LoadError& e) {
      problems_.add(e.what());
    }
  }

  // Without an index: every model*.safetensors, as the MLX loaders do.
  void list_files() {
    bool gguf = false;
    for (const std::string& name : c_.source->names()) {
      if (name.starts_with("model") && name.ends_with(kExtension)) files_.push_back(name);
      gguf = gguf || name.ends_with(".gguf");
    }
    if (!files_.empty()) return;
    problems_.add(gguf ? "gguf files are not supported by this build, and there is no safetensors file"
                       : "no model.safetensors.index.json and no model*.safetensors");
  }

  void read_index() {
    const std::string file(kIndex);
    nlohmann::json index;
    try {
      index = parse_json(*read_text(*c_.source, file), file);
    } catch (const LoadError& e) {
      problems_.add(e.what());
      return;
    }
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
      problems_.add(file + ": expected an object with a \"weight_map\"");
      return;
    }
    std::map<std::string, int> shards;  // file → tensors
    for (const auto& [tensor, shard] : index["weight_map"].items()) {
      const std::string* name = shard.get_ptr<const std::string*>();
      if (name == nullptr || !is_plain_name(*name) || !name->ends_with(kExtension)) {
        problems_.add(fmt::format("{}: {}: expected the name of a safetensors file in this folder, found {}", file,
                                  printable(tensor), printable(shard.dump(-1, ' ', true))));
        continue;
      }
      weight_map_.emplace(tensor, *name);
      ++shards[*name];
    }
    if (index["weight_map"].empty()) problems_.add(file + ": the weight_map is empty");
    for (const auto& [shard, tensors] : shards) {
      if (has_file(shard)) {
        files_.push_back(shard);
      } else {
        problems_.add(fmt::format("{}: no such file, but {} names it for {} tensors", printable(shard), file, tensors));
        absent_.insert(shard);
      }
    }
  }

  void read_file(const std::string& file) {
    std::span<const std::byte> bytes;
    try {
      bytes = c_.source->open(file).value();
    } catch (const LoadError& e) {
      problems_.add(e.what());
      absent_.insert(file);
      return;
    }
    const size_t before = problems_.count();
    SafetensorsFile content = read_safetensors(bytes, printable(file), problems_);
    if (problems_.count() > before) absent_.insert(file);  // its own lines say what is wrong with it
    if (file == draft_file_)
      draft_format_ = content.format;
    else
      formats_.insert(content.format);
    for (SafetensorsEntry& entry : content.entries) add(file, std::move(entry));
  }

  void add(const std::string& file, SafetensorsEntry entry) {
    if (const auto mapped = weight_map_.find(entry.name); mapped != weight_map_.end()) {
      if (mapped->second != file) return;  // the index chose another copy
      met_.insert(entry.name);
    }
    CanonicalName name = canonical_name(entry.name);
    if (file == draft_file_ && name.part != Part::mtp) name = {Part::mtp, "mtp." + name.name};  // bare names
    if (name.part == Part::vision) ++c_.vision;
    if (name.part == Part::mtp) ++c_.mtp;
    if (name.part == Part::vision || name.part == Part::ignored) return;
    Tensor tensor{name.name, entry.name, file, entry.dtype, std::move(entry.stored_dtype), std::move(entry.shape),
                  entry.data};
    const auto [it, fresh] = c_.tensors.emplace(name.name, std::move(tensor));
    if (fresh) return;
    problems_.add(fmt::format("{}: {}: the same tensor as {} of {} (both are {})", printable(file),
                              printable(entry.name), printable(it->second.stored_name), printable(it->second.file),
                              printable(name.name)));
  }

  void check_index_was_met() {
    for (const auto& [tensor, file] : weight_map_) {
      if (absent_.contains(file) || met_.contains(tensor)) continue;
      problems_.add(fmt::format("{}: {}: the index names this file, but the tensor is not in it", printable(file),
                                printable(tensor)));
    }
  }

  // Conversion to MLX moves the conv taps to [C, K, 1] and shifts the norms in the same pass, so that the layout of the
  // taps tells what the norms are. Never per tensor, never by value.
  void decide_norm_convention() {
    const Tensor* zero_centred = nullptr;
    const Tensor* gamma = nullptr;
    for (const auto& [name, tensor] : c_.tensors) {
      if (!name.ends_with(".conv1d.weight") || name.starts_with("mtp.")) continue;
      const std::vector<int64_t>& s = tensor.shape;
      if (s.size() == 3 && s[1] == 1 && s[2] > 1) {
        zero_centred = &tensor;
      } else if (s.size() == 3 && s[2] == 1 && s[1] > 1) {
        gamma = &tensor;
      } else {
        problems_.add(
            fmt::format("{}: {}: expected [C, 1, K] or [C, K, 1], found {}; the layout tells how norms are stored",
                        printable(tensor.file), printable(tensor.stored_name), shape_text(s)));
      }
    }
    if (zero_centred != nullptr && gamma != nullptr) {
      problems_.add(
          fmt::format("{}: {} has the layout of Hugging Face, {}: {} that of MLX: norms can't be both 1 + w and w",
                      printable(zero_centred->file), printable(zero_centred->stored_name), printable(gamma->file),
                      printable(gamma->stored_name)));
    }
    if (zero_centred == nullptr && gamma == nullptr) {
      c_.norms = formats_.contains("mlx") ? NormConvention::gamma : NormConvention::zero_centred;
    } else {
      c_.norms = gamma != nullptr ? NormConvention::gamma : NormConvention::zero_centred;
    }
  }

  // A head may come from elsewhere than the body: in Hugging Face's layout its norms are as the body's; in a file that
  // says it was converted they are gammas; else only their values tell, and they are far apart: around 0, or around 1.
  void decide_draft_norm_convention() {
    c_.draft_norms = c_.norms;
    if (draft_file_.empty() && c_.norms == NormConvention::zero_centred) return;
    if (!draft_file_.empty() && draft_format_ == "mlx") {
      c_.draft_norms = NormConvention::gamma;
      return;
    }
    double sum = 0;
    int64_t count = 0;
    for (const auto& [name, tensor] : c_.tensors) {
      if (!name.starts_with("mtp.") || name.find("norm") == std::string::npos || !is_float(tensor.dtype)) continue;
      for (const float w : to_float(tensor)) sum += w;
      count += tensor.size();
    }
    if (count == 0) return;
    const double mean = sum / static_cast<double>(count);
    c_.draft_norms = mean < 0.5 ? NormConvention::zero_centred : NormConvention::gamma;
    log::info("{}: the norms of the multi-token-prediction head average {:.3f}: taken as {}", c_.label, mean,
              mean < 0.5 ? "w of 1 + w" : "gamma");
  }

  Contents c_;
  Problems problems_;
  std::vector<std::string> files_;
  std::string draft_file_, draft_format_;
  std::map<std::string, std::string> weight_map_;  // stored tensor name → file; empty without an index
  std::set<std::string> absent_;                   // files that can't be read or are faulty
  std::set<std::string> met_;                      // tensors of the index that were found
  std::set<std::string> formats_;                  // __metadata__.format of the files
};

}  // namespace

std::shared_ptr<const Checkpoint> Checkpoint::open(const std::filesystem::path& folder) {
  Contents contents;
  contents.label = printable(folder.string());
  contents.source = folder_source(folder);
  return Reader(std::move(contents)).read();
}

std::shared_ptr<const Checkpoint> Checkpoint::from_memory(std::string label, std::vector<NamedBytes> files) {
  Contents contents;
  contents.label = std::move(label);
  contents.source = memory_source(std::move(files));
  return Reader(std::move(contents)).read();
}

}  // namespace tutti::weights
