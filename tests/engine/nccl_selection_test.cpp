// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/nccl_selection.hpp"

#include "engine/config/configuration.hpp"
#include "engine/planning/planner.hpp"
#include "engine/tools/explain.hpp"
#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"
#include "tests/engine/program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

using namespace troupe;

namespace {

using enum nccl_algorithm;
constexpr auto by_ll = message_protocol::ll, by_ll128 = message_protocol::ll128, by_simple = message_protocol::simple;

const nccl_row& row_of(const nccl_choice& c, nccl_algorithm a, message_protocol how) {
  const auto at =
      std::find_if(c.rows.begin(), c.rows.end(), [&](const nccl_row& r) { return r.algorithm == a && r.how == how; });
  REQUIRE(at != c.rows.end());
  return *at;
}

nccl_case on(const char* places, collective what, std::uint64_t bytes, nccl_version version = nccl_version::v2_19) {
  nccl_case c;
  c.places = layout::parse(places);
  c.what = what;
  c.bytes = bytes;
  c.machine.version = version;
  return c;
}

/// As a log prints it: one digit behind the point.
bool prints(double value, double printed) { return std::abs(value - printed) <= 0.0501; }

}  // namespace

TEST_CASE("nccl tuning model: the table and the choices that NCCL 2.29.7 printed on two servers with sockets") {
  // Two processes that take each other for servers of one card each: four coll channels, rings of 2.4 GB/s in all, trees of twice that.
  const auto printed = [](collective what, std::uint64_t bytes) {
    nccl_case c = on("2x1", what, bytes, nccl_version::v2_23);
    c.machine.nvlink = c.machine.ll128 = false;
    c.machine.channels = 2;
    c.machine.inside = c.machine.between = 1.2;
    c.tree = nccl_graph{2, 2.4, 2.4, true};
    return select_as_nccl(c);
  };
  struct cell {
    collective what;
    nccl_algorithm algorithm;
    message_protocol how;
    double latency, bandwidth;
  };
  const cell cells[] = {
      {collective::broadcast, ring, by_ll, 9.3, 1.2},       {collective::broadcast, ring, by_simple, 22.4, 2.4},
      {collective::reduce, ring, by_ll, 9.3, 1.2},          {collective::reduce, ring, by_simple, 22.4, 2.4},
      {collective::all_gather, ring, by_ll, 11.6, 2.4},     {collective::all_gather, ring, by_simple, 22.4, 4.8},
      {collective::reduce_scatter, ring, by_ll, 11.6, 2.4}, {collective::reduce_scatter, ring, by_simple, 22.4, 4.8},
      {collective::all_reduce, tree, by_ll, 16.8, 0.5},     {collective::all_reduce, tree, by_simple, 36.4, 1.9},
      {collective::all_reduce, ring, by_ll, 16.6, 1.2},     {collective::all_reduce, ring, by_simple, 36.4, 2.4},
  };
  for (const cell& each : cells) {
    CAPTURE(name(each.what));
    CAPTURE(name(each.algorithm));
    const nccl_choice c = printed(each.what, 1024);
    CHECK(prints(row_of(c, each.algorithm, each.how).latency_us, each.latency));
    CHECK(prints(row_of(c, each.algorithm, each.how).bandwidth, each.bandwidth));
    CHECK(row_of(c, ring, by_ll128).why_not.find("NVLink") != std::string::npos);
  }
  // Of PAT the latency; its bandwidth is .75 of the tree's in 2.29, and .85 in 2.23.
  CHECK(prints(row_of(printed(collective::all_gather, 1024), pat, by_simple).latency_us, 17.6));
  CHECK(prints(row_of(printed(collective::all_gather, 1024), pat, by_simple).bandwidth, 4.8 * .85));
  // "Broadcast: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}", "32768 Bytes -> Algo RING proto SIMPLE".
  for (const std::uint64_t bytes : {1024u, 2048u, 4096u, 8192u, 16384u})
    CHECK(printed(collective::broadcast, bytes).taken()->how == by_ll);
  for (std::uint64_t bytes = 32768; bytes <= 134217728; bytes *= 2)
    CHECK(printed(collective::broadcast, bytes).taken()->how == by_simple);
  CHECK(printed(collective::broadcast, 16384).taken()->channels == 2);
  CHECK(printed(collective::broadcast, 8192).taken()->channels == 1);
}

TEST_CASE("nccl tuning model: formulas of 2.19 by hand") {
  // Eight H100, 12 channels of 30 GB/s. Ring: 14 steps.
  nccl_choice c = select_as_nccl(on("1x8", collective::all_reduce, 1 << 20));
  CHECK(row_of(c, ring, by_ll).latency_us == doctest::Approx(6.6 + 14 * 0.6));
  CHECK(row_of(c, ring, by_ll).bandwidth == doctest::Approx(87.7 * 8 / 14));
  CHECK(row_of(c, ring, by_ll128).latency_us == doctest::Approx(14 + 14 * 1.9));
  CHECK(row_of(c, ring, by_ll128).bandwidth == doctest::Approx(360 * .92 * 8 / 14));
  CHECK(row_of(c, ring, by_simple).us == doctest::Approx(8.4 + 14 * 3.4 + (1 << 20) / (1000 * 360.0 * 8 / 14)));
  CHECK(row_of(c, tree, by_simple).latency_us == doctest::Approx(2 * 7 * 28));
  // Corrected by .5 for 1 MiB.
  CHECK(row_of(c, tree, by_simple).us == doctest::Approx(2 * 7 * 28 + (1 << 20) / (1000 * .5 * 360 * .92 * .5)));
  CHECK(row_of(c, tree, by_ll128).bandwidth == doctest::Approx(360 * .92 * 7 / 9 * .5));
  // Two servers: 30 steps, four of them between servers; the network is posted to in every one; the plateau from 64 bytes a piece on.
  c = select_as_nccl(on("2x8", collective::all_reduce, 1 << 20));
  CHECK(row_of(c, ring, by_ll).latency_us == doctest::Approx(6.6 + 26 * 1.0 + 4 * 2.7));
  CHECK(row_of(c, ring, by_simple).latency_us == doctest::Approx(8.4 + 26 * 3.4 + 4 * 14));
  CHECK(row_of(c, ring, by_simple).us ==
        doctest::Approx((8.4 + 26 * 3.4 + 4 * 14) * 1.4 + (1 << 20) / (1000 * 360.0 * 16 / 30)));
  CHECK(row_of(c, tree, by_ll).latency_us == doctest::Approx(6.8 + 2 * (7 * .6 + 1 * 5.0)));
  CHECK(row_of(select_as_nccl(on("2x8", collective::all_reduce, 24576 - 512)), ring, by_simple).us ==
        doctest::Approx(152.8 + (24576 - 512) / (1000 * 360.0 * 16 / 30)));
  // From three servers on rings and trees have what there is between them.
  nccl_case slow = on("4x8", collective::all_gather, 1 << 20);
  slow.machine.between = 5;
  CHECK(row_of(select_as_nccl(slow), ring, by_simple).bandwidth == doctest::Approx(60.0 * 32 / 31));
  slow.places = layout::grid(2, 8);
  CHECK(row_of(select_as_nccl(slow), ring, by_simple).bandwidth == doctest::Approx(360.0 * 16 / 15));
  // A switch that reduces: NVLS on one server, with a network that does, too, on several.
  nccl_case nvls_on = on("1x8", collective::all_reduce, 64 << 20);
  nvls_on.machine.nvls = true;
  CHECK(row_of(select_as_nccl(nvls_on), nvls, by_simple).bandwidth == doctest::Approx(360 * 5. / 6));
  CHECK(row_of(select_as_nccl(nvls_on), nvls, by_simple).latency_us == doctest::Approx(23));
  CHECK(select_as_nccl(nvls_on).taken()->algorithm == nvls);
  nvls_on.op = op_kind::max;
  CHECK_FALSE(row_of(select_as_nccl(nvls_on), nvls, by_simple).why_not.empty());
  nvls_on.op = op_kind::sum;
  nvls_on.places = layout::grid(4, 8);
  CHECK(row_of(select_as_nccl(nvls_on), nvls_tree, by_simple).latency_us == doctest::Approx(23 + 2 * 2 * 14));
  CHECK(row_of(select_as_nccl(nvls_on), nvls, by_simple).why_not.find("collnet") != std::string::npos);
  nvls_on.machine.collnet = true;
  CHECK(row_of(select_as_nccl(nvls_on), nvls, by_simple).latency_us == doctest::Approx(23 + 18));
  CHECK(row_of(select_as_nccl(nvls_on), collnet_direct, by_simple).latency_us ==
        doctest::Approx(2 * (3.7 + 7 * .4) + 31));
  CHECK(row_of(select_as_nccl(nvls_on), collnet_chain, by_simple).latency_us == doctest::Approx(2 * 7 * 2.8 + 30));
}

TEST_CASE("nccl tuning model: channels, and what NCCL does not choose for") {
  // Every channel's threads have something to do: 512 threads of 64 bytes each with Simple.
  const auto channels = [](std::uint64_t bytes, message_protocol how) {
    return row_of(select_as_nccl(on("1x8", collective::all_reduce, bytes)), ring, how).channels;
  };
  CHECK(channels(1, by_simple) == 1);
  CHECK(channels(3 * 32768 - 1, by_simple) == 2);
  CHECK(channels(3 * 32768, by_simple) == 3);
  CHECK(channels(1 << 30, by_simple) == 24);
  CHECK(channels(2 * 32768, by_ll) == 2);  // 8 bytes for each of eight ranks
  CHECK(channels(2 * 5120, by_ll128) == 2);
  // Between servers Simple fills the NIC's FIFO of 512 KiB in each, or takes fewer; LL and LL128 do not mind.
  const auto between = [](std::uint64_t bytes, message_protocol how) {
    return row_of(select_as_nccl(on("4x4", collective::all_reduce, bytes)), ring, how);
  };
  CHECK(between(1 << 20, by_simple).channels == 2);
  CHECK(between(1 << 20, by_simple).why_channels == "512K for each fill the NIC's FIFO");
  CHECK(between((1 << 20) - 1, by_simple).channels == 1);
  CHECK(between(11 << 20, by_simple).channels == 22);
  CHECK(between(12 << 20, by_simple).channels == 24);
  CHECK(between(12 << 20, by_simple).why_channels == "there is enough for all");
  CHECK(between(1 << 20, by_ll).channels == 16);
  CHECK(between(1 << 20, by_ll128).channels == 24);
  CHECK(select_as_nccl(on("1x8", collective::all_to_all, 1)).rows.empty());
  CHECK(select_as_nccl(on("1x1", collective::all_reduce, 1)).taken()->algorithm == ring);
}

namespace {

struct nccl_leaf {
  collective what;
  const char* places;
  std::uint64_t bytes;
  nccl_algorithm algorithm;
  message_protocol how;
  const char* performed;  ///< by
  void (*also)(nccl_options&) = [](nccl_options&) {};
};

}  // namespace

TEST_CASE("planner nccl: every leaf that somebody performs is reached, and the table says how") {
  const auto newer = [](nccl_options& o) { o.version = nccl_version::v2_23; };
  const nccl_leaf leaves[] = {
      {collective::all_reduce, "8", 4096, ring, by_ll, "ring"},
      {collective::all_reduce, "1x8", 8 << 20, ring, by_ll128, "ring"},
      {collective::all_reduce, "1x8", 256 << 20, ring, by_simple, "ring"},
      {collective::all_reduce, "4x4", 4096, tree, by_ll, "chained_double_tree"},
      {collective::all_reduce, "4x4", 1 << 20, tree, by_ll128, "chained_double_tree"},
      {collective::all_reduce, "4x4", 1 << 20, tree, by_simple, "chained_double_tree",
       [](nccl_options& o) { o.version = nccl_version::v2_23, o.ll128 = false; }},
      {collective::all_reduce, "8x1", 4096, tree, by_ll, "double_binary_tree"},
      {collective::all_gather, "8", 4096, ring, by_ll, "ring"},
      {collective::all_gather, "1x8", 256 << 20, ring, by_simple, "ring"},
      {collective::reduce_scatter, "2x4", 1 << 20, ring, by_ll128, "ring"},
      {collective::all_gather, "16x1", 1 << 20, pat, by_simple, "pat", newer},
      {collective::reduce_scatter, "16x1", 1 << 20, pat, by_simple, "pat", newer},
      {collective::broadcast, "8", 1024, ring, by_ll, "ring"},
      {collective::reduce, "1x8", 256 << 20, ring, by_simple, "ring"},
  };
  for (const nccl_leaf& each : leaves) {
    CAPTURE(each.places);
    CAPTURE(each.bytes);
    CAPTURE(each.performed);
    CAPTURE(name(each.what));
    engine_options o;
    o.planner = "nccl";
    o.tuning = "none";
    each.also(o.nccl);
    nccl_case asked = on(each.places, each.what, each.bytes);
    asked.machine = o.nccl;
    const nccl_row expected = *select_as_nccl(asked).taken();
    CHECK(expected.algorithm == each.algorithm);
    CHECK(expected.how == each.how);
    call what;
    what.what = each.what;
    what.type = datatype::f32;
    const std::size_t blocks =
        block_count(each.what, asked.places.size()) == 1 ? 1 : static_cast<std::size_t>(asked.places.size());
    what.count = each.bytes / sizeof(float) / blocks;
    planner p{o};
    const auto made = p.plan_for(what, asked.places);
    CHECK(made->choreography == each.performed);
    // Over slots where they can be: small, and in one process.
    const bool small = each.bytes <= 4096 && asked.places.is_flat();
    if (small) CHECK(made->protocol() == each.how);
    if (each.how == by_simple) CHECK((made->protocol() == by_simple || made->protocol() == message_protocol::direct));
    if (made->protocol() == by_simple && each.how == by_simple && each.algorithm == ring)
      CHECK(made->cut().channels == expected.channels);
    const auto path = p.path(what, asked.places);
    const std::string told = to_text(explain(p, what, asked.places));
    CHECK(told.find("NCCL's tuning model:") != std::string::npos);
    CHECK(told.find(std::string{name(each.algorithm)} + ' ' + std::string{name(each.how)} + ", performed by " +
                    each.performed) != std::string::npos);
    CHECK(std::count_if(path.begin(), path.end(), [](const std::string& line) { return line.starts_with("not "); }) >=
          5);
  }
}

TEST_CASE("planner nccl: where LL cannot be, there are as many channels as NCCL gives Simple") {
  struct refused {
    collective what;
    nccl_algorithm algorithm;
    message_protocol how;  ///< needs memory that ranks share, which those of different servers do not
    int channels;          ///< in place of more
  };
  for (const refused& each :
       {refused{collective::all_gather, ring, by_ll, 2}, refused{collective::all_reduce, tree, by_ll128, 1}}) {
    CAPTURE(name(each.what));
    engine_options o;
    o.planner = "nccl";
    o.tuning = "none";
    o.nccl.ll128 = each.how == by_ll128;
    nccl_case asked = on("4x4", each.what, 1 << 20);
    asked.machine = o.nccl;
    const nccl_choice chosen = select_as_nccl(asked);
    REQUIRE(chosen.taken()->algorithm == each.algorithm);
    REQUIRE(chosen.taken()->how == each.how);
    CHECK(chosen.taken()->channels > 2);
    call what;
    what.what = each.what;
    what.type = datatype::f32;
    what.count = (1 << 20) / sizeof(float) / static_cast<std::size_t>(block_count(each.what, 16));
    planner p{o};
    const auto made = p.plan_for(what, asked.places);
    CHECK(made->protocol() == by_simple);
    CHECK(made->cut().channels == each.channels);
    const auto path = p.path(what, asked.places);
    CHECK(std::ranges::any_of(path, [](const std::string& line) {
      return line.starts_with("if by simple: 2 of 24 channels, 512K for each fill the NIC's FIFO");
    }));
  }
}

TEST_CASE("planner nccl: an engine's routes take the channels of one ring or pair of trees to all NIC ports") {
  engine_options o;
  o.planner = "nccl";
  o.tuning = "none";
  const layout places = layout::grid(4, 4);
  for (const int ports : {1, 4}) {
    o.nic_ports = ports;
    planner p{o};
    call what;
    what.type = datatype::f32;
    what.what = collective::all_gather;
    what.count = (16 << 20) / sizeof(float) / 16;
    CHECK(p.plan_for(what, places)->choreography == "ring");
    CHECK(p.plan_for(what, places)->cut().channels == 24);
    CHECK(std::ranges::any_of(p.path(what, places),
                              [](const std::string& line) { return line.ends_with(", performed by ring"); }));
    what.what = collective::all_reduce;
    what.count = (16 << 20) / sizeof(float);
    CHECK(p.plan_for(what, places)->choreography == "chained_double_tree");
    CHECK(p.plan_for(what, places)->cut().channels == 12);
  }
}

TEST_CASE("planner nccl: an engine performs what is taken, over as many channels as NCCL would have") {
  const std::string bench = "bench --collective all_gather,all_reduce -b 16M -e 16M -n 1 -w 1 --set planner=nccl ";
  for (const std::string_view ranks :
       {"-t 8 --set layout=4x2", "-t 8 --set layout=4x2 --set nccl.channels=16", "-t 4 --processes 2"}) {
    CAPTURE(ranks);
    const auto ran = troupe_program::run(bench + std::string{ranks});
    CAPTURE(ran.err);
    CHECK(ran.code == 0);
  }
}

TEST_CASE("planner nccl: an all_to_all with blocks of any size is a group of sends and receives") {
  engine_options o;
  o.planner = "nccl";
  o.tuning = "none";
  planner p{o};
  call what;
  what.what = collective::all_to_all;
  what.type = datatype::f32;
  what.uniform = false;
  std::vector<std::size_t> counts(64);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = i % 7 * 1000;
  const layout places = layout::grid(2, 4);
  CHECK(p.plan_for(what, places, &counts)->choreography == "grouped");
  CHECK(p.path(what, places, &counts).back() ==
        "NCCL has no all_to_all_v, but groups of sends and receives, performed by grouped");
  what.what = collective::all_gather;
  counts.resize(8);
  CHECK(p.path(what, places, &counts).back() == "NCCL has no choice for all_gather_v; the cost model chooses");
}

TEST_CASE("planner nccl: what nobody performs is skipped, and what NCCL has no choice for is the cost model's") {
  engine_options o;
  o.planner = "nccl";
  o.tuning = "none";
  o.nccl.nvls = o.nccl.collnet = true;
  call what;
  what.what = collective::all_reduce;
  what.type = datatype::f32;
  what.count = 16 << 20;
  const auto has = [](const std::vector<std::string>& path, const std::string& wanted) {
    return std::any_of(path.begin(), path.end(),
                       [&](const std::string& line) { return line.find(wanted) != std::string::npos; });
  };
  planner p{o};
  CHECK(has(p.path(what, layout::grid(1, 8)),
            "NVLS simple is skipped: nvls: it lets the switch inside a server reduce, and no server"));
  CHECK(p.plan_for(what, layout::grid(1, 8))->choreography == "ring");
  CHECK(has(p.path(what, layout::parse("1x8:inside")), "NVLS simple, performed by nvls"));
  CHECK(p.plan_for(what, layout::parse("1x8:inside"))->choreography == "nvls");
  // Which of those of several servers is the fastest is the model's; each that it takes is performed.
  for (const char* servers : {"2x8:both", "4x8:both", "16x8:both"}) {
    const layout places = layout::parse(servers);
    const std::string taken = p.plan_for(what, places)->choreography;
    CAPTURE(taken);
    CHECK((taken == "nvls" || taken == "nvls_tree" || taken == "collnet_direct" || taken == "collnet_chain"));
    CHECK(has(p.path(what, places), "performed by " + taken));
  }
  // Chains of all cards of one server have no choreography.
  engine_options older = o;
  older.nccl.device = nccl_device::volta;
  what.count = 160 << 10;
  planner chains{older};
  CHECK(has(chains.path(what, layout::grid(1, 8)), "Tree ll128 is skipped: chained_double_tree: on one server"));
  CHECK(has(chains.path(what, layout::grid(1, 8)), "Ring ll, performed by ring"));
  CHECK(chains.plan_for(what, layout::grid(1, 8))->choreography == "ring");
  engine_options excluding = o;
  excluding.choreography = "^ring";
  planner without{excluding};
  CHECK(has(without.path(what, layout::grid(1, 8)), "excluded by the options"));
  CHECK(without.path(what, layout::grid(1, 8)).back() == "nobody is left; the cost model chooses");
  CHECK(without.plan_for(what, layout::grid(1, 8))->choreography != "ring");
  engine_options named = o;
  named.choreography = "ring";
  CHECK(planner{named}.path(what, layout::grid(1, 8)).empty());
  what.what = collective::all_to_all;
  CHECK(p.path(what, layout::grid(1, 8)).front().find("performed by grouped") != std::string::npos);
  CHECK(p.plan_for(what, layout::grid(2, 4))->choreography == "grouped");
  what.what = collective::gather;
  CHECK(p.path(what, layout::grid(1, 8)).front().find("NCCL has no choice for gather") != std::string::npos);
  CHECK(p.plan_for(what, layout::grid(1, 8)));
}

TEST_CASE("planner nccl: its keys, and what is wrong with them") {
  configuration c;
  c.add_text("[engine]\nplanner = \"nccl\"\n[engine.nccl]\nversion = \"2.23\"\ndevice = \"ampere\"\nhost = \"amd\"\n"
             "nvlink = false\nll128 = false\nchannels = 2\ninside = 1.5\nbetween = 2\nnvls = true\ncollnet = true\n",
             "a.toml");
  const engine_options read = c.engine();
  CHECK(read.planner == "nccl");
  CHECK(read.nccl ==
        nccl_options{nccl_version::v2_23, nccl_device::ampere, nccl_host::amd, false, false, 2, 1.5, 2, true, true});
  for (const char* wrong :
       {"version = \"2.20\"", "device = \"kepler\"", "channels = 0", "channels = 33", "inside = 0", "between = -1"}) {
    CAPTURE(wrong);
    configuration bad;
    CHECK_THROWS_WITH_AS((bad.add_text("[engine.nccl]\n" + std::string{wrong} + "\n", "a.toml"), bad.engine()),
                         doctest::Contains("a.toml:2"), error);
  }
  engine_options odd;
  odd.nccl.channels = 0;
  CHECK_THROWS_WITH_AS(planner{odd}, doctest::Contains("channels must be 1"), error);
}

// -- in a study -----------------------------------------------------------------------------------------------------------

namespace {

study_result studied(const std::string& what, const std::string& besides = "", bool record = false,
                     const std::string& machine = "preset = \"dgx_h100\"\nlayout = \"2x8\"\n") {
  configuration c;
  c.add_text("[study]\nchoreography = \"nccl\"\nsizes = [\"8\", \"64K\", \"4M\", \"64M\"]\ncollective = \"" + what +
                 "\"\n" + machine + besides,
             "nccl.toml");
  study_run_options o;
  if (record) o.record = study_run_options::recorded::all;
  return run_study(read_study(c), o);
}

bool says(const study_result& r, const std::string& text) {
  return std::ranges::any_of(r.remarks, [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("a study performs at every size what NCCL's model takes, by its protocol and over its channels") {
  int protocols_seen = 0;
  for (const collective what : {collective::all_reduce, collective::all_gather, collective::reduce_scatter,
                                collective::broadcast, collective::reduce}) {
    CAPTURE(name(what));
    const study_result r = studied(std::string{name(what)});
    std::string before;
    for (const study_row& row : r.rows) {
      CAPTURE(row.bytes);
      const nccl_choice chosen = select_as_nccl(on("2x8", what, row.bytes));
      const auto taken =
          std::ranges::find_if(chosen.order, [&](std::size_t i) { return !chosen.rows[i].choreography.empty(); });
      REQUIRE(taken != chosen.order.end());
      const nccl_row& best = chosen.rows[*taken];
      const nccl_performance performed = performance_of(best, layout::grid(2, 8), 8);  // a NIC for each card
      CHECK(row.choreography == performed.choreography);
      CHECK(row.protocol == name(best.how));
      CHECK(row.cut.channels == std::max(1, performed.channels));
      protocols_seen += row.protocol != before;
      before = row.protocol;
    }
  }
  CHECK(protocols_seen > 5);  // they do change with the size
}

TEST_CASE("NCCL's channels are rings, or pairs of trees, of as many NICs, and then channels of these") {
  const auto of = [](nccl_algorithm algorithm, int channels, const char* places, int nics) {
    nccl_row row;
    row.algorithm = algorithm;
    row.choreography = algorithm == tree ? "chained_double_tree" : "ring";
    row.channels = channels;
    const nccl_performance p = performance_of(row, layout::parse(places), nics);
    return p.choreography + ' ' + std::to_string(p.nics) + ' ' + std::to_string(p.channels);
  };
  CHECK(of(ring, 24, "2x8", 8) == "ring_per_nic 8 3");
  CHECK(of(ring, 12, "2x8", 8) == "ring_per_nic 8 2");  // as near as can be
  CHECK(of(ring, 5, "2x8", 8) == "ring_per_nic 5 1");
  CHECK(of(ring, 1, "2x8", 8) == "ring 0 1");
  CHECK(of(ring, 24, "2x8", 1) == "ring 0 24");
  CHECK(of(ring, 24, "1x8", 8) == "ring 0 24");
  CHECK(of(ring, 24, "16x1", 8) == "ring 0 24");
  CHECK(of(ring, 24, "2x4", 8) == "ring_per_nic 4 6");
  CHECK(of(ring, 24, "2+14", 8) == "ring_per_nic 2 12");  // the smallest server has as many
  CHECK(of(tree, 24, "1+15", 8) == "chained_double_tree 0 12");
  CHECK(of(tree, 24, "2x8", 8) == "tree_per_nic 8 2");
  CHECK(of(tree, 8, "2x8", 8) == "tree_per_nic 4 1");
  CHECK(of(tree, 2, "2x8", 8) == "chained_double_tree 0 1");
  CHECK(of(nccl_algorithm::nvls, 0, "2x8", 8) == "ring 0 0");
}

namespace {

/// A machine of sixteen ranks on two servers, the first of which has `first`; so many neighbours share a NIC.
std::string two_servers(const std::string& layout, int first, int sharing) {
  const std::string f = std::to_string(first);
  const auto nic = [&](const std::string& r) {
    return "nic {" + r + " >= " + f + "}.{(" + r + " - " + f + " * (" + r + " >= " + f + ")) / " +
           std::to_string(sharing) + "}";
  };
  return troupe_program::write("two_servers.toml", R"(name = "two_servers"
about = "of a test"
ranks = "16"
layout = ")" + layout + R"("
protocols = "gpu"
[class.wire]
bandwidth = "450GB/s"
source = "of a test"
[class.nic]
role = "nic"
bandwidth = "50GB/s"
source = "of a test"
[[element]]
for = { s = "2", n = "16" }
class = "nic"
name = "nic {s}.{n} out"
pair = "nic {s}.{n} in"
[[element]]
for = { r = "16" }
class = "wire"
name = "wire {r} up"
pair = "wire {r} down"
rank = "r"
[[route]]
when = "(from >= )" + f + ") != (to >= " + f + R"x()"
via = [")x" + nic("from") + " out\", \"" + nic("to") + R"( in"]
[[route]]
via = ["wire {from} up", "wire {to} down"]
)");
}

/// The NICs, in or out, by which a score's messages go.
std::size_t nics_at_work(const study_row& row, const hardware& on) {
  std::set<element_index> nics;
  std::vector<element_index> way;
  for (rank_t r = 0; r < row.notes->ranks; ++r)
    for (const lane& l : row.notes->players[static_cast<std::size_t>(r)].lanes)
      for (const step& at : l) {
        if (!sends(at.kind)) continue;
        way.clear();
        on.route(r, at.to, 0, way);
        for (const element_index e : way)
          if (on.class_of(e).role == element_role::nic) nics.insert(e);
      }
  return nics.size();
}

}  // namespace

TEST_CASE("a study as NCCL has all NICs of its servers at work, also those that neighbours share") {
  for (const std::string what : {"all_reduce", "all_gather"})
    for (const int sharing : {1, 2, 4}) {
      CAPTURE(what);
      CAPTURE(sharing);
      const std::string machine = "preset = \"" + two_servers("2x8", 8, sharing) + "\"\n";
      const study_result r = studied(what, "", true, machine);
      CHECK(says(r, "over " + std::to_string(8 / sharing) + " NICs of a server"));
      for (const study_row& row : r.rows) {
        CAPTURE(row.choreography);
        if (!row.choreography.ends_with("_per_nic")) continue;
        const std::size_t lanes = row.choreography == "tree_per_nic" ? 4 : 1;
        CHECK(nics_at_work(row, *r.on) == 2 * 2 * row.notes->players.front().lanes.size() / lanes);
      }
      CHECK(nics_at_work(r.rows.back(), *r.on) == static_cast<std::size_t>(2 * 2 * 8 / sharing));
      CHECK(r.rows.back().cut.channels == 24 * sharing / 8);
    }
}

TEST_CASE("a study as NCCL of servers of different sizes has the channels that the smallest one's NICs leave") {
  const study_result r = studied("all_gather", "", true, "preset = \"" + two_servers("2+14", 2, 1) + "\"\n");
  CHECK(r.rows.back().choreography == "ring_per_nic");
  CHECK(nics_at_work(r.rows.back(), *r.on) == 2 * 2 * 2);
  CHECK(r.rows.back().cut.channels == 12);
}

TEST_CASE("a study as NCCL has one ring where routes take its channels to all NIC ports by themselves") {
  const study_result r =
      studied("all_gather", "", false, "preset = \"machine\"\nlayout = \"4x4\"\nstructure.nic_ports = 4\n");
  CHECK(r.rows.back().choreography == "ring");
  CHECK(r.rows.back().cut.channels == 24);
}

TEST_CASE("a study that NCCL chooses for is recorded as it was performed, size by size") {
  const study_result plain = studied("all_reduce"), recorded = studied("all_reduce", "", true);
  REQUIRE(plain.rows.size() == recorded.rows.size());
  for (std::size_t i = 0; i < plain.rows.size(); ++i) {
    CHECK(plain.rows[i].time_us == recorded.rows[i].time_us);
    CHECK(plain.rows[i].protocol == recorded.rows[i].protocol);
    CHECK(plain.rows[i].cut.channels == recorded.rows[i].cut.channels);
    CHECK(recorded.rows[i].recording != nullptr);
  }
}

TEST_CASE(
    "what a study says of protocol and channels is stronger than NCCL's choice; what nobody performs is skipped") {
  const study_result r = studied("all_reduce", "protocol = \"simple\"\nchannels = 3\n");
  for (const study_row& row : r.rows) {
    CHECK(row.protocol == "simple");
    CHECK(row.cut.channels == 3);
  }
  CHECK(studied("all_to_all").rows.front().choreography == "grouped");
  const std::string nvls = "[study.nccl]\nnvls = true\n";
  const study_result reducing = studied("all_reduce", nvls);
  CHECK(reducing.rows.back().choreography == "nvls_tree");
  CHECK(reducing.rows[1].choreography == "tree_per_nic");
  // Not the channels of the size before: NCCL's are not modelled there.
  configuration both;
  both.add_text(
      "[study]\nchoreography = \"nccl\"\nsizes = [\"256K\", \"64M\"]\npreset = \"dgx_h100\"\nlayout = \"2x8\"\n" + nvls,
      "nccl.toml");
  const study_result changing = run_study(read_study(both));
  CHECK(changing.rows.front().cut.channels > 1);
  CHECK(changing.rows.back().choreography == "nvls_tree");
  CHECK(changing.rows.back().cut.channels == 1);
  CHECK(reducing.rows.back().cut.channels == 1);
  const study_result none = studied("all_reduce", nvls, false, "ranks = 16\n");  // of `flat`
  CHECK(says(none, "nccl: 64M: NVLS simple is skipped: nvls: it lets the switch inside a server reduce"));
  CHECK(none.rows.back().choreography == "ring");
}

TEST_CASE("NCCL: rings of Simple have two slices a chunk, each of two slots; nobody else has") {
  for (const collective what : {collective::all_reduce, collective::all_gather, collective::reduce_scatter,
                                collective::broadcast, collective::reduce}) {
    CAPTURE(name(what));
    const bool rooted = what == collective::broadcast || what == collective::reduce;
    for (const nccl_row& row : select_as_nccl(on("2x8", what, 64 << 20)).rows) {
      const bool two = row.algorithm == nccl_algorithm::ring && row.how == message_protocol::simple && !rooted;
      CHECK(row.slices == (two && row.why_not.empty() ? 2 : 1));
      CHECK(row.slots == row.slices);
    }
  }
}

TEST_CASE("a study that NCCL chooses for performs rings of Simple in two slices a step, unless it says otherwise") {
  const std::string simple = "protocol = \"simple\"\nchannels = 2\n";
  const auto ring = [&](const std::string& size, const std::string& more) {
    configuration c;
    c.add_text("[study]\nchoreography = \"nccl\"\npreset = \"dgx_h100\"\nlayout = \"2x8\"\nsizes = \"" + size + "\"\n" +
                   simple + more,
               "nccl.toml");
    const study_row row = run_study(read_study(c)).rows.front();
    REQUIRE(row.choreography == "ring");
    return row;
  };
  // A cell has a 32nd of it: 16 ranks, two channels.
  CHECK(ring("1M", "[study.nccl]\ninside = 300\nbetween = 300\n").cut == cutting{2, 1, 1});  // 32 KiB are one slice
  CHECK(ring("2M", "[study.nccl]\ninside = 300\nbetween = 300\n").cut == cutting{2, 2, 2});
  CHECK(ring("64M", "").cut == cutting{2, 2, 2});   // 2 MiB: four slots
  CHECK(ring("128M", "").cut == cutting{2, 4, 2});  // two chunks
  CHECK(ring("64M", "slices_per_step = 1\n").cut == cutting{2, 2, 1});
  const std::string fast = "[study.nccl]\ninside = 300\nbetween = 300\n";
  const study_row two = ring("2M", fast), one = ring("2M", "slices = 2\nslices_per_step = 1\n" + fast);
  CHECK(one.cut == cutting{2, 2, 1});
  CHECK(two.time_us < one.time_us);
  CHECK(ring("64M", "chunk_bytes = \"512K\"\n").cut == cutting{2, 4, 2});
  CHECK(ring("64M", "slices = 6\n").cut == cutting{2, 6, 2});
  // The slots of a channel's buffer are eight, and four slices.
  CHECK(ring("256M", "credits = 4\n").time_us == ring("256M", "").time_us);
  // Broadcast and reduce take a slot at a time.
  configuration c;
  c.add_text("[study]\nchoreography = \"nccl\"\npreset = \"dgx_h100\"\nlayout = \"2x8\"\nsizes = \"64M\"\ncollective = "
             "\"broadcast\"\n" +
                 simple,
             "nccl.toml");
  CHECK(run_study(read_study(c)).rows.front().cut == cutting{2, 64, 1});
}
