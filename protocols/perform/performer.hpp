// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performs one channel of one rank's program: a plain state machine without threads, clock or transport.
//
// advance() runs every lane until its next instruction lacks a chunk, a credit, the end of a DMA transfer, or an instruction of
// another lane; it never blocks. Its owner calls advance() again after anything has arrived. One owner at a
// time; no synchronisation in here.
//
// The port is where chunks come from and go to. What it must offer (lane = lane within the channel):
//   const chunk* front(lane, from)            the next chunk in order, or nullptr; stays until consume()
//   void consume(lane, from)                  done with it: gives the credit back
//   bool can_send(lane, to)                   is there a credit?
//   void send(lane, to, data, bytes)          hands out a reference @pre can_send
//   std::byte* slot(lane, to, bytes)          memory for the next message of this lane to `to` @pre can_send
//   bool piece_ready(piece)                   of partitioned programs: is that piece of the input ready?
//   void performed(lane, index)               the same: an instruction that has `arrives` was performed
//   bool transfer(lane, target, source, bytes)  dma_get/dma_put: true if done at once, false if the end is reported later
// A port to which it matters where the cells of L2 lie may offer besides:
//   bool transfer(lane, instruction, target, source, bytes)  the same of one that reads or writes L2
// A port whose chunks come from far away may offer besides:
//   void expect(lane, from, place, bytes)     the lane waits for that chunk and for nothing else; it will be kept at `place` as it is, or
//                                             combined (null). A chunk whose data lie there already is not copied
//   void expect_early(lane, from, place, bytes)  a later receive of the lane, whose place is free now (early_receives())
//   const std::byte* fetch(lane, from, chunk, only_to)  where its data are now: it may have named memory that only the system reaches. The step
//                                             only copies them to `only_to`, if it is not null; then they may be there
// A port of a world where work takes time (virtual time) may offer besides:
//   bool begin_work(lane, instruction, lacked)  called once the instruction lacks nothing: true if its work takes no time, false if its end
//                                             is reported later by transferred(); only then it consumes and sends.
//                                             `lacked`: what the lane waited for last
//   bool carries_payload()                    false: no kernel is called and no memory touched
//
// The code is a program, or anything that offers the same: lanes_per_channel, element_size, operands, sums, and lane(channel, l), whose
// result has size(), empty() and operator[]: an instruction by reference, or a brief one by value, which does not say where its bytes are, for ports
// that carry none.
// Code that has `lane_memory`, a memory resource, gets the lanes' states there.

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory/kernels/kernels.hpp"
#include "memory/types/types.hpp"
#include "protocols/chunk.hpp"
#include "protocols/perform/received.hpp"
#include "protocols/program/program.hpp"

namespace troupe {

/// Another rank's buffers, for programs that read or write them directly.
struct peer_memory {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  double factor = 1;  ///< of its input, where sums.scales_inputs
};

/// Where the buffers of an operation begin.
struct memory_map {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  std::byte* l0 = nullptr;
  std::byte* l2 = nullptr;
  const peer_memory* peers = nullptr;  ///< by rank; only if program::shares_memory
  double factor = 1;                   ///< as peer_memory's

  std::byte* at(const location& where) const {
    std::byte* base = nullptr;
    switch (where.buffer) {
      case buffer_kind::none: return nullptr;
      case buffer_kind::input: base = where.owner == self ? input : peers[where.owner].input; break;
      case buffer_kind::output: base = where.owner == self ? output : peers[where.owner].output; break;
      case buffer_kind::scratch: base = scratch; break;
      case buffer_kind::l0: base = l0; break;
      case buffer_kind::l2: base = l2; break;
    }
    return base + where.offset;
  }
};

/// The resource that a lane waits for. For verdicts that name it.
struct lane_wait {
  enum class reason : std::uint8_t { nothing, chunk, credit, lane, transfer, piece };
  reason why = reason::nothing;
  int lane = -1;
  rank_t peer = -1;        ///< lane: the other lane; piece: the piece
  std::int32_t step = -1;  ///< position in the score's lane
};
std::string to_string(const lane_wait& wait);

/// Performs an instruction that needs neither a peer nor a DMA engine: copy, reduce, fold, wait.
/// @param operands program::operands @param sums program::sums, if they are to be honoured
void perform_local(const instruction& i, const location* operands, const memory_map& memory, datatype type,
                   const op& reduction, std::size_t element_size, const sum_handling& sums = {});

/// A port under which work takes time.
template <class Port>
concept timed_port = requires(Port& port) {
  { port.carries_payload() } -> std::same_as<bool>;
};

/// Where a performer of this code keeps its lanes.
template <class Code, class Lane>
struct lane_storage {
  using type = std::vector<Lane>;
  static type make(const Code&) { return {}; }
};
template <class Code, class Lane>
  requires requires(const Code& code) { code.lane_memory; }
struct lane_storage<Code, Lane> {
  using type = std::pmr::vector<Lane>;
  static type make(const Code& code) { return type(code.lane_memory); }
};

template <class Code>
class basic_performer {
public:
  enum class status : std::uint8_t { waiting, performed, mismatch };

  /// @param code outlives the performer. @param any_order honour fans (determinism `fast`).
  basic_performer(const Code& code, int channel, const memory_map& memory, datatype type, const op& reduction,
                  bool any_order);

  /// As if made anew, in the memory that it has.
  void begin(const Code& code, int channel, const memory_map& memory, datatype type, const op& reduction,
             bool any_order);

  /// Runs until nothing can go on. `mismatch`: a chunk has another size than the instruction expects (the sender performs a
  /// different call); nothing was written, and the performer must not be used any more.
  template <class Port>
  status advance(Port& port);
  /// The same where, since it was last called, something has come for this lane and for no other one: a chunk, a credit, the end of its
  /// work. Does what advance(port) would, in the same order, without a look at lanes that wait for what has not come; code that makes its
  /// instructions does not look for them among all lanes either.
  template <class Port>
  status advance(Port& port, int lane);
  /// That lane only. @pre no lane waits for another one, and none has a fan that is performed in any order
  template <class Port>
  status advance_alone(Port& port, int lane) {
    bool moved = false;
    if (!run(port, lane, moved)) return status::mismatch;
    return unfinished_ == 0 ? status::performed : status::waiting;
  }
  /// Where the other ranks' buffers are from here on. @pre it is at the beginning
  void share(const peer_memory* peers) { with_.memory.peers = peers; }
  /// From the beginning, in the same memory. Allocates nothing.
  void restart() {
    unfinished_ = 0;
    for (lane_state& l : lanes_) {
      const auto code = l.code;
      l = {};
      l.code = code;
      if (!code.empty()) ++unfinished_;
    }
  }

  /// That lane will be turned soon: fetches its state.
  void expect_lane(int lane) const {
    const auto* const state = reinterpret_cast<const std::byte*>(&lanes_[static_cast<std::size_t>(lane)]);
    for (std::size_t at = 0; at < sizeof(lane_state); at += 64) __builtin_prefetch(state + at);
  }
  /// The transfer that `lane` started has ended.
  void transferred(int lane) { at(lane).transfer = transfer_state::ended; }

  bool performed() const { return unfinished_ == 0; }
  /// The resource that each unfinished lane waits for. Allocates; for verdicts only.
  std::vector<lane_wait> waits() const;

private:
  enum class transfer_state : std::uint8_t { none, under_way, ended };
  /// Peers that a lane receives from at once: enough to keep a port busy while some of them send to others, and few enough for a network's buffers.
  static constexpr std::size_t most_expected = 8;
  enum class outcome : std::uint8_t { moved, stuck, mismatch };
  using lane_code = decltype(std::declval<const Code&>().lane(0, 0));
  /// The next instruction of code that makes it on the fly: made once, however often the lane looks whether it lacks something.
  using instruction_of_code = decltype(std::declval<const lane_code&>()[std::size_t{}]);
  static constexpr bool makes_instructions = !std::is_reference_v<instruction_of_code>;
  template <class Instruction>
  struct kept_of {};
  template <class Instruction>
    requires(!std::is_reference_v<Instruction>)
  struct kept_of<Instruction> {
    Instruction what;
    std::size_t of = ~std::size_t{0};
  };
  struct lane_state {
    lane_code code;
    std::size_t next = 0;
    std::uint64_t fan_done = 0;  ///< of the fan at `next`: which members are performed
    // The resource it waits for, as in lane_wait.
    rank_t lacks_from = -1;
    std::int32_t lacking_step = -1;
    // Of code that makes its instructions (two cache lines a lane): the lanes that wait for this one, and what the first of them waits for.
    std::int32_t first_waiter = -1;
    std::int32_t least_awaited = -1;
    std::int32_t next_listed = -1;  ///< in the one list that it is in, of another lane's waiters or of awakened lanes
    bool is_listed = false;
    lane_wait::reason lacks = lane_wait::reason::nothing;
    transfer_state transfer = transfer_state::none;
    [[no_unique_address]] kept_of<instruction_of_code> kept;
  };
  static_assert(!makes_instructions || sizeof(lane_state) <= 128, "two cache lines");

  static const auto& present(lane_state& l) {
    if constexpr (makes_instructions) {
      if (l.kept.of != l.next) l.kept = {l.code[l.next], l.next};
      return l.kept.what;
    } else {
      return l.code[l.next];
    }
  }
  /// Does it say where its bytes are? A brief one does not, and no port asks for them.
  template <class Instruction>
  static constexpr bool has_places = std::same_as<Instruction, instruction>;

  lane_state& at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  template <class Port>
  bool run(Port& port, int lane, bool& moved);
  template <class Port>
  outcome step_once(Port& port, int lane);
  template <class Port>
  outcome fan_once(Port& port, int lane);
  template <class Port, class Instruction>
  outcome perform(Port& port, int lane, const Instruction& i, bool completes);
  template <class Port, class Instruction>
  bool transfer(Port& port, int lane, const Instruction& i, std::size_t bytes) const;
  template <class Port, class Instruction>
  void expect(Port& port, int lane, const Instruction& i) const;
  template <class Port>
  void expect_early(Port& port, int lane) const;
  template <class Port, class Instruction>
  void receive(Port& port, int lane, const Instruction& i, const chunk& incoming, bool carries, bool completes);
  template <class Port>
  static void tell(Port& port, int lane, std::size_t index);
  template <class Instruction>
  bool ready(const Instruction& i) const {
    return i.after_lane < 0 ||
           lanes_[static_cast<std::size_t>(i.after_lane)].next > static_cast<std::size_t>(i.after_index);
  }
  std::size_t fan_size(const lane_state& l) const;
  void go_on(lane_state& l);
  static outcome stuck(lane_state& l, lane_wait::reason why, rank_t peer) {
    l.lacks = why;
    l.lacks_from = peer;
    l.lacking_step = present(l).score_step;
    return outcome::stuck;
  }
  bool keeps_lists() const { return makes_instructions && !any_order_; }
  void list_waiter(int lane, std::int32_t after_lane, std::int32_t after_index);
  void awaken_waiters(lane_state& l);
  void awaken(int lane);
  template <class Port>
  status turn_awakened(Port& port);
  void combine(const instruction& i, const std::byte* incoming, const std::byte* local, std::byte* out,
               bool completes) const;

  // In the order in which they are needed: in a run of many ranks every line costs.
  const Code* code_;
  typename lane_storage<Code, lane_state>::type lanes_;
  std::size_t unfinished_ = 0;
  // Lanes that wait no longer for another one, by number: those still to come in this round, and those of the next one.
  std::int32_t awakened_ = -1, awakened_again_ = -1;
  std::int32_t turned_ = -1;  ///< the lane of the round
  bool any_order_ = false;
  /// What steps that carry bytes are performed with; code that makes its instructions has none.
  struct operands {
    datatype type;
    memory_map memory;
    op reduction;
  };
  struct no_operands {
    no_operands(datatype, const memory_map&, const op&) {}
  };
  [[no_unique_address]] std::conditional_t<makes_instructions, no_operands, operands> with_;
};

using performer = basic_performer<program>;

// -- implementation ---------------------------------------------------------------------------------------------------

template <class Code>
template <class Port>
typename basic_performer<Code>::status basic_performer<Code>::advance(Port& port) {
  if (keeps_lists()) {
    turned_ = -1;
    for (int l = static_cast<int>(lanes_.size()) - 1; l >= 0; --l)
      if (!at(l).is_listed) awaken(l);
    return turn_awakened(port);
  }
  bool moved = true;
  while (moved && unfinished_ > 0) {
    moved = false;
    for (int l = 0; l < static_cast<int>(lanes_.size()); ++l)
      if (!run(port, l, moved)) return status::mismatch;
    if (lanes_.size() == 1) break;  // nobody else could have made it ready again
  }
  return unfinished_ == 0 ? status::performed : status::waiting;
}

template <class Code>
template <class Port>
typename basic_performer<Code>::status basic_performer<Code>::advance(Port& port, int lane) {
  if (any_order_) return advance(port);  // what a fan waits for may be another lane as well
  bool moved = false;
  if (keeps_lists()) {
    turned_ = lane;
    if (!run(port, lane, moved)) return status::mismatch;
    return turn_awakened(port);
  }
  if (!run(port, lane, moved)) return status::mismatch;
  // The rest of that round, and then rounds of all, as long as one moves: only who waits for another lane can.
  for (int first = lane + 1; moved && unfinished_ > 0; first = 0) {
    moved = first != 0;
    for (int l = first; l < static_cast<int>(lanes_.size()); ++l) {
      const lane_wait::reason why = at(l).lacks;
      if (why != lane_wait::reason::lane && why != lane_wait::reason::nothing) continue;
      if (!run(port, l, moved)) return status::mismatch;
    }
  }
  return unfinished_ == 0 ? status::performed : status::waiting;
}

/// Turns them in rounds, as long as a lane moves on that another one waits for.
template <class Code>
template <class Port>
typename basic_performer<Code>::status basic_performer<Code>::turn_awakened(Port& port) {
  for (bool moved = false; awakened_ >= 0 || awakened_again_ >= 0;) {
    if (awakened_ < 0) awakened_ = std::exchange(awakened_again_, -1);
    turned_ = awakened_;
    lane_state& l = at(turned_);
    awakened_ = std::exchange(l.next_listed, -1);
    l.is_listed = false;
    if (!run(port, turned_, moved)) return status::mismatch;
  }
  return unfinished_ == 0 ? status::performed : status::waiting;
}

/// It waits for that step of another lane.
template <class Code>
void basic_performer<Code>::list_waiter(int lane, std::int32_t after_lane, std::int32_t after_index) {
  lane_state& l = at(lane);
  if (l.is_listed) return;
  lane_state& awaited = at(after_lane);
  l.is_listed = true;
  l.next_listed = std::exchange(awaited.first_waiter, lane);
  if (l.next_listed < 0 || after_index < awaited.least_awaited) awaited.least_awaited = after_index;
}

/// Lanes that wait for a step that this lane has performed go on; the others stay listed.
template <class Code>
void basic_performer<Code>::awaken_waiters(lane_state& l) {
  for (std::int32_t waiter = std::exchange(l.first_waiter, -1); waiter >= 0;) {
    lane_state& w = at(waiter);
    const std::int32_t after = std::exchange(w.next_listed, l.first_waiter), index = present(w).after_index;
    if (static_cast<std::size_t>(index) < l.next) {
      awaken(waiter);
    } else {
      if (l.first_waiter < 0 || index < l.least_awaited) l.least_awaited = index;
      l.first_waiter = waiter;
    }
    waiter = after;
  }
}

/// Its turn comes in this round, or in the next one if it has been.
template <class Code>
void basic_performer<Code>::awaken(int lane) {
  std::int32_t* before = lane > turned_ ? &awakened_ : &awakened_again_;
  while (*before >= 0 && *before < lane) before = &at(*before).next_listed;
  lane_state& l = at(lane);
  l.is_listed = true;
  l.next_listed = std::exchange(*before, lane);
}

/// As far as the lane comes. False: a mismatch.
template <class Code>
template <class Port>
bool basic_performer<Code>::run(Port& port, int lane, bool& moved) {
  outcome result = outcome::moved;
  while (at(lane).next < at(lane).code.size() && (result = step_once(port, lane)) == outcome::moved) moved = true;
  return result != outcome::mismatch;
}

template <class Code>
template <class Port>
typename basic_performer<Code>::outcome basic_performer<Code>::step_once(Port& port, int lane) {
  lane_state& l = at(lane);
  const auto& i = present(l);  // of code that makes it: for the time of this call
  if (i.fan != 0 && any_order_) return fan_once(port, lane);
  if (!ready(i)) {
    if (keeps_lists()) list_waiter(lane, i.after_lane, i.after_index);
    return stuck(l, lane_wait::reason::lane, i.after_lane);
  }
  if constexpr (has_places<std::remove_cvref_t<decltype(i)>>) {
    const outcome result = perform(port, lane, i, i.completes);
    if (result != outcome::moved) return result;
    if (i.arrives) [[unlikely]]
      tell(port, lane, l.next);
  } else if (const outcome result = perform(port, lane, i, false); result != outcome::moved) {
    return result;
  }
  go_on(l);
  return outcome::moved;
}

/// That output has come.
template <class Code>
template <class Port>
void basic_performer<Code>::tell(Port& port, int lane, std::size_t index) {
  if constexpr (requires { port.performed(lane, index); }) port.performed(lane, index);
}

/// Performs whichever member of the fan has its chunk.
template <class Code>
template <class Port>
typename basic_performer<Code>::outcome basic_performer<Code>::fan_once(Port& port, int lane) {
  lane_state& l = at(lane);
  const std::size_t size = fan_size(l);
  // The member that comes last completes what the last one in order would.
  const bool last = std::popcount(l.fan_done) + 1 == static_cast<int>(size);
  bool completes = false;
  if constexpr (!makes_instructions) completes = last && l.code[l.next + size - 1].completes;
  for (std::size_t k = 0; k < size; ++k) {
    if ((l.fan_done >> k & 1u) != 0) continue;
    const auto& member = l.code[l.next + k];
    if constexpr (timed_port<Port>)
      if (l.transfer != transfer_state::none && member.score_step != l.lacking_step)
        continue;  // another one's work is under way
    if (!ready(member)) continue;
    if (port.front(lane, member.from) == nullptr) {
      expect(port, lane, member);
      continue;
    }
    if (const outcome result = perform(port, lane, member, completes); result != outcome::moved) return result;
    l.fan_done |= std::uint64_t{1} << k;
    if (l.fan_done == (size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << size) - 1)) {
      l.fan_done = 0;
      l.next += size - 1;
      go_on(l);
    }
    return outcome::moved;
  }
  return stuck(l, lane_wait::reason::chunk, l.code[l.next].from);
}

template <class Code>
template <class Port, class Instruction>
typename basic_performer<Code>::outcome basic_performer<Code>::perform(Port& port, int lane, const Instruction& i,
                                                                       bool completes) {
  lane_state& l = at(lane);
  const std::size_t bytes = i.elements * code_->element_size;
  const chunk* incoming = nullptr;
  if (receives(i.kind)) {
    incoming = port.front(lane, i.from);
    if (incoming == nullptr) {
      expect(port, lane, i);
      expect_early(port, lane);
      return stuck(l, lane_wait::reason::chunk, i.from);
    }
    if (incoming->bytes != bytes) return outcome::mismatch;
  }
  if (sends(i.kind) && !port.can_send(lane, i.to)) return stuck(l, lane_wait::reason::credit, i.to);
  if constexpr (has_places<Instruction> && requires { port.piece_ready(0); })
    if (i.ready_part >= 0 && !port.piece_ready(i.ready_part)) return stuck(l, lane_wait::reason::piece, i.ready_part);
  bool carries = true;
  if constexpr (timed_port<Port>) {
    if (l.transfer == transfer_state::none && !port.begin_work(lane, i, l.lacks))
      l.transfer = transfer_state::under_way;
    if (l.transfer == transfer_state::under_way) {
      const outcome result = stuck(l, lane_wait::reason::transfer, -1);
      l.lacking_step = i.score_step;  // of a fan not always the first one
      return result;
    }
    l.transfer = transfer_state::none;
    carries = port.carries_payload();
  }

  if constexpr (!has_places<Instruction>) {
    if (incoming != nullptr) receive(port, lane, i, *incoming, false, completes);
    else if (i.kind == step_kind::send) port.send(lane, i.to, nullptr, bytes);
    return outcome::moved;
  } else {
    switch (i.kind) {
      case step_kind::send: port.send(lane, i.to, carries ? with_.memory.at(i.source) : nullptr, bytes); break;
      case step_kind::dma_get:
      case step_kind::dma_put:
        if (timed_port<Port> && !carries) break;
        if (l.transfer == transfer_state::none && !transfer(port, lane, i, bytes))
          l.transfer = transfer_state::under_way;
        if (l.transfer == transfer_state::under_way) return stuck(l, lane_wait::reason::transfer, -1);
        l.transfer = transfer_state::none;
        break;
      default:
        if (incoming != nullptr) receive(port, lane, i, *incoming, carries, completes);
        else if (carries)
          perform_local(i, code_->operands.data(), with_.memory, with_.type, with_.reduction, code_->element_size,
                        code_->sums);
        break;
    }
    return outcome::moved;
  }
}

template <class Code>
template <class Port, class Instruction>
bool basic_performer<Code>::transfer(Port& port, int lane, const Instruction& i, std::size_t bytes) const {
  std::byte* const target = with_.memory.at(i.target);
  const std::byte* const source = with_.memory.at(i.source);
  if constexpr (requires { port.transfer(lane, i, target, source, bytes); })
    if (touches_l2(i)) return port.transfer(lane, i, target, source, bytes);
  return port.transfer(lane, target, source, bytes);
}

template <class Code>
template <class Port, class Instruction>
void basic_performer<Code>::expect(Port& port, int lane, const Instruction& i) const {
  if constexpr (has_places<Instruction> &&
                requires(std::byte * place, std::size_t bytes) { port.expect(lane, i.from, place, bytes); }) {
    // The place is the chunk's from the moment when nothing else is lacking: its sender sends it after all that the place held before
    // was read (the verifier has proved it), and so it does not matter that the bytes come before this lane looks again.
    const bool keeps_it = writes(i.kind) && !reduces(i.kind) && (!sends(i.kind) || port.can_send(lane, i.to));
    port.expect(lane, i.from, keeps_it ? with_.memory.at(i.target) : nullptr, i.elements * code_->element_size);
  }
}

/// What stands behind the receive that the lane waits in, so that no peer waits for another one's turn.
template <class Code>
template <class Port>
void basic_performer<Code>::expect_early(Port& port, int lane) const {
  if constexpr (!makes_instructions && requires(std::byte * place) { port.expect_early(lane, 0, place, 0); }) {
    const lane_state& l = lanes_[static_cast<std::size_t>(lane)];
    const std::size_t end = std::min(l.code.size(), l.next + most_expected);
    for (std::size_t k = l.next + 1; k < end && l.code[k].early; ++k)
      port.expect_early(lane, l.code[k].from, with_.memory.at(l.code[k].target),
                        l.code[k].elements * code_->element_size);
  }
}

template <class Code>
template <class Port, class Instruction>
void basic_performer<Code>::receive(Port& port, int lane, const Instruction& i, const chunk& incoming, bool carries,
                                    bool completes) {
  if constexpr (!has_places<Instruction>) {
    port.consume(lane, i.from);
    if (sends(i.kind)) port.send(lane, i.to, nullptr, i.elements * code_->element_size);
    return;
  } else
    as_received(i.kind, [&](auto step) {
      std::byte* result = nullptr;
      if constexpr (!step.keeps) result = port.slot(lane, i.to, incoming.bytes);
      else if (carries) result = with_.memory.at(i.target);
      if (carries) {
        const std::byte* data = incoming.data;
        if constexpr (requires { port.fetch(lane, i.from, incoming, result); })
          data = port.fetch(lane, i.from, incoming, step.combines ? nullptr : result);
        if constexpr (!step.combines) {
          if (result != data) troupe::copy(result, data, incoming.bytes);
        } else if constexpr (step.with_target) combine(i, data, result, result, completes);
        else combine(i, data, with_.memory.at(i.source), result, completes);
      }
      port.consume(lane, i.from);
      if constexpr (step.forwards) port.send(lane, i.to, result, i.elements * code_->element_size);
    });
}

template <class Code>
basic_performer<Code>::basic_performer(const Code& code, int channel, const memory_map& memory, datatype type,
                                       const op& reduction, bool any_order)
    : code_(&code), lanes_(lane_storage<Code, lane_state>::make(code)), with_{type, memory, reduction} {
  begin(code, channel, memory, type, reduction, any_order);
}

template <class Code>
void basic_performer<Code>::begin(const Code& code, int channel, const memory_map& memory, datatype type,
                                  const op& reduction, bool any_order) {
  code_ = &code;
  any_order_ = any_order && reduction.commutative && reduction.associative;
  with_ = {type, memory, reduction};
  awakened_ = awakened_again_ = turned_ = -1;
  lanes_.assign(static_cast<std::size_t>(code.lanes_per_channel), lane_state{});
  unfinished_ = 0;
  for (int l = 0; l < code.lanes_per_channel; ++l) {
    at(l).code = code.lane(channel, l);
    if (!at(l).code.empty()) ++unfinished_;
  }
}

template <class Code>
std::size_t basic_performer<Code>::fan_size(const lane_state& l) const {
  const std::size_t most = std::min<std::size_t>(l.code.size() - l.next, 64);
  const auto& first = l.code[l.next];
  std::size_t size = 1;
  for (; size < most; ++size) {
    const auto& member = l.code[l.next + size];
    if (member.fan != first.fan || member.slice != first.slice) break;
  }
  return size;
}

template <class Code>
void basic_performer<Code>::go_on(lane_state& l) {
  l.lacks = lane_wait::reason::nothing;
  if (++l.next == l.code.size()) --unfinished_;
  if constexpr (makes_instructions)
    if (l.first_waiter >= 0 && l.next > static_cast<std::size_t>(l.least_awaited)) awaken_waiters(l);
}

template <class Code>
std::vector<lane_wait> basic_performer<Code>::waits() const {
  std::vector<lane_wait> result;
  for (std::size_t l = 0; l < lanes_.size(); ++l)
    if (lanes_[l].next < lanes_[l].code.size()) {
      const lane_state& its = lanes_[l];
      lane_wait wait{its.lacks, static_cast<int>(l), its.lacks_from, its.lacking_step};
      if (wait.step < 0) wait.step = lanes_[l].code[lanes_[l].next].score_step;
      result.push_back(wait);
    }
  return result;
}

template <class Code>
void basic_performer<Code>::combine(const instruction& i, const std::byte* incoming, const std::byte* local,
                                    std::byte* out, bool completes) const {
  if (completes && code_->sums.divisor != 1)
    reduce_many(with_.type, with_.reduction,
                std::array<const void*, 2>{i.swapped ? local : incoming, i.swapped ? incoming : local},
                std::array<void*, 1>{out}, i.elements, store_hint::by_size, {nullptr, code_->sums.divisor});
  else if (i.swapped) reduce(with_.type, with_.reduction, local, incoming, out, i.elements);
  else reduce(with_.type, with_.reduction, incoming, local, out, i.elements);
}

extern template class basic_performer<program>;

}  // namespace troupe
