#include "weights/unsupported.h"

#include <array>

#include "weights/problems.h"

namespace tutti::weights {
namespace {

struct Mark {
  std::string_view suffix;
  std::string_view format;
};
// Tensors that only one family of formats has.
constexpr std::array<Mark, 14> kMarks = {{
    {".weight_scale_inv", "fp8"},
    {".qweight", "awq or gptq"},
    {".qzeros", "awq or gptq"},
    {".g_idx", "awq or gptq"},
    {".weight_packed", "compressed-tensors"},
    {".weight_shape", "compressed-tensors"},
    {".weight_zero_point", "compressed-tensors"},
    {".weight_global_scale", "compressed-tensors"},
    {".weight_scale", "compressed-tensors or modelopt"},
    {".weight_scale_2", "modelopt"},
    {".input_scale", "compressed-tensors or modelopt"},
    {".weight.absmax", "bitsandbytes"},
    {".weight.quant_map", "bitsandbytes"},
    {".SCB", "bitsandbytes"},
}};

// MLX modes with 8-bit scales, told apart by the uint32 words per scale: group * bits / 32.
std::string_view fp_mode(const Tensor* weight, const Tensor& scales) {
  if (weight == nullptr || weight->dtype != DType::uint32 || weight->shape.empty() || scales.shape.empty())
    return "mxfp4, mxfp8 or nvfp4";
  const int64_t words = weight->shape.back(), groups = scales.shape.back();
  if (words == 4 * groups) return "mxfp4";
  if (words == 8 * groups) return "mxfp8";
  if (words == 2 * groups) return "nvfp4";
  return "mxfp4, mxfp8 or nvfp4";
}

}  // namespace

void refuse_unsupported_formats(const Checkpoint& checkpoint) {
  constexpr std::string_view kScales = ".scales";
  std::map<std::string, std::vector<std::string>, std::less<>> found;  // format → "file: module"
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.starts_with("mtp.")) continue;  // the model does without a head that can't be read
    const auto note = [&](std::string_view format, std::string_view suffix) {
      std::vector<std::string>& modules = found[std::string(format)];
      modules.push_back(tensor.file + ": " + name.substr(0, name.size() - suffix.size()));
    };
    for (const Mark& mark : kMarks) {
      if (name.ends_with(mark.suffix)) note(mark.format, mark.suffix);
    }
    if (name.ends_with(kScales) && tensor.dtype == DType::uint8) {
      const std::string module = name.substr(0, name.size() - kScales.size());
      note(fp_mode(checkpoint.find(module + ".weight"), tensor), kScales);
    }
  }
  Problems problems;
  for (auto& [format, modules] : found) {
    constexpr size_t kShown = 20;
    const size_t all = modules.size();
    if (all > kShown) modules.resize(kShown);
    problems.add(fmt::format("the weight format {} is not supported by this build: {}{}", format,
                             printable_list(modules), all > kShown ? fmt::format(" and {} more", all - kShown) : ""));
  }
  problems.raise(checkpoint.label());
}

}  // namespace tutti::weights
