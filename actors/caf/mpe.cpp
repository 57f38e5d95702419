// SPDX-License-Identifier: Apache-2.0
// The management core of a modelled card (spec 1's MPE): owns the card's memory and its allocator. It is made when the first
// operation on the card needs some of it.
//   l0_order       from a core group of the card: its L0, which is that one's from then on
//   region_order   from a rank that lacks L2 for an operation

#include <memory>
#include <optional>
#include <utility>

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"
#include "actors/elements/tier_keeper.hpp"
#include "memory/error.hpp"
#include "memory/tiers/card_memory.hpp"

namespace troupe::actors {

namespace {

card_options options_of(const card_sizes& sizes, int core_groups) {
  // L2 has a whole number of pages of every core group.
  const std::size_t of_each = static_cast<std::size_t>(core_groups) * card_sizes::page;
  const std::size_t pages = (sizes.l2 + of_each - 1) / of_each;
  return {.core_groups = core_groups, .l0_bytes = sizes.l0, .hbm_bytes = pages * card_sizes::page, .l1_bytes = 0};
}

class mpe final : public caf::event_based_actor {
public:
  mpe(caf::actor_config& config, const card_options& sizes, machine_element of)
      : event_based_actor(config), sizes_(sizes), of_(of) {}

  caf::behavior make_behavior() override {
    return {
        [this](const l0_order_message& m) { return l0(m); },
        [this](const region_order_message& m) { return l2(m); },
    };
  }

  void on_exit() override {
    if (l2_) l2_->end(mpe_has_ended(of_));
  }

  const char* name() const override { return "mpe"; }

private:
  l0_message l0(const l0_order_message& m) {
    try {
      return {{card(), &card()->l0(m.core_group)}, nullptr};
    } catch (const error& e) {
      return {nullptr, make_failure(e.code_value(), e.what())};
    }
  }
  region_message l2(const region_order_message& m) {
    try {
      if (!l2_) l2_.emplace(std::shared_ptr<tier_heap>{card(), &card()->l2()});
    } catch (const error& e) {
      return {nullptr, make_failure(e.code_value(), e.what())};
    }
    return granted(*l2_, m);
  }

  /// Throws error(out_of_memory) where the system gives no address space.
  const std::shared_ptr<card_memory>& card() {
    if (!card_) card_ = std::make_shared<card_memory>(sizes_);
    return card_;
  }

  const card_options sizes_;
  const machine_element of_;
  std::shared_ptr<card_memory> card_;  ///< blocks that are still used keep it, too
  std::optional<tier_keeper> l2_;
};

}  // namespace

caf::actor spawn_mpe(caf::actor_system& system, const card_sizes& sizes, int core_groups, machine_element of) {
  return system.spawn<mpe, caf::lazy_init>(options_of(sizes, core_groups), of);
}

}  // namespace troupe::actors
