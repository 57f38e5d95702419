// SPDX-License-Identifier: Apache-2.0
// The agreements on who is left that a process takes part in, what comes early, and who has given up its place: the plain states.

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/ports/link/early_frames.hpp"
#include "actors/ports/link/given_up.hpp"
#include "actors/ports/link/shrink_agreements.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

using kind = survivors_word::kind;
using ranks = std::vector<rank_t>;
constexpr communicator_id world = 77;

struct said {
  std::uint32_t to;
  communicator_id of;
  shrink_word what;
};
struct told {
  communicator_id of;
  std::uint64_t number;
  ranks members;
  failure_ptr why;
};

/// One process's agreements, and what it says.
struct process_of_job final : shrink_agreements::outbox {
  explicit process_of_job(std::uint32_t here) : agreements(here) {}
  void send(std::uint32_t process, communicator_id of, const shrink_word& what) override {
    words.push_back({process, of, what});
  }
  void answered(communicator_id of, std::uint64_t number, const ranks& members, const failure_ptr& why) override {
    answers.push_back({of, number, members, why});
  }
  shrink_agreements agreements;
  std::vector<said> words;
  std::vector<told> answers;
};

/// Words go their way until there are none.
void run(std::map<std::uint32_t, process_of_job*> all) {
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& each : all) {
      std::vector<said> words;
      words.swap(each.second->words);
      for (const said& w : words) {
        const auto to = all.find(w.to);
        if (to == all.end()) continue;
        moved = true;
        CHECK(to->second->agreements.heard(each.first, w.of, w.what, false, *to->second) ==
              shrink_agreements::reception::taken);
      }
    }
  }
}

shrink_word ask(std::uint64_t number) { return {number, {kind::ask, 0, 0, {}, {}}}; }
/// As its coordinator.
shrink_word ready(std::uint64_t number, ranks of) { return {number, {kind::ready, 0, 0, std::move(of), {}}}; }

}  // namespace

TEST_CASE("three processes agree, and each hears the answer once") {
  process_of_job a(2), b(4), c(7);
  const std::vector<std::uint32_t> process_of{4, 2, 7, 4};
  for (process_of_job* each : {&a, &b, &c}) each->agreements.enter(world, process_of);
  a.agreements.contribute(world, 0, {1}, a);
  b.agreements.contribute(world, 0, {0, 3}, b);
  run({{2, &a}, {4, &b}, {7, &c}});
  CHECK(a.agreements.missing(world, 0) == std::vector<std::uint32_t>{7});
  CHECK(b.agreements.missing(world, 0) == std::vector<std::uint32_t>{7});
  CHECK(a.answers.empty());
  c.agreements.contribute(world, 0, {2}, c);
  run({{2, &a}, {4, &b}, {7, &c}});
  for (const process_of_job* each : {&a, &b, &c}) {
    REQUIRE(each->answers.size() == 1);
    CHECK(each->answers[0].members == ranks{0, 1, 2, 3});
    CHECK(each->answers[0].why == nullptr);
  }
}

TEST_CASE("a process that has lost one for a communicator counts it in none of that communicator's agreements") {
  process_of_job a(0);
  const std::vector<std::uint32_t> process_of{0, 1};
  a.agreements.enter(world, process_of);
  a.agreements.enter(world + 1, process_of);
  SUBCASE("before they begin") {
    a.agreements.lost_for(world, 1, a);
    a.agreements.contribute(world, 3, {0}, a);
    a.agreements.contribute(world + 1, 0, {0}, a);
  }
  SUBCASE("while they are under way") {
    a.agreements.contribute(world, 3, {0}, a);
    a.agreements.contribute(world + 1, 0, {0}, a);
    CHECK(a.answers.empty());
    a.agreements.lost_for(world, 1, a);
  }
  REQUIRE(a.answers.size() == 1);
  CHECK(a.answers[0].of == world);
  CHECK(a.answers[0].number == 3);
  CHECK(a.answers[0].members == ranks{0});
  a.agreements.lost(1, a);
  CHECK(a.answers.size() == 2);
}

TEST_CASE("whoever asks a process whose ranks have left, or where the communicator has ended, hears that") {
  process_of_job a(1);
  const std::vector<std::uint32_t> process_of{1, 0};
  a.agreements.enter(world, process_of);
  CHECK(a.agreements.heard(0, world, ask(0), false, a) == shrink_agreements::reception::taken);
  CHECK(a.words.empty());
  a.agreements.all_left(world, a);  // it had been asked
  REQUIRE(a.words.size() == 1);
  CHECK(a.words[0].what.what.what == kind::absent);
  CHECK(a.agreements.kept() == 0);
  CHECK(a.agreements.heard(0, world, ask(1), false, a) == shrink_agreements::reception::taken);
  REQUIRE(a.words.size() == 2);
  CHECK(a.words[1].what.what.what == kind::absent);
  CHECK(a.words[1].what.number == 1);
  a.agreements.forget(world, a);
  CHECK(a.agreements.heard(0, world, ask(2), true, a) == shrink_agreements::reception::taken);
  CHECK(a.words.size() == 3);
  CHECK(a.agreements.kept() == 0);
}

TEST_CASE("what asks for a communicator that is not here waits for it, and what answers nobody is dropped") {
  process_of_job a(0);
  CHECK(a.agreements.heard(1, world, ask(0), false, a) == shrink_agreements::reception::early);
  CHECK(a.agreements.heard(1, world, ready(0, {0}), false, a) == shrink_agreements::reception::early);
  CHECK(a.agreements.heard(1, world, {0, {kind::absent, 0, 0, {}, {}}}, false, a) ==
        shrink_agreements::reception::taken);
  CHECK(a.agreements.kept() == 0);
}

TEST_CASE("words that cannot be are refused") {
  process_of_job a(0);
  a.agreements.enter(world, std::vector<std::uint32_t>{0, 1, 1});
  const auto nonsense = shrink_agreements::reception::nonsense;
  CHECK(a.agreements.heard(5, world, ask(0), false, a) == nonsense);            // no participant
  CHECK(a.agreements.heard(1, world, ready(0, {0}), false, a) == nonsense);     // another process's rank
  CHECK(a.agreements.heard(1, world, ready(0, {2, 1}), false, a) == nonsense);  // out of order
  CHECK(a.agreements.heard(1, world, ready(0, {1, 3}), false, a) == nonsense);  // there is none
  CHECK(a.agreements.heard(1, world, ready(0, {1, 2}), false, a) == shrink_agreements::reception::taken);
}

TEST_CASE("a process that is taken for lost has an error for all who wait, and for who comes later") {
  process_of_job a(0);
  a.agreements.enter(world, std::vector<std::uint32_t>{0, 1});
  a.agreements.contribute(world, 0, {0}, a);
  a.agreements.expelled("process 1 has lost it", a);
  a.agreements.lost(1, a);  // as it then loses everybody
  a.agreements.contribute(world, 1, {0}, a);
  REQUIRE(a.answers.size() == 2);
  for (const told& each : a.answers) CHECK(each.why->code == errc::peer_lost);
}

TEST_CASE("agreements that are over are kept for who has not heard, and not for ever") {
  process_of_job a(0);
  a.agreements.enter(world, std::vector<std::uint32_t>{0, 1});
  a.agreements.lost_for(world, 1, a);
  for (std::uint64_t number = 0; number < shrink_agreements::most_decided + 100; ++number)
    a.agreements.contribute(world, number, {0}, a);
  CHECK(a.answers.size() == shrink_agreements::most_decided + 100);
  CHECK(a.agreements.kept() <= shrink_agreements::most_decided + 1);
}

// Found by the simulation: the rank here had waited in vain and left, and its part had ended with that, as its home was lost. The other process that has
// a place there waited for this one's word, which waited for one without a place.
TEST_CASE("an agreement of a part that has ended here goes on without a process that gave up its places later") {
  process_of_job a(0);
  a.agreements.enter(world, std::vector<std::uint32_t>{0, 1, 2, 1}, {5, 9, {3, 4, 6, 7}});
  a.agreements.contribute(world, 0, {0}, a);
  CHECK(a.agreements.heard(2, world, ready(0, {2}), false, a) == shrink_agreements::reception::taken);
  a.agreements.forget(world, a);
  a.agreements.gave_up(5, 8, 4, a);  // another split
  a.agreements.gave_up(5, 9, 4, a);
  CHECK(a.agreements.missing(world, 0) == std::vector<std::uint32_t>{1});
  a.words.clear();
  a.agreements.gave_up(5, 9, 7, a);
  CHECK(a.agreements.missing(world, 0).empty());
  REQUIRE(a.words.size() == 1);
  CHECK(a.words[0].to == 2);
  CHECK(a.words[0].what.what.what == kind::propose);
  CHECK(a.words[0].what.what.list == ranks{0, 2});
}

TEST_CASE("frames wait for their communicator in their order, until it is here, has ended, or their sender is lost") {
  early_frames<int> early;
  int made = 0;
  const auto frame = [&] { return ++made; };
  early.keep(1, 5, frame);
  early.keep(1, 6, frame);
  early.keep(2, 5, frame);
  early.keep(1, 5, frame);
  early.drop_from(6);
  const auto frames = early.take(1);
  REQUIRE(frames.size() == 2);
  CHECK(frames[0] == std::pair<std::uint32_t, int>{5, 1});
  CHECK(frames[1] == std::pair<std::uint32_t, int>{5, 4});
  CHECK(early.take(1).empty());
  early.drop_from(5);
  CHECK(early.waiting() == 0);
  early.end(3);
  CHECK(early.is_over(3));
  early.keep(3, 5, frame);
  CHECK(early.waiting() == 0);
  CHECK(made == 4);
}

TEST_CASE(
    "of too many communicators that frames wait for the oldest is forgotten, and what still comes for it dropped") {
  early_frames<int> early;
  const auto frame = [] { return 0; };
  for (communicator_id id = 100; id <= 100 + early.most_waiting; ++id) early.keep(id, 1, frame);
  CHECK(early.waiting() == early.most_waiting);
  CHECK(early.is_over(100));
  CHECK(early.take(101).size() == 1);
  for (communicator_id id = 10'000; id < 10'000 + 2 * early.most_over; ++id) early.end(id);
  CHECK(!early.is_over(100));
}

TEST_CASE("a process counts as lost for a part when none of its ranks there has a place") {
  empty_places part;
  const std::vector<rank_t> in_whole{8, 3, 5};
  const std::vector<std::uint32_t> process_of{2, 1, 2};
  CHECK(part.add(4, in_whole, process_of) == std::nullopt);  // in another part
  CHECK(part.add(8, in_whole, process_of) == std::nullopt);
  CHECK(part.add(8, in_whole, process_of) == std::nullopt);  // the same one again
  CHECK(part.add(3, in_whole, process_of) == 1);
  CHECK(part.add(5, in_whole, process_of) == 2);
}

TEST_CASE("who gave up a place is known by split, the last ones") {
  given_up_places places;
  places.add(1, 9, 4);
  places.add(1, 8, 5);
  places.add(2, 9, 6);
  places.add(1, 9, 3);
  CHECK(places.of(1, 9) == ranks{4, 3});
  for (std::size_t i = 0; i < places.most; ++i) places.add(3, i, 0);
  CHECK(places.of(1, 9).empty());
}
