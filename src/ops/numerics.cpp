#include "ops/numerics.h"

#include "base/env.h"
#include "base/error.h"

namespace tutti::ops {

Body body_from_environment() {
  const auto name = env::ops();
  if (!name || *name == "cpu") return Body::cpu;
  if (*name == "graph") return Body::graph;
  throw OptionError("TUTTI_OPS=" + *name + ": unknown; it is cpu (own kernels) or graph (plain MLX operations)");
}

}  // namespace tutti::ops
