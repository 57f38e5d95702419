// SPDX-License-Identifier: Apache-2.0
// The agreement on who is left, under simulated processes that are killed at any moment, taken for lost though they live, absent, or never
// come: the states that run in comm.shrink(), with a network whose every choice comes from a seed.

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/tools/simulate/dice.hpp"
#include "protocols/agreement/survivors.hpp"

using namespace troupe;
using troupe::simulate::dice;

namespace {

struct settings {
  bool kills = true;
  bool accusations = false;  ///< living processes are taken for lost
  bool holdouts = false;     ///< some never contribute
};

/// What travels: a word, or the news that somebody is lost.
struct message {
  survivors_word word;
  std::optional<std::uint32_t> lost;
};

class network {
public:
  network(std::uint64_t seed, const settings& how) : dice_(seed), how_(how) {
    const auto n = static_cast<std::uint32_t>(dice_.between(1, 7));
    for (std::uint32_t p = 0; p < n; ++p) {
      auto made = std::make_unique<process>(*this, p, n);
      for (int r = dice_.between(1, 2); r > 0; --r) made->ranks.push_back(ranks_++);
      made->absent = n > 1 && dice_.one_in(12);
      made->holdout = how_.holdouts && dice_.one_in(6);
      all_.push_back(std::move(made));
    }
    wires_.assign(n, std::vector<std::deque<message>>(n));
    faults_ = static_cast<int>(dice_.below(n + 1));
  }

  /// A text that says what is wrong; empty: nothing.
  std::string run() {
    for (steps_ = 0; steps_ < most_steps; ++steps_) {
      const auto events = possible();
      if (events.empty()) return verdict();
      events[dice_.index(events.size())]();
      if (!fault_.empty()) return fault_;
    }
    return "it does not come to an end";
  }

  int decided() const {
    return static_cast<int>(
        std::count_if(all_.begin(), all_.end(), [](const auto& p) { return p->answer.has_value(); }));
  }
  int after_kills() const { return killed_ > 0 ? decided() : 0; }

private:
  static constexpr int most_steps = 20'000;
  using event = std::function<void()>;

  struct process final : survivors::outbox {
    process(network& in, std::uint32_t number, std::uint32_t n)
        : net(in), at(number), state(n, number), lost(n), wrongly(n) {}
    void send(std::uint32_t to, survivors_word what) override {
      if (to == at || lost[to]) net.fault_ = "it speaks to itself, or to who is gone";
      for (const auto& list : {what.ranks, what.list})  // or its receiver takes it for nonsense
        if (std::adjacent_find(list.begin(), list.end(), std::greater_equal<>{}) != list.end())
          net.fault_ = "a list is out of order";
      net.wires_[at][to].push_back({std::move(what), std::nullopt});
    }
    void decided(const std::vector<rank_t>& members) override {
      if (answer) net.fault_ = "it has decided twice";
      answer = members;
    }
    network& net;
    std::uint32_t at;
    survivors state;
    std::vector<bool> lost;     ///< it has lost them
    std::vector<bool> wrongly;  ///< though they lived
    std::vector<rank_t> ranks;
    std::optional<std::vector<rank_t>> answer;
    std::uint32_t registrar = 0;
    bool absent = false, holdout = false, dead = false, expelled = false, contributed = false;
    bool runs() const { return !dead && !expelled; }
  };

  std::vector<event> possible() {
    std::vector<event> events;
    const auto n = static_cast<std::uint32_t>(all_.size());
    for (std::uint32_t p = 0; p < n; ++p) {
      process& me = *all_[p];
      if (!me.runs()) continue;
      if (!me.contributed && !me.absent && !me.holdout)
        events.emplace_back([&me] {
          me.contributed = true;
          me.state.contribute(me.ranks, me);
        });
      if (faults_ > 0 && how_.kills && n > 1) events.emplace_back([this, p] { kill(p); });
      for (std::uint32_t q = 0; q < n; ++q) {
        if (q == p) continue;
        // Also from a lost process: the state itself has to be deaf to it.
        if (!wires_[q][p].empty()) events.emplace_back([this, q, p] { deliver(q, p); });
        // Whose connections have ended, because it is dead or has lost this one.
        if (me.lost[q]) continue;
        if (all_[q]->dead || all_[q]->expelled || all_[q]->lost[p]) events.emplace_back([this, q, p] { lose(p, q); });
        if (faults_ > 0 && how_.accusations) events.emplace_back([this, q, p] { accuse(q, p); });
      }
    }
    return events;
  }

  void kill(std::uint32_t p) {
    if (!dice_.one_in(8)) return;  // else most would die before they have said a word
    --faults_;
    ++killed_;
    all_[p]->dead = true;
    // What was on its way may arrive, up to some message.
    for (auto& wire : wires_[p]) wire.resize(dice_.index(wire.size() + 1));
  }
  void accuse(std::uint32_t of, std::uint32_t by) {
    if (!dice_.one_in(16)) return;
    --faults_;
    lose(by, of);
  }

  void lose(std::uint32_t p, std::uint32_t whom) {
    process& me = *all_[p];
    if (me.lost[whom]) return;
    // It may live, and hears so, unless nothing gets there any more.
    if (!dice_.one_in(4)) wires_[p][whom].push_back({{}, whom});
    me.lost[whom] = true;
    me.wrongly[whom] = !all_[whom]->dead;
    spread(me, whom);
    if (!me.absent) me.state.lost(whom, me);
  }

  /// As a job does: the registrar, the first one that is left, is told, and tells all; a new registrar everything (docs/protocol.md, 5).
  void spread(process& me, std::uint32_t whom) {
    std::uint32_t registrar = 0;
    while (registrar != me.at && me.lost[registrar]) ++registrar;
    const bool fresh = std::exchange(me.registrar, registrar) != registrar;
    for (std::uint32_t gone = 0; gone < all_.size(); ++gone) {
      if (!me.lost[gone] || (gone != whom && !fresh)) continue;
      for (std::uint32_t q = 0; q < all_.size(); ++q)
        if (q != me.at && !me.lost[q] && (registrar == me.at || registrar == q)) wires_[me.at][q].push_back({{}, gone});
    }
  }

  void deliver(std::uint32_t from, std::uint32_t to) {
    process& me = *all_[to];
    const message m = std::move(wires_[from][to].front());
    wires_[from][to].pop_front();
    if (m.lost) {
      if (me.lost[from]) return;
      if (*m.lost != to) return lose(to, *m.lost);
      me.expelled = true;
      return;
    }
    if (!me.absent) return me.state.heard(from, m.word, me);
    wires_[to][from].push_back({{survivors_word::kind::absent, 0, 0, {}, {}}, std::nullopt});
  }

  /// A process that lives and is taken for lost, or takes the others for it, is on its own.
  static bool apart(const process& a, const process& b) {
    return a.expelled || b.expelled || a.wrongly[b.at] || b.wrongly[a.at];
  }

  /// `b` is in the answer of `a`. @pre there is one
  static bool has(const process& a, const process& b) {
    return std::binary_search(a.answer->begin(), a.answer->end(), b.ranks[0]);
  }

  std::string verdict() const {
    for (const auto& a : all_) {
      if (!a->answer) continue;
      if (!std::is_sorted(a->answer->begin(), a->answer->end())) return "ranks are out of order";
      for (const auto& b : all_) {
        const bool member = has(*a, *b);
        // A process that was killed has had the same answer, too. One that an answer leaves out gets an error instead.
        if (!apart(*a, *b) && member && b->answer && has(*b, *b) && a->answer != b->answer)
          return "there are two answers";
        if (member && !b->contributed) return "a process that never came is a member";
        if (!how_.accusations && !b->dead && b->contributed && !member) return "a living process was left out";
      }
    }
    for (const auto& p : all_) {
      if (!p->runs() || !p->contributed || p->answer) continue;
      bool waits_for_somebody = false;
      for (const auto& q : all_) waits_for_somebody |= q->holdout && q->runs() && !q->absent && !p->lost[q->at];
      if (!waits_for_somebody) return "process " + std::to_string(p->at) + " waits for ever";
      for (const std::uint32_t q : p->state.missing())
        if (!all_[q]->holdout) return "it names the wrong ones";
      if (p->state.missing().empty()) return "it does not say whom it waits for";
    }
    return {};
  }

  dice dice_;
  settings how_;
  std::vector<std::unique_ptr<process>> all_;
  std::vector<std::vector<std::deque<message>>> wires_;  ///< from, to
  rank_t ranks_ = 0;
  int faults_ = 0, killed_ = 0, steps_ = 0;
  std::string fault_;
};

void check_seeds(std::uint64_t seeds, const settings& how) {
  long decided = 0, after_kills = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    network net(seed, how);
    const std::string fault = net.run();
    REQUIRE_MESSAGE(fault.empty(), "seed " << seed << ": " << fault);
    decided += net.decided();
    after_kills += net.after_kills();
  }
  CHECK(decided > static_cast<long>(seeds));
  if (how.kills) CHECK(after_kills > static_cast<long>(seeds) / 4);
}

}  // namespace

TEST_CASE("processes that are killed at any moment leave one answer, and everybody who lives gets it") {
  check_seeds(60'000, {});
}

TEST_CASE("living processes that are taken for lost make no two answers among those who count on each other") {
  check_seeds(60'000, {.accusations = true});
}

TEST_CASE("who waits for a process that never comes can name it") {
  check_seeds(20'000, {.kills = false, .holdouts = true});
  check_seeds(20'000, {.holdouts = true});
}
