// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/launch/meeting_place.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <sys/socket.h>

#include "engine/tools/launch/child.hpp"
#include "memory/error.hpp"

namespace troupe::launch {

namespace {

using addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// @param flags of getaddrinfo
addresses resolve(const std::string& host, const std::string& port, int type, int flags, std::string& problem) {
  addrinfo wanted{};
  wanted.ai_socktype = type;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int why = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); why != 0) {
    problem = gai_strerror(why);
    found = nullptr;
  }
  return {found, freeaddrinfo};
}

/// "tcp://192.0.2.1:7000", "tcp://[fd00::1]:7000"
std::string written(const sockaddr_storage& address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(), port.data(),
                  port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    throw error(errc::io, "an own address cannot be written down");
  const std::string name = host.data();
  return "tcp://" + (name.find(':') == std::string::npos ? name : "[" + name + "]") + ":" + port.data();
}

std::string own_address(const owned_descriptor& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw error(errc::io, std::string{"a socket's address cannot be found out: "} + std::strerror(errno));
  return written(address, length);
}

}  // namespace

std::string listen_for(const std::vector<host>& hosts) {
  const auto there = std::find_if(hosts.begin(), hosts.end(), [](const host& h) { return !h.here(); });
  if (there == hosts.end()) return "tcp://127.0.0.1:0";
  const std::string advice = "; --listen tcp://ADDRESS:0 says under which address the hosts reach this one";
  std::string problem;
  const addresses found = resolve(there->address, "9", SOCK_DGRAM, AI_NUMERICSERV, problem);
  if (!found) throw error(errc::bad_config, "host " + there->address + " cannot be found: " + problem + advice);
  // Connecting a datagram socket sends nothing: it only looks up the way.
  const owned_descriptor way{socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!way.open() || connect(way.get(), found->ai_addr, found->ai_addrlen) != 0)
    throw error(errc::bad_config, "there is no way to host " + there->address + ": " + std::strerror(errno) + advice);
  const std::string own = own_address(way);
  return own.substr(0, own.rfind(':')) + ":0";
}

}  // namespace troupe::launch
