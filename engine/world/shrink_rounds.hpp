// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shrinks of one communicator, as the ranks of this process take part in them. A plain state, without threads: an engine's communicators
// (shrinks.hpp) and the simulated ones have it.
//
// A *round* is one agreement on who is left. A rank's first shrink is its part in round 0, and when it has got what came of that, the next one is
// round 1: also after a time-out it goes on with the round that it waited for.
//
//   come ──▶ waits ──(each rank here has come or left)──▶ contributed ──decided──▶ answered ──take──▶ it has its place, or an error
//
// A rank that came, and left before it took its place, is told to the others as having left its place. One that never had a handle of this
// communicator, because it failed to make it, has left like any other.

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "protocols/agreement/agreement.hpp"
#include "protocols/chunk.hpp"

namespace troupe {

/// Not synchronised.
class shrink_rounds {
public:
  struct contribution {
    std::uint64_t number;
    std::vector<rank_t> ranks;
  };
  struct place {
    std::uint64_t number;
    rank_t rank;
  };
  /// What a transition leaves to its caller, in this order. The answer to a word may come at once.
  struct to_do {
    std::vector<contribution>
        say{};  ///< to those who agree on it: these ranks of this process take part. The answer: decided()
    std::vector<std::uint64_t> over{};  ///< rounds for which nobody waits any more
    std::vector<place> given_up{};      ///< places that nobody takes
  };

  /// @param here ranks of this process, of so many in all. Before all else, so that a rank that leaves needs no memory
  void prepare(std::vector<rank_t> here, int ranks);

  /// The rank takes part, from now on, in the round of that number.
  std::uint64_t come(rank_t rank, to_do& next);
  /// The round's answer: the ranks that are left, or why that cannot be known.
  void decided(std::uint64_t number, const std::vector<rank_t>& members, const failure_ptr& why, to_do& next);
  /// The rank goes to its place, or has an error instead of it. False: all was closed, and it has no place any more. @pre the round is over
  bool take(std::uint64_t number, rank_t rank);
  /// The rank comes no more.
  void leave(rank_t rank, to_do& next);
  /// Ends all rounds that wait, and those that would begin; places that are not taken, or come to be here, are given up.
  void close(const failure_ptr& why, to_do& next);

  /// Ranks here for which a round waits.
  std::vector<rank_t> missing(std::uint64_t number) const;
  /// Ranks here that wait for it.
  std::vector<rank_t> waiting(std::uint64_t number) const;
  bool has_contributed(std::uint64_t number) const;
  const failure_ptr& closed() const { return closed_; }
  /// Not all who came have taken their places, or given them up.
  bool is_open(std::uint64_t number) const { return rounds_.contains(number); }
  std::size_t open() const { return rounds_.size(); }

  /// Names the part that a round makes among a communicator's parts (division_state.hpp); no operation has such a number.
  static epoch_t name_of(std::uint64_t number) { return std::uint64_t{1} << 63 | number; }

private:
  struct round {
    std::vector<rank_t> members;
    failure_ptr why;
    std::set<rank_t> came, took;
    bool contributed = false;
    bool answered = false;
  };
  bool has_left(rank_t rank) const { return left_[static_cast<std::size_t>(rank)]; }
  bool all_settled(const round& r) const;
  void contribute(std::uint64_t number, round& r, to_do& next);
  void drop_if_taken(std::uint64_t number);

  std::vector<rank_t> here_;
  std::vector<bool> left_;  ///< by rank
  std::map<std::uint64_t, round> rounds_;
  std::map<rank_t, std::uint64_t> next_;
  failure_ptr closed_;
};

}  // namespace troupe
