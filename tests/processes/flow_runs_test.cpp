// SPDX-License-Identifier: Apache-2.0
// Flows whose ranks are processes.

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include "tests/processes/processes.hpp"

namespace flow_runs_test {

using namespace process_tests;
using namespace troupe;

namespace {

void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

}  // namespace

TEST_CASE(
    "a flow's tiles travel between processes, run after run, and what an operator throws ends it in all of them") {
  const auto ended = run_processes(3, [&](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    constexpr int tiles = 8;
    int seen = 0;
    bool throws = false;
    flow f{e, "f"};
    const auto a = f.source<float>("a", {1000}, tiles, [&](tile<float> out) {
      for (float& x : out.flat()) x = static_cast<float>(comm.rank() * 100 + out.index);
    });
    const auto whole = f.all_gather("gather", a, comm);
    const auto again = f.map("again", whole, [&](tile<const float> in, tile<float> out) {
      if (throws && comm.rank() == 2 && in.index == 5) throw std::runtime_error("the oven is cold");
      std::copy(in.flat().begin(), in.flat().end(), out.data());
    });
    f.sink("end", f.reduce_scatter("sum", again, comm), [&](tile<const float> in) {
      ++seen;
      for (const float x : in.flat()) expect(x == 3 * static_cast<float>(comm.rank() * 100 + in.index), "a wrong sum");
    });
    for (int run = 0; run < 3; ++run) {
      f.start();
      f.wait();
    }
    expect(seen == 3 * tiles, "not every tile came");
    throws = true;
    f.start();
    try {
      f.wait();
      expect(false, "the flow should have failed");
    } catch (const error& problem) {
      expect(std::string{problem.what()} == "flow f, rank 2, node again, tile 5: the oven is cold", problem.what());
    }
    throws = false;
    f.start();
    f.wait();
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("broadcasts, sums of bf16 and reductions go through a flow of processes, of one host or of several") {
  for (const bool one_host : {true, false}) {
    CAPTURE(one_host);
    const auto ended = run_processes(3, [&](const member& m) {
      engine e;
      join_options how = m.how();
      if (!one_host) how.host = "host" + std::to_string(m.process), how.key = std::string(64, '7');
      communicator comm = e.join(how);
      constexpr int tiles = 6, root = 1;
      const bool gives = comm.rank() == root;
      flow f{e, "f"};
      const auto from_root = [&](tile<bf16> out) {
        std::fill_n(out.data(), 100, bf16(static_cast<float>(out.index + 1)));
      };
      const auto weights = gives ? f.broadcast("weights", f.source<bf16>("w", {100}, tiles, from_root), comm, root)
                                 : f.broadcast<bf16>("weights", {100}, tiles, comm, root);
      const auto mine = f.map("mine", weights, [&](tile<const bf16> in, tile<bf16> out) {
        // What bf16 would round away between two summands, f32 keeps: 256 + 1 + 1.
        std::fill_n(out.data(), 100, comm.rank() == 0 ? bf16(256.0F) : bf16(1.0F));
        expect(in(99).bits == bf16(static_cast<float>(in.index + 1)).bits, "a wrong weight");
      });
      int seen = 0;
      if (const auto sums = f.reduce("sums", f.all_reduce("all", mine, comm), comm, root))
        f.sink("end", *sums, [&](tile<const bf16> in) {
          ++seen;
          for (const bf16 x : in.flat()) expect(x.bits == bf16(3 * 258.0F).bits, "a wrong sum");
        });
      for (int run = 0; run < 3; ++run) {
        f.start();
        f.wait();
      }
      expect(seen == (gives ? 3 * tiles : 0), "not every tile came");
    });
    CHECK(trouble(ended) == "");
  }
}

TEST_CASE("a process that dies ends a flow in the others") {
  const auto ended = run_processes(3, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    flow f{e, "f"};
    const auto a = f.source<float>("a", {16}, 8, [&](tile<float> out) {
      if (m.process == 1 && out.index == 4) kill(getpid(), SIGKILL);
    });
    f.sink("end", f.all_reduce("sum", a, comm), [](tile<const float>) {});
    f.start();
    try {
      f.wait();
      expect(false, "the flow should have failed");
    } catch (const error& problem) {
      expect(problem.code_value() == errc::peer_lost, problem.what());
    }
  });
  CHECK(ended[0].exit == 0);
  CHECK(ended[2].exit == 0);
}

}  // namespace flow_runs_test
