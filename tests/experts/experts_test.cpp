// SPDX-License-Identifier: Apache-2.0
// Layers of experts in one process: threads of a run, and layouts whose servers share no memory.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "bench/harness/counted_heap.hpp"
#include "engine/experts/expert_replicas.hpp"
#include "engine/experts/scaled_rows.hpp"
#include "memory/error.hpp"
#include "tests/code_of.hpp"
#include "tests/experts/layer.hpp"
#include "tests/seed.hpp"

using namespace expert_tests;
using troupe::communicator;
using troupe::engine;
using troupe::errc;

namespace {

struct machine {
  int ranks;
  const char* layout;
  std::vector<int> servers;
};

using troupe_tests::code_of;

}  // namespace

TEST_CASE("random layers on random machines: dispatch, combine and their gradients are those of the definition") {
  const std::vector<machine> machines{{1, "", {}},           {2, "", {}},
                                      {3, "", {}},           {4, "", {}},
                                      {7, "", {}},           {4, "2x2", {0, 0, 1, 1}},
                                      {3, "3x1", {0, 1, 2}}, {5, "3+2", {0, 0, 0, 1, 1}}};
  random_numbers random{seed()};
  for (const machine& m : machines) {
    troupe::engine_options options;
    options.layout = m.layout;
    engine e{options};
    for (int round = 0; round < 12; ++round) {
      layer l = any_layer(random, m.ranks);
      l.servers = m.servers;
      std::vector<layer> batches;
      for (int b = 0; b < 4; ++b) {
        draw_batch(random, l, m.ranks);
        batches.push_back(l);
      }
      CAPTURE(std::string{m.layout});
      CAPTURE(round);
      CHECK_NOTHROW(e.run(m.ranks, [&](communicator& comm) {
        auto exchange = comm.expert_exchange(l.experts, l.options);
        for (const layer& one : batches) check_layer(exchange, one, comm.rank());
      }));
    }
  }
}

TEST_CASE("no tokens, one expert, everything to one expert, and dispatches without combines") {
  engine e;
  layer l;
  l.experts = 1;
  l.options.hidden = 33;
  l.options.top_k = 2;
  for (const auto& tokens : std::vector<std::vector<std::size_t>>{{0, 0, 0}, {5, 0, 0}, {0, 0, 7}, {3, 100, 1}}) {
    l.tokens = tokens;
    e.run(3, [&](communicator& comm) {
      auto exchange = comm.expert_exchange(l.experts, l.options);
      check_layer(exchange, l, comm.rank());
      for (std::uint64_t again = 2; again < 6; ++again) {
        layer other = l;
        other.seed = again;
        const batch<float> mine(other, comm.rank());
        const auto got = exchange.dispatch<float>(mine.tokens, mine.ids, mine.weights);
        CHECK(got.size() == (comm.rank() == 0 ? 2 * (tokens[0] + tokens[1] + tokens[2]) : 0));
      }
      check_layer(exchange, l, comm.rank());
    });
  }
}

TEST_CASE("a token crosses to a server once, however many of its experts are there") {
  troupe::engine_options options;
  options.layout = "2x2";
  engine e{options};
  e.run(4, [](communicator& comm) {
    auto exchange = comm.expert_exchange(8, {.hidden = 16, .top_k = 4});
    const std::size_t n = 10;
    const std::vector<float> tokens(n * 16, 1.0F);
    std::vector<std::int32_t> ids;
    for (std::size_t t = 0; t < n; ++t)
      for (const int id : comm.rank() < 2 ? std::array{4, 5, 6, 7} : std::array{0, 1, 6, 7}) ids.push_back(id);
    const auto got = exchange.dispatch<float>(tokens, ids);
    std::vector<float> sums(n * 16);
    exchange.combine<float>(got.rows, sums);
    for (const float x : sums) CHECK(x == 4);
    const auto profile = exchange.profile();
    for (std::size_t r = 0; r < 4; ++r) {
      CHECK(profile.ranks[r].crossed == n);
      CHECK(profile.ranks[r].crossing == (r < 2 ? 4 * n : 2 * n));
    }
    CHECK(profile.bottleneck() == 3);
    CHECK(profile.tokens_of_expert == std::vector<std::uint64_t>{20, 20, 0, 0, 20, 20, 40, 40});
    CHECK(profile.imbalance() == doctest::Approx(2));
    REQUIRE(profile.sent_to_expert.size() == 4 * 8);
    for (std::size_t r = 0; r < 4; ++r)
      for (std::size_t e = 0; e < 8; ++e) {
        const bool goes = r < 2 ? e >= 4 : e < 2 || e >= 6;
        CHECK(profile.sent_to_expert[8 * r + e] == (goes ? n : 0));
      }
  });
}

TEST_CASE("what one rank refuses is told to the others, and all go on") {
  for (const char* layout : {"", "2x2"}) {
    troupe::engine_options how;
    how.layout = layout;
    engine e{how};
    e.run(4, [](communicator& comm) {
      auto exchange = comm.expert_exchange(4, {.hidden = 8, .top_k = 1});
      const bool wrong = comm.rank() == 2;
      const errc expected = wrong ? errc::invalid_argument : errc::peer_refused;
      std::vector<float> tokens(16, 2.0F), sums(16);
      const std::vector<std::int32_t> ids{0, 3}, unknown{0, 4};
      CHECK(code_of([&] { exchange.combine<float>({}, {}); }) == errc::invalid_argument);
      CHECK(code_of([&] { exchange.dispatch<float>(tokens, wrong ? unknown : ids); }) == expected);
      CHECK(code_of([&] { exchange.dispatch<float>({tokens.data(), wrong ? 15u : 16u}, ids); }) == expected);
      CHECK(code_of([&] { exchange.dispatch<troupe::bf16>({}, ids); }) == errc::invalid_argument);
      const auto got = exchange.dispatch<float>(tokens, ids);
      CHECK(got.size() == (comm.rank() == 0 || comm.rank() == 3 ? 4 : 0));
      CHECK(code_of([&] { exchange.combine<float>(got.rows, {sums.data(), wrong ? 8u : 16u}); }) == expected);
      exchange.combine<float>(got.rows, sums);
      CHECK(sums == tokens);
    });
  }
}

TEST_CASE("ranks that make different calls of an exchange are all told so, and what they call") {
  constexpr std::array names{"dispatch()", "combine()", "combine_backward()", "dispatch_backward()", "profile()"};
  struct layer_calls {
    troupe::expert_exchange exchange;
    std::vector<float> tokens = std::vector<float>(8, 1.0F), sums = std::vector<float>(8);
    std::vector<std::int32_t> ids;
    std::span<float> rows, gradients;

    explicit layer_calls(communicator& comm)
        : exchange(comm.expert_exchange(comm.size(), {.hidden = 8, .deadline = std::chrono::seconds(10)})),
          ids{comm.size() - 1 - comm.rank()} {}
    void call(std::size_t which) {
      if (which == 0) rows = exchange.dispatch<float>(tokens, ids).rows;
      if (which == 1) exchange.combine<float>(rows, sums);
      if (which == 2) gradients = exchange.combine_backward<float>(sums, rows).rows;
      if (which == 3) exchange.dispatch_backward<float>(gradients, sums);
      if (which == 4) exchange.profile();
    }
  };
  for (const char* layout : {"", "2x1", "2x2"}) {
    troupe::engine_options how;
    how.layout = layout;
    engine e{how};
    e.run(how.layout.empty()    ? 3
          : how.layout == "2x1" ? 2
                                : 4,
          [&](communicator& comm) {
            for (std::size_t before = 0; before <= 4; ++before)
              for (std::size_t even = 0; even < names.size(); ++even)
                for (std::size_t odd = 0; odd < names.size(); ++odd) {
                  if (even == odd) continue;
                  layer_calls mine{comm};
                  for (std::size_t c = 0; c < before; ++c) mine.call(c);
                  const std::size_t which = comm.rank() % 2 == 0 ? even : odd;
                  INFO(std::string{layout}, ", ", before, " calls, then ", std::string{names[even]}, " and ",
                       std::string{names[odd]});
                  std::string text;
                  errc code{};
                  try {
                    mine.call(which);
                  } catch (const troupe::error& problem) {
                    text = problem.what();
                    code = problem.code_value();
                  }
                  // A call may be refused besides: what there is to combine, or not, follows from the calls before.
                  const bool refused = code == errc::invalid_argument || code == errc::peer_refused;
                  CHECK((code == errc::mismatch || (refused && before < 4)));
                  if (code != errc::mismatch) continue;
                  CHECK(text.starts_with("expert_exchange: rank " + std::to_string(comm.rank()) + " calls " +
                                         names[which]));
                  if (layout[0] != 0) continue;
                  CHECK(text.find(std::string{"and rank "}) != std::string::npos);
                  CHECK(text.find(names[comm.rank() % 2 == 0 ? odd : even]) != std::string::npos);
                  mine.call(0);  // all go on
                  mine.call(1);
                  CHECK(mine.sums == mine.tokens);
                }
            layer_calls first{comm}, second{comm};
            std::string text;
            try {
              (comm.rank() == 0 ? first : second).call(0);
            } catch (const troupe::error& problem) {
              text = problem.what();
              CHECK(problem.code_value() == errc::mismatch);
            }
            CHECK(text.find("dispatch() of another exchange") != std::string::npos);
            CHECK(code_of([&] { (comm.rank() == 0 ? first : second).call(0); }) == errc::mismatch);  // it has ended
          });
  }
}

TEST_CASE("options that cannot be, that differ between ranks, and ranks that do not come") {
  engine e;
  e.run(2, [](communicator& comm) {
    CHECK(code_of([&] { comm.expert_exchange(0, {.hidden = 8}); }) == errc::invalid_argument);
    CHECK(code_of([&] { comm.expert_exchange(4, {.hidden = 0}); }) == errc::invalid_argument);
    CHECK(code_of([&] { comm.expert_exchange(4, {.hidden = 8, .top_k = 33}); }) == errc::invalid_argument);
    CHECK(code_of([&] { comm.expert_exchange(4, {.hidden = 8, .capacity = -1}); }) == errc::invalid_argument);
    CHECK(code_of([&] { comm.expert_exchange(4, {.hidden = 8, .type = troupe::datatype::i32}); }) ==
          errc::unsupported_type);
    CHECK(code_of([&] { comm.expert_exchange(2, {.hidden = 8, .placement = {{0}}}); }) == errc::invalid_argument);
    CHECK(code_of([&] { comm.expert_exchange(2, {.hidden = 8, .placement = {{0}, {}}}); }) == errc::invalid_argument);
    CHECK(code_of([&] { comm.expert_exchange(2, {.hidden = 8, .placement = {{0}, {2}}}); }) == errc::invalid_argument);
    CHECK(code_of([&] {
            comm.expert_exchange(2, {.hidden = 8, .placement = {{0}, {1, 1}}});
          }) == errc::invalid_argument);
    CHECK(code_of([&] { comm.expert_exchange(4, {.hidden = comm.rank() == 0 ? std::size_t{8} : std::size_t{9}}); }) ==
          errc::mismatch);
    auto exchange = comm.expert_exchange(2, {.hidden = 2});
    const std::vector<float> tokens(2, 1.0F);
    const std::vector<std::int32_t> ids{1};
    exchange.dispatch<float>(tokens, ids);
    if (comm.rank() == 0) return;
    std::vector<float> rows(4), sums(2);
    CHECK(code_of([&] { exchange.combine<float>(rows, sums); }) == errc::rank_missing);
    CHECK(code_of([&] { exchange.combine<float>(rows, sums); }) == errc::rank_missing);
  });
  troupe::expert_exchange empty;
  CHECK(!empty);
  CHECK(code_of([&] { empty.dispatch<float>({}, {}); }) == errc::invalid_argument);
}

TEST_CASE("repeated calls allocate nothing") {
  engine e;
  constexpr std::size_t n = 32, h = 64;
  std::atomic<std::uint64_t> least{~std::uint64_t{0}};
  e.run(2, [&](communicator& comm) {
    auto exchange = comm.expert_exchange(4, {.hidden = h, .top_k = 2});
    const std::vector<float> tokens(n * h, 1.0F), weights(2 * n, 0.5F);
    std::vector<float> sums(n * h), gradient(n * h, 1.0F), of_weights(2 * n);
    std::vector<std::int32_t> ids(2 * n);
    random_numbers random{seed() + static_cast<std::uint64_t>(comm.rank())};
    // The heap is counted for both ranks together, so some other allocation may fall into a round; into all of them only ours would.
    for (int round = 0; round < 20; ++round) {
      for (auto& id : ids) id = round < 2 ? 4 * round / 2 : random.below(4);
      comm.barrier();
      const std::uint64_t before = bench::allocations();
      const auto got = exchange.dispatch<float>(tokens, ids, weights);
      exchange.combine<float>(got.rows, sums);
      const auto back = exchange.combine_backward<float>(gradient, got.rows, of_weights);
      exchange.dispatch_backward<float>(back.rows, sums);
      comm.barrier();
      const std::uint64_t made = bench::allocations() - before;
      if (round >= 4 && made < least) least = made;
    }
  });
  CHECK(least.load() == 0);
}

TEST_CASE("rows in f8e4m3 stay within the bound, whatever the magnitudes; what is not finite stays visible") {
  random_numbers random{seed()};
  for (const std::size_t count : {1u, 3u, 128u, 129u, 1000u, 4096u}) {
    std::vector<float> in(count), out(count);
    std::vector<std::byte> row(troupe::scaled_rows::row_bytes(count));
    for (float& x : in) x = random.centred() * std::ldexp(1.0F, random.below(60) - 30);
    troupe::scaled_rows::encode(troupe::datatype::f32, in.data(), row.data(), count);
    troupe::scaled_rows::decode(troupe::datatype::f32, row.data(), out.data(), count);
    for (std::size_t begin = 0; begin < count; begin += 128) {
      float largest = 0;
      for (std::size_t i = begin; i < std::min(count, begin + 128); ++i) largest = std::max(largest, std::abs(in[i]));
      for (std::size_t i = begin; i < std::min(count, begin + 128); ++i)
        CHECK(std::abs(out[i] - in[i]) <= std::abs(in[i]) / 16 + largest / 400'000);
    }
    std::fill(in.begin(), in.end(), 0.0F);
    in[0] = std::numeric_limits<float>::infinity();
    troupe::scaled_rows::encode(troupe::datatype::f32, in.data(), row.data(), count);
    troupe::scaled_rows::decode(troupe::datatype::f32, row.data(), out.data(), count);
    CHECK(!std::isfinite(out[0]));
    if (count > 128) CHECK(out[128] == 0);
  }
}

TEST_CASE("a profile is the same in its table and its JSON") {
  troupe::expert_profile p;
  CHECK(p.bottleneck() == -1);
  p.dispatches = 2;
  p.ranks = {{10, 20, 5, 1, 0, 0, std::chrono::microseconds(30), std::chrono::microseconds(40)},
             {10, 20, 35, 0, 0, 0, std::chrono::microseconds(10), std::chrono::microseconds(40)}};
  p.tokens_of_expert = {5, 35};
  p.dropped_of_expert = {1, 0};
  CHECK(p.share_of_exchange() == doctest::Approx(0.5));
  CHECK(p.table(false) == "2 dispatches; rank 1 receives most, 1.75 times the average; 1 dropped\n"
                          "  rank    tokens      sent  received   dropped   crossed\n"
                          "     0        10        20         5         1         0\n"
                          "     1        10        20        35         0         0\n"
                          "expert    tokens   dropped\n"
                          "     0         5         1  ###\n"
                          "     1        35         0  ####################\n");
  CHECK(p.table().find("50 % of the time in the exchange") != std::string::npos);
  CHECK(p.json().find("\"exchanging_us\": 30.0") != std::string::npos);
}

TEST_CASE(
    "a profile's heat map shows each rank's tokens at each expert, and neighbours in one cell where they are many") {
  const auto has = [](const std::string& picture, const std::string& hint) {
    return picture.find("<title>" + hint + "</title>") != std::string::npos;
  };
  troupe::expert_profile p;
  CHECK(p.heat_map().ends_with("</svg>\n"));  // nothing to show is no fault
  p.ranks.resize(2);
  p.ranks[1].received = 41;
  p.tokens_of_expert = {5, 35, 1};
  p.dropped_of_expert = {0, 0, 0};
  p.sent_to_expert = {5, 15, 0, 0, 20, 1};
  const std::string small = p.heat_map();
  CHECK(has(small, "rank 0 to expert 1: 15 tokens"));
  CHECK(has(small, "rank 1 to expert 2: 1 token"));
  CHECK(has(small, "rank 1 receives 41 tokens"));
  CHECK(has(small, "expert 1 gets 35 tokens"));
  CHECK(small.find("darkest: 20 tokens") != std::string::npos);
  CHECK(small.find("#08306b") != std::string::npos);  // the darkest is there

  p.ranks.assign(300, {});
  p.tokens_of_expert.assign(130, 7);
  p.dropped_of_expert.assign(130, 0);
  p.sent_to_expert.assign(300 * 130, 1);
  const std::string large = p.heat_map();
  CHECK(has(large, "rank 297–299 to expert 128–129: 6 tokens"));
  CHECK(has(large, "expert 0–1 gets 14 tokens"));
}
