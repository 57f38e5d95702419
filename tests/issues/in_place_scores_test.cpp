// SPDX-License-Identifier: Apache-2.0
// A user's score for calls in place could not be used where the engine stages the buffers (bf16, pre_mul_sum), with the sentence "is for
// calls that are in place" about a call that was; and never at all for a rooted collective.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <numeric>
#include <string>
#include <vector>

#include "tests/issues/score_file.hpp"

using namespace troupe;

namespace {

std::string in_place(const std::string& what, int ranks, const std::string& players) {
  return R"({"troupe_score": 1, "choreography": "mine", "in_place": true, "collective": ")" + what + R"(", "ranks": )" +
         std::to_string(ranks) + R"(, "players": [)" + players + "]}";
}

/// Input and output are one memory: what one writes, the other reads.
const std::string all_reduce_in_place = in_place("all_reduce", 2, R"(
  {"lanes": [[{"do": "recv_reduce", "from": 1, "target": "input[0]"},
              {"do": "send", "source": "output[0]", "to": 1}]]},
  {"lanes": [[{"do": "send", "source": "output[0]", "to": 0},
              {"do": "recv", "from": 0, "target": "input[0]"}]]})");

const std::string reduce_scatter_in_place = in_place("reduce_scatter", 2, R"(
  {"lanes": [[{"do": "send", "source": "input[1]", "to": 1},
              {"do": "recv_reduce", "from": 1, "target": "input[0]"}]]},
  {"lanes": [[{"do": "send", "source": "input[0]", "to": 0},
              {"do": "recv_reduce", "from": 0, "target": "output[0]"}]]})");

const std::string reduce_in_place = in_place("reduce", 2, R"(
  {"lanes": [[{"do": "recv_reduce", "from": 1, "target": "input[0]"}]]},
  {"lanes": [[{"do": "send", "source": "input[0]", "to": 0}]]})");

/// The root's own block is where it belongs; rank 1's passes through the first one all the same, after that was kept.
const std::string gather_in_place = in_place("gather", 2, R"(
  {"lanes": [[{"do": "recv", "from": 1, "target": "output[1]"}]]},
  {"lanes": [[{"do": "send", "source": "input[0]", "to": 0}]]})");

const std::string scatter_in_place = in_place("scatter", 2, R"(
  {"lanes": [[{"do": "send", "source": "input[1]", "to": 1}]]},
  {"lanes": [[{"do": "recv", "from": 0, "target": "output[0]"}]]})");

const std::string broadcast_in_place = in_place("broadcast", 2, R"(
  {"lanes": [[{"do": "send", "source": "output[0]", "to": 1}]]},
  {"lanes": [[{"do": "recv", "from": 0, "target": "output[0]"}]]})");

engine_options with(const issues::score_file& file) {
  engine_options o;
  o.score_files["mine"] = file.path();
  return o;
}

const call_options mine = [] {
  call_options o;
  o.choreography = "mine";
  return o;
}();

template <class T>
std::vector<T> counting(std::size_t count, int first) {
  std::vector<T> v;
  for (std::size_t i = 0; i < count; ++i) v.push_back(T(static_cast<float>(first + static_cast<int>(i))));
  return v;
}

constexpr std::size_t count = 50;
constexpr float twice_the_sum(std::size_t i) { return 2 * (101 + 2 * static_cast<float>(i)); }

template <class T>
void all_reduces(communicator& a, communicator& b, const op& reduction, float scale) {
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    std::vector<T> x = counting<T>(count, 1), y = counting<T>(count, 100), p(count), q(count);
    group both;
    a.all_reduce_async(both, x, apart ? p : x, reduction, mine);
    b.all_reduce_async(both, y, apart ? q : y, reduction, mine);
    both.wait();
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(static_cast<float>((apart ? p : x)[i]) * 2 == scale * twice_the_sum(i));
      CHECK(static_cast<float>((apart ? q : y)[i]) * 2 == scale * twice_the_sum(i));
    }
    if (apart) {
      CHECK(static_cast<float>(x[3]) == 4);
      CHECK(static_cast<float>(y[3]) == 103);
    }
  }
}

}  // namespace

TEST_CASE("an all_reduce's score for calls in place serves types that are widened, and operations that scale first") {
  const issues::score_file file{all_reduce_in_place};
  engine e{with(file)};
  auto comms = e.communicators(2);
  all_reduces<bf16>(comms[0], comms[1], sum, 1);
  all_reduces<float>(comms[0], comms[1], pre_mul_sum(2), 2);
  all_reduces<bf16>(comms[0], comms[1], pre_mul_sum(0.5), 0.5);
  all_reduces<bf16>(comms[0], comms[1], average, 0.5);
}

TEST_CASE("so does a reduce_scatter's") {
  const issues::score_file file{reduce_scatter_in_place};
  engine e{with(file)};
  auto comms = e.communicators(2);
  for (const bool apart : {false, true}) {
    std::vector<bf16> x = counting<bf16>(2 * count, 1), y = counting<bf16>(2 * count, 1), p(count), q(count);
    group both;
    comms[0].reduce_scatter_async(both, x, apart ? std::span(p) : std::span(x).first(count), sum, mine);
    comms[1].reduce_scatter_async(both, y, apart ? std::span(q) : std::span(y).last(count), sum, mine);
    both.wait();
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(static_cast<float>(apart ? p[i] : x[i]) == 2 * static_cast<float>(1 + i));
      CHECK(static_cast<float>(apart ? q[i] : y[count + i]) == 2 * static_cast<float>(1 + count + i));
    }
    std::vector<float> s(2 * count, 1), t(2 * count, 1), u(count), v(count);
    comms[0].reduce_scatter_async(both, s, apart ? std::span(u) : std::span(s).first(count), pre_mul_sum(3), mine);
    comms[1].reduce_scatter_async(both, t, apart ? std::span(v) : std::span(t).last(count), pre_mul_sum(3), mine);
    both.wait();
    for (std::size_t i = 0; i < count; ++i) {
      CHECK((apart ? u[i] : s[i]) == 6);
      CHECK((apart ? v[i] : t[count + i]) == 6);
    }
  }
}

TEST_CASE("a reduce's score that is in place at the root serves any call of it") {
  const issues::score_file file{reduce_in_place};
  engine e{with(file)};
  auto comms = e.communicators(2);
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    std::vector<float> x = counting<float>(count, 1), y = counting<float>(count, 100), p(count);
    std::vector<bf16> l = counting<bf16>(count, 1), m = counting<bf16>(count, 100), n(count);
    group both;
    comms[0].reduce_async(both, x, apart ? p : x, pre_mul_sum(2), 0, mine);
    comms[1].reduce_async(both, y, std::span<float>{}, pre_mul_sum(2), 0, mine);
    comms[0].reduce_async(both, l, apart ? n : l, sum, 0, mine);
    comms[1].reduce_async(both, m, std::span<bf16>{}, sum, 0, mine);
    both.wait();
    for (std::size_t i = 0; i < count; ++i) {
      CHECK((apart ? p : x)[i] == twice_the_sum(i));
      CHECK(static_cast<float>((apart ? n : l)[i]) * 2 == twice_the_sum(i));
    }
    CHECK(y == counting<float>(count, 100));
    if (apart) CHECK(x == counting<float>(count, 1));
    x = counting<float>(count, 1);
    comms[0].reduce_async(both, x, apart ? p : x, sum, 0, mine);
    comms[1].reduce_async(both, y, std::span<float>{}, sum, 0, mine);
    both.wait();
    for (std::size_t i = 0; i < count; ++i) CHECK((apart ? p : x)[i] * 2 == twice_the_sum(i));
    if (apart) CHECK(x == counting<float>(count, 1));
  }
}

TEST_CASE("so do a gather's, a scatter's and a broadcast's") {
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    const issues::score_file gathering{gather_in_place}, scattering{scatter_in_place}, broadcasting{broadcast_in_place};
    const std::vector<float> other = counting<float>(count, 100);
    group both;
    {
      engine e{with(gathering)};
      auto comms = e.communicators(2);
      std::vector<float> own = counting<float>(count, 1), all(2 * count);
      if (!apart) std::copy(own.begin(), own.end(), all.begin());
      comms[0].gather_async(both, apart ? std::span(own) : std::span(all).first(count), all, 0, mine);
      comms[1].gather_async(both, other, std::span<float>{}, 0, mine);
      both.wait();
      for (std::size_t i = 0; i < count; ++i) CHECK((all[i] == own[i] && all[count + i] == other[i]));
    }
    {
      engine e{with(scattering)};
      auto comms = e.communicators(2);
      std::vector<float> all = counting<float>(2 * count, 1), own(count), far(count);
      comms[0].scatter_async(both, all, apart ? std::span(own) : std::span(all).first(count), 0, mine);
      comms[1].scatter_async(both, std::span<float>{}, far, 0, mine);
      both.wait();
      CHECK(all == counting<float>(2 * count, 1));
      if (apart) CHECK(own == counting<float>(count, 1));
      CHECK(far == counting<float>(count, 1 + static_cast<int>(count)));
    }
    {
      engine e{with(broadcasting)};
      auto comms = e.communicators(2);
      std::vector<float> all = counting<float>(count, 1), own(count), far(count);
      comms[0].broadcast_async(both, all, apart ? own : all, 0, mine);
      comms[1].broadcast_async(both, std::span<float>{}, far, 0, mine);
      both.wait();
      if (apart) CHECK(own == all);
      CHECK(far == all);
    }
  }
}

TEST_CASE("where nothing is staged, a score for the other kind of call is refused with a sentence that fits") {
  const issues::score_file file{all_reduce_in_place};
  engine e{with(file)};
  auto comms = e.communicators(1);
  auto pair = e.communicators(2);
  std::vector<float> x(count), y(count);
  try {
    static_cast<void>(pair[0].all_reduce_async(x, y, sum, mine));
    CHECK(false);
  } catch (const error& problem) {
    CHECK(problem.code_value() == errc::unsupported);
    CHECK(std::string{problem.what()}.find("is for calls that are in place") != std::string::npos);
  }
}
