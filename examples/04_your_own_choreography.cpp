// SPDX-License-Identifier: Apache-2.0
// A choreography of your own: written, checked, and run by the engine like a built-in one.
//
// It is the butterfly, an all_reduce for four ranks in two rounds: first the neighbours (0,1) and (2,3) exchange what
// they have, then (0,2) and (1,3) exchange the sums. docs/choreographies.md explains the notation and every rule.

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include <troupe.hpp>

#include "protocols/lower/lowering.hpp"
#include "protocols/score/score_builder.hpp"
#include "protocols/verify/verifier.hpp"

using namespace troupe::notation;

constexpr int ranks = 4;

/// @param careful keep the first round's sum in scratch; otherwise it is kept in the output, and that is wrong
troupe::score butterfly(bool careful) {
  const troupe::setup on = troupe::flat_setup(troupe::collective::all_reduce, ranks);
  troupe::score_builder s{on, "butterfly", 1};  // every block in one part
  for (troupe::rank_t r = 0; r < ranks; ++r) {
    const troupe::cells pair_sum = careful ? s.scratch_like(r, output[0]) : output[0];
    auto me = s.lane(r);
    me.to(r ^ 1).from(r ^ 1);
    me.send(input[0]);
    me.swapped((r & 1) == 0).recv_reduce_copy(input[0], pair_sum);  // the lower rank on the left, at both ends
    me.to(r ^ 2).from(r ^ 2);
    me.send(pair_sum);
    me.swapped((r & 2) == 0).recv_reduce_copy(pair_sum, output[0]);
  }
  return s.finish();
}

int main() {
  // A send hands out a reference, and the receiver reads in its own time. The careless variant overwrites what it has
  // sent.
  const troupe::verdict wrong = troupe::verify(butterfly(false));
  std::printf("careless: %s\n\n", wrong.ok() ? "verified" : to_string(*wrong.first_fault).c_str());

  const troupe::score score = butterfly(true);
  const troupe::verdict right = troupe::verify(score);
  std::printf("careful: %s, %zu steps, %zu messages\n", right.ok() ? "verified" : to_string(*right.first_fault).c_str(),
              right.steps, right.messages);
  std::printf("rank 3 computes %s; the same at every rank: %s\n\n", tree_of(right, 3, 0).c_str(),
              right.same_tree_everywhere ? "yes" : "no");
  std::printf("%s\n", to_text(score).c_str());

  // As a file, it can be named in a configuration, printed, changed by hand. The engine verifies it when it is loaded.
  const auto file = std::filesystem::temp_directory_path() / ("butterfly." + std::to_string(getpid()) + ".json");
  std::ofstream{file} << to_json(score);

  troupe::engine_options options;
  options.score_files["butterfly"] = file.string();
  options.choreography_of["all_reduce"] = "butterfly";
  troupe::engine engine{options};
  std::array<double, ranks> result{};
  engine.run(ranks, [&](troupe::communicator& comm) {
    const std::array<double, 1> mine{comm.rank() + 0.5};
    std::array<double, 1> sum{};
    comm.all_reduce(mine, sum);
    result[static_cast<std::size_t>(comm.rank())] = sum[0];
  });
  std::printf("performed: %g %g %g %g\n", result[0], result[1], result[2], result[3]);
  std::filesystem::remove(file);
}
