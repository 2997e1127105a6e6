#include "api/endpoints.h"
#include "api/json.h"

namespace tutti::api {
namespace {

std::string health_body(const engine::Health& health) {
  Json body = {{"status", !health.healthy   ? "unhealthy"
                          : health.draining ? "draining"
                                            : "ok"},
               {"last_progress_s", health.last_progress_s},
               {"running", health.running},
               {"waiting", health.waiting}};
  return body.dump();
}

}  // namespace

void health(std::shared_ptr<Core> core, std::shared_ptr<Call> call) {
  const auto state = core->backend->health();
  call->respond({.status = state.healthy ? 200 : 503, .body = health_body(state)});
}

void ready(std::shared_ptr<Core> core, std::shared_ptr<Call> call) {
  const auto state = core->backend->health();
  call->respond({.status = state.healthy && !state.draining ? 200 : 503, .body = health_body(state)});
}

void metrics(std::shared_ptr<Core> core, std::shared_ptr<Call> call) {
  call->respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                 .body = core->backend->metrics().prometheus(core->model_name())});
}

void version(std::shared_ptr<Core> core, std::shared_ptr<Call> call) {
  call->respond({.body = core->service->version_json});
}

}  // namespace tutti::api
