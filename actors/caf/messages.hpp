#pragma once
// What the actors say to each other. All of it stays inside the process: the messages carry references.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/caf/caf_compat.hpp"
#include "actors/ports/mailbox/channel_state.hpp"
#include "actors/rank/operation.hpp"

namespace troupe::actors {

// -- caller → rank ----------------------------------------------------------------------------------------------------
struct submit_message {
  operation_ptr what;
};
struct end_message {  ///< cancel
  operation_key which;
  failure_ptr why;
};
struct leave_message {
  epoch_t operations;  ///< that the rank has called, those over slots too
};

// -- rank ↔ membership ------------------------------------------------------------------------------------------------
struct called_message {
  epoch_t epoch;
  rank_t rank;
  call what;
};
struct withdraw_message {  ///< an operation over slots was performed after all
  epoch_t epoch;
  rank_t rank;
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
};
struct left_message {
  rank_t rank;
  epoch_t operations;
};
struct quiet_message {
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
struct alarm_message {  ///< rank → itself
  std::uint64_t number;
};
struct dissolve_message {};  ///< engine → membership: end every actor of the communicator

// -- rank ↔ rank ------------------------------------------------------------------------------------------------------
struct revoke_message {  ///< "drop what came of my send"
  rank_t sender;
  epoch_t epoch;
  failure_ptr why;
};
struct revoked_message {
  rank_t receiver;
  epoch_t epoch;
};
struct refuse_message {
  rank_t from;
  epoch_t epoch;
  bool sending;  ///< what it refuses: the addressee's send, or its receive
  failure_ptr why;
};
struct inquire_message {
  rank_t from;
  epoch_t epoch;
  bool sending;  ///< what it asks for: the addressee's send, or its receive
  look_t look;
  bool nobody_else;
};

// -- rank ↔ channel ---------------------------------------------------------------------------------------------------
struct start_message {
  std::shared_ptr<const assignment> what;
};
struct skip_message {
  operation_key which;
  epoch_t passed;  ///< nor will collectives before this one start any more
};
struct stop_message {
  operation_key which;
};
struct performed_message {
  operation_key which;
};
struct mismatch_message {
  operation_key which;
  rank_t from;
};
struct channel_failed_message {
  operation_key which;
  failure_ptr why;
};
struct channel_stopped_message {
  operation_key which;
  int channel;
  std::vector<lane_wait> waits;
};

// -- channel ↔ channel: chunk and credit (protocols/chunk.hpp) ----------------------------------------------------------

// -- channel ↔ fabric: actors/caf/fabric.hpp --------------------------------------------------------------------------------

}  // namespace troupe::actors

TROUPE_LOCAL_MESSAGE(troupe::chunk)
TROUPE_LOCAL_MESSAGE(troupe::credit)
TROUPE_LOCAL_MESSAGE(troupe::actors::submit_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::end_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::leave_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::called_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::withdraw_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::fail_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::stopped_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::left_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::quiet_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::abort_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::stuck_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::agreed_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::halt_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::failed_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::broken_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::peer_left_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::peer_lost_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::alarm_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::dissolve_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::revoke_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::revoked_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::refuse_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::inquire_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::start_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::skip_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::stop_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::performed_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::mismatch_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::channel_failed_message)
TROUPE_LOCAL_MESSAGE(troupe::actors::channel_stopped_message)
