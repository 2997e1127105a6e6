// The reference outputs of the golden folders, read without the code under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::test {

struct Values {
  std::vector<int64_t> shape;
  std::vector<float> f;    // F32 tensors
  std::vector<int32_t> i;  // I32 tensors
};

inline std::map<std::string, Values> read_safetensors(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("can't read " + path);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::map<std::string, Values> out;
  const auto json = nlohmann::json::parse(bytes.substr(8, header));
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    Values v;
    v.shape = entry["shape"].get<std::vector<int64_t>>();
    const auto begin = entry["data_offsets"][0].get<size_t>(), end = entry["data_offsets"][1].get<size_t>();
    const char* data = bytes.data() + 8 + header + begin;
    if (entry["dtype"] == "F32") {
      v.f.resize((end - begin) / 4);
      std::memcpy(v.f.data(), data, end - begin);
    } else if (entry["dtype"] == "I32") {
      v.i.resize((end - begin) / 4);
      std::memcpy(v.i.data(), data, end - begin);
    }
    out.emplace(name, std::move(v));
  }
  return out;
}

}  // namespace tutti::test
