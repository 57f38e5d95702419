// SPDX-License-Identifier: Apache-2.0
#include "protocols/tiers.hpp"

#include <stdexcept>

namespace troupe {

std::string why_no_tiers(const call& whole) {
  if (!whole.uniform) return "its blocks differ in size";
  if (whole.pieces > 0) return "it is partitioned";
  if (whole.outcome_of) return "it asks how another operation has ended";
  const auto has_tiers = [](const collective_traits& t) { return t.tiers.value.has_value(); };
  if (!has_tiers(traits_of(whole.what))) return "only " + names_of(has_tiers) + " are performed in tiers";
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

const tier_stage& stage_of(collective what, tier which) {
  const std::optional<tier_stages>& stages = traits_of(what).tiers.value;
  if (!stages) throw std::logic_error("no " + std::string{name(what)} + " is performed in tiers");
  return (*stages)[static_cast<std::size_t>(which)];
}

namespace {

/// Of a stage's block.
std::size_t elements_of(const tier_stage& stage, const call& whole, int hosts, int of_host) {
  std::size_t elements = whole.count;
  if (stage.block != tier_block::one) elements *= static_cast<std::size_t>(of_host);
  if (stage.block == tier_block::of_all) elements *= static_cast<std::size_t>(hosts);
  return elements;
}

}  // namespace

call call_of_tier(const call& whole, tier which, int hosts, int of_host) {
  const tier_stage& stage = stage_of(whole.what, which);
  call c = like(whole, stage.what, elements_of(stage, whole, hosts, of_host));
  // Between the hosts: in the first rank's output, if what it has collected lies there.
  const tier_place from = stage_of(whole.what, tier::collect).to;
  c.in_place = which == tier::across && (from == tier_place::output || from == tier_place::host_of_output);
  return c;
}

tier_memory memory_of_tiers(const call& whole, int hosts, int of_host) {
  const auto elements = [&](tier which, int ranks) -> std::size_t {
    const tier_stage& stage = stage_of(whole.what, which);
    if (stage.to != tier_place::apart) return 0;
    const int blocks = output_blocks(stage.what, ranks, 0, 0).count;
    return elements_of(stage, whole, hosts, of_host) * static_cast<std::size_t>(blocks);
  };
  return {elements(tier::collect, of_host), elements(tier::across, hosts)};
}

tier_buffers buffers_of_tier(const call& whole, tier which, int of_host, rank_t rank, const tier_room& room) {
  const auto place_after = [&](tier stage) -> void* {
    switch (stage_of(whole.what, stage).to) {
      case tier_place::nowhere: return nullptr;
      case tier_place::output: return room.output;
      case tier_place::host_of_output:
        if (rank % of_host != 0 || room.output == nullptr) return nullptr;
        return static_cast<std::byte*>(room.output) +
               static_cast<std::size_t>(rank) * whole.count * size_of(whole.type);
      case tier_place::apart: return stage == tier::collect ? room.collected : room.share;
    }
    return nullptr;
  };
  if (which == tier::collect) return {room.input, place_after(which)};
  return {place_after(which == tier::across ? tier::collect : tier::across), place_after(which)};
}

}  // namespace troupe
