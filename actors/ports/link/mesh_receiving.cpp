// SPDX-License-Identifier: Apache-2.0
// Connections that others open to a mesh, and what comes through them.
#include <tuple>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "actors/ports/link/mesh_connections.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {
using clock = std::chrono::steady_clock;
}

// -- receiving --------------------------------------------------------------------------------------------------------------

void mesh::accept_all(int listener) {
  std::string why;
  while (descriptor s = accept_from(listener, why)) {
    if (!is_same_user(s.get())) continue;
    std::size_t strangers = 0;
    incoming* oldest = nullptr;
    for (const auto& way : in_)
      if (!way->known && !way->over && ++strangers == 1) oldest = way.get();
    if (strangers >= most_strangers) close(*oldest);
    tune_socket(s.get(), static_cast<int>(options_.silence.count()));
    const std::uint32_t id = next_incoming_++;
    watch(epoll_.get(), s.get(), subject::incoming, id, EPOLLIN, watching::begins);
    const bool local = socket_address::own(s.get()).family() == AF_UNIX;
    in_.push_back(std::make_unique<incoming>(
        id, std::move(s), handshake::answering({roster_.job, 0, here_, options_.build}, key_), clock::now()));
    in_.back()->local = local;
  }
  if (why.empty()) return;
  // No descriptors are left. The callers go on calling; the next look tries again, instead of spinning here.
  accepting_ = false;
  watch_listeners(0, watching::goes_on);
}

/// Whether it speaks TLS, as it should or should not. False: nothing has come yet, or it has ended.
bool mesh::look_how_it_begins(incoming& way) {
  std::byte first{};
  const ssize_t seen = ::recv(way.socket.get(), &first, 1, MSG_DONTWAIT | MSG_PEEK);
  if (seen < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (seen <= 0) return close(way), false;
  if (begins_tls(first)) way.tls = std::make_shared<tls_line>(options_.tls, tls_line::side::answerer);
  else way.hands.refuse_plain();
  return way.opened = true;
}

/// True: it is done.
bool mesh::shake_hands(incoming& way) {
  if (options_.tls && !way.local && !way.opened && !look_how_it_begins(way)) return false;
  std::string why;
  int problem = 0;
  tls_line* const tls = way.tls.get();
  const bool open = feed_from(way.socket.get(), tls, way.hands, why);
  const std::vector<std::byte> more = way.hands.take_output();
  way.unsent.insert(way.unsent.end(), more.begin(), more.end());
  if (open && keeps_answer_back(way)) return false;
  const bool sent = send_plain(way.socket.get(), tls, way.unsent, problem);
  if (!open || problem != 0 || way.hands.state() == handshake::status::refused) {
    // A caller that has closed the connection without a reason may only have got another one meanwhile: nothing is logged then.
    why = way.hands.why().empty() && tls != nullptr ? tls->why() : way.hands.why();
    if (!why.empty()) receiver_.turned_away(socket_address::other(way.socket.get()).to_string() + ": " + why);
    return close(way), false;
  }
  const bool full = tls != nullptr ? tls->holds_output() : !sent;
  watch(way, full ? EPOLLIN | EPOLLOUT : EPOLLIN, watching::goes_on);
  if (way.hands.state() != handshake::status::done || !sent) return false;
  way.process = way.hands.peer();
  way.lane = way.hands.lane();
  const bool twice = std::any_of(in_.begin(), in_.end(), [&](const auto& other) {
    return other.get() != &way && other->known && !other->over && other->process == way.process &&
           other->lane == way.lane;
  });
  const bool lane_can_be = way.lane == 0 || (way.lane < most_connections && !way.local);
  if (way.process >= processes() || way.process == here_ || twice || !lane_can_be || !alive(way.process))
    return close(way), false;
  if (options_.carrier && !way.local) {
    way.line = line_of(way.process, way.hands);
    if (!say_back(way, line_is_there)) return close(way), false;
  }
  way.known = true;
  if (way.lane == 0) presence_.hears(way.process, true, clock::now());
  else keep_alive(way.socket.get());
  if (!way.local) {
    begin_stream(way);
    if (way.lane == 0) answer_on(way);
  }
  return true;
}

/// From now on frames come, and callers may read them.
void mesh::begin_stream(incoming& way) {
  stop_watching(epoll_.get(), way.socket.get());
  way.stream = true;
  ++(way.ring || way.line ? rings_ : open_streams_);
  watch(way, EPOLLIN, watching::begins);
}

void mesh::incoming_event(incoming& way) {
  try {
    if (!way.known && !shake_hands(way)) return;
    bool open = true;
    if (way.local && !take_bells(way, open)) return;
    if (way.line) open = drop_bells(way);
    if (way.line && !open) read_to_the_end(way);
    else read_turn(way);
    say_freed(way);
    if (!open && !way.over) ended(way, "it closed a connection");
  } catch (const std::exception& e) {
    ended(way, text_or_nothing("what it sent cannot be taken: ", e.what()));
  }
}

void mesh::read_turn(incoming& way) {
  std::size_t budget = budget_of_turn;
  while (!way.over) {
    // The system does not report again what a line has taken from it already.
    way.finishes = budget == 0;
    if (way.finishes && !(way.tls && way.tls->holds_input())) return;
    if (!read_some(way, budget)) return;
  }
}

/// The socket beside a line has ended: what came by the line before that, and lies in the transport perhaps.
void mesh::read_to_the_end(incoming& way) {
  for (int turns = 0; turns < most_turns_at_end && !way.over; ++turns) {
    options_.carrier->progress();
    if (!way.line->has_input()) return;
    read_turn(way);
  }
}

/// Passes what the processes of the host share to one that has just called. False: it cannot be passed, and the connection has ended.
bool mesh::share_with(incoming& way) {
  if (options_.to_share < 0 || send_descriptor(way.socket.get(), options_.to_share)) return true;
  return ended(way, "what its host shares cannot be passed to it: " + text_of_errno(errno)), false;
}

/// Reads what comes through the socket beside a ring: first the ring itself. False: not yet. @param open false: the connection has ended, and what is in
/// the ring is all that comes
bool mesh::take_bells(incoming& way, bool& open) {
  if (!way.ring) {
    descriptor memory;
    switch (receive_descriptor(way.socket.get(), memory)) {
      case passed::nothing_yet: return false;
      case passed::memory: break;
      case passed::no_memory: way.local = false; return begin_stream(way), share_with(way);
      case passed::ended: return ended(way, "it closed a connection"), false;
      case passed::lost_on_the_way:
        return ended(way, "the memory that it passed was not received: no descriptors are left in " +
                              name_of(roster_, here_)),
               false;
    }
    way.ring = byte_ring::take(std::move(memory));
    begin_stream(way);
    if (!share_with(way)) return false;
  }
  open = drop_bells(way);
  return true;
}

/// They have rung. False: the connection has ended.
bool mesh::drop_bells(incoming& way) {
  std::array<std::byte, 64> bells;
  for (;;) {
    const ssize_t got = ::recv(way.socket.get(), bells.data(), bells.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) return false;
    if (got < static_cast<ssize_t>(bells.size())) return true;
  }
}

/// As recv(): how many bytes, 0: none now.
std::size_t mesh::read_ring(incoming& way, std::byte* to, std::size_t room) {
  const std::size_t got = way.ring.read(to, std::min(room, ring_piece));
  if (way.ring.broken()) throw error(errc::io, "its ring's numbers cannot be");
  if (got > 0 && way.ring.give_back())
    static_cast<void>(::send(way.socket.get(), &there_is_room, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
  return got;
}

/// As recv(), from the ring if there is one, whose end the socket tells.
ssize_t mesh::receive(incoming& way, std::byte* to, std::size_t room) {
  if (way.line) return way.line->receive({to, room});
  if (way.tls)
    return way.tls->receive(way.socket.get(), {to, room},
                            way.finishes ? tls_line::reading::finishes : tls_line::reading::takes);
  if (!way.ring) return ::recv(way.socket.get(), to, room, MSG_DONTWAIT);
  const std::size_t got = read_ring(way, to, room);
  errno = EAGAIN;
  return got > 0 ? static_cast<ssize_t>(got) : -1;
}

/// Of a frame with memory of its own. @param asked what would have fitted
ssize_t mesh::read_large(incoming& way, std::size_t& asked) {
  const std::size_t rest = way.large_bytes - way.large_done;
  if (way.place != 0) {
    ssize_t got = -1;
    asked = std::min(rest, place_table::most_piece);
    const auto fill = [&](std::byte* at) { got = receive(way, at + way.offset + way.large_done, asked); };
    if (places_[way.process]->fill(way.place, fill)) return got;
    sink(way);
  }
  auto* const to = static_cast<std::byte*>(way.large_block->data());
  asked = way.sinks ? std::min(rest, block_bytes) : rest;
  return receive(way, way.sinks ? to : to + way.offset + way.large_done, asked);
}

/// The rest of a frame whose place was withdrawn.
void mesh::sink(incoming& way) {
  way.place = 0;
  way.sinks = true;
  if (way.into) way.into->place = 0, way.into->sinks = true;
  way.large_block = std::make_shared<received_block>(memory_.acquire(block_bytes), way.freed);
}

/// Into the block where short frames stay. @param asked what would have fitted
ssize_t mesh::read_block(incoming& way, std::size_t& asked) {
  // Behind a frame that had its own memory, or its zeros: so that the next head is aligned.
  const std::size_t before = (16 - way.skip) % 16;
  if (way.begin == way.end && way.end % 16 != before)
    way.begin = way.end = static_cast<std::size_t>(padded(way.end)) + before;
  if (!way.block || way.end >= block_bytes) {
    // The rest of the last block is the beginning of a frame, short enough for the next one.
    // Always another one: whether chunks still lie in the last one only its reference count could say, and the arena has it back soon.
    auto fresh = std::make_shared<received_block>(memory_.acquire(block_bytes), way.freed);
    const std::size_t rest = way.end - way.begin;
    if (rest > 0) std::memmove(fresh->data(), static_cast<std::byte*>(way.block->data()) + way.begin, rest);
    way.block = std::move(fresh);
    way.begin = rest > 0 ? 0 : before;
    way.end = way.begin + rest;
  }
  asked = block_bytes - way.end;
  return receive(way, static_cast<std::byte*>(way.block->data()) + way.end, asked);
}

namespace {
constexpr std::size_t acknowledged_at_once = 4096;  ///< bytes that a socket had
}

/// False: there is nothing more now.
bool mesh::read_some(incoming& way, std::size_t& budget) {
  const bool large = way.large && way.large_done < way.large_bytes;
  std::size_t asked = 0;
  const ssize_t got = large ? read_large(way, asked) : read_block(way, asked);
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (got <= 0) {
    const std::string why = way.line ? way.line->why() : text_of_problem(way.tls.get(), errno);
    return ended(way, got == 0 ? "it closed a connection" : why), false;
  }
  presence_.heard(way.process, clock::now());
  way.spoke = true;
  if (way.stream && !way.local && !way.line) spoke_last_ = &way;
  const auto bytes = static_cast<std::size_t>(got);
  budget -= std::min(budget, bytes);
  (large ? way.large_done : way.end) += bytes;
  if (!parse(way)) return false;
  // A part of what a socket was asked for means that there was no more.
  if (way.ring || way.line || bytes == asked) return true;
  // No data goes along with it, as none goes in this direction. What is short, and whole, is not worth a system call.
  const bool goes_on = way.large || way.begin < way.end;
  if (!way.local && (goes_on || bytes >= acknowledged_at_once)) acknowledge(way.socket.get());
  return false;
}

/// False: the connection has ended.
bool mesh::parse(incoming& way) {
  for (;;) {
    if (way.large) {
      if (way.large_done < way.large_bytes) return true;
      const frame_head head = *std::exchange(way.large, std::nullopt);
      if (head.kind == frame_kind::stripe) {
        if (!stripe_came(way)) return false;
        continue;
      }
      const auto block = std::move(way.large_block);
      const std::byte* body = nullptr;
      if (head.kind == frame_kind::chunk && way.large_chunk.settled != 0) {
        const std::uint64_t total = padded(sizeof head + head.bytes);
        if (block) block->settled += total;
        else way.freed->fetch_add(total);  // it came into its place
      }
      if (way.place != 0) body = places_[way.process]->finish(std::exchange(way.place, 0));
      else if (!std::exchange(way.sinks, false)) body = static_cast<const std::byte*>(block->data());
      if (body != nullptr && !arrived(way, head, body, block)) return false;
    }
    const std::size_t zeros = std::min(way.skip, way.end - way.begin);
    way.skip -= zeros;
    way.begin += zeros;
    const std::size_t there = way.end - way.begin;
    if (way.skip > 0 || there < sizeof(frame_head)) return true;
    const std::byte* const at = static_cast<const std::byte*>(way.block->data()) + way.begin;
    frame_head head;
    std::memcpy(&head, at, sizeof head);
    if (const std::string why = why_no_frame(head, way.next_number); !why.empty())
      return ended(way, "it sent " + why), false;
    if (way.lane != 0 && !goes_on_any_lane(head))
      return ended(way, "it sent what belongs on its first connection on lane " + std::to_string(way.lane)), false;
    if (head.kind == frame_kind::stripe) {
      if (there < sizeof head + sizeof(stripe_body)) return true;
      if (!begin_stripe(way, head)) return false;
      continue;
    }
    if (head.bytes > large_frame) {
      if (!begin_large(way, head)) return true;
      if (head.kind == frame_kind::chunk && way.large_chunk.settled != 0 && way.large_bytes > most_settled)
        return ended(way, "it sent a settled chunk of " + std::to_string(way.large_bytes) + " bytes"), false;
      continue;
    }
    const std::size_t total = static_cast<std::size_t>(padded(sizeof head + head.bytes));
    if (there < total) return true;
    way.begin += total;
    ++way.next_number;
    if (!has_chunk_body(head.kind)) {
      if (!arrived(way, head, at + sizeof head, way.block)) return false;
      continue;
    }
    std::memcpy(&way.large_chunk, at + sizeof head, sizeof(chunk_body));
    const std::byte* payload = at + sizeof head + sizeof(chunk_body);
    std::shared_ptr<const void> keep = way.block;
    if (head.kind == frame_kind::chunk && way.large_chunk.settled != 0) {
      const std::size_t bytes = static_cast<std::size_t>(head.bytes) - sizeof(chunk_body);
      if (bytes <= most_set_aside) std::tie(payload, keep) = set_aside(way, payload, bytes, total);
      else way.block->settled += total;
    }
    if (!arrived(way, head, payload, std::move(keep))) return false;
  }
}

/// Into a block that has nothing but such chunks, with as much room as their frames had: so what a chunk that comes early keeps from being
/// used again is never more than the window has counted.
std::pair<const std::byte*, std::shared_ptr<const void>> mesh::set_aside(incoming& way, const std::byte* payload,
                                                                         std::size_t bytes, std::size_t total) {
  if (!way.aside || way.aside_end + total > block_bytes) {
    way.aside = std::make_shared<received_block>(memory_.acquire(block_bytes), way.freed);
    way.aside_end = 0;
  }
  std::byte* const to =
      static_cast<std::byte*>(way.aside->data()) + std::exchange(way.aside_end, way.aside_end + total);
  if (bytes > 0) std::memcpy(to, payload, bytes);
  way.aside->settled += total;
  return {to, way.aside};
}

/// False: its beginning is not there yet.
bool mesh::begin_large(incoming& way, const frame_head& head) {
  const std::size_t fixed = has_chunk_body(head.kind) ? sizeof(chunk_body) : 0;
  const std::size_t there = way.end - way.begin;
  if (there < sizeof head + fixed) return false;
  const std::byte* const at = static_cast<const std::byte*>(way.block->data()) + way.begin + sizeof head;
  if (fixed > 0) std::memcpy(&way.large_chunk, at, fixed);
  way.large_bytes = static_cast<std::size_t>(head.bytes) - fixed;
  way.large_done = std::min(there - sizeof head - fixed, way.large_bytes);
  const auto begin = [&](void* to) {
    if (way.large_done > 0) std::memcpy(to, at + fixed, way.large_done);
  };
  if (head.kind == frame_kind::chunk) way.place = places_[way.process]->take(head, way.large_chunk);
  if (way.place == 0) {
    way.large_block = std::make_shared<received_block>(memory_.acquire(way.large_bytes), way.freed);
    begin(way.large_block->data());
  } else if (!places_[way.process]->fill(way.place, begin)) {
    sink(way);
  }
  begin_frame(way, head, fixed);
  return true;
}

/// The part that has come so far is where it belongs; the next bytes are read to behind it.
void mesh::begin_frame(incoming& way, const frame_head& head, std::size_t fixed) {
  way.begin += sizeof head + fixed + way.large_done;
  way.skip = static_cast<std::size_t>(padded(sizeof head + head.bytes) - sizeof head - head.bytes);
  way.large = head;
  ++way.next_number;
}

/// False: the connection has ended.
bool mesh::arrived(incoming& way, const frame_head& head, const std::byte* body, std::shared_ptr<const void> keep) {
  switch (head.kind) {
    case frame_kind::chunk:
    case frame_kind::packet:
    case frame_kind::ready: {
      const chunk_body& c = way.large_chunk;
      if (receiver_.chunk_arrived(way.process, head,
                                  {body, static_cast<std::size_t>(head.bytes) - sizeof c, c.fingerprint, c.epoch,
                                   c.source, c.lane, c.sequence, std::move(keep), false, c.settled != 0}))
        return true;
      break;
    }
    case frame_kind::credit:
    case frame_kind::response: {
      credit_body c;
      std::memcpy(&c, body, sizeof c);
      if (receiver_.credit_arrived(way.process, head, {c.epoch, c.source, c.lane, c.sequence})) return true;
      break;
    }
    case frame_kind::announce: return announced(way, head, body);
    case frame_kind::clear: {
      credit_body c;
      std::memcpy(&c, body, sizeof c);
      return cleared(way.process, head, c), true;
    }
    case frame_kind::freed: {
      freed_body f;
      std::memcpy(&f, body, sizeof f);
      if (freed_arrived(way.process, f)) return true;
      break;
    }
    case frame_kind::process: return process_word_arrived(way, head, {body, static_cast<std::size_t>(head.bytes)});
    default:
      if (receiver_.word_arrived(way.process, head, {body, static_cast<std::size_t>(head.bytes)})) return true;
  }
  return ended(way, "it sent a message that cannot be read"), false;
}

bool mesh::announced(incoming& way, const frame_head& head, const std::byte* body) {
  announce_body a;
  std::memcpy(&a, body, sizeof a);
  const chunk_body& c = a.name;
  if (a.bytes <= most_chunk_bytes && receiver_.chunk_arrived(way.process, head,
                                                             {nullptr, static_cast<std::size_t>(a.bytes), c.fingerprint,
                                                              c.epoch, c.source, c.lane, c.sequence, nullptr, true}))
    return true;
  return ended(way, "it sent a message that cannot be read"), false;
}

/// False: it cannot be so many.
bool mesh::freed_arrived(std::uint32_t by, const freed_body& what) {
  outgoing& way = *out_[by];
  const std::lock_guard lock(way.mutex);
  if (what.bytes < way.freed || what.bytes > way.settled) return false;
  way.freed = what.bytes;
  return true;
}

/// Only when something has come from there: a sender without window sends for credits, and so asks for this.
void mesh::say_freed(incoming& way) {
  const std::uint64_t freed = way.freed->load();
  if (freed - way.said < settled_window / 4 || way.over) return;
  const freed_body body{freed};
  frame_head head;
  head.kind = frame_kind::freed;
  head.bytes = sizeof body;
  send(*out_[way.process], piece{head, &body, sizeof body});
  way.said = freed;
}

/// The chunk that it names may be over, and let go of; then nobody waits for it any more.
void mesh::cleared(std::uint32_t by, const frame_head& head, const credit_body& what) {
  outgoing& way = *out_[by];
  const std::lock_guard lock(way.mutex);
  const auto at = std::find_if(way.parked.begin(), way.parked.end(), [&](const piece& p) {
    return p.communicator == head.communicator && p.source == head.to && p.is_called(what);
  });
  if (at == way.parked.end()) return;
  piece chunk = std::move(*at);
  way.parked.erase(at);
  if (!goes_in_stripes(way, chunk.payload_bytes)) {
    send_locked(way, std::move(chunk));
    return;
  }
  want_lanes(way);
  way.striped.push_back({std::move(chunk)});
  hand_out(way);
}

bool mesh::process_word_arrived(incoming& way, const frame_head& head, std::span<const std::byte> body) {
  const std::optional<process_word> word = process_word_from(body);
  // Of a further lane: its frames have come, and its caller waits for this end of it.
  if (word && way.lane != 0 && std::holds_alternative<bye_word>(*word)) return close(way), false;
  if (!word || way.lane != 0) return ended(way, "it sent a message that cannot be read"), false;
  if (std::holds_alternative<gave_up_word>(*word) || std::holds_alternative<revoke_word>(*word) ||
      std::holds_alternative<shrink_word>(*word)) {
    if (!receiver_.word_arrived(way.process, head, body))
      return ended(way, "it sent a message that cannot be read"), false;
  } else if (!presence_.word(way.process, *word, clock::now(), *this)) {
    return ended(way, "it named a process that does not exist"), false;
  }
  return !way.over;
}

void mesh::ended(incoming& way, const std::string& how) {
  const std::uint32_t process = way.process;
  const bool matters = way.known && alive(process);
  close(way);
  if (matters) lose(process, how);
}

void mesh::close(incoming& way) {
  stop_watching(way.stream ? streams_.get() : epoll_.get(), way.socket.get());
  way.socket.reset();
  way.tls.reset();
  if (!way.over && way.stream) --(way.ring || way.line ? rings_ : open_streams_);
  if (spoke_last_ == &way) spoke_last_ = nullptr;
  way.line.reset();
  if (!way.over && way.known && way.lane == 0) presence_.hears(way.process, false, clock::now());
  way.over = true;
}

void mesh::close(outgoing& way) {
  const std::lock_guard lock(way.mutex);
  close_locked(way);
  way.parked.clear();
  way.striped.clear();
  for (const auto& lane : way.lanes) close_locked(*lane);
}

/// Of a process the one connection. @pre locked
void mesh::close_locked(outgoing& way) {
  stop_watching(way.stream ? streams_.get() : epoll_.get(), way.socket.get());
  way.socket.reset();
  way.tls.reset();
  way.line.reset();
  way.ring = {};
  way.now = outgoing::phase::closed;
  way.waiting.clear();
  way.holds_stripe = false;
  way.hands.reset();
}

}  // namespace troupe::actors
