// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hosts that are processes of this one which say different names, and so share no memory: their connections are those between hosts.

#include <string>

#include "actors/ports/link/sockets.hpp"
#include "tests/processes/processes.hpp"

namespace process_tests {

/// Nobody listens there, just now.
inline std::string free_address() {
  const auto s = troupe::actors::listen_at(troupe::actors::socket_address::resolve("tcp://127.0.0.1:0").front());
  return troupe::actors::socket_address::own(s.get()).to_string();
}

/// @param at free_address()
inline troupe::join_options on_host(const member& m, const std::string& at, const std::string& host) {
  troupe::join_options how = m.how();
  how.rendezvous = at;
  how.key = std::string(64, '5');
  how.interfaces = "lo";
  how.host = host;
  return how;
}

/// Each process is a host.
inline troupe::join_options apart(const member& m, const std::string& at) {
  return on_host(m, at, "host of process " + std::to_string(m.process));
}

}  // namespace process_tests
