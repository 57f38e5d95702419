#include "protocols/plan.hpp"

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "memory/spelling.hpp"
#include "memory/word_hash.hpp"

namespace troupe {

plan::plan(const plan& like, std::size_t elements)
    : choreography(like.choreography),
      protocol(like.protocol),
      slots(like.slots),
      direct(like.direct),
      in_place(like.in_place),
      root_in_place(like.root_in_place),
      notes(like.notes),
      verified(like.verified),
      count(elements),
      cut(like.cut),
      credits(like.credits),
      work_type(like.work_type),
      widened(like.widened),
      scaled(like.scaled),
      any_order(like.any_order),
      agrees(like.agrees),
      predicted_seconds(like.predicted_seconds),
      identity(like.identity) {}

std::shared_ptr<const program> plan::program_of(rank_t rank, std::span<const std::size_t> input_displacements,
                                                std::span<const std::size_t> output_displacements) const {
  call_shape s = shape();
  if (!input_displacements.empty() || !output_displacements.empty()) {
    s.input_displacements = input_displacements;
    s.output_displacements = output_displacements;
    return std::make_shared<const program>(compile(*notes, rank, s, cut));
  }
  // Not under the lock: ranks compile their own programs at the same time.
  return kept(programs_, rank, [&] { return std::make_shared<const program>(compile(*notes, rank, s, cut)); });
}

/// The rank's entry of `all`, made by `make` if there is none yet.
template <class Program, class Make>
std::shared_ptr<const Program> plan::kept(std::vector<std::shared_ptr<const Program>>& all, rank_t rank,
                                          Make&& make) const {
  const auto at = static_cast<std::size_t>(rank);
  bool first = false;
  {
    const std::lock_guard lock(lock_);
    first = all.empty();
    if (!first && all[at]) return all[at];
  }
  std::shared_ptr<const Program> made = make();
  std::vector<std::shared_ptr<const Program>> room(first ? static_cast<std::size_t>(notes->ranks) : 0);
  const std::lock_guard lock(lock_);
  if (all.empty()) all.swap(room);
  if (!all[at]) all[at] = std::move(made);
  return all[at];
}

std::shared_ptr<const slot_program> plan::slot_program_of(rank_t rank) const {
  return kept(slot_programs_, rank, [&] {
    const auto code = program_of(rank);
    if (!direct) return std::make_shared<const slot_program>(compile_slots(*code, *slots));
    slot_program made;
    made.ranks = notes->ranks;
    made.element_size = code->element_size;
    made.scratch_bytes = code->scratch_bytes;
    made.direct = direct_program_of_all();
    return std::make_shared<const slot_program>(std::move(made));
  });
}

/// One for all ranks: each may perform units of any.
std::shared_ptr<const direct_program> plan::direct_program_of_all() const {
  {
    const std::lock_guard lock(lock_);
    if (direct_program_) return direct_program_;
  }
  std::vector<std::shared_ptr<const program>> all;
  for (rank_t r = 0; r < notes->ranks; ++r) all.push_back(program_of(r));
  const direct_setting setting{notes->what, in_place || root_in_place, count * size_of(work_type)};
  auto made = std::make_shared<const direct_program>(compile_direct(all, setting));
  const std::lock_guard lock(lock_);
  if (!direct_program_) direct_program_ = std::move(made);
  return direct_program_;
}

std::uint64_t plan::computed_identity(std::uint64_t score_digest) const {
  word_hash h;
  h.add(choreography);
  h.add(protocol);
  h.add(score_digest);
  h.add((in_place ? 1u : 0u) | (root_in_place ? 2u : 0u) | (widened ? 4u : 0u) | (scaled ? 8u : 0u) |
        (any_order ? 16u : 0u) | (agrees ? 32u : 0u) | static_cast<std::uint64_t>(work_type) << 8 |
        static_cast<std::uint64_t>(credits) << 16);
  h.add(static_cast<std::uint64_t>(cut.channels) << 32 | static_cast<std::uint32_t>(cut.slices));
  return std::max<std::uint64_t>(h.state, 1);
}

std::string plan::title() const {
  char name[16];
  std::snprintf(name, sizeof name, "%08x", static_cast<unsigned>(identity >> 32));
  std::string text = choreography + ", protocol " + protocol;
  if (cut != cutting{})
    text += ", " + plural(static_cast<std::size_t>(cut.channels), "channel") + ", " +
            plural(static_cast<std::size_t>(cut.slices), "slice");
  return text + " (" + name + ")";
}

}  // namespace troupe
