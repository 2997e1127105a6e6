// Prompts that are computed before the server is ready, so that the first requests find them in the prefix cache.
#pragma once

#include <memory>
#include <string>

#include "api/service.h"

namespace tutti::api {

// lines: one JSON object a line, a body of /v1/chat/completions ("messages") or /v1/completions ("prompt"); empty lines
// are passed over. Each prompt is computed, one after the other, and one token of an answer to it. Throws OptionError
// naming the line and what is wrong with it, before anything is computed, or what went wrong while it was.
void warm_up(std::shared_ptr<const Service> service, const std::string& lines);

}  // namespace tutti::api
