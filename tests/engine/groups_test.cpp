// SPDX-License-Identifier: Apache-2.0
// Operations that are launched together.

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>

#include <unistd.h>

#include "engine/tools/replay/replay.hpp"
#include "tests/engine/jobs.hpp"
#include "tests/seed.hpp"

using namespace engine_tests;

TEST_CASE("one thread drives eight ranks, without workers too") {
  for (const int workers : {-1, 0}) {
    troupe::engine_options options;
    options.workers = workers;
    troupe::engine engine(options);
    auto comms = engine.communicators(8);
    std::vector<std::vector<float>> data(8, std::vector<float>(1000));
    for (int round = 1; round <= 20; ++round) {
      for (std::size_t r = 0; r < 8; ++r)
        std::fill(data[r].begin(), data[r].end(), static_cast<float>(r) * static_cast<float>(round));
      troupe::group together;
      for (std::size_t r = 0; r < 8; ++r) comms[r].all_reduce_async(together, data[r]);
      CHECK(together.size() == 8);
      together.wait();
      CHECK(together.size() == 0);
      for (const auto& one : data) CHECK(one == std::vector<float>(1000, 28.0f * static_cast<float>(round)));
    }
  }
}

TEST_CASE("several collectives in one group, in the order of adding per rank") {
  troupe::engine engine;
  auto comms = engine.communicators(3);
  std::vector<std::vector<std::int32_t>> data(3, std::vector<std::int32_t>(5, 1)), all(3, std::vector<std::int32_t>(3)),
      word(3);
  std::vector<std::int32_t> mine{10, 20, 30};
  troupe::group together;
  for (std::size_t r = 0; r < 3; ++r) {
    word[r].assign(4, r == 1 ? 9 : 0);
    comms[r].all_reduce_async(together, data[r]);
    comms[r].all_gather_async(together, std::span(&mine[r], 1), all[r]);
    comms[r].broadcast_async(together, word[r], 1);
    comms[r].barrier_async(together);
  }
  together.wait();
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(data[r] == std::vector<std::int32_t>(5, 3));
    CHECK(all[r] == mine);
    CHECK(word[r] == std::vector<std::int32_t>(4, 9));
  }
}

TEST_CASE("a group over communicators of several sizes and engines, with sends among them") {
  troupe::engine first, second;
  auto a = first.communicators(2), b = first.communicators(3), c = second.communicators(2);
  std::vector<std::vector<std::int32_t>> data(7, std::vector<std::int32_t>(3, 1));
  std::int32_t out = 5, in = 0;
  troupe::group together;
  std::size_t k = 0;
  for (auto* comms : {&a, &b, &c})
    for (auto& comm : *comms) comm.all_reduce_async(together, data[k++]);
  a[1].recv_async(together, std::span(&in, 1), 0);
  a[0].send_async(together, std::span(&out, 1), 1);
  together.wait();
  CHECK(in == 5);
  for (std::size_t i = 0; i < 7; ++i) CHECK(data[i][2] == (i >= 2 && i < 5 ? 3 : 2));
}

TEST_CASE("nothing happens before launch; a group can be used again, and its destructor waits") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<std::int32_t> x(3, 1), y(3, 1);
  {
    troupe::group together;
    troupe::request r = comms[0].all_reduce_async(together, x);
    comms[1].all_reduce_async(together, y);
    CHECK_FALSE(r.wait_for(std::chrono::milliseconds(20)));
    CHECK_FALSE(r.test());
    together.launch();
    r.wait();
    together.wait();
    CHECK(x[0] == 2);
    comms[0].all_reduce_async(together, x);
    comms[1].all_reduce_async(together, y);
    together.wait();
    CHECK(x[0] == 4);
    comms[0].all_reduce_async(together, x);
    comms[1].all_reduce_async(together, y);
  }
  CHECK(x[0] == 8);
  CHECK(y == x);
  troupe::group nothing;
  nothing.launch();
  nothing.wait();
}

TEST_CASE("blocking, asynchronous and grouped forms meet in one operation") {
  troupe::engine engine;
  engine.run(3, [](communicator& comm) {
    std::vector<std::int32_t> data(6, comm.rank());
    if (comm.rank() == 0) comm.all_reduce(data);
    else if (comm.rank() == 1) comm.all_reduce_async(data).wait();
    else {
      troupe::group together;
      comm.all_reduce_async(together, data);
      together.wait();
    }
    CHECK(data == std::vector<std::int32_t>(6, 3));
  });
}

TEST_CASE("the first failure in the order of adding comes out, after everything has ended") {
  troupe::engine engine;
  auto good = engine.communicators(2), bad = engine.communicators(2);
  std::vector<float> g0(4, 1), g1(4, 1), b0(4), b1(5);
  troupe::group together;
  bad[0].all_reduce_async(together, b0);
  bad[1].all_reduce_async(together, b1);
  good[0].all_reduce_async(together, g0);
  auto last = good[1].all_reduce_async(together, g1);
  CHECK_THROWS_AS(together.wait(), troupe::error);
  CHECK(last.done());
  CHECK(g0 == std::vector<float>(4, 2));
}

TEST_CASE("wrong arguments are refused when they are added, and what is added behind them is performed") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<float> x(4, 1), y(4, 1);
  troupe::group together;
  comms[0].all_reduce_async(together, x);
  CHECK_THROWS_AS(comms[1].broadcast_async(together, y, 7), troupe::error);
  comms[0].all_reduce_async(together, x);
  comms[1].all_reduce_async(together, y);
  CHECK_THROWS_AS(together.wait(), troupe::error);
  CHECK(y[0] == 2);
}

namespace group_order {

troupe::engine_options as_nccl(const std::string& layout) {
  troupe::engine_options o;
  o.environment = false;
  o.planner = "nccl";
  o.layout = layout;
  return o;
}

/// What rank 0 begins in a group to whose peers it sends, and receives from them, from the last to the first.
std::string begun_by_rank_0(troupe::engine_options options) {
  const auto folder = std::filesystem::temp_directory_path() / ("troupe_group_order_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  options.record = folder / "run.goal";
  {
    troupe::engine engine{options};
    engine.run(8, [](communicator& comm) {
      const int me = comm.rank();
      std::array<int, 8> in{}, out{};
      troupe::group together;
      for (int peer = 8; peer-- > 0;) {
        if (peer == me) continue;
        const auto of = static_cast<std::size_t>(peer);
        out[of] = 10 * me + peer;
        comm.send_async(together, std::span(&out[of], 1), peer);
        comm.recv_async(together, std::span(&in[of], 1), peer);
      }
      together.wait();
      for (int peer = 0; peer < 8; ++peer)
        if (peer != me) CHECK(in[static_cast<std::size_t>(peer)] == 10 * peer + me);
    });
  }
  std::string text;
  // The one file of it: the second of a process has another name.
  const auto written = std::filesystem::directory_iterator(folder)->path().string();
  const troupe::application made = troupe::load_application({written});
  for (const troupe::replay_operation& o : made.ranks[0].operations)
    if (o.what == troupe::replay_operation::kind::send) text += " >" + std::to_string(o.peer);
    else if (o.what == troupe::replay_operation::kind::recv) text += " <" + std::to_string(o.peer);
  std::filesystem::remove_all(folder);
  return text;
}

}  // namespace group_order

TEST_CASE("planner nccl: sends and receives of a group begin in NCCL's order of peers, receive before send") {
  // Servers at the distances 0, 2, 1, -1: to the one so far ahead, from the one as far behind.
  CHECK(group_order::begun_by_rank_0(group_order::as_nccl("4x2")) == " <1 >1 <4 >4 <5 >5 <6 >2 <7 >3 <2 >6 <3 >7");
  CHECK(group_order::begun_by_rank_0(group_order::as_nccl("")) == " <7 >1 <6 >2 <5 >3 <4 >4 <3 >5 <2 >6 <1 >7");
  troupe::engine_options model;
  model.environment = false;
  CHECK(group_order::begun_by_rank_0(model) == " >7 <7 >6 <6 >5 <5 >4 <4 >3 <3 >2 <2 >1 <1");
}

TEST_CASE("planner nccl: sends go over the channels of their distance, which spread them over the NIC's ports") {
  for (const char* planner : {"nccl", "model"}) {
    troupe::engine_options o = group_order::as_nccl("4x2");
    o.planner = planner;
    o.nic_ports = 4;
    o.trace_routes = true;
    troupe::engine engine{o};
    auto comms = engine.communicators(8);
    std::array<int, 8> in{}, out{};
    troupe::group together;
    for (std::size_t peer = 2; peer < 8; peer += 2) {
      comms[0].send_async(together, std::span(&out[peer], 1), static_cast<int>(peer));
      comms[peer].recv_async(together, std::span(&in[peer], 1), 0);
    }
    together.wait();
    std::map<std::string, std::uint64_t> sent;
    for (const troupe::element_traffic& of : engine.traffic())
      if (of.element.starts_with("nic 0:")) sent[of.element] += of.messages;
    if (o.planner == "nccl")
      CHECK(sent == std::map<std::string, std::uint64_t>{{"nic 0:1", 1}, {"nic 0:2", 1}, {"nic 0:3", 1}});
    else CHECK(sent == std::map<std::string, std::uint64_t>{{"nic 0:0", 3}});
  }
}

TEST_CASE("planner nccl: whatever a group's order, messages of one tag come in the order of their sends") {
  std::mt19937_64 random(seed());
  for (const char* layout : {"", "2x2", "4x1"})
    for (int round = 0; round < 20; ++round) {
      troupe::engine engine{group_order::as_nccl(layout)};
      auto comms = engine.communicators(4);
      struct message {
        int from, to, tag, number = 0, got = -1;
      };
      std::vector<message> all(24);
      std::map<std::array<int, 3>, int> count;
      for (message& m : all) {
        m.from = static_cast<int>(random() % 4),
        m.to = static_cast<int>((static_cast<unsigned>(m.from) + 1 + random() % 3) % 4);
        m.tag = static_cast<int>(random() % 2);
        m.number = count[{m.from, m.to, m.tag}]++;
      }
      troupe::group together;
      const auto rank = [&](int r) -> communicator& { return comms[static_cast<std::size_t>(r)]; };
      for (message& m : all) rank(m.to).recv_async(together, std::span(&m.got, 1), m.from, call_options{.tag = m.tag});
      std::vector<std::array<int, 2>> swapped(8);
      std::vector<std::vector<int>> sums(8, std::vector<int>(3, 1));
      for (std::size_t i = 0; i < all.size(); ++i) {
        message& m = all[i];
        rank(m.from).send_async(together, std::span(&m.number, 1), m.to, call_options{.tag = m.tag});
        if (i % 12 != 5) continue;
        // Between them what keeps its place: a send_recv of each rank, and a collective.
        for (int r = 0; r < 4; ++r) {
          const auto place = static_cast<std::size_t>(i < 12 ? r : r + 4);
          auto& [mine, other] = swapped[place];
          mine = r;
          rank(r).send_recv_async(together, std::span(&mine, 1), (r + 1) % 4, std::span(&other, 1), (r + 3) % 4,
                                  call_options{.tag = 7});
          rank(r).all_reduce_async(together, sums[place]);
        }
        together.launch();
      }
      together.wait();
      for (const message& m : all) CHECK(m.got == m.number);
      for (std::size_t r = 0; r < 8; ++r) CHECK(swapped[r][1] == static_cast<int>((r + 3) % 4));
      for (const auto& one : sums) CHECK(one == std::vector<int>(3, 4));
    }
}
