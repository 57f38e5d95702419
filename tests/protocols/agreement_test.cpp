// SPDX-License-Identifier: Apache-2.0
#include "protocols/agreement/agreement.hpp"

#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;

namespace {

struct said {
  std::string what;
  epoch_t epoch = 0;
  failure_ptr why;
  counts_ptr counts;
  rank_t rank = -1;
  sends_ptr sent{};
};

struct recording final : agreement::audience {
  void agreed(epoch_t e, const counts_ptr& c) override { all.push_back({"agreed", e, nullptr, c, -1}); }
  void ask(epoch_t e) override { all.push_back({"ask", e, nullptr, nullptr, -1}); }
  void stop(epoch_t e) override { all.push_back({"stop", e, nullptr, nullptr, -1}); }
  void failed(epoch_t e, const failure_ptr& why) override { all.push_back({"failed", e, why, nullptr, -1}); }
  void broken(const failure_ptr& why) override { all.push_back({"broken", 0, why, nullptr, -1}); }
  void peer_left(rank_t r, const sends_ptr& s) override { all.push_back({"peer_left", 0, nullptr, nullptr, r, s}); }
  void peer_lost(rank_t r) override { all.push_back({"peer_lost", 0, nullptr, nullptr, r}); }

  std::string words() const {
    std::string text;
    for (const said& s : all) text += (text.empty() ? "" : " ") + s.what;
    return text;
  }
  std::vector<said> all;
};

call some_call(std::size_t count = 8, collective what = collective::all_reduce) {
  call c;
  c.what = what;
  c.type = datatype::f32;
  c.count = count;
  return c;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void stop_all(agreement& a, int ranks, epoch_t epoch, recording& out) {
  for (rank_t r = 0; r < ranks; ++r) a.stopped(epoch, r, {}, out);
}

}  // namespace

TEST_CASE("agreed when all have called the same, in any order, and forgotten then") {
  agreement a{3, "world"};
  recording out;
  a.called(0, 2, some_call(), out);
  a.called(0, 0, some_call(), out);
  CHECK(out.all.empty());
  CHECK(a.open_operations() == 1);
  a.called(0, 1, some_call(), out);
  CHECK(out.words() == "agreed");
  CHECK(out.all[0].counts == nullptr);
  CHECK(a.open_operations() == 0);
}

TEST_CASE("calls that differ: the others are asked once, however many come after that") {
  agreement a{5, "world"};
  recording out;
  a.called(0, 2, some_call(), out);
  a.called(0, 0, some_call(9), out);
  CHECK(out.words() == "ask");
  a.called(0, 1, some_call(), out);
  a.called(0, 4, some_call(9), out);
  CHECK(out.words() == "ask");
  a.called(0, 3, some_call(), out);
  CHECK(out.words() == "ask stop");
}

TEST_CASE("operations are agreed on independently of each other's order") {
  agreement a{2, "world"};
  recording out;
  for (epoch_t e : {0u, 1u, 2u}) a.called(e, 0, some_call(e), out);
  for (epoch_t e : {2u, 0u, 1u}) a.called(e, 1, some_call(e), out);
  CHECK(out.words() == "agreed agreed agreed");
  CHECK(out.all[0].epoch == 2);
}

TEST_CASE("a mismatch stops all, then tells everybody the same table of what each rank called") {
  agreement a{3, "world"};
  recording out;
  a.called(5, 0, some_call(8), out);
  a.called(5, 1, some_call(9), out);
  a.called(5, 2, some_call(8), out);
  CHECK(out.words() == "ask stop");
  a.stopped(5, 1, {}, out);
  a.stopped(5, 0, {}, out);
  CHECK(out.words() == "ask stop");
  a.stopped(5, 2, {}, out);
  REQUIRE(out.words() == "ask stop failed");
  CHECK(out.all.back().why->code == errc::mismatch);
  const std::string& text = out.all.back().why->text;
  for (const char* part : {"world", "operation #5", "rank 0", "rank 1", "rank 2", "count 8", "count 9"}) {
    CAPTURE(text);
    CHECK(has(text, part));
  }
  CHECK(a.open_operations() == 0);
}

TEST_CASE("calls of different blocks are merged, and compared") {
  SUBCASE("all_to_all_v: the matrix, row by row") {
    agreement a{2, "world"};
    recording out;
    call zero = some_call(0, collective::all_to_all), one = zero;
    zero.uniform = one.uniform = false;
    zero.counts = {1, 2}, zero.receive_counts = {1, 3};
    one.counts = {3, 4}, one.receive_counts = {2, 4};
    a.called(0, 1, one, out);
    a.called(0, 0, zero, out);
    REQUIRE(out.words() == "agreed");
    CHECK(*out.all[0].counts == std::vector<std::size_t>{1, 2, 3, 4});
  }
  SUBCASE("all_to_all_v: one expects what the other does not send") {
    agreement a{2, "world"};
    recording out;
    call zero = some_call(0, collective::all_to_all), one = zero;
    zero.uniform = one.uniform = false;
    zero.counts = {1, 2}, zero.receive_counts = {1, 3};
    one.counts = {5, 4}, one.receive_counts = {2, 4};
    a.called(0, 0, zero, out);
    a.called(0, 1, one, out);
    CHECK(out.words() == "stop");
    stop_all(a, 2, 0, out);
    CHECK(out.all.back().why->code == errc::mismatch);
    CHECK(has(out.all.back().why->text, "rank 1 sends 5 elements to rank 0, which expects 3"));
  }
  SUBCASE("gather_v: the root knows") {
    agreement a{2, "world"};
    recording out;
    call root = some_call(0, collective::gather), other = root;
    root.uniform = other.uniform = false;
    root.root = other.root = 1;
    root.counts = {7, 8};
    other.counts = {7};
    a.called(0, 0, other, out);
    a.called(0, 1, root, out);
    REQUIRE(out.words() == "agreed");
    CHECK(*out.all[0].counts == std::vector<std::size_t>{7, 8});
  }
}

TEST_CASE("a rank that leaves: what it has not called can never be agreed on") {
  agreement a{3, "world"};
  recording out;
  SUBCASE("others were waiting already") {
    a.called(0, 0, some_call(), out);
    a.called(0, 2, some_call(), out);
    a.left(1, 0, out);
    CHECK(out.words() == "peer_left stop");
  }
  SUBCASE("others call later") {
    a.left(1, 0, out);
    CHECK(out.words() == "peer_left");
    a.called(0, 0, some_call(), out);
    CHECK(out.words() == "peer_left stop");
    a.called(0, 2, some_call(), out);  // it had not heard of the stop yet
    CHECK(out.words() == "peer_left stop");
  }
  stop_all(a, 3, 0, out);
  REQUIRE(out.all.back().what == "failed");
  CHECK(out.all.back().why->code == errc::rank_missing);
  CHECK(has(out.all.back().why->text, "rank 1 left the communicator after 0 operations"));
  CHECK(has(out.all.back().why->text, "cannot call it; ranks 0 and 2 wait"));
}

TEST_CASE("a rank that leaves after its calls harms nobody") {
  agreement a{2, "world"};
  recording out;
  a.called(0, 1, some_call(), out);
  const auto sent = std::make_shared<std::vector<sends_made>>(1);
  a.left(1, 1, out, {}, sent);
  a.called(0, 0, some_call(), out);
  CHECK(out.words() == "peer_left agreed");
  CHECK(out.all.front().sent == sent);
}

TEST_CASE("operations are said when they take long, and withdrawn when they are performed") {
  agreement a{3, "world"};
  recording out;
  a.called(4, 0, some_call(), out);
  a.called(4, 1, some_call(), out);
  CHECK(a.open_operations() == 1);
  a.withdraw(4, 0, out);
  a.withdraw(4, 0, out);
  CHECK(a.open_operations() == 1);
  a.withdraw(4, 1, out);
  CHECK(a.open_operations() == 0);
  a.withdraw(4, 2, out);
  CHECK(a.open_operations() == 0);
  CHECK(out.all.empty());
  SUBCASE("one that left has called what came before, though it never said so") {
    a.called(4, 0, some_call(), out);
    a.left(1, 5, out);
    a.called(4, 2, some_call(), out);
    CHECK(out.words() == "peer_left");
    a.called(5, 0, some_call(), out);
    CHECK(out.words() == "peer_left stop");
  }
  SUBCASE("nothing is withdrawn once it stops, and who has come is told then") {
    a.fail(4, "title", make_failure(errc::cancelled, "enough"), out);
    a.withdraw(4, 0, out);
    a.stopped(4, 0, {}, out, {some_call(), false});
    a.stopped(4, 1, {}, out);
    a.stopped(4, 2, {}, out);
    CHECK(out.words() == "stop failed");
    CHECK(has(out.all.back().why->text, "all_reduce(count 8"));
    CHECK(has(out.all.back().why->text, "ranks 1 and 2 have not called it, rank 0 waits"));
  }
}

TEST_CASE("what a rank said counts, not what it says again when it stops") {
  agreement a{2, "world"};
  recording out;
  a.called(0, 0, some_call(8), out);
  a.fail(0, "", make_failure(errc::cancelled, "enough"), out);
  a.stopped(0, 0, {}, out, {some_call(9), false});
  a.stopped(0, 1, {}, out);
  CHECK(has(out.all.back().why->text, "all_reduce(count 8"));
  CHECK(has(out.all.back().why->text, "rank 1 has not called it, rank 0 waits"));
}

TEST_CASE("agreed when every rank has called or performed it, whichever is said last") {
  agreement a{3, "world"};
  recording out;
  a.called(0, 0, some_call(), out);
  SUBCASE("performed") {
    a.called(0, 2, some_call(), out);
    CHECK(out.all.empty());
    a.withdraw(0, 1, out);
  }
  SUBCASE("called") {
    a.withdraw(0, 1, out);
    CHECK(out.all.empty());
    a.called(0, 2, some_call(), out);
  }
  SUBCASE("one that had called has performed it meanwhile") {
    a.called(0, 2, some_call(), out);
    a.withdraw(0, 2, out);
    CHECK(out.all.empty());
    a.withdraw(0, 1, out);
  }
  REQUIRE(out.words() == "agreed");
  CHECK(out.all[0].counts == nullptr);
  CHECK(a.open_operations() == 0);
}

TEST_CASE("who has performed a failed operation counts as having called it") {
  agreement a{3, "world"};
  recording out;
  a.called(0, 0, some_call(), out);
  a.fail(0, "", make_failure(errc::timed_out, "the deadline passed"), out);
  a.stopped(0, 0, {"lane 0 step 1 waits for a credit from rank 1"}, out, {some_call(), false});
  a.stopped(0, 1, {}, out, {std::nullopt, true});
  SUBCASE("all came, so their lanes tell more") {
    a.stopped(0, 2, {}, out, {some_call(), false});
    CHECK(has(out.all.back().why->text, "rank 0 lane 0 step 1 waits for a credit from rank 1"));
    CHECK_FALSE(has(out.all.back().why->text, "not called"));
  }
  SUBCASE("one is missing") {
    a.stopped(0, 2, {}, out);
    CHECK(has(out.all.back().why->text, "rank 2 has not called it, ranks 0 and 1 wait"));
  }
  CHECK(out.words() == "stop failed");
}

TEST_CASE("a late caller of a failed operation opens nothing again while it stops") {
  agreement a{2, "world"};
  recording out;
  a.called(0, 0, some_call(), out);
  a.fail(0, "", make_failure(errc::timed_out, "too late"), out);
  a.called(0, 1, some_call(), out);
  a.fail(0, "", make_failure(errc::cancelled, "another reason"), out);
  CHECK(out.words() == "stop");
  stop_all(a, 2, 0, out);
  REQUIRE(out.words() == "stop failed");
  CHECK(out.all[1].why->code == errc::timed_out);
  a.stopped(0, 0, {}, out);  // nobody asks any more
  CHECK(out.words() == "stop failed");
}

TEST_CASE("an operation that was agreed on can still fail, and tells what its lanes lacked") {
  agreement a{2, "world"};
  recording out;
  a.called(3, 0, some_call(), out);
  a.called(3, 1, some_call(), out);
  a.fail(3, "all_reduce(count 8, f32, sum)", make_failure(errc::timed_out, "the deadline passed"), out);
  a.stopped(3, 0, {"lane 0 step 1 waits for a chunk from rank 1"}, out);
  a.stopped(3, 1, std::vector<std::string>(100, "lane 0 step 2 waits for a credit from rank 0"), out);
  REQUIRE(out.words() == "agreed stop failed");
  const std::string& text = out.all[2].why->text;
  CHECK(has(text, "all_reduce(count 8, f32, sum)"));
  CHECK(has(text, "the deadline passed"));
  CHECK(has(text, "rank 0 lane 0 step 1 waits for a chunk from rank 1"));
  CHECK(text.size() < 2000);  // not a line for each of many lanes
}

TEST_CASE("abort ends everything, now and later, with its own words") {
  agreement a{2, "world"};
  recording out;
  a.called(0, 0, some_call(), out);
  const auto why = make_failure(errc::communicator_aborted, "enough");
  a.abort(why, out);
  CHECK(out.words() == "broken stop");
  CHECK(a.broken() == why);
  a.abort(make_failure(errc::communicator_aborted, "again"), out);
  CHECK(out.words() == "broken stop");
  a.called(1, 1, some_call(), out);
  CHECK(out.words() == "broken stop stop");
  stop_all(a, 2, 0, out);
  stop_all(a, 2, 1, out);
  CHECK(out.words() == "broken stop stop failed failed");
  CHECK(out.all[3].why == why);
  CHECK(out.all[4].why == why);
  CHECK(a.open_operations() == 0);
}

TEST_CASE("nobody waits for the answer of a rank whose actor is gone") {
  agreement a{3, "world"};
  recording out;
  a.called(0, 0, some_call(), out);
  a.called(0, 1, some_call(), out);
  SUBCASE("it dies before the stop") {
    a.lost(2, "killed", out);
    CHECK(out.words() == "peer_lost broken stop");
    a.stopped(0, 0, {}, out);
    a.stopped(0, 1, {}, out);
  }
  SUBCASE("it dies when only its answer is missing") {
    a.fail(0, "", make_failure(errc::cancelled, "cancelled"), out);
    a.stopped(0, 0, {}, out);
    a.stopped(0, 1, {}, out);
    CHECK(out.words() == "stop");
    a.lost(2, "killed", out);
  }
  CHECK(out.all.back().what == "failed");
  CHECK(a.open_operations() == 0);
  REQUIRE(a.broken());
  CHECK(a.broken()->code == errc::actor_lost);
  CHECK(has(a.broken()->text, "rank 2 ended (killed)"));
  const auto before = out.all.size();
  a.lost(2, "killed", out);
  CHECK(out.all.size() == before);
}

TEST_CASE("stuck: who has not said anything is asked, and only what two more looks find unmoved fails") {
  agreement a{2, "world"};
  recording out;
  a.called(0, 0, some_call(), out);
  a.stuck(1, 3, true, out);  // looks 2 and 3 have begun meanwhile: they may be older than the call
  CHECK(out.words() == "ask");
  a.stuck(2, 3, true, out);
  a.stuck(3, 4, true, out);
  CHECK(out.words() == "ask");
  SUBCASE("nobody came") {
    a.stuck(4, 4, true, out);
    CHECK(out.words() == "ask");
    a.stuck(5, 5, true, out);
    CHECK(out.words() == "ask stop");
    stop_all(a, 2, 0, out);
    CHECK(out.all.back().why->code == errc::rank_missing);
    CHECK(has(out.all.back().why->text, "rank 1 has not called it, rank 0 waits"));
    a.stuck(6, 6, true, out);
    CHECK(out.words() == "ask stop failed");
  }
  SUBCASE("another operation turns out to have lost a message: who waits for that one may call this one") {
    a.stuck(4, 4, true, out);
    a.fail(7, "barrier", make_failure(errc::message_lost, "lost"), out);
    stop_all(a, 2, 7, out);
    CHECK(out.words() == "ask stop failed");
    a.stuck(5, 5, true, out);
    a.stuck(6, 6, true, out);
    CHECK(out.words() == "ask stop failed ask");
    a.stuck(7, 7, true, out);
    CHECK(out.words() == "ask stop failed ask stop");
  }
  SUBCASE("somebody came in between") {
    a.called(0, 1, some_call(), out);
    a.stuck(4, 4, true, out);
    CHECK(out.words() == "ask agreed");
  }
  SUBCASE("it had performed it") {
    a.withdraw(0, 1, out);
    CHECK(out.words() == "ask agreed");
  }
  SUBCASE("a thread does not wait any more, so somebody may come") {
    a.stuck(4, 4, false, out);
    a.stuck(5, 5, false, out);
    CHECK(out.words() == "ask");
  }
}

TEST_CASE("stuck: while a thread may still call, nothing fails, and a new call begins the suspicion anew") {
  agreement a{3, "world"};
  recording out;
  a.called(0, 0, some_call(), out);
  a.stuck(1, 1, false, out);
  a.stuck(2, 2, false, out);
  a.stuck(3, 3, false, out);
  CHECK(out.words() == "ask ask ask");
  a.stuck(4, 4, true, out);
  a.called(0, 1, some_call(), out);
  a.stuck(5, 5, true, out);
  CHECK(out.words() == "ask ask ask ask ask");
  a.stuck(6, 6, true, out);
  a.stuck(7, 7, true, out);
  CHECK(out.words() == "ask ask ask ask ask stop");
}

TEST_CASE("overdue: what lacks somebody's call at so many looks is told once, and nothing else is") {
  agreement a{3, "world"};
  recording out;
  a.called(0, 0, some_call(), out);
  CHECK(a.overdue(3).empty());
  a.called(1, 2, some_call(), out);
  CHECK(a.overdue(3).empty());
  const auto first = a.overdue(3);
  REQUIRE(first.size() == 1);
  CHECK(has(first[0], "world, operation #0 "));
  CHECK(has(first[0], "rank 0 waits; ranks 1 and 2 have not called it"));
  a.withdraw(1, 0, out);  // performed there, so rank 1 alone is late
  const auto second = a.overdue(3);
  REQUIRE(second.size() == 1);
  CHECK(has(second[0], "rank 2 waits; rank 1 has not called it"));
  CHECK(a.overdue(3).empty());
  a.called(2, 1, some_call(), out);
  a.fail(2, "all_reduce", make_failure(errc::cancelled, "enough"), out);
  for (int i = 0; i < 5; ++i) CHECK(a.overdue(3).empty());
}

TEST_CASE("held: a failed operation that somebody has not let go of at so many looks is told once, with who it is") {
  agreement a{4, "world"};
  recording out;
  a.called(0, 1, some_call(), out);
  for (int i = 0; i < 5; ++i) CHECK(a.held(3).empty());
  a.fail(0, "", make_failure(errc::timed_out, "the deadline passed"), out);
  a.stopped(0, 0, {}, out);
  CHECK(a.held(3).empty());
  a.stopped(0, 3, {}, out);
  CHECK(a.held(3).empty());
  const auto told = a.held(3);
  REQUIRE(told.size() == 1);
  CHECK(has(told[0], "world, operation #0 "));
  CHECK(has(told[0], "has failed (the deadline passed), but ranks 1 and 2 do not let go of it"));
  CHECK(a.held(3).empty());
  a.stopped(0, 1, {}, out);
  a.stopped(0, 2, {}, out);
  CHECK(out.words().ends_with("failed"));
  for (int i = 0; i < 5; ++i) CHECK(a.held(3).empty());
}

TEST_CASE("partly called and different: the table is told with the failure") {
  agreement a{3, "world"};
  recording out;
  a.called(0, 0, some_call(8), out);
  a.called(0, 1, some_call(9), out);
  a.fail(0, "", make_failure(errc::timed_out, "the deadline passed"), out);
  stop_all(a, 3, 0, out);
  const std::string& text = out.all.back().why->text;
  CHECK(has(text, "called different operations"));
  CHECK(has(text, "count 8"));
  CHECK(has(text, "count 9"));
}

namespace {
call ahead_call(rank_t root) {
  call c = some_call(8, collective::broadcast);
  c.root = root;
  c.agreement = agreement_time::eager;
  call_report report;
  report.ahead = true;
  c.report = std::make_shared<call_report>(report);
  return c;
}
/// A strict call behind operation #4, a broadcast from `root`.
call behind(rank_t root) {
  call c = some_call();
  c.history = static_cast<std::uint64_t>(root) + 1;
  call_report report;
  report.earlier = {{4, to_string(ahead_call(root)), fingerprint(ahead_call(root), 0)}};
  report.known_from = 3;
  c.report = std::make_shared<call_report>(report);
  return c;
}
}  // namespace

TEST_CASE("a call that some ranks would give to a NIC: what may be different is said") {
  const auto planned = [](std::uint64_t plan, const char* how, bool by_nic = false) {
    call c = some_call();
    call_report report;
    report.plan = plan;
    report.planned = how;
    report.by_nic = by_nic;
    c.report = std::make_shared<call_report>(report);
    return c;
  };
  const call by_nic = planned(1, "ring (1)", true), itself = planned(2, "ring, protocol simple (2)");
  CHECK(disagreement(std::array{by_nic, itself}, 5).find("whether a rank starts the call or waits in it") !=
        std::string::npos);
  CHECK(disagreement(std::array{planned(3, "ring, protocol ll (3)"), itself}, 5).find("planned it differently") !=
        std::string::npos);
  CHECK(disagreement(std::array{by_nic, by_nic}, 5).empty());
  // A user's choreography may have any name.
  CHECK(disagreement(std::array{planned(4, "my protocol nic, protocol simple (4)"), itself}, 5)
            .find("planned it differently") != std::string::npos);
}

TEST_CASE("what ran ahead and differs ends the communicator, whether it is found with a later call or by itself") {
  recording out;
  agreement a{3, "world"};
  bool by_itself = false;
  SUBCASE("later") {
    for (rank_t r = 0; r < 3; ++r) a.called(5, r, behind(r == 2 ? 1 : 0), out);
  }
  SUBCASE("by itself: one has performed it, one waits, and one has not been asked yet") {
    by_itself = true;
    a.called(4, 2, ahead_call(1), out);
    a.differs(4, out);
    CHECK(out.words() == "ask");
    a.withdraw(4, 0, out, ahead_call(0));
    CHECK(out.words() == "ask");
    a.withdraw(4, 1, out, ahead_call(0));
  }
  REQUIRE(a.broken());
  CHECK(a.broken()->code == errc::mismatch);
  CHECK(has(a.broken()->text, "operation #4"));
  CHECK(has(a.broken()->text, "ranks 0–1: broadcast(count 8, f32, root 0)"));
  CHECK(has(a.broken()->text, "rank 2: broadcast(count 8, f32, root 1)"));
  CHECK(out.words() == (by_itself ? "ask broken stop" : "broken stop"));
  stop_all(a, 3, by_itself ? 4 : 5, out);
  CHECK(out.all.back().why == a.broken());
  CHECK(a.open_operations() == 0);
}

TEST_CASE("of earlier calls the one that differs is named, whatever each rank can say of those that do not") {
  const auto said = [](std::uint64_t history, std::vector<call_report::entry> earlier) {
    call c = some_call();
    c.history = history;
    call_report report;
    report.earlier = std::move(earlier);
    c.report = std::make_shared<call_report>(std::move(report));
    return c;
  };
  // Of a gather_v the root says all counts, the others their own.
  const call_report::entry of_root{3, "gather_v(counts [2, 1], i32, root 0)", 7},
      of_other{3, "gather_v(counts [1])", 7};
  SUBCASE("another call") {
    const std::vector<call> calls{said(1, {of_root, {4, "broadcast(count 8, f32, root 0)", 8}}),
                                  said(2, {of_other, {4, "broadcast(count 8, f32, root 1)", 9}})};
    const std::string why = earlier_disagreement(calls, 5);
    CHECK(has(why, "operation #4: the ranks called different operations"));
    CHECK(has(why, "rank 1: broadcast(count 8, f32, root 1)"));
  }
  SUBCASE("none, as one was refused") {
    const std::vector<call> calls{said(1, {of_root}), said(2, {of_other, {4, "gather_v(counts [1])", 7}})};
    const std::string why = earlier_disagreement(calls, 5);
    CHECK(has(why, "operation #4: the ranks called different operations"));
    CHECK(has(why, "rank 0: nothing that may run ahead"));
  }
}

TEST_CASE("what ran ahead and is the same everywhere is agreed on, and forgotten when nobody waits") {
  recording out;
  agreement a{2, "world"};
  a.called(4, 0, ahead_call(0), out);
  a.withdraw(4, 0, out, ahead_call(0));
  CHECK(a.open_operations() == 0);
  a.called(4, 1, ahead_call(0), out);
  a.withdraw(4, 0, out, ahead_call(0));
  CHECK(out.words() == "agreed");
  for (rank_t r = 0; r < 2; ++r) a.called(5, r, behind(0), out);
  CHECK(out.words() == "agreed agreed");
  CHECK(a.open_operations() == 0);
}

TEST_CASE("stuck: a rank that ran ahead, and says so whenever it is asked, does not hide that another one is missing") {
  recording out;
  agreement a{3, "world"};
  a.called(4, 0, ahead_call(0), out);
  for (look_t look = 1; look <= 4 && out.words().find("stop") == std::string::npos; ++look) {
    a.stuck(look, look, true, out);
    if (out.words().find("stop") == std::string::npos) a.withdraw(4, 1, out, ahead_call(0));
  }
  CHECK(out.words() == "ask ask stop");
  stop_all(a, 3, 4, out);
  CHECK(out.all.back().why->code == errc::rank_missing);
  CHECK(has(out.all.back().why->text, "rank 2 has not called it"));
}

TEST_CASE("a call that was refused when others may have performed theirs ends the communicator") {
  recording out;
  agreement a{2, "world"};
  a.fail(4, "broadcast", make_failure(errc::peer_refused, "rank 1 refused its call: it is null"), out);
  a.stopped(4, 1, {}, out);
  a.stopped(4, 0, {}, out, {ahead_call(0), true, true});
  REQUIRE(a.broken());
  CHECK(a.broken()->code == errc::peer_refused);
  CHECK(out.words() == "stop failed broken");
}

TEST_CASE("a refusal is the reason why others gave up, if they just did; a strict call fails alone") {
  recording out;
  agreement a{2, "world"};
  a.called(4, 0, some_call(), out);
  a.fail(4, "all_reduce", make_failure(errc::timed_out, "a deadline passed"), out);
  a.fail(4, "all_reduce", make_failure(errc::peer_refused, "rank 1 refused its call: it is null"), out);
  stop_all(a, 2, 4, out);
  CHECK(out.all.back().why->code == errc::peer_refused);
  CHECK(
      has(out.all.back().why->text, "operation #4 all_reduce(count 8, f32, sum): rank 1 refused its call: it is null"));
  CHECK_FALSE(has(out.all.back().why->text, "wait"));
  CHECK_FALSE(a.broken());
}

TEST_CASE("when all have left, what nobody could be told is told") {
  for (const bool same : {true, false}) {
    recording out;
    agreement a{2, "world"};
    a.left(0, 5, out, behind(0));
    a.left(1, 5, out, behind(same ? 0 : 1));
    CHECK(a.untold_disagreement().empty() == same);
    if (!same) CHECK(has(a.untold_disagreement(), "rank 1: broadcast(count 8, f32, root 1)"));
  }
}

TEST_CASE("outcome: what every rank said of an operation, if they ask about the same one") {
  recording out;
  agreement a{2, "world"};
  const auto asks = [](std::uint64_t about, errc result) {
    call c = some_call(0, collective::barrier);
    c.uniform = false;
    c.outcome_of = ended_call{about, result};
    return c;
  };
  a.called(6, 1, asks(5, errc::timed_out), out);
  a.called(6, 0, asks(5, errc::ok), out);
  REQUIRE(out.words() == "agreed");
  REQUIRE(out.all[0].counts);
  CHECK(*out.all[0].counts == std::vector<std::size_t>{0, static_cast<std::size_t>(errc::timed_out)});
  a.called(7, 0, asks(5, errc::ok), out);
  a.called(7, 1, asks(6, errc::ok), out);
  CHECK(out.words() == "agreed stop");
  stop_all(a, 2, 7, out);
  CHECK(has(out.all.back().why->text, "rank 1: outcome(of operation #6)"));
}

TEST_CASE("list_ranks") {
  CHECK(list_ranks({3}) == "rank 3");
  CHECK(list_ranks({0, 1}) == "ranks 0 and 1");
  CHECK(list_ranks({0, 1, 2, 5}) == "ranks 0–2 and 5");
  CHECK(list_ranks({0, 2, 4}) == "ranks 0, 2 and 4");
}

// -- random interleavings ---------------------------------------------------------------------------------------------

namespace {

/// Ranks that follow the rules of actors/rank/rank_state, with a mailbox each; the membership's inbox takes from them in any order,
/// but from each in its own.
struct play {
  struct rank_end {
    std::deque<std::function<void()>> inbox, outbox;
    epoch_t next = 0;
    std::map<epoch_t, call> begun;  ///< not of what had failed before
    std::map<epoch_t, bool> said;   ///< `called`
    std::map<epoch_t, bool> stopping, performed;
    std::map<epoch_t, failure_ptr> why;  ///< the first that was told
    bool dead = false, leaving = false, left = false;

    bool over(epoch_t e) const { return performed.contains(e) || why.contains(e); }
    bool pending() const {
      for (epoch_t e = 0; e < next; ++e)
        if (!over(e)) return true;
      return false;
    }
  };
  struct audience final : agreement::audience {
    explicit audience(play& p) : all(p) {}
    template <class F>
    void tell(F f) {
      for (auto& r : all.ranks)
        if (!r.dead) r.inbox.push_back([f, &r] { f(r); });
    }
    void agreed(epoch_t e, const counts_ptr&) override { REQUIRE(all.alike(e)); }
    void ask(epoch_t e) override {
      tell([e, this](rank_end& r) { all.answer(r, e); });
    }
    void stop(epoch_t e) override {
      tell([e, this](rank_end& r) {
        r.stopping[e] = true;
        presence came;
        if (r.over(e)) came.performed = true;
        else if (r.begun.contains(e)) came.what = r.begun[e];
        const auto who = static_cast<rank_t>(&r - all.ranks.data());
        r.outbox.push_back([e, who, came, this] { all.state.stopped(e, who, {}, *this, came); });
      });
    }
    void failed(epoch_t e, const failure_ptr& why) override {
      for (auto& r : all.ranks) {
        if (r.dead) continue;
        REQUIRE(r.stopping[e]);  // every living rank has stopped before anybody hears of the failure
      }
      tell([e, why](rank_end& r) { r.why.try_emplace(e, why); });
    }
    void broken(const failure_ptr&) override {}
    void peer_left(rank_t, const sends_ptr&) override {}
    void peer_lost(rank_t) override {}
    play& all;
  };

  play(int n, std::uint64_t s) : random(s), state(n, "world"), out(*this), ranks(static_cast<std::size_t>(n)) {}

  std::size_t pick(std::size_t n) { return static_cast<std::size_t>(random() % n); }
  std::mt19937_64 random;
  agreement state;
  audience out;
  std::vector<rank_end> ranks;

  /// Every rank has begun the same: the messages let each perform it.
  bool alike(epoch_t e) const {
    for (const rank_end& r : ranks)
      if (!r.begun.contains(e) || r.begun.at(e).count != ranks[0].begun.at(e).count) return false;
    return true;
  }

  void say(rank_end& r, epoch_t e) {
    if (std::exchange(r.said[e], true)) return;
    const auto who = static_cast<rank_t>(&r - ranks.data());
    r.outbox.push_back([=, this, c = r.begun[e]] { state.called(e, who, c, out); });
  }

  void withdraw(rank_end& r, epoch_t e) {
    const auto who = static_cast<rank_t>(&r - ranks.data());
    r.outbox.push_back([=, this] { state.withdraw(e, who, out); });
  }

  void answer(rank_end& r, epoch_t e) {
    if (e >= r.next) return;
    if (r.over(e)) withdraw(r, e);
    else if (r.begun.contains(e) && !r.stopping[e]) say(r, e);
  }

  void call_next(rank_end& r, epoch_t operations) {
    if (r.next == operations) return;
    const epoch_t e = r.next++;
    if (r.over(e) || r.stopping[e]) return;  // as rank_state: nothing is said of an operation that has failed
    r.begun[e] = some_call(pick(40) == 0 ? 9 : 8);
  }

  /// Some operations take long and are said; some are performed.
  void go_on(rank_end& r) {
    for (epoch_t e = 0; e < r.next; ++e) {
      if (r.over(e) || r.stopping[e]) continue;
      if (pick(8) == 0) say(r, e);
      if (pick(4) != 0 || !alike(e)) continue;
      r.performed[e] = true;
      if (r.said[e]) withdraw(r, e);
    }
    if (r.leaving && !r.left && !r.pending()) {
      r.left = true;
      const auto who = static_cast<rank_t>(&r - ranks.data());
      r.outbox.push_back([=, this, n = r.next] { state.left(who, n, out); });
    }
  }

  void mischief(rank_t who) {
    rank_end& r = ranks[static_cast<std::size_t>(who)];
    if (pick(30) == 0 && r.next > 0) {
      const auto e = static_cast<epoch_t>(pick(r.next));
      r.outbox.push_back([=, this] {
        state.fail(e, "some call", make_failure(errc::cancelled, "cancelled by " + std::to_string(who)), out);
      });
    }
    if (pick(300) == 0)
      r.outbox.push_back([this] { state.abort(make_failure(errc::communicator_aborted, "enough"), out); });
    if (pick(20) == 0) r.outbox.push_back([this, look = ++looks] { state.stuck(look, looks, false, out); });
    if (pick(200) == 0) r.leaving = true;
    if (pick(300) == 0) {
      r.dead = true;
      r.inbox.clear();
      r.outbox.push_back([=, this] { state.lost(who, "killed", out); });  // after all that it had said
    }
  }
  look_t looks = 0;

  void run(epoch_t operations) {
    std::size_t busy = ranks.size();
    while (busy > 0) {
      busy = 0;
      for (std::size_t turn = 0; turn < 4 * ranks.size(); ++turn) {
        const auto who = static_cast<rank_t>(pick(ranks.size()));
        rank_end& r = ranks[static_cast<std::size_t>(who)];
        if (!r.dead && !r.leaving && pick(3) == 0) {
          call_next(r, operations);
          mischief(who);
        }
        if (!r.dead) go_on(r);
        auto& queue = pick(2) == 0 ? r.inbox : r.outbox;
        if (queue.empty()) continue;
        const auto next = std::move(queue.front());
        queue.pop_front();
        next();
      }
      for (const rank_end& r : ranks)
        busy += !r.inbox.empty() || !r.outbox.empty() ||
                (!r.dead && (r.leaving ? !r.left : r.next < operations || r.pending()));
    }
  }
};

}  // namespace

TEST_CASE("random interleavings: every call of a living rank ends, and every failure is told to all alike") {
  constexpr epoch_t operations = 12;
  int performed = 0, failed = 0, both = 0;
  for (std::uint64_t round = 0; round < 400; ++round) {
    CAPTURE(round);
    play p(1 + static_cast<int>(round % 6), seed() + round);
    p.run(operations);  // which ends only when every call has
    CHECK(p.state.open_operations() == 0);
    for (epoch_t e = 0; e < operations; ++e) {
      failure_ptr first;
      bool missing = false, kept = false;
      for (auto& r : p.ranks) {
        if (r.dead) continue;
        CAPTURE(e);
        kept |= r.performed.contains(e);
        if (!r.why.contains(e)) {
          missing = true;
        } else {
          if (!first) first = r.why[e];
          CHECK(r.why[e]->text == first->text);
        }
      }
      if (first) CHECK_FALSE(missing);  // told to one, told to all; a rank that had performed it keeps its result
      performed += kept;
      failed += first != nullptr;
      both += kept && first;
    }
  }
  // The rounds reach all that they are for.
  CHECK(performed > 0);
  CHECK(failed > 0);
  CHECK(both > 0);
}
