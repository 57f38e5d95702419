// SPDX-License-Identifier: Apache-2.0
// Flows in virtual time: engine/tools/study/flow_study.hpp, and what of them is in actors/virtual (virtual_replay, virtual_parts).
#include <algorithm>

#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"
#include "tests/engine/program.hpp"
#include "tests/trace_curves.hpp"

namespace study_flow_test {

using namespace troupe;

namespace {

study_scenario scenario(const std::string& toml) {
  configuration c;
  c.add_text(toml, "flow.toml");
  return read_study(c);
}
study_result run(const std::string& toml) { return run_study(scenario(toml)); }
std::int64_t end_of(const std::string& toml) { return run(toml).rows.at(0).outcome.end_ps; }

void refused(const std::string& toml, const std::vector<std::string>& words) {
  try {
    run(toml);
    FAIL("accepted: " << toml);
  } catch (const error& why) {
    for (const std::string& w : words)
      CHECK_MESSAGE(std::string{why.what()}.find(w) != std::string::npos, std::string{why.what()});
  }
}

constexpr std::int64_t us = 1'000'000;
/// Tiles of 200 kB: a microsecond in a DMA engine (200 GB/s), two in a port of the bus (100 GB/s). A share has `tiles` of them.
std::string card(int tiles, int cores, const std::string& hardware = "", const std::string& more = "") {
  return "[study]\npreset = \"sunway_card\"\ntype = \"u8\"\nin_place = true\nsizes = [" +
         std::to_string(800'000 * tiles) + "]\n" + more +
         "[study.hardware]\nhost.launch = \"0\"\nhost.sync = \"0\"\nhost.transfer = \"0\"\nring_segment.latency = "
         "\"0\"\n" +
         hardware + "[study.flow]\ntile = 200000\ncores = " + std::to_string(cores) + "\n";
}
std::string node(const std::string& name, const std::string& kind, const std::string& from,
                 const std::string& rest = "") {
  return "[[study.node]]\nname = \"" + name + "\"\nkind = \"" + kind + "\"\n" +
         (from.empty() ? "" : "from = \"" + from + "\"\n") + rest;
}
const std::string x = node("x", "source", "");
const std::string in_l0 = "through = \"l0\"\n";
const std::string gathers = "through = \"l2\"\nexchange = \"all_gather\"\n";
const std::string sums = "through = \"l2\"\nexchange = \"reduce_scatter\"\n";
const std::string all_gather = "collective = \"all_gather\"\nchoreography = \"csc\"\n";
std::string parts(int count) { return "parts = " + std::to_string(count) + "\n"; }
const std::string beside = "begins = \"beside\"\n";
std::string takes(const std::string& time) { return "time = \"" + time + "\"\n"; }

}  // namespace

TEST_CASE("study, flow: an operator loads, works and stores; the next tile is loaded meanwhile") {
  const std::string a = node("a", "operator", "x", takes("10us")), b = node("b", "operator", "a", takes("5us"));
  // Load, work; nobody takes what it makes.
  CHECK(end_of(card(1, 1) + x + a) == 11 * us);
  // Stored for b, whose kernel then loads it.
  CHECK(end_of(card(1, 1) + x + a + b) == (1 + 10 + 1 + 1 + 5) * us);
  // Three tiles of a core: two loads are hidden behind the work before.
  CHECK(end_of(card(3, 1) + x + a) == (1 + 3 * 10) * us);
  // With room for one tile nothing is hidden.
  CHECK(end_of(card(3, 1) + "depth = 1\n" + x + a) == 3 * 11 * us);
  // On three cores the tiles are worked on at once, and loaded one after the other by the one DMA engine.
  CHECK(end_of(card(3, 3) + x + a) == (3 + 10) * us);
  // What stays in l0 is neither stored nor loaded.
  CHECK(end_of(card(1, 1) + x + a + node("b", "operator", "a", takes("5us") + in_l0)) == (1 + 10 + 5) * us);
  // A sink in l1 has it stored; other operands are loaded besides.
  CHECK(end_of(card(1, 1) + x + a + node("y", "sink", "a")) == 12 * us);
  CHECK(end_of(card(1, 1) + x + node("a", "operator", "x", takes("10us") + "loads = 400000\n")) == 13 * us);
}

TEST_CASE("study, flow: a kernel is launched when the one before it has ended, or beside it; loads cost a transfer") {
  const std::string launches = "host.launch = \"25us\"\n", a = node("a", "operator", "x", takes("10us") + in_l0),
                    b = node("b", "operator", "a", takes("5us"));
  const auto on = [&](const std::string& hardware) {
    std::string text = card(1, 1, hardware);
    return text.erase(text.find("host.launch = \"0\"\n"), std::string{"host.launch = \"0\"\n"}.size());
  };
  CHECK(end_of(on(launches) + x + a + b) == (25 + 10 + 1 + 25 + 1 + 5) * us);
  // The host launches one after the other.
  CHECK(end_of(on(launches) + x + a + node("b", "operator", "a", takes("5us") + beside)) == (2 * 25 + 1 + 5) * us);
  CHECK(end_of(on(launches) + x + a + node("b", "operator", "a", takes("5us") + in_l0)) == (25 + 10 + 5) * us);
  std::string slow = card(1, 1, "");
  slow.replace(slow.find("host.transfer = \"0\""), 19, "host.transfer = \"2us\"");
  CHECK(end_of(slow + x + node("a", "operator", "x", takes("10us"))) == (1 + 2 + 10) * us);
}

TEST_CASE("study, flow: through l2 nothing is read before it is there, and the own tile comes from l1") {
  const std::string a = node("a", "operator", "x", takes("10us") + in_l0);
  // To L1 and the own share of L2: 1 us in the engine each. Back the own tile, 1 us in the engine, and meanwhile three others', 2 us in the ports.
  const std::int64_t stored = (10 + 1 + 1) * us;
  CHECK(end_of(card(1, 1) + x + a + node("b", "operator", "a", gathers)) == stored + 3 * 2 * us);
  // A sync in between, which the own tile does not wait for.
  std::string synced = card(1, 1, "");
  synced.replace(synced.find("host.sync = \"0\""), 15, "host.sync = \"15us\"");
  // Two loads begin together then, for which there is room; a port that serves the later one first delays one of the others by a tile.
  CHECK(end_of(synced + x + a + node("b", "operator", "a", gathers)) == stored + 15 * us + (3 + 1) * 2 * us);
  // Kept in l1 besides, in the background; the last one ends it.
  CHECK(end_of(card(1, 1) + x + a + node("b", "operator", "a", gathers + "keeps = true\n")) ==
        stored + (3 * 2 + 1) * us);
  // With one sync a tile in one kernel the own tile is loaded while it is stored for others; and of several, tile 0 is gathered while tile 1
  // is made.
  const std::string fused = node("b", "operator", "a", gathers + "sync = \"tile\"\nkernel = \"a\"\n");
  CHECK(end_of(card(1, 1) + x + a + fused) == stored + 3 * 2 * us);
  CHECK(end_of(card(8, 1) + x + a + fused) < end_of(card(8, 1) + x + a + node("b", "operator", "a", gathers)));
}

TEST_CASE("study, flow: reduce_scatter through l2 sums everybody's tile of the own share") {
  const std::string y = node("y", "source", "", "holds = \"whole\"\n"),
                    gemm = node("gemm", "operator", "y", takes("10us") + in_l0);
  // Three tiles for others and the own one are made one after the other; each is stored while the next is made.
  const study_result r = run(card(1, 1) + y + gemm + node("dropout", "operator", "gemm", sums + takes("4us")));
  CHECK(r.rows[0].outcome.end_ps == (4 * 10 + 1 + 3 * 2 + 4) * us);
  const auto& uses = r.flow_rows[0].nodes;
  CHECK(uses[1].moved_bytes == 4 * 200'000);
  CHECK(uses[2].moved_bytes == 4 * 200'000);
  CHECK(uses[1].core_us == 40);
  CHECK(uses[2].begin_us == 41);
}

TEST_CASE("study, flow: an operator takes a tile of each of two streams") {
  const std::string a = node("a", "operator", "x", takes("10us"));
  // a: load, work, store. b's kernel loads both, one after the other, and works.
  CHECK(end_of(card(1, 1) + x + a + node("b", "operator", "a, x", takes("5us"))) == (1 + 10 + 1 + 2 + 5) * us);
  // What a made stays in l0, and x is loaded while a works: one kernel, in which nothing is stored.
  const std::string both = "through = \"l0, l1\"\n";
  CHECK(end_of(card(1, 1) + x + a + node("b", "operator", "a, x", takes("5us") + both)) == (1 + 10 + 5) * us);
  CHECK(run(card(1, 1) + x + a + node("b", "operator", "a,x", takes("5us") + both)).flow_rows[0].nodes[2].moved_bytes ==
        200'000);
  // A tile that two take in l0 keeps its room until the last is done with it: with room for one nothing is hidden.
  const std::string b = node("b", "operator", "a", takes("5us") + in_l0),
                    c = node("c", "operator", "b, a", takes("2us") + in_l0);
  CHECK(end_of(card(3, 1) + "depth = 1\n" + x + a + b + c) == 3 * (1 + 10 + 5 + 2) * us);
  CHECK(end_of(card(3, 1) + x + a + b + c) == (1 + 3 * (10 + 5 + 2)) * us);
  // A residual beside what is summed through l2: its own share, loaded meanwhile.
  const std::string y = node("y", "source", "", "holds = \"whole\"\n"),
                    gemm = node("gemm", "operator", "y", takes("10us") + in_l0);
  const std::string alone = card(1, 1) + y + x + gemm + node("drop", "operator", "gemm", sums + takes("4us"));
  const std::string added =
      card(1, 1) + y + x + gemm +
      node("drop", "operator", "gemm, x", "through = \"l2, l1\"\nexchange = \"reduce_scatter\"\n" + takes("4us"));
  CHECK(end_of(added) == end_of(alone));
  CHECK(run(added).flow_rows[0].nodes[3].moved_bytes == 5 * 200'000);
  // Named the other way round it is the same work.
  CHECK(end_of(card(1, 1) + x + a + node("b", "operator", "x, a", takes("5us"))) == (1 + 10 + 1 + 2 + 5) * us);
}

TEST_CASE("study, flow: its critical path leads from the begin to the end, without a gap") {
  study_run_options how;
  how.record = study_run_options::recorded::all;
  const auto path_of = [&](const std::string& toml) {
    const study_result r = run_study(scenario(toml), how);
    const auto& path = r.flow_rows.at(0).path;
    std::int64_t now = 0;
    for (const flow_stretch& s : path) {
      CHECK(s.begin_ps == now);
      CHECK(s.end_ps > s.begin_ps);
      now = s.end_ps;
    }
    CHECK(now == r.rows[0].outcome.end_ps);
    std::string text;
    for (const flow_stretch& s : path) text += std::string{name(s.spent)} + ": " + s.text + "\n";
    return text;
  };
  const std::string a = node("a", "operator", "x", takes("10us"));
  CHECK(path_of(card(1, 1) + x + a) ==
        "memory: rank 0: a loaded tile 0.0 from l1\ncompute: rank 0, core 0: a worked on tile 0.0\n");
  // Three tiles of one core: the loads are hidden.
  CHECK(path_of(card(3, 1) + x + a) ==
        "memory: rank 0: a loaded tile 0.0 from l1\ncompute: rank 0, core 0: a worked on 3 tiles\n");
  // On three cores the last tile is the third in the DMA engine's queue.
  CHECK(path_of(card(3, 3) + x + a) ==
        "queue: rank 0: a waited for elements, to load tile 0.2 from l1\nmemory: rank 0: a loaded tile 0.2 from "
        "l1\ncompute: rank 0, core 2: a worked on tile 0.2\n");
  std::string launched = card(1, 1, "");
  launched.replace(launched.find("host.launch = \"0\""), 17, "host.launch = \"25us\"");
  launched.replace(launched.find("host.sync = \"0\""), 15, "host.sync = \"15us\"");
  const std::string synced = path_of(launched + x + a + node("b", "operator", "a", gathers + takes("1us")));
  for (const char* part : {"launch: rank ", "the launch of a\n", "stored tile", "sync: all ranks met, for b\n",
                           "b loaded tile", "b worked on"})
    CHECK_MESSAGE(synced.find(part) != std::string::npos, synced);
  // A collective, whole and in parts: who came last, or said last that a part is ready.
  const std::string gather = node("gather", "collective", "a", all_gather),
                    b = node("b", "operator", "gather", takes("1us"));
  const std::string whole = path_of(card(4, 1) + x + a + gather + b);
  CHECK_MESSAGE(whole.find("collective: rank 0: gather\n") != std::string::npos, whole);
  const std::string parted = path_of(card(4, 1) + x + a + gather + parts(4) + beside + b + beside);
  CHECK_MESSAGE(parted.find(": gather\n") != std::string::npos, parted);
  CHECK_MESSAGE(parted.find("a worked on") != std::string::npos, parted);
}

TEST_CASE("study, flow: a collective takes as long as alone, and in one part as long as whole") {
  const std::string a = node("a", "operator", "x", takes("10us") + in_l0);
  const auto gather = [&](const std::string& rest) { return a + node("gather", "collective", "a", all_gather + rest); };
  const std::string load = node("b", "operator", "gather");
  std::string alone = card(4, 1);
  alone.insert(alone.find("[study.hardware]"), "collective = \"all_gather\"\nchoreography = \"csc\"\n");
  alone.erase(alone.find("[study.flow]"));
  const std::int64_t itself = end_of(alone), made = (4 * 10 + 1) * us;
  CHECK(end_of(card(4, 1) + x + gather("")) == made + itself);
  CHECK(end_of(card(4, 1) + x + gather(parts(1))) == made + itself);
  CHECK(end_of(card(4, 1) + x + gather(parts(1) + beside)) == made + itself);
  // In parts it begins while a still works, and b with what has come.
  const std::string load_beside = node("b", "operator", "gather", beside);
  const std::int64_t in_parts = end_of(card(4, 1) + x + gather(parts(4) + beside) + load_beside);
  CHECK(in_parts < end_of(card(4, 1) + x + gather("") + load));
  CHECK(in_parts > made + itself / 4);
  CHECK(run(card(4, 1) + x + gather(parts(4) + beside) + load_beside).rows[0].outcome.trace ==
        run(card(4, 1) + x + gather(parts(4) + beside) + load_beside).rows[0].outcome.trace);
}

TEST_CASE("study, flow: parts of messages, on machines without L2, too") {
  const auto on = [](const std::string& count, const std::string& begins) {
    return "[study]\npreset = \"flat\"\nranks = 4\nsizes = \"4M\"\n[study.flow]\ntile = \"16K\"\n" + x +
           node("a", "operator", "x", takes("2us")) +
           node("gather", "collective", "a",
                "collective = \"all_gather\"\nchoreography = \"ring\"\n" + count + begins) +
           node("b", "operator", "gather", takes("1us") + begins);
  };
  const std::int64_t whole = end_of(on("", "")), in_parts = end_of(on(parts(16), beside));
  CHECK(in_parts < whole);
  // Nobody is faster than its operators, nor than the network.
  CHECK(in_parts > 256 * us);
}

TEST_CASE("study, flow: fused is faster than apart at all sizes of the spec, and by less than all that moves") {
  for (const char* table : {"3", "4"}) {
    const auto of = [&](const std::string& which) {
      configuration c;
      c.add_file(TROUPE_SOURCE_DIR "/config/studies/spec1_table" + std::string{table} + which + ".toml");
      return run_study(read_study(c));
    };
    const study_result apart = of("_apart"), fused = of("_fused");
    REQUIRE(apart.rows.size() == fused.rows.size());
    for (std::size_t i = 0; i < apart.rows.size(); ++i) {
      CHECK(fused.rows[i].time_us + 25 <= apart.rows[i].time_us);  // a launch less, at least
      // No faster than its DMA engine: AG moves 9 shares (15 of apart's), RS 8.
      const double shares = std::string{table} == "3" ? 9 : 8;
      CHECK(fused.rows[i].time_us > shares * static_cast<double>(fused.rows[i].bytes) / 4 / 200e3);
    }
  }
}

TEST_CASE("study, flow: the files' exact times at 8 MiB") {
  const std::pair<const char*, std::int64_t> all[] = {{"flow", 217'579'680},
                                                      {"flow_residual", 232'861'920},
                                                      {"spec1_table3_apart", 224'846'080},
                                                      {"spec1_table3_fused", 155'075'360},
                                                      {"spec1_table4_apart", 267'644'480},
                                                      {"spec1_table4_fused", 184'517'920}};
  for (const auto& each : all) {
    const std::string file = each.first;
    CAPTURE(file);
    configuration c;
    c.add_file(TROUPE_SOURCE_DIR "/config/studies/" + file + ".toml");
    c.set("study.sizes", "8M");
    CHECK(run_study(read_study(c)).rows.at(0).outcome.end_ps == each.second);
  }
}

TEST_CASE("study, flow: what makes no flow is refused, where it stands") {
  const std::string on = card(1, 1), a = node("a", "operator", "x");
  refused(on + x + node("a", "operator", "y"), {"flow.toml:", "a: from: there is no node \"y\""});
  refused(on + x + node("a", "operator", ""), {"say the name of the node whose tiles it takes"});
  refused(on + node("a", "operator", "b") + node("b", "operator", "a"), {"the flow goes in a circle: a ← b ← a"});
  refused(on + node("b", "operator", "a") + x + a, {"b: from: a stands behind it"});
  refused(on + x + a + a, {"two nodes are called so"});
  refused(on + x + node("y", "sink", "x") + node("b", "operator", "y"), {"y is a sink, where streams end"});
  refused(on + node("x", "source", "", "holds = \"whole\"\n") + node("g", "collective", "x", all_gather),
          {"an all_gather takes a share, and x gives the whole tensor"});
  refused(on + x + a + node("b", "operator", "a", sums), {"a reduce_scatter takes the whole tensor"});
  refused(on + x + node("b", "operator", "x", gathers), {"what passes l2 is stored there by an operator; x is none"});
  refused(on + x + a + node("b", "operator", "a", "through = \"l2\"\n"),
          {"b: through: ranks exchange tiles through l2"});
  refused(on + x + a + node("b", "operator", "a", in_l0 + "kernel = \"c\"\n"),
          {"tiles stay in l0 only within a kernel"});
  refused(on + x + a + node("b", "operator", "a", gathers + "kernel = \"a\"\n"), {"take sync = \"tile\""});
  refused(on + x + a + node("g", "collective", "a", "choreography = \"csc\"\n"), {"say which it performs"});
  refused(on + x + a + node("g", "collective", "a", all_gather + "time = \"1us\"\n"),
          {"g: time: it would do nothing: the node is a collective"});
  refused(on + x + a + node("b", "operator", "a", "keeps = true\n"), {"what is kept are others' tiles"});
  refused(card(1, 1, "", "collective = \"all_gather\"\n") + x + a, {"study.collective would do nothing"});
  refused(card(1, 1, "", "contiguous = true\n") + x + a, {"study.contiguous would do nothing"});
  refused(on + x + a + "[study.skew]\n1 = \"5us\"\n", {"study.skew.1: the study has a flow"});
  refused("[study]\n[study.flow]\ncores = 2\n", {"study.flow.cores would do nothing: the study has no flow"});
  refused("[study]\npreset = \"flat\"\nranks = 4\n" + x + a + node("b", "operator", "a", gathers),
          {"b: through: flat has no memory that all ranks address"});
  refused(on + x + node("a", "operator", "x", takes("soon")), {"a: time: \"soon\" is no time"});
  refused("[study]\npreset = \"sunway_card\"\nsizes = [\"2M\", \"32M\"]\n[study.flow]\ncores = 32\n" + x + a +
              node("g", "collective", "a", all_gather + parts(20'000)),
          {"g: parts: 20000 parts are more than the 32 tiles of a share at 2M; take fewer parts"});
  std::string coprime = card(1000, 1) + x + a;  // whose product has no 64 bits
  for (const int count : {997, 991, 983, 977, 971, 967, 953})
    coprime += node("g" + std::to_string(count), "collective", "a", all_gather + parts(count));
  refused(coprime, {"a share has to be cut into more than 1000000 tiles", "parts of g983"});
  const std::string y = node("y", "source", "", "holds = \"whole\"\n");
  refused(on + x + y + a + node("b", "operator", "a, x, y"),
          {"b: from: an operator takes the tiles of one node, or of two"});
  refused(on + x + a + node("b", "operator", "a, a"), {"b: from: it takes the tiles of a twice"});
  refused(on + x + a + node("b", "operator", "a, z"), {"there is no node \"z\""});
  refused(on + x + a + node("s", "sink", "a, x"), {"s: from: only an operator takes the tiles of two nodes"});
  refused(on + x + y + a + node("b", "operator", "a, y"),
          {"y gives the whole tensor, and it works on tiles of a share"});
  refused(on + x + a + node("b", "operator", "a, x", "through = \"l1, l1, l0\"\n"), {"it names 3 tiers for 2 inputs"});
  refused(on + x + a + node("b", "operator", "a", "through = \"l3\"\n"),
          {"there is no tier \"l3\"; take l0, l1 or l2"});
  refused(on + x + a + node("b", "operator", "x", takes("1us")) + node("c", "operator", "a, b", gathers),
          {"c: through: ranks exchange the tiles of one input"});
  refused(on + x + a + node("g", "collective", "a", all_gather) + y + node("z", "operator", "y", takes("1us")) +
              node("c", "operator", "g, z", "through = \"l1, l0\"\n"),
          {"c: through: the tiles of z come in another order than it takes them"});
  refused(on + node("a", "operator", "b, x") + x + node("b", "operator", "a"),
          {"the flow goes in a circle: a ← b ← a"});
  refused("[study]\npreset = \"tianhe_32\"\n" + x + a, {"there are no flows where NICs perform collectives"});
}

TEST_CASE("study, flow: the report names every node, the timeline every tile") {
  const std::string text = card(2, 2) + x + node("a", "operator", "x", takes("10us")) +
                           node("b", "operator", "a", gathers + "keeps = true\n" + takes("3us"));
  study_run_options how;
  how.record = study_run_options::recorded::all;
  const study_result r = run_study(scenario(text), how);
  std::ostringstream table;
  print_study(table, r);
  for (const char* word :
       {"x ", "a source, a share", "loads x from l1", "gathers a from l2", "2 tiles a share on 2 cores"})
    CHECK_MESSAGE(table.str().find(word) != std::string::npos, table.str());
  const auto events = nlohmann::json::parse(flow_trace(r)).at("traceEvents");
  int works = 0, loads = 0, stores = 0;
  for (const auto& e : events) {
    if (e.at("ph") != "X") continue;
    const std::string kind = e.at("cat");
    works += kind == "work", loads += kind == "load", stores += kind == "store";
    if (kind == "load") CHECK((e.at("args").at("tier") == "l1" || e.at("args").at("tier") == "l2"));
  }
  // On each of four ranks: a has 2 tiles, b 8 of them, of which 6 are others' and kept.
  CHECK(works == 4 * (2 + 8));
  CHECK(loads == 4 * (2 + 8));
  CHECK(stores == 4 * (2 * 2 + 6));
  CHECK(troupe_tests::spans_nest(flow_trace(r)));
  const auto curves = troupe_tests::curves_of(flow_trace(r));
  for (int rank = 0; rank < 4; ++rank)
    for (const auto& [name, categories] :
         {std::pair{"cores at work", std::vector{"work"}}, {"loads and stores under way", {"load", "store"}}}) {
      const auto& curve = curves.at({rank, name});
      double expected = 0;
      for (const char* category : categories) expected += troupe_tests::time_of_spans(flow_trace(r), rank, category);
      CHECK(curve.is_whole());
      CHECK(curve.area() == doctest::Approx(expected));
    }
  CHECK(curves.at({0, "bytes of loads and stores under way"}).is_whole());
  const auto document = nlohmann::json::parse(study_json(r));
  CHECK(document.at("rows").at(0).at("nodes").at(2).at("name") == "b");
  CHECK(document.at("rows").at(0).at("end_ps") == r.rows[0].outcome.end_ps);
  // For the page: a row an actor, a span each work, load and store, and what the end had to wait for.
  const auto& actors = document.at("actors");
  const auto& spans = document.at("spans");
  CHECK(document.at("timeline") == true);
  CHECK(spans.size() == static_cast<std::size_t>(works + loads + stores));
  const std::vector<std::string> kinds = document.at("span_kinds"), names = document.at("span_names");
  int named = 0;
  for (const auto& span : spans) {
    const std::string actor = actors.at(span.at(0).get<std::size_t>()).at("kind"), kind = kinds.at(span.at(3));
    CHECK(actor == (kind == "compute" ? "core" : "node"));
    named += names.at(span.at(8)) == "b loads";
  }
  CHECK(named == 4 * 8);
  REQUIRE(!document.at("critical_path").empty());
  CHECK(document.at("critical_path").back().at("end_ps") == r.rows[0].outcome.end_ps);
  CHECK(!document.at("utilisation").empty());
  for (const auto& use : document.at("utilisation")) CHECK(use.at("actor") < actors.size());
  CHECK(table.str().find("# Critical path: ") != std::string::npos);
}

TEST_CASE("study, flow: --path prints what the end had to wait for, --report writes a page") {
  using namespace troupe_program;
  const outcome o = troupe_program::run("study '" + config_folder() +
                                        "studies/flow_residual.toml' --set sizes=2M --path --report - ");
  CHECK(o.code == 0);
  CHECK(o.err.find("# Critical path: ") != std::string::npos);
  CHECK(o.out.find("<!doctype html>") != std::string::npos);
  CHECK(o.out.find("dropout loads") != std::string::npos);
}

TEST_CASE("study, flow: a key of another kind of node is refused, in English") {
  using namespace troupe_program;
  const outcome o = troupe_program::run("study '" + config_folder() + "studies/flow.toml' --sweep node.1.parts=0,2");
  CHECK(o.code == 2);
  CHECK(o.err.find("parts: it would do nothing: the node is an operator") != std::string::npos);
}

TEST_CASE("study, flow: a size that it has not is refused before anything runs") {
  using namespace troupe_program;
  const outcome o = troupe_program::run("study '" + config_folder() + "studies/flow.toml' --at 3K");
  CHECK(o.code == 2);
  CHECK(o.err.find("the study has no size 3K to show; its sizes are ") != std::string::npos);
}

TEST_CASE("study, flow: a CSV line for each size and node, for each value of a sweep") {
  const auto made = [](int cores) {
    return run(card(2, cores) + x + node("a, with a comma", "operator", "x", takes("10us")) +
               node("gather", "collective", "a, with a comma", all_gather));
  };
  const study_result one = made(1), two = made(2);
  const study_sweep_result sweep{{"flow.cores", {"2", "0"}}, {{"2", two}}, {{"0", "there is no core"}}};
  std::istringstream lines{study_csv(one, {sweep})};
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  REQUIRE(all.size() == 1 + 3 + 3 + 1);
  const auto columns = [](const std::string& line) { return std::ranges::count(line, ','); };
  CHECK(all[0].starts_with("key,value,preset,ranks,bytes,"));
  for (const std::size_t k : {1u, 3u, 4u, 6u, 7u}) CHECK(columns(all[k]) == columns(all[0]));
  CHECK(all[1].starts_with(",,sunway_card,4,1600000,1600000,u8,2,,,0.000000,"));
  CHECK(all[2].starts_with(",,sunway_card,4,1600000,1600000,u8,2,\"a, with a comma\",0,"));
  // Two tiles are loaded and stored on each rank.
  CHECK(all[2].ends_with(",800000,"));
  CHECK(all[3].starts_with(",,sunway_card,4,1600000,1600000,u8,2,gather,1,"));
  CHECK(all[4].starts_with("flow.cores,2,sunway_card,"));
  CHECK(all[7].starts_with("flow.cores,0,"));
  CHECK(all[7].ends_with(",there is no core"));
}

}  // namespace study_flow_test
