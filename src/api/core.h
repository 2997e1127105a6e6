// What all endpoints share while the server runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/backend.h"
#include "api/in_flight.h"
#include "api/request_fields.h"
#include "api/service.h"
#include "api/thinking.h"

namespace tutti::api {

struct Core {
  // Throws OptionError when an option or a generation default can't be used.
  Core(std::shared_ptr<const Service> service, std::unique_ptr<Backend> backend);

  const std::shared_ptr<const Service> service;
  const std::unique_ptr<Backend> backend;
  const RequestReader reader;
  const SamplingDefaults defaults;
  const Json default_kwargs;
  const TemplateNames template_names;
  InFlight in_flight;

  const std::string& model_name() const { return service->options.served_model_names.front(); }
  // The served name that the request means (empty: the first), or model_not_found.
  Result<std::string, ApiError> accepted_model(const std::string& wished) const;
};

// make_handler with another engine behind it.
http::Handler make_handler_on(std::shared_ptr<const Service> service, std::unique_ptr<Backend> backend);

}  // namespace tutti::api
