// SPDX-License-Identifier: Apache-2.0
// Who connects to a mesh, and what comes from there.
#include <sys/epoll.h>

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
    watch(s.get(), subject::incoming, id, EPOLLIN, false);
    const bool local = socket_address::own(s.get()).family() == AF_UNIX;
    in_.push_back(std::make_unique<incoming>(
        id, std::move(s), handshake::answering({roster_.job, 0, here_, options_.build}, key_), clock::now()));
    in_.back()->local = local;
  }
  if (why.empty()) return;
  // No descriptors are left. Whoever calls goes on calling; the next look tries again, instead of spinning here.
  accepting_ = false;
  watch_listeners(0, true);
}

/// True: it is done.
bool mesh::shake_hands(incoming& way) {
  std::string why;
  int problem = 0;
  const bool open = feed_from(way.socket.get(), way.hands, why);
  const std::vector<std::byte> more = way.hands.take_output();
  way.unsent.insert(way.unsent.end(), more.begin(), more.end());
  const bool sent = send_plain(way.socket.get(), way.unsent, problem);
  if (!open || problem != 0 || way.hands.state() == handshake::status::refused) return close(way), false;
  watch(way.socket.get(), subject::incoming, way.id, sent ? EPOLLIN : EPOLLIN | EPOLLOUT, true);
  if (way.hands.state() != handshake::status::done || !sent) return false;
  way.process = way.hands.peer();
  const bool twice = std::any_of(in_.begin(), in_.end(), [&](const auto& other) {
    return other.get() != &way && other->known && !other->over && other->process == way.process;
  });
  if (way.process >= processes() || way.process == here_ || twice || !alive(way.process)) return close(way), false;
  way.known = true;
  way.heard = clock::now();
  return true;
}

void mesh::incoming_event(incoming& way) {
  try {
    if (!way.known && !shake_hands(way)) return;
    bool open = true;
    if (way.local && !take_bells(way, open)) return;
    for (std::size_t budget = budget_of_turn; budget > 0 && !way.over;)
      if (!read_some(way, budget)) break;
    if (!open && !way.over) ended(way, "it closed a connection");
  } catch (const std::exception& e) {
    ended(way, std::string{"what it sent cannot be taken: "} + e.what());
  }
}

/// What comes through the socket beside a ring: first the ring. False: not yet. @param open false: the connection has ended, and what is in
/// the ring is all that comes
bool mesh::take_bells(incoming& way, bool& open) {
  if (!way.ring) {
    bool ended_early = false;
    descriptor memory = receive_descriptor(way.socket.get(), ended_early);
    if (ended_early) ended(way, "it closed a connection");
    if (!memory) return false;
    way.ring = byte_ring::take(std::move(memory));
    ++rings_;
  }
  std::array<std::byte, 64> bells;
  for (;;) {
    const ssize_t got = ::recv(way.socket.get(), bells.data(), bells.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) return open = false, true;
    if (got < static_cast<ssize_t>(bells.size())) return true;
  }
}

/// As recv(): how many bytes, 0: none now.
std::size_t mesh::read_ring(incoming& way, std::byte* to, std::size_t room) {
  const std::size_t got = way.ring.read(to, room);
  if (way.ring.broken()) throw error(errc::io, "its ring's numbers cannot be");
  if (got > 0 && way.ring.give_back())
    static_cast<void>(::send(way.socket.get(), &there_is_room, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
  return got;
}

/// False: there is nothing more now.
bool mesh::read_some(incoming& way, std::size_t& budget) {
  std::byte* to = nullptr;
  std::size_t room = 0;
  if (way.large && way.large_done < way.large_bytes) {
    to = static_cast<std::byte*>(way.large_block->data()) + way.large_done;
    room = way.large_bytes - way.large_done;
  } else {
    // Behind a frame that had its own memory, or its zeros: so that the next head is aligned.
    const std::size_t before = (16 - way.skip) % 16;
    if (way.begin == way.end) way.begin = way.end = static_cast<std::size_t>(padded(way.end)) + before;
    if (!way.block || way.end >= block_bytes) {
      // What is left of the last block is the beginning of a frame, short enough for the next one.
      // Always another one: whether chunks still lie in the last one only its reference count could say, and the arena has it back soon.
      auto fresh = std::make_shared<scratch_block>(memory_.acquire(block_bytes));
      const std::size_t rest = way.end - way.begin;
      if (rest > 0) std::memmove(fresh->data(), static_cast<std::byte*>(way.block->data()) + way.begin, rest);
      way.block = std::move(fresh);
      way.begin = rest > 0 ? 0 : before;
      way.end = way.begin + rest;
    }
    to = static_cast<std::byte*>(way.block->data()) + way.end;
    room = block_bytes - way.end;
  }
  const ssize_t got =
      way.ring ? static_cast<ssize_t>(read_ring(way, to, room)) : ::recv(way.socket.get(), to, room, MSG_DONTWAIT);
  if (way.ring && got == 0) return false;
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (got <= 0) return ended(way, got == 0 ? "it closed a connection" : text_of_errno(errno)), false;
  way.heard = clock::now();
  const auto bytes = static_cast<std::size_t>(got);
  budget -= std::min(budget, bytes);
  if (way.large && way.large_done < way.large_bytes) way.large_done += bytes;
  else way.end += bytes;
  // A part of what a socket was asked for means that there was no more.
  return parse(way) && (way.ring || bytes == room);
}

/// False: the connection has ended.
bool mesh::parse(incoming& way) {
  for (;;) {
    if (way.large) {
      if (way.large_done < way.large_bytes) return true;
      const frame_head head = *std::exchange(way.large, std::nullopt);
      const auto block = std::move(way.large_block);
      if (!arrived(way, head, static_cast<const std::byte*>(block->data()), block)) return false;
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
    if (head.bytes > large_frame) {
      if (!begin_large(way, head)) return true;
      continue;
    }
    const std::size_t total = static_cast<std::size_t>(padded(sizeof head + head.bytes));
    if (there < total) return true;
    way.begin += total;
    ++way.next_number;
    if (head.kind == frame_kind::chunk) std::memcpy(&way.large_chunk, at + sizeof head, sizeof(chunk_body));
    const std::size_t fixed = head.kind == frame_kind::chunk ? sizeof(chunk_body) : 0;
    if (!arrived(way, head, at + sizeof head + fixed, way.block)) return false;
  }
}

/// False: its beginning is not there yet.
bool mesh::begin_large(incoming& way, const frame_head& head) {
  const std::size_t fixed = head.kind == frame_kind::chunk ? sizeof(chunk_body) : 0;
  const std::size_t there = way.end - way.begin;
  if (there < sizeof head + fixed) return false;
  const std::byte* const at = static_cast<const std::byte*>(way.block->data()) + way.begin + sizeof head;
  if (fixed > 0) std::memcpy(&way.large_chunk, at, fixed);
  way.large_bytes = static_cast<std::size_t>(head.bytes) - fixed;
  way.large_block = std::make_shared<scratch_block>(memory_.acquire(way.large_bytes));
  way.large_done = std::min(there - sizeof head - fixed, way.large_bytes);
  if (way.large_done > 0) std::memcpy(way.large_block->data(), at + fixed, way.large_done);
  way.begin += sizeof head + fixed + way.large_done;
  way.skip = static_cast<std::size_t>(padded(sizeof head + head.bytes) - sizeof head - head.bytes);
  way.large = head;
  ++way.next_number;
  return true;
}

/// False: the connection has ended.
bool mesh::arrived(incoming& way, const frame_head& head, const std::byte* body, std::shared_ptr<const void> keep) {
  switch (head.kind) {
    case frame_kind::chunk: {
      const chunk_body& c = way.large_chunk;
      if (receiver_.chunk_arrived(way.process, head,
                                  {body, static_cast<std::size_t>(head.bytes) - sizeof c, c.fingerprint, c.epoch,
                                   c.source, c.lane, c.sequence, std::move(keep)}))
        return true;
      break;
    }
    case frame_kind::credit: {
      credit_body c;
      std::memcpy(&c, body, sizeof c);
      if (receiver_.credit_arrived(way.process, head, {c.epoch, c.source, c.lane, c.sequence})) return true;
      break;
    }
    case frame_kind::process: return process_word_arrived(way, head, {body, static_cast<std::size_t>(head.bytes)});
    default:
      if (receiver_.word_arrived(way.process, head, {body, static_cast<std::size_t>(head.bytes)})) return true;
  }
  return ended(way, "it sent a message that cannot be read"), false;
}

bool mesh::process_word_arrived(incoming& way, const frame_head& head, std::span<const std::byte> body) {
  const std::optional<process_word> word = process_word_from(body);
  if (!word) return ended(way, "it sent a message that cannot be read"), false;
  if (std::holds_alternative<bye_word>(*word)) {
    gone(way.process);
  } else if (const auto* s = std::get_if<suspect_word>(&*word)) {
    if (s->process < processes() && s->process != here_) lose(s->process, s->how);
  } else if (const auto* l = std::get_if<lost_word>(&*word)) {
    if (l->process >= processes()) return ended(way, "it named a process that does not exist"), false;
    const std::string by = name_of(roster_, way.process);
    if (l->process != here_) lose(l->process, l->how);
    else be_expelled("this process was taken for lost by " + by + ": " + l->how);
  } else if (std::holds_alternative<gave_up_word>(*word) || std::holds_alternative<revoke_word>(*word) ||
             std::holds_alternative<shrink_word>(*word)) {
    if (!receiver_.word_arrived(way.process, head, body))
      return ended(way, "it sent a message that cannot be read"), false;
  }
  return !way.over;
}

void mesh::be_expelled(const std::string& why) {
  if (!leaving_.load())
    receiver_.expelled(why);  // first, so that nobody takes the others for lost, and itself for the one who is left
  expelled_ = true;
  for (std::uint32_t p = 0; p < processes(); ++p)
    if (p != here_) lose(p, why);
}

void mesh::ended(incoming& way, const std::string& how) {
  const std::uint32_t process = way.process;
  const bool matters = way.known && alive(process);
  close(way);
  if (matters && leavers_[process]) return gone(process);
  if (matters) lose(process, how);
}

void mesh::close(incoming& way) {
  way.socket.reset();
  if (!way.over && way.ring) --rings_;
  way.over = true;
}

void mesh::close(outgoing& way) {
  const std::lock_guard lock(way.mutex);
  way.socket.reset();
  way.ring = {};
  way.now = outgoing::phase::closed;
  way.waiting.clear();
  way.hands.reset();
}

}  // namespace troupe::actors
