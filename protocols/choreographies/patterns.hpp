// SPDX-License-Identifier: Apache-2.0
#pragma once
// Patterns that several choreographies share: orders of the ranks, lanes in which nobody both sends and receives, and the hypercube of a rank
// count that is no power of two.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocols/score/score_builder.hpp"
#include "topology/reach.hpp"

namespace troupe::choreographies {

/// `choreography::refuses` of those that can be written for every setup.
inline std::string refuses_nothing(const setup&) { return {}; }

/// The same of those that work in memory that all ranks reach.
inline std::string refuses_apart(const setup& on) {
  const std::string why = reach_map{on.placement}.why_apart();
  return why.empty() ? why : "it works in memory that all ranks share, and " + why;
}

/// The same of those that only work on each other's buffers.
inline std::string refuses_far(const setup& on) {
  const std::string why = reach_map{on.placement}.why_no_buffers();
  return why.empty() ? why : "it works on other ranks' buffers, and " + why;
}

using share_writer = void (*)(score_builder&, lane_writer&, rank_t);

/// Ranks meet, each does a share straight on everybody's buffers, and they meet again. A share is a rank's block, or, of one block, as much of it as makes at most
/// sixteen shares: the board cuts long ones itself.
inline score write_shares(const setup& on, std::string_view name, share_writer share_of) {
  constexpr int most_shares = 16;
  const bool one_block = block_count(on.what, on.ranks) == 1;
  const int shares = one_block ? std::min(on.ranks, most_shares) : on.ranks;
  score_builder s{on, name, one_block ? shares : 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    lane_writer me = s.lane(r);
    me.sync();
    if (r < shares) share_of(s, me, r);
    me.sync();
  }
  return s.finish();
}

/// Every collective of a single rank: its input is its output, if it has both.
inline score alone(const setup& on, std::string_view name) {
  score_builder s{on, name, 1};
  if (shares_buffers(on.what, 1, 0, 0)) s.lane(0).copy_own(notation::input.all(), notation::output.all());
  return s.finish();
}

/// Can a verifier take `lanes` lanes of every rank?
inline bool lanes_fit(const setup& on, int lanes) { return static_cast<std::int64_t>(on.ranks) * lanes <= most_lanes; }

/// Lanes of an exchange in which each of n sends to the one `shift` ahead, so that nobody sends in the lane in which it receives: there its
/// send would wait for the receive before. The pairs of sender and receiver form circles; along one, lanes 0 and 1 take turns, and the last of an odd
/// one has lane 2.
inline constexpr int lanes_of_spread = 3;
/// The lane in which `from` sends (wraps round). @pre n ≥ 2, `shift` is no multiple of n. Cost: as Euclid's algorithm.
inline int spread_lane(int n, int from, int shift) {
  const int step = (shift % n + n) % n, circles = std::gcd(n, step), length = n / circles;
  // The rank p places along its circle is p·step ahead of one of 0 … circles − 1: p = (from / circles) · inverse, modulo the length.
  std::int64_t inverse = 0, next_inverse = 1;
  for (int rest = length, next = step / circles % length; next != 0;) {
    const int times = rest / next;
    rest = std::exchange(next, rest - times * next);
    inverse = std::exchange(next_inverse, inverse - times * next_inverse);
  }
  const std::int64_t at = ((from % n + n) % n) / circles * (inverse % length + length) % length;
  return length % 2 == 1 && at == length - 1 ? 2 : static_cast<int>(at % 2);
}

/// The ranks in a circle, those of a server next to each other, so that every server is entered and left only
/// once.
class ring_order {
public:
  explicit ring_order(const setup& on) : at_(static_cast<std::size_t>(on.ranks)) {
    std::iota(at_.begin(), at_.end(), 0);
    if (on.placement.is_grid() || on.placement.size() != on.ranks) return;  // ranks of a grid lie side by side already
    at_.clear();
    for (int server = 0; server < on.placement.servers; ++server)
      for (const int rank : on.placement.ranks_of_server(server)) at_.push_back(rank);
  }
  /// The rank at a position; positions wrap round.
  rank_t operator[](int position) const {
    const int n = static_cast<int>(at_.size());
    return at_[static_cast<std::size_t>((position % n + n) % n)];
  }
  int position_of(rank_t rank) const {
    int position = 0;
    while ((*this)[position] != rank) ++position;
    return position;
  }

private:
  std::vector<rank_t> at_;
};

/// A hypercube over any number of ranks: of the `ranks − corners` first pairs of neighbours (2i, 2i+1) one
/// rank, the *extra*, hands its data to the other before the cube's work and gets the result afterwards
/// (Rabenseifner 2004; MPICH). A corner stands for the contiguous ranks [first_rank(c), first_rank(c + 1)),
/// so aligned sub-cubes are contiguous, too.
class folded_cube {
public:
  /// @param kept a rank that must not be an extra (a root); −1: none
  explicit folded_cube(int ranks, rank_t kept = -1)
      : corners_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        pairs_(ranks - corners_),
        kept_(kept) {}

  int corners() const { return corners_; }
  /// The other rank of a pair; −1 if `rank` is a corner by itself.
  rank_t partner(rank_t rank) const { return rank < 2 * pairs_ ? rank ^ 1 : -1; }
  bool is_extra(rank_t rank) const { return partner(rank) >= 0 && rank_of(corner_of(rank)) != rank; }
  int corner_of(rank_t rank) const { return rank < 2 * pairs_ ? rank / 2 : rank - pairs_; }
  rank_t first_rank(int corner) const { return corner < pairs_ ? 2 * corner : corner + pairs_; }
  /// The rank that does the corner's work.
  rank_t rank_of(int corner) const {
    const rank_t first = first_rank(corner);
    return corner < pairs_ && kept_ == first + 1 ? kept_ : first;
  }

private:
  int corners_;
  int pairs_;
  rank_t kept_;
};

}  // namespace troupe::choreographies
