#include "exactness/generate.h"

#include <algorithm>
#include <initializer_list>
#include <random>

#include "exactness/subject.h"
#include "kernels/table.h"

namespace tutti::exactness {

namespace {

class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool one_in(int n) { return below(n) == 0; }
  template <class T>
  T pick(std::initializer_list<T> of) {
    return *(of.begin() + below(static_cast<int>(of.size())));
  }
  uint64_t number() { return random_(); }

 private:
  std::mt19937_64 random_;
};

std::string pick_subject(Chance& chance) {
  const int n = chance.below(100);
  if (n < 70) return "fake";
  if (n < 76) return "dense";
  if (n < 80) return "moe";
  if (n < 84) return "dense-affine8";
  if (n < 88) return "moe-affine4";
  if (n < 91) return "realdims-affine4";
  if (n < 93) return "dense-float32";
  return n < 98 ? "canary" : "canary-bad-head";
}

std::string pick_isa(Chance& chance) {
  std::vector<kernels::Isa> all = kernels::available();
  std::erase(all, kernels::Isa::reference);
  // The best most often: it is what people run.
  const size_t i = chance.one_in(2) ? all.size() - 1 : static_cast<size_t>(chance.below(static_cast<int>(all.size())));
  return std::string(kernels::isa_name(all[i]));
}

// Beginnings that several requests share.
std::vector<std::vector<TokenId>> make_pool(Chance& chance, const Subject& s, int longest) {
  std::vector<std::vector<TokenId>> pool;
  for (int i = 0; i < 3; ++i) {
    auto& ids = pool.emplace_back();
    while (static_cast<int>(ids.size()) < longest) {
      if (s.texts.empty()) {
        ids.push_back(chance.below(s.model->info().vocab));
      } else {
        const auto& text = s.texts[static_cast<size_t>(chance.below(static_cast<int>(s.texts.size())))];
        ids.insert(ids.end(), text.begin(), text.end());
      }
    }
  }
  return pool;
}

std::vector<TokenId> make_prompt(Chance& chance, const Subject& s, const std::vector<std::vector<TokenId>>& pool,
                                 int longest) {
  if (!s.texts.empty() && chance.one_in(2))
    return s.texts[static_cast<size_t>(chance.below(static_cast<int>(s.texts.size())))];
  const auto& base = pool[static_cast<size_t>(chance.below(3))];
  const int shared = chance.pick({0, 1, 63, 64, 65, 128, chance.between(0, longest), chance.between(0, longest)});
  std::vector<TokenId> prompt(base.begin(), base.begin() + std::min(shared, longest));
  const int own = chance.pick({0, 1, chance.below(20), chance.below(80)});
  for (int i = 0; i < own; ++i) prompt.push_back(chance.below(s.model->info().vocab));
  if (prompt.empty()) prompt.push_back(chance.below(s.model->info().vocab));
  return prompt;
}

std::vector<TokenId> some_ids(Chance& chance, int vocab, int most) {
  std::vector<TokenId> ids;
  for (int i = chance.between(1, most); i > 0; --i) ids.push_back(chance.below(vocab));
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

void make_sampling(Chance& chance, int vocab, Job& job) {
  sample::SamplingParams& p = job.sampling;
  p.temperature = chance.pick({0.0f, 0.0f, 0.3f, 1.0f, 1.7f});
  p.top_k = chance.pick({0, 0, 1, 5, 40});
  p.top_p = chance.pick({1.0f, 1.0f, 0.9f, 0.5f, 0.0f});
  p.min_p = chance.pick({0.0f, 0.0f, 0.05f});
  p.seed = chance.number();
  if (chance.one_in(4)) p.presence_penalty = chance.pick({-1.0f, 0.7f});
  if (chance.one_in(4)) p.frequency_penalty = chance.pick({-0.5f, 0.4f});
  if (chance.one_in(4)) p.repetition_penalty = chance.pick({0.8f, 1.3f});
  if (chance.one_in(4))
    for (const TokenId id : some_ids(chance, vocab, 4)) p.logit_bias.emplace_back(id, chance.pick({-100.0f, 3.0f}));
  if (chance.one_in(3)) job.stop_ids = some_ids(chance, vocab, 3);
  if (chance.one_in(4)) {
    p.min_tokens = chance.below(12);
    p.blocked_early = job.stop_ids;
  }
  if (chance.one_in(8)) p.bad_words = {some_ids(chance, vocab, 2), {static_cast<TokenId>(chance.below(vocab))}};
  if (chance.one_in(10)) {
    p.allowed.resize(static_cast<size_t>(vocab / 2));
    for (size_t i = 0; i < p.allowed.size(); ++i) p.allowed[i] = static_cast<TokenId>(2 * i);
    p.bad_words.clear();
  }
  if (chance.one_in(8)) {
    job.brackets = true;
    job.stop_ids = {10};
    p.allowed.clear();
    p.bad_words.clear();
    p.min_tokens = 0;
  }
  if (!chance.one_in(4)) {
    p.logprobs = true;
    p.top_logprobs = chance.below(6);
    if (chance.one_in(8)) p.logprob_ids = some_ids(chance, vocab, 3);
  }
  if (chance.one_in(10)) p.prompt_logprobs = chance.pick({0, 3});
}

void make_engine(Chance& chance, Setting& s, int longest) {
  s.threads = chance.between(1, 3);
  s.rows = s.slots = chance.between(1, 8);
  s.max_model_len = longest;
  const int row = (longest + 63) / 64;
  s.blocks = chance.one_in(2) ? row + chance.below(5) : row * (1 + chance.below(s.rows)) + chance.below(20);
  s.cap = chance.pick({1, 2, 3, 7, 16, 17, 64, 100, 257, 2048, 2048, 2048});
  s.prefix_caching = !chance.one_in(8);
  s.snapshots = s.prefix_caching ? chance.pick({0, 1, 2, 4, 8, 16}) : 0;
  s.snapshot_every = chance.pick({64, 128, 192});
  s.drafts = chance.pick({0, 1, 2, 3, 6});
  s.draft_slots = s.drafts * chance.between(1, s.rows);
  s.adapt_drafts = chance.one_in(5);
  if (chance.one_in(6)) s.fails_at = chance.below(30);
  s.lives = chance.pick({1, 2, 2, 3});
  s.disk = s.snapshots > 0 && (s.lives > 1 ? !chance.one_in(4) : chance.one_in(2));
  if (chance.one_in(4)) s.disk_bytes = 60'000;
}

}  // namespace

Schedule make_schedule(uint64_t seed, const std::string& name) {
  Chance chance(seed);
  Schedule made{.seed = seed};
  made.setting.subject = name.empty() ? pick_subject(chance) : name;
  const Subject& s = subject(made.setting.subject);
  made.setting.isa = s.fake ? std::string("scalar") : pick_isa(chance);
  const int vocab = s.model->info().vocab, longest = s.fake || chance.one_in(3) ? 400 : 160;
  const auto pool = make_pool(chance, s, longest);
  int longest_job = 1;
  for (int i = chance.between(2, 12); i > 0; --i) {
    Job& job = made.jobs.emplace_back();
    job.prompt = make_prompt(chance, s, pool, longest);
    job.max_tokens = chance.pick({1, 2, chance.between(1, 12), chance.between(1, 60)});
    job.choices = chance.one_in(5) ? chance.between(2, 3) : 1;
    make_sampling(chance, vocab, job);
    job.max_drafts = chance.pick({8, 8, 8, 2, 0});
    job.use_prefix_cache = !chance.one_in(10);
    if (chance.one_in(8)) job.cache_salt = "other";
    for (int at = chance.between(5, 100); at < static_cast<int>(job.prompt.size()); at += chance.between(5, 100))
      job.boundaries.push_back(at);
    job.priority = chance.one_in(5) ? chance.between(-1, 1) : 0;
    job.arrives = chance.one_in(3) ? 0 : chance.below(60);
    if (chance.one_in(8))
      job.aborts = job.arrives + chance.below(40);
    else if (chance.one_in(12))
      job.stops = job.arrives + chance.below(40);
    longest_job = std::max(longest_job, static_cast<int>(job.prompt.size()) + job.max_tokens);
  }
  make_engine(chance, made.setting, longest_job + chance.below(40));
  for (Job& job : made.jobs) job.life = chance.below(made.setting.lives);
  return made;
}

}  // namespace tutti::exactness
