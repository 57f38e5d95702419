// SPDX-License-Identifier: Apache-2.0
// How a mesh gets its connections to others, and what happens on them afterwards.
#include <fcntl.h>
#include <sys/epoll.h>

#include "actors/ports/link/mesh_connections.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {
using clock = std::chrono::steady_clock;
}

/// Also those whose writers met a problem.
void mesh::connect_those_wanted() {
  waits_for_call_ = false;
  for (const auto& first : out_) {
    if (!first) continue;
    std::size_t lane = 0;
    while (outgoing* const way = lane_of(*first, lane++)) connect_if_wanted(*way);
  }
}

void mesh::connect_if_wanted(outgoing& way) {
  std::unique_lock lock(way.mutex);
  if (way.problem != 0 && way.now == outgoing::phase::open) {
    const std::string how = "a connection to it failed: " + way.why();
    lock.unlock();
    return lose(way.process, how);
  }
  if (way.now != outgoing::phase::wanted) return;
  const steady_time now = clock::now();
  if (way.wanted_since == steady_time{}) way.wanted_since = now;
  if (way.lane == 0 && now < way.wanted_since + most_expected && is_called_back(way.process, now)) {
    waits_for_call_ = true;
    return;
  }
  way.give_up = now + options_.to_connect;
  const bool same_host = roster_.processes[way.process].host_key == roster_.processes[here_].host_key;
  for (const std::string& text : roster_.processes[way.process].addresses) {
    try {
      for (const socket_address& a : socket_address::resolve(text))
        if (a.family() != AF_UNIX || (same_host && way.lane == 0)) way.addresses.push_back(a);
    } catch (const error& e) {
      way.tried += (way.tried.empty() ? "" : "; ") + std::string{e.what()};
    }
  }
  try_next_address(way, lock, {});
}

/// It is calling this one, which can answer there.
bool mesh::is_called_back(std::uint32_t process, steady_time now) {
  return std::any_of(in_.begin(), in_.end(), [&](const auto& way) {
    return !way->local && !way->known && !way->over && way->hands.peer() == process && way->hands.lane() == 0 &&
           now < way->began + most_expected;
  });
}

/// One of the further lanes is done without if there is none. @pre locked; it may be left unlocked
void mesh::try_next_address(outgoing& way, std::unique_lock<std::mutex>& lock, const std::string& why) {
  stop_watching(way.stream ? streams_.get() : epoll_.get(), way.socket.get());
  way.socket.reset();
  way.tls.reset();
  way.line.reset();
  way.stream = false;
  if (!why.empty()) way.tried += (way.tried.empty() ? "" : "; ") + why;
  while (way.next_address < way.addresses.size()) {
    const socket_address& to = way.addresses[way.next_address++];
    try {
      way.socket = begin_connect(to);
      tune_socket(way.socket.get(), static_cast<int>(options_.silence.count()));
      watch(way, EPOLLOUT | EPOLLIN, watching::begins);
      way.hands.emplace(handshake::calling({roster_.job, here_, way.process, options_.build, way.lane}, key_));
      way.unsent = way.hands->take_output();
      if (options_.tls && to.family() != AF_UNIX)
        way.tls = std::make_shared<tls_line>(options_.tls, tls_line::side::caller);
      way.now = outgoing::phase::connecting;
      return;
    } catch (const error& e) {
      way.tried += (way.tried.empty() ? "" : "; ") + std::string{e.what()};
    }
  }
  if (way.lane != 0) {
    close_locked(way);
    const int open = lanes_open(way.first);
    lock.unlock();
    return receiver_.lanes_changed(way.process, open, way.tried);
  }
  const std::string how = "it cannot be reached (" + way.tried + ")";
  lock.unlock();
  lose(way.process, how);
}

bool send_plain(int socket, tls_line* tls, std::vector<std::byte>& bytes, int& problem) {
  while (!bytes.empty()) {
    const iovec all{bytes.data(), bytes.size()};
    const ssize_t taken = tls != nullptr ? tls->send(socket, {&all, 1})
                                         : ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && errno != EAGAIN && errno != EWOULDBLOCK) problem = errno;
    if (taken < 0) return false;
    bytes.erase(bytes.begin(), bytes.begin() + taken);
  }
  if (tls == nullptr || tls->flush(socket)) return true;
  if (errno != EAGAIN) problem = errno;
  return false;
}

bool feed_from(int socket, tls_line* tls, handshake& hands, std::string& why) {
  std::array<std::byte, 512> some;
  while (hands.state() == handshake::status::going) {
    // Looks first, since what comes behind the handshake is not for it.
    const ssize_t seen = tls != nullptr ? tls->receive(socket, some, tls_line::reading::looks)
                                        : ::recv(socket, some.data(), some.size(), MSG_DONTWAIT | MSG_PEEK);
    if (seen < 0 && errno == EINTR) continue;
    if (seen < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (seen <= 0) return why = seen == 0 ? "the connection was closed" : text_of_problem(tls, errno), false;
    if (tls != nullptr) hands.bind(tls->binding());
    const std::size_t used = hands.feed(std::span(some).first(static_cast<std::size_t>(seen)));
    if (used > 0) [[maybe_unused]]
      const ssize_t gone = tls != nullptr ? tls->receive(socket, std::span(some).first(used))
                                          : ::recv(socket, some.data(), used, MSG_DONTWAIT);
    if (used < static_cast<std::size_t>(seen)) return true;
  }
  return true;
}

void mesh::go_on_connecting(outgoing& way) {
  std::unique_lock lock(way.mutex);
  const std::string at = way.addresses[way.next_address - 1].to_string();
  if (way.now == outgoing::phase::connecting) {
    if (const int problem = connect_error(way.socket.get()); problem != 0)
      return try_next_address(way, lock, at + ": " + text_of_errno(problem));
    way.now = outgoing::phase::shaking;
  }
  int problem = 0;
  std::string why;
  tls_line* const tls = way.tls.get();
  if (!feed_from(way.socket.get(), tls, *way.hands, why)) return try_next_address(way, lock, at + ": " + why);
  const std::vector<std::byte> more = way.hands->take_output();
  way.unsent.insert(way.unsent.end(), more.begin(), more.end());
  const bool carried = options_.carrier && socket_address::own(way.socket.get()).family() != AF_UNIX;
  if (carried && !way.line && way.hands->state() == handshake::status::done) {
    try {
      way.line = line_of(way.process, *way.hands);  // before the other end can send there
    } catch (const error& e) {
      return try_next_address(way, lock, at + ": " + e.what());
    }
  }
  const bool sent = send_plain(way.socket.get(), tls, way.unsent, problem);
  if (problem != 0) return try_next_address(way, lock, at + ": " + text_of_problem(tls, problem));
  if (way.hands->state() == handshake::status::refused)
    return try_next_address(way, lock, at + ": " + way.hands->why());
  // Until TLS has begun nothing is taken, and what is waited for is the other end's turn.
  const bool full = tls != nullptr ? tls->holds_output() : !sent;
  if (way.hands->state() != handshake::status::done || !sent)
    return watch(way, full ? EPOLLIN | EPOLLOUT : EPOLLIN, watching::goes_on);
  way.local = socket_address::own(way.socket.get()).family() == AF_UNIX;
  if (way.line && !line_stands(way, lock, at)) return;
  way.hands.reset();
  if (way.local) {
    try {
      way.ring = byte_ring::make();
    } catch (const error&) {  // no memory, no descriptors: the frames go through the socket
    }
    if (!send_descriptor(way.socket.get(), way.ring ? way.ring.get() : -1))
      return try_next_address(way, lock, at + ": its memory cannot be passed: " + text_of_errno(errno));
    way.ring.passed();
  } else {
    keep_flight_short(way.socket.get());
  }
  stop_watching(epoll_.get(), way.socket.get());
  way.stream = true;
  way.now = outgoing::phase::open;
  way.opened = clock::now();
  way.writing = true;
  watch(way, EPOLLIN | EPOLLOUT, watching::begins);  // what has waited goes next
  if (way.lane == 0) return;
  keep_alive(way.socket.get());
  const int open = lanes_open(way.first);
  lock.unlock();
  receiver_.lanes_changed(way.process, open, {});
}

/// Throws error(io): there is no way to there.
std::shared_ptr<transport_line> mesh::line_of(std::uint32_t process, const handshake& hands) {
  return options_.carrier->line_to(roster_.processes[process].carrier, hands.names_of_line());
}

/// The other end of the line, too. False: not yet, or the next address is tried. @pre locked; it may be left unlocked
bool mesh::line_stands(outgoing& way, std::unique_lock<std::mutex>& lock, const std::string& at) {
  std::byte said{};
  const ssize_t seen = ::recv(way.socket.get(), &said, 1, MSG_DONTWAIT);
  if (seen == 1 && said == line_is_there) return true;
  if (seen < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return watch(way, EPOLLIN, watching::goes_on), false;
  const std::string closed = seen == 0 ? "the connection was closed" : text_of_errno(errno);
  return try_next_address(way, lock, at + ": " + (seen == 1 ? "it sent what cannot be read" : closed)), false;
}

// -- one connection for both directions ---------------------------------------------------------------------------------------

/// This one is calling it, and is the one that is answered: it has the lower number. Or it has just been answered, and the other one, which looks at
/// its connections in any order, must not hear of an answer before it has heard that.
bool mesh::keeps_answer_back(incoming& way) {
  const std::uint32_t who = way.hands.peer();
  if (way.local || way.hands.lane() != 0 || who >= processes() || who <= here_ || !is_answered_soon(*out_[who]))
    return false;
  way.kept_back = true;
  watch(way, 0, watching::goes_on);
  return true;
}

bool mesh::is_answered_soon(outgoing& way) {
  const std::lock_guard lock(way.mutex);
  using phase = outgoing::phase;
  if (way.now == phase::open) return !way.shared && clock::now() < way.opened + most_until_frames_follow;
  return way.now == phase::connecting || way.now == phase::shaking;
}

/// A caller that was answered meanwhile has given up its own call; one that could not be may go on.
void mesh::answer_those_kept_back(std::uint32_t process) {
  for (const auto& way : in_)
    if (!way->over && way->hands.peer() == process && std::exchange(way->kept_back, false))
      watch(*way, EPOLLIN | EPOLLOUT, watching::goes_on);
}

/// Frames for it go back there, unless this process has a connection of its own already.
void mesh::answer_on(incoming& way) {
  outgoing& mine = *out_[way.process];
  const std::lock_guard lock(mine.mutex);
  using phase = outgoing::phase;
  const bool calling = mine.now == phase::connecting || mine.now == phase::shaking;
  if (mine.now == phase::open || mine.now == phase::closed || (calling && here_ < way.process)) return;
  descriptor same{::fcntl(way.socket.get(), F_DUPFD_CLOEXEC, 0)};
  if (!same || !say_back(way, frames_follow)) return;
  stop_watching(epoll_.get(), mine.socket.get());
  mine.socket = std::move(same);
  mine.tls = way.tls;
  mine.line = way.line;
  mine.hands.reset();
  mine.unsent.clear();
  mine.stream = mine.shared = way.shared = true;
  mine.now = phase::open;
  keep_flight_short(mine.socket.get());
  if (!mine.flush()) wake();  // whose thread sees to it
  else wait_for_room(mine, mine.has_more());
}

/// A single byte against its frames. False: it has not been taken.
bool mesh::say_back(incoming& way, std::byte what) {
  const iovec one{&what, 1};
  return way.tls ? way.tls->send(way.socket.get(), {&one, 1}) == 1
                 : ::send(way.socket.get(), &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/// The other process's frames come on the connection that this one has opened.
void mesh::receive_on(outgoing& way) {
  const bool twice = std::any_of(in_.begin(), in_.end(), [&](const auto& other) {
    return other->known && !other->over && other->process == way.process && other->lane == 0;
  });
  if (twice) return lose(way.process, "it sent what cannot be read");
  {
    const std::lock_guard lock(way.mutex);
    descriptor same{::fcntl(way.socket.get(), F_DUPFD_CLOEXEC, 0)};
    if (!same) throw error(errc::io, "no descriptors are left: " + text_of_errno(errno));
    in_.push_back(std::make_unique<incoming>(next_incoming_++, std::move(same),
                                             handshake::answering({roster_.job, 0, here_, options_.build}, key_),
                                             clock::now()));
    // Others wait for what comes now.
    stop_watching(streams_.get(), way.socket.get());
    way.shared = true;
    if (std::exchange(way.writing, false)) wait_for_room(way, true);
  }
  incoming& back = *in_.back();
  back.shared = back.known = true;
  back.tls = way.tls;
  back.line = way.line;
  back.process = way.process;
  presence_.hears(way.process, true, clock::now());
  begin_stream(back);
  answer_those_kept_back(way.process);
  incoming_event(back);
}

/// Single bytes come in this direction, a descriptor perhaps, and the end of the connection. False: nothing more is to be sent.
bool mesh::take_back_bytes(outgoing& way, back_bytes& said) {
  std::string& how = said.how;
  std::array<std::byte, 64> bytes{};
  descriptor passed;
  bool dropped = false;
  // Of a connection between hosts one by one: frames may follow.
  const std::size_t most = way.ring ? bytes.size() : 1;
  const ssize_t seen = way.tls ? way.tls->receive(way.socket.get(), std::span(bytes).first(most))
                               : receive_some(way.socket.get(), std::span(bytes).first(most), passed, dropped);
  for (ssize_t i = 0; i < seen; ++i) {
    const std::byte b = bytes[static_cast<std::size_t>(i)];
    if (b == leaves_in_order) said.left = true;
    else if (b == taken_for_lost) said.lost = true;
    else if (b == frames_follow && !way.ring) said.frames = true;
    else if (b == carries_descriptor && dropped && !passed)
      how = "the memory of the host that it passed was not received: no descriptors are left in " +
            name_of(roster_, here_);
    else if (b != there_is_room && (b != carries_descriptor || !passed)) how = "it sent what cannot be read";
  }
  if (passed && how.empty()) {
    const std::lock_guard lock(shared_mutex_);
    shared_ = std::move(passed);
    shared_came_.notify_all();
  }
  if (seen == 0) how = "it closed a connection";
  else if (seen < 0 && errno != EAGAIN && errno != EINTR)
    how = "a connection to it failed: " + text_of_problem(way.tls.get(), errno);
  return how.empty() && !said.left && !said.lost;
}

void mesh::outgoing_event(outgoing& way, std::uint32_t events) {
  switch (way.phase_now()) {
    case outgoing::phase::connecting:
    case outgoing::phase::shaking: return go_on_connecting(way);
    case outgoing::phase::open: break;
    default: return;  // an event of a connection that has been closed since
  }
  back_bytes said;
  std::string& how = said.how;
  {
    const std::lock_guard lock(way.mutex);
    const bool readable = (events & EPOLLIN) != 0 || (way.tls && way.tls->holds_input());
    if (readable && !way.shared && !take_back_bytes(way, said)) {
    } else if (!way.flush()) how = "a connection to it failed: " + way.why();
    if (!said.left && how.empty() && (way.line || !way.has_more())) wait_for_room(way, false);
  }
  if (way.lane != 0) {
    if (said.frames || said.left || said.lost) how = "it sent what cannot be read";
    if (way.said_bye && !how.empty()) {  // which has been heard
      const std::lock_guard lock(way.mutex);
      return close_locked(way);
    }
  } else if (said.frames && how.empty()) {
    return receive_on(way);
  }
  if (said.left && way.lane == 0) return leaves(way.process);
  if (said.lost && way.lane == 0) {
    presence_.word(way.process, lost_word{here_, "it says so"}, clock::now(), *this);
    return;
  }
  if (how.empty()) return;
  // "bye" may be on its way, in the connection of the other direction.
  if (options_.carrier) options_.carrier->progress();
  for (const auto& other : in_)
    if (other->known && other->process == way.process && other->lane == 0 && !other->over) incoming_event(*other);
  lose(way.process, how);
}

}  // namespace troupe::actors
