#include "api/warm_up.h"

#include <fmt/format.h>

#include <semaphore>
#include <sstream>
#include <vector>

#include "api/generate.h"
#include "base/error.h"
#include "base/log.h"

namespace tutti::api {
namespace {

struct Line {
  int number = 0;
  std::vector<PromptPlan> prompts;
};

// What the HTTP API would make of it.
Line read_line(const Core& core, int number, const std::string& text) {
  const auto refuse = [&](const std::string& why) { throw OptionError(fmt::format("line {}: {}", number, why)); };
  auto body = parse_json(text);
  if (!body.ok()) refuse(body.error().message);
  if (!body->is_object() || (!body->contains("messages") && !body->contains("prompt")))
    refuse("not a JSON object with \"messages\" or \"prompt\"");
  if (body->contains("messages")) {
    auto planned = plan_chat(core, text);
    if (!planned.ok()) refuse(planned.error().message);
    return {number, std::move(planned->prompts)};
  }
  auto planned = plan_completion(core, text);
  if (!planned.ok()) refuse(planned.error().message);
  return {number, std::move(planned->prompts)};
}

// Waits for the end of it; returns the prompt tokens that were found in the cache.
int compute(engine::Engine& engine, engine::Submission submission, int number) {
  const auto events = std::make_shared<std::counting_semaphore<>>(0);
  const auto stream = std::make_shared<engine::Stream>(1024, [events] { events->release(); });
  submission.request_id = fmt::format("warm-prefix-{}", number);
  submission.choices = 1;
  submission.max_tokens = 1;
  submission.sampling = {};
  submission.stream = stream;
  if (engine.submit(std::move(submission)).admission != engine::Admission::accepted)
    throw OptionError(fmt::format("line {}: the engine takes no work", number));
  for (;;) {
    events->acquire();
    for (const engine::Event& event : stream->drain()) {
      if (event.finish == schedule::FinishReason::error)
        throw OptionError(fmt::format("line {}: {}", number, event.error_message));
      if (event.finish != schedule::FinishReason::none) return event.cached_tokens;
    }
  }
}

}  // namespace

void warm_up(std::shared_ptr<const Service> service, const std::string& lines) {
  engine::Engine& engine = *service->engine;
  const Core core(std::move(service), nullptr);
  std::vector<Line> all;
  std::istringstream in(lines);
  std::string text;
  for (int number = 1; std::getline(in, text); ++number)
    if (text.find_first_not_of(" \t\r") != std::string::npos) all.push_back(read_line(core, number, text));
  int64_t tokens = 0, cached = 0;
  for (Line& line : all) {
    for (PromptPlan& prompt : line.prompts) {
      tokens += static_cast<int64_t>(prompt.record.ids.size());
      cached += compute(engine, std::move(prompt.submission), line.number);
    }
  }
  log::info("warm prefixes: {} prompts, {} tokens, {} of them found in the cache", all.size(), tokens, cached);
}

}  // namespace tutti::api
