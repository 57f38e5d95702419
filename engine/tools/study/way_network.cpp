// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/way_network.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

constexpr double no_limit = std::numeric_limits<double>::infinity();
constexpr std::size_t most_arcs = 1 << 16;
constexpr int unreached = -1;

}  // namespace

way_network::way_network(int ranks, std::vector<double> rates)
    : ranks_(ranks), rates_(std::move(rates)), lately_(std::size_t{1} << 14, ~std::uint64_t{0}) {}

void way_network::add(std::span<const element_index> way, int from, int to) {
  int at = begin_of(from);
  for (const element_index e : way) {
    follow(at, into(e));
    at = out_of(e);
  }
  follow(at, end_of(to));
}

void way_network::follow(int from, int to) {
  const std::uint64_t pair = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  std::uint64_t& same = lately_[(pair ^ pair >> 27) * 0x9e3779b97f4a7c15u >> 50];
  if (same == pair) return;
  same = pair;
  // Beyond twice as many, of which some may be there twice, it is known that there are too many.
  if (followed_.size() <= 2 * most_arcs) followed_.push_back(pair);
}

bool way_network::finish() {
  if (followed_.size() > 2 * most_arcs) return false;
  for (element_index e = 0; e < static_cast<element_index>(rates_.size()); ++e)
    followed_.push_back(static_cast<std::uint64_t>(into(e)) << 32 | static_cast<std::uint32_t>(out_of(e)));
  std::ranges::sort(followed_);
  followed_.erase(std::unique(followed_.begin(), followed_.end()), followed_.end());
  if (followed_.size() > most_arcs) return false;

  const auto from = [](std::uint64_t pair) { return static_cast<std::size_t>(pair >> 32); };
  const auto to = [](std::uint64_t pair) { return static_cast<std::size_t>(pair & 0xffffffff); };
  first_.assign(nodes() + 1, 0);
  for (const std::uint64_t pair : followed_) ++first_[from(pair) + 1], ++first_[to(pair) + 1];
  for (std::size_t n = 0; n < nodes(); ++n) first_[n + 1] += first_[n];
  arcs_.resize(2 * followed_.size());
  std::vector<std::uint32_t> at = first_;
  const std::size_t first_element = 2 * static_cast<std::size_t>(ranks_);
  for (const std::uint64_t pair : followed_) {
    const std::size_t a = from(pair), b = to(pair);
    const bool through = a >= first_element && b == a + 1 && (a - first_element) % 2 == 0;
    const std::uint32_t there = at[a]++, back = at[b]++;
    arcs_[there] = {static_cast<int>(b), back, through ? rates_[(a - first_element) / 2] : no_limit};
    arcs_[back] = {static_cast<int>(a), there, 0};
  }
  followed_ = {};
  lately_ = {};
  return true;
}

std::optional<std::vector<element_index>> way_network::least_cut(const std::vector<bool>& from,
                                                                 const std::vector<bool>& to, std::int64_t& work) {
  work -= static_cast<std::int64_t>(arcs_.size() + nodes()) / 4;  // which are set, not looked at
  left_.resize(arcs_.size());
  std::ranges::transform(arcs_, left_.begin(), &arc::capacity);
  while (find_levels(from, to, work)) {
    next_.assign(first_.begin(), first_.end() - 1);
    for (int r = 0; r < ranks_; ++r) {
      if (!from[static_cast<std::size_t>(r)]) continue;
      for (;;) {
        const std::optional<double> pushed = push(begin_of(r), to, work);
        if (!pushed || *pushed == no_limit || work < 0) return std::nullopt;
        if (*pushed == 0) break;
      }
    }
  }
  if (work < 0) return std::nullopt;
  std::vector<element_index> cut;
  for (const int node : reached_)
    if (const int e = node - 2 * ranks_;
        e >= 0 && e % 2 == 0 && level_[static_cast<std::size_t>(node) + 1] == unreached)
      cut.push_back(e / 2);
  return cut;
}

/// How far nodes are from the first ranks, over arcs that have something left. @returns whether one of the second ranks is among them
bool way_network::find_levels(const std::vector<bool>& from, const std::vector<bool>& to, std::int64_t& work) {
  level_.assign(nodes(), unreached);
  reached_.clear();
  for (int r = 0; r < ranks_; ++r)
    if (from[static_cast<std::size_t>(r)]) {
      level_[static_cast<std::size_t>(begin_of(r))] = 0;
      reached_.push_back(begin_of(r));
    }
  int last = std::numeric_limits<int>::max();  // level of the first of the second ones
  for (std::size_t i = 0; i < reached_.size(); ++i) {
    const auto node = static_cast<std::size_t>(reached_[i]);
    if (level_[node] >= last) break;
    work -= first_[node + 1] - first_[node];
    for (std::uint32_t a = first_[node]; a < first_[node + 1]; ++a) {
      const int next = arcs_[a].to;
      int& level = level_[static_cast<std::size_t>(next)];
      if (left_[a] <= 0 || level != unreached) continue;
      level = level_[node] + 1;
      reached_.push_back(next);
      if (is_end_of(to, next)) last = level;
    }
  }
  return last < std::numeric_limits<int>::max() && work >= 0;
}

/// As much as one path takes that goes up by a level with every arc; 0: there is none any more. None: too much work.
std::optional<double> way_network::push(int from, const std::vector<bool>& to, std::int64_t& work) {
  path_.clear();
  int node = from;
  while (!is_end_of(to, node)) {
    if (work < 0) return std::nullopt;
    const auto n = static_cast<std::size_t>(node);
    std::uint32_t& a = next_[n];
    for (; a < first_[n + 1]; ++a, --work)
      if (left_[a] > 0 && level_[static_cast<std::size_t>(arcs_[a].to)] == level_[n] + 1) break;
    if (a < first_[n + 1]) {
      path_.push_back(a);
      node = arcs_[a].to;
      continue;
    }
    if (path_.empty()) return 0;
    node = arcs_[arcs_[path_.back()].back].to;
    path_.pop_back();
    ++next_[static_cast<std::size_t>(node)];
  }
  double least = no_limit;
  for (const std::uint32_t a : path_) least = std::min(least, left_[a]);
  if (least == no_limit) return least;
  work -= static_cast<std::int64_t>(path_.size());
  for (const std::uint32_t a : path_) left_[a] -= least, left_[arcs_[a].back] += least;
  return least;
}

}  // namespace troupe
