// SPDX-License-Identifier: Apache-2.0
// What a study says where it is asked to: adaptive routing, energy, lost ranks.
#include "engine/tools/study/extras.hpp"

#include <numeric>
#include <sstream>

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "engine/api/join_options.hpp"
#include "engine/tools/replay/replay.hpp"
#include "engine/tools/study/compare.hpp"
#include "engine/tools/study/machine_file.hpp"
#include "memory/error.hpp"
#include "topology/machine/quantities.hpp"

using namespace troupe;

namespace {

study_scenario scenario(const std::string& toml) {
  configuration c;
  c.add_text(toml, "extras.toml");
  return read_study(c);
}

study_result studied(const std::string& toml) { return run_study(scenario(toml), {}); }

std::string why_refused(const std::string& toml) {
  try {
    static_cast<void>(studied(toml));
  } catch (const error& why) {
    return why.what();
  }
  return "accepted";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Single messages of 10 000 bytes: from[i] to to[i], all at 0, on a fat tree of two hosts a leaf; 1 byte a nanosecond, 100 ns an element.
replay_result messages(const std::string& routing, const std::vector<std::pair<int, int>>& pairs) {
  std::string goal = "num_ranks 8\n";
  std::vector<std::string> of(8);
  int label = 0;
  for (const auto& [from, to] : pairs) {
    const std::string tag = std::to_string(label++);
    of[static_cast<std::size_t>(from)] += "s" + tag + ": send 10000b to " + std::to_string(to) + " tag " + tag + "\n";
    of[static_cast<std::size_t>(to)] += "r" + tag + ": recv 10000b from " + std::to_string(from) + " tag " + tag + "\n";
  }
  for (std::size_t r = 0; r < of.size(); ++r) goal += "rank " + std::to_string(r) + " {\n" + of[r] + "}\n";
  return run_replay(
      scenario("[study]\npreset = \"fat_tree\"\nranks = 8\n[study.structure]\nradix = 4\noversubscription = 1\n"
               "[study.hardware]\n" +
               routing +
               "host_port.latency = \"100ns\"\nhost_port.bandwidth = \"1GB/s\"\ntrunk.latency = "
               "\"100ns\"\ntrunk.bandwidth = \"1GB/s\"\n"),
      std::make_shared<const application>(read_goal({{"t.goal", goal}})), {});
}

}  // namespace

// -- adaptive routing -----------------------------------------------------------------------------------------------------

TEST_CASE("adaptive routing: messages that a fixed way sends over one link part") {
  // Hosts 0 and 1 sit at one leaf. Both send to even hosts elsewhere, so the fixed rule (the destination modulo the spines) sends both by spine 0.
  const auto fixed = messages("", {{0, 4}, {1, 6}}), adaptive = messages("routing = \"adaptive\"\n", {{0, 4}, {1, 6}});
  const std::int64_t alone = messages("", {{0, 4}}).outcome.end_ps;
  CHECK(messages("routing = \"adaptive\"\n", {{0, 4}}).outcome.end_ps == alone);
  CHECK(fixed.outcome.end_ps == alone + 10'000'000);
  CHECK(adaptive.outcome.end_ps == alone);
  // To different spines nothing is to be gained, and nothing is lost.
  CHECK(messages("routing = \"adaptive\"\n", {{0, 4}, {1, 7}}).outcome.end_ps == alone);
  // Three messages on two spines: one of them waits.
  CHECK(messages("routing = \"adaptive\"\npaths = 2\n", {{0, 4}, {1, 6}, {0, 6}}).outcome.end_ps > alone);
  // One way to look at is the fixed one. Equal runs are equal, event by event.
  CHECK(messages("routing = \"adaptive\"\npaths = 1\n", {{0, 4}, {1, 6}}).outcome.end_ps == fixed.outcome.end_ps);
  CHECK(messages("routing = \"adaptive\"\n", {{0, 4}, {1, 6}}).outcome.trace == adaptive.outcome.trace);
}

TEST_CASE("adaptive routing: on machines from files, whole collectives, by states and by the player alike") {
  for (const std::string machine : {"torus", "dragonfly"})
    for (const char* by : {"states", "player"}) {
      const auto time = [&](const std::string& routing) {
        return studied("[study]\npreset = \"" TROUPE_SOURCE_DIR "/config/machines/" + machine +
                       ".toml\"\ncollective = \"all_to_all\"\nchoreography = \"pairwise\"\nsizes = "
                       "\"1M\"\nperformed_by = \"" +
                       by + "\"\n[study.hardware]\nrouting = \"" + routing + "\"\n")
            .rows.at(0);
      };
      CAPTURE(machine);
      const study_row fixed = time("fixed"), adaptive = time("adaptive");
      CHECK(adaptive.time_us < fixed.time_us);
      CHECK(adaptive.time_us >= adaptive.bound_us());
      CHECK(adaptive.outcome.payload_bytes == fixed.outcome.payload_bytes);
      CHECK(time("adaptive").outcome.trace == adaptive.outcome.trace);
    }
  CHECK(has(why_refused("[study]\n[study.hardware]\nrouting = \"adaptive\"\nlink.discipline = \"fair\"\n"),
            "goes by queues"));
  CHECK(has(why_refused("[study]\n[study.hardware]\nrouting = \"clever\"\n"), "adaptive"));
  // Where there is nothing to choose.
  CHECK(has(why_refused("[study]\n[study.hardware]\nrouting = \"adaptive\"\n"), "adaptive would do nothing: on flat"));
  CHECK(has(why_refused("[study]\npreset = \"fat_tree\"\nranks = 12\n[study.structure]\nradix = 4\noversubscription = "
                        "3\n[study.hardware]\n"
                        "routing = \"adaptive\"\n"),
            "would do nothing"));
  CHECK_NOTHROW(studied("[study]\npreset = \"fat_tree\"\nranks = 32\nsizes = \"1K\"\n[study.hardware]\nrouting = "
                        "\"adaptive\"\n"));
  CHECK(has(why_refused("[study]\n[study.hardware]\npaths = 65\n"), "64"));
}

// -- energy ---------------------------------------------------------------------------------------------------------------

TEST_CASE("energy: idle watts for the whole time, joules for every byte on the wire") {
  const std::string ring = "[study]\nranks = 4\nchoreography = \"ring\"\nsizes = \"1M\"\n";
  CHECK(!has_energy(*studied(ring).on));
  const study_result r = studied(ring + "[study.hardware]\nlink.idle_power = \"5W\"\nlink.energy = \"10pJ/bit\"\n");
  const virtual_outcome& o = r.rows.at(0).outcome;
  // A rank of four sends 2 · 3/4 of a megabyte, and every byte passes an up and a down element.
  const double bytes = 4 * 2 * 0.75 * (1 << 20), seconds = static_cast<double>(o.end_ps) * 1e-12;
  const auto of = energy_of(*r.on, o.use, o.end_ps);
  REQUIRE(of.size() == 8);
  double idle = 0, transfer = 0;
  for (const element_energy& e : of) idle += e.idle, transfer += e.transfer;
  CHECK(idle == doctest::Approx(8 * 5 * seconds));
  CHECK(transfer == doctest::Approx(2 * bytes * 80e-12));
  CHECK(of[0].joules() == doctest::Approx(5 * seconds + bytes / 4 * 80e-12));
  std::ostringstream table;
  print_study(table, r);
  CHECK(has(table.str(), "energy of"));
  const auto json = nlohmann::json::parse(study_json(r, {}));
  CHECK(json["rows"][0]["energy"]["joules"] == doctest::Approx(idle + transfer));
  CHECK(json["rows"][0]["energy"]["elements"].size() == 8);
  CHECK(nlohmann::json::parse(study_json(studied(ring), {}))["rows"][0]["energy"].is_null());
  // Half duplex: a pair is one wire, which is idle once.
  const study_result half = studied(ring + "[study.hardware]\nlink.idle_power = \"5W\"\nlink.directions = \"half\"\n");
  double once = 0;
  for (const element_energy& e : energy_of(*half.on, half.rows.at(0).outcome.use, half.rows.at(0).outcome.end_ps))
    once += e.idle;
  CHECK(once == doctest::Approx(4 * 5 * static_cast<double>(half.rows.at(0).outcome.end_ps) * 1e-12));
  CHECK(parse_power("1.5 kW") == 1'500'000'000);
  CHECK(power_text(*parse_power("350mW")) == "350 mW");
  CHECK(parse_energy("2nJ/B") == 2'000'000);
  CHECK(energy_text(*parse_energy("10pJ/bit")) == "80 pJ/B");
  CHECK(has(why_refused("[study]\n[study.hardware]\nlink.energy = \"5W\"\n"), "10 pJ/bit"));
  CHECK(has(why_refused("[study]\n[study.hardware]\nlink.idle_power = \"-5W\"\n"), "350 mW"));
}

TEST_CASE("a score of too many lanes for the verifier is performed, and said to be unverified") {
  const auto ranks = [](int n) {
    return "[study]\nsizes = \"1K\"\nranks = " + std::to_string(n) + "\nchoreography = \"";
  };
  for (const int n : {90, 91, 224, 225}) {
    CAPTURE(n);
    const study_result r = studied(ranks(n) + "hierarchical\"\n");
    CHECK(r.rows.at(0).verified == (n == 90));
    CHECK(r.rows.at(0).time_us < 3);
  }
  // So auto takes it there, too.
  CHECK(studied(ranks(127) + "auto\"\n").rows.at(0).time_us < 3);
}

// -- lost ranks -----------------------------------------------------------------------------------------------------------

TEST_CASE("a lost rank: the others hear of it, and end with peer_lost") {
  const std::string ring = "[study]\nranks = 4\nchoreography = \"ring\"\nsizes = \"1M\"\nprotocol = \"simple\"\n";
  const auto lost = [&](const std::string& how, const std::string& who = "rank 2") {
    return studied(ring + "[study.faults]\n\"" + who + "\" = \"" + how + "\"\n");
  };
  const std::int64_t whole = studied(ring).rows.at(0).outcome.end_ps, leg = 1'000'000;  // an empty message takes 1 us
  REQUIRE(whole > 100'000'000);
  const study_result r = lost("exits at 50us");
  const virtual_outcome& o = r.rows.at(0).outcome;
  REQUIRE(o.ends.size() == 4);
  CHECK(o.ends[2].lost);
  CHECK(o.finished[2] == 50'000'000);
  for (const std::size_t other : {0u, 1u, 3u}) {
    CAPTURE(other);
    CHECK(!o.ends[other].lost);
    CHECK(o.ends[other].code == errc::peer_lost);
    CHECK(has(o.ends[other].why, "rank 2 was lost"));
    CHECK(has(o.ends[other].why, "closed a connection"));
    // The membership's rank hears of it a message later, asks all to stop, hears that they have, and tells all: at most four messages.
    CHECK(o.finished[other] > 50'000'000 + leg);
    CHECK(o.finished[other] <= 50'000'000 + 5 * leg);
  }
  // By its silence: as an engine takes it, or as the file says.
  CHECK(default_silence == picoseconds{std::chrono::milliseconds{join_options{}.silence}});
  const study_result silent = lost("stops at 50us"), soon = lost("stops at 50us silence 500ms");
  CHECK(silent.rows.at(0).outcome.finished[0] - soon.rows.at(0).outcome.finished[0] == 2'500'000'000'000);
  CHECK(has(silent.rows.at(0).outcome.ends[1].why, "nothing was heard of it for 3000 ms"));
  // The membership's own rank.
  const study_result first = lost("exits at 50us", "rank 0");
  for (const std::size_t other : {1u, 2u, 3u}) CHECK(first.rows.at(0).outcome.ends[other].code == errc::peer_lost);
  // Before anything has begun; and after all is over, when nobody minds.
  for (const std::size_t other : {0u, 1u, 3u})
    CHECK(lost("exits at 0us").rows.at(0).outcome.ends[other].code == errc::peer_lost);
  const study_result late = lost("exits at 1s");
  CHECK(late.rows.at(0).outcome.end_ps == whole);
  CHECK(late.rows.at(0).outcome.ends.empty());
  CHECK(late.remarks == studied(ring).remarks);
  CHECK(has(r.remarks.back(), "1M: if nobody were lost, ring would take "));

  std::ostringstream table;
  print_study(table, r);
  CHECK_MESSAGE(has(table.str(), "rank 2 exits at 50.00 us"), table.str());
  CHECK_MESSAGE(has(table.str(), "ranks 0, 1, 3 end with an error"), table.str());
  const auto json = nlohmann::json::parse(study_json(r, {}));
  CHECK(json["rows"][0]["ends"][2]["lost"] == true);
  // What failed was not fast.
  CHECK(json["rows"][0]["failed"] == true);
  CHECK(json["rows"][0]["busbw"] == 0);
  CHECK(has(table.str(), "ring, simple; fails"));
  CHECK(has(study_csv(r, {}), ",1,1,1,1,\n"));
  CHECK(!late.rows.at(0).failed());
  CHECK(late.rows.at(0).busbw > 0);
  const auto none_left = nlohmann::json::parse(study_json(lost("exits at 0us"), {}));
  for (const auto& use : none_left["utilisation"]) CHECK(use["share"] <= 1.0);
  std::ostringstream compared;
  print_comparison(compared, studied(ring), r);
  CHECK_MESSAGE(has(compared.str(), "B fails"), compared.str());
  CHECK(!has(compared.str(), "as fast"));
  CHECK(has(json["rows"][0]["ends"][0]["why"].get<std::string>(), "rank 2 was lost"));
}

TEST_CASE("a lost rank: nobody is left") {
  for (const int ranks : {2, 3, 4, 5, 7})
    for (const bool one_stops : {false, true})
      for (const int apart_us : {0, 1, 60}) {
        CAPTURE(ranks);
        CAPTURE(one_stops);
        CAPTURE(apart_us);
        std::string text =
            "[study]\nranks = " + std::to_string(ranks) + "\nchoreography = \"ring\"\nsizes = \"1M\"\n[study.faults]\n";
        for (int r = 0; r < ranks; ++r)
          text += "\"rank " + std::to_string(r) + "\" = \"" + (one_stops && r == 1 ? "stops" : "exits") + " at " +
                  std::to_string(1 + r * apart_us % 100) + "us\"\n";
        const study_result all = studied(text);
        const study_row& row = all.rows.at(0);
        CHECK(row.failed());
        CHECK(row.busbw == 0);
        for (const virtual_end& e : row.outcome.ends) CHECK(e.lost);
        const auto said = nlohmann::json::parse(study_json(all, {}));
        for (const auto& use : said["utilisation"]) CHECK(use["share"] <= 1.0);
      }
}

TEST_CASE("a lost rank: who has all that it needs ends well; two may be lost; every choreography ends") {
  // A broadcast down a chain of four, whose last rank is lost when it is nearly over: the root has sent all by then.
  const study_result chain = studied("[study]\nranks = 4\ncollective = \"broadcast\"\nchoreography = \"ring\"\nsizes = "
                                     "\"1M\"\n[study.faults]\n\"rank 3\" = "
                                     "\"exits at 300us\"\n");
  CHECK(chain.rows.at(0).outcome.ends.at(0).code == errc{});
  CHECK(chain.rows.at(0).outcome.finished.at(0) < 300'000'000);
  for (const char* choreography : {"ring", "double_binary_tree", "recursive_doubling", "halving_doubling",
                                   "direct_full_mesh", "one_shot", "nhr"}) {
    CAPTURE(choreography);
    for (const char* time : {"0us", "20us", "60us"}) {
      const study_result r = studied(std::string{"[study]\nranks = 8\nsizes = \"1M\"\nchoreography = \""} +
                                     choreography + "\"\n[study.faults]\n\"rank 0\" = \"exits at " + time +
                                     "\"\n\"rank 5\" = \"stops at 30us silence 200ms\"\n");
      const virtual_outcome& o = r.rows.at(0).outcome;
      REQUIRE(o.ends.size() == 8);
      for (std::size_t rank = 0; rank < 8; ++rank) {
        CHECK(o.ends[rank].lost == (rank == 0 || rank == 5));
        CHECK((o.ends[rank].code == errc{} || o.ends[rank].code == errc::peer_lost));
        CHECK(o.finished[rank] >= 0);
      }
    }
  }
  // With auto it is not the one that fails first that is best.
  const study_result chosen = studied(
      "[study]\nranks = 8\nsizes = \"1M\"\nchoreography = \"auto\"\n[study.faults]\n\"rank 1\" = \"exits at 1us\"\n");
  CHECK(chosen.rows.at(0).choreography ==
        studied("[study]\nranks = 8\nsizes = \"1M\"\nchoreography = \"auto\"\n").rows.at(0).choreography);
  const std::string faults = "[study]\nranks = 4\n[study.faults]\n";
  CHECK(has(why_refused(faults + "\"rank 4\" = \"exits at 1us\"\n"), "rank 0"));
  CHECK(has(why_refused(faults + "\"up 1\" = \"exits at 1us\"\n"), "only a rank"));
  CHECK(has(why_refused(faults + "\"rank 1\" = \"dies at 1us\"\n"), "a rank exits or stops"));
  CHECK(has(why_refused(faults + "\"rank 1\" = \"exits\"\n"), "does not say when"));
  CHECK(has(why_refused(faults + "\"rank 1\" = \"exits at 1us silence 3s\"\n"), "does not say when"));
  CHECK(has(why_refused(faults + "\"rank 1\" = \"stops at soon\"\n"), "soon"));
  CHECK(
      has(why_refused("[study]\nranks = 4\nperformed_by = \"player\"\n[study.faults]\n\"rank 1\" = \"exits at 1us\"\n"),
          "study.performed_by: the player"));
}
