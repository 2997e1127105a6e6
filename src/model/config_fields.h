// Reading the fields of one JSON object: each with its type and range; every fault goes to one list.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weights/problems.h"

namespace tutti::model {

struct IntRange {
  int64_t min = 0, max = 0;
};
struct RealRange {
  double min = 0, max = 0;  // both included
};

class Fields {
 public:
  // `where` prefixes the names in messages ("text_config."). All three must outlive this.
  Fields(const nlohmann::json& object, std::string where, weights::Problems& problems)
      : object_(object), where_(std::move(where)), problems_(problems) {}

  // The value; nullptr when the field is absent or null.
  const nlohmann::json* find(const char* name) const;
  bool has(const char* name) const { return find(name) != nullptr; }

  // nullopt when absent; after a fault the fault is recorded and the result is nullopt, too.
  std::optional<int64_t> integer(const char* name, IntRange range) const;
  std::optional<double> real(const char* name, RealRange range) const;
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> text(const char* name) const;

  void require(const char* name) const;  // records a fault when the field is absent
  void problem(const char* name, const std::string& what) const;
  // "expected …, found <value>"
  void wrong(const char* name, const std::string& expected) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
  weights::Problems& problems_;
};

// A value as it may be shown in a message.
std::string shown(const nlohmann::json& value);

}  // namespace tutti::model
