// From the tensor table of a checkpoint to weights of one body: one matrix at a time, straight from the mapping, so
// that the peak of anonymous memory is the packed weights.
#pragma once

#include <map>
#include <string>

#include "model/model.h"
#include "weights/tensor_table.h"

namespace tutti::model {

class Loader {
 public:
  Loader(const weights::TensorTable& table, const LoadOptions& options);

  ops::Weight weight(const std::string& module);                   // linear or experts
  ops::Vector vector(const std::string& module);                   // [n]
  ops::Vector norm(const std::string& module);                     // gamma, whatever the file's convention
  ops::Vector conv_taps(const std::string& module, int channels);  // [4, C] from the file's [C, 4]

  int64_t bytes() const { return bytes_; }  // of the weights so far
  std::string format() const;               // ModelInfo::format

 private:
  void advance(const weights::StoredFormat& stored);

  const weights::TensorTable& table_;
  const LoadOptions& options_;
  int64_t bytes_ = 0;
  int64_t done_ = 0, total_ = 0;            // bytes of the file
  std::map<std::string, int64_t> formats_;  // name → values
};

}  // namespace tutti::model
