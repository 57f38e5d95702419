// SPDX-License-Identifier: Apache-2.0
// to_text: a score for people to read.

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "memory/spelling.hpp"
#include "protocols/score/score.hpp"
#include "protocols/score/seats.hpp"

namespace troupe {

namespace {

/// Larger scores would fill screens with a table nobody follows.
constexpr int table_ranks = 16;
constexpr std::size_t table_messages = 256;

/// Columns that a text takes up, not bytes: arrows and ⊕ are several bytes long.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::string padded(const std::string& text, std::size_t width, bool right = false) {
  const std::size_t used = columns(text);
  const std::string space(used < width ? width - used : 0, ' ');
  return right ? space + text : text + space;
}

std::string header(const score& s) {
  std::string text = (s.choreography.empty() ? "score" : s.choreography) + ": " + std::string{name(s.what)} + ", " +
                     plural(static_cast<std::size_t>(std::max(0, s.ranks)), "rank");
  if (has_root(s.what)) text += ", root " + std::to_string(s.root);
  text += ", " + plural(static_cast<std::size_t>(std::max(0, s.parts)), "part") + " a block";
  if (s.partitions > 0)
    text += " (" + plural(static_cast<std::size_t>(s.partitions), "piece") + " that get ready one by one)";
  text += s.in_place ? ", in place" : ", out of place";
  if (!s.uniform) text += ", blocks of different sizes";
  return text + ", " + plural(step_total(s), "step") + '\n';
}

/// "block 0 parts 0..3, block 2 part 1"; a stretch that comes again and again is written once: "block 0 parts 0..7 (8 times)"
std::string declared(const std::vector<extent>& cells) {
  std::vector<std::pair<std::string, int>> stretches;
  for (std::size_t i = 0; i < cells.size();) {
    std::size_t end = i + 1;
    while (end < cells.size() && cells[end].block == cells[i].block && cells[end].part == cells[end - 1].part + 1)
      ++end;
    std::string stretch = "block " + std::to_string(cells[i].block);
    stretch += end == i + 1 ? " part " : " parts ";
    stretch += std::to_string(cells[i].part);
    if (end > i + 1) stretch += ".." + std::to_string(cells[end - 1].part);
    if (stretches.empty() || stretches.back().first != stretch) stretches.emplace_back(std::move(stretch), 0);
    ++stretches.back().second;
    i = end;
  }
  std::string text;
  for (const auto& [stretch, times] : stretches)
    text += (text.empty() ? "" : ", ") + stretch + (times > 1 ? " (" + std::to_string(times) + " times)" : "");
  return text;
}

std::string buffer_line(std::string_view indent, std::string_view buffer, const std::vector<extent>& cells) {
  if (cells.empty()) return {};
  return std::string{indent} + std::string{buffer} + '[' + std::to_string(cells.size()) + "] holds " + declared(cells) +
         '\n';
}

/// "switch of server 0", "network".
std::string switch_name(const fabric_switch& f) {
  return f.server < 0 ? "the network" : "the switch of server " + std::to_string(f.server);
}

std::string lane_text(const lane& steps, std::size_t number, std::size_t kind_width, const std::string& whose) {
  std::string text = "  lane " + std::to_string(number) + whose + (steps.empty() ? ": nothing\n" : "\n");
  const std::size_t digits = std::to_string(steps.size()).size();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string sentence = to_string(steps[i]);
    const std::size_t colon = sentence.find(':');
    const std::string details = colon == sentence.npos ? std::string{} : sentence.substr(colon + 2);
    std::string line = "    " + padded(std::to_string(i), digits, true) + "  ";
    line +=
        details.empty() ? sentence.substr(0, colon) : padded(sentence.substr(0, colon), kind_width) + "  " + details;
    text += line + '\n';
  }
  return text;
}

// -- who sends to whom ------------------------------------------------------------------------------------------------

/// Puts every message into the earliest round it can have when a lane sends one message a round, and receives what a round
/// sent before the next. Steps may name anything: what cannot run is left out.
class rounds {
public:
  explicit rounds(const score& s) : score_(s) {
    for (const part& p : s.players) at_.emplace_back(p.lanes.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < at_.size(); ++r)
        for (std::size_t l = 0; l < at_[r].size(); ++l)
          while (sent_.size() <= table_messages && advance(r, l)) moved = true;
    }
  }

  std::string table() {
    if (sent_.empty() || sent_.size() > table_messages) return {};
    std::sort(sent_.begin(), sent_.end());
    sent_.erase(std::unique(sent_.begin(), sent_.end()), sent_.end());
    const std::size_t digits = std::to_string(std::get<0>(sent_.back())).size();
    std::string text = "who sends to whom, if every message takes one round:";
    int round = 0;
    for (const auto& [when, from, to] : sent_) {
      if (when != round) text += "\n  round " + padded(std::to_string(when), digits, true) + ' ';
      round = when;
      text += "  " + std::to_string(from) + "→" + std::to_string(to);
    }
    return text + '\n';
  }

private:
  struct clock {
    std::vector<int> done;  ///< round of every step performed
    int now = 0;
  };

  bool advance(std::size_t r, std::size_t l) {
    clock& mine = at_[r][l];
    const lane& steps = score_.players[r].lanes[l];
    if (mine.done.size() >= steps.size()) return false;
    const step& at = steps[mine.done.size()];
    int now = mine.now;
    if (at.after.lane >= 0) {
      const auto lane = static_cast<std::size_t>(at.after.lane);
      if (lane >= at_[r].size() || at.after.step < 0) return false;
      const auto& other = at_[r][lane].done;
      if (other.size() <= static_cast<std::size_t>(at.after.step)) return false;
      now = std::max(now, other[static_cast<std::size_t>(at.after.step)]);
    }
    if (receives(at.kind)) {
      auto& incoming = under_way_[{at.from, static_cast<rank_t>(r), l}];
      if (incoming.empty()) return false;
      now = std::max(now, incoming.front());
      incoming.pop_front();
    }
    if (sends(at.kind)) {
      under_way_[{static_cast<rank_t>(r), at.to, l}].push_back(++now);
      sent_.emplace_back(now, static_cast<rank_t>(r), at.to);
    }
    mine.now = now;
    mine.done.push_back(now);
    return true;
  }

  const score& score_;
  std::vector<std::vector<clock>> at_;
  std::map<std::tuple<rank_t, rank_t, std::size_t>, std::deque<int>> under_way_;
  std::vector<std::tuple<int, rank_t, rank_t>> sent_;
};

}  // namespace

std::string to_text(const score& s) {
  std::string text = header(s);
  if (s.ranks <= table_ranks) text += rounds{s}.table();
  text += buffer_line("", "l2", s.l2);
  for (const fabric_switch& f : s.switches)
    text += switch_name(f) + " reduces and multicasts among " + plural(f.members.size(), "rank") + '\n';
  const seat_map seats{s};
  std::size_t kind_width = 0;
  for (const part& player : s.players)
    for (const lane& steps : player.lanes)
      for (const step& at : steps) kind_width = std::max(kind_width, name(at.kind).size());
  for (std::size_t r = 0; r < s.players.size(); ++r) {
    const part& player = s.players[r];
    text += "rank " + std::to_string(r) + (player.lanes.empty() ? ": nothing to do\n" : "\n");
    text += buffer_line("  ", "scratch", player.scratch);
    text += buffer_line("  ", "l0", player.l0);
    for (std::size_t l = 0; l < player.lanes.size(); ++l) {
      const std::int32_t which = seats.of(static_cast<rank_t>(r), l);
      const std::string whose = which < 0 ? "" : ", of " + switch_name(s.switches[static_cast<std::size_t>(which)]);
      text += lane_text(player.lanes[l], l, kind_width, whose);
    }
  }
  return text;
}

}  // namespace troupe
