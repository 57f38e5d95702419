// SPDX-License-Identifier: Apache-2.0
// Several jobs at once in virtual time: engine/tools/study/jobs.hpp, actors/virtual/virtual_jobs.hpp.
#include <algorithm>

#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"
#include "tests/engine/program.hpp"
#include "tests/trace_curves.hpp"

using namespace troupe;
using json = nlohmann::json;

namespace {

study_scenario scenario(const std::string& toml) {
  configuration c;
  c.add_text(toml, "jobs.toml");
  return read_study(c);
}
study_result run(const std::string& toml) { return run_study(scenario(toml)); }

void refused(const std::string& toml, const std::vector<std::string>& words) {
  try {
    run(toml);
    FAIL("accepted: " << toml);
  } catch (const error& why) {
    for (const std::string& w : words) CHECK_MESSAGE(std::string{why.what()}.find(w) != std::string::npos, why.what());
  }
}

std::int64_t length(const virtual_stretch& s) { return s.end - s.begin; }

/// Servers of two cards, whose cards share a NIC.
const std::string servers = "[study]\npreset = \"machine\"\nlayout = \"2x2\"\nchoreography = \"binomial\"\n";

}  // namespace

TEST_CASE("study, jobs: one that has the machine to itself takes what the study of its collective takes") {
  for (const char* preset : {"flat", "machine", "tianhe_32", "dgx_h100", "sunway_card"})
    for (const char* what : {"all_reduce 64K by ring", "broadcast 4K by binomial"}) {
      const std::string text{what};
      const std::string machine = "[study]\npreset = \"" + std::string{preset} + "\"\n";
      const study_result jobs = run(machine + "[[study.job]]\ncalls = \"" + text + "\"\nrounds = 3\n");
      const study_result one = run(machine + "collective = \"" + text.substr(0, text.find(' ')) + "\"\nsizes = \"" +
                                   text.substr(text.find(' ') + 1, text.find(" by") - text.find(' ') - 1) +
                                   "\"\nchoreography = \"" + text.substr(text.rfind(' ') + 1) + "\"\n");
      REQUIRE(jobs.jobs.size() == 1);
      REQUIRE(jobs.jobs[0].times.rounds.size() == 3);
      INFO(preset << ", " << text);
      for (const virtual_stretch& round : jobs.jobs[0].times.rounds) CHECK(length(round) == one.rows[0].outcome.end_ps);
      CHECK(jobs.jobs[0].slow_down() == 1);
    }
}

TEST_CASE("study, jobs: the player causes what the states cause") {
  const auto trace = [](const char* by) {
    const study_result r =
        run(servers + "performed_by = \"" + by +
            "\"\n[[study.job]]\ncalls = \"all_reduce 1M by ring, all_gather 64K by ring\"\nranks = 2\nrounds = 3\n"
            "[[study.job]]\ncalls = \"all_to_all 1M by pairwise\"\nranks = 2\nrounds = 4\ncompute = \"3us\"\n");
    return std::pair{r.together.trace, r.together.end_ps};
  };
  CHECK(trace("states") == trace("player"));
  CHECK(trace("states") == trace("states"));
}

TEST_CASE("study, jobs: who shares nothing is not slowed down, who shares a NIC is") {
  // Ports of flat are the ranks' own.
  const study_result apart = run("[study]\nranks = 8\n[[study.job]]\nranks = 4\ncalls = \"all_reduce 1M by ring\"\n"
                                 "[[study.job]]\nranks = 4\ncalls = \"all_to_all 1M by pairwise\"\nrounds = 5\n");
  CHECK(apart.shared.empty());
  CHECK(apart.jobs[0].ranks == std::vector<int>{0, 1, 2, 3});
  CHECK(apart.jobs[1].ranks == std::vector<int>{4, 5, 6, 7});
  for (const study_job_row& j : apart.jobs) CHECK(j.slow_down() == 1);

  // A megabyte of each job leaves server 0 by its one NIC: the second has to wait for the first.
  const study_result beside = run(servers + "[[study.job]]\nname = \"a\"\non = \"0,2\"\ncalls = \"broadcast 1M\"\n"
                                            "[[study.job]]\nname = \"b\"\non = \"1,3\"\ncalls = \"broadcast 1M\"\n");
  CHECK(!beside.shared.empty());
  CHECK(beside.jobs[0].slow_down() == 1);
  CHECK(beside.jobs[1].slow_down() > 1.5);
  CHECK(beside.jobs[1].slow_down() < 2.01);
  const std::size_t busiest = beside.shared.front().element;
  CHECK(beside.on->elements[busiest].name == "nic 0:0 out");
  CHECK(beside.shared.front().busy_ps[0] + beside.shared.front().busy_ps[1] == beside.together.use[busiest].busy_ps);

  // One after the other, they do not meet.
  const study_result after = run(servers + "[[study.job]]\non = \"0,2\"\ncalls = \"broadcast 1M\"\n"
                                           "[[study.job]]\non = \"1,3\"\ncalls = \"broadcast 1M\"\nstart = \"1ms\"\n");
  CHECK(after.jobs[1].slow_down() == 1);
  CHECK(after.jobs[1].times.rounds[0].begin == 1'000'000'000);
}

TEST_CASE("study, jobs: periods, computation, and calls that follow one another") {
  const study_result r = run("[study]\nranks = 4\nchoreography = \"ring\"\n"
                             "[[study.job]]\nranks = 2\ncalls = \"all_reduce 4K, all_gather 4K\"\nrounds = 3\nperiod = "
                             "\"1ms\"\nstart = \"2us\"\n"
                             "[[study.job]]\nranks = 2\ncalls = \"all_reduce 4K\"\nrounds = 3\ncompute = \"10us\"\n");
  const auto& first = r.jobs[0].times;
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(first.rounds[i].begin == 2'000'000 + static_cast<std::int64_t>(i) * 1'000'000'000);
    CHECK(first.calls[i][0].begin == first.rounds[i].begin);
    CHECK(first.calls[i][1].begin <= first.calls[i][0].end);  // each rank goes on by itself
    CHECK(first.calls[i][1].end == first.rounds[i].end);
  }
  const auto& second = r.jobs[1].times;
  for (std::size_t i = 1; i < 3; ++i) CHECK(second.rounds[i].begin - second.rounds[i - 1].end == 10'000'000);
}

TEST_CASE("study, jobs: places go to one job, or to those that share") {
  const std::string four = "[study]\nranks = 4\n";
  const std::string job = "[[study.job]]\ncalls = \"all_reduce 4K by ring\"\n";
  refused(four + job + "name = \"a\"\non = \"0-2\"\n" + job + "name = \"b\"\non = \"2,3\"\n",
          {"jobs.toml:", "b: on: rank 2 belongs to a", "share = true"});
  refused(four + job + "on = \"0-2\"\nshare = true\n" + job + "on = \"2,3\"\n", {"rank 2 belongs to job 0"});
  refused(four + job + job, {"job 1: it needs 4 ranks, and none is free of the machine's 4"});
  refused(four + job + "ranks = 3\n" + job + "ranks = 2\n", {"it needs 2 ranks, and 1 is free"});
  const study_result shared =
      run(four + job + "copies = 3\nshare = true\n" + job + "name = \"few\"\nranks = 2\nshare = true\n");
  CHECK(shared.jobs.size() == 4);
  CHECK(shared.jobs[2].name == "job 0.2");
  CHECK(shared.jobs[3].ranks == std::vector<int>{0, 1});
  // The second takes what the first has left.
  const study_result left = run(four + job + "on = \"0,2\"\n" + job + "ranks = 2\n");
  CHECK(left.jobs[1].ranks == std::vector<int>{1, 3});
  CHECK(ranks_text({0, 2, 4, 6, 7, 8, 9, 12}) == "0-6:2, 7-9, 12");
}

TEST_CASE("study, jobs: what a choreography sees is the machine's part, or what the job says") {
  const std::string machine = "[study]\npreset = \"machine\"\nlayout = \"3x4\"\n";
  const study_result r =
      run(machine + "[[study.job]]\non = \"0,1,4,5\"\ncalls = \"all_reduce 4K by hierarchical\"\n"
                    "[[study.job]]\nranks = 4\nlayout = \"1x4\"\ncalls = \"all_gather 4K by ring\"\n");
  CHECK(r.jobs[0].places.server_count() == 2);
  CHECK(r.jobs[1].places.to_string() == "1x4x1");
  refused(machine + "[[study.job]]\nranks = 4\nlayout = \"1x3\"\ncalls = \"barrier\"\n",
          {"layout", "has 3 ranks, the job 4"});
}

TEST_CASE("study, jobs: in NICs and by hosts beside each other") {
  const std::string machine =
      "[study]\npreset = \"tianhe_32\"\ntype = \"f64\"\nranks = 8\nchoreography = \"halving_doubling\"\n";
  const std::string job = "[[study.job]]\ncalls = \"reduce 16K, all_reduce 16K\"\nshare = true\nrounds = 2\n";
  const study_result r = run(machine + job + "copies = 3\n" + job + "name = \"hosts\"\nby = \"hosts\"\n");
  REQUIRE(r.jobs.size() == 4);
  for (const study_job_row& j : r.jobs) {
    CHECK(j.times.rounds.size() == 2);
    CHECK(j.slow_down() > 1);
  }
  CHECK(r.jobs[3].alone.median > 1.2 * r.jobs[0].alone.median);  // that is what the NICs are for
  refused(machine + job + "copies = 300\n", {"at most 256 jobs"});
  refused("[study]\n[[study.job]]\ncalls = \"barrier\"\nby = \"nics\"\n",
          {"flat has no NICs that perform collectives"});
  refused(machine + "[study.structure]\njobs = 2\n" + job, {"structure.jobs would do nothing", "copies"});
}

TEST_CASE("study, jobs: 256 on the same eight NICs, and none starves") {
  const study_result r =
      run("[study]\npreset = \"tianhe_32\"\nranks = 8\ntype = \"f64\"\n[[study.job]]\ncopies = 256\nshare = true\n"
          "calls = \"all_reduce 16K by halving_doubling\"\n");
  REQUIRE(r.jobs.size() == 256);
  std::int64_t shortest = r.together.end_ps, longest = 0;
  for (const study_job_row& j : r.jobs) {
    shortest = std::min(shortest, j.times.rounds[0].end);
    longest = std::max(longest, j.times.rounds[0].end);
  }
  MESSAGE("longest / shortest completion " << static_cast<double>(longest) / static_cast<double>(shortest));
  CHECK(longest <= 2 * shortest);
  CHECK(r.together.buffer_fill < 1.12);
}

TEST_CASE("study, jobs: what shared elements do is recorded, whole, by job, and changes nothing") {
  study_run_options recorded;
  recorded.record = study_run_options::recorded::shown;
  const std::string jobs =
      "[[study.job]]\nname = \"a\"\non = \"0,2\"\nrounds = 3\ncalls = \"all_reduce 1M by ring, broadcast 64K\"\n"
      "[[study.job]]\nname = \"b\"\non = \"1,3\"\nrounds = 2\ncalls = \"broadcast 1M\"\n";
  for (const char* discipline : {"fifo", "fair", "max_min"}) {
    INFO(discipline);
    const study_scenario s =
        scenario(servers + "[study.hardware]\nnic.discipline = \"" + std::string{discipline} + "\"\n" + jobs);
    const study_result plain = run_study(s), r = run_study(s, recorded);
    CHECK(plain.occupied == nullptr);
    CHECK(r.together.trace == plain.together.trace);
    CHECK(r.together.end_ps == plain.together.end_ps);
    REQUIRE(r.occupied != nullptr);
    CHECK(r.occupied->complete);
    REQUIRE(!r.shared.empty());
    std::vector<std::uint64_t> messages(r.on->elements.size(), 0);
    std::vector<std::int64_t> bytes(messages.size(), 0), busy(messages.size(), 0);
    for (const element_recording::stretch& t : r.occupied->stretches) {
      const auto e = static_cast<std::size_t>(t.element);
      ++messages[e], bytes[e] += t.bytes, busy[e] += t.end - t.begin;
      CHECK(t.begin >= 0);
      CHECK(t.end >= t.begin);
      CHECK(t.end <= r.together.end_ps);
      REQUIRE((t.job == 0 || t.job == 1));
      for (const rank_t end : {t.from, t.to})
        CHECK(std::ranges::count(r.jobs[static_cast<std::size_t>(t.job)].ranks, end) == 1);
    }
    for (std::size_t e = 0; e < messages.size(); ++e) {
      const bool shared = std::ranges::any_of(r.shared, [&](const auto& one) { return one.element == e; });
      const element_use& use = r.together.use[e];
      CHECK(messages[e] == (shared ? use.messages : 0));
      CHECK(bytes[e] == (shared ? static_cast<std::int64_t>(use.bytes) : 0));
      // Messages that are served at once make a fair element busy once.
      const bool at_once = std::string{discipline} != "fifo" && shared;
      CHECK((at_once ? busy[e] >= use.busy_ps : busy[e] == (shared ? use.busy_ps : 0)));
    }
    const json document = json::parse(study_json(r));
    CHECK(document.at("complete") == true);
    CHECK(document.at("span_names") == json{"a", "b", "own work", "all_reduce", "broadcast"});
    std::size_t drawn = 0;
    for (const json& span : document.at("spans")) drawn += span.at(0).get<std::size_t>() >= r.jobs.size() ? 1 : 0;
    CHECK(drawn == r.occupied->stretches.size());
  }
  // Where NICs perform, nothing is recorded, and that is said.
  const study_result by_nics = run_study(
      scenario("[study]\npreset = \"tianhe_32\"\n[[study.job]]\nname = \"a\"\nranks = 32\nshare = true\ncopies "
               "= 2\ncalls = \"all_reduce 64K by ring\"\n"),
      recorded);
  CHECK(by_nics.occupied == nullptr);
  REQUIRE(!by_nics.shared.empty());
  CHECK(std::ranges::any_of(by_nics.remarks, [](const std::string& t) { return t.starts_with("not recorded"); }));
}

TEST_CASE("study, jobs: the study's and the job's choreography are wishes, a call's is not") {
  const std::string four = "[study]\nranks = 4\n", calls = "calls = \"all_reduce 4K, barrier\"\n";
  const std::string by_ring = "choreography = \"ring\"\n";
  const std::string barrier = run(four + "[[study.job]]\ncalls = \"barrier\"\n").jobs[0].calls[0].choreography;
  for (const std::string& text :
       {four + by_ring + "[[study.job]]\n" + calls, four + "[[study.job]]\n" + calls + by_ring}) {
    const study_result r = run(text);
    CHECK(r.jobs[0].calls[0].choreography == "ring");
    CHECK(r.jobs[0].calls[1].choreography == barrier);
    REQUIRE(r.remarks.size() == 1);
    CHECK(r.remarks[0] == "ring does not offer barrier; it goes by " + barrier + ", the fastest");
  }
  refused(four + by_ring + "[[study.job]]\ncalls = \"barrier by ring\"\n", {"ring does not offer barrier"});
}

TEST_CASE("study, jobs: bad input is refused with a sentence") {
  const std::string four = "[study]\nranks = 4\n";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {"ranks = 2\n", {"[[study.job]] has no calls", "calls = "}},
      {"calls = \"\"\n", {"job 0: calls: there is a call without a name"}},
      {"calls = \"all_redce 4K\"\n", {"jobs.toml:4", "a job performs no \"all_redce\"; did you mean all_reduce?"}},
      {"calls = \"all_gather_v 4K\"\n", {"performs no \"all_gather_v\""}},
      {"calls = \"all_reduce\"\n", {"\"all_reduce\" has no size"}},
      {"calls = \"all_reduce big\"\n", {"has the size \"big\""}},
      {"calls = \"all_reduce 4K ring\"\n", {"nothing, or `by` and a choreography"}},
      {"calls = \"all_reduce 4K by rign\"\n", {"there is no choreography \"rign\"; did you mean ring?"}},
      {"calls = \"all_reduce 4K by bruck\"\n", {"job 0: all_reduce: bruck does not offer all_reduce"}},
      {"calls = \"all_reduce 4K\"\nprotocol = \"fast\"\n", {"no protocol \"fast\"; there are"}},
      {"calls = \"all_reduce 4K\"\non = \"0-x\"\n", {"\"0-x\" is no list of ranks"}},
      {"calls = \"all_reduce 4K\"\non = \"3-1\"\n", {"is no range of ranks"}},
      {"calls = \"all_reduce 4K\"\non = \"0-4\"\n", {"the machine has no rank 4; ranks are 0 to 3"}},
      {"calls = \"all_reduce 4K\"\non = \"1,1\"\n", {"rank 1 is named twice"}},
      {"calls = \"all_reduce 4K\"\non = \"1\"\nranks = 1\n", {"say one of them"}},
      {"calls = \"all_reduce 4K\"\nranks = 5\n", {"it needs 5 ranks, and 4 are free"}},
      {"calls = \"broadcast 4K\"\nroot = 4\n", {"root: it has no rank 4"}},
      {"calls = \"all_reduce 4K\"\nstart = \"soon\"\n", {"\"soon\" is no time"}},
      {"calls = \"all_reduce 4K\"\nperiod = \"2000s\"\n", {"at most"}},
      {"calls = \"all_reduce 4K\"\nrounds = 0\n", {"study.job.rounds is the integer 0", "from 1"}},
      {"calls = \"all_reduce 4K\"\nround = 2\n", {"unknown key study.job.round; did you mean study.job.rounds?"}},
      {"calls = \"all_reduce 4K\"\ntype = \"f31\"\n", {"there is no element type \"f31\""}},
      {"calls = \"all_reduce 4K\"\nranks = 2\nname = \"a\"\n[[study.job]]\ncalls = \"barrier\"\nranks = 2\nname = "
       "\"a\"\n",
       {"two jobs are called \"a\""}},
      {"calls = \"all_reduce 4K\"\non = \"0,1\"\ncopies = 2\n", {"copies on the same ranks must share"}},
  };
  for (const auto& [text, words] : cases) refused(four + "[[study.job]]\n" + text, words);
  for (const char* key :
       {"sizes = \"4K\"\n", "collective = \"barrier\"\n", "payload = \"real\"\n", "skew_spread = \"1us\"\n"})
    refused(four + key + "[[study.job]]\ncalls = \"barrier\"\n", {"would do nothing", "jobs"});
  refused(four + "job = 3\n", {"study.job is the integer 3", "[[study.job]]"});
}

TEST_CASE("study, jobs: the example, and what the program makes of it") {
  using namespace troupe_program;
  const std::string file = TROUPE_SOURCE_DIR "/config/studies/jobs.toml";
  const auto json_file = (folder() / "jobs.json").string(), page = (folder() / "jobs.html").string(),
             trace = (folder() / "jobs_trace.json").string();
  const outcome o = troupe_program::run("study " + file + " --sweep job.2.period=3ms,0 --csv - --json " + json_file +
                                        " --report " + page + " --trace " + trace);
  CHECK(o.code == 0);
  CHECK(o.err.find("slow-down") != std::string::npos);
  CHECK(o.err.find("# Elements that several jobs use") != std::string::npos);
  CHECK(o.out.starts_with("key,value,job,call,collective,bytes,"));
  CHECK(o.out.find("\njob.2.period,3ms,training,0,reduce_scatter,4194304,hierarchical,") != std::string::npos);
  const json document = json::parse(contents(json_file));
  CHECK(document["jobs"].size() == 3);
  CHECK(document["jobs"][0]["name"] == "training");
  CHECK(document["jobs"][0]["slow_down"].get<double>() > 1.2);
  CHECK(document["jobs"][0]["rounds_ps"].size() == 5);
  CHECK(document["sweeps"][0]["points"].size() == 2);
  CHECK(contents(page).find("\"troupe_study\":1") != std::string::npos);
  CHECK(troupe_tests::spans_nest(contents(trace)));
  const auto curves = troupe_tests::curves_of(contents(trace));
  CHECK(curves.at({1, "calls under way"}).is_whole());
  CHECK(curves.at({1, "calls under way"}).area() ==
        doctest::Approx(troupe_tests::time_of_spans(contents(trace), 1, "call")));
  CHECK(curves.at({2, "messages served: nic"}).is_whole());
  double of_jobs = 0;
  for (const auto& [which, curve] : curves)
    if (which.second.starts_with("messages served of ")) of_jobs += curve.area();
  CHECK(of_jobs > 0);
  CHECK(of_jobs <= troupe_tests::time_of_spans(contents(trace), 2, "occupy") * (1 + 1e-9));
  CHECK(troupe_program::run("study " + file + " --set job.3.rounds=2").err.find("there is no job 3; the study has 3") !=
        std::string::npos);
  CHECK(troupe_program::run("study " + file + " --path").err.find("of a study of one collective") != std::string::npos);
  CHECK(troupe_program::run("compare " + file + " --set-b job.0.rounds=2").err.find("studies of one collective") !=
        std::string::npos);
  const outcome dumped = troupe_program::run("study " + file + " --set job.0.rounds=7 --dump-config");
  CHECK(dumped.out.find("[[study.job]]\nname = 'training'") != std::string::npos);
  CHECK(dumped.out.find("rounds = 7 ") != std::string::npos);
}
