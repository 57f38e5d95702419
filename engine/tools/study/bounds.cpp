// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/bounds.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace troupe {

namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

/// Bytes per second out of and into a rank, and the least that a message takes besides by one of the elements by which it leaves: behind that one
/// overheads may pass while the bytes do.
struct port_rates {
  double out = 0, in = 0;
  double latency_out = unlimited;  ///< seconds
};

/// That are looked at, there and back: about 0.1 s.
constexpr int most_ways = 1 << 19;

class surveyor {
public:
  /// Looks at every rank where that is affordable, else at some; but at those with all of their peers, as each may be reached by a
  /// link of its own.
  explicit surveyor(const hardware& on)
      : on_(on),
        ways_(distinct_channels(on)),
        stride_(std::max(1, static_cast<int>(std::int64_t{on.ranks} * on.ranks * ways_ / most_ways))) {
    for (int r = 0; r < on.ranks; r += stride_) look_at(r);
    fastest_ = std::min(fastest_, least_up_ + least_down_);
  }

  int stride() const { return stride_; }
  double fastest_us() const { return fastest_; }
  /// @pre rank is a multiple of stride()
  const port_rates& of(int rank) const { return rates_[static_cast<std::size_t>(rank / stride_)]; }
  /// No rank that was left out is taken for slower than the fastest that was not.
  port_rates total_out() const {
    port_rates total;
    double most = 0;
    for (const port_rates& r : rates_) {
      total.out += r.out, most = std::max(most, r.out);
      total.latency_out = std::min(total.latency_out, r.latency_out);
    }
    total.out += most * (on_.ranks - static_cast<double>(rates_.size()));
    return total;
  }
  /// Of `bytes` out of ports, besides the fastest message's latency.
  double seconds_out(double bytes, const port_rates& by) const {
    return bytes / by.out - std::max(0.0, fastest_ / 1e6 - by.latency_out);
  }

private:
  void look_at(int rank) {
    std::vector<element_index> firsts, lasts, way;
    bool free_out = false, free_in = false;
    double latency = unlimited;
    for (int peer = 0; peer < on_.ranks; ++peer) {
      if (peer == rank) continue;
      for (int channel = 0; channel < ways_; ++channel) {
        on_.route(rank, peer, channel, way);
        if (way.empty()) free_out = true;
        else firsts.push_back(way.front());
        latency = std::min(latency, latency_by_first(way));
        fastest_ = std::min(fastest_, static_cast<double>(on_.time_along(way, 0).count()) / 1e6);
        on_.route(peer, rank, channel, way);
        if (way.empty()) free_in = true;
        else lasts.push_back(way.back());
      }
    }
    // Data that a switch adds up, or copies, may have ways of their own.
    for (int which = 0; which < static_cast<int>(on_.switches.size()); ++which) {
      const int server = on_.switches[static_cast<std::size_t>(which)].server;
      if (server >= 0 && on_.arrangement.server_of(rank) != server) continue;
      on_.switch_route(rank, which, true, way);
      if (way.empty()) free_out = true;
      else firsts.push_back(way.front());
      latency = std::min(latency, latency_by_first(way));
      least_up_ = std::min(least_up_, latency_along(way));
      on_.switch_route(rank, which, false, way);
      if (way.empty()) free_in = true;
      else lasts.push_back(way.back());
      least_down_ = std::min(least_down_, latency_along(way));
    }
    rates_.push_back({free_out ? unlimited : sum_of(firsts), free_in ? unlimited : sum_of(lasts), latency});
  }

  /// Microseconds, without overheads and handshakes.
  double latency_along(const std::vector<element_index>& way) const {
    picoseconds sum{0};
    for (const element_index e : way) sum += on_.class_of(e).latency;
    return static_cast<double>(sum.count()) / 1e6;
  }

  double latency_by_first(const std::vector<element_index>& way) const {
    picoseconds sum{0}, handshake{0};
    for (const element_index e : way) {
      sum += on_.class_of(e).latency;
      handshake = std::max(handshake, on_.class_of(e).handshake);
    }
    if (!way.empty()) sum += handshake + on_.class_of(way.front()).overhead;
    return static_cast<double>(sum.count()) / 1e12;
  }

  double sum_of(std::vector<element_index>& elements) const {
    std::sort(elements.begin(), elements.end());
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
    double total = 0;
    for (const element_index e : elements) {
      const element_class& c = on_.class_of(e);
      if (c.bytes_per_second == 0) return unlimited;
      total += static_cast<double>(c.bytes_per_second) * c.units * 1000.0 /
               on_.elements[static_cast<std::size_t>(e)].slow_down;
    }
    return total;
  }

  const hardware& on_;
  const int ways_;  ///< of a pair of ranks
  int stride_;
  std::vector<port_rates> rates_;
  double fastest_ = unlimited;
  double least_up_ = unlimited, least_down_ = unlimited;  ///< of ways to a switch that reduces, and from one
};

/// Bytes that a rank must send and receive.
struct duty {
  double out = 0, in = 0;
};

/// Bytes of one kind of traffic over the buffer that begins with those blocks.
double bytes_of(least_traffic what, const block_run& buffer, const job_shape& shape, double e, int rank) {
  const auto block = [&](std::int64_t b) {
    return e * static_cast<double>(shape.counts.empty() ? shape.count : shape.counts[static_cast<std::size_t>(b)]);
  };
  if (what == least_traffic::nothing) return 0;
  if (what == least_traffic::block) return block(rank);
  double sum_of_blocks = 0;
  for (int i = 0; i < buffer.count; ++i)
    if (i != rank) sum_of_blocks += block(buffer.first + std::int64_t{i} * buffer.stride);
  return sum_of_blocks;
}

duty duty_of(const job_kind& kind, const job_shape& shape, double e, int n, rank_t root, int rank) {
  const collective_traits& t = traits_of(kind.what);
  return {bytes_of(t.sent(n, root, rank), t.input(n, root, rank), shape, e, rank),
          bytes_of(t.received(n, root, rank), t.output(n, root, rank), shape, e, rank)};
}

/// Looked at for one bound: about 0.1 s.
constexpr std::int64_t most_blocks = 10'000'000;

/// Bytes that must come into the ranks that are `inside` from the others: the blocks of their outputs that others alone contribute to, or, in a
/// reduction, others too; each once, as it can be passed on inside.
double must_enter(const std::vector<bool>& inside, const job_kind& kind, const job_shape& shape, double e, rank_t root,
                  std::int64_t& looked_at) {
  const int n = static_cast<int>(inside.size());
  std::vector<int> outside_before(inside.size() + 1, 0);  // how many of the ranks below r are outside
  for (int r = 0; r < n; ++r)
    outside_before[static_cast<std::size_t>(r) + 1] =
        outside_before[static_cast<std::size_t>(r)] + (inside[static_cast<std::size_t>(r)] ? 0 : 1);
  std::vector<bool> counted(static_cast<std::size_t>(block_count(kind.what, n)));
  double bytes = 0;
  for (int r = 0; r < n; ++r) {
    if (!inside[static_cast<std::size_t>(r)]) continue;
    const block_run output = output_blocks(kind.what, n, root, r);
    looked_at += output.count;
    if (looked_at > most_blocks) return bytes;
    for (int i = 0; i < output.count; ++i) {
      const std::int64_t b = output.first + std::int64_t{i} * output.stride;
      if (counted[static_cast<std::size_t>(b)]) continue;
      const rank_range by = contributors(kind.what, n, root, r, b);
      if (outside_before[static_cast<std::size_t>(by.first + by.count)] ==
          outside_before[static_cast<std::size_t>(by.first)])
        continue;
      counted[static_cast<std::size_t>(b)] = true;
      bytes += e * static_cast<double>(shape.counts.empty() ? shape.count : shape.counts[static_cast<std::size_t>(b)]);
    }
  }
  return bytes;
}

/// Bytes of a buffer.
double bytes_of(const block_run& buffer, const job_shape& shape, double e) {
  if (shape.counts.empty()) return e * static_cast<double>(shape.count) * buffer.count;
  double bytes = 0;
  for (int i = 0; i < buffer.count; ++i)
    bytes +=
        e * static_cast<double>(shape.counts[static_cast<std::size_t>(buffer.first + std::int64_t{i} * buffer.stride)]);
  return bytes;
}

/// Microseconds of the first message besides its way: what its sender does before it leaves, the least that a protocol takes, and what its receiver
/// does behind it. Where DMA engines or NICs move what others need, no message need be sent.
double least_work_us(const hardware& on) {
  if (on.nics) return 0;
  const host_costs& h = on.host;
  const bool by_messages = std::ranges::all_of(on.places, [](const rank_place& p) { return p.dma == no_element; });
  picoseconds least = h.launch + h.step + h.finish;
  if (by_messages) {
    least += h.send + h.receive + h.step;
    if (!on.protocols.empty()) least += std::ranges::min_element(on.protocols, {}, &protocol_costs::latency)->latency;
  }
  return static_cast<double>(least.count()) / 1e6;
}

/// Besides the latency.
/// @param duties of all ranks @param latency seconds
double seconds_of(const std::vector<machine_cut>& cuts, const std::vector<duty>& duties, bool all_must_send,
                  const job_kind& kind, const job_shape& shape, double e, rank_t root, double latency) {
  double seconds = 0;
  std::int64_t looked_at = 0;
  std::vector<duty> most;  // of each rank: no more leaves it, or enters it, that cannot be had otherwise
  for (int r = 0; !cuts.empty() && r < static_cast<int>(duties.size()); ++r)
    most.push_back({bytes_of(input_blocks(kind.what, static_cast<int>(duties.size()), root, r), shape, e),
                    bytes_of(output_blocks(kind.what, static_cast<int>(duties.size()), root, r), shape, e)});
  for (const machine_cut& c : cuts) {
    // Elements in the middle may begin and end nearer to ranks than any two of those are to each other.
    const double early = std::max(0.0, latency - c.latency);
    duty across, all, at_most;
    for (const int r : c.ranks) {
      const duty &d = duties[static_cast<std::size_t>(r)], &m = most[static_cast<std::size_t>(r)];
      all.out += d.out, all.in += d.in;
      at_most.out += m.out, at_most.in += m.in;
    }
    if (c.ranks.size() == 1) {
      across = all;
    } else {
      std::vector<bool> inside(duties.size());
      for (const int r : c.ranks) inside[static_cast<std::size_t>(r)] = true;
      // Sets that cannot raise the bound are not counted: counting takes longer than all else.
      const bool counts_both = (at_most.out + at_most.in) / c.both - latency > seconds;
      if (counts_both || at_most.in / c.in - early > seconds)
        across.in = must_enter(inside, kind, shape, e, root, looked_at);
      inside.flip();
      if (counts_both || at_most.out / c.out - early > seconds)
        across.out = must_enter(inside, kind, shape, e, root, looked_at);
      if (all_must_send) seconds = std::max({seconds, all.out / c.from - early, all.in / c.to - early});
    }
    // An element that carries both may have something to carry from the beginning to the end: the latency is no more than part of that.
    const double both = (across.out + across.in) / c.both - latency;
    seconds = std::max({seconds, across.out / c.out - early, across.in / c.in - early, both});
  }
  return seconds;
}

}  // namespace

study_bounds bounds_of(const hardware& on, const std::vector<machine_cut>& cuts, const job_kind& kind,
                       const job_shape& shape, std::size_t element_size, rank_t root) {
  study_bounds bounds;
  if (on.ranks < 2) return bounds;
  const surveyor survey{on};
  bounds.latency_us = survey.fastest_us();
  const auto e = static_cast<double>(element_size);
  double seconds = 0;
  std::vector<duty> duties;  // of all ranks, if there are cuts
  for (int r = 0; r < on.ranks; r += cuts.empty() ? survey.stride() : 1) {
    duties.push_back(duty_of(kind, shape, e, on.ranks, root, r));
    if (r % survey.stride() == 0)
      seconds =
          std::max({seconds, survey.seconds_out(duties.back().out, survey.of(r)), duties.back().in / survey.of(r).in});
  }
  const double all = traits_of(kind.what).sent_by_all(on.ranks) * e * static_cast<double>(shape.count);
  // Where a switch adds up or copies, nobody need send for that.
  const bool all_must_send = on.switches.empty();
  if (all_must_send) seconds = std::max(seconds, survey.seconds_out(all, survey.total_out()));
  if (all_must_send && !cuts.empty())
    seconds =
        std::max(seconds, all / cuts.front().from - std::max(0.0, bounds.latency_us / 1e6 - cuts.front().latency));
  seconds = std::max(seconds, seconds_of(cuts, duties, all_must_send, kind, shape, e, root, bounds.latency_us / 1e6));
  bounds.bandwidth_us = seconds * 1e6;
  bounds.latency_us += least_work_us(on);  // before the first byte leaves anybody, and behind the last
  return bounds;
}

}  // namespace troupe
