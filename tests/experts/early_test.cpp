// SPDX-License-Identifier: Apache-2.0
// Dispatches that start early: what is given out before all have begun, and how such a dispatch ends.

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <limits>
#include <thread>
#include <utility>

#include <unistd.h>

#include "bench/harness/counted_heap.hpp"
#include "memory/error.hpp"
#include "tests/experts/layer.hpp"
#include "tests/processes/processes.hpp"
#include "tests/seed.hpp"

using namespace expert_tests;
using namespace process_tests;
using namespace std::chrono_literals;
using troupe::communicator;
using troupe::engine;
using troupe::errc;

namespace {

/// The code that the call throws, and in `why` its text.
template <class Call>
errc ends_with(Call&& call, std::string* why = nullptr) {
  try {
    call();
  } catch (const troupe::error& e) {
    if (why != nullptr) *why = e.what();
    return e.code_value();
  }
  return errc::ok;
}

/// An expert a rank; every rank sends one token to each.
struct one_for_each {
  explicit one_for_each(communicator& comm) {
    for (int r = 0; r < comm.size(); ++r) {
      ids.push_back(r);
      for (std::size_t i = 0; i < hidden; ++i) tokens.push_back(static_cast<float>(10 * comm.rank() + r));
    }
    sums.resize(tokens.size());
  }
  static constexpr std::size_t hidden = 300;
  std::vector<float> tokens, sums;
  std::vector<std::int32_t> ids;
};

/// A part is what it should be, and becomes twice that.
void take(communicator& comm, troupe::expert_exchange& exchange, const troupe::expert_part<float>& part) {
  expect(part.size() == 1 && part.counts.size() == 1 && part.counts[0] == 1,
         "of rank " + std::to_string(part.from) + " there are " + std::to_string(part.size()) + " tokens, not one");
  for (float& x : part.rows) {
    expect(x == static_cast<float>(10 * part.from + comm.rank()), "an element of a part");
    x *= 2;
  }
  exchange.ready(part.from);
}

/// The ranks behind those that `get` something early begin when these have been given all of that; then all go to the end.
void begin_some_late(communicator& comm, troupe::expert_exchange& exchange,
                     const std::vector<std::vector<rank_t>>& get) {
  const auto early = static_cast<rank_t>(get.size());
  one_for_each mine{comm};
  std::uint32_t word = 0;
  if (comm.rank() >= early)
    for (rank_t r = 0; r < early; ++r) comm.recv(word, r);
  exchange.start_dispatch<float>(mine.tokens, mine.ids);
  std::vector<rank_t> from;
  if (comm.rank() < early) {
    const auto& wanted = get[static_cast<std::size_t>(comm.rank())];
    while (from.size() < wanted.size()) {
      const auto part = exchange.next_arrived<float>();
      expect(part.has_value(), "there is more to come");
      take(comm, exchange, *part);
      from.push_back(part->from);
    }
    for (rank_t r = early; r < comm.size(); ++r) expect(!exchange.arrived(r), "a rank that has not begun has arrived");
    std::sort(from.begin(), from.end());
    expect(from == wanted, "others than those that have begun");
    for (rank_t r = early; r < comm.size(); ++r) comm.send(word, r);
  }
  while (const auto part = exchange.next_arrived<float>()) {
    take(comm, exchange, *part);
    from.push_back(part->from);
  }
  expect(static_cast<int>(from.size()) == comm.size(), "one part of each rank");
  exchange.combine<float>(mine.sums);
  for (std::size_t i = 0; i < mine.sums.size(); ++i) expect(mine.sums[i] == 2 * mine.tokens[i], "a result");
}

troupe::expert_options early_options() {
  return {.hidden = one_for_each::hidden, .deadline = 60s, .starts_early = true};
}

}  // namespace

TEST_CASE("tokens are given out while a rank has not begun its dispatch") {
  engine e;
  e.run(3, [](communicator& comm) {
    auto exchange = comm.expert_exchange(3, early_options());
    for (int again = 0; again < 20; ++again) begin_some_late(comm, exchange, {{0, 1}, {0, 1}});
  });
  // Rank 3 receives for its server what rank 1 has; all else is there without it.
  troupe::engine_options servers;
  servers.layout = "2x2";
  engine of_two{servers};
  of_two.run(4, [](communicator& comm) {
    auto exchange = comm.expert_exchange(4, early_options());
    for (int again = 0; again < 20; ++again) begin_some_late(comm, exchange, {{0, 1, 2}, {0, 1, 2}, {0, 2}});
  });
}

TEST_CASE("while a whole server has not begun, what has come from another one is spread inside") {
  troupe::engine_options servers;
  servers.layout = "3x2";
  engine e{servers};
  const std::vector<rank_t> those{0, 1, 2, 3};
  e.run(6, [&](communicator& comm) {
    auto exchange = comm.expert_exchange(6, early_options());
    for (int again = 0; again < 20; ++again) begin_some_late(comm, exchange, {those, those, those, those});
  });
}

TEST_CASE("no tokens, one expert and one rank start early, too") {
  engine e;
  layer l;
  l.options.hidden = 33;
  l.options.top_k = 8;
  l.options.starts_early = true;
  for (const int experts : {1, 2, 5})
    for (const auto& tokens :
         std::vector<std::vector<std::size_t>>{{0}, {9}, {0, 0, 0}, {5, 0, 0}, {0, 0, 7}, {3, 100, 1}}) {
      l.experts = experts;
      l.tokens = tokens;
      CHECK_NOTHROW(e.run(static_cast<int>(tokens.size()), [&](communicator& comm) {
        layer one = l;
        auto exchange = comm.expert_exchange(l.experts, l.options);
        for (one.seed = 1; one.seed < 9; ++one.seed) check_layer(exchange, one, comm.rank());
      }));
    }
}

TEST_CASE("repeated dispatches that start early leave nothing behind") {
  for (const char* layout : {"", "2x2"}) {
    troupe::engine_options how;
    how.layout = layout;
    engine e{how};
    std::ptrdiff_t least = std::numeric_limits<std::ptrdiff_t>::max();
    e.run(4, [&](communicator& comm) {
      auto exchange = comm.expert_exchange(4, early_options());
      one_for_each mine{comm};
      // What is kept for later calls is taken at some time; what is left behind grows in every round.
      for (int round = 0; round < 8; ++round) {
        comm.barrier();
        const auto before = static_cast<std::ptrdiff_t>(bench::heap_use());
        comm.barrier();
        for (int again = 0; again < 300; ++again) {
          exchange.start_dispatch<float>(mine.tokens, mine.ids);
          while (const auto part = exchange.next_arrived<float>()) take(comm, exchange, *part);
          exchange.combine<float>(mine.sums);
        }
        exchange.profile();  // all have come to the end
        comm.barrier();
        if (comm.rank() == 0 && round > 1)
          least = std::min(least, static_cast<std::ptrdiff_t>(bench::heap_use()) - before);
        comm.barrier();
      }
    });
    CHECK(least < 300 * 4 * 32);  // bytes; what is said last is heard some time later
  }
}

TEST_CASE("between processes tokens are given out while a rank has not begun its dispatch") {
  const auto ended = run_processes(3, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    auto exchange = comm.expert_exchange(3, early_options());
    for (int again = 0; again < 20; ++again) begin_some_late(comm, exchange, {{0, 1}, {0, 1}});
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("between hosts they are spread while a rank has not begun its dispatch") {
  const auto ended = run_processes(4, [](const member& m) {
    engine e;
    auto how = m.how();
    how.host = m.process < 2 ? "one" : "other";
    how.key = std::string(64, 'e');
    communicator comm = e.join(how);
    auto exchange = comm.expert_exchange(4, early_options());
    for (int again = 0; again < 5; ++again) begin_some_late(comm, exchange, {{0, 1, 2}, {0, 1, 2}, {0, 2}});
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("a rank gets its sums when those have answered that have its tokens") {
  engine e;
  e.run(3, [](communicator& comm) {
    auto exchange = comm.expert_exchange(3, early_options());
    const std::vector<float> tokens(exchange.hidden(), 7);
    std::vector<float> sum(tokens.size());
    const std::vector<std::int32_t> ids{comm.rank() == 0 ? 1 : 2};
    std::uint32_t word = 0;
    for (int again = 0; again < 20; ++again) {
      exchange.start_dispatch<float>(tokens, ids);
      bool waited = false;
      while (const auto part = exchange.next_arrived<float>()) {
        if (comm.rank() == 2 && !std::exchange(waited, true)) comm.recv(word, 0);  // its sum is there
        exchange.ready(part->from);
      }
      exchange.combine<float>(sum);
      CHECK(sum == tokens);
      if (comm.rank() == 0) comm.send(word, 2);
    }
  });
}

TEST_CASE("what is called out of order, and what a rank refuses, is an error, and all go on") {
  for (const char* layout : {"", "2x2"}) {
    troupe::engine_options how;
    how.layout = layout;
    engine e{how};
    e.run(4, [](communicator& comm) {
      auto plain = comm.expert_exchange(4, {.hidden = one_for_each::hidden});
      one_for_each mine{comm};
      CHECK(ends_with([&] { plain.start_dispatch<float>(mine.tokens, mine.ids); }) == errc::invalid_argument);
      CHECK(ends_with([&] { plain.next_arrived<float>(); }) == errc::invalid_argument);
      auto exchange = comm.expert_exchange(4, early_options());
      CHECK(ends_with([&] { exchange.next_arrived<float>(); }) == errc::invalid_argument);
      CHECK(ends_with([&] { exchange.combine<float>(mine.sums); }) == errc::invalid_argument);
      for (int again = 0; again < 3; ++again) {
        const bool wrong = comm.rank() == again;
        const std::vector<std::int32_t> unknown(4, 4);
        CHECK(ends_with([&] {
                exchange.start_dispatch<float>(mine.tokens, wrong ? unknown : mine.ids);
                while (const auto part = exchange.next_arrived<float>()) take(comm, exchange, *part);
              }) == (wrong ? errc::invalid_argument : errc::peer_refused));
        CHECK(ends_with([&] { exchange.combine<float>(mine.sums); }) == errc::invalid_argument);

        exchange.start_dispatch<float>(mine.tokens, mine.ids);
        CHECK(ends_with([&] { exchange.next_arrived<troupe::bf16>(); }) == errc::invalid_argument);
        CHECK(ends_with([&] { exchange.ready(comm.rank()); }) == errc::invalid_argument);
        CHECK(ends_with([&] { exchange.ready(4); }) == errc::invalid_argument);
        CHECK(ends_with([&] { exchange.arrived(-1); }) == errc::invalid_argument);
        CHECK(ends_with([&] { exchange.combine<float>(mine.sums); }) == errc::invalid_argument);
        while (const auto part = exchange.next_arrived<float>()) take(comm, exchange, *part);
        CHECK(ends_with([&] { exchange.ready(comm.rank()); }) == errc::invalid_argument);
        CHECK(ends_with([&] { exchange.combine<float>(std::span(mine.sums).first(5)); }) == errc::invalid_argument);
        exchange.combine<float>(mine.sums);
        for (std::size_t i = 0; i < mine.sums.size(); ++i) CHECK(mine.sums[i] == 2 * mine.tokens[i]);
        // A rank that goes on without a combine gets to the next dispatch all the same.
        exchange.start_dispatch<float>(mine.tokens, mine.ids);
        exchange.start_dispatch<float>(mine.tokens, mine.ids);
        const auto got = exchange.dispatch<float>(mine.tokens, mine.ids);
        CHECK(got.size() == 4);
        exchange.combine<float>(got.rows, mine.sums);
        CHECK(mine.sums == mine.tokens);
      }
    });
  }
}

TEST_CASE("a deadline, a cancel and an exchange that ends release all ranks, those that are late, too") {
  for (const bool has_deadline : {true, false}) {
    engine e;
    e.run(3, [&](communicator& comm) {
      auto options = early_options();
      if (has_deadline) options.deadline = 200ms;
      else options.deadline.reset();
      auto exchange = comm.expert_exchange(3, options);
      one_for_each mine{comm};
      std::uint32_t word = 0;
      const errc expected = has_deadline ? errc::timed_out : errc::cancelled;
      std::jthread canceller;
      if (comm.rank() == 2) {
        comm.recv(word, 0);
        comm.recv(word, 1);
        CHECK(ends_with([&] {
                exchange.start_dispatch<float>(mine.tokens, mine.ids);
                while (exchange.next_arrived<float>()) {}
              }) == expected);
      } else {
        exchange.start_dispatch<float>(mine.tokens, mine.ids);
        if (!has_deadline && comm.rank() == 1)
          canceller = std::jthread{[&] {
            std::this_thread::sleep_for(20ms);
            exchange.cancel();
          }};
        CHECK(ends_with([&] {
                while (exchange.next_arrived<float>()) {}
              }) == expected);
        comm.send(word, 2);
      }
      CHECK(ends_with([&] { exchange.dispatch<float>(mine.tokens, mine.ids); }) == expected);
      // The communicator is whole.
      auto other = comm.expert_exchange(3, early_options());
      begin_some_late(comm, other, {{0, 1}, {0, 1}});
    });
  }
  engine e;
  e.run(2, [](communicator& comm) {
    one_for_each mine{comm};
    auto exchange = comm.expert_exchange(2, early_options());
    exchange.start_dispatch<float>(mine.tokens, mine.ids);
    if (comm.rank() == 0) return;
    const errc ended = ends_with([&] {
      while (const auto part = exchange.next_arrived<float>()) exchange.ready(part->from);
      exchange.combine<float>(mine.sums);
    });
    CHECK((ended == errc::cancelled || ended == errc::rank_missing));
  });
}

TEST_CASE("a rank that leaves without having begun is an error on the others at once, without any deadline") {
  engine e;
  e.run(3, [](communicator& comm) {
    one_for_each mine{comm};
    auto options = early_options();
    options.deadline.reset();
    auto exchange = comm.expert_exchange(3, options);
    if (comm.rank() == 1) return;
    exchange.start_dispatch<float>(mine.tokens, mine.ids);
    std::string why;
    const errc ended = ends_with(
        [&] {
          while (exchange.next_arrived<float>()) {}
        },
        &why);
    CAPTURE(why);
    CHECK(ended == errc::rank_missing);
  });
}

TEST_CASE("a communicator that is revoked or aborted ends a dispatch that has started early on all ranks") {
  for (const bool revoked : {true, false}) {
    engine e;
    e.run(3, [&](communicator& comm) {
      one_for_each mine{comm};
      auto options = early_options();
      auto exchange = comm.expert_exchange(3, options);
      std::uint32_t word = 0;
      std::string why;
      if (comm.rank() == 2) {
        comm.recv(word, 0);
        comm.recv(word, 1);
        if (revoked) comm.revoke("a test");
        else comm.abort("a test");
        return;
      }
      exchange.start_dispatch<float>(mine.tokens, mine.ids);
      comm.send(word, 2);
      const errc ended = ends_with(
          [&] {
            while (exchange.next_arrived<float>()) {}
          },
          &why);
      CAPTURE(why);
      CHECK(ended == (revoked ? errc::revoked : errc::communicator_aborted));
    });
  }
}

TEST_CASE("between processes a revoke ends it, too, and those that are left go on") {
  const auto ended = run_processes(3, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    one_for_each mine{comm};
    auto options = early_options();
    options.deadline.reset();
    {
      auto exchange = comm.expert_exchange(3, options);
      std::uint32_t word = 0;
      if (comm.rank() == 2) {
        comm.recv(word, 0);
        comm.recv(word, 1);
        comm.revoke("a test");
      } else {
        exchange.start_dispatch<float>(mine.tokens, mine.ids);
        comm.send(word, 2);
      }
      std::string why;
      const errc how = ends_with(
          [&] {
            if (comm.rank() == 2) exchange.start_dispatch<float>(mine.tokens, mine.ids);
            while (exchange.next_arrived<float>()) {}
          },
          &why);
      expect(how == errc::revoked, std::to_string(static_cast<int>(how)) + ": " + why);
    }
    communicator again = comm.shrink();
    auto exchange = again.expert_exchange(3, early_options());
    begin_some_late(again, exchange, {{0, 1}, {0, 1}});
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("a process that is killed in a dispatch that has started early is an error on the others") {
  const auto ended = run_processes(
      3,
      [](const member& m) {
        engine e;
        communicator comm = e.join(m.how());
        {
          auto options = early_options();
          options.deadline.reset();
          auto exchange = comm.expert_exchange(3, options);
          one_for_each mine{comm};
          begin_some_late(comm, exchange, {{0, 1}, {0, 1}});
          m.say("begun");
          if (comm.rank() == 1)
            for (;;) ::pause();
          std::string why;
          const errc how = ends_with(
              [&] {
                for (;;) {
                  exchange.start_dispatch<float>(mine.tokens, mine.ids);
                  while (const auto part = exchange.next_arrived<float>()) take(comm, exchange, *part);
                  exchange.combine<float>(mine.sums);
                }
              },
              &why);
          expect(how == errc::peer_lost, std::to_string(static_cast<int>(how)) + ": " + why);
        }
        communicator left = comm.shrink();
        auto exchange = left.expert_exchange(2, early_options());
        begin_some_late(left, exchange, {{0}});
      },
      [](job_control& job) {
        job.wait_for_lines(3);
        ::kill(job.pids[1], SIGKILL);
      });
  CHECK(trouble(ended, 1) == "");
}
