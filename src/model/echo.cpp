// The fake model of the tests above: a fixed function of (token, position), with caches asked for and left untouched.
#include <algorithm>
#include <stdexcept>

#include "model/model.h"

namespace tutti::model {
namespace {

class Echo : public Model {
 public:
  Echo(int vocab, std::vector<int32_t> throw_on) : throw_on_(std::move(throw_on)) {
    info_ = {
        .name = "echo", .vocab = vocab, .logits = vocab, .max_positions = 1 << 20, .weight_bytes = 0, .format = "none"};
  }

  const ModelInfo& info() const override { return info_; }

  cache::CacheSpecs cache_specs() const override {
    cache::LayerSpec paged, linear;
    paged.kv = {.kv_heads = 1, .head_dim = 16, .bytes_per_value = 2};
    linear.state = {.value_heads = 1, .key_dim = 16, .value_dim = 16, .conv_channels = 48};
    return {linear, paged};
  }

  ForwardOutput forward(const ops::Step& step, cache::CacheStore&) const override {
    const ops::StepBatch& batch = step->batch;
    ops::check_batch("echo", batch);
    for (const int32_t token : batch.tokens) {
      if (std::find(throw_on_.begin(), throw_on_.end(), token) != throw_on_.end()) {
        throw std::runtime_error("[echo] token " + std::to_string(token));
      }
    }
    std::vector<float> logits;
    logits.reserve(static_cast<size_t>(batch.L()) * info_.vocab);
    int r = 0;
    for (const int32_t t : batch.logits_of) {
      while (batch.row_begin[r + 1] <= t) ++r;
      append_row(batch.tokens[t], batch.first[r] + t - batch.row_begin[r], logits);
    }
    return {ops::mx::array(logits.begin(), {batch.L(), info_.vocab}, ops::mx::float32)};
  }

 private:
  // 8 for the next token, values in [0, 4) for the others.
  void append_row(int64_t token, int64_t position, std::vector<float>& logits) const {
    const int64_t next = (3 * token + position + 1) % info_.vocab;
    for (int64_t id = 0; id < info_.vocab; ++id) {
      const auto hash = static_cast<uint32_t>(id * 2654435761u + token * 40503u + position * 9176u);
      logits.push_back(id == next ? 8.0f : static_cast<float>((hash >> 8) % 1024) / 256.0f);
    }
  }

  std::vector<int32_t> throw_on_;
  ModelInfo info_;
};

}  // namespace

std::shared_ptr<const Model> make_echo(int vocab, std::vector<int32_t> throw_on) {
  return std::make_shared<const Echo>(vocab, std::move(throw_on));
}

}  // namespace tutti::model
