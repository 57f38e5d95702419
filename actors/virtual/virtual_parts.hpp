// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pieces of a partitioned collective in virtual time: which of them each rank's caller has made ready, which lanes wait for one, and when
// pieces of the output have arrived. A collective without one of these has all of its input from the beginning.
//
// Owner: the collective's virtual_communicator. Told by its ranks (await, performed) and by the replay of their callers (make_ready).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "protocols/program/arrivals.hpp"
#include "protocols/program/cells.hpp"
#include "protocols/score/score.hpp"

namespace troupe::actors {

class virtual_parts {
public:
  /// @pre notes.partitions > 0; notes outlives it
  virtual_parts(const score& notes, const cutting& cut, std::function<void(rank_t, int piece)> on_arrived);

  /// Whether the piece is ready. If not, make_ready() will return the lane, channel × lanes + lane.
  bool await(rank_t rank, int piece, std::int32_t lane);
  /// Which of the rank's lanes go on by that. @pre once for each piece
  std::vector<std::int32_t> make_ready(rank_t rank, int piece);
  /// A lane has performed its next step.
  void performed(rank_t rank, std::int32_t lane);

private:
  struct piece_state {
    bool ready = false;
    std::vector<std::int32_t> waiting;
  };
  struct lane_state {
    std::uint64_t performed = 0;
    std::size_t next = 0;  ///< of the rank's arrivals on this lane
  };
  struct rank_data {
    std::vector<piece_state> inputs;
    std::vector<std::vector<arrival>> arrivals;  ///< by lane of a channel
    std::vector<int> missing;                    ///< by piece of the output: lanes, of all channels
    std::vector<lane_state> lanes;               ///< by channel × lanes + lane
  };

  const score& notes_;
  slice_order order_;
  std::size_t lane_count_ = 1;
  std::vector<rank_data> ranks_;
  std::function<void(rank_t, int)> on_arrived_;
};

}  // namespace troupe::actors
