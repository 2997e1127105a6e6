#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace tutti {
namespace {

int64_t meminfo_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return int64_t{1} << 30;
}

int64_t read_number(const char* path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : otherwise;  // "max" does not parse: no limit
}

int64_t cgroup_available() {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const int64_t limit =
      read_number("/sys/fs/cgroup/memory.max", read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", kNone));
  const int64_t used =
      read_number("/sys/fs/cgroup/memory.current", read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 0));
  return limit == kNone ? kNone : std::max<int64_t>(limit - used, 0);
}

}  // namespace

int64_t available_memory() {
  return std::min(meminfo_available(), cgroup_available());
}

}  // namespace tutti
