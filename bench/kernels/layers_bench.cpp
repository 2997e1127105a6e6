// Attention, delta rule, norms and the rest on one thread: time per call and what the hardware would bound it by.
//   bench_layers --benchmark_filter=avx512/
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/bfloat16.h"
#include "kernels/table.h"

namespace tutti::kernels {
namespace {

std::vector<float> normal(size_t n, float scale = 1) {
  static std::mt19937 generator(1);
  std::normal_distribution<float> distribution(0, scale);
  std::vector<float> out(n);
  for (float& x : out) x = distribution(generator);
  return out;
}

// Attention of `queries` queries over one full range of 1024 keys, one kv head of dim 256, K/V in bf16.
void attention(benchmark::State& state, const KernelTable* t) {
  const int heads = static_cast<int>(state.range(0)), queries = static_cast<int>(state.range(1));
  constexpr int kD = 256, kBlocks = kRangeTokens / kBlockTokens + 1;
  AlignedBuffer k(kBlocks * kD * kBlockTokens * sizeof(bf16)), v(k.bytes());
  const std::vector<float> values = normal(k.bytes() / sizeof(bf16));
  for (size_t i = 0; i < values.size(); ++i) k.as<bf16>()[i] = v.as<bf16>()[i] = float_to_bf16(values[i]);
  std::vector<int32_t> blocks(kBlocks);
  for (int i = 0; i < kBlocks; ++i) blocks[static_cast<size_t>(i)] = i;
  const size_t rows = static_cast<size_t>(heads) * static_cast<size_t>(queries);
  const std::vector<float> q = normal(rows * kD);
  std::vector<float> m(rows), l(rows), o(rows * kD);
  std::vector<float> scratch(static_cast<size_t>(attention_scratch(queries, heads, kD)));
  const AttentionArgs args{.kv = {KvType::bfloat16, k.data(), v.data(), 1, kD},
                           .blocks = blocks.data(),
                           .first = kRangeTokens,
                           .n = queries,
                           .H = heads,
                           .q = q.data(),
                           .scale = 1.0f / 16};
  for (auto _ : state) {
    t->attention_range(args, 0, queries, 0, 0, {m.data(), l.data(), o.data()}, scratch.data());
    benchmark::ClobberMemory();
  }
  const double flops = 4.0 * static_cast<double>(rows) * kD * kRangeTokens;
  state.counters["flop/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * 2 * kRangeTokens * kD * static_cast<int64_t>(sizeof(bf16)));
}

// One value head of 128 x 128, a chunk of tokens; time per token is the inverse of items_per_second.
void delta_rule(benchmark::State& state, const KernelTable* t) {
  const int n = static_cast<int>(state.range(0));
  constexpr int kDim = 128;
  const size_t count = static_cast<size_t>(n);
  const std::vector<float> q = normal(count * kDim, 0.01f), k = normal(count * kDim, 0.09f), v = normal(count * kDim);
  const std::vector<float> decay(count, 0.9f), beta(count, 0.5f);
  AlignedBuffer s(kDim * kDim * sizeof(float));
  std::vector<float> o(count * kDim);
  const DeltaArgs args{.n = n,
                       .Dk = kDim,
                       .Dv = kDim,
                       .q = q.data(),
                       .k = k.data(),
                       .qk_stride = kDim,
                       .v = v.data(),
                       .v_stride = kDim,
                       .decay = decay.data(),
                       .beta = beta.data(),
                       .gate_stride = 1,
                       .state = s.as<float>(),
                       .o = o.data(),
                       .o_stride = kDim,
                       .tile_begin = 0,
                       .tile_end = kDim / 16};
  for (auto _ : state) {
    t->delta_rule(args);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * n);
}

void conv_silu(benchmark::State& state, const KernelTable* t) {
  constexpr int kC = 6144, kTokens = 16;
  const std::vector<float> u = normal(kC * kTokens), w = normal(4 * kC);
  std::vector<float> window(3 * kC), y(kC * kTokens);
  for (auto _ : state) {
    t->conv_silu(u.data(), kC, kTokens, kC, w.data(), window.data(), y.data(), 0, kC);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kTokens);
}

void rms_norm(benchmark::State& state, const KernelTable* t) {
  const int H = static_cast<int>(state.range(0));
  const std::vector<float> x = normal(static_cast<size_t>(H)), gamma = x;
  std::vector<float> y(x.size());
  for (auto _ : state) {
    t->rms_norm(x.data(), gamma.data(), 1e-6f, 1, H, y.data());
    benchmark::ClobberMemory();
  }
}

void silu_mul(benchmark::State& state, const KernelTable* t) {
  const std::vector<float> x = normal(8192);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    t->silu_mul(x.data(), x.data(), static_cast<int64_t>(x.size()), y.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(x.size()));
}

void top_k_softmax(benchmark::State& state, const KernelTable* t) {
  const std::vector<float> x = normal(256);
  std::vector<int32_t> index(8);
  std::vector<float> weight(8);
  for (auto _ : state) {
    t->top_k_softmax(x.data(), 256, 8, index.data(), weight.data());
    benchmark::ClobberMemory();
  }
}

void logits(benchmark::State& state, const KernelTable* t) {
  const std::vector<float> x = normal(248320);
  for (auto _ : state) {
    if (state.range(0) == 0) {
      benchmark::DoNotOptimize(t->argmax(x.data(), static_cast<int>(x.size())));
    } else {
      benchmark::DoNotOptimize(t->log_sum_exp(x.data(), static_cast<int>(x.size())));
    }
  }
}

const bool kRegistered = [] {
  for (Isa isa : available()) {
    if (isa == Isa::reference) continue;
    const KernelTable* t = table(isa);
    const auto add = [&](const char* name, auto function) {
      return benchmark::RegisterBenchmark((std::string(isa_name(isa)) + "/" + name).c_str(), function, t)->MinTime(0.1);
    };
    add("attention", attention)->ArgNames({"heads", "queries"})->ArgsProduct({{1, 4, 6, 8}, {1, 16}});
    add("delta_rule", delta_rule)->ArgName("tokens")->Arg(1)->Arg(64);
    add("conv_silu", conv_silu);
    add("rms_norm", rms_norm)->ArgName("H")->Arg(1024)->Arg(5120);
    add("silu_mul", silu_mul);
    add("top_k_softmax", top_k_softmax);
    add("argmax", logits)->ArgName("lse")->Arg(0);
    add("log_sum_exp", logits)->ArgName("lse")->Arg(1);
  }
  return true;
}();

}  // namespace
}  // namespace tutti::kernels
