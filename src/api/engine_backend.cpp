// The engine behind the handler.
#include "api/core.h"

namespace tutti::api {
namespace {

class EngineBackend final : public Backend {
 public:
  explicit EngineBackend(engine::Engine& engine) : engine_(engine) {}
  engine::Ticket submit(engine::Submission submission) override { return engine_.submit(std::move(submission)); }
  void abort(const engine::Ticket& ticket) override { engine_.abort(ticket); }
  void stop_choice(const engine::Ticket& ticket, int choice) override { engine_.stop_choice(ticket, choice); }
  engine::Health health() const override { return engine_.health(); }
  int retry_after_s() const override { return engine_.retry_after_s(); }
  engine::Metrics& metrics() override { return engine_.metrics(); }

 private:
  engine::Engine& engine_;
};

}  // namespace

http::Handler make_handler(std::shared_ptr<const Service> service) {
  engine::Engine& engine = *service->engine;
  return make_handler_on(std::move(service), std::make_unique<EngineBackend>(engine));
}

}  // namespace tutti::api
