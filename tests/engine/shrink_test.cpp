// SPDX-License-Identifier: Apache-2.0
// shrink and revoke where all ranks are threads of one process.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/api/troupe.hpp"

using namespace troupe;

namespace {

engine_options quiet(const std::string& layout = {}) {
  engine_options o;
  o.log_level = "off";
  o.layout = layout;
  return o;
}

int sum_of_ranks(communicator& comm) {
  int sum = comm.rank();
  comm.all_reduce(sum, troupe::sum);
  return sum;
}

}  // namespace

TEST_CASE("ranks whose body threw are left out, the others go on") {
  engine e(quiet());
  std::array<std::string, 5> said;
  std::atomic<int> past{0};  // the barrier: an end that comes before a rank has looked may take it for failed there
  CHECK_THROWS_WITH(e.run(5,
                          [&](communicator& comm) {
                            const auto mine = static_cast<std::size_t>(comm.rank());
                            comm.barrier();
                            ++past;
                            while (past.load() < 5) std::this_thread::yield();
                            if (mine == 0 || mine == 3) throw std::runtime_error("it broke");
                            try {
                              for (;;) comm.barrier();
                            } catch (const error& lost) {
                              CHECK(lost.code_value() == errc::communicator_aborted);
                            }
                            communicator left = comm.shrink();
                            std::vector<int> old(static_cast<std::size_t>(left.size()));
                            left.all_gather(std::array{static_cast<int>(mine)}, old);
                            for (const int r : old) said[mine] += std::to_string(r) + " ";
                            said[mine] += left.name();
                          }),
                    "it broke");
  for (const std::size_t r : {1u, 2u, 4u}) CHECK(said[r] == "1 2 4 world.shrink1");
}

TEST_CASE("revoke ends the others' operations, and a revoked communicator is shrunk like any other") {
  engine e(quiet());
  e.run(3, [&](communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) comm.revoke("enough");
    int value = 0;
    try {
      comm.recv(value, (comm.rank() + 1) % 3);
      FAIL_CHECK("it received");
    } catch (const error& why) {
      CHECK(why.code_value() == errc::revoked);
      CHECK(std::string{why.what()}.find("world was revoked by rank 1: enough") != std::string::npos);
    }
    communicator again = comm.shrink();
    CHECK(sum_of_ranks(again) == 3);
    CHECK(again.rank() == comm.rank());
    communicator once_more = comm.shrink();
    CHECK(once_more.name() == "world.shrink2");
    CHECK(sum_of_ranks(once_more) == 3);
    CHECK(sum_of_ranks(again) == 3);
  });
}

TEST_CASE("a rank whose actor died goes on with a new one, in its place of the layout") {
  engine_options o = quiet("2x2");
  o.faults.kill_after = 40;
  o.faults.kill_rank = 2;
  engine e(o);
  e.run(4, [&](communicator& comm) {
    std::vector<float> data(1000, 1.f);
    errc code = errc::ok;
    try {
      for (int i = 0; i < 1000; ++i) comm.all_reduce(data, troupe::maximum, {.choreography = "ring"});
    } catch (const error& why) {
      code = why.code_value();
    }
    CHECK(code == errc::actor_lost);
    communicator again = comm.shrink();
    CHECK(again.size() == 4);
    CHECK(again.rank() == comm.rank());
  });
}

TEST_CASE("a shrink names the ranks that it waits for, and goes on when it is called again") {
  engine e(quiet());
  std::atomic<bool> timed_out{false};
  std::atomic<int> named{0};
  e.run(3, [&](communicator& comm) {
    comm.barrier();  // each has its thread
    if (comm.rank() == 1)
      while (!timed_out.load()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    for (;;) try {
        communicator all = comm.shrink({.deadline = std::chrono::milliseconds{50}});
        CHECK(sum_of_ranks(all) == 3);
        return;
      } catch (const error& late) {
        CHECK(late.code_value() == errc::timed_out);
        // Rank 1 comes as soon as the first of the two has told its name; the second one may find nobody missing then.
        const std::string text = late.what(), in_vain = "world: shrink waited in vain for ";
        if (text == in_vain + "rank 1") ++named;
        else CHECK((timed_out.load() && text == in_vain + "the others"));
        timed_out.store(true);
      }
  });
  CHECK(named.load() > 0);
}

TEST_CASE("whoever gives up after a time-out leaves its place to nobody, and no one waits for it") {
  engine e(quiet());
  std::vector<communicator> comms = e.communicators(2);
  std::thread second([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    communicator left = comms[1].shrink();
    CHECK(left.size() == 1);
    CHECK(sum_of_ranks(left) == 0);
  });
  CHECK_THROWS_AS(comms[0].shrink({.deadline = std::chrono::milliseconds{5}}), error);
  comms[0] = {};
  second.join();
}

TEST_CASE("an engine that ends ends the shrinks that wait") {
  std::vector<communicator> comms;
  std::thread waits;
  errc code = errc::ok;
  {
    engine e(quiet());
    comms = e.communicators(2);
    std::atomic<bool> begun{false};
    waits = std::thread([&] {
      begun.store(true);
      try {
        comms[0].shrink();
      } catch (const error& closed) {
        code = closed.code_value();
      }
    });
    while (!begun.load()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  waits.join();
  CHECK(code == errc::engine_closed);
  communicator into;
  CHECK(comms[1].try_shrink(into) == errc::engine_closed);
}
