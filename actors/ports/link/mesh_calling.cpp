// SPDX-License-Identifier: Apache-2.0
// How a mesh gets its connections to others, and what happens on them afterwards.
#include <sys/epoll.h>

#include "actors/ports/link/mesh_connections.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {
using clock = std::chrono::steady_clock;
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
  stop_watching(way.stream ? streams_.get() : epoll_.get(), way.socket.get());
  way.socket.reset();
  way.stream = false;
  if (!why.empty()) way.tried += (way.tried.empty() ? "" : "; ") + why;
  while (way.next_address < way.addresses.size()) {
    const socket_address& to = way.addresses[way.next_address++];
    try {
      way.socket = begin_connect(to);
      tune_socket(way.socket.get(), static_cast<int>(options_.silence.count()));
      watch(way, EPOLLOUT | EPOLLIN, watching::begins);
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
    return watch(way, sent ? EPOLLIN : EPOLLIN | EPOLLOUT, watching::goes_on);
  way.hands.reset();
  const bool local = socket_address::own(way.socket.get()).family() == AF_UNIX;
  if (local) {
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
  way.writing = true;
  watch(way, EPOLLIN | EPOLLOUT, watching::begins);  // what has waited goes next
}

/// Single bytes come in this direction, a descriptor perhaps, and the end of the connection. False: nothing more is to be sent.
bool mesh::take_back_bytes(outgoing& way, back_bytes& said) {
  std::string& how = said.how;
  std::array<std::byte, 64> bytes{};
  descriptor passed;
  bool dropped = false;
  const ssize_t seen = receive_some(way.socket.get(), bytes, passed, dropped);
  for (ssize_t i = 0; i < seen; ++i) {
    const std::byte b = bytes[static_cast<std::size_t>(i)];
    if (b == leaves_in_order) said.left = true;
    else if (b == taken_for_lost) said.lost = true;
    else if (b == carries_descriptor && dropped && !passed)
      how = "the memory of the host that it passed was not received: no descriptors are left here";
    else if (b != there_is_room && (b != carries_descriptor || !passed)) how = "it sent what cannot be read";
  }
  if (passed && how.empty()) {
    const std::lock_guard lock(shared_mutex_);
    shared_ = std::move(passed);
    shared_came_.notify_all();
  }
  if (seen == 0) how = "it closed a connection";
  else if (seen < 0 && errno != EAGAIN && errno != EINTR) how = "a connection to it failed: " + text_of_errno(errno);
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
    if ((events & EPOLLIN) != 0 && !take_back_bytes(way, said)) {
    } else if (!way.flush()) how = "a connection to it failed: " + text_of_errno(way.problem);
    if (!said.left && how.empty() && way.waiting.empty() && way.writing) {
      way.writing = false;
      watch(way, EPOLLIN, watching::goes_on);
    }
  }
  if (said.left) return leaves(way.process);
  if (said.lost) {
    presence_.word(way.process, lost_word{here_, "it says so"}, clock::now(), *this);
    return;
  }
  if (how.empty()) return;
  // "bye" may be on its way, in the connection of the other direction.
  for (const auto& other : in_)
    if (other->known && other->process == way.process && !other->over) incoming_event(*other);
  lose(way.process, how);
}

}  // namespace troupe::actors
