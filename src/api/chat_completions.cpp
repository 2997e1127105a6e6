// POST /v1/chat/completions
#include "api/endpoints.h"
#include "api/generate.h"

namespace tutti::api {
namespace {

Result<text::Prompt, ApiError> render(const Core& core, ChatRequest& request, const Json& variables) {
  const text::ChatTemplate& chat_template = *core.service->chat_template;
  Json context = variables;
  context["messages"] =
      template_messages(arranged(std::move(request.messages), {.late_system = chat_template.accepts_late_system()}));
  const bool open = request.continue_final_message;
  context["add_generation_prompt"] = !open && request.add_generation_prompt.value_or(true);
  const std::string json = context.dump();
  auto rendered = open ? chat_template.render_open(json) : chat_template.render(json);
  if (!rendered.ok()) return template_error(rendered.error().message);
  if (rendered->ids.empty()) return template_error("the prompt is empty");
  if (request.add_generation_prompt == false && !open) rendered->in_reasoning = false;
  return std::move(rendered.value());
}

MaybeError check_effort(const TemplateVariables& variables, int max_tokens) {
  if (variables.reasoning_limit < 0 || max_tokens <= variables.reasoning_limit) return std::nullopt;
  return unsupported_value(
      "reasoning_effort",
      fmt::format("'reasoning_effort': this effort allows {} tokens of reasoning, and a limit below max_tokens is not "
                  "offered; \"none\", \"high\", \"xhigh\" and \"max\" are.",
                  variables.reasoning_limit));
}

void set_logprobs(const ChatRequest& request, sample::SamplingParams& params) {
  params.logprobs = request.logprobs;
  params.top_logprobs = static_cast<int>(request.top_logprobs);
  params.logprob_ids = request.logprob_token_ids;
  if (request.prompt_logprobs) params.prompt_logprobs = static_cast<int>(*request.prompt_logprobs);
}

MaybeError start(const std::shared_ptr<Core>& core, const std::shared_ptr<Call>& call) {
  auto planned = plan_chat(*core, call->request().body);
  if (!planned.ok()) return planned.error();
  const ChatRequest& request = planned->request;
  FormatOptions format = make_format_options(*core, request, planned->model);
  format.service_tier = request.service_tier;
  format.logprobs = request.logprobs;
  format.include_reasoning = request.include_reasoning;
  launch({core, call, request, std::move(planned->ignored), std::move(planned->prompts), std::move(format), "chatcmpl-",
          make_chat_format});
  return std::nullopt;
}

}  // namespace

Result<Planned<ChatRequest>, ApiError> plan_chat(const Core& core, const std::string& text) {
  auto body = parse_json(text);
  if (!body.ok()) return invalid_json(body.error().message);
  Planned<ChatRequest> planned;
  auto read = core.reader.chat(body.value(), planned.ignored);
  if (!read.ok()) return read.error();
  ChatRequest& request = planned.request = std::move(read.value());
  auto model = core.accepted_model(request.model);
  if (!model.ok()) return model.error();
  planned.model = std::move(model.value());
  auto variables = template_variables(request.thinking, core.default_kwargs, core.template_names);
  if (!variables.ok()) return variables.error();
  auto prompt = render(core, request, variables->values);
  if (!prompt.ok()) return prompt.error();
  const auto wish = request.max_completion_tokens ? request.max_completion_tokens : request.max_tokens;
  auto max_tokens = answer_tokens(core, {prompt->ids.size(), wish}, "messages");
  if (!max_tokens.ok()) return max_tokens.error();
  if (auto error = check_effort(variables.value(), max_tokens.value())) return *error;

  PromptPlan plan;
  plan.submission = make_submission(core, request, prompt->ids, max_tokens.value());
  set_logprobs(request, plan.submission.sampling);
  plan.answer = make_answer_options(core, request);
  plan.answer.parse_reasoning = true;
  plan.answer.in_reasoning = prompt->in_reasoning;
  plan.record.ids = std::move(prompt->ids);
  plan.record.text = std::move(prompt->text);
  planned.prompts.push_back(std::move(plan));
  return planned;
}

void chat_completions(std::shared_ptr<Core> core, std::shared_ptr<Call> call) {
  on_task_pool(core, call, [core, call] {
    if (const auto error = start(core, call)) call->fail(*error);
  });
}

}  // namespace tutti::api
