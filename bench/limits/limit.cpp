// SPDX-License-Identifier: Apache-2.0
// How fast an all-reduce in one address space could be: no protocol, no checks. f32, sum.
//   limit RANKS all_reduce:8 all_reduce:1048576
// Up to 4 KiB, 2 ranks: two spinning threads exchange flagged cache lines. Above: as many threads as there are cores (at most
// RANKS) sweep over all ranks' buffers. Other points are answered as unsupported.

#include "bench/harness/team.hpp"
#include "bench/limits/exchange.hpp"
#include "bench/limits/sweep.hpp"

#include <pthread.h>

#include <memory>
#include <thread>
#include <vector>

namespace {

/// Shared by the threads: all ranks' buffers, of which each thread prepares and rewrites every threads-th.
struct shared_state {
  shared_state(int rank_count, int threads)
      : ranks(rank_count), all(threads), buffers(static_cast<std::size_t>(rank_count)) {}
  int ranks;
  bench::team all;
  std::vector<bench::rank_buffers> buffers;
  bench::exchange lines;
};

class limit_member {
public:
  limit_member(int index, shared_state& s) : index_(index), s_(s) {}
  int ranks() const { return s_.ranks; }
  bool supports(const bench::request_line& r) const {
    if (r.what != bench::collective::all_reduce || r.lot >= 0) return false;
    return r.bytes <= bench::exchange::most_bytes ? s_.ranks == 2 && s_.all.size() == 2 : r.bytes % 64 == 0;
  }
  void resize(std::size_t) {}  // supports() refuses what would need it
  std::string note() const { return small_ ? "exchange" : bench::way_names[way_]; }

  void prepare(const bench::request_line& r, const bench::shape& shape, std::size_t sets) {
    shape_ = shape;
    small_ = r.bytes <= bench::exchange::most_bytes;
    for (int rank = index_; rank < s_.ranks; rank += s_.all.size())
      own(rank).shape_for(r.what, shape, rank, s_.ranks, sets);
    const std::size_t lines = shape.count / bench::line_floats;
    const std::size_t n = static_cast<std::size_t>(s_.all.size()), me = static_cast<std::size_t>(index_);
    from_ = lines * me / n * bench::line_floats;
    to_ = lines * (me + 1) / n * bench::line_floats;
    s_.all.largest(index_, 0);
    if (!small_) choose(sets);
  }
  void rewrite() {
    for (int rank = index_; rank < s_.ranks; rank += s_.all.size()) own(rank).rewrite();
  }
  double wrong() const {
    s_.all.largest(index_, 0);  // nobody waits in a sweep
    std::size_t bad = 0;
    for (int rank = index_; rank < s_.ranks; rank += s_.all.size()) bad += own(rank).wrong();
    return static_cast<double>(bad);
  }
  double largest(double value) { return s_.all.largest(index_, value); }

  void call(std::size_t set) {
    if (small_) {
      s_.lines.all_reduce(index_, own(index_).input(set), own(index_).output(set), shape_.count);
      return;
    }
    const float* in[8];
    float* out[8];
    for (int rank = 0; rank < s_.ranks; ++rank) in[rank] = own(rank).input(set), out[rank] = own(rank).output(set);
    const bench::way how = bench::ways[way_];
    switch (s_.ranks) {
      case 1: return bench::sweep<1>(how, in, out, from_, to_);
      case 2: return bench::sweep<2>(how, in, out, from_, to_);
      case 3: return bench::sweep<3>(how, in, out, from_, to_);
      case 4: return bench::sweep<4>(how, in, out, from_, to_);
      case 5: return bench::sweep<5>(how, in, out, from_, to_);
      case 6: return bench::sweep<6>(how, in, out, from_, to_);
      case 7: return bench::sweep<7>(how, in, out, from_, to_);
      default: return bench::sweep<8>(how, in, out, from_, to_);
    }
  }

private:
  bench::rank_buffers& own(int rank) const { return s_.buffers[static_cast<std::size_t>(rank)]; }

  /// The fastest way for this size; three looks each, the best of which counts.
  void choose(std::size_t sets) {
    double best[4];
    const std::size_t calls = std::max<std::size_t>(sets, (std::size_t{1} << 20) / (shape_.count * sizeof(float)) + 1);
    for (double& b : best) b = 1e9;
    for (int look = 0; look < 3; ++look)
      for (way_ = 0; way_ < 4; ++way_) {
        rewrite();
        const double seconds = largest(bench::timed(*this, calls, sets, sets > 1));
        best[way_] = std::min(best[way_], seconds);
      }
    way_ = static_cast<std::size_t>(std::min_element(best, best + 4) -
                                    best);  // the same in every thread: `largest` agreed
  }

  int index_;
  shared_state& s_;
  bench::shape shape_;
  bool small_ = false;
  std::size_t way_ = 0, from_ = 0, to_ = 0;
};

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set,
                         &set);  // fails where the core is not ours; then the system places us
}

}  // namespace

int main(int argc, char** argv) try {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  if (ranks < 1 || ranks > 8) throw std::runtime_error("usage: limit RANKS [all_reduce:BYTES …], with 1 … 8 ranks");
  const int threads = std::min(ranks, std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  bench::control from(argc - 1, argv + 1, 0);
  auto state = std::make_unique<shared_state>(ranks, threads);
  std::vector<std::thread> others;
  for (int index = 0; index < threads; ++index)
    others.emplace_back([&, index] {
      pin_to(index);
      limit_member m(index, *state);
      bench::serve(m, index, state->all, index == 0 ? &from : nullptr, "limit");
    });
  for (auto& each : others) each.join();
} catch (const std::exception& e) {
  std::fprintf(stderr, "limit: %s\n", e.what());
  return 1;
}
