// The typed reader of request bodies. Every field of a request is a row of a table: its name, what is done with it, and
// a reader that checks type and range. Fields are read in document order; the first fault ends the reading.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/errors.h"
#include "api/json.h"
#include "base/ids.h"

namespace tutti::api {

// What ranges depend on.
struct Limits {
  int vocab = 0;
  int max_n = 16;
  int max_logprobs = 20;
  bool report_unknown = false;  // unknown fields are collected instead of refused
};

struct ReadContext {
  const Limits* limits = nullptr;
  std::vector<std::string>* ignored = nullptr;  // names of unknown fields, when they are only reported
  std::string path;                             // of the value being read

  ReadContext member(std::string_view name) const {
    return {limits, ignored, path.empty() ? std::string(name) : fmt::format("{}.{}", path, name)};
  }
  ReadContext item(size_t index) const { return {limits, ignored, fmt::format("{}[{}]", path, index)}; }
  ApiError bad_type(std::string_view wanted, const Json& found) const {
    return invalid_type(path, fmt::format("'{}' must be {}, not {}.", path, wanted, type_name(found)));
  }
  ApiError bad_value(std::string_view rule) const { return invalid_value(path, fmt::format("'{}' {}.", path, rule)); }
};

enum class Use {
  honoured,
  ignored,  // carries no meaning for this server; only its type is checked
  refused,  // 400, unless the value is the neutral one
};

template <class T>
struct Field {
  std::string_view name;
  Use use = Use::honoured;
  std::function<MaybeError(const Json&, const ReadContext&, T&)> read;
};

template <class T>
class FieldTable {
 public:
  FieldTable() = default;
  explicit FieldTable(std::vector<Field<T>> rows) { add(std::move(rows)); }

  // Rows of a base's table hold for the derived request too.
  template <class Base>
  FieldTable& add(std::vector<Field<Base>> rows) {
    for (auto& row : rows) {
      index_.emplace(row.name, rows_.size());
      rows_.push_back({row.name, row.use, std::move(row.read)});
    }
    return *this;
  }

  MaybeError read(const Json& object, const ReadContext& context, T& target) const {
    if (!object.is_object()) {
      return context.path.empty() ? invalid_type("", "The body must be a JSON object.")
                                  : context.bad_type("an object", object);
    }
    for (const auto& [name, value] : object.items()) {
      const auto row = index_.find(name);
      if (row == index_.end()) {
        if (!context.limits->report_unknown) return unknown_parameter(context.member(name).path);
        context.ignored->push_back(context.member(name).path);
        continue;
      }
      if (value.is_null()) continue;
      if (auto error = rows_[row->second].read(value, context.member(name), target)) return error;
    }
    return std::nullopt;
  }

  const std::vector<Field<T>>& rows() const { return rows_; }

 private:
  std::vector<Field<T>> rows_;
  std::unordered_map<std::string_view, size_t> index_;
};

struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};

struct NumberRange {
  double min = 0;
  double max = 1;
  bool open = false;  // min itself is out
};

// Readers of one value. out is set only without an error.
MaybeError read_int(const Json& value, const ReadContext& context, IntRange range, int64_t& out);
MaybeError read_number(const Json& value, const ReadContext& context, NumberRange range, double& out);
MaybeError read_bool(const Json& value, const ReadContext& context, bool& out);
MaybeError read_string(const Json& value, const ReadContext& context, std::string& out);
MaybeError read_token_id(const Json& value, const ReadContext& context, TokenId& out);  // an id below the vocabulary
MaybeError read_token_ids(const Json& value, const ReadContext& context, std::vector<TokenId>& out);
// One string of `choices`.
MaybeError read_choice(const Json& value, const ReadContext& context, const std::vector<std::string_view>& choices,
                       std::string& out);

// Rows for members.
template <class T, class M>
Field<T> integer(std::string_view name, M T::* member, IntRange range = {}) {
  return {name, Use::honoured, [member, range](const Json& value, const ReadContext& context, T& target) -> MaybeError {
            int64_t read = 0;
            if (auto error = read_int(value, context, range, read)) return error;
            target.*member = read;
            return std::nullopt;
          }};
}

template <class T, class M>
Field<T> number(std::string_view name, M T::* member, NumberRange range) {
  return {name, Use::honoured, [member, range](const Json& value, const ReadContext& context, T& target) -> MaybeError {
            double read = 0;
            if (auto error = read_number(value, context, range, read)) return error;
            target.*member = read;
            return std::nullopt;
          }};
}

template <class T, class M>
Field<T> boolean(std::string_view name, M T::* member) {
  return {name, Use::honoured, [member](const Json& value, const ReadContext& context, T& target) -> MaybeError {
            bool read = false;
            if (auto error = read_bool(value, context, read)) return error;
            target.*member = read;
            return std::nullopt;
          }};
}

template <class T>
Field<T> text(std::string_view name, std::string T::* member) {
  return {name, Use::honoured, [member](const Json& value, const ReadContext& context, T& target) {
            return read_string(value, context, target.*member);
          }};
}

template <class T>
Field<T> token_ids(std::string_view name, std::vector<TokenId> T::* member) {
  return {name, Use::honoured, [member](const Json& value, const ReadContext& context, T& target) {
            return read_token_ids(value, context, target.*member);
          }};
}

enum class Kind { any, boolean, integer, number, string, list, object };
MaybeError check_kind(const Json& value, const ReadContext& context, Kind kind);

template <class T>
Field<T> ignored(std::string_view name, Kind kind = Kind::any) {
  return {name, Use::ignored,
          [kind](const Json& value, const ReadContext& context, T&) { return check_kind(value, context, kind); }};
}

// A value that asks for nothing: false, an empty list, object or string, and the number `off`.
bool is_neutral(const Json& value, std::optional<double> off);

struct Refusal {
  std::string_view why;       // completes "'x' is not offered"
  std::optional<double> off;  // the number that switches the feature off
};

template <class T>
Field<T> refused(std::string_view name, Refusal refusal = {}) {
  return {name, Use::refused, [refusal](const Json& value, const ReadContext& context, T&) -> MaybeError {
            if (is_neutral(value, refusal.off)) return std::nullopt;
            return unsupported_parameter(context.path,
                                         fmt::format("'{}' is not offered{}.", context.path, refusal.why));
          }};
}

// A string of which some values mean what is done anyway and the others ask for what is not offered.
struct NeutralChoice {
  std::vector<std::string_view> neutral, refused;
};
MaybeError check_choice(const Json& value, const ReadContext& context, const NeutralChoice& choice);

template <class T>
Field<T> neutral_choice(std::string_view name, NeutralChoice choice) {
  return {name, Use::refused, [choice = std::move(choice)](const Json& value, const ReadContext& context, T&) {
            return check_choice(value, context, choice);
          }};
}

}  // namespace tutti::api
