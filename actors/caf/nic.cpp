// SPDX-License-Identifier: Apache-2.0
// One port of a server's NIC: unpacks messages for nic_state (actors/elements/nic_state.hpp), and passes on what it makes.

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"
#include "actors/caf/scheduler.hpp"

namespace troupe::actors {

namespace {

class nic final : public caf::event_based_actor {
public:
  nic(caf::actor_config& config, fabric& ways, element_id self) : event_based_actor(config), ways_(ways), self_(self) {}

  caf::behavior make_behavior() override {
    return {
        [this](transfer_message& m) { cut(m); },
        [this](const packet_message& m) { join(m); },
    };
  }

  void on_exit() override { ways_.ended(self_); }

  const char* name() const override { return "nic"; }

private:
  void cut(transfer_message& m) {
    ways_.pass(m);
    const std::size_t at = m.at + 1;
    const caf::actor next = m.way->hops[at];
    const auto whole = std::make_shared<const transfer_message>(std::move(m));
    const caf::actor self{caf::actor_cast<caf::actor>(this)};
    state_.cut(whole->what.bytes, [&](const nic_state::packet& p) { post(next, packet_message{whole, at, p, self}); });
  }

  void join(const packet_message& m) {
    if (m.what.bytes == nic_state::packet_bytes) scheduler::before_long_work();
    auto whole = state_.join(m.sender.id(), m.what, m.whole->what, ways_);
    if (!whole) return;
    transfer_message arrived{std::move(*whole),    m.whole->way,    m.at,
                             m.whole->destination, m.whole->passed, m.whole->access};
    for (std::size_t k = m.whole->at + 1; k < m.at; ++k) ways_.pass(arrived, k);
    ways_.forward(std::move(arrived));
  }

  fabric& ways_;
  const element_id self_;
  nic_state state_;
};

}  // namespace

caf::actor spawn_nic(caf::actor_system& system, fabric& ways, element_id self) {
  return system.spawn<nic, caf::lazy_init>(std::ref(ways), self);
}

}  // namespace troupe::actors
