// POST /v1/completions
#include "api/endpoints.h"
#include "api/generate.h"

namespace tutti::api {
namespace {

std::string decode(const text::Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer.token_bytes(id);
  return lossy_utf8(bytes);
}

std::optional<int64_t> wish_of(const CompletionRequest& request) {
  return request.max_completion_tokens ? request.max_completion_tokens : request.max_tokens;
}

constexpr int64_t kStandardTokens = 16;

void truncate(const Core& core, const CompletionRequest& request, PromptRecord& record) {
  if (!request.truncate_prompt_tokens) return;
  int64_t keep = *request.truncate_prompt_tokens;
  if (keep < 0) keep = core.service->max_model_len - std::max<int64_t>(1, wish_of(request).value_or(kStandardTokens));
  const auto kept = static_cast<size_t>(std::max<int64_t>(1, keep));
  if (record.ids.size() <= kept) return;
  const auto surplus = static_cast<std::ptrdiff_t>(record.ids.size() - kept);
  if (request.truncation_side == "left") {
    record.ids.erase(record.ids.begin(), record.ids.begin() + surplus);
  } else {
    record.ids.erase(record.ids.end() - surplus, record.ids.end());
  }
  record.text = decode(*core.service->tokenizer, record.ids);
}

PromptRecord read_prompt(const Core& core, const CompletionRequest& request, const PromptSource& source) {
  const text::Tokenizer& tokenizer = *core.service->tokenizer;
  PromptRecord record;
  if (const auto* text = std::get_if<std::string>(&source)) {
    record.ids = tokenizer.encode(*text, request.parse_special);
    record.text = *text;
  } else {
    record.ids = std::get<std::vector<TokenId>>(source);
    record.text = decode(tokenizer, record.ids);
  }
  truncate(core, request, record);
  return record;
}

void set_logprobs(const CompletionRequest& request, sample::SamplingParams& params) {
  params.logprobs = request.logprobs.has_value();
  params.top_logprobs = static_cast<int>(request.logprobs.value_or(0));
  params.logprob_ids = request.logprob_token_ids;
  if (request.prompt_logprobs) params.prompt_logprobs = static_cast<int>(*request.prompt_logprobs);
  // An echo with log-probabilities shows the prompt's; without any token to make, the engine still needs something to
  // do.
  const bool echoed = request.echo && (request.logprobs || wish_of(request) == 0);
  if (echoed) params.prompt_logprobs = std::max(params.prompt_logprobs, params.top_logprobs);
}

Result<PromptPlan, ApiError> plan_prompt(const Core& core, const CompletionRequest& request,
                                         const PromptSource& source) {
  PromptPlan plan;
  plan.record = read_prompt(core, request, source);
  if (plan.record.ids.empty()) return invalid_value("prompt", "'prompt' has no tokens.");
  auto max_tokens = answer_tokens(core, {plan.record.ids.size(), wish_of(request), kStandardTokens}, "prompt");
  if (!max_tokens.ok()) return max_tokens.error();
  plan.submission = make_submission(core, request, plan.record.ids, max_tokens.value());
  set_logprobs(request, plan.submission.sampling);
  plan.answer = make_answer_options(core, request);
  return plan;
}

MaybeError start(const std::shared_ptr<Core>& core, const std::shared_ptr<Call>& call) {
  auto planned = plan_completion(*core, call->request().body);
  if (!planned.ok()) return planned.error();
  const CompletionRequest& request = planned->request;
  FormatOptions format = make_format_options(*core, request, planned->model);
  format.logprobs = request.logprobs.has_value();
  format.top_logprobs = static_cast<int>(request.logprobs.value_or(0));
  format.echo = request.echo;
  launch({core, call, request, std::move(planned->ignored), std::move(planned->prompts), std::move(format), "cmpl-",
          make_completion_format});
  return std::nullopt;
}

}  // namespace

Result<Planned<CompletionRequest>, ApiError> plan_completion(const Core& core, const std::string& text) {
  auto body = parse_json(text);
  if (!body.ok()) return invalid_json(body.error().message);
  Planned<CompletionRequest> planned;
  auto read = core.reader.completion(body.value(), planned.ignored);
  if (!read.ok()) return read.error();
  planned.request = std::move(read.value());
  auto model = core.accepted_model(planned.request.model);
  if (!model.ok()) return model.error();
  planned.model = std::move(model.value());
  for (const PromptSource& source : planned.request.prompts) {
    auto plan = plan_prompt(core, planned.request, source);
    if (!plan.ok()) return plan.error();
    planned.prompts.push_back(std::move(plan.value()));
  }
  return planned;
}

void completions(std::shared_ptr<Core> core, std::shared_ptr<Call> call) {
  on_task_pool(core, call, [core, call] {
    if (const auto error = start(core, call)) call->fail(*error);
  });
}

}  // namespace tutti::api
