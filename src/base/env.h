// Every environment variable that the project reads; getenv is called nowhere else.
#pragma once

#include <optional>
#include <string>

namespace tutti::env {

std::optional<std::string> isa();  // TUTTI_ISA: scalar, avx2, avx512 or neon; absent: the best that the processor has
std::optional<std::string> ops();  // TUTTI_OPS: cpu (own kernels) or graph (plain MLX ops); absent: cpu
std::optional<std::string> api_key();  // TUTTI_API_KEY: as --api-key, without showing it in the process list
bool is_set(const char* name);         // for tests that need a switch of their own

}  // namespace tutti::env
