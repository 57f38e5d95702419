// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/scenario.hpp"

#include <algorithm>
#include <array>

#include "engine/tools/simulate/virtual_time.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe::simulate {

namespace {

std::string time_text(std::int64_t ns) {
  if (ns % ms == 0) return std::to_string(ns / ms) + " ms";
  if (ns % us == 0) return std::to_string(ns / us) + " us";
  return std::to_string(ns) + " ns";
}

std::string plural_ranks(int ranks) { return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"); }

std::string describe(const item& it) {
  if (it.pair)
    return "send " + std::to_string(it.what.count) + " × " + std::string{name(it.what.type)} + " from rank " +
           std::to_string(it.from) + " to rank " + std::to_string(it.to) +
           (it.tag != 0 ? ", tag " + std::to_string(it.tag) : "");
  if (it.what.outcome_of) return "outcome of item " + std::to_string(it.asks_about);
  call shown = it.what;
  if (!shown.uniform) shown.counts = it.counts;
  std::string text = to_string(shown) + " by " + std::string{name(it.how.port)} + ", " +
                     std::string{all_choreographies()[static_cast<std::size_t>(it.how.choreography)]->name};
  if (it.how.agreement != agreement_form::none) text += ", agreement " + std::string{name(it.how.agreement)};
  if (it.how.port == port_kind::tiers)
    for (const stage_way* by : {&it.how.collect, &it.how.spread})
      text += std::string{by == &it.how.collect ? ", collected" : ", spread"} + " by " + std::string{name(by->port)} +
              ", " + std::string{all_choreographies()[static_cast<std::size_t>(by->choreography)]->name} +
              (by->agreement != agreement_form::none ? ", agreement " + std::string{name(by->agreement)} : "");
  if (it.how.eager) text += ", may run ahead";
  if (it.how.ask) text += ", membership asked";
  if (it.how.fold) text += ", folded";
  if (it.how.any_order) text += ", any order";
  if (it.how.port == port_kind::nic) text += ", credits " + std::to_string(it.how.credits);
  if (it.how.port == port_kind::mailbox || it.how.port == port_kind::tiers)
    text += ", credits " + std::to_string(it.how.credits) + ", channels " + std::to_string(it.how.channels) +
            ", slices " + std::to_string(it.how.slices.slices) +
            (it.how.slices.slices_per_step > 1 ? " by " + std::to_string(it.how.slices.slices_per_step) : "");
  for (std::size_t r = 0; 2 * r < it.divided.size(); ++r)
    text += (r == 0 ? "; color/key of each rank: " : ", ") + std::to_string(it.divided[2 * r]) + '/' +
            std::to_string(it.divided[2 * r + 1]);
  return text;
}

/// @param indent of the items of a part
std::string describe_program(const scenario& s, const std::string& indent) {
  std::string text;
  for (const item& it : s.items) {
    text += "\n" + indent + "item " + std::to_string(it.id) + ": " + describe(it);
    for (const part_of_split& p : it.parts)
      text += "\n" + indent + "  part " + std::to_string(p.color) + ": seed " + std::to_string(p.what.seed) + ", " +
              plural_ranks(p.what.ranks) + (p.what.leave_late ? ", handles live to the end" : "") +
              describe_program(p.what, indent + "    ");
  }
  for (const disturbance& x : s.disturbances) {
    text += "\n" + indent + "rank " + std::to_string(x.rank) + ": " + std::string{name(x.what)};
    if (x.item >= 0) text += " at item " + std::to_string(x.item);
    using kind = disturbance::kind;
    if (x.what == kind::cancel || x.what == kind::deadline || x.what == kind::kill || x.what == kind::abort)
      text += ", after " + time_text(x.after_ns);
    if (x.what == kind::raise) text += ", at its call " + std::to_string(x.number);
    for (const item& other : x.instead) text += ": " + describe(other);
  }
  return text;
}

}  // namespace

std::string_view name(disturbance::kind what) {
  switch (what) {
    case disturbance::kind::other_call: return "other call";
    case disturbance::kind::skip: return "skip";
    case disturbance::kind::cancel: return "cancel";
    case disturbance::kind::deadline: return "deadline";
    case disturbance::kind::leave: return "leave";
    case disturbance::kind::raise: return "throw";
    case disturbance::kind::kill: return "kill";
    case disturbance::kind::abort: return "abort";
    case disturbance::kind::refuse: return "refused call";
  }
  return "?";
}

std::string_view name(process_loss::kind what) {
  constexpr std::array<std::string_view, 5> names{"killed", "killed in a posting that is not counted",
                                                  "killed in a posting of which nobody was told", "stopped",
                                                  "stopped while its NIC performs"};
  return names[static_cast<std::size_t>(what)];
}

fault_kinds parse_faults(const std::string& text) {
  if (text == "all") return {};
  fault_kinds none{false, false, false, false, false, false, false, false, false, false, false};
  if (text == "none") return none;
  struct named {
    std::string_view name;
    bool fault_kinds::*which;
  };
  static constexpr std::array<named, 11> known{{{"lose", &fault_kinds::lose},
                                                {"twice", &fault_kinds::twice},
                                                {"delay", &fault_kinds::delay},
                                                {"kill", &fault_kinds::kill},
                                                {"abort", &fault_kinds::abort},
                                                {"cancel", &fault_kinds::cancel},
                                                {"deadline", &fault_kinds::deadline},
                                                {"leave", &fault_kinds::leave},
                                                {"mismatch", &fault_kinds::mismatch},
                                                {"throw", &fault_kinds::raise},
                                                {"refuse", &fault_kinds::refuse}}};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const auto found = std::find_if(known.begin(), known.end(), [&](const named& n) { return n.name == word; });
    if (word == "all" || word == "none")
      throw error(errc::bad_config, "--faults: \"" + word + "\" stands alone, not in a list as \"" + text + '"');
    if (found == known.end()) {
      std::vector<std::string_view> names{"all", "none"};
      for (const named& n : known) names.push_back(n.name);
      std::string list;
      for (const std::string_view n : names) list += (list.empty() ? "" : ", ") + std::string{n};
      const auto near = closest(word, names);
      throw error(errc::bad_config, "--faults: there is no fault \"" + word + '"' +
                                        (near.empty() ? "" : "; did you mean " + std::string{near} + "?") +
                                        " (there are " + list + ")");
    }
    none.*(found->which) = true;
    begin = end + 1;
  }
  return none;
}

call call_of(const item& of, int ranks, rank_t rank) {
  call c = of.what;
  if (c.uniform || c.outcome_of) return c;
  const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank);
  if (c.what == collective::all_to_all) {
    for (std::size_t i = 0; i < n; ++i) {
      c.counts.push_back(of.counts[me * n + i]);
      c.receive_counts.push_back(of.counts[i * n + me]);
    }
  } else if (has_root(c.what) && c.root != rank) {
    c.counts = {of.counts[me]};
  } else {
    c.counts = of.counts;
  }
  return c;
}
std::string scenario::to_string() const {
  std::string text = "seed " + std::to_string(seed) + ": " + plural_ranks(ranks) + ", " + std::to_string(channels) +
                     (channels == 1 ? " channel" : " channels");
  if (of_host > 0) text += ", " + std::to_string(hosts()) + " hosts of " + plural_ranks(of_host);
  if (nic.any())
    text += ", NICs of " + std::to_string(nic.units) + " units with " + std::to_string(nic.packets) + " packets of " +
            std::to_string(nic.packet_bytes) + " bytes and " + std::to_string(nic.scratch) + " bytes of scratch";
  if (nic.processes > 1)
    text += ", " + std::to_string(nic.processes) + " processes a host" + (nic.maps ? " that map all memory" : "");
  if (nic.nicd) text += ", a NIC process";
  if (nic.loses.any()) {
    text += ", process " + std::to_string(nic.loses.process) +
            (of_host > 0 ? " of host " + std::to_string(nic.loses.host) : std::string{}) + " is " +
            std::string{name(nic.loses.what)} + " after " + time_text(nic.loses.after_ns);
    if (nic.loses.goes_on_after_ns >= 0) text += ", and goes on after " + time_text(nic.loses.goes_on_after_ns);
  }
  if (nic.ends_after_ns >= 0)
    text +=
        std::string{nic.ends_in_order ? " that ends" : " that is killed"} + " after " + time_text(nic.ends_after_ns);
  if (first != 0) text += ", first number " + std::to_string(first);
  if (dma) text += ", with DMA engines";
  if (pairs_by_mailbox) text += ", sends by mailbox";
  if (parts_by_mailbox) text += ", parts by mailbox";
  if (sends_are_left) text += ", short sends left on the board";
  if (leave_late) text += ", handles live to the end";
  if (strangers) text += ", callers that do not know each other";
  if (all_async) text += ", all calls asynchronous";
  if (lose_percent > 0) text += ", " + std::to_string(lose_percent) + " % of the chunks lost";
  if (twice_percent > 0) text += ", " + std::to_string(twice_percent) + " % twice";
  if (late_percent > 0) text += ", " + std::to_string(late_percent) + " % of the messages late";
  return text + describe_program(*this, "  ");
}

std::size_t scenario::size() const {
  std::size_t all = items.size() * 4 + disturbances.size() * 2 + static_cast<std::size_t>(ranks);
  for (const item& it : items)
    for (const part_of_split& p : it.parts) all += p.what.size();
  return all;
}

std::vector<scenario*> scenario::all() {
  std::vector<scenario*> found{this};
  for (item& it : items)
    for (part_of_split& p : it.parts) {
      const std::vector<scenario*> inside = p.what.all();
      found.insert(found.end(), inside.begin(), inside.end());
    }
  return found;
}

bool scenario::disturbed() const {
  return !disturbances.empty() || nic.ends_after_ns >= 0 || nic.loses.any() ||
         std::any_of(items.begin(), items.end(), [](const item& it) {
           return std::any_of(it.parts.begin(), it.parts.end(),
                              [](const part_of_split& p) { return p.what.disturbed(); });
         });
}

const part_of_split* part_for(const item& of, std::int32_t color) {
  const auto at =
      std::find_if(of.parts.begin(), of.parts.end(), [&](const part_of_split& p) { return p.color == color; });
  return at == of.parts.end() ? nullptr : &*at;
}

}  // namespace troupe::simulate
