// SPDX-License-Identifier: Apache-2.0
// one_copy, each_a_copy: right wherever a host and its card are, refused elsewhere, and what crosses PCIe.

#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/partition.hpp"
#include "protocols/verify/verifier.hpp"

namespace host_copies_test {

using namespace troupe;
namespace c = troupe::choreographies;

namespace {

setup on_layout(collective what, const std::string& places, rank_t root, bool in_place = false, bool uniform = true) {
  setup on = flat_setup(what, layout::parse(places).size(), root, in_place, uniform);
  on.placement = layout::parse(places);
  return on;
}

void prove(const choreography& which, const setup& on) {
  const std::string who =
      std::string{which.name} + ' ' + std::string{name(on.what)} + " on " + on.placement.to_string();
  CAPTURE(who);
  REQUIRE(refusal(which, on).empty());
  const score written = write_score(which, on), whole = lower_syncs(written), cut = one_cell_per_step(whole);
  for (const int credits : {1, 8})
    for (const int slices : {1, 3}) {
      const verdict v = verify(credits == 1 ? pace_sends(cut, 1) : on.uniform ? whole : cut, {credits, slices});
      if (!v.ok()) FAIL_CHECK(who, ", ", credits, " credits, ", slices, " slices: ", to_string(*v.first_fault));
    }
  if (on.uniform) {
    const verdict pieces = verify(partition(whole, 2), {8, 1});
    if (!pieces.ok()) FAIL_CHECK(who, " in pieces: ", to_string(*pieces.first_fault));
  }
  CHECK(from_json(to_json(written)) == written);
}

std::size_t steps_of(const score& s, rank_t rank, step_kind kind) {
  std::size_t count = 0;
  for (const lane& l : s.players[static_cast<std::size_t>(rank)].lanes)
    count +=
        static_cast<std::size_t>(std::count_if(l.begin(), l.end(), [&](const step& at) { return at.kind == kind; }));
  return count;
}

std::string why_not(const choreography& which, const char* places, rank_t root) {
  return refusal(which, on_layout(collective::broadcast, places, root));
}
bool says(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("between a host and its card: right for any number of core groups, wherever the host's rank is in the list") {
  struct place {
    const char* places;
    rank_t host;
  };
  for (const place& at : {place{"1x1x1+host", 1}, place{"1x1x2+host", 2}, place{"1x1x4+host", 4},
                          place{"1x1x7+host", 7}, place{"0.0.0,0.host,0.0.1,0.0.2", 1}, place{"4+host", 4}})
    for (const choreography* which : {&c::one_copy, &c::each_a_copy})
      for (const bool in_place : {false, true}) {
        prove(*which, on_layout(collective::broadcast, at.places, at.host, in_place));
        for (const bool uniform : {false, true})
          prove(*which, on_layout(collective::gather, at.places, at.host, in_place, uniform));
      }
  prove(c::each_a_copy, on_layout(collective::broadcast, "1x2x2+host", 4));
  prove(c::each_a_copy, on_layout(collective::gather, "1x2x2+host", 4));
}

TEST_CASE("one_copy: what is uploaded crosses to L2 once; no messages, and one sync") {
  const setup up = on_layout(collective::broadcast, "1x1x4+host", 4, true);
  const score once = write_score(c::one_copy, up), each = write_score(c::each_a_copy, up);
  CHECK(steps_of(once, 4, step_kind::dma_put) == once.l2.size());
  CHECK(steps_of(each, 4, step_kind::send) == 4);
  for (rank_t r = 0; r < 5; ++r) {
    CHECK(steps_of(once, r, step_kind::sync) == 1);
    CHECK(steps_of(once, r, step_kind::send) == 0);
  }
}

TEST_CASE("between a host and its card: refused where there is none") {
  for (const choreography* which : {&c::one_copy, &c::each_a_copy}) {
    CHECK(says(why_not(*which, "1x1x4", 0), "root 0 is at no host"));
    CHECK(says(why_not(*which, "1x1x4+host", 0), "root 0 is at no host"));
    CHECK(says(why_not(*which, "0.0.0,0.host,0.host", 1), "rank 2 is at a host, too"));
    CHECK(says(why_not(*which, "2x1x2+host", 4), "rank 5 is at a host, too"));
  }
  CHECK(says(why_not(c::one_copy, "1x2x2+host", 4), "ranks 0 and 2 are on different cards"));
}

}  // namespace host_copies_test
