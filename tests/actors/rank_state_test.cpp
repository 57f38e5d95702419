#include "actors/rank/rank_state.hpp"

#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::actors;
using namespace std::chrono_literals;

namespace {

struct recording final : rank_outbox {
  void say(std::string what) { words += (words.empty() ? "" : " ") + std::move(what); }
  static std::string text(const operation_key& k) {
    if (k.peer < 0) return std::to_string(k.epoch);
    return std::string{k.sending ? "send" : "recv"} + std::to_string(k.epoch & ~point_to_point) + "@" +
           std::to_string(k.peer);
  }
  void called(epoch_t e, const call&) override { say("called" + std::to_string(e)); }
  void fail(epoch_t e, const std::string&, failure_ptr why) override {
    say("fail" + std::to_string(e));
    reasons.push_back(why);
  }
  void stopped(epoch_t e, std::vector<std::string>) override { say("stopped" + std::to_string(e)); }
  void left(epoch_t n) override { say("left" + std::to_string(n)); }
  void quiet() override { say("quiet"); }
  void start(int channels, std::shared_ptr<const assignment> what) override {
    say("start" + text({what->epoch, what->peer, what->sending}) + "x" + std::to_string(channels));
  }
  void skip(const operation_key& k, epoch_t) override { say("skip" + text(k)); }
  epoch_t settled(epoch_t called) const override { return called; }
  int stop_channels(const operation_key& k) override {
    say("halt" + text(k));
    return channels_that_answer;
  }
  void revoke(rank_t r, epoch_t e, const failure_ptr&) override { say("revoke" + text({e, r, true})); }
  void revoked(rank_t r, epoch_t e) override { say("revoked" + text({e, r, false})); }
  void refuse(rank_t r, epoch_t e, bool sending, const failure_ptr& why) override {
    say("refuse_" + text({e, r, sending}));
    reasons.push_back(why);
  }
  void inquire(rank_t r, epoch_t e, bool sending, look_t, bool) override { say("inquire_" + text({e, r, sending})); }
  steady_time now() const override { return steady_time{} + 1h + time; }
  void alarm(std::uint64_t number, std::chrono::nanoseconds after) override {
    say("alarm");
    last_alarm = number;
    alarm_after = after;
  }

  std::string take() { return std::exchange(words, {}); }
  std::string words;
  std::vector<failure_ptr> reasons;
  int channels_that_answer = 1;
  std::chrono::nanoseconds time{0};
  std::uint64_t last_alarm = 0;
  std::chrono::nanoseconds alarm_after{0};
};

plan_ptr barrier_plan() {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(one_cell_per_step(
      lower_syncs(write_score(*find_choreography("recursive_doubling"), flat_stage(collective::barrier, 2)))));
  return p;
}

struct fixture {
  fixture() : how(barrier_plan()) {}
  operation_ptr barrier(epoch_t e) {
    auto op = std::make_shared<operation>();
    op->epoch = e;
    op->plan = how;
    op->what.what = collective::barrier;
    return op;
  }
  operation_ptr pair(epoch_t e, bool sending) {
    auto op = std::make_shared<operation>();
    op->epoch = e | point_to_point;
    op->peer = 1;
    op->sending = sending;
    op->what.count = 1;
    op->input = op->output = &cell;
    return op;
  }
  static operation_key key(epoch_t e) { return {e, -1, false}; }
  static operation_key key(epoch_t e, bool sending) { return {e | point_to_point, 1, sending}; }
  static failure_ptr why(errc code = errc::cancelled) { return make_failure(code, "because"); }

  arena memory;
  shared_spaces spaces{2};
  plan_ptr how;
  recording out;
  std::byte cell{};
  rank_state rank{0, 2, 1, memory, spaces, "world"};
};

}  // namespace

TEST_CASE_FIXTURE(fixture, "numbers that went over slots are left out, and the order is kept") {
  const auto after = [&](epoch_t e, epoch_t follows) {
    auto op = barrier(e);
    op->follows = follows;
    return op;
  };
  auto late = after(9, 6);
  late->deadline = 1ms;
  const completion_ptr done = late->done;
  rank.submit(late, out);
  CHECK(out.take() == "alarm");
  rank.failed(3, why(), out);  // over slots: never comes here
  rank.failed(9, why(), out);
  CHECK(done->done());
  rank.submit(after(5, 0), out);
  CHECK(out.take() == "skip3 skip9 called5 skip9 start5x1");  // the channels hear of each failure at once
  rank.leave(out, 12);
  rank.agreed(5, nullptr, out);
  rank.performed(key(5), out);
  CHECK(out.take() == "left12");
}

TEST_CASE_FIXTURE(fixture, "calls are said and started in their order, also when they come in another") {
  rank.submit(barrier(1), out);
  CHECK(out.take() == "");
  rank.submit(barrier(0), out);
  CHECK(out.take() == "called0 called1 start0x1 start1x1");
}

TEST_CASE_FIXTURE(
    fixture, "an operation whose plan needs all ranks' counts holds up the start of those behind it, not their call") {
  auto counted = barrier(0);
  counted->plan = nullptr;
  counted->make_plan = [this](const counts_ptr&) { return how; };
  rank.submit(counted, out);
  rank.submit(barrier(1), out);
  CHECK(out.take() == "called0 called1");
  SUBCASE("it is agreed on") {
    rank.agreed(0, nullptr, out);
    CHECK(out.take() == "start0x1 start1x1");
  }
  SUBCASE("it fails") {
    rank.stop(0, out);
    rank.channel_stopped(key(0), {}, out);
    rank.failed(0, why(), out);
    CHECK(out.take() == "halt0 stopped0 skip0 start1x1");
  }
  SUBCASE("no plan can be made") {
    counted->make_plan = [](const counts_ptr&) -> plan_ptr { throw error(errc::unsupported, "no"); };
    rank.agreed(0, nullptr, out);
    CHECK(out.take() == "fail0");
  }
}

TEST_CASE_FIXTURE(fixture, "an operation is complete when it is performed and agreed on, whichever comes first") {
  const auto first = barrier(0), second = barrier(1);
  rank.submit(first, out);
  rank.submit(second, out);
  rank.performed(key(0), out);
  CHECK_FALSE(first->done->done());
  rank.agreed(0, nullptr, out);
  CHECK(first->done->done());
  CHECK(first->done->why() == nullptr);
  rank.agreed(1, nullptr, out);
  CHECK_FALSE(second->done->done());
  rank.performed(key(1), out);
  CHECK(second->done->done());
  CHECK(rank.idle());
}

TEST_CASE_FIXTURE(fixture, "at most 32 operations are under way") {
  std::vector<operation_ptr> all;
  for (epoch_t e = 0; e < 40; ++e) rank.submit(all.emplace_back(barrier(e)), out);
  const std::string said = out.take();
  CHECK(said.find("called31") != std::string::npos);
  CHECK(said.find("called32") == std::string::npos);
  rank.performed(key(7), out);
  rank.agreed(7, nullptr, out);
  CHECK(out.take() == "called32 start32x1");
  SUBCASE("a failure reaches also those that wait for their turn") {
    rank.failed(39, why(), out);
    CHECK(all[39]->done->done());
    CHECK(all[39]->done->why()->code == errc::cancelled);
    CHECK_FALSE(all[38]->done->done());
  }
}

TEST_CASE_FIXTURE(fixture, "a failure completes only after all channels have stopped and the membership has said so") {
  const auto op = barrier(0);
  rank.submit(op, out);
  out.take();
  rank.stop(0, out);
  CHECK(out.take() == "halt0");
  rank.channel_stopped(key(0), {}, out);
  CHECK(out.take() == "stopped0");
  CHECK_FALSE(op->done->done());
  const auto reason = why();
  rank.failed(0, reason, out);
  CHECK(out.take() == "skip0");
  CHECK(op->done->why() == reason);
  rank.failed(0, why(errc::aborted), out);  // somebody asked too late
  CHECK(op->done->why() == reason);
}

TEST_CASE_FIXTURE(fixture, "failed before it was called: the caller gets it, and nothing is said or started") {
  rank.stop(0, out);
  rank.channel_stopped(key(0), {}, out);
  SUBCASE("called after the failure") {
    const auto reason = why();
    rank.failed(0, reason, out);
    rank.stop(0, out);  // a second one, for whoever asked too late
    rank.channel_stopped(key(0), {}, out);
    rank.failed(0, why(errc::aborted), out);
    out.take();
    const auto op = barrier(0);
    rank.submit(op, out);
    CHECK(op->done->why() == reason);
    CHECK(out.take() == "skip0");
  }
  SUBCASE("called between stop and failure") {
    out.take();
    const auto op = barrier(0);
    rank.submit(op, out);
    CHECK(out.take() == "");
    CHECK_FALSE(op->done->done());
    rank.failed(0, why(), out);
    CHECK(op->done->done());
  }
  const auto next = barrier(1);
  rank.submit(next, out);
  CHECK(out.take().find("called1 start1x1") != std::string::npos);
}

TEST_CASE_FIXTURE(fixture, "leaving is said when everything is over, with how many were called") {
  rank.submit(barrier(0), out);
  rank.leave(out);
  out.take();
  rank.performed(key(0), out);
  rank.agreed(0, nullptr, out);
  CHECK(out.take() == "left1");
  rank.leave(out);
  CHECK(out.take() == "");
}

TEST_CASE_FIXTURE(fixture, "a broken communicator: everything under way is failed, everything later too, then quiet") {
  const auto op = barrier(0), receive = pair(0, false);
  rank.submit(op, out);
  rank.submit(receive, out);
  out.take();
  const auto reason = why(errc::communicator_aborted);
  rank.broken(reason, out);
  CHECK(out.take() == "fail0 refuse_send0@1 haltrecv0@1");
  const auto later = barrier(1);
  rank.submit(later, out);
  CHECK(later->done->why() == reason);
  rank.channel_stopped(key(0, false), {}, out);
  CHECK(receive->done->why() == reason);
  CHECK(out.take() == "skiprecv0@1");
  rank.stop(0, out);
  rank.channel_stopped(key(0), {}, out);
  rank.failed(0, reason, out);
  CHECK(out.take() == "halt0 stopped0 skip0 quiet");
  const auto send = pair(0, true);
  rank.submit(send, out);
  CHECK(send->done->why() == reason);
}

TEST_CASE_FIXTURE(fixture, "an operation that is dropped, or whose rank dies, does not keep its caller waiting") {
  completion_ptr dropped, under_way, waiting;
  {
    auto op = barrier(0);
    dropped = op->done;
  }
  REQUIRE(dropped->done());
  CHECK(dropped->why()->code == errc::actor_lost);
  {
    rank_state dying{1, 2, 1, memory, spaces, "world"};
    auto a = barrier(0), b = barrier(5);
    under_way = a->done;
    waiting = b->done;
    dying.submit(std::move(a), out);
    dying.submit(std::move(b), out);
    dying.perish(why(errc::actor_lost));
    CHECK_FALSE(under_way->done());
  }
  REQUIRE(under_way->done());
  REQUIRE(waiting->done());
  CHECK(under_way->why()->code == errc::actor_lost);
}

// -- deadlines --------------------------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(fixture, "deadlines: one alarm for all, set again for those that remain") {
  for (epoch_t e = 0; e < 20; ++e) {
    auto op = barrier(e);
    op->deadline = 100ms + std::chrono::milliseconds(e);
    rank.submit(std::move(op), out);
  }
  std::string said = out.take();
  CHECK(said.find("alarm") == said.rfind("alarm"));
  CHECK(out.alarm_after == 100ms);
  for (epoch_t e = 0; e < 18; ++e) {
    rank.performed(key(e), out);
    rank.agreed(e, nullptr, out);
  }
  out.take();
  out.time = 100ms;
  rank.expire(out.last_alarm, out);
  CHECK(out.take() == "alarm");  // operation 0 is over
  CHECK(out.alarm_after == 18ms);
  out.time = 118ms;
  rank.expire(out.last_alarm, out);
  CHECK(out.take() == "alarm fail18");
  CHECK(out.reasons.back()->code == errc::timed_out);
  CHECK(out.reasons.back()->text == "the deadline of 118.0 ms passed on rank 0");
  rank.expire(out.last_alarm - 1, out);  // an old one
  CHECK(out.take() == "");
  out.time = 119ms;
  rank.expire(out.last_alarm, out);
  CHECK(out.take() == "fail19");
}

TEST_CASE_FIXTURE(fixture, "deadlines: a nearer one sets a nearer alarm, and the largest there is means none") {
  auto far = barrier(0), near = pair(0, false), never = barrier(1);
  far->deadline = 1s;
  near->deadline = 1ms;
  never->deadline = std::chrono::nanoseconds::max();
  rank.submit(never, out);
  rank.submit(far, out);
  const auto stale = out.last_alarm;
  rank.submit(near, out);
  CHECK(out.alarm_after == 1ms);
  out.take();
  out.time = 1ms;
  rank.expire(stale, out);
  CHECK(out.take() == "");
  rank.expire(out.last_alarm, out);
  CHECK(out.take() == "alarm refuse_send0@1 haltrecv0@1");
  CHECK(out.alarm_after == 999ms);
}

// -- nothing moves any more -------------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(fixture, "stuck: an agreed operation has lost a message if a later look finds it again") {
  const auto op = barrier(0);
  rank.submit(op, out);
  out.take();
  rank.stuck(1, 1, true, out);
  rank.stuck(2, 2, true, out);
  CHECK(out.take() == "");  // not agreed: the membership's matter
  rank.agreed(0, nullptr, out);
  rank.stuck(3, 4, false, out);  // this look may have been taken before the agreement
  rank.stuck(4, 4, false, out);  // so may this: it had begun already
  CHECK(out.take() == "");
  rank.stuck(5, 5, false, out);
  CHECK(out.take() == "fail0");
  CHECK(out.reasons.back()->code == errc::message_lost);
}

TEST_CASE_FIXTURE(fixture, "stuck: sends and receives ask the other end") {
  const auto receive = pair(0, false);
  rank.submit(receive, out);
  rank.stuck(1, 1, false, out);
  out.take();
  rank.stuck(2, 2, false, out);
  CHECK(out.take() == "inquire_send0@1");
  SUBCASE("the other end asks too: both were there") {
    rank.inquired(1, point_to_point, false, 2, false, out);
    CHECK(out.take() == "refuse_send0@1 haltrecv0@1");
    CHECK(out.reasons.back()->code == errc::message_lost);
  }
  SUBCASE("the other end asks in a look that began before ours was there") {
    rank.inquired(1, point_to_point, false, 1, false, out);
    CHECK(out.take() == "");
  }
  SUBCASE("we are asked for what we have not called: it may come, unless every thread waits") {
    rank.inquired(1, point_to_point, true, 2, false, out);
    CHECK(out.take() == "");
    rank.inquired(1, point_to_point, true, 2, true, out);
    CHECK(out.take() == "refuse_recv0@1");
    CHECK(out.reasons.back()->code == errc::rank_missing);
  }
}

// -- sends and receives -----------------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(fixture, "a send that is cancelled waits until the receiver has let go of its buffer") {
  const auto send = pair(0, true);
  rank.submit(send, out);
  CHECK(out.take() == "startsend0@1x1");
  rank.end(key(0, true), why(), out);
  CHECK(out.take() == "revokesend0@1 haltsend0@1");
  SUBCASE("receiver first") {
    rank.revoked(1, point_to_point, out);
    CHECK_FALSE(send->done->done());
    rank.channel_stopped(key(0, true), {}, out);
  }
  SUBCASE("channel first") {
    rank.channel_stopped(key(0, true), {}, out);
    CHECK_FALSE(send->done->done());
    rank.revoked(1, point_to_point, out);
  }
  SUBCASE("the receiver's actor is gone, and its channels") {
    rank.channel_stopped(key(0, true), {}, out);
    rank.peer_lost(1, out);
  }
  SUBCASE("it was performed after all") {
    rank.performed(key(0, true), out);
    CHECK(send->done->why() == nullptr);
    rank.channel_stopped(key(0, true), {}, out);
    rank.revoked(1, point_to_point, out);
    CHECK(out.take() == "");
    return;
  }
  REQUIRE(send->done->done());
  CHECK(send->done->why()->code == errc::cancelled);
  CHECK(out.take() == "skipsend0@1");
}

TEST_CASE_FIXTURE(fixture, "a dead receiver is not asked to let go") {
  rank.peer_lost(1, out);
  rank.submit(pair(0, true), out);
  out.take();
  rank.end(key(0, true), why(), out);
  CHECK(out.take() == "haltsend0@1");
}

TEST_CASE_FIXTURE(fixture, "a receive whose send is revoked fails too, also before and while it is called") {
  const auto receive = pair(0, false);
  SUBCASE("under way") {
    rank.submit(receive, out);
    out.take();
    rank.revoke(1, point_to_point, why(), out);
    CHECK(out.take() == "haltrecv0@1");
    CHECK_FALSE(receive->done->done());
    rank.channel_stopped(key(0, false), {}, out);
    CHECK(out.take() == "revokedrecv0@1 skiprecv0@1");
  }
  SUBCASE("before") {
    rank.revoke(1, point_to_point, why(), out);
    rank.channel_stopped(key(0, false), {}, out);
    CHECK(out.take() == "haltrecv0@1 revokedrecv0@1");
    rank.submit(receive, out);
    CHECK(out.take() == "skiprecv0@1");
  }
  SUBCASE("while") {
    rank.revoke(1, point_to_point, why(), out);
    rank.submit(receive, out);
    CHECK(out.take() == "haltrecv0@1");
    rank.channel_stopped(key(0, false), {}, out);
    CHECK(out.take() == "revokedrecv0@1 skiprecv0@1");
  }
  SUBCASE("too late: the sender still gets its answer, and the receive its success") {
    rank.submit(receive, out);
    out.take();
    rank.revoke(1, point_to_point, why(), out);
    rank.performed(key(0, false), out);
    rank.channel_stopped(key(0, false), {}, out);
    CHECK(out.take() == "haltrecv0@1 revokedrecv0@1");
    CHECK(receive->done->done());
    CHECK(receive->done->why() == nullptr);
    rank.revoke(1, point_to_point, why(), out);
    rank.channel_stopped(key(0, false), {}, out);
    CHECK(out.take() == "haltrecv0@1 revokedrecv0@1");
    return;
  }
  REQUIRE(receive->done->done());
  CHECK(receive->done->why()->code == errc::cancelled);
  const auto next = pair(1, false);
  rank.submit(next, out);
  CHECK(out.take() == "startrecv1@1x1");
}

TEST_CASE_FIXTURE(fixture, "a receive that ends tells its sender, whose send fails before or after its call") {
  const auto send = pair(0, true);
  SUBCASE("before") {
    rank.refused(1, point_to_point, true, why(errc::mismatch), out);
    CHECK(out.take() == "");
    rank.submit(send, out);
    CHECK(out.take() == "skipsend0@1");
  }
  SUBCASE("after") {
    rank.submit(send, out);
    out.take();
    rank.refused(1, point_to_point, true, why(errc::mismatch), out);
    CHECK(out.take() == "revokesend0@1 haltsend0@1");
    rank.revoked(1, point_to_point, out);
    rank.channel_stopped(key(0, true), {}, out);
  }
  REQUIRE(send->done->done());
  CHECK(send->done->why()->code == errc::mismatch);
  rank.refused(1, point_to_point, true, why(), out);  // again, too late
  const auto next = pair(1, true);
  rank.submit(next, out);
  CHECK_FALSE(next->done->done());
}

TEST_CASE_FIXTURE(fixture, "a message that does not fit ends both ends") {
  const auto receive = pair(0, false);
  rank.submit(receive, out);
  out.take();
  rank.mismatch(key(0, false), 1, out);
  CHECK(out.take() == "refuse_send0@1 haltrecv0@1");
  rank.channel_stopped(key(0, false), {}, out);
  REQUIRE(receive->done->done());
  CHECK(receive->done->why()->code == errc::mismatch);
}

TEST_CASE_FIXTURE(fixture, "a peer that left without the matching call") {
  const auto before = pair(0, false), after = pair(1, false);
  out.channels_that_answer = 0;
  rank.submit(before, out);
  rank.peer_left(1, out);
  REQUIRE(before->done->done());
  rank.submit(after, out);
  REQUIRE(after->done->done());
  CHECK(after->done->why()->code == errc::rank_missing);
}

// -- memory that all ranks address ------------------------------------------------------------------------------------

TEST_CASE("shared spaces: ranks that called different things do not meet") {
  arena memory;
  shared_spaces spaces{2};
  const auto small = spaces.enter(0, 1, 0, {}, 64, memory);
  const auto large = spaces.enter(0, 2, 1, {}, 1 << 20, memory);
  CHECK(small != large);
  CHECK(large->l2.size() >= 1 << 20);
  CHECK(spaces.enter(1, 1, 0, {}, 64, memory) == spaces.enter(1, 1, 1, {}, 64, memory));
}

TEST_CASE_FIXTURE(fixture, "shared spaces: a rank that has stopped can still be found by one that has not") {
  std::byte mine{};
  const auto entered = spaces.enter(0, 1, 0, {&mine, &mine}, 0, memory);
  rank.submit(barrier(0), out);
  rank.stop(0, out);
  rank.channel_stopped(key(0), {}, out);
  CHECK(spaces.enter(0, 1, 1, {}, 0, memory) == entered);  // its token may be under way; what it names must be there
  const auto again = spaces.enter(0, 1, 0, {}, 0, memory);
  rank.failed(0, why(), out);
  CHECK(spaces.enter(0, 1, 0, {}, 0, memory) != again);
}
