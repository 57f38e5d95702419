#pragma once
// Performs one channel of one rank's program: a plain state machine without threads, clock or transport.
//
// advance() runs every lane until its next instruction lacks a chunk, a credit, the end of a DMA transfer, or an instruction of
// another lane; it never blocks. Whoever owns the performer calls advance() again after anything has arrived. One owner at a
// time; no synchronisation in here.
//
// The port is where chunks come from and go to. What it must offer (lane = lane within the channel):
//   const chunk* front(lane, from)            the next chunk in order, or nullptr; stays until consume()
//   void consume(lane, from)                  done with it: gives the credit back
//   bool can_send(lane, to)                   is there a credit?
//   void send(lane, to, data, bytes)          hands out a reference @pre can_send
//   std::byte* slot(lane, to, bytes)          memory for the next message of this lane to `to` @pre can_send
//   bool transfer(lane, target, source, bytes)  dma_get/dma_put: true if done at once, false if the end is reported later

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/kernels.hpp"
#include "memory/types.hpp"
#include "protocols/chunk.hpp"
#include "protocols/program.hpp"

namespace troupe {

/// Another rank's buffers, for programs that read or write them directly.
struct peer_memory {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
};

/// Where the buffers of an operation begin.
struct memory_map {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  std::byte* l0 = nullptr;
  std::byte* l2 = nullptr;
  const peer_memory* peers = nullptr;  ///< by rank; only if program::shares_memory

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

/// What a lane lacks, for verdicts that name it.
struct lane_wait {
  enum class reason : std::uint8_t { nothing, chunk, credit, lane, transfer };
  reason why = reason::nothing;
  int lane = -1;
  rank_t peer = -1;
  std::int32_t step = -1;  ///< position in the score's lane
};
std::string to_string(const lane_wait& wait);

/// Performs an instruction that needs neither a peer nor a DMA engine: copy, reduce, fold, wait.
/// @param operands program::operands
void perform_local(const instruction& i, const location* operands, const memory_map& memory, datatype type,
                   const op& reduction, std::size_t element_size);

class performer {
 public:
  enum class status : std::uint8_t { waiting, performed, mismatch };

  /// @param code outlives the performer. @param any_order honour fans (determinism `fast`).
  performer(const program& code, int channel, const memory_map& memory, datatype type, const op& reduction, bool any_order);

  /// Runs until nothing can go on. `mismatch`: a chunk has another size than the instruction expects (the sender performs a
  /// different call); nothing was written, and the performer must not be used any more.
  template <class Port>
  status advance(Port& port);

  /// The transfer that `lane` started has ended.
  void transferred(int lane) { at(lane).transfer = transfer_state::ended; }

  bool performed() const { return unfinished_ == 0; }
  /// What each unfinished lane lacks. Allocates; for verdicts only.
  std::vector<lane_wait> waits() const;

 private:
  enum class transfer_state : std::uint8_t { none, under_way, ended };
  enum class outcome : std::uint8_t { moved, stuck, mismatch };
  struct lane_state {
    std::span<const instruction> code;
    std::size_t next = 0;
    std::uint64_t fan_done = 0;  ///< of the fan at `next`: which members are performed
    transfer_state transfer = transfer_state::none;
    lane_wait wait;
  };

  lane_state& at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  template <class Port>
  outcome step_once(Port& port, int lane);
  template <class Port>
  outcome fan_once(Port& port, int lane);
  template <class Port>
  outcome perform(Port& port, int lane, const instruction& i);
  bool ready(const instruction& i) const;
  std::size_t fan_size(const lane_state& l) const;
  void go_on(lane_state& l);
  static outcome stuck(lane_state& l, lane_wait::reason why, rank_t peer, int lane);
  void combine(const instruction& i, const std::byte* incoming, const std::byte* local, std::byte* out) const;

  const program* code_;
  memory_map memory_;
  std::vector<lane_state> lanes_;
  std::size_t unfinished_ = 0;
  op reduction_;
  datatype type_;
  bool any_order_;
};

// -- implementation ---------------------------------------------------------------------------------------------------

template <class Port>
performer::status performer::advance(Port& port) {
  bool moved = true;
  while (moved && unfinished_ > 0) {
    moved = false;
    for (int l = 0; l < static_cast<int>(lanes_.size()); ++l) {
      outcome result = outcome::moved;
      while (at(l).next < at(l).code.size() && (result = step_once(port, l)) == outcome::moved) moved = true;
      if (result == outcome::mismatch) return status::mismatch;
    }
    if (lanes_.size() == 1) break;  // nobody else could have made it ready again
  }
  return unfinished_ == 0 ? status::performed : status::waiting;
}

template <class Port>
performer::outcome performer::step_once(Port& port, int lane) {
  lane_state& l = at(lane);
  const instruction& i = l.code[l.next];
  if (i.fan != 0 && any_order_) return fan_once(port, lane);
  if (!ready(i)) return stuck(l, lane_wait::reason::lane, i.after_lane, lane);
  const outcome result = perform(port, lane, i);
  if (result == outcome::moved) go_on(l);
  return result;
}

/// Performs whichever member of the fan has its chunk.
template <class Port>
performer::outcome performer::fan_once(Port& port, int lane) {
  lane_state& l = at(lane);
  const std::size_t size = fan_size(l);
  for (std::size_t k = 0; k < size; ++k) {
    if ((l.fan_done >> k & 1u) != 0) continue;
    const instruction& member = l.code[l.next + k];
    if (!ready(member) || port.front(lane, member.from) == nullptr) continue;
    if (const outcome result = perform(port, lane, member); result != outcome::moved) return result;
    l.fan_done |= std::uint64_t{1} << k;
    if (l.fan_done == (size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << size) - 1)) {
      l.fan_done = 0;
      l.next += size - 1;
      go_on(l);
    }
    return outcome::moved;
  }
  return stuck(l, lane_wait::reason::chunk, l.code[l.next].from, lane);
}

template <class Port>
performer::outcome performer::perform(Port& port, int lane, const instruction& i) {
  lane_state& l = at(lane);
  const std::size_t bytes = i.elements * code_->element_size;
  const chunk* incoming = nullptr;
  if (receives(i.kind)) {
    incoming = port.front(lane, i.from);
    if (incoming == nullptr) return stuck(l, lane_wait::reason::chunk, i.from, lane);
    if (incoming->bytes != bytes) return outcome::mismatch;
  }
  if (sends(i.kind) && !port.can_send(lane, i.to)) return stuck(l, lane_wait::reason::credit, i.to, lane);

  switch (i.kind) {
    case step_kind::send: port.send(lane, i.to, memory_.at(i.source), bytes); break;
    case step_kind::recv:
      troupe::copy(memory_.at(i.target), incoming->data, bytes);
      port.consume(lane, i.from);
      break;
    case step_kind::recv_reduce:
      combine(i, incoming->data, memory_.at(i.target), memory_.at(i.target));
      port.consume(lane, i.from);
      break;
    case step_kind::recv_copy_send:
      troupe::copy(memory_.at(i.target), incoming->data, bytes);
      port.consume(lane, i.from);
      port.send(lane, i.to, memory_.at(i.target), bytes);
      break;
    case step_kind::recv_reduce_send: {
      std::byte* out = port.slot(lane, i.to, bytes);
      combine(i, incoming->data, memory_.at(i.source), out);
      port.consume(lane, i.from);
      port.send(lane, i.to, out, bytes);
      break;
    }
    case step_kind::recv_reduce_copy:
    case step_kind::recv_reduce_copy_send:
      combine(i, incoming->data, memory_.at(i.source), memory_.at(i.target));
      port.consume(lane, i.from);
      if (sends(i.kind)) port.send(lane, i.to, memory_.at(i.target), bytes);
      break;
    case step_kind::dma_get:
    case step_kind::dma_put:
      if (l.transfer == transfer_state::none && !port.transfer(lane, memory_.at(i.target), memory_.at(i.source), bytes))
        l.transfer = transfer_state::under_way;
      if (l.transfer == transfer_state::under_way) return stuck(l, lane_wait::reason::transfer, -1, lane);
      l.transfer = transfer_state::none;
      break;
    default:
      perform_local(i, code_->operands.data(), memory_, type_, reduction_, code_->element_size);
      break;
  }
  return outcome::moved;
}

}  // namespace troupe
