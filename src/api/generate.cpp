#include "api/generate.h"

#include <algorithm>
#include <ctime>
#include <exception>

#include "base/log.h"

namespace tutti::api {

void on_task_pool(const std::shared_ptr<Core>& core, const std::shared_ptr<Call>& call, std::function<void()> work) {
  core->service->tasks->post([call, work = std::move(work)] {
    try {
      if (!call->exchange().closed()) return work();
      call->finish(499, "the client has gone");
    } catch (const std::exception& e) {
      log::error("{} {}", call->id(), e.what());
      call->fail(engine_error("internal_error", "The server failed while it read this request."));
    }
  });
}

Result<int, ApiError> answer_tokens(const Core& core, const Room& room, const char* param) {
  const int limit = core.service->max_model_len;
  if (room.prompt_tokens >= static_cast<size_t>(limit))
    return context_length_exceeded(param, room.prompt_tokens, limit);
  const int64_t left = limit - static_cast<int64_t>(room.prompt_tokens);
  const int64_t wish = room.wish.value_or(room.standard < 0 ? left : room.standard);
  return static_cast<int>(std::min(wish, left));
}

// Every message of a chat ends with an end token, whatever the template; and templates drop the reasoning of earlier
// answers, so that the next turn parts where this answer begins to think.
std::vector<int> boundaries(const std::vector<TokenId>& prompt, const Service& service) {
  const TokenId think = service.tokenizer->id_of("<think>").value_or(-1);
  std::vector<int> positions;
  int thinks_at = -1;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const int at = static_cast<int>(i);
    if (prompt[i] == think) thinks_at = at;
    if (std::ranges::find(service.end_ids, prompt[i]) != service.end_ids.end()) positions.push_back(at + 1);
  }
  if (thinks_at > (positions.empty() ? 0 : positions.back())) positions.push_back(thinks_at);
  return positions;
}

engine::Submission make_submission(const Core& core, const GenerationFields& fields, const std::vector<TokenId>& prompt,
                                   int max_tokens) {
  engine::Submission submission;
  submission.prompt = prompt;
  submission.choices = static_cast<int>(fields.n);
  submission.sampling = resolve_sampling({fields, core.defaults, *core.service, max_tokens});
  submission.max_tokens = max_tokens;
  submission.stop_ids = stop_ids(fields, *core.service);
  submission.priority = fields.priority;
  if (fields.num_speculative_tokens >= 0) submission.max_drafts = static_cast<int>(fields.num_speculative_tokens);
  submission.use_prefix_cache = fields.use_prefix_cache;
  submission.cache_salt = fields.cache_salt;
  submission.boundaries = boundaries(prompt, *core.service);
  return submission;
}

AnswerOptions make_answer_options(const Core& core, const GenerationFields& fields) {
  const text::Tokenizer& tokenizer = *core.service->tokenizer;
  return {.think_open = tokenizer.id_of("<think>").value_or(-1),
          .think_close = tokenizer.id_of("</think>").value_or(-1),
          .end_ids = core.service->end_ids,
          .ignore_eos = fields.ignore_eos,
          .skip_special_tokens = fields.skip_special_tokens,
          .stops = fields.stop,
          .include_stop = fields.include_stop_str_in_output,
          .min_tokens = fields.min_tokens,
          .repetition = fields.repetition};
}

FormatOptions make_format_options(const Core& core, const GenerationFields& fields, const std::string& model) {
  FormatOptions options;
  options.model = model;
  options.fingerprint = core.service->system_fingerprint;
  options.created = std::time(nullptr);
  options.include_usage = fields.include_usage;
  options.continuous_usage = fields.continuous_usage_stats;
  options.prompt_logprobs = static_cast<int>(fields.prompt_logprobs.value_or(-1));
  options.return_token_ids = fields.return_token_ids;
  options.return_prompt_text = fields.return_prompt_text;
  options.reasoning_field = core.service->options.reasoning_field;
  options.style = {core.service->tokenizer.get(), fields.return_tokens_as_token_ids};
  return options;
}

namespace {

// Counts them; as the value of a header, which holds printable ASCII.
std::string ignored_names(Core& core, const std::vector<std::string>& ignored) {
  constexpr size_t kMaxBytes = 1000;
  std::string names;
  for (const auto& name : ignored) {
    core.backend->metrics().count_ignored_field();
    names += (names.empty() ? "" : ", ") + name;
  }
  std::replace_if(names.begin(), names.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  if (names.size() > kMaxBytes) names.resize(kMaxBytes);
  return names;
}

SessionPlan make_plan(Launch& launch) {
  Core& core = *launch.core;
  Call& call = *launch.call;
  SessionPlan plan;
  for (size_t i = 0; i < launch.prompts.size(); ++i) {
    launch.prompts[i].submission.request_id = call.id();
    launch.prompts[i].submission.first_choice = static_cast<int>(i) * static_cast<int>(launch.fields.n);
  }
  plan.choices = static_cast<int>(launch.fields.n);
  launch.format.id = launch.id_prefix + call.id();
  plan.format = launch.make_format(std::move(launch.format), plan.choices * static_cast<int>(launch.prompts.size()));
  plan.prompts = std::move(launch.prompts);
  plan.stream = launch.fields.stream;
  plan.include_usage = launch.fields.include_usage;
  plan.continuous_usage = launch.fields.continuous_usage_stats;
  plan.stream_interval = launch.fields.stream_interval;
  plan.keepalive = std::chrono::seconds(core.service->options.sse_keepalive_s);
  if (launch.fields.timeout) {
    plan.deadline = call.arrival() + std::chrono::duration_cast<Call::Clock::duration>(
                                         std::chrono::duration<double>(*launch.fields.timeout));
  }
  if (!launch.ignored.empty()) plan.headers.emplace_back("X-Tutti-Ignored", ignored_names(core, launch.ignored));
  return plan;
}

}  // namespace

void launch(Launch launch) {
  Core& core = *launch.core;
  Call& call = *launch.call;
  call.set_id(core.in_flight.claim(launch.fields.request_id.empty() ? call.id() : launch.fields.request_id));
  try {
    SessionPlan plan = make_plan(launch);
    std::make_shared<Session>(launch.call, *core.backend, core.in_flight, core.service->tokenizer, std::move(plan))
        ->launch();
  } catch (...) {
    core.in_flight.release(call.id());
    throw;
  }
}

}  // namespace tutti::api
