// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which messages a partitioned score has, and where each has its place on a link_board: the same answer at every rank, since it follows
// from the score alone.
//
// A *link* is what one rank sends another on one lane. It has room for as many messages as are under way on it at once: as many as it has in
// all, and no more than the credits that the score was verified with.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "protocols/score/score.hpp"

namespace troupe::actors {

class part_links {
public:
  /// One rank's end of a link.
  struct end {
    rank_t peer = -1;
    std::uint32_t line = 0;      ///< the first of its lines, among its sender's
    std::uint32_t room = 0;      ///< messages at once
    std::uint32_t messages = 0;  ///< in all
    std::uint32_t number = 0;    ///< among the rank's own ends of that direction
  };
  /// Messages that have room on one line.
  static constexpr std::uint32_t per_line = 2;
  /// A score that needs more goes by mailbox: 2 MiB …
  static constexpr std::uint32_t most_lines = 32 * 1024;
  /// … and between processes 256 KiB, or more lanes than that. Each rank's lines lie apart there, for each operation under way.
  static constexpr std::uint32_t most_lines_between = 4096;
  static constexpr int most_lanes_between = 4096;

  part_links() = default;
  /// Cost: a look at every step of every rank. @pre the score is lowered
  part_links(const score& s, rank_t rank, int credits);

  int ranks() const { return ranks_; }
  int lanes() const { return lanes_; }
  std::uint32_t lines() const { return first_.empty() ? 0 : first_.back(); }
  /// Of what the rank sends: how many, and which is the first where all ranks' lie one behind the other.
  std::uint32_t lines_of(rank_t sender) const {
    return first_[static_cast<std::size_t>(sender) + 1] - first_of(sender);
  }
  std::uint32_t first_of(rank_t sender) const { return first_[static_cast<std::size_t>(sender)]; }
  bool fits() const { return lines() <= most_lines; }
  bool fits_between_processes() const { return lines() <= most_lines_between && lanes_ <= most_lanes_between; }
  /// The links of a lane that come to the rank, and that go out from it.
  std::span<const end> in(int lane) const { return of(in_, in_from_, lane); }
  std::span<const end> out(int lane) const { return of(out_, out_from_, lane); }
  std::size_t ins() const { return in_.size(); }
  std::size_t outs() const { return out_.size(); }

private:
  static std::span<const end> of(const std::vector<end>& all, const std::vector<std::uint32_t>& from, int lane) {
    const auto l = static_cast<std::size_t>(lane);
    return std::span{all}.subspan(from[l], from[l + 1] - from[l]);
  }

  int ranks_ = 0, lanes_ = 0;
  std::vector<std::uint32_t> first_;               ///< by rank; and one more
  std::vector<end> in_, out_;                      ///< by lane
  std::vector<std::uint32_t> in_from_, out_from_;  ///< by lane: its first; and one more
};

}  // namespace troupe::actors
