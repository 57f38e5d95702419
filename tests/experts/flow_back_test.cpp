// SPDX-License-Identifier: Apache-2.0
// The way back of experts as a node of a flow.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <unistd.h>

#include "bench/harness/counted_heap.hpp"
#include "tests/experts/nodes.hpp"
#include "tests/processes/processes.hpp"

namespace {

using namespace expert_nodes;
using troupe::expert_place;

/// What goes back for a sum.
template <class T>
T gradient_of(T sum, std::size_t i) {
  return T(0.25F * wide(sum) - 0.125F * static_cast<float>(i % 7));
}

/// What one rank gets from going back through all tiles.
struct outcome {
  std::vector<float> tokens, weights;
  std::vector<float> of_experts;  ///< by expert, a sum over all its rows
  bool operator==(const outcome&) const = default;
};

/// A layer by two nodes, and by the calls.
template <class T>
class layer_of_nodes {
public:
  layer_of_nodes(engine& e, communicator& comm, int experts, const troupe::expert_options& options)
      : comm_(&comm),
        experts_(experts),
        options_(options),
        forward_(comm.expert_exchange(experts, options)),
        back_(comm.expert_exchange(experts, options)),
        plain_(comm.expert_exchange(experts, options)),
        flow_(e, "layer", {.deadline = 60s}),
        flow_back_(e, "layer back", {.deadline = 60s}),
        sums_(tiles * n * hidden) {}

  void build(bool in_one_flow) {
    const auto tokens = flow_.source<T>("tokens", {n, hidden}, tiles, [this](tile<T> out) {
      const input all = in(out.index);
      for (std::size_t i = 0; i < n * hidden; ++i) out.flat()[i] = T(all.tokens[i]);
    });
    const auto sums = troupe::experts(
        flow_, "experts", tokens, forward_, tape_,
        [this](tile<const T> to, std::span<std::int32_t> ids, std::span<float> weights) {
          const input all = in(to.index);
          std::copy(all.ids.begin(), all.ids.end(), ids.begin());
          std::copy(all.weights.begin(), all.weights.end(), weights.begin());
        },
        [this](expert_place at, tensor<T> rows) {
          // Its own thread's, and read by the other node's after the tile has come there.
          const std::lock_guard lock(mutex_);
          inputs_[{at.tile, at.expert, at.from}].assign(rows.flat().begin(), rows.flat().end());
          for (T& x : rows.flat()) x = made(at.expert, x);
        });
    if (in_one_flow) {
      add_back(flow_, flow_.map("loss", sums, [](tile<const T> from, tile<T> out) {
        for (std::size_t i = 0; i < n * hidden; ++i) out.flat()[i] = gradient_of(from.flat()[i], i);
      }));
      return;
    }
    flow_.sink("sums", sums, [this](tile<const T> from) {
      std::copy(from.flat().begin(), from.flat().end(), sums_.begin() + from.index * static_cast<int>(n * hidden));
    });
    add_back(flow_back_, flow_back_.source<T>("loss", {n, hidden}, tiles, [this](tile<T> out) {
      for (std::size_t i = 0; i < n * hidden; ++i)
        out.flat()[i] = gradient_of(sums_[static_cast<std::size_t>(out.index) * n * hidden + i], i);
    }));
  }

  void go(troupe::flow& f) {
    f.start();
    f.wait();
  }
  void begin_run() {
    ++run_;
    got_ = {};
    got_.tokens.assign(tiles * n * hidden, 99);
    got_.weights.assign(tiles * n * top_k, 99);
    got_.of_experts.assign(static_cast<std::size_t>(experts_), 0);
    called_.clear();
  }
  troupe::flow& forward() { return flow_; }
  troupe::flow& back() { return flow_back_; }
  const outcome& got() const { return got_; }

  /// The same by dispatch, combine, combine_backward and dispatch_backward.
  outcome plain() {
    outcome all;
    all.of_experts.assign(static_cast<std::size_t>(experts_), 0);
    for (int index = 0; index < tiles; ++index) {
      const input mine = in(index);
      std::vector<T> tokens, sums(n * hidden), gradients(n * hidden), of_tokens(n * hidden);
      std::vector<float> of_weights(n * top_k);
      for (const float x : mine.tokens) tokens.push_back(T(x));
      const troupe::expert_tokens<T> here = plain_.template dispatch<T>(tokens, mine.ids, mine.weights);
      for (std::size_t x = 0; x < here.experts.size(); ++x)
        for (T& y : here.of(x)) y = made(here.experts[x], y);
      plain_.template combine<T>(here.rows, sums);
      const std::vector<T> results(here.rows.begin(), here.rows.end());
      for (std::size_t i = 0; i < n * hidden; ++i) gradients[i] = gradient_of(sums[i], i);
      const troupe::expert_tokens<T> back = plain_.template combine_backward<T>(gradients, here.rows, of_weights);
      std::size_t row = 0;
      for (std::size_t x = 0; x < back.experts.size(); ++x)
        for (T& y : back.of(x)) go_back(back.experts[x], results[row++], y, all.of_experts);
      plain_.template dispatch_backward<T>(back.rows, of_tokens);
      for (const T x : of_tokens) all.tokens.push_back(wide(x));
      all.weights.insert(all.weights.end(), of_weights.begin(), of_weights.end());
    }
    return all;
  }

private:
  input in(int index) const { return {comm_->rank(), index, run_, experts_}; }

  static void go_back(std::int32_t expert, T result, T& gradient, std::vector<float>& of_experts) {
    of_experts[static_cast<std::size_t>(expert)] += wide(result) * wide(gradient);
    gradient = made_backward(expert, gradient);
  }

  void add_back(troupe::flow& f, const troupe::stream<T>& gradients) {
    const auto of_tokens = troupe::experts_backward(
        f, "experts back", gradients, back_, tape_,
        [this](expert_place at, tensor<const T> results, tensor<T> rows) {
          const std::tuple here{at.tile, at.from, at.expert};
          expect(called_.empty() || called_.back() < here, "places in their order");
          called_.push_back(here);
          const std::lock_guard lock(mutex_);
          const std::vector<T>& inputs = inputs_.at({at.tile, at.expert, at.from});
          expect(inputs.size() == rows.flat().size(), "as many rows as forward");
          for (std::size_t i = 0; i < inputs.size(); ++i) {
            expect(wide(results.flat()[i]) == wide(made(at.expert, inputs[i])), "what the expert had made");
            go_back(at.expert, results.flat()[i], rows.flat()[i], got_.of_experts);
          }
        },
        [this](tile<T> out, std::span<const std::int32_t> ids, std::span<const float> weights) {
          expect(std::equal(ids.begin(), ids.end(), in(out.index).ids.begin()), "what was routed");
          std::copy(weights.begin(), weights.end(), got_.weights.begin() + out.index * static_cast<int>(n * top_k));
        });
    f.sink("d tokens", of_tokens, [this](tile<const T> from) {
      for (std::size_t i = 0; i < n * hidden; ++i)
        got_.tokens[static_cast<std::size_t>(from.index) * n * hidden + i] = wide(from.flat()[i]);
    });
  }

  communicator* comm_;
  int experts_;
  troupe::expert_options options_;
  troupe::expert_exchange forward_, back_, plain_;
  troupe::expert_tape tape_;
  troupe::flow flow_, flow_back_;
  std::uint64_t run_ = 0;
  std::vector<T> sums_;
  std::mutex mutex_;
  std::map<std::tuple<int, std::int32_t, troupe::rank_t>, std::vector<T>> inputs_;
  std::vector<std::tuple<int, troupe::rank_t, std::int32_t>> called_;
  outcome got_;
};

/// Throws what is wrong.
template <class T>
void check_ways(engine& e, communicator& comm, int experts, troupe::expert_options options, bool in_one_flow) {
  layer_of_nodes<T> layer{e, comm, experts, options};
  layer.build(in_one_flow);
  for (int run = 0; run < 3; ++run) {
    layer.begin_run();
    layer.go(layer.forward());
    if (!in_one_flow) {
      if (run == 1) layer.go(layer.forward());  // one that nobody goes back for
      layer.go(layer.back());
    }
    const outcome plain = layer.plain();
    expect(layer.got().tokens == plain.tokens, "gradients of tokens differ");
    expect(layer.got().weights == plain.weights, "gradients of weights differ");
    expect(layer.got().of_experts == plain.of_experts, "gradients of experts differ");
  }
}

/// A layer all of whose tokens go round, with functions that may be made to fail.
struct plain_layer {
  plain_layer(engine& e, communicator& comm, troupe::flow_options how = {}, bool deadline = true)
      : ranks(comm.size()),
        forward(comm.expert_exchange(ranks, options(deadline))),
        back(comm.expert_exchange(ranks, options(deadline))),
        f(e, "f", how) {}

  template <class Loss, class Back, class Route>
  void build(Loss loss, Back backward, Route route_backward) {
    const auto tokens = f.source<float>("tokens", {n, hidden}, tiles,
                                        [](tile<float> out) { std::fill(out.flat().begin(), out.flat().end(), 1.0F); });
    const auto sums = troupe::experts(
        f, "experts", tokens, forward, tape,
        [this](tile<const float>, std::span<std::int32_t> ids, std::span<float> weights) {
          to_each(ids, weights, ranks);
        },
        [](std::int32_t, tensor<float>) {});
    const auto gradients = f.map("loss", sums, [loss](tile<const float> in, tile<float> out) {
      loss(in.index);
      std::copy(in.flat().begin(), in.flat().end(), out.flat().begin());
    });
    const auto of_tokens = troupe::experts_backward(
        f, "experts back", gradients, back, tape,
        [backward](expert_place at, tensor<const float>, tensor<float>) { backward(at); },
        [route_backward](tile<float> out, std::span<const std::int32_t>, std::span<const float>) {
          route_backward(out.index);
        });
    f.sink("d tokens", of_tokens, [](tile<const float>) {});
  }
  static troupe::expert_options options(bool deadline) {
    auto how = options_of();
    if (!deadline) how.deadline.reset();
    return how;
  }

  int ranks;
  troupe::expert_exchange forward, back;
  troupe::expert_tape tape;
  troupe::flow f;
};
constexpr auto nothing = [](auto) {};

}  // namespace

TEST_CASE("experts back as a node of a flow have the bits of the calls, run after run") {
  struct machine {
    int ranks;
    const char* layout;
  };
  for (const machine& m : {machine{1, ""}, machine{2, ""}, machine{3, ""}, machine{4, "2x2"}, machine{3, "3x1"}})
    for (const bool in_one_flow : {true, false}) {
      troupe::engine_options how;
      how.layout = m.layout;
      engine e{how};
      CAPTURE(m.ranks);
      CAPTURE(m.layout);
      CAPTURE(in_one_flow);
      CHECK_NOTHROW(
          e.run(m.ranks, [&](communicator& comm) { check_ways<float>(e, comm, 5, options_of(), in_one_flow); }));
      CHECK_NOTHROW(e.run(m.ranks, [&](communicator& comm) {
        check_ways<troupe::bf16>(e, comm, 2, options_of(troupe::datatype::bf16), in_one_flow);
      }));
    }
}

TEST_CASE("experts back with replicas, a capacity and a dispatch in 8 bits") {
  for (const char* layout : {"", "2x2"}) {
    troupe::engine_options how;
    how.layout = layout;
    engine e{how};
    CHECK_NOTHROW(e.run(4, [&](communicator& comm) {
      auto options = options_of();
      options.placement = {{0, 3}, {1}, {2}, {0, 1, 2, 3}, {3}};
      check_ways<float>(e, comm, 5, options, true);
      options.capacity = 0.7;
      check_ways<float>(e, comm, 5, options, true);
      options.transport = troupe::expert_transport::f8e4m3;
      check_ways<float>(e, comm, 5, options, false);
    }));
  }
}

TEST_CASE("experts back between processes, and between hosts") {
  for (const bool hosts : {false, true}) {
    const auto ended = process_tests::run_processes(hosts ? 4 : 3, [&](const process_tests::member& m) {
      engine e;
      auto how = m.how();
      if (hosts) {
        how.host = m.process < 2 ? "one" : "other";
        how.key = std::string(64, 'e');
      }
      communicator comm = e.join(how);
      check_ways<float>(e, comm, 5, options_of(), true);
      check_ways<troupe::f16>(e, comm, 4, options_of(troupe::datatype::f16), false);
    });
    CHECK(process_tests::trouble(ended) == "");
  }
}

TEST_CASE("experts go back on what has come while a rank is late") {
  engine e;
  std::atomic<bool> went_back{false};
  e.run(2, [&](communicator& comm) {
    plain_layer layer{e, comm};
    const bool late = comm.rank() == 1;
    layer.build(
        [&](int index) {
          if (late && index == 0) wait_for([&] { return went_back.load(); });
        },
        [&](expert_place at) {
          if (!late && at.from == 0) went_back = true;
        },
        nothing);
    layer.f.start();
    const ending end = end_of(layer.f);
    CAPTURE(end.text);
    CHECK(end.code == errc::ok);
  });
}

TEST_CASE("what an expert or a router throws on the way back ends the flow on all ranks, with its text") {
  for (const char* layout : {"", "3x1"})
    for (const bool in_router : {true, false})
      for (const int at : {0, 3, tiles - 1}) {
        troupe::engine_options how;
        how.layout = layout;
        engine e{how};
        e.run(3, [&](communicator& comm) {
          plain_layer layer{e, comm};
          const auto fail = [&, me = comm.rank()](int tile) {
            if (me == 1 && tile == at) throw std::runtime_error("the oven is cold");
          };
          layer.build(
              nothing,
              [&](expert_place where) {
                if (!in_router) fail(where.tile);
              },
              [&](int tile) {
                if (in_router) fail(tile);
              });
          layer.f.start();
          const ending end = end_of(layer.f);
          CAPTURE(end.text);
          CHECK(end.code == errc::aborted);
          CHECK(end.text.find("flow f, rank 1, node experts back, tile " + std::to_string(at) + ": the oven is cold") !=
                std::string::npos);
          layer.f.start();
          CHECK(end_of(layer.f).code != errc::ok);
          int ranks = 1;
          comm.all_reduce(ranks, troupe::sum);
          CHECK(ranks == 3);
        });
      }
}

TEST_CASE("another node's exception, cancel, a deadline and an abort end the way back of experts on all ranks") {
  enum class by { sink, cancel, deadline, abort };
  for (const by what : {by::sink, by::cancel, by::deadline, by::abort}) {
    engine e;
    std::atomic<int> ended{0};
    e.run(3, [&](communicator& comm) {
      const bool one = comm.rank() == 1;
      std::atomic<bool> over{false};
      plain_layer layer{e, comm, {.deadline = what == by::deadline ? std::optional{200ms} : std::nullopt}, false};
      layer.build(
          [&](int index) {
            if (what == by::sink && one && index == 3) throw std::runtime_error("the oven is cold");
          },
          // The others are inside the dispatch of this tile when the run ends.
          [&](expert_place at) {
            while (one && at.tile == 2 && !over && what != by::sink) std::this_thread::sleep_for(1ms);
          },
          nothing);
      layer.f.start();
      std::jthread meanwhile;
      if (one)
        meanwhile = std::jthread{[&] {
          std::this_thread::sleep_for(what == by::deadline ? 400ms : 50ms);
          if (what == by::cancel) layer.f.cancel();
          if (what == by::abort) comm.abort("enough");
          std::this_thread::sleep_for(20ms);
          over = true;
        }};
      const ending end = end_of(layer.f);
      CAPTURE(end.text);
      CHECK(end.code == (what == by::sink       ? errc::aborted
                         : what == by::cancel   ? errc::cancelled
                         : what == by::deadline ? errc::timed_out
                                                : errc::communicator_aborted));
      ++ended;
      wait_for([&] { return ended.load() == 3; });  // nobody is released because another one leaves
    });
  }
}

TEST_CASE("a process that is killed is an error of a flow whose experts go back on the others") {
  const auto ended = process_tests::run_processes(
      3,
      [](const process_tests::member& m) {
        engine e;
        communicator comm = e.join(m.how());
        plain_layer layer{e, comm, {}, false};
        layer.build(nothing, nothing, [&](int index) {
          if (index != 2) return;
          m.say("there");
          if (comm.rank() == 1)
            for (;;) ::pause();
        });
        layer.f.start();
        const ending end = end_of(layer.f);
        expect(end.code == errc::peer_lost, std::to_string(static_cast<int>(end.code)) + ": " + end.text);
      },
      [](process_tests::job_control& job) {
        job.wait_for_lines(3);
        ::kill(job.pids[1], SIGKILL);
      });
  CHECK(process_tests::trouble(ended, 1) == "");
}

TEST_CASE("experts go back once for each run, and not without one") {
  engine e;
  e.run(2, [&](communicator& comm) {
    const auto end_of_back = [&](bool forward, bool twice) {
      layer_of_nodes<float> layer{e, comm, 2, options_of()};
      layer.build(false);
      layer.begin_run();
      if (forward) layer.go(layer.forward());
      if (twice) layer.go(layer.back());
      layer.back().start();
      return end_of(layer.back());
    };
    const ending without = end_of_back(false, false), twice = end_of_back(true, true);
    CAPTURE(without.text);
    CAPTURE(twice.text);
    CHECK(without.code == errc::invalid_argument);
    CHECK(without.text.find("node experts back, tile 0: there is nothing to go back by") != std::string::npos);
    CHECK(twice.code == errc::invalid_argument);
    CHECK(twice.text.find("node experts back, tile 0: it has gone back before") != std::string::npos);
    // One that is refused so is none that has failed for its exchanges.
    layer_of_nodes<float> layer{e, comm, 2, options_of()};
    layer.build(false);
    layer.begin_run();
    layer.back().start();
    CHECK(end_of(layer.back()).code == errc::invalid_argument);
    layer.begin_run();
    layer.go(layer.forward());
    layer.go(layer.back());
    CHECK(layer.got() == layer.plain());
  });
}

TEST_CASE("experts that are under way back are not begun forward") {
  engine e;
  e.run(1, [&](communicator& comm) {
    auto through = comm.expert_exchange(1, options_of()), back = comm.expert_exchange(1, options_of());
    troupe::expert_tape tape;
    troupe::flow f{e, "f"}, g{e, "g"};
    std::atomic<bool> waits{false}, go_on{false};
    const auto zero = [](tile<float> out) { std::fill(out.flat().begin(), out.flat().end(), 0.0F); };
    const auto sums = troupe::experts(
        f, "experts", f.source<float>("tokens", {n, hidden}, 1, zero), through, tape,
        [](tile<const float>, std::span<std::int32_t> ids, std::span<float> weights) { to_oneself(ids, weights, 0); },
        [](std::int32_t, tensor<float>) {});
    f.sink("sums", sums, [](tile<const float>) {});
    const auto of_tokens = troupe::experts_backward(
        g, "experts back", g.source<float>("loss", {n, hidden}, 1, zero), back, tape,
        [&](expert_place, tensor<const float>, tensor<float>) {
          waits = true;
          wait_for([&] { return go_on.load(); });
        },
        [](tile<float>, std::span<const std::int32_t>, std::span<const float>) {});
    g.sink("d tokens", of_tokens, [](tile<const float>) {});
    f.start();
    f.wait();
    g.start();
    std::jthread other{[&] { g.try_wait(); }};
    wait_for([&] { return waits.load(); });
    f.start();
    const ending end = end_of(f);
    CAPTURE(end.text);
    CHECK(end.code == errc::invalid_argument);
    CHECK(end.text.find("the node that goes back by its tape is still under way") != std::string::npos);
    go_on = true;
    other.join();
    CHECK(end_of(g).code == errc::ok);
    f.start();
    CHECK(end_of(f).code == errc::ok);
  });
}

TEST_CASE("repeated runs forward and back leave nothing behind") {
  engine e;
  std::ptrdiff_t least = std::numeric_limits<std::ptrdiff_t>::max();
  e.run(2, [&](communicator& comm) {
    plain_layer layer{e, comm};
    layer.build(nothing, nothing, nothing);
    for (int round = 0; round < 6; ++round) {
      comm.barrier();
      const auto before = static_cast<std::ptrdiff_t>(bench::heap_use());
      comm.barrier();
      for (int again = 0; again < 15; ++again) {
        layer.f.start();
        layer.f.wait();
      }
      layer.forward.profile();  // all have come to the end of the last dispatch
      layer.back.profile();
      comm.barrier();
      if (comm.rank() == 0 && round > 1)
        least = std::min(least, static_cast<std::ptrdiff_t>(bench::heap_use()) - before);
      comm.barrier();
    }
  });
  CHECK(least < 15 * tiles * 4 * 32);  // bytes; what is said last is heard some time later
}

TEST_CASE("nodes that go back and do not fit are refused, with what would be right") {
  engine e;
  e.run(1, [&](communicator& comm) {
    auto many = options_of();
    many.top_k = 3;
    auto through = comm.expert_exchange(2, options_of()), back = comm.expert_exchange(2, options_of()),
         spare = comm.expert_exchange(2, options_of()), others = comm.expert_exchange(3, options_of()),
         more = comm.expert_exchange(2, many);
    communicator copy = comm.duplicate();
    auto elsewhere = copy.expert_exchange(2, options_of());
    troupe::expert_tape tape;
    troupe::flow f{e, "f"};
    const auto zero = [](tile<float> out) { std::fill(out.flat().begin(), out.flat().end(), 0.0F); };
    const auto tokens = f.source<float>("tokens", {n, hidden}, 2, zero);
    const auto loss = f.source<float>("loss", {n, hidden}, 2, zero);
    const auto longer = f.source<float>("longer", {n, hidden}, 3, zero);
    const auto add = [&](const troupe::stream<float>& from, troupe::expert_exchange& by) {
      return troupe::experts_backward(
          f, "back", from, by, tape, [](expert_place, tensor<const float>, tensor<float>) {},
          [](tile<float>, std::span<const std::int32_t>, std::span<const float>) {});
    };
    const auto refused = [&](const troupe::stream<float>& from, troupe::expert_exchange& by, const std::string& why) {
      try {
        add(from, by);
      } catch (const troupe::error& error) {
        CAPTURE(std::string{error.what()});
        CHECK(error.code_value() == errc::invalid_argument);
        CHECK(std::string{error.what()}.find(why) != std::string::npos);
        return;
      }
      CHECK_MESSAGE(false, why);
    };
    const auto forward = [&](troupe::expert_exchange& by) {
      return troupe::experts(
          f, "experts", tokens, by, tape,
          [](tile<const float>, std::span<std::int32_t> ids, std::span<float> weights) { to_oneself(ids, weights, 0); },
          [](expert_place, tensor<float>) {});
    };
    refused(loss, back, "flow f: node back: its tape is of no node yet; experts() comes first");
    const auto sums = forward(through);
    CHECK_THROWS_WITH_AS(forward(spare),
                         "flow f: node experts: its tape is another node's already; each needs one of its own",
                         troupe::error);
    refused(loss, through, "its exchange is another node's already");
    refused(longer, back, "it gets 3 tiles of f32 6x20, and the node that it goes back for has 2 of f32 6x20");
    refused(loss, others, "both need the same hidden, type, top_k and placement");
    refused(loss, more, "both need the same hidden, type, top_k and placement");
    refused(loss, elsewhere, "its exchange is of another communicator");
    const auto of_tokens = add(loss, back);
    refused(loss, spare, "another node goes back by its tape already");
    CHECK(f.describe().find("back (experts back of world) ← loss: 2 tiles of f32 ") != std::string::npos);
    f.sink("sums", sums, [](tile<const float>) {});
    f.sink("d tokens", of_tokens, [](tile<const float>) {});
    f.sink("longer tiles", longer, [](tile<const float>) {});
  });
}
