// SPDX-License-Identifier: Apache-2.0
// Random collectives on random engines. Their exact results are known (tests/engine/jobs.hpp), so not one byte may be wrong: not
// in the outputs, not in the inputs, not between the blocks and not around the buffers.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <random>

#include "tests/property/random_jobs.hpp"
#include "topology/layout/layout.hpp"

using namespace engine_tests;

namespace {

std::string to_string(const troupe::engine_options& o) {
  return "layout \"" + o.layout + "\", protocol " + o.protocol + ", channels " + std::to_string(o.channels) +
         ", chunk " + std::to_string(o.chunk_bytes) + ", slices a step " + std::to_string(o.slices_per_step) +
         ", credits " + std::to_string(o.credits) + ", streams " + std::to_string(o.streams) + ", workers " +
         std::to_string(o.workers) + ", spin " + std::to_string(o.spin) +
         (o.through_scratch ? ", through scratch" : "") + (o.faults.any() ? ", with faults" : "");
}

/// One that this choreography is for, and wishes for it.
job any_job_by(random_engine& random, int ranks, const char* choreography) {
  job j;
  const auto is_offered = [&] {
    const auto names = offering(j.what);
    return std::find(names.begin(), names.end(), choreography) != names.end();
  };
  do j = any_job(random, ranks);
  while (!is_offered());
  j.options.choreography = choreography;
  return j;
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
        // Only a choreography that was forced on a setup that it is not made for, and only before anybody began.
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

TEST_CASE(
    "layouts of any depth, servers of any size: random calls by the hierarchical ones are right to the last byte") {
#if defined(__SANITIZE_ADDRESS__)
  constexpr int engines = 3;
#else
  constexpr int engines = 10;
#endif
  constexpr const char* places[] = {"2x2x2",   "2x2x2x1",   "2x3x2x1", "3x2x2x1", "2x2x1x1", "2x2x2x2", "4x2x1x2",
                                    "2+1x2x1", "2x2x2x2x1", "1x2x3",   "3+2",     "1+4+2",   "5+1+3"};
  constexpr const char* by[] = {"hierarchical", "hierarchical_hd", "hierarchical_nhr", "hierarchical_nb",
                                "hierarchical_pipeline"};
  std::array<int, std::size(by)> ran{};
  for (std::size_t p = 0; p < std::size(places); ++p)
    for (int e = 0; e < engines; ++e) {
      random_engine random(mix(seed() ^ mix(7'000 + static_cast<std::uint64_t>(e) * 100 + p)));
      const int ranks = troupe::layout::parse(places[p]).size();
      troupe::engine_options options = any_options(random, ranks);
      options.layout = places[p];
      INFO(to_string(options));
      troupe::engine engine(options);
      auto comms = engine.communicators(ranks);
      for (std::size_t which = 0; which < std::size(by); ++which) {
        const job j = any_job_by(random, ranks, by[which]);
        INFO(to_string(j));
        try {
          CHECK(wrong_bytes(comms, j) == 0);
          ++ran[which];
        } catch (const troupe::error& problem) {
          // Servers of different sizes, groups that are no power of two, one server, or a level of determinism that it is not for.
          CHECK_MESSAGE(problem.code_value() == errc::unsupported, std::string{problem.what()});
        }
      }
    }
  for (std::size_t which = 0; which < std::size(by); ++which) {
    CAPTURE(by[which]);
    CHECK(ran[which] > 2 * engines);
  }
}

TEST_CASE("switches that reduce, performed by ranks: random calls are right to the last byte") {
#if defined(__SANITIZE_ADDRESS__)
  constexpr int engines = 4;
#else
  constexpr int engines = 12;
#endif
  struct place {
    const char* layout;
    int ranks;
  };
  constexpr place places[] = {{"1x2:inside", 2},  {"1x5:inside", 5},   {"1x9:inside", 9},  {"2x2:both", 4},
                              {"3x3:both", 9},    {"2x3:inside", 6},   {"5x2:inside", 10}, {"2x4:between", 8},
                              {"7x1:between", 7}, {"2x9:between", 18}, {":inside", 2},     {":inside", 3},
                              {":inside", 7},     {":inside", 17}};
  constexpr const char* by[] = {"nvls", "nvls_tree", "collnet_direct", "collnet_chain"};
  std::array<int, std::size(by)> ran{};
  for (const place& at : places)
    for (int e = 0; e < engines; ++e) {
      random_engine random(mix(seed() ^ mix(static_cast<std::uint64_t>(e * 100 + at.ranks))));
      troupe::engine_options options = any_options(random, at.ranks);
      options.layout = at.layout;
      INFO(to_string(options));
      troupe::engine engine(options);
      auto comms = engine.communicators(at.ranks);
      for (std::size_t which = 0; which < std::size(by); ++which) {
        const job j = any_job_by(random, at.ranks, by[which]);
        INFO(to_string(j));
        try {
          CHECK(wrong_bytes(comms, j) == 0);
          ++ran[which];
        } catch (const troupe::error& problem) {
          // A layout or a level of determinism that it is not for.
          CHECK_MESSAGE(problem.code_value() == errc::unsupported, std::string{problem.what()});
        }
      }
    }
  for (std::size_t which = 0; which < std::size(by); ++which) {
    CAPTURE(by[which]);
    CHECK(ran[which] > engines);
  }
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
