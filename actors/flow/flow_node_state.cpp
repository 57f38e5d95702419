// SPDX-License-Identifier: Apache-2.0
#include "actors/flow/flow_node_state.hpp"

#include <algorithm>

namespace troupe::actors {

flow_node_state::flow_node_state(const flow_plan& plan, std::int32_t node) : plan_(&plan), node_(node) {
  waiting_.resize(me().inputs.size());
  taken_.reserve(me().inputs.size());
}

void flow_node_state::begin() {
  for (auto& queue : waiting_) queue.clear();
  taken_.clear();
  work_ = given_out_ = given_ = tiles_in_ = 0;
  busy_ = comes_again_ = over_ = finished_ = false;
  free_.clear();
  readers_.clear();
  if (me().output >= 0) {
    const flow_stream& s = stream(me().output);
    const std::int32_t slots = s.kept ? s.tiles : s.credit;
    readers_.assign(static_cast<std::size_t>(slots), 0);
    if (!s.kept)
      for (std::int32_t slot = slots; slot-- > 0;) free_.push_back(slot);
  }
  if (collective()) {
    missing_.assign(static_cast<std::size_t>(me().parts), me().blocks_in);
    here_.assign(static_cast<std::size_t>(me().given), false);
    arrivals_.clear();
  }
}

void flow_node_state::tile(std::int32_t input, flow_tile what, flow_outbox& out) {
  if (over_) return;
  if (!collective()) {
    waiting_[static_cast<std::size_t>(input)].push_back(what);
    return advance(out);
  }
  // It was written where the collective reads it, and stays there: the credit goes back at once.
  ++tiles_in_;
  const std::int32_t part = what.index / me().blocks_in;
  if (--missing_[static_cast<std::size_t>(part)] == 0) out.ready(part);
  out.give_back(me().inputs[static_cast<std::size_t>(input)], what.slot);
  end_if_done(out);
}

void flow_node_state::given_back(std::int32_t slot, flow_outbox& out) {
  if (over_ || --readers_[static_cast<std::size_t>(slot)] > 0) return;
  --given_out_;
  if (!stream(me().output).kept) free_.push_back(slot);
  if (collective()) give_arrived(out);
  else advance(out);
}

void flow_node_state::arrived(std::int32_t part, flow_outbox& out) {
  if (over_) return;
  const std::int32_t tile = me().tile_of(part);
  here_[static_cast<std::size_t>(tile)] = true;
  if (me().output >= 0 && !stream(me().output).in_order) arrivals_.push_back(tile);
  give_arrived(out);
}

void flow_node_state::go_on(flow_outbox& out) {
  comes_again_ = false;
  advance(out);
}

void flow_node_state::performed(flow_outbox& out) {
  if (over_) return;
  conclude(out);
  advance(out);
}

bool flow_node_state::writes() const { return me().output >= 0 && given_ < stream(me().output).tiles; }

flow_wait flow_node_state::waits_for() const {
  using what_for = flow_wait::what_for;
  if (finished_) return {};
  if (busy_) return {what_for::work, -1, work_};
  if (collective()) {
    if (me().output >= 0 && !may_give()) return {what_for::credit, me().output, given_};
    if (!me().inputs.empty() && tiles_in_ < me().taken) return {what_for::tile, me().inputs.front(), tiles_in_};
    return {what_for::part, me().output, given_};
  }
  if (work_ == pieces()) return {};
  if (!leads())
    for (std::size_t i = 0; i < waiting_.size(); ++i)
      if (waiting_[i].empty()) return {what_for::tile, me().inputs[i], work_ - me().lead};
  if (writes() && begins_output() && !may_give()) return {what_for::credit, me().output, given_};
  return {};
}

void flow_node_state::advance(flow_outbox& out) {
  if (over_ || finished_ || busy_ || comes_again_ || collective()) return;
  if (work_ < pieces() && waits_for().what == flow_wait::what_for::nothing) work(out);
  if (over_ || finished_ || busy_) return;
  if (work_ < pieces() && waits_for().what == flow_wait::what_for::nothing) {
    comes_again_ = true;
    out.again();
  }
}

flow_tile flow_node_state::take_slot(std::int32_t index) {
  ++given_out_;
  if (stream(me().output).kept) return {index, index};
  const std::int32_t slot = free_.back();
  free_.pop_back();
  return {index, slot};
}

void flow_node_state::work(flow_outbox& out) {
  taken_.clear();
  if (!leads())
    for (auto& queue : waiting_) {
      taken_.push_back(queue.front());
      queue.pop_front();
    }
  // Tiles may come as they arrive; then they keep their index.
  const bool keeps_index = !taken_.empty() && me().lead == 0 && me().every == 1;
  if (writes() && begins_output()) writing_ = take_slot(keeps_index ? taken_.front().index : given_);
  busy_ = true;
  const std::int32_t at = leads() ? 0 : (work_ - me().lead) % me().every;
  switch (out.perform(taken_, writes() ? &writing_ : nullptr, at)) {
    case flow_progress::done: return conclude(out);
    case flow_progress::later: return;
    case flow_progress::failed: over_ = true;
  }
}

void flow_node_state::conclude(flow_outbox& out) {
  busy_ = false;
  const bool emits = writes() && ends_output();
  ++work_;
  if (emits) emit(writing_, out);
  for (std::size_t i = 0; i < taken_.size(); ++i) out.give_back(me().inputs[i], taken_[i].slot);
  taken_.clear();
  end_if_done(out);
}

void flow_node_state::emit(flow_tile what, flow_outbox& out) {
  ++given_;
  const flow_stream& s = stream(me().output);
  readers_[static_cast<std::size_t>(what.slot)] = static_cast<std::int32_t>(s.to.size());
  for (const flow_port& reader : s.to) out.give(reader, what);
}

void flow_node_state::give_arrived(flow_outbox& out) {
  if (me().output >= 0) {
    const bool in_order = stream(me().output).in_order;
    while (given_ < me().given && may_give()) {
      std::int32_t next = given_;
      if (in_order ? !here_[static_cast<std::size_t>(next)] : arrivals_.empty()) break;
      if (!in_order) {
        next = arrivals_.front();
        arrivals_.pop_front();
      }
      emit(take_slot(next), out);
    }
  }
  end_if_done(out);
}

void flow_node_state::end_if_done(flow_outbox& out) {
  if (finished_ || over_) return;
  if (collective()) {
    if (tiles_in_ < (me().inputs.empty() ? 0 : me().taken) || given_ < me().given) return;
  } else if (work_ < pieces()) {
    return;
  }
  finished_ = true;
  out.finished();
}

}  // namespace troupe::actors
