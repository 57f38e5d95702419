// SPDX-License-Identifier: Apache-2.0
// Random collectives by the process's NIC: right to the last byte, the same bits in every run, and whatever else is under way.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

#include "engine/planning/planner.hpp"
#include "tests/property/random_jobs.hpp"

using namespace engine_tests;

namespace {

troupe::engine_options any_offloading(random_engine& random, int ranks) {
  troupe::engine_options o = any_options(random, ranks);
  o.faults = {};
  o.offload = random() % 4 == 0 ? "auto" : "always";
  o.credits = std::min(o.credits, 31);
  return o;
}

/// Whether the NIC performs such jobs, as the planner says.
bool can_be_offloaded(troupe::planner& plans, const job& j) {
  troupe::call c;
  c.what = j.what;
  c.uniform = !j.v_form;
  if (j.v_form) c.counts = j.counts;
  if (!knows_all_blocks(c)) return false;
  c.type = j.type;
  c.reduction = j.reduction;
  c.count = j.count;
  if (has_root(j.what)) c.root = j.root;
  return plans.offload_of(c, troupe::layout::flat(j.ranks), j.v_form ? &j.counts : nullptr).why_not.empty();
}

}  // namespace

TEST_CASE("random collectives on engines whose NIC performs what it can are right to the last byte") {
#if defined(__SANITIZE_ADDRESS__)
  constexpr int engines = 40;
#else
  constexpr int engines = 120;
#endif
  int offloaded = 0;
  for (int e = 0; e < engines; ++e) {
    random_engine random(mix(seed() ^ (0x0ff10adu + static_cast<std::uint64_t>(e))));
    const int ranks = 1 + static_cast<int>(below(random, 17));
    const troupe::engine_options options = any_offloading(random, ranks);
    INFO("engine " << e << ", layout \"" << options.layout << "\", protocol " << options.protocol << ", offload "
                   << options.offload << ", credits " << options.credits << ", workers " << options.workers);
    troupe::engine engine(options);
    troupe::planner plans(options);
    auto comms = engine.communicators(ranks);
    for (int k = 0; k < 6; ++k) {
      job j = any_job(random, ranks);
      j.options.choreography.clear();
      INFO(to_string(j));
      CHECK(wrong_bytes(comms, j, random() % 2 ? form::grouped : form::asynchronous) == 0);
      offloaded += options.offload == "always" && options.layout.empty() && can_be_offloaded(plans, j);
    }
  }
  std::printf("%d collectives were offloaded\n", offloaded);
  CHECK(offloaded > engines / 4);
}

TEST_CASE("several threads' calls by the NIC, blocking and not, many under way at once") {
  for (int round = 0; round < 30; ++round) {
    random_engine random(mix(seed() ^ (0x0ff10ae0u + static_cast<std::uint64_t>(round))));
    const int ranks = 2 + static_cast<int>(below(random, 8));
    troupe::engine_options options;
    options.offload = "always";
    std::vector<job> jobs;
    for (int k = 0; k < 80; ++k) {
      jobs.push_back(any_job(random, ranks));
      jobs.back().options.choreography.clear();
      jobs.back().count %= 1000;
    }
    INFO("round " << round << ", " << ranks << " ranks");
    troupe::engine engine(options);
    std::atomic<std::size_t> wrong{0};
    engine.run(ranks, [&](communicator& comm) {
      std::vector<rank_memory> memory;
      std::vector<troupe::request> requests;
      for (const job& j : jobs) memory.emplace_back(j, comm.rank());
      for (std::size_t k = 0; k < jobs.size(); ++k) {
        if (k % 10 < 3) comm.run(memory[k].call());
        else requests.push_back(comm.start(memory[k].call()));  // more than a rank may have under way
      }
      for (auto& r : requests) r.wait();
      for (const rank_memory& m : memory) wrong += m.wrong();
    });
    CHECK(wrong == 0);
  }
}

// More pulses than the NIC has counters for, of packets that receivers take one sender after the other.
TEST_CASE("long sums of many ranks by the NIC at once, and nobody waits for a counter for ever") {
  constexpr int ranks = 8;
  constexpr std::size_t count = 300'000;
  for (const auto& each : {std::pair{"one_shot", 2}, {"direct_full_mesh", 6}}) {
    const char* const choreography = each.first;
    const int sums = each.second;
    INFO(choreography);
    troupe::engine_options options;
    options.offload = "always";
    options.choreography = choreography;
    options.deadline = std::chrono::seconds(60);
    troupe::engine engine(options);
    std::atomic<std::size_t> wrong{0};
    engine.run(ranks, [&](communicator& comm) {
      std::vector<communicator> comms;
      std::vector<std::vector<float>> values;
      std::vector<troupe::request> requests;
      for (int k = 0; k < sums; ++k) {
        comms.push_back(comm.duplicate());
        values.emplace_back(count, static_cast<float>(comm.rank() + k));
      }
      for (int k = 0; k < sums; ++k)
        requests.push_back(
            comms[static_cast<std::size_t>(k)].all_reduce_async(values[static_cast<std::size_t>(k)], troupe::sum));
      for (auto& r : requests) r.wait();
      for (int k = 0; k < sums; ++k)
        for (const float x : values[static_cast<std::size_t>(k)]) wrong += x != static_cast<float>(28 + 8 * k);
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("sums of floats by the NIC have the same bits in every run") {
  constexpr int ranks = 7;
  constexpr std::size_t count = 60'000;
  std::vector<float> first;
  for (int run = 0; run < 6; ++run) {
    troupe::engine_options options;
    options.offload = "always";
    troupe::engine engine(options);
    std::vector<float> got(count);
    engine.run(ranks, [&](communicator& comm) {
      std::mt19937 random(static_cast<unsigned>(comm.rank()));
      std::uniform_real_distribution<float> values(-1e6f, 1e6f);
      std::vector<float> in(count), out(count);
      for (float& x : in) x = values(random);
      std::this_thread::sleep_for(std::chrono::microseconds(200 * ((comm.rank() * 5 + run) % ranks)));
      comm.all_reduce_async(in, out, troupe::sum).wait();
      if (comm.rank() == run % ranks) got = out;
    });
    if (run == 0) first = got;
    CHECK(got == first);
  }
}

TEST_CASE("a call that insists on a protocol is not the NIC's, an engine's wish for one leaves it free") {
  troupe::engine_options options;
  options.offload = "always";
  options.protocol = "ll";
  troupe::planner plans(options);
  troupe::call c;
  c.what = troupe::collective::all_reduce;
  c.type = troupe::datatype::f32;
  c.count = 100;
  const auto why_not = [&](troupe::message_protocol how) {
    c.protocol = how;
    return plans.offload_of(c, troupe::layout::flat(2)).why_not;
  };
  CHECK(why_not(troupe::message_protocol::unset) == "");
  CHECK(why_not(troupe::message_protocol::automatic) == "");
  CHECK(why_not(troupe::message_protocol::ll) == "the call asks for the protocol ll, and a NIC has its own");
  c.protocol = troupe::message_protocol::simple;
  c.offload = true;
  CHECK(plans.plan_for(c, troupe::layout::flat(2))->nic() == nullptr);
}

TEST_CASE("where sums are folded in rank order the NIC is given the choreography that has the least to do so") {
  const auto prospect = [](const char* by, troupe::determinism level) {
    troupe::engine_options options;
    options.offload = "always";
    options.choreography = by;
    options.tuning = "none";
    troupe::planner plans(options);
    troupe::call c;
    c.what = troupe::collective::all_reduce;
    c.type = troupe::datatype::f32;
    c.count = 1 << 18;
    c.level = level;
    return plans.offload_of(c, troupe::layout::flat(6));
  };
  const auto chosen = prospect("auto", troupe::determinism::topology_stable);
  double least = 1;
  for (const char* by : {"ring", "double_binary_tree", "halving_doubling", "recursive_doubling", "direct_full_mesh"}) {
    CAPTURE(by);
    const auto folded = prospect(by, troupe::determinism::topology_stable);
    REQUIRE(folded.why_not == "");
    // Contributions travel one by one, except where they do anyway.
    if (std::string{by} != "direct_full_mesh")
      CHECK(folded.predicted_seconds > 1.2 * prospect(by, troupe::determinism::run_stable).predicted_seconds);
    CHECK(chosen.predicted_seconds <= folded.predicted_seconds);
    least = std::min(least, folded.predicted_seconds);
  }
  CHECK(chosen.predicted_seconds == least);
}
