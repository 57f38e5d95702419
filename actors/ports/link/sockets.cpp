// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/sockets.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include "memory/error.hpp"

namespace troupe::actors {

namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw troupe::error(errc::io, what + ": " + text_of_errno(error));
}

[[noreturn]] void refuse(std::string_view text, const char* why) {
  throw error(errc::bad_config, "\"" + std::string{text} + "\" is no address: " + why +
                                    "; write tcp://host:port, tcp://[v6 address]:port or unix:@name");
}

socket_address unix_address(std::string_view text, std::string_view name) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  if (name.size() < 2 || name.front() != '@') refuse(text, "a Unix socket's name begins with @ and has no file");
  if (name.size() > sizeof where.sun_path) refuse(text, "a Unix socket's name has at most 107 characters");
  std::memcpy(where.sun_path + 1, name.data() + 1, name.size() - 1);  // behind a zero: without a file
  return socket_address::of(reinterpret_cast<const sockaddr*>(&where),
                            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size()));
}

bool matches(std::string_view name, std::string_view list) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (const std::string_view one = list.substr(0, comma); !one.empty() && name.starts_with(one)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

void descriptor::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string text_of_errno(int error) { return std::generic_category().message(error); }

// -- addresses ----------------------------------------------------------------------------------------------------------

socket_address socket_address::of(const sockaddr* address, socklen_t bytes) {
  socket_address a;
  a.bytes_ = std::min<socklen_t>(bytes, sizeof a.where_);
  std::memcpy(&a.where_, address, a.bytes_);
  return a;
}

socket_address socket_address::own(int socket) {
  sockaddr_storage where{};
  socklen_t bytes = sizeof where;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&where), &bytes) != 0) fail("a socket's own address", errno);
  return of(reinterpret_cast<const sockaddr*>(&where), bytes);
}

socket_address socket_address::other(int socket) {
  sockaddr_storage where{};
  socklen_t bytes = sizeof where;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&where), &bytes) != 0) return {};
  return of(reinterpret_cast<const sockaddr*>(&where), bytes);
}

std::vector<socket_address> socket_address::resolve(std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with("unix:")) return {unix_address(text, rest.substr(5))};
  if (rest.starts_with("tcp://")) rest.remove_prefix(6);
  else if (rest.find("://") != rest.npos) refuse(text, "its scheme is unknown");
  std::string host;
  const bool bracketed = rest.starts_with('[');
  const std::size_t end = bracketed ? rest.find(']') : rest.rfind(':');
  if (end == rest.npos || (bracketed && !rest.substr(end + 1).starts_with(':'))) refuse(text, "it has no port");
  host = bracketed ? rest.substr(1, end - 1) : rest.substr(0, end);
  if (!bracketed && host.find(':') != host.npos) refuse(text, "an IPv6 address stands in brackets");
  const std::string_view digits = rest.substr(end + (bracketed ? 2 : 1));
  std::uint16_t port = 0;
  const auto [stop, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.empty()) refuse(text, "it has no host");
  if (bad != std::errc{} || stop != digits.data() + digits.size()) refuse(text, "its port is no number up to 65535");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  if (bracketed) hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (problem != 0) throw error(errc::io, "the host \"" + host + "\" is not known here: " + ::gai_strerror(problem));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{found, ::freeaddrinfo};
  std::vector<socket_address> all;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next)
    all.push_back(of(a->ai_addr, a->ai_addrlen).with_port(port));
  return all;
}

std::string socket_address::to_string() const {
  char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 1] = "";
  switch (family()) {
    case AF_INET:
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&where_)->sin_addr, text, sizeof text);
      return "tcp://" + std::string{text} + ":" + std::to_string(port());
    case AF_INET6: {
      const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(&where_);
      ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
      std::string scope;
      if (char name[IF_NAMESIZE]; v6.sin6_scope_id != 0 && ::if_indextoname(v6.sin6_scope_id, name) != nullptr)
        scope = "%" + std::string{name};
      return "tcp://[" + std::string{text} + scope + "]:" + std::to_string(port());
    }
    case AF_UNIX: {
      const auto& un = *reinterpret_cast<const sockaddr_un*>(&where_);
      const std::size_t name = bytes_ > offsetof(sockaddr_un, sun_path) ? bytes_ - offsetof(sockaddr_un, sun_path) : 0;
      return name > 1 ? "unix:@" + std::string(un.sun_path + 1, name - 1) : "unix:@";
    }
    default: return "nowhere";
  }
}

bool socket_address::is_local() const {
  if (family() == AF_UNIX) return true;
  if (family() == AF_INET) return (ntohl(reinterpret_cast<const sockaddr_in*>(&where_)->sin_addr.s_addr) >> 24) == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&where_)->sin6_addr);
}

bool socket_address::is_any() const {
  if (family() == AF_INET) return reinterpret_cast<const sockaddr_in*>(&where_)->sin_addr.s_addr == htonl(INADDR_ANY);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&where_)->sin6_addr);
}

std::uint16_t socket_address::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&where_)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&where_)->sin6_port);
  return 0;
}

socket_address socket_address::with_port(std::uint16_t port) const {
  socket_address a = *this;
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&a.where_)->sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&a.where_)->sin6_port = htons(port);
  return a;
}

std::vector<socket_address> addresses_of_host(std::string_view interfaces) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) fail("the list of network interfaces", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner{found, ::freeifaddrs};
  const bool without = interfaces.starts_with('^');
  const std::string_view list = interfaces.substr(without ? 1 : 0);
  std::vector<socket_address> all;
  std::string seen;
  for (const ifaddrs* i = found; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const bool named = !list.empty() && matches(i->ifa_name, list) != without;
    if (seen.find(i->ifa_name) == seen.npos) seen += (seen.empty() ? "" : ", ") + std::string{i->ifa_name};
    if (!list.empty() && !named) continue;
    if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_RUNNING) == 0) continue;
    if (list.empty() && ((i->ifa_flags & IFF_LOOPBACK) != 0 || matches(i->ifa_name, "docker,virbr"))) continue;
    all.push_back(socket_address::of(i->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
  }
  // Link-local addresses mean something only beside the interface's name of this very host.
  std::erase_if(all, [](const socket_address& a) {
    return a.family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(a.get())->sin6_addr);
  });
  if (all.empty() && !list.empty())
    throw error(errc::bad_config, "no network interface that is up fits \"" + std::string{interfaces} +
                                      "\"; this host has " + (seen.empty() ? "none" : seen));
  std::stable_sort(all.begin(), all.end(),
                   [](const socket_address& a, const socket_address& b) { return a.family() < b.family(); });
  return all;
}

// -- sockets ------------------------------------------------------------------------------------------------------------

descriptor listen_at(const socket_address& where) {
  descriptor s{::socket(where.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!s) fail("a socket to listen at " + where.to_string(), errno);
  const int on = 1;
  if (where.family() != AF_UNIX) ::setsockopt(s.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (where.family() == AF_INET6 && where.is_any()) {
    const int off = 0;
    ::setsockopt(s.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(s.get(), where.get(), where.bytes()) != 0 || ::listen(s.get(), SOMAXCONN) != 0)
    fail("cannot listen at " + where.to_string(), errno);
  return s;
}

descriptor accept_from(int listener, std::string& why) {
  for (;;) {
    descriptor s{::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (s || errno == EAGAIN || errno == EWOULDBLOCK) return s;
    if (errno == EINTR || errno == ECONNABORTED) continue;  // that one is gone; there may be another
    why = "a connection could not be accepted: " + text_of_errno(errno);
    return {};
  }
}

bool is_same_user(int socket) {
  ucred other{};
  socklen_t bytes = sizeof other;
  if (socket_address::own(socket).family() != AF_UNIX) return true;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.uid == ::geteuid();
}

descriptor begin_connect(const socket_address& to) {
  descriptor s{::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!s) fail("a socket to connect to " + to.to_string(), errno);
  for (;;) {
    if (::connect(s.get(), to.get(), to.bytes()) == 0 || errno == EINPROGRESS) return s;
    if (errno != EINTR) fail("cannot connect to " + to.to_string(), errno);
  }
}

int connect_error(int socket) {
  int problem = 0;
  socklen_t bytes = sizeof problem;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &problem, &bytes) != 0) return errno;
  return problem;
}

void tune_socket(int socket, int timeout_ms) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // of a Unix socket: refused, and not needed
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

void keep_flight_short(int socket) noexcept {
#ifdef TCP_INFO
  // The system lets a buffer grow to several MiB. Bytes that wait in it have left the caches when they are sent and received: an exchange of
  // 16 MiB took two to three times as long. With a megabyte under way (Linux doubles what is asked for) 5 GB/s are carried as far as this.
  constexpr std::uint32_t near_us = 200;
  constexpr int bytes = 512 * 1024;
  tcp_info seen{};
  socklen_t size = sizeof seen;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &seen, &size) == 0 && seen.tcpi_rtt <= near_us)
    static_cast<void>(::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes));
#else
  static_cast<void>(socket);
#endif
}

void acknowledge(int socket) noexcept {
#ifdef TCP_QUICKACK
  constexpr int now = 1;
  static_cast<void>(::setsockopt(socket, IPPROTO_TCP, TCP_QUICKACK, &now, sizeof now));
#else
  static_cast<void>(socket);
#endif
}

void keep_alive(int socket) noexcept {
  constexpr int on = 1, idle_seconds = 30, between_seconds = 10;
  static_cast<void>(::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
  static_cast<void>(::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds));
  static_cast<void>(::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between_seconds, sizeof between_seconds));
}

}  // namespace troupe::actors
