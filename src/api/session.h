// A generating request while the engine works on it: submits the prompts, turns events into the answer, writes it, and
// gives the rows back when a stop string is found, the client has gone, or time is up.
//
// Threads: launch() on any; everything else runs on the connection's executor, one at a time. The engine's events
// arrive through the stream, whose notification only posts there.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/answer.h"
#include "api/call.h"
#include "api/format.h"
#include "api/in_flight.h"

namespace tutti::api {

// One prompt with the choices made from it.
struct PromptPlan {
  PromptRecord record;
  AnswerOptions answer;
  engine::Submission submission;  // its stream is set by the session
};

struct SessionPlan {
  std::vector<PromptPlan> prompts;
  int choices = 1;  // per prompt
  std::unique_ptr<Format> format;
  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  int64_t stream_interval = 1;  // tokens per chunk
  std::chrono::seconds keepalive{10};
  std::optional<Call::Clock::time_point> deadline;
  http::Headers headers;  // for the answer
};

class Session final : public Ticking, public std::enable_shared_from_this<Session> {
 public:
  static constexpr size_t kMaxPendingBytes = size_t{256} << 10;
  static constexpr size_t kEventsPerChoice = 128;

  Session(std::shared_ptr<Call> call, Backend& backend, InFlight& in_flight,
          std::shared_ptr<const text::Tokenizer> tokenizer, SessionPlan plan);

  // Admission to the queue, or the answer that it was refused.
  void launch();

  void tick(Call::Clock::time_point now) override;

 private:
  struct Choice {
    Answer answer;
    int drafts_accepted = 0, drafts_rejected = 0;
    Delta delta;            // not yet written; whole answers: everything
    int64_t unwritten = 0;  // tokens in delta
    bool opened = false, begun = false, over = false;
  };

  bool submit_all();
  void open();
  void pump();
  void handle(engine::Event& event);
  void tell_progress(size_t prompt, int computed);
  void note_prompt(size_t prompt, int choice, engine::Event& event);
  void open_choice(int index);
  void flush(int index);
  void end_choice(int index);
  void complete();
  void fail(const ApiError& error);
  void client_gone();
  void expire();
  void close();  // over: the engine's rows are given back, nothing more happens
  void write(std::string bytes);
  void keep_alive();

  ChoiceView view(int index) const;
  Usage usage() const;
  Usage running_usage() const { return plan_.continuous_usage ? usage() : Usage{}; }

  const std::shared_ptr<Call> call_;
  Backend& backend_;
  InFlight& in_flight_;
  SessionPlan plan_;
  std::shared_ptr<engine::Stream> events_;
  std::vector<engine::Ticket> tickets_;  // per prompt
  std::vector<Choice> choices_;          // of all prompts
  int left_ = 0;                         // choices that are not over
  bool opened_ = false, over_ = false;
  bool blocked_ = false;  // the client is behind: events stay in the stream
  std::string out_;       // buffer of one write
  std::atomic<int64_t> last_write_ns_{0};
};

}  // namespace tutti::api
