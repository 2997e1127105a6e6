// Times whole steps of a model: decoding with 1 and 8 rows and a prompt of 512 tokens, beside the memory-read roof of
// the same run. Without an argument the model has random weights in the 0.8B shape; with one, it is the folder named.
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

class Driver {
 public:
  Driver(std::shared_ptr<const model::Model> model, ThreadPool& pool, int rows, int max_tokens)
      : model_(std::move(model)),
        pool_(pool),
        blocks_((max_tokens + cache::kBlockTokens - 1) / cache::kBlockTokens),
        store_(cache::make_store(model_->cache_specs(), rows * blocks_, rows, {})) {}

  // n tokens for each of `rows` sequences at position `first`; the last of each wants logits.
  void step(int rows, int first, int n) {
    ops::StepContext context;
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
    auto out = model_->forward(std::make_shared<const ops::StepContext>(std::move(context)), *store_);
    ops::mx::eval(out.logits);
  }

 private:
  std::shared_ptr<const model::Model> model_;
  ThreadPool& pool_;
  int blocks_;
  std::unique_ptr<cache::CacheStore> store_;
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
  const auto begin = Clock::now();
  const auto model = model::load(random ? random->checkpoint : weights::Checkpoint::open(folder), options);
  fmt::print("{}: {}, {:.1f} MB packed in {:.2f} s\n", model->info().name, model->info().format,
             static_cast<double>(model->info().weight_bytes) * 1e-6, seconds_since(begin));
  random.reset();
  Driver driver(model, pool, 8, 576);
  for (const int rows : {1, 2, 4, 8}) report_decode(driver, *model, rows, roof);
  report_prompt(driver, 512);
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
