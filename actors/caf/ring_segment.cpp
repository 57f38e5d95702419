// SPDX-License-Identifier: Apache-2.0
// One direction of a ring-bus segment; also a card link and the switch, which are the same in real runs: they pass on in order.

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"

namespace troupe::actors {

namespace {

class ring_segment final : public caf::event_based_actor {
public:
  ring_segment(caf::actor_config& config, fabric& ways) : event_based_actor(config), ways_(ways) {}

  caf::behavior make_behavior() override {
    return {
        [this](transfer_message& m) { ways_.forward(std::move(m)); },
        [](packet_message& m) {
          const caf::actor next = m.whole->way->hops[++m.at];
          post(next, std::move(m));
        },
    };
  }

  const char* name() const override { return "ring_segment"; }

private:
  fabric& ways_;
};

}  // namespace

caf::actor spawn_ring_segment(caf::actor_system& system, fabric& ways) {
  return system.spawn<ring_segment, caf::lazy_init>(std::ref(ways));
}

}  // namespace troupe::actors
