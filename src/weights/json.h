// JSON of a checkpoint folder, parsed with guards against hostile files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tutti::weights {

inline constexpr int kMaxJsonDepth = 64;
inline constexpr int64_t kMaxJsonValues = 1'000'000;

// Throws LoadError naming `where` for malformed text, a duplicate key, more than kMaxJsonDepth levels or more than
// kMaxJsonValues values.
nlohmann::json parse_json(std::string_view text, const std::string& where);

}  // namespace tutti::weights
