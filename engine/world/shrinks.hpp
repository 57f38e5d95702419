// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shrinks of one communicator, as threads and other processes see them: how the ranks of this process take part is shrink_rounds', and, between
// processes, who is left job_links' (actors/ports/link/shrink_agreements.hpp). In one process what its ranks say is the answer.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/waiting/completion.hpp"
#include "engine/world/shrink_rounds.hpp"
#include "protocols/chunk.hpp"

namespace troupe {

struct communicator_state;

/// Thread-safe.
class shrinks {
public:
  struct round {
    std::uint64_t number = 0;
    actors::completion_ptr done = std::make_shared<actors::completion>();
    std::vector<rank_t> members{};  ///< when done, and it has not failed
    bool told = false;              ///< that it waits for long
  };
  using round_ptr = std::shared_ptr<round>;

  /// Ranks of this process, of so many in all. Before all else, so that a rank that leaves needs no memory.
  void prepare(std::vector<rank_t> here, int ranks) { rounds_.prepare(std::move(here), ranks); }

  /// The rank takes part, from now on. Its caller waits for the round's `done`, and then takes its place or fails to.
  round_ptr come(const std::shared_ptr<communicator_state>& of, rank_t rank);
  /// It goes to its place, or has an error instead of it. False: the engine has been closed, and it has no place any more.
  bool take(const round_ptr& which, rank_t rank);
  /// The rank's handle is gone, or never came to be: it comes no more.
  void leave(const std::shared_ptr<communicator_state>& of, rank_t rank);
  /// Ends all rounds that wait, and those that would begin; places that are not taken, or come to be here, are left.
  void close(const std::shared_ptr<communicator_state>& of, const failure_ptr& why);
  /// Ranks of this process for which a round waits.
  std::vector<rank_t> missing(const round& which) const;
  /// This process has said who of its ranks takes part.
  bool has_contributed(const round& which) const;
  /// Ranks of this process that wait, for the log; empty: it is over, or another thread has logged it.
  std::vector<rank_t> overdue(round& which);

  /// Names the part that a round makes among a communicator's parts (divisions.hpp); no operation has such a number.
  static epoch_t name_of(const round& which) { return shrink_rounds::name_of(which.number); }

private:
  void decided(const std::shared_ptr<communicator_state>& of, std::uint64_t number, const std::vector<rank_t>& members,
               const failure_ptr& why);
  void perform(const std::shared_ptr<communicator_state>& of, const shrink_rounds::to_do& what);

  mutable std::mutex mutex_;  // some times a failure
  shrink_rounds rounds_;
  std::map<std::uint64_t, round_ptr> waiting_;  ///< whose callers wait, or have not taken their places
};

}  // namespace troupe
