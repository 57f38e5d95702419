// SPDX-License-Identifier: Apache-2.0
// Compiled once for every instruction set, chosen at run time (Highway), as the kernels are.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/tiers/bit_search.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_dispatch.hpp"
#include <hwy/highway.h>

#include <algorithm>

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

std::size_t search_runs(const runs_of_words& of, std::size_t from, std::size_t to, std::uint8_t least) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t width = hn::Lanes(d);
  const std::uint8_t within = std::min<std::uint8_t>(least, 64);
  const auto long_enough = hn::Set(d, within), together = hn::Set(d, least);
  for (; from + width <= to; from += width) {
    const auto longest = hn::LoadU(d, of.longest + from);
    const auto joined = hn::SaturatedAdd(hn::LoadU(d, of.tails_before + from), hn::LoadU(d, of.heads + from));
    // x >= y, which there is not of unsigned bytes everywhere, as max(x, y) = x.
    const auto found =
        hn::Or(hn::Eq(hn::Max(longest, long_enough), longest), hn::Eq(hn::Max(joined, together), joined));
    if (const auto at = hn::FindFirstTrue(d, found); at >= 0) return from + static_cast<std::size_t>(at);
  }
  while (from < to && of.longest[from] < within && of.tails_before[from] + of.heads[from] < least) ++from;
  return from;
}

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(search_words);
TROUPE_EXPORT(search_runs);

std::size_t first_other_word(const std::uint64_t* words, std::size_t from, std::size_t to, std::uint64_t usual) {
  return TROUPE_DISPATCH(search_words)(words, from, to, usual);
}

std::size_t first_with_run(const runs_of_words& of, std::size_t from, std::size_t to, std::uint8_t least) {
  return TROUPE_DISPATCH(search_runs)(of, from, to, least);
}

}  // namespace troupe::detail
#endif
