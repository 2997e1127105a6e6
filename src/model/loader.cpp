#include "model/loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ops/pack.h"

namespace tutti::model {
namespace {

using kernels::SourceType;
using weights::DType;

SourceType source_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return SourceType::float32;
    case DType::float16:
      return SourceType::float16;
    case DType::bfloat16:
      return SourceType::bfloat16;
    default:
      return SourceType::affine;
  }
}

ops::WeightSource source_of(const weights::StoredFormat& stored) {
  const auto& first = stored.matrices.front();
  ops::WeightSource source{
      .format = stored.format, .N = static_cast<int>(first.rows), .K = static_cast<int>(first.cols)};
  for (const auto& m : stored.matrices) {
    source.matrices.push_back({.type = source_type(m.dtype),
                               .values = m.values,
                               .scales = m.scales,
                               .biases = m.biases,
                               .scale_type = source_type(m.scale_dtype)});
  }
  return source;
}

std::string format_name(const quant::WeightFormat& format) {
  switch (format.format) {
    case quant::Format::float32:
      return "float32";
    case quant::Format::bfloat16:
      return "bfloat16";
    case quant::Format::affine:
      break;
  }
  return fmt::format("affine {}-bit, group {}", format.affine.bits, format.affine.group);
}

// Of what will be loaded.
int64_t file_bytes(const weights::Checkpoint& checkpoint, bool drafts) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint.tensors())
    if (drafts || !name.starts_with("mtp.")) bytes += static_cast<int64_t>(tensor.data.size());
  return bytes;
}

int64_t stored_bytes(const weights::StoredFormat& stored) {
  int64_t bytes = 0;
  for (const auto& m : stored.matrices) {
    if (stored.format.format != quant::Format::affine) {
      bytes += m.rows * m.cols * (m.dtype == DType::float32 ? 4 : 2);
      continue;
    }
    const auto& spec = stored.format.affine;
    bytes += m.rows * m.cols * spec.bits / 8 +
             2 * m.rows * (m.cols / spec.group) * (m.scale_dtype == DType::float32 ? 4 : 2);
  }
  return bytes;
}

}  // namespace

Loader::Loader(const weights::TensorTable& table, const LoadOptions& options)
    : table_(table), options_(options), total_(file_bytes(table.checkpoint(), options.drafts)) {}

ops::Weight Loader::weight(const std::string& module) {
  const auto& stored = table_.at(module);
  auto source = source_of(stored);
  source.stacked = stored.matrices.size() > 1 || module.find(".experts.") != std::string::npos;
  formats_[format_name(stored.format)] += int64_t{source.N} * source.K * static_cast<int64_t>(source.matrices.size());
  ops::Weight weight = options_.numerics.body == ops::Body::graph ? ops::Weight(ops::as_arrays(source))
                                                                  : ops::Weight(ops::pack(source, options_.pool));
  bytes_ += ops::weight_bytes(weight);
  advance(stored);
  return weight;
}

void Loader::advance(const weights::StoredFormat& stored) {
  done_ = std::min(total_, done_ + stored_bytes(stored));
  if (options_.progress) options_.progress(done_, total_);
}

ops::Vector Loader::vector(const std::string& module) {
  auto values = table_.vector(module);
  const int n = static_cast<int>(values.size());
  bytes_ += n * static_cast<int64_t>(sizeof(float));
  return ops::make_vector(std::move(values), {n});
}

ops::Vector Loader::norm(const std::string& module) {
  auto values = table_.vector(module);
  const int n = static_cast<int>(values.size());
  const weights::Checkpoint& checkpoint = table_.checkpoint();
  const auto convention =
      module.starts_with("mtp.") ? checkpoint.draft_norm_convention() : checkpoint.norm_convention();
  if (convention == weights::NormConvention::zero_centred) {
    for (float& v : values) v = 1.0f + v;
  }
  bytes_ += n * static_cast<int64_t>(sizeof(float));
  return ops::make_vector(std::move(values), {n});
}

ops::Vector Loader::conv_taps(const std::string& module, int channels) {
  const auto stored = table_.vector(module);
  std::vector<float> taps(stored.size());
  for (int c = 0; c < channels; ++c) {
    for (int j = 0; j < 4; ++j) taps[static_cast<size_t>(j) * channels + c] = stored[static_cast<size_t>(c) * 4 + j];
  }
  bytes_ += static_cast<int64_t>(taps.size() * sizeof(float));
  return ops::make_vector(std::move(taps), {4, channels});
}

std::string Loader::format() const {
  if (formats_.size() == 1) return formats_.begin()->first;
  std::vector<std::pair<int64_t, std::string>> by_size;
  for (const auto& [name, values] : formats_) by_size.emplace_back(-values, name);
  std::sort(by_size.begin(), by_size.end());
  std::string text = "mixed: ";
  for (size_t i = 0; i < by_size.size(); ++i) text += (i > 0 ? "; " : "") + by_size[i].second;
  return text;
}

}  // namespace tutti::model
