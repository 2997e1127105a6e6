// The numeric mode of a server: fixed at start, part of every cache key and of /version.
#pragma once

#include "kernels/table.h"

namespace tutti::ops {

enum class Body { cpu, graph };  // own kernels, or plain MLX ops

struct Numerics {
  Body body = Body::cpu;
  // true: weights as stored, everything else float32 (--dtype float32). false: the default of the CPU bodies — int8
  // inputs for quantised weights, bf16 inputs for bf16 weights; residual stream, norms, states and accumulation
  // float32.
  bool float32 = false;
  kernels::KvType kv = kernels::KvType::bfloat16;
};

// The body that TUTTI_OPS names (cpu when unset). Throws OptionError for an unknown name.
Body body_from_environment();

}  // namespace tutti::ops
