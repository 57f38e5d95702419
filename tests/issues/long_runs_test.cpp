// SPDX-License-Identifier: Apache-2.0
// Small operations go over slots, and the channels hear nothing of them. So a channel remembered every later operation for itself (67 bytes
// a call), and after 2³⁰ small calls took what came early for something that was over long ago: the operation never ended.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/issues/heap_use.hpp"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

call_options through_actors() {
  call_options o;
  o.protocol = message_protocol::simple;
  return o;
}

}  // namespace

TEST_CASE("slot calls and actor calls alternate: the heap does not grow") {
  for (const int channels : {0, 4}) {
    CAPTURE(channels);
    engine_options options;
    options.channels = channels;
    engine e{options};
    auto comms = e.communicators(2);
    std::vector<float> a(8), b(8), large_a(4096), large_b(4096);
    const auto grown = issues::growth(3000, [&] {
      group both;
      comms[0].all_reduce_async(both, a), comms[1].all_reduce_async(both, b);
      both.wait();
      comms[0].all_reduce_async(both, large_a, sum, through_actors());
      comms[1].all_reduce_async(both, large_b, sum, through_actors());
      both.wait();
    });
    CHECK(grown < 16 * 1024);
  }
}

TEST_CASE("operations have numbers enough: small calls by the thousand million, then one whose chunks come early") {
  for (const int bits : {30, 31, 32, 40}) {
    CAPTURE(bits);
    engine_options options;
    options.deadline = 20s;  // so that what never ends fails
    options.first_operation = (std::uint64_t{1} << bits) - 3;
    engine e{options};
    e.run(2, [&](communicator& comm) {
      std::vector<float> small(8, 1), large(100'000, 1);
      for (int round = 0; round < 8; ++round) {
        small.assign(small.size(), 1);
        comm.all_reduce(small);
        CHECK(small.back() == 2);
        if (comm.rank() == round % 2) std::this_thread::sleep_for(2ms);  // the other's chunks come first
        large.assign(large.size(), 1);
        comm.all_reduce(large, sum, through_actors());
        CHECK(large.back() == 2);
        std::vector<float> got(10), out(10, static_cast<float>(round));
        comm.send_recv(out, 1 - comm.rank(), got, 1 - comm.rank());
        CHECK(got == out);
      }
      communicator half = comm.split(comm.rank(), 0);
      half.barrier();
    });
    // A rank that leaves, a deadline: they compare numbers too.
    auto comms = e.communicators(2);
    std::vector<float> data(8);
    request waits = comms[0].all_reduce_async(data);
    comms[1] = communicator{};
    CHECK(waits.try_wait() == make_error_code(errc::rank_missing));
  }
}
