#include <ctime>

#include "api/endpoints.h"
#include "api/json.h"

namespace tutti::api {
namespace {

constexpr std::string_view kPrefix = "/v1/models/";

Json model_object(const Core& core, const std::string& name) {
  const Service& service = *core.service;
  return {{"id", name},
          {"object", "model"},
          {"created", service.started_unix},
          {"owned_by", "tutti"},
          {"root", core.model_name()},
          {"parent", nullptr},
          {"max_model_len", service.max_model_len},
          {"capabilities",
           {{"text", true},
            {"image", false},
            {"video", false},
            {"tools", false},
            {"reasoning", service.tokenizer->id_of("</think>").has_value()},
            {"mtp", service.drafts},
            {"structured_output", false}}}};
}

// The form of clients that send the header anthropic-version.
Json other_object(const Core& core, const std::string& name) {
  const auto seconds = static_cast<std::time_t>(core.service->started_unix);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char created[32];
  std::strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {{"type", "model"}, {"id", name}, {"display_name", name}, {"created_at", created}};
}

bool other_form(const Call& call) {
  return !call.request().header("anthropic-version").empty();
}

}  // namespace

void list_models(std::shared_ptr<Core> core, std::shared_ptr<Call> call) {
  const bool other = other_form(*call);
  const auto& names = core->service->options.served_model_names;
  Json data = Json::array();
  for (const auto& name : names) data.push_back(other ? other_object(*core, name) : model_object(*core, name));
  Json body = other ? Json{{"data", data}, {"has_more", false}, {"first_id", names.front()}, {"last_id", names.back()}}
                    : Json{{"object", "list"}, {"data", data}};
  call->respond({.body = body.dump()});
}

void get_model(std::shared_ptr<Core> core, std::shared_ptr<Call> call) {
  const std::string name = call->request().path.substr(kPrefix.size());
  if (const auto accepted = core->accepted_model(name); !accepted.ok())
    return call->fail(model_not_found(lossy_utf8(name)));
  call->respond({.body = (other_form(*call) ? other_object(*core, name) : model_object(*core, name)).dump()});
}

}  // namespace tutti::api
