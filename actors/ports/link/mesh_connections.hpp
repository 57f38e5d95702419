// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a mesh knows of each of its connections. For the files of the mesh alone.

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "actors/ports/link/mesh.hpp"
#include "actors/ports/link/mesh_pieces.hpp"
#include "actors/ports/link/stripes.hpp"
#include "actors/ports/link/tls.hpp"
#include "actors/ports/link/transport.hpp"

namespace troupe::actors {

/// What is read at once. Small chunks stay where they were received, so a block lives as long as the last chunk in it.
inline constexpr std::size_t block_bytes = 64 * 1024;
/// Settled chunks up to this are copied out of where they were received: many may wait for long, among others that do not.
inline constexpr std::size_t most_set_aside = 1024;
/// Longer frames get memory of their own, and are received straight into it.
inline constexpr std::size_t large_frame = 16 * 1024;
/// Of a ring: what is published or given back at once, so that its two ends copy at the same time.
inline constexpr std::size_t ring_piece = 32 * 1024;
/// Of one connection, before others have their turn.
inline constexpr std::size_t budget_of_turn = 1 << 20;
/// Of a line whose socket has ended: more than any network holds.
inline constexpr int most_turns_at_end = 64;
/// Strangers at the door, at once: the one that has been there longest goes when another comes.
inline constexpr std::size_t most_strangers = 256;
inline constexpr std::chrono::seconds most_shaking{5};

/// In the direction against the frames, before the end of a connection: "bye".
inline constexpr std::byte leaves_in_order{0x62};
/// So, too: the sender has lost the other one.
inline constexpr std::byte taken_for_lost{0x6c};
/// So, too, and first: no such bytes come here, but frames.
inline constexpr std::byte frames_follow{0x66};
/// So, too, and before those: the other end of the transport's line stands.
inline constexpr std::byte line_is_there{0x75};
/// So long a sender waits for a process that is calling, to answer on that connection. The call may turn out to be a stranger's.
inline constexpr std::chrono::milliseconds most_expected{50};
/// So long a process that was answered keeps its own answer back, for frames_follow. No stranger: the other one says it right behind the handshake, once
/// it gets a processor, or has no descriptors. Shorter than a call may stand unanswered.
inline constexpr std::chrono::milliseconds most_until_frames_follow{2000};
static_assert(most_until_frames_follow < most_shaking);
/// Beside a ring, in the direction of its frames: look; and against it: there is room.
inline constexpr std::byte something_written{0x77}, there_is_room{0x72};
/// Of a caller that hears what comes itself: one that waits for longer does not mind another thread's turn.
inline constexpr std::chrono::milliseconds longest_sleep{5};

// -- what a connection is ---------------------------------------------------------------------------------------------------

/// One connection to a process: the first, or one of its further lanes.
struct mesh::outgoing {
  enum class phase : std::uint8_t { idle, wanted, connecting, shaking, open, closed };
  explicit outgoing(std::uint32_t to) : process(to), lane(0), first(*this), mutex(own_mutex) {}
  outgoing(outgoing& of, std::uint8_t which) : process(of.process), lane(which), first(of), mutex(of.own_mutex) {}

  /// All that the system, or the ring, takes. False: `problem` says why not.
  bool flush() {
    blocked.store(false, std::memory_order_relaxed);
    for (refill(); !waiting.empty() && write(waiting.front()); refill()) pop();
    if (problem == 0 && waiting.empty()) flush_tls();
    return problem == 0 && publish();
  }
  /// The same, and one stripe at most. True: one was taken.
  bool flush_one() {
    if (now != phase::open || problem != 0 || !waiting.empty()) return false;
    refill();
    if (waiting.empty() || !write(waiting.front())) return false;
    return pop(), true;
  }
  /// Takes the next stripe, behind what waits: one at a time, so lanes take what they have room for, and other frames wait for one at most.
  void refill() {
    if (holds_stripe || first.striped.empty()) return;
    striped_chunk& chunk = first.striped.front();
    try {
      waiting.push_back(chunk.take());  // allocates now and then; for long chunks alone
    } catch (const std::bad_alloc&) {
      problem = ENOMEM;  // nothing can follow
      return;
    }
    waiting.back().number(next_number++);
    holds_stripe = spoke = true;
    if (chunk.taken()) first.striped.pop_front();
  }
  /// Long chunks to that process may go over so many connections. @pre locked
  bool may_have(int lanes) const { return lanes > 1 && now == phase::open && !local && problem == 0; }
  void pop() {
    if (waiting.front().stripe) holds_stripe = false;
    waiting.pop_front();
  }
  /// False: not all of it now, or a problem.
  bool flush_tls() {
    if (!tls || tls->flush(socket.get())) return true;
    if (errno != EAGAIN) problem = errno;
    return false;
  }
  /// The system is to say when it takes more.
  bool has_more() const { return !waiting.empty() || (tls && tls->holds_output()); }
  std::string why() const { return line ? line->why() : text_of_problem(tls.get(), problem); }
  /// Somebody has to see to what was taken.
  bool is_under_way() const { return line && line->is_under_way(); }
  /// False: not all of it now, or a problem.
  bool write(piece& what) { return ring ? write_ring(what) : write_socket(what); }

  /// Bytes that may be settled now.
  std::uint64_t window() const { return settled_window - (settled - freed); }

  phase phase_now() {
    const std::lock_guard lock(mutex);
    return now;
  }

  bool write_socket(piece& what) {
    while (what.done < what.total()) {
      std::array<iovec, 4> parts;
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = what.parts(parts);
      const std::span now = std::span(parts).first(message.msg_iovlen);
      const ssize_t taken = line  ? line->send(now)
                            : tls ? tls->send(socket.get(), now)
                                  : ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (taken < 0 && errno == EINTR) continue;
      if (taken < 0 && errno == EAGAIN && line) {
        blocked.store(true);
        if (!line->has_room()) return false;
        continue;  // there was some before anybody could see that it is waited for
      }
      if (taken < 0 && errno != EAGAIN && errno != EWOULDBLOCK) problem = errno;
      if (taken < 0) return false;
      what.done += static_cast<std::size_t>(taken);
    }
    return flush_tls();
  }
  bool write_ring(piece& what) {
    for (;;) {
      std::array<iovec, 4> parts;
      const std::size_t n = what.parts(parts);
      std::size_t taken = 0;
      for (std::size_t i = 0; i < n && taken < ring_piece; ++i) {
        const std::size_t wanted = std::min(parts[i].iov_len, ring_piece - taken);
        const std::size_t now = ring.write(static_cast<const std::byte*>(parts[i].iov_base), wanted);
        taken += now;
        if (now < wanted) break;
      }
      what.done += taken;
      if (what.done == what.total()) return true;
      if (!publish()) return false;
      if (taken == 0 && !ring.ask_for_room()) return blocked.store(true, std::memory_order_relaxed), false;
    }
  }
  /// False: `problem` says why not.
  bool publish() {
    if (!ring) return true;
    if (ring.broken()) problem = EPROTO;
    if (problem == 0 && ring.publish()) {
      ssize_t rung = -1;
      do rung = ::send(socket.get(), &something_written, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      while (rung < 0 && errno == EINTR);
      if (rung < 0 && errno != EAGAIN && errno != EWOULDBLOCK) problem = errno;  // full: it has not heard earlier ones
    }
    return problem == 0;
  }

  const std::uint32_t process;
  const std::uint8_t lane;
  outgoing& first;  ///< of the lanes to that process; perhaps this one
  std::mutex
      own_mutex;  // short: a system call at most, or one a lane. A thread of its own for sending would cost every message a switch
  std::mutex& mutex;  ///< of all lanes to that process
  phase now = phase::idle;
  descriptor socket;
  std::shared_ptr<tls_line> tls;         ///< to another host, where all have certificates
  std::shared_ptr<transport_line> line;  ///< to another host, where a transport carries the frames
  std::atomic<bool> blocked{false};      ///< the ring was full, or the line
  byte_ring
      ring;  ///< to a process of this host; the socket rings then, and shows by its end that the other one is gone
  std::deque<piece> waiting;
  std::vector<piece> parked;  ///< announced
  bool holds_stripe = false;  ///< that waits
  std::uint64_t next_number = 0;
  std::uint64_t settled = 0,
                freed = 0;  ///< bytes of settled chunks' frames that were sent, and of those the receiver has freed
  bool spoke = false;       ///< since the last look
  bool writing = false;     ///< the system is to say when it takes more
  bool stream = false;      ///< open, and so watched in mesh::streams_
  bool shared = false;      ///< the other's frames come on the same connection, so others read there
  bool local = false;       ///< to a process of this host
  bool said_bye = false;    ///< nothing follows
  int problem = 0;          ///< errno of the writer; the mesh's thread sees to it
  std::optional<handshake> hands;
  std::vector<std::byte> unsent;  ///< of the handshake
  std::vector<socket_address> addresses;
  std::size_t next_address = 0;
  steady_time wanted_since{}, give_up{}, opened{};
  std::string tried;
  // Of the first lane.
  std::vector<std::unique_ptr<outgoing>> lanes;  ///< the further ones; made when they are first wanted
  std::deque<striped_chunk> striped;             ///< not taken to the end yet
  std::size_t turn = 0;                          ///< which lane is offered the next one first
};

/// Received bytes, or memory set aside for them, until the last chunk that lies there is consumed. Counts then what was settled.
struct mesh::received_block {
  using counter = std::shared_ptr<std::atomic<std::uint64_t>>;
  received_block(scratch_block block, counter all) : memory(std::move(block)), freed(std::move(all)) {}
  ~received_block() { freed->fetch_add(settled); }
  received_block(const received_block&) = delete;
  received_block& operator=(const received_block&) = delete;
  void* data() { return memory.data(); }

  scratch_block memory;
  counter freed;
  std::uint64_t settled = 0;
};

/// A chunk that comes in stripes.
struct mesh::arriving_chunk {
  frame_head head;  ///< as if it came whole
  chunk_body name;
  stripe_set stripes;
  std::uint64_t place = 0;                ///< not 0: it is received there
  bool sinks = false;                     ///< it is nobody's any more
  std::shared_ptr<received_block> block;  ///< else here
};

/// What comes from a process on all its lanes together.
struct mesh::inflow {
  std::vector<std::shared_ptr<arriving_chunk>> chunks;  ///< not complete; of the reader
  std::uint64_t begun = 0;                              ///< that came in stripes, ever
  std::atomic<std::uint64_t> cleared{0};                ///< that may: what a peer can make this process keep
};

struct mesh::incoming {
  incoming(std::uint32_t number, descriptor s, handshake h, steady_time now)
      : id(number), socket(std::move(s)), hands(std::move(h)), began(now) {}

  const std::uint32_t id;
  descriptor socket;
  bool local = false;      ///< from a process of this host, which passes its ring first
  bool shared = false;     ///< frames go back on the same connection
  bool kept_back = false;  ///< it is not answered yet
  bool stream = false;     ///< open, and so watched in mesh::streams_
  bool opened = false;     ///< what its first byte says is known
  bool finishes = false;   ///< nothing more is taken from the system in this turn
  bool spoke = false;      ///< something came in this turn
  byte_ring ring;
  std::shared_ptr<tls_line> tls;
  std::shared_ptr<transport_line> line;
  handshake hands;
  std::vector<std::byte> unsent;
  bool known = false;  ///< the handshake is done; `process` says who it is
  bool over = false;   ///< closed; goes when its event has been handled
  std::uint32_t process = 0;
  std::uint8_t lane = 0;
  std::uint64_t next_number = 0;
  steady_time began;
  // What was received and not read yet.
  std::shared_ptr<received_block> block;
  std::size_t begin = 0, end = 0;
  // Short settled chunks.
  std::shared_ptr<received_block> aside;
  std::size_t aside_end = 0;
  // A frame with memory of its own.
  std::optional<frame_head> large;
  chunk_body large_chunk;
  std::shared_ptr<received_block> large_block;
  std::size_t large_done = 0, large_bytes = 0, skip = 0;
  std::uint64_t place = 0;               ///< not 0: it is received there instead
  bool sinks = false;                    ///< it is nobody's any more
  std::shared_ptr<arriving_chunk> into;  ///< it is a stripe of that, and
  std::size_t offset = 0;                ///< begins there
  // Of settled chunks' frames.
  received_block::counter freed = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::uint64_t said = 0;  ///< of that, to the sender
};

/// For what has to be said even when there is no memory: empty then.
inline std::string text_or_nothing(const char* what, const char* why) noexcept {
  try {
    return std::string{what} + why;
  } catch (const std::bad_alloc&) {
    return {};
  }
}
/// True: all was taken. @param tls null: none @param problem errno, when the system takes no more for good
bool send_plain(int socket, tls_line* tls, std::vector<std::byte>& bytes, int& problem);
/// Bytes for a handshake, which takes just what belongs to it. False: the connection has ended; `why` says how.
bool feed_from(int socket, tls_line* tls, handshake& hands, std::string& why);

}  // namespace troupe::actors
