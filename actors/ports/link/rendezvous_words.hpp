// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is said at a rendezvous (rendezvous.hpp) behind the handshake: messages of four bytes length and a body, an enrolment from each process, and
// answers from the service. All without sockets, clocks or trust: a body is read to its end or not at all, and what it says can be.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/ports/link/roster.hpp"

namespace troupe::actors {

/// What a process says of itself.
struct enrolment {
  std::uint32_t process = 0;
  std::uint32_t processes = 1;
  process_place place;   ///< but for first_rank
  std::string settings;  ///< what all must have said alike, a line each: "choreography = auto"
  std::vector<double>
      costs;  ///< what its machine costs: numbers of which the larger is the dearer, as many in every process
};

/// Of a process that had come, and whose connection has ended.
struct departure {
  std::uint32_t process = 0;
  std::string who_and_how;  ///< "pid 17 on host a: the connection was closed"
};

/// From the service: one of the three is said.
struct rendezvous_answer {
  std::vector<std::uint32_t> missing;  ///< who have not come
  std::vector<departure> gone;
  std::string turned_away;  ///< the last one, and why; if anybody was
  std::string refused;
  bool complete = false;
  roster all;  ///< if complete
};

/// Bytes of a roster, and of what a process says of itself. A roster of 65 536 processes has 1 KiB for each: its host's name, addresses, processors and
/// groups, and its address of UCX, which UCX 1.13 makes 75 bytes long for memory alone, 108 for one TCP network, 215 for all that it finds on a host with
/// one card, and longer with each further one. A longer roster nobody takes: those who get it say that a message is too long.
inline constexpr std::uint32_t most_message = 64u << 20, most_enrolment = 1u << 20;
inline constexpr std::uint32_t most_processes = 65536;
inline constexpr std::uint32_t most_ranks_of_job = 1u << 24;

/// Bodies.
std::vector<std::byte> to_wire(const enrolment& what);
std::vector<std::byte> to_wire(const rendezvous_answer& what);
/// Nothing: these bytes are none.
std::optional<enrolment> enrolment_from(std::span<const std::byte> body);
std::optional<rendezvous_answer> rendezvous_answer_from(std::span<const std::byte> body);

/// Why nobody can be that; empty: somebody can. @param peer who has proved to be at the other end @param all processes of the job; 0: as it says
std::string why_no_enrolment(const enrolment& what, std::uint32_t peer, std::uint32_t all);
/// Why a process that has said `mine` cannot be of such a job; empty: it can.
std::string why_no_roster(const roster& all, const enrolment& mine);

/// Messages out of the bytes of a connection.
class message_reader {
public:
  void add(std::span<const std::byte> more) { bytes_.insert(bytes_.end(), more.begin(), more.end()); }
  /// The body of the next one, if all of it is there. @param most bytes; where it says more, too_long() from then on
  std::optional<std::vector<std::byte>> next(std::uint32_t most);
  std::size_t held() const { return bytes_.size(); }
  bool too_long() const { return too_long_; }

private:
  std::vector<std::byte> bytes_;
  bool too_long_ = false;
};

}  // namespace troupe::actors
