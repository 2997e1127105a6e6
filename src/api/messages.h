// From the messages of a request to the messages that a chat template reads: roles checked, system texts merged, parts
// joined, tool calls and results put in shape.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/fields.h"

namespace tutti::api {

enum class Role { system, user, assistant, tool };

struct ToolCall {
  std::string id;
  std::string name;
  Json arguments;  // always an object
};

struct Message {
  Role role = Role::user;
  std::string content;  // parts joined; they are all text
  std::optional<std::string> reasoning;
  std::vector<ToolCall> tool_calls;
  std::string tool_call_id;
};

// The reader of the field "messages". The result is in request order.
MaybeError read_messages(const Json& value, const ReadContext& context, std::vector<Message>& out);

struct MergeRules {
  bool late_system = false;  // the template takes system messages after others
};

// System messages merged (leading ones into one, late ones in place or appended to it) and runs of tool results put in
// the order of their calls.
std::vector<Message> arranged(std::vector<Message> messages, MergeRules rules);

// The template's own shape.
Json template_messages(const std::vector<Message>& messages);

// `text` without Unicode white space at both ends, as the template's trim does.
std::string_view trimmed(std::string_view text);

}  // namespace tutti::api
