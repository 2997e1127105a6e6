#include "weights/tensor_table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/bfloat16.h"
#include "base/log.h"
#include "weights/half.h"
#include "weights/problems.h"
#include "weights/unsupported.h"

namespace tutti::weights {
namespace {

using Shape = std::vector<int64_t>;

bool is_float(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float16 || dtype == DType::bfloat16;
}
int64_t float_bytes(DType dtype) {
  return dtype == DType::float32 ? 4 : 2;
}

std::string shape_text(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}
std::string spec_text(quant::AffineSpec spec) {
  return fmt::format("affine {}-bit, group {}", spec.bits, spec.group);
}

// Without the dimensions of 1: [C, 1, K], [C, K, 1] and [C, K] have the same bytes.
Shape squeezed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// Index of the first NaN or infinity among n values whose exponent bits are `mask`; n when there is none.
template <class Bits>
int64_t first_non_finite(const std::byte* data, int64_t n, Bits mask) {
  constexpr int64_t kChunk = 4096;
  std::array<Bits, kChunk> chunk;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(kChunk, n - begin);
    std::memcpy(chunk.data(), data + begin * static_cast<int64_t>(sizeof(Bits)),
                static_cast<size_t>(count) * sizeof(Bits));
    unsigned bad = 0;
    for (int64_t i = 0; i < count; ++i) bad |= (chunk[static_cast<size_t>(i)] & mask) == mask ? 1u : 0u;
    if (bad == 0) continue;
    for (int64_t i = 0; i < count; ++i) {
      if ((chunk[static_cast<size_t>(i)] & mask) == mask) return begin + i;
    }
  }
  return n;
}

int64_t first_non_finite(const Tensor& t) {
  switch (t.dtype) {
    case DType::float32:
      return first_non_finite<uint32_t>(t.data.data(), t.size(), 0x7f800000u);
    case DType::float16:
      return first_non_finite<uint16_t>(t.data.data(), t.size(), 0x7c00u);
    case DType::bfloat16:
      return first_non_finite<uint16_t>(t.data.data(), t.size(), 0x7f80u);
    default:
      return t.size();
  }
}

std::vector<float> to_float(const Tensor& t) {
  const auto n = static_cast<size_t>(t.size());
  std::vector<float> out(n);
  if (t.dtype == DType::float32) {
    std::memcpy(out.data(), t.data.data(), n * sizeof(float));
    return out;
  }
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, t.data.data() + 2 * i, sizeof bits);
    out[i] = t.dtype == DType::bfloat16 ? bf16_to_float(bits) : half_to_float(bits);
  }
  return out;
}

// The tensors of one linear module (or of one fused stack of them).
struct Found {
  quant::WeightFormat format;
  const Tensor* weight = nullptr;
  const Tensor* scales = nullptr;  // null: plain
  const Tensor* biases = nullptr;
};

class TableBuilder {
 public:
  TableBuilder(const Checkpoint& checkpoint, const QuantizationConfig& quantization)
      : checkpoint_(checkpoint), quantization_(quantization) {}

  std::map<std::string, StoredFormat> build(const std::vector<TensorSpec>& specs, bool ignore_unused) {
    for (const TensorSpec& spec : specs) {
      std::optional<StoredFormat> stored;
      switch (spec.kind) {
        case Kind::linear:
          stored = linear(spec);
          break;
        case Kind::experts:
          stored = experts(spec);
          break;
        case Kind::vector:
          stored = vector(spec);
          break;
      }
      if (stored) modules_.emplace(spec.module, std::move(*stored));
    }
    report_unused(ignore_unused);
    problems_.raise(checkpoint_.label());
    return std::move(modules_);
  }

 private:
  void problem(const Tensor& t, const std::string& what) {
    problems_.add(fmt::format("{}: {}: {}", printable(t.file), printable(t.stored_name), what));
  }
  void missing(const TensorSpec& spec, const std::string& name, const Shape& shape) {
    if (!spec.optional) problems_.add(fmt::format("{}: expected a tensor {}, found none", name, shape_text(shape)));
  }

  const Tensor* find(const std::string& name) {
    const Tensor* tensor = checkpoint_.find(name);
    if (tensor != nullptr) used_.insert(name);
    return tensor;
  }

  void check_finite(const Tensor& t) {
    const int64_t at = first_non_finite(t);
    if (at < t.size()) problem(t, fmt::format("expected finite values, found NaN or infinity at element {}", at));
  }

  // What config.json states of a module; the first of the names that has an entry counts.
  struct Stated {
    bool entry = false;                     // an override of its own
    std::optional<quant::AffineSpec> spec;  // nullopt: plain, or nothing stated
  };
  Stated stated(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      if (const auto it = quantization_.overrides.find(name); it != quantization_.overrides.end())
        return {true, it->second};
    }
    return {false, quantization_.by_default};
  }

  // Reads `module` with the logical shape [..., N, K]; names: module paths under which config.json may speak of it.
  std::optional<Found> read(const std::string& module, const Shape& shape, std::vector<std::string> names) {
    Found found;
    found.weight = find(module + ".weight");
    if (found.weight == nullptr) return std::nullopt;
    found.scales = find(module + ".scales");
    const Stated config = stated(names);
    const bool good =
        found.scales == nullptr ? check_plain(found, shape, config) : check_affine(found, module, shape, config);
    return good ? std::optional(found) : std::nullopt;
  }

  bool check_plain(Found& found, const Shape& shape, const Stated& config) {
    const Tensor& w = *found.weight;
    const size_t before = problems_.count();
    if (config.entry && config.spec) {
      problem(w,
              fmt::format("expected {} (config.json), found a plain tensor without scales", spec_text(*config.spec)));
    }
    if (!is_float(w.dtype)) {
      problem(w, fmt::format("expected bfloat16, float16 or float32, found {} {} without scales", w.stored_dtype,
                             shape_text(w.shape)));
    } else if (w.shape != shape) {
      problem(w, fmt::format("expected {}, found {}", shape_text(shape), shape_text(w.shape)));
    }
    found.format.format = w.dtype == DType::bfloat16 ? quant::Format::bfloat16 : quant::Format::float32;
    return problems_.count() == before;
  }

  bool check_affine(Found& found, const std::string& module, const Shape& shape, const Stated& config) {
    const Tensor& w = *found.weight;
    const Tensor& scales = *found.scales;
    found.biases = find(module + ".biases");
    const size_t before = problems_.count();
    if (!is_float(scales.dtype)) {
      problem(scales, fmt::format("expected bfloat16, float16 or float32, found {}", scales.stored_dtype));
    }
    if (found.biases == nullptr) {
      problem(scales, "expected biases beside the scales (affine), found none");
    } else if (found.biases->dtype != scales.dtype || found.biases->shape != scales.shape) {
      problem(*found.biases,
              fmt::format("expected {} {} like its scales, found {} {}", scales.stored_dtype, shape_text(scales.shape),
                          found.biases->stored_dtype, shape_text(found.biases->shape)));
    }
    if (w.dtype != DType::uint32) {
      problem(w, fmt::format("expected U32 codes beside the scales, found {}", w.stored_dtype));
    }
    if (problems_.count() > before) return false;
    const std::optional<quant::AffineSpec> spec = spec_of_shapes(w, scales, shape, config);
    if (!spec) return false;
    found.format = {quant::Format::affine, *spec};
    check_finite(scales);
    check_finite(*found.biases);
    return problems_.count() == before;
  }

  // The widths decide; config.json must agree with them where it speaks.
  std::optional<quant::AffineSpec> spec_of_shapes(const Tensor& w, const Tensor& scales, const Shape& shape,
                                                  const Stated& config) {
    const int64_t cols = shape.back();
    const auto leading = [](const Shape& s) { return Shape(s.begin(), s.end() - (s.empty() ? 0 : 1)); };
    const auto refuse = [&](const std::string& expected) {
      problem(w, fmt::format("expected {} for {}, found codes {} with scales {}", expected, shape_text(shape),
                             shape_text(w.shape), shape_text(scales.shape)));
      return std::nullopt;
    };
    if (w.shape.size() != shape.size() || leading(w.shape) != leading(shape) ||
        leading(scales.shape) != leading(shape) || scales.shape.size() != shape.size())
      return refuse("affine codes and scales");
    const int64_t words = w.shape.back(), groups = scales.shape.back();
    if (words > cols || groups > cols || words * 32 % cols != 0 || cols % groups != 0)
      return refuse(config.spec ? spec_text(*config.spec) : "affine codes and scales");
    const quant::AffineSpec spec{static_cast<int>(words * 32 / cols), static_cast<int>(cols / groups)};
    if (config.entry && !config.spec) return refuse("a plain tensor (config.json says false)");
    if (config.spec && *config.spec != spec) {
      problem(w, fmt::format("expected {} (config.json), found {} (codes {}, scales {})", spec_text(*config.spec),
                             spec_text(spec), shape_text(w.shape), shape_text(scales.shape)));
      return std::nullopt;
    }
    if (!quant::is_supported(spec))
      return refuse(fmt::format("2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128 and not {}", spec_text(spec)));
    return spec;
  }

  // One matrix [rows, cols] whose rows begin at row `first` of the stored stack.
  static MatrixView view(const Found& found, int64_t first, int64_t rows, int64_t cols) {
    MatrixView m{.dtype = found.weight->dtype, .rows = rows, .cols = cols};
    if (found.scales == nullptr) {
      m.values = found.weight->data.data() + first * cols * float_bytes(m.dtype);
      return m;
    }
    const quant::AffineSpec spec = found.format.affine;
    m.scale_dtype = found.scales->dtype;
    m.values = found.weight->data.data() + first * quant::affine_words(cols, spec.bits) * 4;
    const int64_t offset = first * (cols / spec.group) * float_bytes(m.scale_dtype);
    m.scales = found.scales->data.data() + offset;
    m.biases = found.biases->data.data() + offset;
    return m;
  }

  std::optional<StoredFormat> linear(const TensorSpec& spec) {
    const size_t before = problems_.count();
    const std::optional<Found> found = read(spec.module, spec.shape, {spec.module});
    if (!found) {
      if (problems_.count() == before) missing(spec, spec.module + ".weight", spec.shape);
      return std::nullopt;
    }
    return StoredFormat{found->format, {view(*found, 0, spec.shape[0], spec.shape[1])}, found->weight};
  }

  std::optional<StoredFormat> experts(const TensorSpec& spec) {
    const int64_t count = spec.shape[0], rows = spec.shape[1], cols = spec.shape[2];
    const size_t dot = spec.module.rfind('.');
    const std::string parent = spec.module.substr(0, dot), projection = spec.module.substr(dot + 1);
    if (checkpoint_.find(spec.module + ".weight") != nullptr) {
      const std::optional<Found> found = read(spec.module, spec.shape, {spec.module});
      return found ? std::optional(stack(*found, count, {rows, 0, rows, cols})) : std::nullopt;
    }
    const std::string fused = parent + ".gate_up_proj";
    if (projection != "down_proj" && checkpoint_.find(fused + ".weight") != nullptr) {
      if (!fused_.contains(fused)) fused_.emplace(fused, read(fused, {count, 2 * rows, cols}, {fused, spec.module}));
      const std::optional<Found>& found = fused_.at(fused);
      const int64_t first = projection == "gate_proj" ? 0 : rows;  // gate first, then up
      return found ? std::optional(stack(*found, count, {2 * rows, first, rows, cols})) : std::nullopt;
    }
    return split_experts(spec, parent, projection);
  }

  struct Slice {
    int64_t stored_rows, first, rows, cols;  // rows [first, first + rows) of every expert's stored_rows
  };
  static StoredFormat stack(const Found& found, int64_t count, Slice s) {
    StoredFormat stored{found.format, {}, found.weight};
    stored.matrices.reserve(static_cast<size_t>(count));
    for (int64_t e = 0; e < count; ++e)
      stored.matrices.push_back(view(found, e * s.stored_rows + s.first, s.rows, s.cols));
    return stored;
  }

  std::optional<StoredFormat> split_experts(const TensorSpec& spec, const std::string& parent,
                                            const std::string& projection) {
    const int64_t count = spec.shape[0], rows = spec.shape[1], cols = spec.shape[2];
    const size_t before = problems_.count();
    StoredFormat stored;
    std::vector<int64_t> absent;
    for (int64_t e = 0; e < count; ++e) {
      const std::string module = fmt::format("{}.{}.{}", parent, e, projection);
      if (checkpoint_.find(module + ".weight") == nullptr) {
        absent.push_back(e);
        continue;
      }
      const std::optional<Found> found = read(module, {rows, cols}, {module, spec.module});
      if (!found) continue;
      if (stored.matrices.empty()) {
        stored.format = found->format;
        stored.weight = found->weight;
      } else {
        check_same(stored, *found);
      }
      stored.matrices.push_back(view(*found, 0, rows, cols));
    }
    if (static_cast<int64_t>(absent.size()) == count) {
      missing(spec, spec.module + ".weight", spec.shape);
    } else if (!absent.empty()) {
      problems_.add(fmt::format("{}.E.{}.weight: expected {} experts, found none for E = {}", parent, projection, count,
                                fmt::join(absent, ", ")));
    }
    const bool whole = problems_.count() == before && static_cast<int64_t>(stored.matrices.size()) == count;
    return whole ? std::optional(std::move(stored)) : std::nullopt;
  }

  void check_same(const StoredFormat& stored, const Found& found) {
    const MatrixView& first = stored.matrices.front();
    const bool same = found.format.format == stored.format.format && found.weight->dtype == first.dtype &&
                      (found.scales == nullptr ||
                       (found.format.affine == stored.format.affine && found.scales->dtype == first.scale_dtype));
    if (!same) problem(*found.weight, "expected the format of the layer's other experts, found another");
  }

  std::optional<StoredFormat> vector(const TensorSpec& spec) {
    const std::string name = spec.bare ? spec.module : spec.module + ".weight";
    const Tensor* t = find(name);
    if (t == nullptr) {
      missing(spec, name, spec.shape);
      return std::nullopt;
    }
    const bool same = t->shape == spec.shape || (spec.shape.size() > 1 && squeezed(t->shape) == squeezed(spec.shape));
    if (!same) problem(*t, fmt::format("expected {}, found {}", shape_text(spec.shape), shape_text(t->shape)));
    if (!is_float(t->dtype))
      problem(*t, fmt::format("expected bfloat16, float16 or float32, found {}", t->stored_dtype));
    if (!same || !is_float(t->dtype)) return std::nullopt;
    check_finite(*t);
    return StoredFormat{{quant::Format::float32, {}}, {}, t};
  }

  // A tied model has no lm_head in its specs; files that carry a copy of the embedding are fine.
  void report_unused(bool ignore) {
    int64_t unused = 0;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (used_.contains(name) || name.starts_with("lm_head.")) continue;
      ++unused;
      if (!ignore) problem(tensor, "nothing uses this tensor");
    }
    if (ignore && unused > 0) log::warn("{}: {} tensors that nothing uses are ignored", checkpoint_.label(), unused);
  }

  const Checkpoint& checkpoint_;
  const QuantizationConfig& quantization_;
  Problems problems_;
  std::map<std::string, StoredFormat> modules_;
  std::map<std::string, std::optional<Found>> fused_;  // gate_up_proj, read once for both halves
  std::set<std::string> used_;
};

}  // namespace

TensorTable::TensorTable(std::shared_ptr<const Checkpoint> checkpoint, const std::vector<TensorSpec>& specs,
                         const QuantizationConfig& quantization, bool ignore_unused)
    : checkpoint_(std::move(checkpoint)) {
  refuse_unsupported_formats(*checkpoint_);
  modules_ = TableBuilder(*checkpoint_, quantization).build(specs, ignore_unused);
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
  constexpr std::string_view kNorm = ".input_layernorm";
  const double shift = checkpoint_->norm_convention() == NormConvention::zero_centred ? 1 : 0;
  double sum = 0;
  int64_t count = 0;
  for (const auto& [module, stored] : modules_) {
    if (!module.ends_with(kNorm)) continue;
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
