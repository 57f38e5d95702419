// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the exchanges of a layer of experts have moved, and how evenly.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/export.hpp"
#include "protocols/collective.hpp"

namespace troupe {

struct TROUPE_API expert_profile {
  struct of_rank {
    std::uint64_t tokens = 0;    ///< that it had
    std::uint64_t sent = 0;      ///< copies of them for experts
    std::uint64_t received = 0;  ///< for its experts
    std::uint64_t dropped = 0;
    std::uint64_t crossed = 0;   ///< tokens sent to another server; each once, however many of its experts have it
    std::uint64_t crossing = 0;  ///< copies that these became there
    std::chrono::nanoseconds exchanging{};  ///< in calls of the exchange
    std::chrono::nanoseconds altogether{};  ///< from the begin of its first call to the end of its last one
  };

  std::uint64_t dispatches = 0;
  std::vector<of_rank> ranks;
  std::vector<std::uint64_t> tokens_of_expert;  ///< that came to it, wherever it sits
  std::vector<std::uint64_t> dropped_of_expert;
  std::vector<std::uint64_t> sent_to_expert;  ///< [rank · experts + expert]: copies from that rank

  /// The rank that received most. −1: there is none.
  rank_t bottleneck() const;
  /// What the bottleneck received over what a rank received on average; 1: even, or nothing was received.
  double imbalance() const;
  /// Share of the time of all ranks that was spent in the exchange, 0 … 1.
  double share_of_exchange() const;
  std::uint64_t dropped() const;

  /// For people. @param times false: without what differs from run to run
  std::string table(bool times = true) const;
  /// {"dispatches":…, "ranks":[{"tokens":…, …, "exchanging_us":…, "sent_to_expert":[…]}], "experts":[{"tokens":…, "dropped":…}],
  /// "bottleneck":…, …}
  std::string json() const;
  /// A picture (SVG): a row a rank, a column an expert, the darker the more went from one to the other; bars for what each expert got and
  /// each rank received. Neighbours share a cell where there are more than 128 ranks or experts.
  std::string heat_map() const;
};

}  // namespace troupe
