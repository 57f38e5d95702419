// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/cuts.hpp"

#include <algorithm>
#include <limits>
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
      const auto inside = static_cast<std::int64_t>(ranks.size());
      ways += 2 * inside * (on_.ranks - inside) * channels_;
      if (ways > most_ways) break;
      cuts.push_back({ranks, capacity(ranks, true), capacity(ranks, false)});
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

  /// The ranks that send over each element, without those that are all, or one: those are known from their own ports.
  std::set<std::vector<int>> sets() const {
    std::set<std::vector<int>> found;
    std::vector<std::vector<int>> senders(on_.elements.size());
    for (int from = 0; from < on_.ranks; ++from)
      for (int to = 0; to < on_.ranks; ++to)
        for (int channel = 0; from != to && channel < channels_; ++channel)
          for (const element_index e : way_of(from, to, channel))
            if (auto& s = senders[static_cast<std::size_t>(e)]; s.empty() || s.back() != from) s.push_back(from);
    for (std::vector<int>& s : senders)
      if (s.size() > 1 && s.size() < static_cast<std::size_t>(on_.ranks)) found.insert(std::move(s));
    return found;
  }

  double rate_of(element_index at) const {
    const element_class& c = on_.class_of(at);
    if (c.bytes_per_second == 0) return unlimited;
    return static_cast<double>(c.bytes_per_second) * c.units * 1000.0 /
           on_.elements[static_cast<std::size_t>(at)].slow_down;
  }

  double capacity(const std::vector<int>& ranks, bool out) const {
    std::vector<bool> in_set(static_cast<std::size_t>(on_.ranks));
    for (const int r : ranks) in_set[static_cast<std::size_t>(r)] = true;
    std::vector<int> outside;
    for (int r = 0; r < on_.ranks; ++r)
      if (!in_set[static_cast<std::size_t>(r)]) outside.push_back(r);
    // Which elements are met at a place, counted from the begin, and from the end; as long as the shortest way.
    std::vector<std::vector<bool>> from_begin, from_end;
    std::size_t shortest = std::numeric_limits<std::size_t>::max();
    for (const int r : ranks)
      for (const int peer : outside)
        for (int channel = 0; channel < channels_; ++channel) {
          const way met = out ? way_of(r, peer, channel) : way_of(peer, r, channel);
          shortest = std::min(shortest, met.size());
          while (from_begin.size() < met.size())
            for (auto* const places : {&from_begin, &from_end}) places->emplace_back(on_.elements.size());
          for (std::size_t k = 0; k < met.size(); ++k) {
            from_begin[k][static_cast<std::size_t>(met[k])] = true;
            from_end[k][static_cast<std::size_t>(met[met.size() - 1 - k])] = true;
          }
        }
    double least = unlimited;
    for (std::size_t k = 0; k < std::min(shortest, from_begin.size()); ++k)
      for (const auto* const elements : {&from_begin[k], &from_end[k]}) {
        double sum = 0;
        for (std::size_t e = 0; e < elements->size(); ++e)
          if ((*elements)[e]) sum += rate_of(static_cast<element_index>(e));
        least = std::min(least, sum);
      }
    return least;
  }

  const hardware& on_;
  int channels_ = 1;
  // The elements of all ways, one behind the other, and where each begins: by sender, receiver, channel.
  std::vector<element_index> along_;
  std::vector<std::size_t> begins_;
};

}  // namespace

std::vector<machine_cut> cuts_of(const hardware& on) {
  if (on.ranks < 3 || has_segment(on)) return {};
  return cutter{on}.all();
}

}  // namespace troupe
