// How much memory there is.
#pragma once

#include <cstdint>

namespace tutti {

// Bytes that a new allocation may take without swapping: MemAvailable, limited by the container's memory limit.
int64_t available_memory();

}  // namespace tutti
