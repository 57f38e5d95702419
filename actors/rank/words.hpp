// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ranks and the membership of their communicator say to each other, inside a process (actors/caf/messages.hpp) and between
// processes (actors/ports/link/frames.hpp).

#include <optional>
#include <string>
#include <vector>

#include "protocols/agreement/agreement.hpp"
#include "protocols/call.hpp"
#include "protocols/chunk.hpp"

namespace troupe::actors {

// -- rank ↔ membership ------------------------------------------------------------------------------------------------
struct called_message {
  epoch_t epoch;
  rank_t rank;
  call what;
};
struct differs_message {  ///< it has met a message of another call
  epoch_t epoch;
};
struct withdraw_message {  ///< an operation was performed after all
  epoch_t epoch;
  rank_t rank;
  std::optional<call> ahead;
};
struct fail_message {
  epoch_t epoch;
  std::string title;
  failure_ptr why;
};
struct stopped_message {
  epoch_t epoch;
  rank_t rank;
  std::vector<std::string> waits;
  presence came;
};
struct left_message {
  rank_t rank;
  epoch_t operations;
  call last;
  sends_ptr sent{};
};
struct quiet_message {
  rank_t rank;
};
struct perished_message {
  rank_t rank;
};
struct rank_lost_message {  ///< with its process; from the watcher of those
  rank_t rank;
  failure_ptr why;
};
struct abort_message {
  failure_ptr why;
};
struct stuck_message {
  look_t look;       ///< nothing moved when this look was taken
  bool nobody_else;  ///< every rank's own thread waited too
};
struct agreed_message {
  epoch_t epoch;
  counts_ptr counts;
};
struct ask_message {
  epoch_t epoch;
};
struct halt_message {
  epoch_t epoch;
};
struct failed_message {
  epoch_t epoch;
  failure_ptr why;
};
struct broken_message {
  failure_ptr why;
};
struct peer_left_message {
  rank_t rank;
  sends_ptr sent{};
};
struct peer_lost_message {
  rank_t rank;
};

}  // namespace troupe::actors
