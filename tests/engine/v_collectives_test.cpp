// SPDX-License-Identifier: Apache-2.0
// Blocks of different sizes: empty ones, gaps between them, one that has almost everything.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>

#include "tests/engine/jobs.hpp"
#include "tests/engine/small_operations.hpp"

namespace engine_tests::v_collectives_test {

namespace {

constexpr collective v_forms[] = {collective::all_gather, collective::reduce_scatter, collective::gather,
                                  collective::scatter, collective::all_to_all};

job v_job(collective what, int ranks, std::size_t (*size)(std::size_t)) {
  job j;
  j.what = what;
  j.v_form = true;
  j.ranks = ranks;
  j.type = datatype::i32;
  const auto blocks = static_cast<std::size_t>(troupe::block_count(what, ranks));
  for (std::size_t b = 0; b < blocks; ++b) j.counts.push_back(size(b));
  return j;
}

void check_everywhere(std::size_t (*size)(std::size_t)) {
  troupe::engine engine;
  for (const int ranks : {1, 2, 3, 7, 8}) {
    auto comms = engine.communicators(ranks);
    for (const collective what : v_forms)
      for (const bool in_place : {false, true})
        for (const bool gaps : {false, true}) {
          job j = v_job(what, ranks, size);
          j.in_place = in_place;
          j.gaps = gaps;
          j.root = ranks - 1;
          INFO(to_string(j));
          CHECK(wrong_bytes(comms, j) == 0);
        }
  }
}

}  // namespace

TEST_CASE("v-forms: sizes that differ") {
  check_everywhere([](std::size_t b) { return 3 + 5 * (b % 4); });
}
TEST_CASE("v-forms: some blocks are empty") {
  check_everywhere([](std::size_t b) { return b % 3 == 1 ? std::size_t{11} : std::size_t{0}; });
}
TEST_CASE("v-forms: every block is empty") {
  check_everywhere([](std::size_t) { return std::size_t{0}; });
}
TEST_CASE("v-forms: one block has almost everything") {
  check_everywhere([](std::size_t b) { return b == 1 ? std::size_t{20'011} : b % 2; });
}
TEST_CASE("v-forms: only the last one has anything") {
  check_everywhere([](std::size_t b) { return b % 7 == 6 ? std::size_t{1} : std::size_t{0}; });
}

TEST_CASE("every choreography that offers a v-form") {
  troupe::engine engine;
  std::size_t ran = 0;
  for (const int ranks : {1, 4, 5}) {
    auto comms = engine.communicators(ranks);
    for (const collective what : v_forms)
      for (const std::string& choreography : offering(what))
        for (const bool in_place : {false, true}) {
          job j = v_job(what, ranks, [](std::size_t b) { return b * 37 % 101; });
          j.options.choreography = choreography;
          j.in_place = in_place;
          j.gaps = true;
          INFO(to_string(j));
          try {
            CHECK(wrong_bytes(comms, j) == 0);
            ++ran;
          } catch (const troupe::error& e) {
            INFO(e.what());
            CHECK(e.code_value() == errc::unsupported);
          }
        }
  }
  CHECK(ran > 30);
}

TEST_CASE("reduce_scatter_v: all types and what they can do, also in f32 for low precision") {
  troupe::engine engine;
  auto comms = engine.communicators(3);
  for (const datatype type : troupe::all_datatypes)
    for (const op_kind kind : troupe::all_op_kinds) {
      if (!defined_on(type, kind)) continue;
      job j = v_job(collective::reduce_scatter, 3, [](std::size_t b) { return 5 * b; });
      j.type = type;
      j.reduction = op_of(kind);
      for (const bool gaps : {false, true}) {
        j.gaps = gaps;
        INFO(to_string(j));
        CHECK(wrong_bytes(comms, j) == 0);
        j.in_place = true;
        CHECK(wrong_bytes(comms, j) == 0);
        j.in_place = false;
      }
    }
}

TEST_CASE("v-forms on ranges") {
  troupe::engine engine;
  engine.run(3, [](communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    const troupe::block_list blocks{{1, 0, 2}};
    const std::vector<float> mine(blocks.counts[me], static_cast<float>(me));
    std::vector<float> all(3, -1);
    comm.all_gather_v(mine, all, blocks);
    CHECK(all == std::vector<float>{0, 2, 2});

    std::vector<float> contribution{1, 2, 3}, kept(blocks.counts[me]);
    comm.reduce_scatter_v(contribution, kept, blocks);
    if (me == 2) CHECK(kept == std::vector<float>{6, 9});

    std::vector<float> gathered(3, -1);
    comm.gather_v(mine, gathered, me == 0 ? blocks : troupe::block_list{}, 0);
    if (me == 0) CHECK(gathered == std::vector<float>{0, 2, 2});
    std::vector<float> back(mine.size(), -1);
    comm.scatter_v(gathered, me == 0 ? blocks : troupe::block_list{}, back, 0);
    CHECK(back == mine);

    // Rank i sends i elements to everybody.
    std::vector<std::int32_t> out(3 * me, comm.rank()), in(3);
    comm.all_to_all_v(out, troupe::block_list{{me, me, me}}, in, troupe::block_list{{0, 1, 2}});
    CHECK(in == std::vector<std::int32_t>{1, 2, 2});
  });
}

TEST_CASE("v-forms with other collectives close behind, which know their plan earlier") {
  // Plans of v-forms are made when all ranks have called; channels must not begin what was called later before that.
  troupe::engine_options options;
  options.layout = "2x2x1";
  options.workers = 1;
  troupe::engine engine(options);
  std::vector<job> jobs;
  for (int k = 0; k < 12; ++k) {
    job j = v_job(k % 4 == 0 ? collective::all_gather : collective::reduce_scatter, 4,
                  [](std::size_t b) { return 40 * b; });
    if (k % 2) {
      j = job{};
      j.ranks = 4;
      j.what = k % 4 == 1 ? collective::all_reduce : collective::all_gather;
      j.count = 50;
    }
    jobs.push_back(j);
  }
  std::atomic<std::size_t> wrong{0};
  engine.run(4, [&](communicator& comm) {
    for (int round = 0; round < 50; ++round) {
      std::vector<rank_memory> memory;
      std::vector<troupe::request> requests;
      for (const job& j : jobs) memory.emplace_back(j, comm.rank());
      for (rank_memory& m : memory) requests.push_back(comm.start(m.call()));
      for (auto& r : requests) r.wait();
      for (const rank_memory& m : memory) wrong += m.wrong();
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a repeated gather_v, or scatter_v, with a list of all counts at every rank; then a count that contradicts "
          "it, and right ones again") {
  troupe::engine_options options;
  options.agreement = troupe::agreement_time::strict;  // else who only gives may hear of it a call later
  troupe::engine engine(options);
  engine.run(3, [&](communicator& c) {
    const std::vector<std::size_t> counts{2, 3, 4};
    const auto me = static_cast<std::size_t>(c.rank());
    std::vector<std::int32_t> own(counts[me], 7 + c.rank()), all(9);
    const auto gather = [&](std::size_t count, const std::vector<std::size_t>& list) {
      c.gather_v(own.data(), count, all.data(), troupe::block_list{list}, datatype::i32, 0);
    };
    const auto scatter = [&](std::size_t count, const std::vector<std::size_t>& list) {
      c.scatter_v(all.data(), troupe::block_list{list}, own.data(), count, datatype::i32, 0);
    };
    const auto each_way = [&](const auto& call) {
      for (int i = 0; i < 3; ++i) call(counts[me], counts);
      const seen wrong = error_of([&] { call(counts[me], {2, 3, c.rank() == 2 ? 5u : 4u}); });
      CHECK((c.rank() == 2 ? wrong.code == errc::invalid_argument : wrong.code == errc::peer_refused));
      for (int i = 0; i < 3; ++i) call(counts[me], c.rank() == 1 ? std::vector<std::size_t>{3} : counts);
    };
    each_way(gather);
    if (c.rank() == 0) CHECK(all == std::vector<std::int32_t>{7, 7, 8, 8, 8, 9, 9, 9, 9});
    std::ranges::fill(own, 0);
    each_way(scatter);
    CHECK(own == std::vector<std::int32_t>(counts[me], 7 + c.rank()));
  });
}

}  // namespace engine_tests::v_collectives_test
