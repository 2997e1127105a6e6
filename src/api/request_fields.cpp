#include "api/request_fields.h"

namespace tutti::api {
namespace {

using C = ChatRequest;
using P = CompletionRequest;
constexpr size_t kMaxPrompts = 128, kMaxMetadata = 16;

MaybeError read_tool_choice(const Json& value, const ReadContext& context, C& target) {
  if (value.is_object()) return context.bad_value("needs 'tools'");
  return read_choice(value, context, {"none", "auto", "required"}, target.tool_choice);
}

MaybeError read_tools(const Json& value, const ReadContext& context, C&) {
  if (!value.is_array()) return context.bad_type("a list", value);
  return value.empty() ? std::nullopt : MaybeError{unsupported_parameter(context.path, "'tools' are not offered.")};
}

MaybeError read_kwargs(const Json& value, const ReadContext& context, C& target) {
  if (!value.is_object()) return context.bad_type("an object", value);
  target.thinking.kwargs = value;
  return std::nullopt;
}

MaybeError read_metadata(const Json& value, const ReadContext& context, C&) {
  if (!value.is_object()) return context.bad_type("an object", value);
  if (value.size() > kMaxMetadata) return context.bad_value(fmt::format("must have at most {} pairs", kMaxMetadata));
  for (const auto& [name, item] : value.items()) {
    if (!item.is_string()) return context.member(name).bad_type("a string", item);
  }
  return std::nullopt;
}

MaybeError read_service_tier(const Json& value, const ReadContext& context, C& target) {
  if (auto error = check_choice(value, context, {{"auto", "default"}, {"flex", "scale", "priority"}})) return error;
  return read_string(value, context, target.service_tier);
}

MaybeError read_modalities(const Json& value, const ReadContext& context, C&) {
  if (!value.is_array()) return context.bad_type("a list of strings", value);
  for (size_t i = 0; i < value.size(); ++i) {
    if (auto error = check_choice(value[i], context.item(i), {{"text"}, {"audio"}})) return error;
  }
  return std::nullopt;
}

std::vector<Field<GenerationFields>> max_tokens_row(int64_t min) {
  return {integer("max_tokens", &GenerationFields::max_tokens, {min})};
}

std::vector<Field<C>> message_rows() {
  return {
      {"messages", Use::honoured,
       [](const Json& value, const ReadContext& context, C& target) {
         target.has_messages = true;
         return read_messages(value, context, target.messages);
       }},
      boolean("add_generation_prompt", &C::add_generation_prompt),
      boolean("continue_final_message", &C::continue_final_message),
      {"chat_template_kwargs", Use::honoured, read_kwargs},
      {"enable_thinking", Use::honoured,
       [](const Json& value, const ReadContext& context, C& target) {
         bool read = false;
         auto error = read_bool(value, context, read);
         if (!error) target.thinking.enable_thinking = read;
         return error;
       }},
      {"reasoning_effort", Use::honoured,
       [](const Json& value, const ReadContext& context, C& target) {
         return read_choice(value, context, {"none", "minimal", "low", "medium", "high", "xhigh", "max"},
                            target.thinking.effort);
       }},
      boolean("include_reasoning", &C::include_reasoning),
      refused<C>("chat_template"),
      {"tools", Use::refused, read_tools},
      {"tool_choice", Use::refused, read_tool_choice},
      ignored<C>("parallel_tool_calls", Kind::boolean),
  };
}

std::vector<Field<C>> chat_rows(const Limits& limits) {
  return {
      boolean("logprobs", &C::logprobs),
      integer("top_logprobs", &C::top_logprobs, {0, limits.max_logprobs}),
      {"service_tier", Use::ignored, read_service_tier},
      ignored<C>("safety_identifier", Kind::string),
      {"metadata", Use::ignored, read_metadata},
      ignored<C>("prediction", Kind::object),
      ignored<C>("prompt_cache_key", Kind::string),
      ignored<C>("prompt_cache_retention", Kind::string),
      refused<C>("store"),
      {"modalities", Use::refused, read_modalities},
      neutral_choice<C>("verbosity", {{"medium"}, {"low", "high"}}),
      refused<C>("mm_processor_kwargs"),
      refused<C>("media_io_kwargs"),
      refused<C>("audio"),
      refused<C>("web_search_options"),
      refused<C>("functions", {.why = "; use 'tools'"}),
      refused<C>("function_call", {.why = "; use 'tool_choice'"}),
      refused<C>("echo"),
      refused<C>("documents"),
      refused<C>("truncate_prompt_tokens"),
      refused<C>("kv_transfer_params"),
      refused<C>("ec_transfer_params"),
      refused<C>("vllm_xargs"),
      refused<C>("return_routed_experts"),
  };
}

MaybeError read_prompt_list(const Json& value, const ReadContext& context, P& target) {
  if (value.empty()) return context.bad_value("must not be empty");
  if (value[0].is_number()) {
    std::vector<TokenId> ids;
    if (auto error = read_token_ids(value, context, ids)) return error;
    target.prompts.emplace_back(std::move(ids));
    return std::nullopt;
  }
  if (value.size() > kMaxPrompts) return context.bad_value(fmt::format("must hold at most {} prompts", kMaxPrompts));
  for (size_t i = 0; i < value.size(); ++i) {
    const ReadContext at = context.item(i);
    if (value[i].is_string() != value[0].is_string())
      return at.bad_type("of the same type as the first prompt", value[i]);
    if (!value[i].is_string() && !value[i].is_array()) return at.bad_type("a string or a list of token ids", value[i]);
    if (value[i].empty()) return at.bad_value("must not be empty");
    if (value[i].is_string()) {
      target.prompts.emplace_back(value[i].get<std::string>());
      continue;
    }
    std::vector<TokenId> ids;
    if (auto error = read_token_ids(value[i], at, ids)) return error;
    target.prompts.emplace_back(std::move(ids));
  }
  return std::nullopt;
}

MaybeError read_prompt(const Json& value, const ReadContext& context, P& target) {
  if (value.is_array()) return read_prompt_list(value, context, target);
  if (!value.is_string()) return context.bad_type("a string, a list of strings, or token ids", value);
  target.prompts.emplace_back(value.get<std::string>());
  return std::nullopt;
}

MaybeError read_truncation(const Json& value, const ReadContext& context, P& target) {
  int64_t read = 0;
  if (auto error = read_int(value, context, {-1}, read)) return error;
  if (read == 0) return context.bad_value("must be at least 1, or -1 to fit");
  target.truncate_prompt_tokens = read;
  return std::nullopt;
}

std::vector<Field<P>> completion_rows(const Limits& limits) {
  return {
      {"prompt", Use::honoured, read_prompt},
      boolean("echo", &P::echo),
      boolean("parse_special", &P::parse_special),
      integer("logprobs", &P::logprobs, {0, limits.max_logprobs}),
      {"truncate_prompt_tokens", Use::honoured, read_truncation},
      {"truncation_side", Use::honoured,
       [](const Json& value, const ReadContext& context, P& target) {
         return read_choice(value, context, {"left", "right"}, target.truncation_side);
       }},
      refused<P>("suffix"),
      refused<P>("prompt_embeds"),
  };
}

MaybeError check_chat(const ChatRequest& request) {
  if (!request.has_messages) return missing_parameter("messages");
  if (request.messages.empty())
    return ApiError{.code = "missing_required_parameter",
                    .message = "'messages' must hold at least one message.",
                    .param = "messages"};
  if (request.tool_choice == "required")
    return invalid_value("tool_choice", "'tool_choice' \"required\" needs 'tools'.");
  if (request.top_logprobs > 0 && !request.logprobs) {
    return invalid_value("top_logprobs", "'top_logprobs' needs \"logprobs\": true.");
  }
  if (request.continue_final_message) {
    if (request.add_generation_prompt.value_or(false)) {
      return invalid_value("add_generation_prompt", "'add_generation_prompt' contradicts 'continue_final_message'.");
    }
    const Message& last = request.messages.back();
    if (last.role != Role::assistant || !last.tool_calls.empty()) {
      return invalid_value("continue_final_message",
                           "'continue_final_message' needs a last message of the role assistant without tool calls.");
    }
  }
  return check_generation(request, request.logprobs);
}

MaybeError check_completion(const CompletionRequest& request) {
  if (request.prompts.empty()) return missing_parameter("prompt");
  for (const auto& prompt : request.prompts) {
    const bool empty = std::visit([](const auto& value) { return value.empty(); }, prompt);
    if (empty) return invalid_value("prompt", "'prompt' must not be empty.");
  }
  const auto max_tokens = request.max_completion_tokens ? request.max_completion_tokens : request.max_tokens;
  if (max_tokens == 0 && !request.echo && !request.prompt_logprobs) {
    return invalid_value("max_tokens", "'max_tokens' 0 needs 'echo' or 'prompt_logprobs'.");
  }
  return check_generation(request, request.logprobs.has_value());
}

}  // namespace

RequestReader::RequestReader(const Limits& limits) : limits_(limits) {
  chat_.add(sampling_rows(limits)).add(max_tokens_row(1)).add(message_rows()).add(chat_rows(limits));
  completion_.add(sampling_rows(limits)).add(max_tokens_row(0)).add(completion_rows(limits));
}

Result<ChatRequest, ApiError> RequestReader::chat(const Json& body, std::vector<std::string>& ignored) const {
  ChatRequest request;
  if (auto error = chat_.read(body, {&limits_, &ignored, ""}, request)) return *error;
  if (auto error = check_chat(request)) return *error;
  return request;
}

Result<CompletionRequest, ApiError> RequestReader::completion(const Json& body,
                                                              std::vector<std::string>& ignored) const {
  CompletionRequest request;
  if (auto error = completion_.read(body, {&limits_, &ignored, ""}, request)) return *error;
  if (auto error = check_completion(request)) return *error;
  return request;
}

}  // namespace tutti::api
