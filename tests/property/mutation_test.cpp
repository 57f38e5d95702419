// SPDX-License-Identifier: Apache-2.0
// Scores that are right, broken at random: the verifier must agree with the oracle, which tries every order of events, about
// every one of them.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/score/score_builder.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/property/oracle.hpp"
#include "tests/seed.hpp"

using namespace troupe;
using namespace troupe::notation;

namespace {

using random_source = std::mt19937_64;

template <class Size>
std::size_t below(random_source& random, Size n) {
  return static_cast<std::size_t>(random() % static_cast<std::uint64_t>(n));
}
bool chance(random_source& random, int one_in) { return below(random, one_in) == 0; }

struct specimen {
  score what;
  performing_limits limits;
};

// -- breaking ---------------------------------------------------------------------------------------------------------

class breaker {
public:
  breaker(specimen& s, random_source& random) : it_(s), score_(s.what), random_(random) {}

  /// Changes one thing and returns what; the score stays free of indices that are out of range.
  std::string break_something() {
    if (!pick()) return "";
    using change = std::string (breaker::*)();
    static constexpr change changes[] = {
        &breaker::drop,     &breaker::duplicate, &breaker::reorder, &breaker::reorder,      &breaker::move,
        &breaker::retarget, &breaker::cell,      &breaker::cell,    &breaker::other_buffer, &breaker::peer,
        &breaker::kind,     &breaker::kind,      &breaker::swap,    &breaker::after,        &breaker::after,
        &breaker::credits,  &breaker::owner,     &breaker::unfan};
    std::string done = (this->*changes[below(random_, std::size(changes))])();
    tidy();
    return done;
  }

private:
  /// A random step of all.
  bool pick() {
    const std::size_t total = step_total(score_);
    if (total == 0) return false;
    std::size_t n = below(random_, total);
    for (std::size_t r = 0; r < score_.players.size(); ++r)
      for (std::size_t l = 0; l < score_.players[r].lanes.size(); ++l) {
        const std::size_t size = score_.players[r].lanes[l].size();
        if (n < size) return rank_ = r, lane_ = l, at_ = n, true;
        n -= size;
      }
    return false;
  }
  lane& steps() { return score_.players[rank_].lanes[lane_]; }
  step& chosen() { return steps()[at_]; }
  rank_t other_rank() {
    return static_cast<rank_t>((rank_ + 1 + below(random_, std::max(1, score_.ranks - 1))) % score_.players.size());
  }

  /// Steps of the lane moved from `from` on by `by`: references to them follow.
  void shift(std::size_t from, int by) {
    for (lane& l : score_.players[rank_].lanes)
      for (step& s : l)
        if (s.after.lane == static_cast<int>(lane_) && s.after.step >= static_cast<int>(from)) s.after.step += by;
  }
  void erase(std::size_t at) {
    steps().erase(steps().begin() + static_cast<std::ptrdiff_t>(at));
    shift(at, -1);
  }
  void insert(std::size_t at, const step& s) {
    shift(at, 1);
    steps().insert(steps().begin() + static_cast<std::ptrdiff_t>(at), s);
  }

  std::string drop() { return erase(at_), "drop"; }
  std::string duplicate() { return insert(at_, step{chosen()}), "duplicate"; }
  std::string reorder() {
    if (at_ + 1 < steps().size()) std::swap(steps()[at_], steps()[at_ + 1]);
    return "reorder";
  }
  std::string move() {
    const step s = chosen();
    erase(at_);
    insert(below(random_, steps().size() + 1), s);
    return "move";
  }
  std::string retarget() {
    const step s = chosen();
    erase(at_);
    rank_ = static_cast<std::size_t>(other_rank());
    auto& lanes = score_.players[rank_].lanes;
    if (lanes.empty()) lanes.resize(1);
    lane_ = below(random_, lanes.size());
    insert(below(random_, steps().size() + 1), s);
    return "retarget";
  }

  place& operand() {
    return chosen().source.count > 0 && (chosen().target.count == 0 || chance(random_, 2)) ? chosen().source
                                                                                           : chosen().target;
  }
  std::int32_t room(const place& at) const {
    return cell_count(score_, at.owner == self ? static_cast<rank_t>(rank_) : at.owner, at.buffer);
  }
  std::string cell() {
    place& at = operand();
    if (at.count > 0) at.cell = static_cast<std::int32_t>(below(random_, room(at) - at.count + 1));
    return "cell";
  }
  std::string other_buffer() {
    place& at = operand();
    if (at.count == 0) return "buffer";
    place tried = at;
    tried.owner = self;
    tried.buffer = static_cast<buffer_kind>(1 + below(random_, 5));
    if (room(tried) < at.count) return "buffer";
    at = tried;
    return cell(), "buffer";
  }
  std::string owner() {
    place& at = operand();
    if (at.count == 0 || (at.buffer != buffer_kind::input && at.buffer != buffer_kind::output)) return "owner";
    place tried = at;
    tried.owner = other_rank();
    if (std::int64_t{tried.cell} + tried.count <= room(tried)) at = tried;
    return "owner";
  }
  std::string peer() {
    step& s = chosen();
    rank_t& which = sends(s.kind) && (!receives(s.kind) || chance(random_, 2)) ? s.to : s.from;
    if (receives(s.kind) || sends(s.kind)) which = other_rank();
    return "peer";
  }
  std::string kind() {
    step& s = chosen();
    do s.kind = static_cast<step_kind>(below(random_, step_kind_count));
    while (s.kind == step_kind::sync);
    if (s.source.count == 0 && reads_source(s.kind)) s.source = s.target;
    if (s.target.count == 0 && writes(s.kind)) s.target = s.source;
    return "kind";
  }
  std::string swap() {
    chosen().swapped = !chosen().swapped;
    if (chance(random_, 2)) std::swap(chosen().source, chosen().target);
    return "swap";
  }
  std::string after() {
    // The drop is what matters; it hits seldom unless it looks for steps that wait.
    for (std::size_t i = 0; i < steps().size() && chosen().after.lane < 0; ++i) at_ = (at_ + 1) % steps().size();
    if (chosen().after.lane >= 0 && !chance(random_, 4)) return chosen().after = {}, "after";
    auto& lanes = score_.players[rank_].lanes;
    const std::size_t other = below(random_, lanes.size());
    if (!lanes[other].empty())
      chosen().after = {static_cast<int>(other), static_cast<int>(below(random_, lanes[other].size()))};
    return "after";
  }
  std::string credits() {
    it_.limits.credits = 1 + static_cast<int>(below(random_, it_.limits.credits));
    return "credits";
  }
  std::string unfan() {
    for (step& s : steps()) s.fan = 0;
    return "unfan";
  }

  /// Clears what the kind does not use and what refers to nothing.
  void tidy() {
    for (std::size_t r = 0; r < score_.players.size(); ++r)
      for (std::size_t l = 0; l < score_.players[r].lanes.size(); ++l) {
        lane& all = score_.players[r].lanes[l];
        for (std::size_t i = 0; i < all.size(); ++i) tidy(all[i], r, l, i);
      }
  }
  void tidy(step& s, std::size_t r, std::size_t l, std::size_t i) {
    rank_ = r;
    const auto peer = [&](rank_t& p, bool used) {
      if (!used) p = -1;
      else if (p < 0 || p == static_cast<rank_t>(r)) p = other_rank();
    };
    peer(s.from, receives(s.kind));
    peer(s.to, sends(s.kind));
    if (!reads_source(s.kind)) s.source = {};
    if (!writes(s.kind)) s.target = {};
    if (s.kind != step_kind::recv_reduce) s.fan = 0;
    for (place* at : {&s.source, &s.target}) {
      if (at->owner == static_cast<rank_t>(r)) at->owner = self;
      if (at->count > 0 && std::int64_t{at->cell} + at->count > room(*at)) *at = {};
    }
    const auto& lanes = score_.players[r].lanes;
    if (s.after.lane < 0) return;
    const bool exists = s.after.step >= 0 && static_cast<std::size_t>(s.after.lane) < lanes.size() &&
                        static_cast<std::size_t>(s.after.step) < lanes[static_cast<std::size_t>(s.after.lane)].size();
    if (!exists || (s.after.lane == static_cast<int>(l) && s.after.step >= static_cast<int>(i))) s.after = {};
  }

  specimen& it_;
  score& score_;
  random_source& random_;
  std::size_t rank_ = 0, lane_ = 0, at_ = 0;
};

// -- judging ----------------------------------------------------------------------------------------------------------

struct tally {
  int judged = 0, exhaustive = 0, accepted = 0, refused_wrong = 0, unsettled = 0;
  std::size_t states = 0;
  std::map<std::string, int> benign;  ///< refused although every order gives the right bytes, by reason

  void print(const char* title) const {
    std::printf("%s: %d scores, %d of them in every order (%zu states); accepted and right %d, refused and wrong %d",
                title, judged, exhaustive, states, accepted, refused_wrong);
    if (unsettled > 0) std::printf(", refused and not seen to go wrong in some random orders %d", unsettled);
    for (const auto& [reason, count] : benign) std::printf("; refused though right, %s: %d", reason.c_str(), count);
    std::printf("\n");
    std::fflush(stdout);
  }
};

bool has_fans(const score& s) {
  for (const part& p : s.players)
    for (const lane& l : p.lanes)
      if (std::any_of(l.begin(), l.end(), [](const step& st) { return st.fan != 0; })) return true;
  return false;
}

/// Why a refused score may still be right in every order. The oracle's own observations, except for the rules of notation.
std::string benign_reason(const oracle::finding& f, const verdict& v) {
  if (f.race) return "race without effect";
  if (f.overwritten) return "overwrites with the same";
  if (f.unwritten) return "unwritten cell of no consequence";
  if (f.doubled) return "double count of no consequence";
  if (f.mixed) return "mixture of no consequence";
  if (v.first_fault->what.find("fan") != std::string::npos) return "rules of fans";
  return "";
}

void judge(const specimen& it, const std::string& history, const oracle::options& how, tally& t) {
  const verdict v = verify(it.what, it.limits);
  const oracle::finding f = oracle::ask(it.what, it.limits, how);
  const auto report = [&] {
    return it.what.choreography + ' ' + std::string{name(it.what.what)} + (it.what.in_place ? " in place" : "") +
           ", credits " + std::to_string(it.limits.credits) + ", slices " + std::to_string(it.limits.slices) +
           ", changed: " + history + "\nverifier: " + (v.ok() ? "right" : to_string(*v.first_fault)) +
           "\noracle: " + (f.right() ? "right" : f.wrong) + '\n' + to_text(it.what);
  };
  ++t.judged;
  t.exhaustive += f.exhaustive;
  t.states += f.states;
  if (v.ok()) {
    ++t.accepted;
    CHECK_MESSAGE(f.right(), report());
    CHECK_MESSAGE((!f.right() || f.clean()), report());
    if (!f.right() || has_fans(it.what)) return;
    CHECK_MESSAGE(!f.unstable, report());
    if (is_reduction(it.what.what))
      for (rank_t r = 0; r < it.what.ranks; ++r)
        for (std::size_t c = 0; c < f.trees[static_cast<std::size_t>(r)].size(); ++c)
          CHECK_MESSAGE(tree_of(v, r, static_cast<std::int32_t>(c)) == f.trees[static_cast<std::size_t>(r)][c],
                        report());
  } else if (!f.right()) {
    ++t.refused_wrong;
  } else if (!f.exhaustive) {
    ++t.unsettled;
  } else {
    const std::string reason = benign_reason(f, v);
    CHECK_MESSAGE(!reason.empty(), report());
    ++t.benign[reason];
  }
}

void break_and_judge(const specimen& right, int mutants, random_source& random, const oracle::options& how, tally& t) {
  for (int i = 0; i < mutants; ++i) {
    specimen broken = right;
    std::string history;
    for (int tries = 0; tries < 100 && broken.what == right.what && broken.limits.credits == right.limits.credits;
         ++tries)
      for (std::size_t changes = 1 + below(random, 2); changes > 0; --changes)
        history += breaker{broken, random}.break_something() + ' ';
    oracle::options seeded = how;
    seeded.seed = random();
    judge(broken, history, seeded, t);
  }
}

// -- specimens --------------------------------------------------------------------------------------------------------

score with_fan() {
  score_builder s{flat_setup(collective::reduce, 3), "fan", 1};
  s.lane(1).to(0).send(input[0]);
  s.lane(2).to(0).send(input[0]);
  auto me = s.lane(0);
  me.copy(input[0], output[0]);
  me.fan(1).from(1).recv_reduce(output[0]);
  me.from(2).recv_reduce(output[0]);
  return s.finish();
}

score with_two_lanes_and_l0() {
  score_builder s{flat_setup(collective::broadcast, 2), "l0", 1};
  const cells tile = s.l0_like(0, input[0]);
  s.l0_like(1, output[0]);
  const step_ref got = s.lane(0, 0).dma_get(input[0], tile);
  auto second = s.lane(0, 1).to(1).from(1);
  second.after(got).dma_put(tile, output[0]);
  second.send(tile);
  const step_ref read = second.await(1);
  s.lane(0, 0).wait(read);
  auto other = s.lane(1, 1).from(0);
  other.recv(l0[0]);
  other.signal(0);
  other.dma_put(l0[0], output[0]);
  return s.finish();
}

score with_other_ranks_buffers() {
  score_builder s{flat_setup(collective::all_gather, 2), "owners", 1};
  for (rank_t r = 0; r < 2; ++r) {
    auto me = s.lane(r).from(1 - r).to(1 - r);
    me.signal(1 - r);
    me.await(1 - r);
    me.copy(input[0], output[r]);
    me.copy(input[0], output.of(1 - r)[r]);
    me.signal(1 - r);
    me.await(1 - r);
  }
  return s.finish();
}

/// With one credit the third send tells that the first message was read, so its cell may be used again.
score with_credit_that_orders() {
  score_builder s{flat_setup(collective::broadcast, 2), "credits", 2};
  const cells slot = s.scratch_blocks(0, {0});
  s.draft().players[0].scratch[1].part = 0;
  auto sender = s.lane(0).to(1);
  sender.copy(input.all(), output.all());
  sender.copy(input[0], {slot.buffer, self, slot.first, 1, false});
  sender.send(scratch[0]);
  sender.send(input[1]);
  sender.copy(input[0], scratch[0]);
  auto receiver = s.lane(1).from(0);
  receiver.recv(output[0]);
  receiver.recv(output[1]);
  return s.finish();
}

score in_place_exchange() {
  score_builder s{flat_setup(collective::all_reduce, 2, 0, true), "exchange", 1};
  for (rank_t r = 0; r < 2; ++r) {
    const cells kept = s.scratch_like(r, input[0]);
    auto me = s.lane(r).from(1 - r).to(1 - r);
    me.send(input[0]);
    me.recv(kept);
    me.signal(1 - r);
    me.await(1 - r);
    me.swapped(r == 1).reduce(kept, output[0]);
  }
  return s.finish();
}

/// Lanes that write the same cells, in an order that only `after` gives.
score with_rewritten_cells() {
  score_builder s{flat_setup(collective::all_to_all, 2), "rewritten", 1};
  for (rank_t r = 0; r < 2; ++r) {
    const step_ref scribbled = s.lane(r, 0).copy(input.all(), output.all());
    s.lane(r, 0).from(1 - r).recv(output[1 - r]);
    const step_ref kept = s.lane(r, 1).after(scribbled).copy(input[r], output[r]);
    s.lane(r, 0).to(1 - r).after(kept).send(input[1 - r]);
  }
  for (part& p : s.draft().players) std::swap(p.lanes[0][1], p.lanes[0][2]);
  return s.finish();
}

/// Rank 0 waits for all and then tells all.
score with_a_gatekeeper() {
  score_builder s{flat_setup(collective::barrier, 3), "gatekeeper", 1};
  for (rank_t r = 1; r < 3; ++r) s.lane(r).signal(0);
  for (rank_t r = 1; r < 3; ++r) s.lane(0).await(r);
  for (rank_t r = 1; r < 3; ++r) s.lane(0).signal(r);
  for (rank_t r = 1; r < 3; ++r) s.lane(r).await(0);
  return s.finish();
}

/// Rank 1 passes on what it receives; with one credit it could do so from one cell if it waited for the credit first.
score with_a_relay() {
  score_builder s{flat_setup(collective::scatter, 3), "relay", 1};
  s.scratch_blocks(1, {2, 1});
  s.scratch_block(2, 1);
  auto root = s.lane(0).to(1);
  root.copy(input[0], output[0]);
  root.send(input[2]);
  root.send(input[1]);
  auto relay = s.lane(1).from(0).to(2);
  relay.recv_copy_send(scratch[0]);
  relay.recv_copy_send(scratch[1]);
  relay.copy(scratch[1], output[0]);
  s.lane(2).from(1).recv(output[0]);
  s.lane(2).from(1).recv(scratch[0]);
  return s.finish();
}

std::vector<specimen> by_hand() {
  return {{with_fan(), {2, 1}},
          {with_two_lanes_and_l0(), {1, 2}},
          {with_other_ranks_buffers(), {2, 1}},
          {with_credit_that_orders(), {1, 1}},
          {in_place_exchange(), {2, 1}},
          {with_rewritten_cells(), {2, 1}},
          {with_a_gatekeeper(), {2, 1}},
          {with_a_relay(), {1, 1}}};
}

std::vector<specimen> from_choreographies(int from, int to) {
  std::vector<specimen> list;
  for (const choreography* c : all_choreographies())
    for (const collective what : c->collectives)
      for (int n = from; n <= to; ++n)
        for (const bool in_place : {false, true}) {
          setup on = flat_setup(what, n, n - 1, in_place, !in_place);
          on.streams = 2;
          if (!refusal(*c, on).empty()) continue;
          list.push_back({lower_syncs(write_score(*c, on)), {2, in_place ? 1 : 2}});
          if (step_total(list.back().what) > 60) list.back().limits.slices = 1;
        }
  return list;
}

}  // namespace

TEST_CASE("the oracle itself: it sees hangs, wrong bytes, lost messages and races") {
  const auto ask = [](const score& s, int credits = 2) { return oracle::ask(s, {credits, 1}, {}); };
  CHECK(ask(in_place_exchange()).clean());
  CHECK(ask(with_fan()).clean());
  CHECK(ask(with_credit_that_orders(), 1).clean());
  const oracle::finding overwritten = ask(with_credit_that_orders(), 3);
  CHECK(overwritten.right());
  CHECK(overwritten.overwritten);

  score s = in_place_exchange();
  std::swap(s.players[0].lanes[0][0], s.players[0].lanes[0][1]);
  CHECK(ask(s).right());
  std::swap(s.players[1].lanes[0][0], s.players[1].lanes[0][1]);
  CHECK(ask(s).wrong.find("hangs") != std::string::npos);
  s = in_place_exchange();
  s.players[1].lanes[0].pop_back();
  CHECK(ask(s).wrong.find("output[0] is wrong") != std::string::npos);
  s = in_place_exchange();
  s.players[1].lanes[0].push_back(s.players[1].lanes[0].back());
  CHECK(ask(s).wrong.find("output[0] is wrong: ((0+1)+") == std::string::npos);
  CHECK_FALSE(ask(s).right());
  s = in_place_exchange();
  s.players[0].lanes[0].insert(s.players[0].lanes[0].end(), s.players[0].lanes[0][2]);
  CHECK(ask(s).wrong == "a message is never received");
  s = in_place_exchange();
  for (part& p : s.players) p.lanes[0].erase(p.lanes[0].begin() + 2, p.lanes[0].begin() + 4);
  CHECK(ask(s).wrong == "a cell was overwritten before its receiver read it");
}

TEST_CASE("the verifier and the oracle agree that scores as written are right") {
  tally t;
  for (const specimen& it : by_hand()) judge(it, "nothing", {}, t);
  CHECK(t.accepted == 8);
  const auto written = from_choreographies(2, 3);
  for (const specimen& it : written) judge(it, "nothing", {}, t);
  // One credit is too little for some of them; then both must say so.
  for (specimen it : written) it.limits.credits = 1, judge(it, "one credit", {}, t);
  CHECK(t.accepted > static_cast<int>(written.size()));
  t.print("as written");
}

TEST_CASE("no mutant that goes wrong passes the verifier; by hand") {
  random_source random{seed()};
  tally t;
  for (const specimen& it : by_hand()) break_and_judge(it, 400, random, {}, t);
  t.print("by hand, broken");
  CHECK(t.accepted > 0);
  CHECK(t.refused_wrong > 0);
}

TEST_CASE("no mutant that goes wrong passes the verifier; choreographies in every order") {
  random_source random{seed() + 1};
  tally t;
  for (const specimen& it : from_choreographies(2, 3)) break_and_judge(it, 15, random, {10'000, 30, 0}, t);
  t.print("2 and 3 ranks, broken");
  CHECK(t.exhaustive > t.judged / 2);
  CHECK(t.accepted > 0);
  CHECK(t.refused_wrong > t.judged / 4);
}

TEST_CASE("no mutant that goes wrong passes the verifier; more ranks in random orders") {
  random_source random{seed() + 2};
  tally t;
  for (const specimen& it : from_choreographies(4, 6)) break_and_judge(it, 6, random, {200, 10, 0}, t);
  t.print("4 to 6 ranks, broken");
  CHECK(t.accepted > 0);
  CHECK(t.refused_wrong > t.judged / 4);
}
