// SPDX-License-Identifier: Apache-2.0
#pragma once
// The owner of a tier of a modelled card, L0 of a core group or L2, grants communicators blocks of it. No CAF in here.
//
// Owner: the actor whose tier it is; only on its turn. Blocks come back to the tier itself, which is thread-safe, so that
// they do even if other actors have ended meanwhile.

#include <cstddef>
#include <memory>
#include <vector>

#include "actors/rank/card_tiers.hpp"
#include "memory/tiers/tier_heap.hpp"
#include "protocols/agreement/agreement.hpp"

namespace troupe::actors {

class tier_keeper {
public:
  /// @param tier which keeps the memory behind it
  explicit tier_keeper(std::shared_ptr<tier_heap> tier) : tier_(std::move(tier)) {}

  /// Where the tier is full, first all communicators give back what they do not use. Throws as tier_heap::allocate().
  card_tiers::region grant(card_tiers& to, rank_t of, std::size_t bytes);
  /// The owner ends: nobody gets anything any more, not even what the communicators have kept.
  void end(const failure_ptr& why);

private:
  std::shared_ptr<tier_heap> tier_;
  std::vector<std::weak_ptr<card_tiers>> known_;  ///< who has been granted something
};

}  // namespace troupe::actors
