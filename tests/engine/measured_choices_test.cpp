// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/measured_choices.hpp"

#include <doctest/doctest.h>
#include <string>
#include <vector>

#include "engine/planning/planner.hpp"
#include "engine/tools/tune_choices.hpp"
#include "memory/error.hpp"
#include "tests/code_of.hpp"

using namespace troupe;
using troupe_tests::code_of;

namespace {

call of(collective what, std::size_t count) {
  call c;
  c.what = what;
  c.type = datatype::f32;
  c.count = count;
  return c;
}

tuning with_choices() {
  tuning t = assumed_tuning();
  t.choices = {{collective::all_reduce, 4, 4096, "ring", message_protocol::ll128},
               {collective::all_reduce, 4, measured_choice::no_limit, "halving_doubling", message_protocol::simple},
               {collective::all_reduce, 8, measured_choice::no_limit, "fused", message_protocol::direct},
               {collective::broadcast, 4, measured_choice::no_limit, "no_such_choreography", message_protocol::simple}};
  return t;
}

engine_options measured() {
  engine_options o;
  o.planner = "measured";
  o.tuning = "none";
  return o;
}

std::string wrong_with(const std::string& choice) {
  try {
    static_cast<void>(parse_tuning(to_toml(assumed_tuning()) + choice, "mine.toml"));
  } catch (const error& e) {
    return e.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("planner measured performs what was the fastest, by its protocol, and says so") {
  planner p{measured(), with_choices()};
  const auto small = p.plan_for(of(collective::all_reduce, 1024), layout::flat(4));
  CHECK(small->choreography == "ring");
  CHECK(small->slots() != nullptr);
  CHECK(p.path(of(collective::all_reduce, 1024), layout::flat(4)).back() ==
        "the fastest of at most 4096 bytes was ring, ll128");
  const auto large = p.plan_for(of(collective::all_reduce, 1 << 20), layout::flat(4));
  CHECK(large->choreography == "halving_doubling");
  CHECK(name(large->protocol()) == "simple");  // not direct, which would have been measured as such
  CHECK(name(p.plan_for(of(collective::all_reduce, 1 << 20), layout::flat(8))->protocol()) == "direct");
}

TEST_CASE("where a class of sizes lies across a border, all of it is performed, and explained, by the choice of its "
          "largest") {
  tuning t = assumed_tuning();
  t.choices = {{collective::all_reduce, 4, 1448, "ring", message_protocol::ll128},
               {collective::all_reduce, 4, measured_choice::no_limit, "halving_doubling", message_protocol::ll128}};
  planner p{measured(), t};
  for (std::size_t count = 300; count < 420; count += 3) {
    CAPTURE(count);
    const bool small = largest_of_class(count) * sizeof(float) <= 1448;
    const call one = of(collective::all_reduce, count);
    CHECK(p.plan_for(one, layout::flat(4))->choreography == (small ? "ring" : "halving_doubling"));
    CHECK((p.path(one, layout::flat(4)).back().find("ring") != std::string::npos) == small);
  }
}

TEST_CASE("planner measured leaves to the cost model what was not measured, and says why") {
  planner p{measured(), with_choices()};
  engine_options by_prediction = measured();
  by_prediction.planner = "model";
  planner model{by_prediction, with_choices()};
  const auto path = [&](const call& what, const layout& places) { return p.path(what, places).back(); };
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const call sum = of(collective::all_reduce, 1024);
  CHECK(says(path(sum, layout::flat(3)),
             "nothing was measured for all_reduce of 3 ranks, but for 4 and 8 ranks; the cost model chooses"));
  CHECK(says(path(of(collective::all_gather, 10), layout::flat(4)),
             "nothing was measured for all_gather of 4 ranks; the cost model"));
  CHECK(says(path(sum, layout::grid(2, 2)), "threads of one process on a flat layout"));
  CHECK(says(path(of(collective::broadcast, 10), layout::flat(4)),
             "no_such_choreography, simple; not used, it does not offer this"));
  for (const int ranks : {3, 5})
    CHECK(p.plan_for(sum, layout::flat(ranks))->choreography == model.plan_for(sum, layout::flat(ranks))->choreography);
  call stable = sum;
  stable.level = determinism::size_stable;
  CHECK(says(path(stable, layout::flat(4)), "the call wants one for all"));
  CHECK(p.plan_for(stable, layout::flat(4))->choreography == model.plan_for(stable, layout::flat(4))->choreography);
  call by_nic = sum;
  by_nic.offload = true;
  CHECK(says(path(by_nic, layout::flat(4)), "nothing was measured by the NIC"));
  engine_options by_messages = measured();
  by_messages.protocol = "simple";
  CHECK(says(planner(by_messages, with_choices()).path(sum, layout::flat(4)).back(), "the protocol is to be simple"));
  tuning too_large = with_choices();
  too_large.choices.front().up_to = 1 << 20;  // slots end before
  planner beyond{measured(), too_large};
  CHECK(says(beyond.path(of(collective::all_reduce, 100'000), layout::flat(4)).back(), "not used"));
  CHECK(beyond.plan_for(of(collective::all_reduce, 100'000), layout::flat(4))->choreography ==
        model.plan_for(of(collective::all_reduce, 100'000), layout::flat(4))->choreography);
  engine_options none = measured();
  CHECK(code_of([&] { planner{none}; }) == errc::bad_config);
  none.planner = "meassured";
  CHECK(code_of([&] { planner{none}; }) == errc::bad_config);
}

TEST_CASE("choices are part of the tuning file, and what is wrong with one is said with its line") {
  const tuning t = with_choices(), back = parse_tuning(to_toml(t), "mine.toml");
  CHECK(back.choices == t.choices);
  CHECK(wrong_with("").find("nothing") != std::string::npos);
  const std::string head = "\n[[choices]]\ncollective = \"all_reduce\"\n";
  for (const auto& [choice, part] : std::vector<std::pair<std::string, std::string>>{
           {"\n[[choices]]\nranks = 2\n", "choices must be tables"},
           {head + "ranks = 0\nchoreography = \"ring\"\nprotocol = \"ll\"\n", "choices must be tables"},
           {head + "ranks = 2\nup_to = -1\nchoreography = \"ring\"\nprotocol = \"ll\"\n", "choices must be tables"},
           {head + "ranks = 2\nchoreography = \"ring\"\nprotocol = \"fast\"\n",
            "protocol must be simple, direct, ll or ll128"},
           {head + "ranks = 2\nchoreography = \"ring\"\nprotocol = \"nic\"\n", "protocol must be simple, direct"},
           {head + "ranks = 2\nchoreography = \"ring\"\nprotocol = \"ll\"\n" + head +
                "ranks = 2\nchoreography = \"tree\"\nprotocol = \"ll\"\n",
            "there are two choices of one collective"},
           {head + "ranks = 2\nrank = 3\nchoreography = \"ring\"\nprotocol = \"ll\"\n", "a choice has no rank"},
           {"\n[[choices]]\ncollective = \"all_red\"\nranks = 2\nchoreography = \"ring\"\nprotocol = \"ll\"\n",
            "there is no collective all_red"}}) {
    const std::string text = wrong_with(choice);
    CAPTURE(text);
    CHECK(text.starts_with("mine.toml:"));
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("neighbouring sizes with one fastest way are one choice, and borders lie between others") {
  const std::vector<fastest_way> found{{8, "one_shot", message_protocol::ll},
                                       {64, "one_shot", message_protocol::ll},
                                       {1024, "one_shot", message_protocol::ll128},
                                       {4096, "fused", message_protocol::direct}};
  const std::vector<measured_choice> expected{
      {collective::all_reduce, 2, 256, "one_shot", message_protocol::ll},
      {collective::all_reduce, 2, 2048, "one_shot", message_protocol::ll128},
      {collective::all_reduce, 2, measured_choice::no_limit, "fused", message_protocol::direct}};
  CHECK(choices_between(collective::all_reduce, 2, found) == expected);
  CHECK(choices_between(collective::all_reduce, 2, {}).empty());
  CHECK(find_choice(expected, collective::all_reduce, 2, 256)->protocol == message_protocol::ll);
  CHECK(find_choice(expected, collective::all_reduce, 2, 257)->protocol == message_protocol::ll128);
  CHECK(find_choice(expected, collective::all_reduce, 3, 8) == nullptr);
}

TEST_CASE(
    "what is measured can be performed: a choice for every collective that moves data, of every number of ranks") {
  tuning t = assumed_tuning();
  t.choices = measure_choices({.ranks = {2, 3}, .quick = true});
  engine_options o = measured();
  planner p{o, t};
  for (const collective what : all_collectives) {
    if (!moves_data(what)) continue;
    CAPTURE(name(what));
    for (const int ranks : {2, 3}) {
      const call one = of(what, 4096);
      const auto told = p.path(one, layout::flat(ranks));
      REQUIRE(!told.empty());
      CHECK(told.back().starts_with("the fastest"));
      CHECK(told.back().find(", " + std::string{name(p.plan_for(one, layout::flat(ranks))->protocol())}) !=
            std::string::npos);
    }
  }
}
