// SPDX-License-Identifier: Apache-2.0
#include "protocols/score/score.hpp"

#include <algorithm>
#include <array>

#include "memory/word_hash.hpp"

namespace troupe {

namespace {
constexpr std::array<std::string_view, 6> buffer_names = {"none", "input", "output", "scratch", "l0", "l2"};
constexpr std::array<std::string_view, step_kind_count> kind_names = {"send",
                                                                      "recv",
                                                                      "copy",
                                                                      "reduce",
                                                                      "recv_reduce",
                                                                      "recv_copy_send",
                                                                      "recv_reduce_send",
                                                                      "recv_reduce_copy",
                                                                      "recv_reduce_copy_send",
                                                                      "dma_get",
                                                                      "dma_put",
                                                                      "sync",
                                                                      "wait"};

block_run blocks_of(const score& s, rank_t rank, buffer_kind buffer) {
  return buffer == buffer_kind::input ? input_blocks(s.what, s.ranks, s.root, rank)
                                      : output_blocks(s.what, s.ranks, s.root, rank);
}
}  // namespace

std::string_view name(buffer_kind kind) { return buffer_names[static_cast<std::size_t>(kind)]; }
std::string_view name(step_kind kind) { return kind_names[static_cast<std::size_t>(kind)]; }

std::string_view name(message_name which) {
  static constexpr std::array<std::string_view, message_name_count> names{"",           "Ack",      "Async",
                                                                          "DataSignal", "WaitDone", "Done"};
  return names[static_cast<std::size_t>(which)];
}

std::int32_t cell_count(const score& s, rank_t rank, buffer_kind buffer) {
  const auto size = [](const std::vector<extent>& cells) { return static_cast<std::int32_t>(cells.size()); };
  switch (buffer) {
    case buffer_kind::none: return 0;
    case buffer_kind::input:
    case buffer_kind::output: return blocks_of(s, rank, buffer).count * s.parts;
    case buffer_kind::scratch: return size(s.players[static_cast<std::size_t>(rank)].scratch);
    case buffer_kind::l0: return size(s.players[static_cast<std::size_t>(rank)].l0);
    case buffer_kind::l2: return size(s.l2);
  }
  return 0;
}

extent extent_of(const score& s, rank_t rank, buffer_kind buffer, std::int32_t cell) {
  const auto at = static_cast<std::size_t>(cell);
  switch (buffer) {
    case buffer_kind::scratch: return s.players[static_cast<std::size_t>(rank)].scratch[at];
    case buffer_kind::l0: return s.players[static_cast<std::size_t>(rank)].l0[at];
    case buffer_kind::l2: return s.l2[at];
    default: break;
  }
  const block_run run = blocks_of(s, rank, buffer);
  const std::int64_t block = run.first + static_cast<std::int64_t>(cell / s.parts) * run.stride;
  return {block, cell % s.parts};
}

bool same_size(const score& s, const extent& a, const extent& b) {
  return a.part == b.part && (s.uniform || a.block == b.block);
}

place canonical(const score& s, rank_t rank, const place& at) {
  place named = at;
  named.count = 1;
  if (at.buffer == buffer_kind::l2) return named.owner = self, named;
  if (at.owner == self) named.owner = rank;
  if (!s.in_place) return named;
  const rank_t owner = named.owner;
  if ((at.buffer != buffer_kind::input && at.buffer != buffer_kind::output) ||
      !shares_buffers(s.what, s.ranks, s.root, owner))
    return named;
  const std::int32_t in = blocks_of(s, owner, buffer_kind::input).count,
                     out = blocks_of(s, owner, buffer_kind::output).count;
  const buffer_kind larger = out > in ? buffer_kind::output : buffer_kind::input;
  if (at.buffer == larger) return named;
  named.buffer = larger;
  if (in != out) named.cell = owner * s.parts + at.cell;
  return named;
}

bool touches_own_input(const score& s, rank_t rank, const place& at) {
  if (at.count == 0 || (at.owner != self && at.owner != rank)) return false;
  if (at.buffer == buffer_kind::input) return true;
  const std::int32_t inputs = cell_count(s, rank, buffer_kind::input);
  if (at.buffer != buffer_kind::output || inputs == 0) return false;
  // In place the input is one stretch of the larger buffer.
  const place first = canonical(s, rank, {buffer_kind::input, self, 0, 1}), named = canonical(s, rank, at);
  return named.buffer == first.buffer && named.cell < first.cell + inputs && first.cell < named.cell + at.count;
}

std::size_t step_total(const score& s) {
  std::size_t total = 0;
  for (const part& player : s.players)
    for (const lane& steps : player.lanes) total += steps.size();
  return total;
}

std::size_t single_step_total(const score& s) {
  std::size_t total = 0;
  for (const part& player : s.players)
    for (const lane& l : player.lanes)
      for (const step& at : l) total += static_cast<std::size_t>(std::max({1, at.source.count, at.target.count}));
  return total;
}

namespace {

void add_place(word_hash& h, const place& at) {
  h.add(static_cast<std::uint64_t>(at.buffer) << 32 | static_cast<std::uint32_t>(at.owner));
  h.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(at.cell)) << 32 | static_cast<std::uint32_t>(at.count));
}

void add_extents(word_hash& h, const std::vector<extent>& cells) {
  h.add(cells.size());
  for (const extent& e : cells) {
    h.add(static_cast<std::uint64_t>(e.block));
    h.add(static_cast<std::uint32_t>(e.part));
  }
}

void add_step(word_hash& h, const step& s) {
  h.add(static_cast<std::uint64_t>(s.kind) | (s.swapped ? 0x100u : 0u) | static_cast<std::uint64_t>(s.fan) << 16);
  h.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(s.from)) << 32 | static_cast<std::uint32_t>(s.to));
  add_place(h, s.source);
  add_place(h, s.target);
  h.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(s.after.lane)) << 32 |
        static_cast<std::uint32_t>(s.after.step));
  if (s.ready_part >= 0) h.add(static_cast<std::uint32_t>(s.ready_part));
}

}  // namespace

std::uint64_t digest(const score& s) {
  word_hash h;
  h.add(static_cast<std::uint64_t>(s.what) | (s.in_place ? 0x100u : 0u) | (s.uniform ? 0x200u : 0u));
  for (const int number : {s.ranks, static_cast<int>(s.root), s.parts}) h.add(static_cast<std::uint32_t>(number));
  if (s.partitions > 0) h.add(static_cast<std::uint32_t>(s.partitions));
  add_extents(h, s.l2);
  for (const part& player : s.players) {
    add_extents(h, player.scratch);
    add_extents(h, player.l0);
    h.add(player.lanes.size());
    for (const lane& l : player.lanes) {
      h.add(l.size());
      for (const step& at : l) add_step(h, at);
    }
  }
  for (const fabric_switch& f : s.switches) {
    h.add(static_cast<std::uint32_t>(f.server));
    h.add(f.members.size());
    for (const rank_t r : f.members) h.add(static_cast<std::uint32_t>(r));
    for (const fabric_switch::seat& at : f.lanes)
      h.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(at.rank)) << 32 |
            static_cast<std::uint32_t>(at.lane));
  }
  return h.state;
}

std::string to_string(const place& at) {
  if (at.count == 0) return "token";
  std::string text{name(at.buffer)};
  text += '[' + std::to_string(at.cell);
  if (at.count != 1) text += ".." + std::to_string(std::int64_t{at.cell} + at.count) + ')';
  else text += ']';
  if (at.owner != self) text += '@' + std::to_string(at.owner);
  return text;
}

std::string to_string(const step& s) {
  std::string text{name(s.kind)};
  text += ':';
  const std::size_t bare = text.size();
  if (receives(s.kind)) text += " from " + std::to_string(s.from);
  if (receives(s.kind) && reduces(s.kind))
    text += (s.swapped ? " ⊕' " : " ⊕ ") + to_string(reads_target(s.kind) ? s.target : s.source);
  else if (reads_source(s.kind))
    text += (s.kind == step_kind::reduce && s.swapped ? " ⊕' " : " ") + to_string(s.source);
  if (writes(s.kind)) text += " → " + to_string(s.target);
  if (sends(s.kind)) text += " → rank " + std::to_string(s.to);
  if (s.fan != 0) text += ", fan " + std::to_string(s.fan);
  if (s.called != message_name::none) text += " (" + std::string{name(s.called)} + ')';
  if (s.ready_part >= 0) text += " until piece " + std::to_string(s.ready_part) + " is ready";
  if (s.after.lane >= 0)
    text += std::string{text.size() == bare ? " after" : ", after"} + " lane " + std::to_string(s.after.lane) +
            " step " + std::to_string(s.after.step);
  else if (text.size() == bare) text.pop_back();
  return text;
}

}  // namespace troupe
