#pragma once

namespace tutti::app {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace tutti::app
