// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/cuts.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <span>

#include "engine/planning/option_bounds.hpp"
#include "engine/tools/study/way_network.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

constexpr double unlimited = machine_cut::unlimited;
constexpr std::size_t most_ways = 1 << 20;
/// Where ways differ by channel: as many are looked at as have a way of their own between some pairs of ranks, of most_channels_wanted channels,
/// between so many pairs. Whether the first two channels differ is looked at for all pairs up to 64 ranks, of more for those of some senders; if
/// they do there alone, so many channels are looked at.
constexpr int most_scanned = 64, most_compared = 4096, least_channels = 16;
/// Arcs that are looked at for least cuts: some 10 ms.
constexpr std::int64_t most_work = 3'000'000;

bool has_segment(const hardware& on) {
  if (!on.memory_way) return false;
  std::vector<element_index> way;
  try {
    on.access(0, {0, true}, false, way);
  } catch (const error&) {
    return false;
  }
  return true;
}

class cutter {
public:
  explicit cutter(const hardware& on) : on_(on), channels_(distinct_channels(on)), of_all_(on.elements.size()) {}

  std::vector<machine_cut> all() {
    const auto n = static_cast<std::size_t>(on_.ranks);
    if (n * n * static_cast<std::size_t>(channels_) > most_ways) return {};
    look_up_ways();
    std::vector<machine_cut> cuts;
    std::size_t ways = 0;
    std::set<std::vector<int>> known;
    for (const std::vector<int>& ranks : sets()) {
      // Not of all ranks, which come first.
      if (!cuts.empty()) ways += 2 * ranks.size() * way_count() / n;
      if (ways > most_ways) break;
      cuts.push_back(cut_of(ranks));
      known.insert(ranks);
    }
    for (std::vector<int>& ranks : regular_sets())
      if (known.insert(ranks).second) cuts.push_back({.ranks = std::move(ranks)});
    lower(cuts);
    const auto says_nothing = [](const machine_cut& c) {
      return std::min({c.out, c.in, c.both, c.from, c.to}) == unlimited;
    };
    cuts.erase(std::remove_if(cuts.begin() + 1, cuts.end(), says_nothing),
               cuts.end());  // that of all ranks stays the first
    return cuts;
  }

private:
  using way = std::span<const element_index>;

  /// Once for all sets: a machine from a file computes each. Channels whose way is another one's are left out. Data that a switch adds up, or copies, come
  /// by its ways, which are as many more between ranks.
  void look_up_ways() {
    const std::vector<reach> by_switch = look_up_switches();
    std::vector<element_index> one;
    begins_.push_back(0);
    for (int from = 0; from < on_.ranks; ++from)
      for (int to = 0; to < on_.ranks; ++to) {
        first_way_.push_back(begins_.size() - 1);
        for (int channel = 0; from != to && channel < channels_; ++channel) {
          on_.route(from, to, channel, one);
          keep_way(one);
        }
        for (const reach& by : by_switch) {
          if (from == to || !by.has[static_cast<std::size_t>(from)] || !by.has[static_cast<std::size_t>(to)]) continue;
          one = by.up[static_cast<std::size_t>(from)];
          const auto& down = by.down[static_cast<std::size_t>(to)];
          one.insert(one.end(), down.begin(), down.end());
          keep_way(one);
        }
      }
    first_way_.push_back(begins_.size() - 1);
    for (std::size_t w = 0; w < way_count(); ++w) of_all_.note(on_, way_at(w));
  }
  /// By rank: the elements to a switch that reduces, and from it, of those that it has.
  struct reach {
    std::vector<bool> has;
    std::vector<std::vector<element_index>> up, down;
  };
  std::vector<reach> look_up_switches() const {
    const auto n = static_cast<std::size_t>(on_.ranks);
    std::vector<reach> all;
    for (std::size_t which = 0; which < on_.switches.size(); ++which) {
      reach& one = all.emplace_back(reach{std::vector<bool>(n), {}, {}});
      one.up.resize(n), one.down.resize(n);
      for (int r = 0; r < on_.ranks; ++r) {
        const int server = on_.switches[which].server;
        if (server >= 0 && on_.arrangement.server_of(r) != server) continue;
        const auto at = static_cast<std::size_t>(r);
        one.has[at] = true;
        on_.switch_route(r, static_cast<int>(which), true, one.up[at]);
        on_.switch_route(r, static_cast<int>(which), false, one.down[at]);
      }
    }
    return all;
  }
  void keep_way(const std::vector<element_index>& one) {
    if (is_known(one)) return;
    along_.insert(along_.end(), one.begin(), one.end());
    begins_.push_back(along_.size());
  }
  /// Whether it is a way of the last pair of ranks.
  bool is_known(const std::vector<element_index>& one) const {
    for (std::size_t w = first_way_.back(); w + 1 < begins_.size(); ++w)
      if (std::ranges::equal(way_at(w), one)) return true;
    return false;
  }
  std::size_t way_count() const { return begins_.size() - 1; }
  way way_at(std::size_t number) const {
    return way{along_}.subspan(begins_[number], begins_[number + 1] - begins_[number]);
  }
  class ways {
  public:
    struct iterator {
      const cutter* of;
      std::size_t number;
      way operator*() const { return of->way_at(number); }
      iterator& operator++() { return ++number, *this; }
      bool operator==(const iterator&) const = default;
    };
    ways(const cutter& of, std::size_t first, std::size_t end) : begin_{&of, first}, end_{&of, end} {}
    iterator begin() const { return begin_; }
    iterator end() const { return end_; }

  private:
    iterator begin_, end_;
  };
  /// Of all channels; none from a rank to itself.
  ways ways_of(int from, int to) const {
    const std::size_t pair =
        static_cast<std::size_t>(from) * static_cast<std::size_t>(on_.ranks) + static_cast<std::size_t>(to);
    return {*this, first_way_[pair], first_way_[pair + 1]};
  }

  /// Of elements the least latency before them, their overheads included, and from them on, of some ways; by element. Not always of one way: the first
  /// message that passes an element may have come by one, the last one go on by another. Behind it an overhead may pass while the bytes do.
  struct latencies {
    explicit latencies(std::size_t elements) : before(elements, picoseconds::max()), behind(before) {}
    void note(const hardware& on, const way& one) {
      picoseconds head{0}, tail{0};
      for (const element_index e : one) head = std::max(head, on.class_of(e).handshake);
      for (const element_index e : one) {
        const element_class& c = on.class_of(e);
        head += c.overhead;
        keep_least(before[static_cast<std::size_t>(e)], head);
        head += c.latency;
      }
      keep_least(fastest, head);
      for (std::size_t i = one.size(); i-- > 0;) {
        tail += on.class_of(one[i]).latency;
        keep_least(behind[static_cast<std::size_t>(one[i])], tail);
      }
    }
    picoseconds least(const std::vector<element_index>& among) const {
      picoseconds found = picoseconds::max();
      for (const element_index e : among) {
        const auto at = static_cast<std::size_t>(e);
        if (before[at] < picoseconds::max()) keep_least(found, before[at] + behind[at]);
      }
      return found;
    }
    static void keep_least(picoseconds& least, picoseconds one) { least = std::min(least, one); }

    std::vector<picoseconds> before, behind;
    picoseconds fastest = picoseconds::max();  ///< of whole ways
  };

  /// The largest first. Of a set and its complement, between which the same passes, the smaller one.
  std::vector<std::vector<int>> sets() {
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

  /// Sets that the numbers of ranks suggest, whoever sends over what: the first half; consecutive ones, as in servers and groups; and half of the
  /// values that a digit has, numbers written with any two divisors, such as the planes in the middle of a torus. The largest first.
  std::vector<std::vector<int>> regular_sets() const {
    constexpr int most_blocks = 64;  // of one size
    const int n = on_.ranks;
    std::set<std::vector<int>> found;
    const auto add_where = [&](auto is_inside) {
      std::vector<int> ranks;
      for (int r = 0; r < n; ++r)
        if (is_inside(r)) ranks.push_back(r);
      add(std::move(ranks), found);
    };
    add_where([&](int r) { return r < n / 2; });
    for (int stride = 1; stride < n; ++stride) {
      if (n % stride != 0) continue;
      for (int values = 2; values <= n / stride; ++values)
        if (n / stride % values == 0) add_where([&](int r) { return r / stride % values < values / 2; });
      for (int block = 0; n / stride <= most_blocks && block < n / stride; ++block)
        add_where([&](int r) { return r / stride == block; });
    }
    std::vector<std::vector<int>> sets{found.begin(), found.end()};
    std::ranges::stable_sort(sets, std::greater{}, &std::vector<int>::size);
    return sets;
  }

  /// The ranks that send over each element.
  std::vector<std::vector<int>> senders() const {
    std::vector<std::vector<int>> senders(on_.elements.size());
    for (int from = 0; from < on_.ranks; ++from)
      for (int to = 0; to < on_.ranks; ++to)
        for (const way one : ways_of(from, to))
          for (const element_index e : one)
            if (auto& s = senders[static_cast<std::size_t>(e)]; s.empty() || s.back() != from) s.push_back(from);
    return senders;
  }

  struct pair {
    int low, high;
  };

  /// The parts into which elements divide the ranks that all messages between different parts pass, both ways.
  std::vector<std::vector<int>> parted() {
    std::vector<std::vector<pair>> by_element(on_.elements.size());
    std::vector<int> met(on_.elements.size(), -1);  // on the way back of which pair
    int number = 0;
    for (int a = 0; a < on_.ranks; ++a)
      for (int b = a + 1; b < on_.ranks; ++b, ++number) {
        for (const element_index e : *ways_of(b, a).begin()) met[static_cast<std::size_t>(e)] = number;
        for (const element_index e : *ways_of(a, b).begin()) {
          if (met[static_cast<std::size_t>(e)] != number) continue;
          carries_both_ = true;
          if (on_all_ways(a, b, e)) by_element[static_cast<std::size_t>(e)].push_back({a, b});
        }
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
  bool on_all_ways(int a, int b, element_index e) const {
    const auto all_have_it = [e](const ways& some) {
      for (const way one : some)
        if (std::ranges::find(one, e) == one.end()) return false;
      return true;
    };
    return all_have_it(ways_of(a, b)) && all_have_it(ways_of(b, a));
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
  std::vector<element_index> listed(const elements& some, const elements& others) const {
    std::vector<element_index> list;
    for (std::size_t word = 0; word < some.size(); ++word)
      for (std::uint64_t left = some[word] | others[word]; left != 0; left &= left - 1)
        list.push_back(static_cast<element_index>(64 * word + static_cast<std::size_t>(std::countr_zero(left))));
    return list;
  }
  double rate_of(const std::vector<element_index>& some) const {
    double sum = 0;
    for (const element_index e : some) sum += rate_of(e);
    return sum;
  }

  /// Which messages a rate is of: those between such ranks.
  enum class between { leaves, enters, from_set, to_set };
  static bool is_between(between which, bool from_inside, bool to_inside) {
    switch (which) {
      case between::leaves: return from_inside && !to_inside;
      case between::enters: return !from_inside && to_inside;
      case between::from_set: return from_inside;
      case between::to_set: return to_inside;
    }
    return false;
  }
  /// Seconds, as machine_cut::latency. @param work as in way_network; 0: what is known of all ways, which may be less
  double latency_of(const std::vector<element_index>& cut, const std::vector<bool>& inside, between which,
                    std::int64_t& work) const {
    picoseconds least = of_all_.least(cut);
    if (least < of_all_.fastest && work > 0) {
      latencies of_these{on_.elements.size()};
      for (int from = 0; from < on_.ranks; ++from)
        for (int to = 0; to < on_.ranks; ++to) {
          if (!is_between(which, inside[static_cast<std::size_t>(from)], inside[static_cast<std::size_t>(to)]))
            continue;
          for (const way one : ways_of(from, to)) {
            of_these.note(on_, one);
            work -= static_cast<std::int64_t>(one.size());
          }
        }
      least = of_these.least(cut);
    }
    return static_cast<double>(least.count()) / 1e12;
  }

  /// Where these carry less than was known.
  void limit_by(const std::vector<element_index>& elements, const std::vector<bool>& inside, between which,
                double& rate, machine_cut& of, std::int64_t& work) const {
    const double its = rate_of(elements);
    if (its >= rate) return;
    rate = its;
    of.latency = std::min(of.latency, latency_of(elements, inside, which, work));
  }
  void limit_by(const places& met, const std::vector<bool>& inside, between which, double& rate,
                machine_cut& of) const {
    std::int64_t work = std::numeric_limits<std::int64_t>::max();
    const elements* least = nullptr;
    double its = rate;
    for (std::size_t k = 0; k < std::min(met.shortest, met.from_begin.size()); ++k)
      for (const auto* const one : {&met.from_begin[k], &met.from_end[k]})
        if (const double sum = rate_of(listed(*one, *one)); sum < its) its = sum, least = one;
    if (least != nullptr) limit_by(listed(*least, *least), inside, which, rate, of, work);
  }

  machine_cut cut_of(const std::vector<int>& ranks) const {
    const std::vector<bool> inside = membership(ranks);
    const bool all = ranks.size() == inside.size();  // what one sends another one gets
    places out, in, from, to;
    for (const int r : ranks)
      for (int peer = 0; peer < on_.ranks; ++peer) {
        const bool leaves = !inside[static_cast<std::size_t>(peer)];
        for (const way away : ways_of(r, peer)) {
          if (ranks.size() > 1) meet(away, from);
          if (leaves) meet(away, out);
        }
        for (const way back : ways_of(peer, r)) {
          if (ranks.size() > 1 && !all) meet(back, to);
          if (leaves) meet(back, in);
        }
      }
    machine_cut cut{.ranks = ranks};
    limit_by(out, inside, between::leaves, cut.out, cut);
    limit_by(in, inside, between::enters, cut.in, cut);
    limit_by(from, inside, between::from_set, cut.from, cut);
    limit_by(to, inside, between::to_set, cut.to, cut);
    if (ranks.size() == 1) cut.from = cut.out, cut.to = cut.in;
    if (all) cut.to = cut.from;
    // An element that carries both is as far from the set on the way out as on the way in.
    for (std::size_t k = 0; k < std::min({out.shortest, in.shortest, out.from_begin.size(), in.from_begin.size()}); ++k)
      cut.both = std::min({cut.both, rate_of(listed(out.from_begin[k], in.from_end[k])),
                           rate_of(listed(out.from_end[k], in.from_begin[k]))});
    return cut;
  }
  std::vector<bool> membership(const std::vector<int>& ranks) const {
    std::vector<bool> inside(static_cast<std::size_t>(on_.ranks));
    for (const int r : ranks) inside[static_cast<std::size_t>(r)] = true;
    return inside;
  }

  /// Whether every way is an element by which ranks send, and one by which they receive: then there are no other places.
  bool only_ports() const {
    std::vector<bool> is_first(on_.elements.size()), is_last = is_first;
    for (std::size_t w = 0; w < way_count(); ++w) {
      const way one = way_at(w);
      if (one.size() != 2) return false;
      is_first[static_cast<std::size_t>(one.front())] = true;
      is_last[static_cast<std::size_t>(one.back())] = true;
    }
    for (std::size_t e = 0; e < is_first.size(); ++e)
      if (is_first[e] && is_last[e]) return false;
    return true;
  }

  /// Where ways differ in length their slow elements are at different places: to the least cuts of the graph that the ways make. The largest sets first.
  void lower(std::vector<machine_cut>& cuts) const {
    if (only_ports()) return;
    std::vector<double> rates;
    for (std::size_t e = 0; e < on_.elements.size(); ++e) rates.push_back(rate_of(static_cast<element_index>(e)));
    way_network there{on_.ranks, rates}, either{on_.ranks, carries_both_ ? std::move(rates) : std::vector<double>{}};
    std::vector<element_index> reversed;
    for (int from = 0; from < on_.ranks; ++from)
      for (int to = 0; to < on_.ranks; ++to)
        for (const way one : ways_of(from, to)) {
          there.add(one, from, to);
          if (!carries_both_) continue;
          either.add(one, from, to);
          reversed.assign(one.rbegin(), one.rend());
          either.add(reversed, to, from);  // what enters by it leaves the other way round
        }
    if (there.finish()) lower(cuts, there, carries_both_ && either.finish() ? &either : nullptr);
  }
  /// @param either both directions' ways from the set; none if no element is on them both ways
  void lower(std::vector<machine_cut>& cuts, way_network& there, way_network* either) const {
    std::int64_t work = most_work;
    machine_cut& all = cuts.front();
    const std::vector<bool> everybody = membership(all.ranks);
    if (const auto cut = there.least_cut(everybody, everybody, work)) {
      limit_by(*cut, everybody, between::from_set, all.from, all, work);
      all.to = all.from;
    }
    std::vector<machine_cut*> by_size;
    for (auto c = cuts.begin() + 1; c != cuts.end(); ++c) by_size.push_back(&*c);
    std::ranges::stable_sort(by_size, std::greater{}, [](const machine_cut* c) { return c->ranks.size(); });
    for (machine_cut* const c : by_size) {
      const std::vector<bool> inside = membership(c->ranks);
      std::vector<bool> outside = inside;
      outside.flip();
      if (either != nullptr)
        if (const auto cut = either->least_cut(inside, outside, work)) c->both = std::min(c->both, rate_of(*cut));
      if (const auto cut = there.least_cut(inside, outside, work))
        limit_by(*cut, inside, between::leaves, c->out, *c, work);
      if (const auto cut = there.least_cut(outside, inside, work))
        limit_by(*cut, inside, between::enters, c->in, *c, work);
      if (work < 0) return;
    }
  }

  const hardware& on_;
  const int channels_;
  // The elements of all ways, one behind the other, where each way begins, and which is the first of a pair: by sender, receiver.
  std::vector<element_index> along_;
  std::vector<std::size_t> begins_, first_way_;
  latencies of_all_;           ///< ways
  bool carries_both_ = false;  ///< an element is on the ways between two ranks both ways
};

}  // namespace

int distinct_channels(const hardware& on) {
  const std::int64_t pairs = std::int64_t{on.ranks} * on.ranks;
  int found = 1;
  std::vector<element_index> one, other;
  for (std::int64_t k = 0; k < std::min<std::int64_t>(pairs, most_scanned) && on.ranks > 1; ++k) {
    const auto from = static_cast<int>(k * 7919 % on.ranks);
    const auto to = static_cast<int>((from + 1 + k * 104'729 % (on.ranks - 1)) % on.ranks);
    std::set<std::vector<element_index>> known;
    for (int channel = 0; channel < most_channels_wanted; ++channel) {
      on.route(from, to, channel, one);
      if (known.insert(one).second) found = std::max(found, channel + 1);
    }
  }
  const auto step = static_cast<int>((pairs + most_compared - 1) / most_compared);
  for (int from = 0; from < on.ranks && found == 1; from += step)
    for (int to = 0; to < on.ranks; ++to) {
      if (from == to) continue;
      on.route(from, to, 0, one);
      on.route(from, to, 1, other);
      if (one != other && found == 1) found = least_channels;
    }
  return found == 1 ? 1 : found + (on.routing == path_choice::adaptive ? on.paths : 0);
}

std::vector<machine_cut> cuts_of(const hardware& on) {
  if (on.ranks < 2 || has_segment(on)) return {};
  return cutter{on}.all();
}

}  // namespace troupe
