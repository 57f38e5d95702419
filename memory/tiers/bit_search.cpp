// SPDX-License-Identifier: Apache-2.0
// Compiled once for every instruction set, chosen at run time (Highway), as the kernels are.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/tiers/bit_search.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_dispatch.hpp"
#include <hwy/highway.h>

#include "memory/tiers/bit_search.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

std::size_t search_words(const std::uint64_t* words, std::size_t from, std::size_t to, std::uint64_t usual) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t width = hn::Lanes(d);
  const auto wanted = hn::Set(d, usual);
  for (; from + width <= to; from += width) {
    const auto differs = hn::Ne(hn::LoadU(d, words + from), wanted);
    if (const auto at = hn::FindFirstTrue(d, differs); at >= 0) return from + static_cast<std::size_t>(at);
  }
  while (from < to && words[from] == usual) ++from;
  return from;
}

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(search_words);

std::size_t first_other_word(const std::uint64_t* words, std::size_t from, std::size_t to, std::uint64_t usual) {
  return TROUPE_DISPATCH(search_words)(words, from, to, usual);
}

}  // namespace troupe::detail
#endif
