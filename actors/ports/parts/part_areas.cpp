// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/parts/part_areas.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <string>

#include "memory/error.hpp"

namespace troupe::actors {

part_areas::part_areas(int ranks, board_memory& memory)
    : memory_(&memory),
      directories_(memory.roots<directory>(static_cast<std::size_t>(ranks))),
      rows_(static_cast<std::size_t>(ranks)) {}

/// Areas of 64, 128 … lines; of each size at most as many as there are operations at once.
std::size_t part_areas::most_bytes(int ranks) {
  std::size_t each = sizeof(directory);
  for (std::uint32_t lines = fewest_lines; lines <= part_links::most_lines_between; lines *= 2)
    each += most * (area::bytes(lines) + board_memory::alignment);
  return static_cast<std::size_t>(ranks) * (each + board_memory::alignment);
}

/// @pre locked
std::size_t part_areas::take_area(row& of, std::uint32_t lines) {
  const std::uint32_t wanted = std::max(fewest_lines, std::bit_ceil(lines));
  std::size_t best = of.areas.size();
  for (std::size_t i = 0; i < of.areas.size(); ++i)
    if (const owned& a = of.areas[i];
        a.free && a.lines >= wanted && (best == of.areas.size() || a.lines < of.areas[best].lines))
      best = i;
  if (best < of.areas.size()) return best;
  of.areas.reserve(of.areas.size() + 1);
  void* const room = memory_->take(area::bytes(wanted));
  if (room == nullptr)
    throw error(errc::out_of_memory, "the memory that the processes of this host share has no room for its parts");
  // Zeros are what all of it begins with.
  of.areas.push_back({new (room) area, wanted, 0, true});
  return best;
}

link_view part_areas::enter(epoch_t epoch, std::uint64_t fingerprint, rank_t rank, const part_links& shape) {
  row& mine = rows_[static_cast<std::size_t>(rank)];
  std::size_t use = 0;
  owned with{};
  {
    const std::lock_guard lock(mutex_);
    while (use < most && mine.uses[use].names != 0) ++use;
    if (use == most)
      throw error(errc::out_of_memory, "rank " + std::to_string(rank) + " is in " + std::to_string(most) +
                                           " partitioned operations already");
    const std::size_t which = take_area(mine, shape.lines_of(rank));
    owned& taken = mine.areas[which];
    taken.free = false;
    // After 2³² uses a line that smaller operations have not touched since could hold the stamp that comes now.
    if (++taken.stamp == 0) {
      for (std::uint32_t l = 0; l < taken.lines; ++l) {
        taken.at->lines()[l].sent.store(0, std::memory_order_relaxed);
        taken.at->lines()[l].taken.store(0, std::memory_order_relaxed);
        taken.at->lines()[l].wanted.store(0, std::memory_order_relaxed);
      }
      taken.stamp = 1;
    }
    mine.uses[use] = {epoch + 1, which, false};
    with = taken;
  }
  link_member& words = with.at->words;
  words.open.store(0, std::memory_order_relaxed);
  words.waits.store(false, std::memory_order_relaxed);
  words.told.store(false, std::memory_order_relaxed);
  entry& to = directories_[rank].of[use];
  // A rank that sees any of these stores sees, too, that the entry is not that of the operation before.
  to.fingerprint.store(fingerprint, std::memory_order_release);
  to.stamp.store(with.stamp, std::memory_order_release);
  to.at.store(with.at, std::memory_order_release);
  to.names.store(epoch + 1);  // C1
  return {&words, with.at->news, with.at->lines(), with.stamp, &to.names};
}

part_areas::found part_areas::find(epoch_t epoch, std::uint64_t fingerprint, rank_t rank, link_view& view) const {
  for (const entry& e : directories_[rank].of) {
    if (e.names.load() != epoch + 1) continue;  // N2, C2
    const std::uint64_t called = e.fingerprint.load(std::memory_order_acquire);
    const std::uint32_t stamp = e.stamp.load(std::memory_order_acquire);
    area* const at = e.at.load(std::memory_order_acquire);
    // Unless it has left meanwhile, and these are of what follows.
    if (e.names.load(std::memory_order_relaxed) != epoch + 1 || at == nullptr) return found::nothing;
    if (called != fingerprint) return found::unlike;
    view = {&at->words, at->news, at->lines(), stamp, &e.names};
    return found::it;
  }
  return found::nothing;
}

void part_areas::leave(epoch_t epoch, rank_t rank, bool performed) {
  row& mine = rows_[static_cast<std::size_t>(rank)];
  const std::lock_guard lock(mutex_);
  const auto use = std::ranges::find(mine.uses, epoch + 1, &row::use::names);
  if (use == mine.uses.end() || use->given_up) return;
  directories_[rank].of[static_cast<std::size_t>(use - mine.uses.begin())].names.store(0, std::memory_order_release);
  if (performed) return let_go(rank, *use);
  use->given_up = true;
}

void part_areas::forget(epoch_t epoch) {
  const std::lock_guard lock(mutex_);
  for (std::size_t r = 0; r < rows_.size(); ++r)
    for (row::use& use : rows_[r].uses)
      if (use.names == epoch + 1 && use.given_up) let_go(static_cast<rank_t>(r), use);
}

/// @pre locked
void part_areas::let_go(rank_t rank, row::use& what) {
  rows_[static_cast<std::size_t>(rank)].areas[what.area].free = true;
  what = {};
}

}  // namespace troupe::actors
