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
#include "actors/rank/words.hpp"

namespace troupe::actors {

// -- rank ↔ membership: actors/rank/words.hpp ---------------------------------------------------------------------------
struct overdue_message {};   ///< membership → itself: what has been waiting for calls all the time?
struct dissolve_message {};  ///< engine → membership: end every actor of the communicator

// -- a rank's outbox → its shell ----------------------------------------------------------------------------------------
struct flush_order_message {  ///< tell the rank when its DMA engine has done what came before
  operation_key which;
};
struct ask_room_message {  ///< ask for a block of a tier of the card, as rank_outbox::ask_room()
  epoch_t epoch;
  rank_t of;
  std::size_t bytes;
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
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::ask_room_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::held_back_message)
TROUPE_LOCAL_MESSAGE(troupe_ranks, troupe::actors::rank_lost_message)
TROUPE_END_MESSAGES(troupe_ranks)
