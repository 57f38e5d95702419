// SPDX-License-Identifier: Apache-2.0
#include "protocols/perform/program_proof.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "protocols/perform/received.hpp"
#include "protocols/perform/symbolic_memory.hpp"
#include "protocols/program/direct_sizes.hpp"

namespace troupe {

namespace {

using namespace proving;

// -- slots ------------------------------------------------------------------------------------------------------------

using clock = std::vector<std::uint32_t>;  ///< by lane of all ranks: how many of its steps are known

struct message {
  std::size_t bytes = 0;
  std::size_t lines = 0;
  std::uint32_t salt = 0;
  bool read = false;
  values carried;
  clock known;
};

/// Runs all ranks' slot programs. Like the verifier's run, one interleaving decides for all: lanes never choose.
class slot_run {
public:
  slot_run(const proof_subject& what, std::span<const slot_program> programs)
      : programs_(programs),
        memory_(what, sizes(programs, &slot_program::scratch_bytes), sizes(programs, &slot_program::l0_bytes)) {
    for (std::size_t r = 0; r < programs.size(); ++r) {
      first_lane_.push_back(lanes_.size());
      for (const slot_program::lane_range& l : programs[r].lanes)
        lanes_.push_back({static_cast<rank_t>(r), l.begin, l.begin, l.end, {}, {}});
    }
    for (lane& l : lanes_) l.known.resize(lanes_.size());
    touched_.resize(memory_.places());
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t l = 0; l < lanes_.size(); ++l)
        while (lanes_[l].next < lanes_[l].end && step(l)) moved = true;
    }
    at_ = lanes_.size();
    for (const lane& l : lanes_)
      if (l.next < l.end) throw difference{where(l) + " never comes to pass"};
    for (const auto& [pair, all] : sent_)
      for (const auto& [line, m] : all)
        if (!m.read)
          throw difference{"rank " + std::to_string(pair.second) + " never reads a message of rank " +
                           std::to_string(pair.first)};
    check_heard();
    memory_.check_outputs();
  }

  std::string at_fault() const { return at_ < lanes_.size() ? where(lanes_[at_]) + ": " : ""; }

private:
  struct lane {
    rank_t rank;
    std::uint32_t begin, next, end;
    clock known;
    std::vector<clock> known_after;  ///< each step
  };
  struct access {
    std::size_t lane = 0;
    std::uint32_t time = 0;
  };
  struct accesses {
    std::optional<access> write;
    std::vector<access> reads;
  };

  static std::vector<std::size_t> sizes(std::span<const slot_program> all, std::size_t slot_program::*bytes) {
    std::vector<std::size_t> list;
    for (const slot_program& p : all) list.push_back(p.*bytes);
    return list;
  }
  static std::string where(const lane& l) {
    return "rank " + std::to_string(l.rank) + ", step " + std::to_string(l.next);
  }
  const slot_program& code(const lane& l) const { return programs_[static_cast<std::size_t>(l.rank)]; }

  /// False: something is missing.
  bool step(std::size_t number) {
    at_ = number;
    lane& me = lanes_[number];
    const slot_program& mine = code(me);
    const slot_step& s = entry(mine.steps, me.next);
    if (s.after_lane >= 0) {
      static_cast<void>(entry(mine.lanes, static_cast<std::size_t>(s.after_lane)));
      const lane& other =
          lanes_[first_lane_[static_cast<std::size_t>(me.rank)] + static_cast<std::size_t>(s.after_lane)];
      if (other.next <= s.after_index) return false;
      learn(me, entry(other.known_after, s.after_index - other.begin));
    }
    if (receives(s.kind)) {
      message* const in = incoming(me, s);
      if (in == nullptr) return false;
      in->read = true;
      learn(me, in->known);
      ++me.known[number];
      receive(number, s, in->carried);
    } else {
      ++me.known[number];
      if (s.kind == step_kind::send) send(number, s, fetch(number, span(me, s.source, s.source_offset, s.bytes)));
      else local(number, s);
    }
    me.known_after.push_back(me.known);
    ++me.next;
    return true;
  }

  static void learn(lane& me, const clock& other) {
    for (std::size_t i = 0; i < other.size(); ++i) me.known[i] = std::max(me.known[i], other[i]);
  }

  message* incoming(const lane& me, const slot_step& s) {
    const auto& use = entry(code(me).channels, s.in_channel);
    if (use.outgoing) throw difference{"receives from a channel that it sends on"};
    auto& channel = sent_[{use.peer, me.rank}];
    const auto at = channel.find(s.in_line);
    if (at == channel.end()) return nullptr;
    if (at->second.bytes != s.bytes || at->second.salt != s.salt)
      throw difference{"meets a message of " + text(at->second.bytes) + " bytes where it expects " + text(s.bytes)};
    if (at->second.read) throw difference{"reads a message twice"};
    return &at->second;
  }

  void receive(std::size_t number, const slot_step& s, values result) {
    as_received(s.kind, [&](auto step) {
      const lane& me = lanes_[number];
      if constexpr (step.combines) {
        const values own = fetch(number, step.with_target ? span(me, s.target, s.target_offset, s.bytes)
                                                          : span(me, s.source, s.source_offset, s.bytes));
        for (std::size_t k = 0; k < result.size(); ++k)
          result[k] = s.swapped ? memory_.combine(own[k], result[k]) : memory_.combine(result[k], own[k]);
      }
      if constexpr (step.keeps) store(number, span(me, s.target, s.target_offset, s.bytes), result);
      if constexpr (step.forwards) send(number, s, std::move(result));
    });
  }

  void send(std::size_t number, const slot_step& s, values carried) {
    const lane& me = lanes_[number];
    const auto& use = entry(code(me).channels, s.out_channel);
    if (!use.outgoing) throw difference{"sends on a channel that it receives from"};
    const std::size_t lines = slots::lines_of(code(me).format, s.bytes);
    if (s.out_line + lines > use.lines) throw difference{"writes beyond its channel's lines"};
    auto& channel = sent_[{me.rank, use.peer}];
    const auto after = channel.lower_bound(s.out_line);
    const bool hits =
        (after != channel.end() && after->first < s.out_line + lines) ||
        (after != channel.begin() && std::prev(after)->first + std::prev(after)->second.lines > s.out_line);
    if (hits) throw difference{"writes over another message of the same operation"};
    channel.emplace(s.out_line, message{s.bytes, lines, s.salt, false, std::move(carried), me.known});
  }

  void local(std::size_t number, const slot_step& s) {
    const lane& me = lanes_[number];
    if (s.kind == step_kind::wait || s.bytes == 0) return;
    std::vector<element_span> in, out;
    if (s.fold) {
      const instruction& i = entry(code(me).instructions, me.next);
      for (std::size_t k = 0; k < std::size_t{i.inputs} + i.outputs; ++k) {
        const location& at = entry(code(me).operands, i.operands + k);
        if (at.owner != self) throw difference{"folds another rank's memory"};
        (k < i.inputs ? in : out).push_back(span(me, at.buffer, at.offset, s.bytes));
      }
    } else {
      in.push_back(span(me, s.source, s.source_offset, s.bytes));
      out.push_back(span(me, s.target, s.target_offset, s.bytes));
      if (s.kind == step_kind::reduce) in.insert(s.swapped ? in.end() : in.begin(), out.front());
    }
    check_pass(memory_, in, out);
    for (const element_span& from : in) note(number, from, false);
    perform_pass(memory_, in, out);
    for (const element_span& to : out) note(number, to, true);
  }

  element_span span(const lane& me, buffer_kind buffer, std::size_t offset, std::size_t bytes) const {
    return bytes == 0 ? element_span{me.rank} : memory_.span_of(me.rank, buffer, offset, bytes);
  }
  values fetch(std::size_t number, const element_span& from) {
    note(number, from, false);
    values read;
    for (std::size_t k = 0; k < from.count; ++k) read.push_back(memory_.read(from, k));
    return read;
  }
  void store(std::size_t number, const element_span& to, const values& what) {
    note(number, to, true);
    for (std::size_t k = 0; k < to.count; ++k) memory_.write(to, k, what[k]);
  }

  /// Whatever conflicts must have been before, whatever the other lanes do.
  void note(std::size_t number, const element_span& at, bool writes) {
    const lane& me = lanes_[number];
    const auto before = [&](const access& other) { return me.known[other.lane] >= other.time; };
    for (std::size_t k = 0; k < at.count; ++k) {
      accesses& seen = touched_[memory_.place(at, k)];
      const bool ordered = (!seen.write || before(*seen.write)) &&
                           (!writes || std::all_of(seen.reads.begin(), seen.reads.end(), before));
      if (!ordered) throw difference{to_string(at, k) + " is touched by another lane at the same time"};
      const access now{number, me.known[number]};
      if (writes) seen.write = now, seen.reads.clear();
      else seen.reads.push_back(now);
    }
  }

  void check_heard() const {
    for (std::size_t r = 0; r < programs_.size(); ++r) {
      std::vector<bool> heard(programs_.size(), false);
      heard[r] = true;
      for (const lane& l : lanes_)
        for (std::size_t other = 0; l.rank == static_cast<rank_t>(r) && other < lanes_.size(); ++other)
          if (l.known[other] > 0) heard[static_cast<std::size_t>(lanes_[other].rank)] = true;
      for (std::size_t q = 0; q < heard.size(); ++q)
        if (!heard[q]) throw difference{"rank " + text(r) + " may end before it has heard of rank " + text(q)};
    }
  }

  std::span<const slot_program> programs_;
  symbolic_memory memory_;
  std::vector<lane> lanes_;
  std::vector<std::size_t> first_lane_;                                       ///< by rank
  std::map<std::pair<rank_t, rank_t>, std::map<std::size_t, message>> sent_;  ///< by line of the channel's half
  std::vector<accesses> touched_;
  std::size_t at_ = ~std::size_t{0};
};

// -- direct -----------------------------------------------------------------------------------------------------------

/// What each rank knows of the call's sizes, as its performer does: its own lists, and those that the others publish.
class known_sizes {
public:
  known_sizes(const proof_subject& what, const direct_program& program) : of_rank_(program.bodies.size()) {
    const auto ranks = static_cast<rank_t>(of_rank_.size());
    if (ranks != what.notes.ranks) throw difference{"not every rank has a body"};
    for (rank_t r = 0; r < ranks; ++r) {
      std::vector<std::size_t> counts, received;
      call_shape mine = what.shape;
      if (!mine.counts.empty()) {
        lists_of(what, r, counts, received);
        mine.counts = counts;
        mine.received = received;
      }
      at(r).set(program, r, mine);
    }
    for (rank_t r = 0; r < ranks; ++r)
      for (rank_t q = 0; q < ranks && !at(r).equal(); ++q) at(r).learn(q, &at(q).mine());
  }

  const direct_sizes& of(rank_t rank) const { return of_rank_[static_cast<std::size_t>(rank)]; }
  std::vector<std::size_t> scratch() const {
    std::vector<std::size_t> list;
    for (const direct_sizes& s : of_rank_) list.push_back(s.scratch_bytes());
    return list;
  }
  /// Elements of an operand and bytes before it, about which all ranks must be of one mind: any of them may perform the unit.
  std::pair<std::size_t, std::size_t> place(const cell_range& at) const {
    const std::pair first{of_rank_.front().elements(at), of_rank_.front().offset(at)};
    for (const direct_sizes& s : of_rank_)
      if (std::pair{s.elements(at), s.offset(at)} != first)
        throw difference{"ranks disagree about where an operand of rank " + std::to_string(at.owner) + " lies"};
    return first;
  }

private:
  /// As a call says it: all blocks where they are common, those that the rank has where they are not.
  static void lists_of(const proof_subject& what, rank_t r, std::vector<std::size_t>& counts,
                       std::vector<std::size_t>& received) {
    const auto ranks = static_cast<std::size_t>(what.notes.ranks), own = static_cast<std::size_t>(r);
    const std::span<const std::size_t> all = what.shape.counts;
    const v_counts form = traits_of(what.notes.what).v;
    if (form == v_counts::every_pair) {
      for (std::size_t q = 0; q < ranks; ++q) {
        counts.push_back(entry(all, own * ranks + q));
        received.push_back(entry(all, q * ranks + own));
      }
    } else if (form == v_counts::rooted && r != what.notes.root) {
      counts.push_back(entry(all, own));
    } else {
      counts.assign(all.begin(), all.end());
    }
  }

  direct_sizes& at(rank_t rank) { return of_rank_[static_cast<std::size_t>(rank)]; }

  std::vector<direct_sizes> of_rank_;
};

class direct_run {
public:
  direct_run(const proof_subject& what, const direct_program& program)
      : program_(program),
        sizes_(what, program),
        memory_(what, sizes_.scratch(), std::vector<std::size_t>(static_cast<std::size_t>(what.notes.ranks), 0)),
        touched_(memory_.places()) {}

  void run() {
    std::int32_t number = 0;
    for (std::size_t b = 0; b < program_.bodies.size(); ++b) {
      // As its owner cuts it.
      const std::size_t units = sizes_.of(static_cast<rank_t>(b)).units(static_cast<rank_t>(b));
      if (units == 0) throw difference{"the body of rank " + text(b) + " has no unit, so the operation never ends"};
      for (std::size_t u = 0; u < units; ++u) perform(program_.bodies[b], number++, u, units);
    }
    memory_.check_outputs();
  }

private:
  struct touch {
    std::int32_t writer = -1, reader = -1;  ///< the unit; of several readers that are not one unit, many_units
  };
  static constexpr std::int32_t many_units = -2;

  void perform(const direct_program::body& body, std::int32_t number, std::size_t unit, std::size_t units) {
    for (const direct_program::pass& p : body.passes) {
      std::vector<element_span> in, out;
      const std::size_t width = sizes_.of(0).element_size();
      std::optional<std::size_t> elements;
      for (std::size_t k = 0; k < p.all(); ++k) {
        const cell_range& at = known(entry(program_.operands, p.operands + k));
        const auto [count, offset] = sizes_.place(at);
        if (elements.value_or(count) != count) throw difference{"operands of one pass differ in size"};
        elements = count;
        const std::size_t begin = part_begin(count, units, unit), end = part_begin(count, units, unit + 1);
        (k < p.inputs ? in : out)
            .push_back(memory_.span_of(at.owner, at.buffer, offset + begin * width, (end - begin) * width));
      }
      if (in.empty() || in.front().count == 0) continue;
      check_pass(memory_, in, out);
      for (const element_span& from : in) note(number, from, false);
      for (const element_span& to : out) note(number, to, true);
      perform_pass(memory_, in, out);
    }
  }

  /// Cells that exist, so that their sizes can be asked for, and that are what their block and part say.
  const cell_range& known(const cell_range& at) const {
    const auto ranks = static_cast<int>(program_.bodies.size());
    if (at.owner < 0 || at.owner >= ranks) throw difference{"an operand lies in memory that the port does not have"};
    std::int64_t cells = 0;
    block_run run;
    switch (at.buffer) {
      case buffer_kind::scratch: cells = std::ssize(scratch_of(at.owner)); break;
      case buffer_kind::input: run = input_blocks(program_.what, ranks, program_.root, at.owner); break;
      case buffer_kind::output: run = output_blocks(program_.what, ranks, program_.root, at.owner); break;
      default: throw difference{"an operand lies in memory that the port does not have"};
    }
    if (at.buffer != buffer_kind::scratch) cells = std::int64_t{run.count} * program_.parts;
    if (at.count < 1 || at.cell < 0 || at.cell + std::int64_t{at.count} > cells)
      throw difference{"an operand names cells that do not exist"};
    extent first{run.first + at.cell / program_.parts * std::int64_t{run.stride}, at.cell % program_.parts};
    if (at.buffer == buffer_kind::scratch) first = scratch_of(at.owner)[static_cast<std::size_t>(at.cell)];
    else if (at.index != at.cell / program_.parts) throw difference{"an operand's cell is not of its block"};
    if (at.block != first.block || at.part != first.part) throw difference{"an operand's cell is not of its block"};
    return at;
  }
  const std::vector<extent>& scratch_of(rank_t owner) const {
    return program_.bodies[static_cast<std::size_t>(owner)].scratch;
  }

  void note(std::int32_t unit, const element_span& at, bool writes) {
    for (std::size_t k = 0; k < at.count; ++k) {
      touch& seen = touched_[memory_.place(at, k)];
      const bool alone = seen.writer < 0 || seen.writer == unit, unread = seen.reader == -1 || seen.reader == unit;
      if (!alone || (writes && !unread))
        throw difference{to_string(at, k) + " is touched by two units, of which one writes"};
      if (writes) seen.writer = unit;
      else seen.reader = seen.reader == -1 || seen.reader == unit ? unit : many_units;
    }
  }

  const direct_program& program_;
  known_sizes sizes_;
  symbolic_memory memory_;
  std::vector<touch> touched_;
};

}  // namespace

std::string why_not_the_score(const proof_subject& what, std::span<const slot_program> programs) {
  slot_run run{what, programs};
  try {
    run.run();
  } catch (const difference& first) {
    return run.at_fault() + first.what;
  }
  return {};
}

std::string why_not_the_score(const proof_subject& what, const direct_program& program) {
  try {
    direct_run{what, program}.run();
  } catch (const difference& first) {
    return first.what;
  }
  return {};
}

}  // namespace troupe
