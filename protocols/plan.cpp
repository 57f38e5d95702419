// SPDX-License-Identifier: Apache-2.0
#include "protocols/plan.hpp"

#include <algorithm>
#include <cstdio>

#include "memory/spelling.hpp"
#include "memory/word_hash.hpp"
#include "protocols/offload/offload_compiler.hpp"
#include "protocols/program/arrivals.hpp"
#include "protocols/program/completion.hpp"

namespace troupe {

message_protocol plan::protocol() const {
  if (direct() != nullptr) return message_protocol::direct;
  if (nic() != nullptr) return message_protocol::nic;
  if (slots() == nullptr) return message_protocol::simple;
  return slots()->format == slot_format::ll ? message_protocol::ll : message_protocol::ll128;
}

namespace {

bool touches_shared(const score& s, rank_t rank) {
  const auto shared = [&](const place& at) {
    const bool foreign = at.owner != self && at.owner != rank;
    return at.count > 0 && at.buffer != buffer_kind::none && (foreign || at.buffer == buffer_kind::l2);
  };
  const auto touches = [&](const step& i) { return shared(i.source) || shared(i.target); };
  return std::ranges::any_of(s.players[static_cast<std::size_t>(rank)].lanes,
                             [&](const lane& l) { return std::ranges::any_of(l, touches); });
}

void rename_peers(program& code, rank_t stride) {
  for (std::vector<instruction>& lane : code.lanes)
    for (instruction& i : lane) {
      if (i.from > 0) i.from *= stride;
      if (i.to > 0) i.to *= stride;
    }
}

}  // namespace

plan::plan(const plan& like)
    : choreography(like.choreography),
      in_place(like.in_place),
      root_in_place(like.root_in_place),
      notes(like.notes),
      verified(like.verified),
      count(like.count),
      exact(like.exact),
      work_type(like.work_type),
      widened(like.widened),
      scaled(like.scaled),
      scales_reads(like.scales_reads),
      divides(like.divides),
      ahead(like.ahead),
      runs_ahead(like.runs_ahead),
      gives_ahead(like.gives_ahead),
      predicted_seconds(like.predicted_seconds),
      identity(like.identity),
      port(like.port) {}

plan plan::with_score(std::shared_ptr<const score> other, std::shared_ptr<const verdict> proof) const {
  plan made{*this};
  made.notes = std::move(other);
  made.verified = std::move(proof);
  return made;
}

/// Any rank's steps do. A rank that touches only its own may be the root whose buffers the others read.
bool plan::shares_memory() const {
  int known = shares_memory_.load(std::memory_order_relaxed);
  if (known >= 0) return known > 0;
  known = 0;
  for (rank_t r = 0; r < notes->ranks && known == 0; ++r) known = touches_shared(*notes, r) ? 1 : 0;
  shares_memory_.store(known, std::memory_order_relaxed);
  return known > 0;
}

/// Not for slots, which handle sums at their ends.
program plan::compiled(rank_t rank) const {
  program made = compile(*notes, rank, shape(), cut(), work());
  made.shares_memory = shares_memory();
  if (notes->partitions > 0) mark_arrivals(made, *notes, rank);
  made.sums.scales_inputs = scales_reads;
  if (divides) {
    made.sums.divisor = static_cast<std::size_t>(notes->ranks);
    mark_completing(made, verified->completing[static_cast<std::size_t>(rank)]);
  }
  if (const mailbox_plan* by = mailbox(); by != nullptr && by->stride != 1) rename_peers(made, by->stride);
  return made;
}

std::shared_ptr<const program> plan::program_of(rank_t rank) const {
  const auto ranks = static_cast<std::size_t>(notes->ranks);
  return mailbox()->programs.get(static_cast<std::size_t>(rank), ranks, [&] { return compiled(rank); });
}

std::shared_ptr<const slot_program> plan::slot_program_of(rank_t rank) const {
  const slots_plan& how = *slots();
  const auto ranks = static_cast<std::size_t>(notes->ranks);
  return how.programs.get(static_cast<std::size_t>(rank), ranks, [&] {
    slot_program made = compile_slots(compile(*notes, rank, shape(), cutting{}), how.format);
    made.runs_ahead = runs_ahead;
    return made;
  });
}

std::shared_ptr<const direct_program> plan::direct_program_of_all() const {
  return direct()->programs.get_shared(0, 1, [&] {
    direct_compiler compiler{{notes->what, notes->root, in_place || root_in_place, direct()->between_processes},
                             notes->ranks};
    for (rank_t r = 0; r < notes->ranks && compiler.add(compiled(r)); ++r) {}
    return compiler.finish();
  });
}

/// A port for each lane. Ports have numbers of all NICs together, so the same descriptors are right whoever is behind which: they were proved for one.
std::shared_ptr<const offload::rank_program> plan::descriptors_of(rank_t rank, std::size_t elements,
                                                                  std::span<const std::size_t> counts) const {
  const nic_plan& how = *nic();
  const auto all = how.descriptors.get(elements, counts, [&] {
    auto places = offload::behind_one_nic(*notes);
    for (std::size_t r = 0; r < how.nodes.size(); ++r) places[r].node = how.nodes[r];
    const call_shape sizes{elements, counts, {}, {}, size_of(work_type)};
    return offload::compile(*notes, sizes, {how.credits, places, how.packet_bytes / size_of(work_type)});
  });
  return {all, &(*all)[static_cast<std::size_t>(rank)]};
}

std::uint64_t plan::computed_identity(std::uint64_t score_digest) const {
  word_hash h;
  h.add(choreography);
  h.add(name(protocol()));
  h.add(score_digest);
  h.add((in_place ? 1u : 0u) | (root_in_place ? 2u : 0u) | (widened ? 4u : 0u) | (scaled ? 8u : 0u) |
        (agrees() ? 32u : 0u) | (scales_reads ? 64u : 0u) | (divides ? 128u : 0u) |
        static_cast<std::uint64_t>(work_type) << 8 | (may_run_ahead() ? std::uint64_t{1} << 16 : 0));
  if (const mailbox_plan* by = mailbox()) {
    h.add((by->any_order ? 1u : 0u) | static_cast<std::uint64_t>(by->credits) << 16);
    h.add(static_cast<std::uint64_t>(by->cut.channels) << 32 | static_cast<std::uint32_t>(by->cut.slices));
    if (by->cut.slices_per_step != 1) h.add(static_cast<std::uint64_t>(by->cut.slices_per_step));
  }
  if (const tiers_plan* by = tiers()) {
    h.add(static_cast<std::uint64_t>(by->of_host));
    for (const auto* stage : {&by->collect, &by->across, &by->spread}) h.add((*stage)->identity);
  }
  if (const nic_plan* by = nic()) {
    h.add(static_cast<std::uint64_t>(by->credits) << 32 | by->packet_bytes);
    for (const std::uint32_t node : by->nodes) h.add(node);
  }
  return std::max<std::uint64_t>(h.state, 1);
}

std::string plan::title() const {
  char short_identity[16];
  std::snprintf(short_identity, sizeof short_identity, "%08x", static_cast<unsigned>(identity >> 32));
  std::string text = choreography + ", protocol " + std::string{name(protocol())};
  if (const cutting parts = cut(); parts != cutting{})
    text += ", " + plural(static_cast<std::size_t>(parts.channels), "channel") + ", " + slices_text(parts);
  return text + " (" + short_identity + ")";
}

}  // namespace troupe
