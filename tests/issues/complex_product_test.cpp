// SPDX-License-Identifier: Apache-2.0
// Products of std::complex were refused ("cannot be reduced with prod"), since complex numbers travelled as twice as many floats; a function
// of one's own did not compile. Element types c64 and c128 did not exist.

#include <doctest/doctest.h>

#include <complex>
#include <functional>
#include <string>
#include <vector>

#include "engine/api/troupe.hpp"
#include "engine/planning/planner.hpp"
#include "topology/layout/layout.hpp"

using namespace troupe;

namespace {

template <class Real>
void multiplies(communicator& comm, const call_options& options, std::size_t count) {
  using number = std::complex<Real>;
  // i, 1 + i, 2 + i: their product is -3 + i.
  const number mine{static_cast<Real>(comm.rank()), 1};
  std::vector<number> z(count, mine), out(count);
  comm.all_reduce(z, out, prod, options);
  CHECK(out == std::vector<number>(count, {-3, 1}));
  comm.all_reduce(z, out, std::multiplies<>{}, options);
  CHECK(out == std::vector<number>(count, {-3, 1}));
  comm.all_reduce(z, std::multiplies<number>{}, options);
  CHECK(z == std::vector<number>(count, {-3, 1}));
  z.assign(count, mine);
  comm.scan(
      z, [](const number& a, const number& b) { return a * b; }, options);
  const number prefixes[] = {{0, 1}, {-1, 1}, {-3, 1}};
  CHECK(z == std::vector<number>(count, prefixes[comm.rank()]));
  number one = mine;
  comm.reduce(one, prod, 0, options);
  if (comm.rank() == 0) CHECK(one == number{-3, 1});
}

}  // namespace

TEST_CASE("products of complex numbers") {
  engine{}.run(3, [](communicator& comm) {
    for (const determinism level : {determinism::fast, determinism::topology_stable})
      for (const std::size_t count : {1u, 8u, 500u, 100'000u}) {
        multiplies<float>(comm, {.level = level}, count);
        multiplies<double>(comm, {.level = level}, count);
      }
  });
}

TEST_CASE("all elements of an operation are of one type: as many floats are something else") {
  engine one;
  auto comms = one.communicators(2);
  std::vector<std::complex<float>> z(4, {1, 2}), sums(4);
  std::vector<float> floats(8, 1), others(8);
  auto a = comms[0].all_reduce_async(z, sums);
  auto b = comms[1].all_reduce_async(floats, others);
  CHECK(a.try_wait() == errc::mismatch);
  CHECK(b.try_wait() == errc::mismatch);
  CHECK(a.message().find("c64") != std::string::npos);
}

TEST_CASE("explain says why products of 16 bytes do not go by LL128") {
  engine_options o;
  o.tuning = "none";
  planner by{o};
  call what;
  what.what = collective::all_reduce;
  what.type = datatype::c128;
  what.reduction = prod;
  what.count = 100;
  bool told = false;
  for (const candidate& c : by.candidates(what, layout::parse("4")))
    told = told || (c.protocol == "ll128" &&
                    c.why_rejected.find("no whole number of elements of 16 bytes") != std::string::npos);
  CHECK(told);
  what.protocol = message_protocol::ll128;
  what.choreography = "recursive_doubling";
  CHECK_THROWS_WITH_AS(by.plan_for(what, layout::parse("4")), doctest::Contains("line by line"), error);
  what.reduction = sum;
  CHECK(by.plan_for(what, layout::parse("4"))->protocol() == message_protocol::ll128);
}
