// SPDX-License-Identifier: Apache-2.0
// Groups of sends and receives of several ranks, each on a thread of its own: driven or left to others, late, cancelled.

#include "tests/lanes/ranks_on_threads.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

using namespace ranks_test;
using namespace std::chrono_literals;

namespace {

namespace rank_groups {

/// One send or receive, of which both ends are known by peer, direction and number.
struct end {
  rank_t peer;
  bool sending;
  std::vector<std::int32_t> data;
  operation_ptr what{};
};

std::int32_t value(rank_t from, rank_t to, int number, std::size_t at) {
  return from * 1'000'000 + to * 100'000 + number * 100 + static_cast<std::int32_t>(at % 97);
}

std::size_t count_of(int round, int number) {
  constexpr std::array<std::size_t, 6> counts{1, 0, 28, 300, 5000, 60'000};
  return counts[static_cast<std::size_t>(round * 7 + number * 5) % counts.size()];
}

void submit(rank_table& table, rank_t rank, end& e) {
  e.what = std::make_shared<operation>();
  e.what->peer = e.peer;
  e.what->sending = e.sending;
  e.what->what.what = collective::broadcast;
  e.what->what.type = datatype::i32;
  e.what->what.count = e.data.size();
  e.what->input = e.what->output = e.data.data();
  table.at(rank).submit(e.what);
}

/// As many messages each way between all pairs as there are numbers, in an order of this rank's own.
std::vector<end> ends_of(rank_t rank, int ranks, int round, int numbers, std::mt19937_64& random) {
  std::vector<std::vector<end>> rows;
  for (rank_t peer = 0; peer < ranks; ++peer)
    for (const bool sending : {false, true}) {
      if (peer == rank) continue;
      rows.emplace_back();
      for (int k = 0; k < numbers; ++k) {
        std::vector<std::int32_t> data(count_of(round, k), -1);
        for (std::size_t i = 0; sending && i < data.size(); ++i) data[i] = value(rank, peer, k, i);
        rows.back().push_back({peer, sending, std::move(data)});
      }
    }
  std::shuffle(rows.begin(), rows.end(), random);
  std::vector<end> all;
  for (auto& row : rows) std::move(row.begin(), row.end(), std::back_inserter(all));
  return all;
}

/// What a message that was not cancelled has brought.
int wrong_in(const std::vector<end>& all, rank_t rank) {
  int wrong = 0;
  std::map<rank_t, int> number;
  for (const end& e : all) {
    if (e.sending) continue;
    const int k = number[e.peer]++;
    if (e.what->done->why()) continue;
    for (std::size_t i = 0; i < e.data.size(); ++i) wrong += e.data[i] != value(e.peer, rank, k, i);
  }
  return wrong;
}

}  // namespace rank_groups

}  // namespace

using namespace rank_groups;

TEST_CASE("groups of sends and receives on threads: driven or not, late, cancelled, and every message as it was sent") {
  for (const bool cancels : {false, true})
    for (const int ranks : {2, 3, 5}) {
      CAPTURE(cancels);
      CAPTURE(ranks);
      house o(ranks);
      std::atomic<int> wrong{0}, failed{0};
      std::vector<std::thread> threads;
      for (rank_t r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
          std::mt19937_64 random{seed() + static_cast<std::uint64_t>(r)};
          constexpr int rounds = 60;
          for (int round = 0; round < rounds; ++round) {
            std::vector<end> all = ends_of(r, ranks, round, 1 + round % 6, random);
            if (random() % 6 == 0) std::this_thread::sleep_for(std::chrono::microseconds{random() % 2000});
            {
              rank_cell::gathering together;
              for (end& e : all) submit(o.table(), r, e);
              if (random() % 5 != 0)
                if (rank_cell* const late = together.drive())
                  late->waited_for_group(std::chrono::microseconds{random() % 200}, 0);
            }
            if (cancels && random() % 2 == 0)
              o.table().at(r).post(rank_order{[op = all[random() % all.size()].what](rank_state& s, rank_outbox& out) {
                s.end(op, make_failure(errc::cancelled, "enough"), out);
              }});
            for (end& e : all) {
              wait_for(e.what->done);
              if (const failure_ptr why = e.what->done->why()) failed += why->code != errc::cancelled || !cancels;
            }
            wrong += wrong_in(all, r);
          }
        });
      for (auto& t : threads) t.join();
      CHECK(wrong == 0);
      CHECK(failed == 0);
    }
}
