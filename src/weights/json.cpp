#include "weights/json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "base/error.h"
#include "weights/problems.h"

namespace tutti::weights {
namespace {

using nlohmann::json;

class Guard {
 public:
  explicit Guard(const std::string& where) : where_(where) {}

  void operator()(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= kMaxJsonDepth) fail(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
      if (event == Event::object_start) keys_.emplace_back();
    }
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) fail(fmt::format("the key \"{}\" occurs twice", printable(key)));
    }
    const bool value = event == Event::value || event == Event::object_start || event == Event::array_start;
    if (value && ++values_ > kMaxJsonValues) fail(fmt::format("more than {} values", kMaxJsonValues));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw LoadError(where_ + ": " + what); }

  const std::string& where_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  int64_t values_ = 0;
};

}  // namespace

json parse_json(std::string_view text, const std::string& where) {
  Guard guard(where);
  const auto callback = [&guard](int depth, json::parse_event_t event, json& parsed) {
    guard(depth, event, parsed);
    return true;
  };
  try {
    return json::parse(text, callback);
  } catch (const json::exception& e) {
    throw LoadError(where + ": not valid JSON: " + printable(e.what()));
  }
}

}  // namespace tutti::weights
