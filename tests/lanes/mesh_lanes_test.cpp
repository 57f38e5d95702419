// SPDX-License-Identifier: Apache-2.0
// Several connections between two processes, and the chunks that go over all of them.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actors/ports/link/mesh.hpp"
#include "tests/lanes/meshes.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace mesh_tests;

namespace {

/// Of a send, which is announced when it is longer than most_unasked.
constexpr epoch_t of_send = point_to_point | 5;

/// Two processes, which know each other.
struct pair_of_test : meshes_of_test {
  pair_of_test(between way, std::vector<int> lanes,
               const std::function<std::string(const std::string& door)>& called_at = {},
               std::chrono::milliseconds silence = usual_silence)
      : meshes_of_test(way, 2, silence, 2, {}, called_at, std::move(lanes)) {
    for (const std::uint32_t p : {0u, 1u}) each[p]->send_credit(1 - p, {}, {});
    for (const auto& h : heard) CHECK(comes([&] { return h->credits.load() == 1; }));
  }
  /// In the data's memory, until the other one has it.
  void send(std::uint32_t from, const std::vector<std::byte>& data, std::uint32_t sequence, epoch_t epoch = of_send) {
    chunk c = some_chunk(data, epoch, sequence);
    c.source = static_cast<rank_t>(from);
    frame_head head;
    head.communicator = 9;
    head.to = static_cast<rank_t>(1 - from);
    each[from]->send_chunk(1 - from, head, c);
  }
};

std::string any_of(const std::vector<std::string>& all, const std::string& text) {
  const auto at = std::ranges::find_if(all, [&](const std::string& s) { return s.find(text) != s.npos; });
  return at == all.end() ? "" : *at;
}

/// Both doors behind passages, so that connections can be counted and cut.
struct watched_doors {
  std::function<std::string(const std::string&)> called_at() {
    return [this](const std::string& door) {
      of.push_back(std::make_unique<passages>(door));
      return of.back()->address();
    };
  }
  std::vector<std::unique_ptr<passages>> of;
};

}  // namespace

TEST_CASE("long chunks go in stripes over all lanes, both directions at once, whatever their length") {
  const between way = every_way_of_lanes();
  for (const int lanes : {1, 2, 4, most_connections}) {
    CAPTURE(lanes);
    pair_of_test job{way, {lanes, lanes}};
    constexpr std::size_t one = stripe_bytes;
    const std::vector<std::size_t> sizes = {
        most_unasked + 1, one - 1,   one,     one + 1,   2 * one - 1, 2 * one, 2 * one + 1, 3 * one + 7,
        4 * one + 20'000, 1'000'000, 9 * one, 5'000'001, 17'000'003,  100,     one + 1,     64 * one};
    std::vector<std::vector<std::byte>> data;
    for (std::uint32_t i = 0; i < sizes.size(); ++i) data.push_back(payload(sizes[i], i));
    std::vector<std::thread> senders;
    for (const std::uint32_t p : {0u, 1u})
      senders.emplace_back([&, p] {
        for (std::uint32_t i = 0; i < data.size(); ++i) job.send(p, data[i], i);
      });
    for (std::thread& t : senders) t.join();
    for (const auto& h : job.heard) CHECK(comes([&] { return h->chunks.load() == static_cast<int>(sizes.size()); }));
    const int wanted = way == between::memory_of_both ? 1 : lanes;
    for (const std::uint32_t p : {0u, 1u}) {
      CHECK(comes([&] { return job.each[p]->lanes_open(1 - p) == wanted; }));
      CHECK(job.each[p]->waiting_bytes() == 0);
    }
    // All that is of use stands: the first one for both directions, and those of each.
    CHECK(job.each[0]->connections() == static_cast<std::size_t>(way == between::memory_of_both ? 2 : 2 * lanes - 1));
    CHECK(job.went_well());
  }
}

TEST_CASE("what is short stays on the first connection, and all lanes carry the rest, announced or not") {
  watched_doors doors;
  pair_of_test job{between::sockets, {3, 3}, doors.called_at()};
  std::vector<std::vector<std::byte>> data;
  const auto send = [&](std::size_t bytes, epoch_t epoch) {
    data.push_back(payload(bytes, static_cast<std::uint32_t>(data.size())));
    job.send(0, data.back(), static_cast<std::uint32_t>(data.size() - 1), epoch);
  };
  const std::size_t before = doors.of[1]->passed().size();
  epoch_t epoch = of_send;
  std::size_t longest = stripe_bytes, longer = 4'000'000;
  SUBCASE("sends") {}
  SUBCASE("chunks of collectives, which are not announced") { epoch = 5, longest = most_settled, longer = 250'000; }
  for (int i = 0; i < 20; ++i) send(longest, epoch);
  send(most_unasked, of_send);
  const auto all_come = [&] { return job.heard[1]->chunks.load() == static_cast<int>(data.size()); };
  CHECK(comes(all_come));
  CHECK(job.each[0]->lanes_open(1) == 1);
  send(longer, epoch);
  CHECK(comes([&] { return job.each[0]->lanes_open(1) == 3; }));
  for (int i = 0; i < 12; ++i) send(longer, epoch);
  CHECK(comes(all_come));
  const std::vector<std::size_t> passed = doors.of[1]->passed();
  REQUIRE(passed.size() == before + 2);
  for (std::size_t lane = before; lane < passed.size(); ++lane) CHECK(passed[lane] > 2 * stripe_bytes);
  CHECK(job.went_well());
}

TEST_CASE("of two processes with other numbers of lanes each has those that it opens") {
  pair_of_test job{between::sockets, {4, 1}};
  const auto data = payload(3'000'000, 0);
  for (const std::uint32_t p : {0u, 1u}) job.send(p, data, 0);
  for (const auto& h : job.heard) CHECK(comes([&] { return h->chunks.load() == 1; }));
  CHECK(comes([&] { return job.each[0]->lanes_open(1) == 4; }));
  CHECK(job.each[1]->lanes_open(0) == 1);
  CHECK(comes([&] { return job.heard[0]->most_lanes_open == 4; }));  // told by another thread
  CHECK(job.went_well());
}

TEST_CASE("stripes are received into the place that was offered for their chunk, until it is withdrawn") {
  pair_of_test job{every_way_of_lanes(), {4, 4}};
  const std::size_t bytes = 8'000'000;
  std::vector<std::byte> place(bytes);
  std::uint32_t sequence = 0;
  const auto offer = [&] { job.each[1]->places(0).offer(9, 1, {0, of_send, 0, 0, sequence, bytes, place.data()}); };
  std::vector<std::vector<std::byte>> data;
  for (; sequence < 3; ++sequence) {
    offer();
    data.push_back(payload(bytes, sequence));
    job.send(0, data.back(), sequence);
    CHECK(comes([&] { return job.heard[1]->chunks.load() == static_cast<int>(sequence) + 1; }));
    CHECK(job.heard[1]->held.back().data == place.data());
    CHECK(place == data.back());
  }
  job.heard[1]->reads = false;
  for (int round = 0; round < 20; ++round, ++sequence) {
    offer();
    data.push_back(payload(bytes, sequence));
    job.send(0, data.back(), sequence);
    std::this_thread::sleep_for(std::chrono::microseconds{100 * round});
    job.each[1]->let_go(9, 1, of_send, -1, true);
    std::fill(place.begin(), place.end(), std::byte{5});
    // Behind it the connections are as they were.
    job.each[0]->send_credit(1, {}, {});
    CHECK(comes([&] { return job.heard[1]->credits.load() == round + 2; }));
    CHECK(comes([&] { return job.each[0]->waiting_bytes() == 0; }));
    CHECK(std::count(place.begin(), place.end(), std::byte{5}) == static_cast<std::ptrdiff_t>(bytes));
    data.clear();
  }
  CHECK(job.heard[0]->losses.load() + job.heard[1]->losses.load() == 0);
}

TEST_CASE("whoever lets go of a chunk that goes in stripes may change its memory") {
  const between way = every_way_of_lanes();
  for (int round = 0; round < 5; ++round) {
    pair_of_test job{way, {2, 2}};
    std::vector<std::vector<std::byte>> made;
    for (std::uint32_t i = 0; i < 24; ++i) made.push_back(payload(4'000'000, i));
    for (std::uint32_t i = 0; i < made.size(); ++i) job.send(0, made[i], i);
    CHECK(comes([&] { return job.heard[1]->chunks.load() > round; }));
    job.each[0]->let_go(9, 0, of_send, 1, true);
    for (auto& m : made) std::fill(m.begin(), m.end(), std::byte{0});
    CHECK(comes([&] { return job.each[0]->waiting_bytes() == 0; }));
    job.each[0]->send_credit(1, {}, {});
    CHECK(comes([&] { return job.heard[1]->credits.load() == 2; }));
    CHECK(job.went_well());
  }
}

TEST_CASE("a lane that is cut loses the process, and nothing waits for what does not come") {
  between way = between::sockets;
  SUBCASE("sockets") {}
  SUBCASE("TLS") { way = between::tls; }
  for (const std::size_t after : {std::size_t{0}, std::size_t{100'000}, std::size_t{3'000'000}}) {
    CAPTURE(after);
    std::vector<std::vector<std::byte>> data;
    watched_doors doors;
    pair_of_test job{way, {3, 3}, doors.called_at()};
    const std::size_t before = doors.of[1]->passed().size();
    data.push_back(payload(3'000'000, 0));
    job.send(0, data.back(), 0);
    CHECK(comes([&] { return job.heard[1]->chunks.load() == 1 && job.each[0]->lanes_open(1) == 3; }));
    doors.of[1]->cut(before + 1, after);
    for (std::uint32_t i = 1; i < 9; ++i) {
      data.push_back(payload(8'000'000, i));
      job.send(0, data.back(), i);
    }
    for (const auto& h : job.heard) CHECK(comes([&] { return h->losses.load() == 1; }));
    for (const auto& h : job.heard) CHECK(h->wrong.load() == 0);
    CHECK(job.heard[1]->chunks.load() < 9);
    CHECK(job.each[0]->waiting_bytes() == 0);
    CHECK(job.each[0]->lanes_open(1) == 0);
    job.send(0, data.front(), 9);  // to nobody
    CHECK(job.each[0]->waiting_bytes() == 0);
    const std::lock_guard lock(job.heard[0]->mutex);
    CHECK(job.heard[0]->lost.size() == 1);
  }
}

TEST_CASE("a lane that cannot be opened is done without, and nobody waits for it") {
  auto how = passages::treatment::mutes;
  SUBCASE("nobody answers") {}
  SUBCASE("it is closed at once") { how = passages::treatment::closes; }
  watched_doors doors;
  pair_of_test job{between::sockets, {4, 4}, doors.called_at()};
  for (const auto& d : doors.of) d->treat(how);
  std::vector<std::vector<std::byte>> data;
  for (std::uint32_t i = 0; i < 3; ++i) {
    data.push_back(payload(7'000'000, i));
    for (const std::uint32_t p : {0u, 1u}) job.send(p, data.back(), i);
  }
  for (const auto& h : job.heard) CHECK(comes([&] { return h->chunks.load() == 3; }));
  for (const std::uint32_t p : {0u, 1u}) CHECK(job.each[p]->lanes_open(1 - p) == 1);
  if (how == passages::treatment::closes)
    for (const auto& h : job.heard)
      CHECK(comes([&] {
        const std::lock_guard lock(h->mutex);
        return h->not_opened.size() == 3 && !any_of(h->not_opened, "tcp://127.0.0.1:").empty();
      }));
  // In order, all the same.
  job.each[0]->leave();
  CHECK(comes([&] { return job.heard[1]->lefts.load() == 1; }));
  CHECK(job.went_well());
}

TEST_CASE("who leaves in order is not lost, and what it has sent on any lane comes before") {
  between way = between::sockets;
  SUBCASE("sockets") {}
  SUBCASE("TLS") { way = between::tls; }
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    std::vector<std::vector<std::byte>> data;
    watched_doors doors;
    pair_of_test job{way, {4, 4}, doors.called_at()};
    const std::size_t before = doors.of[1]->passed().size();
    for (std::uint32_t i = 0; i < 3; ++i) data.push_back(payload(12'000'000, i));
    if (round % 2 == 0) {  // with all lanes open
      job.send(0, data[0], 0);
      CHECK(comes([&] { return job.heard[1]->chunks.load() == 1 && job.each[0]->lanes_open(1) == 4; }));
    }
    const std::uint32_t first = round % 2 == 0 ? 1 : 0;
    const auto sum = [](const std::vector<std::size_t>& all, std::size_t from) {
      std::size_t total = 0;
      for (std::size_t i = from; i < all.size(); ++i) total += all[i];
      return total;
    };
    const std::size_t passed = sum(doors.of[1]->passed(), before);
    job.send(0, data[first], first);
    // It was cleared, and is on its way: on a further lane, or where those are still being opened on any.
    CHECK(comes([&] { return sum(doors.of[1]->passed(), before) > passed + (first == 0 ? 0 : 2 * stripe_bytes); }));
    if (first == 0) CHECK(comes([&] { return sum(doors.of[1]->passed(), 0) > 300'000; }));
    job.each[0]->leave();
    CHECK(comes([&] { return job.heard[1]->lefts.load() == 1; }));
    CHECK(job.heard[1]->chunks.load() == static_cast<int>(first) + 1);
    CHECK(job.went_well());
    job.send(1, data[2], 2);  // to nobody
    CHECK(job.each[1]->waiting_bytes() == 0);
  }
}

namespace {
/// From process 0 to 1, on the first connection, whatever it says.
void send_stripe(pair_of_test& job, const std::vector<std::byte>& whole, std::uint32_t sequence, std::uint64_t offset,
                 std::uint64_t said = 0) {
  frame_head head;
  head.communicator = 9;
  head.to = 1;
  head.kind = frame_kind::stripe;
  stripe_body body;
  body.name = {of_send, 0, 0, 0, sequence, 0};
  body.bytes = said == 0 ? whole.size() : said;
  body.offset = offset;
  const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(stripe_bytes, whole.size() - offset));
  std::vector<std::byte> all(sizeof body + bytes);
  std::memcpy(all.data(), &body, sizeof body);
  std::memcpy(all.data() + sizeof body, whole.data() + offset, bytes);
  job.each[0]->send_word(1, head, std::move(all));
}

/// What process 0 has announced and nobody knows of.
void clear_one(pair_of_test& job) {
  frame_head back;
  back.communicator = 9;
  back.to = 0;
  job.each[1]->send_clear(0, back, {of_send, 1, 0, 77});
}
}  // namespace

TEST_CASE("stripes that cannot be end the connection that they come on") {
  pair_of_test job{between::sockets, {2, 2}};
  const auto whole = payload(3 * stripe_bytes + 5, 0);
  std::string why;
  SUBCASE("of a chunk that was not cleared") {
    send_stripe(job, whole, 0, 0);
    why = "it sent a stripe of a chunk that was not cleared";
  }
  SUBCASE("more chunks than were cleared") {
    for (int i = 0; i < 2; ++i) clear_one(job);
    for (std::uint32_t i = 0; i < 3; ++i) send_stripe(job, whole, i, stripe_bytes);
    why = "it sent a stripe of a chunk that was not cleared";
  }
  SUBCASE("twice") {
    clear_one(job);
    for (int i = 0; i < 2; ++i) send_stripe(job, whole, 0, stripe_bytes);
    why = "it sent a stripe twice";
  }
  SUBCASE("of two lengths") {
    clear_one(job);
    send_stripe(job, whole, 0, 0);
    send_stripe(job, whole, 0, stripe_bytes, whole.size() + 1);
    why = "it sent stripes of two chunks with one name";
  }
  SUBCASE("a settled chunk that is too long to be one") {
    frame_head head;
    head.communicator = 9;
    head.to = 1;
    head.kind = frame_kind::chunk;
    chunk_body body{5, 0, 0, 0, 0, 0};
    body.settled = 1;
    std::vector<std::byte> all(sizeof body + most_settled + 1);
    std::memcpy(all.data(), &body, sizeof body);
    job.each[0]->send_word(1, head, std::move(all));
    why = "it sent a settled chunk of 65537 bytes";
  }
  SUBCASE("beside the grid") {
    clear_one(job);
    send_stripe(job, whole, 0, 16);
    why = "it sent a stripe of 262144 bytes at 16 of a chunk of 786437";
  }
  CHECK(comes([&] { return job.heard[1]->losses.load() == 1; }));
  const std::lock_guard lock(job.heard[1]->mutex);
  CHECK(job.heard[1]->lost.at(0) == "0: " + why);
  CHECK(job.heard[1]->chunks.load() == 0);
}

TEST_CASE("stripes may come in any order, among those of others") {
  pair_of_test job{every_way_of_lanes(), {2, 2}};
  const auto one = payload(3 * stripe_bytes + 5, 0), other = payload(2 * stripe_bytes, 1);
  for (int i = 0; i < 2; ++i) clear_one(job);
  for (const std::uint64_t which : {3u, 0u, 2u}) send_stripe(job, one, 0, which * stripe_bytes);
  send_stripe(job, other, 1, stripe_bytes);
  send_stripe(job, other, 1, 0);
  CHECK(comes([&] { return job.heard[1]->chunks.load() == 1; }));
  send_stripe(job, one, 0, stripe_bytes);
  CHECK(comes([&] { return job.heard[1]->chunks.load() == 2; }));
  CHECK(job.went_well());
}
