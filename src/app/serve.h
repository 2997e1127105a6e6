// `tutti serve`: binds first (a busy port is told before weights are read), loads, serves, drains on SIGTERM.
#pragma once

#include "app/options.h"

namespace tutti::app {

// Returns the exit code. Throws OptionError and LoadError for what can't be used.
int serve(const ServeOptions& options);

}  // namespace tutti::app
