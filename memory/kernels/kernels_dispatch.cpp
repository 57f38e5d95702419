// SPDX-License-Identifier: Apache-2.0
#include "memory/kernels/kernels_dispatch.hpp"

#include "memory/kernels/kernel_loops.hpp"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace troupe::detail {

namespace {

#if HWY_ARCH_X86
// What Highway compiles AVX2 with, beyond what the compilers' __builtin_cpu_supports knows by name.
bool has_f16c_and_lzcnt() {
  constexpr unsigned f16c = 1u << 29, lzcnt = 1u << 5;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & f16c)) return false;
  return __get_cpuid(0x80000001u, &a, &b, &c, &d) && (c & lzcnt);
}
#endif

std::int64_t supported_instruction_sets() {
  std::int64_t sets = HWY_STATIC_TARGET | HWY_EMU128 | HWY_SCALAR;
#if HWY_ARCH_X86
  __builtin_cpu_init();  // looks at what the system saves, too
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") &&
      has_f16c_and_lzcnt()) {
    sets |= HWY_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
      sets |= HWY_AVX3;
  }
#endif
  return sets;
}

struct choice {
  explicit choice(std::int64_t among) { take(among); }
  void take(std::int64_t among) {
    sets = among;
    target.Update(among);
  }
  std::int64_t sets;
  hwy::ChosenTarget target;
};

choice& chosen() {
  static choice all{usable_instruction_sets()};
  return all;
}

}  // namespace

std::int64_t usable_instruction_sets() {
  static const std::int64_t usable = supported_instruction_sets() & (HWY_TARGETS);
  return usable;
}

const hwy::ChosenTarget& chosen_instruction_set() { return chosen().target; }

void choose_instruction_set(std::int64_t among) { chosen().take(among); }

const char* instruction_set() { return hwy::TargetName(chosen().sets & -chosen().sets); }

}  // namespace troupe::detail
