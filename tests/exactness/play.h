// Runs schedules, and each of their requests alone, and compares.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/stream.h"
#include "exactness/schedule.h"

namespace tutti::exactness {

// What one choice of a job was told.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<sample::Logprobs> logprobs, prompt_logprobs;
  schedule::FinishReason finish = schedule::FinishReason::none;
  TokenId stop_token = -1;
  std::string error_code;
  int prompt_tokens = 0, generated = 0, cached_tokens = 0, drafts_accepted = 0, drafts_rejected = 0;
};

// What the runs so far have been through, so that a run that tests nothing is seen.
struct Tally {
  int64_t schedules = 0, answers = 0, tokens = 0, cached = 0, read_from_disk = 0, preemptions = 0, accepted = 0,
          rejected = 0, reruns = 0, ended_early = 0;
};

// The jobs in one engine; the answers of each job's choices. Throws std::runtime_error when nothing happens any more.
std::vector<std::vector<Answer>> play(const Setting& setting, const std::vector<Job>& jobs);

class Player {
 public:
  // What differs between the schedule's answers and those of its requests alone, for a person; nothing: all is well.
  std::optional<std::string> differences(const Schedule& schedule);
  const Tally& tally() const { return tally_; }

 private:
  const std::vector<Answer>& alone(const Job& job, const Setting& setting);

  std::map<std::string, std::vector<Answer>> known_;  // by question
  Tally tally_;
};

}  // namespace tutti::exactness
