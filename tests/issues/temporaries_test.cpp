// SPDX-License-Identifier: Apache-2.0
// all_gather_async(std::vector<float>(…), out) compiled, and read memory that was free. What is refused is compiled by
// tests/checks/refused.sh.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <array>
#include <span>
#include <vector>

using namespace troupe;

namespace {

using vec = std::vector<float>;

static_assert(outlives_call<vec&, vec&>);
static_assert(outlives_call<const vec&, vec&>);
static_assert(outlives_call<std::span<const float>, std::span<float>>);  // temporaries that own nothing
static_assert(outlives_call<float (&)[4], std::array<float, 8>&>);
static_assert(outlives_call<const void*, void*, int, datatype>);
static_assert(!outlives_call<vec, vec&>);
static_assert(!outlives_call<vec&, vec>);
static_assert(!outlives_call<const vec, vec&>);
static_assert(!outlives_call<std::array<float, 4>, vec&>);
static_assert(outlives_call<int&, int> && !outlives_call<int, int>);  // send_async(x, 1), but not send_async(3, 1)

}  // namespace

TEST_CASE("a blocking call takes temporaries") {
  engine e;
  auto comms = e.communicators(1);
  vec out(4);
  comms[0].all_gather(vec(4, 3), out);
  CHECK(out == vec(4, 3));
}

TEST_CASE("spans that are temporaries are taken by every form") {
  engine e;
  auto comms = e.communicators(1);
  vec in(4, 2), out(4);
  group g;
  comms[0].all_gather_async(g, std::span(in), std::span(out));
  g.wait();
  CHECK(out == in);
}
