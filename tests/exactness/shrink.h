// A smaller schedule that still fails.
#pragma once

#include <functional>

#include "exactness/schedule.h"

namespace tutti::exactness {

// fails: whether a schedule fails; called up to `tries` times.
Schedule shrunk(Schedule schedule, const std::function<bool(const Schedule&)>& fails, int tries = 2000);

}  // namespace tutti::exactness
