// SPDX-License-Identifier: Apache-2.0
// Runs: what nodes do with real tiles, and how a run begins and ends.
#include <exception>

#include "actors/caf/runtime.hpp"
#include "engine/flow/flow_inside.hpp"
#include "engine/flow/flow_record.hpp"
#include "engine/flow/timeline.hpp"
#include "engine/world/partitioned_access.hpp"
#include "memory/error.hpp"

namespace troupe {

using actors::flow_tile;

/// Holds the flow until the run is over.
struct flow::inside::run final : actors::flow_host {
  explicit run(std::shared_ptr<inside> flow) : of(std::move(flow)), end(of->end), places(of->nodes.size()) {
    if (of->options.timeline != nullptr) records.resize(of->nodes.size());
  }

  failure_ptr perform(std::int32_t node, const std::vector<flow_tile>& in, const flow_tile* out,
                      std::int32_t at) override {
    const auto n = static_cast<std::size_t>(node);
    const actors::flow_node& planned = of->plan->nodes[n];
    std::vector<tile_place>& taken = places[n];
    taken.clear();
    for (std::size_t i = 0; i < in.size(); ++i) taken.push_back(place(planned.inputs[i], in[i]));
    const tile_place written = out != nullptr ? place(planned.output, *out) : tile_place{};
    const int index = out != nullptr ? out->index : in.front().index;
    const auto begin = watched() ? flow_clock::now() : flow_clock::time_point{};
    try {
      of->nodes[n].what.work(taken, out != nullptr ? &written : nullptr, at);
    } catch (...) {
      return failure_of(node, "tile " + std::to_string(index));
    }
    if (watched()) records[n].work(index, begin, flow_clock::now());
    return nullptr;
  }

  failure_ptr ready(std::int32_t node, std::int32_t part) override {
    if (watched()) records[static_cast<std::size_t>(node)].ready(part, flow_clock::now());
    try {
      operation& its = operation_of(node);
      if (its.outside) {
        const actors::flow_node& planned = of->plan->nodes[static_cast<std::size_t>(node)];
        its.outside->ready(place(planned.inputs[0], {part, part}), place(planned.output, {part, part}));
      } else {
        its.what.ready(part);
      }
    } catch (...) {
      return failure_of(node, "part " + std::to_string(part));
    }
    return nullptr;
  }

  void waits(std::int32_t node, const actors::flow_wait& what) override {
    records[static_cast<std::size_t>(node)].waits(what, flow_clock::now());
  }
  void hears_of(std::int32_t node, std::int32_t part) override {
    const actors::flow_node& me = of->plan->nodes[static_cast<std::size_t>(node)];
    records[static_cast<std::size_t>(node)].arrives(me.tile_of(part), flow_clock::now());
  }

  failure_ptr late(const std::vector<actors::flow_wait>& nodes) override {
    return make_failure(errc::timed_out, of->where() + ": its deadline has passed (" + of->waits_texts(nodes) + ")");
  }
  void agree() override {
    for (int a = 0; a < of->agreements; ++a) of->operations[static_cast<std::size_t>(a)]->what.ready(0);
  }
  void end_operations(const failure_ptr& why) override {
    for (const auto& one : of->operations)
      if (one->outside) one->outside->end(why);
      else partitioned_access::end(one->what, why);
  }
  void over(const failure_ptr& why) override {
    if (watched()) flow::record(*of->options.timeline, {of->plan, of->rank, std::move(records)});
    of->under_way->set(nullptr);
    of = nullptr;  // its owner may go as soon as it hears
    end->complete(why);
  }

private:
  bool watched() const { return !records.empty(); }
  tile_place place(std::int32_t stream, const flow_tile& what) const {
    return {of->memory[static_cast<std::size_t>(stream)].at(what.slot), what.index};
  }
  operation& operation_of(std::int32_t node) const {
    return *of->operations[static_cast<std::size_t>(of->operation_of[static_cast<std::size_t>(node)])];
  }
  /// The exception under way, as the run ends with it on all ranks.
  failure_ptr failure_of(std::int32_t node, const std::string& at) const {
    return failure_under_way(of->where() + ", node " + of->plan->nodes[static_cast<std::size_t>(node)].name + ", " +
                             at);
  }

  std::shared_ptr<inside> of;
  actors::completion_ptr end;
  std::vector<std::vector<tile_place>> places;  ///< by node, of the work under way
  std::vector<node_record> records;             ///< by node; empty: nothing is recorded
};

std::string flow::inside::where() const {
  return "flow " + name + (operations.empty() ? "" : ", rank " + std::to_string(rank));
}

void flow::inside::start_operations(const std::shared_ptr<actors::flow_cell>& run) {
  failure_ptr broken;  // one that cannot begin, which ends the run
  for (std::size_t o = 0; o < operations.size(); ++o) {
    const int number = static_cast<int>(o);
    try {
      if (!broken && operations[o]->outside) {
        start_outside(number, run);
        continue;
      }
      if (!broken) {
        operations[o]->what.start();
        partitioned_access::when_done(operations[o]->what,
                                      [run, number](const failure_ptr& why) { run->ended(number, why); });
        continue;
      }
    } catch (const error& e) {
      broken = make_failure(e.code_value(), e.what());
    }
    run->ended(number, broken);
  }
}

void flow::inside::start_outside(int number, const std::shared_ptr<actors::flow_cell>& run) {
  const operation& its = *operations[static_cast<std::size_t>(number)];
  const int node = its.node;
  its.outside->start(
      where() + ", node " + plan->nodes[static_cast<std::size_t>(node)].name,
      [run, node](int tile) { run->arrived(node, tile); },
      [run, number](const failure_ptr& why) { run->ended(number, why); });
}

void flow::start() {
  inside& in = *inside_;
  const gate::pass door{in.core->door};
  if (!door) refuse_closed();
  if (!done()) in.refuse("it is still under way; wait for it before it is started again");
  in.check();
  for (const inside::described& node : in.nodes)
    if (node.what.begin) node.what.begin();
  in.end = std::make_shared<actors::completion>();
  const auto run = std::make_shared<actors::flow_cell>(
      in.plan, in.states, std::make_shared<inside::run>(inside_), actors::flow_threads_of(*in.core->runtime),
      static_cast<int>(in.operations.size()), in.agreements, in.options.timeline != nullptr);
  in.under_way->set(run);
  in.start_operations(run);
  actors::keep(*in.core->runtime, run, in.options.deadline);
}

void flow::inside::wait() {
  if (!end) refuse("it was not started yet; call start() first");
  if (end->done()) return;
  actors::runtime::check_may_wait();
  const gate::pass door{core->door};
  if (!door) {  // the engine is closing, which ends the run
    actors::parker place;
    if (!end->enter(place)) return;
    while (!end->done()) place.park(actors::no_deadline);
    end->leave(place);
    return;
  }
  if (const auto run = under_way->get()) actors::turn(*core->runtime, *run, end, ranks);
  else core->runtime->wait(end);  // it is over, and about to say so
}

void flow::wait() {
  inside_->wait();
  if (inside_->end->why()) throw_failure(inside_->end->why());
}

std::error_code flow::try_wait() noexcept {
  try {
    wait();
    return {};
  } catch (const error& e) {
    return e.code();
  } catch (...) {
    return make_error_code(errc::out_of_memory);
  }
}

void flow::cancel() {
  if (const auto run = inside_->under_way->get())
    run->fail(make_failure(errc::cancelled, inside_->where() + ": cancel was called"));
}

bool flow::done() const noexcept { return !inside_ || !inside_->end || inside_->end->done(); }

}  // namespace troupe
