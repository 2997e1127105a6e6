#include "api/fields.h"

#include <algorithm>

namespace tutti::api {
namespace {

std::string joined(const std::vector<std::string_view>& words) {
  std::string out;
  for (const auto word : words) {
    if (!out.empty()) out += ", ";
    out += fmt::format("\"{}\"", word);
  }
  return out;
}

std::string range_text(IntRange range) {
  constexpr IntRange kAll;
  if (range.max == kAll.max && range.min == kAll.min) return "must fit 64 bits";
  if (range.max == kAll.max) return fmt::format("must be at least {}", range.min);
  return fmt::format("must be between {} and {}", range.min, range.max);
}

}  // namespace

MaybeError read_int(const Json& value, const ReadContext& context, IntRange range, int64_t& out) {
  const auto out_of_range = [&](const std::string& found) {
    return context.bad_value(fmt::format("{}; {} is not", range_text(range), found));
  };
  int64_t read = 0;
  if (value.is_number_unsigned()) {
    const auto u = value.get<uint64_t>();
    if (u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return out_of_range(std::to_string(u));
    read = static_cast<int64_t>(u);
  } else if (value.is_number_integer()) {
    read = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double d = value.get<double>();
    if (d != std::trunc(d)) return context.bad_type("an integer", value);
    if (d < -0x1p63 || d >= 0x1p63) return out_of_range(fmt::format("{}", d));
    read = static_cast<int64_t>(d);
  } else {
    return context.bad_type("an integer", value);
  }
  if (read < range.min || read > range.max) return out_of_range(std::to_string(read));
  out = read;
  return std::nullopt;
}

MaybeError read_number(const Json& value, const ReadContext& context, NumberRange range, double& out) {
  if (!value.is_number()) return context.bad_type("a number", value);
  const double read = value.get<double>();
  const bool below = range.open ? read <= range.min : read < range.min;
  if (!std::isfinite(read) || below || read > range.max) {
    const char* rule =
        range.open ? "must be above {} and at most {}; {} is not" : "must be between {} and {}; {} is not";
    return context.bad_value(fmt::format(fmt::runtime(rule), range.min, range.max, read));
  }
  out = read;
  return std::nullopt;
}

MaybeError read_bool(const Json& value, const ReadContext& context, bool& out) {
  if (!value.is_boolean()) return context.bad_type("a boolean", value);
  out = value.get<bool>();
  return std::nullopt;
}

MaybeError read_string(const Json& value, const ReadContext& context, std::string& out) {
  if (!value.is_string()) return context.bad_type("a string", value);
  out = value.get_ref<const std::string&>();
  return std::nullopt;
}

MaybeError read_token_id(const Json& value, const ReadContext& context, TokenId& out) {
  int64_t id = 0;
  if (auto error = read_int(value, context, {0, context.limits->vocab - 1}, id)) return error;
  out = static_cast<TokenId>(id);
  return std::nullopt;
}

MaybeError read_token_ids(const Json& value, const ReadContext& context, std::vector<TokenId>& out) {
  if (!value.is_array()) return context.bad_type("a list of token ids", value);
  out.resize(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    if (auto error = read_token_id(value[i], context.item(i), out[i])) return error;
  }
  return std::nullopt;
}

MaybeError read_choice(const Json& value, const ReadContext& context, const std::vector<std::string_view>& choices,
                       std::string& out) {
  std::string read;
  if (auto error = read_string(value, context, read)) return error;
  if (std::find(choices.begin(), choices.end(), read) == choices.end()) {
    return context.bad_value(fmt::format("must be one of {}", joined(choices)));
  }
  out = std::move(read);
  return std::nullopt;
}

MaybeError check_kind(const Json& value, const ReadContext& context, Kind kind) {
  switch (kind) {
    case Kind::any:
      return std::nullopt;
    case Kind::boolean:
      return value.is_boolean() ? MaybeError{} : context.bad_type("a boolean", value);
    case Kind::number:
      return value.is_number() ? MaybeError{} : context.bad_type("a number", value);
    case Kind::string:
      return value.is_string() ? MaybeError{} : context.bad_type("a string", value);
    case Kind::list:
      return value.is_array() ? MaybeError{} : context.bad_type("a list", value);
    case Kind::object:
      return value.is_object() ? MaybeError{} : context.bad_type("an object", value);
    case Kind::integer:
      break;
  }
  int64_t unused = 0;
  return read_int(value, context, {}, unused);
}

bool is_neutral(const Json& value, std::optional<double> off) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return off && value.get<double>() == *off;
  return value.empty() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

MaybeError check_choice(const Json& value, const ReadContext& context, const NeutralChoice& choice) {
  std::string read;
  if (auto error = read_string(value, context, read)) return error;
  const auto holds = [&](const std::vector<std::string_view>& words) {
    return std::find(words.begin(), words.end(), read) != words.end();
  };
  if (holds(choice.neutral)) return std::nullopt;
  const auto allowed = fmt::format("'{}' must be one of {}.", context.path, joined(choice.neutral));
  return holds(choice.refused) ? unsupported_value(context.path, allowed) : invalid_value(context.path, allowed);
}

}  // namespace tutti::api
