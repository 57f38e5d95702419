// SPDX-License-Identifier: Apache-2.0
// engine.protocol is a wish: where it cannot be fulfilled the planner chooses, as it does without one.

#include <doctest/doctest.h>

#include "engine/planning/planner.hpp"
#include "topology/layout/layout.hpp"

using namespace troupe;

namespace {

std::pair<std::string, std::string> planned(const std::string& protocol, std::size_t count, const char* where) {
  engine_options o;
  o.protocol = protocol;
  o.tuning = "none";
  planner by{o};
  call what;
  what.what = collective::all_reduce;
  what.type = datatype::f32;
  what.reduction = sum;
  what.count = count;
  const auto made = by.plan_for(what, layout::parse(where));
  return {made->choreography, std::string{name(made->protocol())}};
}

}  // namespace

TEST_CASE("a protocol that cannot be had is not `simple`, but what the planner chooses without the wish") {
  const std::size_t large = std::size_t{1} << 20;  // elements: slots end long before
  CHECK(planned("auto", large, "2").second == "direct");
  for (const char* slots : {"ll", "ll128"}) {
    CHECK(planned(slots, large, "2") == planned("auto", large, "2"));
    CHECK(planned(slots, 2, "2").second == slots);
  }
  CHECK(planned("simple", 2, "2").second == "simple");
}

TEST_CASE("a flat layout that has a name is as fast as none") {
  CHECK(planned("auto", 2, "4").second != "simple");
  CHECK(planned("auto", std::size_t{1} << 20, "4").second == "direct");
  CHECK(planned("auto", 2, "2x2").second == "simple");
}
