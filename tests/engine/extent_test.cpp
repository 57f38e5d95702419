// SPDX-License-Identifier: Apache-2.0
// How many steps a score would have, guessed from smaller ones, against steps that are counted.
#include "engine/tools/extent.hpp"

#include <doctest/doctest.h>

#include <string>

#include "protocols/choreographies/choreography.hpp"
#include "protocols/score/score_tally.hpp"

using namespace troupe;

namespace {

struct counted_case {
  const char* choreography;
  collective what;
  layout placement;
};

}  // namespace

TEST_CASE("steps of a score for many ranks are guessed to a tenth, whatever the layout") {
  for (const counted_case& c : {counted_case{"ring", collective::all_reduce, layout::flat(1500)},
                                {"double_binary_tree", collective::all_reduce, layout::flat(4096)},
                                {"recursive_doubling", collective::all_gather, layout::flat(1024)},
                                {"pairwise", collective::all_to_all, layout::flat(1100)},
                                {"nhr", collective::all_reduce, layout::flat(4096)},
                                {"nhr", collective::all_reduce, layout::flat(2500)},
                                {"nhr", collective::all_reduce, layout::flat(2049)},
                                {"nhr", collective::all_reduce, layout::flat(3008)},
                                {"halving_doubling", collective::all_reduce, layout::flat(3000)},
                                {"hierarchical", collective::all_reduce, layout::grid(128, 8)},
                                {"hierarchical", collective::all_reduce, layout::grid(1024, 8)},
                                {"hierarchical", collective::all_gather, layout::grid(256, 8)},
                                {"hierarchical", collective::all_gather, layout::grid(512, 8)},
                                {"hierarchical", collective::all_to_all, layout::grid(200, 8)},
                                {"hierarchical", collective::all_reduce, layout::grid(8, 128)},
                                {"hierarchical_nhr", collective::all_reduce, layout::grid(512, 8)},
                                {"hierarchical", collective::all_reduce, layout::parse("4x8x8x4")},
                                {"hierarchical", collective::all_gather, layout::parse("16x8x8x1")},
                                {"hierarchical_nhr", collective::all_reduce, layout::parse("8x16x4x2")},
                                {"hierarchical_hd", collective::reduce_scatter, layout::parse("4x4x64x1")},
                                {"hierarchical", collective::all_to_all, layout::parse("4x32x8")},
                                {"hierarchical_pipeline", collective::all_gather, layout::grid(300, 8)},
                                {"hierarchical_pipeline", collective::all_reduce, layout::grid(40, 40)},
                                {"hierarchical_pipeline", collective::all_to_all, layout::parse("4x32x8")},
                                {"hierarchical_pipeline", collective::all_to_all, layout::parse("8x8x16x1")},
                                {"chained_double_tree", collective::all_reduce, layout::grid(1000, 8)},
                                {"ring_per_nic", collective::all_reduce, layout::grid(100, 8)},
                                {"tree_per_nic", collective::all_reduce, layout::grid(300, 2)}}) {
    setup on = flat_setup(c.what, c.placement.size());
    on.placement = c.placement;
    CAPTURE(c.choreography);
    CAPTURE(c.placement.to_string());
    const choreography& which = *find_choreography(c.choreography);
    REQUIRE(refusal(which, on) == "");
    const auto steps = static_cast<double>(tally_of(which, on).steps());
    CHECK(guessed_steps(which, on) == doctest::Approx(steps).epsilon(0.1));
  }
  CHECK(guessed_steps(*find_choreography("ring"), flat_setup(collective::all_reduce, 512)) ==
        -1);  // they are soon written
}

TEST_CASE("extent: ranks need memory, too, where each has few steps") {
  const setup on = flat_setup(collective::all_reduce, 4096);
  const choreography& tree = *find_choreography("double_binary_tree");
  CHECK(too_many_steps(tree, on, bytes_of_a_step, bytes_of_a_rank).empty());
  CHECK(too_many_steps(tree, on, 1, 1e12).find("takes about 4096") != std::string::npos);
  CHECK(too_many_steps(tree, on, 1e12).find("steps, more than this computer's memory holds") != std::string::npos);
}
