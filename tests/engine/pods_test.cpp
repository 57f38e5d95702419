// SPDX-License-Identifier: Apache-2.0
// What the processes of a job say of groups of hosts, and the layout that a join makes of it.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "actors/ports/link/rendezvous.hpp"
#include "engine/world/join.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreographies.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/seed.hpp"

using namespace troupe;

namespace {

namespace pods {

using names = std::vector<std::string>;

struct said {
  std::uint64_t host;
  names groups;
  std::uint32_t ranks = 1;
  bool told = true;
};

actors::roster roster_of(const std::vector<said>& all) {
  actors::roster job;
  std::uint32_t ranks = 0;
  for (const said& s : all) {
    actors::process_place place;
    place.host = "h" + std::to_string(s.host);
    place.host_key = s.host;
    place.pid = 100 + static_cast<int>(job.processes.size());
    place.first_rank = ranks;
    ranks += place.ranks = s.ranks;
    place.groups = s.groups;
    place.told_groups = s.told;
    job.processes.push_back(std::move(place));
  }
  return job;
}

std::string text_of(const std::vector<said>& all) { return layout_of(roster_of(all)).to_string(); }

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace pods

}  // namespace

using namespace pods;

TEST_CASE("pods: hosts of a group follow each other in the layout, wherever their processes are in the job") {
  CHECK(text_of({{1, {}}, {2, {}}}) == "2x1x1");
  CHECK(text_of({{1, {"a"}}, {2, {"a"}}, {3, {"b"}}, {4, {"b"}}}) == "2x2x1x1");
  CHECK(text_of({{1, {"a"}}, {3, {"b"}}, {2, {"a"}}, {4, {"b"}}}) == "0.0.0.0,1.0.0.0,0.1.0.0,1.1.0.0");
  CHECK(text_of({{1, {"a"}, 2}, {2, {"a"}, 2}, {3, {"b"}, 2}, {4, {"b"}, 2}}) == "2x2x1x2");
  // Several processes of a host, and not one behind the other.
  CHECK(text_of({{1, {"a"}}, {3, {"b"}}, {1, {"a"}}, {3, {"b"}}, {2, {"a"}}, {4, {"b"}}, {2, {"a"}}, {4, {"b"}}}) ==
        "0.0.0.0,1.0.0.0,0.0.0.1,1.0.0.1,0.1.0.0,1.1.0.0,0.1.0.1,1.1.0.1");
  CHECK(
      text_of({{1, {"r", "x"}}, {2, {"r", "y"}}, {3, {"r", "x"}}, {4, {"s", "x"}}, {5, {"s", "x"}}, {6, {"s", "z"}}}) ==
      "0.0.0.0.0,0.1.0.0.0,0.0.1.0.0,1.0.0.0.0,1.0.1.0.0,1.1.0.0.0");
  // The same name in two racks is two groups.
  CHECK(layout_of(roster_of({{1, {"r", "x"}}, {2, {"r", "x"}}, {3, {"s", "x"}}, {4, {"s", "x"}}})).outer ==
        std::vector<std::vector<int>>{{2, 2}});
  // A process that names fewer levels than others is in a group of its own there.
  CHECK(layout_of(roster_of({{1, {"r"}}, {2, {"r", "x"}}, {3, {"r", "x"}}, {4, {"s", "y"}}})).outer ==
        std::vector<std::vector<int>>{{3, 1}, {1, 2, 1}});
  // What parts nothing: one group, a group for each host, one host.
  CHECK(text_of({{1, {"a"}}, {2, {"a"}}}) == "2x1x1");
  CHECK(text_of({{1, {"a"}}, {2, {"b"}}}) == "2x1x1");
  CHECK(text_of({{1, {"a"}, 4}}) == "4");
  const layout all = layout_of(roster_of({{1, {"a"}}, {3, {"b"}, 2}, {2, {"a"}}}));
  CHECK(all.homes == std::vector<residence>{{0, 0, 0}, {2, 1, 1}, {2, 1, 1}, {1, 2, 2}});
}

TEST_CASE("hosts of one running system are on one computer; who does not know it has one of its own") {
  actors::roster job = roster_of({{1, {}}, {2, {}, 2}, {3, {}}, {4, {}}});
  job.processes[0].machine_key = job.processes[2].machine_key = 77;
  job.processes[3].machine_key = 78;
  const reach_map where{layout_of(job)};
  CHECK(where.computers() == 3);
  CHECK(where.most_ranks_of_computer() == 2);
  const layout all = layout_of(job);
  CHECK(all.homes[0].computer == all.homes[3].computer);
  CHECK(all.homes[1].computer == all.homes[2].computer);
  CHECK(all.homes[1].computer != all.homes[4].computer);
}

TEST_CASE("pods: what does not fit together is told with both processes; what a launcher alone has said of some does "
          "not count") {
  CHECK(trouble_with_groups(roster_of({{1, {"a"}}, {1, {"a"}}, {2, {"b", "c"}}})).empty());
  CHECK(trouble_with_groups(roster_of({{1, {}}, {2, {}}})).empty());
  CHECK(trouble_with_groups(roster_of({{1, {"a", "b"}}, {1, {"a", "c"}}})) ==
        "process 0 (rank 0, pid 100 on host h1) is in pod a/b, and process 1 (rank 1, pid 101 on host h1) is in pod "
        "a/c; a "
        "host is in one pod (TROUPE_POD)");
  CHECK(trouble_with_groups(roster_of({{1, {"a"}}, {2, {}}})) ==
        "process 0 (rank 0, pid 100 on host h1) is in pod a, and process 1 (rank 1, pid 101 on host h2) names no pod; "
        "say it "
        "of all hosts of the job (TROUPE_POD, or pod in the file of hosts), or of none");
  CHECK(says(trouble_with_groups(roster_of({{1, {}}, {2, {"b"}}})), "names no pod, and process 1 (rank 1"));
  CHECK(says(trouble_with_groups(roster_of({{1, names(6, "x")}})), "6 levels; there can be 5"));

  const std::vector<said> by_launcher{
      {1, {"a"}, 1, false}, {2, {}, 1, false}, {3, {"a"}, 1, false}, {4, {"b"}, 1, false}};
  CHECK(trouble_with_groups(roster_of(by_launcher)).empty());
  CHECK(text_of(by_launcher) == "4x1x1");
}

TEST_CASE("pods: the rendezvous tells all processes what does not fit together") {
  actors::rendezvous_service service{"tcp://127.0.0.1:0", 2, {}, build_of_links()};
  std::vector<std::string> told(2);
  std::vector<std::thread> threads;
  for (std::uint32_t p = 0; p < 2; ++p)
    threads.emplace_back([&, p] {
      actors::enrolment mine;
      mine.process = p;
      mine.processes = 2;
      mine.place.host = "h";
      mine.place.host_key = p;
      mine.place.ranks = 1;
      if (p == 1) mine.place.groups = {"a", "b"}, mine.place.told_groups = true;
      try {
        static_cast<void>(actors::enrol(service.address(), {}, build_of_links(), mine,
                                        {std::chrono::steady_clock::now() + std::chrono::seconds{20}, {}}));
      } catch (const error& e) {
        told[p] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(says(told[0], "names no pod, and process 1"));
  CHECK(says(told[0], "is in pod a/b; say it of all hosts"));
  CHECK(told[0] == told[1]);
}

TEST_CASE("pods: whatever hosts and groups a job has, hierarchical choreographies are right on its layout") {
  namespace c = choreographies;
  std::mt19937_64 random{seed() + 5};
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  int verified = 0;
  for (int round = 0; round < 60; ++round) {
    // Alike hosts, since most hierarchical ones need them; in groups that need not be alike, and processes in any order.
    const int hosts = 2 + below(7), of_host = 1 + below(2), depth = 1 + below(3);
    std::vector<said> all;
    for (int h = 0; h < hosts; ++h) {
      names groups;
      for (int level = 0; level < depth; ++level) groups.push_back(std::to_string(below(3)));
      for (int p = 0; p < of_host; ++p) all.push_back({static_cast<std::uint64_t>(h), groups, 2});
    }
    std::shuffle(all.begin(), all.end(), random);
    const layout places = layout_of(roster_of(all));
    CAPTURE(places.to_string());
    for (const choreography* which :
         {&c::hierarchical, &c::hierarchical_hd, &c::hierarchical_nhr, &c::hierarchical_nb, &c::hierarchical_pipeline})
      for (const collective what :
           {collective::all_reduce, collective::all_gather, collective::reduce_scatter, collective::all_to_all}) {
        setup on = flat_setup(what, places.size(), 0, false);
        on.placement = places;
        if (std::ranges::find(which->collectives, what) == which->collectives.end() || !which->refuses(on).empty())
          continue;
        const verdict v = verify(lower_syncs(write_score(*which, on)));
        CHECK_MESSAGE(v.ok(), which->name << ": " << (v.ok() ? "" : to_string(*v.first_fault)));
        ++verified;
      }
  }
  CHECK(verified > 300);
}
