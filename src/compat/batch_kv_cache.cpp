#include "compat/batch_kv_cache.h"

#include <mlx/ops.h>

#include <algorithm>
#include <utility>

namespace tutti::compat {
namespace {

constexpr const char* kName = "BatchKVCache";

std::vector<int> plus(std::vector<int> a, const std::vector<int>& b, int sign) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += sign * b[i];
  return a;
}

void add(std::vector<int>& values, int n) {
  for (int& v : values) v += n;
}

std::vector<int> picked(const std::vector<int>& values, const std::vector<int>& rows) {
  std::vector<int> out;
  for (const int row : rows) out.push_back(values[static_cast<size_t>(row)]);
  return out;
}

// x [B, G, S, D] with row b rotated right by padding[b] along the whole of S.
mx::array rolled(const mx::array& x, const std::vector<int>& padding) {
  const int S = x.shape(2);
  const auto from = mx::expand_dims(mx::arange(S), 0) - mx::expand_dims(int_array(padding), 1);
  const auto index = mx::remainder(from, mx::array(S));  // [B, S]
  return mx::take_along_axis(x, mx::expand_dims(index, {1, 3}), 2);
}

}  // namespace

BatchKVCache::BatchKVCache(std::vector<int> left_padding) : left_padding_(std::move(left_padding)) {
  require(!left_padding_.empty(), kName, "no rows");
  for (const int pad : left_padding_) {
    require(pad >= 0, kName, "negative padding " + std::to_string(pad));
    offset_.push_back(-pad);
  }
}

void BatchKVCache::require_rows(const char* function, const std::vector<int>& per_row) const {
  require(static_cast<int>(per_row.size()) == rows(), function,
          std::to_string(per_row.size()) + " values for " + std::to_string(rows()) + " rows");
  for (const int n : per_row) require(n >= 0, function, "negative length " + std::to_string(n));
}

KeysValues BatchKVCache::update_and_fetch(const mx::array& keys, const mx::array& values) {
  require_keys_values(kName, keys, values);
  require(keys.shape(0) == rows(), kName, "keys " + text_of(keys.shape()) + " for " + std::to_string(rows()) + " rows");
  const int n = keys.shape(2);
  if (window_left_) {
    require(n <= *window_left_, kName, "more tokens than the window was prepared for; finalize() comes first");
    *window_left_ -= n;
  }
  append_time(keys_, keys, fill_);
  append_time(values_, values, fill_);
  fill_ += n;
  add(offset_, n);
  return {this->keys(), this->values()};
}

void BatchKVCache::prepare(const Window& window) {
  if (!window.left_padding.empty()) {
    require(empty(), kName, "left padding can only be added to an empty cache");
    require_rows(kName, window.left_padding);
    left_padding_ = plus(left_padding_, window.left_padding, 1);
    offset_ = plus(offset_, window.left_padding, -1);
  }
  if (window.right_padding.empty()) return;
  require_rows(kName, window.right_padding);
  if (*std::max_element(window.right_padding.begin(), window.right_padding.end()) == 0) return;
  right_padding_ = window.right_padding;
  if (window.lengths.empty()) return;
  require_rows(kName, window.lengths);
  const auto columns = plus(window.lengths, window.right_padding, 1);
  for (const int n : columns) {
    require(n == columns[0], kName, "lengths and right padding of the rows don't add up to one width");
  }
  window_left_ = columns[0];
}

void BatchKVCache::finalize() {
  window_left_.reset();
  if (right_padding_.empty()) return;
  const auto padding = std::exchange(right_padding_, {});
  if (!empty()) {
    keys_ = rolled(*keys_, padding);
    values_ = rolled(*values_, padding);
  }
  offset_ = plus(offset_, padding, -1);
  left_padding_ = plus(left_padding_, padding, 1);
}

int BatchKVCache::trim(int n) {
  require(n >= 0, kName, "negative length " + std::to_string(n));
  const int m = std::min(fill_, n);
  fill_ -= m;
  add(offset_, -m);
  if (window_left_) *window_left_ += m;
  return m;
}

mx::array BatchKVCache::make_mask(int n, std::optional<int> window) const {
  return causal_mask({.queries = n, .offset = fill_, .window = window, .left_padding = left_padding_});
}

void BatchKVCache::filter(const std::vector<int>& rows) {
  require(!rows.empty(), kName, "filter keeps no row");
  for (const int row : rows) {
    require(row >= 0 && row < this->rows(), kName,
            "row " + std::to_string(row) + " of " + std::to_string(this->rows()) + " rows");
  }
  if (!empty()) {
    const auto index = int_array(rows);
    keys_ = mx::take(*keys_, index, 0);
    values_ = mx::take(*values_, index, 0);
  }
  offset_ = picked(offset_, rows);
  left_padding_ = picked(left_padding_, rows);
  if (!right_padding_.empty()) right_padding_ = picked(right_padding_, rows);
  const int shared = std::min(fill_, *std::min_element(left_padding_.begin(), left_padding_.end()));
  if (shared <= 0) return;
  keys_ = cut(*keys_, 2, shared, capacity());
  values_ = cut(*values_, 2, shared, values_->shape(2));
  fill_ -= shared;
  add(left_padding_, -shared);
}

mx::array BatchKVCache::justified(const std::optional<mx::array>& own, const mx::array& like, int left,
                                  int capacity) const {
  if (!own) return mx::zeros({rows(), like.shape(1), capacity, like.shape(3)}, like.dtype());
  auto x = cut(*own, 2, 0, std::min(own->shape(2), capacity - left));
  const int right = capacity - left - x.shape(2);
  if (left == 0 && right == 0) return x;
  return mx::pad(x, {{0, 0}, {0, 0}, {left, right}, {0, 0}});
}

void BatchKVCache::extend(const BatchKVCache& other) {
  require(right_padding_.empty() && other.right_padding_.empty(), kName, "extend before finalize()");
  const auto both = [](std::vector<int> a, const std::vector<int>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const int columns = std::max(fill_, other.fill_);
  auto own_padding = left_padding_, other_padding = other.left_padding_;
  if (!empty() || !other.empty()) {
    const int capacity = std::max(this->capacity(), other.capacity());
    const auto joined = [&](const std::optional<mx::array>& a, const std::optional<mx::array>& b) {
      const mx::array& like = a ? *a : *b;
      return mx::concatenate(
          {justified(a, like, columns - fill_, capacity), other.justified(b, like, columns - other.fill_, capacity)},
          0);
    };
    const bool fit = empty() || other.empty() ||
                     (keys_->shape(1) == other.keys_->shape(1) && keys_->shape(3) == other.keys_->shape(3) &&
                      values_->shape(3) == other.values_->shape(3));
    require(fit, kName, "extend of caches whose heads don't fit");
    auto keys = joined(keys_, other.keys_), values = joined(values_, other.values_);
    keys_ = std::move(keys);
    values_ = std::move(values);
    add(own_padding, columns - fill_);
    add(other_padding, columns - other.fill_);
  }
  left_padding_ = both(std::move(own_padding), other_padding);
  offset_ = both(std::move(offset_), other.offset_);
  fill_ = columns;
}

KVCache BatchKVCache::extract(int row) const {
  require(row >= 0 && row < rows(), kName, "row " + std::to_string(row) + " of " + std::to_string(rows()) + " rows");
  if (empty()) return {};
  const int pad = std::min(left_padding_[static_cast<size_t>(row)], fill_);
  const auto one = [&](const mx::array& x) { return mx::contiguous(cut(cut(x, 0, row, row + 1), 2, pad, fill_)); };
  return KVCache(one(*keys_), one(*values_));
}

BatchKVCache BatchKVCache::merge(std::span<const KVCache* const> members) {
  require(!members.empty(), kName, "merge of no caches");
  int longest = 0;
  const KVCache* first = nullptr;  // with content: gives heads, dims and dtype
  for (const auto* member : members) {
    longest = std::max(longest, member->size());
    if (first == nullptr && member->size() > 0) first = member;
  }
  std::vector<int> padding;
  for (const auto* member : members) padding.push_back(longest - member->size());
  BatchKVCache made(padding);
  if (first == nullptr) return made;
  const auto merged = [&](auto part) {
    std::vector<mx::array> rows;
    const auto like = part(*first);
    for (size_t b = 0; b < members.size(); ++b) {
      mx::Shape shape = like.shape();
      shape[0] = 1;
      shape[2] = padding[b];
      std::vector<mx::array> pieces{mx::zeros(shape, like.dtype())};
      if (members[b]->size() > 0) {
        pieces.push_back(mx::astype(part(*members[b]), like.dtype()));
        shape[2] = members[b]->size();
        require(pieces[1].shape() == shape, kName,
                "merge of " + text_of(pieces[1].shape()) + ", expected " + text_of(shape));
      }
      rows.push_back(mx::concatenate(pieces, 2));
    }
    return mx::concatenate(rows, 0);
  };
  made.keys_ = merged([](const KVCache& c) { return c.keys(); });
  made.values_ = merged([](const KVCache& c) { return c.values(); });
  made.fill_ = longest;
  add(made.offset_, longest);
  return made;
}

void BatchKVCache::set_state(mx::array keys, mx::array values, std::vector<int> offset, std::vector<int> left_padding) {
  require_keys_values(kName, keys, values);
  require(keys.shape(0) == static_cast<int>(offset.size()) && offset.size() == left_padding.size(), kName,
          "state of keys " + text_of(keys.shape()) + " with " + std::to_string(offset.size()) + " offsets and " +
              std::to_string(left_padding.size()) + " paddings");
  fill_ = keys.shape(2);
  for (size_t b = 0; b < offset.size(); ++b) {
    require(offset[b] + left_padding[b] == fill_, kName, "state whose offsets and padding don't add up to its length");
  }
  keys_ = std::move(keys);
  values_ = std::move(values);
  offset_ = std::move(offset);
  left_padding_ = std::move(left_padding);
  right_padding_.clear();
  window_left_.reset();
}

}  // namespace tutti::compat
