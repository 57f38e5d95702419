// SPDX-License-Identifier: Apache-2.0
#pragma once
// One process of a job among the others: its connections, what travels over them, and which others do not answer any more.
//
// Each process opens a connection to each process that it sends to, when it first does. It begins with a handshake (handshake.hpp); frames follow (frames.hpp).
// Between hosts the called process sends its frames back on it, if it has no connection of its own (answer_on()): then what it sends carries the system's
// acknowledgements. Of two that call each other at once the one with the lower number is answered: it keeps its answer to the other back, which gives
// up its own call when it has answered. Where that fails there are two connections, each with frames in one direction, as between processes of a host.
//
// Sending. Any thread: what the socket takes at once is written by the sender, without a copy; the rest waits, by reference, and the mesh's
// thread writes it, or a copy of what is settled. Before a buffer is let go that no credit gives back, let_go() is called. What waits is
// bounded by the senders' credits and the windows.
//
// Long chunks are announced and wait with their sender until they are cleared (frames.hpp), and are received into the places that ranks
// have offered (places.hpp); those of collectives that are shorter come unasked, into their places if these were offered in time.
//
// Lanes. A process opens further connections to one of another host when it first has a long chunk for it (mesh_options::lanes): long chunks that were
// cleared go in stripes over all that are open at that moment, and collectives' that come unasked go whole, each lane taking the next when it has
// room. They carry nothing else, and nothing back. The process that opens them decides how many there are; it does without one that cannot be opened.
//
// Loss. A connection that ends without "bye", a process that cannot be reached, one from which nothing was heard for `silence` (each
// says "I am here" ten times as often): it is lost, for everybody and for good. Process 0, or the first one that is left, tells all. A process that hears
// that it is itself lost (it was stopped, or cut off) loses all others.
//
// Processes of one host. They are called at a Unix socket, and the frames go through memory that both map (byte_ring.hpp); the socket rings the other side
// awake, and ends when it does. Callers that wait read the rings themselves (poll()); while they do, the mesh's thread naps, and nobody rings.
//
// Callers that wait read the sockets themselves, too: what is open stands in an epoll of its own, which the mesh's thread looks at between two naps
// only. One that sleeps does so there (sleep()), one at a time, for some milliseconds; so a message wakes one thread, the one that it is for.
// All others, and one that has waited for longer, sleep at their own places; then the mesh's thread is rung awake, and wakes them.
//
// Transports. With another one than sockets (mesh_options::carrier) frames between hosts go by its lines (transport.hpp): the called process makes its end
// of the line when the handshake is done, and sends a single byte then; the socket shows by its end that the other process is gone, as beside a
// ring. The thread that reads calls the transport's progress(), which is asked before anybody sleeps, as rings are.
//
// Want of memory. A connection ends when something cannot be kept for it, so its process counts as lost; a loss that cannot be told is told with the next look.
//
// TLS. Where processes have certificates, connections between hosts are lines (tls.hpp), which take the place of the system's calls on their
// sockets: the sender encrypts what it writes, and the reader decrypts what comes, straight into its place.
//
// Leaving. "bye" is the last word in every connection, of both directions, and said in the first one when all other lanes have ended; the others
// answer by closing theirs, so that nothing unread resets them.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "actors/ports/link/byte_ring.hpp"
#include "actors/ports/link/caller_naps.hpp"
#include "actors/ports/link/frames.hpp"
#include "actors/ports/link/handshake.hpp"
#include "actors/ports/link/job_key.hpp"
#include "actors/ports/link/places.hpp"
#include "actors/ports/link/presence_state.hpp"
#include "actors/ports/link/roster.hpp"
#include "actors/ports/link/sockets.hpp"
#include "actors/ports/link/tls.hpp"
#include "actors/ports/link/transport.hpp"
#include "actors/waiting/parking.hpp"
#include "memory/arena.hpp"

namespace troupe::actors {

/// Gets what has arrived: one call after the other, on the mesh's thread or on that of a caller that polls; must not wait for the
/// mesh. False: it is about ranks or
/// communicators that cannot be, or no such word; then its sender counts as lost.
class mesh_receiver {
public:
  virtual ~mesh_receiver() = default;
  /// Also of one that is only announced; of kinds packet and ready, too.
  virtual bool chunk_arrived(std::uint32_t from, const frame_head& head, chunk&& what) = 0;
  /// Of kinds credit and response.
  virtual bool credit_arrived(std::uint32_t from, const frame_head& head, const credit& what) = 0;
  /// Of kinds pair, home and ranks; and gave_up, revoke, shrink.
  virtual bool word_arrived(std::uint32_t from, const frame_head& head, std::span<const std::byte> body) = 0;
  /// Nothing more comes from it, and nothing gets there. Once.
  virtual void process_lost(std::uint32_t process, const std::string& how) = 0;
  /// The same of one that left in order; somewhat later.
  virtual void process_left(std::uint32_t process) = 0;
  /// Somebody has called and is no process of this job, or cannot prove it.
  virtual void turned_away(const std::string& /*who_and_why*/) {}
  /// The others count this process as lost: it is going to lose them all.
  virtual void expelled(const std::string& /*why*/) {}
  /// So many connections to it are open now, of how many there might be. @param why_not one more could not be opened; empty: it was
  virtual void lanes_changed(std::uint32_t /*process*/, int /*open*/, const std::string& /*why_not*/) {}
};

struct mesh_options {
  std::chrono::milliseconds silence{3000};      ///< of a process before it counts as lost
  std::chrono::milliseconds to_connect{10000};  ///< for one to answer at all
  std::uint64_t build = 0;                      ///< which every process must have been built as
  std::shared_ptr<const tls_identity> tls;      ///< of connections between hosts; null: they are open
  /// What carries the frames between hosts, reached there by the roster's addresses; null: their sockets. Not with `tls`, nor several `lanes`.
  std::shared_ptr<transport> carrier;
  int lanes = 1;      ///< connections to each process of another host, 1 … most_connections
  int to_share = -1;  ///< of the first process of a host: a descriptor that all others of it get; outlives the mesh
};

class mesh final : private presence_outbox {
public:
  /// @param listeners already listen, at the addresses that the roster says. `memory` and `receiver` outlive the mesh.
  mesh(mesh_options options, roster in, std::uint32_t here, const job_key& key, std::vector<descriptor> listeners,
       arena& memory, mesh_receiver& receiver);
  ~mesh() override;
  mesh(const mesh&) = delete;
  mesh& operator=(const mesh&) = delete;

  /// Whether a chunk may be settled (frames.hpp), where the connection is open and there is room in the window.
  enum class may_settle : std::uint8_t { no, yes };
  /// Any thread. To a process that is lost or has left: nothing happens. True: settled, and the bytes are the sender's own again.
  bool send_chunk(std::uint32_t to, frame_head head, const chunk& what, may_settle may = may_settle::no);
  void send_credit(std::uint32_t to, frame_head head, const credit& what);
  /// The chunk that `to` has announced may come.
  void send_clear(std::uint32_t to, frame_head head, const credit& what);
  void send_word(std::uint32_t to, frame_head head, std::vector<std::byte> body);
  /// From NIC to NIC, of kind packet, with its payload, or ready: goes at once, and gets no credit. @pre the head has the kind
  void send_from_nic(std::uint32_t to, frame_head head, const chunk& what);
  /// Of kind response.
  void send_response(std::uint32_t to, frame_head head, const credit& what);
  /// Chunks of `from` may be received there. Any thread.
  place_table& places(std::uint32_t from) { return *places_[from]; }
  /// Nothing that waits refers any more to what `rank` has sent in that operation, and nothing is received into its memory. Any thread.
  /// @param peer of a send or receive the other rank; −1: all
  /// @param sending of a send or receive, which of the two it is: they may have one number
  void let_go(communicator_id of, rank_t rank, epoch_t epoch, rank_t peer, bool sending);
  /// The same of everything of a rank that is gone.
  void let_go(communicator_id of, rank_t rank);

  /// Reads what others have sent, if nobody else does; for callers that wait. True: something came.
  bool poll() noexcept;
  /// The caller is going to sleep: from now on the mesh's thread is rung awake. True: something came before that.
  bool rest() noexcept;
  enum class slept : std::uint8_t {
    woken,    ///< something has come, and was read; or it was woken at its place; or that time is over
    in_vain,  ///< for some milliseconds
    not_here  ///< there is nobody to hear from, or another caller sleeps here
  };
  /// Sleeps until then, or until something comes, and reads that. A caller that slept in vain should rest(), and sleep elsewhere.
  slept sleep(parker& place, steady_time until) noexcept;

  /// What the first process of this host shares with the others (mesh_options::to_share). Waits for it; empty: not until then, or that process
  /// is lost. Once.
  descriptor shared_by_host(steady_time until);

  /// Says "bye", and waits until the others have heard it, for `silence` at most. No calls of the receiver afterwards.
  void leave();

  const roster& all() const { return roster_; }
  std::uint32_t here() const { return here_; }
  std::uint32_t processes() const { return static_cast<std::uint32_t>(roster_.processes.size()); }
  /// Bytes that wait to be sent, to all; for tests of bounds.
  std::size_t waiting_bytes() const;
  /// Connections that frames travel on; for tests.
  std::size_t connections();
  /// Of them those that carry frames to that process.
  int lanes_open(std::uint32_t to) const;

private:
  struct piece;
  struct outgoing;
  struct incoming;
  struct received_block;
  struct striped_chunk;
  struct arriving_chunk;
  struct inflow;
  /// What an event is about: the upper half says whose, the lower which.
  enum class subject : std::uint32_t { bell, listener, outgoing, incoming, streams, callers_bell, lane, carrier };

  enum class watching : std::uint8_t { begins, goes_on };

  // -- any thread --
  void send(outgoing& way, piece&& what);
  bool send_locked(outgoing& way, piece&& what);
  bool goes_in_stripes(const outgoing& way, std::size_t bytes) const;
  void want_lanes(outgoing& way);
  void hand_out(outgoing& way);
  template <class Which>
  void let_go_of(Which&& which);
  bool alive(std::uint32_t process) const { return presence_.alive(process); }
  void wake() noexcept;

  // -- the mesh's thread, or with `reading_` --
  void work();
  void handle(std::uint64_t which, std::uint32_t events);
  void accept_all(int listener);
  int pause_before_look();
  bool fall_asleep();
  bool rings_fall_asleep();
  void rings_wake_up();
  bool read_rings();
  void write_lines();
  bool read_streams();
  bool look_at_streams();
  void look_from_here();
  bool begin_sleep();
  void attend_streams(bool on);
  void write_rings();
  bool take_bells(incoming& way, bool& open);
  static bool drop_bells(incoming& way);
  static std::size_t read_ring(incoming& way, std::byte* to, std::size_t room);
  void watch_listeners(std::uint32_t events, watching how);
  void connect_those_wanted();
  void connect_if_wanted(outgoing& way);
  void try_next_address(outgoing& way, std::unique_lock<std::mutex>& lock, const std::string& why);
  void go_on_connecting(outgoing& way);
  std::shared_ptr<transport_line> line_of(std::uint32_t process, const handshake& hands);
  bool line_stands(outgoing& way, std::unique_lock<std::mutex>& lock, const std::string& at);
  bool is_called_back(std::uint32_t process, steady_time now);
  bool keeps_answer_back(incoming& way);
  static bool is_answered_soon(outgoing& way);
  void answer_those_kept_back(std::uint32_t process);
  void answer_on(incoming& way);
  void receive_on(outgoing& way);
  void wait_for_room(outgoing& way, bool on);
  void outgoing_event(outgoing& way, std::uint32_t events);
  static outgoing* lane_of(outgoing& first, std::size_t lane);
  static int lanes_open(const outgoing& first);
  void close_locked(outgoing& way);
  bool lanes_have_ended(outgoing& first);
  void incoming_event(incoming& way);
  bool shake_hands(incoming& way);
  bool look_how_it_begins(incoming& way);
  bool say_back(incoming& way, std::byte what);
  void begin_stream(incoming& way);
  void read_turn(incoming& way);
  void read_to_the_end(incoming& way);
  bool read_some(incoming& way, std::size_t& budget);
  ssize_t read_large(incoming& way, std::size_t& asked);
  ssize_t read_block(incoming& way, std::size_t& asked);
  static ssize_t receive(incoming& way, std::byte* to, std::size_t room);
  void sink(incoming& way);
  bool parse(incoming& way);
  bool begin_large(incoming& way, const frame_head& head);
  void begin_frame(incoming& way, const frame_head& head, std::size_t fixed);
  bool begin_stripe(incoming& way, const frame_head& head);
  std::shared_ptr<arriving_chunk> arriving(incoming& way, const frame_head& head, const stripe_body& body);
  bool stripe_came(incoming& way);
  bool arrived(incoming& way, const frame_head& head, const std::byte* body, std::shared_ptr<const void> keep);
  std::pair<const std::byte*, std::shared_ptr<const void>> set_aside(incoming& way, const std::byte* payload,
                                                                     std::size_t bytes, std::size_t total);
  bool announced(incoming& way, const frame_head& head, const std::byte* body);
  bool freed_arrived(std::uint32_t by, const freed_body& what);
  void say_freed(incoming& way);
  void cleared(std::uint32_t by, const frame_head& head, const credit_body& what);
  bool process_word_arrived(incoming& way, const frame_head& head, std::span<const std::byte> body);
  void ended(incoming& way, const std::string& how);
  void close(incoming& way);
  void close(outgoing& way);
  void lose(std::uint32_t process, const std::string& how);
  void leaves(std::uint32_t process);
  bool share_with(incoming& way);
  /// What single bytes against the frames have said.
  struct back_bytes {
    bool left = false, lost = false;
    bool frames = false;  ///< follow
    std::string how;      ///< the connection ended; empty: it has not
  };
  bool take_back_bytes(outgoing& way, back_bytes& said);
  static piece piece_of(const process_word& what);
  void say_last(outgoing& way, const process_word& what);
  bool said_goodbye();
  void give_up_if_late(outgoing& way, steady_time now);
  void keep_time(steady_time now);
  // -- presence_outbox --
  void tell(std::uint32_t to, const process_word& what) override;
  bool can_hear(std::uint32_t process) override;
  void beat(std::uint32_t to) override;
  void say_lost(std::uint32_t process) override;
  void expelled(const std::string& why) override;
  void close(std::uint32_t process) override;
  void lost(std::uint32_t process, const std::string& how) override;
  void left(std::uint32_t process) override { receiver_.process_left(process); }

  void watch(int epoll, int fd, subject whose, std::uint64_t which, std::uint32_t events, watching how);
  void watch(outgoing& way, std::uint32_t events, watching how);
  void watch(incoming& way, std::uint32_t events, watching how);
  void stop_watching(int epoll, int fd) noexcept;

  mesh_options options_;
  roster roster_;
  std::uint32_t here_;
  const job_key key_;
  std::vector<descriptor> listeners_;
  arena& memory_;
  mesh_receiver& receiver_;
  descriptor epoll_, streams_, bell_;  ///< streams_: of open connections, inside epoll_
  descriptor callers_bell_;            ///< of the caller that sleeps here
  // Of whoever reads, the mesh's thread or a caller: guards all below but what outgoing::mutex guards. presence_.alive() and `leaving_` are read without.
  std::mutex reading_;
  std::vector<std::unique_ptr<place_table>> places_;  ///< by process; each has its own lock
  std::vector<std::unique_ptr<outgoing>> out_;        ///< by process; null: this one
  std::vector<std::unique_ptr<incoming>> in_;
  std::vector<std::unique_ptr<inflow>> inflow_;  ///< by process; null: this one
  std::uint32_t next_incoming_ = 0;
  presence_state presence_;
  steady_time next_look_{}, goodbye_until_{};
  std::atomic<bool> leaving_{false};
  bool accepting_ = true;
  caller_naps naps_;
  bool resting_ = false;         ///< the thread sleeps until it is rung awake
  bool caller_sleeps_ = false;   ///< in sleep()
  bool waits_for_call_ = false;  ///< somebody who has just called may be answered there
  int rings_ = 0;
  std::mutex shared_mutex_;  // once, at the join
  std::condition_variable shared_came_;
  descriptor shared_;
  int open_streams_ = 0;            ///< that frames come from, without a ring
  incoming* spoke_last_ = nullptr;  ///< of them, between hosts and over a socket
  unsigned looks_ = 0;
  bool attends_streams_ = true;
  std::thread thread_;
};

}  // namespace troupe::actors
