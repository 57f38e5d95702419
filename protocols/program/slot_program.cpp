// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/slot_program.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "memory/error.hpp"

namespace troupe {

namespace {

/// The channels of a program, and the lines of each in the order of lanes.
class places {
public:
  explicit places(int ranks) : numbers_(2 * static_cast<std::size_t>(ranks), -1) {}

  /// Index of the channel.
  std::uint32_t take(rank_t peer, bool outgoing, std::size_t lines) {
    std::int32_t& at = number(peer, outgoing);
    if (at < 0) {
      at = static_cast<std::int32_t>(channels_.size());
      channels_.push_back({peer, outgoing, 0});
    }
    channels_[static_cast<std::size_t>(at)].lines += lines;
    return static_cast<std::uint32_t>(at);
  }

  /// −1 if there is none.
  std::int32_t find(rank_t peer, bool outgoing) { return number(peer, outgoing); }

  struct place {
    rank_t peer;
    bool outgoing;
    std::size_t lines;
  };
  const std::vector<place>& all() const { return channels_; }

private:
  std::int32_t& number(rank_t peer, bool outgoing) {
    return numbers_[2 * static_cast<std::size_t>(peer) + (outgoing ? 1 : 0)];
  }

  std::vector<std::int32_t> numbers_;  ///< by peer and direction
  std::vector<place> channels_;
};

std::uint32_t salt_of(slot_format format, std::size_t bytes) {
  const std::uint64_t mixed = (std::uint64_t{bytes} * 2 + (format == slot_format::ll128 ? 1 : 0)) * 0x9e3779b97f4a7c15U;
  return static_cast<std::uint32_t>(mixed >> 32);
}

/// Of a program of one lane: a copy to scratch that nothing writes again and whose source is unchanged until its last reader is left
/// out, and readers read the source. In place calls copy their input so that peers may read it by reference; over slots they need not.
/// The input and the output of an in-place call are one memory, so a write to either counts.
class copy_forwarding {
public:
  /// @param parts cells of a block
  copy_forwarding(std::vector<instruction>& steps, std::span<const cell_range> operands, int parts)
      : steps_(steps), operands_(operands), parts_(parts) {}

  void run() {
    for (std::size_t i = 0; i < steps_.size(); ++i)
      if (can_forward(i)) forward(i);
  }

private:
  static bool user_buffer(buffer_kind b) { return b == buffer_kind::input || b == buffer_kind::output; }

  bool writes_to(const instruction& s, const cell_range& at) const {
    if (!writes(s.kind)) return false;
    const auto touches = [&](const cell_range& target) {
      // How input and output lie to each other is known only when the call is made.
      if (target.count > 0 && user_buffer(at.buffer) && user_buffer(target.buffer) && at.buffer != target.buffer)
        return true;
      return overlap(target, at);
    };
    if (s.inputs == 0) return touches(s.target_cells);
    const auto out = operands_.subspan(s.operands + s.inputs, s.outputs);
    return std::any_of(out.begin(), out.end(), touches);
  }
  bool reads_fold(const instruction& s, const cell_range& at) const {
    if (s.inputs == 0) return false;
    const auto in = operands_.subspan(s.operands, s.inputs);
    return std::any_of(in.begin(), in.end(), [&](const cell_range& l) { return overlap(l, at); });
  }

  bool can_forward(std::size_t i) const {
    const instruction& copy = steps_[i];
    if (copy.kind != step_kind::copy || copy.inputs != 0 || copy.target_cells.count == 0) return false;
    if (copy.target_cells.buffer != buffer_kind::scratch) return false;
    const cell_range from = copy.source_cells, to = copy.target_cells;
    bool changed = false;
    for (std::size_t k = 0; k < steps_.size(); ++k) {
      const instruction& s = steps_[k];
      if (k == i) continue;
      if (writes_to(s, to)) return false;
      const bool reader = reads_source(s.kind) && s.inputs == 0 && overlap(s.source_cells, to);
      if (reads_fold(s, to)) return false;
      if (reader && (k < i || changed || !inside(s.source_cells, to))) return false;
      // A step that combines its source into the copy's memory element by element may do that; its later readers may not.
      if (reader && writes_to(s, from) && !same_elements(s, to, from)) return false;
      if (k > i) changed = changed || writes_to(s, from);
    }
    return true;
  }
  static bool inside(const cell_range& read, const cell_range& to) {
    return read.cell >= to.cell && read.cell + read.count <= to.cell + to.count;
  }
  /// Reads and writes the very same cells once the source is forwarded: kernels allow that. Across the two user buffers only
  /// the call knows, so only the whole buffers' begin, where in-place calls have them equal or apart by whole blocks.
  static bool same_elements(const instruction& s, const cell_range& to, const cell_range& from) {
    const cell_range& target = s.target_cells;
    const std::int32_t forwarded = s.source_cells.cell - to.cell + from.cell;
    return target.buffer == from.buffer ? target.cell == forwarded : forwarded == 0 && target.cell == 0;
  }

  void forward(std::size_t i) {
    const cell_range from = steps_[i].source_cells, to = steps_[i].target_cells;
    for (instruction& s : steps_) {
      if (&s == &steps_[i] || !reads_source(s.kind) || s.inputs != 0) continue;
      cell_range& read = s.source_cells;
      if (!overlap(read, to)) continue;
      cell_range moved = read;  // the same part of the same block, elsewhere
      moved.buffer = from.buffer;
      moved.owner = from.owner;
      moved.cell = read.cell - to.cell + from.cell;
      moved.index = index_of(from, moved.cell);
      read = moved;
    }
    steps_[i].kind = step_kind::wait;
    steps_[i].source_cells = steps_[i].target_cells = {};
  }
  /// A block's cells lie one behind the other in a buffer.
  std::int32_t index_of(const cell_range& from, std::int32_t cell) const {
    return user_buffer(from.buffer) ? cell / parts_ : 0;
  }

  std::vector<instruction>& steps_;
  std::span<const cell_range> operands_;
  int parts_;
};

/// `after` names a lane by its number among all lanes of its channel; here by its place among those that are not empty, and by a
/// step of the whole list. −1 when it names nothing that is still to wait for.
void resolve_after(const program& code, slot_program& made, const std::vector<std::int32_t>& index_of_lane) {
  for (std::size_t l = 0; l < code.lanes.size(); ++l) {
    if (index_of_lane[l] < 0) continue;
    const auto range = made.lanes[static_cast<std::size_t>(index_of_lane[l])];
    const std::size_t first_of_channel = l - l % static_cast<std::size_t>(code.lanes_per_channel);
    for (std::uint32_t s = range.begin; s < range.end; ++s) {
      const instruction& i = made.instructions[s];
      if (i.after_lane < 0) continue;
      const std::int32_t lane = index_of_lane[first_of_channel + static_cast<std::size_t>(i.after_lane)];
      if (lane < 0) continue;
      made.steps[s].after_lane = lane;
      made.steps[s].after_index =
          made.lanes[static_cast<std::size_t>(lane)].begin + static_cast<std::uint32_t>(i.after_index);
    }
  }
}

void append_lane(slot_program& made, std::vector<instruction> lane, places& where) {
  if (lane.empty()) return;
  const auto begin = static_cast<std::uint32_t>(made.steps.size());
  made.steps.reserve(begin + lane.size());
  for (const instruction& i : lane) {
    slot_step next;
    next.kind = i.kind;
    next.swapped = i.swapped;
    next.fold = i.inputs > 0;
    next.source = i.source_cells.buffer;
    next.target = i.target_cells.buffer;
    if (receives(i.kind)) next.in_channel = where.take(i.from, false, 0);
    if (sends(i.kind)) next.out_channel = where.take(i.to, true, 0);
    made.steps.push_back(next);
    made.reduces = made.reduces || reduces(i.kind) || i.inputs > 1;
  }
  if (begin == 0) made.instructions = std::move(lane);
  else made.instructions.insert(made.instructions.end(), lane.begin(), lane.end());
  made.lanes.push_back({begin, static_cast<std::uint32_t>(made.steps.size())});
}

/// A message's place is behind those before it in the channel. @pre places.set()
void find_places(slot_program& code) {
  code.scratch_bytes = code.places.scratch_bytes;
  code.l0_bytes = code.places.l0_bytes;
  code.largest = 0;
  code.most_lines = 0;
  code.operands.resize(code.operand_cells.size());
  for (auto& channel : code.channels) channel.lines = 0;
  const auto take = [&](std::uint32_t channel, std::size_t bytes) {
    auto& lines = code.channels[channel].lines;
    const auto line = std::exchange(lines, lines + static_cast<std::uint32_t>(slots::lines_of(code.format, bytes)));
    code.most_lines = std::max(code.most_lines, lines);
    return line;
  };
  for (std::size_t s = 0; s < code.steps.size(); ++s) {
    instruction& i = code.instructions[s];
    fit(i, code.places);
    if (i.inputs > 0) fit_operands(i, code.places, code.operand_cells, code.operands);
    slot_step& made = code.steps[s];
    made.bytes = i.elements * code.element_size;
    made.salt = salt_of(code.format, made.bytes);
    made.source_offset = i.source.offset;
    made.target_offset = i.target.offset;
    if (receives(i.kind)) made.in_line = take(made.in_channel, made.bytes);
    if (sends(i.kind)) made.out_line = take(made.out_channel, made.bytes);
    code.largest = std::max(code.largest, made.bytes);
  }
}

/// Which messages are their channels' only ones.
void find_only_ones(slot_program& code) {
  std::vector<int> messages(code.channels.size());
  for (const slot_step& s : code.steps) {
    if (receives(s.kind)) ++messages[s.in_channel];
    if (sends(s.kind)) ++messages[s.out_channel];
  }
  for (slot_step& s : code.steps) {
    s.only_in = receives(s.kind) && messages[s.in_channel] == 1;
    s.only_out = sends(s.kind) && messages[s.out_channel] == 1;
  }
}

bool sends_first(const slot_program& code) {
  const auto sources =
      std::count_if(code.channels.begin(), code.channels.end(), [](const auto& use) { return !use.outgoing; });
  if (sources != code.ranks - 1) return false;
  return std::all_of(code.lanes.begin(), code.lanes.end(), [&](const slot_program::lane_range& lane) {
    bool received = false;
    return std::all_of(code.steps.begin() + lane.begin, code.steps.begin() + lane.end, [&](const slot_step& s) {
      received = received || receives(s.kind);
      return !sends(s.kind) || (!received && s.after_lane < 0);
    });
  });
}

std::string too_large(const places::place& at, std::size_t most_lines) {
  return "messages " + std::string{at.outgoing ? "to" : "from"} + " rank " + std::to_string(at.peer) + " take " +
         std::to_string(at.lines) + " slot lines in one operation; a channel has " + std::to_string(most_lines);
}

}  // namespace

std::string why_no_slots(const program& code, slot_format format, std::size_t most_lines) {
  if (code.shares_memory) return "the program reads or writes other ranks' memory, which slots do not order";
  places where{code.ranks};
  for (const auto& lane : code.lanes)
    for (const instruction& i : lane) {
      if (i.kind == step_kind::sync) return "the score has a sync that was not lowered";
      const std::size_t lines = slots::lines_of(format, i.elements * code.element_size);
      if (receives(i.kind)) where.take(i.from, false, lines);
      if (sends(i.kind)) where.take(i.to, true, lines);
    }
  const std::size_t limit = std::min(most_lines, slots::most_lines);
  for (const auto& at : where.all())
    if (at.lines > limit) return too_large(at, limit);
  return {};
}

std::string why_torn(const program& code, slot_format format, std::size_t unit) {
  if (format != slot_format::ll128 || slots::ll128_payload % unit == 0) return {};
  for (const auto& lane : code.lanes)
    for (const instruction& i : lane)
      if (receives(i.kind) && reduces(i.kind) && i.elements * code.element_size > slots::ll128_payload)
        return "its messages are combined line by line, and no whole number of elements of " + std::to_string(unit) +
               " bytes fills the " + std::to_string(slots::ll128_payload) + " bytes of a line";
  return {};
}

bool surely_fits_slots(const score& s, const call_shape& shape, slot_format format, std::size_t most_lines) {
  const auto parts = static_cast<std::size_t>(s.parts);
  std::size_t cell = 0;
  for (std::size_t k = 0; k < parts; ++k)
    cell = std::max(cell, part_begin(shape.count, parts, k + 1) - part_begin(shape.count, parts, k));
  const std::size_t limit = std::min(most_lines, slots::most_lines);
  std::vector<std::size_t> to, from;  // lines, by peer
  for (const part& player : s.players) {
    to.assign(s.players.size(), 0);
    from.assign(s.players.size(), 0);
    const auto room = [limit](std::size_t& used, std::size_t lines) { return (used += lines) <= limit; };
    for (const lane& steps : player.lanes)
      for (const step& at : steps) {
        const auto cells = static_cast<std::size_t>(std::max(at.source.count, at.target.count));
        const std::size_t lines = slots::lines_of(format, cells * cell * shape.element_size);
        if (sends(at.kind) && !room(to[static_cast<std::size_t>(at.to)], lines)) return false;
        if (receives(at.kind) && !room(from[static_cast<std::size_t>(at.from)], lines)) return false;
      }
  }
  return true;
}

slot_program compile_slots(program code, slot_format format, std::size_t most_lines) {
  if (const std::string why = why_no_slots(code, format, most_lines); !why.empty()) throw error(errc::unsupported, why);
  static std::atomic<std::uint64_t> programs{0};
  slot_program made;
  made.format = format;
  made.ranks = code.ranks;
  made.element_size = code.element_size;
  made.operand_cells = std::move(code.operand_cells);
  made.places = std::move(code.places);
  made.identity = programs.fetch_add(1, std::memory_order_relaxed) + 1;
  places where{code.ranks};
  std::vector<std::int32_t> index_of_lane(code.lanes.size(), -1);
  // One lane performs its steps in order anyhow, so it needs no waits.
  const bool alone = std::count_if(code.lanes.begin(), code.lanes.end(), [](const auto& l) { return !l.empty(); }) == 1;
  for (std::size_t l = 0; l < code.lanes.size(); ++l) {
    if (code.lanes[l].empty()) continue;
    index_of_lane[l] = static_cast<std::int32_t>(made.lanes.size());
    std::vector<instruction> lane = std::move(code.lanes[l]);
    if (alone) {
      copy_forwarding{lane, made.operand_cells, code.parts}.run();
      std::erase_if(lane, [](const instruction& i) { return i.kind == step_kind::wait; });
    }
    append_lane(made, std::move(lane), where);
  }
  if (!alone) resolve_after(code, made, index_of_lane);
  for (const auto& at : where.all())
    made.channels.push_back({at.peer, at.outgoing, 0, at.outgoing ? where.find(at.peer, false) : -1});
  find_only_ones(made);
  made.sends_first = sends_first(made);
  find_places(made);
  return made;
}

void fit(slot_program& code, const call_shape& shape) {
  code.places.set(shape);
  code.element_size = shape.element_size;
  find_places(code);
  if (code.most_lines > slots::most_lines)
    throw error(errc::unsupported,
                "a message takes more slot lines than a channel can have, " + std::to_string(slots::most_lines));
}

}  // namespace troupe
