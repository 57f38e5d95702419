// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/presence_state.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::actors;
using namespace std::chrono_literals;

namespace {

roster four() {
  roster all;
  for (std::uint32_t p = 0; p < 4; ++p) all.processes.push_back({"h", 1, 10 + p, p, 1, 1, {}});
  return all;
}

struct recording final : presence_outbox {
  void tell(std::uint32_t to, const process_word& what) override {
    if (no_memory) throw std::bad_alloc{};
    const auto number = std::to_string(to);
    if (std::holds_alternative<beat_word>(what)) said.push_back("beat " + number);
    else if (const auto* s = std::get_if<suspect_word>(&what))
      said.push_back("suspect " + std::to_string(s->process) + " to " + number);
    else if (const auto* l = std::get_if<lost_word>(&what))
      said.push_back("lost " + std::to_string(l->process) + " to " + number);
  }
  bool can_hear(std::uint32_t) override { return false; }
  void beat(std::uint32_t) override {}
  void expelled(const std::string&) override {
    is_expelled = true;
    gone_before = gone;
  }
  void close(std::uint32_t process) override { closed.push_back(process); }
  void lost(std::uint32_t process, const std::string&) override { gone.push_back(process); }
  void left(std::uint32_t process) override { departed.push_back(process); }
  std::vector<std::string> said;
  std::vector<std::uint32_t> closed, gone, departed, gone_before;
  bool is_expelled = false;
  bool no_memory = false;
};
using list = std::vector<std::uint32_t>;

struct fixture {
  roster all = four();
  steady_time now = steady_time{} + 1h;
  recording out;
};

}  // namespace

TEST_CASE_FIXTURE(fixture, "whoever loses a process tells the registrar, which tells everybody") {
  presence_state two{all, 2, 3000ms, now}, zero{all, 0, 3000ms, now};
  two.ended(3, "it closed a connection", now, out);
  CHECK(out.said == std::vector<std::string>{"suspect 3 to 0", "beat 0"});
  CHECK(out.gone == list{3});
  out = {};
  zero.word(2, suspect_word{3, "it closed a connection"}, now, out);
  CHECK(out.gone == list{3});
  CHECK(out.said.front() == "lost 3 to 1");
}

TEST_CASE_FIXTURE(fixture, "others are believed once they are the registrar, or this process is") {
  presence_state two{all, 2, 3000ms, now};
  two.word(1, lost_word{0, "slander"}, now, out);
  two.word(1, lost_word{3, "true"}, now, out);
  CHECK(out.gone.empty());
  CHECK(two.registrar() == 0);
  two.ended(0, "it closed a connection", now, out);
  CHECK(out.gone == list{0, 3});
  two.word(0, lost_word{1, "late"}, now, out);
  CHECK(two.alive(1));
}

TEST_CASE_FIXTURE(
    fixture,
    "who hears that it is lost loses everybody and accuses nobody, but a registrar that has run loses who says so") {
  presence_state three{all, 3, 3000ms, now}, zero{all, 0, 3000ms, now};
  three.word(0, lost_word{3, "stopped"}, now, out);
  CHECK(out.is_expelled);
  CHECK(out.gone == list{0, 1, 2});
  CHECK(out.said.empty());
  out = {};
  zero.word(2, lost_word{0, "cut off"}, now, out);
  CHECK_FALSE(out.is_expelled);
  CHECK(out.gone == list{2});
  CHECK(zero.alive(1));
}

TEST_CASE_FIXTURE(fixture, "a registrar that was stopped for a silence believes the first one that has lost it") {
  presence_state zero{all, 0, 3000ms, now};
  zero.tick(now + 300ms, out);
  SUBCASE("it looks at its clock first") { zero.awake(now + 5000ms); }
  SUBCASE("it reads first") {}
  zero.word(2, lost_word{0, "silent"}, now + 5000ms, out);
  CHECK(out.is_expelled);
  CHECK(out.gone_before.empty());  // nobody goes on with the others before it knows
  CHECK(out.gone == list{1, 2, 3});
}

TEST_CASE_FIXTURE(fixture, "the end of a connection is such a word to whoever was stopped for a silence, for a while") {
  presence_state zero{all, 0, 3000ms, now};
  for (int i = 1; i <= 10; ++i) zero.awake(now + i * 300ms);
  zero.awake(now + 6000ms);
  SUBCASE("soon") {
    zero.ended(1, "it closed a connection", now + 6100ms, out);
    CHECK(out.is_expelled);
    CHECK(out.gone == list{1, 2, 3});
  }
  SUBCASE("later") {
    zero.ended(1, "it closed a connection", now + 7000ms, out);
    CHECK_FALSE(out.is_expelled);
    CHECK(out.gone == list{1});
  }
}

TEST_CASE_FIXTURE(fixture, "times that are not in order are no sleep") {
  presence_state one{all, 1, 3000ms, now};
  one.heard(0, now + 200ms);
  one.hears(2, false, {});
  one.ended(2, "it closed a connection", now + 210ms, out);
  CHECK_FALSE(out.is_expelled);
  CHECK(out.gone == list{2});
}

TEST_CASE_FIXTURE(fixture, "a registrar that all others have lost is lost, also where one of them ends meanwhile") {
  presence_state zero{all, 0, 3000ms, now};
  zero.word(2, lost_word{0, "cut off"}, now, out);
  zero.word(3, lost_word{0, "cut off"}, now, out);
  CHECK(out.gone == list{2, 3});
  SUBCASE("the last one says so, too") { zero.word(1, lost_word{0, "cut off"}, now + 100ms, out); }
  SUBCASE("the last one is killed") { zero.ended(1, "it closed a connection", now + 100ms, out); }
  CHECK(out.is_expelled);
  CHECK(out.gone_before == list{2, 3});
  CHECK(out.gone == list{2, 3, 1});
}

TEST_CASE_FIXTURE(fixture, "who has outlived its accusers for long goes on alone when the last other one is lost") {
  presence_state zero{all, 0, 3000ms, now};
  zero.word(2, lost_word{0, "cut off"}, now, out);
  zero.ended(3, "it closed a connection", now, out);
  for (int i = 1; i <= 100; ++i) zero.heard(1, now + i * 100ms);
  zero.ended(1, "it closed a connection", now + 10s, out);
  CHECK_FALSE(out.is_expelled);
  CHECK(out.gone == list{2, 3, 1});
}

TEST_CASE_FIXTURE(fixture, "silence, and a process that never calls the registrar") {
  presence_state zero{all, 0, 3000ms, now};
  zero.greet(now, out);
  zero.hears(1, true, now);
  zero.hears(2, true, now);
  zero.tick(now + 2600ms, out);
  CHECK(out.gone.empty());
  zero.heard(2, now + 2600ms);
  zero.tick(now + 2800ms, out);
  CHECK(out.gone == list{1});
  zero.awake(now + 5400ms);  // for so long nobody need have lost it
  zero.tick(now + 5400ms, out);
  CHECK(out.gone == list{1, 3});
}

TEST_CASE_FIXTURE(fixture, "one that leaves in order is no loss, and is told with a later look") {
  presence_state zero{all, 0, 3000ms, now};
  zero.leaves(1);
  zero.ended(1, "it closed a connection", now, out);
  zero.word(2, bye_word{}, now, out);
  CHECK(out.gone.empty());
  CHECK(out.departed.empty());
  zero.tick(now + 300ms, out);
  CHECK(out.departed == list{1, 2});
}

TEST_CASE_FIXTURE(fixture, "a loss that cannot be told for want of memory is told later") {
  presence_state one{all, 1, 3000ms, now};
  out.no_memory = true;
  CHECK_THROWS_AS(one.ended(3, "it closed a connection", now, out), std::bad_alloc);
  CHECK_FALSE(one.alive(3));
  CHECK(out.gone.empty());
  out.no_memory = false;
  one.tell_losses(now, out);
  one.tell_losses(now, out);
  CHECK(out.gone == list{3});
}
