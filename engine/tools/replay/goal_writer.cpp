// SPDX-License-Identifier: Apache-2.0
// An application as GOAL, with our line for collectives.
#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/tools/replay/application.hpp"

#include "memory/error.hpp"

namespace troupe {

namespace {

using kind_t = replay_operation::kind;

/// The blocks that a rank says itself.
std::vector<std::size_t> own_counts(const application_call& c, std::size_t member, std::size_t members) {
  switch (traits_of(c.kind.what).v) {
    case v_counts::every_pair: {
      const auto row = c.counts.begin() + static_cast<std::ptrdiff_t>(member * members);
      return {row, row + static_cast<std::ptrdiff_t>(members)};
    }
    case v_counts::rooted:
      if (static_cast<rank_t>(member) != c.root) return {c.counts[member]};
      break;
    case v_counts::none:
    case v_counts::common: break;
  }
  return c.counts;
}

std::string collective_text(const application& of, const application::collective& c, int rank) {
  const application::communicator& in = of.communicators[c.communicator];
  const application_call& w = c.what;
  std::string text = "coll " + name(w.kind);
  if (w.kind.v_form) {
    const auto member = static_cast<std::size_t>(std::ranges::find(in.ranks, rank) - in.ranks.begin());
    char between = ' ';
    for (const std::size_t n : own_counts(w, member, in.ranks.size()))
      text += std::exchange(between, ',') + std::to_string(n);
  } else if (!w.kind.is_barrier()) {
    text += " " + std::to_string(w.count);
  }
  if (!w.kind.is_barrier()) text += " " + std::string{name(w.type)};
  if (w.kind.reduces()) text += " " + std::string{name(w.reduction.kind)};
  if (w.kind.rooted()) text += " root " + std::to_string(w.root);
  if (c.communicator != 0) text += " comm " + in.name;
  if (!w.choreography.empty()) text += " by " + w.choreography;
  return text;
}

std::string operation_text(const application& of, const replay_operation& o, int rank) {

  std::string text;
  switch (o.what) {
    case kind_t::calc: text = "calc " + std::to_string((o.amount + 500) / 1000); break;
    case kind_t::send:
      text = "send " + std::to_string(o.amount) + "b to " + std::to_string(o.peer) + " tag " + std::to_string(o.tag);
      break;
    case kind_t::recv:
      text = "recv " + std::to_string(o.amount) + "b from " + std::to_string(o.peer) + " tag " + std::to_string(o.tag);
      break;
    case kind_t::collective: return collective_text(of, of.collectives[o.amount], rank);
    case kind_t::memory:
    case kind_t::ready:
    case kind_t::arrived: throw error(errc::unsupported, "GOAL has no operation \"" + std::string{name(o.what)} + "\"");
  }
  return o.cpu == 0 ? text : text + " cpu " + std::to_string(o.cpu);
}

std::string recorded_text(const application& of, std::size_t rank, std::size_t operation) {
  if (of.recorded.empty() || of.recorded[rank].size() <= operation) return {};
  const application::recorded_time& t = of.recorded[rank][operation];
  if (t.begin_ps < 0) return {};
  return "//@ l" + std::to_string(operation) + " from " + std::to_string(t.begin_ps / 1000) + " to " +
         std::to_string(t.end_ps / 1000) + "\n";
}

}  // namespace

std::string write_goal(const application& what) {
  std::string text;
  if (what.recorded_cores > 0) {
    const std::int64_t had = what.recorded_cpu_ps / 1000;
    text += "//@ cpu " + std::to_string(had) + " of " +
            std::to_string(std::llround(static_cast<double>(had) / what.recorded_cores)) +
            (what.recording_ps > 0 ? " recording " + std::to_string(what.recording_ps / 1000) : "") + "\n";
  }
  text += "num_ranks " + std::to_string(what.ranks.size()) + "\n";
  for (std::size_t c = 1; c < what.communicators.size(); ++c) {
    text += "comm " + what.communicators[c].name + " {";
    for (const int r : what.communicators[c].ranks) text += " " + std::to_string(r);
    text += " }\n";
  }
  for (std::size_t r = 0; r < what.ranks.size(); ++r) {
    const replay_rank& rank = what.ranks[r];
    text += "rank " + std::to_string(r) + " {\n";
    for (std::size_t i = 0; i < rank.operations.size(); ++i)
      text += "l" + std::to_string(i) + ": " + operation_text(what, rank.operations[i], static_cast<int>(r)) + "\n" +
              recorded_text(what, r, i);
    for (const replay_dependency& n : rank.needs)
      text +=
          "l" + std::to_string(n.later) + (n.begun ? " irequires l" : " requires l") + std::to_string(n.earlier) + "\n";
    text += "}\n";
  }
  return text;
}

}  // namespace troupe
