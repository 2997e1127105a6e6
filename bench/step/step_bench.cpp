// Times whole steps of a model: decoding with 1 to 8 rows, a prompt of 512 tokens, and rounds of speculation, beside
// the memory-read roof of the same run. Without an argument the model has random weights in the 0.8B shape; with one,
// it is the folder named.
//
//   bench_step [MODEL_FOLDER] [--threads N]
//   bench_step --write FOLDER --tokenizer MODEL_FOLDER: only writes those random weights as a folder to be served
#include <fmt/format.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "cache/cache_store.h"
#include "model/model.h"
#include "run/shortlist.h"
#include "step/random_checkpoint.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Bytes per second of reading memory that no cache holds, all threads.
double read_roof(ThreadPool& pool) {
  constexpr int64_t kBytes = int64_t{1} << 30, kTile = 1 << 20;
  const AlignedBuffer memory(kBytes);
  std::memset(const_cast<void*>(memory.data()), 1, kBytes);
  std::vector<uint64_t> sums(static_cast<size_t>(pool.threads()) * 16);
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto begin = Clock::now();
    pool.run(static_cast<int>(kBytes / kTile), [&](int tile, int thread) {
      const auto* p = memory.as<uint64_t>() + tile * (kTile / 8);
      uint64_t sum[8] = {};
      for (int64_t i = 0; i < kTile / 8; i += 8) {
        for (int j = 0; j < 8; ++j) sum[j] += p[i + j];
      }
      sums[static_cast<size_t>(thread) * 16] += std::accumulate(sum, sum + 8, uint64_t{0});
    });
    best = std::min(best, seconds_since(begin));
  }
  return static_cast<double>(kBytes) / best;
}

constexpr int kMostDrafts = 3;

class Driver {
 public:
  Driver(std::shared_ptr<const model::Model> model, ThreadPool& pool, int rows, int max_tokens)
      : model_(std::move(model)),
        pool_(pool),
        blocks_((max_tokens + cache::kBlockTokens - 1) / cache::kBlockTokens),
        store_(cache::make_store(model_->cache_specs(), rows * blocks_, rows * (1 + kMostDrafts), {})) {}

  // n tokens for each of `rows` sequences at position `first`; the last of each wants logits.
  void step(int rows, int first, int n) {
    const auto context = make_step(rows, first, n);
    auto out = model_->forward(context, *store_);
    ops::mx::eval(out.logits);
  }

  // A round of speculation: every row verifies k guesses, with the states between them kept, and the head guesses k
  // more, of the tokens of a shortlist.
  void round(int rows, int first, int k) {
    const auto verify = make_step(rows, first, 1 + k);
    ops::StepBatch& b = verify->batch;
    b.logits_of.resize(static_cast<size_t>(b.T()));
    std::iota(b.logits_of.begin(), b.logits_of.end(), 0);
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < k; ++i) b.emits.push_back({b.row_begin[r] + i, 8 + r * kMostDrafts + i});
    auto out = model_->forward(verify, *store_);
    ops::mx::eval(out.logits, *out.hidden);
    run::Shortlist shortlist(model_->info().vocab);
    for (int i = 0; i < k; ++i) {
      const auto pass = make_step(rows, first + i, 1);
      pass->head_ranges = shortlist.ranges();
      const int H = model_->info().hidden;
      const ops::mx::array hidden(out.hidden->data<float>(), {rows, H}, ops::mx::float32);
      auto guess = model_->draft(pass, hidden, *store_);
      ops::mx::eval(guess.logits, *guess.hidden);
      guesses_ += shortlist.best(guess.logits.data<float>());
    }
  }
  int64_t guesses() const { return guesses_; }

 private:
  std::shared_ptr<ops::StepContext> make_step(int rows, int first, int n) const {
    auto made = std::make_shared<ops::StepContext>();
    ops::StepContext& context = *made;
    ops::StepBatch& b = context.batch;
    b.row_begin = b.block_begin = {0};
    for (int r = 0; r < rows; ++r) {
      for (int t = 0; t < n; ++t) b.tokens.push_back((7919 * (first + t) + 31 * r) % model_->info().vocab);
      b.row_begin.push_back(b.T());
      b.first.push_back(first);
      for (int i = 0; i < blocks_; ++i) b.block_table.push_back(r * blocks_ + i);
      b.block_begin.push_back(static_cast<int32_t>(b.block_table.size()));
      b.slot.push_back(r);
      b.logits_of.push_back(b.T() - 1);
    }
    for (int axis = 0; axis < 3; ++axis) {
      for (int r = 0; r < rows; ++r) {
        for (int t = 0; t < n; ++t) b.positions.push_back(first + t);
      }
    }
    context.pool = &pool_;
    context.table = &kernels::select();
    return made;
  }

  std::shared_ptr<const model::Model> model_;
  ThreadPool& pool_;
  int blocks_;
  std::unique_ptr<cache::CacheStore> store_;
  int64_t guesses_ = 0;  // so that none is optimised away
};

struct Times {
  double best, median;
};
// Seconds of a decode step of `rows` rows after a context of 64 tokens.
Times decode(Driver& driver, int rows, int steps) {
  driver.step(rows, 0, 64);
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    driver.step(rows, 64 + i, 1);
    times.push_back(seconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

void report_decode(Driver& driver, const model::Model& model, int rows, double roof) {
  const Times t = decode(driver, rows, 48);
  // Weights once (a tied embedding is read as the head), every row's states read and written.
  const double bytes = static_cast<double>(model.info().weight_bytes) +
                       2.0 * rows * static_cast<double>(cache::bytes_per_slot(model.cache_specs()));
  fmt::print(
      "decode {:2} row{}   {:8.3f} ms median {:8.3f} ms best  {:7.1f} tok/s  {:5.1f} GB/s = {:3.0f} % of the roof\n",
      rows, rows > 1 ? "s" : " ", t.median * 1e3, t.best * 1e3, rows / t.median, bytes / t.median * 1e-9,
      100 * bytes / t.median / roof);
}

// What speculation would give at an acceptance of so much per guess, from the times of rounds and of plain steps in
// turn.
void report_speculation(Driver& driver, int rows, int k) {
  driver.step(rows, 0, 64);
  std::vector<double> plain, round;
  for (int i = 0; i < 24; ++i) {
    auto begin = Clock::now();
    driver.step(rows, 64 + i, 1);
    plain.push_back(seconds_since(begin));
    begin = Clock::now();
    driver.round(rows, 64 + i, k);
    round.push_back(seconds_since(begin));
  }
  std::sort(plain.begin(), plain.end());
  std::sort(round.begin(), round.end());
  const double ratio = plain[plain.size() / 2] / round[round.size() / 2];
  fmt::print("{} guess{} a row, {} row{}: {:.2f} ms a round, plain {:.2f} ms;", k, k > 1 ? "es" : "", rows,
             rows > 1 ? "s" : "", round[round.size() / 2] * 1e3, plain[plain.size() / 2] * 1e3);
  for (const double accepted : {0.0, 0.6, 0.8, 0.9, 1.0}) {
    double tokens = 1, all = 1;
    for (int i = 0; i < k; ++i) tokens += all *= accepted;
    fmt::print("  {:.2f} x at {:.1f}", tokens * ratio, accepted);
  }
  fmt::print("\n");
}

void report_prompt(Driver& driver, int tokens) {
  std::vector<double> times;
  for (int i = 0; i < 4; ++i) {
    const auto begin = Clock::now();
    driver.step(1, 0, tokens);
    times.push_back(seconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  fmt::print("prompt {:4}     {:8.1f} ms median {:8.1f} ms best  {:7.1f} tok/s\n", tokens,
             times[times.size() / 2] * 1e3, times.front() * 1e3, tokens / times[times.size() / 2]);
}

int run(const std::string& folder, int threads) {
  ThreadPool pool(threads);
  const double roof = read_roof(pool);
  fmt::print("threads {}, kernels {}, memory read roof {:.1f} GB/s\n", threads,
             kernels::isa_name(kernels::select().isa), roof * 1e-9);
  std::unique_ptr<RandomCheckpoint> random;
  if (folder.empty()) random = make_random_checkpoint();
  model::LoadOptions options;
  options.pool = &pool;
  options.drafts = true;
  const auto begin = Clock::now();
  const auto model = model::load(random ? random->checkpoint : weights::Checkpoint::open(folder), options);
  fmt::print("{}: {}, {:.1f} MB packed in {:.2f} s\n", model->info().name, model->info().format,
             static_cast<double>(model->info().weight_bytes) * 1e-6, seconds_since(begin));
  random.reset();
  Driver driver(model, pool, 8, 576);
  for (const int rows : {1, 2, 4, 8}) report_decode(driver, *model, rows, roof);
  report_prompt(driver, 512);
  if (!model->info().drafts) return 0;
  for (const int rows : {1, 8})
    for (const int k : {1, 3}) report_speculation(driver, rows, k);
  return 0;
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  std::string folder, write_to, tokenizer;
  int threads = tutti::available_cpus();
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--threads" && i + 1 < argc)
      threads = std::stoi(argv[++i]);
    else if (std::string(argv[i]) == "--write" && i + 1 < argc)
      write_to = argv[++i];
    else if (std::string(argv[i]) == "--tokenizer" && i + 1 < argc)
      tokenizer = argv[++i];
    else
      folder = argv[i];
  }
  try {
    if (!write_to.empty()) {
      tutti::bench::write_random_checkpoint(write_to, tokenizer);
      return 0;
    }
    return tutti::bench::run(folder, threads);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
