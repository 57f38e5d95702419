// SPDX-License-Identifier: Apache-2.0
// Collectives by NICs in virtual time: who performs, what it costs, and what bounds it.
#include "actors/virtual/offload_run.hpp"

#include <doctest/doctest.h>

#include <string>

#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"

using namespace troupe;

namespace {

hardware tianhe(int ranks, bool offload, int jobs = 1) {
  return build_preset(
      "tianhe_32",
      {.ranks = ranks, .layout = {}, .structure = {{"offload", offload ? "1" : "0"}, {"jobs", std::to_string(jobs)}}});
}

virtual_outcome perform(const hardware& on, const char* choreography, collective what, std::size_t bytes,
                        virtual_options o = {}) {
  const score s = lower_syncs(write_score(*find_choreography(choreography), flat_setup(what, on.ranks)));
  o.protocol = on.protocols.front();
  o.type = datatype::f64;
  return perform_by_nics(s, {bytes / 8, {}, {}, {}, 8}, on, o);
}

}  // namespace

TEST_CASE("offload run: a broadcast between two nodes takes what formula (1) says") {
  // Twice L_CPU + 2 L_IO + L_network, and 8 bytes at 12.5 GB/s; the hosts poll besides. On both sides of that stand a posting and a completion
  // where NICs perform, and the triggers.
  const hardware nics = tianhe(2, true), hosts = tianhe(2, false);
  const auto by_nics = perform(nics, "binomial", collective::broadcast, 8);
  const auto by_hosts = perform(hosts, "binomial", collective::broadcast, 8);
  const std::int64_t message = 2 * 1'600'000 + 640, poll = 3'570'000, posting = 350'000, completion = 250'000;
  CHECK(by_hosts.finished[1] == message + poll);
  // The send fires, the packet is taken, the end fires.
  CHECK(by_nics.finished[1] == posting + 80'000 + message + 80'000 + 640 + 80'000 + completion);
}

TEST_CASE("offload run: a reduction between two nodes takes what formula (2) says") {
  hardware hosts = tianhe(2, false);
  for (const char* key : {"nics.soft", "nics.soft_rate"}) hosts.set(key, "0");
  hosts.set("memory.bandwidth", "20GB/s");
  // L_CPU + 2 L_IO + L_network, 2000 bytes at 12.5 GB/s, and in the node's memory two times for the copy, three for the sum.
  CHECK(perform(hosts, "binomial", collective::reduce, 2000).finished[0] == 1'600'000 + 160'000 + 5 * 100'000);
  // A processor's own time for the message; and its rate, where that is less than the memory's.
  hosts.set("nics.soft", "300ns");
  CHECK(perform(hosts, "binomial", collective::reduce, 2000).finished[0] == 1'760'000 + 300'000 + 5 * 100'000);
  hosts.set("nics.soft_rate", "10GB/s");
  CHECK(perform(hosts, "binomial", collective::reduce, 2000).finished[0] == 1'760'000 + 300'000 + 5 * 200'000);
  // Of a message of several packets once.
  const std::int64_t without = [&] {
    hardware none = hosts;
    none.set("nics.soft", "0");
    return perform(none, "binomial", collective::reduce, 20000).finished[0];
  }();
  CHECK(perform(hosts, "binomial", collective::reduce, 20000).finished[0] == without + 300'000);
}

TEST_CASE("offload run: the same run twice is the same, event by event; jobs share ports, units and memory") {
  for (const bool offload : {true, false}) {
    const hardware one = tianhe(8, offload), many = tianhe(8, offload, 8);
    const auto first = perform(one, "halving_doubling", collective::all_reduce, 65536);
    const auto again = perform(one, "halving_doubling", collective::all_reduce, 65536);
    CHECK(first.trace == again.trace);
    CHECK(first.end_ps == again.end_ps);
    const auto eight = perform(many, "halving_doubling", collective::all_reduce, 65536);
    CHECK(eight.messages == 8 * first.messages);
    CHECK(eight.end_ps > first.end_ps);
    CHECK(eight.end_ps < 8 * first.end_ps);
  }
}

TEST_CASE("offload run: NICs gain more the larger a reduction is; hash buffers fill with size and jobs, within their "
          "reserve") {
  double before = 0;
  for (const std::size_t bytes : {std::size_t{256}, std::size_t{65536}, std::size_t{1} << 20}) {
    const auto nics = perform(tianhe(16, true), "halving_doubling", collective::reduce, bytes);
    const auto hosts = perform(tianhe(16, false), "halving_doubling", collective::reduce, bytes);
    const double gain = static_cast<double>(hosts.end_ps) / static_cast<double>(nics.end_ps);
    CHECK(gain > before);
    CHECK(nics.buffer_fill >= 0);
    CHECK(hosts.buffer_fill == -1);
    before = gain;
  }
  CHECK(before > 1.2);
  double fill = -1;
  for (const int jobs : {1, 8, 32}) {
    const auto o = perform(tianhe(8, true, jobs), "halving_doubling", collective::all_reduce, 65536);
    CHECK(o.buffer_fill > fill);
    CHECK(o.buffer_fill < 1.12);
    fill = o.buffer_fill;
  }
}

TEST_CASE(
    "offload run: the fill is what the buffer holds, those that are being read among it, and never more than it has "
    "room for") {
  hardware one = tianhe(8, true, 16);
  one.set("nics.units", "1");
  one.set("nics.buffer", "16384");
  const auto o = perform(one, "halving_doubling", collective::all_reduce, 1 << 18);
  CHECK(o.buffer_fill > 0.5);
  CHECK(o.buffer_fill <= 1.125);  // eight packets, and one of reserve
}

TEST_CASE("offload run: with a buffer of a few packets and two counters it takes longer, and ends") {
  hardware small = tianhe(8, true, 16);
  const auto before = perform(small, "halving_doubling", collective::all_reduce, 1 << 18);
  small.set("nics.buffer", "4096");
  small.set("nics.counters", "2");
  const auto after = perform(small, "halving_doubling", collective::all_reduce, 1 << 18);
  CHECK(after.end_ps > before.end_ps);
  CHECK(after.buffer_fill <= 1.5);  // two packets, and one of reserve
}

TEST_CASE("offload run: a packet that was refused is asked for as soon as its turn has come, also where nothing else "
          "happens") {
  // Both children send their halves at once, and the root takes one's before the other's.
  for (const char* buffer : {"2048", "4096", "8192"}) {
    hardware small = tianhe(3, true);
    const auto before = perform(small, "binomial", collective::gather, 21840);
    small.set("nics.buffer", buffer);
    const auto after = perform(small, "binomial", collective::gather, 21840);
    CHECK(after.end_ps > before.end_ps);
    CHECK(after.end_ps <
          4 * before.end_ps);  // and not the 20 ms after which a NIC sends again what nobody has answered
  }
}

TEST_CASE("offload run: stragglers and slow ports count") {
  hardware on = tianhe(4, true);
  const auto before = perform(on, "ring", collective::all_reduce, 65536);
  virtual_options late;
  late.skew = {0, 0, 50'000'000, 0};
  CHECK(perform(on, "ring", collective::all_reduce, 65536, late).end_ps > before.end_ps + 45'000'000);
  on.slow_down("nic 1", 4);
  CHECK(perform(on, "ring", collective::all_reduce, 65536).end_ps > 2 * before.end_ps);
}

TEST_CASE("offload run: what NICs cannot do is refused with a sentence") {
  const hardware on = tianhe(4, true);
  const auto says = [&](auto change, const char* part) {
    virtual_options o;
    cutting cut;
    change(o, cut);
    CHECK(why_not_by_nics(on, cut, o).find(part) != std::string::npos);
  };
  CHECK(why_not_by_nics(on, {}, {}).empty());
  says([](auto&, auto& cut) { cut.slices = 2; }, "channels and slices must be 1");
  says([](auto& o, auto&) { o.carry = payload::real; }, "NICs move no bytes in virtual time");
  says([](auto& o, auto&) { o.by = performed_by::player; }, "leave performed_by away");
  says([](auto& o, auto&) { o.any_order = true; }, "leave any_order away");
  says([](auto& o, auto&) { o.compute = 1; }, "leave compute away");
  CHECK_THROWS_WITH_AS(perform(on, "fused", collective::all_reduce, 64),
                       doctest::Contains("a NIC reaches the memory of its own process only"), error);
  virtual_options average_of;
  average_of.reduction = average;
  CHECK_THROWS_WITH_AS(perform(on, "ring", collective::all_reduce, 64, average_of),
                       doctest::Contains("a NIC has no avg"), error);
  const auto refuses = [&](const char* key, const char* value, const char* part) {
    hardware other = on;
    other.set(key, value);
    CHECK(why_not_by_nics(other, {}, {}).find(part) != std::string::npos);
  };
  refuses("host.step", "1us", "host.… means nothing");
  refuses("host.reduce_rate", "1GB/s", "host.… means nothing");
  refuses("protocol.simple.latency", "1us", "the slots alone");
  refuses("nic.units", "2", "of nic there are latency, bandwidth and overhead");
  refuses("memory.discipline", "fair", "of memory there are latency");
  hardware narrow = on;
  narrow.set("nics.packet", "1024");
  narrow.set("nics.buffer", "1024");
  CHECK_NOTHROW(narrow.validate());
  narrow.set("nics.packet", "2048");
  CHECK_THROWS_WITH_AS(narrow.validate(), doctest::Contains("less than a packet"), error);
}
