#include "api/session.h"

#include "api/json.h"
#include "base/log.h"

namespace tutti::api {
namespace {

int64_t now_ns() {
  return Call::Clock::now().time_since_epoch().count();
}

ApiError refusal(engine::Admission admission, int retry_after_s) {
  if (admission == engine::Admission::queue_full) {
    return overloaded("server_overloaded", "The queue is full; try again later.", retry_after_s);
  }
  return overloaded("server_draining", "The server is shutting down.", retry_after_s);
}

}  // namespace

Session::Session(std::shared_ptr<Call> call, Backend& backend, InFlight& in_flight,
                 std::shared_ptr<const text::Tokenizer> tokenizer, SessionPlan plan)
    : call_(std::move(call)), backend_(backend), in_flight_(in_flight), plan_(std::move(plan)) {
  choices_.reserve(plan_.prompts.size() * static_cast<size_t>(plan_.choices));
  for (const PromptPlan& prompt : plan_.prompts) {
    for (int i = 0; i < plan_.choices; ++i) choices_.push_back({Answer(prompt.answer, tokenizer)});
  }
  left_ = static_cast<int>(choices_.size());
}

void Session::launch() {
  const std::weak_ptr<Session> weak = weak_from_this();
  events_ = std::make_shared<engine::Stream>(kEventsPerChoice, [weak] {
    const auto self = weak.lock();
    if (self) self->call_->exchange().post([self] { self->pump(); });
  });
  if (!submit_all()) return;
  call_->exchange().post([self = shared_from_this()] { self->open(); });
}

bool Session::submit_all() {
  for (PromptPlan& prompt : plan_.prompts) {
    prompt.submission.stream = events_;
    tickets_.push_back(backend_.submit(std::move(prompt.submission)));
    const auto admission = tickets_.back().admission;
    if (admission == engine::Admission::accepted) continue;
    tickets_.pop_back();
    for (const auto& ticket : tickets_) backend_.abort(ticket);
    in_flight_.release(call_->id());
    call_->fail(refusal(admission, backend_.retry_after_s()));
    return false;
  }
  return true;
}

void Session::open() {
  const std::weak_ptr<Session> weak = weak_from_this();
  opened_ = true;
  in_flight_.keep(call_->id(), shared_from_this());
  if (plan_.stream) {
    http::Response head{.headers = plan_.headers, .content_type = "text/event-stream; charset=utf-8"};
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
    call_->begin_stream(std::move(head));
    last_write_ns_ = now_ns();
    call_->exchange().on_drained([weak] {
      const auto self = weak.lock();
      if (self && std::exchange(self->blocked_, false)) self->pump();
    });
  }
  call_->exchange().on_closed([weak] {
    if (const auto self = weak.lock()) self->client_gone();
  });
  pump();
}

void Session::pump() {
  if (!opened_ || over_ || blocked_) return;
  if (plan_.stream && call_->exchange().pending_bytes() > kMaxPendingBytes) {
    blocked_ = true;
    return;
  }
  for (engine::Event& event : events_->drain()) {
    if (over_) return;
    handle(event);
  }
}

void Session::handle(engine::Event& event) {
  if (event.choice < 0 || static_cast<size_t>(event.choice) >= choices_.size()) return;
  Choice& choice = choices_[static_cast<size_t>(event.choice)];
  if (choice.over) return;
  using schedule::FinishReason;
  if (event.finish == FinishReason::error) return fail(engine_error(event.error_code, event.error_message));
  if (event.finish == FinishReason::abort)
    return fail(engine_error("internal_error", "The engine gave the request up."));
  const auto prompt = static_cast<size_t>(event.choice / plan_.choices);
  note_prompt(prompt, event.choice % plan_.choices, event);
  if (event.prompt_computed > 0) tell_progress(prompt, event.prompt_computed);
  const bool gives = event.token >= 0 || event.finish != FinishReason::none;
  if (gives || (event.started && plan_.format->opens_early())) open_choice(event.choice);
  if (!gives) return;
  choice.drafts_accepted = event.drafts_accepted;
  choice.drafts_rejected = event.drafts_rejected;
  choice.answer.take(event, choice.delta);
  ++choice.unwritten;
  if (choice.answer.ending()) {
    end_choice(event.choice);
  } else if (!choice.begun || choice.unwritten >= plan_.stream_interval) {
    flush(event.choice);
  }
}

void Session::note_prompt(size_t prompt, int choice, engine::Event& event) {
  if (choice != 0) return;
  PromptRecord& record = plan_.prompts[prompt].record;
  record.cached_tokens = std::max(record.cached_tokens, event.cached_tokens);
  for (auto& values : event.prompt_logprobs) record.logprobs.push_back(std::move(values));
}

void Session::tell_progress(size_t prompt, int computed) {
  if (!plan_.stream) return;
  const std::string which = plan_.prompts.size() > 1 ? fmt::format(" {}", prompt) : "";
  write(fmt::format(": prompt{} {} of {} tokens\n\n", which, computed, plan_.prompts[prompt].record.ids.size()));
}

void Session::open_choice(int index) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (std::exchange(choice.opened, true) || !plan_.stream) return;
  plan_.format->opening(view(index), running_usage(), out_);
  write(std::exchange(out_, {}));
}

void Session::flush(int index) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (!plan_.stream) return;
  plan_.format->delta(view(index), running_usage(), out_);
  if (out_.empty()) {  // nothing to show yet; the ids go out with the next text
    choice.delta.reasoning.clear();
    choice.delta.content.clear();
    return;
  }
  choice.begun = true;
  choice.unwritten = 0;
  choice.delta.clear();
  write(std::exchange(out_, {}));
}

void Session::end_choice(int index) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.over = true;
  if (choice.answer.must_abort()) {
    backend_.stop_choice(tickets_[static_cast<size_t>(index / plan_.choices)], index % plan_.choices);
  }
  if (plan_.stream) {
    flush(index);
    plan_.format->ending(view(index), running_usage(), out_);
    write(std::exchange(out_, {}));
  }
  if (--left_ == 0) complete();
}

void Session::complete() {
  const Usage total = usage();
  if (plan_.stream) {
    if (plan_.include_usage) {
      plan_.format->usage(total, out_);
      write(std::exchange(out_, {}));
    }
    write("data: [DONE]\n\n");
    call_->exchange().end_stream();
    call_->finish(200, fmt::format("prompt {} completion {}", total.prompt_tokens, total.completion_tokens));
  } else {
    std::vector<ChoiceView> views;
    for (size_t i = 0; i < choices_.size(); ++i) views.push_back(view(static_cast<int>(i)));
    call_->respond({.headers = plan_.headers, .body = plan_.format->whole(views, total)});
  }
  close();
}

void Session::fail(const ApiError& error) {
  for (const auto& ticket : tickets_) backend_.abort(ticket);
  std::string extra = R"(,"usage":)";
  append_usage(extra, usage());
  if (plan_.stream) {
    write("data: " + error_body(error, extra) + "\n\n");
    write("data: [DONE]\n\n");
    call_->exchange().end_stream();
    call_->finish(error.status, error.code);
  } else {
    call_->fail(error, extra);
  }
  close();
}

void Session::client_gone() {
  if (over_) return;
  for (const auto& ticket : tickets_) backend_.abort(ticket);
  call_->finish(499, "the client has gone");
  close();
}

void Session::expire() {
  if (over_) return;
  fail(engine_error("timeout", "The deadline of the request has passed."));
}

void Session::close() {
  over_ = true;
  in_flight_.release(call_->id());
}

void Session::write(std::string bytes) {
  if (bytes.empty()) return;
  last_write_ns_.store(now_ns(), std::memory_order_relaxed);
  call_->exchange().write(std::move(bytes));
}

void Session::keep_alive() {
  if (opened_ && !over_) write(": keep-alive\n\n");
}

void Session::tick(Call::Clock::time_point now) {
  if (plan_.deadline && now >= *plan_.deadline) {
    call_->exchange().post([self = shared_from_this()] { self->expire(); });
    return;
  }
  const int64_t last = last_write_ns_.load(std::memory_order_relaxed);
  const std::chrono::nanoseconds silence(now.time_since_epoch().count() - last);
  if (plan_.stream && last > 0 && silence >= plan_.keepalive) {
    call_->exchange().post([self = shared_from_this()] { self->keep_alive(); });
  }
}

ChoiceView Session::view(int index) const {
  const Choice& choice = choices_[static_cast<size_t>(index)];
  const auto& ending = choice.answer.ending();
  return {index, plan_.prompts[static_cast<size_t>(index / plan_.choices)].record, choice.delta,
          ending ? &*ending : nullptr};
}

Usage Session::usage() const {
  Usage usage;
  for (const PromptPlan& prompt : plan_.prompts) {
    usage.prompt_tokens += static_cast<int64_t>(prompt.record.ids.size());
    usage.cached_tokens += prompt.record.cached_tokens;
  }
  for (const Choice& choice : choices_) {
    usage.completion_tokens += choice.answer.tokens();
    usage.reasoning_tokens += choice.answer.reasoning_tokens();
    usage.drafts_accepted += choice.drafts_accepted;
    usage.drafts_rejected += choice.drafts_rejected;
  }
  return usage;
}

}  // namespace tutti::api
