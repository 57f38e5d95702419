// SPDX-License-Identifier: Apache-2.0
#include "actors/flow/rehearsal.hpp"

#include <deque>
#include <functional>
#include <memory>

namespace troupe::actors {

namespace {

class dry_run {
public:
  explicit dry_run(const flow_plan& plan) : plan_(plan) {
    for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
      states_.emplace_back(plan, static_cast<std::int32_t>(n));
      voices_.push_back(std::make_unique<voice>(*this, static_cast<std::int32_t>(n)));
    }
  }

  flow_rehearsal perform() {
    for (std::size_t n = 0; n < states_.size(); ++n) {
      states_[n].begin();
      say(static_cast<std::int32_t>(n), [](flow_node_state& s, flow_outbox& out) { s.go_on(out); });
      if (plan_.nodes[n].kind == flow_node::kind_of::collective && plan_.nodes[n].inputs.empty()) arrive_all(n);
    }
    while (!agenda_.empty()) {
      const event next = std::move(agenda_.front());
      agenda_.pop_front();
      const auto n = static_cast<std::size_t>(next.node);
      next.what(states_[n], *voices_[n]);
    }
    flow_rehearsal result{.ends = finished_ == states_.size(), .waits = {}};
    for (const flow_node_state& s : states_) result.waits.push_back(s.waits_for());
    return result;
  }

private:
  using transition = std::function<void(flow_node_state&, flow_outbox&)>;
  struct event {
    std::int32_t node;
    transition what;
  };

  class voice final : public flow_outbox {
  public:
    voice(dry_run& of, std::int32_t node) : of_(of), node_(node) {}
    void give(flow_port to, flow_tile what) override {
      of_.say(to.node, [to, what](flow_node_state& s, flow_outbox& out) { s.tile(to.port, what, out); });
    }
    void give_back(std::int32_t stream, std::int32_t slot) override {
      of_.say(of_.plan_.streams[static_cast<std::size_t>(stream)].from,
              [slot](flow_node_state& s, flow_outbox& out) { s.given_back(slot, out); });
    }
    void again() override {
      of_.say(node_, [](flow_node_state& s, flow_outbox& out) { s.go_on(out); });
    }
    flow_progress perform(const std::vector<flow_tile>&, const flow_tile*, std::int32_t) override {
      return flow_progress::done;
    }
    void ready(std::int32_t part) override {
      const flow_node& me = of_.plan_.nodes[static_cast<std::size_t>(node_)];
      for (std::int32_t b = 0; b < me.blocks_out && me.given > 0; ++b)
        of_.say(node_, [at = b * me.parts + part](flow_node_state& s, flow_outbox& out) { s.arrived(at, out); });
    }
    void finished() override { ++of_.finished_; }

  private:
    dry_run& of_;
    std::int32_t node_;
  };

  /// What only other ranks give.
  void arrive_all(std::size_t node) {
    for (std::int32_t part = 0; part < plan_.nodes[node].given; ++part)
      say(static_cast<std::int32_t>(node), [part](flow_node_state& s, flow_outbox& out) { s.arrived(part, out); });
  }
  void say(std::int32_t to, transition what) { agenda_.push_back({to, std::move(what)}); }

  const flow_plan& plan_;
  std::vector<flow_node_state> states_;
  std::vector<std::unique_ptr<voice>> voices_;
  std::deque<event> agenda_;
  std::size_t finished_ = 0;
};

}  // namespace

flow_rehearsal rehearse(const flow_plan& plan) { return dry_run{plan}.perform(); }

}  // namespace troupe::actors
