// Every ISA fills its table in two parts. A fill function may only be called where the processor has the ISA.
//   fill_matmul  round_bf16, quantize_int8, matmul_*, read_row   (<isa>/matmul.cpp)
//   fill_layers  everything else                                 (<isa>/layers.cpp)
#pragma once

#include "kernels/table.h"
#include "kernels/target.h"

#define TUTTI_DECLARE_FILL(isa)                  \
  namespace tutti::kernels::isa {                \
  void fill_matmul(KernelTable& table) noexcept; \
  void fill_layers(KernelTable& table) noexcept; \
  }

TUTTI_DECLARE_FILL(reference)
TUTTI_DECLARE_FILL(scalar)
#if defined(TUTTI_KERNELS_X86)
TUTTI_DECLARE_FILL(avx2)
TUTTI_DECLARE_FILL(avx512)
#elif defined(TUTTI_KERNELS_NEON)
TUTTI_DECLARE_FILL(neon)
#endif

#undef TUTTI_DECLARE_FILL
