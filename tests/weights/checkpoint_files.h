// Safetensors files and checkpoint folders made by tests.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "base/bfloat16.h"
#include "base/error.h"
#include "weights/checkpoint.h"

namespace tutti::weights::testing {

// What a LoadError says; "" when nothing was thrown.
inline std::string load_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const LoadError& e) {
    return e.what();
  }
  return "";
}

struct TestTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline int64_t elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline TestTensor bf16_tensor(std::string name, std::vector<int64_t> shape, float first = 0.5f, float step = 0) {
  std::vector<bf16> values(static_cast<size_t>(elements(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float_to_bf16(first + step * static_cast<float>(i));
  return {std::move(name), "BF16", std::move(shape), bytes_of(values)};
}

inline TestTensor f32_tensor(std::string name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return {std::move(name), "F32", std::move(shape), bytes_of(values)};
}

inline TestTensor u32_tensor(std::string name, std::vector<int64_t> shape, uint32_t first = 0) {
  std::vector<uint32_t> values(static_cast<size_t>(elements(shape)));
  std::iota(values.begin(), values.end(), first);
  return {std::move(name), "U32", std::move(shape), bytes_of(values)};
}

// A container with this header text, whatever it says, and `data` behind it.
inline std::string raw_safetensors(const std::string& header, const std::string& data) {
  uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

inline std::string safetensors(const std::vector<TestTensor>& tensors, const std::string& format = "pt") {
  std::string header = fmt::format(R"({{"__metadata__":{{"format":"{}"}})", format), data;
  for (const TestTensor& t : tensors) {
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", t.name, t.dtype,
                          fmt::join(t.shape, ","), data.size(), data.size() + t.bytes.size());
    data += t.bytes;
  }
  return raw_safetensors(header + "}", data);
}

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-weights-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  TempFolder& write(const std::string& name, const std::string& content) {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return *this;
  }

 private:
  std::filesystem::path path_;
};

// A checkpoint in memory: config.json "{}" and model.safetensors with these tensors. Owns the bytes.
class MemoryCheckpoint {
 public:
  explicit MemoryCheckpoint(const std::vector<TestTensor>& tensors, const std::string& format = "pt")
      : files_{{"config.json", "{}"}, {"model.safetensors", safetensors(tensors, format)}} {}
  static MemoryCheckpoint of_files(std::map<std::string, std::string> files) {
    MemoryCheckpoint checkpoint({});
    checkpoint.files_ = std::move(files);
    return checkpoint;
  }

  std::shared_ptr<const Checkpoint> open() const {
    std::vector<NamedBytes> named;
    for (const auto& [name, bytes] : files_) named.push_back({name, std::as_bytes(std::span(bytes))});
    return Checkpoint::from_memory("test", std::move(named));
  }
  std::string error() const {
    return load_error([this] { open(); });
  }

 private:
  std::map<std::string, std::string> files_;
};

}  // namespace tutti::weights::testing
