// SPDX-License-Identifier: Apache-2.0
#include "protocols/score/slice_order.hpp"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe {

TEST_CASE("slices in groups: every step is performed on every slice once, group by group, step by step") {
  for (const int slices : {1, 2, 3, 5, 8, 9})
    for (const int together : {1, 2, 3, 8, 100})
      for (const std::size_t steps : {1u, 2u, 7u}) {
        CAPTURE(slices);
        CAPTURE(together);
        CAPTURE(steps);
        const slice_order order{slices, together};
        std::vector<std::pair<std::size_t, int>> expected;
        for (int begin = 0; begin < slices; begin += together)
          for (std::size_t step = 0; step < steps; ++step)
            for (int slice = begin; slice < std::min(slices, begin + together); ++slice)
              expected.emplace_back(step, slice);
        slice_order::position at;
        for (std::size_t n = 0; n < expected.size(); ++n, at = order.next(steps, at)) {
          CHECK(at.step == expected[n].first);
          CHECK(at.slice == expected[n].second);
          CHECK(order.index_of(steps, at) == n);
          const slice_order::position found = order.at(steps, n);
          CHECK(found.step == at.step);
          CHECK(found.slice == at.slice);
        }
        CHECK(at.step == steps);
      }
}

TEST_CASE("few slices show what many do: two full groups, and the last one") {
  CHECK(slice_order{1, 1}.shortened() == slice_order{1, 1});
  CHECK(slice_order{2, 1}.shortened() == slice_order{2, 1});
  CHECK(slice_order{1000, 1}.shortened() == slice_order{3, 1});
  CHECK(slice_order{4, 4}.shortened() == slice_order{4, 4});
  CHECK(slice_order{9, 4}.shortened() == slice_order{9, 4});
  CHECK(slice_order{1001, 4}.shortened() == slice_order{9, 4});
  CHECK(slice_order{1000, 4}.shortened() == slice_order{12, 4});
}

TEST_CASE("a ring whose steps have as many slices as there are credits gets stuck, and the verifier says so") {
  const setup on = flat_setup(collective::all_reduce, 4);
  const score s = one_cell_per_step(lower_syncs(write_score(*find_choreography("ring"), on)));
  for (const int slices : {4, 8, 11}) CHECK(verify(s, {4, slices, 3}).ok());
  // Everybody has sent all that may be under way, and has a credit back only for what its neighbour passes on, who lacks one as well.
  const verdict stuck = verify(s, {4, 8, 4});
  REQUIRE(!stuck.ok());
  CHECK(to_string(*stuck.first_fault).find("waits for a credit") != std::string::npos);
  CHECK(to_string(*verify(s, {4, 8, 0}).first_fault).find("0 slices a step") != std::string::npos);
}

}  // namespace troupe
