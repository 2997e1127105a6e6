#include "kernels/table.h"

#include <string>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "kernels/fill.h"

namespace tutti::kernels {
namespace {

using Fill = void (*)(KernelTable&) noexcept;

struct Row {
  Isa isa;
  bool (*supported)();
  Fill fill_matmul, fill_layers;
};

bool always() {
  return true;
}
#if defined(TUTTI_KERNELS_X86)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

// THE list of instruction sets of this build, best last.
constexpr Row kRows[] = {
    {Isa::reference, always, reference::fill_matmul, reference::fill_layers},
    {Isa::scalar, always, scalar::fill_matmul, scalar::fill_layers},
#if defined(TUTTI_KERNELS_X86)
    {Isa::avx2, has_avx2, avx2::fill_matmul, avx2::fill_layers},
    {Isa::avx512, has_avx512, avx512::fill_matmul, avx512::fill_layers},
#elif defined(TUTTI_KERNELS_NEON)
    {Isa::neon, always, neon::fill_matmul, neon::fill_layers},
#endif
};

constexpr std::pair<Isa, std::string_view> kNames[] = {{Isa::reference, "reference"},
                                                       {Isa::scalar, "scalar"},
                                                       {Isa::avx2, "avx2"},
                                                       {Isa::avx512, "avx512"},
                                                       {Isa::neon, "neon"}};

struct Tables {
  std::vector<KernelTable> all;

  Tables() {
    for (const Row& row : kRows) {
      if (!row.supported()) continue;
      KernelTable& t = all.emplace_back();
      t.isa = row.isa;
      row.fill_matmul(t);
      row.fill_layers(t);
    }
  }
};

const std::vector<KernelTable>& tables() {
  static const Tables tables;
  return tables.all;
}

}  // namespace

// Packed queries and the scores of one range of 64 keys.
int64_t attention_scratch(int queries, int heads_per_group, int D) {
  return static_cast<int64_t>(queries) * heads_per_group * (D + kBlockTokens);
}

std::string_view isa_name(Isa isa) {
  for (const auto& [id, name] : kNames) {
    if (id == isa) return name;
  }
  return "unknown";
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (const auto& [id, text] : kNames) {
    if (text == name) return id;
  }
  return std::nullopt;
}

const KernelTable* table(Isa isa) {
  for (const KernelTable& t : tables()) {
    if (t.isa == isa) return &t;
  }
  return nullptr;
}

std::vector<Isa> available() {
  std::vector<Isa> out;
  for (const KernelTable& t : tables()) out.push_back(t.isa);
  return out;
}

const KernelTable& select() {
  const auto wanted = env::isa();
  if (!wanted) return tables().back();
  const auto isa = isa_from_name(*wanted);
  const KernelTable* found = isa ? table(*isa) : nullptr;
  if (found) return *found;
  std::string have;
  for (Isa i : available()) have.append(have.empty() ? "" : ", ").append(isa_name(i));
  throw OptionError("TUTTI_ISA=" + *wanted + (isa ? " is not available here" : " is not known") +
                    "; available: " + have);
}

}  // namespace tutti::kernels
