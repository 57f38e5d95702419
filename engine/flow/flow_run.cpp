// SPDX-License-Identifier: Apache-2.0
// Runs: what nodes do with real tiles, and how a run begins and ends.
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "actors/caf/runtime.hpp"
#include "engine/flow/flow_inside.hpp"
#include "engine/flow/flow_record.hpp"
#include "engine/flow/timeline.hpp"
#include "engine/world/partitioned_access.hpp"
#include "memory/error.hpp"

namespace troupe {

using actors::flow_tile;

namespace {

// An operation that is ended with a reason puts its own name before it, and behind it what its ranks wait for; the user of a flow knows neither. So the
// reason is in quotation marks on its way to the other ranks.
constexpr std::string_view opening = "«flow ", closing = "»";

std::string quoted(const std::string& reason) { return "«" + reason + "»"; }

/// What a flow has said, if one has. @param with_absent and which ranks have not come
std::optional<std::string> unquoted(const std::string& text, bool with_absent) {
  const std::size_t from = text.find(opening), to = text.rfind(closing);
  if (from == std::string::npos || to == std::string::npos || to < from) return std::nullopt;
  const std::size_t begin = from + opening.find('f');
  std::string said = text.substr(begin, to - begin);
  const std::size_t rest = to + closing.size();
  if (with_absent && text.compare(rest, 2, "; ") == 0) said += text.substr(rest, text.find('\n', rest) - rest);
  return said;
}

}  // namespace

/// Holds the flow until the run is over.
struct flow::inside::run final : actors::flow_host {
  explicit run(std::shared_ptr<inside> flow) : of(std::move(flow)), end(of->end), places(of->nodes.size()) {
    if (of->options.timeline != nullptr) records.resize(of->nodes.size());
    begin_nodes();
  }

  failure_ptr perform(std::int32_t node, const std::vector<flow_tile>& in, const flow_tile* out,
                      std::int32_t at) override {
    if (not_begun) return not_begun;
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
    const failure_ptr told = make_failure(why->code, quoted(why->text));
    for (const auto& one : of->operations)
      if (one->outside) one->outside->end(why);
      else partitioned_access::end(one->what, told);
  }
  void over(const failure_ptr& why) override {
    if (watched()) flow::record(*of->options.timeline, {of->plan, of->rank, std::move(records)});
    of->under_way->set(nullptr);
    of = nullptr;  // its owner may go as soon as it hears
    end->complete(why);
  }

private:
  /// An exception of one of them ends the run as soon as a node would work: the other ranks hear of it when all operations are under way.
  void begin_nodes() {
    for (std::size_t n = 0; n < of->nodes.size() && !not_begun; ++n) try {
        if (const auto& begin = of->nodes[n].what.begin) begin();
      } catch (...) {
        not_begun = failure_of(static_cast<std::int32_t>(n), "begin()");
      }
  }
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
  failure_ptr not_begun;                        ///< what a begin() threw; null: nothing
};

std::string flow::inside::where() const {
  return "flow " + name + (operations.empty() ? "" : ", rank " + std::to_string(rank));
}

/// Whose operation it is, in the words of all ranks.
std::string flow::inside::where_of(int operation) const {
  const int node = operations[static_cast<std::size_t>(operation)]->node;
  return "flow " + name + (node < 0 ? "" : ", node " + nodes[static_cast<std::size_t>(node)].what.name);
}

/// The failure with which an operation ended, in the words of the flow that has ended it, or else with the flow and the node. Of a deadline it keeps
/// which ranks have not come.
failure_ptr flow::inside::placed(int operation, const failure_ptr& why) const noexcept {
  if (!why) return why;
  try {
    const std::optional<std::string> said = unquoted(why->text, why->code == errc::timed_out);
    return make_failure(why->code, said ? *said : where_of(operation) + ": " + why->text);
  } catch (...) {  // no memory: then it stays as it is
    return why;
  }
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
        partitioned_access::when_done(
            operations[o]->what, [this, run, number](const failure_ptr& why) {  // it is there until the run is over
              run->ended(number, placed(number, why));
            });
        continue;
      }
    } catch (const error& e) {
      broken = make_failure(e.code_value(), where_of(number) + ": " + e.what());
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
  inside& in = here();
  const gate::pass door{in.core->door};
  if (!door) refuse_closed();
  if (!done()) in.refuse("it is still under way; wait for it before it is started again");
  in.check();
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
  inside& in = here();
  in.wait();
  if (in.end->why()) throw_failure(in.end->why());
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
  if (!inside_) return;
  if (const auto run = inside_->under_way->get())
    run->fail(make_failure(errc::cancelled, inside_->where() + ": cancel was called"));
}

bool flow::done() const noexcept { return !inside_ || !inside_->end || inside_->end->done(); }

}  // namespace troupe
