// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/nccl_loops.hpp"

#include "engine/planning/planner.hpp"
#include "engine/tools/explain.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

using namespace troupe;

namespace nccl_loops_test {
namespace {

constexpr auto by_ll = message_protocol::ll, by_ll128 = message_protocol::ll128, by_simple = message_protocol::simple;

/// As 12 channels of 30 GB/s give them.
nccl_loops loops(const char* places, collective what, std::uint64_t bytes, nccl_algorithm a, message_protocol how,
                 nccl_version version = nccl_version::v2_19) {
  nccl_case of;
  of.places = layout::parse(places);
  of.what = what;
  of.bytes = bytes;
  of.machine.version = version;
  const nccl_choice chosen = select_as_nccl(of);
  const nccl_row* const row = chosen.find(a, how);
  REQUIRE(row != nullptr);
  const auto made = loops_of(of, *row);
  REQUIRE(made);
  return *made;
}

constexpr std::uint64_t k = 1024, m = 1024 * k;

}  // namespace

TEST_CASE("nccl loops: rings go round once a loop, with a chunk for each rank") {
  // 4 slots of 512 KiB, in two slices; 1 GiB over 24 channels and 16 ranks are 2.73 MiB each: a loop of 2 MiB, and the rest.
  const nccl_loops long_ring = loops("2x8", collective::all_reduce, 1024 * m, nccl_algorithm::ring, by_simple);
  CHECK(long_ring.loops == 2);
  CHECK(long_ring.chunks == 16);
  CHECK(long_ring.chunk == 2 * m);
  CHECK(long_ring.slices == 2);
  CHECK(long_ring.last_chunk == (1024 * m - 24 * 16 * 2 * m + 383) / 384);
  CHECK(long_ring.steps == 2 * 2 * 15);
  CHECK(loops_text(long_ring) ==
        "2 loops of 24 channels x 16 chunks of 2M, each of 2 slices; in the last loop of 699051 bytes");
  // Half of what all_reduce goes round; blocks of all ranks count.
  CHECK(loops("2x8", collective::all_gather, 1024 * m, nccl_algorithm::ring, by_simple).steps == 2 * 15);
  // A chain: chunks of one slot, one a loop.
  const nccl_loops chain = loops("2x8", collective::broadcast, 1024 * m, nccl_algorithm::ring, by_simple);
  CHECK(chain.chunks == 1);
  CHECK(chain.slices == 1);
  CHECK(chain.chunk == 512 * k);
  CHECK(chain.loops == 86);  // 1 GiB / (24 x 512 KiB)
  CHECK(chain.steps == chain.loops);
  // LL: half of a slot of 64 KiB is flags; LL128: a 16th of one of 600 KiB.
  CHECK(loops("2x8", collective::all_reduce, m, nccl_algorithm::ring, by_ll).chunk == 32 * k);
  CHECK(loops("2x8", collective::all_reduce, m, nccl_algorithm::ring, by_ll128).chunk == 576000);
}

TEST_CASE("nccl loops: a tree's chunks are halved until its levels have something to do at once") {
  // Depth 7 + 1. Of 16 MiB each of 24 channels has 1.33 of 512 KiB, 5 of 128 KiB: below 4 x 8, so 64 KiB.
  CHECK(loops("2x8", collective::all_reduce, 16 * m, nccl_algorithm::tree, by_simple).chunk == 64 * k);
  CHECK(loops("2x8", collective::all_reduce, 16 * m, nccl_algorithm::tree, by_simple).loops == 11);
  // 3 channels of 1.5 MiB, 512 KiB each: fewer than 8 of 64 KiB are left at 64 KiB only if there are 8; so 64 KiB stay.
  CHECK(loops("2x8", collective::all_reduce, 3 * m / 2, nccl_algorithm::tree, by_simple).chunk == 64 * k);
  CHECK(loops("2x8", collective::all_reduce, m / 2, nccl_algorithm::tree, by_simple).chunk == 64 * k);
  CHECK(loops("32x8", collective::all_reduce, m / 2, nccl_algorithm::tree, by_simple).chunk == 32 * k);
  // 1 GiB: 85 of 512 KiB a channel are more than 64.
  CHECK(loops("2x8", collective::all_reduce, 1024 * m, nccl_algorithm::tree, by_simple).chunk == 512 * k);
  // LL128: 2.8 x 64 / 8 are wanted of 600 KiB, flags and all: 75 KiB.
  CHECK(loops("2x8", collective::all_reduce, 16 * m, nccl_algorithm::tree, by_ll128).chunk == 72000);
  // 2.23 halves those of Simple no more, and has chunks of whole grains of LL128.
  constexpr auto newer = nccl_version::v2_23;
  CHECK(loops("2x8", collective::all_reduce, 16 * m, nccl_algorithm::tree, by_simple, newer).chunk == 512 * k);
  CHECK(loops("2x8", collective::all_reduce, 16 * m, nccl_algorithm::tree, by_ll128, newer).chunk % 1920 == 0);
}

TEST_CASE(
    "nccl loops: PAT's chunks are shorter where there would be few, and each channel of 2.23 has its part first") {
  constexpr auto newer = nccl_version::v2_23;
  const nccl_loops gathered = loops("16x1", collective::all_gather, 64 * m, nccl_algorithm::pat, by_simple, newer);
  CHECK(gathered.chunk == 64 * k);  // a channel has 2.67 MiB: fewer than 32 of 128 KiB
  CHECK(loops("16x1", collective::reduce_scatter, 64 * m, nccl_algorithm::pat, by_simple, newer).chunk == 128 * k);
  CHECK(gathered.loops * gathered.chunk >= 64 * m / 24);
  const nccl_loops ring = loops("2x8", collective::all_reduce, 1024 * m, nccl_algorithm::ring, by_simple, newer);
  CHECK(ring.loops == 2);
  CHECK(ring.chunk == 2 * m);
  // Cells of 8 KiB, which are 16 KiB of traffic: what is short has no more channels than cells.
  CHECK(loops_text(loops("2x8", collective::all_reduce, 32 * k, nccl_algorithm::tree, by_ll, newer)) ==
        "1 loop of 4 channels x a chunk of 8K; a chunk has at most 32K");
}

TEST_CASE("nccl loops: what is not taken, or has channels that nobody counts, has none") {
  nccl_case of;
  of.places = layout::parse("2x8");
  of.bytes = m;
  of.machine.nvls = of.machine.collnet = true;
  const nccl_choice chosen = select_as_nccl(of);
  CHECK_FALSE(loops_of(of, *chosen.find(nccl_algorithm::pat, by_simple)));
  CHECK_FALSE(loops_of(of, *chosen.find(nccl_algorithm::nvls, by_simple)));
  of.bytes = 0;
  CHECK_FALSE(loops_of(of, *chosen.find(nccl_algorithm::ring, by_simple)));
}

TEST_CASE("nccl loops: every byte is in one, for all sizes, layouts and versions") {
  for (const char* places : {"1x2", "1x8", "3x1", "2x8", "5x3"})
    for (const auto version : {nccl_version::v2_19, nccl_version::v2_23})
      for (const collective what : {collective::all_reduce, collective::all_gather, collective::broadcast})
        for (std::uint64_t bytes = 8; bytes <= 4096 * m; bytes = bytes * 3 + 5) {
          nccl_case of;
          of.places = layout::parse(places);
          of.what = what;
          of.bytes = bytes;
          of.machine.version = version;
          for (const nccl_row& row : select_as_nccl(of).rows) {
            const auto made = loops_of(of, row);
            if (!made) continue;
            CAPTURE(places);
            CAPTURE(bytes);
            const auto at_once = static_cast<std::uint64_t>(made->channels) * static_cast<std::uint64_t>(made->chunks);
            const std::uint64_t all = ((made->loops - 1) * made->chunk + made->last_chunk) * at_once;
            CHECK(all >= bytes);
            // And hardly more: of 2.23 the last channel has what is left, but for what is rounded up.
            const auto channels = static_cast<std::uint64_t>(made->channels);
            const std::uint64_t rounded = at_once + static_cast<std::uint64_t>(of.places.size());
            CHECK(all / channels * (version == nccl_version::v2_19 ? channels : channels - 1) < bytes + rounded);
            CHECK(made->channels <= row.channels);
            CHECK(made->last_chunk >= 1);
            CHECK(made->last_chunk <= made->chunk);
          }
        }
}

TEST_CASE("nccl pieces: a message of a group goes over as many channels as keep it at a slot's bytes") {
  nccl_case of;
  of.places = layout::parse("2x8");
  // Between servers two channels a pair; a piece has at most 128 KiB unless there are no more channels.
  CHECK(p2p_of(of, 64 * k).pieces == 2);
  CHECK(p2p_of(of, 64 * k).piece == 32 * k);
  CHECK(p2p_of(of, 8).piece == 8);
  CHECK(p2p_of(of, m).piece == 512 * k);
  CHECK(p2p_text(p2p_of(of, m)) == "2 pieces of 512K a message, over up to 2 channels of a pair, in steps of 128K");
  // Of 8 cards on NVLink: 24 channels are 32, four for each peer, and up to 16 for long ones, of 16 MiB each.
  of.places = layout::parse("1x8");
  CHECK(p2p_of(of, m).pieces == 4);
  CHECK(p2p_of(of, m).step == 512 * k);
  CHECK(p2p_of(of, 256 * m).pieces == 16);
  CHECK(p2p_of(of, 256 * m).piece == 16 * m);
}

TEST_CASE("planner nccl: explain tells NCCL's loops, and how the performer's cells are cut; slices are no longer than "
          "NCCL's") {
  engine_options o;
  o.planner = "nccl";
  o.tuning = "none";
  planner by{o};
  call what;
  what.what = collective::all_reduce;
  what.type = datatype::f32;
  what.count = 4 * m;
  const explanation e = explain(by, what, layout::grid(2, 8));
  const auto told = [&](const std::string& text) {
    return std::ranges::any_of(e.path, [&](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  CHECK(told("10 loops of 24 channels x a chunk of 72000 bytes; in the last loop of 51051 bytes"));
  CHECK(told("if by simple: 11 loops of 24 channels x a chunk of 64K; in the last loop of 43691 bytes"));
  REQUIRE(e.cells);
  CHECK(e.cells->cell == 8 * m);
  CHECK(e.cells->channels == 12);
  CHECK(e.cells->slices >= 11);
  CHECK(e.cells->slice <= 64 * k);
  CHECK(to_text(e).find("\n  a cell has 8M, in each of 12 channels 11 slices of at most ") != std::string::npos);
  const auto as_json = nlohmann::json::parse(to_json(e))["cells"];
  CHECK(as_json["bytes"] == 8 * m);
  CHECK(as_json["slice_bytes"] == e.cells->slice);
  CHECK(as_json["slices"] == 11);
  // The options are stronger.
  o.chunk_bytes = 2 * m;
  planner wished{o};
  CHECK(explain(wished, what, layout::grid(2, 8)).cells->slices == 1);
  // By boards nothing is cut.
  what.count = 16;
  CHECK_FALSE(explain(by, what, layout::flat(4)).cells);
  what.what = collective::all_to_all;
  what.count = 256 * k;
  const std::vector<std::string> path = by.path(what, layout::grid(2, 8));
  CHECK(path.back() == "NCCL's pieces: 2 pieces of 512K a message, over up to 2 channels of a pair, in steps of 128K");
}

}  // namespace nccl_loops_test
