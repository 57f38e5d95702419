// SPDX-License-Identifier: Apache-2.0
#include "protocols/tiers.hpp"

#include <stdexcept>

namespace troupe {

std::string why_no_tiers(const call& whole) {
  using enum collective;
  if (!whole.uniform) return "its blocks differ in size";
  if (whole.pieces > 0) return "it is partitioned";
  if (whole.outcome_of) return "it asks how another operation has ended";
  if (whole.what != all_reduce && whole.what != all_gather && whole.what != reduce_scatter && whole.what != barrier)
    return "only all_reduce, all_gather, reduce_scatter and barrier are performed in tiers";
  // Bits that do not depend on where ranks are, or on the size, are those of one order of reduction.
  if (is_reduction(whole.what) && whole.level > determinism::run_stable)
    return "its determinism level wants another order of reduction";
  if (!is_reduction(whole.what)) return {};
  const op& with = whole.reduction;
  if (with.kind == op_kind::avg || with.kind == op_kind::pre_mul_sum) return "it scales what it adds";
  if (!with.associative || !with.commutative) return "its operation depends on the order";
  return {};
}

namespace {

call like(const call& whole, collective what, std::size_t count) {
  call c;
  c.what = what;
  c.type = whole.type;
  c.count = count;
  c.level = whole.level;
  if (is_reduction(what)) c.reduction = whole.reduction;
  if (has_root(what)) c.agreement = agreement_time::eager;  // `spread` tells all, and comes next
  return c;
}

}  // namespace

call call_of_tier(const call& whole, tier stage, int hosts, int of_host) {
  using enum collective;
  const std::size_t n = whole.count, host = n * static_cast<std::size_t>(of_host),
                    all = host * static_cast<std::size_t>(hosts);
  const bool collects = stage == tier::collect;
  if (stage == tier::across) {
    const bool single = whole.what == all_reduce || whole.what == barrier;
    call c = like(whole, whole.what, single ? n : host);
    c.in_place = whole.what == all_reduce || whole.what == all_gather;  // in the first rank's output
    return c;
  }
  switch (whole.what) {
    case all_gather: return collects ? like(whole, gather, n) : like(whole, broadcast, all);
    case reduce_scatter: return collects ? like(whole, reduce, all) : like(whole, scatter, n);
    case barrier: return like(whole, barrier, 0);
    case all_reduce: return like(whole, collects ? reduce : broadcast, n);
    case broadcast:
    case reduce:
    case gather:
    case scatter:
    case all_to_all:
    case scan:
    case exscan: break;  // why_no_tiers
  }
  throw std::logic_error("no " + std::string{name(whole.what)} + " is performed in tiers");
}

tier_memory memory_of_tiers(const call& whole, int hosts, int of_host) {
  if (whole.what != collective::reduce_scatter) return {};
  const std::size_t host = whole.count * static_cast<std::size_t>(of_host);
  return {host * static_cast<std::size_t>(hosts), host};
}

}  // namespace troupe
