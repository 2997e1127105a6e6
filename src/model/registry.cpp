// THE list of model types: a new one is a row here and a pair of files of its own.
#include <iterator>

#include "base/error.h"
#include "model/qwen3_5.h"
#include "ops/runtime.h"

namespace tutti::model {
namespace {

using Checkpoint = std::shared_ptr<const weights::Checkpoint>;
using Build = std::shared_ptr<const Model> (*)(Checkpoint, Config, const LoadOptions&);

std::shared_ptr<const Model> qwen3_5(Checkpoint checkpoint, Config config, const LoadOptions& options) {
  return std::make_shared<const Qwen35>(std::move(checkpoint), std::move(config), options);
}

struct Row {
  std::string_view model_type;  // of the text part, as parse_config normalises it
  Build build;
};
constexpr Row kModels[] = {
    {"qwen3_5_text", qwen3_5},
    {"qwen3_5_moe_text", qwen3_5},
};

}  // namespace

ForwardOutput Model::draft(const ops::Step&, const ops::mx::array&, cache::CacheStore&) const {
  throw InvariantError("this model has no head that drafts");
}

std::shared_ptr<const Model> load(Checkpoint checkpoint, const LoadOptions& options) {
  ops::prepare_runtime();
  Config config = parse_config(checkpoint->config_json(), checkpoint->label());
  for (const Row& row : kModels) {
    if (row.model_type == config.model_type) return row.build(std::move(checkpoint), std::move(config), options);
  }
  throw LoadError(checkpoint->label() + ": no model of type " + config.model_type);
}

}  // namespace tutti::model
