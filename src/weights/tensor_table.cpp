#include "weights/tensor_table.h"

#include <algorithm>

#include "base/log.h"
#include "weights/problems.h"
#include "weights/stored_module.h"
#include "weights/unsupported.h"
#include "weights/values.h"

namespace tutti::weights {
namespace {

using Shape = std::vector<int64_t>;

// Without the dimensions of 1: [C, 1, K], [C, K, 1] and [C, K] have the same bytes.
Shape squeezed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// "layers.0.mlp.experts.gate_proj" in two.
struct ExpertsPath {
  explicit ExpertsPath(const std::string& module)
      : parent(module.substr(0, module.rfind('.'))), projection(module.substr(module.rfind('.') + 1)) {}
  std::string parent, projection;
};

class TableBuilder {
 public:
  TableBuilder(const Checkpoint& checkpoint, const QuantizationConfig& quantization)
      : checkpoint_(checkpoint), reader_(checkpoint, quantization, problems_) {}

  std::map<std::string, StoredFormat> build(const std::vector<TensorSpec>& specs, bool ignore_unused) {
    std::map<std::string, StoredFormat> modules;
    for (const TensorSpec& spec : specs) {
      const size_t before = problems_.count();
      std::optional<StoredFormat> stored = find(spec);
      if (spec.optional && problems_.count() > before) {
        for (std::string& line : problems_.take_since(before)) refused_.push_back(std::move(line));
        stored.reset();
      }
      if (stored) modules.emplace(spec.module, std::move(*stored));
    }
    report_unused(ignore_unused);
    problems_.raise(checkpoint_.label());
    return modules;
  }

  std::vector<std::string> take_refused() { return std::move(refused_); }

 private:
  std::optional<StoredFormat> find(const TensorSpec& spec) {
    switch (spec.kind) {
      case Kind::linear:
        TUTTI_CHECK(spec.shape.size() == 2);
        return linear(spec);
      case Kind::experts:
        TUTTI_CHECK(spec.shape.size() == 3);
        return experts(spec);
      case Kind::vector:
        return vector(spec);
    }
    return std::nullopt;
  }

  void missing(const TensorSpec& spec, const std::string& name) {
    if (!spec.optional)
      problems_.add(fmt::format("{}: expected a tensor {}, found none", name, shape_text(spec.shape)));
  }

  bool has_weight(const std::string& module) const { return checkpoint_.find(module + ".weight") != nullptr; }

  std::optional<StoredFormat> linear(const TensorSpec& spec) {
    if (!has_weight(spec.module)) {
      missing(spec, spec.module + ".weight");
      return std::nullopt;
    }
    const std::optional<StoredModule> found = reader_.read(spec.module, spec.shape, {spec.module});
    if (!found) return std::nullopt;
    return StoredFormat{found->format, {found->view(0, spec.shape[0], spec.shape[1])}, found->weight};
  }

  std::optional<StoredFormat> experts(const TensorSpec& spec) {
    const int64_t count = spec.shape[0], rows = spec.shape[1], cols = spec.shape[2];
    if (has_weight(spec.module)) {
      const std::optional<StoredModule> found = reader_.read(spec.module, spec.shape, {spec.module});
      return found ? std::optional(stack(*found, count, {rows, 0, rows, cols})) : std::nullopt;
    }
    const ExpertsPath path(spec.module);
    const std::string fused = path.parent + ".gate_up_proj";
    if (path.projection == "down_proj" || !has_weight(fused)) return split_experts(spec, path);
    if (!fused_.contains(fused))
      fused_.emplace(fused, reader_.read(fused, {count, 2 * rows, cols}, {fused, spec.module}));
    const std::optional<StoredModule>& found = fused_.at(fused);
    const int64_t first = path.projection == "gate_proj" ? 0 : rows;  // gate first, then up
    return found ? std::optional(stack(*found, count, {2 * rows, first, rows, cols})) : std::nullopt;
  }

  struct Slice {
    int64_t stored_rows, first, rows, cols;  // rows [first, first + rows) of every expert's stored_rows
  };
  static StoredFormat stack(const StoredModule& found, int64_t count, Slice s) {
    StoredFormat stored{found.format, {}, found.weight};
    stored.matrices.reserve(static_cast<size_t>(count));
    for (int64_t e = 0; e < count; ++e)
      stored.matrices.push_back(found.view(e * s.stored_rows + s.first, s.rows, s.cols));
    return stored;
  }

  std::optional<StoredFormat> split_experts(const TensorSpec& spec, const ExpertsPath& path) {
    const int64_t count = spec.shape[0], rows = spec.shape[1], cols = spec.shape[2];
    const size_t before = problems_.count();
    StoredFormat stored;
    std::vector<int64_t> absent;
    for (int64_t e = 0; e < count; ++e) {
      const std::string module = fmt::format("{}.{}.{}", path.parent, e, path.projection);
      if (!has_weight(module)) {
        absent.push_back(e);
        continue;
      }
      const std::optional<StoredModule> found = reader_.read(module, {rows, cols}, {module, spec.module});
      if (!found) continue;
      const MatrixView view = found->view(0, rows, cols);
      if (stored.matrices.empty()) {
        stored.format = found->format;
        stored.weight = found->weight;
      } else if (!same_format(stored, *found, view)) {
        reader_.problem(*found->weight, "expected the format of the layer's other experts, found another");
      }
      stored.matrices.push_back(view);
    }
    if (static_cast<int64_t>(absent.size()) == count) {
      missing(spec, spec.module + ".weight");
      return std::nullopt;
    }
    if (!absent.empty())
      problems_.add(fmt::format("{}.E.{}.weight: expected {} experts, found none for E in {}", path.parent,
                                path.projection, count, shape_text(absent)));
    return problems_.count() == before ? std::optional(std::move(stored)) : std::nullopt;
  }

  static bool same_format(const StoredFormat& stored, const StoredModule& found, const MatrixView& view) {
    const MatrixView& first = stored.matrices.front();
    return found.format.format == stored.format.format && found.format.affine == stored.format.affine &&
           view.dtype == first.dtype && view.scale_dtype == first.scale_dtype;
  }

  std::optional<StoredFormat> vector(const TensorSpec& spec) {
    const std::string name = spec.bare ? spec.module : spec.module + ".weight";
    const Tensor* t = reader_.find(name);
    if (t == nullptr) {
      missing(spec, name);
      return std::nullopt;
    }
    const size_t before = problems_.count();
    const bool same = t->shape == spec.shape || (spec.shape.size() > 1 && squeezed(t->shape) == squeezed(spec.shape));
    if (!same) reader_.problem(*t, fmt::format("expected {}, found {}", shape_text(spec.shape), shape_text(t->shape)));
    if (!is_float(t->dtype)) {
      reader_.problem(*t, fmt::format("expected bfloat16, float16 or float32, found {}", t->stored_dtype));
    } else {
      reader_.check_finite(*t);
    }
    return problems_.count() == before ? std::optional(StoredFormat{{quant::Format::float32, {}}, {}, t})
                                       : std::nullopt;
  }

  // A tied model has no lm_head in its specs; files that carry a copy of the embedding are fine. A draft head that is
  // incomplete or not wanted is the model's to report.
  void report_unused(bool ignore) {
    int64_t unused = 0;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (reader_.is_used(name) || name.starts_with("lm_head.") || name.starts_with("mtp.")) continue;
      ++unused;
      if (!ignore) reader_.problem(tensor, "nothing uses this tensor");
    }
    if (ignore && unused > 0) log::warn("{}: {} tensors that nothing uses are ignored", checkpoint_.label(), unused);
  }

  const Checkpoint& checkpoint_;
  Problems problems_;
  std::vector<std::string> refused_;
  ModuleReader reader_;
  std::map<std::string, std::optional<StoredModule>> fused_;  // gate_up_proj, read once for both halves
};

}  // namespace

TensorTable::TensorTable(std::shared_ptr<const Checkpoint> checkpoint, const std::vector<TensorSpec>& specs,
                         const QuantizationConfig& quantization, bool ignore_unused)
    : checkpoint_(std::move(checkpoint)) {
  refuse_unsupported_formats(*checkpoint_);
  TableBuilder builder(*checkpoint_, quantization);
  modules_ = builder.build(specs, ignore_unused);
  refused_ = builder.take_refused();
  check_norm_means();
}

const StoredFormat& TensorTable::at(const std::string& module) const {
  const auto it = modules_.find(module);
  TUTTI_CHECK(it != modules_.end());
  return it->second;
}

bool TensorTable::has(const std::string& module) const {
  return modules_.contains(module);
}

std::vector<float> TensorTable::vector(const std::string& module) const {
  const StoredFormat& stored = at(module);
  TUTTI_CHECK(stored.matrices.empty());
  return to_float(*stored.weight);
}

// Norms of another convention than the conv layout tells would shift every gamma by 1: fluent nonsense.
void TensorTable::check_norm_means() const {
  const double shift = checkpoint_->norm_convention() == NormConvention::zero_centred ? 1 : 0;
  double sum = 0;
  int64_t count = 0;
  for (const auto& [module, stored] : modules_) {
    if (module.starts_with("mtp.") || !module.ends_with(".input_layernorm") || !stored.matrices.empty()) continue;
    for (const float w : to_float(*stored.weight)) sum += w + shift;
    count += stored.weight->size();
  }
  if (count == 0) return;
  const double mean = sum / static_cast<double>(count);
  if (mean < 0.3 || mean > 3)
    log::warn("{}: the norm weights average {:.3f}, expected about 1: were they shifted twice, or never?",
              checkpoint_->label(), mean);
}

}  // namespace tutti::weights
