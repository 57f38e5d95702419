// SPDX-License-Identifier: Apache-2.0
// Found by a second reading of what users meet.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <chrono>
#include <utility>
#include <vector>

namespace review_two_test {

using namespace troupe;
using namespace std::chrono_literals;

namespace {
template <class Call>
errc code_of(Call&& call) {
  try {
    call();
  } catch (const error& why) {
    return why.code_value();
  }
  return errc{};
}
}  // namespace

// It was errc::bad_score, which counts as a call of the rank that hears of it: the next call of all waited for ever.
TEST_CASE(
    "a choreography too large for the verifier is unsupported for all, and who calls for all may stop at the first") {
  engine_options o;
  o.environment = false;
  o.tuning = "none";
  engine e{o};
  constexpr std::size_t n = 97;
  auto all = e.communicators(n);
  std::vector<std::vector<float>> in(n, std::vector<float>(n, 1)), out(n, std::vector<float>(1));
  const auto together = [&](const call_options& how) {
    group g;
    for (std::size_t r = 0; r < n; ++r) all[r].reduce_scatter_async(g, in[r], out[r], sum, how);
    g.wait();
  };
  CHECK(code_of([&] { together({.choreography = "hierarchical"}); }) == errc::unsupported);
  CHECK(code_of([&] { together({.deadline = 60s}); }) == errc{});
  for (const auto& mine : out) CHECK(mine.front() == n);
}

TEST_CASE("an engine that was moved from says so") {
  engine e;
  engine f = std::move(e);
  CHECK(code_of([&] { e.run(2, [](communicator&) {}); }) == errc::invalid_argument);  // NOLINT(bugprone-use-after-move)
  CHECK(code_of([&] { static_cast<void>(e.communicators(2)); }) == errc::invalid_argument);
  CHECK(e.options().workers == engine_options{}.workers);
  f.run(2, [](communicator& c) { c.barrier(); });
}

TEST_CASE("a first operation that leaves sends no numbers is refused") {
  engine_options o;
  o.first_operation = (std::uint64_t{1} << 47) - 3;
  CHECK(code_of([&] { engine{o}; }) == errc::bad_config);
}

}  // namespace review_two_test
