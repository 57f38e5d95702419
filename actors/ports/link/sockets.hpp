// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sockets of the link port, without a library between: a thread that waits for a message reads it itself (design: callers help), which an event
// loop with handlers of its own would hand to another thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/socket.h>

namespace troupe::actors {

/// Owns a file descriptor. Movable.
class descriptor {
public:
  descriptor() = default;
  explicit descriptor(int fd) : fd_(fd) {}
  ~descriptor() { reset(); }
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

private:
  int fd_ = -1;
};

/// Where a socket listens, or may be reached: an Internet address with a port, or a name of a Unix socket without a file.
class socket_address {
public:
  socket_address() = default;
  /// "tcp://host:port", "tcp://[v6]:port", "unix:@name"; without the scheme it is tcp. All addresses that a host's name stands for.
  /// Throws error(bad_config) for a text that is none, error(io) for a name that is unknown.
  static std::vector<socket_address> resolve(std::string_view text);
  static socket_address of(const sockaddr* address, socklen_t bytes);
  /// Of the socket's own end; and of the other.
  static socket_address own(int socket);
  static socket_address other(int socket);

  /// resolve() reads it back.
  std::string to_string() const;
  /// Reachable from this host only.
  bool is_local() const;
  /// Any address of the host, port as it is: what a listener may be bound to, and nobody can connect to.
  bool is_any() const;
  int family() const { return where_.ss_family; }
  std::uint16_t port() const;
  socket_address with_port(std::uint16_t port) const;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&where_); }
  socklen_t bytes() const { return bytes_; }

private:
  sockaddr_storage where_{};
  socklen_t bytes_ = 0;
};

/// The host's addresses beyond loopback, the best first: IPv4 before IPv6, as the system lists them.
/// @param interfaces names of network interfaces, or their beginnings, separated by commas ("eth,ib0"); with a '^' before it, those that are
///        not meant; empty: all that are up and not of containers or bridges without a carrier. Throws error(bad_config) if none is left of a list that was given.
std::vector<socket_address> addresses_of_host(std::string_view interfaces);

/// Non-blocking, closed on exec. Throw error(io) with the address and the system's reason.
descriptor listen_at(const socket_address& where);
/// Empty: nobody is there now. A connection that cannot be accepted (descriptors run out) is left to the next look; `why` has the reason.
descriptor accept_from(int listener, std::string& why);
/// False: at the other end of a Unix socket is another user, who has no business there. Of an Internet socket nobody knows.
bool is_same_user(int socket);
/// Begins to connect; writable when that has ended, see connect_error().
descriptor begin_connect(const socket_address& to);
/// 0: connected; else errno.
int connect_error(int socket);
/// Small messages go at once; what is not answered for `timeout_ms` ends the connection; loopback buffers as the system has them.
void tune_socket(int socket, int timeout_ms);
/// Of a connection that is open: to a host that is near, no more bytes are under way than stay in a core's cache. Of others as the system
/// thinks best, and of what is no TCP.
void keep_flight_short(int socket) noexcept;
/// The system tells the sender at once what has come. It may keep that back for 40 ms, until there is something to send along with it; and the sender waits
/// for it where its congestion window is short, as it is at first and after every loss.
void acknowledge(int socket) noexcept;
/// The system says something on the connection now and then when nobody else does, so that no box on its way forgets it.
void keep_alive(int socket) noexcept;

/// "Connection refused" …
std::string text_of_errno(int error);

}  // namespace troupe::actors
