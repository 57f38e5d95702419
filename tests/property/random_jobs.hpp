// SPDX-License-Identifier: Apache-2.0
#pragma once
// Collectives and engines drawn at random, whose results are known (tests/engine/jobs.hpp).

#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>

#include "tests/engine/jobs.hpp"

namespace engine_tests {

using random_engine = std::mt19937_64;

inline std::size_t below(random_engine& random, std::size_t end) { return static_cast<std::size_t>(random() % end); }
template <class Range>
const auto& one_of(random_engine& random, const Range& of) {
  return of[below(random, std::size(of))];
}

/// 0 … 10⁵, small ones and those beside a power of two more often.
inline std::size_t any_count(random_engine& random, std::size_t most) {
  switch (below(random, 5)) {
    case 0: return below(random, 4);
    case 1: return below(random, std::min<std::size_t>(most, 100) + 1);
    case 2: return std::min(most, (std::size_t{1} << below(random, 17)) + below(random, 3) - (below(random, 2)));
    default: return below(random, most + 1);
  }
}

inline troupe::engine_options any_options(random_engine& random, int ranks) {
  troupe::engine_options o;
  const std::string n = std::to_string(ranks);
  const bool flat = random() % 2 == 0;
  if (flat) o.layout.clear();
  else if (ranks % 2 == 0 && random() % 3 == 0) o.layout = "2x" + std::to_string(ranks / 2);
  else if (ranks % 4 == 0 && random() % 2 == 0)
    o.layout = "2x2x" + std::to_string(ranks / 4) + (random() % 2 == 0 ? "x1" : "");  // two pods, or two cards a server
  else if (ranks > 2 && random() % 4 == 0) o.layout = "1+" + std::to_string(ranks - 1);
  else if (random() % 4 == 0) o.layout = n;
  constexpr const char* switches[] = {":inside", ":between", ":both"};  // which reduce
  if (!o.layout.empty() && random() % 3 == 0) o.layout += one_of(random, switches);
  o.nic_ports = 1 + static_cast<int>(below(random, 2));
  o.channels = static_cast<int>(below(random, 4));
  constexpr std::size_t chunks[] = {0, 0, 64, 1000, 4096, 65536};
  o.chunk_bytes = one_of(random, chunks);
  constexpr int credits[] = {1, 2, 3, 8, 64};
  o.credits = one_of(random, credits);
  o.slices_per_step = one_of(random, std::array{0, 1, 2, 5});
  o.streams = 1 + static_cast<int>(below(random, 6));
  o.through_scratch = random() % 2 == 0;
  constexpr const char* protocols[] = {"auto", "auto", "simple", "ll", "ll128"};
  o.protocol = one_of(random, protocols);
  o.workers = static_cast<int>(below(random, 4)) - 1;
  constexpr int spins[] = {0, 1, 64};
  o.spin = one_of(random, spins);
  if (random() % 8 == 0) {
    o.faults.delay = o.faults.reorder = o.faults.duplicate = 0.1;
    o.faults.longest_delay = std::chrono::microseconds(100);
    o.faults.seed = random();
  }
  return o;
}

inline job any_job(random_engine& random, int ranks) {
  job j;
  j.ranks = ranks;
  j.what = one_of(random, all_collectives);
  j.type = troupe::all_datatypes[below(random, troupe::all_datatypes.size())];
  do j.reduction = op_of(troupe::all_op_kinds[below(random, troupe::all_op_kinds.size())]);
  while (!defined_on(j.type, j.reduction.kind));
  j.root = static_cast<rank_t>(below(random, static_cast<std::size_t>(ranks)));
  j.in_place = random() % 2 == 0;
  j.misalignment = random() % 2 == 0 ? 0 : below(random, 9);
  j.salt = random();
  // Total work of about the same size whatever the ranks: 10⁵ elements where a block is the whole message.
  const auto blocks = static_cast<std::size_t>(std::max<std::int64_t>(1, troupe::block_count(j.what, ranks)));
  const std::size_t most = std::max<std::size_t>(3, 100'000 / blocks);
  const bool has_v_form = j.what == collective::all_gather || j.what == collective::reduce_scatter ||
                          j.what == collective::gather || j.what == collective::scatter ||
                          j.what == collective::all_to_all;
  j.v_form = has_v_form && random() % 2 == 0;
  if (j.v_form) {
    j.gaps = random() % 2 == 0;
    for (std::size_t b = 0; b < blocks; ++b) j.counts.push_back(random() % 3 == 0 ? 0 : any_count(random, most));
  } else {
    j.count = any_count(random, most);
  }
  constexpr troupe::determinism levels[] = {troupe::determinism::fast, troupe::determinism::run_stable,
                                            troupe::determinism::size_stable, troupe::determinism::topology_stable};
  if (random() % 3) j.options.level = one_of(random, levels);
  if (random() % 2) {
    const auto names = engine_tests::offering(j.what);
    j.options.choreography = names[below(random, names.size())];
  }
  return j;
}

/// Performs so many by the planner's choice, the same on all ranks that give the same seed. Throws std::runtime_error if a byte of this rank is wrong.
inline void run_any_jobs(troupe::communicator& comm, std::uint64_t drawn, int count) {
  random_engine random(mix(drawn));
  for (int k = 0; k < count; ++k) {
    job j = any_job(random, comm.size());
    j.options.choreography.clear();
    rank_memory memory(j, comm.rank());
    comm.run(memory.call());
    if (memory.wrong() != 0) throw std::runtime_error("wrong bytes: " + to_string(j));
  }
}

}  // namespace engine_tests
