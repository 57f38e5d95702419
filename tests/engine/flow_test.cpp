// SPDX-License-Identifier: Apache-2.0
// Flows on real threads and bytes.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/api/troupe.hpp"
#include "tests/trace_curves.hpp"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// How the run of a flow ended.
struct ending {
  errc code = errc::ok;
  std::string text;
};
ending end_of(flow& f) {
  try {
    f.wait();
    return {};
  } catch (const error& e) {
    return {e.code_value(), e.what()};
  }
}

void zero(tile<float> out) { std::fill(out.flat().begin(), out.flat().end(), 0.0F); }
void ignore(tile<const float>) {}

}  // namespace

TEST_CASE("tiles go from a source through an operator, an all_gather and an operator to a sink") {
  constexpr int ranks = 2, tiles = 8;
  engine e;
  e.run(ranks, [&](communicator& c) {
    const auto value = [](int rank, int index, std::size_t i) {
      return static_cast<float>(rank * 1000 + index * 10) + static_cast<float>(i);
    };
    std::vector<int> seen;
    bool right = true;
    flow f{e, "thread"};
    const auto rows = f.source<float>("rows", {2, 3}, tiles, [&](tile<float> out) {
      for (std::size_t i = 0; i < 6; ++i) out.flat()[i] = value(c.rank(), out.index, i);
    });
    const auto twice = f.map("twice", rows, [](tile<const float> in, tile<float> out) {
      for (std::size_t i = 0; i < 6; ++i) out.flat()[i] = 2 * in.flat()[i];
    });
    const auto whole = f.all_gather("gather", twice, c);
    const auto negative = f.map("negative", whole, [](tile<const float> in, tile<float> out) {
      for (std::size_t i = 0; i < 6; ++i) out.flat()[i] = -in.flat()[i];
    });
    f.sink("store", negative, [&](tile<const float> in) {
      seen.push_back(in.index);
      for (std::size_t i = 0; i < 6; ++i)
        right = right && in.flat()[i] == -2 * value(in.index % ranks, in.index / ranks, i);
    });
    for (int run = 0; run < 3; ++run) {
      seen.clear();
      f.start();
      f.wait();
      CHECK(right);
      REQUIRE(seen.size() == tiles * ranks);
      for (int i = 0; i < tiles * ranks; ++i) CHECK(seen[static_cast<std::size_t>(i)] == i);
    }
  });
}

TEST_CASE("each collective gives its tiles part by part, in the order of their numbers") {
  static constexpr int n = 3, k = 4;
  engine e;
  e.run(n, [&](communicator& c) {
    const int me = c.rank();
    const auto source = [&](flow& f, int tiles) {
      return f.source<std::int32_t>("source", {5}, tiles, [me](tile<std::int32_t> out) {
        for (int i = 0; i < 5; ++i) out(i) = me * 10'000 + out.index * 100 + i;
      });
    };
    const auto check = [&](flow& f, const stream<std::int32_t>& s, int tiles, auto wanted) {
      int next = 0;
      bool right = true;
      f.sink("end", s, [&](tile<const std::int32_t> in) {
        right = right && in.index == next++;
        for (int i = 0; i < 5; ++i) right = right && in(i) == wanted(in.index, i);
      });
      for (int run = 1; run <= 2; ++run) {
        f.start();
        f.wait();
        CHECK(right);
        CHECK(std::exchange(next, 0) == tiles);
      }
    };
    flow gather{e, "gather"}, scatter{e, "scatter"}, reduce{e, "reduce"}, exchange{e, "exchange"};
    check(gather, gather.all_gather("c", source(gather, k), c), n * k,
          [](int t, int i) { return t % n * 10'000 + t / n * 100 + i; });
    check(scatter, scatter.reduce_scatter("c", source(scatter, n * k), c), k,
          [&](int t, int i) { return 30'000 + 3 * ((t * n + me) * 100 + i); });
    check(reduce, reduce.all_reduce("c", source(reduce, k), c, maximum), k,
          [](int t, int i) { return 20'000 + t * 100 + i; });
    check(exchange, exchange.all_to_all("c", source(exchange, n * k), c), n * k,
          [&](int t, int i) { return t % n * 10'000 + (t / n * n + me) * 100 + i; });
  });
}

TEST_CASE("a broadcast's tiles come from its root, and a reduction's end there") {
  static constexpr int n = 3, k = 5, root = 1;
  engine e;
  e.run(n, [&](communicator& c) {
    // Forward: weights from the root; backward: their gradients to it.
    flow f{e, "f"};
    const auto weights = [&] {
      if (c.rank() != root) return f.broadcast<float>("weights", {4}, k, c, root);
      return f.broadcast("weights",
                         f.source<float>("w", {4}, k, [](tile<float> out) { out(3) = static_cast<float>(out.index); }),
                         c, root);
    }();
    const auto gradients = f.map("gradients", weights, [&](tile<const float> in, tile<float> out) {
      std::fill(out.flat().begin(), out.flat().end(), in(3) + static_cast<float>(100 * c.rank()));
    });
    const auto sums = f.reduce("sums", gradients, c, root);
    CHECK(sums.has_value() == (c.rank() == root));
    int seen = 0;
    bool right = true;
    if (sums)
      f.sink("end", *sums, [&](tile<const float> in) {
        right = right && in.index == seen++ && in(0) == static_cast<float>(3 * in.index + 300) && in(0) == in(3);
      });
    for (int run = 0; run < 3; ++run) {
      seen = 0;
      f.start();
      f.wait();
      CHECK(right);
      CHECK(seen == (c.rank() == root ? k : 0));
    }
    if (c.rank() == root)
      CHECK(f.describe().find("weights (broadcast of world) ← w: 5 tiles of f32 4") != std::string::npos);
    else CHECK(f.describe().find("weights (broadcast of world): 5 tiles of f32 4") != std::string::npos);
  });
}

TEST_CASE("a broadcast may give on what another collective has given, and an exception ends it everywhere") {
  constexpr int n = 3, k = 4;
  engine e;
  e.run(n, [&](communicator& c) {
    bool throws = false;
    flow f{e, "f"};
    const auto a = f.source<float>("a", {2}, k, [&](tile<float> out) {
      if (throws && c.rank() == 2 && out.index == 1) throw std::runtime_error("the oven is cold");
      out(0) = out(1) = static_cast<float>(out.index);
    });
    const auto sum_at_0 = f.reduce("to 0", a, c, 0);
    const auto sums = sum_at_0 ? f.broadcast("from 0", *sum_at_0, c, 0) : f.broadcast<float>("from 0", {2}, k, c, 0);
    bool right = true;
    f.sink("end", sums, [&](tile<const float> in) { right = right && in(1) == static_cast<float>(n * in.index); });
    f.start();
    f.wait();
    CHECK(right);
    throws = true;
    f.start();
    CHECK(end_of(f).text == "flow f, rank 2, node a, tile 1: the oven is cold");
    throws = false;
    c.barrier();
    f.start();
    f.wait();
    CHECK(right);
  });
}

TEST_CASE("sums of bf16 in a flow are those of the whole call") {
  constexpr int n = 3, k = 4;
  engine_options options;
  options.level = determinism::topology_stable;
  engine e{options};
  e.run(n, [&](communicator& c) {
    const auto value = [&](int block, int part, std::size_t i) {
      return bf16(1.0F / static_cast<float>(1 + c.rank() * 7 + block * 5 + part * 3 + static_cast<int>(i)));
    };
    std::vector<bf16> in, out(k * 8), got;
    for (int block = 0; block < n; ++block)
      for (int part = 0; part < k; ++part)
        for (std::size_t i = 0; i < 8; ++i) in.push_back(value(block, part, i));
    c.reduce_scatter(in, out);
    flow f{e, "f"};
    const auto parts = f.source<bf16>("parts", {8}, n * k, [&](tile<bf16> to) {
      for (std::size_t i = 0; i < 8; ++i) to(i) = value(to.index % n, to.index / n, i);
    });
    f.sink("end", f.reduce_scatter("sums", parts, c),
           [&](tile<const bf16> in) { got.insert(got.end(), in.flat().begin(), in.flat().end()); });
    for (int run = 0; run < 2; ++run) {
      got.clear();
      f.start();
      f.wait();
      REQUIRE(got.size() == out.size());
      for (std::size_t i = 0; i < out.size(); ++i) CHECK(got[i].bits == out[i].bits);
    }
  });
}

TEST_CASE("tiles may be taken as they arrive") {
  constexpr int n = 3, k = 16;
  engine e;
  e.run(n, [&](communicator& c) {
    flow f{e, "f"};
    std::set<int> seen;
    const auto a =
        f.source<float>("a", {2}, k, [&](tile<float> out) { out(0) = out(1) = static_cast<float>(c.rank()); });
    const auto whole = f.all_gather("gather", a, c, {.order = tile_order::as_arrived, .credit = 2});
    const auto same = f.map("same", whole, [](tile<const float> in, tile<float> out) { out(0) = out(1) = in(1); });
    bool right = true;
    f.sink("end", same, [&](tile<const float> in) {
      right = right && in(0) == static_cast<float>(in.index % n);
      seen.insert(in.index);
    });
    for (int run = 0; run < 3; ++run) {
      seen.clear();
      f.start();
      f.wait();
      CHECK(right);
      CHECK(seen.size() == n * k);
    }
  });
}

TEST_CASE("a stream goes to several nodes, folds and joins, and no more of its tiles are alive than its credit") {
  engine e;
  flow f{e, "f"};
  constexpr int tiles = 64, credit = 3;
  std::atomic<int> written{0}, done{0}, most{0};
  const auto a = f.source<double>("a", {2}, tiles,
                                  [&](tile<double> out) {
                                    out(0) = out.index, out(1) = -out.index;
                                    most = std::max(most.load(), ++written - done.load());
                                  },
                                  {.credit = credit});
  const auto twice =
      f.map("twice", a, [](tile<const double> in, tile<double> out) { out(0) = 2 * in(0), out(1) = 2 * in(1); });
  const auto sum =
      f.map<double>("sum", from(a, twice), {1},
                    [](tile<const double> x, tile<const double> y, tile<double> out) { out(0) = x(0) + y(0) + x(1); });
  const auto four = f.fold<float>("four", sum, 4, {1}, [](tile<const double> in, tile<float> out, int at) {
    out(0) = static_cast<float>((at == 0 ? 0 : static_cast<double>(out(0))) + in(0));
  });
  std::vector<float> got;
  f.sink("end", four, [&](tile<const float> in) { got.push_back(in(0)); });
  f.sink("count", a, [&](tile<const double>) { ++done; });
  f.start();
  f.wait();
  REQUIRE(got.size() == tiles / 4);
  for (int i = 0; i < tiles / 4; ++i) CHECK(got[static_cast<std::size_t>(i)] == static_cast<float>(2 * (16 * i + 6)));
  CHECK(most <= credit);
}

TEST_CASE("an operator has a state of its own, which begins anew where it says so") {
  struct counter {
    int seen = 0;
    void begin() { seen = 0; }
    void operator()(tile<const float>, tile<float> out) { out(0) = static_cast<float>(++seen); }
  };
  engine e;
  flow f{e, "f"};
  float last = 0;
  f.sink("end", f.map<float>("count", f.source<float>("a", {4}, 7, zero), {1}, counter{}),
         [&](tile<const float> in) { last = in(0); });
  for (int run = 0; run < 3; ++run) {
    f.start();
    f.wait();
    CHECK(last == 7);
  }
}

TEST_CASE("an exception in an operator ends the flow on all ranks, with its text; and it can be started again") {
  constexpr int ranks = 3;
  for (const char* at : {"before", "after"}) {  // the collective
    CAPTURE(at);
    engine e;
    std::mutex mutex;
    std::vector<ending> ends;
    std::atomic<bool> throws{true};
    e.run(ranks, [&](communicator& c) {
      flow f{e, "f"};
      const auto fails_at = [&](const std::string& here) {
        return [&, here](tile<const float> in, tile<float> out) {
          if (throws && here == at && c.rank() == 1 && in.index == 3) throw std::runtime_error("the oven is cold");
          out(0) = in(0);
        };
      };
      const auto a = f.source<float>("a", {1}, 6, zero);
      const auto whole = f.all_gather("gather", f.map("before", a, fails_at("before")), c);
      f.sink("end", f.map("after", whole, fails_at("after")), ignore);
      f.start();
      const ending first = end_of(f);
      {
        const std::lock_guard lock(mutex);
        ends.push_back(first);
      }
      c.barrier();
      throws = false;
      c.barrier();
      f.start();
      CHECK(end_of(f).text.empty());
    });
    for (const ending& one : ends) {
      CHECK(one.code == errc::aborted);
      CHECK(one.text == "flow f, rank 1, node " + std::string{at} + ", tile 3: the oven is cold");
    }
  }
}

TEST_CASE("an exception in begin() ends the flow on all ranks, with its text; and it can be started again") {
  constexpr int ranks = 3;
  struct begins {
    const bool& well;
    void begin() const {
      if (!well) throw std::runtime_error("the oven is cold");
    }
    void operator()(tile<const float>, tile<float> out) const { out(0) = 1; }
  };
  engine e;
  e.run(ranks, [&](communicator& c) {
    bool well = c.rank() != 1;
    int worked = 0;
    flow f{e, "f"};
    const auto a = f.source<float>("a", {1}, 6, [&](tile<float>) { ++worked; });
    f.sink("end", f.all_gather("gather", f.map("m", a, begins{well}), c), ignore);
    f.start();
    const ending first = end_of(f);
    CHECK(first.code == errc::aborted);
    CHECK(first.text == "flow f, rank 1, node m, begin(): the oven is cold");
    if (c.rank() == 1) CHECK(worked == 0);
    well = true;
    c.barrier();
    f.start();
    CHECK(end_of(f).text.empty());
  });
}

TEST_CASE("what is the matter with a collective of a flow is told with the flow and the node") {
  engine e;
  e.run(2, [&](communicator& c) {
    flow f{e, "f"};
    f.sink("end", f.all_gather("gather", f.source<float>("a", {1}, 6 + c.rank(), zero), c), ignore);
    f.start();
    const ending end = end_of(f);
    CHECK(end.code == errc::mismatch);
    CHECK(end.text.find("flow f, node gather: ") == 0);
    CHECK(end.text.find("partitions 6") != std::string::npos);
    CHECK(end.text.find("partitions 7") != std::string::npos);
  });
}

TEST_CASE("the deadline of a flow that not all ranks have started says who has not") {
  engine e;
  std::atomic<bool> over{false};
  e.run(2, [&](communicator& c) {
    flow f{e, "f", {.deadline = 100ms}};
    f.sink("end", f.all_gather("gather", f.source<float>("a", {1}, 6, zero), c), ignore);
    while (c.rank() == 1 && !over) std::this_thread::sleep_for(1ms);
    if (c.rank() == 1) return;
    f.start();
    const ending end = end_of(f);
    over = true;
    CHECK(end.code == errc::timed_out);
    CHECK(end.text.find("flow f, rank 0: its deadline has passed (") == 0);
    CHECK(end.text.find("; rank 1 has not called it, rank 0 waits") != std::string::npos);
  });
}

TEST_CASE("cancel and a deadline end a flow on all ranks, and the deadline's text says what waits for what") {
  constexpr int ranks = 2;
  for (const bool cancels : {true, false}) {
    engine e;
    std::atomic<bool> goes_on{false};
    e.run(ranks, [&](communicator& c) {
      flow f{e, "slow", {.deadline = cancels ? std::nullopt : std::optional<std::chrono::nanoseconds>{200ms}}};
      const auto a = f.source<float>("a", {1}, 4, [&](tile<float> out) {
        // Rank 1 does not come to its third tile before all is over.
        while (c.rank() == 1 && out.index == 2 && !goes_on) std::this_thread::sleep_for(1ms);
      });
      f.sink("end", f.all_reduce("sum", a, c), ignore);
      f.start();
      if (c.rank() == 0) {
        if (cancels) f.cancel();
        while (!f.done()) std::this_thread::sleep_for(1ms);
        goes_on = true;
      }
      const ending end = end_of(f);
      if (cancels) {
        CHECK(end.code == errc::cancelled);
        CHECK(end.text == "flow slow, rank 0: cancel was called");
      } else {
        CHECK(end.code == errc::timed_out);
        CHECK(end.text.find("flow slow, rank ") == 0);
        CHECK(end.text.find(": its deadline has passed (") != std::string::npos);
        CHECK(end.text.find("was not made ready") == std::string::npos);
        CHECK(end.text.find("sum waits for ") != std::string::npos);
      }
    });
  }
}

TEST_CASE("a flow that goes ends what is under way, on all ranks") {
  engine e;
  e.run(2, [&](communicator& c) {
    flow f{e, "f"};
    std::atomic<bool> over{false};
    f.sink("end",
           f.all_reduce("sum",
                        f.source<float>("a", {1}, 8,
                                        [&](tile<float>) {
                                          while (c.rank() == 0 && !over) std::this_thread::sleep_for(1ms);
                                        }),
                        c),
           ignore);
    f.start();
    if (c.rank() == 1) {
      CHECK(end_of(f).code == errc::cancelled);
      return;
    }
    f.cancel();
    over = true;
    const flow gone = std::move(f);
  });
}

TEST_CASE("an engine that goes ends its flows") {
  auto e = std::make_unique<engine>();
  std::atomic<bool> begun{false};
  flow f{*e, "f"};
  f.sink("end", f.source<float>("a", {1}, 20'000, zero), [&](tile<const float>) {
    begun = true;
    std::this_thread::sleep_for(1ms);
  });
  f.start();
  while (!begun) std::this_thread::sleep_for(1ms);
  e.reset();
  CHECK(end_of(f).code == errc::engine_closed);
}

TEST_CASE("a rank whose thread leaves without its flow is told to the others") {
  engine e;
  e.run(2, [&](communicator& c) {
    flow f{e, "f"};
    f.sink("end", f.all_reduce("sum", f.source<float>("a", {1}, 4, zero), c), ignore);
    if (c.rank() == 1) return;
    f.start();
    CHECK(end_of(f).code == errc::rank_missing);
  });
}

TEST_CASE("an aborted communicator ends a flow with the reason") {
  engine e;
  std::atomic<bool> over{false};
  e.run(2, [&](communicator& c) {
    flow f{e, "f"};
    f.sink("end",
           f.all_reduce("sum",
                        f.source<float>("a", {1}, 8,
                                        [&](tile<float>) {
                                          while (c.rank() == 0 && !over) std::this_thread::sleep_for(1ms);
                                        }),
                        c),
           ignore);
    f.start();
    if (c.rank() == 1) {
      c.abort("enough");
      // Until then rank 0 has nothing to give. wait() would help, perhaps with rank 0's source, which waits for this thread.
      while (!f.done()) std::this_thread::sleep_for(1ms);
      over = true;
    }
    const ending end = end_of(f);
    CHECK(end.code == errc::communicator_aborted);
    CHECK(end.text.find("enough") != std::string::npos);
  });
}

TEST_CASE("a timeline tells what every tile did, and what waited for what") {
  constexpr int ranks = 2, tiles = 4;
  engine e;
  timeline times;
  e.run(ranks, [&](communicator& c) {
    flow f{e, "block", {.timeline = &times}};
    const auto whole = f.all_gather("gather", f.source<float>("rows", {1}, tiles, zero), c);
    f.sink("store", whole, [](tile<const float>) { std::this_thread::sleep_for(100us); });
    f.start();
    f.wait();
  });
  const auto trace = nlohmann::json::parse(times.json());
  int worked = 0, waited = 0, travelled = 0, arrived = 0, begins = 0, ends = 0;
  for (const auto& event : trace["traceEvents"]) {
    const std::string category = event.value("cat", ""), phase = event.value("ph", "");
    worked += category == "work", waited += category == "wait", travelled += category == "ready";
    arrived += category == "arrival", begins += phase == "s", ends += phase == "f";
  }
  CHECK(worked == ranks * (tiles + ranks * tiles));
  CHECK(travelled == ranks * tiles);
  CHECK(arrived == ranks * ranks * tiles);
  CHECK(begins == worked - ranks * ranks * tiles + arrived);
  CHECK(ends == begins);
  CHECK(waited > 0);
  const auto curves = troupe_tests::curves_of(times.json());
  for (int rank = 0; rank < ranks; ++rank) {
    CHECK(curves.at({rank, "nodes at work"}).is_whole());
    CHECK(curves.at({rank, "nodes at work"}).area() ==
          doctest::Approx(troupe_tests::time_of_spans(times.json(), rank, "work")));
  }
  times.clear();
  CHECK(nlohmann::json::parse(times.json())["traceEvents"].empty());
}
