// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shrinks of one communicator, as the ranks of this process take part in them.
//
// A *round* is one agreement on who is left. A rank's first shrink is its part in round 0, and when it has got what came of that, the next one is
// round 1: also after a time-out it goes on with the round that it waited for. When each rank of this process has come or has left, this process
// has said what it has to say; between processes the rest is job_links' (protocols/agreement/survivors.hpp), else it is the answer.
//
// A rank that came, and left before it took its place, is told to the others as having left its place.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "actors/waiting/completion.hpp"
#include "protocols/chunk.hpp"

namespace troupe {

struct communicator_state;

/// Thread-safe.
class shrinks {
public:
  struct round {
    std::uint64_t number = 0;
    actors::completion_ptr done = std::make_shared<actors::completion>();
    std::vector<rank_t> members;  ///< when done, and it has not failed
    std::set<rank_t> came, took;  ///< of this process
    bool contributed = false;
    bool answered = false;
    bool told = false;  ///< that it waits for long
  };
  using round_ptr = std::shared_ptr<round>;

  /// Of a communicator of so many ranks. Before all else, so that who leaves needs no memory.
  void prepare(int ranks) { left_.resize(static_cast<std::size_t>(ranks)); }

  /// The rank takes part, from now on. Its caller waits for the round's `done`, and then takes its place or fails to.
  round_ptr come(const std::shared_ptr<communicator_state>& of, rank_t rank);
  /// It goes to its place, or has an error instead of it. False: the engine has been closed, and it has no place any more.
  bool take(const round_ptr& which, rank_t rank);
  /// The rank's handle is gone: it comes no more.
  void leave(const std::shared_ptr<communicator_state>& of, rank_t rank);
  /// Ends all rounds that wait, and those that would begin; places that are not taken, or come to be here, are left.
  void close(communicator_state& of, const failure_ptr& why);
  /// Ranks of this process for which a round waits.
  std::vector<rank_t> missing(const communicator_state& of, const round& which) const;
  /// Ranks of this process that wait, for who tells of it in the log; empty: it is over, or somebody has.
  std::vector<rank_t> overdue(round& which);

  /// Names the part that a round makes among a communicator's parts (divisions.hpp); no operation has such a number.
  static epoch_t name_of(const round& which) { return std::uint64_t{1} << 63 | which.number; }

private:
  bool has_left(rank_t rank) const { return left_[static_cast<std::size_t>(rank)]; }
  bool all_settled(const communicator_state& of, const round& r) const;
  void contribute(const std::shared_ptr<communicator_state>& of, const round_ptr& which);
  void decided(communicator_state& of, const round_ptr& which, const std::vector<rank_t>& members,
               const failure_ptr& why);

  mutable std::mutex mutex_;  // some times a failure
  std::map<std::uint64_t, round_ptr> rounds_;
  std::map<rank_t, std::uint64_t> next_;
  std::vector<bool> left_;  ///< by rank
  failure_ptr closed_;
};

}  // namespace troupe
