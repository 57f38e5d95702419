// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/shared_pieces.hpp"

#include "topology/machine/shared_segment.hpp"

namespace troupe {

std::vector<shared_piece> shared_pieces(const program& code, const instruction& i) {
  const cell_range& at = i.source.buffer == buffer_kind::l2 ? i.source_cells : i.target_cells;
  const auto home = [&](std::int32_t cell) {
    return home_of_shared_cell(cell, code.places.l2_cell_count(), code.ranks);
  };
  std::vector<shared_piece> pieces{{home(at.cell), 0, i.elements * code.element_size}};
  const std::size_t first = code.places.l2_begin(at.cell);
  for (std::int32_t cell = at.cell + 1; cell < at.cell + at.count; ++cell) {
    shared_piece& last = pieces.back();
    if (home(cell) == last.home) continue;
    const std::size_t begin = code.places.l2_begin(cell) - first;  // several cells are not cut
    const shared_piece next{home(cell), begin, last.begin + last.bytes - begin};
    last.bytes = begin - last.begin;
    pieces.push_back(next);
  }
  return pieces;
}

}  // namespace troupe
