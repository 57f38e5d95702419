// SPDX-License-Identifier: Apache-2.0
// What LogGOPSim and ATLAHS come with, as GOAL: the example schedules, the patterns that their generator of schedules (schedgen) knows, and every
// kind of statement that their txt2bin reads. All of it is made here, from what the patterns are, and takes what LogGP's formulas say.
#include <algorithm>
#include <bit>
#include <map>
#include <random>

#include <doctest/doctest.h>

#include "engine/tools/replay/replay.hpp"
#include "memory/error.hpp"
#include "tests/seed.hpp"

namespace goal_patterns_test {

using namespace troupe;

namespace {

// -- schedules ----------------------------------------------------------------------------------------------------------

/// Ranks' operations, in the order in which they are said; labels are l1, l2, … in each rank.
class schedule {
public:
  explicit schedule(int ranks) : said_(static_cast<std::size_t>(ranks)), labels_(said_.size(), 0) {}

  int ranks() const { return static_cast<int>(said_.size()); }
  void tag(int of_messages) { tag_ = of_messages; }
  int send(int rank, int to, std::int64_t bytes) { return message(rank, "send ", "b to ", to, bytes); }
  int recv(int rank, int from, std::int64_t bytes) { return message(rank, "recv ", "b from ", from, bytes); }
  int calc(int rank, std::int64_t ns) {
    ++operations_;
    return add(rank, "calc " + std::to_string(ns));
  }
  void needs(int rank, int later, int earlier) {
    if (later > 0 && earlier > 0)
      of(rank) += "l" + std::to_string(later) + " requires l" + std::to_string(earlier) + "\n";
  }
  void note(int rank, const std::string& comment) { of(rank) += "/* " + comment + " */\n"; }

  std::string text() const {
    std::string all = "num_ranks " + std::to_string(ranks()) + "\n";
    for (std::size_t r = 0; r < said_.size(); ++r) all += "\nrank " + std::to_string(r) + " {\n" + said_[r] + "}\n";
    return all;
  }
  std::uint64_t messages() const { return messages_; }
  std::uint64_t bytes() const { return bytes_; }
  std::size_t operations() const { return operations_; }

private:
  std::string& of(int rank) { return said_[static_cast<std::size_t>(rank)]; }
  int add(int rank, const std::string& what) {
    const int label = ++labels_[static_cast<std::size_t>(rank)];
    of(rank) += "l" + std::to_string(label) + ": " + what + "\n";
    return label;
  }
  int message(int rank, const char* what, const char* where, int peer, std::int64_t size) {
    ++operations_;
    if (*what == 's') ++messages_, bytes_ += static_cast<std::uint64_t>(size);
    return add(rank, what + std::to_string(size) + where + std::to_string(peer) + " tag " + std::to_string(tag_));
  }

  std::vector<std::string> said_;
  std::vector<int> labels_;
  int tag_ = 0;
  std::uint64_t messages_ = 0, bytes_ = 0;
  std::size_t operations_ = 0;
};

// -- running ------------------------------------------------------------------------------------------------------------

// LogGOPSim's defaults: 2500 ns from rank to rank, 1500 ns of work for a send and for a receive. A byte takes 1 ns here (6 there).
constexpr std::int64_t o = 1500, L = 2500;
constexpr const char* flat =
    "[study]\n[study.hardware]\nlink.latency = \"1250ns\"\nlink.bandwidth = \"1GB/s\"\nhost.send = \"1500ns\"\n"
    "host.receive = \"1500ns\"\n";

replay_result performed(const std::string& text, std::size_t operations) {
  configuration c;
  c.add_text(flat, "loggops.toml");
  replay_result r = run_replay(read_study(c), std::make_shared<const application>(read_goal({{"t.goal", text}})), {});
  std::size_t done = 0;
  for (std::size_t rank = 0; rank < r.outcome.spans.size(); ++rank)
    for (const replay_span& s : r.outcome.spans[rank]) {
      REQUIRE(s.ready >= 0);
      REQUIRE(s.begin >= s.ready);
      REQUIRE(s.end >= s.begin);
      ++done;
    }
  CHECK(done == operations);
  return r;
}
replay_result performed(const schedule& what) {
  replay_result r = performed(what.text(), what.operations());
  CHECK(r.outcome.messages == what.messages());
  CHECK(r.outcome.payload_bytes == what.bytes());
  return r;
}
std::vector<std::int64_t> ends_ns(const replay_result& of) {
  std::vector<std::int64_t> ends;
  for (const replay_times& t : of.outcome.ranks) {
    CHECK(t.end % 1000 == 0);
    ends.push_back(t.end / 1000);
  }
  return ends;
}
std::int64_t end_ns(const schedule& what) {
  const auto ends = ends_ns(performed(what));
  return *std::max_element(ends.begin(), ends.end());
}

int rounds_of(int ranks) { return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1))); }

// -- patterns -----------------------------------------------------------------------------------------------------------

/// Of a binomial tree from rank 0: who has it sends to the one 2^k further on, in every round k.
template <class Edge>
void binomial_edges(int ranks, const Edge& edge) {
  for (int k = 0; k < rounds_of(ranks); ++k)
    for (int r = 0; r < 1 << k && r + (1 << k) < ranks; ++r) edge(r, r + (1 << k));
}

schedule binomial_broadcast(int ranks, std::int64_t bytes) {
  schedule s{ranks};
  std::vector<int> received(static_cast<std::size_t>(ranks), 0);
  binomial_edges(ranks, [&](int from, int to) {
    s.needs(from, s.send(from, to, bytes), received[static_cast<std::size_t>(from)]);
    received[static_cast<std::size_t>(to)] = s.recv(to, from, bytes);
  });
  return s;
}

schedule binomial_reduce(int ranks, std::int64_t bytes) {
  schedule s{ranks};
  for (int r = 0; r < ranks; ++r) {
    std::vector<int> received;
    int parent = -1;
    binomial_edges(ranks, [&](int into, int from) {
      if (into == r) received.push_back(s.recv(r, from, bytes));
      if (from == r) parent = into;
    });
    if (parent < 0) continue;
    const int sent = s.send(r, parent, bytes);
    for (const int label : received) s.needs(r, sent, label);
  }
  return s;
}

schedule binary_broadcast(int ranks, std::int64_t bytes) {
  schedule s{ranks};
  for (int r = 0; r < ranks; ++r) {
    const int received = r > 0 ? s.recv(r, (r - 1) / 2, bytes) : 0;
    for (int child = 2 * r + 1; child <= 2 * r + 2 && child < ranks; ++child)
      s.needs(r, s.send(r, child, bytes), received);
  }
  return s;
}

/// Adds one dissemination; its first operations wait for `behind` (0: for nothing). Returns those of `rank` that nothing waits for.
std::vector<int> disseminate(schedule& s, int rank, std::int64_t bytes, int behind = 0) {
  std::vector<int> last;
  int received = 0;
  for (int far = 1; far < s.ranks(); far *= 2) {
    const int sent = s.send(rank, (rank + far) % s.ranks(), bytes);
    s.needs(rank, sent, received > 0 ? received : behind);
    received = s.recv(rank, (rank + s.ranks() - far) % s.ranks(), bytes);
    s.needs(rank, received, behind);
    last.push_back(sent);
  }
  last.push_back(received);
  return last;
}

schedule dissemination(int ranks, std::int64_t bytes) {
  schedule s{ranks};
  for (int r = 0; r < ranks; ++r) disseminate(s, r, bytes);
  return s;
}

/// `ways` messages a round; what came is added up, a nanosecond a byte, before the next one.
schedule nway_dissemination(int ranks, int ways, std::int64_t bytes) {
  schedule s{ranks};
  for (int r = 0; r < ranks; ++r) {
    std::vector<int> sent, received;
    for (int far = 1; far < ranks; far *= ways + 1) {
      sent.clear();
      for (int w = 1; w <= ways; ++w) sent.push_back(s.send(r, (r + w * far) % ranks, bytes));
      int sum = 0;
      for (const int came : received) {
        const int added = s.calc(r, bytes);
        s.needs(r, added, came);
        s.needs(r, added, sum);
        sum = added;
      }
      for (const int label : sent) s.needs(r, label, sum);
      received.clear();
      for (int w = 1; w <= ways; ++w) received.push_back(s.recv(r, ((r - w * far) % ranks + ranks) % ranks, bytes));
    }
  }
  return s;
}

/// Segments down a chain; `one_by_one`: a rank takes the next one when it has passed the one before on.
schedule pipeline(int ranks, int segments, std::int64_t bytes, bool one_by_one) {
  schedule s{ranks};
  for (int r = 0; r < ranks; ++r)
    for (int i = 0, sent = 0; i < segments; ++i) {
      const int received = r > 0 ? s.recv(r, r - 1, bytes) : 0;
      if (one_by_one) s.needs(r, received, sent);
      if (r + 1 == ranks) continue;
      sent = s.send(r, r + 1, bytes);
      s.needs(r, sent, received);
    }
  return s;
}

schedule double_ring(int ranks, std::int64_t bytes) {
  schedule s{ranks};
  for (int r = 0; r < ranks; ++r)
    for (const int way : {1, ranks - 1}) {
      const int sent = s.send(r, (r + way) % ranks, bytes);
      const int received = s.recv(r, (r + ranks - way) % ranks, bytes);
      if (r > 0) s.needs(r, sent, received);
    }
  return s;
}

schedule linear(int ranks, std::int64_t bytes, bool outwards) {
  schedule s{ranks};
  for (int r = 1; r < ranks; ++r) {
    s.send(outwards ? 0 : r, outwards ? r : 0, bytes);
    s.recv(outwards ? r : 0, outwards ? 0 : r, bytes);
  }
  return s;
}

schedule linear_barrier(int ranks) {
  schedule s{ranks};
  const int all = s.calc(0, 0);
  for (int r = 1; r < ranks; ++r) {
    s.needs(0, all, s.recv(0, r, 1));
    s.needs(0, s.send(0, r, 1), all);
    s.send(r, 0, 1);
    s.recv(r, 0, 1);
  }
  return s;
}

template <class Bytes>
schedule all_to_all(int ranks, const Bytes& bytes) {
  schedule s{ranks};
  for (int r = 0; r < ranks; ++r)
    for (int step = 1; step < ranks; ++step) {
      const int to = (r + step) % ranks, from = (r + ranks - step) % ranks;
      s.send(r, to, bytes(r, to));
      s.recv(r, from, bytes(from, r));
    }
  return s;
}

schedule ring_all_reduce(int ranks, std::int64_t bytes) {
  schedule s{ranks};
  for (int r = 0; r < ranks; ++r)
    for (int step = 0, received = 0; step < 2 * (ranks - 1); ++step) {
      s.needs(r, s.send(r, (r + 1) % ranks, bytes), received);
      received = s.recv(r, (r + ranks - 1) % ranks, bytes);
    }
  return s;
}

/// Halves of halves with ever farther ranks, and back. `gap_ns` ≥ 0: a send does not wait for what came before it, but for a computation.
schedule halving_all_reduce(int ranks, std::int64_t bytes, std::int64_t gap_ns) {
  schedule s{ranks};
  const int rounds = rounds_of(ranks);
  for (int r = 0; r < ranks; ++r) {
    int last = 0;
    for (int step = 0; step < 2 * rounds; ++step) {
      const int k = step < rounds ? step : 2 * rounds - 1 - step;
      s.needs(r, s.send(r, r ^ 1 << k, bytes >> (k + 1)), last);
      last = s.recv(r, r ^ 1 << k, bytes >> (k + 1));
      if (gap_ns >= 0 && step + 1 < 2 * rounds) last = s.calc(r, gap_ns);
    }
  }
  return s;
}

}  // namespace

TEST_CASE("goal: LogGOPSim's example schedules take what its documents say") {
  // dissemination_16.goal: "22000ns for our example with default parameters", a byte of no length. Here a byte takes a nanosecond.
  for (const auto& each : {std::pair{16, 4}, {32, 5}, {12, 4}})
    for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1024}}) {
      const int ranks = each.first, rounds = each.second;
      INFO(ranks << " ranks, " << bytes << " bytes");
      for (const std::int64_t end : ends_ns(performed(dissemination(ranks, bytes))))
        CHECK(end == rounds * (2 * o + L + bytes));
    }
  CHECK(end_ns(dissemination(16, 0)) == 22'000);
  // The README's reduction by a binomial tree: a message of 1024 bytes, of which all but the first take 6 ns.
  CHECK(ends_ns(performed(binomial_reduce(8, 1023 * 6))) ==
        std::vector<std::int64_t>{34914, 24776, 13138, 13138, 1500, 1500, 1500, 1500});
}

TEST_CASE("goal: schedgen's trees and pipelines take what LogGP says") {
  // binary_tree_16.goal and binary_tree_32.goal, which are binomial trees, and the like on other numbers of ranks.
  for (const int ranks : {2, 3, 8, 16, 20, 32, 128})
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1000}}) {
      INFO(ranks << " ranks, " << bytes << " bytes");
      std::vector<std::int64_t> free(static_cast<std::size_t>(ranks), 0);  // when a rank has done what it does
      binomial_edges(ranks, [&](int from, int to) {
        free[static_cast<std::size_t>(from)] += o;
        free[static_cast<std::size_t>(to)] = free[static_cast<std::size_t>(from)] + L + bytes + o;
      });
      CHECK(ends_ns(performed(binomial_broadcast(ranks, bytes))) == free);
      const std::int64_t end = *std::max_element(free.begin(), free.end());
      if (std::has_single_bit(static_cast<unsigned>(ranks))) CHECK(end == rounds_of(ranks) * (2 * o + L + bytes));
      CHECK(end_ns(binomial_reduce(ranks, bytes)) >= end - rounds_of(ranks) * o);
    }
  for (const int ranks : {2, 7, 16, 31}) {
    std::vector<std::int64_t> free(static_cast<std::size_t>(ranks), 0);
    for (int r = 1; r < ranks; ++r) {
      std::int64_t& parent = free[static_cast<std::size_t>((r - 1) / 2)];
      parent += o;
      free[static_cast<std::size_t>(r)] = parent + L + 100 + o;
    }
    CHECK(ends_ns(performed(binary_broadcast(ranks, 100))) == free);
  }
  // Where a segment takes longer on the wire than two pieces of work, it is the wire that counts.
  for (const bool one_by_one : {false, true})
    for (const int ranks : {2, 5, 16})
      CHECK(end_ns(pipeline(ranks, 10, 4096, one_by_one)) == (ranks - 1) * (2 * o + L + 4096) + 9 * 4096);
}

TEST_CASE("goal: schedgen's other patterns take what LogGP says") {
  // Both ways round at once, by an odd number of ranks, which meet between two of them; rank 0 receives the later one last.
  CHECK(end_ns(double_ring(15, 64)) == 15 * (2 * o + L + 64) + o);
  // One after the other by one rank; its wire has room for a byte in the meantime.
  for (const int ranks : {2, 8, 33}) {
    CHECK(end_ns(linear(ranks, 1, true)) == (ranks - 1) * o + L + 1 + o);
    CHECK(end_ns(linear(ranks, 0, false)) == o + L + (ranks - 1) * o);
  }
  CHECK(end_ns(linear_barrier(16)) == o + L + 1 + 15 * o + 15 * o + L + 1 + o);
  // From when all is under way a rank is never without work.
  CHECK(end_ns(all_to_all(16, [](int, int) { return std::int64_t{1}; })) == 2 * 15 * o);
  for (const int ranks : {2, 5, 16})
    CHECK(end_ns(ring_all_reduce(ranks, 2048)) == 2 * (ranks - 1) * (2 * o + L + 2048));
  // Of 1024 bytes halves, quarters, … cross, there and back.
  CHECK(end_ns(halving_all_reduce(16, 1024, -1)) == 2 * (4 * (2 * o + L) + 512 + 256 + 128 + 64));
  for (const int ranks : {2, 8, 9})
    CHECK(end_ns(nway_dissemination(ranks, 1, 512)) ==
          rounds_of(ranks) * (2 * o + L + 512) + (rounds_of(ranks) - 1) * 512);
}

TEST_CASE("goal: schedgen's patterns without a closed form are performed whole") {
  CHECK(end_ns(nway_dissemination(27, 2, 512)) >= 3 * (2 * o + L + 512) + 2 * 2 * 512);
  const replay_result gaps = performed(halving_all_reduce(16, 1024, 10'000));
  for (const replay_times& t : gaps.outcome.ranks) {
    CHECK(t.compute == 7 * 10'000'000);
    CHECK(t.compute + t.collective + t.message + t.idle == t.end);
  }
  std::mt19937_64 random{seed()};
  // Pairs at random, one way and both.
  std::vector<int> who(64);
  for (std::size_t i = 0; i < who.size(); ++i) who[i] = static_cast<int>(i);
  std::shuffle(who.begin(), who.end(), random);
  schedule bisection{64}, both{64};
  for (std::size_t i = 0; i < 32; ++i) {
    const int a = who[i], b = who[i + 32];
    bisection.send(a, b, 3000);
    bisection.recv(b, a, 3000);
    for (const auto& [x, y] : {std::pair{a, b}, {b, a}}) both.send(x, y, 3000), both.recv(x, y, 3000);
  }
  CHECK(end_ns(bisection) == 2 * o + L + 3000);
  CHECK(end_ns(both) == 2 * o + L + 3000);
  // Blocks of all sizes, some ranks with much for all.
  std::map<std::pair<int, int>, std::int64_t> sizes;
  for (int a = 0; a < 12; ++a)
    for (int b = 0; b < 12; ++b)
      sizes[{a, b}] = a == 1 || b == 0 ? 16384 : 1 + static_cast<std::int64_t>(random() % 1024);
  CHECK(end_ns(all_to_all(12, [&](int a, int b) { return sizes[{a, b}]; })) >= 11 * 16384 + 2 * o + L);
  // A training: forwards, then ten pieces backwards, each followed by a dissemination of its gradients beside the next one.
  schedule training{8};
  for (int r = 0; r < 8; ++r) {
    const int forward = training.calc(r, 119'000);
    for (int piece = 0; piece < 10; ++piece) {
      const int backward = training.calc(r, 23'800), marked = training.calc(r, 0);
      training.needs(r, backward, forward);
      training.needs(r, marked, backward);
      training.note(r, "gradients of piece " + std::to_string(piece));
      training.tag(1'000'000 + piece);
      disseminate(training, r, 24'000'000 + 1000 * piece, marked);
      training.note(r, "end");
    }
  }
  const replay_result trained = performed(training);
  for (const replay_times& t : trained.outcome.ranks) CHECK(t.compute == 1000 * (119'000 + 10 * 23'800));
  CHECK(trained.outcome.end_ps >= 1000 * (3 * 10 * std::int64_t{24'000'000}));  // what a port carries
}

TEST_CASE("goal: every statement that txt2bin reads is performed") {
  // Labels or none, comments of both forms, any sender and tag, cpus and NICs, both dependencies, empty ranks, tabs and both ends of lines.
  const std::string text = "// a schedule\nnum_ranks 4\r\n/* of several\n lines */\n\nrank 0 {\r\n"
                           "l1: calc 100\n\tcalc 50 cpu 1\n"
                           "first_one: send 10b to 1 tag 7 cpu 1 nic 2\n"
                           "first_one requires l1\n"
                           "L2:send 20b to 2\n"
                           "l3 : send 30b to 1 cpu 2 nic 1\n"
                           "l3 irequires L2 // behind a statement\n"
                           "}\n"
                           "rank 1 { \n"
                           "r1: recv 10b from -1 tag -1 cpu 3 nic 0\n"
                           "r2: recv 30b from 0 tag -1\n"
                           "r2 requires r1\n"
                           "r3: recv 40b from -1 tag 9 cpu 1\n"
                           "}\n"
                           "rank 2 {\n"
                           "a: recv 20b from 0 tag 0 nic 3\n"
                           "b: send 40b to 1 tag 9 cpu 0\n"
                           "b requires a\n"
                           "}\n"
                           "rank 3 {\n}\n";
  const replay_result r = performed(text, 10);
  CHECK(r.outcome.messages == 4);
  CHECK(r.outcome.payload_bytes == 100);
  const auto& zero = r.outcome.spans[0];
  const auto ns = [](const replay_span& s) { return std::pair{s.begin / 1000, s.end / 1000}; };
  using when = std::pair<std::int64_t, std::int64_t>;
  CHECK(ns(zero[0]) == when{0, 100});
  CHECK(ns(zero[1]) == when{0, 50});      // another cpu's
  CHECK(ns(zero[2]) == when{100, 1600});  // what it required had ended
  CHECK(ns(zero[3]) == when{100, 1600});  // behind the first one on its cpu
  CHECK(ns(zero[4]) == when{100, 1600});  // on a cpu of its own, when the one that it goes by had begun
  CHECK(r.outcome.ranks[3].end == 0);
  CHECK(r.outcome.spans[1][0].end / 1000 == 1600 + 20 + 10 + L + o);  // behind the 20 bytes of its port
  CHECK(r.outcome.spans[1][1].end > r.outcome.spans[1][0].end);
  CHECK(r.outcome.spans[1][2].from == 2);

  const auto why = [](const std::string& said) -> std::string {
    try {
      static_cast<void>(read_goal({{"t.goal", said}}));
    } catch (const error& refused) {
      CHECK(refused.code_value() == errc::bad_config);
      return refused.what();
    }
    return "accepted";
  };
  // What txt2bin makes of a text is not read; nor is a rank that is not there, which one of schedgen's patterns marks rounds with.
  for (const unsigned cookie : {4223U, 2342U}) {
    std::string binary(64, '\0');
    binary[0] = static_cast<char>(cookie & 0xff), binary[1] = static_cast<char>(cookie >> 8);
    CHECK(why(binary).find("binary form") != std::string::npos);
  }
  CHECK(why("num_ranks 4\nrank 0 {\nl1: send 0b to 9999999 tag 0\n}\n").find("t.goal:3") != std::string::npos);
}

}  // namespace goal_patterns_test
