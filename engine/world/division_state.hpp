// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts that a split makes of the colors and keys that its ranks have exchanged, and the places that ranks have taken there. Plain states, without
// threads: an engine's communicators (divisions.hpp) and the simulated ones have them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "memory/word_hash.hpp"
#include "protocols/chunk.hpp"

namespace troupe {

/// The ranks of that color, in their order in the part: by key, and ranks of one key as in the whole.
/// @param all color and key of each rank, one behind the other
inline std::vector<rank_t> members_of_part(std::span<const std::int32_t> all, std::int32_t color) {
  std::vector<rank_t> result;
  result.reserve(all.size() / 2);
  for (std::size_t r = 0; r < all.size() / 2; ++r)
    if (all[2 * r] == color) result.push_back(static_cast<rank_t>(r));
  const auto key = [&](rank_t r) { return std::pair{all[2 * static_cast<std::size_t>(r) + 1], r}; };
  std::sort(result.begin(), result.end(), [&](rank_t a, rank_t b) { return key(a) < key(b); });
  return result;
}

/// The name of a part in all processes that have ranks of it, before they have exchanged a word about it.
/// @param whole of the communicator that is divided @param which the operation that divides it, whose number no other one there has
inline std::uint64_t identity_of_part(std::uint64_t whole, epoch_t which, std::int32_t color) {
  word_hash name;
  for (const std::uint64_t word : {whole, std::uint64_t{which}, static_cast<std::uint64_t>(color)}) name.add(word);
  return name.state;
}
/// The same of those that a shrink has left. Two halves of a cut network must not take each other's frames for their own, so it says who they are.
/// @param which shrink_rounds::name_of()
inline std::uint64_t identity_of_rest(std::uint64_t whole, epoch_t which, std::span<const rank_t> members) {
  word_hash name;
  name.add(identity_of_part(whole, which, 0));
  for (const rank_t r : members) name.add(static_cast<std::uint64_t>(r));
  return name.state;
}

/// Parts until each of their ranks has taken its place or will never take it. `Part` is a pointer to one. Not synchronised.
template <class Part>
class division_state {
public:
  /// The part that `members` (of the whole, in their order in the part) form by operation `which`, for one of them. The first that asks makes it.
  /// @param make may throw; then nothing has happened
  /// @param ranks_here how many of a part's ranks come or give up here
  /// @param leave the rank that has that place in the part never comes
  template <class Make, class Ranks, class Leave>
  Part take(epoch_t which, int color, std::span<const rank_t> members, const Make& make, const Ranks& ranks_here,
            const Leave& leave) {
    auto at = parts_.find({which, color});
    if (at == parts_.end()) at = found(which, color, members, make(), ranks_here, leave);
    Part made = at->second.made;
    settle(at);
    return made;
  }

  /// The operation failed at `rank`.
  template <class Leave>
  void give_up(epoch_t which, rank_t rank, const Leave& leave) {
    for (auto at = parts_.lower_bound({which, 0}); at != parts_.end() && at->first.first == which; ++at) {
      const auto place = place_of(at->second.members, rank);
      if (place < 0) continue;
      leave(at->second.made, place);
      return settle(at);
    }
    auto failed = std::ranges::find(given_up_, which, &failure_of::which);
    if (failed == given_up_.end()) failed = given_up_.insert(given_up_.end(), {which, {}});
    failed->ranks.push_back(rank);
    if (given_up_.size() > most_given_up) given_up_.erase(given_up_.begin());
  }

  /// Parts that not all members have taken or given up.
  std::size_t open() const { return parts_.size(); }
  /// Ranks have given up splits whose parts nobody has made yet: a process that makes one hears of those that never come.
  bool any_given_up() const { return !given_up_.empty(); }

private:
  struct part {
    Part made;
    std::vector<rank_t> members;
    std::size_t awaited = 0;  ///< ranks here that have neither taken it nor given it up
  };
  using parts = std::map<std::pair<epoch_t, int>, part>;
  struct failure_of {
    epoch_t which;
    std::vector<rank_t> ranks;
  };

  /// −1: it has none.
  static rank_t place_of(std::span<const rank_t> members, rank_t rank) {
    const auto at = std::find(members.begin(), members.end(), rank);
    return at == members.end() ? -1 : static_cast<rank_t>(at - members.begin());
  }

  template <class Ranks, class Leave>
  typename parts::iterator found(epoch_t which, int color, std::span<const rank_t> members, Part fresh,
                                 const Ranks& ranks_here, const Leave& leave) {
    const std::size_t here = ranks_here(fresh);
    const auto at =
        parts_.emplace(std::pair{which, color}, part{std::move(fresh), {members.begin(), members.end()}, here}).first;
    part& p = at->second;
    const auto failed = std::ranges::find(given_up_, which, &failure_of::which);
    if (failed == given_up_.end()) return at;
    std::erase_if(failed->ranks, [&](rank_t rank) {
      const auto place = place_of(members, rank);
      if (place < 0) return false;
      leave(p.made, place);
      --p.awaited;
      return true;
    });
    if (failed->ranks.empty()) given_up_.erase(failed);
    return at;
  }

  /// One more of the ranks here.
  void settle(typename parts::iterator which) {
    if (--which->second.awaited == 0) parts_.erase(which);
  }

  /// Splits that failed at a rank before any had its part. Most never come up again, as no rank gets one; so the oldest are forgotten, each with
  /// all its ranks.
  static constexpr std::size_t most_given_up = 64;

  parts parts_;
  std::vector<failure_of> given_up_;  ///< in the order of their first ranks
};

}  // namespace troupe
