// SPDX-License-Identifier: Apache-2.0
// Row 9 of the target table: all_reduce of f16, bf16 and i8 against the limit that does the same work, in turns in one process.
//   typed [RANKS [BYTES [ROUNDS]]]     default 2 ranks, 16 MiB, 7 rounds. One line of JSON a type.
// Buffers: as many sets as exceed four caches, in turn, inputs rewritten before a set is used again; the same for both.

#include "bench/harness/buffers.hpp"
#include "bench/harness/team.hpp"
#include "bench/limits/typed_sweep.hpp"
#include "engine/api/troupe.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;
using bench::element;

struct typed {
  element what;
  troupe::datatype type;
  std::size_t size;
  std::uint16_t one_per_rank[8];  ///< 1, 2, 3 … as the type has them
  std::uint16_t sums[9];          ///< by ranks: 1 + … + n
};
constexpr typed all_types[] = {{element::f16,
                                troupe::datatype::f16,
                                2,
                                {0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800},
                                {0, 0x3c00, 0x4200, 0x4600, 0x4900, 0x4b80, 0x4d40, 0x4f00, 0x5080}},
                               {element::bf16,
                                troupe::datatype::bf16,
                                2,
                                {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100},
                                {0, 0x3f80, 0x4040, 0x40c0, 0x4120, 0x4170, 0x41a8, 0x41e0, 0x4210}},
                               {element::i8,
                                troupe::datatype::i8,
                                1,
                                {0x0101, 0x0202, 0x0303, 0x0404, 0x0505, 0x0606, 0x0707, 0x0808},
                                {0, 0x0101, 0x0303, 0x0606, 0x0a0a, 0x0f0f, 0x1515, 0x1c1c, 0x2424}}};

/// All ranks' buffers of one set.
struct set_of_buffers {
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
};

class memory {
public:
  memory(int ranks, std::size_t bytes) : ranks_(ranks), bytes_(bytes) {
    const std::size_t footprint = 2 * bytes * static_cast<std::size_t>(ranks);
    const std::size_t sets = std::max<std::size_t>(2, (4 * bench::cache_bytes() + footprint - 1) / footprint);
    for (std::size_t s = 0; s < sets; ++s) {
      set_of_buffers next;
      for (int r = 0; r < ranks; ++r) {
        for (int side = 0; side < 2; ++side) arenas_.push_back(std::make_unique<bench::arena>());
        next.in.push_back(arenas_[arenas_.size() - 2]->at_least(bytes));
        next.out.push_back(arenas_.back()->at_least(bytes));
      }
      sets_.push_back(next);
    }
  }
  void rewrite(const typed& t) {
    for (auto& s : sets_)
      for (int r = 0; r < ranks_; ++r) {
        auto* words = reinterpret_cast<std::uint16_t*>(const_cast<std::byte*>(s.in[static_cast<std::size_t>(r)]));
        std::fill(words, words + bytes_ / 2, t.one_per_rank[r]);
      }
  }
  std::size_t wrong(const typed& t) const {
    std::size_t bad = 0;
    for (const std::byte* out : sets_.back().out) {
      const auto* words = reinterpret_cast<const std::uint16_t*>(out);
      for (std::size_t i = 0; i < bytes_ / 2; ++i) bad += words[i] != t.sums[ranks_];
    }
    return bad;
  }
  const std::vector<set_of_buffers>& sets() const { return sets_; }

private:
  int ranks_;
  std::size_t bytes_;
  std::vector<std::unique_ptr<bench::arena>> arenas_;
  std::vector<set_of_buffers> sets_;
};

template <element T, bool Streaming>
void sweep(int ranks, const set_of_buffers& s, std::size_t from, std::size_t to) {
  switch (ranks) {
    case 2: return bench::typed_sweep<T, 2, Streaming>(s.in.data(), s.out.data(), from, to);
    case 4: return bench::typed_sweep<T, 4, Streaming>(s.in.data(), s.out.data(), from, to);
    default: return bench::typed_sweep<T, 8, Streaming>(s.in.data(), s.out.data(), from, to);
  }
}

void sweep(element what, bool streaming, int ranks, const set_of_buffers& s, std::size_t from, std::size_t to) {
  switch (what) {
    case element::f16:
      return streaming ? sweep<element::f16, true>(ranks, s, from, to) : sweep<element::f16, false>(ranks, s, from, to);
    case element::bf16:
      return streaming ? sweep<element::bf16, true>(ranks, s, from, to)
                       : sweep<element::bf16, false>(ranks, s, from, to);
    case element::i8:
      return streaming ? sweep<element::i8, true>(ranks, s, from, to) : sweep<element::i8, false>(ranks, s, from, to);
  }
}

/// µs a call with `threads` threads that begin together; `call(thread, set)`.
template <class Call>
double timed(int threads, std::size_t sets, Call call) {
  bench::team all(threads);
  std::vector<double> took(static_cast<std::size_t>(threads));
  std::vector<std::thread> members;
  for (int t = 0; t < threads; ++t)
    members.emplace_back([&, t] {
      all.largest(t, 0);
      const auto begin = clock_type::now();
      for (std::size_t s = 0; s < sets; ++s) call(t, s);
      took[static_cast<std::size_t>(t)] = std::chrono::duration<double, std::micro>(clock_type::now() - begin).count();
    });
  for (auto& m : members) m.join();
  return *std::max_element(took.begin(), took.end()) / static_cast<double>(sets);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const typed& t, int ranks, std::size_t bytes, int rounds, memory& all,
             std::vector<troupe::communicator>& comms) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int sweepers = std::min(ranks, cores);
  std::vector<double> ours, limit[2];
  std::size_t wrong = 0;
  for (int round = -1; round < rounds; ++round) {  // the first only warms up
    all.rewrite(t);
    const double us = timed(ranks, all.sets().size(), [&](int rank, std::size_t s) {
      const auto r = static_cast<std::size_t>(rank);
      comms[r].all_reduce(all.sets()[s].in[r], all.sets()[s].out[r], bytes / t.size, t.type);
    });
    wrong += all.wrong(t);
    if (round >= 0) ours.push_back(us);
    for (const bool streaming : {false, true}) {
      all.rewrite(t);
      const double swept = timed(sweepers, all.sets().size(), [&](int me, std::size_t s) {
        const auto n = static_cast<std::size_t>(sweepers), at = static_cast<std::size_t>(me);
        sweep(t.what, streaming, ranks, all.sets()[s], bytes / 64 * at / n * 64, bytes / 64 * (at + 1) / n * 64);
      });
      wrong += bench::has_typed_sweep ? all.wrong(t) : 0;
      if (round >= 0) limit[streaming].push_back(swept);
    }
  }
  const double best = std::min(median(limit[0]), median(limit[1]));
  std::printf("{\"type\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"us\":%.6g,\"limit_us\":%s%.6g%s,\"wrong\":%zu}\n",
              std::string(troupe::name(t.type)).c_str(), ranks, bytes, median(ours),
              bench::has_typed_sweep ? "" : "null,\"untested_us\":", best, "", wrong);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::size_t bytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::size_t{16} << 20;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 7;
  if ((ranks != 2 && ranks != 4 && ranks != 8) || bytes < 128 || bytes % 128 != 0 || rounds < 1) {
    std::fprintf(stderr, "usage: typed [2|4|8 [BYTES [ROUNDS]]], BYTES a multiple of 128\n");
    return 2;
  }
  troupe::engine engine;
  auto comms = engine.communicators(ranks);
  memory all{ranks, bytes};
  for (const typed& t : all_types) measure(t, ranks, bytes, rounds, all, comms);
} catch (const std::exception& e) {
  std::fprintf(stderr, "typed: %s\n", e.what());
  return 1;
}
