// SPDX-License-Identifier: Apache-2.0
#include "topology/layout/layout.hpp"

#include "memory/error.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

// Sixteen million ranks: far beyond any run, small enough that a typing error in a config cannot exhaust memory.
constexpr std::int64_t max_ranks = std::int64_t{1} << 24;

[[noreturn]] void bad_config(const std::string& what) { throw error(errc::bad_config, "layout: " + what); }
[[noreturn]] void bad_argument(const std::string& what) { throw error(errc::invalid_argument, "layout: " + what); }

// Product of extents, 0 if one is not positive, saturating just above max_ranks (members may have been edited).
std::int64_t product(std::initializer_list<int> extents) noexcept {
  std::int64_t result = 1;
  for (int extent : extents) {
    if (extent < 1) return 0;
    result = std::min(result * extent, max_ranks + 1);
  }
  return result;
}

std::int64_t grid_size(const layout& l) noexcept {
  return product({l.servers, l.cards, l.core_groups, l.ranks_per_core_group});
}

coordinates grid_place(const layout& l, int rank) {
  const int group = rank / l.ranks_per_core_group;
  const int card = group / l.core_groups;
  return {card / l.cards, card % l.cards, group % l.core_groups};
}

void need_positive(int value, const char* name) {
  if (value < 1) bad_config(std::string(name) + " is " + std::to_string(value) + ", must be at least 1");
}

std::string text_of(const coordinates& at) {
  return std::to_string(at.server) + '.' + std::to_string(at.card) + '.' + std::to_string(at.core_group);
}

constexpr std::string_view host_word = "host";

int parse_number(std::string_view token, std::string_view whole, int lowest) {
  int value = 0;
  const auto [end, status] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (token.empty() || status != std::errc{} || end != token.data() + token.size() || value < lowest ||
      value > max_ranks)
    bad_config("'" + std::string(token) + "' in '" + std::string(whole) + "' is not a number from " +
               std::to_string(lowest) + " to " + std::to_string(max_ranks) +
               "; write ranks \"8\", servers x cards x core groups \"2x4x1\", with groups of servers in front "
               "\"2x2x4x1\", cards per server \"4+3\" or one server.card.core_group per rank \"0.0.0,1.0.0\"");
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> tokens;
  for (;;) {
    const auto at = text.find(separator);
    tokens.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return tokens;
    text.remove_prefix(at + 1);
  }
}

std::vector<int> parse_numbers(std::string_view list, char separator, std::string_view whole, int lowest) {
  std::vector<int> numbers;
  for (auto token : split(list, separator)) numbers.push_back(parse_number(token, whole, lowest));
  return numbers;
}

constexpr std::size_t inner_levels = 3;  // servers, cards, core groups

[[noreturn]] void too_deep(const std::string& what) {
  bad_config(what + " levels; at most " + std::to_string(layout::most_levels) +
             " are possible, core groups, cards and servers among them");
}

// -- groups of servers ---------------------------------------------------------------------------------------------

/// Leaves out levels that part nothing: one group, groups of one server, the same groups as the next level.
void drop_idle_levels(layout& l) {
  std::vector<std::vector<int>> kept;
  for (auto level = l.outer.rbegin(); level != l.outer.rend(); ++level)
    if (level->size() > 1 && level->size() != (kept.empty() ? static_cast<std::size_t>(l.servers) : kept.back().size()))
      kept.push_back(std::move(*level));
  l.outer.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

/// By level of `outer` and group, how many groups of the next level it has, or servers.
std::vector<std::vector<int>> children_of_groups(const layout& l) {
  std::vector<std::vector<int>> children = l.outer;
  for (std::size_t level = 0; level + 1 < l.outer.size(); ++level) {
    auto next = l.outer[level + 1].begin();
    for (int& group : children[level]) {
      int count = 0;
      for (int servers = group; servers > 0 && next != l.outer[level + 1].end(); ++count) servers -= *next++;
      group = count;
    }
  }
  return children;
}

/// The groups that a server is in, outermost first and each counted in the one around it, and its own number in the innermost.
std::vector<int> path_of_server(const layout& l, const std::vector<std::vector<int>>& children, int server) {
  std::vector<int> path;
  int first_group = 0, first_server = 0;  // of those in the group around
  for (std::size_t level = 0; level < l.outer.size(); ++level) {
    int group = first_group, below = 0;
    for (int i = 0; i < first_group; ++i) below += children[level][static_cast<std::size_t>(i)];
    while (first_server + l.outer[level][static_cast<std::size_t>(group)] <= server) {
      first_server += l.outer[level][static_cast<std::size_t>(group)];
      below += children[level][static_cast<std::size_t>(group++)];
    }
    path.push_back(group - first_group);
    first_group = below;
  }
  path.push_back(server - first_server);
  return path;
}

void validate_groups(const layout& l) {
  if (l.outer.size() + inner_levels > static_cast<std::size_t>(layout::most_levels))
    too_deep("there are " + std::to_string(l.outer.size() + inner_levels));
  std::vector<std::int64_t> ends_around{l.servers};  // of the groups of the level around
  for (const auto& level : l.outer) {
    std::vector<std::int64_t> ends;
    for (int servers : level) {
      need_positive(servers, "the number of servers of a group");
      ends.push_back((ends.empty() ? 0 : ends.back()) + servers);
    }
    if (!std::includes(ends.begin(), ends.end(), ends_around.begin(), ends_around.end()) || ends.back() != l.servers)
      bad_config("the groups of a level do not split those of the level around it, or do not hold all " +
                 std::to_string(l.servers) + " servers");
    ends_around = std::move(ends);
  }
}

/// `top`: by outermost group, how many of the next level it has; `extents` of all below, at least servers × cards × core groups
/// if there is a level between, else cards × core groups.
layout with_groups(const std::vector<int>& top, std::span<const int> extents) {
  std::int64_t below = 1;  // servers of what `top` counts
  for (int extent : extents.first(extents.size() - (inner_levels - 1)))
    below = product({static_cast<int>(below), extent});
  std::int64_t servers = 0;
  for (int count : top) servers += product({count, static_cast<int>(below)});
  if (servers > max_ranks) bad_config("more than " + std::to_string(max_ranks) + " servers");
  layout made{static_cast<int>(servers), extents[extents.size() - 2], extents.back()};
  made.validate();  // before memory is taken for groups
  made.outer.emplace_back();
  for (int count : top) made.outer.back().push_back(static_cast<int>(count * below));
  for (int extent : extents.first(extents.size() - (inner_levels - 1))) {
    made.outer.emplace_back(static_cast<std::size_t>(servers / below), static_cast<int>(below));
    below /= extent;
  }
  drop_idle_levels(made);
  made.validate();
  return made;
}

layout parse_places(std::string_view text) {
  std::vector<std::vector<int>> paths;
  for (auto token : split(text, ',')) {
    const auto last = token.rfind('.');
    const bool at_host = last != std::string_view::npos && token.substr(last + 1) == host_word;
    paths.push_back(parse_numbers(at_host ? token.substr(0, last) : token, '.', text, 0));
    if (at_host) paths.back().insert(paths.back().end(), {layout::at_host, 0});
    if (paths.back().size() < inner_levels)
      bad_config(
          "'" + std::string(token) + "' in '" + std::string(text) +
          "' must be server.card.core_group or server.host, or the same with the numbers of its groups in front");
    if (paths.back().size() > static_cast<std::size_t>(layout::most_levels))
      too_deep("'" + std::string(token) + "' in '" + std::string(text) + "' has " +
               std::to_string(paths.back().size()));
    if (paths.back().size() != paths.front().size())
      bad_config("'" + std::string(token) + "' in '" + std::string(text) + "' has " +
                 std::to_string(paths.back().size()) + " numbers, the first rank has " +
                 std::to_string(paths.front().size()) + "; all must have as many");
  }
  return layout::placed_in_groups(paths);
}

// A placement that is exactly a dense grid is stored as one, so that equal layouts compare equal and queries are fast.
void drop_placement_if_grid(layout& l) {
  const std::int64_t groups = product({l.servers, l.cards, l.core_groups});
  const auto ranks = static_cast<std::int64_t>(l.placement.size());
  if (groups == 0 || ranks % groups != 0) return;
  layout dense{l.servers, l.cards, l.core_groups, static_cast<int>(ranks / groups)};
  for (int r = 0; r < static_cast<int>(ranks); ++r)
    if (grid_place(dense, r) != l.placement[static_cast<std::size_t>(r)]) return;
  l = dense;
}

template <class Key>
void sort_by_place(const layout& l, std::vector<int>& ranks, Key key) {
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return std::pair(key(l.placement[static_cast<std::size_t>(a)]), a) <
           std::pair(key(l.placement[static_cast<std::size_t>(b)]), b);
  });
}

template <class Predicate>
std::vector<int> ranks_where(const layout& l, Predicate keep) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < l.placement.size(); ++r)
    if (keep(l.placement[r])) ranks.push_back(static_cast<int>(r));
  sort_by_place(l, ranks, [](const coordinates& at) { return std::pair(at.card, at.core_group); });
  return ranks;
}

std::vector<int> consecutive(int first, int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

std::vector<int> ranks_by_server(const layout& l) {
  std::vector<int> count(static_cast<std::size_t>(l.servers), 0);
  for (const auto& at : l.placement) ++count[static_cast<std::size_t>(at.server)];
  return count;
}

}  // namespace

// -- constructors ------------------------------------------------------------------------------------------------

layout layout::flat(int ranks) {
  need_positive(ranks, "the number of ranks");
  layout result{1, 1, 1, ranks};
  result.validate();
  return result;
}

layout layout::grid(int servers, int cards, int core_groups) {
  layout result{servers, cards, core_groups};
  result.validate();
  return result;
}

layout layout::nested(std::span<const int> extents) {
  if (extents.size() < inner_levels) bad_config("groups need extents for servers, cards and core groups at least");
  if (extents.size() > static_cast<std::size_t>(most_levels))
    too_deep("there are extents for " + std::to_string(extents.size()));
  for (int extent : extents) need_positive(extent, "the extent of a level");
  std::int64_t places = 1;
  for (int extent : extents) places = std::min(places * extent, max_ranks + 1);
  if (places > max_ranks) bad_config("more than " + std::to_string(max_ranks) + " places");
  if (extents.size() == inner_levels) return grid(extents[0], extents[1], extents[2]);
  return with_groups(std::vector(static_cast<std::size_t>(extents[0]), extents[1]), extents.subspan(2));
}

layout layout::ragged(std::span<const int> cards_of_server, int core_groups) {
  if (cards_of_server.empty()) bad_config("no servers given");
  need_positive(core_groups, "core groups per card");
  std::int64_t ranks = 0;
  for (int cards : cards_of_server) {
    need_positive(cards, "the number of cards of a server");
    ranks += product({cards, core_groups});
    if (ranks > max_ranks) bad_config("more than " + std::to_string(max_ranks) + " ranks");
  }
  std::vector<coordinates> places;
  places.reserve(static_cast<std::size_t>(ranks));
  for (std::size_t s = 0; s < cards_of_server.size(); ++s)
    for (int c = 0; c < cards_of_server[s]; ++c)
      for (int g = 0; g < core_groups; ++g) places.push_back({static_cast<int>(s), c, g});
  return placed(std::move(places));
}

layout layout::spread(int ranks, int servers, int core_groups) {
  need_positive(ranks, "the number of ranks");
  need_positive(servers, "the number of servers");
  need_positive(core_groups, "core groups per card");
  if (ranks > max_ranks) bad_config("more than " + std::to_string(max_ranks) + " ranks");
  if (servers > ranks)
    bad_config(std::to_string(ranks) + " ranks cannot occupy " + std::to_string(servers) +
               " servers; use at most one server per rank");
  std::vector<coordinates> places;
  places.reserve(static_cast<std::size_t>(ranks));
  for (int s = 0; s < servers; ++s)
    for (int i = 0; i < ranks / servers + (s < ranks % servers ? 1 : 0); ++i)
      places.push_back({s, i / core_groups, i % core_groups});
  return placed(std::move(places));
}

namespace {
/// Puts ranks at hosts behind the cards of their servers.
void place_hosts(std::vector<coordinates>& places) {
  if (std::none_of(places.begin(), places.end(), [](const coordinates& at) { return at.host; })) return;
  std::map<int, int> cards;  // by server
  for (const coordinates& at : places)
    if (!at.host)
      cards[at.server] = std::max(cards[at.server], std::min<int>(at.card, max_ranks) + 1);  // refused beyond
  for (coordinates& at : places)
    if (at.host) at = {at.server, cards[at.server], 0, true};
}
}  // namespace

layout layout::placed(std::vector<coordinates> places) {
  if (places.empty()) bad_config("the placement names no rank");
  place_hosts(places);
  layout result;
  for (std::size_t r = 0; r < places.size(); ++r) {
    const auto& at = places[r];
    const auto in_range = [](int coordinate) { return coordinate >= 0 && coordinate < max_ranks; };
    if (!in_range(at.server) || !in_range(at.card) || !in_range(at.core_group))
      bad_config("rank " + std::to_string(r) + " is placed at " + text_of(at) + "; coordinates must be 0 to " +
                 std::to_string(max_ranks - 1));
    result.servers = std::max(result.servers, at.server + 1);
    result.cards = std::max(result.cards, at.card + 1);
    result.core_groups = std::max(result.core_groups, at.core_group + 1);
  }
  result.placement = std::move(places);
  drop_placement_if_grid(result);
  result.validate();
  return result;
}

layout layout::placed_in_groups(const std::vector<std::vector<int>>& paths) {
  if (paths.empty()) bad_config("the placement names no rank");
  for (const auto& path : paths)
    if (path.size() != paths.front().size() || path.size() < inner_levels)
      bad_config("every rank needs a path as long as the others', its groups and then server, card and core group");
  if (paths.front().size() > static_cast<std::size_t>(most_levels))
    too_deep("a path has " + std::to_string(paths.front().size()));
  const std::size_t groups = paths.front().size() - inner_levels;
  std::map<std::vector<int>, int> servers;  // by innermost group: one more than the highest number
  for (const auto& path : paths) {
    int& count = servers[{path.begin(), path.begin() + static_cast<std::ptrdiff_t>(groups)}];
    count = std::max(count, path[groups] + 1);
  }
  std::map<std::vector<int>, int> first;
  std::vector<std::vector<int>> outer(groups);
  std::int64_t all = 0;
  const std::vector<int>* before = nullptr;
  for (const auto& [group, count] : servers) {
    first[group] = static_cast<int>(all);
    all += count;
    if (all > max_ranks) bad_config("more than " + std::to_string(max_ranks) + " servers");
    for (std::size_t level = 0; level < groups; ++level) {
      const bool same =
          before != nullptr &&
          std::equal(group.begin(), group.begin() + static_cast<std::ptrdiff_t>(level) + 1, before->begin());
      if (same) outer[level].back() += count;
      else outer[level].push_back(count);
    }
    before = &group;
  }
  std::vector<coordinates> places;
  places.reserve(paths.size());
  for (const auto& path : paths)
    places.push_back({first[{path.begin(), path.begin() + static_cast<std::ptrdiff_t>(groups)}] + path[groups],
                      path[groups + 1] == at_host ? 0 : path[groups + 1], path[groups + 2],
                      path[groups + 1] == at_host});
  layout made = layout::placed(std::move(places));
  made.outer = std::move(outer);
  drop_idle_levels(made);
  made.validate();
  return made;
}

layout layout::with_hosts() const {
  if (has_hosts()) bad_config("'" + to_string() + "' has ranks at hosts already");
  layout made = *this;
  if (is_grid()) {
    made.placement.clear();
    for (int r = 0; r < size(); ++r) made.placement.push_back(of(r));
  }
  std::set<int> used;
  for (const coordinates& at : made.placement) used.insert(at.server);
  for (const int server : used) made.placement.push_back({server, 0, 0, true});
  place_hosts(made.placement);
  for (const coordinates& at : made.placement) made.cards = std::max(made.cards, at.card + 1);
  made.ranks_per_core_group = 1;
  made.homes.clear();
  made.validate();
  return made;
}

namespace {

fabric_reduction parse_reduction(std::string_view word, std::string_view whole) {
  if (word == "none") return fabric_reduction::none;
  if (word == "inside") return fabric_reduction::inside;
  if (word == "between") return fabric_reduction::between;
  if (word == "both") return fabric_reduction::both;
  bad_config("'" + std::string(word) + "' in '" + std::string(whole) +
             "' does not say which switches reduce; write inside (those in servers), between (the network), both or "
             "none, as in "
             "\"2x8:inside\"");
}

layout parse_ranks(std::string_view text) {
  if (text.find('.') != std::string_view::npos) return parse_places(text);
  const auto parts = split(text, 'x');
  if (parts.front().find('+') != std::string_view::npos) {
    const auto counts = parse_numbers(parts[0], '+', text, 1);
    std::vector<int> below;
    for (std::size_t i = 1; i < parts.size(); ++i) below.push_back(parse_number(parts[i], text, 1));
    if (below.size() < inner_levels - 1) return layout::ragged(counts, below.empty() ? 1 : below[0]);
    if (const std::size_t levels = below.size() + 2; levels > static_cast<std::size_t>(layout::most_levels))
      too_deep("'" + std::string(text) + "' has " + std::to_string(levels));
    return with_groups(counts, below);
  }
  const auto extents = parse_numbers(text, 'x', text, 1);
  if (extents.size() == 1) return layout::flat(extents[0]);
  if (extents.size() > static_cast<std::size_t>(layout::most_levels))
    too_deep("'" + std::string(text) + "' has " + std::to_string(extents.size()));
  if (extents.size() > inner_levels) return layout::nested(extents);
  return layout::grid(extents[0], extents[1], extents.size() == 3 ? extents[2] : 1);
}

}  // namespace

fabric_reduction layout::reduction_of(std::string_view text) {
  const auto colon = text.find(':');
  return colon == std::string_view::npos ? fabric_reduction::none : parse_reduction(text.substr(colon + 1), text);
}

layout layout::parse(std::string_view text) {
  std::string_view ranks = text.substr(0, text.find(':'));
  constexpr std::string_view and_hosts = "+host";
  const bool hosts = ranks.ends_with(and_hosts);
  if (hosts) ranks.remove_suffix(and_hosts.size());
  layout made = parse_ranks(ranks);
  if (hosts) made = made.with_hosts();
  made.reduces = reduction_of(text);
  return made;
}

void layout::validate() const {
  need_positive(servers, "servers");
  need_positive(cards, "cards per server");
  need_positive(core_groups, "core groups per card");
  need_positive(ranks_per_core_group, "ranks per core group");
  if (grid_size(*this) > max_ranks)
    bad_config(std::to_string(servers) + " servers x " + std::to_string(cards) + " cards x " +
               std::to_string(core_groups) + " core groups exceeds " + std::to_string(max_ranks) + " places");
  validate_groups(*this);
  if (placement.empty()) return;
  if (ranks_per_core_group != 1) bad_config("ranks_per_core_group must stay 1 when a placement is given");
  if (static_cast<std::int64_t>(placement.size()) > max_ranks)
    bad_config("more than " + std::to_string(max_ranks) + " ranks");
  for (std::size_t r = 0; r < placement.size(); ++r) {
    const auto& at = placement[r];
    if (at.server < 0 || at.server >= servers || at.card < 0 || at.card >= cards || at.core_group < 0 ||
        at.core_group >= core_groups)
      bad_config("rank " + std::to_string(r) + " is placed at " + text_of(at) + ", outside " + std::to_string(servers) +
                 "x" + std::to_string(cards) + "x" + std::to_string(core_groups));
  }
  if (!has_hosts()) return;
  std::vector<coordinates> places = placement;
  place_hosts(places);
  for (std::size_t r = 0; r < placement.size(); ++r)
    if (places[r] != placement[r])
      bad_config("rank " + std::to_string(r) + " is at a host, whose place is not behind the cards of its server");
}

// -- whole layout ------------------------------------------------------------------------------------------------

int layout::size() const noexcept {
  return static_cast<int>(placement.empty() ? grid_size(*this) : static_cast<std::int64_t>(placement.size()));
}

int layout::server_count() const {
  if (placement.empty()) return servers;
  const auto count = ranks_by_server(*this);
  return static_cast<int>(std::count_if(count.begin(), count.end(), [](int n) { return n > 0; }));
}

bool layout::is_flat() const noexcept {
  if (placement.empty()) return product({servers, cards, core_groups}) <= 1;
  return std::all_of(placement.begin(), placement.end(), [&](const coordinates& at) { return at == placement[0]; });
}

bool layout::has_hosts() const noexcept {
  return std::any_of(placement.begin(), placement.end(), [](const coordinates& at) { return at.host; });
}

bool layout::uniform() const {
  if (placement.empty()) return true;
  int expected = 0;
  for (int n : ranks_by_server(*this)) {
    if (n == 0) continue;
    if (expected != 0 && n != expected) return false;
    expected = n;
  }
  return true;
}

// -- one rank, server or card ------------------------------------------------------------------------------------

coordinates layout::of(int rank) const {
  if (rank < 0 || rank >= size())
    bad_argument("rank " + std::to_string(rank) + " does not exist, ranks are 0 to " + std::to_string(size() - 1));
  return placement.empty() ? grid_place(*this, rank) : placement[static_cast<std::size_t>(rank)];
}

int layout::group_of_server(int level, int server) const {
  if (level < 0 || level >= outer_levels())
    bad_argument("level " + std::to_string(level) + " does not exist, there are " + std::to_string(outer_levels()) +
                 " above the servers");
  if (server < 0 || server >= servers)
    bad_argument("server " + std::to_string(server) + " does not exist, servers are 0 to " +
                 std::to_string(servers - 1));
  const auto& groups = outer[static_cast<std::size_t>(level)];
  int group = 0;
  for (int first = 0; first + groups[static_cast<std::size_t>(group)] <= server; ++group)
    first += groups[static_cast<std::size_t>(group)];
  return group;
}

std::vector<int> layout::ranks_of_server(int server) const {
  if (server < 0 || server >= servers)
    bad_argument("server " + std::to_string(server) + " does not exist, servers are 0 to " +
                 std::to_string(servers - 1));
  if (!placement.empty()) return ranks_where(*this, [&](const coordinates& at) { return at.server == server; });
  const int each = size() / servers;
  return consecutive(server * each, each);
}

std::vector<int> layout::ranks_of_card(int server, int card) const {
  if (server < 0 || server >= servers || card < 0 || card >= cards)
    bad_argument("card " + std::to_string(card) + " of server " + std::to_string(server) + " does not exist in " +
                 std::to_string(servers) + " servers x " + std::to_string(cards) + " cards");
  if (!placement.empty())
    return ranks_where(*this, [&](const coordinates& at) { return at.server == server && at.card == card; });
  const int each = size() / (servers * cards);
  return consecutive((server * cards + card) * each, each);
}

int layout::local_index(int rank) const {
  const coordinates at = of(rank);
  if (placement.empty()) return rank % (size() / servers);
  const auto place = [](const coordinates& c, int r) { return std::tuple(c.card, c.core_group, r); };
  int before = 0;
  for (std::size_t r = 0; r < placement.size(); ++r)
    if (placement[r].server == at.server && place(placement[r], static_cast<int>(r)) < place(at, rank)) ++before;
  return before;
}

std::vector<int> layout::same_index_peers(int rank) const {
  const int index = local_index(rank);
  std::vector<int> peers;
  if (placement.empty()) {
    const int each = size() / servers;
    for (int s = 0; s < servers; ++s) peers.push_back(s * each + index);
    return peers;
  }
  // One pass that buckets ranks by server: O(size log size) also for many servers.
  std::vector<std::vector<int>> of_server(static_cast<std::size_t>(servers));
  for (std::size_t r = 0; r < placement.size(); ++r)
    of_server[static_cast<std::size_t>(placement[r].server)].push_back(static_cast<int>(r));
  for (auto& ranks : of_server) {
    if (static_cast<std::size_t>(index) >= ranks.size()) continue;
    sort_by_place(*this, ranks, [](const coordinates& at) { return std::pair(at.card, at.core_group); });
    peers.push_back(ranks[static_cast<std::size_t>(index)]);
  }
  return peers;
}

namespace {
/// How many of the servers that `used` names are in each group; groups without any disappear. @pre `used` is sorted
std::vector<std::vector<int>> groups_of_used(const layout& l, const std::vector<coordinates>& used) {
  std::vector<std::vector<int>> found(l.outer.size());
  for (std::size_t level = 0; level < found.size(); ++level) {
    std::size_t group = 0;
    int end = l.outer[level][0], counted_server = -1;
    bool counted_group = false;
    for (const coordinates& at : used) {
      if (at.server == counted_server) continue;
      counted_server = at.server;
      for (; end <= at.server; counted_group = false) end += l.outer[level][++group];
      if (counted_group) ++found[level].back();
      else found[level].push_back(1);
      counted_group = true;
    }
  }
  return found;
}
}  // namespace

namespace {
/// Each is a rank of the layout, and none is named twice.
void check_members(const layout& l, std::span<const int> members) {
  if (members.empty()) bad_argument("a subset needs at least one rank");
  const auto exists = [ranks = l.size()](int rank) { return rank >= 0 && rank < ranks; };
  const bool ascending = std::adjacent_find(members.begin(), members.end(), std::greater_equal<>{}) == members.end();
  if (ascending && exists(members.front()) && exists(members.back())) return;
  std::vector<bool> seen(static_cast<std::size_t>(l.size()), false);
  for (int rank : members) {
    static_cast<void>(l.of(rank));  // throws
    if (seen[static_cast<std::size_t>(rank)])
      bad_argument("rank " + std::to_string(rank) + " is named twice in a subset");
    seen[static_cast<std::size_t>(rank)] = true;
  }
}

/// The ranks' places when servers, cards and core groups that none of them has are left out.
layout of_used(const layout& whole, std::span<const int> members) {
  std::vector<coordinates> places;
  places.reserve(members.size());
  for (int rank : members) places.push_back(whole.of(rank));
  std::vector<coordinates> used = places;
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  std::vector<coordinates> renamed;  // used[i] becomes renamed[i]
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (i == 0) renamed.push_back({});
    else if (const coordinates last = renamed.back(); used[i].server != used[i - 1].server)
      renamed.push_back({last.server + 1, 0, 0});
    else if (used[i].card != used[i - 1].card) renamed.push_back({last.server, last.card + 1, 0});
    else renamed.push_back({last.server, last.card, last.core_group + 1});
    renamed.back().host = used[i].host;
  }
  for (auto& at : places)
    at = renamed[static_cast<std::size_t>(std::lower_bound(used.begin(), used.end(), at) - used.begin())];
  layout part = layout::placed(std::move(places));
  part.outer = groups_of_used(whole, used);
  drop_idle_levels(part);
  return part;
}
}  // namespace

layout layout::subset(std::span<const int> members) const {
  check_members(*this, members);
  layout part;
  if (is_grid() && is_flat()) part.ranks_per_core_group = static_cast<int>(members.size());
  else part = of_used(*this, members);
  part.copies = copies;
  part.reduces = reduces;
  if (!homes.empty())
    for (int rank : members) part.homes.push_back(homes[static_cast<std::size_t>(rank)]);
  return part;
}

namespace {
/// "2x4" for two groups of four servers, "4+3" where the outermost differ, "2" for no groups; empty where only a list of places says it.
std::string text_of_groups(const std::vector<std::vector<int>>& children, int servers) {
  if (children.empty()) return std::to_string(servers);
  const auto alike = [](const std::vector<int>& counts) {
    return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>{}) == counts.end();
  };
  if (!std::all_of(children.begin() + 1, children.end(), alike)) return {};
  std::string text;
  if (alike(children[0])) text = std::to_string(children[0].size()) + 'x' + std::to_string(children[0][0]);
  else
    for (int count : children[0]) text += (text.empty() ? "" : "+") + std::to_string(count);
  for (std::size_t level = 1; level < children.size(); ++level) text += 'x' + std::to_string(children[level][0]);
  return text;
}
}  // namespace

namespace {
/// What with_hosts() makes this layout of; nothing if it is none of those.
std::optional<layout> without_hosts(const layout& l) {
  const auto first =
      std::find_if(l.placement.begin(), l.placement.end(), [](const coordinates& at) { return at.host; });
  if (first == l.placement.end() || first == l.placement.begin()) return std::nullopt;
  layout base = layout::placed({l.placement.begin(), first});
  if (base.servers != l.servers) return std::nullopt;
  base.outer = l.outer;
  base.reduces = l.reduces;
  return base.with_hosts().placement == l.placement ? std::optional{base} : std::nullopt;
}
}  // namespace

std::string layout::to_string() const {
  constexpr const char* which[] = {"", ":inside", ":between", ":both"};
  const std::string reducing = which[static_cast<unsigned>(reduces) & 3u];
  if (std::optional<layout> base = without_hosts(*this)) {
    base->reduces = fabric_reduction::none;
    return base->to_string() + "+host" + reducing;
  }
  if (is_grid() && product({servers, cards, core_groups}) == 1) return std::to_string(size()) + reducing;
  const auto children = children_of_groups(*this);
  const std::string inner = 'x' + std::to_string(cards) + 'x' + std::to_string(core_groups) + reducing;
  if (is_grid() && ranks_per_core_group == 1)
    if (const auto groups = text_of_groups(children, servers); !groups.empty()) return groups + inner;
  std::string text;
  for (int r = 0; r < size(); ++r) {
    const coordinates at = of(r);
    text += r == 0 ? "" : ",";
    for (int number : path_of_server(*this, children, at.server)) text += std::to_string(number) + '.';
    text += at.host ? std::string{host_word} : std::to_string(at.card) + '.' + std::to_string(at.core_group);
  }
  return text + reducing;
}

}  // namespace troupe
