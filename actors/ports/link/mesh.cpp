// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/mesh.hpp"

#include <algorithm>
#include <array>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/ports/link/mesh_connections.hpp"
#include "actors/ports/link/without_signals.hpp"
#include "actors/waiting/napping.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {
using clock = std::chrono::steady_clock;
/// Of reading, before it is the turn of a caller that wakes up.
constexpr int most_turns_beside_sleeper = 64;
}  // namespace

// -- life -------------------------------------------------------------------------------------------------------------------

mesh::mesh(mesh_options options, roster in, std::uint32_t here, const job_key& key, std::vector<descriptor> listeners,
           arena& memory, mesh_receiver& receiver)
    : options_(std::move(options)),
      roster_(std::move(in)),
      here_(here),
      key_(key),
      listeners_(std::move(listeners)),
      memory_(memory),
      receiver_(receiver),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      streams_(::epoll_create1(EPOLL_CLOEXEC)),
      bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      callers_bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      presence_(roster_, here_, options_.silence, clock::now()) {
  if (!epoll_ || !streams_ || !bell_ || !callers_bell_)
    throw error(errc::io, "the network cannot be waited for: " + text_of_errno(errno));
  for (std::uint32_t p = 0; p < processes(); ++p) {
    out_.push_back(p == here_ ? nullptr : std::make_unique<outgoing>(p));
    places_.push_back(std::make_unique<place_table>());
    inflow_.push_back(p == here_ ? nullptr : std::make_unique<inflow>());
  }
  watch(epoll_.get(), bell_.get(), subject::bell, 0, EPOLLIN, watching::begins);
  watch(epoll_.get(), streams_.get(), subject::streams, 0, EPOLLIN, watching::begins);
  watch(streams_.get(), callers_bell_.get(), subject::callers_bell, 0, EPOLLIN, watching::begins);
  watch_listeners(EPOLLIN, watching::begins);
  if (options_.carrier) watch(streams_.get(), options_.carrier->bell(), subject::carrier, 0, EPOLLIN, watching::begins);
  next_look_ = clock::now() + presence_.between_ticks();
  const without_signals in_it;
  thread_ = std::thread([this] { work(); });
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

void mesh::watch(int epoll, int fd, subject whose, std::uint64_t which, std::uint32_t events, watching how) {
  epoll_event e{};
  e.events = events;
  e.data.u64 = static_cast<std::uint64_t>(whose) << 32 | which;
  if (::epoll_ctl(epoll, how == watching::goes_on ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) != 0)
    throw error(errc::io, "a socket cannot be waited for: " + text_of_errno(errno));
}

void mesh::watch(outgoing& way, std::uint32_t events, watching how) {
  const bool further = way.lane != 0;
  watch(way.stream ? streams_.get() : epoll_.get(), way.socket.get(), further ? subject::lane : subject::outgoing,
        further ? std::uint64_t{way.process} * most_connections + way.lane : way.process, events, how);
}

void mesh::watch(incoming& way, std::uint32_t events, watching how) {
  watch(way.stream ? streams_.get() : epoll_.get(), way.socket.get(), subject::incoming, way.id, events, how);
}

/// Before it is closed, which alone does not suffice where a forked child has the socket, too.
void mesh::stop_watching(int epoll, int fd) noexcept {
  if (fd >= 0) static_cast<void>(::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr));
}

void mesh::watch_listeners(std::uint32_t events, watching how) {
  for (std::size_t i = 0; i < listeners_.size(); ++i)
    watch(epoll_.get(), listeners_[i].get(), subject::listener, i, events, how);
}

/// Whether the system is to say when it takes more. @pre locked
void mesh::wait_for_room(outgoing& way, bool on) {
  on = on && !way.line;  // which says itself when it takes more
  if (std::exchange(way.writing, on) == on) return;
  if (!way.shared) return watch(way, on ? EPOLLIN | EPOLLOUT : EPOLLIN, watching::goes_on);
  if (on) watch(way, EPOLLOUT, watching::begins);
  else stop_watching(streams_.get(), way.socket.get());
}

std::size_t mesh::connections() {
  const std::lock_guard reading(reading_);
  const auto incoming = std::count_if(in_.begin(), in_.end(), [](const auto& way) { return way->known && !way->over; });
  auto all = static_cast<std::size_t>(incoming);
  for (const auto& way : out_) {
    if (!way) continue;
    const std::lock_guard lock(way->mutex);
    all += static_cast<std::size_t>(lanes_open(*way) - (way->shared ? 1 : 0));
  }
  return all;
}

std::size_t mesh::waiting_bytes() const {
  std::size_t total = 0;
  for (const auto& way : out_) {
    if (!way) continue;
    const std::lock_guard lock(way->mutex);
    const auto add = [&](const outgoing& lane) {
      for (const piece& p : lane.waiting) total += p.total() - p.done;
    };
    add(*way);
    for (const auto& lane : way->lanes) add(*lane);
    for (const piece& p : way->parked) total += p.total();
    for (const striped_chunk& c : way->striped) total += c.whole.payload_bytes - static_cast<std::size_t>(c.next);
  }
  return total;
}

// -- sending ----------------------------------------------------------------------------------------------------------------

void mesh::send(outgoing& way, piece&& what) {
  const std::lock_guard lock(way.mutex);
  send_locked(way, std::move(what));
}

/// False: nothing gets there any more. @pre locked
bool mesh::send_locked(outgoing& way, piece&& what) {
  using phase = outgoing::phase;
  if (way.now == phase::closed || way.problem != 0 || !alive(way.process)) return false;
  what.number(way.next_number++);
  way.spoke = true;
  // Most go at once, and are never queued, which would take memory.
  if (way.now == phase::open && way.waiting.empty() && way.write(what)) {
    if (!way.publish() || way.is_under_way()) wake();
    return true;
  }
  if (way.problem != 0) return wake(), false;
  try {
    if (what.settled) what.own();
    way.waiting.push_back(std::move(what));
  } catch (const std::bad_alloc&) {
    way.problem = ENOMEM;  // a part of it may have been written, so nothing can follow
    return wake(), false;
  }
  if (way.now == phase::idle) {
    way.now = phase::wanted;
    return wake(), true;
  }
  if (way.now == phase::open && !way.ring) wait_for_room(way, true);
  return true;
}

bool mesh::send_chunk(std::uint32_t to, frame_head head, const chunk& what, may_settle may) {
  chunk_body body{what.epoch, what.fingerprint, what.source, what.lane, what.sequence, 0};
  head.kind = frame_kind::chunk;
  head.bytes = sizeof body + what.bytes;
  outgoing& way = *out_[to];
  const std::lock_guard lock(way.mutex);
  const std::uint64_t bytes = padded(sizeof head + head.bytes);
  // Before the connection is open nobody knows whether it ever will be; a caller that settles has been told that all is well.
  const bool settled =
      may == may_settle::yes && way.now == outgoing::phase::open && what.bytes <= most_settled && way.window() >= bytes;
  body.settled = settled ? 1 : 0;
  piece p{head, &body, sizeof body};
  p.settled = settled;
  p.payload = what.data;
  p.payload_bytes = what.bytes;
  p.keep = what.keep;
  p.source = what.source;
  p.epoch = what.epoch;
  if (!is_announced(what.epoch, what.bytes)) {
    // Of a collective, whose chunks come by their names.
    if ((what.epoch & point_to_point) == 0 && what.bytes > most_settled && way.may_have(options_.lanes) && alive(to)) {
      want_lanes(way);
      way.striped.push_back({std::move(p), false});  // allocates now and then; for what is not short alone
      return hand_out(way), false;
    }
    if (!send_locked(way, std::move(p)) || !settled) return false;
    way.settled += bytes;
    return true;
  }
  const announce_body announced{body, what.bytes, 0};
  head.kind = frame_kind::announce;
  head.bytes = sizeof announced;
  if (way.now == outgoing::phase::closed || way.problem != 0 || !alive(to)) return false;
  if (goes_in_stripes(way, what.bytes)) want_lanes(way);  // so that they stand when it is cleared
  way.parked.push_back(std::move(p));                     // allocates, for long ones alone
  send_locked(way, piece{head, &announced, sizeof announced});
  return false;
}

void mesh::send_clear(std::uint32_t to, frame_head head, const credit& what) {
  const credit_body body{what.epoch, what.source, what.lane, what.sequence, 0};
  head.kind = frame_kind::clear;
  head.bytes = sizeof body;
  inflow_[to]->cleared.fetch_add(1);
  send(*out_[to], piece{head, &body, sizeof body});
}

void mesh::send_credit(std::uint32_t to, frame_head head, const credit& what) {
  const credit_body body{what.epoch, what.source, what.lane, what.sequence, 0};
  head.kind = frame_kind::credit;
  head.bytes = sizeof body;
  send(*out_[to], piece{head, &body, sizeof body});
}

void mesh::send_from_nic(std::uint32_t to, frame_head head, const chunk& what) {
  const chunk_body body{what.epoch, what.fingerprint, what.source, what.lane, what.sequence, 0};
  head.bytes = sizeof body + what.bytes;
  piece p{head, &body, sizeof body};
  p.payload = what.data;
  p.payload_bytes = what.bytes;
  p.keep = what.keep;
  p.source = what.source;
  p.epoch = what.epoch;
  send(*out_[to], std::move(p));
}

void mesh::send_response(std::uint32_t to, frame_head head, const credit& what) {
  const credit_body body{what.epoch, what.source, what.lane, what.sequence, 0};
  head.kind = frame_kind::response;
  head.bytes = sizeof body;
  send(*out_[to], piece{head, &body, sizeof body});
}

void mesh::send_word(std::uint32_t to, frame_head head, std::vector<std::byte> body) {
  head.bytes = body.size();
  piece p{head, nullptr, 0};
  p.body = std::move(body);
  send(*out_[to], std::move(p));
}

/// A chunk that was announced is not sent at all: others tell its receiver of the end of the operation, and it asks in vain if it does. One that has its
/// number in the connection has to come.
template <class Which>
void mesh::let_go_of(Which&& which) {
  for (const auto& way : out_) {
    if (!way) continue;
    const std::lock_guard lock(way->mutex);
    std::erase_if(way->parked, which);
    const auto own = [&](outgoing& lane) {
      for (piece& p : lane.waiting)
        if (which(p)) p.own();
    };
    own(*way);
    for (const auto& lane : way->lanes) own(*lane);
    for (striped_chunk& c : way->striped)
      if (which(c.whole)) c.whole.own();
  }
}

void mesh::let_go(communicator_id of, rank_t rank, epoch_t epoch, rank_t peer, bool sending) {
  if (peer < 0 || !sending)
    for (const auto& table : places_) table->withdraw(of, rank, epoch, peer);
  if (peer >= 0 && !sending) return;
  let_go_of([&](const piece& p) {
    return p.communicator == of && p.source == rank && p.epoch == epoch && (peer < 0 || p.to == peer);
  });
}

void mesh::let_go(communicator_id of, rank_t rank) {
  for (const auto& table : places_) table->withdraw(of, rank);
  let_go_of([&](const piece& p) { return p.communicator == of && p.source == rank; });
}

// -- the thread -------------------------------------------------------------------------------------------------------------

void mesh::work() {
  std::unique_lock lock(reading_);
  std::array<epoll_event, 64> events;
  bool greeted = false;
  for (steady_time before = clock::now();;) {
    int ms = 0, n = 0;
    try {
      if (leaving_.load() && said_goodbye()) return;
      if (!greeted) {
        presence_.greet(clock::now(), *this);
        if (const std::uint32_t first = first_of_host(roster_, here_); first != here_) tell(first, beat_word{});
      }
      greeted = true;
      connect_those_wanted();
      ms = pause_before_look();
    } catch (const std::exception&) {
      ms = 1;  // no memory: what was not done is done next time, if there is some then
    }
    lock.unlock();
    n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), ms);
    lock.lock();
    const steady_time now = clock::now();
    // This process itself was stopped, or had no core: what the others said meanwhile is not read yet.
    if (now - before > options_.silence / 2 + std::chrono::milliseconds{ms}) {
      presence_.awake(now);
      for (const auto& way : in_) way->began = now;
    }
    before = now;
    try {
      for (int i = 0; i < n; ++i)
        handle(events[static_cast<std::size_t>(i)].data.u64, events[static_cast<std::size_t>(i)].events);
      // Callers may have stopped looking, so the thread looks itself after each nap.
      if (!attends_streams_ && !caller_sleeps_) read_streams();
      read_rings();
      // The bytes that were read here have woken nobody, and the next writer must ring again.
      // Not for ever: a sleeper needs `reading_` to wake up, and a transport may say that something has come, and bring nothing, where who was
      // about to write it was killed.
      for (int turn = 0; turn < most_turns_beside_sleeper && caller_sleeps_ && rings_fall_asleep(); ++turn)
        read_rings();
      std::erase_if(in_, [](const auto& way) { return way->over; });
      if (now >= next_look_) keep_time(now);
      presence_.tell_losses(now, *this);
    } catch (const std::exception&) {
      nap(caller_naps::shortest);  // as above
    }
  }
}

/// Milliseconds to sleep. As long as callers read the rings nobody need be rung awake: the thread naps, and looks whether they still do.
int mesh::pause_before_look() {
  const auto until_look = std::chrono::ceil<std::chrono::milliseconds>(next_look_ - clock::now());
  const std::int64_t ms = std::clamp<std::int64_t>(leaving_.load() ? 5 : until_look.count(), 0, 60'000);
  if (naps_.end(clock::now()) || caller_sleeps_ || waits_for_call_)
    return static_cast<int>(std::min<std::int64_t>(ms, naps_.length().count()));
  resting_ = true;
  return fall_asleep() ? 0 : static_cast<int>(ms);
}

/// True: something has come meanwhile, in a ring or by the transport.
bool mesh::fall_asleep() {
  attend_streams(true);
  return rings_fall_asleep();
}

/// From now on the writers ring. True: something has come before that. Lines ring for what the transport has not taken yet; what it has
/// taken lies in them, more than one turn reads perhaps, and nobody rings for it again.
bool mesh::rings_fall_asleep() {
  bool any = options_.carrier && !options_.carrier->fall_asleep();
  for (const auto& way : in_) {
    if (way->over) continue;
    if (way->ring ? way->ring.fall_asleep() : way->line && way->line->has_input()) any = true;
  }
  return any;
}

/// Nobody need ring: somebody looks.
void mesh::rings_wake_up() {
  for (const auto& way : in_)
    if (way->ring) way->ring.wake_up();
}

/// And lines.
bool mesh::read_rings() {
  bool any = false;
  if (options_.carrier) options_.carrier->progress();
  for (std::size_t i = 0; i < in_.size(); ++i) {
    incoming& way = *in_[i];
    if (way.over || (way.ring ? way.ring.empty() : !way.line || !way.line->has_input())) continue;
    incoming_event(way);
    any = true;
  }
  if (options_.carrier) write_lines();
  return any;
}

/// Writes what waits, where the lines have room again.
void mesh::write_lines() {
  for (const auto& way : out_) {
    if (!way || !way->blocked.load()) continue;
    const std::lock_guard lock(way->mutex);
    if (way->now == outgoing::phase::open && way->line && way->line->has_room() && !way->flush()) wake();
  }
}

/// Whether the mesh's thread looks at them.
void mesh::attend_streams(bool on) {
  if (std::exchange(attends_streams_, on) != on)
    watch(epoll_.get(), streams_.get(), subject::streams, 0, on ? EPOLLIN : 0u, watching::goes_on);
}

bool mesh::read_streams() {
  std::array<epoll_event, 16> events;
  const int n = ::epoll_wait(streams_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < n; ++i)
    handle(events[static_cast<std::size_t>(i)].data.u64, events[static_cast<std::size_t>(i)].events);
  return n > 0;
}

/// A caller's look. Of few connections, most messages come from where the last one came from: asked itself, it gives them a system call
/// sooner than if all were asked first who has something. True: something came.
bool mesh::look_at_streams() {
  const unsigned every = open_streams_ == 1 ? 4 : 2;  // looks at all, and for room
  if (spoke_last_ == nullptr || ++looks_ % every == 0) return read_streams();
  incoming& way = *spoke_last_;
  way.spoke = false;
  incoming_event(way);
  return way.spoke;
}

/// Frames that wait for room in a ring go from here, before the mesh's thread is rung awake.
void mesh::write_rings() {
  for (const auto& way : out_) {
    if (!way || !way->blocked.load(std::memory_order_relaxed)) continue;
    const std::unique_lock lock(way->mutex, std::try_to_lock);
    if (lock && way->now == outgoing::phase::open && !way->flush()) wake();
  }
}

bool mesh::poll() noexcept {
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (!lock || (rings_ == 0 && open_streams_ == 0)) return false;
  try {
    write_rings();
    look_from_here();
    const bool any = rings_ > 0 && read_rings();
    return (open_streams_ > 0 && look_at_streams()) || any;
  } catch (const std::exception&) {  // no memory: the mesh's thread tries again
    wake();
    return false;
  }
}

/// The mesh's thread leaves what comes to callers, for as long as it takes it to nap.
void mesh::look_from_here() {
  naps_.caller_looks(clock::now());
  attend_streams(false);  // which a caller that went to rest has asked for, perhaps
  if (!std::exchange(resting_, false)) return;
  rings_wake_up();
  wake();
}

/// From now on whatever comes wakes the thread that waits for streams_. False: something has come already, and was read.
bool mesh::begin_sleep() {
  look_from_here();
  if (!rings_fall_asleep()) return true;
  rings_wake_up();
  read_rings();
  return false;
}

mesh::slept mesh::sleep(parker& place, steady_time until) noexcept {
  {
    const std::unique_lock lock(reading_, std::try_to_lock);
    if (!lock || caller_sleeps_ || (rings_ == 0 && open_streams_ == 0)) return slept::not_here;
    try {
      if (!begin_sleep()) return slept::woken;
    } catch (const std::exception&) {  // no memory: the mesh's thread tries again
      return wake(), slept::not_here;
    }
    caller_sleeps_ = true;
  }
  std::array<epoll_event, 16> events;
  int n = 0;
  bool rung = false;
  const bool begun = place.begin_at(callers_bell_.get());
  if (begun) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now());
    const auto ms = std::clamp(left, std::chrono::milliseconds{0}, longest_sleep);
    n = ::epoll_wait(streams_.get(), events.data(), static_cast<int>(events.size()), static_cast<int>(ms.count()));
    rung = place.end_at_bell();
  }
  const std::lock_guard lock(reading_);
  caller_sleeps_ = false;
  try {
    look_from_here();
    rings_wake_up();
    for (int i = 0; i < n; ++i)
      handle(events[static_cast<std::size_t>(i)].data.u64, events[static_cast<std::size_t>(i)].events);
    if (rings_ > 0 || options_.carrier) read_rings();
  } catch (const std::exception&) {
    wake();
  }
  return n == 0 && begun && !rung && clock::now() < until ? slept::in_vain : slept::woken;
}

bool mesh::rest() noexcept {
  const std::unique_lock lock(reading_, std::try_to_lock);
  // A caller that sleeps here reads for all, and rests itself when that takes long.
  if (!lock || caller_sleeps_ || (rings_ == 0 && open_streams_ == 0)) return false;
  try {
    return fall_asleep() && read_rings();
  } catch (const std::exception&) {
    wake();
    return false;
  }
}

namespace {
void drain(int bell) noexcept {
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(bell, &rung, sizeof rung);
}
}  // namespace

void mesh::handle(std::uint64_t which, std::uint32_t events) {
  const auto id = static_cast<std::uint32_t>(which);
  switch (static_cast<subject>(which >> 32)) {
    case subject::bell: return drain(bell_.get());
    // Left ringing while a caller sleeps: it has to wake that one.
    case subject::callers_bell:
      if (!caller_sleeps_) drain(callers_bell_.get());
      return;
    case subject::listener: try { return accept_all(listeners_[id].get());
      } catch (const std::exception&) {  // no memory, or no descriptors: callers are heard with the next look
        accepting_ = false;
        return watch_listeners(0, watching::goes_on);
      }
    case subject::streams: static_cast<void>(read_streams()); return;
    case subject::carrier: return;  // read_rings() follows
    case subject::outgoing:
    case subject::lane: {
      const bool further = static_cast<subject>(which >> 32) == subject::lane;
      const std::uint32_t process = further ? id / most_connections : id;
      try {
        return outgoing_event(*lane_of(*out_[process], further ? id % most_connections : 0), events);
      } catch (const std::exception& e) {
        return lose(process, text_or_nothing("nothing can be sent to it: ", e.what()));
      }
    }
    case subject::incoming:
      for (const auto& way : in_)
        if (way->id == id && !way->over) return incoming_event(*way);
      return;
  }
}

}  // namespace troupe::actors
