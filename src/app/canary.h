// The embedded default model: a trained toy of the same architecture, linked into the binary.
#pragma once

#include <memory>

#include "weights/checkpoint.h"

namespace tutti::app {

std::shared_ptr<const weights::Checkpoint> open_canary();
// The canary's chat template, for checkpoints that bring none.
std::string canary_chat_template();

}  // namespace tutti::app
