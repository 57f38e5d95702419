// SPDX-License-Identifier: Apache-2.0
#include "protocols/verify/verifier_memory.hpp"

namespace troupe::verifying {

cell_table::cell_table(const score& s, int slices)
    : slices_(static_cast<std::size_t>(slices)),
      uniform_(s.uniform),
      parts_(s.parts),
      chunk_total_(block_count(s.what, s.ranks) * s.parts),
      first_(static_cast<std::size_t>(s.ranks) * buffers) {
  number_cells(s);
  if (!s.in_place) return;
  canonical_.resize(chunks_.size());
  for (std::size_t cell = 0; cell < canonical_.size(); ++cell) canonical_[cell] = cell;
  for (rank_t r = 0; r < s.ranks; ++r)
    for (const buffer_kind b : {buffer_kind::input, buffer_kind::output})
      for (std::int32_t c = 0, n = cell_count(s, r, b); c < n; ++c) {
        const place at{b, r, c, 1};
        canonical_[number(r, at)] = number(r, canonical(s, r, at));
      }
}

void cell_table::number_cells(const score& s) {
  const auto buffers_of = {buffer_kind::input, buffer_kind::output, buffer_kind::scratch, buffer_kind::l0};
  auto total = static_cast<std::size_t>(cell_count(s, 0, buffer_kind::l2));
  for (rank_t r = 0; r < s.ranks; ++r)
    for (const buffer_kind b : buffers_of) total += static_cast<std::size_t>(cell_count(s, r, b));
  const bool parts_matter = uniform_ && parts_ > 1;
  chunks_.reserve(total);
  if (parts_matter) part_of_.reserve(total);
  const auto add = [&](rank_t owner, buffer_kind b, std::size_t slot) {
    first_[slot] = chunks_.size();
    for (std::int32_t c = 0, n = cell_count(s, owner, b); c < n; ++c) {
      const extent e = extent_of(s, owner, b, c);
      chunks_.push_back(e.block * parts_ + e.part);
      if (parts_matter) part_of_.push_back(e.part);
    }
  };
  const auto slot = [](rank_t r, buffer_kind b) {
    return static_cast<std::size_t>(r) * buffers + static_cast<std::size_t>(b);
  };
  for (rank_t r = 0; r < s.ranks; ++r)
    for (const buffer_kind b : {buffer_kind::input, buffer_kind::output, buffer_kind::scratch}) add(r, b, slot(r, b));
  add(0, buffer_kind::l2, slot(0, buffer_kind::l2));
  shared_ = chunks_.size();
  for (rank_t r = 0; r < s.ranks; ++r) add(r, buffer_kind::l0, slot(r, buffer_kind::l0));
}

std::size_t cell_table::number(rank_t rank, const place& at) const {
  const rank_t owner = at.buffer == buffer_kind::l2 ? 0 : at.owner == self ? rank : at.owner;
  return first_[static_cast<std::size_t>(owner) * buffers + static_cast<std::size_t>(at.buffer)] +
         static_cast<std::size_t>(at.cell);
}

void cell_memory::forget(std::int32_t& link) {
  const std::int32_t entry = link;
  link = reads_[static_cast<std::size_t>(entry)].next;
  reads_[static_cast<std::size_t>(entry)].next = free_;
  free_ = entry;
}

epoch cell_memory::read(std::size_t location, clock_view known, epoch now) {
  cell& c = cells_[location];
  if (!ordered(known, now.lane, c.last_write)) return c.last_write;
  // Reads that are ordered before this one need not be remembered: an access after this one comes after them, too.
  for (std::int32_t* link = &c.reads; *link >= 0;) {
    read_entry& entry = reads_[static_cast<std::size_t>(*link)];
    if (ordered(known, now.lane, entry.at)) forget(*link);
    else link = &entry.next;
  }
  if (free_ < 0) {
    free_ = static_cast<std::int32_t>(reads_.size());
    reads_.push_back({{}, -1});
  }
  const std::int32_t entry = free_;
  free_ = reads_[static_cast<std::size_t>(entry)].next;
  reads_[static_cast<std::size_t>(entry)] = {now, c.reads};
  c.reads = entry;
  return {};
}

epoch cell_memory::write(std::size_t location, clock_view known, epoch now, node_id value, bool& conflicts_with_read) {
  cell& c = cells_[location];
  if (!ordered(known, now.lane, c.last_write)) return conflicts_with_read = false, c.last_write;
  while (c.reads >= 0) {
    const epoch reader = reads_[static_cast<std::size_t>(c.reads)].at;
    if (!ordered(known, now.lane, reader)) return conflicts_with_read = true, reader;
    forget(c.reads);
  }
  c.last_write = now;
  c.value = value;
  return {};
}

}  // namespace troupe::verifying
