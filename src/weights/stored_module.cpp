#include "weights/stored_module.h"

#include <algorithm>

#include "weights/values.h"

namespace tutti::weights {
namespace {

using Shape = std::vector<int64_t>;

constexpr std::string_view kFloats = "bfloat16, float16 or float32";

std::string spec_text(quant::AffineSpec spec) {
  return fmt::format("affine {}-bit, group {}", spec.bits, spec.group);
}

bool same_but_last(const Shape& a, const Shape& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end() - 1, b.begin());
}

}  // namespace

MatrixView StoredModule::view(int64_t first, int64_t rows, int64_t cols) const {
  MatrixView m{.dtype = weight->dtype, .rows = rows, .cols = cols};
  if (scales == nullptr) {
    m.values = weight->data.data() + first * cols * float_bytes(m.dtype);
    return m;
  }
  const quant::AffineSpec spec = format.affine;
  m.scale_dtype = scales->dtype;
  m.values = weight->data.data() + first * quant::affine_words(cols, spec.bits) * 4;
  const int64_t offset = first * (cols / spec.group) * float_bytes(m.scale_dtype);
  m.scales = scales->data.data() + offset;
  m.biases = biases->data.data() + offset;
  return m;
}

const Tensor* ModuleReader::find(const std::string& name) {
  const Tensor* tensor = checkpoint_.find(name);
  if (tensor != nullptr) used_.insert(name);
  return tensor;
}

void ModuleReader::problem(const Tensor& t, const std::string& what) {
  problems_.add(fmt::format("{}: {}: {}", printable(t.file), printable(t.stored_name), what));
}

void ModuleReader::check_finite(const Tensor& t) {
  const int64_t at = first_non_finite(t);
  if (at < t.size()) problem(t, fmt::format("expected finite values, found NaN or infinity at element {}", at));
}

ModuleReader::Stated ModuleReader::stated(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    const auto it = quantization_.overrides.find(name);
    if (it != quantization_.overrides.end()) return {true, it->second};
  }
  return {false, quantization_.by_default};
}

std::optional<StoredModule> ModuleReader::read(const std::string& module, const Shape& shape,
                                               const std::vector<std::string>& names) {
  StoredModule found;
  found.weight = find(module + ".weight");
  if (found.weight == nullptr) return std::nullopt;
  const size_t before = problems_.count();
  found.scales = find(module + ".scales");
  if (found.scales == nullptr) {
    check_plain(found, shape, stated(names));
  } else {
    found.biases = find(module + ".biases");
    check_affine(found, shape, stated(names));
  }
  return problems_.count() == before ? std::optional(found) : std::nullopt;
}

void ModuleReader::check_plain(StoredModule& found, const Shape& shape, const Stated& config) {
  const Tensor& w = *found.weight;
  found.format.format = w.dtype == DType::bfloat16 ? quant::Format::bfloat16 : quant::Format::float32;
  if (config.entry && config.spec) {
    problem(w, fmt::format("expected {} (config.json), found no scales", spec_text(*config.spec)));
  } else if (!is_float(w.dtype)) {
    problem(w,
            fmt::format("expected {}, or scales beside it; found {} {}", kFloats, w.stored_dtype, shape_text(w.shape)));
  } else if (w.shape != shape) {
    problem(w, fmt::format("expected {}, found {}", shape_text(shape), shape_text(w.shape)));
  }
}

void ModuleReader::check_affine(StoredModule& found, const Shape& shape, const Stated& config) {
  if (!check_affine_dtypes(found)) return;
  const std::optional<quant::AffineSpec> spec = spec_of_shapes(found, shape, config);
  if (!spec) return;
  found.format = {quant::Format::affine, *spec};
  check_finite(*found.scales);
  check_finite(*found.biases);
}

bool ModuleReader::check_affine_dtypes(const StoredModule& found) {
  const Tensor& scales = *found.scales;
  const size_t before = problems_.count();
  if (found.weight->dtype != DType::uint32)
    problem(*found.weight, fmt::format("expected U32 codes beside its scales, found {}", found.weight->stored_dtype));
  if (!is_float(scales.dtype)) problem(scales, fmt::format("expected {}, found {}", kFloats, scales.stored_dtype));
  if (found.biases == nullptr) {
    problem(scales, "expected biases beside the scales, found none");
  } else if (found.biases->dtype != scales.dtype || found.biases->shape != scales.shape) {
    problem(*found.biases,
            fmt::format("expected {} {} as its scales are, found {} {}", scales.stored_dtype, shape_text(scales.shape),
                        found.biases->stored_dtype, shape_text(found.biases->shape)));
  }
  return problems_.count() == before;
}

// The widths decide; config.json must agree with them where it speaks.
std::optional<quant::AffineSpec> ModuleReader::spec_of_shapes(const StoredModule& found, const Shape& shape,
                                                              const Stated& config) {
  const Shape& codes = found.weight->shape;
  const Shape& scales = found.scales->shape;
  const auto refuse = [&](const std::string& expected, const std::string& what) {
    problem(*found.weight, fmt::format("expected {} for {}, found {}codes {} and scales {}", expected,
                                       shape_text(shape), what, shape_text(codes), shape_text(scales)));
    return std::nullopt;
  };
  std::string expected = config.spec ? spec_text(*config.spec) + " (config.json)" : "affine 2, 3, 4, 5, 6 or 8 bits";
  if (config.entry && !config.spec) expected = "a plain tensor (config.json)";
  if (!same_but_last(codes, shape) || !same_but_last(scales, shape)) return refuse(expected, "");
  const int64_t cols = shape.back(), words = codes.back(), groups = scales.back();
  if (words > cols || groups > cols || words * 32 % cols != 0 || cols % groups != 0) return refuse(expected, "");
  const quant::AffineSpec spec{static_cast<int>(words * 32 / cols), static_cast<int>(cols / groups)};
  const bool agrees = config.spec ? *config.spec == spec : !config.entry;
  if (!agrees || !quant::is_supported(spec)) return refuse(expected, spec_text(spec) + ": ");
  return spec;
}

}  // namespace tutti::weights
