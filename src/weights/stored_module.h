// One linear module, or one fused stack of them, as the file stores it: plain values, or affine codes, scales and
// biases.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weights/problems.h"
#include "weights/tensor_table.h"

namespace tutti::weights {

struct StoredModule {
  quant::WeightFormat format;
  const Tensor* weight = nullptr;
  const Tensor* scales = nullptr;  // null: plain
  const Tensor* biases = nullptr;

  // The matrix [rows, cols] whose rows begin at row `first` of the stack (its leading axes counted together).
  MatrixView view(int64_t first, int64_t rows, int64_t cols) const;
};

// Finds tensors, remembers which were asked for, and checks modules against shapes and config.json. Faults go to the
// list.
class ModuleReader {
 public:
  // All three must outlive this.
  ModuleReader(const Checkpoint& checkpoint, const QuantizationConfig& quantization, Problems& problems)
      : checkpoint_(checkpoint), quantization_(quantization), problems_(problems) {}

  const Tensor* find(const std::string& name);
  bool is_used(const std::string& name) const { return used_.contains(name); }
  void problem(const Tensor& tensor, const std::string& what);
  void check_finite(const Tensor& tensor);

  // `module` with the logical shape [..., N, K]. `names`: the module paths under which config.json may speak of it, the
  // first that has an entry counts. nullopt when there is no such tensor, or after a fault.
  std::optional<StoredModule> read(const std::string& module, const std::vector<int64_t>& shape,
                                   const std::vector<std::string>& names);

 private:
  struct Stated {
    bool entry = false;                     // an override of its own
    std::optional<quant::AffineSpec> spec;  // nullopt: plain, or nothing stated
  };
  Stated stated(const std::vector<std::string>& names) const;
  void check_plain(StoredModule& module, const std::vector<int64_t>& shape, const Stated& config);
  void check_affine(StoredModule& module, const std::vector<int64_t>& shape, const Stated& config);
  bool check_affine_dtypes(const StoredModule& module);
  std::optional<quant::AffineSpec> spec_of_shapes(const StoredModule& module, const std::vector<int64_t>& shape,
                                                  const Stated& config);

  const Checkpoint& checkpoint_;
  const QuantizationConfig& quantization_;
  Problems& problems_;
  std::set<std::string> used_;
};

}  // namespace tutti::weights
