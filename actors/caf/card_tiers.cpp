// SPDX-License-Identifier: Apache-2.0
// Where operations of ranks on a modelled card have their L0 and L2: in the card's memory, whatever communicator they
// are of.

#include <utility>

#include <spdlog/spdlog.h>

#include "actors/caf/fabric.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

class tiers_of_ranks final : public card_tiers {
public:
  tiers_of_ranks(fabric& ways, std::vector<int> machine_ranks, std::shared_ptr<spdlog::logger> log)
      : ways_(ways), machine_ranks_(std::move(machine_ranks)), log_(std::move(log)) {}

  std::shared_ptr<std::byte> l0(rank_t rank, std::size_t bytes) override {
    const int place = machine_ranks_[static_cast<std::size_t>(rank)];
    auto card = ways_.card_of(place);
    tier_heap& heap = card->l0(ways_.hardware().ranks().of(place).core_group);
    return block(std::move(card), heap, bytes);
  }
  std::shared_ptr<std::byte> l2(std::size_t bytes) override {
    auto card = ways_.card_of(machine_ranks_.front());
    tier_heap& heap = card->l2();
    return block(std::move(card), heap, bytes);
  }

private:
  /// Keeps the card, and the log, until it is given back.
  std::shared_ptr<std::byte> block(std::shared_ptr<card_memory> card, tier_heap& heap, std::size_t bytes) const {
    return {static_cast<std::byte*>(heap.allocate(bytes)),
            [card = std::move(card), log = log_, &heap](std::byte* given) {
              try {
                heap.deallocate(given);
              } catch (const error& wrong) {  // somebody wrote behind its end
                log->error("{}", wrong.what());
              }
            }};
  }

  fabric& ways_;
  const std::vector<int> machine_ranks_;
  const std::shared_ptr<spdlog::logger> log_;
};

}  // namespace

std::unique_ptr<card_tiers> make_card_tiers(fabric& ways, std::vector<int> machine_ranks,
                                            std::shared_ptr<spdlog::logger> log) {
  if (ways.hardware().ranks().core_groups > card_options::most_core_groups) return nullptr;
  return std::make_unique<tiers_of_ranks>(ways, std::move(machine_ranks), std::move(log));
}

std::shared_ptr<card_memory> fabric::card_of(int rank) {
  const coordinates at = machine_.ranks().of(rank);
  const std::lock_guard lock(mutex_);
  auto& card = cards_[{at.server, at.card}];
  if (!card) {
    // L2 has a whole number of pages of every core group.
    const int core_groups = machine_.ranks().core_groups;
    const std::size_t of_each = static_cast<std::size_t>(core_groups) * card_sizes::page;
    const std::size_t pages = (card_sizes_.l2 + of_each - 1) / of_each;
    card = std::make_shared<card_memory>(card_options{
        .core_groups = core_groups, .l0_bytes = card_sizes_.l0, .hbm_bytes = pages * card_sizes::page, .l1_bytes = 0});
  }
  return card;
}

}  // namespace troupe::actors
