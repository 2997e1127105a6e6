// What a model expects of a checkpoint, as a table; the check reports every difference at once.
#pragma once

#include <string>
#include <vector>

#include "weights/checkpoint.h"

namespace tutti::weights {

enum class Kind {
  linear,   // [N, K], may be quantised (codes, .scales, .biases)
  experts,  // [E, N, K] fused or E tensors, may be quantised
  vector,   // plain float values: norms, A_log, dt_bias, conv taps
};

struct TensorSpec {
  std::string module;           // "layers.0.mlp.gate_proj" (no .weight)
  Kind kind = Kind::linear;
  std::vector<int64_t> shape;   // logical shape of the weight
  bool bare = false;            // stored without the ".weight" suffix (A_log, dt_bias)
  bool optional = false;
};

// How one linear or experts module is stored.
struct StoredFormat {
  quant::WeightFormat format;
  const Tensor* weight = nullptr;
  const Tensor* scales = nullptr;
  const Tensor* biases = nullptr;
  std::vector<const Tensor*> per_expert;   // one tensor each, when not fused (then weight is null)
};

// Finds every spec in the checkpoint. Throws LoadError with the label and a line per problem — "file: tensor: expected …,
// found …" — for missing tensors, wrong shapes, dtypes or quantised widths, unsupported formats, and tensors that nothing uses
// (unless ignore_unused).
class TensorTable {
 public:
  TensorTable(std::shared_ptr<const Checkpoint> checkpoint, const std::vector<TensorSpec>& specs,
              const QuantizationConfig& quantization, bool ignore_unused);
  const StoredFormat& at(const std::string& module) const;
  bool has(const std::string& module) const;
  // A vector module's values as float32. NaN or infinite values, and NaN scales of a linear, are a LoadError, too.
  std::vector<float> vector(const std::string& module) const;
  const Checkpoint& checkpoint() const { return *checkpoint_; }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::map<std::string, StoredFormat> modules_;
};

}  // namespace tutti::weights
