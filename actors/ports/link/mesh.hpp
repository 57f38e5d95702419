// SPDX-License-Identifier: Apache-2.0
#pragma once
// One process of a job among the others: its connections, what travels over them, and who does not answer any more.
//
// Each process opens a connection to each process that it sends to, when it first does, and uses it in that direction only: two that begin
// at the same moment need not agree on one of two connections. It begins with a handshake (handshake.hpp); frames follow (frames.hpp).
//
// Sending. Any thread: what the socket takes at once is written by the sender, without a copy; the rest waits, by reference, and the mesh's
// thread writes it. Whoever lets a buffer go that is not given back by a credit first calls let_go(). What waits is bounded by the credits of
// those who send.
//
// Loss. A connection that ends without "bye", a process that cannot be reached, one from which nothing was heard for `silence` (each
// says "I am here" ten times as often): it is lost, for everybody and for good. Process 0, or the first one that is left, tells all. A process that hears
// that it is itself lost (it was stopped, or cut off) loses all others.
//
// Processes of one host. They are called at a Unix socket, and the frames go through memory that both map (byte_ring.hpp); the socket rings the other side
// awake, and ends when it does. Callers that wait read the rings themselves (poll()); while they do, the mesh's thread naps, and nobody rings.
//
// Leaving. "bye" is the last word in every connection, of both directions; the others answer by closing theirs, so that nothing unread resets
// them.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/ports/link/byte_ring.hpp"
#include "actors/ports/link/frames.hpp"
#include "actors/ports/link/handshake.hpp"
#include "actors/ports/link/job_key.hpp"
#include "actors/ports/link/roster.hpp"
#include "actors/ports/link/sockets.hpp"
#include "actors/waiting/parking.hpp"
#include "memory/arena.hpp"

namespace troupe::actors {

/// Who is told what has arrived: one call after the other, on the mesh's thread or on that of a caller that polls; must not wait for the
/// mesh. False: it is about ranks or
/// communicators that cannot be, or no such word; then its sender counts as lost.
class mesh_receiver {
public:
  virtual ~mesh_receiver() = default;
  virtual bool chunk_arrived(std::uint32_t from, const frame_head& head, chunk&& what) = 0;
  virtual bool credit_arrived(std::uint32_t from, const frame_head& head, const credit& what) = 0;
  /// Of kinds pair, home and ranks; and gave_up, revoke, shrink.
  virtual bool word_arrived(std::uint32_t from, const frame_head& head, std::span<const std::byte> body) = 0;
  /// Nothing more comes from it, and nothing gets there. Once.
  virtual void process_lost(std::uint32_t process, const std::string& how) = 0;
  /// The same of one that left in order; somewhat later.
  virtual void process_left(std::uint32_t process) = 0;
  /// The others count this process as lost: it is going to lose them all.
  virtual void expelled(const std::string& /*why*/) {}
};

struct mesh_options {
  std::chrono::milliseconds silence{3000};      ///< of a process before it counts as lost
  std::chrono::milliseconds to_connect{10000};  ///< for one to answer at all
  std::uint64_t build = 0;                      ///< which every process must have been built as
};

class mesh {
public:
  /// @param listeners already listen, at the addresses that the roster says. `memory` and `receiver` outlive the mesh.
  mesh(mesh_options options, roster in, std::uint32_t here, const job_key& key, std::vector<descriptor> listeners,
       arena& memory, mesh_receiver& receiver);
  ~mesh();
  mesh(const mesh&) = delete;
  mesh& operator=(const mesh&) = delete;

  /// Any thread. To a process that is lost or has left: nothing happens.
  void send_chunk(std::uint32_t to, frame_head head, const chunk& what);
  void send_credit(std::uint32_t to, frame_head head, const credit& what);
  void send_word(std::uint32_t to, frame_head head, std::vector<std::byte> body);
  /// Nothing that waits refers any more to what `source` has sent in that operation. Any thread.
  void let_go(communicator_id of, rank_t source, epoch_t epoch);

  /// Reads what processes of this host have sent, if nobody else does; for callers that wait. True: something came.
  bool poll() noexcept;
  /// The caller is going to sleep: from now on the mesh's thread is rung awake. True: something came before that.
  bool rest() noexcept;

  /// Says "bye", and waits until the others have heard it, for `silence` at most. No calls of the receiver afterwards.
  void leave();

  const roster& all() const { return roster_; }
  std::uint32_t here() const { return here_; }
  std::uint32_t processes() const { return static_cast<std::uint32_t>(roster_.processes.size()); }
  /// Bytes that wait to be sent, to all; for tests of bounds.
  std::size_t waiting_bytes() const;

private:
  enum class fate : std::uint8_t { here, left, lost };
  struct piece;
  struct outgoing;
  struct incoming;
  /// What an event is about: the upper half says whose, the lower which.
  enum class subject : std::uint32_t { bell, listener, outgoing, incoming };

  // -- any thread --
  void send(outgoing& way, piece&& what);
  bool alive(std::uint32_t process) const { return fate_[process].load() == fate::here; }
  void wake() noexcept;

  // -- the mesh's thread, or with `reading_` --
  void work();
  void handle(std::uint64_t which, std::uint32_t events);
  void accept_all(int listener);
  int pause_before_look();
  bool fall_asleep();
  bool read_rings();
  void write_rings();
  bool take_bells(incoming& way, bool& open);
  static std::size_t read_ring(incoming& way, std::byte* to, std::size_t room);
  void watch_listeners(std::uint32_t events, bool known);
  void connect_those_wanted();
  void try_next_address(outgoing& way, std::unique_lock<std::mutex>& lock, const std::string& why);
  void go_on_connecting(outgoing& way);
  void outgoing_event(outgoing& way, std::uint32_t events);
  void incoming_event(incoming& way);
  bool shake_hands(incoming& way);
  bool read_some(incoming& way, std::size_t& budget);
  bool parse(incoming& way);
  bool begin_large(incoming& way, const frame_head& head);
  bool arrived(incoming& way, const frame_head& head, const std::byte* body, std::shared_ptr<const void> keep);
  bool process_word_arrived(incoming& way, const frame_head& head, std::span<const std::byte> body);
  void ended(incoming& way, const std::string& how);
  void close(incoming& way);
  void close(outgoing& way);
  void lose(std::uint32_t process, const std::string& how);
  void be_expelled(const std::string& why);
  void leaves(std::uint32_t process);
  void gone(std::uint32_t process);
  void greet();
  bool hears(std::uint32_t process) const;
  bool said_goodbye();
  void tell(std::uint32_t to, const process_word& what);
  std::uint32_t registrar() const;
  void keep_time(steady_time now);
  void watch(int fd, subject whose, std::uint64_t which, std::uint32_t events, bool known);

  mesh_options options_;
  roster roster_;
  std::uint32_t here_;
  const job_key key_;
  std::vector<descriptor> listeners_;
  arena& memory_;
  mesh_receiver& receiver_;
  descriptor epoll_, bell_;
  // Of whoever reads, the mesh's thread or a caller: guards all below but what outgoing::mutex guards. `fate_` and `leaving_` are read without.
  std::mutex reading_;
  std::vector<std::unique_ptr<outgoing>> out_;  ///< by process; null: this one
  std::vector<std::unique_ptr<incoming>> in_;
  std::vector<bool> leavers_;  ///< have said that they leave; their frames may still come
  std::vector<std::atomic<fate>> fate_;
  std::uint32_t next_incoming_ = 0;
  std::uint32_t greeted_ = 0;  ///< the registrar that was
  std::vector<std::pair<std::uint32_t, std::string>>
      losses_;  ///< who, and how: a new registrar may not have heard of them
  steady_time next_look_{}, goodbye_until_{}, greeted_at_{};
  std::atomic<bool> leaving_{false};
  bool expelled_ = false;  ///< what it says of others is nobody's concern any more
  bool accepting_ = true;
  bool polled_ = false;   ///< callers have looked since the thread did
  bool resting_ = false;  ///< the thread sleeps until it is rung awake
  int rings_ = 0;
  std::vector<std::pair<std::uint32_t, steady_time>>
      departed_;  ///< left lately; the receiver is told with the next look
  std::thread thread_;
};

}  // namespace troupe::actors
