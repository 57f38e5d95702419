// SPDX-License-Identifier: Apache-2.0
// Sends and receives cost an actor message, several allocations and a plan each, where ranks share memory: 3 to 6 times what they cost in
// Open MPI. Here two ranks' states on one board, turned by the test.

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "actors/rank/rank_state.hpp"
#include "tests/issues/heap_use.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

/// Two ranks; what they say to each other waits until deliver().
struct two_ranks {
  struct mail final : rank_outbox {
    mail(two_ranks& o, rank_t r) : of(o), from(r) {}
    void tell(rank_t to, std::function<void(rank_state&, rank_outbox&)> what) {
      of.posted.emplace_back(to, std::move(what));
    }
    void called(epoch_t, const call&) override {}
    void differs(epoch_t) override {}
    void withdraw(epoch_t, const call*) override {}
    void fail(epoch_t, const std::string&, failure_ptr) override {}
    void stopped(epoch_t, std::vector<std::string>, presence) override {}
    void left(epoch_t, call, sends_ptr) override {}
    void quiet() override {}
    void abort(const failure_ptr&) override {}
    void perished() override {}
    bool deliver(rank_t, int, chunk&&) override {
      FAIL("a chunk went by mailbox");
      return false;
    }
    void give_back(rank_t, int, const credit&) override { FAIL("a credit went by mailbox"); }
    void revoke(rank_t to, epoch_t e, const failure_ptr& why) override {
      tell(to, [this, e, why](rank_state& s, rank_outbox& o) { s.revoke(from, e, why, o); });
    }
    void revoked(rank_t to, epoch_t e, bool received) override {
      tell(to, [this, e, received](rank_state& s, rank_outbox& o) { s.revoked(from, e, received, o); });
    }
    void refuse(rank_t to, epoch_t e, bool sending, const failure_ptr& why) override {
      tell(to, [this, e, sending, why](rank_state& s, rank_outbox& o) { s.refused(from, e, sending, why, o); });
    }
    void inquire(rank_t, epoch_t, bool, look_t, bool) override {}
    void look_again(rank_t to, bool sending) override {
      tell(to, [this, sending](rank_state& s, rank_outbox& o) { s.look_again(from, sending, o); });
    }
    bool transfer(const operation_key&, int, int, std::byte*, const std::byte*, std::size_t) override { return true; }
    bool flush(const operation_key&) override { return false; }
    steady_time now() const override { return steady_time{} + std::chrono::hours{1}; }
    two_ranks& of;
    rank_t from;
  };

  rank_state& at(rank_t r) { return r == 0 ? zero : one; }
  mail& out(rank_t r) { return r == 0 ? from_zero : from_one; }
  /// Until nobody says anything more. Returns how many messages there were.
  int deliver() {
    int count = 0;
    for (; !posted.empty(); ++count) {
      const auto [to, what] = std::move(posted.front());
      posted.pop_front();
      what(at(to), out(to));
    }
    for (const rank_t r : {0, 1}) {
      ended_operations over = at(r).take_ended();
      while (const operation_ptr op = over.take()) op->done->complete(std::move(op->why_ended));
    }
    return count;
  }
  operation_ptr submit(rank_t r, bool sending, std::vector<int>& data, sent_when sent = sent_when::taken) {
    auto op = std::make_shared<operation>();
    op->sent = sent;
    op->peer = 1 - r;
    op->sending = sending;
    op->what = shape(data);
    op->input = op->output = data.data();
    at(r).submit(op, out(r));
    return op;
  }
  static call shape(const std::vector<int>& data) {
    call c;
    c.what = collective::broadcast;
    c.type = datatype::i32;
    c.count = data.size();
    return c;
  }

  std::deque<std::pair<rank_t, std::function<void(rank_state&, rank_outbox&)>>> posted;
  arena memory;
  shared_spaces spaces{2};
  slot_board board{2};
  mail from_zero{*this, 0}, from_one{*this, 1};
  rank_state zero{{0, 2, 1, "world"}, memory, spaces, &board}, one{{1, 2, 1, "world"}, memory, spaces, &board};
};

std::vector<int> numbers(std::size_t count, int first) {
  std::vector<int> v(count);
  std::iota(v.begin(), v.end(), first);
  return v;
}

failure_ptr why(errc code = errc::cancelled) { return make_failure(code, "a test wants it"); }

}  // namespace

TEST_CASE("blocking sends and receives that are repeated allocate nothing and say nothing") {
  two_ranks both;
  for (const std::size_t count : {1u, 24u, 1000u, 50'000u}) {
    auto given = numbers(count, 3);
    std::vector<int> got(count);
    const call what = two_ranks::shape(given);
    const auto once = [&] {
      const pair_call send{what.count, what.type, 1, true, given.data(), nullptr},
          recv{what.count, what.type, 0, false, nullptr, got.data()};
      REQUIRE(both.zero.may_begin_pair_at_once(1, true));
      REQUIRE(both.one.may_begin_pair_at_once(0, false));
      both.zero.begin_pairs_inline({&send, 1});
      both.one.begin_pairs_inline({&recv, 1});
      CHECK(both.zero.look_at_pairs(both.from_zero) == pair_status::waiting);
      CHECK(both.one.look_at_pairs(both.from_one) == pair_status::performed);
      CHECK(both.zero.look_at_pairs(both.from_zero) == pair_status::performed);
      both.zero.end_pairs_inline();
      both.one.end_pairs_inline();
    };
    once();
    const std::size_t before = issues::allocations();
    for (int i = 0; i < 100; ++i) once();
    CHECK(issues::allocations() == before);
    CHECK(got == given);
    CHECK(both.deliver() == 0);
  }
}

TEST_CASE("more sends than a pair has slots wait at their rank, and arrive in order") {
  two_ranks both;
  std::vector<std::vector<int>> given, got;
  for (int i = 0; i < 40; ++i)
    given.push_back(numbers(i % 3 == 0 ? 2000 : 5, 100 * i)), got.emplace_back(given.back().size());
  std::vector<operation_ptr> all;
  const auto send = [&] {
    for (auto& data : given) all.push_back(both.submit(0, true, data));
  };
  const auto receive = [&] {
    for (auto& data : got) all.push_back(both.submit(1, false, data));
  };
  SUBCASE("sends first") { send(), receive(); }
  SUBCASE("receives first") { receive(), send(); }
  SUBCASE("sends, and receives one by one") {
    send();
    for (auto& data : got) all.push_back(both.submit(1, false, data)), both.deliver();
  }
  both.deliver();
  for (const auto& op : all) {
    REQUIRE(op->done->done());
    CHECK(op->done->why() == nullptr);
  }
  CHECK(given == got);
  CHECK_FALSE(both.zero.pending());
  CHECK_FALSE(both.one.pending());
}

TEST_CASE("short sends that are submitted are left, too, as many as there are slots") {
  two_ranks both;
  for (const std::size_t count : {5u, 200u}) {
    auto given = numbers(count, 7);
    std::vector<int> got(count);
    std::vector<operation_ptr> sends;
    for (std::size_t i = 0; i <= pair_lane::depth; ++i) sends.push_back(both.submit(0, true, given, sent_when::copied));
    both.deliver();
    for (std::size_t i = 0; i < pair_lane::depth; ++i) CHECK(sends[i]->done->done());
    CHECK_FALSE(sends.back()->done->done());
    SUBCASE("one is received") {
      const auto received = both.submit(1, false, got);
      both.deliver();
      CHECK(received->done->done());
      CHECK(got == given);
    }
    SUBCASE("one is refused") {
      std::vector<int> more(count + 1);
      const auto received = both.submit(1, false, more);
      both.deliver();
      REQUIRE(received->done->why() != nullptr);
      CHECK(received->done->why()->code == errc::mismatch);
    }
    CHECK(sends.back()->done->done());
    for (const auto& send : sends) CHECK(send->done->why() == nullptr);
    for (std::size_t i = 0; i < pair_lane::depth; ++i) {
      both.submit(1, false, got);
      both.deliver();
    }
    CHECK_FALSE(both.one.pending());
  }
}

TEST_CASE("a call that takes long becomes an operation, and the other end tells it") {
  two_ranks both;
  auto given = numbers(10, 1);
  std::vector<int> got(10);
  const call what = two_ranks::shape(given);
  operation_ptr waiting, other;
  SUBCASE("a send") {
    const pair_call send{what.count, what.type, 1, true, given.data(), nullptr};
    both.zero.begin_pairs_inline({&send, 1});
    CHECK(both.zero.look_at_pairs(both.from_zero) == pair_status::waiting);
    waiting = both.zero.adopt_pairs_inline(std::nullopt, {}, both.from_zero)[0];
    other = both.submit(1, false, got);
  }
  SUBCASE("a receive") {
    const pair_call recv{what.count, what.type, 0, false, nullptr, got.data()};
    both.one.begin_pairs_inline({&recv, 1});
    CHECK(both.one.look_at_pairs(both.from_one) == pair_status::waiting);
    waiting = both.one.adopt_pairs_inline(std::nullopt, {}, both.from_one)[0];
    other = both.submit(0, true, given);
  }
  REQUIRE(waiting != nullptr);
  CHECK_FALSE(waiting->done->done());
  CHECK(both.deliver() == 1);
  CHECK(waiting->done->done());
  CHECK(other->done->done());
  CHECK(got == given);
}

TEST_CASE("what one end cancels ends at both, and the pair goes on") {
  two_ranks both;
  auto given = numbers(10, 1);
  std::vector<int> got(10);
  SUBCASE("the send") {
    const auto send = both.submit(0, true, given);
    both.zero.end(send, why(), both.from_zero);
    CHECK_FALSE(send->done->done());  // the receiver may be reading
    const auto receive = both.submit(1, false, got);
    both.deliver();
    REQUIRE((send->done->done() && receive->done->done()));
    // The receiver took it before it heard of the end.
    CHECK(send->done->why() == nullptr);
    CHECK(receive->done->why() == nullptr);
    CHECK(given == got);
  }
  SUBCASE("the receive, before there was a send") {
    const auto receive = both.submit(1, false, got);
    both.one.end(receive, why(), both.from_one);
    const auto send = both.submit(0, true, given);  // has not heard of it
    both.deliver();
    REQUIRE((send->done->done() && receive->done->done()));
    CHECK(send->done->why()->code == errc::cancelled);
    CHECK(receive->done->why()->code == errc::cancelled);
    CHECK(got == std::vector<int>(10));
  }
  SUBCASE("the receive, which its sender has performed") {
    const auto receive = both.submit(1, false, got);
    const auto send = both.submit(0, true, given);
    both.one.end(receive, why(), both.from_one);
    both.deliver();
    CHECK(send->done->why() == nullptr);
    CHECK(receive->done->why() == nullptr);
    CHECK(given == got);
  }
  std::vector<int> after(10);
  const auto receive = both.submit(1, false, after);
  const auto send = both.submit(0, true, given);
  both.deliver();
  CHECK(send->done->done());
  CHECK(receive->done->done());
  CHECK(after == given);
}

TEST_CASE("another count is the same error at both ends, and nothing was written") {
  two_ranks both;
  auto given = numbers(10, 1);
  std::vector<int> got(11);
  operation_ptr send, receive;
  SUBCASE("the send comes first") { send = both.submit(0, true, given), receive = both.submit(1, false, got); }
  SUBCASE("the receive comes first") { receive = both.submit(1, false, got), send = both.submit(0, true, given); }
  both.deliver();
  REQUIRE((send->done->done() && receive->done->done()));
  CHECK(send->done->why()->code == errc::mismatch);
  CHECK(send->done->why()->text == receive->done->why()->text);
  CHECK(got == std::vector<int>(11));
}

TEST_CASE("a rank that is gone takes nothing more, and what it took before was received") {
  two_ranks both;
  auto given = numbers(10, 1), late = numbers(10, 2);
  std::vector<int> got(10), nothing(10);
  const auto receive = both.submit(1, false, got), never = both.submit(1, false, nothing);
  const auto send = both.submit(0, true, given);
  both.one.perish(both.from_one);
  const auto lost = both.submit(0, true, late);
  both.deliver();
  CHECK(send->done->why() == nullptr);
  CHECK(receive->done->why() == nullptr);
  CHECK_FALSE(lost->done->done());
  CHECK(nothing == std::vector<int>(10));
  both.one.bury(why(errc::actor_lost));
  both.deliver();
  CHECK(never->done->why()->code == errc::actor_lost);
}

// -- of a group: the holder of the turn looks -------------------------------------------------------------------------------

namespace {
/// Looks of both in turn, until nothing moves.
void look(two_ranks& both) {
  for (bool moved = true; moved;) {
    moved = both.zero.look_at_watched(both.from_zero);
    moved = both.one.look_at_watched(both.from_one) || moved;
  }
}
}  // namespace

TEST_CASE("what is looked at needs no word: short and long ones, more than there are slots, whoever comes first") {
  for (const std::size_t count : {5u, 2000u, 100'000u})
    for (const bool sends_first : {true, false}) {
      two_ranks both;
      both.zero.watch_pairs(), both.one.watch_pairs();
      std::vector<std::vector<int>> given, got;
      for (int i = 0; i < 11; ++i) given.push_back(numbers(count, 100 * i)), got.emplace_back(count);
      std::vector<operation_ptr> all;
      const auto send = [&] {
        for (auto& data : given) all.push_back(both.submit(0, true, data));
      };
      if (sends_first) send();
      for (auto& data : got) all.push_back(both.submit(1, false, data));
      if (!sends_first) send();
      look(both);
      CHECK_FALSE(both.zero.watches_pairs());
      CHECK(both.zero.stops_watching());
      CHECK(both.one.stops_watching());
      CHECK(both.posted.empty());
      both.deliver();
      for (const auto& op : all) {
        REQUIRE(op->done->done());
        CHECK(op->done->why() == nullptr);
      }
      CHECK(given == got);
    }
}

TEST_CASE("who does not look any more is told, and takes what came meanwhile") {
  two_ranks both;
  auto given = numbers(2000, 1);
  std::vector<int> got(2000);
  operation_ptr first, second;
  const auto leave = [&](rank_t r) {
    CHECK_FALSE(both.at(r).stops_watching());
    both.at(r).leave_watched(both.out(r));
    CHECK(both.at(r).stops_watching());
  };
  SUBCASE("the sender goes") {
    both.zero.watch_pairs();
    first = both.submit(0, true, given);
    leave(0);
    second = both.submit(1, false, got);
    CHECK(both.deliver() == 1);
  }
  SUBCASE("the receiver goes") {
    both.one.watch_pairs();
    first = both.submit(1, false, got);
    leave(1);
    second = both.submit(0, true, given);
    CHECK(both.deliver() == 1);
  }
  SUBCASE("the receiver goes when the message is there") {
    both.one.watch_pairs();
    first = both.submit(1, false, got);
    second = both.submit(0, true, given);
    CHECK_FALSE(first->done->done());
    leave(1);
    CHECK(both.deliver() == 1);
  }
  SUBCASE("the receiver has offered, and the sender performs it") {
    both.one.watch_pairs();
    first = both.submit(1, false, got);
    both.one.offer_watched();
    second = both.submit(0, true, given);
    CHECK(both.posted.empty());
    look(both);
    CHECK(both.deliver() == 0);
  }
  REQUIRE((first->done->done() && second->done->done()));
  CHECK(first->done->why() == nullptr);
  CHECK(second->done->why() == nullptr);
  CHECK(given == got);
  CHECK_FALSE(both.zero.pending());
  CHECK_FALSE(both.one.pending());
}

TEST_CASE("what is looked at is cancelled, differs, or belongs to a rank that is gone, as what is told") {
  for (const std::size_t count : {10u, 100'000u}) {
    CAPTURE(count);
    two_ranks both;
    both.zero.watch_pairs(), both.one.watch_pairs();
    auto given = numbers(count, 1);
    std::vector<int> got(count), other(count + 1);
    operation_ptr send, receive;
    errc expected = errc::cancelled;
    SUBCASE("the receive is cancelled before there is a send") {
      receive = both.submit(1, false, got);
      both.one.end(receive, why(), both.from_one);
      send = both.submit(0, true, given);
    }
    SUBCASE("the receive is cancelled when the send is there") {
      receive = both.submit(1, false, got);
      send = both.submit(0, true, given);
      both.one.end(receive, why(), both.from_one);
    }
    SUBCASE("the send is cancelled") {
      send = both.submit(0, true, given);
      both.zero.end(send, why(), both.from_zero);
      both.deliver();
      receive = both.submit(1, false, got);
    }
    SUBCASE("another count") {
      receive = both.submit(1, false, other);
      send = both.submit(0, true, given);
      expected = errc::mismatch;
    }
    SUBCASE("the receiver perishes") {
      receive = both.submit(1, false, got);
      send = both.submit(0, true, given);
      both.one.perish(both.from_one);
      look(both);
      both.deliver();
      CHECK_FALSE(send->done->done());
      both.one.bury(why(errc::actor_lost));
      both.zero.end(send, why(errc::actor_lost), both.from_zero);
      both.zero.peer_lost(1, both.from_zero);
      expected = errc::actor_lost;
    }
    look(both);
    both.deliver();
    for (const rank_t r : {0, 1})
      if (!both.at(r).stops_watching()) both.at(r).leave_watched(both.out(r));
    both.deliver();
    REQUIRE((send->done->done() && receive->done->done()));
    REQUIRE((send->done->why() && receive->done->why()));
    CHECK(send->done->why()->code == expected);
    CHECK(receive->done->why()->code == expected);
    CHECK(got == std::vector<int>(count));
    if (expected == errc::actor_lost) continue;
    std::vector<int> after(count);
    receive = both.submit(1, false, after);
    send = both.submit(0, true, given);
    both.deliver();
    REQUIRE((send->done->done() && receive->done->done()));
    CHECK(after == given);
  }
}

TEST_CASE("who sleeps on the board until a message has moved is woken there, and is left no word") {
  for (const bool asleep : {true, false}) {
    CAPTURE(asleep);
    two_ranks both;
    auto given = numbers(1000, 3);
    std::vector<int> got(1000);
    const call what = two_ranks::shape(given);
    const pair_call recv{what.count, what.type, 0, false, nullptr, got.data()},
        send{what.count, what.type, 1, true, given.data(), nullptr};
    both.one.begin_pairs_inline({&recv, 1});
    both.one.go_away_from_pairs();
    slot_board::sleep sleep{both.board, 1};
    if (asleep) sleep.announce(1, slot_board::no_writer);
    CHECK(both.one.look_at_pairs(both.from_one) == pair_status::waiting);
    both.zero.begin_pairs_inline({&send, 1});
    CHECK(both.zero.look_at_pairs(both.from_zero) == pair_status::performed);
    CHECK(sleep.woken() == asleep);
    CHECK(both.deliver() == (asleep ? 0 : 1));
    CHECK(both.one.look_at_pairs(both.from_one) == pair_status::performed);
    CHECK(got == given);
    both.zero.end_pairs_inline();
    both.one.end_pairs_inline();
  }
}
