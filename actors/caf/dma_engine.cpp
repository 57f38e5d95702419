// SPDX-License-Identifier: Apache-2.0
// A core group's DMA engine. State: none; the actor is the order.

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"
#include "actors/caf/scheduler.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

namespace {

class dma_engine final : public caf::event_based_actor {
public:
  dma_engine(caf::actor_config& config, fabric& ways) : event_based_actor(config), ways_(ways) {}

  caf::behavior make_behavior() override {
    return {
        [this](transfer_message& m) { carry(m); },
        [](const copy_message& m) {
          scheduler::before_long_work();
          troupe::copy(m.target, m.source, m.bytes);
          m.asker.cell().post(
              rank_order{[which = m.which, channel = m.asker.channel, lane = m.lane](rank_state& s, rank_outbox& out) {
                s.transferred(which, channel, lane, out);
              }});
        },
        [](const flush_message&) { return flushed_message{}; },
    };
  }

  const char* name() const override { return "dma_engine"; }

private:
  /// Out: the payload leaves the sender's memory here, into a buffer that the chunk owns from now on. In: the performer's step
  /// writes the receiver's memory, so nothing is left to do but to hand over.
  void carry(transfer_message& m) {
    if (m.way->way.hops[m.at].way == direction::out && m.what.bytes > 0) {
      scheduler::before_long_work();
      if (!copy_out(m.what, ways_)) return;
    }
    ways_.forward(std::move(m));
  }

  fabric& ways_;
};

}  // namespace

caf::actor spawn_dma_engine(caf::actor_system& system, fabric& ways) {
  return system.spawn<dma_engine, caf::lazy_init>(std::ref(ways));
}

}  // namespace troupe::actors
