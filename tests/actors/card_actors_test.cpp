// SPDX-License-Identifier: Apache-2.0
// The owners of a modelled card's memory, and how communicators come by it: core groups and the MPE, without an engine.

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/caf/caf_compat.hpp"
#include "actors/caf/fabric.hpp"
#include "actors/elements/tier_keeper.hpp"
#include "actors/rank/card_tiers.hpp"
#include "memory/error.hpp"
#include "memory/tiers/card_memory.hpp"
#include "topology/layout/layout.hpp"

namespace card_actors_test {

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr std::size_t page = card_sizes::page;

std::shared_ptr<card_tiers> communicator(std::vector<std::string>* complaints = nullptr) {
  return std::make_shared<card_tiers>([complaints](const std::string& what) {
    if (complaints != nullptr) complaints->push_back(what);
  });
}

/// L2 of a card with room for so many bytes.
std::shared_ptr<tier_heap> l2_of(std::size_t bytes) {
  const auto card = std::make_shared<card_memory>(
      card_options{.core_groups = 1, .l0_bytes = page, .hbm_bytes = bytes, .l1_bytes = 0});
  return {card, &card->l2()};
}

template <class Call>
errc code_of(Call&& call) {
  try {
    call();
  } catch (const error& e) {
    return e.code_value();
  }
  return errc::ok;
}

failure_ptr ended() { return make_failure(errc::actor_lost, "the owner has ended"); }

}  // namespace

TEST_CASE("a communicator asks once for each size, and its operations use the block one after the other") {
  const auto l2 = l2_of(64 * page);
  tier_keeper owner{l2};
  const auto mine = communicator();
  CHECK(mine->l2(1000) == nullptr);
  card_tiers::region block = owner.grant(*mine, card_tiers::shared, 1000);
  std::byte* const at = block.get();
  CHECK(mine->l2(1000) == nullptr);  // an operation uses it
  block.reset();
  CHECK(mine->l2(1001) == nullptr);
  CHECK(mine->l0(0, 1000) == nullptr);  // of another tier
  block = mine->l2(1000);
  CHECK(block.get() == at);
  CHECK(mine->l2(1000) == nullptr);
}

TEST_CASE("what no operation uses is kept, of each tier few blocks, and goes back with the communicator") {
  const auto l2 = l2_of(64 * page);
  tier_keeper owner{l2};
  auto mine = communicator();
  for (std::size_t k = 0; k <= card_tiers::most_kept; ++k)
    static_cast<void>(owner.grant(*mine, card_tiers::shared, 100 * page / 10 + k));
  CHECK(mine->l2(100 * page / 10) == nullptr);  // the oldest
  card_tiers::region used = mine->l2(100 * page / 10 + 1);
  CHECK(used != nullptr);
  mine.reset();
  CHECK(l2->use().in_use > 0);
  used.reset();  // of a communicator that is gone
  CHECK(l2->use().in_use == 0);
}

TEST_CASE("of large blocks that no operation uses the last one is kept") {
  const std::size_t large = card_tiers::most_kept_bytes + page;
  const auto l2 = l2_of(4 * large);
  tier_keeper owner{l2};
  const auto mine = communicator();
  static_cast<void>(owner.grant(*mine, card_tiers::shared, 100));
  static_cast<void>(owner.grant(*mine, card_tiers::shared, large));
  static_cast<void>(owner.grant(*mine, card_tiers::shared, large + page));
  CHECK(mine->l2(100) == nullptr);  // older than what is too large
  CHECK(mine->l2(large) == nullptr);
  CHECK(l2->use().in_use >= large + page);
  CHECK(l2->use().in_use < 2 * large);
  CHECK(mine->l2(large + page) != nullptr);
}

TEST_CASE("who finds a tier full has all communicators give back what they do not use, and no more") {
  const auto l2 = l2_of(8 * page);
  tier_keeper owner{l2};
  const auto mine = communicator(), others = communicator();
  static_cast<void>(owner.grant(*others, card_tiers::shared, 5 * page));
  CHECK(owner.grant(*mine, card_tiers::shared, 6 * page) != nullptr);
  CHECK(others->l2(5 * page) == nullptr);
  const card_tiers::region used = mine->l2(6 * page);
  REQUIRE(used != nullptr);
  CHECK(code_of([&] { owner.grant(*others, card_tiers::shared, 5 * page); }) == errc::out_of_memory);
  CHECK(owner.grant(*others, card_tiers::shared, page / 2) != nullptr);  // nothing happened to the tier
}

TEST_CASE("an owner that ends takes with it what is kept; what operations use stays valid") {
  tier_keeper owner{l2_of(8 * page)};
  const auto mine = communicator();
  static_cast<void>(owner.grant(*mine, card_tiers::shared, 100));
  const card_tiers::region used = owner.grant(*mine, card_tiers::shared, 200);
  owner.end(ended());
  CHECK(code_of([&] { static_cast<void>(mine->l2(100)); }) == errc::actor_lost);
  CHECK(code_of([&] { static_cast<void>(mine->l0(0, 100)); }) == errc::actor_lost);
  used.get()[199] = std::byte{1};
}

TEST_CASE("somebody who wrote behind the end of a block is complained of when it goes back") {
  std::vector<std::string> complaints;
  tier_keeper owner{l2_of(8 * page)};
  auto mine = communicator(&complaints);
  owner.grant(*mine, card_tiers::shared, 100).get()[100] = std::byte{1};
  CHECK(complaints.empty());
  mine.reset();
  REQUIRE(complaints.size() == 1);
  CHECK(complaints[0].find("L2") != std::string::npos);
}

// -- the actors -------------------------------------------------------------------------------------------------------

namespace {

/// One worker: what an actor does comes after all that one before it did.
struct one_worker : caf::actor_system_config {
  one_worker() {
    if (TROUPE_CAF_0) set("scheduler.max-threads", std::size_t{1});
    else set("caf.scheduler.max-threads", std::size_t{1});
  }
};

struct card_of_two {
  one_worker config;
  arena memory;
  std::optional<fabric> made;  // outlives the system's actors: declared before it
  caf::actor_system system{config};
  fabric& ways =
      made.emplace(system, machine{layout::parse("1x1x2")}, memory, card_sizes{2 * page, 8 * page}, false, nullptr);
  caf::scoped_actor self{system};

  ~card_of_two() { ways.close(); }

  /// What the owner of a tier answers.
  region_message order(const caf::actor& owner, const std::shared_ptr<card_tiers>& to, rank_t of, std::size_t bytes) {
    region_message got;
    ask(*self, owner, caf::infinite, region_order_message{to, of, bytes})
        .receive([&](region_message& answer) { got = std::move(answer); },
                 [&](const caf::error&) { got.why = ended(); });
    return got;
  }
  void kill(const caf::actor& who) {
    self->monitor(who);
    post_exit(who, caf::exit_reason::kill);
    self->receive([](const caf::down_msg&) {});
    // 1.x tells that before the actor's on_exit(), which the worker has left when it answers for another one.
    const caf::actor next = spawn_actor(system, [] { return caf::behavior{[](int number) { return number; }}; });
    ask(*self, next, caf::infinite, 1).receive([](int) {}, [](const caf::error& why) { FAIL(caf::to_string(why)); });
  }
};

}  // namespace

TEST_CASE_FIXTURE(card_of_two,
                  "a core group gives blocks of its L0, the MPE of L2; a refusal says which tier is full") {
  const auto mine = communicator();
  const caf::actor mpe = ways.mpe_of(0, 0);
  CHECK(mpe == ways.mpe_of(0, 0));
  const region_message first = order(ways.core_group_of(0), mine, 0, page);
  const region_message second = order(ways.core_group_of(1), mine, 1, page);
  const region_message third = order(mpe, mine, card_tiers::shared, 5 * page);
  for (const region_message* each : {&first, &second, &third}) {
    CHECK(each->why == nullptr);
    REQUIRE(each->block != nullptr);
  }
  CHECK(first.block != second.block);
  const region_message more = order(ways.core_group_of(1), mine, 1, page + page / 2);
  REQUIRE(more.why != nullptr);
  CHECK(more.why->code == errc::out_of_memory);
  CHECK(more.why->text.find("L0 of core group 1") != std::string::npos);
  const region_message too_much = order(mpe, mine, card_tiers::shared, 4 * page);
  REQUIRE(too_much.why != nullptr);
  CHECK(too_much.why->code == errc::out_of_memory);
  CHECK(too_much.why->text.find("L2") != std::string::npos);
}

TEST_CASE_FIXTURE(card_of_two,
                  "the MPE's end is the end of the card's memory for all communicators, that of a core group, too") {
  const auto mine = communicator(), others = communicator();
  const caf::actor mpe = ways.mpe_of(0, 0);
  const region_message used = order(mpe, mine, card_tiers::shared, page);
  order(mpe, mine, card_tiers::shared, 2 * page).block.reset();  // kept
  kill(mpe);
  CHECK(code_of([&] { static_cast<void>(mine->l2(2 * page)); }) == errc::actor_lost);
  used.block.get()[page - 1] = std::byte{1};
  CHECK(order(mpe, others, card_tiers::shared, page).why != nullptr);
  // A core group has its L0 from the MPE.
  const region_message none = order(ways.core_group_of(0), others, 0, page);
  REQUIRE(none.why != nullptr);
  CHECK(none.why->code == errc::actor_lost);
  CHECK(none.why->text.find("the MPE of card 0.0 has ended") != std::string::npos);
}

TEST_CASE_FIXTURE(card_of_two, "a core group that ends takes its L0 with it") {
  const auto mine = communicator();
  order(ways.core_group_of(1), mine, 1, page).block.reset();
  kill(ways.core_group_of(1));
  std::string text;
  try {
    static_cast<void>(mine->l0(1, page));
  } catch (const error& e) {
    text = e.what();
  }
  CHECK(text.find("core group 0.0.1 has ended") != std::string::npos);
  CHECK(order(ways.core_group_of(0), communicator(), 0, page).block != nullptr);
}

TEST_CASE_FIXTURE(card_of_two,
                  "a flush waits for no piece that is elsewhere, and what comes back later touches nobody's memory") {
  std::vector<std::byte> in_l0(100, std::byte{1}), in_l2(100, std::byte{2});
  const caf::actor engine = ways.core_group_of(0), elsewhere{self};
  const auto way = std::make_shared<path>(), way_back = std::make_shared<path>();
  way->hops = {engine, elsewhere};
  way_back->hops = {elsewhere, engine};
  const operation_key first = collective_key(7), second = collective_key(8);
  // Of its two pieces one stays away, so that no rank is told, of which there is none here.
  const auto read_by = [&](const operation_key& which) {
    const l2_access piece{true, in_l0.data(), in_l2.data(), in_l0.size(), way, way_back, nullptr};
    post(engine, shared_copy_message{{piece, piece}, {{nullptr, 0, 0}, which, 0}});
    transfer_message under_way;
    for (int k = 0; k < 2; ++k) self->receive([&](transfer_message& m) { under_way = std::move(m); });
    return under_way;
  };
  const auto flush = [&](std::optional<operation_key> which) {
    bool answered = false;
    ask(*self, engine, std::chrono::seconds{30}, flush_message{nullptr, 0, which})
        .receive([&](const flushed_message&) { answered = true; }, [](const caf::error&) {});
    return answered;
  };
  const auto comes_back = [&](transfer_message m) {
    m.what.data = in_l2.data();
    m.what.bytes = in_l2.size();
    m.way = way_back;
    m.at = 1;
    post(engine, std::move(m));
    CHECK(flush(collective_key(99)));  // it has been heard
  };
  const transfer_message dropped = read_by(first), other = read_by(second);
  CHECK(flush(first));
  comes_back(dropped);
  CHECK(in_l0[0] == std::byte{1});
  // Another operation's go on until all of the rank's are dropped.
  comes_back(other);
  CHECK(in_l0[99] == std::byte{2});
  in_l0.assign(100, std::byte{1});
  const transfer_message last = read_by(second);
  CHECK(flush(std::nullopt));
  comes_back(last);
  CHECK(in_l0[0] == std::byte{1});
}

}  // namespace card_actors_test
