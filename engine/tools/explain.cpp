// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/explain.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "actors/ports/link/ucx/ucx_transport.hpp"
#include "engine/config/configuration.hpp"
#include "engine/planning/plan_choice.hpp"
#include "engine/planning/tuning.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "protocols/plan.hpp"
#include "protocols/program/direct_sizes.hpp"
#include "protocols/program/direct_staging.hpp"
#include "topology/machine/routes.hpp"

namespace troupe {

namespace {

std::string number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// GB/s; 0 where nothing is moved.
double algorithm_bandwidth(const explanation& e, const candidate& c) {
  return c.predicted_seconds > 0 ? static_cast<double>(e.bytes) / c.predicted_seconds / 1e9 : 0;
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

void append_row(std::string& table, const std::vector<std::string>& cells, std::size_t name_width) {
  constexpr std::size_t widths[] = {0, 10, 10, 8, 15, 13, 14, 8};
  std::string row = padded(cells[0], name_width, false);
  for (std::size_t i = 1; i < cells.size(); ++i) {
    if (i < std::size(widths) && cells[i].size() >= widths[i]) row += ' ';
    row += padded(cells[i], i < std::size(widths) ? widths[i] : 0, i < std::size(widths));
  }
  table += row.erase(row.find_last_not_of(' ') + 1) + '\n';
}

/// (protocol, why) → the choreographies that can be performed, but not so.
using impossible_rows = std::map<std::pair<std::string, std::string>, std::vector<std::string>>;

/// One line a reason.
void append_impossible(std::string& text, const impossible_rows& rows, std::size_t everybody) {
  std::string last;
  for (const auto& [how, who] : rows) {
    std::string names;
    for (const std::string& name : who) names += (names.empty() ? "" : ", ") + name;
    text += how.first == last ? "" : "\nnot " + how.first + ":\n";
    text += "  " + (who.size() == everybody ? "nobody" : names) + ": " + how.second + '\n';
    last = how.first;
  }
}

nlohmann::ordered_json to_json_object(const explanation& e, const candidate& c) {
  nlohmann::ordered_json o;
  o["choreography"] = c.choreography;
  o["protocol"] = c.protocol;
  o["eligible"] = c.eligible();
  o["chosen"] = c.chosen;
  for (const char* key : {"channels", "slices", "slices_per_step", "predicted_us", "algbw", "busbw"}) o[key] = nullptr;
  if (c.eligible()) {
    o["channels"] = c.channels;
    o["slices"] = c.slices;
    o["slices_per_step"] = c.slices_per_step;
    o["predicted_us"] = c.predicted_seconds * 1e6;
    if (e.bytes > 0) {
      o["algbw"] = algorithm_bandwidth(e, c);
      o["busbw"] = algorithm_bandwidth(e, c) * traits_of(e.what.what).bus_factor(e.placement.size());
    }
  }
  if (e.measured)
    o["measured_us"] =
        c.measured_seconds ? nlohmann::ordered_json(*c.measured_seconds * 1e6) : nlohmann::ordered_json();
  o["rank_order_fold"] = c.rank_order_fold;
  o["agreement"] = c.agreement;
  o["why_rejected"] = c.why_rejected;
  return o;
}

}  // namespace

std::size_t bus_bytes(collective what, int ranks, std::size_t block_bytes) {
  if (!moves_data(what)) return 0;
  if (block_count(what, ranks) == 1) return block_bytes;
  const auto n = static_cast<std::size_t>(ranks);
  if (block_bytes > std::numeric_limits<std::size_t>::max() / n)
    throw error(errc::size_overflow, "the operation's buffers exceed the address space");
  return block_bytes * n;
}

namespace {

/// What messages of rank 0 pass where the layout lies between the ranks, and that each element is as dear as the two channels.
std::string told_of_elements(const tuning& t, const layout& placement) {
  const machine elements{placement};
  std::map<std::pair<std::size_t, std::string>, int> ways;  // the shortest first, with the first rank that it leads to
  for (int r = 1; r < placement.size(); ++r) {
    const route way = route_between(elements, 0, r);
    std::string passed;
    for (const hop& h : way.hops) passed += (passed.empty() ? "" : ", ") + std::string{name(h.kind)};
    ways.try_emplace({way.hops.size(), passed}, r);
  }
  const std::string us = number(t.actor_message_ns / 1000, 1) + " us";
  std::string text = "; a message takes " + us + ", and " + us + " more at each element that it passes";
  for (const auto& [way, to] : ways)
    text += (way == ways.begin()->first ? ", from rank 0 " : "; ") + std::string{"to "} + std::to_string(to) + ": " +
            (way.first == 0 ? "none" : way.second);
  return text;
}

/// Of links only where messages go over them.
std::string told(const tuning& t, const layout& placement) {
  std::string text = t.measured.empty() ? "assumed (`troupe tune` measures them)"
                                        : "measured " + t.measured + (t.file.empty() ? "" : ", " + t.file);
  const reach_map where{placement};
  if (where.farthest_link() != reach::process)
    text += "; of frames between processes " + (t.links.empty() ? "assumed" : "measured by " + t.links);
  if (where.routed()) text += told_of_elements(t, placement);
  const auto of_network = [&](int borders) {
    return number(t.network_message_ns(borders) / 1000, 1) + " us and " +
           number(t.network_kilobyte_ns(borders) / 1000, 2) + " us a KiB";
  };
  for (int borders = 0; where.most_borders_between() > 0 && borders <= where.most_borders_between(); ++borders)
    text += (borders == 0   ? "; a frame between hosts "
             : borders == 1 ? ", across a border of groups "
                            : ", across " + std::to_string(borders) + " ") +
            of_network(borders);
  return text;
}

/// Of each rank, which knows the blocks as in a call of its own.
std::vector<direct_sizes> sizes_of_all(const direct_program& code, const call_shape& equal,
                                       const std::vector<std::size_t>* counts) {
  const auto ranks = static_cast<int>(code.bodies.size());
  std::vector<direct_sizes> all(code.bodies.size());
  const auto listed = [&](const block_run& run) {
    std::vector<std::size_t> list;
    for (int i = 0; i < run.count; ++i) list.push_back((*counts)[static_cast<std::size_t>(run.first + i * run.stride)]);
    return list;
  };
  for (rank_t r = 0; r < ranks; ++r) {
    call_shape shape = equal;
    std::vector<std::size_t> sent, received;
    if (counts != nullptr && traits_of(code.what).v == v_counts::every_pair) {
      shape.counts = sent = listed(input_blocks(code.what, ranks, code.root, r));
      shape.received = received = listed(output_blocks(code.what, ranks, code.root, r));
    } else if (counts != nullptr) {
      shape.counts = *counts;
    }
    all[static_cast<std::size_t>(r)].set(code, r, shape);
  }
  if (counts != nullptr)
    for (rank_t r = 1; r < ranks; ++r) all.front().learn(r, &all[static_cast<std::size_t>(r)].mine());
  return all;
}

/// What actors/ports/direct does with the buffers of such a call, as far as it follows from sizes.
std::optional<unmapped_buffers> buffers_of(planner& by, const call& what, const layout& placement,
                                           const std::vector<std::size_t>* counts) {
  const std::shared_ptr<const plan> how = by.plan_for(what, placement, counts);
  if (how == nullptr || how->direct() == nullptr || !how->direct()->between_processes) return {};
  const auto code = how->direct_program_of_all();
  if (code->used.empty()) return {};
  const call_shape shape{what.count, {}, {}, {}, size_of(how->work_type)};
  const std::vector<direct_sizes> sizes = sizes_of_all(*code, shape, counts);
  unmapped_buffers all;
  all.alone = !code->to_own.empty() && sizes.front().bytes_to_own() > direct_staging::most_by_one;
  all.most_input = direct_staging::most_input;
  all.most_output = direct_staging::longest_output(*code);
  for (rank_t r = 0; r < placement.size(); ++r) {
    const auto& used = code->used[static_cast<std::size_t>(r)];
    const direct_sizes& own = sizes[static_cast<std::size_t>(r)];
    if (used.reads_input) all.input = std::max(all.input, own.bytes_of_own(true));
    if (!used.outputs.empty()) all.output = std::max(all.output, own.bytes_of_own(false));
  }
  return all;
}

std::optional<cut_cells> cells_of(planner& by, const call& what, const layout& placement,
                                  const std::vector<std::size_t>* counts) {
  const std::shared_ptr<const plan> how = by.plan_for(what, placement, counts);
  if (how == nullptr || how->mailbox() == nullptr || how->notes == nullptr) return {};
  const std::size_t block = counts == nullptr || counts->empty() ? what.count : *std::ranges::max_element(*counts);
  const std::size_t cell = largest_part(block, static_cast<std::size_t>(std::max(1, how->notes->parts)));
  if (cell == 0) return {};
  const cutting cut = how->cut();
  const std::size_t of_channel = largest_part(cell, static_cast<std::size_t>(cut.channels));
  const std::size_t element = size_of(how->work_type);
  return cut_cells{cell * element, cut.channels, cut.slices, cut.slices_per_step,
                   largest_part(of_channel, static_cast<std::size_t>(cut.slices)) * element};
}

std::string cells_text(const cut_cells& c) {
  const auto told = [](std::size_t bytes) { return bytes_text(bytes) + (bytes % 1024 == 0 ? "" : " bytes"); };
  return "  a cell has " + told(c.cell) + ", in each of " + plural(static_cast<std::size_t>(c.channels), "channel") +
         " " + plural(static_cast<std::size_t>(c.slices), "slice") + " of at most " + told(c.slice) +
         (c.slices_per_step > 1 ? ", " + std::to_string(c.slices_per_step) + " a step" : "") + '\n';
}

nlohmann::ordered_json cells_json(const cut_cells& c) {
  return {{"bytes", c.cell},
          {"channels", c.channels},
          {"slices", c.slices},
          {"slices_per_step", c.slices_per_step},
          {"slice_bytes", c.slice}};
}

}  // namespace

explanation explain(planner& by, const call& what, const layout& placement, const std::vector<std::size_t>* counts) {
  explanation e{what,
                placement,
                0,
                by.candidates(what, placement, counts),
                by.path(what, placement, counts),
                by.asked(),
                told(by.machine(), placement),
                by.offload_of(what, placement, counts),
                {},
                {},
                {}};
  e.bytes = bus_bytes(what.what, placement.size(), what.count * size_of(what.type));
  if (const int of_host = ranks_of_each_host(placement);
      of_host > 0 && by.has_boards(layout_of_host(placement, of_host)))
    e.tiers = by.tiers_of(what, placement, of_host);
  const bool chosen = std::ranges::any_of(e.candidates, [](const candidate& c) { return c.chosen; });
  if (chosen && !placement.homes.empty()) e.unmapped = buffers_of(by, what, placement, counts);
  if (chosen) e.cells = cells_of(by, what, placement, counts);
  return e;
}

std::string name_of_transport(const std::string& wanted) {
  if (wanted != "ucx") return wanted;
  const std::string built = actors::ucx_version();
  return built.empty() ? "UCX, which this Troupe was built without" : "UCX " + built;
}

std::vector<reach_groups> ways_between(const layout& placement) {
  std::vector<reach_groups> ways;
  if (placement.homes.empty()) return ways;
  const reach_map all{placement};
  const auto distance = [&](int a, int b) { return static_cast<int>(all.between(a, b)) + all.borders_between(a, b); };
  for (int far = 0; far < reach_count + all.most_borders_between(); ++far) {
    // To be at most so far apart is an equivalence, so each rank's group is that of the first rank which it is so near to.
    std::vector<std::vector<int>> groups;
    bool any = false;
    for (int r = 0; r < placement.size(); ++r) {
      const auto near = std::find_if(groups.begin(), groups.end(),
                                     [&](const std::vector<int>& g) { return distance(g.front(), r) <= far; });
      if (near == groups.end()) {
        groups.push_back({r});
        continue;
      }
      any = any || std::any_of(near->begin(), near->end(), [&](int other) { return distance(other, r) == far; });
      near->push_back(r);
    }
    std::erase_if(groups, [](const std::vector<int>& g) { return g.size() < 2; });
    const reach how = static_cast<reach>(std::min(far, static_cast<int>(reach::network)));
    if (any) ways.push_back({how, far - static_cast<int>(how), std::move(groups)});
  }
  return ways;
}

const candidate* best_measured(const explanation& e) {
  const candidate* best = nullptr;
  for (const candidate& c : e.candidates)
    if (c.measured_seconds && (best == nullptr || *c.measured_seconds < *best->measured_seconds)) best = &c;
  return best;
}

namespace {

/// "0-3, 6, 8-9"
std::string ranges_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (i == 0 ? "" : ",") + std::to_string(ranks[i]) + (last > i ? "-" + std::to_string(ranks[last]) : "");
    i = last + 1;
  }
  return text;
}

std::string text_of(const reach_groups& way, const explanation& e) {
  if (way.borders > 0)
    return "hosts, across " + (way.borders == 1 ? "a border" : std::to_string(way.borders) + " borders") + " of groups";
  switch (way.how) {
    case reach::process: return "threads of a process, by address";
    case reach::segment: return "processes of a host, through memory that both map";
    case reach::network: return "hosts, through " + e.transport;
  }
  return "";
}

/// How data gets from one process of a host to another that does not map it; empty: no two are on one host.
std::string way_of_unmapped(const explanation& e) {
  if (std::ranges::none_of(ways_between(e.placement), [](const reach_groups& w) { return w.how == reach::segment; }))
    return {};
  if (!e.placement.copies) return "frames";
  return e.stages == "always" ? "stages" : e.stages == "never" ? "system" : "measured";
}

std::string unmapped_text(const std::string& way) {
  if (way.empty()) return {};
  const std::string what = "  what others of a host do not map ";
  if (way == "frames") return what + "goes in frames, since the system forbids processes to copy from each other\n";
  if (way == "stages") return what + "goes by staging buffers (engine.stages)\n";
  if (way == "system") return what + "is copied by the system (engine.stages)\n";
  return what +
         "goes by staging buffers or is copied by the system, as the host's first process measures when it joins\n";
}

struct buffer_form {
  std::string_view form;  ///< "bcopy", "zcopy", "measured", "own"
  std::string told;
};

/// @param way way_of_unmapped()
buffer_form form_of(std::size_t bytes, std::size_t most, const std::string& way) {
  const std::string up_to = "staging buffers take up to " + bytes_text(most);
  if (bytes > most) return {"zcopy", "ZCopy, copied by the system: " + up_to};
  if (way == "stages") return {"bcopy", "BCopy, by staging buffers (engine.stages)"};
  if (way == "system") return {"zcopy", "ZCopy, copied by the system (engine.stages)"};
  return {"measured", "BCopy or ZCopy, as measured: " + up_to};
}
buffer_form form_of_output(const unmapped_buffers& b, const std::string& way) {
  return b.alone ? buffer_form{"own", "written by its own rank"} : form_of(b.output, b.most_output, way);
}

/// Of the chosen way: which form each buffer has, and from which size on.
std::string buffers_text(const explanation& e, const std::string& way) {
  if (!e.unmapped || way.empty() || way == "frames") return {};
  const unmapped_buffers& b = *e.unmapped;
  const auto line = [](const std::string& what, const std::string& how) {
    return "    " + padded(what + ":", 50, false) + how + '\n';
  };
  std::string text = "  buffers of this call\n" + line("where all map them (engine.allocate)", "ZCopy, at any size");
  if (b.input > 0) text += line("else: input of " + bytes_text(b.input), form_of(b.input, b.most_input, way).told);
  if (b.output > 0) text += line("else: output of " + bytes_text(b.output), form_of_output(b, way).told);
  return text;
}

nlohmann::ordered_json buffers_json(const unmapped_buffers& b, const std::string& way) {
  const auto one = [](std::size_t bytes, std::size_t most, const buffer_form& form) {
    return nlohmann::ordered_json{{"bytes", bytes}, {"longest_staged", most}, {"form", form.form}};
  };
  nlohmann::ordered_json made = nlohmann::ordered_json::object();
  if (b.input > 0) made["input"] = one(b.input, b.most_input, form_of(b.input, b.most_input, way));
  if (b.output > 0) made["output"] = one(b.output, b.most_output, form_of_output(b, way));
  return made;
}

std::string ways_text(const explanation& e) {
  constexpr std::size_t most_groups = 16;
  std::string text;
  for (const reach_groups& way : ways_between(e.placement)) {
    text += "  " + padded(text_of(way, e) + ":", 52, false) + "ranks ";
    for (std::size_t g = 0; g < std::min(way.groups.size(), most_groups); ++g)
      text += (g == 0 ? "" : " | ") + ranges_text(way.groups[g]);
    if (way.groups.size() > most_groups) text += " | ...";
    text += '\n';
  }
  const std::string way = way_of_unmapped(e);
  return text.empty() ? text : "who reaches whom:\n" + text + unmapped_text(way) + buffers_text(e, way) + '\n';
}

nlohmann::ordered_json ways_json(const explanation& e) {
  static constexpr std::array<std::string_view, 3> names{"process", "segment", "network"};
  auto list = nlohmann::ordered_json::array();
  for (const reach_groups& way : ways_between(e.placement)) {
    nlohmann::ordered_json one{{"reach", names[static_cast<std::size_t>(way.how)]}};
    if (way.borders > 0) one["borders"] = way.borders;
    one["groups"] = way.groups;
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace

namespace {

std::string path_text(const explanation& e) {
  std::string text;
  for (const std::string& line : e.path) text += "  " + line + '\n';
  return text.empty() ? text : e.asked + ":\n" + text + '\n';
}

}  // namespace

namespace {

std::string offload_text(const offload_prospect& o, const layout& placement) {
  if (!o.why_not.empty()) return "not offloaded: " + o.why_not + '\n';
  const reach farthest = placement.homes.empty() ? reach::process : reach_map{placement}.farthest();
  const std::string who = farthest == reach::process   ? "the process's NIC"
                          : farthest == reach::network ? "the NIC of each host's first process"
                          : o.of_host                  ? "the host's NIC process (troupe nicd)"
                                                       : "the NIC of rank 0's process";
  const std::string how = "with " + o.choreography + ", predicted " + number(o.predicted_seconds * 1e6, 2) + " us";
  if (o.blocking) return "offloaded: " + who + " performs it, " + how + '\n';
  if (o.started)
    return "offloaded where it is started and not waited for: " + who + " performs it then, " + how + '\n' +
           "  since " + o.weighed + '\n';
  return "not offloaded: " + who + " could perform it, " + how + ", if engine.offload were " +
         (o.automatic ? "auto, where it is started and not waited for, or always\n  auto, since "
                      : "always\n  not with auto, since ") +
         o.weighed + '\n';
}

nlohmann::ordered_json offload_json(const offload_prospect& o) {
  const bool can = o.why_not.empty();
  nlohmann::ordered_json made;
  made["blocking"] = o.blocking;
  made["started"] = o.started;
  made["choreography"] = can ? nlohmann::ordered_json(o.choreography) : nlohmann::ordered_json();
  made["predicted_us"] = can ? nlohmann::ordered_json(o.predicted_seconds * 1e6) : nlohmann::ordered_json();
  made["automatic"] = o.automatic;
  made["weighed"] = o.weighed;
  made["idle_cores"] = o.idle_cores;
  const auto us = [&](double seconds) {
    return can && std::isfinite(seconds) && seconds > 0 ? nlohmann::ordered_json(seconds * 1e6)
                                                        : nlohmann::ordered_json();
  };
  made["callers_us"] = us(o.callers_seconds);
  made["taken_us"] = us(o.taken_seconds);
  made["why_not"] = o.why_not;
  return made;
}

struct shown_stage {
  std::string_view stage;
  const plan* how;
};
std::array<shown_stage, 3> stages_of(const tiers_plan& t) {
  return {{{"collect", t.collect.get()}, {"across", t.across.get()}, {"spread", t.spread.get()}}};
}

std::string tiers_text(const tiers_prospect& t) {
  if (t.how == nullptr) return "not in tiers: " + t.why_not + '\n';
  std::string text = t.chosen() ? "* it is performed in tiers" : "not in tiers, which should take longer";
  text += " (predicted " + number(t.how->predicted_seconds * 1e6, 2) + " us):\n";
  for (const auto& [stage, how] : stages_of(*t.how->tiers()))
    text += "  " + padded(std::string{stage}, 10, false) + how->choreography + ", " +
            std::string{name(how->protocol())} + ", " + number(how->predicted_seconds * 1e6, 2) + " us\n";
  return text;
}

nlohmann::ordered_json tiers_json(const tiers_prospect& t) {
  nlohmann::ordered_json made;
  made["chosen"] = t.chosen();
  made["predicted_us"] = t.how ? nlohmann::ordered_json(t.how->predicted_seconds * 1e6) : nlohmann::ordered_json();
  made["stages"] = nlohmann::ordered_json::array();
  if (t.how)
    for (const auto& [stage, how] : stages_of(*t.how->tiers()))
      made["stages"].push_back({{"stage", stage},
                                {"choreography", how->choreography},
                                {"protocol", name(how->protocol())},
                                {"predicted_us", how->predicted_seconds * 1e6}});
  made["why_not"] = t.why_not;
  return made;
}

}  // namespace

std::string to_text(const explanation& e) {
  std::size_t width = 14;
  for (const candidate& c : e.candidates) width = std::max(width, c.choreography.size() + 4);
  std::string text = to_string(e.what) + " on " + plural(static_cast<std::size_t>(e.placement.size()), "rank") +
                     ", layout " + e.placement.to_string() + ", " + std::to_string(e.bytes) + " bytes\n\n" +
                     ways_text(e) + path_text(e) + "predicted by costs " + e.costs + "\n\n";
  std::vector<std::string> head{"  choreography", "protocol", "channels", "slices", "predicted us", "busbw GB/s"};
  if (e.measured) head.insert(head.end(), {"measured us", "/ best"});
  append_row(text, head, width);
  impossible_rows impossible;
  std::set<std::string> performed;
  for (const candidate& c : e.candidates)
    if (c.eligible()) performed.insert(c.choreography);
  const candidate* best = best_measured(e);
  const double factor = traits_of(e.what.what).bus_factor(e.placement.size());
  for (const candidate& c : e.candidates) {
    const std::string shown = (c.chosen ? "* " : "  ") + c.choreography;
    if (!c.eligible() && performed.contains(c.choreography)) {
      impossible[{c.protocol, c.why_rejected}].push_back(c.choreography);
      continue;
    }
    if (!c.eligible()) {
      append_row(text, {shown, "  rejected: " + c.why_rejected}, width);
      continue;
    }
    std::vector<std::string> row{shown,
                                 c.protocol,
                                 std::to_string(c.channels),
                                 std::to_string(c.slices) +
                                     (c.slices_per_step > 1 ? " by " + std::to_string(c.slices_per_step) : ""),
                                 number(c.predicted_seconds * 1e6, 2),
                                 e.bytes > 0 ? number(algorithm_bandwidth(e, c) * factor, 2) : "-"};
    if (e.measured) row.push_back(c.measured_seconds ? number(*c.measured_seconds * 1e6, 2) : "-");
    if (e.measured) row.push_back(c.measured_seconds ? number(*c.measured_seconds / *best->measured_seconds, 2) : "-");
    append_row(text, row, width);
    if (c.rank_order_fold) text.insert(text.size() - 1, "  folded in rank order");
  }
  append_impossible(text, impossible, performed.size());
  const auto chosen =
      std::find_if(e.candidates.begin(), e.candidates.end(), [](const candidate& c) { return c.chosen; });
  const bool in_tiers = e.tiers && e.tiers->chosen();
  if (in_tiers) text += '\n' + tiers_text(*e.tiers);
  text += chosen == e.candidates.end()
              ? "\nnone can perform it\n"
              : (in_tiers ? "else " : "\n* ") + chosen->choreography + " performs it (" + chosen->protocol +
                    (chosen->agreement.empty() ? "" : ", agreement " + chosen->agreement) + ")\n";
  if (e.cells) text += cells_text(*e.cells);
  if (e.tiers && !in_tiers) text += tiers_text(*e.tiers);
  text += offload_text(e.offload, e.placement);
  if (best != nullptr && chosen != e.candidates.end() && chosen->measured_seconds)
    text += "measured: the best is " + best->choreography + " (" + best->protocol + "), the choice takes " +
            number(*chosen->measured_seconds / *best->measured_seconds, 2) + " times as long\n";
  return text;
}

std::string to_json(const explanation& e, int indent) {
  nlohmann::ordered_json o;
  o["collective"] = std::string{name(e.what.what)} + (e.what.uniform ? "" : "_v");
  o["ranks"] = e.placement.size();
  o["layout"] = e.placement.to_string();
  if (!e.placement.homes.empty()) {
    o["ways"] = ways_json(e);
    const std::string way = way_of_unmapped(e);
    if (!way.empty()) o["unmapped"] = way;
    if (e.unmapped && !way.empty() && way != "frames") o["buffers"] = buffers_json(*e.unmapped, way);
    o["between_hosts"] = e.transport;
  }
  if (e.what.uniform) o["count"] = e.what.count;
  else o["counts"] = e.what.counts;
  o["type"] = name(e.what.type);
  o["op"] = is_reduction(e.what.what) ? nlohmann::ordered_json(name(e.what.reduction.kind)) : nlohmann::ordered_json();
  if (has_root(e.what.what)) o["root"] = e.what.root;
  o["determinism"] = name(e.what.level);
  o["in_place"] = e.what.in_place;
  o["bytes"] = e.bytes;
  if (!e.path.empty()) o["path"] = e.path;
  o["costs"] = e.costs;
  o["chosen"] = o["protocol"] = nullptr;
  o["candidates"] = nlohmann::ordered_json::array();
  for (const candidate& c : e.candidates) {
    if (c.chosen) o["chosen"] = c.choreography, o["protocol"] = c.protocol;
    o["candidates"].push_back(to_json_object(e, c));
  }
  if (e.tiers) o["tiers"] = tiers_json(*e.tiers);
  if (e.cells) o["cells"] = cells_json(*e.cells);
  o["offload"] = offload_json(e.offload);
  if (const candidate* best = best_measured(e))
    o["best_measured"] = {{"choreography", best->choreography}, {"protocol", best->protocol}};
  return o.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace troupe
