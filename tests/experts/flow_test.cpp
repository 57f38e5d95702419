// SPDX-License-Identifier: Apache-2.0
// Experts as a node of a flow.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "bench/harness/counted_heap.hpp"
#include "tests/experts/nodes.hpp"
#include "tests/processes/processes.hpp"

namespace {

using namespace expert_nodes;

/// Three runs of a flow, each tile of which has the bits of dispatch and combine. Throws what is wrong.
template <class T>
void check_runs(engine& e, communicator& comm, int experts) {
  const troupe::expert_options options = options_of(troupe::datatype_of<T>);
  troupe::expert_exchange through = comm.expert_exchange(experts, options);
  troupe::expert_exchange plain = comm.expert_exchange(experts, options);
  std::uint64_t run = 0;
  std::vector<T> sums(n * hidden * tiles);
  int read = 0;
  troupe::flow f{e, "layer", {.deadline = 60s}};
  const auto tokens = f.source<T>("tokens", {n, hidden}, tiles, [&](tile<T> out) {
    const input all{comm.rank(), out.index, run, experts};
    for (std::size_t i = 0; i < n * hidden; ++i) out.flat()[i] = T(all.tokens[i]);
  });
  const auto sum = troupe::experts(
      f, "experts", tokens, through,
      [&](tile<const T> in, std::span<std::int32_t> ids, std::span<float> weights) {
        const input all{comm.rank(), in.index, run, experts};
        std::copy(all.ids.begin(), all.ids.end(), ids.begin());
        std::copy(all.weights.begin(), all.weights.end(), weights.begin());
      },
      [](std::int32_t expert, tensor<T> rows) {
        for (T& x : rows.flat()) x = made(expert, x);
      });
  f.sink("sums", sum, [&](tile<const T> in) {
    expect(in.index == read++, "tiles in their order");
    std::copy(in.flat().begin(), in.flat().end(), sums.begin() + in.index * static_cast<int>(n * hidden));
  });
  for (run = 1; run <= 3; ++run) {
    read = 0;
    f.start();
    f.wait();
    expect(read == tiles, "all tiles");
    for (int index = 0; index < tiles; ++index) {
      const input all{comm.rank(), index, run, experts};
      std::vector<T> in, out(n * hidden);
      for (const float x : all.tokens) in.push_back(T(x));
      const troupe::expert_tokens<T> got = plain.dispatch<T>(in, all.ids, all.weights);
      for (std::size_t x = 0; x < got.experts.size(); ++x)
        for (T& y : got.of(x)) y = made(got.experts[x], y);
      plain.combine<T>(got.rows, out);
      for (std::size_t i = 0; i < out.size(); ++i)
        expect(wide(out[i]) == wide(sums[static_cast<std::size_t>(index) * n * hidden + i]), "a sum differs");
    }
  }
}

}  // namespace

TEST_CASE("experts as a node of a flow: each tile has the bits of dispatch and combine, run after run") {
  struct machine {
    int ranks;
    const char* layout;
  };
  for (const machine& m : {machine{1, ""}, machine{2, ""}, machine{3, ""}, machine{4, "2x2"}}) {
    troupe::engine_options how;
    how.layout = m.layout;
    engine e{how};
    CAPTURE(m.ranks);
    CHECK_NOTHROW(e.run(m.ranks, [&](communicator& comm) { check_runs<float>(e, comm, 5); }));
    CHECK_NOTHROW(e.run(m.ranks, [&](communicator& comm) { check_runs<troupe::bf16>(e, comm, 2); }));
  }
}

TEST_CASE("between processes, too") {
  const auto ended = process_tests::run_processes(3, [](const process_tests::member& m) {
    engine e;
    communicator comm = e.join(m.how());
    check_runs<float>(e, comm, 4);
  });
  CHECK(process_tests::trouble(ended) == "");
}

TEST_CASE("experts work on what has come, and the flow's other nodes go on, while a rank is late") {
  engine e;
  std::atomic<bool> computed{false};
  std::atomic<int> written{0};
  e.run(2, [&](communicator& comm) {
    auto through = comm.expert_exchange(2, options_of());
    const bool late = comm.rank() == 1;
    troupe::flow f{e, "layer"};
    const auto tokens = f.source<float>("tokens", {n, hidden}, tiles, [&](tile<float> out) {
      std::fill(out.flat().begin(), out.flat().end(), 1.0F);
      if (!late) ++written;
    });
    const auto sum = troupe::experts(
        f, "experts", tokens, through,
        [&](tile<const float>, std::span<std::int32_t> ids, std::span<float> weights) {
          // Rank 0's node is in its dispatch of the first tile, and has nothing of this rank.
          if (late) wait_for([&] { return computed.load() && written.load() == tiles; });
          to_each(ids, weights, 2);
        },
        [&](std::int32_t, tensor<float>) {
          if (!late) computed = true;
        });
    f.sink("sums", sum, [](tile<const float> in) {
      for (const float x : in.flat()) expect(x == 2, "a sum");
    });
    f.start();
    const ending end = end_of(f);
    CAPTURE(end.text);
    CHECK(end.code == errc::ok);
  });
}

TEST_CASE("what a router or an expert throws ends the flow on all ranks, with its text") {
  for (const char* layout : {"", "3x1"})
    for (const bool in_router : {true, false})
      for (const int at : {0, 3, tiles - 1}) {
        troupe::engine_options how;
        how.layout = layout;
        engine e{how};
        e.run(3, [&](communicator& comm) {
          auto through = comm.expert_exchange(3, options_of());
          int index = 0;
          troupe::flow f{e, "f"};
          const auto tokens = f.source<float>("tokens", {n, hidden}, tiles, [](tile<float> out) {
            std::fill(out.flat().begin(), out.flat().end(), 1.0F);
          });
          const auto fail = [&](bool here) {
            if (here && comm.rank() == 1 && index == at) throw std::runtime_error("the oven is cold");
          };
          const auto sum = troupe::experts(
              f, "experts", tokens, through,
              [&](tile<const float> in, std::span<std::int32_t> ids, std::span<float> weights) {
                index = in.index;
                fail(in_router);
                to_each(ids, weights, 3);
              },
              [&](std::int32_t, tensor<float>) { fail(!in_router); });
          f.sink("sums", sum, [](tile<const float>) {});
          f.start();
          const ending end = end_of(f);
          CAPTURE(end.text);
          CHECK(end.code == errc::aborted);
          CHECK(end.text.find("flow f, rank 1, node experts, tile " + std::to_string(at) + ": the oven is cold") !=
                std::string::npos);
          // The exchange may be of no use any more, so another run fails, or does the same; the communicator is whole.
          f.start();
          CHECK(end_of(f).code != errc::ok);
          int ranks = 1;
          comm.all_reduce(ranks, troupe::sum);
          CHECK(ranks == 3);
        });
      }
}

TEST_CASE("another node's exception, cancel, a deadline and an abort end the experts of a flow on all ranks") {
  enum class by { sink, cancel, deadline, abort };
  for (const by what : {by::sink, by::cancel, by::deadline, by::abort}) {
    engine e;
    std::atomic<int> ended{0};
    e.run(3, [&](communicator& comm) {
      auto options = options_of();
      options.deadline.reset();
      auto through = comm.expert_exchange(3, options);
      const bool one = comm.rank() == 1;
      std::atomic<bool> over{false};
      troupe::flow f{e, "f", {.deadline = what == by::deadline ? std::optional{200ms} : std::nullopt}};
      const auto tokens = f.source<float>(
          "tokens", {n, hidden}, tiles, [](tile<float> out) { std::fill(out.flat().begin(), out.flat().end(), 1.0F); });
      const auto sum = troupe::experts(
          f, "experts", tokens, through,
          [&](tile<const float> in, std::span<std::int32_t> ids, std::span<float> weights) {
            // The others are inside the dispatch of this tile when the run ends.
            while (one && in.index == 2 && !over && what != by::sink) std::this_thread::sleep_for(1ms);
            to_each(ids, weights, 3);
          },
          [](std::int32_t, tensor<float>) {});
      f.sink("sums", sum, [&](tile<const float> in) {
        if (what == by::sink && one && in.index == 1) throw std::runtime_error("the oven is cold");
      });
      f.start();
      std::jthread meanwhile;
      if (one)
        meanwhile = std::jthread{[&] {
          std::this_thread::sleep_for(what == by::deadline ? 400ms : 50ms);
          if (what == by::cancel) f.cancel();
          if (what == by::abort) comm.abort("enough");
          std::this_thread::sleep_for(20ms);
          over = true;
        }};
      const ending end = end_of(f);
      CAPTURE(end.text);
      CHECK(end.code == (what == by::sink       ? errc::aborted
                         : what == by::cancel   ? errc::cancelled
                         : what == by::deadline ? errc::timed_out
                                                : errc::communicator_aborted));
      // Nobody is released because another one leaves.
      ++ended;
      wait_for([&] { return ended.load() == 3; });
    });
  }
}

TEST_CASE("a flow with experts that goes ends what is under way, and a rank that never starts is an error") {
  engine e;
  e.run(2, [&](communicator& comm) {
    auto through = comm.expert_exchange(2, options_of());
    const auto run = [&](bool start, bool wait) {
      troupe::flow f{e, "f"};
      const auto tokens = f.source<float>(
          "tokens", {n, hidden}, tiles, [](tile<float> out) { std::fill(out.flat().begin(), out.flat().end(), 1.0F); });
      const auto sum = troupe::experts(
          f, "experts", tokens, through,
          [&](tile<const float>, std::span<std::int32_t> ids, std::span<float> weights) { to_each(ids, weights, 2); },
          [](std::int32_t, tensor<float>) {});
      f.sink("sums", sum, [](tile<const float>) {});
      if (start) f.start();
      if (!wait) return errc::ok;
      return end_of(f).code;
    };
    if (comm.rank() == 0) {
      const errc code = run(true, true);
      CHECK((code == errc::cancelled || code == errc::ok));  // it may be done before
    } else {
      run(true, false);
    }
    auto again = comm.expert_exchange(2, options_of());
    through = std::move(again);
    if (comm.rank() == 1) return;
    CHECK(run(true, true) == errc::rank_missing);
  });
}

TEST_CASE("what a router gets wrong, and other numbers of tiles, are errors of a flow with experts on all ranks") {
  for (const char* layout : {"", "2x2"})
    for (const bool other_tiles : {false, true}) {
      troupe::engine_options how;
      how.layout = layout;
      engine e{how};
      e.run(4, [&](communicator& comm) {
        auto options = options_of();
        options.deadline.reset();
        auto through = comm.expert_exchange(4, options);
        const bool wrong = comm.rank() == 2;
        troupe::flow f{e, "f"};
        const int count = tiles + (other_tiles && wrong ? 1 : 0);
        const auto tokens = f.source<float>("tokens", {n, hidden}, count, [](tile<float> out) {
          std::fill(out.flat().begin(), out.flat().end(), 1.0F);
        });
        const auto sum = troupe::experts(
            f, "experts", tokens, through,
            [&](tile<const float> in, std::span<std::int32_t> ids, std::span<float> weights) {
              to_each(ids, weights, 4);
              if (!other_tiles && wrong && in.index == 1) ids[3] = 4;
            },
            [](std::int32_t, tensor<float>) {});
        f.sink("sums", sum, [](tile<const float>) {});
        f.start();
        const ending end = end_of(f);
        CAPTURE(end.text);
        CHECK(end.code == (other_tiles ? errc::mismatch : errc::invalid_argument));
        CHECK(end.text.find(other_tiles ? "in a flow's node of 6 tiles"
                                        : "f, rank 2, node experts, tile 1: expert_exchange: rank 2 dispatches token 1 "
                                          "to expert 4; experts are 0 to 3") != std::string::npos);
      });
    }
}

TEST_CASE("a process that is killed is an error of a flow with experts on the others") {
  const auto ended = process_tests::run_processes(
      3,
      [](const process_tests::member& m) {
        engine e;
        communicator comm = e.join(m.how());
        auto options = options_of();
        options.deadline.reset();
        auto through = comm.expert_exchange(3, options);
        troupe::flow f{e, "f"};
        const auto tokens = f.source<float>("tokens", {n, hidden}, tiles, [](tile<float> out) {
          std::fill(out.flat().begin(), out.flat().end(), 1.0F);
        });
        const auto sum = troupe::experts(
            f, "experts", tokens, through,
            [&](tile<const float> in, std::span<std::int32_t> ids, std::span<float> weights) {
              if (in.index == 2) {
                m.say("there");
                if (comm.rank() == 1)
                  for (;;) ::pause();
              }
              to_each(ids, weights, 3);
            },
            [](std::int32_t, tensor<float>) {});
        f.sink("sums", sum, [](tile<const float>) {});
        f.start();
        const ending end = end_of(f);
        expect(end.code == errc::peer_lost, std::to_string(static_cast<int>(end.code)) + ": " + end.text);
      },
      [](process_tests::job_control& job) {
        job.wait_for_lines(3);
        ::kill(job.pids[1], SIGKILL);
      });
  CHECK(process_tests::trouble(ended, 1) == "");
}

TEST_CASE("repeated runs of a flow with experts leave nothing behind") {
  engine e;
  std::ptrdiff_t least = std::numeric_limits<std::ptrdiff_t>::max();
  e.run(2, [&](communicator& comm) {
    auto through = comm.expert_exchange(2, options_of());
    troupe::flow f{e, "f"};
    const auto tokens = f.source<float>("tokens", {n, hidden}, tiles,
                                        [](tile<float> out) { std::fill(out.flat().begin(), out.flat().end(), 1.0F); });
    const auto sum = troupe::experts(
        f, "experts", tokens, through,
        [&](tile<const float>, std::span<std::int32_t> ids, std::span<float> weights) { to_each(ids, weights, 2); },
        [](std::int32_t, tensor<float>) {});
    f.sink("sums", sum, [](tile<const float>) {});
    for (int round = 0; round < 6; ++round) {
      comm.barrier();
      const auto before = static_cast<std::ptrdiff_t>(bench::heap_use());
      comm.barrier();
      for (int again = 0; again < 60; ++again) {
        f.start();
        f.wait();
      }
      through.profile();  // all have come to the end of the last dispatch
      comm.barrier();
      if (comm.rank() == 0 && round > 1)
        least = std::min(least, static_cast<std::ptrdiff_t>(bench::heap_use()) - before);
      comm.barrier();
    }
  });
  CHECK(least < 60 * tiles * 2 * 32);  // bytes; what is said last is heard some time later
}

TEST_CASE("experts that do not fit their flow are refused, with what would be right") {
  engine e;
  e.run(1, [&](communicator& comm) {
    const auto refused = [](auto&& call, const std::string& why) {
      try {
        call();
      } catch (const troupe::error& error) {
        CAPTURE(std::string{error.what()});
        CHECK(error.code_value() == errc::invalid_argument);
        CHECK(std::string{error.what()}.find(why) != std::string::npos);
        return;
      }
      CHECK_MESSAGE(false, why);
    };
    auto late = options_of();
    late.starts_early = false;
    auto through = comm.expert_exchange(2, options_of()), plain = comm.expert_exchange(2, late),
         narrow = comm.expert_exchange(2, options_of(troupe::datatype::bf16));
    troupe::expert_exchange none;
    troupe::flow f{e, "f"}, other{e, "g"};
    const auto zero = [](tile<float> out) { std::fill(out.flat().begin(), out.flat().end(), 0.0F); };
    const auto route = [](tile<const float>, std::span<std::int32_t> ids, std::span<float> weights) {
      to_oneself(ids, weights, 0);
    };
    const auto compute = [](std::int32_t, tensor<float>) {};
    const auto tokens = f.source<float>("tokens", {n, hidden}, 1, zero);
    const auto flat = f.source<float>("flat", {n * hidden}, 1, zero);
    const auto wide = f.source<float>("wide", {n, hidden + 1}, 1, zero);
    const auto others = other.source<float>("others", {n, hidden}, 1, zero);
    const auto add = [&](const troupe::stream<float>& from, troupe::expert_exchange& by) {
      return [&] { troupe::experts(f, "experts", from, by, route, compute); };
    };
    refused(add(tokens, none), "flow f: node experts: its exchange is empty");
    refused(add(tokens, plain), "flow f: node experts: its exchange was made without expert_options::starts_early");
    refused(add(tokens, narrow), "its tiles are of f32, and the exchange was made for bf16");
    refused(add(flat, through), "tokens are rows of 20 elements, in two dimensions");
    refused(add(wide, through), "tokens are rows of 20 elements, in two dimensions");
    refused(add(others, through), "stream of another flow");
    refused([&] { troupe::experts(f, "", tokens, through, route, compute); }, "has no name");
    const auto sum = troupe::experts(f, "experts", tokens, through, route, compute);
    CHECK(f.describe().find("experts (experts of world) ← tokens: 1 tiles of f32 ") != std::string::npos);
    refused([&] { troupe::experts(f, "more", tokens, through, route, compute); },
            "its exchange is another node's already");
    f.sink("sums", sum, [](tile<const float>) {});
    f.sink("flat rows", flat, [](tile<const float>) {});
    f.sink("wide rows", wide, [](tile<const float>) {});
    // A dispatch that waits for its combine.
    const std::vector<float> one(hidden);
    const std::vector<std::int32_t> ids(top_k, 0);
    const auto got = through.dispatch<float>(one, ids);
    f.start();
    const ending end = end_of(f);
    CHECK(end.code == errc::invalid_argument);
    CHECK(end.text.find("combine it before the run") != std::string::npos);
    std::vector<float> back(hidden);
    through.combine<float>(got.rows, back);
    f.start();
    CHECK(end_of(f).text == "");
    // A router that names an expert that is none.
    auto second = comm.expert_exchange(2, options_of());
    const auto wrong = troupe::experts(
        other, "experts", others, second,
        [](tile<const float>, std::span<std::int32_t> choices, std::span<float>) {
          std::fill(choices.begin(), choices.end(), 2);
        },
        compute);
    other.sink("sums", wrong, [](tile<const float>) {});
    other.start();
    const ending unknown = end_of(other);
    CHECK(unknown.code == errc::invalid_argument);
    CHECK(unknown.text.find("token 0 to expert 2; experts are 0 to 1") != std::string::npos);
  });
}
