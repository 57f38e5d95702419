// SPDX-License-Identifier: Apache-2.0
// One direction of a ring-bus segment; also a card link and the switch, which are the same in real runs: they pass on in order.

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"

namespace troupe::actors {

namespace {

class ring_segment final : public caf::event_based_actor {
public:
  ring_segment(caf::actor_config& config, fabric& ways, element_id self)
      : event_based_actor(config), ways_(ways), self_(self) {}

  caf::behavior make_behavior() override {
    return {
        [this](transfer_message& m) { ways_.forward(std::move(m)); },
        [](packet_message& m) {
          const caf::actor next = m.whole->way->hops[++m.at];
          post(next, std::move(m));
        },
    };
  }

  void on_exit() override { ways_.ended(self_); }

  const char* name() const override { return "ring_segment"; }

private:
  fabric& ways_;
  const element_id self_;
};

}  // namespace

caf::actor spawn_ring_segment(caf::actor_system& system, fabric& ways, element_id self) {
  return system.spawn<ring_segment, caf::lazy_init>(std::ref(ways), self);
}

}  // namespace troupe::actors
