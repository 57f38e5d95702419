// SPDX-License-Identifier: Apache-2.0
// Choreographies from outside: registered, in an engine's options, in a shared library that a configuration names.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "engine/config/configuration.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/score/score_builder.hpp"

using namespace troupe;
using namespace troupe::notation;

namespace {

score chain(const setup& on) {
  score_builder s{on, "own_chain", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    if (r == on.root) {
      me.copy_own(input[0], output[0]);
      for (rank_t to = 0; to < on.ranks; ++to)
        if (to != on.root) me.to(to).send(input[0]);
    } else {
      me.from(on.root).recv(output[0]);
    }
  }
  return s.finish();
}
std::string nothing(const setup&) { return {}; }

constexpr std::array offers{offer{collective::broadcast, chain}};
constexpr choreography own{"own_chain", "the root sends to everybody", "this test", offers, nothing};
constexpr choreography unnamed{"", "no name", "this test", offers, nothing};
constexpr choreography taken{"ring", "ring is taken", "this test", offers, nothing};
constexpr choreography unable{"unable", "no function", "this test", offers, nullptr};

struct output_of_program {
  int status = 0;
  std::string text;
};
output_of_program program(const std::string& arguments) {
  output_of_program result;
  FILE* pipe = ::popen((std::string{TROUPE_PROGRAM} + " " + arguments + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> part{};
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe)) result.text.append(part.data(), n);
  result.status = ::pclose(pipe) >> 8;
  return result;
}

const std::string library = "--set engine.choreography_libraries.mine=" TROUPE_PLUGIN " ";

}  // namespace

TEST_CASE("an engine performs a choreography of its options") {
  engine_options options;
  options.choreographies = {&own};
  options.choreography_of["broadcast"] = "own_chain";
  for (const int ranks : {1, 2, 5}) {
    engine{options}.run(ranks, [](communicator& comm) {
      std::vector<int> data(1000, comm.rank() == comm.size() - 1 ? 7 : 0);
      comm.broadcast(data, comm.size() - 1);
      CHECK(data == std::vector<int>(1000, 7));
    });
  }
  CHECK(find_choreography("own_chain") == &own);
  CHECK_FALSE(is_built_in(own));
  const std::size_t before = all_choreographies().size();
  CHECK_NOTHROW(register_choreography(own));
  CHECK(all_choreographies().size() == before);
}

TEST_CASE("what cannot be registered is refused with the reason") {
  CHECK_THROWS_WITH(register_choreography(unnamed), doctest::Contains("its name must be"));
  CHECK_THROWS_WITH(register_choreography(taken), doctest::Contains("there is one of that name"));
  CHECK_THROWS_WITH(register_choreography(unable), doctest::Contains("no function `refuses`"));
}

TEST_CASE("the program knows those of a shared library") {
  const auto run =
      program("bench " + library + "--collective all_gather --choreography gossip -t 3 -b 64 -e 64 -n 3 -w 1");
  CHECK_MESSAGE(run.status == 0, run.text);
  const auto explained = program("explain all_gather --ranks 3 --bytes 64 " + library);
  CHECK_MESSAGE(explained.text.find("gossip") != std::string::npos, explained.text);
}

TEST_CASE("study, compare, replay and explain --on know what the engine is given from outside") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("own_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream{folder / name} << text;
    return "'" + (folder / name).string() + "' ";
  };
  const auto says = [](const output_of_program& of, int status, const char* part) {
    CHECK_MESSAGE(of.status == status, of.text);
    CHECK_MESSAGE(of.text.find(part) != std::string::npos, of.text);
  };
  write("mine.json", program("show pairwise --collective all_to_all --ranks 3 --json").text);
  const std::string own =
      write("own.toml", "[engine]\nscore_files.mine = \"mine.json\"\nchoreography_libraries.any = \"" TROUPE_PLUGIN
                        "\"\n[study]\nranks = 3\nsizes = \"1K\"\n");
  const auto calls = [&](const char* name, const std::string& call) {
    std::string text = "num_ranks 3\n";
    for (const char* rank : {"0", "1", "2"}) text += std::string{"rank "} + rank + " {\ncoll " + call + "\n}\n";
    return write(name, text);
  };
  const std::string by_mine = calls("mine.goal", "all_to_all 9 f32 by mine"),
                    by_gossip = calls("gossip.goal", "all_gather 9 f32 by gossip");
  says(program("study " + own + "--set collective=all_to_all --set choreography=mine"), 0, "mine, simple");
  says(program("study " + own + "--set collective=all_gather --set choreography=gossip"), 0, "gossip, simple");
  says(program("study " + own + "--set collective=all_gather --set choreography=forgetful"), 2,
       "forgetful does not verify");
  says(program("study " + own + "--set collective=all_to_all --set engine.score_files.mine=/nowhere.json"), 2,
       "engine.score_files.mine: there is no file /nowhere.json");
  says(program("study " + own + "--set score_files.mine=other.json"), 2, "call one of them otherwise");
  says(program("compare " + own + "--set collective=all_gather --set choreography=ring --set-b choreography=gossip"), 0,
       "gossip, simple");
  says(program("explain all_gather --bytes 1K --on flat --ranks 3 " + library), 0,
       "rejected: forgetful does not verify");
  says(program("replay " + by_mine + "--config " + own), 0, "mine, simple");
  says(program("replay " + by_gossip + "--config " + own), 0, "gossip, simple");
  says(program("replay " + by_mine), 2,
       "which is no choreography; did you mean ring? [study.score_files] or [engine.score_files] names");
  std::filesystem::remove_all(folder);
}

TEST_CASE("a wrong one of them is refused before it is performed") {
  const auto run =
      program("bench " + library + "--collective all_gather --choreography forgetful -t 3 -b 64 -e 64 -n 3 -w 1");
  CHECK(run.status != 0);
  CHECK_MESSAGE(run.text.find("forgetful does not verify") != std::string::npos, run.text);
}

TEST_CASE("a library that is none, or of somebody else") {
  const auto missing =
      program("explain all_gather --ranks 3 --bytes 64 --set engine.choreography_libraries.x=/nowhere/lib.so");
  CHECK(missing.status != 0);
  CHECK_MESSAGE(missing.text.find("/nowhere/lib.so") != std::string::npos, missing.text);
  const auto other = program("explain all_gather --ranks 3 --bytes 64 --set engine.choreography_libraries.x=libm.so.6");
  CHECK_MESSAGE(other.text.find("shows no troupe_choreographies") != std::string::npos, other.text);
  const auto pipe = std::filesystem::temp_directory_path() / ("pipe_" + std::to_string(::getpid()));
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto from_pipe =
      program("explain all_gather --ranks 3 --bytes 64 --set engine.choreography_libraries.x=" + pipe.string());
  std::filesystem::remove(pipe);
  CHECK_MESSAGE(from_pipe.text.find("it is no file, but a folder, a pipe or a device") != std::string::npos,
                from_pipe.text);
}
