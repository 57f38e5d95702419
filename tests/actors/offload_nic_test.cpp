// SPDX-License-Identifier: Apache-2.0
// NICs that perform collectives on real bytes: whatever order packets come in, with losses, small buffers and few counters.
#include "actors/elements/offload/offload_nic.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/offload/packed_programs.hpp"
#include "tests/actors/offload_network.hpp"
#include "tests/seed.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

score written(const char* name, collective what, int ranks, rank_t root = 0) {
  return lower_syncs(write_score(*find_choreography(name), flat_setup(what, ranks, root)));
}

/// Small packets, so that short messages have several.
offload_config small() {
  offload_config c;
  c.units = 2;
  c.packet_bytes = 32;
  c.buffer_bytes = 4096;
  c.window = 16;
  c.reduction_elements = 16;
  c.pulses = 2;
  return c;
}

void check_empty(offload_network& net, int nodes) {
  for (int n = 0; n < nodes; ++n) {
    const offload_statistics s = net.nic(static_cast<std::size_t>(n)).statistics();
    CHECK(s.sequences == 0);
    CHECK(s.waiting == 0);
    CHECK(s.counters == 0);
  }
}

/// Whether a NIC can perform it; and no choreography of cards.
bool can(const choreography& who, const setup& on) {
  return refusal(who, on).empty() && offload::why_not_offloaded(lower_syncs(write_score(who, on)), {}).empty();
}

/// All orders in which a node's packets can come, each once. Returns how many there are.
std::size_t for_every_order(const std::function<void(const std::function<std::size_t(std::size_t)>&)>& act) {
  std::vector<std::size_t> choice, options;
  for (std::size_t orders = 1;; ++orders) {
    std::size_t at = 0;
    act([&](std::size_t n) {
      if (at == choice.size()) choice.push_back(0), options.push_back(n);
      REQUIRE(options[at] == n);
      return choice[at++];
    });
    while (!choice.empty() && choice.back() + 1 == options.back()) choice.pop_back(), options.pop_back();
    if (choice.empty()) return orders;
    ++choice.back();
  }
}

}  // namespace

TEST_CASE("offload nic: every collective of every choreography, on bytes") {
  std::size_t calls = 0;
  for (const choreography* who : all_choreographies())
    for (const collective what : who->collectives)
      for (const int ranks : {2, 5, 8})
        for (const std::size_t count : {std::size_t{1}, std::size_t{37}}) {
          const rank_t root = has_root(what) ? ranks - 1 : 0;
          if (!can(*who, flat_setup(what, ranks, root))) continue;
          INFO(who->name << " " << name(what) << ", " << ranks << " ranks, " << count << " elements");
          const score s = lower_syncs(write_score(*who, flat_setup(what, ranks, root)));
          offloaded_call call{s, count, small()};
          if (is_reduction(what)) call.use_floats();
          offload_network net{ranks, small(), seed() + calls};
          net.post_all(call, {7, 1});
          CHECK(net.run());
          CHECK(net.completions.size() == static_cast<std::size_t>(ranks));
          CHECK(call.wrong() == 0);
          check_empty(net, ranks);
          ++calls;
        }
  CHECK(calls > 150);
}

TEST_CASE("offload nic: the same bits for every order in which packets can come") {
  struct {
    const char* name;
    collective what;
    int ranks;
    std::size_t count;
    std::size_t packets_of_buffer;
    std::size_t orders;
  } const cases[]{
      {"binomial", collective::reduce, 8, 7, 100, 720},      // three children, two packets each
      {"binomial", collective::reduce, 8, 7, 1, 100},        // and room for one
      {"one_shot", collective::all_reduce, 4, 7, 100, 720},  //
      {"recursive_doubling", collective::all_reduce, 4, 7, 1, 2},
      {"halving_doubling", collective::all_reduce, 4, 8, 100, 1},
      {"pairwise", collective::all_to_all, 4, 7, 100, 10},
  };
  for (const auto& c : cases) {
    INFO(std::string{c.name} << ", room for " << c.packets_of_buffer);
    offload_config config = small();
    config.buffer_bytes = c.packets_of_buffer * config.packet_bytes;
    const score s = written(c.name, c.what, c.ranks);
    const std::size_t orders = for_every_order([&](const std::function<std::size_t(std::size_t)>& choose) {
      offloaded_call call{s, c.count, config};
      if (is_reduction(c.what)) call.use_floats();
      offload_network net{c.ranks, config, 1, {0, 0, true}};
      net.choose = choose;
      net.post_all(call, {0, 1});
      REQUIRE(net.run());
      REQUIRE(net.completions.size() == static_cast<std::size_t>(c.ranks));
      REQUIRE(call.wrong() == 0);
    });
    MESSAGE(std::string{c.name} << ": " << orders << " orders");
    CHECK(orders >= c.orders);
  }
}

TEST_CASE("offload nic: lost, doubled and late, with little room and few counters") {
  // With 17 and 43 channels once waited for the counter of one that could not go on before them.
  for (const std::uint64_t from : {seed(), std::uint64_t{17}, std::uint64_t{43}}) {
    std::mt19937_64 random{from};
    std::size_t refused = 0, again = 0, pulses = 0;
    for (int round = 0; round < 80; ++round) {
      const choreography& who = *all_choreographies()[random() % all_choreographies().size()];
      const offer& of = who.collectives[random() % who.collectives.size()];
      const int ranks = 2 + static_cast<int>(random() % 9);
      const rank_t root = has_root(of) ? static_cast<rank_t>(random() % static_cast<unsigned>(ranks)) : 0;
      if (!can(who, flat_setup(of, ranks, root))) continue;
      offload_config config = small();
      config.units = 1 + static_cast<int>(random() % 3);
      config.buffer_bytes = config.packet_bytes * (1 + random() % 12);
      config.counters = 1 + static_cast<int>(random() % 4);
      config.window = 1 + random() % 20;
      config.longest_counter_wait = std::chrono::seconds{1000};
      const std::size_t count = random() % 200;
      INFO(who.name << " " << name(of) << ", " << ranks << " ranks, root " << root << ", " << count
                    << " elements, round " << round);
      offloaded_call call{lower_syncs(write_score(who, flat_setup(of, ranks, root))), count, config};
      if (is_reduction(of)) call.use_floats();
      offload_network net{ranks, config, random(), {0.1, 0.05, false}};
      // Some ranks come late: what was sent to them has to be asked for.
      std::vector<rank_t> late;
      for (rank_t r = 0; r < ranks; ++r)
        if (random() % 3 == 0) late.push_back(r);
        else REQUIRE(net.post(call, {9, 3}, r) == "");
      CHECK(net.run([&] { return net.steps > 40; }));
      for (const rank_t r : late) REQUIRE(net.post(call, {9, 3}, r) == "");
      CHECK(net.run([&] { return net.completions.size() == static_cast<std::size_t>(ranks); }));
      REQUIRE(net.completions.size() == static_cast<std::size_t>(ranks));
      for (const auto& c : net.completions) CHECK(c.error == "");
      CHECK(call.wrong() == 0);
      check_empty(net, ranks);
      for (int n = 0; n < ranks; ++n) {
        const offload_statistics s = net.nic(static_cast<std::size_t>(n)).statistics();
        CHECK(s.most_waiting <= s.capacity + (s.capacity + 8) / 9);
        CHECK(s.most_counters <= config.counters);
        refused += s.refused, again += s.again, pulses += static_cast<std::size_t>(s.most_counters);
      }
    }
    CHECK(refused > 0);
    CHECK(again > 0);
    CHECK(pulses > 0);
  }
}

namespace {

/// How many times longer the last of the jobs took than the first, in the network's steps; all ended well.
/// @param begun the steps before them
double longest_to_shortest(const offload_network& net, std::uint64_t begun = 0) {
  std::map<int, std::uint64_t> end;
  for (std::size_t i = 0; i < net.completions.size(); ++i) {
    CHECK(net.completions[i].error == "");
    std::uint64_t& at = end[net.completions[i].job.id];
    at = std::max(at, net.steps_at_completion[i] - begun);
  }
  std::uint64_t shortest = ~std::uint64_t{0}, longest = 0;
  for (const auto& [job, at] : end) shortest = std::min(shortest, at), longest = std::max(longest, at);
  return static_cast<double>(longest) / static_cast<double>(shortest);
}

}  // namespace

TEST_CASE("offload nic: 256 jobs of 8 ranks on one NIC at once, and none starves") {
  offload_config config = small();
  config.units = 8;
  config.buffer_bytes = 64 * config.packet_bytes;
  config.counters = 16;
  const score s = written("ring", collective::all_reduce, 8);
  std::vector<offload::endpoint> places;
  for (std::uint16_t r = 0; r < 8; ++r) places.push_back({0, r});
  // From fixed seeds, since a bound is checked. In order; then in any order, with packets and responses lost and doubled: how often it hits one job is chance, so the median of three counts.
  const offload_weather fair{0, 0, true}, foul{0.02, 0.02, false};
  std::vector<double> in_foul;
  for (const std::uint64_t draw : {0u, 1u, 2u, 3u}) {
    const offload_weather& weather = draw == 0 ? fair : foul;
    offload_network net{1, config, 7 + draw, weather};
    std::vector<std::unique_ptr<offloaded_call>> calls;
    for (int job = 0; job < offload::most_jobs; ++job) {
      calls.push_back(std::make_unique<offloaded_call>(s, 300, config, places));
      net.post_all(*calls.back(), {static_cast<std::uint8_t>(job), 1});
    }
    REQUIRE(net.run());
    REQUIRE(net.completions.size() == 256 * 8);
    const double unlike = longest_to_shortest(net);
    MESSAGE("longest / shortest completion " << unlike);
    if (draw == 0) CHECK(unlike <= 1.25);  // those that ask first are no earlier for it
    else in_foul.push_back(unlike);
    for (const auto& call : calls) CHECK(call->wrong() == 0);
    check_empty(net, 1);
    const offload_statistics stats = net.nic(0).statistics();
    CHECK(stats.most_waiting <= 64 + 8);
    CHECK(stats.most_counters == 16);
  }
  std::ranges::sort(in_foul);
  CHECK(in_foul[1] <= 2);
}

TEST_CASE("offload nic: a job that dies frees what it had, and no other notices") {
  offload_config config = small();
  config.buffer_bytes = 8 * config.packet_bytes;
  config.counters = 4;
  const score s = written("ring", collective::all_reduce, 4);
  for (std::uint64_t round = 0; round < 30; ++round) {
    offload_network net{4, config, seed() + round, {0.05, 0.05, false}};
    std::vector<std::unique_ptr<offloaded_call>> calls;
    for (std::uint8_t job = 0; job < 4; ++job) {
      calls.push_back(std::make_unique<offloaded_call>(s, 200, config));
      net.post_all(*calls.back(), {job, 1});
    }
    CHECK(net.run([&] { return net.steps > 100 + 50 * round; }));
    for (std::size_t n = 0; n < 4; ++n) net.nic(n).abort({2, 1}, net.now());
    const auto ended = [&] { return net.completions.size() >= 12; };
    CHECK(net.run(ended));
    std::set<int> jobs;
    for (const auto& c : net.completions) CHECK(c.error == ""), jobs.insert(c.job.id);
    CHECK(jobs.count(2) == 0);
    for (const std::size_t job : {0u, 1u, 3u}) CHECK(calls[job]->wrong() == 0);
    check_empty(net, 4);
    // Its number is used again; what is still under way of the dead one is nobody's.
    offloaded_call next{s, 200, config};
    net.post_all(next, {2, 2});
    CHECK(net.run([&] { return net.completions.size() >= 16; }));
    CHECK(next.wrong() == 0);
    check_empty(net, 4);
  }
}

TEST_CASE("offload nic: who finds no counter waits, and in the end fails with a sentence") {
  offload_config config = small();
  config.counters = 1;
  config.longest_counter_wait = std::chrono::milliseconds{10};
  config.counter_retry = std::chrono::seconds{1};
  const score s = written("binomial", collective::reduce, 2);
  offload_network net{2, config, 1, {0, 0, true}};
  offloaded_call first{s, 100, config}, second{s, 100, config};
  // The root of the first job does not come, so its sender keeps the only counter.
  CHECK(net.post(first, {1, 1}, 1) == "");
  CHECK(net.run([&] { return net.nic(1).statistics().counters == 1; }));
  net.post_all(second, {2, 1});
  CHECK(net.run([&] { return !net.completions.empty(); }));
  REQUIRE(net.completions.size() == 1);
  CHECK(net.completions[0].job.id == 2);
  CHECK(net.completions[0].rank == 1);
  CHECK(net.completions[0].error ==
        "rank 1 found none of the NIC's 1 pulse counters free for as long as it may wait; others hold them");
  net.nic(0).abort({2, 1}, net.now());
  CHECK(net.post(first, {1, 1}, 0) == "");
  CHECK(net.run([&] { return net.completions.size() == 3; }));
  CHECK(first.wrong() == 0);
  check_empty(net, 2);
}

TEST_CASE("offload nic: a sender whose receiver is late keeps no counter from others") {
  offload_config config = small();
  config.counters = 1;
  const score s = written("binomial", collective::reduce, 2);
  offload_network net{2, config, 1, {0, 0, true}};
  offloaded_call first{s, 100, config}, second{s, 100, config};
  CHECK(net.post(first, {1, 1}, 1) == "");
  CHECK(net.run([&] { return net.nic(1).statistics().counters == 1; }));
  net.post_all(second, {2, 1});
  CHECK(net.run([&] { return net.completions.size() == 2; }));
  CHECK(second.wrong() == 0);
  CHECK(net.post(first, {1, 1}, 0) == "");
  CHECK(net.run([&] { return net.completions.size() == 4; }));
  for (const auto& c : net.completions) CHECK(c.error == "");
  CHECK(first.wrong() == 0);
  check_empty(net, 2);
}

// Every receiver takes its peers' packets in order, so many senders have counters for what is not to be taken yet.
TEST_CASE("offload nic: 256 jobs of 8 ranks and 16 counters end well, whoever has the counters") {
  offload_config config = small();
  config.units = 8;
  config.buffer_bytes = 64 * config.packet_bytes;
  config.counters = 16;
  config.longest_counter_wait = std::chrono::seconds{1};
  struct task {
    const char* choreography;
    collective what;
    std::size_t count;
    std::uint64_t
        draws;  ///< in either weather, from fixed seeds; how often it hits one job is chance, so the median counts
  };
  for (const task& t : {task{"one_shot", collective::all_reduce, 30, 1},
                        {"binomial", collective::reduce, 100, 1},
                        {"double_binary_tree", collective::all_reduce, 100, 3}}) {
    CAPTURE(t.choreography);
    const score s = written(t.choreography, t.what, 8);
    const std::vector<offload::endpoint> places = offload::behind_one_nic(s);
    std::vector<double> in_fair, in_foul;
    for (std::uint64_t draw = 0; draw < 2 * t.draws; ++draw) {
      const bool fair = draw < t.draws;
      const offload_weather weather = fair ? offload_weather{0, 0, true} : offload_weather{0.02, 0.02, false};
      offload_network net{1, config, 7 + draw, weather};
      std::vector<std::unique_ptr<offloaded_call>> calls;
      for (int job = 0; job < offload::most_jobs; ++job) {
        calls.push_back(std::make_unique<offloaded_call>(s, t.count, config, places));
        net.post_all(*calls.back(), {static_cast<std::uint8_t>(job), 1});
      }
      REQUIRE(net.run());
      REQUIRE(net.completions.size() == 256 * 8);
      (fair ? in_fair : in_foul).push_back(longest_to_shortest(net));
      for (const auto& call : calls) REQUIRE(call->wrong() == 0);
      CHECK(net.nic(0).statistics().most_counters == 16);
      check_empty(net, 1);
    }
    for (std::vector<double>* unlike : {&in_fair, &in_foul}) {
      std::ranges::sort(*unlike);
      CHECK((*unlike)[t.draws / 2] <= 2);
      CHECK(unlike->back() <= 2.5);
    }
  }
}

TEST_CASE("offload nic: a number that an operation of many pulses had is no burden to the next that has it") {
  offload_config config = small();
  config.units = 8;
  config.counters = 16;
  const score s = written("ring", collective::all_reduce, 8);
  const std::vector<offload::endpoint> places = offload::behind_one_nic(s);
  offload_network net{1, config, 7, {0, 0, true}};
  // One by one, each alone with all counters.
  for (std::uint64_t epoch = 1; epoch <= 40; ++epoch) {
    offloaded_call alone{s, 300, config, places};
    net.post_all(alone, {0, epoch});
    REQUIRE(net.run());
  }
  net.completions.clear();
  net.steps_at_completion.clear();
  const std::uint64_t begun = net.steps;
  std::vector<std::unique_ptr<offloaded_call>> calls;
  for (int job = 0; job < 32; ++job) {
    calls.push_back(std::make_unique<offloaded_call>(s, 300, config, places));
    net.post_all(*calls.back(), {static_cast<std::uint8_t>(job), 100});
  }
  REQUIRE(net.run());
  REQUIRE(net.completions.size() == 32 * 8);
  CHECK(longest_to_shortest(net, begun) <= 1.5);
}

TEST_CASE("offload nic: ranks that perform different calls end with a sentence") {
  const score s = written("binomial", collective::reduce, 2);
  offload_network net{2, small(), 1, {0, 0, true}};
  offloaded_call three{s, 3, small()}, four{s, 4, small()};
  CHECK(net.post(three, {1, 1}, 0) == "");
  CHECK(net.post(four, {1, 1}, 1) == "");
  CHECK(net.run([&] { return !net.completions.empty(); }));
  REQUIRE(net.completions.size() == 1);
  CHECK(net.completions[0].error == "rank 0, port 0, descriptor 0: a packet of 32 bytes came where one of 24 was to "
                                    "come; the ranks perform different "
                                    "calls");
}

TEST_CASE("offload nic: postings that are refused, and why") {
  const score s = written("ring", collective::all_reduce, 2);
  offload_config config = small();
  config.most_sequences = 3;
  offload_nic nic{config};
  offloaded_call call{s, 100, config};
  const auto post = [&](auto change) {
    offload_posting p = call.posting({1, 5}, 0);
    change(p);
    return nic.post(p);
  };
  CHECK(nic.post(call.posting({1, 5}, 1)) == "the descriptors are for node 1, this is node 0");
  CHECK(post([](auto& p) { p.reduction = average; }) == "a NIC has no avg; it reduces by operations of its own");
  CHECK(post([](auto& p) { p.type = datatype::f32; }) == "the descriptors are for elements of 8 bytes, f32 has 4");
  CHECK(post([](auto& p) { p.type = datatype::f64, p.reduction = band; }).find("band") != std::string::npos);
  offload_config other = config;
  other.packet_bytes = 1024;
  offloaded_call large{s, 100, other};
  CHECK(nic.post(large.posting({1, 5}, 0)) ==
        "rank 0, port 0, descriptor 0: SwapRemoteAddr is not exactly where a message has several packets; or it was "
        "compiled for packets of another size");
  CHECK(post([](auto&) {}) == "");
  CHECK(post([](auto&) {}) == "port 0 of job 1 has a sequence under way");
  nic.abort({1, 5}, {});
  CHECK(post([](auto&) {}) == "port 0 of job 1 has had epoch 5; the next one must be later");
  for (std::uint8_t job = 2; job < 5; ++job) CHECK(nic.post(call.posting({job, 1}, 0)) == "");
  CHECK(post([](auto& p) {
          p.job = {9, 1};
        }) == "the NIC has 3 sequences at most, and 3 under way; post again when some have ended");
  config.packet_bytes = 8;
  CHECK_THROWS_AS(offload_nic{config}, error);
}

namespace {

/// A NIC that has been given what somebody has sent it. Several ranks behind it, and memory of each.
class untrusting {
public:
  explicit untrusting(const char* choreography = "ring")
      : notes_(written(choreography, collective::all_reduce, 3)), places_(offload::behind_one_nic(notes_)) {
    config_.units = 2;
    config_.node.reset();
    config_.refers = true;
    config_.packet_bytes = 32;
    config_.buffer_bytes = 256;
  }
  std::vector<offload::rank_program> programs() const {
    return offload::compile(notes_, {count, {}, {}, {}, 8}, {8, places_, config_.packet_bytes / 8});
  }
  /// Empty: it takes them, and has performed what it can. @param all as they came
  std::string perform(const std::vector<offload::rank_program>& all) const {
    offload_nic nic{config_};
    const auto held = std::make_shared<const std::vector<offload::rank_program>>(all);
    std::vector<std::vector<double>> in(3, std::vector<double>(count, 1)), out = in;
    std::vector<std::vector<std::byte>> scratch;
    for (const offload::rank_program& p : *held) {
      if (std::string why = offload::why_not_within(p, 8 * count, 8 * count); !why.empty()) return why;
      if (p.scratch_bytes > std::size_t{1} << 20) return "too much scratch for a test";
      scratch.emplace_back(p.scratch_bytes);
    }
    for (std::size_t r = 0; r < held->size() && r < 3; ++r) {
      memory_map m;
      m.input = reinterpret_cast<std::byte*>(in[r].data());
      m.output = reinterpret_cast<std::byte*>(out[r].data());
      m.scratch = scratch[r].data();
      if (std::string why = nic.post({{1, 1}, {held, &(*held)[r]}, m, datatype::f64, sum}); !why.empty()) return why;
    }
    for (int round = 0; round < 500; ++round) {
      for (int u = 0; u < config_.units; ++u) nic.work(u, {});
      while (auto p = nic.next_packet({})) nic.arrive(std::move(*p), {});
      while (const auto r = nic.next_response()) nic.respond(*r, {});
      while (nic.next_completion()) {}
    }
    nic.abort({1, 1}, {});
    return {};
  }
  static constexpr std::size_t count = 50;

private:
  score notes_;
  std::vector<offload::endpoint> places_;
  offload_config config_;
};

constexpr std::array<bool offload::descriptor::*, 10> all_descriptor_flags{&offload::descriptor::collective,
                                                                           &offload::descriptor::head,
                                                                           &offload::descriptor::tail,
                                                                           &offload::descriptor::triggers,
                                                                           &offload::descriptor::swap_local_data,
                                                                           &offload::descriptor::swap_local_port,
                                                                           &offload::descriptor::swap_remote_data,
                                                                           &offload::descriptor::swap_remote_address,
                                                                           &offload::descriptor::reduce,
                                                                           &offload::descriptor::collective_end};

}  // namespace

TEST_CASE("offload nic: descriptors that no compiler has made are refused with a sentence") {
  const untrusting nic;
  const auto why = [&](auto change) {
    auto all = nic.programs();
    change(all[0]);
    // As from another process.
    const auto came = offload::unpack(offload::pack(all));
    return came ? nic.perform(*came) : "is none";
  };
  CHECK(why([](auto&) {}) == "");
  CHECK(why([](auto& p) { p.sequences[0].descriptors.back().collective_end = false; }).find("CollEndFlag") !=
        std::string::npos);
  CHECK(why([](auto& p) { p.sequences.push_back(p.sequences[0]); }) == "rank 0: two sequences have port 0");
  CHECK(why([](auto& p) {
          for (offload::descriptor& d : p.sequences[0].descriptors)
            if (d.reduce) d.own = {};
        }).find("ReduceFlag is not exactly") != std::string::npos);
  CHECK(why([](auto& p) { p.sequences[0].port = 2048 + 5; }) == "rank 0: there is no port 2053; a NIC has 2048");
  CHECK(why([](auto& p) { p.sequences.clear(); }) == "rank 0 posts no sequence");
  CHECK(why([](auto& p) { p.credits = -1; }).find("-1 credits") != std::string::npos);
  CHECK(why([](auto& p) { p.sequences[0].descriptors[0].own.offset += 4; }).find("its own data are no elements") !=
        std::string::npos);
  CHECK(why([](auto& p) { p.sequences[0].descriptors[1].awaited += 1; }).find("does not list") != std::string::npos);
  CHECK(why([](auto& p) { p.awaited[0].seq_id = 32; }).find("that there is not") != std::string::npos);
  CHECK(why([](auto& p) { p.scratch_bytes = ~std::size_t{0}; }).find("bytes of scratch") != std::string::npos);
}

TEST_CASE("offload nic: a descriptor whose flag contradicts what it does is refused, whichever it is") {
  std::size_t local = 0;
  for (const char* choreography : {"ring", "halving_doubling", "double_binary_tree", "one_shot"}) {
    const untrusting nic{choreography};
    auto all = nic.programs();
    CHECK(nic.perform(all) == "");
    for (offload::rank_program& p : all)
      for (offload::sequence& s : p.sequences)
        for (offload::descriptor& d : s.descriptors)
          for (bool offload::descriptor::*flag : all_descriptor_flags) {
            // Only this tells a sum from a copy, of two places of the rank's; the proof sees it.
            const bool tells = flag == &offload::descriptor::reduce && d.count == 0 && !d.triggers && d.elements > 0;
            local += tells;
            if (tells) continue;
            d.*flag = !(d.*flag);
            CAPTURE(to_string(p, d));
            CHECK(nic.perform(all) != "");
            d.*flag = !(d.*flag);
          }
  }
  MESSAGE(local << " local steps");
}

TEST_CASE("offload nic: whatever bytes a process sends as descriptors, the NIC goes on") {
  std::mt19937_64 random{seed()};
  std::size_t none = 0, refused = 0, taken = 0;
  for (const char* choreography : {"ring", "halving_doubling", "double_binary_tree"}) {
    const untrusting nic{choreography};
    const std::vector<std::byte> bytes = offload::pack(nic.programs());
    for (int k = 0; k < 2000; ++k) {
      std::vector<std::byte> other = bytes;
      for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
        std::byte& at = other[random() % other.size()];
        at = random() % 2 == 0 ? at ^ static_cast<std::byte>(1U << random() % 8) : static_cast<std::byte>(random());
      }
      const auto came = offload::unpack(other);
      none += !came;
      if (!came) continue;
      const bool fine = nic.perform(*came).empty();
      taken += fine;
      refused += !fine;
    }
  }
  MESSAGE(none << " were none, " << refused << " were refused, " << taken << " performed");
  CHECK(none > 100);
  CHECK(refused > 100);
}

TEST_CASE("offload nic: a sequence stays on the unit with the fewest, and units take their sequences in turn") {
  offload_config config = small();
  config.units = 3;
  const score s = written("ring", collective::all_reduce, 2);
  offload_nic nic{config};
  std::vector<std::unique_ptr<offloaded_call>> calls;
  for (std::uint8_t job = 0; job < 6; ++job) {
    calls.push_back(std::make_unique<offloaded_call>(s, 100, config));
    REQUIRE(nic.post(calls.back()->posting({job, 1}, 0)) == "");
  }
  for (int unit = 0; unit < 3; ++unit) {
    std::vector<int> jobs;
    while (auto done = nic.work(unit, {})) jobs.push_back(done->job.id);
    // Each sends, and then lacks a packet.
    CHECK(jobs == std::vector<int>{unit, unit + 3});
  }
}
