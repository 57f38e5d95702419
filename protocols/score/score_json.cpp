// SPDX-License-Identifier: Apache-2.0
// to_json and from_json. Format (every key that is not marked optional must be there; others are errors):
//
//   {"troupe_score": 1, "choreography": "ring"?, "collective": "all_reduce", "ranks": 2, "root": 0?, "in_place": false?,
//    "uniform": true?, "parts": 2?, "partitions": 2?, "l2": [[block, part], …]?,
//    "switches": [{"server": 0?, "members": [rank, …], "lanes": [[rank, lane], …]}, …]?,     those that reduce; without a server: the network
//    "players": [{"scratch": [[block, part], …]?, "l0": …?, "lanes": [[step, …], …]}, …]}     one player a rank
//   step: {"do": "recv_reduce_send", "from": 0, "source": "input[1]", "to": 0, "after": [lane, step]?, "swapped": true?, "called": "Ack"?}
//   a wait in a partitioned score: {"do": "wait", "ready": 1, "after": [lane, step]?}
//   place: "input[3]", "scratch[0..4)", "output[1]@2" for rank 2's output
//
// A step has the keys that its kind uses: "from" if it receives, "to" if it sends, "source" if it reads one, "target" if it
// writes one (a send, recv or recv_copy_send without one is a token), "swapped" if it reduces, "fan" for recv_reduce,
// "called" if it receives or sends (message_name).

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "protocols/score/score.hpp"

namespace troupe {

namespace {

using nlohmann::json;

// A file may say any number; these keep what is built from it small. Far beyond what a score needs.
constexpr std::int64_t max_ranks = 1 << 16;
constexpr std::int64_t max_parts = 1 << 20;
constexpr std::int64_t max_lanes = 1 << 12;                ///< of one rank
constexpr std::int64_t max_cells = std::int64_t{1} << 26;  ///< of all ranks' inputs and outputs together
constexpr std::int64_t max_index = std::numeric_limits<std::int32_t>::max();

bool may_be_token(step_kind kind) {
  return kind == step_kind::send || kind == step_kind::recv || kind == step_kind::recv_copy_send;
}

// -- writing ----------------------------------------------------------------------------------------------------------

std::string in_quotes(std::string_view text) { return json(text).dump(-1, ' ', false, json::error_handler_t::replace); }

std::string place_text(const place& at) {
  std::string text{name(at.buffer)};
  text += '[' + std::to_string(at.cell);
  text += at.count == 1 ? "]" : ".." + std::to_string(std::int64_t{at.cell} + at.count) + ')';
  if (at.owner != self) text += '@' + std::to_string(at.owner);
  return text;
}

std::string step_json(const step& s) {
  std::string text = "{\"do\": " + in_quotes(name(s.kind));
  const auto add = [&](const char* key, const std::string& value) {
    text += ", \"" + std::string{key} + "\": " + value;
  };
  if (receives(s.kind)) add("from", std::to_string(s.from));
  if (reads_source(s.kind) && (s.source != place{} || !may_be_token(s.kind)))
    add("source", in_quotes(place_text(s.source)));
  if (writes(s.kind) && (s.target != place{} || !may_be_token(s.kind))) add("target", in_quotes(place_text(s.target)));
  if (sends(s.kind)) add("to", std::to_string(s.to));
  if (reduces(s.kind) && s.swapped) add("swapped", "true");
  if (s.kind == step_kind::recv_reduce && s.fan != 0) add("fan", std::to_string(s.fan));
  if (s.called != message_name::none) add("called", in_quotes(name(s.called)));
  if (s.ready_part >= 0) add("ready", std::to_string(s.ready_part));
  if (s.after.lane >= 0) add("after", '[' + std::to_string(s.after.lane) + ", " + std::to_string(s.after.step) + ']');
  return text + '}';
}

std::string extents_json(const std::vector<extent>& cells) {
  std::string text = "[";
  for (const extent& e : cells) {
    if (text.size() > 1) text += ", ";
    text += '[' + std::to_string(e.block) + ", " + std::to_string(e.part) + ']';
  }
  return text + ']';
}

/// Line breaks and indentation; a negative indent puts everything on one line.
class json_lines {
public:
  explicit json_lines(int indent) : indent_(indent) {}
  std::string line(int depth) const {
    return indent_ < 0 ? std::string{}
                       : '\n' + std::string(static_cast<std::size_t>(indent_) * static_cast<std::size_t>(depth), ' ');
  }
  /// The items, one a line at `depth`, in brackets.
  std::string list(const std::vector<std::string>& items, int depth, char open, char close) const {
    std::string text(1, open);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text += indent_ < 0 ? ", " : ",";
      text += line(depth) + items[i];
    }
    if (!items.empty()) text += line(depth - 1);
    return text + close;
  }

private:
  int indent_;
};

std::string switch_json(const fabric_switch& f) {
  std::string text = "{";
  if (f.server >= 0) text += "\"server\": " + std::to_string(f.server) + ", ";
  text += "\"members\": [";
  for (std::size_t i = 0; i < f.members.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(f.members[i]);
  text += "], \"lanes\": [";
  for (std::size_t i = 0; i < f.lanes.size(); ++i)
    text += std::string{i > 0 ? ", " : ""} + '[' + std::to_string(f.lanes[i].rank) + ", " +
            std::to_string(f.lanes[i].lane) + ']';
  return text + "]}";
}

std::string player_json(const part& player, const json_lines& out) {
  std::vector<std::string> fields;
  if (!player.scratch.empty()) fields.push_back("\"scratch\": " + extents_json(player.scratch));
  if (!player.l0.empty()) fields.push_back("\"l0\": " + extents_json(player.l0));
  std::vector<std::string> lanes;
  for (const lane& steps : player.lanes) {
    std::vector<std::string> lines;
    for (const step& s : steps) lines.push_back(step_json(s));
    lanes.push_back(out.list(lines, 5, '[', ']'));
  }
  fields.push_back("\"lanes\": " + out.list(lanes, 4, '[', ']'));
  return out.list(fields, 3, '{', '}');
}

// -- reading ----------------------------------------------------------------------------------------------------------

/// Where in the document we are; made into text only for a message. Lives on the stack, innermost first.
struct json_path {
  const json_path* parent = nullptr;
  std::string_view key{};
  std::size_t index = 0;
  bool is_index = false;

  json_path at(std::string_view member) const { return {this, member, 0, false}; }
  json_path at(std::size_t item) const { return {this, {}, item, true}; }
  std::string text() const {
    if (parent == nullptr) return {};
    const std::string before = parent->text();
    if (is_index) return before + '[' + std::to_string(index) + ']';
    return before.empty() ? std::string{key} : before + '.' + std::string{key};
  }
};

std::string shortened(std::string text) {
  constexpr std::size_t most = 60;
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;  // not inside a character
  return text.substr(0, end) + "…";
}

std::string shown(const json& found) {
  if (found.is_array()) return "a list of " + std::to_string(found.size());
  if (found.is_object()) return "an object";
  return shortened(found.dump(-1, ' ', false, json::error_handler_t::replace));
}

/// "; did you mean 'send'?", or the list of what there is.
std::string suggestion(std::string_view wrong, const std::vector<std::string_view>& known) {
  if (const std::string_view best = closest(wrong, known); !best.empty())
    return "; did you mean '" + std::string{best} + "'?";
  std::string text = "; right would be one of:";
  for (std::string_view word : known) text += ' ' + std::string{word};
  return text;
}

class reader {
public:
  explicit reader(std::string_view origin) : origin_(origin) {}

  score read(std::string_view text) {
    const json document = parse(text);
    const json_path top;
    if (!document.is_object())
      fail(top, "found " + shown(document) + "; a score is an object {\"troupe_score\": 1, …}");
    // Before the keys are looked at: another version may have others.
    const std::int64_t version = number(need(document, "troupe_score", top), top.at("troupe_score"), 0, max_index);
    if (version != score::version)
      fail(top.at("troupe_score"), "version " + std::to_string(version) + " is not known; this program reads version " +
                                       std::to_string(score::version));
    keys(document, top,
         {"troupe_score", "choreography", "collective", "ranks", "root", "in_place", "uniform", "parts", "partitions",
          "l2", "switches", "players"});
    head(document, top);
    const json& players = list(need(document, "players", top), top.at("players"));
    if (players.size() != static_cast<std::size_t>(score_.ranks))
      fail(top.at("players"), "found " + std::to_string(players.size()) + " players for " +
                                  std::to_string(score_.ranks) +
                                  " ranks; every rank needs one, if only {\"lanes\": []}");
    limit_cells(top);
    if (document.contains("l2")) score_.l2 = extents(document["l2"], top.at("l2"));
    if (document.contains("switches")) score_.switches = switches(document["switches"], top.at("switches"));
    const json_path at = top.at("players");
    for (std::size_t r = 0; r < players.size(); ++r) score_.players.push_back(player(players[r], at.at(r)));
    return std::move(score_);
  }

private:
  [[noreturn]] void fail(const json_path& at, const std::string& what) const {
    const std::string path = at.text();
    throw error(errc::bad_score, origin_ + ": " + (path.empty() ? "" : path + ": ") + what);
  }

  /// nlohmann keeps the last of two equal keys; a person who wrote both should hear of it.
  json parse(std::string_view text) const {
    std::vector<std::set<std::string>> open;
    const auto watch = [&](int, json::parse_event_t event, json& found) {
      if (event == json::parse_event_t::object_start) open.emplace_back();
      if (event == json::parse_event_t::object_end) open.pop_back();
      if (event == json::parse_event_t::key && !open.back().insert(found.get<std::string>()).second)
        throw error(errc::bad_score, origin_ + ": the key " + shown(found) + " is there twice in the same object");
      return true;
    };
    try {
      return json::parse(text.begin(), text.end(), watch);
    } catch (const json::exception& e) {
      std::string why = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
      if (const std::size_t bracket = why.find("] "); bracket != std::string::npos) why.erase(0, bracket + 2);
      throw error(errc::bad_score, origin_ + ": is not JSON: " + why);
    }
  }

  void keys(const json& object, const json_path& at, const std::vector<std::string_view>& known) const {
    for (const auto& item : object.items())
      if (std::find(known.begin(), known.end(), item.key()) == known.end())
        fail(at, "the key '" + shortened(item.key()) + "' is not known here" + suggestion(item.key(), known));
  }

  const json& need(const json& object, const char* key, const json_path& at) const {
    const auto found = object.find(key);
    if (found == object.end()) fail(at, "the key '" + std::string{key} + "' is missing");
    return *found;
  }

  const json& object(const json& value, const json_path& at, const char* what) const {
    if (!value.is_object()) fail(at, "found " + shown(value) + "; " + what);
    return value;
  }
  const json& list(const json& value, const json_path& at) const {
    if (!value.is_array()) fail(at, "found " + shown(value) + "; a list is needed");
    return value;
  }
  std::string text(const json& value, const json_path& at) const {
    if (!value.is_string()) fail(at, "found " + shown(value) + "; a text in quotes is needed");
    return value.get<std::string>();
  }
  bool flag(const json& value, const json_path& at) const {
    if (!value.is_boolean()) fail(at, "found " + shown(value) + "; true or false is needed");
    return value.get<bool>();
  }
  std::int64_t number(const json& value, const json_path& at, std::int64_t least, std::int64_t most) const {
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                                 : value.is_number_integer() && value.get<std::int64_t>() <= most;
    if (!fits || value.get<std::int64_t>() < least)
      fail(at, "found " + shown(value) + "; a whole number from " + std::to_string(least) + " to " +
                   std::to_string(most) + " is needed");
    return value.get<std::int64_t>();
  }
  std::int32_t index(const json& value, const json_path& at, std::int64_t most = max_index) const {
    return static_cast<std::int32_t>(number(value, at, 0, most));
  }

  void head(const json& document, const json_path& top) {
    const json_path what = top.at("collective");
    const std::string wanted = text(need(document, "collective", top), what);
    if (const auto known = parse_collective(wanted)) {
      score_.what = *known;
    } else {
      std::vector<std::string_view> names;
      for (const collective what : all_collectives) names.push_back(name(what));
      fail(what, "'" + shortened(wanted) + "' is no collective" + suggestion(wanted, names));
    }
    score_.ranks = static_cast<int>(number(need(document, "ranks", top), top.at("ranks"), 1, max_ranks));
    if (document.contains("choreography")) score_.choreography = text(document["choreography"], top.at("choreography"));
    if (document.contains("root")) score_.root = index(document["root"], top.at("root"), score_.ranks - 1);
    if (document.contains("in_place")) score_.in_place = flag(document["in_place"], top.at("in_place"));
    if (document.contains("uniform")) score_.uniform = flag(document["uniform"], top.at("uniform"));
    if (document.contains("parts"))
      score_.parts = static_cast<int>(number(document["parts"], top.at("parts"), 1, max_parts));
    if (document.contains("partitions"))
      score_.partitions = static_cast<int>(number(document["partitions"], top.at("partitions"), 0, score_.parts));
  }

  void limit_cells(const json_path& top) const {
    std::int64_t blocks = 0;
    for (rank_t r = 0; r < score_.ranks; ++r)
      blocks += std::int64_t{input_blocks(score_.what, score_.ranks, score_.root, r).count} +
                output_blocks(score_.what, score_.ranks, score_.root, r).count;
    if (blocks * score_.parts > max_cells)
      fail(top.at("parts"), std::to_string(score_.parts) + " parts make " + std::to_string(blocks * score_.parts) +
                                " cells in all ranks' buffers; at most " + std::to_string(max_cells) + " are possible");
  }

  std::vector<extent> extents(const json& value, const json_path& at) const {
    std::vector<extent> cells;
    const std::int64_t blocks = block_count(score_.what, score_.ranks);
    for (std::size_t i = 0; i < list(value, at).size(); ++i) {
      const json_path here = at.at(i);
      const json& pair = value[i];
      if (!pair.is_array() || pair.size() != 2)
        fail(here, "found " + shown(pair) + "; a cell is declared as [block, part]");
      if (blocks == 0)
        fail(here, std::string{name(score_.what)} + " has no blocks, so there is nothing a cell could hold");
      cells.push_back({number(pair[0], here.at(0), 0, blocks - 1), index(pair[1], here.at(1), score_.parts - 1)});
    }
    return cells;
  }

  std::vector<fabric_switch> switches(const json& value, const json_path& at) const {
    std::vector<fabric_switch> all;
    for (std::size_t i = 0; i < list(value, at).size(); ++i) {
      const json_path here = at.at(i);
      const json& one =
          object(value[i], here, "a switch is an object {\"members\": [rank, …], \"lanes\": [[rank, lane], …]}");
      keys(one, here, {"server", "members", "lanes"});
      fabric_switch made;
      if (one.contains("server")) made.server = index(one["server"], here.at("server"));
      const json_path members_at = here.at("members"), lanes_at = here.at("lanes");
      const json& members = list(need(one, "members", here), members_at);
      for (std::size_t m = 0; m < members.size(); ++m)
        made.members.push_back(index(members[m], members_at.at(m), score_.ranks - 1));
      const json& lanes = list(need(one, "lanes", here), lanes_at);
      for (std::size_t l = 0; l < lanes.size(); ++l) made.lanes.push_back(seat(lanes[l], lanes_at.at(l)));
      all.push_back(std::move(made));
    }
    return all;
  }

  fabric_switch::seat seat(const json& value, const json_path& at) const {
    if (!value.is_array() || value.size() != 2)
      fail(at, "found " + shown(value) + "; a switch's lane is given as [rank, lane]");
    return {index(value[0], at.at(0), score_.ranks - 1), index(value[1], at.at(1), max_lanes)};
  }

  part player(const json& value, const json_path& at) const {
    object(value, at, "a player is an object {\"lanes\": [[step, …], …]}");
    keys(value, at, {"scratch", "l0", "lanes"});
    part made;
    if (value.contains("scratch")) made.scratch = extents(value["scratch"], at.at("scratch"));
    if (value.contains("l0")) made.l0 = extents(value["l0"], at.at("l0"));
    const json_path lanes_at = at.at("lanes");
    const json& lanes = list(need(value, "lanes", at), lanes_at);
    if (lanes.size() > static_cast<std::size_t>(max_lanes))
      fail(lanes_at,
           "found " + std::to_string(lanes.size()) + " lanes; at most " + std::to_string(max_lanes) + " are possible");
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      const json_path lane_at = lanes_at.at(l);
      lane& steps = made.lanes.emplace_back();
      for (std::size_t i = 0; i < list(lanes[l], lane_at).size(); ++i)
        steps.push_back(one_step(lanes[l][i], lane_at.at(i), lanes));
    }
    return made;
  }

  step one_step(const json& value, const json_path& at, const json& lanes) const {
    object(value, at, "a step is an object such as {\"do\": \"send\", \"source\": \"input[0]\", \"to\": 1}");
    step made;
    made.kind = kind(need(value, "do", at), at.at("do"));
    step_keys(value, at, made.kind);
    if (receives(made.kind)) made.from = index(need(value, "from", at), at.at("from"), score_.ranks - 1);
    if (sends(made.kind)) made.to = index(need(value, "to", at), at.at("to"), score_.ranks - 1);
    if (reads_source(made.kind) && (value.contains("source") || !may_be_token(made.kind)))
      made.source = where(need(value, "source", at), at.at("source"));
    if (writes(made.kind) && (value.contains("target") || !may_be_token(made.kind)))
      made.target = where(need(value, "target", at), at.at("target"));
    if (value.contains("swapped")) made.swapped = flag(value["swapped"], at.at("swapped"));
    if (value.contains("fan")) made.fan = static_cast<std::uint16_t>(number(value["fan"], at.at("fan"), 0, 0xffff));
    if (value.contains("called")) made.called = called(value["called"], at.at("called"));
    if (value.contains("ready")) made.ready_part = index(value["ready"], at.at("ready"), max_parts);
    if (value.contains("after")) made.after = reference(value["after"], at.at("after"), lanes);
    return made;
  }

  step_kind kind(const json& value, const json_path& at) const {
    return named<step_kind>(value, at, 0, step_kind_count, "kind of step");
  }
  message_name called(const json& value, const json_path& at) const {
    return named<message_name>(value, at, 1, message_name_count, "name of a message");
  }
  /// The one of first … end − 1 that is called so.
  template <class Enum>
  Enum named(const json& value, const json_path& at, int first, int end, const char* what) const {
    const std::string wanted = text(value, at);
    std::vector<std::string_view> names;
    for (int i = first; i < end; ++i) {
      names.push_back(name(static_cast<Enum>(i)));
      if (names.back() == wanted) return static_cast<Enum>(i);
    }
    fail(at, "'" + shortened(wanted) + "' is no " + what + suggestion(wanted, names));
  }

  void step_keys(const json& value, const json_path& at, step_kind kind) const {
    std::vector<std::string_view> known{"do"};
    if (receives(kind)) known.push_back("from");
    if (reads_source(kind)) known.push_back("source");
    if (writes(kind)) known.push_back("target");
    if (sends(kind)) known.push_back("to");
    if (reduces(kind)) known.push_back("swapped");
    if (kind == step_kind::recv_reduce) known.push_back("fan");
    if (receives(kind) || sends(kind)) known.push_back("called");
    if (kind == step_kind::wait) known.push_back("ready");
    known.push_back("after");
    for (const auto& item : value.items()) {
      if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
      fail(at, "the key '" + shortened(item.key()) + "' does not belong to a " + std::string{name(kind)} +
                   suggestion(item.key(), known));
    }
  }

  step_ref reference(const json& value, const json_path& at, const json& lanes) const {
    if (!value.is_array() || value.size() != 2)
      fail(at, "found " + shown(value) + "; a step to wait for is given as [lane, step]");
    const step_ref made{index(value[0], at.at(0)), index(value[1], at.at(1))};
    const auto lane = static_cast<std::size_t>(made.lane);
    if (lane >= lanes.size())
      fail(at, "lane " + std::to_string(lane) + " is not there; this rank has " + std::to_string(lanes.size()) +
                   " lanes, counted from 0");
    if (lanes[lane].is_array() && static_cast<std::size_t>(made.step) >= lanes[lane].size())
      fail(at, "lane " + std::to_string(lane) + " has no step " + std::to_string(made.step) + "; it has " +
                   std::to_string(lanes[lane].size()) + ", counted from 0");
    return made;
  }

  place where(const json& value, const json_path& at) const {
    const std::string wanted = text(value, at);
    place made;
    if (!parse_place(wanted, made))
      fail(at, "'" + shortened(wanted) +
                   "' is no place; right would be a buffer (input, output, scratch, l0, l2) and a cell as in "
                   "\"input[3]\", cells as "
                   "in \"scratch[0..4)\", another rank's cell as in \"output[1]@2\"");
    if (made.owner >= score_.ranks)
      fail(at, "'" + shortened(wanted) + "' is of rank " + std::to_string(made.owner) + "; the ranks are 0 to " +
                   std::to_string(score_.ranks - 1));
    return made;
  }

  static bool take_number(std::string_view& rest, std::int32_t& into) {
    if (rest.empty() || rest.front() < '0' || rest.front() > '9') return false;
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), into);
    if (problem != std::errc{}) return false;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return true;
  }
  static bool take(std::string_view& rest, std::string_view expected) {
    if (rest.substr(0, expected.size()) != expected) return false;
    rest.remove_prefix(expected.size());
    return true;
  }

  static bool parse_place(std::string_view rest, place& into) {
    constexpr std::array<buffer_kind, 5> buffers{buffer_kind::input, buffer_kind::output, buffer_kind::scratch,
                                                 buffer_kind::l0, buffer_kind::l2};
    const auto named = [&](buffer_kind b) { return take(rest, name(b)); };
    const auto found = std::find_if(buffers.begin(), buffers.end(), named);
    if (found == buffers.end()) return false;
    into.buffer = *found;
    into.count = 1;
    if (!take(rest, "[") || !take_number(rest, into.cell)) return false;
    if (take(rest, "..")) {
      std::int32_t end = 0;
      if (!take_number(rest, end) || !take(rest, ")") || end < into.cell) return false;
      into.count = end - into.cell;
    } else if (!take(rest, "]")) {
      return false;
    }
    return rest.empty() || (take(rest, "@") && take_number(rest, into.owner) && rest.empty());
  }

  std::string origin_;
  score score_;
};

}  // namespace

std::string to_json(const score& s, int indent) {
  const json_lines out{indent};
  std::vector<std::string> players;
  for (const part& player : s.players) players.push_back(player_json(player, out));
  std::vector<std::string> fields{"\"troupe_score\": " + std::to_string(score::version),
                                  "\"choreography\": " + in_quotes(s.choreography),
                                  "\"collective\": " + in_quotes(name(s.what)),
                                  "\"ranks\": " + std::to_string(s.ranks),
                                  "\"root\": " + std::to_string(s.root),
                                  std::string{"\"in_place\": "} + (s.in_place ? "true" : "false"),
                                  std::string{"\"uniform\": "} + (s.uniform ? "true" : "false"),
                                  "\"parts\": " + std::to_string(s.parts)};
  if (s.partitions > 0) fields.push_back("\"partitions\": " + std::to_string(s.partitions));
  if (!s.l2.empty()) fields.push_back("\"l2\": " + extents_json(s.l2));
  if (!s.switches.empty()) {
    std::vector<std::string> switches;
    for (const fabric_switch& f : s.switches) switches.push_back(switch_json(f));
    fields.push_back("\"switches\": " + out.list(switches, 2, '[', ']'));
  }
  fields.push_back("\"players\": " + out.list(players, 2, '[', ']'));
  return out.list(fields, 1, '{', '}') + (indent < 0 ? "" : "\n");
}

score from_json(std::string_view text, std::string_view origin) { return reader{origin}.read(text); }

}  // namespace troupe
