// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a communicator has of the L0 and L2 of a modelled card (docs/tiers.md): blocks that the owners of these tiers have
// granted it when it asked (rank_outbox::ask_room). An operation takes one, and the next of the same size takes it again,
// so that nobody asks in the operations that follow. Blocks that nobody uses go back when the communicator ends, when there
// are many, and when somebody else finds the tier full.
//
//   l0, l2               ranks, each on its turn
//   grant, give_back,    the owner of a tier, through tier_keeper (actors/elements/tier_keeper.hpp)
//   lose
// Thread-safe. Nothing of CAF in here.

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "memory/tiers/tier_heap.hpp"
#include "protocols/agreement/agreement.hpp"
#include "protocols/collective.hpp"

namespace troupe::actors {

class card_tiers : public std::enable_shared_from_this<card_tiers> {
public:
  /// A block, until its last user drops it. May outlive the communicator, and the owner of the tier.
  using region = std::shared_ptr<std::byte>;
  /// Stands for L2 where a rank would stand for its L0.
  static constexpr rank_t shared = -1;
  /// Blocks of L2, or of a rank's L0, that are kept while nobody uses them, and what those have together besides the one that was used last.
  static constexpr std::size_t most_kept = 4;
  static constexpr std::size_t most_kept_bytes = std::size_t{64} << 20;

  /// @param complain hears that somebody wrote behind the end of a block
  explicit card_tiers(std::function<void(const std::string&)> complain) : complain_(std::move(complain)) {}
  ~card_tiers();
  card_tiers(const card_tiers&) = delete;
  card_tiers& operator=(const card_tiers&) = delete;

  // -- ranks --
  /// Of the L0 of the rank's core group. Null: the communicator has no such block, and has to ask. Throws what lose() was told.
  region l0(rank_t rank, std::size_t bytes) { return take(rank, bytes); }
  /// The same of the L2 of the card that the communicator's first rank sits on, of those at no host.
  region l2(std::size_t bytes) { return take(shared, bytes); }

  // -- owners of tiers --
  /// A new block. Throws as tier_heap::allocate(). @param of a rank, whose L0 it is, or `shared`
  region grant(rank_t of, const std::shared_ptr<tier_heap>& from, std::size_t bytes);
  /// All blocks of that tier that nobody uses. True: there were some.
  bool give_back(const tier_heap& tier);
  /// An owner of a tier has ended: there is no room on the card any more but what operations have. The first one counts.
  void lose(const failure_ptr& why);

private:
  struct block {
    rank_t of = shared;
    std::shared_ptr<tier_heap> tier;
    std::byte* at = nullptr;
    std::size_t bytes = 0;
  };

  region take(rank_t of, std::size_t bytes);
  region lent(const block& what);
  void came_back(const block& what) noexcept;
  bool keeps_too_much(const block& latest) const;
  void free(const block& what) const;

  const std::function<void(const std::string&)> complain_;
  std::mutex mutex_;         // twice an operation, of L0 and of L2
  std::vector<block> kept_;  ///< the one that was used last is the last
  failure_ptr lost_;
};

}  // namespace troupe::actors
