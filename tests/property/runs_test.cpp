// SPDX-License-Identifier: Apache-2.0
// Random collectives on random engines. Their exact results are known (tests/engine/jobs.hpp), so not one byte may be wrong: not
// in the outputs, not in the inputs, not between the blocks and not around the buffers.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <random>

#include "tests/engine/jobs.hpp"

using namespace engine_tests;

namespace {

using random_engine = std::mt19937_64;

std::size_t below(random_engine& random, std::size_t end) { return static_cast<std::size_t>(random() % end); }
template <class Range>
const auto& one_of(random_engine& random, const Range& of) {
  return of[below(random, std::size(of))];
}

/// 0 … 10⁵, small ones and those beside a power of two more often.
std::size_t any_count(random_engine& random, std::size_t most) {
  switch (below(random, 5)) {
    case 0: return below(random, 4);
    case 1: return below(random, std::min<std::size_t>(most, 100) + 1);
    case 2: return std::min(most, (std::size_t{1} << below(random, 17)) + below(random, 3) - (below(random, 2)));
    default: return below(random, most + 1);
  }
}

troupe::engine_options any_options(random_engine& random, int ranks) {
  troupe::engine_options o;
  const std::string n = std::to_string(ranks);
  const bool flat = random() % 2 == 0;
  if (flat) o.layout.clear();
  else if (ranks % 2 == 0 && random() % 3 == 0) o.layout = "2x" + std::to_string(ranks / 2);
  else if (ranks % 4 == 0 && random() % 2 == 0) o.layout = "2x2x" + std::to_string(ranks / 4);
  else if (ranks > 2 && random() % 4 == 0) o.layout = "1+" + std::to_string(ranks - 1);
  else if (random() % 4 == 0) o.layout = n;
  o.nic_ports = 1 + static_cast<int>(below(random, 2));
  o.channels = static_cast<int>(below(random, 4));
  constexpr std::size_t chunks[] = {0, 0, 64, 1000, 4096, 65536};
  o.chunk_bytes = one_of(random, chunks);
  constexpr int credits[] = {1, 2, 3, 8, 64};
  o.credits = one_of(random, credits);
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

job any_job(random_engine& random, int ranks) {
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
    const auto names = offering(j.what);
    j.options.choreography = names[below(random, names.size())];
  }
  return j;
}

std::string to_string(const troupe::engine_options& o) {
  return "layout \"" + o.layout + "\", protocol " + o.protocol + ", channels " + std::to_string(o.channels) +
         ", chunk " + std::to_string(o.chunk_bytes) + ", credits " + std::to_string(o.credits) + ", streams " +
         std::to_string(o.streams) + ", workers " + std::to_string(o.workers) + ", spin " + std::to_string(o.spin) +
         (o.through_scratch ? ", through scratch" : "") + (o.faults.any() ? ", with faults" : "");
}

}  // namespace

TEST_CASE("random collectives on random engines are right to the last byte") {
#if defined(__SANITIZE_ADDRESS__)
  constexpr int engines = 100;
#else
  constexpr int engines = 300;
#endif
  int ran = 0, refused = 0;
  for (int e = 0; e < engines; ++e) {
    random_engine random(mix(seed() + static_cast<std::uint64_t>(e)));
    const int ranks = 1 + static_cast<int>(below(random, 17));
    const troupe::engine_options options = any_options(random, ranks);
    INFO("engine " << e << ": " << to_string(options));
    troupe::engine engine(options);
    auto comms = engine.communicators(ranks);
    for (int k = 0; k < 6; ++k) {
      job j = any_job(random, ranks);
      INFO(to_string(j));
      try {
        CHECK(wrong_bytes(comms, j, random() % 2 ? form::grouped : form::asynchronous) == 0);
        ++ran;
      } catch (const troupe::error& problem) {
        // Only a choreography that was forced on a stage that it is not made for, and only before anybody began.
        INFO(problem.what());
        CHECK(problem.code_value() == errc::unsupported);
        CHECK_FALSE(j.options.choreography.empty());
        ++refused;
        j.options.choreography.clear();
        CHECK(wrong_bytes(comms, j) == 0);
      }
    }
  }
  std::printf("%d collectives ran, %d forced choreographies refused\n", ran, refused);
  CHECK(ran > 5 * refused);
}

TEST_CASE("complex numbers by every protocol, at every level, of every small count") {
  constexpr troupe::message_protocol protocols[] = {troupe::message_protocol::automatic,
                                                    troupe::message_protocol::simple, troupe::message_protocol::ll,
                                                    troupe::message_protocol::ll128, troupe::message_protocol::direct};
  constexpr troupe::determinism levels[] = {troupe::determinism::fast, troupe::determinism::run_stable,
                                            troupe::determinism::size_stable, troupe::determinism::topology_stable};
  random_engine random(mix(seed()));
  int torn = 0;
  for (const int ranks : {2, 3, 5}) {
    troupe::engine engine;
    auto comms = engine.communicators(ranks);
    for (const troupe::datatype type : {troupe::datatype::c64, troupe::datatype::c128})
      for (const op_kind kind : {op_kind::sum, op_kind::prod, op_kind::avg, op_kind::pre_mul_sum})
        for (const troupe::message_protocol protocol : protocols)
          for (const troupe::determinism level : levels)
            for (const std::size_t count : {0u, 1u, 7u, 13u, 101u, 409u}) {
              constexpr collective reductions[] = {collective::all_reduce, collective::reduce_scatter,
                                                   collective::reduce, collective::scan};
              job j;
              j.ranks = ranks;
              j.what = one_of(random, reductions);
              j.type = type;
              j.reduction = op_of(kind);
              j.count = count;
              j.in_place = random() % 2 == 0;
              j.misalignment = random() % 2 == 0 ? 0 : below(random, 9);
              j.salt = random();
              j.options.level = level;
              // A prefix is no pass over all buffers.
              if (j.what != collective::scan || protocol != troupe::message_protocol::direct)
                j.options.protocol = protocol;
              INFO(to_string(j) << " by " << name(protocol));
              try {
                CHECK(wrong_bytes(comms, j) == 0);
              } catch (const troupe::error& problem) {
                INFO(problem.what());
                CHECK(problem.code_value() == errc::unsupported);
                // Products of 16 bytes do not fill a line of LL128; a root in place is the actors' business.
                const bool of_sixteen = type == troupe::datatype::c128 && kind == op_kind::prod &&
                                        protocol == troupe::message_protocol::ll128 && count > 7;
                CHECK((of_sixteen || (j.what == collective::reduce && j.in_place)));
                torn += of_sixteen ? 1 : 0;
              }
            }
  }
  CHECK(torn > 0);
}

TEST_CASE("random sequences on several threads: every rank calls the same, each from its own thread") {
#if defined(__SANITIZE_ADDRESS__)
  constexpr int rounds = 20;
#else
  constexpr int rounds = 60;
#endif
  for (int round = 0; round < rounds; ++round) {
    random_engine random(mix(seed() ^ (0x5eedu + static_cast<std::uint64_t>(round))));
    const int ranks = 1 + static_cast<int>(below(random, 9));
    const troupe::engine_options options = any_options(random, ranks);
    std::vector<job> jobs;
    for (int k = 0; k < 10; ++k) {
      jobs.push_back(any_job(random, ranks));
      jobs.back().options.choreography.clear();
    }
    INFO("round " << round << ": " << to_string(options));
    troupe::engine engine(options);
    std::atomic<std::size_t> wrong{0};
    engine.run(ranks, [&](communicator& comm) {
      std::vector<rank_memory> memory;
      std::vector<troupe::request> requests;
      for (const job& j : jobs) memory.emplace_back(j, comm.rank());
      // The first half one by one, the second half at once.
      for (std::size_t k = 0; k < 5; ++k) comm.run(memory[k].call());
      for (std::size_t k = 5; k < 10; ++k) requests.push_back(comm.start(memory[k].call()));
      for (auto& r : requests) r.wait();
      for (const rank_memory& m : memory) wrong += m.wrong();
    });
    CHECK(wrong == 0);
  }
}
