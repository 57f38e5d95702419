// SPDX-License-Identifier: Apache-2.0
#include "protocols/lower/lowering.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>

#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/rewriting.hpp"
#include "protocols/score/score_builder.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/protocols/most_ranks.hpp"
#include "tests/seed.hpp"

namespace lowering_test {

using namespace troupe;
using namespace troupe::notation;

namespace {

/// Performs a one-cell score on words, one random ready lane at a time. A reduction of l and r is "(l+r)". What a send names
/// is read when it is received, as in a real run, so a cell changed too early shows.
class word_run {
public:
  word_run(const score& s, int credits, std::mt19937_64& random) : s_(s), credits_(credits), random_(random) {
    for (rank_t r = 0; r < s.ranks; ++r)
      for (std::int32_t c = 0; c < cell_count(s, r, buffer_kind::input); ++c) {
        const extent e = extent_of(s, r, buffer_kind::input, c);
        word(r, {buffer_kind::input, self, c, 1}) =
            std::to_string(r) + '/' + std::to_string(e.block) + '.' + std::to_string(e.part);
      }
  }

  bool run() {
    std::vector<std::pair<rank_t, std::size_t>> alive;
    for (rank_t r = 0; r < s_.ranks; ++r) {
      next_.emplace_back(lanes(r).size(), std::size_t{0});
      for (std::size_t l = 0; l < lanes(r).size(); ++l) alive.emplace_back(r, l);
    }
    while (!alive.empty()) {
      std::shuffle(alive.begin(), alive.end(), random_);
      bool moved = false;
      for (std::size_t i = 0; i < alive.size();) {
        const auto [r, l] = alive[i];
        if (next(r, l) == lanes(r)[l].size()) {
          alive[i] = alive.back();
          alive.pop_back();
          moved = true;
          continue;
        }
        if (ready(r, l, lanes(r)[l][next(r, l)])) {
          perform(r, l, lanes(r)[l][next(r, l)]);
          ++next(r, l);
          moved = true;
        }
        ++i;
      }
      if (!moved) return false;
    }
    return true;
  }

  std::string& word(rank_t rank, const place& at) {
    const place c = canonical(s_, rank, at);
    return words_[{c.owner, static_cast<int>(c.buffer), c.cell}];
  }

private:
  struct message {
    std::optional<place> reference;
    std::string words;
  };
  std::vector<lane>& lanes(rank_t r) { return s_.players[static_cast<std::size_t>(r)].lanes; }
  std::size_t& next(rank_t r, std::size_t l) { return next_[static_cast<std::size_t>(r)][l]; }
  std::deque<message>& channel(rank_t a, rank_t b, std::size_t l) { return channels_[{a, b, l}]; }

  bool ready(rank_t r, std::size_t l, const step& at) {
    if (at.after.lane >= 0 &&
        next(r, static_cast<std::size_t>(at.after.lane)) <= static_cast<std::size_t>(at.after.step))
      return false;
    if (receives(at.kind) && channel(at.from, r, l).empty()) return false;
    return !sends(at.kind) || channel(r, at.to, l).size() < static_cast<std::size_t>(credits_);
  }

  void perform(rank_t r, std::size_t l, const step& at) {
    std::string value;
    if (receives(at.kind)) {
      const message m = channel(at.from, r, l).front();
      channel(at.from, r, l).pop_front();
      value = m.reference ? word(at.from, *m.reference) : m.words;
      if (reduces(at.kind)) value = combine(at.swapped, value, word(r, reads_target(at.kind) ? at.target : at.source));
    } else if (at.kind == step_kind::reduce) {
      value = combine(at.swapped, word(r, at.target), word(r, at.source));
    } else if (writes(at.kind)) {
      value = word(r, at.source);
    }
    if (writes(at.kind) && at.target.count > 0) word(r, at.target) = value;
    if (!sends(at.kind)) return;
    if (at.kind == step_kind::recv_reduce_send) return channel(r, at.to, l).push_back({std::nullopt, value});
    const place& from = at.kind == step_kind::send ? at.source : at.target;
    if (from.count == 0) return channel(r, at.to, l).push_back({std::nullopt, ""});
    channel(r, at.to, l).push_back({from, ""});
  }

  static std::string combine(bool swapped, const std::string& l, const std::string& r) {
    return swapped ? '(' + r + '+' + l + ')' : '(' + l + '+' + r + ')';
  }

  score s_;
  int credits_;
  std::mt19937_64& random_;
  std::vector<std::vector<std::size_t>> next_;
  std::map<std::tuple<rank_t, int, std::int32_t>, std::string> words_;
  std::map<std::tuple<rank_t, rank_t, std::size_t>, std::deque<message>> channels_;
};

std::string left_fold_of(int ranks, const extent& e) {
  std::string all;
  for (int r = 0; r < ranks; ++r) {
    const std::string own = std::to_string(r) + '/' + std::to_string(e.block) + '.' + std::to_string(e.part);
    all = r == 0 ? own : '(' + all + '+' + own + ')';
  }
  return all;
}

std::string title(const choreography& c, const setup& on) {
  return std::string{c.name} + ' ' + std::string{name(on.what)} + ", " + std::to_string(on.ranks) + " ranks, root " +
         std::to_string(on.root) + ", " + std::to_string(on.placement.servers) + " servers" +
         (on.in_place ? ", in place" : "") + (on.uniform ? "" : ", v");
}

template <class Visit>
void for_each_setup(const std::vector<int>& rank_counts, Visit visit) {
  for (const choreography* c : all_choreographies())
    for (const collective what : c->collectives)
      for (const int ranks : rank_counts)
        for (rank_t root = 0; ranks <= most_ranks && root < (has_root(what) ? ranks : 1); ++root)
          for (const bool in_place : {false, true})
            for (const bool uniform : {true, false}) {
              setup on = flat_setup(what, ranks, root, in_place, uniform);
              if (refusal(*c, on).empty()) visit(*c, on);
              // Hierarchies, also with servers of different sizes.
              for (const int servers : {2, 3}) {
                if (ranks < 2 * servers) continue;
                on.placement = layout::spread(ranks, servers, ranks > 8 ? 2 : 1);
                if (refusal(*c, on).empty()) visit(*c, on);
              }
            }
}

score lowered(const choreography& c, const setup& on) { return one_cell_per_step(lower_syncs(write_score(c, on))); }

std::string fault_text(const verdict& v) { return v.first_fault ? to_string(*v.first_fault) : "right"; }

score empty_score(collective what, int ranks) { return score_builder{flat_setup(what, ranks), "test", 1}.finish(); }

step sync_step() {
  step s;
  s.kind = step_kind::sync;
  return s;
}

std::string message_of(const auto& action) {
  try {
    action();
  } catch (const error& e) {
    CHECK(e.code_value() == errc::bad_score);
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a sync becomes rounds of tokens, and references follow it") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    CAPTURE(ranks);
    score_builder b{flat_setup(collective::barrier, ranks), "syncs", 1};
    for (rank_t r = 0; r < ranks; ++r) {
      auto one = b.lane(r, 0);
      auto two = b.lane(r, 1);
      const step_ref before = two.wait({});
      one.after(before).sync();
      const step_ref second = one.sync();
      one.wait({});
      two.wait(second);
    }
    const score s = lower_syncs(b.finish());
    int rounds = 0;
    while (1 << rounds < ranks) ++rounds;
    const std::size_t each = ranks == 1 ? 1 : static_cast<std::size_t>(2 * rounds);
    for (const part& p : s.players) {
      REQUIRE(p.lanes[0].size() == 2 * each + 1);
      CHECK(p.lanes[0][0].after == step_ref{1, 0});
      CHECK(p.lanes[0][each].after == step_ref{});
      CHECK(p.lanes[1][1].after == step_ref{0, static_cast<std::int32_t>(2 * each) - 1});
    }
    const verdict v = verify(s, {1, 2});
    CHECK_MESSAGE(v.ok(), fault_text(v));
  }
}

TEST_CASE("a sync that a rank lacks is refused by name") {
  score s = empty_score(collective::barrier, 3);
  for (rank_t r : {0, 1}) s.players[static_cast<std::size_t>(r)].lanes = {{}, {sync_step()}};
  const std::string text = message_of([&] { lower_syncs(s); });
  CHECK(text.find("lane 1 of rank 0 has 1 syncs, that of rank 2 has 0") != std::string::npos);
}

TEST_CASE("passes refuse references to steps that are not there, and scores without players") {
  score s = empty_score(collective::barrier, 2);
  step waiting;
  waiting.after = {3, 9};
  s.players[1].lanes = {{waiting}};
  for (const auto& pass : {+[](const score& x) { lower_syncs(x); }, +[](const score& x) { one_cell_per_step(x); },
                           +[](const score& x) { fold_in_rank_order(x); }, +[](const score& x) { pace_sends(x, 2); }}) {
    CHECK(message_of([&] { pass(s); }).find("rank 1, lane 0, step 0 waits for lane 3 step 9") != std::string::npos);
    CHECK(message_of([&] { pass(score{}); }).find("0 players") != std::string::npos);
  }
}

TEST_CASE("steps on several cells become one a cell; fans keep their rules") {
  score_builder b{flat_setup(collective::reduce, 3), "fan", 3};
  auto root = b.lane(0);
  root.copy(input.all(), output.all());
  root.fan(7);
  root.from(1).recv_reduce(output.all());
  const step_ref last = root.from(2).recv_reduce(output.all());
  root.fan(0);
  b.lane(0, 1).wait(last);
  for (rank_t r : {1, 2}) b.lane(r).to(0).send(input.all());
  const score s = one_cell_per_step(b.finish());
  const lane& steps = s.players[0].lanes[0];
  REQUIRE(steps.size() == 9);
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(steps[3 + 2 * c].target == place{buffer_kind::output, self, static_cast<std::int32_t>(c), 1});
    CHECK(steps[3 + 2 * c].target == steps[4 + 2 * c].target);
    CHECK(steps[3 + 2 * c].fan == steps[4 + 2 * c].fan);
    CHECK(steps[3 + 2 * c].from == 1);
    CHECK(steps[4 + 2 * c].from == 2);
    CHECK(steps[3 + 2 * c].fan == c + 1);
  }
  CHECK(s.players[0].lanes[1][0].after == step_ref{0, 8});
  for (const int credits : {1, 8}) {
    const verdict v = verify(s, {credits, 2});
    CHECK_MESSAGE(v.ok(), fault_text(v));
  }
}

TEST_CASE("an exchange of long messages still runs with few credits after it was cut") {
  score_builder b{flat_setup(collective::all_to_all, 2), "exchange", 20};
  for (rank_t r : {0, 1}) {
    auto me = b.lane(r).to(1 - r).from(1 - r);
    me.send(input.block(1 - r));
    me.recv(output.block(1 - r));
    me.copy(input.block(r), output.block(r));
  }
  const score whole = b.finish();
  REQUIRE(verify(whole, {1, 1}).ok());
  const score s = one_cell_per_step(whole);
  const verdict v = verify(s, {2, 3});
  CHECK_MESSAGE(v.ok(), fault_text(v));
  CHECK(step_total(s) == 2 * 60);
}

TEST_CASE("an exchange that folds in fans keeps their rules when it is paced") {
  const int ranks = 4;
  score_builder b{flat_setup(collective::all_reduce, ranks), "fans", 12};
  for (rank_t r = 0; r < ranks; ++r) {
    auto me = b.lane(r);
    me.copy(input.all(), output.all());
    for (int d = 1; d < ranks; ++d) me.to(b.after(r, d)).send(input.all());
    me.fan(1);
    for (int d = 1; d < ranks; ++d) me.from(b.before(r, r % 2 == 0 ? d : ranks - d)).recv_reduce(output.all());
  }
  const score s = one_cell_per_step(b.finish());
  for (const int credits : {1, 2, 8}) {
    const score paced = credits == 1 ? pace_sends(s, 1) : s;
    const verdict v = verify(paced, {credits, 2});
    CHECK_MESSAGE(v.ok(), fault_text(v));
    int in_fans = 0;
    for (const part& p : paced.players)
      for (const step& at : p.lanes[0]) in_fans += at.fan != 0 ? 1 : 0;
    CHECK(in_fans == ranks * 12 * (ranks - 1));
  }
}

TEST_CASE("a fan into which a send has to come ends there") {
  score_builder b{flat_setup(collective::reduce, 3), "broken fan", 1};
  auto root = b.lane(0);
  root.copy(input[0], output[0]);
  root.to(1).signal(1);
  root.signal(1);
  root.fan(5);
  root.from(2).recv_reduce(output[0]);
  root.from(1).recv_reduce(output[0]);
  b.lane(2).to(0).send(input[0]);
  b.lane(1, 0).await(0);
  b.lane(1, 0).await(0);
  b.lane(1, 0).to(0).send(input[0]);
  // Rank 1 receives the first token only once rank 0 is in its fan.
  b.lane(1, 1).await(2);
  b.draft().players[1].lanes[0][0].after = {1, 0};
  b.lane(2, 1).await(0);
  b.lane(2, 1).signal(1);
  step_ref inside{0, 3};
  b.lane(0, 1).wait(inside);
  b.lane(0, 1).signal(2);
  const score s = pace_sends(b.finish(), 1);
  const lane& steps = s.players[0].lanes[0];
  REQUIRE(steps.size() == 5);
  CHECK(steps[2].fan == 5);
  CHECK(steps[3].kind == step_kind::send);
  CHECK(steps[4].fan == 0);
  const verdict v = verify(s, {1, 2});
  CHECK_MESSAGE(v.ok(), fault_text(v));
}

TEST_CASE("pacing marks the place of a send that others wait for") {
  score_builder b{flat_setup(collective::all_reduce, 2), "marks", 1};
  for (rank_t r : {0, 1}) {
    auto me = b.lane(r).to(1 - r).from(1 - r);
    step_ref last{};
    for (int i = 0; i < 3; ++i) last = me.send(token);
    for (int i = 0; i < 3; ++i) me.recv(token);
    b.lane(r, 1).wait(last);
  }
  const score s = pace_sends(b.finish(), 1);
  for (const part& p : s.players) {
    const step_ref mark = p.lanes[1][0].after;
    REQUIRE(mark.step >= 0);
    CHECK(p.lanes[0][static_cast<std::size_t>(mark.step)].kind == step_kind::wait);
    CHECK(p.lanes[0].size() == 7);
  }
  std::mt19937_64 random{seed()};
  CHECK(word_run{s, 1, random}.run());
}

TEST_CASE("a score that cannot end is left alone by pacing") {
  score_builder b{flat_setup(collective::barrier, 2), "stuck", 1};
  b.lane(0).await(1);
  b.lane(1).await(0);
  const score s = b.finish();
  CHECK(pace_sends(s) == s);
}

TEST_CASE("nonsense is left to the verifier") {
  score s = empty_score(collective::all_reduce, 2);
  step wild;
  wild.kind = step_kind::recv_reduce_send;
  wild.from = 1 << 30;
  wild.to = -7;
  wild.source = {buffer_kind::input, 99, 0, 2'000'000'000};
  s.players[0].lanes = {{wild, wild}};
  CHECK(one_cell_per_step(s) == s);
  CHECK(pace_sends(s) == s);
  CHECK_FALSE(verify(s).ok());
}

TEST_CASE("one cell per step stays right for every choreography") {
  int seen = 0;
  for_each_setup({1, 2, 3, 4, 5, 7, 8, 12}, [&](const choreography& c, const setup& on) {
    const score s = lowered(c, on);
    const verdict two = verify(s, {2, 2});
    CHECK_MESSAGE(two.ok(), title(c, on), ": ", fault_text(two));
    const verdict one = verify(pace_sends(s, 1), {1, 2});
    CHECK_MESSAGE(one.ok(), title(c, on), ", paced for one credit: ", fault_text(one));
    ++seen;
  });
  CHECK(seen > (most_ranks < 64 ? 200 : 500));
}

TEST_CASE("folding in rank order: verified, and every tree a left fold") {
  int seen = 0;
  for_each_setup({1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17}, [&](const choreography& c, const setup& on) {
    if (!is_reduction(on.what)) return;
    const score s = fold_in_rank_order(lowered(c, on));
    for (const int credits : {1, 2, 8}) {
      const verdict v = verify(credits == 1 ? pace_sends(s, 1) : s, {credits, credits == 2 ? 3 : 1});
      CHECK_MESSAGE(v.ok(), title(c, on), ", credits ", credits, ": ", fault_text(v));
      CHECK_MESSAGE(v.left_fold, title(c, on));
    }
    ++seen;
  });
  CHECK(seen > (most_ranks < 64 ? 100 : 300));
}

TEST_CASE("folding in rank order, performed on words in random order") {
  std::mt19937_64 random{seed()};
  for_each_setup({1, 2, 3, 5, 6, 8}, [&](const choreography& c, const setup& on) {
    if (!is_reduction(on.what)) return;
    const score s = fold_in_rank_order(lowered(c, on));
    word_run run{s, 2 + static_cast<int>(random() % 3), random};
    REQUIRE_MESSAGE(run.run(), title(c, on), " is stuck");
    for (rank_t r = 0; r < s.ranks; ++r)
      for (std::int32_t cell = 0; cell < cell_count(s, r, buffer_kind::output); ++cell) {
        const int terms = on.what == collective::scan ? r + 1 : on.what == collective::exscan ? r : s.ranks;
        const std::string right = left_fold_of(terms, extent_of(s, r, buffer_kind::output, cell));
        const std::string found = run.word(r, {buffer_kind::output, self, cell, 1});
        if (found != right) FAIL_CHECK(title(c, on), ": rank ", r, " output ", cell, " is ", found, ", not ", right);
      }
  });
}

TEST_CASE("a chain in rank order costs nothing more") {
  const int ranks = 6;
  score_builder b{flat_setup(collective::reduce, ranks, ranks - 1), "chain", 2};
  for (rank_t r = 0; r < ranks; ++r) {
    auto me = b.lane(r).from(r - 1).to(r + 1);
    for (int c = 0; c < 2; ++c) {
      if (r == 0) me.send(input[c]);
      else if (r < ranks - 1) me.recv_reduce_send(input[c]);
      else me.recv_reduce_copy(input[c], output[c]);
    }
  }
  const score s = b.finish();
  CHECK(fold_in_rank_order(s) == s);
}

TEST_CASE("a contribution in l0 is kept before the next slice takes the cell") {
  score_builder b{flat_setup(collective::reduce, 3, 1), "l0", 1};
  const cells shared[] = {b.l2_block(0), {}, b.l2_block(0)};
  for (rank_t r : {0, 2}) {
    const cells near = b.l0_like(r, input[0]);
    auto me = b.lane(r).to(1);
    me.dma_get(input[0], near);
    me.dma_put(near, shared[r]);
    me.signal(1);
  }
  const cells one = b.l0_like(1, input[0]);
  const cells two = b.l0_like(1, input[0]);
  const cells partial = b.scratch_like(1, input[0]);
  auto gather = b.lane(1, 0);
  gather.await(0);
  gather.await(2);
  gather.dma_get(shared[2], one);
  gather.dma_get(shared[0], two);
  gather.reduce(two, one);
  const step_ref done = gather.copy(one, partial);
  auto fold = b.lane(1, 1);
  fold.wait(done);
  fold.copy(input[0], output[0]);
  fold.reduce(partial, output[0]);
  const score s = b.finish();
  const verdict before = verify(s, {2, 4});
  REQUIRE_MESSAGE(before.ok(), fault_text(before));
  CHECK_FALSE(before.left_fold);
  const verdict after = verify(fold_in_rank_order(s), {2, 4});
  CHECK_MESSAGE(after.ok(), fault_text(after));
  CHECK(after.left_fold);
}

TEST_CASE("what is not a reduction only becomes one-cell steps") {
  for_each_setup({4}, [&](const choreography& c, const setup& on) {
    if (is_reduction(on.what)) return;
    const score s = lowered(c, on);
    CHECK_MESSAGE(fold_in_rank_order(s) == s, title(c, on));
  });
}

TEST_CASE("folding refuses what the verifier would have refused") {
  score_builder twice{flat_setup(collective::all_reduce, 2), "twice", 1};
  for (rank_t r : {0, 1}) {
    auto me = twice.lane(r).from(1 - r).to(1 - r);
    me.copy(input[0], output[0]);
    me.reduce(input[0], output[0]);
  }
  CHECK(message_of([&] { fold_in_rank_order(twice.finish()); }).find("contribution of rank 0 twice") !=
        std::string::npos);
  score_builder unwritten{flat_setup(collective::all_reduce, 2), "unwritten", 1};
  unwritten.lane(1).to(0).send(output[0]);
  CHECK(message_of([&] { fold_in_rank_order(unwritten.finish()); }).find("rank 1, lane 0, step 0 reads output[0]") !=
        std::string::npos);
  score_builder stuck{flat_setup(collective::all_reduce, 2), "stuck", 1};
  stuck.lane(1).from(0).recv(output[0]);
  CHECK(message_of([&] { fold_in_rank_order(stuck.finish()); }).find("can never run") != std::string::npos);
}

}  // namespace lowering_test
