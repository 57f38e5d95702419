// SPDX-License-Identifier: Apache-2.0
// A verified score gave wrong bytes: rooted collectives were verified with input and output apart, and performed with the root's
// input inside its output, which a user's score may use for something else in between.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "tests/issues/score_file.hpp"

namespace root_in_place_test {

using namespace troupe;

namespace {

/// Rank 1's block passes through the place of rank 0's.
const char* const gather_through_output = R"({"troupe_score": 1, "choreography": "mine", "collective": "gather",
  "ranks": 2, "players": [
  {"lanes": [[
    {"do": "recv", "from": 1, "target": "output[0]"},
    {"do": "copy", "source": "output[0]", "target": "output[1]"},
    {"do": "copy", "source": "input[0]", "target": "output[0]"}]]},
  {"lanes": [[{"do": "send", "source": "input[0]", "to": 0}]]}]})";

/// Rank 1's block is sent from the place where rank 0's belongs.
const char* const scatter_through_output = R"({"troupe_score": 1, "choreography": "mine", "collective": "scatter",
  "ranks": 2, "players": [
  {"lanes": [[
    {"do": "copy", "source": "input[1]", "target": "output[0]"},
    {"do": "send", "source": "output[0]", "to": 1},
    {"do": "recv", "from": 1},
    {"do": "copy", "source": "input[0]", "target": "output[0]"}]]},
  {"lanes": [[
    {"do": "recv", "from": 0, "target": "output[0]"},
    {"do": "send", "to": 0}]]}]})";

/// Rank 1's contribution passes through the root's output.
const char* const reduce_through_output = R"({"troupe_score": 1, "choreography": "mine", "collective": "reduce",
  "ranks": 2, "players": [
  {"lanes": [[
    {"do": "recv", "from": 1, "target": "output[0]"},
    {"do": "reduce", "source": "input[0]", "target": "output[0]", "swapped": true}]]},
  {"lanes": [[{"do": "send", "source": "input[0]", "to": 0}]]}]})";

engine_options with(const issues::score_file& file, const std::string& protocol) {
  engine_options o;
  o.score_files["mine"] = file.path();
  o.protocol = protocol;
  return o;
}

std::vector<float> counting(std::size_t count, float first) {
  std::vector<float> v(count);
  std::iota(v.begin(), v.end(), first);
  return v;
}

const call_options mine = [] {
  call_options o;
  o.choreography = "mine";
  return o;
}();

}  // namespace

TEST_CASE("a verified gather is right in place at the root, whatever it does with the output") {
  const issues::score_file file{gather_through_output};
  for (const std::string protocol : {"simple", "auto", "ll"})
    for (const std::size_t count : {5u, 5000u}) {
      CAPTURE(protocol);
      CAPTURE(count);
      engine e{with(file, protocol)};
      auto comms = e.communicators(2);
      std::vector<float> all(2 * count), other = counting(count, 1000), expected = counting(count, 1);
      std::copy(expected.begin(), expected.end(), all.begin());
      expected.insert(expected.end(), other.begin(), other.end());
      group both;
      comms[0].gather_async(both, std::span(all).first(count), all, 0, mine);
      comms[1].gather_async(both, other, std::span<float>{}, 0, mine);
      both.wait();
      CHECK(all == expected);
    }
}

TEST_CASE("a verified scatter is right in place at the root, whatever it does with the output") {
  const issues::score_file file{scatter_through_output};
  for (const std::string protocol : {"simple", "auto", "ll"})
    for (const std::size_t count : {5u, 5000u}) {
      CAPTURE(protocol);
      CAPTURE(count);
      engine e{with(file, protocol)};
      auto comms = e.communicators(2);
      std::vector<float> all = counting(2 * count, 1), other(count);
      const std::vector<float> before = all;
      group both;
      comms[0].scatter_async(both, all, std::span(all).first(count), 0, mine);
      comms[1].scatter_async(both, std::span<float>{}, other, 0, mine);
      both.wait();
      CHECK(all == before);
      CHECK(std::equal(other.begin(), other.end(), before.begin() + static_cast<std::ptrdiff_t>(count)));
    }
}

TEST_CASE("a verified reduce is right in place at the root, whatever it does with the output") {
  const issues::score_file file{reduce_through_output};
  for (const std::string protocol : {"simple", "auto", "ll"}) {
    CAPTURE(protocol);
    engine e{with(file, protocol)};
    auto comms = e.communicators(2);
    std::vector<float> mine_here = counting(100, 1), other = counting(100, 1000);
    group both;
    comms[0].reduce_async(both, mine_here, sum, 0, mine);
    comms[1].reduce_async(both, other, sum, 0, mine);
    both.wait();
    for (std::size_t i = 0; i < 100; ++i) CHECK(mine_here[i] == 1001 + 2 * static_cast<float>(i));
    CHECK(other == counting(100, 1000));
  }
}

TEST_CASE("in place, the blocks of the larger buffer must be apart, since the score may write there") {
  engine_options patient;
  patient.deadline = std::chrono::seconds(20);  // so that what is not refused ends all the same
  engine e{patient};
  auto comms = e.communicators(2);
  std::vector<float> data(8);
  const block_list overlapping{{3, 3}, {0, 2}};
  const auto refused = [](auto&& make) {
    try {
      make();
    } catch (const error& problem) {
      return problem.code_value() == errc::buffers_overlap;
    }
    return false;
  };
  CHECK(refused(
      [&] { static_cast<void>(comms[0].reduce_scatter_v_async(data, std::span(data).first(3), overlapping)); }));
  CHECK(refused([&] { static_cast<void>(comms[0].scatter_v_async(data, overlapping, std::span(data).first(3), 0)); }));
  for (int i = 0; i < 2; ++i)  // the other rank hears of both
    CHECK(comms[1].barrier_async().try_wait() == make_error_code(errc::peer_refused));
  // Apart from the output they may: they are only read.
  std::vector<float> other = data, out0(3), out1(3);
  group both;
  comms[0].reduce_scatter_v_async(both, data, out0, overlapping);
  comms[1].reduce_scatter_v_async(both, other, out1, overlapping);
  both.wait();
}

}  // namespace root_in_place_test
