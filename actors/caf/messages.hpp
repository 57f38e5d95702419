// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the actors say to each other through CAF. All of it stays inside the process: the messages carry references. Chunks, credits
// and what ranks say about sends and receives go from inbox to inbox (actors/rank/inbox.hpp).

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/caf/caf_compat.hpp"
#include "actors/ports/mailbox/channel_state.hpp"
#include "actors/rank/operation.hpp"

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
};
struct quiet_message {
  rank_t rank;
};
struct perished_message {
  rank_t rank;
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
};
struct peer_lost_message {
  rank_t rank;
};
struct overdue_message {};   ///< membership → itself: what has been waiting for calls all the time?
struct dissolve_message {};  ///< engine → membership: end every actor of the communicator

// -- a rank's outbox → its shell ----------------------------------------------------------------------------------------
struct flush_order_message {  ///< tell the rank when its DMA engine has done what came before
  operation_key which;
};
struct held_back_message {  ///< a chunk that fault injection held back
  rank_t to;
  int channel;
  chunk what;
};

// -- rank → machine: actors/caf/fabric.hpp --------------------------------------------------------------------------------

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_ranks, 0)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::called_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::differs_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::withdraw_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::fail_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::stopped_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::left_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::quiet_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::perished_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::abort_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::stuck_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::agreed_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::ask_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::halt_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::failed_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::broken_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::peer_left_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::peer_lost_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::overdue_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::dissolve_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::flush_order_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::held_back_message)
TROUPE_END_MESSAGES(troupe_ranks)
