// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/property/random_jobs.hpp"
#include "tests/seed.hpp"

namespace process_tests {

/// Every collective that a NIC can perform, and the v-forms whose counts all ranks know, with counts that are drawn, started or waited for. Throws for wrong bytes. The same on all ranks.
inline void perform_all_collectives(troupe::communicator& comm, std::uint64_t drawn) {
  using namespace engine_tests;
  using troupe::all_collectives;
  using troupe::collective;
  random_engine random(mix(drawn));
  for (int round = 0; round < 6; ++round) {
    std::vector<job> jobs;
    for (const collective what : all_collectives) {
      job j = any_job(random, comm.size());
      j.what = what;
      j.type = round % 2 == 0 ? troupe::datatype::f32 : troupe::datatype::i64;
      j.reduction = troupe::sum;
      j.v_form = false;
      j.counts.clear();
      j.gaps = false;
      j.count = any_count(random, round < 5 ? 3'000 : 60'000);
      j.options.choreography.clear();
      jobs.push_back(j);
      if (what != collective::all_gather && what != collective::reduce_scatter) continue;
      j.v_form = true;
      j.gaps = round % 3 == 1;
      for (int block = 0; block < comm.size(); ++block)
        j.counts.push_back(random() % 4 == 0 ? 0 : any_count(random, round < 5 ? 3'000 : 60'000));
      jobs.push_back(std::move(j));
    }
    std::vector<rank_memory> memory;
    std::vector<troupe::request> requests;
    for (const job& j : jobs) memory.emplace_back(j, comm.rank());
    for (rank_memory& mine : memory)
      if (round % 2 == 0) requests.push_back(comm.start(mine.call()));
      else comm.run(mine.call());
    for (auto& r : requests) r.wait();
    for (std::size_t k = 0; k < jobs.size(); ++k)
      if (memory[k].wrong() != 0) throw std::runtime_error("wrong bytes: " + to_string(jobs[k]));
  }
}

}  // namespace process_tests
