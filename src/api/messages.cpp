#include "api/messages.h"

#include <algorithm>
#include <array>

namespace tutti::api {
namespace {

// Every UTF-8 sequence of a white-space character (Unicode property White_Space).
constexpr std::array<std::string_view, 25> kSpaces = {
    "\t",           "\n",           "\v",           "\f",           "\r",           " ",
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
    "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88",
    "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f",
    "\xe3\x80\x80"};

const std::string* string_member(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? &found->get_ref<const std::string&>() : nullptr;
}

struct TextPart {
  std::string type, text, refusal;
};

MaybeError refuse_part(const std::string& type, const ReadContext& context, Role role) {
  static constexpr std::array<std::string_view, 6> kMedia = {"image_url", "input_image", "image",
                                                             "video_url", "video",       "input_video"};
  static constexpr std::array<std::string_view, 8> kOther = {"document",         "input_file",    "file",
                                                             "input_audio",      "audio_url",     "search_result",
                                                             "container_upload", "tool_reference"};
  if (std::find(kMedia.begin(), kMedia.end(), type) != kMedia.end()) {
    if (role == Role::system) return context.bad_value("must be text: a system message can't hold media");
    return unsupported_media(context.path);
  }
  if (std::find(kOther.begin(), kOther.end(), type) != kOther.end()) {
    return unsupported_value(context.member("type").path,
                             fmt::format("'{}': parts of type \"{}\" are not offered.", context.path, type));
  }
  return context.member("type").bad_value("is not a type of content part; \"text\" is");
}

// One content part; its text is appended to out.
MaybeError read_part(const Json& value, const ReadContext& context, Role role, std::string& out) {
  static const FieldTable<TextPart> table({
      text("type", &TextPart::type),
      text("text", &TextPart::text),
      text("refusal", &TextPart::refusal),
      ignored<TextPart>("cache_control"),
      ignored<TextPart>("annotations"),
      ignored<TextPart>("logprobs"),
  });
  if (!value.is_object()) return context.bad_type("an object", value);
  const std::string* type = string_member(value, "type");
  if (type == nullptr) {
    const auto found = value.find("type");
    const ReadContext at = context.member("type");
    return found == value.end() ? missing_parameter(at.path) : at.bad_type("a string", *found);
  }
  const bool refusal = *type == "refusal";
  if (!refusal && *type != "text" && *type != "input_text" && *type != "output_text")
    return refuse_part(*type, context, role);
  const char* key = refusal ? "refusal" : "text";
  if (!value.contains(key) || value[key].is_null()) return missing_parameter(context.member(key).path);
  TextPart part;
  if (auto error = table.read(value, context, part)) return error;
  out += refusal ? part.refusal : part.text;
  return std::nullopt;
}

MaybeError read_content(const Json& value, const ReadContext& context, Role role, std::string& out) {
  if (value.is_string()) return read_string(value, context, out);
  if (!value.is_array()) return context.bad_type("a string or a list of parts", value);
  for (size_t i = 0; i < value.size(); ++i) {
    if (auto error = read_part(value[i], context.item(i), role, out)) return error;
  }
  return std::nullopt;
}

// An object, or JSON text of one. Whatever else stands there reaches the template as the one argument `arguments`.
Json arguments_of(const Json& value) {
  if (value.is_object()) return value;
  Json wrapped = Json::object();
  if (!value.is_string()) {
    if (!value.is_null()) wrapped["arguments"] = value.dump();
    return wrapped;
  }
  const auto& text = value.get_ref<const std::string&>();
  if (trimmed(text).empty()) return wrapped;
  auto parsed = parse_json(text);
  if (parsed.ok() && parsed.value().is_object()) return std::move(parsed.value());
  wrapped["arguments"] = text;
  return wrapped;
}

struct CallFields {
  std::string id, type = "function";
  bool has_function = false;
  ToolCall call;
};

MaybeError read_function(const Json& value, const ReadContext& context, CallFields& target) {
  static const FieldTable<CallFields> table({
      {"name", Use::honoured,
       [](const Json& v, const ReadContext& at, CallFields& t) { return read_string(v, at, t.call.name); }},
      {"arguments", Use::honoured,
       [](const Json& v, const ReadContext&, CallFields& t) {
         t.call.arguments = arguments_of(v);
         return MaybeError{};
       }},
  });
  target.has_function = true;
  target.call.arguments = Json::object();
  if (auto error = table.read(value, context, target)) return error;
  return target.call.name.empty() ? MaybeError{missing_parameter(context.member("name").path)} : std::nullopt;
}

MaybeError read_calls(const Json& value, const ReadContext& context, std::vector<ToolCall>& out) {
  static const FieldTable<CallFields> table({
      text("id", &CallFields::id),
      text("type", &CallFields::type),
      {"function", Use::honoured, read_function},
      ignored<CallFields>("index", Kind::integer),
  });
  if (!value.is_array()) return context.bad_type("a list", value);
  for (size_t i = 0; i < value.size(); ++i) {
    const ReadContext at = context.item(i);
    CallFields fields;
    if (auto error = table.read(value[i], at, fields)) return error;
    if (fields.type != "function")
      return unsupported_value(at.member("type").path, "Only calls of type \"function\" are offered.");
    if (!fields.has_function) return missing_parameter(at.member("function").path);
    fields.call.id = std::move(fields.id);
    out.push_back(std::move(fields.call));
  }
  return std::nullopt;
}

struct MessageFields {
  Message message;
  bool has_content = false;
  std::optional<std::string> reasoning_content, reasoning;
  std::string refusal;
};

template <class Member>
Field<MessageFields> optional_text(std::string_view name, Member member) {
  return {name, Use::honoured, [member](const Json& value, const ReadContext& context, MessageFields& target) {
            std::string read;
            auto error = read_string(value, context, read);
            if (!error) target.*member = std::move(read);
            return error;
          }};
}

MaybeError read_call_id(const Json& value, const ReadContext& context, MessageFields& target) {
  return read_string(value, context, target.message.tool_call_id);
}

FieldTable<MessageFields> message_table(Role role) {
  using M = MessageFields;
  FieldTable<M> table({
      ignored<M>("role"),  // read before the rest
      ignored<M>("name", Kind::string),
      {"content", Use::honoured,
       [](const Json& value, const ReadContext& context, M& target) {
         target.has_content = true;
         return read_content(value, context, target.message.role, target.message.content);
       }},
  });
  if (role == Role::assistant) {
    table.add<M>({
        optional_text("reasoning_content", &M::reasoning_content),
        optional_text("reasoning", &M::reasoning),
        {"tool_calls", Use::honoured,
         [](const Json& value, const ReadContext& context, M& target) {
           return read_calls(value, context, target.message.tool_calls);
         }},
        text("refusal", &M::refusal),
        ignored<M>("annotations", Kind::list),
        refused<M>("audio"),
        refused<M>("function_call"),
    });
  }
  if (role == Role::tool) {
    table.add<M>({{"tool_call_id", Use::honoured, read_call_id}});
  }
  return table;
}

MaybeError read_role(const Json& value, const ReadContext& context, Role& role) {
  static constexpr std::pair<std::string_view, Role> kRoles[] = {{"system", Role::system},
                                                                 {"developer", Role::system},
                                                                 {"user", Role::user},
                                                                 {"assistant", Role::assistant},
                                                                 {"tool", Role::tool}};
  if (!value.is_object()) return context.bad_type("an object", value);
  const ReadContext at = context.member("role");
  const auto found = value.find("role");
  if (found == value.end() || found->is_null()) return missing_parameter(at.path);
  if (!found->is_string()) return at.bad_type("a string", *found);
  const auto& name = found->get_ref<const std::string&>();
  for (const auto& [known, meaning] : kRoles) {
    if (name != known) continue;
    role = meaning;
    return std::nullopt;
  }
  if (name == "function") return unsupported_value(at.path, "The role \"function\" is not offered; use \"tool\".");
  return at.bad_value("must be one of \"system\", \"developer\", \"user\", \"assistant\", \"tool\"");
}

MaybeError read_message(const Json& value, const ReadContext& context, Message& out) {
  static const std::array<FieldTable<MessageFields>, 4> tables = {
      message_table(Role::system), message_table(Role::user), message_table(Role::assistant),
      message_table(Role::tool)};
  MessageFields fields;
  Role& role = fields.message.role;
  if (auto error = read_role(value, context, role)) return error;
  if (auto error = tables[static_cast<size_t>(role)].read(value, context, fields)) return error;
  if (!fields.has_content && role != Role::assistant) return missing_parameter(context.member("content").path);
  if (!fields.has_content) fields.message.content = std::move(fields.refusal);
  if (fields.reasoning && fields.reasoning_content && *fields.reasoning != *fields.reasoning_content) {
    return context.member("reasoning").bad_value("differs from 'reasoning_content' of the same message");
  }
  fields.message.reasoning =
      fields.reasoning_content ? std::move(fields.reasoning_content) : std::move(fields.reasoning);
  out = std::move(fields.message);
  return std::nullopt;
}

using MessageIterator = std::vector<Message>::iterator;

void append_paragraph(std::string& text, std::string_view paragraph) {
  if (paragraph.empty()) return;
  if (!text.empty()) text += "\n\n";
  text += paragraph;
}

// Tool results [begin, end) in the order of `calls`, if each names a call of its own.
void order_results(MessageIterator begin, MessageIterator end, const std::vector<ToolCall>& calls) {
  const auto position = [&](const Message& result) {
    size_t at = 0;
    while (at < calls.size() && calls[at].id != result.tool_call_id) ++at;
    return at;
  };
  std::vector<bool> taken(calls.size());
  for (auto it = begin; it != end; ++it) {
    const size_t at = position(*it);
    if (it->tool_call_id.empty() || at == calls.size() || taken[at]) return;
    taken[at] = true;
  }
  std::stable_sort(begin, end, [&](const Message& a, const Message& b) { return position(a) < position(b); });
}

}  // namespace

MaybeError read_messages(const Json& value, const ReadContext& context, std::vector<Message>& out) {
  if (!value.is_array()) return context.bad_type("a list", value);
  out.resize(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    if (auto error = read_message(value[i], context.item(i), out[i])) return error;
  }
  return std::nullopt;
}

std::vector<Message> arranged(std::vector<Message> messages, MergeRules rules) {
  const auto is_system = [](const Message& m) { return m.role == Role::system; };
  const auto first = std::find_if_not(messages.begin(), messages.end(), is_system);
  const bool late = !rules.late_system && std::any_of(first, messages.end(), is_system);
  std::vector<Message> out;
  if (first - messages.begin() == 1 && !late) {
    out.push_back(std::move(messages.front()));
  } else {
    Message system{.role = Role::system};
    for (auto it = messages.begin(); it != messages.end(); ++it) {
      if (is_system(*it) && (it < first || late)) append_paragraph(system.content, trimmed(it->content));
    }
    if (!system.content.empty()) out.push_back(std::move(system));
  }
  for (auto it = first; it != messages.end(); ++it) {
    if (!is_system(*it) || rules.late_system) out.push_back(std::move(*it));
  }
  for (auto it = out.begin(); it != out.end();) {
    const auto end = std::find_if_not(it, out.end(), [](const Message& m) { return m.role == Role::tool; });
    if (it != end && it != out.begin() && std::prev(it)->role == Role::assistant)
      order_results(it, end, std::prev(it)->tool_calls);
    it = end == it ? it + 1 : end;
  }
  return out;
}

Json template_messages(const std::vector<Message>& messages) {
  static constexpr const char* kNames[] = {"system", "user", "assistant", "tool"};
  Json out = Json::array();
  for (const Message& message : messages) {
    Json item = {{"role", kNames[static_cast<size_t>(message.role)]}, {"content", message.content}};
    if (message.reasoning) item["reasoning_content"] = *message.reasoning;
    if (!message.tool_call_id.empty()) item["tool_call_id"] = message.tool_call_id;
    if (!message.tool_calls.empty()) {
      Json& calls = item["tool_calls"] = Json::array();
      for (const ToolCall& call : message.tool_calls) {
        calls.push_back({{"id", call.id},
                         {"type", "function"},
                         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
    }
    out.push_back(std::move(item));
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view space : kSpaces) {
      if (text.starts_with(space)) text.remove_prefix(space.size()), again = true;
      if (text.ends_with(space)) text.remove_suffix(space.size()), again = true;
    }
  }
  return text;
}

}  // namespace tutti::api
