// Random schedules.
#pragma once

#include "exactness/schedule.h"

namespace tutti::exactness {

// Everything follows from the seed. subject: a name, or empty for one that the seed chooses (mostly the fast ones).
Schedule make_schedule(uint64_t seed, const std::string& subject = {});

}  // namespace tutti::exactness
