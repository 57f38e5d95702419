// SPDX-License-Identifier: Apache-2.0
// Private to kernels_*.cpp, before any Highway header: the instruction sets they are compiled for, on x86-64 AVX2 and
// AVX-512 (F, VL, DQ, BW), on AArch64 NEON. SVE is left out: its vectors have no size, so they cannot be members of a struct, as the totals of
// four vectors are here. Every set costs compile time; SSSE3 and SSE4 would serve only processors older
// than 2013, which get the plain loops, and AVX3_DL adds nothing that the kernels use.
#pragma once

#include <hwy/detect_compiler_arch.h>

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Highway's assertions in debug builds call its library, which is not linked (kernels_dispatch.hpp).
#define HWY_IS_DEBUG_BUILD 0
