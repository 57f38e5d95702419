// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/hccl_selection.hpp"

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
  CHECK_FALSE(select_all_to_all(on("1x8", 100, 256)).through_scratch);
  const hccl_choice copies = select_all_to_all(on("1x8", 100, 64));
  CHECK(copies.through_scratch);
  CHECK(copies.chunk_bytes == 64 * mib);
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
  CHECK(copied.rows.at(1).outcome.messages == 4 * 3 * 3);  // with an Ack and a Done each
  CHECK(copied.rows.at(1).wrong == 0);
  const study_result uneven =
      run("[study]\ncollective = \"all_to_all_v\"\nchoreography = \"hccl\"\nsizes = \"1M\"\nranks = 4\n");
  CHECK(uneven.rows[0].choreography == "direct_full_mesh");
  CHECK_THROWS_WITH_AS(run("[study]\nchoreography = \"hccl\"\n"), doctest::Contains("selection of an all_to_all"),
                       error);
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
