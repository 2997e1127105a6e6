#include "model/config_fields.h"

#include <fmt/format.h>

namespace tutti::model {

using nlohmann::json;

std::string shown(const json& value) {
  return weights::printable(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

const json* Fields::find(const char* name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<int64_t> Fields::integer(const char* name, IntRange range) const {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (fits && value->get<int64_t>() >= range.min && value->get<int64_t>() <= range.max) return value->get<int64_t>();
  wrong(name, fmt::format("a whole number from {} to {}", range.min, range.max));
  return std::nullopt;
}

std::optional<double> Fields::real(const char* name, RealRange range) const {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && value->get<double>() >= range.min && value->get<double>() <= range.max)
    return value->get<double>();
  wrong(name, fmt::format("a number from {} to {}", range.min, range.max));
  return std::nullopt;
}

std::optional<bool> Fields::boolean(const char* name) const {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  wrong(name, "true or false");
  return std::nullopt;
}

std::optional<std::string> Fields::text(const char* name) const {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  wrong(name, "a string");
  return std::nullopt;
}

void Fields::require(const char* name) const {
  if (!has(name)) problem(name, "expected a value, found none");
}

void Fields::problem(const char* name, const std::string& what) const {
  problems_.add(fmt::format("config.json: {}{}: {}", where_, name, what));
}

void Fields::wrong(const char* name, const std::string& expected) const {
  const json* value = find(name);
  problem(name, fmt::format("expected {}, found {}", expected, value == nullptr ? "none" : shown(*value)));
}

}  // namespace tutti::model
