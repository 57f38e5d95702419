// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/slots/slot_performer.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "memory/kernels/user_functions.hpp"
#include "protocols/perform/received.hpp"

namespace troupe {

namespace {

#if defined(__GNUC__)
#define TROUPE_INLINE [[gnu::always_inline]] inline
#else
#define TROUPE_INLINE inline
#endif

/// One sum of a loop that stays as it is written.
template <class V>
TROUPE_INLINE void add_at(const std::byte* a, const std::byte* b, std::byte* to, std::size_t& at) {
  V x, y;
  std::memcpy(&x, a + at, sizeof(V));
  std::memcpy(&y, b + at, sizeof(V));
  x = static_cast<V>(x + y);
  std::memcpy(to + at, &x, sizeof(V));
  at += sizeof(V);
#if defined(__GNUC__)
  __asm__("" : "+r"(at));
#endif
}

#if defined(__GNUC__)
template <class T>
struct sixteen_bytes {
  typedef T vector __attribute__((vector_size(16)));
};
#endif

/// Sums of a handful of elements, without the preamble of a vector loop.
template <class T>
void tiny_sum(const void* left, const void* right, void* out, std::size_t count) {
  const auto* a = static_cast<const std::byte*>(left);
  const auto* b = static_cast<const std::byte*>(right);
  auto* to = static_cast<std::byte*>(out);
  const std::size_t bytes = count * sizeof(T);
  std::size_t at = 0;
#if defined(__GNUC__)
  using several = typename sixteen_bytes<T>::vector;
  while (at + sizeof(several) <= bytes) add_at<several>(a, b, to, at);
#endif
  while (at < bytes) add_at<T>(a, b, to, at);
}

/// Integers wrap: they are added as unsigned.
reduce_kernel find_tiny(datatype type, op_kind kind) {
  if (!is_sum(kind)) return nullptr;
  switch (type) {
    case datatype::f32: return &tiny_sum<float>;
    case datatype::f64: return &tiny_sum<double>;
    case datatype::i32:
    case datatype::u32: return &tiny_sum<std::uint32_t>;
    case datatype::i64:
    case datatype::u64: return &tiny_sum<std::uint64_t>;
    default: return nullptr;
  }
}

void move_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == slots::ll128_payload) std::memcpy(to, from, slots::ll128_payload);
  else if (bytes == sizeof(std::uint64_t)) std::memcpy(to, from, sizeof(std::uint64_t));
  else if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

// -- an operation begins and ends -------------------------------------------------------------------------------------

void slot_performer::bind(const slot_program& code, std::uint64_t sequence) {
  bound_ = 0;
  channels_.clear();
  std::size_t room = slot_channel::most_lines;
  for (const auto& use : code.channels) {
    slot_channel& channel = use.outgoing ? board_->channel(rank_, use.peer) : board_->channel(use.peer, rank_);
    if (use.outgoing) room = std::min(room, channel.reserve(use.lines, board_->memory()));
    if (use.outgoing && code.runs_ahead) channel.deepen(sequence, board_->memory());
    channels_.push_back(&channel);
  }
  lanes_.resize(code.lanes.size());
  // Blocks of the next call may be as large and go to others.
  bound_lines_ = static_cast<std::uint32_t>(room);
  bound_ = code.identity;
}

/// For a program, a type or an operation other than those of the last operation.
void slot_performer::prepare(const slot_program& code, datatype type, op_kind kind, std::uint64_t sequence) {
  if (bound_ != code.identity || code.most_lines > bound_lines_) bind(code, sequence);
  const datatype unit = unit_of(type, kind);
  type_ = type;
  kind_ = kind;
  tiny_ = code.largest <= tiny_bytes;
  unit_shift_ = std::countr_zero(size_of(unit));
  if (!code.reduces) return;
  kernel_ = tiny_ ? find_tiny(unit, kind) : nullptr;
  if (kernel_ == nullptr) kernel_ = find_reduce(unit, kind);
}

void slot_performer::abandon() {
  if (unfinished_ == 0) return;
  unfinished_ = 0;
  finish();
}

// -- steps ------------------------------------------------------------------------------------------------------------

/// Inlined into advance(), like what it calls for a message of one line: a call each costs as much as the work.
TROUPE_INLINE slot_performer::outcome slot_performer::step(lane_state& lane, const slot_step& s) {
  if (s.after_lane >= 0 && lanes_[static_cast<std::size_t>(s.after_lane)].next <= s.after_index) [[unlikely]]
    return outcome::lane;
  if (s.kind == step_kind::send) {
    if (const outcome ready = open(s); ready != outcome::moved) return ready;
    write(s, 0, source(s), s.bytes);
    board_->notify(code_->channels[s.out_channel].peer, rank_);
    return outcome::moved;
  }
  if (receives(s.kind)) return receive(lane, s);
  local(s);
  return outcome::moved;
}

TROUPE_INLINE slot_performer::outcome slot_performer::receive(lane_state& lane, const slot_step& s) {
  const bool forwards = sends(s.kind);
  if (forwards)
    if (const outcome ready = open(s); ready != outcome::moved) return ready;
  outcome result = outcome::moved;
  if (code_->format == slot_format::ll128 && s.bytes <= slots::ll128_payload && s.in_line < slot_channel::first_lines) {
    slot_channel& from = *channels_[s.in_channel];
    const slots::word* line = s.only_in && code_->runs_ahead ? from.message_to_read(sequence_, s.bytes)
                                                             : from.lines_to_read(sequence_, s.in_line).first;
    // Who waits has both halves brought at once; the second would be asked for only when the stamp has been seen.
    if (s.bytes > slots::half_payload) slots::ask_to_read(line + slots::line_words / 2);
    result = greet(from, s, line);
    if (result == outcome::chunk) result = look_elsewhere(s, line);
    if (result != outcome::moved) return result;
    deliver(s, 0, slots::data_of(line), s.bytes);
  } else {
    result = code_->format == slot_format::ll128 ? receive_ll128(lane, s) : receive_ll(lane, s);
    // What lies elsewhere is no message of this size or format.
    const slots::word* other = nullptr;
    if (result == outcome::chunk && lane.progress == 0 && look_elsewhere(s, other) == outcome::mismatch)
      result = outcome::mismatch;
  }
  if (forwards && result != outcome::mismatch) board_->notify(code_->channels[s.out_channel].peer, rank_);
  return result;
}

void slot_performer::local(const slot_step& s) const {
  if (!s.fold && s.kind == step_kind::reduce) {
    std::byte* to = target(s);
    combine(s, to, source(s), to, s.bytes);
  } else if (!s.fold && s.kind == step_kind::copy) {
    if (target(s) != source(s)) move_bytes(target(s), source(s), s.bytes);  // a broadcast of one buffer at the root
  } else {
    const auto index = static_cast<std::size_t>(&s - code_->steps.data());
    const memory_map memory{.input = base_[static_cast<std::size_t>(buffer_kind::input)],
                            .output = base_[static_cast<std::size_t>(buffer_kind::output)],
                            .scratch = base_[static_cast<std::size_t>(buffer_kind::scratch)],
                            .l0 = base_[static_cast<std::size_t>(buffer_kind::l0)]};
    perform_local(code_->instructions[index], code_->operands.data(), memory, type_, reduction_, code_->element_size);
  }
}

TROUPE_INLINE slot_performer::outcome slot_performer::open(const slot_step& s) {
  slot_channel& to = *channels_[s.out_channel];
  if (to.is_open(sequence_)) return outcome::moved;
  // The destination's last messages show what it has finished.
  const slot_program::channel_use& use = code_->channels[s.out_channel];
  if (use.reverse >= 0) to.learn(channels_[static_cast<std::size_t>(use.reverse)]->seen());
  if (!to.open(sequence_, generation_, code_->format, use.lines)) [[unlikely]]
    return open_late(s);
  to.ask_ahead(sequence_, s.bytes, s.only_out && code_->runs_ahead && code_->format == slot_format::ll128);
  return outcome::moved;
}

/// If it has sent nothing, its word does.
slot_performer::outcome slot_performer::open_late(const slot_step& s) {
  slot_channel& to = *channels_[s.out_channel];
  const slot_program::channel_use& use = code_->channels[s.out_channel];
  to.learn(board_->done(use.peer));
  if (to.open(sequence_, generation_, code_->format, use.lines)) return outcome::moved;
  if (code_->runs_ahead && board_->cores().are_too_few() && to.lengthen(sequence_, board_->memory()) &&
      to.open(sequence_, generation_, code_->format, use.lines))
    return outcome::moved;
  to.found_full(sequence_);
  return outcome::credit;
}

/// Writes bytes [at, at + bytes) of a message; the first piece begins at 0, and only the last may be no multiple of a line's.
TROUPE_INLINE void slot_performer::write(const slot_step& s, std::size_t at, const std::byte* data, std::size_t bytes) {
  if (code_->format == slot_format::ll) return write_ll(s, at, data, bytes);
  if (s.bytes > slots::ll128_payload || s.out_line >= slot_channel::first_lines) return write_ll128(s, at, data, bytes);
  slots::word* line = s.only_out && code_->runs_ahead
                          ? channels_[s.out_channel]->message_to_write(sequence_, s.bytes)
                          : channels_[s.out_channel]->lines_to_write(sequence_, s.out_line).first;
  slots::write_line(line, data, bytes, slots::join(stamp_, tag_of(s)), board_->tearing());
}

void slot_performer::write_ll128(const slot_step& s, std::size_t at, const std::byte* data, std::size_t bytes) {
  slot_channel& to = *channels_[s.out_channel];
  const slots::tear_hook tear = board_->tearing();
  const slots::word mark = slots::join(stamp_, tag_of(s));
  std::size_t line = s.out_line + at / slots::ll128_payload;
  while (true) {
    auto run = to.lines_to_write(sequence_, line);
    line += run.lines;
    const std::size_t lines = std::min(run.lines, slots::lines_of(slot_format::ll128, bytes));
    if (lines > 1)
      for (std::size_t i = 0; i < std::min(lines, slots::lines_asked_for); ++i)
        slots::ask_for(run.first + i * slots::line_words);
    for (std::size_t i = 0; i < lines; ++i, run.first += slots::line_words) {
      if (i + slots::lines_asked_for < lines) slots::ask_for(run.first + slots::lines_asked_for * slots::line_words);
      const std::size_t piece = std::min(bytes, slots::ll128_payload);
      slots::write_line(run.first, data, piece, mark, tear);
      bytes -= piece;
      if (bytes == 0) return;
      data += piece;
    }
  }
}

/// The header is the message's first slot.
void slot_performer::write_ll(const slot_step& s, std::size_t at, const std::byte* data, std::size_t bytes) {
  slot_channel& to = *channels_[s.out_channel];
  const slots::tear_hook tear = board_->tearing();
  if (at == 0) slots::write_header(to.lines_to_write(sequence_, s.out_line).first, stamp_, tag_of(s), tear);
  std::size_t word = 2 + at / slots::ll_payload * 2;
  while (bytes > 0) {
    const auto run = to.lines_to_write(sequence_, s.out_line + word / slots::line_words);
    const std::size_t skipped = word % slots::line_words;
    const std::size_t piece = std::min(bytes, (run.lines * slots::line_words - skipped) / 2 * slots::ll_payload);
    slots::write_slots(run.first + skipped, data, piece, stamp_, tear);
    bytes -= piece;
    data += piece;
    word += piece / slots::ll_payload * 2;
  }
}

/// Looks at a message's first word. `moved`: it has come.
TROUPE_INLINE slot_performer::outcome slot_performer::greet(slot_channel& from, const slot_step& s,
                                                            const slots::word* first) {
  if (!from.readable(generation_))
    return outcome::chunk;  // before the word: a stamp of the last generation may be there
  const slots::word seen = slots::load(first, std::memory_order_acquire);
  if (slots::stamp_in(seen) != stamp_) {
    if (from.look_for_ring(sequence_)) [[unlikely]]
      found_ring_ = true;
    return outcome::chunk;
  }
  if (seen != slots::join(stamp_, tag_of(s))) {
    suspect_ = code_->channels[s.in_channel].peer;
    return outcome::mismatch;
  }
  from.saw(sequence_);
  return outcome::moved;
}

/// In some looks, if the first message of an epoch has not come where it was expected: it may lie in another place. `moved`: at `line`.
slot_performer::outcome slot_performer::look_elsewhere(const slot_step& s, const slots::word*& line) {
  if (s.in_line != 0 || !looks_everywhere_) return outcome::chunk;
  slot_channel& from = *channels_[s.in_channel];
  if (!from.readable(generation_)) return outcome::chunk;
  const slots::word* const found = from.first_message(sequence_, stamp_);
  if (found == nullptr) return outcome::chunk;
  line = found;
  return greet(from, s, found);
}

/// A line in the middle of a message whose beginning has come.
bool slot_performer::has_come(slot_channel& from, std::size_t line) const {
  const slots::word* const first = from.lines_to_read(sequence_, line).first;
  return first != nullptr && slots::stamp_in(slots::load(first, std::memory_order_acquire)) == stamp_;
}

/// A reader that has caught up with the writer and looks at the very line that is being written takes it from the writer's cache, which has to
/// fetch it back: every line would be transferred three times. So it looks at a later line first, which is written after all before it.
slot_performer::outcome slot_performer::receive_ll128(lane_state& lane, const slot_step& s) {
  slot_channel& from = *channels_[s.in_channel];
  if (lane.later != 0) {
    if (!has_come(from, s.in_line + lane.later)) return outcome::chunk;
    lane.later = 0;
  }
  std::size_t line = s.in_line + lane.progress / slots::ll128_payload;
  do {
    auto run = from.lines_to_read(sequence_, line);
    if (run.first == nullptr) return outcome::chunk;
    line += run.lines;
    for (; run.lines > 0; --run.lines, run.first += slots::line_words) {
      if (const outcome seen = greet(from, s, run.first); seen != outcome::moved) {
        if (lane.progress > 0 && seen == outcome::chunk) {
          const std::size_t last = (s.bytes - 1) / slots::ll128_payload;
          lane.later = static_cast<std::uint32_t>(std::min(lane.progress / slots::ll128_payload + lines_behind, last));
        }
        return seen;
      }
      const std::size_t piece = std::min(s.bytes - lane.progress, slots::ll128_payload);
      deliver(s, lane.progress, slots::data_of(run.first), piece);
      lane.progress += piece;
      if (lane.progress == s.bytes) return outcome::moved;
    }
  } while (true);
}

slot_performer::outcome slot_performer::receive_ll(lane_state& lane, const slot_step& s) {
  slot_channel& from = *channels_[s.in_channel];
  if (!lane.greeted) {
    const auto run = from.lines_to_read(sequence_, s.in_line);
    if (run.first == nullptr) return outcome::chunk;
    if (const outcome seen = greet(from, s, run.first); seen != outcome::moved) return seen;
    lane.greeted = true;
    if (s.bytes == 0) {
      deliver(s, 0, nullptr, 0);
      return outcome::moved;
    }
  }
  static_assert(slots::ll_tile % 16 == 0, "tiles of every element's size");
  alignas(64) std::byte tile[slots::ll_tile];
  while (lane.progress < s.bytes) {
    const std::size_t wanted = std::min(s.bytes - lane.progress, slots::ll_tile);
    const std::size_t come = unpack_ll(from, s, lane.progress, tile, wanted);
    const std::size_t whole = come >> unit_shift_ << unit_shift_;  // half of a 16-byte element is read again
    if (whole > 0) deliver(s, lane.progress, tile, whole);
    lane.progress += whole;
    if (come < wanted) return outcome::chunk;
  }
  return outcome::moved;
}

/// Unpacks from the front what has come of bytes [at, at + bytes), which may lie in several runs of lines.
std::size_t slot_performer::unpack_ll(slot_channel& from, const slot_step& s, std::size_t at, std::byte* to,
                                      std::size_t bytes) const {
  std::size_t done = 0;
  while (done < bytes) {
    const std::size_t word = 2 + (at + done) / slots::ll_payload * 2;
    const auto run = from.lines_to_read(sequence_, s.in_line + word / slots::line_words);
    const std::size_t skipped = word % slots::line_words;
    const std::size_t here = (run.lines * slots::line_words - skipped) / 2 * slots::ll_payload;
    const std::size_t wanted = std::min(bytes - done, here);
    const std::size_t piece = slots::read_slots(run.first + skipped, to + done, wanted, stamp_);
    done += piece;
    if (piece < wanted) break;
  }
  return done;
}

/// Bytes [at, at + bytes) of the message have come.
TROUPE_INLINE void slot_performer::deliver(const slot_step& s, std::size_t at, const std::byte* in, std::size_t bytes) {
  as_received(
      s.kind, [&](auto step) __attribute__((always_inline)) {
        if constexpr (!step.keeps) {
          reduce_and_send(s, at, in, bytes);
        } else {
          std::byte* const result = target(s) + at;
          if constexpr (!step.combines) move_bytes(result, in, bytes);
          else combine(s, in, step.with_target ? result : source(s) + at, result, bytes);
          if constexpr (step.forwards) write(s, at, result, bytes);
        }
      });
}

/// Out of line: its room on the stack would be every step's.
void slot_performer::reduce_and_send(const slot_step& s, std::size_t at, const std::byte* in, std::size_t bytes) {
  alignas(64) std::byte sums[slots::ll_tile];
  combine(s, in, source(s) + at, sums, bytes);
  write(s, at, sums, bytes);
}

TROUPE_INLINE void slot_performer::combine(const slot_step& s, const std::byte* in, const std::byte* own,
                                           std::byte* out, std::size_t bytes) const {
  if (bytes == 0) return;
  const std::size_t count = bytes >> unit_shift_;
  const std::byte* left = s.swapped ? own : in;
  const std::byte* right = s.swapped ? in : own;
  if (kernel_ != nullptr) [[likely]]
    kernel_(left, right, out, count);
  else call_user_function(reduction_, left, right, out, count, type_);
}

slot_performer::status slot_performer::advance() {
  if (unfinished_ == 0) return status::performed;
  bool moved = true;
  while (moved) {
    moved = false;
    for (lane_state& lane : lanes_) {
      if (lane.next == lane.end) continue;
      do {
        lane.why = step(lane, code_->steps[lane.next]);
        if (lane.why != outcome::moved) break;
        moved = true;
        ++steps_;
        lane.progress = 0;
        lane.greeted = false;
      } while (++lane.next != lane.end);
      if (lane.why == outcome::mismatch) return status::mismatch;
      if (lane.next == lane.end && --unfinished_ == 0) return finish();
    }
    if (found_ring_) [[unlikely]] {
      found_ring_ = false;
      moved = true;  // once in a channel's life: there may be more where nobody has looked yet
      continue;
    }
    if (lanes_.size() == 1) break;  // nobody else could have made it ready again
  }
  looks_everywhere_ = ++waits_ % looks_elsewhere == 0;
  return status::waiting;
}

// -- what it lacks ----------------------------------------------------------------------------------------------------

/// Where a rank sends before it receives, it has sent all when it has come. Otherwise a rank elsewhere may wait for one here.
bool slot_performer::waits_for_other_cores() const {
  if (!code_->sends_first) return false;
  const shared_cores& cores = board_->cores();
  for (const lane_state& lane : lanes_) {
    if (lane.next != lane.end && lane.why == outcome::credit) return false;
    for (std::uint32_t i = lane.next; i != lane.end; ++i) {
      const slot_step& s = code_->steps[i];
      if (!receives(s.kind) || !cores.are_together(rank_, code_->channels[s.in_channel].peer)) continue;
      slot_channel& from = *channels_[s.in_channel];
      if (!from.readable(generation_)) return false;
      if (s.only_in ? from.first_message(sequence_, stamp_) == nullptr : !has_come(from, s.in_line)) return false;
    }
  }
  return true;
}

std::vector<lane_wait> slot_performer::waits() const {
  std::vector<lane_wait> result;
  if (unfinished_ == 0) return result;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const lane_state& lane = lanes_[l];
    if (lane.next == lane.end) continue;
    const instruction& i = code_->instructions[lane.next];
    lane_wait wait{lane_wait::reason::nothing, static_cast<int>(l), -1, i.score_step};
    switch (lane.why) {
      case outcome::chunk: wait.why = lane_wait::reason::chunk, wait.peer = i.from; break;
      case outcome::credit: wait.why = lane_wait::reason::credit, wait.peer = i.to; break;
      case outcome::lane: wait.why = lane_wait::reason::lane, wait.peer = i.after_lane; break;
      default: break;
    }
    result.push_back(wait);
  }
  return result;
}

void slot_performer::announce(slot_board::sleep& to) const {
  looks_everywhere_ = true;
  if (unfinished_ == 0) return to.announce(rank_, slot_board::anybody);
  rank_t writer = slot_board::anybody;
  int lanes = 0;
  bool credits = false;
  for (const lane_state& lane : lanes_) {
    if (lane.next == lane.end) continue;
    ++lanes;
    credits = credits || lane.why == outcome::credit;
    if (lane.why == outcome::chunk) writer = code_->instructions[lane.next].from;
  }
  to.announce(rank_, lanes > 1 || credits ? slot_board::anybody : writer);
  if (!credits) return;
  for (const lane_state& lane : lanes_)
    if (lane.next != lane.end && lane.why == outcome::credit)
      to.want_finished(code_->instructions[lane.next].to,
                       channels_[code_->steps[lane.next].out_channel]->wanted(sequence_));
}

}  // namespace troupe
