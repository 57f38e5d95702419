// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations over a slot board for tests: programs of a collective for all ranks, buffers, and the answer.

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "actors/ports/direct/direct_performer.hpp"
#include "actors/ports/slots/slot_performer.hpp"
#include "actors/waiting/slot_waiting.hpp"
#include "memory/types/types.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/agreement_round.hpp"
#include "protocols/lower/lowering.hpp"

namespace slot_test {

using namespace troupe;

struct direct_port {};

/// One collective on i64 over a board's ranks, compiled once.
struct operation {
  operation(std::string_view choreography, setup on, std::size_t elements, slot_format format, cutting cut = {},
            std::size_t most_lines = slot_channel::most_lines, agreement_form form = agreement_form::none)
      : where(on), count(elements) {
    score s = lower_syncs(write_score(*find_choreography(choreography), on));
    if (form != agreement_form::none) s = with_agreement(s, form).value();
    if (cut.channels > 1 || cut.slices > 1) s = one_cell_per_step(s);
    shape.count = count;
    shape.element_size = sizeof(std::int64_t);
    for (rank_t r = 0; r < on.ranks; ++r) code.push_back(compile_slots(compile(s, r, shape, cut), format, most_lines));
  }

  operation(std::string_view choreography, setup on, std::size_t elements, direct_port) : where(on), count(elements) {
    const score s = lower_syncs(write_score(*find_choreography(choreography), on));
    shape.count = count;
    shape.element_size = sizeof(std::int64_t);
    std::vector<std::shared_ptr<const program>> all;
    for (rank_t r = 0; r < on.ranks; ++r) all.push_back(std::make_shared<const program>(compile(s, r, shape, {})));
    const direct_setting setting{on.what, on.root, on.in_place};
    over_buffers = compile_direct(all, setting);
  }

  std::size_t inputs(rank_t r) const {
    return input_bytes(where.what, where.ranks, where.root, r, shape) / sizeof(std::int64_t);
  }
  std::size_t outputs(rank_t r) const {
    return output_bytes(where.what, where.ranks, where.root, r, shape) / sizeof(std::int64_t);
  }

  setup where;
  std::size_t count;
  call_shape shape;
  std::vector<slot_program> code;  ///< of slots
  direct_program over_buffers;     ///< of the direct port
};

/// What rank r contributes at element i of block b in a round of the test. Blocks of a rank's input are counted from 0.
inline std::int64_t contribution(rank_t r, std::size_t index, std::uint64_t round) {
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(r) + 1) * 1000003 + index * 7919 + round * 104729);
}

/// One rank's memory and performer.
template <class Performer>
struct basic_player {
  basic_player(slot_board& board, rank_t r) : rank(r), performs(board, r) {}

  void start(const operation& what, std::uint64_t sequence, std::uint64_t fingerprint = 0x1234567890abcdef) {
    const auto own_place = static_cast<std::size_t>(rank);
    const auto& code = [&]() -> const auto& {
      if constexpr (std::is_same_v<Performer, slot_performer>) return what.code[own_place];
      else return what.over_buffers;
    }
    ();
    std::size_t scratch_bytes = 0, l0_bytes = 0;
    if constexpr (std::is_same_v<Performer, slot_performer>)
      scratch_bytes = code.scratch_bytes, l0_bytes = code.l0_bytes;
    const std::size_t in = what.inputs(rank), out = what.outputs(rank);
    const collective c = what.where.what;
    scratch.assign(scratch_bytes + l0_bytes + 1, std::byte{0x55});
    memory_map memory;
    memory.scratch = scratch.data();
    memory.l0 = scratch.data() + scratch_bytes;
    output.assign(std::max(out, in) + 1, -1);
    std::int64_t* begin = nullptr;
    if (what.where.in_place) {
      // The smaller buffer is the rank's own block of the larger one.
      const std::size_t own = static_cast<std::size_t>(rank) * what.count;
      const bool root = !has_root(c) || rank == what.where.root;
      const std::size_t in_at = (c == collective::all_gather || (c == collective::gather && root)) ? own : 0;
      const std::size_t out_at = (c == collective::reduce_scatter || (c == collective::scatter && root)) ? own : 0;
      begin = output.data() + in_at;
      result = output.data() + out_at;
    } else {
      input.assign(in + 1, 0);
      begin = input.data();
      result = output.data();
    }
    for (std::size_t i = 0; i < in; ++i) begin[i] = contribution(rank, i, sequence);
    memory.input = reinterpret_cast<std::byte*>(begin);
    memory.output = reinterpret_cast<std::byte*>(result);
    if constexpr (std::is_same_v<Performer, slot_performer>)
      performs.start(code, memory, datatype::i64, sum, sequence, fingerprint);
    else performs.start(code, memory, what.shape, datatype::i64, sum, sequence, fingerprint);
  }

  /// Number of wrong elements in the output.
  std::size_t wrong(const operation& what) const {
    const setup& on = what.where;
    const auto n = static_cast<std::size_t>(what.where.ranks);
    std::size_t errors = 0;
    for (std::size_t i = 0; i < what.outputs(rank); ++i) {
      const std::size_t block = what.count == 0 ? 0 : i / what.count, within = what.count == 0 ? 0 : i % what.count;
      const std::size_t mine = static_cast<std::size_t>(rank) * what.count + within;
      const auto of = [round = performs.sequence()](rank_t r, std::size_t index) {
        return static_cast<std::uint64_t>(contribution(r, index, round));
      };
      std::uint64_t expected = 0;  // which may wrap
      switch (on.what) {
        case collective::all_reduce:
        case collective::reduce:
          for (std::size_t q = 0; q < n; ++q) expected += of(static_cast<rank_t>(q), i);
          break;
        case collective::scan:
        case collective::exscan:
          for (rank_t q = 0; q < rank + (on.what == collective::scan ? 1 : 0); ++q) expected += of(q, i);
          break;
        case collective::reduce_scatter:
          for (std::size_t q = 0; q < n; ++q) expected += of(static_cast<rank_t>(q), mine);
          break;
        case collective::all_gather:
        case collective::gather: expected = of(static_cast<rank_t>(block), within); break;
        case collective::all_to_all: expected = of(static_cast<rank_t>(block), mine); break;
        case collective::broadcast: expected = of(on.root, i); break;
        case collective::scatter: expected = of(on.root, mine); break;
        case collective::barrier: break;
      }
      errors += result[i] != static_cast<std::int64_t>(expected) ? 1 : 0;
    }
    return errors;
  }

  rank_t rank;
  Performer performs;
  std::vector<std::int64_t> input, output;
  std::int64_t* result = nullptr;
  std::vector<std::byte> scratch;
};
using player = basic_player<slot_performer>;
using direct_player = basic_player<direct_performer>;

inline std::string describe(const operation& what, std::string_view choreography) {
  return std::string{choreography} + ' ' + std::string{name(what.where.what)} + ", " +
         std::to_string(what.where.ranks) + " ranks, root " + std::to_string(what.where.root) + ", " +
         std::to_string(what.count) + " elements" + (what.where.in_place ? ", in place" : "");
}

}  // namespace slot_test
