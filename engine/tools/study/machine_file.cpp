// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/machine_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <toml++/toml.h>

#include "engine/tools/study/expression.hpp"
#include "memory/error.hpp"
#include "memory/read_file.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

constexpr std::int64_t most_elements = 2'000'000;
constexpr std::int64_t most_ranks_of_file = 1 << 20;
constexpr std::size_t most_nodes = 16384;  ///< a node that many messages go to has a table of them

struct place_in_file {
  std::string file;
  unsigned line = 0;
};
/// @param at without a line: what is no file's, such as study.structure.x
[[noreturn]] void wrong(const place_in_file& at, const std::string& sentence) {
  throw error(errc::bad_config,
              at.file + (at.line > 0 ? ":" + std::to_string(at.line) : std::string{}) + ": " + sentence);
}

/// Elements by name, which ways are made of.
using name_table = std::unordered_map<std::string, element_index>;

/// Appends the element of that name.
/// @param whose calls what passes it: "rank 0's way to rank 1" @throws expression_error if there is none, or the way has it already: messages
/// are served once by an element
template <class Whose>
void pass(const std::string& name, const name_table& names, std::vector<element_index>& way, Whose whose) {
  const auto at = names.find(name);
  if (at == names.end()) throw expression_error("there is no element \"" + name + "\", which " + whose() + " passes");
  if (std::ranges::find(way, at->second) != way.end())
    throw expression_error(whose() + " passes the element \"" + name + "\" twice; name it once");
  way.push_back(at->second);
}

/// A [[route]].
struct route_rule {
  place_in_file at;
  std::optional<expression> when;
  std::vector<name_pattern> via;
};

/// A [[switch]], with the values that the loop's variables had.
struct switch_rule {
  place_in_file at;
  std::map<std::string, std::int64_t, std::less<>> variables;
  std::vector<name_pattern> up, down;
};

/// A graph of nodes and links, whose ways are shortest ones.
class node_graph {
public:
  int node(const std::string& name, const place_in_file& at) {
    const auto [found, fresh] = nodes_.try_emplace(name, static_cast<int>(out_.size()));
    if (fresh) out_.emplace_back();
    if (out_.size() > most_nodes) wrong(at, "there are more than " + std::to_string(most_nodes) + " nodes");
    return found->second;
  }
  std::optional<int> known(const std::string& name) const {
    const auto at = nodes_.find(name);
    return at == nodes_.end() ? std::nullopt : std::optional{at->second};
  }
  void add(int from, int to, element_index there, element_index back) {
    out_[static_cast<std::size_t>(from)].push_back({to, there});
    out_[static_cast<std::size_t>(to)].push_back({from, back});
  }
  void inside(int node, element_index element) {
    inside_.resize(out_.size(), no_element);
    inside_[static_cast<std::size_t>(node)] = element;
  }
  std::size_t size() const { return nodes_.size(); }
  const std::map<std::string, int>& nodes() const { return nodes_; }

  /// A node of `among` that no links join with the first of them; −1: there is none. @pre finished
  int unreached(const std::vector<int>& among) const {
    if (among.empty()) return -1;
    const auto& far = searched(among.front());
    const auto found =
        std::ranges::find_if(among, [&](int node) { return far[static_cast<std::size_t>(node)] == nowhere; });
    return found == among.end() ? -1 : *found;
  }

  /// After the last link.
  void finish() {
    first_link_.assign(1, 0);
    for (const std::vector<link>& of : out_) {
      links_.insert(links_.end(), of.begin(), of.end());
      first_link_.push_back(links_.size());
    }
    out_ = {};
  }

  /// @pre finished, and there is a way. From any thread
  void way(int from, int to, int channel, std::vector<element_index>& into) const {
    if (const auto* const known = known_to(to)) return walk(*known, from, to, channel, into);
    walk(searched(to, from), from, to, channel, into);
  }

private:
  struct link {
    int to;
    element_index element;
  };

  std::span<const link> links_of(int node) const {
    const auto n = static_cast<std::size_t>(node);
    return std::span{links_}.subspan(first_link_[n], first_link_[n + 1] - first_link_[n]);
  }

  /// How far nodes are from one of them, in links.
  using distances = std::vector<std::uint16_t>;
  static constexpr std::uint16_t nowhere = 0xffff;
  static_assert(most_nodes < nowhere);

  /// From `to`, of all that are nearer than `until`; −1: of all. The thread's, until it searches again.
  const distances& searched(int to, int until = -1) const {
    thread_local distances far;
    thread_local std::vector<int> reached;
    const auto at = [](int node) -> std::uint16_t& { return far[static_cast<std::size_t>(node)]; };
    for (const int node : reached) at(node) = nowhere;  // of the last time
    far.resize(std::max(far.size(), size()), nowhere);
    reached.assign(1, to);
    at(to) = 0;
    for (std::size_t i = 0; i < reached.size() && (until < 0 || at(until) == nowhere); ++i)
      for (const link& l : links_of(reached[i]))
        if (at(l.to) == nowhere) {
          at(l.to) = static_cast<std::uint16_t>(at(reached[i]) + 1);
          reached.push_back(l.to);
        }
    return far;
  }

  /// Those to a node that is asked for again are kept: where each is asked for once, most are near.
  const distances* known_to(int to) const {
    const std::lock_guard lock{known_->mutex};
    known_destination& d = known_->to[to];
    if (d.far.empty() && std::exchange(d.asked, true)) {
      const distances& far = searched(to);
      d.far.assign(far.begin(), far.begin() + static_cast<std::ptrdiff_t>(size()));
    }
    return d.far.empty() ? nullptr : &d.far;
  }

  void walk(const distances& far, int from, int to, int channel, std::vector<element_index>& into) const {
    for (int at = from; at != to;) {
      const auto nearer = [&, own = far[static_cast<std::size_t>(at)]](const link& l) {
        return far[static_cast<std::size_t>(l.to)] + 1 == own;
      };
      const std::span<const link> links = links_of(at);
      auto skip = channel == 0 ? 0 : channel % std::ranges::count_if(links, nearer);
      for (const link& l : links) {
        if (!nearer(l) || skip-- > 0) continue;
        into.push_back(l.element);
        at = l.to;
        break;
      }
      if (const auto i = static_cast<std::size_t>(at); at != to && i < inside_.size() && inside_[i] != no_element)
        into.push_back(inside_[i]);
    }
  }

  std::map<std::string, int> nodes_;
  std::vector<std::vector<link>> out_;  ///< by node, until finish()
  std::vector<link> links_;             ///< after it: of all nodes
  std::vector<std::size_t> first_link_;
  std::vector<element_index> inside_;  ///< by node: what a message passes in it

  struct known_destination {
    bool asked = false;
    distances far;
  };
  struct all_known {
    std::mutex mutex;
    std::unordered_map<int, known_destination> to;
  };
  std::unique_ptr<all_known> known_ = std::make_unique<all_known>();
};

class machine_reader {
public:
  machine_reader(const toml::table& all, std::string file, const preset_request& wanted)
      : all_(all), file_(std::move(file)), wanted_(wanted) {}

  hardware read() {
    check_keys(all_, {"name", "about", "ranks", "layout", "parameters", "protocols", "routing", "paths", "class",
                      "host", "protocol", "element", "route", "link", "rank", "switch"});
    read_parameters();
    hardware h{words(all_, "name", file_), ranks()};
    variables_["ranks"] = h.ranks;
    h.about = all_.contains("about") ? name_of(all_, "about", words(all_, "about", "")) : "the machine of " + file_;
    read_layout(h);
    if (h.arrangement.is_flat()) h.sides = sides_of(h.ranks);
    const std::string protocols = words(all_, "protocols", "plain");
    if (protocols != "plain" && protocols != "gpu")
      wrong(place(all_, "protocols"), "protocols is \"" + protocols + "\"; it must be plain or gpu");
    h.protocols = protocols == "gpu" ? gpu_protocols() : plain_protocols();
    read_classes(h);
    read_settings(h, "host");
    read_settings(h, "protocol");
    for (const char* key : {"routing", "paths"})
      if (all_.contains(key)) set(h, key, *all_.get(key));
    each("element", [&](const toml::table& t) { add_elements(h, t); });
    each("link", [&](const toml::table& t) { add_links(h, t); });
    each("rank", [&](const toml::table& t) { add_ranks(h, t); });
    each("route", [&](const toml::table& t) { add_route(t); });
    const bool counts_servers = variables_.try_emplace("servers", h.arrangement.servers).second;
    each("switch", [&](const toml::table& t) { add_switches(h, t); });
    if (counts_servers) variables_.erase("servers");
    check_ranks(h);
    make_ways(h);
    make_switch_ways(h);
    h.validate();
    return h;
  }

private:
  // -- TOML -------------------------------------------------------------------------------------------------------------

  place_in_file place(const toml::node& at) const { return {file_, at.source().begin.line}; }
  place_in_file place(const toml::table& in, std::string_view key) const {
    return in.contains(key) ? place(*in.get(key)) : place(in);
  }

  void check_keys(const toml::table& in, std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : in) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      const std::vector<std::string_view> names{known};
      const auto near = closest(key.str(), names);
      std::string list;
      for (const auto n : names) list += (list.empty() ? "" : ", ") + std::string{n};
      wrong(place(value), "there is no key \"" + std::string{key.str()} + "\" here; " +
                              (near.empty() ? "there are " + list : "did you mean " + std::string{near} + "?"));
    }
  }
  /// Numbers as they are written.
  std::string text_of(const toml::node& of, std::string_view key) const {
    if (const auto* s = of.as_string()) return s->get();
    if (const auto* n = of.as_integer()) return std::to_string(n->get());
    if (const auto* b = of.as_boolean()) return b->get() ? "true" : "false";
    wrong(place(of), std::string{key} + " must be a text or an integer");
  }
  std::string text(const toml::table& in, std::string_view key, const std::string& otherwise) const {
    return in.contains(key) ? text_of(*in.get(key), key) : otherwise;
  }
  /// Names and descriptions, of which a number is none.
  std::string words_of(const toml::node& of, std::string_view key) const {
    if (const auto* s = of.as_string()) return s->get();
    const auto* n = of.as_integer();
    wrong(place(of), std::string{key} + (n ? " is " + std::to_string(n->get()) + ", a number" : " is no text") +
                         "; it must be a text, in quotation marks");
  }
  std::string words(const toml::table& in, std::string_view key, const std::string& otherwise) const {
    return in.contains(key) ? words_of(*in.get(key), key) : otherwise;
  }
  std::string required(const toml::table& in, std::string_view key, const char* what) const {
    if (!in.contains(key)) wrong(place(in), std::string{"there is no "} + std::string{key} + " here: " + what);
    return words_of(*in.get(key), key);
  }
  const toml::table* table(const toml::table& in, std::string_view key) const {
    if (!in.contains(key)) return nullptr;
    const auto* t = in.get(key)->as_table();
    if (t == nullptr) wrong(place(in, key), std::string{key} + " must be a table");
    return t;
  }
  template <class Visit>
  void each(std::string_view key, Visit visit) {
    if (!all_.contains(key)) return;
    const auto* list = all_.get(key)->as_array();
    if (list == nullptr) wrong(place(all_, key), "write [[" + std::string{key} + "]], as often as needed");
    for (const toml::node& one : *list) {
      if (!one.is_table()) wrong(place(one), "write [[" + std::string{key} + "]], as often as needed");
      visit(*one.as_table());
    }
  }

  // -- expressions ------------------------------------------------------------------------------------------------------

  template <class Action>
  auto guarded(const place_in_file& at, Action action) const {
    try {
      return action();
    } catch (const expression_error& e) {
      wrong(at, e.what());
    }
  }
  std::int64_t value(const toml::table& in, std::string_view key, const std::string& said) const {
    return guarded(place(in, key), [&] { return expression{said}.value(variables_); });
  }
  std::string name_of(const toml::table& in, std::string_view key, const std::string& pattern) const {
    return guarded(place(in, key), [&] { return name_pattern{pattern}.text(variables_); });
  }

  /// Calls `action` once for every value of the variables of `for`.
  template <class Action>
  void for_all(const toml::table& in, Action action) {
    const toml::table* loop = table(in, "for");
    if (loop == nullptr) return action();
    std::vector<std::pair<std::string, const toml::node*>> names;
    for (const auto& [key, node] : *loop) names.emplace_back(std::string{key.str()}, &node);
    // In the order of the file, which the table does not keep.
    std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
      const auto at = [](const toml::node& n) { return std::pair{n.source().begin.line, n.source().begin.column}; };
      return at(*a.second) < at(*b.second);
    });
    turn(names, 0, action);
  }
  template <class Action>
  void turn(const std::vector<std::pair<std::string, const toml::node*>>& names, std::size_t i, Action& action) {
    if (i == names.size()) {
      if (++steps_ > 4 * most_elements) wrong(place(*names.front().second), "the file's loops have too many steps");
      return action();
    }
    const auto& [name, node] = names[i];
    const place_in_file at = place(*node);
    if (variables_.contains(name)) wrong(at, "there is a " + name + " already; call it otherwise");
    const std::int64_t count =
        guarded(at, [&, &said = *node, &key = name] { return expression{text_of(said, key)}.value(variables_); });
    if (count < 0 || count > most_elements)
      wrong(at, name + " counts to " + std::to_string(count) + "; it must be 0 to " + std::to_string(most_elements));
    for (std::int64_t v = 0; v < count; ++v) {
      variables_[name] = v;
      turn(names, i + 1, action);
    }
    variables_.erase(name);
  }
  /// Of entries with `when`: whether it is true of the loop's present values.
  bool wanted(const toml::table& in) const {
    return !in.contains("when") || value(in, "when", text(in, "when", "")) != 0;
  }

  // -- the machine ------------------------------------------------------------------------------------------------------

  void read_parameters() {
    std::map<std::string, std::pair<std::string, place_in_file>> said;
    if (const toml::table* t = table(all_, "parameters"))
      for (const auto& [key, node] : *t) said[std::string{key.str()}] = {text_of(node, key.str()), place(node)};
    for (const auto& [key, text] : wanted_.structure) {
      if (!said.contains(key)) {
        std::string list;
        for (const auto& [known, any] : said) list += (list.empty() ? "" : ", ") + known;
        throw error(errc::bad_config,
                    "study.structure." + key + ": " + file_ +
                        (list.empty() ? " has no parameters" : " has no such parameter; it has " + list));
      }
      said[key] = {text, {"study.structure." + key, 0}};
    }
    if (wanted_.ranks > 0) {
      if (!said.contains("ranks"))
        throw error(errc::bad_config, "study.ranks: " + file_ + " says itself how many ranks it has" +
                                          (said.empty() ? "" : "; its parameters are changed by study.structure") +
                                          "; leave ranks away");
      said["ranks"].first = std::to_string(wanted_.ranks);
    }
    for (const auto& [key, entry] : said) {
      std::int64_t n = 0;
      const std::string& text = entry.first;
      const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), n);
      if (failure != std::errc{} || end != text.data() + text.size() || n < 0 || n > most_elements)
        wrong(entry.second, "parameter " + key + " is \"" + text + "\"; it must be an integer from 0 to " +
                                std::to_string(most_elements));
      variables_[key] = n;
    }
  }

  /// Two or three parameters, in the order of the file, whose product is the number of ranks: what a torus or a mesh is made of.
  std::vector<int> sides_of(int ranks) const {
    std::vector<std::pair<unsigned, std::int64_t>> sizes;  // by line
    if (const toml::table* t = table(all_, "parameters"))
      for (const auto& [key, node] : *t)
        if (const auto n = variables_.at(std::string{key.str()}); n > 1) sizes.emplace_back(place(node).line, n);
    std::sort(sizes.begin(), sizes.end());
    const auto side = [&](std::size_t i) { return static_cast<int>(sizes[i].second); };
    for (std::size_t a = 0; a < sizes.size(); ++a)
      for (std::size_t b = a + 1; b < sizes.size(); ++b) {
        const std::int64_t both = sizes[a].second * sizes[b].second;
        if (both == ranks) return {side(a), side(b)};
        for (std::size_t c = b + 1; c < sizes.size() && both < ranks; ++c)
          if (both * sizes[c].second == ranks) return {side(a), side(b), side(c)};
      }
    return {};
  }

  int ranks() {
    if (!all_.contains("ranks") && !variables_.contains("ranks"))
      wrong(
          place(all_),
          "ranks is missing: how many ranks the machine has, such as ranks = 16 or, of parameters, ranks = \"x * y\"");
    const auto n = value(all_, "ranks", text(all_, "ranks", "ranks"));
    if (n < 1 || n > most_ranks_of_file)
      wrong(place(all_, "ranks"),
            "there are " + std::to_string(n) + " ranks; there must be 1 to " + std::to_string(most_ranks_of_file));
    return static_cast<int>(n);
  }

  void read_layout(hardware& h) {
    const std::string said = !wanted_.layout.empty()
                                 ? wanted_.layout
                                 : name_of(all_, "layout", text(all_, "layout", std::to_string(h.ranks)));
    at_place(layout_place(), [&] { h.arrangement = layout::parse(said); });
    layout_says_what_reduces_ = said.find(':') != std::string::npos;
    if (h.arrangement.size() != h.ranks)
      wrong(layout_place(), "the layout " + said + " has " +
                                plural(static_cast<std::size_t>(h.arrangement.size()), "rank") + ", the machine " +
                                (wanted_.layout.empty() ? "" : "of " + file_ + " ") + std::to_string(h.ranks));
  }
  /// The file's, or who wants another one.
  place_in_file layout_place() const {
    return wanted_.layout.empty() ? place(all_, "layout") : place_in_file{"study.layout", 0};
  }

  void read_classes(hardware& h) {
    const toml::table* classes = table(all_, "class");
    if (classes == nullptr) return;
    std::vector<std::pair<std::string, const toml::table*>> sorted;
    for (const auto& [key, node] : *classes) {
      if (!node.is_table()) wrong(place(node), "write [class." + std::string{key.str()} + "]");
      sorted.emplace_back(std::string{key.str()}, node.as_table());
    }
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return a.second->source().begin.line < b.second->source().begin.line;
    });
    for (const auto& [name, of] : sorted) {
      element_class c;
      c.name = name;
      c.source = words(*of, "source", "");
      const std::string role = words(*of, "role", "link");
      const auto known = role_named(role);
      if (!known)
        wrong(place(*of, "role"),
              "there is no role \"" + role + "\"; there are link, ring_segment, dma, nic, switch, pcie, core");
      c.role = *known;
      at_place(place(*of), [&, &key = name] { classes_[key] = h.add_class(c); });
      for (const auto& [key, node] : *of)
        if (key.str() != "role" && key.str() != "source") set(h, name + "." + std::string{key.str()}, node);
    }
  }
  static std::optional<element_role> role_named(std::string_view text) {
    for (int i = 0; i < element_role_count; ++i)
      if (troupe::name(static_cast<element_role>(i)) == text) return static_cast<element_role>(i);
    return std::nullopt;
  }
  /// [host] and [protocol.NAME], by the keys of study.hardware.
  void read_settings(hardware& h, const std::string& prefix) {
    const toml::table* t = table(all_, prefix);
    if (t == nullptr) return;
    for (const auto& [key, node] : *t) {
      if (prefix == "host" && key.str() == "source") h.host.source = words_of(node, "source");
      else if (const auto* inner = node.as_table())
        for (const auto& [field, said] : *inner)
          set(h, prefix + "." + std::string{key.str()} + "." + std::string{field.str()}, said);
      else set(h, prefix + "." + std::string{key.str()}, node);
    }
  }
  void set(hardware& h, const std::string& key, const toml::node& said) {
    at_place(place(said), [&] { h.set(key, constant_of(said, key)); });
  }
  /// Which of these a constant takes, the machine knows, and says what is right.
  std::string constant_of(const toml::node& said, const std::string& key) const {
    const auto* number = said.as_floating_point();
    if (number == nullptr) return text_of(said, key);
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number->get()).ptr};
  }
  template <class Action>
  void at_place(const place_in_file& at, Action action) const {
    try {
      action();
    } catch (const error& e) {
      // A machine without a name has that of the file, with which what is wrong with it begins then, without a line.
      const std::string why = e.what(), of_machine = file_ + ": ";
      if (why.starts_with(of_machine)) wrong(at, why.substr(of_machine.size()));
      if (why.starts_with(file_ + ":")) throw;
      wrong(at, why);
    }
  }

  class_id class_named(const toml::table& in, std::string_view key) const {
    const std::string said = required(in, key, "the name of a [class.…]");
    const auto at = classes_.find(said);
    if (at != classes_.end()) return at->second;
    std::vector<std::string_view> names;
    for (const auto& [name, id] : classes_) names.push_back(name);
    const auto near = closest(said, names);
    wrong(place(in, key),
          "there is no [class." + said + "]" + (near.empty() ? "" : "; did you mean " + std::string{near} + "?"));
  }

  void keep(const hardware& h, const place_in_file& at, element_index element) {
    if (static_cast<std::int64_t>(h.elements.size()) > most_elements)
      wrong(at, "there are more than " + std::to_string(most_elements) + " elements");
    const std::string& name = h.elements[static_cast<std::size_t>(element)].name;
    if (!names_.emplace(name, element).second) wrong(at, "there are two elements called \"" + name + "\"");
  }
  element_index element_named(const std::string& name, const place_in_file& at) const {
    const auto found = names_.find(name);
    if (found == names_.end()) wrong(at, "there is no element \"" + name + "\"");
    return found->second;
  }

  void add_elements(hardware& h, const toml::table& t) {
    check_keys(t, {"for", "when", "class", "name", "pair", "rank"});
    const class_id of = class_named(t, "class");
    const std::string name = required(t, "name", "of the element, such as \"up {r}\"");
    for_all(t, [&] {
      if (!wanted(t)) return;
      int rank = -1;
      if (t.contains("rank")) {
        const auto r = value(t, "rank", text(t, "rank", ""));
        if (r < 0 || r >= h.ranks)
          wrong(place(t, "rank"),
                "there is no rank " + std::to_string(r) + "; ranks are 0 to " + std::to_string(h.ranks - 1));
        rank = static_cast<int>(r);
      }
      if (!t.contains("pair")) return keep(h, place(t), h.add(of, name_of(t, "name", name), rank));
      const auto [there, back] =
          h.add_pair(of, name_of(t, "name", name), name_of(t, "pair", words(t, "pair", "")), rank);
      keep(h, place(t), there);
      keep(h, place(t), back);
    });
  }

  void add_links(hardware& h, const toml::table& t) {
    check_keys(t, {"for", "when", "class", "from", "to", "passing"});
    const class_id of = class_named(t, "class");
    const std::string from = required(t, "from", "the name of a node"), to = required(t, "to", "the name of a node");
    for_all(t, [&] {
      if (!wanted(t)) return;
      const std::string a = name_of(t, "from", from), b = name_of(t, "to", to);
      if (a == b) wrong(place(t), "a link from \"" + a + "\" to itself leads nowhere; leave it out with `when`");
      const int na = graph_.node(a, place(t)), nb = graph_.node(b, place(t));
      const auto [there, back] = h.add_pair(of, a + " - " + b, b + " - " + a);
      keep(h, place(t), there);
      keep(h, place(t), back);
      graph_.add(na, nb, there, back);
      if (!t.contains("passing")) return;
      const class_id inside = class_named(t, "passing");
      for (const auto& [name, node] : {std::pair{a, na}, std::pair{b, nb}}) {
        if (names_.contains(name)) continue;
        const element_index e = h.add(inside, name);
        keep(h, place(t), e);
        graph_.inside(node, e);
      }
    });
  }

  void add_ranks(hardware& h, const toml::table& t) {
    check_keys(t, {"for", "when", "at", "core", "dma"});
    for_all(t, [&] {
      if (!wanted(t)) return;
      const auto rank = static_cast<int>(ranks_placed_);
      if (rank >= h.ranks)
        wrong(place(t), "there are more places than the " + plural(static_cast<std::size_t>(h.ranks), "rank") +
                            " of the machine");
      ++ranks_placed_;
      if (t.contains("at")) {
        const std::string name = name_of(t, "at", words(t, "at", ""));
        const auto node = graph_.known(name);
        if (!node) wrong(place(t, "at"), "no link has a node \"" + name + "\"");
        nodes_of_ranks_.push_back(*node);
      }
      if (!t.contains("core") && !t.contains("dma")) return;
      rank_place p;
      if (t.contains("core")) p.core = element_named(name_of(t, "core", words(t, "core", "")), place(t, "core"));
      if (t.contains("dma")) p.dma = element_named(name_of(t, "dma", words(t, "dma", "")), place(t, "dma"));
      h.place(rank, p);
    });
  }

  void add_route(const toml::table& t) {
    check_keys(t, {"when", "via"});
    route_rule rule;
    rule.at = place(t);
    guarded(place(t, "when"), [&] {
      if (t.contains("when")) rule.when = expression{text(t, "when", "")};
      return 0;
    });
    rule.via = way_of(t, "via", "a route needs via, a list of elements, such as via = [\"up {from}\", \"down {to}\"]");
    rules_.push_back(std::move(rule));
  }
  std::vector<name_pattern> way_of(const toml::table& t, std::string_view key, const std::string& needed) const {
    const auto* list = t.contains(key) ? t.get(key)->as_array() : nullptr;
    if (list == nullptr) wrong(place(t, key), needed);
    std::vector<name_pattern> way;
    for (const toml::node& one : *list) guarded(place(one), [&] { return way.emplace_back(words_of(one, key)), 0; });
    return way;
  }

  void add_switches(hardware& h, const toml::table& t) {
    check_keys(t, {"for", "when", "server", "unit", "up", "down"});
    const std::vector<name_pattern>
        up = way_of(t, "up", "a switch needs up, the elements from a rank to it, such as up = [\"up {rank}\"]"),
        down =
            way_of(t, "down", "a switch needs down, the elements from it to a rank, such as down = [\"down {rank}\"]");
    for_all(t, [&] {
      if (!wanted(t)) return;
      reducing_switch added;
      if (t.contains("server")) {
        const auto server = value(t, "server", text(t, "server", ""));
        if (server < 0 || server >= h.arrangement.servers)
          wrong(place(t, "server"), "there is no server " + std::to_string(server) + " in the layout " +
                                        h.arrangement.to_string() + "; servers are 0 to " +
                                        std::to_string(h.arrangement.servers - 1));
        added.server = static_cast<int>(server);
      }
      if (h.switch_of(added.server) >= 0) wrong(place(t), "there are two switches that reduce " + joins(added.server));
      if (t.contains("unit")) added.unit = element_named(name_of(t, "unit", words(t, "unit", "")), place(t, "unit"));
      h.switches.push_back(added);
      switches_.push_back({place(t), variables_, up, down});
    });
  }
  static std::string joins(int server) {
    return server < 0 ? "between servers" : "in server " + std::to_string(server);
  }

  void check_ranks(const hardware& h) const {
    if (ranks_placed_ > 0 && ranks_placed_ != static_cast<std::size_t>(h.ranks))
      wrong(place(all_, "rank"), "[[rank]] gives places to " + plural(ranks_placed_, "rank") + ", the machine has " +
                                     std::to_string(h.ranks));
    if (h.ranks == 1) return;
    if (rules_.empty() && graph_.size() == 0)
      wrong(place(all_), "nothing says by which way messages go; write [[route]] or [[link]]");
    if (graph_.size() > 0 && nodes_of_ranks_.size() != static_cast<std::size_t>(h.ranks))
      wrong(place(all_, "rank"), "there are links, but " + plural(nodes_of_ranks_.size(), "rank") + " of " +
                                     std::to_string(h.ranks) + " have a node; write [[rank]] with at = \"…\"");
  }

  void make_ways(hardware& h) {
    auto variables = std::make_shared<const std::map<std::string, std::int64_t, std::less<>>>(variables_);
    auto names = std::make_shared<const name_table>(names_);
    auto rules = std::make_shared<const std::vector<route_rule>>(std::move(rules_));
    graph_.finish();
    if (const int node = graph_.unreached(nodes_of_ranks_); node >= 0)
      for (const auto& [name, number] : graph_.nodes())
        if (number == node)
          wrong(place(all_, "rank"), "no links lead from rank 0's node to \"" + name + "\", where another rank sits");
    auto graph = std::make_shared<const node_graph>(std::move(graph_));
    const place_in_file last = rules->empty() ? place(all_) : rules->back().at;
    h.way = [variables, names, rules, graph, last, nodes = nodes_of_ranks_](int from, int to, int channel,
                                                                            std::vector<element_index>& way) {
      std::map<std::string, std::int64_t, std::less<>> known;
      if (!rules->empty()) {
        known = *variables;
        known["from"] = from, known["to"] = to, known["channel"] = channel;
      }
      for (const route_rule& rule : *rules) {
        try {
          if (rule.when && rule.when->value(known) == 0) continue;
          for (const name_pattern& one : rule.via)
            pass(one.text(known), *names, way,
                 [&] { return "rank " + std::to_string(from) + "'s way to rank " + std::to_string(to); });
        } catch (const expression_error& e) {
          wrong(rule.at, e.what());
        }
        return;
      }
      if (nodes.empty())
        wrong(last, "no [[route]] is for rank " + std::to_string(from) + " to rank " + std::to_string(to) +
                        "; let the last one have no `when`");
      graph->way(nodes[static_cast<std::size_t>(from)], nodes[static_cast<std::size_t>(to)], channel, way);
    };
    // Mistakes now rather than in the middle of a run: of a few ranks each.
    std::vector<element_index> way;
    const int step = std::max(1, h.ranks / 16);
    for (int a = 0; a < h.ranks; a += step)
      for (int b = 0; b < h.ranks; b += step)
        if (a != b) h.route(a, b, 0, way);
  }

  /// Where no layout says which switches reduce, those that the file has do.
  void make_switch_ways(hardware& h) {
    layout& places = h.arrangement;
    const auto bit = [](bool is, fabric_reduction what) { return is ? static_cast<unsigned>(what) : 0u; };
    bool inside = !switches_.empty();
    for (int server = 0; server < places.servers; ++server) inside = inside && h.switch_of(server) >= 0;
    const bool between = h.switch_of(-1) >= 0;
    if (!layout_says_what_reduces_)
      places.reduces = static_cast<fabric_reduction>(bit(inside, fabric_reduction::inside) |
                                                     bit(between, fabric_reduction::between));
    if ((places.reduces_inside() && !inside) || (places.reduces_between() && !between))
      wrong(layout_place(), "the layout " + places.to_string() + " says that switches " +
                                (places.reduces_inside() && !inside ? "inside" : "between") +
                                " servers reduce; write [[switch]] for " +
                                (places.reduces_inside() && !inside ? "every server" : "the network") +
                                (wanted_.layout.empty() ? "" : " in " + file_));
    if (switches_.empty()) return;
    auto names = std::make_shared<const name_table>(names_);
    auto rules = std::make_shared<const std::vector<switch_rule>>(std::move(switches_));
    h.switch_way = [names, rules](int rank, int which, bool towards, std::vector<element_index>& way) {
      const switch_rule& rule = (*rules)[static_cast<std::size_t>(which)];
      auto known = rule.variables;
      known["rank"] = rank;
      try {
        for (const name_pattern& one : towards ? rule.up : rule.down)
          pass(one.text(known), *names, way,
               [&] { return "rank " + std::to_string(rank) + "'s way " + (towards ? "to" : "from") + " the switch"; });
      } catch (const expression_error& e) {
        wrong(rule.at, e.what());
      }
    };
    // As with the ranks' ways, mistakes now.
    std::vector<element_index> way;
    for (std::size_t which = 0; which < h.switches.size(); ++which)
      for (int r = 0; r < h.ranks; ++r)
        if (const int server = h.switches[which].server; server < 0 || places.server_of(r) == server)
          for (const bool towards : {true, false}) h.switch_route(r, static_cast<int>(which), towards, way);
  }

  const toml::table& all_;
  const std::string file_;
  const preset_request& wanted_;
  std::map<std::string, std::int64_t, std::less<>> variables_;
  std::map<std::string, class_id, std::less<>> classes_;
  name_table names_;
  node_graph graph_;
  std::vector<route_rule> rules_;
  std::vector<switch_rule> switches_;
  bool layout_says_what_reduces_ = false;
  std::vector<int> nodes_of_ranks_;
  std::size_t ranks_placed_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace

bool is_machine_file(std::string_view preset) { return preset.ends_with(".toml"); }

hardware read_machine(const std::string& text, const std::string& file, const preset_request& wanted) {
  toml::table all;
  try {
    all = toml::parse(text, file);
  } catch (const toml::parse_error& e) {
    wrong({file, e.source().begin.line}, std::string{e.description()});
  }
  return machine_reader{all, file, wanted}.read();
}

hardware load_machine(const std::string& file, const preset_request& wanted) {
  const file_text read = read_file(file, most_config_bytes);
  if (!read.problem.empty())
    throw error(errc::bad_config, file + ": the machine's file cannot be read: " + read.problem +
                                      "; give the path of a TOML file, for example config/machines/torus.toml");
  return read_machine(read.text, file, wanted);
}

}  // namespace troupe
