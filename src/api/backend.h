// What the endpoints ask of the engine, as an interface, so that tests can answer in its place. Any thread.
#pragma once

#include "engine/engine.h"

namespace tutti::api {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual engine::Ticket submit(engine::Submission submission) = 0;
  virtual void abort(const engine::Ticket& ticket) = 0;
  virtual void stop_choice(const engine::Ticket& ticket, int choice) = 0;
  virtual engine::Health health() const = 0;
  virtual int retry_after_s() const = 0;
  virtual engine::Metrics& metrics() = 0;
};

}  // namespace tutti::api
