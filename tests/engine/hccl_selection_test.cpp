// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/hccl_selection.hpp"

#include "engine/planning/planner.hpp"
#include "engine/tools/explain.hpp"

#include "engine/tools/study/published/published.hpp"
#include "memory/error.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace troupe;

namespace {

constexpr std::uint64_t mib = 1 << 20;

hccl_case on(const char* places, std::uint64_t mebibytes, std::uint64_t buffer = 200) {
  hccl_case c;
  c.places = layout::parse(places);
  c.bytes = mebibytes * mib;
  c.ccl_buffer = buffer * mib;
  return c;
}

hccl_algorithm taken(const hccl_case& c) { return select_all_to_all(c).algorithm; }

study_result run(const std::string& toml) {
  configuration c;
  c.add_text(toml, "study.toml");
  return run_study(read_study(c));
}

using enum hccl_algorithm;

}  // namespace

TEST_CASE("hccl selection: the four worked cases of spec 4") {
  CHECK(taken(on("1x8", 100, 256)) == direct_full_mesh);
  hccl_case servers = on("4x8", 10), pod = on("32x8", 500, 512);
  pod.super_pod = true;
  for (const hccl_device d : {hccl_device::ascend_910b, hccl_device::ascend_910_93}) {
    servers.device = pod.device = d;
    CHECK(taken(servers) == staged);
    CHECK(taken(pod) == two_level_pipeline);
  }
  CHECK(taken(on("1x1", 1)) == single);
  CHECK(select_all_to_all(pod).rule == 4);
  CHECK(select_all_to_all(on("32x8", 500, 512)).rule == 6);
}

TEST_CASE("hccl selection: their neighbours, one condition changed") {
  // DirectFullMesh needs a buffer for the data, one server, the device and no unfolding.
  CHECK(taken(on("1x8", 100, 100)) == direct_full_mesh);
  CHECK(taken(on("1x8", 100, 99)) == full_mesh);
  CHECK(taken(on("1x16", 10)) == direct_full_mesh);
  hccl_case c = on("1x8", 100, 256);
  c.aicpu_unfolded = true;
  CHECK(taken(c) == full_mesh);
  c.device = hccl_device::ascend_310p;
  CHECK(taken(c) == for_310p);
  // The pipeline needs 80 MB of data and, outside of super-pods, of buffer, and two levels with equal servers.
  CHECK(taken(on("4x8", 79)) == staged);
  CHECK(taken(on("4x8", 80)) == two_level_pipeline);
  CHECK(taken(on("4x8", 80, 79)) == staged);
  CHECK(taken(on("4x1", 80)) == staged);
  CHECK(taken(on("4+3", 80)) == full_mesh);
  c = on("4x8", 10);
  c.one_level = true;
  CHECK(taken(c) == full_mesh);
  // A super-pod: by size alone on 910_93; small data stays on one level.
  c = on("32x8", 80, 1);
  c.super_pod = true;
  CHECK(taken(c) == full_mesh);
  c.device = hccl_device::ascend_910_93;
  CHECK(taken(c) == two_level_pipeline);
  c.bytes -= 1;
  CHECK(taken(c) == full_mesh);
  // The vector cores: several servers and less than 1 MB; they come first.
  c = on("4x8", 1);
  c.aiv = true;
  CHECK(taken(c) == staged);
  c.bytes -= 1;
  CHECK(taken(c) == aiv_staged);
  c.device = hccl_device::ascend_910_93;
  CHECK(taken(c) == aiv_mesh);
  c.places = layout::grid(1, 8);
  CHECK(taken(c) == direct_full_mesh);
}

TEST_CASE("hccl selection: blocks of DirectFullMesh, and BCopy where the buffer is too small") {
  CHECK(direct_full_mesh_block(256 * mib, 4) == 32 * mib);
  CHECK(direct_full_mesh_block(100 * 1024, 2) == 16 * 1024);
  CHECK(direct_full_mesh_block(1000, 8) == 16 * 1024);
  CHECK(select_all_to_all(on("1x8", 100, 256), 4).chunk_bytes == 32 * mib);
  CHECK_FALSE(select_all_to_all(on("1x8", 80, 256)).through_scratch);
  CHECK(select_all_to_all(on("1x8", 100, 256)).through_scratch);
  const hccl_choice copies = select_all_to_all(on("1x8", 100, 64));
  CHECK(copies.through_scratch);
  CHECK(copies.chunk_bytes == 64 * mib);
}

TEST_CASE("hccl selection: the path says whether it is BCopy or ZCopy, and why; v-forms go by their largest block") {
  const auto told = [](const hccl_case& c) {
    const std::vector<std::string> path = select_all_to_all(c).path;
    return path.at(path.size() - 2);
  };
  CHECK(told(on("1x8", 10)) == "ZCopy, between user buffers: 10M fit in the CCL buffer of 200M");
  CHECK(told(on("1x8", 100)) == "BCopy, through scratch memory: 100M are more than 80M");
  CHECK(told(on("1x8", 300)) == "BCopy, through scratch memory: 300M are more than the CCL buffer of 200M");
  CHECK(told(on("4x8", 10)) == "no choice of BCopy or ZCopy: only pairwise and direct_full_mesh have both");

  engine_options o;
  o.planner = "hccl";
  call what;
  what.what = collective::all_to_all;
  what.type = datatype::u8;
  what.uniform = false;
  std::vector<std::size_t> counts(16, 1);
  counts[3] = 20 * mib;  // four blocks of so many would be 80 MiB
  const layout places = layout::grid(2, 2);
  planner p{o};
  CHECK(p.plan_for(what, places, &counts)->choreography == "hierarchical_pipeline");
  CHECK(p.path(what, places, &counts).back() == "TwoLevelPipeline, performed by hierarchical_pipeline");
  CHECK(to_text(explain(p, what, places, &counts)).find("no choice of BCopy or ZCopy") != std::string::npos);
}

TEST_CASE("a study with choreography hccl performs what the selection takes, size by size") {
  const std::string hccl = "[study]\ncollective = \"all_to_all\"\nchoreography = \"hccl\"\npreset = \"ascend_a2\"\n";
  const study_result r = run(hccl + "layout = \"4x8\"\nsizes = [\"10M\", \"100M\"]\n");
  CHECK(r.rows.at(0).choreography == "staged_pairwise");
  CHECK(r.rows.at(1).choreography == "hierarchical_pipeline");
  REQUIRE(r.remarks.size() == 2);
  CHECK(r.remarks[0].find("Staged by rule 8") != std::string::npos);
  // The CCL buffer changes the pieces, and with them BCopy: the score of the other size must not be used again.
  const study_result copied = run(hccl + "layout = \"1x4\"\nsizes = [\"1M\", \"4M\"]\npayload = \"real\"\n"
                                         "hccl.aicpu_unfolded = true\nhccl.buffer = \"2M\"\n");
  CHECK(copied.rows.at(0).outcome.messages == 4 * 3);
  CHECK(copied.rows.at(1).outcome.messages == 4 * 3 * 4);  // with an Ack, a DataSignal and a WaitDone each
  CHECK(copied.rows.at(1).wrong == 0);
  const study_result uneven =
      run("[study]\ncollective = \"all_to_all_v\"\nchoreography = \"hccl\"\nsizes = \"1M\"\nranks = 4\n");
  CHECK(uneven.rows[0].choreography == "direct_full_mesh");
  // The others go by the rules of levels.
  const std::string servers =
      "[study]\nchoreography = \"hccl\"\nlayout = \"12x2\"\npreset = \"ascend_a2\"\npayload = \"real\"\n";
  for (const auto& [more, wanted] :
       {std::pair{"", "hierarchical_hd"},
        std::pair{"collective = \"all_gather\"\nhccl.level1 = \"nb\"\n", "hierarchical_nb"},
        std::pair{"collective = \"reduce_scatter\"\nhccl.one_level = true\n", "halving_doubling"}}) {
    const study_result levels = run(servers + more);
    CHECK(levels.rows.at(0).choreography == wanted);
    CHECK(levels.rows.at(0).wrong == 0);
    CHECK(levels.remarks.at(0).find(std::string{"performed by "} + wanted) != std::string::npos);
  }
  CHECK_THROWS_WITH_AS(run("[study]\ncollective = \"broadcast\"\nchoreography = \"hccl\"\n"),
                       doctest::Contains("not of broadcast"), error);
  CHECK_THROWS_WITH_AS(run("[study.hccl]\ndevice = \"910\"\n"), doctest::Contains("910_93"), error);
}

TEST_CASE("published figures of specs 2 and 4 can all be run, and those that should agree do") {
  study_runs runs{TROUPE_SOURCE_DIR "/config/studies"};
  for (const auto& figures : {spec2_figures(), spec4_figures()})
    for (const published_row& row : run_published(figures, runs)) {
      CAPTURE(row.figure.id);
      CHECK(row.failure == "");
      const std::string& id = row.figure.id;
      const bool agrees = id.starts_with("spec2.") || id.starts_with("spec4.select") || id == "spec4.pairwise" ||
                          id == "spec4.full_mesh_c8" || id == "spec4.ll_64" || id == "spec4.ll_1024";
      const double wanted = row.ours.formula.value_or(row.figure.published);
      if (agrees) CHECK(std::abs(row.ours.value / wanted - 1) < 1e-3);
      if (std::abs(row.error_percent()) > 1) CHECK_MESSAGE(row.figure.remark != "", "what is off must be explained");
    }
}

namespace {

struct leaf {
  collective what;
  const char* places;
  std::uint64_t mebibytes;
  const char* performed;  ///< by
  void (*also)(hccl_options&) = [](hccl_options&) {};
};

}  // namespace

TEST_CASE("planner hccl: every leaf is reached and performed by its own choreography, and the path says how") {
  const leaf leaves[] = {
      // all_to_all, spec 4
      {collective::all_to_all, "4x2", 0, "staged_pairwise", [](hccl_options& o) { o.aiv = true; }},
      {collective::all_to_all, "4x2", 0, "one_shot",
       [](hccl_options& o) { o.aiv = true, o.device = hccl_device::ascend_910_93; }},
      {collective::all_to_all, "1x1", 1, "pairwise"},
      {collective::all_to_all, "1x8", 1, "pairwise", [](hccl_options& o) { o.device = hccl_device::ascend_310p; }},
      {collective::all_to_all, "2x2", 80, "hierarchical_pipeline",
       [](hccl_options& o) { o.device = hccl_device::ascend_910_93, o.super_pod = true; }},
      {collective::all_to_all, "1x8", 8, "direct_full_mesh"},
      {collective::all_to_all, "2x2", 80, "hierarchical_pipeline"},
      {collective::all_to_all, "2x4", 8, "pairwise", [](hccl_options& o) { o.one_level = true; }},
      {collective::all_to_all, "1x4", 8, "direct_full_mesh",
       [](hccl_options& o) { o.aicpu_unfolded = true, o.level0 = hccl_level::mesh; }},
      {collective::all_to_all, "2x4", 8, "staged_pairwise"},
      {collective::all_to_all, "2x4", 8, "hierarchical", [](hccl_options& o) { o.level0 = hccl_level::mesh; }},
      // the others, a level at a time
      {collective::all_reduce, "1x1", 1, "ring"},
      {collective::all_reduce, "4+3", 1, "ring"},
      {collective::all_reduce, "1x8", 1, "direct_full_mesh"},
      {collective::all_reduce, "1x8", 1, "ring", [](hccl_options& o) { o.device = hccl_device::ascend_910_93; }},
      {collective::all_reduce, "1x8", 1, "nhr", [](hccl_options& o) { o.level0 = hccl_level::nhr; }},
      {collective::all_gather, "1x8", 1, "nb", [](hccl_options& o) { o.level0 = hccl_level::nb; }},
      {collective::reduce_scatter, "1x6", 1, "pairwise", [](hccl_options& o) { o.level0 = hccl_level::pairwise; }},
      {collective::all_reduce, "3x1", 1, "ring"},
      {collective::all_reduce, "4x1", 1, "halving_doubling"},
      {collective::all_gather, "9x1", 1, "halving_doubling"},
      {collective::all_gather, "9x1", 1, "nhr", [](hccl_options& o) { o.device = hccl_device::ascend_910_93; }},
      {collective::reduce_scatter, "3x1", 1, "nb", [](hccl_options& o) { o.level1 = hccl_level::nb; }},
      {collective::all_reduce, "4x2", 1, "nhr",
       [](hccl_options& o) { o.level1 = hccl_level::nhr, o.one_level = true; }},
      {collective::all_reduce, "3x2", 1, "hierarchical"},
      {collective::all_reduce, "4x2", 1, "hierarchical_hd"},
      {collective::all_reduce, "12x4", 1, "hierarchical_hd"},
      {collective::all_gather, "9x2", 1, "hierarchical_hd"},
      {collective::reduce_scatter, "15x2", 1, "hierarchical_hd"},
      {collective::all_gather, "8x2", 1, "hierarchical_nhr",
       [](hccl_options& o) { o.device = hccl_device::ascend_910_93; }},
      {collective::reduce_scatter, "3x2", 1, "hierarchical_nb", [](hccl_options& o) { o.level1 = hccl_level::nb; }},
      {collective::all_reduce, "4x2", 1, "hierarchical", [](hccl_options& o) { o.level1 = hccl_level::ring; }},
  };
  for (const leaf& each : leaves) {
    CAPTURE(each.places);
    CAPTURE(each.performed);
    CAPTURE(name(each.what));
    engine_options o;
    o.planner = "hccl";
    each.also(o.hccl);
    call what;
    what.what = each.what;
    what.type = datatype::f32;
    const layout places = layout::parse(each.places);
    const std::size_t blocks = block_count(each.what, places.size()) == 1 ? 1 : static_cast<std::size_t>(places.size());
    what.count = std::max<std::size_t>(1, each.mebibytes * mib / sizeof(float) / blocks);
    planner p{o};
    CHECK(p.plan_for(what, places)->choreography == each.performed);
    const auto path = p.path(what, places);
    REQUIRE(!path.empty());
    CHECK(path.back().find(std::string{"performed by "} + each.performed) != std::string::npos);
    const std::string told = to_text(explain(p, what, places));
    CHECK(told.find("HCCL's selection:") != std::string::npos);
    CHECK(told.find(path.front()) != std::string::npos);
  }
}

TEST_CASE("hccl selection: what is forced for a level and decides nothing is told, and why; what decides is not") {
  using enum hccl_level;
  const auto told = [](hccl_case c, hccl_level level0, hccl_level level1, collective what = collective::all_to_all) {
    c.what = what, c.level0 = level0, c.level1 = level1;
    std::string all;
    for (const std::string& line : select_as_hccl(c).path)
      if (line.starts_with("level")) all += line + '\n';
    return all;
  };
  const std::string anyway = " = pairwise changes nothing: the exchange is pairwise anyway\n";
  CHECK(told(on("4x8", 10), na, mesh) == "level1 = mesh is ignored: between servers Staged is pairwise\n");
  CHECK(told(on("4x8", 10), na, pairwise) == "level1" + anyway);
  CHECK(told(on("4x8", 10), mesh, na) == "");
  CHECK(told(on("4x8", 10), pairwise, nhr) == "level1 = nhr is ignored: there is no such all_to_all\nlevel0" + anyway);
  CHECK(told(on("4x8", 100), mesh, mesh) ==
        "level0 = mesh is ignored: rule 6 decides without it\nlevel1 = mesh is ignored: rule 6 decides without it\n");
  CHECK(told(on("1x8", 300), mesh, mesh) == "level1 = mesh is ignored: there is one server\n");
  CHECK(told(on("4+3", 10), mesh, mesh) == "level0 = mesh is ignored: all ranks are one level, which goes by level1\n");
  const auto reduced = [&](const char* places, hccl_level level0, hccl_level level1) {
    return told(on(places, 1), level0, level1, collective::all_reduce);
  };
  CHECK(reduced("1x8", na, nhr) == "level1 = nhr is ignored: there is one server\n");
  CHECK(reduced("1x8", nhr, na) == "");
  CHECK(reduced("4+3", ring, na) == "level0 = ring is ignored: rule 2 decides without it\n");
  CHECK(reduced("4x1", ring, nb) == "level0 = ring is ignored: all ranks are one level, which goes by level1\n");
  CHECK(reduced("4x2", mesh, nb) == "level0 = mesh changes nothing: inside several servers there is a mesh anyway\n");
  CHECK(reduced("4x2", ring, mesh) == "level1 = mesh is ignored: HCCL has no such all_reduce between servers\n"
                                      "level0 = ring is ignored: inside several servers there is only the mesh\n");
}

TEST_CASE("planner hccl is a wish: what cannot be, is excluded or has no tree is left to the cost model") {
  engine_options o;
  o.planner = "hccl";
  call what;
  what.what = collective::all_reduce;
  what.type = datatype::f32;
  what.count = 1000;
  {
    planner p{o};
    const layout places = layout::grid(12, 2);
    call broadcast = what;
    broadcast.what = collective::broadcast;
    CHECK(p.plan_for(broadcast, places));
    CHECK(p.path(broadcast, places).front().find("no selection for broadcast") != std::string::npos);
  }
  engine_options excluding = o;
  excluding.choreography = "^direct_full_mesh";
  planner p{excluding};
  CHECK(p.plan_for(what, layout::flat(8))->choreography != "direct_full_mesh");
  CHECK(p.path(what, layout::flat(8)).back().find("excluded by the options") != std::string::npos);
  // A choreography that is named is stronger, and there is nothing to tell of a selection.
  engine_options named = o;
  named.choreography = "ring";
  planner by_name{named};
  CHECK(by_name.plan_for(what, layout::flat(8))->choreography == "ring");
  CHECK(by_name.path(what, layout::flat(8)).empty());
  CHECK(planner{engine_options{}}.path(what, layout::flat(8)).empty());
  // Levels that HCCL has not are ignored, and told.
  engine_options odd = o;
  odd.hccl.level1 = hccl_level::mesh;
  planner told{odd};
  CHECK(told.plan_for(what, layout::grid(4, 2))->choreography == "hierarchical_hd");
  bool ignored = false;
  for (const std::string& line : told.path(what, layout::grid(4, 2)))
    ignored |= line.find("ignored") != std::string::npos;
  CHECK(ignored);
  engine_options bad;
  bad.planner = "best";
  CHECK_THROWS_WITH_AS(planner{bad}, doctest::Contains("there are model, measured, hccl and nccl"), error);
  configuration c;
  CHECK_THROWS_WITH_AS((c.add_text("[engine]\nhccl.level0 = \"tree\"\n", "a.toml"), c.engine()),
                       doctest::Contains("pairwise"), error);
  c = {};
  c.add_text("[engine]\nplanner = \"hccl\"\n[engine.hccl]\ndevice = \"910_93\"\nbuffer = \"1M\"\nlevel1 = "
             "\"nb\"\none_level = true\n",
             "a.toml");
  const engine_options read = c.engine();
  CHECK(read.planner == "hccl");
  CHECK(read.hccl ==
        hccl_options{.device = hccl_device::ascend_910_93, .buffer = mib, .one_level = true, .level1 = hccl_level::nb});
}
