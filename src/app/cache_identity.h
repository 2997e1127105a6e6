// What the bits of a cached prefix depend on, as one number: an entry on disk is of use only to a server with the same.
#pragma once

#include <string>

#include "base/digest.h"
#include "base/thread_pool.h"
#include "model/model.h"
#include "ops/numerics.h"
#include "weights/checkpoint.h"

namespace tutti::app {

struct CacheIdentity {
  const weights::Checkpoint& checkpoint;  // config.json and every tensor: name, type, shape and bytes
  const model::ModelInfo& info;           // whether it drafts
  ops::Numerics numerics;
  std::string isa;  // instruction set of the kernels
};
// Also the program itself, the version of MLX and the processor. Reads all weights once, on all threads of the pool.
Digest256 digest_of(const CacheIdentity& identity, ThreadPool& pool);

}  // namespace tutti::app
