// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/cuts.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <span>

#include "memory/error.hpp"

namespace troupe {

namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();
constexpr std::int64_t most_ways = 1 << 20;
/// Where ways differ by channel: so many are looked at. More than any machine has ways in parallel.
constexpr int most_channels = 16;

bool has_segment(const hardware& on) {
  if (!on.memory_way) return false;
  std::vector<element_index> way;
  try {
    on.access(0, shared_segment, false, way);
  } catch (const error&) {
    return false;
  }
  return true;
}

class cutter {
public:
  explicit cutter(const hardware& on) : on_(on) {
    std::vector<element_index> one, other;
    for (int to = 1; to < on.ranks && channels_ == 1; ++to)
      for (const auto& [a, b] : {std::pair{0, to}, std::pair{to, 0}}) {
        on.route(a, b, 0, one);
        on.route(a, b, 1, other);
        if (one != other) channels_ = most_channels;
      }
    if (channels_ > 1 && on.routing == path_choice::adaptive) channels_ += on.paths;
  }

  std::vector<machine_cut> all() {
    if (std::int64_t{on_.ranks} * on_.ranks * channels_ > most_ways) return {};
    look_up_ways();
    std::vector<machine_cut> cuts;
    std::int64_t ways = 0;
    for (const std::vector<int>& ranks : sets()) {
      // Not of all ranks, which come first.
      if (!cuts.empty()) ways += 2 * static_cast<std::int64_t>(ranks.size()) * on_.ranks * channels_;
      if (ways > most_ways) break;
      cuts.push_back(cut_of(ranks));
    }
    return cuts;
  }

private:
  using way = std::span<const element_index>;

  /// Once for all sets: a machine from a file computes each.
  void look_up_ways() {
    std::vector<element_index> one;
    for (int from = 0; from < on_.ranks; ++from)
      for (int to = 0; to < on_.ranks; ++to)
        for (int channel = 0; channel < channels_; ++channel) {
          begins_.push_back(along_.size());
          if (from == to) continue;
          on_.route(from, to, channel, one);
          along_.insert(along_.end(), one.begin(), one.end());
        }
    begins_.push_back(along_.size());
  }

  way way_of(int from, int to, int channel) const {
    const std::size_t at =
        (static_cast<std::size_t>(from) * static_cast<std::size_t>(on_.ranks) + static_cast<std::size_t>(to)) *
            static_cast<std::size_t>(channels_) +
        static_cast<std::size_t>(channel);
    return way{along_}.subspan(begins_[at], begins_[at + 1] - begins_[at]);
  }

  /// The largest first. Of a set and its complement, between which the same passes, the smaller one.
  std::vector<std::vector<int>> sets() const {
    std::vector<int> everybody(static_cast<std::size_t>(on_.ranks));
    std::iota(everybody.begin(), everybody.end(), 0);
    std::set<std::vector<int>> found;
    for (std::vector<int>& s : senders()) add(std::move(s), found);
    for (std::vector<int>& s : parted()) add(std::move(s), found);
    for (const int r : everybody) found.insert({r});
    std::vector<std::vector<int>> sets{std::move(everybody)};
    sets.insert(sets.end(), found.begin(), found.end());
    std::stable_sort(sets.begin(), sets.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return sets;
  }

  void add(std::vector<int> ranks, std::set<std::vector<int>>& to) const {
    const auto all = static_cast<std::size_t>(on_.ranks);
    if (ranks.empty() || ranks.size() == all) return;
    if (2 * ranks.size() > all) {
      std::vector<int> others;
      std::size_t at = 0;
      for (int r = 0; r < on_.ranks; ++r)
        if (at < ranks.size() && ranks[at] == r) ++at;
        else others.push_back(r);
      ranks.swap(others);
    }
    to.insert(std::move(ranks));
  }

  /// The ranks that send over each element.
  std::vector<std::vector<int>> senders() const {
    std::vector<std::vector<int>> senders(on_.elements.size());
    for (int from = 0; from < on_.ranks; ++from)
      for (int to = 0; to < on_.ranks; ++to)
        for (int channel = 0; from != to && channel < channels_; ++channel)
          for (const element_index e : way_of(from, to, channel))
            if (auto& s = senders[static_cast<std::size_t>(e)]; s.empty() || s.back() != from) s.push_back(from);
    return senders;
  }

  struct pair {
    int low, high;
  };

  /// The parts into which elements divide the ranks that all messages between different parts pass, both ways.
  std::vector<std::vector<int>> parted() const {
    std::vector<std::vector<pair>> by_element(on_.elements.size());
    std::vector<int> met(on_.elements.size(), -1);  // on the way back of which pair
    int number = 0;
    for (int a = 0; a < on_.ranks; ++a)
      for (int b = a + 1; b < on_.ranks; ++b, ++number) {
        for (const element_index e : way_of(b, a, 0)) met[static_cast<std::size_t>(e)] = number;
        for (const element_index e : way_of(a, b, 0))
          if (met[static_cast<std::size_t>(e)] == number && on_all_ways(a, b, e))
            by_element[static_cast<std::size_t>(e)].push_back({a, b});
      }
    std::vector<std::vector<int>> found;
    for (const std::vector<pair>& pairs : by_element)
      if (!pairs.empty()) std::ranges::move(parts_by(pairs), std::back_inserter(found));
    return found;
  }

  /// The parts between which those pairs are all that there are; none if it is not so.
  /// @param pairs in order, of an element that all their messages pass
  std::vector<std::vector<int>> parts_by(const std::vector<pair>& pairs) const {
    std::vector<std::vector<int>> parts;
    std::vector<int> part_of(static_cast<std::size_t>(on_.ranks), -1);
    std::vector<bool> behind;
    std::size_t at = 0;
    for (int a = 0; a < on_.ranks; ++a) {
      const bool is_first = part_of[static_cast<std::size_t>(a)] < 0;
      if (is_first) behind.assign(static_cast<std::size_t>(on_.ranks), false);
      for (; at < pairs.size() && pairs[at].low == a; ++at)
        if (is_first) behind[static_cast<std::size_t>(pairs[at].high)] = true;
      if (!is_first) continue;
      parts.emplace_back();
      for (int b = a; b < on_.ranks; ++b)
        if (int& its = part_of[static_cast<std::size_t>(b)]; its < 0 && !behind[static_cast<std::size_t>(b)]) {
          its = a;
          parts.back().push_back(b);
        }
    }
    // Each rank has as many behind it as are in other parts, and none of its own.
    std::size_t expected = 0;
    for (const std::vector<int>& part : parts)
      expected += part.size() * (static_cast<std::size_t>(on_.ranks) - part.size());
    const bool only_between = std::ranges::all_of(pairs, [&](const pair& p) {
      return part_of[static_cast<std::size_t>(p.low)] != part_of[static_cast<std::size_t>(p.high)];
    });
    if (expected != 2 * pairs.size() || !only_between) parts.clear();
    return parts;
  }
  /// @pre on those of channel 0
  bool on_all_ways(int a, int b, element_index e) const {
    for (int channel = 1; channel < channels_; ++channel)
      for (const way w : {way_of(a, b, channel), way_of(b, a, channel)})
        if (std::ranges::find(w, e) == w.end()) return false;
    return true;
  }

  double rate_of(element_index at) const {
    const element_class& c = on_.class_of(at);
    if (c.bytes_per_second == 0) return unlimited;
    return static_cast<double>(c.bytes_per_second) * c.units * 1000.0 /
           on_.elements[static_cast<std::size_t>(at)].slow_down;
  }

  /// A bit an element.
  using elements = std::vector<std::uint64_t>;

  /// Which elements some ways meet at a place, counted from the begin, and from the end; as long as the shortest of them.
  struct places {
    std::vector<elements> from_begin, from_end;
    std::size_t shortest = std::numeric_limits<std::size_t>::max();
  };
  void meet(const way& met, places& of) const {
    of.shortest = std::min(of.shortest, met.size());
    while (of.from_begin.size() < of.shortest)
      for (auto* const all : {&of.from_begin, &of.from_end}) all->emplace_back((on_.elements.size() + 63) / 64);
    const auto mark = [](elements& in, element_index e) {
      in[static_cast<std::size_t>(e) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(e) % 64);
    };
    for (std::size_t k = 0; k < of.shortest; ++k) {
      mark(of.from_begin[k], met[k]);
      mark(of.from_end[k], met[met.size() - 1 - k]);
    }
  }

  /// Of the elements that are in one of the two.
  double rate_of(const elements& some, const elements& others) const {
    double sum = 0;
    for (std::size_t word = 0; word < some.size(); ++word)
      for (std::uint64_t left = some[word] | others[word]; left != 0; left &= left - 1)
        sum += rate_of(static_cast<element_index>(64 * word + static_cast<std::size_t>(std::countr_zero(left))));
    return sum;
  }
  double capacity(const places& of) const {
    double least = unlimited;
    for (std::size_t k = 0; k < std::min(of.shortest, of.from_begin.size()); ++k)
      for (const auto* const met : {&of.from_begin[k], &of.from_end[k]}) least = std::min(least, rate_of(*met, *met));
    return least;
  }

  machine_cut cut_of(const std::vector<int>& ranks) const {
    std::vector<bool> inside(static_cast<std::size_t>(on_.ranks));
    for (const int r : ranks) inside[static_cast<std::size_t>(r)] = true;
    const bool all = ranks.size() == inside.size();  // what one sends another one gets
    places out, in, from, to;
    for (const int r : ranks)
      for (int peer = 0; peer < on_.ranks; ++peer)
        for (int channel = 0; peer != r && channel < channels_; ++channel) {
          const way away = way_of(r, peer, channel), back = way_of(peer, r, channel);
          if (ranks.size() > 1) meet(away, from);
          if (ranks.size() > 1 && !all) meet(back, to);
          if (!inside[static_cast<std::size_t>(peer)]) meet(away, out), meet(back, in);
        }
    machine_cut cut{ranks, capacity(out), capacity(in), unlimited, 0, 0};
    cut.from = ranks.size() > 1 ? capacity(from) : cut.out;
    cut.to = all ? cut.from : ranks.size() > 1 ? capacity(to) : cut.in;
    // An element that carries both is as far from the set on the way out as on the way in.
    for (std::size_t k = 0; k < std::min({out.shortest, in.shortest, out.from_begin.size(), in.from_begin.size()}); ++k)
      cut.both =
          std::min({cut.both, rate_of(out.from_begin[k], in.from_end[k]), rate_of(out.from_end[k], in.from_begin[k])});
    return cut;
  }

  const hardware& on_;
  int channels_ = 1;
  // The elements of all ways, one behind the other, and where each begins: by sender, receiver, channel.
  std::vector<element_index> along_;
  std::vector<std::size_t> begins_;
};

}  // namespace

std::vector<machine_cut> cuts_of(const hardware& on) {
  if (on.ranks < 2 || has_segment(on)) return {};
  return cutter{on}.all();
}

}  // namespace troupe
