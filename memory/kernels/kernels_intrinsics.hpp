// SPDX-License-Identifier: Apache-2.0
// Private to kernels_*.cpp: what those share that are written for certain instructions of x86-64.
#pragma once

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#if defined(__clang__)
#define TROUPE_UNROLLED _Pragma("unroll")
#else
#define TROUPE_UNROLLED _Pragma("GCC unroll 4")
// GCC 12's own headers name vectors that are undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace troupe::detail {

/// Products with matrices of bits (GFNI), for which clang 14's __builtin_cpu_supports has no name.
inline bool has_gfni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned gfni = 1u << 8;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c & gfni) != 0;
}

}  // namespace troupe::detail

#endif
