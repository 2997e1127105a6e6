// The models that schedules run on.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cache/cache_store.h"
#include "model/model.h"

namespace tutti::exactness {

struct Subject {
  std::string name;
  std::shared_ptr<const model::Model> model;
  ops::Numerics numerics;
  bool fake = false;
  std::vector<std::vector<TokenId>> texts;  // prompts that the model was trained on; empty: none

  std::unique_ptr<cache::CacheStore> make_store(int blocks, int slots) const;
};

// "fake", "canary", "canary-bad-head", "dense", "moe", "dense-affine8", "moe-affine4", "realdims-affine4",
// "dense-float32"; loaded when first asked for. Throws std::out_of_range for another name.
const Subject& subject(const std::string& name);
std::vector<std::string> subject_names();

}  // namespace tutti::exactness
