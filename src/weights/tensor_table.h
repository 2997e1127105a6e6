// What a model expects of a checkpoint, as a table; the check reports every difference at once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weights/checkpoint.h"

namespace tutti::weights {

enum class Kind {
  linear,   // [N, K], may be quantised (codes, .scales, .biases)
  experts,  // [E, N, K], may be quantised; see below
  vector,   // plain float values: norms, A_log, dt_bias, conv taps
};

// Experts modules are "layers.N.mlp.experts.gate_proj", ".up_proj" and ".down_proj". The file may hold one tensor [E,
// N, K] (also under switch_mlp), gate and up as the halves of one gate_up_proj [E, 2N, K], or one tensor per expert.
struct TensorSpec {
  std::string module;  // "layers.0.mlp.gate_proj" (no .weight)
  Kind kind = Kind::linear;
  std::vector<int64_t> shape;  // logical shape of the weight
  bool bare = false;           // stored without the ".weight" suffix (A_log, dt_bias)
  bool optional = false;       // missing or unusable: the table lacks it (refused() says why), and that is no error
};

// One matrix as the file holds it, row-major, for the packer. Points into the checkpoint; any alignment.
struct MatrixView {
  const std::byte* values = nullptr;  // [rows, cols] in dtype; affine: uint32 words [rows, cols * bits / 32]
  const std::byte* scales = nullptr;  // affine: [rows, cols / group] in scale_dtype
  const std::byte* biases = nullptr;  // affine: like scales
  DType dtype = DType::other;         // float32, float16, bfloat16; uint32 for affine
  DType scale_dtype = DType::other;   // float32, float16, bfloat16
  int64_t rows = 0, cols = 0;         // logical: output and input features
};

// How one module is stored. All matrices of a module have one format and one dtype.
struct StoredFormat {
  quant::WeightFormat format;
  std::vector<MatrixView> matrices;  // linear: 1; experts: E in order, however the file lays them out; vector: none
  const Tensor* weight = nullptr;    // linear, vector: its tensor; experts: the fused tensor or that of expert 0
};

// Finds every spec in the checkpoint. Throws LoadError with the label and a line per problem — "file: tensor: expected
// …, found …" — for missing tensors, wrong shapes, dtypes or quantised widths, unsupported formats, and tensors that
// nothing uses (unless ignore_unused; lm_head is never unused: tied models may carry a copy; nor is mtp). A checkpoint
// with a weight format that this build can't read is refused by the name of the format, before anything else.
class TensorTable {
 public:
  TensorTable(std::shared_ptr<const Checkpoint> checkpoint, const std::vector<TensorSpec>& specs,
              const QuantizationConfig& quantization, bool ignore_unused);
  const StoredFormat& at(const std::string& module) const;
  bool has(const std::string& module) const;
  // What is wrong with the optional modules that the checkpoint has and that can't be used.
  const std::vector<std::string>& refused() const { return refused_; }
  // A vector module's values as float32, in the order of the file. (NaN or infinite values, also among the scales and
  // biases of a linear, were a LoadError of the constructor.)
  std::vector<float> vector(const std::string& module) const;
  const Checkpoint& checkpoint() const { return *checkpoint_; }

 private:
  void check_norm_means() const;  // logs a warning

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::map<std::string, StoredFormat> modules_;
  std::vector<std::string> refused_;
};

}  // namespace tutti::weights
