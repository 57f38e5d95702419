// SPDX-License-Identifier: Apache-2.0
// The proof of programs that run by mailbox. See program_proof.hpp.

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "protocols/lower/agreement_round.hpp"
#include "protocols/perform/program_proof.hpp"
#include "protocols/perform/received.hpp"
#include "protocols/perform/symbolic_memory.hpp"
#include "protocols/verify/verifier_run.hpp"

namespace troupe {

namespace {

using namespace proving;
using verifying::clock_pool;
using verifying::clock_view;
using verifying::ticks;

/// A step of a lane, and what the lane knew of others then.
struct moment {
  clock_pool::handle known = -1;
  std::int32_t lane = 0;
  ticks time = 0;
};

/// A chunk names its sender's memory; the result of a step that only passes on lies in a slot, which is the chunk's until its credit is back.
struct symbolic_chunk {
  std::size_t bytes = 0;
  element_span where{};  ///< no count: it lies in a slot, or is empty
  values in_slot{};
  moment sent{};
};

/// All ranks' programs, a channel after the other, since channels share nothing: what two of them touch is a difference. Lanes never choose, so one
/// interleaving decides for all. The order of events is known as far as the verifier knows it (verifier_run.hpp).
class mailbox_run {
public:
  mailbox_run(const proof_subject& what, std::span<const std::shared_ptr<const program>> programs, int credits)
      : what_(what),
        programs_(programs),
        credits_(static_cast<std::size_t>(credits)),
        memory_(what, sizes(&program::scratch_bytes), sizes(&program::l0_bytes),
                programs.empty() ? 0 : programs.front()->l2_bytes),
        touched_(memory_.places()) {}

  void run() {
    if (programs_.size() != static_cast<std::size_t>(what_.notes.ranks))
      throw difference{"not every rank has a program"};
    heard_.assign(programs_.size() * programs_.size(), false);
    for (int c = 0; c < programs_.front()->channels; ++c) run_channel(c);
    check_heard();
    memory_.check_outputs();
    for (rank_t r = 0; what_.notes.partitions > 0 && r < what_.notes.ranks; ++r) check_arrivals(r);
  }

  std::string at_fault() const { return at_ < lanes_.size() ? where(lanes_[at_]) + ": " : ""; }

private:
  struct lane {
    rank_t rank;
    std::int32_t number;  ///< of its rank's
    std::span<const instruction> code;
    std::size_t next = 0;
    clock_pool::handle known = -1;              ///< of others
    clock_pool::handle known_first = -1;        ///< of others, when it came to the first of the receives that it is in
    ticks first = 0;                            ///< that receive
    std::map<std::size_t, moment> performed{};  ///< steps that others wait for, or that tell of an arrival, by index
    const char* lacks = "";
    ticks now() const { return static_cast<ticks>(next + 1); }
  };
  struct access {
    std::int32_t channel = -1, lane = -1;
    ticks time = 0;  ///< 0: none
  };
  struct accesses {
    access write, read;
    std::vector<access> more_reads;
  };
  struct link {
    rank_t from = 0, to = 0;
    std::vector<symbolic_chunk> chunks{};
    std::size_t taken = 0;
  };

  std::vector<std::size_t> sizes(std::size_t program::*bytes) const {
    std::vector<std::size_t> list;
    for (const auto& p : programs_) list.push_back((*p).*bytes);
    list.resize(static_cast<std::size_t>(what_.notes.ranks), 0);  // some may be missing
    return list;
  }
  static std::string where(const lane& l) {
    std::string named = "rank " + std::to_string(l.rank) + ", lane " + std::to_string(l.number);
    if (l.next >= l.code.size()) return named;
    named += ", step " + std::to_string(l.code[l.next].score_step);
    return named + " of channel " + std::to_string(l.code[l.next].channel) + ", slice " +
           std::to_string(l.code[l.next].slice);
  }
  const program& code_of(rank_t rank) const { return *programs_[static_cast<std::size_t>(rank)]; }

  // -- a channel --

  void run_channel(int channel) {
    channel_ = channel;
    at_ = ~std::size_t{0};
    begin_lanes();
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t l = 0; l < lanes_.size(); ++l)
        while (lanes_[l].next < lanes_[l].code.size() && step(l)) moved = true;
    }
    at_ = lanes_.size();
    for (const lane& l : lanes_)
      if (l.next < l.code.size()) throw difference{where(l) + " never comes to pass: it lacks " + l.lacks};
    for (const link& l : links_)
      if (l.taken < l.chunks.size())
        throw difference{"rank " + std::to_string(l.to) + " never takes a chunk of rank " + std::to_string(l.from)};
    note_heard();
  }

  void begin_lanes() {
    const int lanes = programs_.front()->lanes_per_channel;
    lanes_.clear();
    numbers_.assign(programs_.size() * static_cast<std::size_t>(lanes), -1);
    for (rank_t r = 0; r < what_.notes.ranks; ++r) {
      const program& code = code_of(r);
      if (code.channels != programs_.front()->channels || code.lanes_per_channel != lanes)
        throw difference{"rank " + std::to_string(r) + " has other channels or lanes than rank 0"};
      for (int l = 0; l < lanes; ++l) {
        if (code.lane(channel_, l).empty()) continue;
        numbers_[static_cast<std::size_t>(r * lanes + l)] = static_cast<std::int32_t>(lanes_.size());
        lanes_.push_back({r, l, code.lane(channel_, l)});
      }
    }
    const std::size_t announced = programs_.size() * static_cast<std::size_t>(what_.notes.partitions);
    pool_.emplace(lanes_.size() + announced);
    for (lane& l : lanes_) l.known = pool_->zero();
    begin_links(lanes);
    if (announced > 0) announce_inputs();
  }

  void begin_links(int lanes) {
    links_.clear();
    link_numbers_ = verifying::numbering{programs_.size() * programs_.size() * static_cast<std::size_t>(lanes)};
    for (std::size_t l = 0; l < lanes_.size(); ++l)
      for (const instruction& i : lanes_[l].code) {
        at_ = l;
        if (i.after_lane < 0) continue;
        lane& awaited = other_lane(lanes_[l], i.after_lane);
        if (i.after_index < 0 || static_cast<std::size_t>(i.after_index) >= awaited.code.size())
          throw difference{"waits for a step that does not exist"};
        awaited.performed[static_cast<std::size_t>(i.after_index)] = {};
      }
    for (rank_t r = 0; r < what_.notes.ranks; ++r)
      for (const arrival& a : code_of(r).arrivals)
        if (lane* const its = lane_at(r, a.lane); its != nullptr)
          its->performed[static_cast<std::size_t>(a.index)] = {};
  }

  lane& other_lane(const lane& me, std::int32_t number) {
    lane* const found = lane_at(me.rank, number);
    if (found == nullptr) throw difference{"waits for a lane that does not exist"};
    return *found;
  }
  /// Null: it has no step.
  lane* lane_at(rank_t rank, std::int32_t number) {
    const int lanes = programs_.front()->lanes_per_channel;
    const std::int32_t at =
        number < 0 || number >= lanes ? -1 : numbers_[static_cast<std::size_t>(rank * lanes + number)];
    return at < 0 ? nullptr : &lanes_[static_cast<std::size_t>(at)];
  }
  std::int32_t announcement(rank_t rank, int piece) const {
    return static_cast<std::int32_t>(lanes_.size()) + rank * what_.notes.partitions + piece;
  }

  /// Of a partitioned call an input element is written when its piece is announced.
  void announce_inputs() {
    for (rank_t r = 0; r < what_.notes.ranks; ++r) {
      cell_places cells{what_.notes, r, cutting{}};
      cells.set(what_.shape);
      const std::int32_t count = cell_count(what_.notes, r, buffer_kind::input);
      for (std::int32_t c = 0; c < count; ++c) {
        std::size_t elements = 0;
        const cell_range cell = cells_of(what_.notes, r, {buffer_kind::input, self, c, 1});
        const location begin = cells.locate(cell, 0, 0, elements);
        const element_span at =
            memory_.span_of(r, buffer_kind::input, begin.offset, elements * what_.shape.element_size);
        const std::int32_t by = announcement(r, partition_of(what_.notes, c % what_.notes.parts));
        for (std::size_t k = 0; k < at.count; ++k) touched_[memory_.place(at, k)].write = {channel_, by, 1};
      }
    }
  }

  // -- a step --

  /// False: something is missing.
  bool step(std::size_t number) {
    at_ = number;
    lane& me = lanes_[number];
    const instruction& i = me.code[me.next];
    const moment* after = nullptr;
    if (i.after_lane >= 0) {
      lane& other = other_lane(me, i.after_lane);
      if (other.next <= static_cast<std::size_t>(i.after_index)) return lacks(me, "a step of another lane");
      after = &other.performed.at(static_cast<std::size_t>(i.after_index));
    }
    if (receives(i.kind)) {
      const link& from = link_of(i.from, me.rank, me);
      if (from.taken == from.chunks.size()) return lacks(me, "a chunk");
    }
    if (sends(i.kind)) {
      const link& to = link_of(me.rank, i.to, me);
      if (to.chunks.size() - to.taken >= credits_) return lacks(me, "a credit");
    }
    if (after != nullptr) learn(number, *after);
    if (i.ready_part >= 0) {
      if (i.ready_part >= what_.notes.partitions) throw difference{"waits for a piece that does not exist"};
      pool_->own(me.known)[static_cast<std::size_t>(announcement(me.rank, i.ready_part))] = 1;
    }
    const std::size_t bytes = i.elements * code_of(me.rank).element_size;
    if (i.kind == step_kind::recv && !i.early) begin_receives(me);
    if (receives(i.kind)) receive(number, i, bytes);
    else if (i.kind == step_kind::send) send(number, i, reference(number, i.source, bytes));
    else local(number, i, bytes);
    if (const auto awaited = me.performed.find(me.next); awaited != me.performed.end())
      awaited->second = moment_of(number);
    ++me.next;
    return true;
  }

  static bool lacks(lane& me, const char* what) {
    me.lacks = what;
    return false;
  }
  /// Stays until the end of the channel, or until it is released.
  moment moment_of(std::size_t number) {
    return {pool_->share(lanes_[number].known), static_cast<std::int32_t>(number), lanes_[number].now()};
  }
  void learn(std::size_t number, const moment& other) {
    ticks& time = pool_->join(lanes_[number].known, other.known)[static_cast<std::size_t>(other.lane)];
    time = std::max(time, other.time);
  }

  link& link_of(rank_t from, rank_t to, const lane& on) {
    const rank_t ranks = what_.notes.ranks;
    if (from < 0 || to < 0 || from >= ranks || to >= ranks)
      throw difference{"exchanges a chunk with a rank that does not exist"};
    const auto key = static_cast<std::size_t>((on.number * ranks + from) * ranks + to);
    std::int32_t& at = link_numbers_.at(key);
    if (at < 0) {
      at = static_cast<std::int32_t>(links_.size());
      links_.push_back({from, to});
    }
    return links_[static_cast<std::size_t>(at)];
  }

  /// Those behind it that are early are received into their places from here on.
  void begin_receives(lane& me) {
    if (me.known_first >= 0) pool_->release(me.known_first);
    me.known_first = -1;
    const bool some = me.next + 1 < me.code.size() && me.code[me.next + 1].early;
    if (!some) return;
    me.known_first = pool_->share(me.known);
    me.first = me.now();
  }

  /// Of an early one: whoever touched its place before had done so when its lane came to the first, or before the chunk was sent.
  void check_early(const lane& me, const instruction& i, const element_span& at, const moment& sent) {
    const auto self_lane = static_cast<std::int32_t>(&me - lanes_.data());
    if (me.known_first < 0 || i.kind != step_kind::recv)
      throw difference{"is early, and no receive behind another one"};
    const clock_view first = (*pool_)[me.known_first], of_sender = (*pool_)[sent.known];
    const auto before = [&](const access& other) {
      if (other.time == 0) return true;
      if (other.channel != channel_) return false;
      if (other.lane == self_lane) return other.time < me.first;
      const auto its = static_cast<std::size_t>(other.lane);
      return first[its] >= other.time || of_sender[its] >= other.time ||
             (other.lane == sent.lane && sent.time >= other.time);
    };
    for (std::size_t k = 0; k < at.count; ++k) {
      const accesses& seen = touched_[memory_.place(at, k)];
      if (!before(seen.write) || !before(seen.read) ||
          !std::all_of(seen.more_reads.begin(), seen.more_reads.end(), before))
        throw difference{to_string(at, k) + " is received early, while another step touches it"};
    }
  }

  void receive(std::size_t number, const instruction& i, std::size_t bytes) {
    const lane& me = lanes_[number];
    const auto from = static_cast<std::size_t>(&link_of(i.from, me.rank, me) - links_.data());
    const symbolic_chunk in = std::move(links_[from].chunks[links_[from].taken++]);
    if (in.bytes != bytes)
      throw difference{"meets a chunk of " + text(in.bytes) + " bytes where it expects " + text(bytes)};
    if (i.early) check_early(me, i, span(me, i.target, bytes), in.sent);
    learn(number, in.sent);
    pool_->release(in.sent.known);
    as_received(i.kind, [&](auto step) {
      values result = in.where.count > 0 ? fetch(number, in.where) : in.in_slot;
      if constexpr (step.combines) {
        const values own = fetch(number, span(me, step.with_target ? i.target : i.source, bytes));
        for (std::size_t k = 0; k < result.size(); ++k)
          result[k] = i.swapped ? memory_.combine(own.at(k), result[k]) : memory_.combine(result[k], own.at(k));
      }
      if constexpr (step.keeps) store(number, span(me, i.target, bytes), result);
      if constexpr (step.forwards) {
        symbolic_chunk out{bytes};
        if constexpr (step.keeps) {
          out = reference(number, i.target, bytes);
        } else {
          if (bytes > code_of(me.rank).slot_bytes)
            throw difference{"its result of " + text(bytes) + " bytes is longer than a slot, which has " +
                             text(code_of(me.rank).slot_bytes)};
          out.in_slot = std::move(result);
        }
        send(number, i, std::move(out));
      }
    });
  }

  symbolic_chunk reference(std::size_t number, const location& at, std::size_t bytes) {
    symbolic_chunk made{bytes, span(lanes_[number], at, bytes)};
    for (std::size_t k = 0; k < made.where.count; ++k) static_cast<void>(memory_.read(made.where, k));
    note(number, made.where, false);
    return made;
  }

  void send(std::size_t number, const instruction& i, symbolic_chunk&& what) {
    link& to = link_of(lanes_[number].rank, i.to, lanes_[number]);
    what.sent = moment_of(number);
    to.chunks.push_back(std::move(what));
  }

  void local(std::size_t number, const instruction& i, std::size_t bytes) {
    const lane& me = lanes_[number];
    if (i.kind == step_kind::wait || bytes == 0) return;
    std::vector<element_span> in, out;
    if (i.inputs > 0) {
      for (std::size_t k = 0; k < std::size_t{i.inputs} + i.outputs; ++k)
        (k < i.inputs ? in : out).push_back(span(me, entry(code_of(me.rank).operands, i.operands + k), bytes));
    } else {
      in.push_back(span(me, i.source, bytes));
      out.push_back(span(me, i.target, bytes));
      if (i.kind == step_kind::reduce) in.insert(i.swapped ? in.end() : in.begin(), out.front());
    }
    check_pass(memory_, in, out);
    for (const element_span& from : in) note(number, from, false);
    perform_pass(memory_, in, out);
    for (const element_span& to : out) note(number, to, true);
  }

  // -- memory --

  element_span span(const lane& me, const location& at, std::size_t bytes) const {
    const bool own = at.owner == self || at.buffer == buffer_kind::l2;
    return bytes == 0 ? element_span{me.rank} : memory_.span_of(own ? me.rank : at.owner, at.buffer, at.offset, bytes);
  }
  values fetch(std::size_t number, const element_span& from) {
    note(number, from, false);
    values read;
    read.reserve(from.count);
    for (std::size_t k = 0; k < from.count; ++k) read.push_back(memory_.read(from, k));
    return read;
  }
  void store(std::size_t number, const element_span& to, const values& what) {
    note(number, to, true);
    for (std::size_t k = 0; k < to.count; ++k) memory_.write(to, k, what.at(k));
  }

  /// Whatever conflicts must have been before, whatever the other lanes do.
  void note(std::size_t number, const element_span& at, bool writes) {
    const auto self_lane = static_cast<std::int32_t>(number);
    const clock_view known = (*pool_)[lanes_[number].known];
    const auto before = [&](const access& other) {
      return other.time == 0 ||
             (other.channel == channel_ && verifying::ordered(known, self_lane, {other.lane, other.time}));
    };
    const access now{channel_, self_lane, lanes_[number].now()};
    for (std::size_t k = 0; k < at.count; ++k) {
      accesses& seen = touched_[memory_.place(at, k)];
      const bool unread = before(seen.read) && std::all_of(seen.more_reads.begin(), seen.more_reads.end(), before);
      if (!before(seen.write) || (writes && !unread))
        throw difference{to_string(at, k) + " is touched by another lane at the same time"};
      if (writes) seen.write = now, seen.read = {}, seen.more_reads.clear();
      else if (unread) seen.read = now, seen.more_reads.clear();  // who comes after this one comes after those
      else seen.more_reads.push_back(now);
    }
  }

  void note_heard() {
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      const clock_view known = (*pool_)[lanes_[l].known];
      const auto row = static_cast<std::size_t>(lanes_[l].rank) * programs_.size();
      for (std::size_t other = 0; other < lanes_.size(); ++other)
        if (known[other] > 0) heard_[row + static_cast<std::size_t>(lanes_[other].rank)] = true;
    }
  }

  /// Where the score promises it.
  void check_heard() const {
    for (std::size_t r = 0; r < programs_.size(); ++r)
      for (std::size_t q = 0; q < programs_.size(); ++q)
        if (r != q && !heard_[r * programs_.size() + q] && everybody_hears_of_everybody(what_.notes))
          throw difference{"rank " + text(r) + " may end before it has heard of rank " + text(q)};
        else if (r != q && !heard_[r * programs_.size() + q]) return;
  }

  /// A piece of the output is not told to have arrived before its last element is written, and is told. @pre one channel
  void check_arrivals(rank_t r) {
    const program& code = code_of(r);
    if (code.arrivals_needed.empty()) return;  // of a program without arrivals nobody asks
    cell_places cells{what_.notes, r, cutting{}};
    cells.set(what_.shape);
    const int parts = what_.notes.parts, pieces = what_.notes.partitions;
    const std::int32_t count = cell_count(what_.notes, r, buffer_kind::output);
    for (std::int32_t c = 0; c < count; ++c) {
      const std::int32_t piece = c / parts * pieces + partition_of(what_.notes, c % parts);
      std::size_t elements = 0;
      const location begin = cells.locate(cells_of(what_.notes, r, {buffer_kind::output, self, c, 1}), 0, 0, elements);
      const element_span at =
          memory_.span_of(r, buffer_kind::output, begin.offset, elements * what_.shape.element_size);
      for (std::size_t k = 0; k < at.count; ++k)
        if (!arrives_after(r, piece, touched_[memory_.place(at, k)].write))
          throw difference{to_string(at, k) + " is written after its piece is said to have arrived"};
    }
    for (std::size_t p = 0; p < code.arrivals_needed.size(); ++p) {
      const auto of_piece = std::count_if(code.arrivals.begin(), code.arrivals.end(), [&](const arrival& a) {
        return a.piece == static_cast<std::int32_t>(p) &&
               code.lane(0, a.lane)[static_cast<std::size_t>(a.index)].arrives;
      });
      if (of_piece != code.arrivals_needed[p])
        throw difference{"output piece " + text(p) + " of rank " + std::to_string(r) + " waits for " +
                         std::to_string(code.arrivals_needed[p]) + " steps, and " + std::to_string(of_piece) +
                         " tell of it"};
    }
  }
  /// Who tells of the piece knows that this was written, by this rank or by another. Cells that no step has written are there from the beginning.
  bool arrives_after(rank_t rank, std::int32_t piece, const access& written) {
    if (written.time == 0 || static_cast<std::size_t>(written.lane) >= lanes_.size()) return true;
    const std::vector<arrival>& all = code_of(rank).arrivals;
    return std::any_of(all.begin(), all.end(), [&](const arrival& a) {
      const lane* const its = a.piece == piece ? lane_at(rank, a.lane) : nullptr;
      if (its == nullptr) return false;
      const auto told = its->performed.find(static_cast<std::size_t>(a.index));
      if (told == its->performed.end() || told->second.time == 0) return false;
      const ticks known = told->second.lane == written.lane
                              ? told->second.time
                              : (*pool_)[told->second.known][static_cast<std::size_t>(written.lane)];
      return known >= written.time;
    });
  }

  const proof_subject& what_;
  std::span<const std::shared_ptr<const program>> programs_;
  std::size_t credits_;
  symbolic_memory memory_;
  std::vector<accesses> touched_;
  std::vector<bool> heard_;  ///< by rank, of each rank
  int channel_ = 0;
  // Of the channel:
  std::vector<lane> lanes_;            ///< that have steps
  std::vector<std::int32_t> numbers_;  ///< by rank and lane; −1: it has no step
  std::optional<clock_pool> pool_;
  verifying::numbering link_numbers_;
  std::vector<link> links_;
  std::size_t at_ = ~std::size_t{0};
};

}  // namespace

std::string why_not_the_score(const proof_subject& what, std::span<const std::shared_ptr<const program>> programs,
                              int credits) {
  mailbox_run run{what, programs, credits};
  try {
    run.run();
  } catch (const difference& first) {
    return run.at_fault() + first.what;
  }
  return {};
}

}  // namespace troupe
