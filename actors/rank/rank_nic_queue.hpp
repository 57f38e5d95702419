// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's queue to the process's NIC, which tells the rank on its turn what became of its operations.

#include <memory>
#include <new>
#include <utility>

#include "actors/ports/nic/nic_thread.hpp"
#include "actors/rank/rank_cell.hpp"
#include "actors/waiting/napping.hpp"

namespace troupe::actors {

class rank_nic_queue final : public nic_queue {
public:
  /// @param alive expires before the cell does
  rank_nic_queue(nic_thread& to, nic_arrivals& all, rank_cell& cell, std::weak_ptr<const void> alive,
                 nic_between* elsewhere = nullptr)
      : nic_queue(to, all, elsewhere), cell_(&cell), alive_(std::move(alive)) {}

  void performed(epoch_t epoch, failure_ptr why) override {
    // Of what went well, the words fit into the order itself: nothing is allocated.
    if (!why) tell([epoch](rank_state& s, rank_outbox& out) { s.offloaded(epoch, nullptr, out); });
    else tell([epoch, why = std::move(why)](rank_state& s, rank_outbox& out) { s.offloaded(epoch, why, out); });
  }
  void differs(epoch_t epoch, rank_t from) override {
    tell([epoch, from](rank_state& s, rank_outbox& out) { s.nic_differs(epoch, from, out); });
  }
  void let_go(epoch_t epoch) override {
    tell([epoch](rank_state& s, rank_outbox& out) { s.nic_let_go(epoch, out); });
  }

private:
  template <class Order>
  void tell(const Order& what) {
    // The last who uses the communicator may be told by this that it ends.
    const auto held = alive_.lock();
    while (held) {
      try {
        return cell_->tell_now(rank_order{what});
      } catch (const std::bad_alloc&) {
        give_way();  // the rank waits for this, and nobody else can say it
      }
    }
  }

  rank_cell* cell_;
  std::weak_ptr<const void> alive_;
};

}  // namespace troupe::actors
