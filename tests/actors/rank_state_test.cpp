// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/rank_state.hpp"

#include "actors/rank/card_tiers.hpp"
#include "memory/error.hpp"
#include "memory/tiers/card_memory.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rank_state_test {

using namespace troupe;
using namespace troupe::actors;
using namespace std::chrono_literals;

namespace {

/// Writes down what the rank says; chunks and credits go nowhere.
struct recording final : rank_outbox {
  void say(std::string what) { words += (words.empty() ? "" : " ") + std::move(what); }
  static std::string text(const operation_key& k) {
    if (k.peer < 0) return std::to_string(k.epoch);
    return std::string{k.sending ? "send" : "recv"} + std::to_string(k.epoch & ~point_to_point) + "@" +
           std::to_string(k.peer);
  }
  void called(epoch_t e, const call&) override { say("called" + std::to_string(e)); }
  void differs(epoch_t e) override { say("differs" + std::to_string(e)); }
  void withdraw(epoch_t e, const call* ahead) override {
    say((ahead != nullptr ? "ahead" : "withdraw") + std::to_string(e));
  }
  void fail(epoch_t e, const std::string&, failure_ptr why) override {
    say("fail" + std::to_string(e));
    reasons.push_back(std::move(why));
  }
  void stopped(epoch_t e, std::vector<std::string> waits, presence came) override {
    say("stopped" + std::to_string(e) + (came.performed ? "+performed" : "") + (came.what ? "+called" : ""));
    lacked = std::move(waits);
  }
  void left(epoch_t n, call, sends_ptr) override { say("left" + std::to_string(n)); }
  void quiet() override { say("quiet"); }
  void abort(const failure_ptr&) override { say("abort"); }
  void perished() override { say("perished"); }
  bool deliver(rank_t to, int, chunk&& what) override {
    const bool pair = (what.epoch & point_to_point) != 0;
    say("chunk" + text({what.epoch, pair ? to : -1, pair}));
    sent.push_back(std::move(what));
    return false;
  }
  void give_back(rank_t, int, const credit&) override { ++credits; }
  void revoke(rank_t r, epoch_t e, const failure_ptr&) override { say("revoke" + text({e, r, true})); }
  void revoked(rank_t r, epoch_t e, bool) override { say("revoked" + text({e, r, false})); }
  void refuse(rank_t r, epoch_t e, bool sending, const failure_ptr& why) override {
    say("refuse_" + text({e, r, sending}));
    reasons.push_back(why);
  }
  void inquire(rank_t r, epoch_t e, bool sending, look_t, bool) override { say("inquire_" + text({e, r, sending})); }
  void ask_for(rank_t r, epoch_t e, bool sending, const std::string& what) override {
    say("ask_" + text({e, r, sending}));
    asked.push_back(what);
  }
  void warn(const std::string& what) override { say("warn:" + what); }
  void look_again(rank_t r, bool sending) override {
    say((sending ? "look_at_sends@" : "look_at_recvs@") + std::to_string(r));
  }
  bool transfer(const operation_key&, int, int, std::byte*, const std::byte*, std::size_t) override {
    ++transfers;
    return false;
  }
  bool flush(const operation_key& k) override {
    if (flushing) say("flush" + text(k));
    return flushing;
  }
  void ask_room(epoch_t e, rank_t of, std::size_t bytes) override {
    say((of == card_tiers::shared ? "ask_l2:" : "ask_l0:") + std::to_string(e));
    room = bytes;
  }
  void tell_of_room(rank_t to, epoch_t e) override { say("room" + std::to_string(e) + "@" + std::to_string(to)); }
  void post_to_nic(nic_posting&& what) override { say("post" + std::to_string(what.epoch)); }
  void recall_from_nic(epoch_t e) override { say("recall" + std::to_string(e)); }
  steady_time now() const override { return steady_time{} + 1h + time; }

  std::string take() { return std::exchange(words, {}); }
  std::string words;
  std::vector<std::string> lacked, asked;
  std::vector<failure_ptr> reasons;
  std::vector<chunk> sent;
  int credits = 0, transfers = 0;
  std::size_t room = 0;  ///< that was asked for last
  bool flushing = false;
  std::chrono::nanoseconds time{0};
};

plan_ptr plan_of(collective what, std::size_t count) {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(
      one_cell_per_step(lower_syncs(write_score(*find_choreography("recursive_doubling"), flat_setup(what, 2)))));
  p->count = count;
  p->work_type = what == collective::barrier ? datatype::u8 : datatype::i64;
  p->port = mailbox_plan{.agrees = true};
  return p;
}

failure_ptr why(errc code = errc::cancelled) { return make_failure(code, "because"); }

void complete_ended(rank_state& rank) {
  ended_operations over = rank.take_ended();
  while (const operation_ptr op = over.take()) op->done->complete(std::move(op->why_ended));
}

/// Rank 0 of two; the tests play rank 1 and the membership.
struct fixture {
  operation_ptr barrier() const {
    auto op = std::make_shared<operation>();
    op->plan = how;
    op->what.what = collective::barrier;
    return op;
  }
  /// Its plan does not tell the ranks of each other.
  operation_ptr mute() const {
    auto op = barrier();
    auto p = plan_of(collective::barrier, 0);
    std::const_pointer_cast<plan>(p)->port = mailbox_plan{};
    op->plan = std::move(p);
    return op;
  }
  operation_ptr counted(std::function<plan_ptr(const counts_ptr&)> make) const {
    auto op = barrier();
    op->plan = nullptr;
    op->make_plan = std::move(make);
    return op;
  }
  operation_ptr pair(bool sending) {
    auto op = std::make_shared<operation>();
    op->peer = 1;
    op->sending = sending;
    op->what.count = 1;
    op->input = op->output = &cell;
    return op;
  }
  operation_ptr submit(operation_ptr op) {
    rank.submit(op, out);
    complete_ended(rank);
    return op;
  }

  // -- what rank 1 would send --
  /// The token of a barrier.
  static chunk token(epoch_t e) {
    call what;
    what.what = collective::barrier;
    return {nullptr, 0, fingerprint(what, e), e, 1, 0, 0, {}};
  }
  chunk message(epoch_t number, std::size_t bytes = 1) const {
    const epoch_t e = number | point_to_point;
    call what;
    what.count = 1;
    return {&other, bytes, fingerprint(what, e), e, 1, 0, 0, {}};
  }
  void arrives(chunk what) { rank.on_chunk(0, std::move(what), out); }
  void given_back(epoch_t e) { rank.on_credit(0, {e, 1, 0, 0}, out); }
  void perform(epoch_t e) {
    arrives(token(e));
    given_back(e);
  }
  void fail(epoch_t e, const failure_ptr& reason) {
    rank.stop(e, out);
    rank.failed(e, reason, out);
  }

  bool done(const operation_ptr& op) {
    complete_ended(rank);
    return op->done->done();
  }
  static operation_key key(epoch_t e, bool sending) { return {e | point_to_point, 1, sending}; }
  static constexpr epoch_t first_pair = point_to_point;

  plan_ptr how = plan_of(collective::barrier, 0);
  arena memory;
  shared_spaces spaces{2};
  recording out;
  std::byte cell{}, other{7};
  rank_state rank{{.rank = 0, .ranks = 2}, memory, spaces, nullptr};
};

/// Two ranks and their membership; messages go to and fro until all is still.
struct world {
  struct end final : rank_outbox {
    explicit end(world& w) : all(w) {}
    void called(epoch_t e, const call& what) override {
      ++said_called;
      all.post([this, e, what] { all.membership.called(e, self->rank(), what, all.audience); });
    }
    void differs(epoch_t e) override {
      all.post([this, e] { all.membership.differs(e, all.audience); });
    }
    void withdraw(epoch_t e, const call* ahead) override {
      all.post([this, e, what = ahead != nullptr ? std::optional<call>{*ahead} : std::nullopt] {
        all.membership.withdraw(e, self->rank(), all.audience, what);
      });
    }
    void fail(epoch_t e, const std::string& title, failure_ptr reason) override {
      all.post([this, e, title, reason] { all.membership.fail(e, title, reason, all.audience); });
    }
    void stopped(epoch_t e, std::vector<std::string> waits, presence came) override {
      all.post([this, e, waits, came] { all.membership.stopped(e, self->rank(), waits, all.audience, came); });
    }
    void left(epoch_t, call, sends_ptr) override {}
    void quiet() override {}
    void abort(const failure_ptr&) override {}
    void perished() override {}
    bool deliver(rank_t to, int channel, chunk&& what) override {
      all.post([this, to, channel, what] { all.at(to).on_chunk(channel, chunk{what}, all.out(to)); });
      if (all.doubled)
        all.late.push_back([this, to, channel, what] { all.at(to).on_chunk(channel, chunk{what}, all.out(to)); });
      return false;
    }
    void give_back(rank_t to, int channel, const credit& what) override {
      all.post([this, to, channel, what] { all.at(to).on_credit(channel, what, all.out(to)); });
    }
    void revoke(rank_t to, epoch_t e, const failure_ptr& reason) override {
      all.post([this, to, e, reason] { all.at(to).revoke(self->rank(), e, reason, all.out(to)); });
    }
    void revoked(rank_t to, epoch_t e, bool received) override {
      all.post([this, to, e, received] { all.at(to).revoked(self->rank(), e, received, all.out(to)); });
    }
    void refuse(rank_t to, epoch_t e, bool sending, const failure_ptr& reason) override {
      all.post([this, to, e, sending, reason] { all.at(to).refused(self->rank(), e, sending, reason, all.out(to)); });
    }
    void inquire(rank_t, epoch_t, bool, look_t, bool) override {}
    void look_again(rank_t to, bool sending) override {
      all.post([this, to, sending] { all.at(to).look_again(self->rank(), sending, all.out(to)); });
    }
    bool transfer(const operation_key&, int, int, std::byte*, const std::byte*, std::size_t) override { return false; }
    bool flush(const operation_key&) override { return false; }
    steady_time now() const override { return steady_time{} + 1h + all.time; }
    world& all;
    rank_state* self = nullptr;
    int said_called = 0;
  };
  struct audience_of_two final : agreement::audience {
    explicit audience_of_two(world& w) : all(w) {}
    template <class F>
    void tell(F f) {
      for (rank_t r : {0, 1}) all.post([f, r, this] { f(all.at(r), all.out(r)); });
    }
    void agreed(epoch_t e, const counts_ptr& c) override {
      tell([=](rank_state& s, rank_outbox& o) { s.agreed(e, c, o); });
    }
    void ask(epoch_t e) override {
      tell([=](rank_state& s, rank_outbox& o) { s.asked(e, o); });
    }
    void stop(epoch_t e) override {
      tell([=](rank_state& s, rank_outbox& o) { s.stop(e, o); });
    }
    void failed(epoch_t e, const failure_ptr& reason) override {
      tell([=](rank_state& s, rank_outbox& o) { s.failed(e, reason, o); });
    }
    void broken(const failure_ptr&) override {}
    void peer_left(rank_t, const sends_ptr&) override {}
    void peer_lost(rank_t) override {}
    world& all;
  };

  explicit world(epoch_t first = 0, int channels = 1) {
    for (rank_t r : {0, 1}) {
      ranks[static_cast<std::size_t>(r)] = std::make_unique<rank_state>(
          rank_state_options{.rank = r, .ranks = 2, .channels = channels, .communicator = "world", .first = first},
          memory, spaces, nullptr);
      out(r).self = &at(r);
    }
  }
  ~world() { run(); }

  rank_state& at(rank_t r) { return *ranks[static_cast<std::size_t>(r)]; }
  end& out(rank_t r) { return ends[static_cast<std::size_t>(r)]; }
  void post(std::function<void()> what) { queue.push_back(std::move(what)); }
  void run() {
    while (!queue.empty()) {
      const auto next = std::move(queue.front());
      queue.pop_front();
      next();
    }
    for (auto& r : ranks) complete_ended(*r);
  }
  /// Messages that come a second time, after everything else.
  void run_late() {
    for (auto& what : std::exchange(late, {})) post(std::move(what));
    run();
  }

  operation_ptr sum(rank_t r, std::int64_t& in, std::int64_t& result) {
    auto op = std::make_shared<operation>();
    op->plan = adds;
    op->what.what = collective::all_reduce;
    op->what.type = datatype::i64;
    op->what.reduction = troupe::sum;
    op->what.count = 1;
    op->input = &in;
    op->output = &result;
    at(r).submit(op, out(r));
    return op;
  }
  operation_ptr pair(rank_t r, bool sending, std::int64_t& where) {
    auto op = std::make_shared<operation>();
    op->peer = 1 - r;
    op->sending = sending;
    op->what.type = datatype::i64;
    op->what.count = 1;
    op->input = op->output = &where;
    at(r).submit(op, out(r));
    return op;
  }
  bool flat() {
    for (rank_t r : {0, 1})
      if (at(r).early_chunks() != 0 || at(r).channels_under_way() != 0 || at(r).pending()) return false;
    return membership.open_operations() == 0;
  }

  plan_ptr adds = plan_of(collective::all_reduce, 1);
  arena memory;
  shared_spaces spaces{2};
  std::deque<std::function<void()>> queue;
  std::vector<std::function<void()>> late;
  bool doubled = false;
  std::chrono::nanoseconds time{0};
  agreement membership{2, "world"};
  audience_of_two audience{*this};
  std::array<end, 2> ends{end{*this}, end{*this}};
  std::array<std::unique_ptr<rank_state>, 2> ranks;
};

}  // namespace

// -- order ------------------------------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(fixture, "operations are numbered and begun in the order of their calls") {
  const auto first = barrier(), second = barrier();
  SUBCASE("one by one") {
    submit(first);
    CHECK(out.take() == "chunk0");
    submit(second);
    CHECK(out.take() == "chunk1");
  }
  SUBCASE("a group: all are numbered before the first begins") {
    rank.enqueue(first, out);
    rank.enqueue(second, out);
    CHECK(out.take() == "");
    CHECK(second->epoch == 1);
    rank.begin(out);
    CHECK(out.take() == "chunk0 chunk1");
  }
  CHECK(first->epoch == 0);
  CHECK(second->epoch == 1);
}

TEST_CASE_FIXTURE(fixture,
                  "an operation whose plan needs all ranks' counts is said at once, and holds up none behind it") {
  const auto op = counted([this](const counts_ptr&) { return how; });
  submit(op);
  submit(barrier());
  CHECK(out.take() == "called0 chunk1");
  SUBCASE("it is agreed on") {
    rank.agreed(0, nullptr, out);
    CHECK(out.take() == "chunk0");
    perform(0);
    CHECK(done(op));
    CHECK(op->done->why() == nullptr);
  }
  SUBCASE("it fails") {
    rank.stop(0, out);
    rank.agreed(0, nullptr, out);  // the stop was faster
    rank.failed(0, why(), out);
    CHECK(out.take() == "stopped0+called withdraw0");
    CHECK(done(op));
    CHECK(op->done->why()->code == errc::cancelled);
  }
  SUBCASE("no plan can be made") {
    op->make_plan = [](const counts_ptr&) -> plan_ptr { throw error(errc::unsupported, "no"); };
    rank.agreed(0, nullptr, out);
    CHECK(out.take() == "fail0");
    CHECK(out.reasons.back()->code == errc::unsupported);
  }
}

TEST_CASE_FIXTURE(fixture, "counts that are known before the operation's turn: it begins in its turn, once") {
  int plans = 0;
  for (int k = 0; k < 32; ++k) submit(barrier());
  const auto op = submit(counted([&](const counts_ptr&) { return ++plans, how; }));
  out.take();
  rank.asked(32, out);
  CHECK(out.take() == "called32");
  rank.agreed(32, nullptr, out);
  CHECK(out.take() == "");
  perform(0);
  CHECK(out.take() == "chunk32");
  CHECK(plans == 1);
  perform(32);
  REQUIRE(done(op));
  CHECK(op->done->why() == nullptr);
}

TEST_CASE_FIXTURE(fixture, "at most 32 operations are under way") {
  std::vector<operation_ptr> all;
  for (epoch_t e = 0; e < 40; ++e) submit(all.emplace_back(barrier()));
  const std::string said = out.take();
  CHECK(said.find("chunk31") != std::string::npos);
  CHECK(said.find("chunk32") == std::string::npos);
  perform(7);
  CHECK(done(all[7]));
  CHECK(out.take() == "chunk32");
  SUBCASE("a failure reaches also those that wait for their turn") {
    arrives(token(38));
    arrives(token(39));
    CHECK(rank.early_chunks() == 2);
    fail(38, why());
    CHECK(out.take() == "stopped38+called");
    CHECK(done(all[38]));
    CHECK(all[38]->done->why()->code == errc::cancelled);
    CHECK_FALSE(done(all[37]));
    rank.failed(38, why(errc::aborted), out);  // again: nobody is told twice
    CHECK(rank.take_ended().empty());
    for (epoch_t e = 0; e < 38; ++e)
      if (e != 7) perform(e);
    const std::string rest = out.take();
    CHECK(rest.find("chunk38") == std::string::npos);
    CHECK(rest.find("chunk37 chunk39") != std::string::npos);
    CHECK(done(all[37]));
    given_back(39);  // its token had come early
    CHECK(done(all[39]));
    CHECK(rank.early_chunks() == 0);
    CHECK_FALSE(rank.pending());
  }
}

// -- agreement --------------------------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(fixture,
                  "an operation whose plan agrees is complete when it is performed, and nothing is said of it") {
  const auto op = submit(barrier());
  arrives(token(0));
  CHECK_FALSE(done(op));  // our token may not be read yet
  given_back(0);
  CHECK(done(op));
  CHECK(op->done->why() == nullptr);
  CHECK(out.take() == "chunk0");
  CHECK_FALSE(rank.pending());
}

TEST_CASE_FIXTURE(fixture,
                  "one whose plan does not is complete when it is performed and agreed on, whichever comes first") {
  const auto first = submit(mute()), second = submit(mute());
  CHECK(out.take() == "called0 chunk0 called1 chunk1");
  perform(0);
  CHECK_FALSE(done(first));
  rank.agreed(0, nullptr, out);
  CHECK(done(first));
  CHECK(first->done->why() == nullptr);
  rank.agreed(1, nullptr, out);
  CHECK_FALSE(done(second));
  perform(1);
  CHECK(done(second));
}

TEST_CASE_FIXTURE(fixture, "what takes long is told to the membership once, and withdrawn when it is performed") {
  const auto op = submit(barrier());
  out.take();
  const steady_time begun = out.now();
  CHECK(rank.tick(out) == begun + 5ms);
  CHECK(out.take() == "");
  out.time += 5ms;
  CHECK(rank.tick(out) == no_deadline);
  CHECK(out.take() == "called0");
  out.time += 5ms;
  rank.tick(out);
  rank.asked(0, out);
  CHECK(out.take() == "");
  perform(0);
  CHECK(out.take() == "withdraw0");
  CHECK(done(op));
}

TEST_CASE_FIXTURE(fixture, "asked by the membership: called, performed, or neither yet") {
  submit(barrier());
  submit(barrier());
  perform(0);
  out.take();
  rank.asked(0, out);
  CHECK(out.take() == "withdraw0");
  rank.asked(1, out);
  CHECK(out.take() == "called1");
  rank.asked(2, out);
  CHECK(out.take() == "");
}

TEST_CASE_FIXTURE(fixture, "nothing is called after its stop was answered") {
  submit(barrier());
  rank.tick(out);
  rank.stop(0, out);
  out.take();
  SUBCASE("by the clock") {
    out.time += 5ms;
    rank.tick(out);
  }
  SUBCASE("by a question that was under way") { rank.asked(0, out); }
  CHECK(out.take() == "");
}

TEST_CASE_FIXTURE(fixture, "a chunk of another call is the membership's matter, and nothing goes on") {
  const auto op = submit(barrier());
  out.take();
  chunk wrong = token(0);
  ++wrong.fingerprint;
  arrives(wrong);
  arrives(wrong);
  CHECK(out.take() == "called0 differs0");
  CHECK_FALSE(done(op));
  fail(0, why(errc::mismatch));
  CHECK(done(op));
  CHECK(op->done->why()->code == errc::mismatch);
  CHECK(rank.early_chunks() == 0);
}

// -- failures ---------------------------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(fixture, "a failure completes only after the rank has stopped and the membership has said so") {
  const auto op = submit(barrier());
  out.take();
  SUBCASE("nothing is copied") {
    rank.stop(0, out);
    CHECK(out.take() == "stopped0+called");
    REQUIRE(out.lacked.size() == 1);
    CHECK(out.lacked[0] == "lane 0 step 1 waits for a chunk from rank 1");
  }
  SUBCASE("a DMA engine may still copy") {
    out.flushing = true;
    rank.stop(0, out);
    CHECK(out.take() == "flush0");
    rank.flushed({1, -1, false}, out);  // another's
    CHECK(out.take() == "");
    rank.flushed({0, -1, false}, out);
    CHECK(out.take() == "stopped0+called");
    REQUIRE(out.lacked.size() == 1);
    CHECK(out.lacked[0] == "lane 0 step 1 waits for a chunk from rank 1");
  }
  CHECK_FALSE(done(op));
  perform(0);  // nobody's any more
  CHECK_FALSE(done(op));
  CHECK(rank.early_chunks() == 0);
  const auto reason = why();
  rank.failed(0, reason, out);
  CHECK(out.take() == "");
  CHECK(done(op));
  CHECK(op->done->why() == reason);
  arrives(token(0));
  CHECK(rank.early_chunks() == 0);
  rank.failed(0, why(errc::aborted), out);  // somebody asked too late
  CHECK(rank.take_ended().empty());
}

TEST_CASE_FIXTURE(fixture, "a rank that has performed the operation answers a stop with that, and keeps its result") {
  const auto op = submit(barrier());
  perform(0);
  REQUIRE(done(op));
  out.take();
  rank.stop(0, out);
  CHECK(out.take() == "stopped0+performed");
  rank.failed(0, why(), out);
  CHECK(rank.take_ended().empty());
  CHECK(op->done->why() == nullptr);
  rank.stop(1, out);  // not called
  CHECK(out.take() == "stopped1");
}

TEST_CASE_FIXTURE(fixture, "what the NIC has performed has succeeded, though it was recalled before it said so") {
  std::const_pointer_cast<plan>(how)->port = nic_plan{8, nic_packet_bytes, {}};
  const auto op = submit(barrier());
  CHECK(out.take() == "post0");
  rank.stop(0, out);
  CHECK(out.take() == "recall0");
  SUBCASE("performed") {
    rank.offloaded(0, nullptr, out);
    CHECK(done(op));
    CHECK(out.take() == "");  // until the NIC says that it refers to no memory
    rank.nic_let_go(0, out);
    CHECK(out.take() == "stopped0+performed");
    rank.failed(0, why(), out);
    CHECK_FALSE(op->done->why());
  }
  SUBCASE("it failed there, or was let go of") {
    rank.offloaded(0, why(errc::io), out);
    CHECK_FALSE(done(op));
    rank.nic_let_go(0, out);
    CHECK(out.take() == "stopped0+called");
    CHECK_FALSE(done(op));
    rank.failed(0, why(), out);
    REQUIRE(done(op));
    CHECK(op->done->why()->code == errc::cancelled);
  }
}

TEST_CASE_FIXTURE(fixture, "failed before it was called: the caller gets it, and nothing is said or begun") {
  arrives(token(0));
  rank.stop(0, out);
  CHECK(out.take() == "stopped0");
  CHECK(rank.early_chunks() == 0);
  const auto op = barrier();
  SUBCASE("called after the failure") {
    const auto reason = why();
    rank.failed(0, reason, out);
    arrives(token(0));
    CHECK(rank.early_chunks() == 0);
    rank.stop(0, out);  // a second one, for whoever asked too late
    rank.failed(0, why(errc::aborted), out);
    out.take();
    submit(op);
    CHECK(op->done->why() == reason);
  }
  SUBCASE("called between stop and failure") {
    submit(op);
    CHECK_FALSE(done(op));
    rank.failed(0, why(), out);
    CHECK(done(op));
  }
  SUBCASE("called behind one that waits for its turn") {
    for (epoch_t e = 1; e < 40; ++e) fail(e, why());
    rank.failed(0, why(), out);
    submit(op);
    std::vector<operation_ptr> all;
    for (epoch_t e = 1; e < 40; ++e) {
      submit(all.emplace_back(barrier()));
      CHECK(all.back()->done->done());
    }
    out.take();
    for (epoch_t e = 40; e < 73; ++e) submit(all.emplace_back(barrier()));
    out.take();
    fail(73, why());
    const auto failed = submit(barrier()), last = submit(barrier());
    CHECK(failed->done->done());
    CHECK(out.take() == "stopped73");
    perform(40);
    perform(41);
    CHECK(out.take() == "chunk72 chunk74");
    return;
  }
  REQUIRE(op->done->done());
  CHECK(op->done->why()->code == errc::cancelled);
  CHECK(out.take() == "");
  submit(barrier());
  CHECK(out.take() == "chunk1");
}

TEST_CASE_FIXTURE(fixture, "failures that are told out of order drop what comes for them, and nothing else") {
  fail(1, why());
  arrives(token(1));
  CHECK(rank.early_chunks() == 0);
  arrives(token(0));
  CHECK(rank.early_chunks() == 1);
  arrives(token(2));
  CHECK(rank.early_chunks() == 2);
  const auto zero = submit(barrier()), one = submit(barrier()), two = submit(barrier());
  CHECK(one->done->why()->code == errc::cancelled);
  given_back(2);
  CHECK(done(two));
  arrives(token(2));  // a duplicate under way for long
  CHECK(rank.early_chunks() == 0);
  fail(0, why());
  CHECK(done(zero));
  arrives(token(2));
  arrives(token(1));
  arrives(token(0));
  CHECK(rank.early_chunks() == 0);
  arrives(token(3));
  CHECK(rank.early_chunks() == 1);
}

TEST_CASE_FIXTURE(fixture, "an operation that is cancelled asks the membership, unless it is over") {
  const auto op = submit(barrier());
  out.take();
  SUBCASE("under way") {
    rank.end(op, why(), out);
    CHECK(out.take() == "fail0");
    CHECK_FALSE(done(op));
  }
  SUBCASE("over") {
    perform(0);
    rank.end(op, why(), out);
    CHECK(out.take() == "");
  }
}

TEST_CASE_FIXTURE(fixture, "leaving is said when everything is over, with how many were called") {
  submit(barrier());
  rank.leave(out);
  CHECK(out.take() == "chunk0");
  perform(0);
  CHECK(out.take() == "left1");
  rank.leave(out);
  CHECK(out.take() == "");
}

TEST_CASE_FIXTURE(fixture, "a broken communicator: everything under way is failed, everything later too, then quiet") {
  std::vector<operation_ptr> all;
  for (epoch_t e = 0; e < 32; ++e) all.push_back(submit(barrier()));
  for (epoch_t e = 1; e < 32; ++e) perform(e);
  const auto receive = submit(pair(false));
  out.flushing = true;
  out.take();
  const auto reason = why(errc::communicator_aborted);
  rank.broken(reason, out);
  CHECK(out.take() == "fail0 refuse_send0@1 flushrecv0@1");
  rank.broken(why(), out);
  CHECK(out.take() == "");
  const auto later = submit(barrier());
  CHECK(later->done->why() == reason);
  CHECK_FALSE(done(receive));
  rank.flushed(key(0, false), out);
  CHECK(done(receive));
  CHECK(receive->done->why() == reason);
  CHECK(out.take() == "");
  out.flushing = false;
  rank.stop(0, out);
  rank.failed(0, reason, out);
  CHECK(out.take() == "stopped0+called quiet");
  CHECK(done(all[0]));
  const auto send = submit(pair(true));
  CHECK(send->done->why() == reason);
}

TEST_CASE_FIXTURE(fixture, "a broken communicator fails at once what waits for its turn") {
  std::vector<operation_ptr> all;
  for (epoch_t e = 0; e < 33; ++e) all.push_back(submit(barrier()));
  const auto reason = why(errc::communicator_aborted);
  rank.broken(reason, out);
  CHECK(done(all[32]));
  CHECK(all[32]->done->why() == reason);
  CHECK_FALSE(done(all[31]));
}

TEST_CASE_FIXTURE(fixture, "an operation that is dropped, or whose rank dies, does not keep its caller waiting") {
  completion_ptr dropped, under_way, sent, waiting, later;
  errc told = errc::actor_lost;
  {
    auto op = barrier();
    dropped = op->done;
  }
  REQUIRE(dropped->done());
  CHECK(dropped->why()->code == errc::actor_lost);
  {
    rank_state dying{{.rank = 1, .ranks = 2}, memory, spaces, nullptr};
    const auto start = [&](operation_ptr op) {
      const completion_ptr at = op->done;
      dying.submit(std::move(op), out);
      return at;
    };
    under_way = start(barrier());
    for (int k = 0; k < 31; ++k) start(barrier());
    waiting = start(barrier());
    auto to_zero = pair(true);
    to_zero->peer = 0;
    sent = start(std::move(to_zero));
    out.take();
    dying.perish(out);
    dying.perish(out);
    CHECK(out.take() == "perished");
    later = start(barrier());
    dying.stop(0, out);  // it answers nothing more
    dying.failed(0, why(), out);
    dying.asked(0, out);
    out.time += 1h;
    CHECK(dying.tick(out) == no_deadline);
    dying.on_chunk(0, token(0), out);
    dying.revoke(0, first_pair, why(), out);
    dying.broken(why(), out);
    dying.leave(out);
    CHECK(out.take() == "");
    CHECK_FALSE(dying.has_ended());  // peers may refer to their buffers
    SUBCASE("buried") {
      dying.bury(why(errc::actor_lost));
      complete_ended(dying);
      CHECK(under_way->done());
      const completion_ptr last = start(barrier());
      complete_ended(dying);
      REQUIRE(last->done());
      CHECK(last->why()->code == errc::actor_lost);
    }
    SUBCASE("the engine closes first") { told = errc::engine_closed; }
  }
  for (const completion_ptr& each : {under_way, waiting, sent, later}) {
    REQUIRE(each->done());
    REQUIRE(each->why());
    CHECK(each->why()->code == told);
  }
}

// -- deadlines --------------------------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(fixture, "deadlines: the next one of all is told, and each ends its operation once") {
  const steady_time begun = out.now();
  for (epoch_t e = 0; e < 20; ++e) {
    auto op = barrier();
    op->deadline = 100ms + std::chrono::milliseconds(e);
    submit(std::move(op));
  }
  out.time = 5ms;
  CHECK(rank.tick(out) == begun + 100ms);
  for (epoch_t e = 0; e < 18; ++e) perform(e);
  out.take();
  out.time = 100ms;
  CHECK(rank.tick(out) == begun + 118ms);  // operation 0 is over
  CHECK(out.take() == "");
  out.time = 118ms;
  CHECK(rank.tick(out) == begun + 119ms);
  CHECK(out.take() == "fail18");
  CHECK(out.reasons.back()->code == errc::timed_out);
  CHECK(out.reasons.back()->text == "the deadline of 118.0 ms passed on rank 0");
  CHECK(rank.tick(out) == begun + 119ms);
  CHECK(out.take() == "");
  out.time = 119ms;
  CHECK(rank.tick(out) == no_deadline);
  CHECK(out.take() == "fail19");
}

TEST_CASE_FIXTURE(fixture, "deadlines: of sends and receives too, and the largest there is means none") {
  const steady_time begun = out.now();
  auto far = barrier(), never = barrier(), near = pair(false);
  far->deadline = 1s;
  near->deadline = 1ms;
  never->deadline = std::chrono::nanoseconds::max();
  submit(never);
  submit(far);
  submit(near);
  out.take();
  CHECK(rank.tick(out) == begun + 1ms);
  CHECK(out.take() == "");
  out.time = 1ms;
  CHECK(rank.tick(out) == begun + 5ms);
  CHECK(out.take() == "refuse_send0@1");
  REQUIRE(done(near));
  CHECK(near->done->why()->code == errc::timed_out);
  out.time = 5ms;
  CHECK(rank.tick(out) == begun + 1s);
  out.time = 1s;
  CHECK(rank.tick(out) == no_deadline);
  CHECK(out.take() == "called0 called1 fail1");
}

TEST_CASE_FIXTURE(fixture, "deadlines: they pass also while an operation waits for its turn") {
  for (epoch_t e = 0; e < 32; ++e) submit(barrier());
  auto op = barrier();
  op->deadline = 1ms;
  submit(op);
  out.take();
  out.time = 1ms;
  rank.tick(out);
  CHECK(out.take() == "fail32");
  out.time = 1h;
  rank.tick(out);
  CHECK(out.take().find("called32") == std::string::npos);  // it has not begun, so it cannot take long
}

// -- a partner that does not come -------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(
    fixture, "a send or receive that waits for two looks asks for its other end, the first of its kind only, once") {
  submit(pair(true)), submit(pair(true)), submit(pair(false));
  auto tagged = pair(false);
  tagged->tag = 7;
  submit(tagged);
  out.take();
  const steady_time begun = out.now();
  CHECK(rank.tick(out) == begun + pair_look);
  out.time += pair_look;
  CHECK(rank.tick(out) == begun + 2 * pair_look);
  CHECK(out.take() == "");
  out.time += pair_look;
  CHECK(rank.tick(out) == no_deadline);
  CHECK(out.take().find("ask_send0@1") != std::string::npos);
  REQUIRE(out.asked.size() == 3);
  std::sort(out.asked.begin(), out.asked.end());
  const std::string before = "waiting for more than 5 s: world, ", after = ": rank 0 waits; rank 1 has not called the ";
  CHECK(out.asked[0] == before + "recv(count 1, u8, from rank 1)" + after + "matching send");
  CHECK(out.asked[1] == before + "recv(count 1, u8, from rank 1, tag 7)" + after + "matching send");
  CHECK(out.asked[2] == before + "send(count 1, u8, to rank 1)" + after + "matching recv");
  out.time += 10 * pair_look;
  CHECK(rank.tick(out) == no_deadline);
  CHECK(out.take() == "");
  // The first is received: from then on the second is the one that is missed.
  given_back(first_pair);
  out.time += 1ms;
  CHECK(rank.tick(out) == out.now() + pair_look);
  out.time += pair_look;
  rank.tick(out);
  CHECK(out.take() == "ask_recv1@1");
}

TEST_CASE_FIXTURE(fixture, "who is asked for a send or receive says so in the log if it has not called it") {
  submit(pair(true));
  out.take();
  rank.asked_for(1, first_pair, true, "called", out);
  rank.asked_for(1, first_pair + 1, true, "not called", out);
  rank.asked_for(1, first_pair, false, "nor this", out);
  CHECK(out.take() == "warn:not called warn:nor this");
  given_back(first_pair);
  rank.asked_for(1, first_pair, true, "performed", out);
  CHECK(out.take() == "");
}

// -- nothing moves any more -------------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(fixture, "stuck: an agreed operation has lost a message if a later look finds it again") {
  submit(barrier());
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
  rank.stop(0, out);
  out.take();
  rank.stuck(6, 6, false, out);
  CHECK(out.take() == "");
}

TEST_CASE_FIXTURE(fixture, "stuck: what has moved since it was suspected is suspected anew") {
  submit(barrier());
  rank.agreed(0, nullptr, out);
  out.take();
  rank.stuck(1, 1, false, out);
  arrives(token(0));
  rank.stuck(2, 2, false, out);
  rank.stuck(3, 3, false, out);
  CHECK(out.take() == "");
  rank.stuck(4, 4, false, out);
  CHECK(out.take() == "fail0");
}

TEST_CASE_FIXTURE(fixture, "stuck: sends and receives ask the other end") {
  submit(pair(false));
  rank.stuck(1, 1, false, out);
  out.take();
  rank.stuck(2, 2, false, out);
  CHECK(out.take() == "inquire_send0@1");
  SUBCASE("the other end asks too: both were there") {
    rank.inquired(1, first_pair, false, 2, false, out);
    CHECK(out.take() == "refuse_send0@1");
    CHECK(out.reasons.back()->code == errc::message_lost);
  }
  SUBCASE("the other end asks in a look that began before ours was there") {
    rank.inquired(1, first_pair, false, 1, false, out);
    CHECK(out.take() == "");
  }
  SUBCASE("we are asked for what we have not called: it may come, unless every thread waits") {
    rank.inquired(1, first_pair, true, 2, false, out);
    CHECK(out.take() == "");
    rank.inquired(1, first_pair, true, 2, true, out);
    CHECK(out.take() == "refuse_recv0@1");
    CHECK(out.reasons.back()->code == errc::rank_missing);
  }
}

// -- sends and receives -----------------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(fixture,
                  "sends and receives are numbered for each peer and direction, and not with the collectives") {
  const auto send = submit(pair(true)), receive = submit(pair(false)), second = submit(pair(true));
  const auto collective = submit(barrier());
  CHECK(send->epoch == first_pair);
  CHECK(receive->epoch == first_pair);
  CHECK(second->epoch == first_pair + 1);
  CHECK(collective->epoch == 0);
  CHECK(out.take() == "chunksend0@1 chunksend1@1 chunk0");
  arrives(message(0));
  CHECK(done(receive));
  CHECK(cell == other);
  CHECK(out.credits == 1);
  rank.on_credit(0, {first_pair + 1, 1, 0, 0}, out);
  CHECK(done(second));
  CHECK_FALSE(done(send));
  rank.on_credit(0, {first_pair, 1, 0, 0}, out);
  CHECK(done(send));
  CHECK(send->done->why() == nullptr);
}

TEST_CASE_FIXTURE(fixture, "a send that is cancelled waits until the receiver has let go of its buffer") {
  const auto send = submit(pair(true));
  CHECK(out.take() == "chunksend0@1");
  out.flushing = true;
  rank.end(send, why(), out);
  CHECK(out.take() == "revokesend0@1 flushsend0@1");
  rank.end(send, why(errc::aborted), out);        // again
  rank.on_credit(0, {first_pair, 1, 0, 0}, out);  // too late
  CHECK(out.take() == "");
  CHECK_FALSE(done(send));
  SUBCASE("receiver first") {
    rank.revoked(1, first_pair, false, out);
    CHECK_FALSE(done(send));
    rank.flushed(key(0, true), out);
  }
  SUBCASE("channel first") {
    rank.flushed(key(0, true), out);
    CHECK_FALSE(done(send));
    rank.revoked(1, first_pair, false, out);
  }
  SUBCASE("the receiver's actor is gone, and its channels") {
    rank.flushed(key(0, true), out);
    CHECK_FALSE(done(send));
    rank.peer_lost(1, out);
  }
  REQUIRE(done(send));
  CHECK(send->done->why()->code == errc::cancelled);
  CHECK(out.take() == "");
}

TEST_CASE_FIXTURE(fixture, "a dead receiver is not asked to let go") {
  rank.peer_lost(1, out);
  const auto send = submit(pair(true));
  out.take();
  rank.end(send, why(), out);
  CHECK(out.take() == "");
  CHECK(done(send));
}

TEST_CASE_FIXTURE(fixture, "a receive whose send is revoked fails too, also before and while it is called") {
  const auto receive = pair(false);
  out.flushing = true;
  SUBCASE("under way") {
    submit(receive);
    rank.revoke(1, first_pair, why(), out);
    CHECK(out.take() == "flushrecv0@1");
    CHECK_FALSE(done(receive));
    rank.flushed(key(0, false), out);
    CHECK(out.take() == "revokedrecv0@1");
  }
  SUBCASE("before") {
    rank.revoke(1, first_pair, why(), out);
    rank.flushed(key(0, false), out);
    CHECK(out.take() == "flushrecv0@1 revokedrecv0@1");
    arrives(message(0));  // dropped unread
    CHECK(rank.early_chunks() == 0);
    submit(receive);
    CHECK(out.take() == "");
  }
  SUBCASE("while") {
    rank.revoke(1, first_pair, why(), out);
    submit(receive);
    CHECK(out.take() == "flushrecv0@1");
    CHECK_FALSE(done(receive));
    rank.flushed(key(0, false), out);
    CHECK(out.take() == "revokedrecv0@1");
  }
  SUBCASE("its message has come already") {
    arrives(message(0));
    CHECK(rank.early_chunks() == 1);
    rank.revoke(1, first_pair, why(), out);
    CHECK(rank.early_chunks() == 0);
    rank.flushed(key(0, false), out);
    submit(receive);
    CHECK(out.take() == "flushrecv0@1 revokedrecv0@1");
  }
  SUBCASE("too late: the sender still gets its answer, and the receive its success") {
    submit(receive);
    arrives(message(0));
    REQUIRE(done(receive));
    CHECK(receive->done->why() == nullptr);
    for (int k = 0; k < 2; ++k) {
      rank.revoke(1, first_pair, why(), out);
      rank.flushed(key(0, false), out);
      CHECK(out.take() == "flushrecv0@1 revokedrecv0@1");
    }
    CHECK(rank.take_ended().empty());
    return;
  }
  REQUIRE(done(receive));
  CHECK(receive->done->why()->code == errc::cancelled);
  CHECK(cell == std::byte{});
  arrives(message(0));
  CHECK(rank.early_chunks() == 0);
  arrives(message(1));
  const auto next = submit(pair(false));
  CHECK(done(next));
  CHECK(cell == other);
}

TEST_CASE_FIXTURE(fixture, "a receive that ends tells its sender, whose send fails before or after its call") {
  const auto send = pair(true);
  SUBCASE("before") {
    rank.refused(1, first_pair, true, why(errc::mismatch), out);
    submit(send);
    CHECK(out.take() == "");
  }
  SUBCASE("after") {
    submit(send);
    out.take();
    rank.refused(1, first_pair, true, why(errc::mismatch), out);
    CHECK(out.take() == "revokesend0@1");
    CHECK_FALSE(done(send));
    rank.revoked(1, first_pair, false, out);
  }
  REQUIRE(done(send));
  CHECK(send->done->why()->code == errc::mismatch);
  rank.refused(1, first_pair, true, why(), out);  // again, too late
  const auto next = submit(pair(true));
  CHECK_FALSE(done(next));
}

TEST_CASE_FIXTURE(fixture, "a message that does not fit ends both ends") {
  const auto receive = submit(pair(false));
  arrives(message(0, 2));
  CHECK(out.take() == "refuse_send0@1");
  REQUIRE(done(receive));
  CHECK(receive->done->why()->code == errc::mismatch);
  CHECK(cell == std::byte{});
  CHECK(rank.early_chunks() == 0);
  CHECK(rank.channels_under_way() == 0);
}

TEST_CASE_FIXTURE(fixture, "what a peer had sent before it left may come after that is known") {
  const auto first = submit(pair(false));
  const epoch_t next = first->epoch + 2;
  rank.peer_left(1, std::make_shared<std::vector<sends_made>>(std::vector<sends_made>{{5, next + 9}, {0, next}}), out);
  const auto second = submit(pair(false)), third = submit(pair(false));
  CHECK(!done(first));
  CHECK(!done(second));
  REQUIRE(done(third));
  CHECK(third->done->why()->code == errc::rank_missing);
  arrives(message(0));
  REQUIRE(done(first));
  CHECK(!first->done->why());
}

TEST_CASE_FIXTURE(fixture, "a peer that left without the matching call") {
  const auto before = submit(pair(false));
  rank.peer_left(1, nullptr, out);
  REQUIRE(done(before));
  const auto after = submit(pair(false));
  REQUIRE(done(after));
  CHECK(after->done->why()->code == errc::rank_missing);
  arrives(message(2));  // sent before it left
  const auto sent = submit(pair(false));
  REQUIRE(done(sent));
  CHECK(sent->done->why() == nullptr);
}

// -- two ranks --------------------------------------------------------------------------------------------------------

TEST_CASE("epochs pass 2^31, 2^32 and more: operations are performed and failed across it, and none is taken for "
          "another") {
  epoch_t middle = 0;
  SUBCASE("2^30") { middle = epoch_t{1} << 30; }
  SUBCASE("2^31") { middle = epoch_t{1} << 31; }
  SUBCASE("2^32") { middle = epoch_t{1} << 32; }
  SUBCASE("2^46") { middle = epoch_t{1} << 46; }
  SUBCASE("2^48") { middle = epoch_t{1} << 48; }
  SUBCASE("2^62") { middle = epoch_t{1} << 62; }
  world w{middle - 50};
  w.doubled = true;
  constexpr std::size_t calls = 100;
  std::vector<std::int64_t> in(2 * calls), result(2 * calls);
  std::vector<operation_ptr> all;
  const auto call_at = [&](rank_t r, std::size_t k) {
    const std::size_t at = 2 * k + static_cast<std::size_t>(r);
    in[at] = static_cast<std::int64_t>(k * 10) + r;
    return w.sum(r, in[at], result[at]);
  };
  // Rank 1 lags by up to 40 calls, so that chunks come early, and calls wait for their turn.
  std::size_t behind = 0;
  for (std::size_t k = 0; k < calls; ++k) {
    const operation_ptr op = all.emplace_back(call_at(0, k));
    CHECK(op->epoch == middle - 50 + k);
    if (k % 10 == 9) w.at(0).end(op, why(), w.out(0));  // before rank 1 has called it
    w.run();
    if (k % 40 == 39)
      for (; behind <= k; ++behind) all.push_back(call_at(1, behind));
    w.run();
  }
  for (; behind < calls; ++behind) all.push_back(call_at(1, behind));
  w.run();
  w.run_late();
  CHECK(w.flat());
  // A pair's numbers have 47 bits, above which its tag stands (chunk.hpp).
  if (middle < epoch_t{1} << 47) {
    std::vector<std::int64_t> sent(calls), received(calls);
    for (std::size_t k = 0; k < calls; ++k) {
      sent[k] = static_cast<std::int64_t>(k);
      const operation_ptr send = w.pair(0, true, sent[k]);
      CHECK(send->epoch == ((middle - 50 + k) | point_to_point));
      if (k % 2 == 0) w.run();
      const operation_ptr receive = w.pair(1, false, received[k]);
      w.run();
      CHECK(send->done->done());
      CHECK(receive->done->done());
    }
    w.run_late();
    CHECK(w.flat());
    CHECK(received == sent);
  }
  for (const operation_ptr& op : all) {
    REQUIRE(op->done->done());
    const epoch_t k = op->epoch - (middle - 50);
    CAPTURE(k);
    CHECK((op->done->why() != nullptr) == (k % 10 == 9));
  }
  for (std::size_t k = 0; k < calls; ++k)
    for (std::size_t r : {0u, 1u})
      CHECK(result[2 * k + r] == (k % 10 == 9 ? 0 : static_cast<std::int64_t>(20 * k + 1)));
}

TEST_CASE(
    "memory stays flat: performed and failed operations, early chunks, and chunks that come twice, leave nothing") {
  world w;
  w.doubled = true;
  std::int64_t a = 1, b = 2, x = 0, y = 0;
  for (int k = 0; k < 200; ++k) {
    CAPTURE(k);
    const operation_ptr first = w.sum(0, a, x);
    w.run();
    if (k % 3 == 1) {
      w.at(0).end(first, why(), w.out(0));
      w.run();  // failed before rank 1 calls it
    }
    const operation_ptr second = w.sum(1, b, y);
    if (k % 2 == 0) w.run_late();
    w.run();
    REQUIRE(second->done->done());
    CHECK((second->done->why() != nullptr) == (k % 3 == 1));
    w.run_late();
    CHECK(w.flat());
  }
  CHECK(x == 3);
  CHECK(y == 3);
  CHECK(w.out(0).said_called + w.out(1).said_called == 0);  // nothing took long
}

TEST_CASE_FIXTURE(fixture, "memory stays flat: a chunk that comes twice while the operation waits to be agreed on") {
  const auto op = submit(mute());
  perform(0);
  arrives(token(0));
  rank.agreed(0, nullptr, out);
  CHECK(done(op));
  CHECK(rank.early_chunks() == 0);
}

TEST_CASE("memory stays flat: sends and receives, in any order of their calls, and those that are taken back") {
  world w;
  w.doubled = true;
  std::int64_t from = 0, to = 0;
  for (int k = 0; k < 200; ++k) {
    CAPTURE(k);
    from = k;
    operation_ptr send, receive;
    const bool sender_first = k % 2 == 0, taken_back = k % 5 == 4;
    (sender_first ? send : receive) = w.pair(sender_first ? 0 : 1, sender_first, sender_first ? from : to);
    w.run();
    if (taken_back) {
      const rank_t who = sender_first ? 0 : 1;
      w.at(who).end(sender_first ? send : receive, why(), w.out(who));
      w.run();
    }
    (sender_first ? receive : send) = w.pair(sender_first ? 1 : 0, !sender_first, sender_first ? to : from);
    w.run();
    w.run_late();
    REQUIRE(send->done->done());
    REQUIRE(receive->done->done());
    CHECK((send->done->why() != nullptr) == taken_back);
    CHECK((receive->done->why() != nullptr) == taken_back);
    if (!taken_back) CHECK(to == k);
    CHECK(w.flat());
  }
}

// -- a modelled card --------------------------------------------------------------------------------------------------

namespace {

/// Both of two ranks on a card; the tests play the owners of its tiers, and the membership.
struct on_card {
  on_card() {
    spaces.lie_on(card.get());
    for (rank_t r : {0, 1})
      ranks.push_back(std::make_unique<rank_state>(rank_state_options{.rank = r, .ranks = 2}, memory, spaces, nullptr));
  }
  operation_ptr gather(std::size_t r) {
    auto p = std::make_shared<plan>();
    p->notes = std::make_shared<const score>(
        lower_syncs(write_score(*find_choreography("csc"), flat_setup(collective::all_gather, 2))));
    p->count = 1;
    p->work_type = datatype::i64;
    p->port = mailbox_plan{.agrees = true};
    auto op = std::make_shared<operation>();
    op->what.what = collective::all_gather;
    op->what.type = datatype::i64;
    op->what.count = 1;
    op->input = &in;
    op->output = both.data();
    op->plan = std::move(p);
    ranks[r]->submit(op, out[r]);
    return op;
  }
  card_tiers::region block(std::size_t bytes) {
    return card->grant(0, {hbm, &hbm->l2()}, bytes);  // from wherever
  }
  /// The rank has asked for it.
  void comes(std::size_t r, epoch_t e, rank_t of) { ranks[r]->room_came(e, of, block(out[r].room), out[r]); }

  arena memory;
  std::shared_ptr<card_memory> hbm =
      std::make_shared<card_memory>(card_options{.core_groups = 1, .hbm_bytes = 1 << 20});
  std::shared_ptr<card_tiers> card = std::make_shared<card_tiers>([](const std::string&) {});
  shared_spaces spaces{2};
  std::vector<std::unique_ptr<rank_state>> ranks;
  std::array<recording, 2> out;
  std::int64_t in = 1;
  std::array<std::int64_t, 2> both{};
};

}  // namespace

TEST_CASE_FIXTURE(on_card,
                  "an operation begins when its L0 and L2 were granted; L2 is asked for by the first of its ranks") {
  gather(0);
  CHECK(out[0].take() == "ask_l0:0");
  comes(0, 0, 0);
  CHECK(out[0].take() == "ask_l2:0");
  gather(1);
  CHECK(out[1].take() == "ask_l0:0");
  comes(1, 0, 1);
  CHECK(out[1].take() == "");  // the other one has asked
  CHECK(out[1].transfers == 0);
  comes(0, 0, card_tiers::shared);
  CHECK(out[0].take() == "room0@1");
  CHECK(out[0].transfers == 1);
  ranks[1]->hear_of_room(0, out[1]);
  CHECK(out[1].transfers == 1);
  ranks[1]->hear_of_room(0, out[1]);
  CHECK(out[1].transfers == 1);
}

TEST_CASE_FIXTURE(on_card, "an operation that is refused its room fails, and room that comes too late goes back") {
  const auto op = gather(0);
  out[0].take();
  SUBCASE("refused") {
    ranks[0]->no_room(0, make_failure(errc::out_of_memory, "L0 is full"), out[0]);
    CHECK(out[0].take() == "fail0");
    CHECK(out[0].reasons.back()->code == errc::out_of_memory);
    CHECK(out[0].reasons.back()->text == "rank 0 cannot begin it: L0 is full");
    ranks[0]->no_room(0, make_failure(errc::out_of_memory, "twice"), out[0]);
    CHECK(out[0].take() == "");
  }
  SUBCASE("cancelled") {
    ranks[0]->stop(0, out[0]);
    out[0].take();
    comes(0, 0, 0);
    CHECK(out[0].take() == "");
    CHECK(card->l0(0, out[0].room) != nullptr);  // it is nobody's
  }
  SUBCASE("the card is lost") {
    comes(0, 0, 0);
    out[0].take();
    card->lose(make_failure(errc::actor_lost, "the MPE has ended"));
    gather(1);
    CHECK(out[1].take() == "fail0");
    CHECK(out[1].reasons.back()->text == "rank 1 cannot begin it: the MPE has ended");
    ranks[0]->stop(0, out[0]);
  }
  ranks[0]->failed(0, why(), out[0]);
  complete_ended(*ranks[0]);
  CHECK(op->done->done());
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
  submit(barrier());
  rank.stop(0, out);
  CHECK(spaces.enter(0, 1, 1, {}, 0, memory) == entered);  // its token may be under way; what it names must be there
  const auto again = spaces.enter(0, 1, 0, {}, 0, memory);
  rank.failed(0, why(), out);
  CHECK(spaces.enter(0, 1, 0, {}, 0, memory) != again);
}

}  // namespace rank_state_test
