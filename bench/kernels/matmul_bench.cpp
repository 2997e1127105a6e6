// The matrix products against what the machine allows: the read bandwidth, which the bench measures first.
//   bench_kernels [--isa NAME] [--threads N] [--only TEXT] [--rows M] [--clock cpu] [--int8 pairs]
// --int8 pairs takes the body of processors without VNNI. --clock cpu counts the processor time of one thread: for a
// machine that others use too. A line is one format and shape with M input rows: GB/s are bytes of weights, TOP/s are 2
// M N K, times are the best of many.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/table.h"
#include "kernels/target.h"
#if defined(TUTTI_KERNELS_X86)
#include "kernels/avx2/int8.h"
#include "kernels/avx512/int8.h"
#endif

namespace tutti::kernels {
namespace {

struct Case {
  const char* name;
  quant::WeightFormat format;
  int N, K;
  int copies;  // so many matrices in turn: more than the caches hold, or one that they do hold
  std::vector<int> rows;
};

const std::vector<int> kFew = {1, 2, 4, 8, 16, 128};
constexpr quant::WeightFormat affine(int bits, int group) {
  return {quant::Format::affine, {bits, group}};
}
constexpr quant::WeightFormat kBf16{quant::Format::bfloat16, {}};
constexpr quant::WeightFormat kFloat32{quant::Format::float32, {}};

const Case kCases[] = {
    {"q4g64", affine(4, 64), 2048, 2048, 64, kFew},        {"q4g64 long", affine(4, 64), 512, 12288, 48, {1, 8, 128}},
    {"q4g32", affine(4, 32), 2048, 2048, 64, {1, 8, 128}}, {"q2g64", affine(2, 64), 2048, 2048, 128, {1, 8, 128}},
    {"q3g64", affine(3, 64), 2048, 2048, 80, {1, 8, 128}}, {"q5g64", affine(5, 64), 2048, 2048, 48, {1, 8, 128}},
    {"q6g64", affine(6, 64), 2048, 2048, 40, {1, 8, 128}}, {"q8g64", affine(8, 64), 2048, 2048, 32, {1, 8, 128}},
    {"bf16", kBf16, 2048, 2048, 16, {1, 2, 4, 8, 128}},    {"bf16 cached", kBf16, 1024, 256, 1, kFew},
    {"bf16 cached", kBf16, 256, 1024, 1, {1, 8, 128}},     {"f32", kFloat32, 2048, 2048, 8, {1, 8, 128}},
};

bool cpu_clock = false;
int only_rows = 0;

double seconds() {
  timespec t{};
  clock_gettime(cpu_clock ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The shortest of the calls that fit `budget` seconds.
template <class F>
double best_in(double budget, const F& f) {
  double best = 1e9;
  for (double spent = 0; spent < budget;) {
    const double begin = seconds();
    f();
    const double time = seconds() - begin;
    best = std::min(best, time);
    spent += time;
  }
  return best;
}

// Bytes per second of a plain sum over memory.
double read_roof(ThreadPool& pool) {
  constexpr size_t kBytes = size_t{128} << 20;
  constexpr int kTiles = 128;
  AlignedBuffer memory(kBytes);
  std::memset(memory.data(), 1, kBytes);
  std::vector<uint64_t> sums(kTiles);
  const double time = best_in(0.6, [&] {
    pool.run(kTiles, [&](int tile, int) {
      const uint64_t* p = memory.as<uint64_t>() + static_cast<size_t>(tile) * (kBytes / kTiles / 8);
      uint64_t lanes[8] = {};
      for (size_t i = 0; i < kBytes / kTiles / 8; i += 8) {
        for (int j = 0; j < 8; ++j) lanes[j] += p[i + static_cast<size_t>(j)];
      }
      for (uint64_t lane : lanes) sums[static_cast<size_t>(tile)] += lane;
    });
  });
  if (sums[0] == 0) std::printf("!");
  return static_cast<double>(kBytes) / time;
}

struct Weights {
  PackedSizes sizes;
  AlignedBuffer memory;
  Matrix m;

  Weights(const Case& c, std::mt19937& rng) : sizes(packed_sizes(c.format, c.N, c.K, false)) {
    memory = AlignedBuffer(static_cast<size_t>(bytes()));
    auto* at = memory.as<uint8_t>();
    m = {c.format, c.N, c.K, at, at + sizes.values, at + sizes.values + sizes.extra, nullptr, false};
    m.biases = at + sizes.values + sizes.extra + sizes.scales;
    // Random codes, scales and float weights near 1: nothing that a processor treats as a special case.
    const int64_t codes = c.format.format == quant::Format::affine ? sizes.values + sizes.extra : 0;
    for (int64_t i = 0; i + 4 <= bytes(); i += 4) {
      const uint32_t word = i < codes ? static_cast<uint32_t>(rng()) : 0x3f803f80u;
      std::memcpy(at + i, &word, 4);
    }
  }
  int64_t bytes() const { return sizes.values + sizes.extra + 2 * sizes.scales; }
};

struct Inputs {
  std::vector<float> x, scale, sum;
  std::vector<int8_t> q;
  Activations in;

  Inputs(int M, int K, int group)
      : x(static_cast<size_t>(M) * K), scale(x.size() / group), sum(scale.size()), q(x.size()) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 61) / 61.0f - 0.5f;
    in = {K, x.data(), q.data(), scale.data(), sum.data(), group};
  }
};

void run_case(const Case& c, const KernelTable& table, ThreadPool& pool, double roof) {
  std::mt19937 rng(1);
  std::vector<Weights> weights;
  for (int i = 0; i < c.copies; ++i) weights.emplace_back(c, rng);
  const bool int8 = c.format.format == quant::Format::affine;
  for (int M : c.rows) {
    if (only_rows != 0 && M != only_rows) continue;
    Inputs inputs(M, c.K, quant::activation_group(c.format));
    table.quantize_int8(inputs.x.data(), M, c.K, inputs.in.group, inputs.q.data(), inputs.scale.data(),
                        inputs.sum.data());
    std::vector<float> y(static_cast<size_t>(M) * c.N);
    const int panels = weights[0].m.panels(), tile = std::max(1, std::min(8, panels / (2 * pool.threads())));
    int turn = 0;
    const double time = best_in(0.4, [&] {
      MatmulArgs args{.w = &weights[static_cast<size_t>(turn++ % c.copies)].m, .in = inputs.in, .M = M, .y = y.data()};
      args.y_stride = c.N;
      pool.run((panels + tile - 1) / tile, [&, args](int t, int) {
        MatmulArgs part = args;
        part.panel_begin = t * tile;
        part.panel_end = std::min(panels, part.panel_begin + tile);
        int8 ? table.matmul_affine_int8(part) : table.matmul_float(part);
      });
    });
    const double rate = static_cast<double>(weights[0].bytes()) / time;
    std::printf("%-12s %5d x %-5d M %-4d %9.3f ms %6.1f GB/s (%3.0f %% of the roof) %7.3f TOP/s\n", c.name, c.N, c.K, M,
                time * 1e3, rate / 1e9, 100 * rate / roof, 2.0 * M * c.N * c.K / time / 1e12);
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  std::string isa, only;
  int threads = available_cpus();
  bool pairs = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--isa") isa = argv[i + 1];
    if (flag == "--threads") threads = std::atoi(argv[i + 1]);
    if (flag == "--only") only = argv[i + 1];
    if (flag == "--int8") pairs = std::string(argv[i + 1]) == "pairs";
    if (flag == "--rows") only_rows = std::atoi(argv[i + 1]);
    if (flag == "--clock") cpu_clock = std::string(argv[i + 1]) == "cpu";
  }
  const auto wanted = isa.empty() ? std::optional(available().back()) : isa_from_name(isa);
  if (!wanted || kernels::table(*wanted) == nullptr) {
    std::fprintf(stderr, "no such instruction set here: %s\n", isa.c_str());
    return 2;
  }
  KernelTable table = *kernels::table(*wanted);
#if defined(TUTTI_KERNELS_X86)
  if (pairs && *wanted == Isa::avx2) table.matmul_affine_int8 = avx2::matmul_affine_int8_pairs;
  if (pairs && *wanted == Isa::avx512) table.matmul_affine_int8 = avx512::matmul_affine_int8_pairs;
#endif
  ThreadPool pool(cpu_clock ? 1 : std::max(1, threads));
  const double roof = read_roof(pool);
  std::printf("%s, %d threads, memory read %.1f GB/s\n", std::string(isa_name(table.isa)).c_str(), pool.threads(),
              roof / 1e9);
  for (const Case& c : kCases) {
    if (std::string(c.name).find(only) != std::string::npos) run_case(c, table, pool, roof);
  }
  return 0;
}

}  // namespace
}  // namespace tutti::kernels

int main(int argc, char** argv) {
  return tutti::kernels::run(argc, argv);
}
