// SPDX-License-Identifier: Apache-2.0
// Prefix reductions: their forms, what exscan leaves alone, bits, and ranks that disagree.

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <numeric>
#include <set>

#include "tests/engine/jobs.hpp"

using namespace engine_tests;

namespace {

std::int32_t sum_up_to(int rank) { return rank * (rank + 1) / 2; }

/// Magnitudes that swallow each other.
float revealing(int rank) {
  constexpr float values[] = {1e8f, 1.0f, -1e8f, 3.0f, 7e7f, 0.3f, -7e7f};
  return values[rank % 7] * (1.0f + static_cast<float>(rank / 7));
}

}  // namespace

TEST_CASE("scan and exscan: ranges, in place, pointers") {
  troupe::engine engine;
  engine.run(4, [](communicator& comm) {
    const int me = comm.rank();
    const std::vector<std::int32_t> in(5, me);
    std::vector<std::int32_t> out(5, -7);
    comm.scan(in, out);
    CHECK(out == std::vector<std::int32_t>(5, sum_up_to(me)));
    comm.scan(std::array{static_cast<std::int32_t>(me + 1)}, out, troupe::prod);  // the rest of `out` is left alone
    constexpr std::int32_t factorials[] = {1, 2, 6, 24};
    CHECK(out[0] == factorials[me]);
    CHECK(out[1] == sum_up_to(me));

    std::vector<std::int32_t> data = in;
    comm.scan(data, troupe::maximum);
    CHECK(data == std::vector<std::int32_t>(5, me));
    comm.exscan(data);
    CHECK(data == std::vector<std::int32_t>(5, me == 0 ? 0 : sum_up_to(me - 1)));

    std::vector<std::int32_t> below(me == 0 ? 0 : 5);
    comm.exscan(in, below);
    CHECK(below == std::vector<std::int32_t>(me == 0 ? 0 : 5, sum_up_to(me - 1)));
    std::int64_t one = me, mine = -1;
    comm.exscan(&one, me == 0 ? nullptr : &mine, 1, datatype::i64);
    CHECK(mine == (me == 0 ? -1 : sum_up_to(me - 1)));
  });
}

TEST_CASE("scan and exscan: asynchronous, grouped and persistent, small and large, over slots and through actors") {
  for (const char* protocol : {"auto", "simple"})
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{200'000}}) {
      CAPTURE(protocol);
      CAPTURE(count);
      troupe::engine_options o;
      o.protocol = protocol;
      troupe::engine engine(o);
      engine.run(3, [&](communicator& comm) {
        std::vector<std::int32_t> in(count), up_to(count), below(count, -5);
        auto inclusive = comm.scan_init(in, up_to);
        auto exclusive = comm.exscan_init(in, below, troupe::sum);
        for (int k = 1; k <= 4; ++k) {
          std::fill(in.begin(), in.end(), k * comm.rank());
          if (k == 1) {
            auto a = comm.scan_async(in, up_to);
            auto b = comm.exscan_async(in, below);
            a.wait();
            b.wait();
          } else if (k == 2) {
            troupe::group both;
            comm.scan_async(both, in, up_to);
            comm.exscan_async(both, in, below);
            both.wait();
          } else {
            inclusive.run();
            exclusive.start().wait();
          }
          CHECK(up_to == std::vector<std::int32_t>(count, k * sum_up_to(comm.rank())));
          CHECK(below == std::vector<std::int32_t>(count, comm.rank() == 0 ? -5 : k * sum_up_to(comm.rank() - 1)));
        }
      });
    }
}

TEST_CASE("scan and exscan: the average is that of the ranks that contribute") {
  troupe::engine engine;
  engine.run(5, [](communicator& comm) {
    const int me = comm.rank();
    std::vector<float> values(3, static_cast<float>(2 * me)), means(3, -1);
    comm.scan(values, means, troupe::average);
    CHECK(means == std::vector<float>(3, static_cast<float>(me)));
    comm.exscan(values, means, troupe::average);
    CHECK(means == std::vector<float>(3, static_cast<float>(me == 0 ? 0 : me - 1)));
    std::vector<troupe::bf16> low(9, troupe::bf16{static_cast<float>(2 * me)});
    comm.scan(low, troupe::average);
    CHECK(std::bit_cast<std::uint16_t>(low[8]) == std::bit_cast<std::uint16_t>(troupe::bf16{static_cast<float>(me)}));
  });
}

TEST_CASE("scan and exscan: topology_stable is the left fold, by every choreography and layout, in place or not") {
  std::set<std::vector<float>> unfolded;  // of a scan, what all ranks got
  for (const char* layout : {"", "2x4"}) {
    troupe::engine_options o;
    o.layout = layout;
    troupe::engine engine(o);
    auto comms = engine.communicators(8);
    for (const collective what : {collective::scan, collective::exscan})
      for (const std::string& choreography : offering(what))
        for (const auto level : {troupe::determinism::run_stable, troupe::determinism::topology_stable})
          for (const bool in_place : {false, true}) {
            INFO(name(what), " by ", choreography, in_place ? " in place" : "", " on \"", layout, '"');
            call_options options;
            options.choreography = choreography;
            options.level = level;
            std::vector<std::vector<float>> in(8), out(8, std::vector<float>(40, -3));
            troupe::group together;
            for (int r = 0; r < 8; ++r) {
              const auto at = static_cast<std::size_t>(r);
              in[at].assign(40, revealing(r));
              float* to = in_place ? in[at].data() : out[at].data();
              comms[at].join(together,
                             troupe::calls::any(what, in[at].data(), to, 40, datatype::f32, troupe::sum, 0, options));
            }
            together.wait();
            std::vector<float> first_of_all;
            float fold = 0;
            for (int r = 0; r < 8; ++r) {
              const auto at = static_cast<std::size_t>(r);
              const std::vector<float>& got = in_place ? in[at] : out[at];
              const float with_own = r == 0 ? revealing(0) : fold + revealing(r);
              float expected = what == collective::scan ? with_own : fold;
              if (what == collective::exscan && r == 0) expected = in_place ? revealing(0) : -3;
              if (level == troupe::determinism::topology_stable) CHECK(got == std::vector<float>(40, expected));
              first_of_all.push_back(got[0]);
              fold = with_own;
            }
            if (level == troupe::determinism::run_stable && what == collective::scan) unfolded.insert(first_of_all);
          }
  }
  CHECK(unfolded.size() > 1);  // one level below, the choreography shows
}

TEST_CASE("scan and exscan: wrong arguments are refused, and ranks that disagree get the table") {
  for (const char* protocol : {"auto", "simple"}) {
    CAPTURE(protocol);
    troupe::engine_options o;
    o.protocol = protocol;
    troupe::engine engine(o);
    std::array<std::string, 3> said;
    engine.run(3, [&](communicator& comm) {
      std::vector<float> in(4, 1), out(3);
      const std::string who = "rank " + std::to_string(comm.rank());
      CHECK_THROWS_WITH_AS(comm.scan(in, out), (who + ": scan: output has 3 elements but the call needs 4").c_str(),
                           troupe::error);
      if (comm.rank() == 0) CHECK_THROWS_WITH_AS(comm.exscan(in, out), doctest::Contains("refused"), troupe::error);
      else
        CHECK_THROWS_WITH_AS(comm.exscan(in, out),
                             (who + ": exscan: output has 3 elements but the call needs 4").c_str(), troupe::error);
      CHECK_THROWS_WITH_AS(comm.scan(in.data(), in.data() + 1, 3, datatype::f32),
                           doctest::Contains("input and output overlap"), troupe::error);
      out.resize(4);
      try {
        comm.rank() == 1 ? comm.exscan(in, out) : comm.scan(in, out);
      } catch (const troupe::error& e) {
        said[static_cast<std::size_t>(comm.rank())] = e.what();
      }
      comm.scan(in, out);
      CHECK(out[3] == static_cast<float>(comm.rank() + 1));
    });
    for (const std::string& text : said) {
      INFO(text);
      CHECK(text == said[0]);
      CHECK(text.find("rank 0: scan(count 4, f32, sum)") != std::string::npos);
      CHECK(text.find("rank 1: exscan(count 4, f32, sum)") != std::string::npos);
    }
  }
}

TEST_CASE("exscan in place: rank 0 gives the same range as input and output, or is told") {
  troupe::engine engine;
  std::array<std::string, 2> said;
  engine.run(2, [&](communicator& comm) {
    std::vector<float> data(4, 1);
    try {
      if (comm.rank() == 0) comm.exscan(data.data(), nullptr, 4, datatype::f32);
      else comm.exscan(data);
    } catch (const troupe::error& e) {
      said[static_cast<std::size_t>(comm.rank())] = e.what();
    }
  });
  for (const std::string& text : said) CHECK(text.find("exscan(count 4, f32, sum, in place)") != std::string::npos);
}
