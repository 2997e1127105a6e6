#include "run/shortlist.h"

#include <algorithm>

#include "kernels/matrix.h"

namespace tutti::run {

namespace {

constexpr int kSmallVocab = 65536;    // all of it is cheap
constexpr int kFirstIds = 16384;      // the frequent ones
constexpr int kLastIds = 512;         // control tokens
constexpr size_t kMostTokens = 1024;  // of a row: the last ones

int panel_of(TokenId token) {
  return token / kernels::kPanel;
}

}  // namespace

Shortlist::Shortlist(int vocab) : vocab_(vocab), all_(vocab <= kSmallVocab) {
  if (!all_) clear();
}

void Shortlist::clear() {
  if (all_) return;
  wanted_.assign(static_cast<size_t>(panel_of(vocab_ - 1)) + 1, 0);
  std::fill_n(wanted_.begin(), kFirstIds / kernels::kPanel, 1);
  std::fill(wanted_.begin() + panel_of(vocab_ - kLastIds), wanted_.end(), 1);
  stale_ = true;
}

void Shortlist::add(std::span<const TokenId> tokens) {
  if (all_) return;
  for (const TokenId token : tokens.last(std::min(tokens.size(), kMostTokens)))
    wanted_.at(static_cast<size_t>(panel_of(token))) = 1;
  stale_ = true;
}

const std::vector<ops::PanelRange>& Shortlist::ranges() {
  if (all_ || !std::exchange(stale_, false)) return ranges_;
  ranges_.clear();
  for (int panel = 0; panel < static_cast<int>(wanted_.size()); ++panel) {
    if (wanted_[static_cast<size_t>(panel)] == 0) continue;
    if (!ranges_.empty() && ranges_.back().end == panel)
      ++ranges_.back().end;
    else
      ranges_.push_back({panel, panel + 1});
  }
  return ranges_;
}

TokenId Shortlist::best(const float* logits) {
  if (all_) return static_cast<TokenId>(std::max_element(logits, logits + vocab_) - logits);
  const float* found = nullptr;
  for (const ops::PanelRange& range : ranges()) {
    const float* begin = logits + range.begin * kernels::kPanel;
    const float* end = logits + std::min(vocab_, range.end * kernels::kPanel);
    const float* here = std::max_element(begin, end);
    if (found == nullptr || *here > *found) found = here;
  }
  return static_cast<TokenId>(found - logits);
}

}  // namespace tutti::run
