// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/mesh.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <optional>

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "memory/error.hpp"

namespace troupe::actors {

namespace {

using clock = std::chrono::steady_clock;

/// What is read at once. Small chunks stay where they were received, so a block lives as long as the last chunk in it.
constexpr std::size_t block_bytes = 64 * 1024;
/// Longer frames get memory of their own, and are received straight into it.
constexpr std::size_t large_frame = 16 * 1024;
/// Of one connection, before others have their turn.
constexpr std::size_t budget_of_turn = 1 << 20;
/// Strangers at the door, at once: the one that has been there longest goes when another comes.
constexpr std::size_t most_strangers = 256;
constexpr std::chrono::seconds most_shaking{5};
/// Who has said nothing for so long says "I am here", and who has not heard anything for nearly all of it counts as lost: by the end of it.
constexpr int looks_in_silence = 10;
/// For everybody's connection with the registrar to stand.
constexpr std::chrono::seconds first_contact{3};

/// In the direction against the frames, before the end of a connection: "bye".
constexpr std::byte leaves_in_order{0x62};
/// Beside a ring, in the direction of its frames: look; and against it: there is room.
constexpr std::byte something_written{0x77}, there_is_room{0x72};
/// How long the mesh's thread naps while callers read the rings themselves.
constexpr std::chrono::milliseconds nap{1};

std::string seconds_text(std::chrono::milliseconds time) { return std::to_string(time.count()) + " ms"; }

}  // namespace

std::string name_of(const roster& in, std::uint32_t process) {
  const process_place& p = in.processes[process];
  const std::string last = std::to_string(p.first_rank + p.ranks - 1);
  return "process " + std::to_string(process) + " (" +
         (p.ranks == 1 ? "rank " + last : "ranks " + std::to_string(p.first_rank) + "–" + last) + ", pid " +
         std::to_string(p.pid) + " on host " + p.host + ")";
}

// -- what a connection is ---------------------------------------------------------------------------------------------------

/// A frame on its way out: head and what is copied, then what is referred to, then zeros.
struct mesh::piece {
  std::array<std::byte, sizeof(frame_head) + sizeof(chunk_body)> start{};
  std::size_t start_bytes = 0;
  std::vector<std::byte> body;
  const std::byte* payload = nullptr;
  std::size_t payload_bytes = 0;
  std::shared_ptr<const void> keep;
  communicator_id communicator = 0;
  rank_t source = -1;  ///< of a chunk
  epoch_t epoch = 0;
  std::size_t done = 0;  ///< bytes that the system has taken

  piece(frame_head& head, const void* fixed, std::size_t fixed_bytes) : communicator(head.communicator) {
    start_bytes = sizeof head + fixed_bytes;
    std::memcpy(start.data(), &head, sizeof head);
    if (fixed_bytes > 0) std::memcpy(start.data() + sizeof head, fixed, fixed_bytes);
  }
  void number(std::uint64_t n) { std::memcpy(start.data() + offsetof(frame_head, number), &n, sizeof n); }
  std::size_t content() const { return start_bytes + body.size() + payload_bytes; }
  std::size_t total() const { return static_cast<std::size_t>(padded(content())); }
  /// What is left to write.
  std::size_t parts(std::array<iovec, 4>& to) const {
    static constexpr std::array<std::byte, 16> zeros{};
    const std::pair<const std::byte*, std::size_t> all[] = {{start.data(), start_bytes},
                                                            {body.data(), body.size()},
                                                            {payload, payload_bytes},
                                                            {zeros.data(), total() - content()}};
    std::size_t skip = done, n = 0;
    for (const auto& [data, bytes] : all) {
      const std::size_t behind = std::min(skip, bytes);
      skip -= behind;
      if (bytes > behind) to[n++] = {const_cast<std::byte*>(data + behind), bytes - behind};
    }
    return n;
  }
  /// The payload becomes its own.
  void own() {
    if (payload_bytes == 0 || keep != nullptr) return;
    auto copy = std::make_shared<std::vector<std::byte>>(payload, payload + payload_bytes);
    payload = copy->data();
    keep = std::move(copy);
  }
};

struct mesh::outgoing {
  enum class phase : std::uint8_t { idle, wanted, connecting, shaking, open, closed };
  explicit outgoing(std::uint32_t to) : process(to) {}

  /// All that the system, or the ring, takes. False: `problem` says why not.
  bool flush() {
    blocked.store(false, std::memory_order_relaxed);
    while (!waiting.empty() && write(waiting.front())) waiting.pop_front();
    return problem == 0 && publish();
  }
  /// False: not all of it now, or a problem.
  bool write(piece& what) { return ring ? write_ring(what) : write_socket(what); }

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
      const ssize_t taken = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (taken < 0 && errno == EINTR) continue;
      if (taken < 0 && errno != EAGAIN && errno != EWOULDBLOCK) problem = errno;
      if (taken < 0) return false;
      what.done += static_cast<std::size_t>(taken);
    }
    return true;
  }
  bool write_ring(piece& what) {
    for (;;) {
      std::array<iovec, 4> parts;
      const std::size_t n = what.parts(parts);
      std::size_t wanted = 0, taken = 0;
      for (std::size_t i = 0; i < n && taken == wanted; ++i) {
        wanted += parts[i].iov_len;
        taken += ring.write(static_cast<const std::byte*>(parts[i].iov_base), parts[i].iov_len);
      }
      what.done += taken;
      if (what.done == what.total()) return true;
      if (!publish()) return false;
      if (!ring.ask_for_room()) return blocked.store(true, std::memory_order_relaxed), false;
    }
  }
  /// False: `problem` says why not.
  bool publish() {
    if (!ring) return true;
    if (ring.broken()) problem = EPROTO;
    if (problem == 0 && ring.publish()) {
      const ssize_t rung = ::send(socket.get(), &something_written, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (rung < 0 && errno != EAGAIN && errno != EWOULDBLOCK) problem = errno;  // full: it has not heard earlier ones
    }
    return problem == 0;
  }

  const std::uint32_t process;
  std::mutex mutex;  // short: a system call at most. A thread of its own for sending would cost every message a switch
  phase now = phase::idle;
  descriptor socket;
  std::atomic<bool> blocked{false};  ///< the ring was full
  byte_ring
      ring;  ///< to a process of this host; the socket rings then, and shows by its end that the other one is gone
  std::deque<piece> waiting;
  std::uint64_t next_number = 0;
  bool spoke = false;    ///< since the last look
  bool writing = false;  ///< the system is to say when it takes more
  int problem = 0;       ///< errno of whoever wrote; the mesh's thread sees to it
  std::optional<handshake> hands;
  std::vector<std::byte> unsent;  ///< of the handshake
  std::vector<socket_address> addresses;
  std::size_t next_address = 0;
  steady_time give_up{};
  std::string tried;
};

struct mesh::incoming {
  incoming(std::uint32_t number, descriptor s, handshake h, steady_time now)
      : id(number), socket(std::move(s)), hands(std::move(h)), heard(now), began(now) {}

  const std::uint32_t id;
  descriptor socket;
  bool local = false;  ///< from a process of this host, which passes its ring first
  byte_ring ring;
  handshake hands;
  std::vector<std::byte> unsent;
  bool known = false;  ///< the handshake is done; `process` says who it is
  bool over = false;   ///< closed; goes when its event has been handled
  std::uint32_t process = 0;
  std::uint64_t next_number = 0;
  steady_time heard, began;
  // What was received and not read yet.
  std::shared_ptr<scratch_block> block;
  std::size_t begin = 0, end = 0;
  // A frame with memory of its own.
  std::optional<frame_head> large;
  chunk_body large_chunk;
  std::shared_ptr<scratch_block> large_block;
  std::size_t large_done = 0, large_bytes = 0, skip = 0;
};

// -- life -------------------------------------------------------------------------------------------------------------------

mesh::mesh(mesh_options options, roster in, std::uint32_t here, const job_key& key, std::vector<descriptor> listeners,
           arena& memory, mesh_receiver& receiver)
    : options_(options),
      roster_(std::move(in)),
      here_(here),
      key_(key),
      listeners_(std::move(listeners)),
      memory_(memory),
      receiver_(receiver),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      leavers_(roster_.processes.size()),
      fate_(roster_.processes.size()) {
  if (!epoll_ || !bell_) throw error(errc::io, "the network cannot be waited for: " + text_of_errno(errno));
  for (std::uint32_t p = 0; p < processes(); ++p) out_.push_back(p == here_ ? nullptr : std::make_unique<outgoing>(p));
  watch(bell_.get(), subject::bell, 0, EPOLLIN, false);
  watch_listeners(EPOLLIN, false);
  next_look_ = clock::now() + options_.silence / looks_in_silence;
  greeted_ = processes();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the application's threads
  try {
    thread_ = std::thread([this] { work(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

mesh::~mesh() { leave(); }

void mesh::leave() {
  if (!thread_.joinable()) return;
  leaving_.store(true);
  wake();
  thread_.join();
}

void mesh::wake() noexcept {
  const std::uint64_t one = 1;
  // It can only fail when the bell rings already.
  [[maybe_unused]] const ssize_t ignored = ::write(bell_.get(), &one, sizeof one);
}

void mesh::watch(int fd, subject whose, std::uint64_t which, std::uint32_t events, bool known) {
  epoll_event e{};
  e.events = events;
  e.data.u64 = static_cast<std::uint64_t>(whose) << 32 | which;
  if (::epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) != 0)
    throw error(errc::io, "a socket cannot be waited for: " + text_of_errno(errno));
}

void mesh::watch_listeners(std::uint32_t events, bool known) {
  for (std::size_t i = 0; i < listeners_.size(); ++i) watch(listeners_[i].get(), subject::listener, i, events, known);
}

std::size_t mesh::waiting_bytes() const {
  std::size_t total = 0;
  for (const auto& way : out_) {
    if (!way) continue;
    const std::lock_guard lock(way->mutex);
    for (const piece& p : way->waiting) total += p.total() - p.done;
  }
  return total;
}

// -- sending ----------------------------------------------------------------------------------------------------------------

void mesh::send(outgoing& way, piece&& what) {
  using phase = outgoing::phase;
  const std::lock_guard lock(way.mutex);
  if (way.now == phase::closed || way.problem != 0 || !alive(way.process)) return;
  what.number(way.next_number++);
  way.spoke = true;
  // Most go at once, and are never queued, which would take memory.
  if (way.now == phase::open && way.waiting.empty() && way.write(what)) {
    if (!way.publish()) wake();
    return;
  }
  if (way.problem != 0) return wake();
  way.waiting.push_back(std::move(what));
  if (way.now == phase::idle) {
    way.now = phase::wanted;
    return wake();
  }
  if (way.now == phase::open && !way.writing && !way.ring) {
    way.writing = true;
    watch(way.socket.get(), subject::outgoing, way.process, EPOLLIN | EPOLLOUT, true);
  }
}

void mesh::send_chunk(std::uint32_t to, frame_head head, const chunk& what) {
  const chunk_body body{what.epoch, what.fingerprint, what.source, what.lane, what.sequence, 0};
  head.kind = frame_kind::chunk;
  head.bytes = sizeof body + what.bytes;
  piece p{head, &body, sizeof body};
  p.payload = what.data;
  p.payload_bytes = what.bytes;
  p.keep = what.keep;
  p.source = what.source;
  p.epoch = what.epoch;
  send(*out_[to], std::move(p));
}

void mesh::send_credit(std::uint32_t to, frame_head head, const credit& what) {
  const credit_body body{what.epoch, what.source, what.lane, what.sequence, 0};
  head.kind = frame_kind::credit;
  head.bytes = sizeof body;
  send(*out_[to], piece{head, &body, sizeof body});
}

void mesh::send_word(std::uint32_t to, frame_head head, std::vector<std::byte> body) {
  head.bytes = body.size();
  piece p{head, nullptr, 0};
  p.body = std::move(body);
  send(*out_[to], std::move(p));
}

void mesh::tell(std::uint32_t to, const process_word& what) {
  frame_head head;
  head.kind = frame_kind::process;
  send_word(to, head, to_wire(what));
}

void mesh::let_go(communicator_id of, rank_t source, epoch_t epoch) {
  for (const auto& way : out_) {
    if (!way) continue;
    const std::lock_guard lock(way->mutex);
    for (piece& p : way->waiting)
      if (p.communicator == of && p.source == source && p.epoch == epoch) p.own();
  }
}

// -- the thread -------------------------------------------------------------------------------------------------------------

void mesh::work() {
  std::unique_lock lock(reading_);
  greet();
  std::array<epoll_event, 64> events;
  for (steady_time before = clock::now(); !(leaving_.load() && said_goodbye());) {
    connect_those_wanted();
    const int ms = pause_before_look();
    lock.unlock();
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), ms);
    lock.lock();
    const steady_time now = clock::now();
    // This process itself was stopped, or had no core: what the others said meanwhile is not read yet.
    if (now - before > options_.silence / 2 + std::chrono::milliseconds{ms})
      for (const auto& way : in_) way->heard = way->began = now;
    before = now;
    for (int i = 0; i < n; ++i)
      handle(events[static_cast<std::size_t>(i)].data.u64, events[static_cast<std::size_t>(i)].events);
    read_rings();
    std::erase_if(in_, [](const auto& way) { return way->over; });
    if (now >= next_look_) keep_time(now);
  }
}

/// Milliseconds to sleep. As long as callers read the rings nobody need be rung awake: the thread naps, and looks whether they still do.
int mesh::pause_before_look() {
  const auto until_look = std::chrono::ceil<std::chrono::milliseconds>(next_look_ - clock::now());
  const std::int64_t ms = std::clamp<std::int64_t>(leaving_.load() ? 5 : until_look.count(), 0, 60'000);
  if (std::exchange(polled_, false)) return static_cast<int>(std::min<std::int64_t>(ms, nap.count()));
  resting_ = true;
  return fall_asleep() ? 0 : static_cast<int>(ms);
}

/// True: something has come meanwhile.
bool mesh::fall_asleep() {
  bool any = false;
  for (const auto& way : in_)
    if (way->ring && !way->over && way->ring.fall_asleep()) any = true;
  return any;
}

bool mesh::read_rings() {
  bool any = false;
  for (std::size_t i = 0; i < in_.size(); ++i) {
    incoming& way = *in_[i];
    if (!way.ring || way.over || way.ring.empty()) continue;
    incoming_event(way);
    any = true;
  }
  return any;
}

/// Who waits for room does not wait for the mesh's thread to be rung awake.
void mesh::write_rings() {
  for (const auto& way : out_) {
    if (!way || !way->blocked.load(std::memory_order_relaxed)) continue;
    const std::unique_lock lock(way->mutex, std::try_to_lock);
    if (lock && way->now == outgoing::phase::open && !way->flush()) wake();
  }
}

bool mesh::poll() noexcept {
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (!lock || rings_ == 0) return false;
  write_rings();
  polled_ = true;
  if (std::exchange(resting_, false)) {
    for (const auto& way : in_)
      if (way->ring) way->ring.wake_up();
    wake();
  }
  return read_rings();
}

bool mesh::rest() noexcept {
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (!lock || rings_ == 0) return false;
  return fall_asleep() && read_rings();
}

void mesh::handle(std::uint64_t which, std::uint32_t events) {
  const auto id = static_cast<std::uint32_t>(which);
  switch (static_cast<subject>(which >> 32)) {
    case subject::bell: {
      std::uint64_t rung = 0;
      [[maybe_unused]] const ssize_t ignored = ::read(bell_.get(), &rung, sizeof rung);
      return;
    }
    case subject::listener: try { return accept_all(listeners_[id].get());
      } catch (const std::exception&) {  // no memory, or no descriptors: whoever calls is heard with the next look
        accepting_ = false;
        return watch_listeners(0, true);
      }
    case subject::outgoing: try { return outgoing_event(*out_[id], events);
      } catch (const std::exception& e) {
        return lose(id, std::string{"nothing can be sent to it: "} + e.what());
      }
    case subject::incoming:
      for (const auto& way : in_)
        if (way->id == id && !way->over) return incoming_event(*way);
      return;
  }
}

/// Also those whose writers met a problem.
void mesh::connect_those_wanted() {
  for (const auto& way : out_) {
    if (!way) continue;
    std::unique_lock lock(way->mutex);
    if (way->problem != 0 && way->now == outgoing::phase::open) {
      const std::string how = "a connection to it failed: " + text_of_errno(way->problem);
      lock.unlock();
      lose(way->process, how);
      continue;
    }
    if (way->now != outgoing::phase::wanted) continue;
    way->give_up = clock::now() + options_.to_connect;
    for (const std::string& text : roster_.processes[way->process].addresses) {
      try {
        const bool same_host = roster_.processes[way->process].host_key == roster_.processes[here_].host_key;
        for (const socket_address& a : socket_address::resolve(text))
          if (same_host || a.family() != AF_UNIX) way->addresses.push_back(a);
      } catch (const error& e) {
        way->tried += (way->tried.empty() ? "" : "; ") + std::string{e.what()};
      }
    }
    try_next_address(*way, lock, {});
  }
}

/// @pre locked; it may be left unlocked
void mesh::try_next_address(outgoing& way, std::unique_lock<std::mutex>& lock, const std::string& why) {
  way.socket.reset();
  if (!why.empty()) way.tried += (way.tried.empty() ? "" : "; ") + why;
  while (way.next_address < way.addresses.size()) {
    const socket_address& to = way.addresses[way.next_address++];
    try {
      way.socket = begin_connect(to);
      tune_socket(way.socket.get(), static_cast<int>(options_.silence.count()));
      watch(way.socket.get(), subject::outgoing, way.process, EPOLLOUT | EPOLLIN, false);
      way.hands.emplace(handshake::calling({roster_.job, here_, way.process, options_.build}, key_));
      way.unsent = way.hands->take_output();
      way.now = outgoing::phase::connecting;
      return;
    } catch (const error& e) {
      way.tried += (way.tried.empty() ? "" : "; ") + std::string{e.what()};
    }
  }
  const std::string how = "it cannot be reached (" + way.tried + ")";
  lock.unlock();
  lose(way.process, how);
}

namespace {

/// True: all was taken. @param problem errno, when the system takes no more for good
bool send_plain(int socket, std::vector<std::byte>& bytes, int& problem) {
  while (!bytes.empty()) {
    const ssize_t taken = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && errno != EAGAIN && errno != EWOULDBLOCK) problem = errno;
    if (taken < 0) return false;
    bytes.erase(bytes.begin(), bytes.begin() + taken);
  }
  return true;
}

/// Bytes for a handshake, which takes just what belongs to it. False: the connection has ended; `why` says how.
bool feed_from(int socket, handshake& hands, std::string& why) {
  std::array<std::byte, 512> some;
  while (hands.state() == handshake::status::going) {
    // Looks first, since what comes behind the handshake is not for it.
    const ssize_t seen = ::recv(socket, some.data(), some.size(), MSG_DONTWAIT | MSG_PEEK);
    if (seen < 0 && errno == EINTR) continue;
    if (seen < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (seen <= 0) return why = seen == 0 ? "the connection was closed" : text_of_errno(errno), false;
    const std::size_t used = hands.feed(std::span(some).first(static_cast<std::size_t>(seen)));
    if (used > 0) [[maybe_unused]]
      const ssize_t gone = ::recv(socket, some.data(), used, MSG_DONTWAIT);
    if (used < static_cast<std::size_t>(seen)) return true;
  }
  return true;
}

}  // namespace

void mesh::go_on_connecting(outgoing& way) {
  std::unique_lock lock(way.mutex);
  const std::string at = socket_address::other(way.socket.get()).to_string();
  if (way.now == outgoing::phase::connecting) {
    if (const int problem = connect_error(way.socket.get()); problem != 0)
      return try_next_address(way, lock,
                              way.addresses[way.next_address - 1].to_string() + ": " + text_of_errno(problem));
    way.now = outgoing::phase::shaking;
  }
  int problem = 0;
  std::string why;
  if (!feed_from(way.socket.get(), *way.hands, why)) return try_next_address(way, lock, at + ": " + why);
  const std::vector<std::byte> more = way.hands->take_output();
  way.unsent.insert(way.unsent.end(), more.begin(), more.end());
  const bool sent = send_plain(way.socket.get(), way.unsent, problem);
  if (problem != 0) return try_next_address(way, lock, at + ": " + text_of_errno(problem));
  if (way.hands->state() == handshake::status::refused)
    return try_next_address(way, lock, at + ": " + way.hands->why());
  if (way.hands->state() != handshake::status::done || !sent)
    return watch(way.socket.get(), subject::outgoing, way.process, sent ? EPOLLIN : EPOLLIN | EPOLLOUT, true);
  way.hands.reset();
  if (socket_address::own(way.socket.get()).family() == AF_UNIX) {
    way.ring = byte_ring::make();
    if (!send_descriptor(way.socket.get(), way.ring.get()))
      return try_next_address(way, lock, at + ": its memory cannot be passed: " + text_of_errno(errno));
    way.ring.passed();
  }
  way.now = outgoing::phase::open;
  way.writing = true;
  watch(way.socket.get(), subject::outgoing, way.process, EPOLLIN | EPOLLOUT, true);  // what has waited goes next
}

void mesh::outgoing_event(outgoing& way, std::uint32_t events) {
  switch (way.phase_now()) {
    case outgoing::phase::connecting:
    case outgoing::phase::shaking: return go_on_connecting(way);
    case outgoing::phase::open: break;
    default: return;  // an event of a connection that has been closed since
  }
  std::string how;
  bool left = false;
  {
    const std::lock_guard lock(way.mutex);
    // Single bytes come in this direction, and the end of the connection.
    std::array<std::byte, 64> bytes{};
    const ssize_t seen =
        (events & EPOLLIN) != 0 ? ::recv(way.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) : -2;
    for (ssize_t i = 0; i < seen; ++i) {
      if (bytes[static_cast<std::size_t>(i)] == leaves_in_order) left = true;
      else if (bytes[static_cast<std::size_t>(i)] != there_is_room) how = "it sent what cannot be read";
    }
    if (!how.empty() || left) {
    } else if (seen == 0) how = "it closed a connection";
    else if (seen == -1 && errno != EAGAIN && errno != EINTR)
      how = "a connection to it failed: " + text_of_errno(errno);
    else if (!way.flush()) how = "a connection to it failed: " + text_of_errno(way.problem);
    if (!left && how.empty() && way.waiting.empty() && way.writing) {
      way.writing = false;
      watch(way.socket.get(), subject::outgoing, way.process, EPOLLIN, true);
    }
  }
  if (left) return leaves(way.process);
  if (how.empty()) return;
  // "bye" may be on its way, in the connection of the other direction.
  for (const auto& other : in_)
    if (other->known && other->process == way.process && !other->over) incoming_event(*other);
  lose(way.process, how);
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
      // A chunk in it may have been read by another thread, which has let go of it since.
      const bool alone = way.block && way.block.use_count() == 1;
      std::atomic_thread_fence(std::memory_order_acquire);
      auto fresh = alone ? way.block : std::make_shared<scratch_block>(memory_.acquire(block_bytes));
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
    else
      for (std::uint32_t p = 0; p < processes(); ++p)
        if (p != here_) lose(p, "this process was taken for lost by " + by + ": " + l->how);
  } else if (std::holds_alternative<gave_up_word>(*word)) {
    return receiver_.word_arrived(way.process, head, body);
  }
  return !way.over;
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

// -- who is here ------------------------------------------------------------------------------------------------------------

std::uint32_t mesh::registrar() const {
  for (std::uint32_t p = 0; p < processes(); ++p)
    if (p == here_ || alive(p)) return p;
  return here_;
}

/// Everybody keeps a connection with the registrar, in both directions, so that there is one who misses whoever ends.
void mesh::greet() {
  const std::uint32_t now = registrar();
  if (std::exchange(greeted_, now) == now) return;
  greeted_at_ = clock::now();
  if (now != here_) return tell(now, beat_word{});
  for (std::uint32_t p = 0; p < processes(); ++p)
    if (p != here_) tell(p, beat_word{});
}

/// There is a connection from it.
bool mesh::hears(std::uint32_t process) const {
  return std::any_of(in_.begin(), in_.end(),
                     [process](const auto& way) { return way->known && !way->over && way->process == process; });
}

void mesh::lose(std::uint32_t process, const std::string& how) {
  if (leaving_.load()) return gone(process);  // nothing is expected of anybody any more
  if (process == here_ || !alive(process)) return;
  // It may only have been stopped: when it goes on it must hear that nobody counts on it any more.
  if (out_[process]->phase_now() == outgoing::phase::open) tell(process, lost_word{process, how});
  fate_[process].store(fate::lost);
  close(*out_[process]);
  for (const auto& way : in_)
    if (way->known && way->process == process) close(*way);
  if (registrar() == here_) {
    for (std::uint32_t p = 0; p < processes(); ++p)
      if (p != here_) tell(p, lost_word{process, how});
  } else {
    tell(registrar(), suspect_word{process, how});
  }
  greet();
  receiver_.process_lost(process, how);
}

/// It has said so against the frames: what it has sent in the other connection comes first.
void mesh::leaves(std::uint32_t process) {
  close(*out_[process]);
  leavers_[process] = true;
  for (const auto& way : in_)
    if (way->known && !way->over && way->process == process) return incoming_event(*way);
  gone(process);
}

/// It has said "bye".
void mesh::gone(std::uint32_t process) {
  if (!alive(process)) return;
  fate_[process].store(fate::left);
  close(*out_[process]);
  // Which tells it that it has been heard.
  for (const auto& way : in_)
    if (way->known && way->process == process) close(*way);
  if (leaving_.load()) return;
  // Who leaves because it has lost another one may be heard before that loss is.
  departed_.emplace_back(process, clock::now());
}

/// True: everybody has heard it, or has had the time to.
bool mesh::said_goodbye() {
  const steady_time now = clock::now();
  if (goodbye_until_ == steady_time{}) {
    goodbye_until_ = now + options_.silence;
    for (const auto& way : out_) {
      if (!way || !alive(way->process)) continue;
      if (way->phase_now() == outgoing::phase::open) tell(way->process, bye_word{});
      else close(*way);
    }
    for (const auto& way : in_) {
      if (!way->known) close(*way);
      else if (!way->over)
        static_cast<void>(::send(way->socket.get(), &leaves_in_order, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
    }
  }
  if (now >= goodbye_until_) return true;
  // Whoever has heard it closes the connections of both directions.
  if (std::any_of(in_.begin(), in_.end(), [](const auto& way) { return !way->over; })) return false;
  return std::all_of(out_.begin(), out_.end(),
                     [](const auto& way) { return !way || way->phase_now() == outgoing::phase::closed; });
}

void mesh::keep_time(steady_time now) {
  next_look_ = now + options_.silence / looks_in_silence;
  while (!departed_.empty() && now - departed_.front().second >= options_.silence / looks_in_silence) {
    receiver_.process_left(departed_.front().first);
    departed_.erase(departed_.begin());
    greet();  // not before: most jobs end now, and nobody needs a registrar
  }
  if (!std::exchange(accepting_, true)) watch_listeners(EPOLLIN, true);
  for (const auto& way : in_) {
    if (way->over) continue;
    if (!way->known && now - way->began > most_shaking) close(*way);
    else if (way->known && alive(way->process) &&
             now - way->heard > options_.silence - options_.silence / looks_in_silence)
      lose(way->process, "nothing was heard of it for " + seconds_text(options_.silence));
  }
  // Who was stopped before its connection stood is missed, too.
  if (now - greeted_at_ > std::max<std::chrono::milliseconds>(options_.silence, first_contact))
    for (std::uint32_t p = 0; p < processes(); ++p)
      if (p != here_ && alive(p) && (here_ == greeted_ || p == greeted_) && !hears(p))
        lose(p, "it has never called, or not since its last connection ended");
  for (const auto& way : out_) {
    if (!way || !alive(way->process)) continue;
    std::unique_lock lock(way->mutex);
    const bool silent = way->now == outgoing::phase::open && way->waiting.empty() && !std::exchange(way->spoke, false);
    const bool hopeless =
        (way->now == outgoing::phase::connecting || way->now == outgoing::phase::shaking) && now > way->give_up;
    lock.unlock();
    if (silent) tell(way->process, beat_word{});
    if (hopeless) lose(way->process, "it cannot be reached: no answer within " + seconds_text(options_.to_connect));
  }
}

}  // namespace troupe::actors
