#include "engine/study/bounds.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace troupe {

namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

/// Bytes per second out of and into a rank.
struct port_rates {
  double out = 0, in = 0;
};

class surveyor {
public:
  explicit surveyor(const hardware& on) : on_(on) {
    constexpr int all_of_so_many = 512, sample = 64;
    const int stride = on.ranks <= all_of_so_many ? 1 : on.ranks / sample;
    for (int d = 1; d < on.ranks; d += stride) distances_.push_back(d);
    if (on.ranks > all_of_so_many) distances_.push_back(on.ranks - 1);
    for (int r = 0; r < on.ranks; ++r) look_at(r);
  }

  double fastest_us() const { return fastest_; }
  const port_rates& of(int rank) const { return rates_[static_cast<std::size_t>(rank)]; }
  double total_out() const {
    double total = 0;
    for (const port_rates& r : rates_) total += r.out;
    return total;
  }

private:
  void look_at(int rank) {
    std::vector<element_index> firsts, lasts, way;
    bool free_out = false, free_in = false;
    for (const int d : distances_) {
      const int peer = (rank + d) % on_.ranks;
      on_.route(rank, peer, 0, way);
      if (way.empty()) free_out = true;
      else firsts.push_back(way.front());
      on_.route(peer, rank, 0, way);
      if (way.empty()) free_in = true;
      else lasts.push_back(way.back());
      if (distances_.size() <= 64 || rank < 64 || d == 1) {
        const double us = static_cast<double>(on_.time_alone(rank, peer, 0, 0).count()) / 1e6;
        fastest_ = rank == 0 && d == distances_.front() ? us : std::min(fastest_, us);
      }
    }
    rates_.push_back({free_out ? unlimited : sum_of(firsts), free_in ? unlimited : sum_of(lasts)});
  }

  double sum_of(std::vector<element_index>& elements) const {
    std::sort(elements.begin(), elements.end());
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
    double total = 0;
    for (const element_index e : elements) {
      const element_class& c = on_.class_of(e);
      if (c.bytes_per_second == 0) return unlimited;
      total += static_cast<double>(c.bytes_per_second) * c.units * 1000.0 / on_.elements[static_cast<std::size_t>(e)].slow_down;
    }
    return total;
  }

  const hardware& on_;
  std::vector<int> distances_;
  std::vector<port_rates> rates_;
  double fastest_ = 0;
};

/// Bytes that a rank must send and receive.
struct duty {
  double out = 0, in = 0;
};

duty duty_of(const job_kind& kind, const job_shape& shape, double e, int ranks, rank_t root, int rank) {
  const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank);
  const auto block = [&](std::size_t b) { return e * static_cast<double>(shape.counts.empty() ? shape.count : shape.counts[b]); };
  const auto others = [&] {
    double sum_of_blocks = 0;
    for (std::size_t b = 0; b < n; ++b) sum_of_blocks += b == me ? 0 : block(b);
    return sum_of_blocks;
  };
  switch (kind.what) {
    case collective::all_reduce: return {block(0), block(0)};
    case collective::all_gather: return {block(me), others()};
    case collective::reduce_scatter: return {others(), block(me)};
    case collective::broadcast: return rank == root ? duty{block(0), 0} : duty{0, block(0)};
    case collective::reduce: return rank == root ? duty{0, block(0)} : duty{block(0), 0};
    case collective::gather: return rank == root ? duty{0, others()} : duty{block(me), 0};
    case collective::scatter: return rank == root ? duty{others(), 0} : duty{0, block(me)};
    case collective::all_to_all: {
      duty d;
      for (std::size_t b = 0; b < n; ++b)
        if (b != me) d.out += block(me * n + b), d.in += block(b * n + me);
      return d;
    }
    case collective::barrier: break;
  }
  return {};
}

}  // namespace

study_bounds bounds_of(const hardware& on, const job_kind& kind, const job_shape& shape, std::size_t element_size, rank_t root) {
  study_bounds bounds;
  if (on.ranks < 2) return bounds;
  const surveyor survey{on};
  bounds.latency_us = survey.fastest_us();
  const auto e = static_cast<double>(element_size);
  double seconds = 0;
  // The two loops of duty_of are over all ranks too; beyond a few thousand, ranks differ little.
  const int stride = on.ranks <= 4096 ? 1 : on.ranks / 64;
  for (int r = 0; r < on.ranks; r += stride) {
    const duty d = duty_of(kind, shape, e, on.ranks, root, r);
    seconds = std::max({seconds, d.out / survey.of(r).out, d.in / survey.of(r).in});
  }
  if (kind.what == collective::all_reduce)
    seconds = std::max(seconds, 2.0 * (on.ranks - 1) * e * static_cast<double>(shape.count) / survey.total_out());
  bounds.bandwidth_us = seconds * 1e6;
  return bounds;
}

}  // namespace troupe
