// Target regions: code between BEGIN and END may use the instructions of one ISA, whatever flags the file is built
// with. Everything from other headers (std, immintrin.h) is included before the region: a function of the standard
// library that was first defined inside it would carry the wider instructions into the rest of the program. Lambdas do
// not inherit the region with every compiler: kernels use functions and functors instead.
#pragma once

#if defined(__x86_64__)
#define TUTTI_KERNELS_X86 1
#elif defined(__aarch64__)
#define TUTTI_KERNELS_NEON 1
#endif

#if defined(__clang__)
#define TUTTI_TARGET_PRAGMA(text) _Pragma(#text)
#define TUTTI_TARGET_AVX2_BEGIN \
  TUTTI_TARGET_PRAGMA(clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function))
#define TUTTI_TARGET_AVX512_BEGIN           \
  TUTTI_TARGET_PRAGMA(clang attribute push( \
      __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq"))), apply_to = function))
#define TUTTI_TARGET_AVX2_END TUTTI_TARGET_PRAGMA(clang attribute pop)
#define TUTTI_TARGET_AVX512_END TUTTI_TARGET_PRAGMA(clang attribute pop)
#else
#define TUTTI_TARGET_PRAGMA(text) _Pragma(#text)
#define TUTTI_TARGET_AVX2_BEGIN TUTTI_TARGET_PRAGMA(GCC push_options) TUTTI_TARGET_PRAGMA(GCC target("avx2,fma,f16c"))
#define TUTTI_TARGET_AVX512_BEGIN       \
  TUTTI_TARGET_PRAGMA(GCC push_options) \
  TUTTI_TARGET_PRAGMA(GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq"))
#define TUTTI_TARGET_AVX2_END TUTTI_TARGET_PRAGMA(GCC pop_options)
#define TUTTI_TARGET_AVX512_END TUTTI_TARGET_PRAGMA(GCC pop_options)
#endif

#define TUTTI_INLINE inline __attribute__((always_inline))

// Before a loop of a small constant number of turns whose variables must become registers.
#if defined(__clang__)
#define TUTTI_UNROLL _Pragma("unroll")
#else
#define TUTTI_UNROLL _Pragma("GCC unroll 16")
#endif
