// SPDX-License-Identifier: Apache-2.0
// Layers of experts in virtual time: engine/tools/experts, and GOAL as it is written (engine/tools/replay/goal_writer).
#include "engine/tools/experts/expert_study.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <numeric>
#include <string>

#include "memory/error.hpp"
#include "tests/engine/program.hpp"

using namespace troupe;

namespace {

using op_of = replay_operation::kind;

expert_layers small_model(const std::string& places) {
  expert_layers m;
  m.places = layout::parse(places);
  m.layers = 3;
  m.experts = 2 * m.places.size();
  m.tokens = 20;
  m.hidden = 256;
  m.routings = 2;
  return m;
}

std::size_t bytes_moved(const application& of) {
  std::size_t all = 0;
  for (const application::collective& c : of.collectives)
    all += std::accumulate(c.what.counts.begin(), c.what.counts.end(), std::size_t{0});
  return all;
}

std::size_t sum_of(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

study_scenario study_on(const std::string& toml) {
  configuration c;
  c.add_text(toml, "experts.toml");
  return read_study(c);
}

void check_equal(const application& a, const application& b) {
  REQUIRE(a.ranks.size() == b.ranks.size());
  REQUIRE(a.communicators.size() == b.communicators.size());
  REQUIRE(a.collectives.size() == b.collectives.size());
  for (std::size_t c = 0; c < a.communicators.size(); ++c) {
    CHECK(a.communicators[c].name == b.communicators[c].name);
    CHECK(a.communicators[c].ranks == b.communicators[c].ranks);
  }
  for (std::size_t r = 0; r < a.ranks.size(); ++r) {
    REQUIRE(a.ranks[r].operations.size() == b.ranks[r].operations.size());
    REQUIRE(a.ranks[r].needs.size() == b.ranks[r].needs.size());
    for (std::size_t i = 0; i < a.ranks[r].operations.size(); ++i) {
      const replay_operation &x = a.ranks[r].operations[i], &y = b.ranks[r].operations[i];
      CHECK((x.what == y.what && x.cpu == y.cpu && x.peer == y.peer && x.tag == y.tag));
      if (x.what != op_of::collective) {
        CHECK(x.amount == y.amount);
        continue;
      }
      const application::collective &p = a.collectives[x.amount], &q = b.collectives[y.amount];
      CHECK((p.communicator == q.communicator && p.what.kind == q.what.kind && p.what.count == q.what.count));
      CHECK((p.what.counts == q.what.counts && p.what.type == q.what.type && p.what.root == q.what.root));
      CHECK((p.what.reduction.kind == q.what.reduction.kind && p.what.choreography == q.what.choreography));
    }
    for (std::size_t i = 0; i < a.ranks[r].needs.size(); ++i) {
      const replay_dependency &x = a.ranks[r].needs[i], &y = b.ranks[r].needs[i];
      CHECK((x.later == y.later && x.earlier == y.earlier && x.begun == y.begun));
    }
  }
}

}  // namespace

TEST_CASE("expert layers: every choice becomes a row there, and a row back") {
  expert_layers m = small_model("4");
  const application plain = expert_iteration_of(m, {}).what;
  // Dispatch, combine and their gradients; a computation between.
  CHECK(plain.collectives.size() == 4u * 3);
  CHECK(plain.ranks[0].operations.size() == 6u * 3);
  const std::size_t row = 2 * m.hidden, choices = 4u * 20 * 2;
  for (const application::collective& c : plain.collectives) CHECK(sum_of(c.what.counts) == choices * row);
  // What came goes back.
  const auto &there = plain.collectives[0].what.counts, &back = plain.collectives[1].what.counts;
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 4; ++j) CHECK(there[i * 4 + j] == back[j * 4 + i]);
  // Layers 0 and 2 are routed alike, 1 is not.
  CHECK(plain.collectives[4].what.counts == there);
  CHECK(plain.collectives[2].what.counts != there);

  SUBCASE("in 8 bits: one dispatch of four, a byte an element and 4 for 128") {
    const application bytes = expert_iteration_of(m, {.bytes = true}).what;
    CHECK(bytes_moved(bytes) == bytes_moved(plain) - 3 * choices * (row - m.hidden - 8));
  }
  SUBCASE("in parts: the same rows, and computations of the same length") {
    const application parts = expert_iteration_of(m, {.parts = 3}).what;
    CHECK(parts.collectives.size() == 3u * 4 * 3);
    CHECK(bytes_moved(parts) == bytes_moved(plain));
  }
  SUBCASE("a limit drops just what is above it") {
    m.experts = 4, m.top_k = 4;  // all tokens choose all experts
    m.capacity = 0.5;
    const expert_iteration half = expert_iteration_of(m, {});
    CHECK(half.dropped == 0.5);
    CHECK(half.imbalance == 1);
    for (const std::size_t n : half.what.collectives[0].what.counts) CHECK(n == 10 * row);
    // Half of the load: half of the time.
    CHECK(half.what.ranks[0].operations[1].amount == 25'000'000);
    CHECK(half.what.ranks[0].operations.back().what == op_of::collective);
  }
}

TEST_CASE("expert layers: where all experts are chosen, the ways between servers are known") {
  expert_layers m = small_model("2x3");
  m.experts = 6, m.top_k = 6;
  const expert_iteration once = expert_iteration_of(m, {.by_server = true});
  CHECK(once.crossing == doctest::Approx(1.0 / 3));
  CHECK(expert_iteration_of(m, {}).crossing == 1);
  const application& a = once.what;
  REQUIRE(a.communicators.size() == 1u + 3 + 2);
  const std::size_t row = 2 * m.hidden;
  for (const application::collective& c : a.collectives) {
    const std::vector<int>& members = a.communicators[c.communicator].ranks;
    const bool between = members.size() == 2;  // ranks at one place of both servers
    for (std::size_t i = 0; i < members.size(); ++i)
      for (std::size_t j = 0; j < members.size(); ++j)
        // All tokens of the other; inside, those of both ranks at the place.
        CHECK(c.what.counts[i * members.size() + j] == (between ? (i == j ? 0 : 20 * row) : 2 * 20 * row));
  }
  // Dispatch goes between servers first, combine inside.
  CHECK(a.communicators[a.collectives[0].communicator].ranks.size() == 2);
  const auto& operations = a.ranks[0].operations;
  CHECK(a.communicators[a.collectives[operations[3].amount].communicator].ranks.size() == 3);
}

TEST_CASE("expert layers: the profile counts what the exchanges move") {
  expert_layers m = small_model("2x3");
  m.skew = 1, m.capacity = 1;
  for (const expert_way way : {expert_way{}, expert_way{.by_server = true}, expert_way{.parts = 2}}) {
    const expert_iteration made = expert_iteration_of(m, way);
    const expert_profile& p = made.profile;
    const std::uint64_t choices = 3u * 6 * 20 * 2;  // of all layers forward
    CHECK(p.dispatches == 3);
    REQUIRE(p.ranks.size() == 6);
    REQUIRE(p.tokens_of_expert.size() == 12);
    const auto sum = [](const std::vector<std::uint64_t>& of) {
      return std::accumulate(of.begin(), of.end(), std::uint64_t{0});
    };
    CHECK(p.dropped() > 0);
    CHECK(sum(p.tokens_of_expert) + p.dropped() == choices);
    CHECK(sum(p.sent_to_expert) == sum(p.tokens_of_expert));
    CHECK(sum(p.dropped_of_expert) == p.dropped());
    CHECK(p.bottleneck() >= 0);
    CHECK(p.imbalance() > 1);
    std::uint64_t sent = 0, received = 0, crossed = 0, crossing = 0;
    for (const expert_profile::of_rank& r : p.ranks)
      sent += r.sent, received += r.received, crossed += r.crossed, crossing += r.crossing;
    CHECK(sent == received);
    CHECK(crossing > 0);
    CHECK((crossed < crossing) == way.by_server);
    // Rank 1 has the experts 2 and 3.
    CHECK(p.ranks[1].received == p.tokens_of_expert[2] + p.tokens_of_expert[3]);
  }
}

TEST_CASE("expert layers: skew makes some ranks busier, and what cannot be is refused") {
  expert_layers m = small_model("2x2");
  m.tokens = 500;
  const double even = expert_iteration_of(m, {}).imbalance;
  m.skew = 1.5;
  CHECK(expert_iteration_of(m, {}).imbalance > even + 0.2);
  const auto refused = [](const expert_layers& model, const expert_way& way, const char* why) {
    CHECK_THROWS_WITH_AS(static_cast<void>(expert_iteration_of(model, way)), doctest::Contains(why), error);
  };
  m.experts = 3;
  refused(m, {}, "3 experts for 4 ranks");
  m.experts = 8, m.top_k = 9;
  refused(m, {}, "cannot choose 9 of 8 experts");
  m.top_k = 2;
  refused(m, {.parts = 501}, "cannot be cut into 501 parts");
  m.places = layout::parse("4");
  refused(m, {.by_server = true}, "there are several");
}

TEST_CASE("expert study: closed forms, and ways beside each other") {
  expert_layers m = small_model("4");
  m.layers = 1, m.routings = 1, m.experts = 4, m.top_k = 4;
  m.expert_ns = 1000;
  // 1 µs and 1 ns a byte between two ports, nothing else: pairwise takes three steps, each a block of 20 rows.
  const study_scenario on = study_on("[study]\nranks = 4\nchoreography = \"pairwise\"\n[study.hardware]\nlink.latency "
                                     "= \"500ns\"\nlink.bandwidth = \"1GB/s\"\n"
                                     "host.copy_rate = \"unlimited\"\nhost.step = \"0\"\nhost.launch = \"0\"\n");
  const expert_study made = run_experts(on, m, 2, {"plain"}, {});
  const double exchange = 3 * (1 + 20 * 512 / 1000.0);
  CHECK(made.rows[0].us == doctest::Approx(4 * exchange + 3 * 1.0).epsilon(0.001));
  CHECK(made.rows[0].computing == doctest::Approx(3.0 / made.rows[0].us).epsilon(0.001));

  const expert_study all = run_experts(study_on("[study]\npreset = \"dgx_h100\"\nranks = 16\n"),
                                       [] {
                                         expert_layers big = small_model("2x8");
                                         big.hidden = 4096, big.top_k = 8;
                                         return big;
                                       }(),
                                       2, {}, {});
  REQUIRE(all.rows.size() == 5);
  CHECK(all.rows[1].us < all.rows[0].us);
  CHECK(all.rows[2].us < all.rows[0].us);  // eight choices of which some lie on one server
  CHECK(all.rows[2].iteration.crossing < 0.5);
  CHECK_THROWS_WITH_AS(run_experts(on, m, 1, {"parts"}, {}), doctest::Contains("there are plain, bytes"), error);
}

TEST_CASE("GOAL that was written says the same again") {
  check_equal(read_goal({{"again.goal",
                          write_goal(expert_iteration_of(small_model("2x2"), {.by_server = true, .parts = 2}).what)}}),
              expert_iteration_of(small_model("2x2"), {.by_server = true, .parts = 2}).what);
  const application all = read_goal({{"all.goal", R"(num_ranks 3
comm two { 2 0 }
rank 0 {
a: calc 50 cpu 3
b: coll gather_v 3 f32 root 2
c: coll reduce 7 bf16 max root 1 comm two by ring
d: send 8b to 1 tag 5
e: coll barrier
f: coll all_gather_v 1,2,3 u8
b requires a
d irequires b
}
rank 1 {
recv 8b from -1 tag -1
coll gather_v 5 f32 root 2
coll barrier
coll all_gather_v 1,2,3 u8
}
rank 2 {
coll gather_v 3,5,0 f32 root 2
coll reduce 7 bf16 max root 1 comm two by ring
coll barrier
coll all_gather_v 1,2,3 u8
}
)"}});
  check_equal(read_goal({{"again.goal", write_goal(all)}}), all);
}

TEST_CASE("troupe experts: table, JSON, trace, mistakes") {
  using troupe_program::run;
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const auto table = run("experts --layers 2 --routings 1");
  CHECK(table.code == 0);
  CHECK(has(table.out, "2 layers of 64 experts on 8 ranks"));
  const auto json = run("experts --layers 2 --routings 1 --set ranks=4 --json -");
  CHECK(json.code == 0);
  const auto read = nlohmann::json::parse(json.out);
  CHECK(read.at("ways").size() == 4);
  CHECK(read.at("layout") == "4");
  const std::string trace = (troupe_program::folder() / "experts.goal").string();
  CHECK(run("experts --layers 1 --only parts --goal '" + trace + "'").code == 0);
  const auto replayed = run("replay '" + trace + "' --json -");
  CHECK(replayed.code == 0);
  CHECK(nlohmann::json::parse(replayed.out).at("end_ps") > 0);
  for (const auto& [arguments, why] :
       {std::pair{"--only none", "there are plain, bytes, parts, all"}, std::pair{"--goal x.goal", "say --only"},
        std::pair{"--compute soon", "\"soon\" is no time"}, std::pair{"--experts 7", "7 experts for 8 ranks"},
        std::pair{"--top-k 0", "--top-k"}}) {
    const auto o = run(std::string{"experts "} + arguments);
    CHECK(o.code == 2);
    CHECK_MESSAGE(has(o.err, why), o.err);
  }
}

TEST_CASE("troupe experts: the page has the profile and the heat map of two ways, the JSON the profile of all") {
  expert_layers m = small_model("2x2");
  const expert_study made = run_experts(study_on("[study]\npreset = \"flat\"\nranks = 4"), m, 2, {}, {});
  for (const expert_row& row : made.rows) {
    const double share = row.iteration.profile.share_of_exchange();
    CHECK(share == doctest::Approx(1 - row.computing).epsilon(1e-3));
  }
  const std::string page = experts_page(made);
  const auto times = [&page](const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = page.find(what); at != page.npos; at = page.find(what, at + 1)) ++n;
    return n;
  };
  CHECK(times("\"experts\":{\"dispatches\":3,") == 2);
  CHECK(times("\"heat_map\":\"\\u003csvg ") == 2);
  CHECK(times("\"title\":\"Experts, plain: ") == 1);
  CHECK(experts_json(made).find("\"profile\"") != std::string::npos);
  const expert_study one = run_experts(study_on("[study]\npreset = \"flat\"\nranks = 4"), m, 1, {"plain"}, {});
  CHECK(experts_page(one).find("\"runs\":[") == std::string::npos);
}
