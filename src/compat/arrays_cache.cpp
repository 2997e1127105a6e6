#include "compat/arrays_cache.h"

#include <mlx/ops.h>

#include <utility>

namespace tutti::compat {
namespace {

constexpr const char* kName = "ArraysCache";
using Counter = std::optional<std::vector<int>>;

mx::array zero_rows(const mx::array& like, int rows) {
  mx::Shape shape = like.shape();
  shape[0] = rows;
  return mx::zeros(shape, like.dtype());
}

Counter joined(const Counter& a, int a_rows, const Counter& b, int b_rows) {
  if (!a && !b) return {};
  std::vector<int> out = a.value_or(std::vector<int>(static_cast<size_t>(a_rows), 0));
  const std::vector<int> rest = b.value_or(std::vector<int>(static_cast<size_t>(b_rows), 0));
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace

ArraysCache::ArraysCache(int slots, std::optional<std::vector<int>> left_padding)
    : slots_(static_cast<size_t>(slots)), left_padding_(std::move(left_padding)) {
  require(slots > 0, kName, "no slots");
}

int ArraysCache::rows() const {
  for (const auto& slot : slots_) {
    if (slot) return slot->shape(0);
  }
  if (left_padding_) return static_cast<int>(left_padding_->size());
  return lengths_ ? static_cast<int>(lengths_->size()) : 1;
}

std::optional<mx::array> ArraysCache::make_mask(int n) const {
  require(n >= 0, kName, "negative length " + std::to_string(n));
  const auto token = mx::expand_dims(mx::arange(n), 0);
  if (left_padding_) return mx::greater_equal(token, mx::expand_dims(int_array(*left_padding_), 1));
  if (lengths_) return mx::less(token, mx::expand_dims(int_array(*lengths_), 1));
  return std::nullopt;
}

void ArraysCache::advance(int n) {
  for (auto* counter : {&left_padding_, &lengths_}) {
    if (!*counter) continue;
    for (int& value : **counter) value -= n;
  }
}

void ArraysCache::finalize() {
  left_padding_.reset();
  lengths_.reset();
}

void ArraysCache::filter(const std::vector<int>& rows) {
  require(!rows.empty(), kName, "filter keeps no row");
  for (const int row : rows) {
    require(row >= 0 && row < this->rows(), kName,
            "row " + std::to_string(row) + " of " + std::to_string(this->rows()) + " rows");
  }
  const auto index = int_array(rows);
  for (auto& slot : slots_) {
    if (slot) slot = mx::take(*slot, index, 0);
  }
  for (auto* counter : {&left_padding_, &lengths_}) {
    if (!*counter) continue;
    std::vector<int> kept;
    for (const int row : rows) kept.push_back((**counter)[static_cast<size_t>(row)]);
    *counter = std::move(kept);
  }
}

void ArraysCache::extend(const ArraysCache& other) {
  require(slots_.size() == other.slots_.size(), kName, "extend by another number of slots");
  require(!lengths_ == !other.lengths_, kName, "extend before finalize(): only one side has lengths");
  const int own = rows(), more = other.rows();
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto &a = slots_[i], &b = other.slots_[i];
    if (!a && !b) continue;
    slots_[i] = mx::concatenate({a ? *a : zero_rows(*b, own), b ? *b : zero_rows(*a, more)}, 0);
  }
  left_padding_ = joined(left_padding_, own, other.left_padding_, more);
  lengths_ = joined(lengths_, own, other.lengths_, more);
}

ArraysCache ArraysCache::extract(int row) const {
  require(row >= 0 && row < rows(), kName, "row " + std::to_string(row) + " of " + std::to_string(rows()) + " rows");
  ArraysCache one(static_cast<int>(slots_.size()));
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i]) one.slots_[i] = cut(*slots_[i], 0, row, row + 1);
  }
  return one;
}

ArraysCache ArraysCache::merge(std::span<const ArraysCache* const> members) {
  require(!members.empty(), kName, "merge of no caches");
  ArraysCache made(static_cast<int>(members[0]->slots_.size()));
  bool all_empty = true;
  for (const auto* member : members) {
    require(member->slots_.size() == made.slots_.size(), kName, "merge of caches with different numbers of slots");
    all_empty = all_empty && member->empty();
  }
  if (all_empty) {
    made.left_padding_ = std::vector<int>(members.size(), 0);
    return made;
  }
  for (size_t i = 0; i < made.slots_.size(); ++i) {
    const mx::array* like = nullptr;
    for (const auto* member : members) {
      if (like == nullptr && member->slots_[i]) like = &*member->slots_[i];
    }
    if (like == nullptr) continue;
    std::vector<mx::array> rows;
    for (const auto* member : members) rows.push_back(member->slots_[i] ? *member->slots_[i] : zero_rows(*like, 1));
    made.slots_[i] = mx::concatenate(rows, 0);
  }
  return made;
}

}  // namespace tutti::compat
