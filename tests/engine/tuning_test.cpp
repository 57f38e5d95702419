// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/tuning.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <sstream>

#include "engine/api/engine.hpp"
#include "engine/config/configuration.hpp"
#include "engine/planning/planner.hpp"
#include "engine/tools/tune.hpp"
#include "memory/error.hpp"
#include "tests/seed.hpp"

namespace tuning_test {

using namespace troupe;

namespace {

/// Constants that no machine has, each another one.
tuning strange() {
  tuning t = assumed_tuning();
  t.measured = "2026-01-02 \"03:04\"";
  double next = 1.25;
  for (const tuning_key& k : tuning_schema()) {
    next *= 1.4;
    if (k.number != nullptr) t.*k.number = next;
    else t.*k.curve = std::vector<rate_curve::point>{{1024, next}, {65536, next / 2}, {1 << 30, 0.5}};
  }
  for (double& rate : t.type_rate) rate = next += 0.5;
  return t;
}

std::string changed(const std::string& pattern, const std::string& by) {
  const std::string text = to_toml(strange()), now = std::regex_replace(text, std::regex{pattern}, by);
  REQUIRE(now != text);
  return now;
}

std::string failure_of(const std::string& toml) {
  try {
    parse_tuning(toml, "mine.toml");
  } catch (const error& e) {
    CHECK(e.code_value() == errc::bad_config);
    return e.what();
  }
  return "nothing was thrown";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class temporary_file {
public:
  explicit temporary_file(const std::string& text) {
    static int number = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("troupe_tuning_" + std::to_string(seed()) + "_" + std::to_string(number++) + ".toml"))
                .string();
    std::ofstream{path_} << text;
  }
  ~temporary_file() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

private:
  std::string path_;
};

/// An environment variable, as it was at the end.
class variable {
public:
  variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~variable() { ::setenv(name_, before_.c_str(), 1); }

private:
  const char* name_;
  std::string before_;
};

call all_reduce_of(std::size_t bytes) {
  call c;
  c.what = collective::all_reduce;
  c.type = datatype::f32;
  c.count = bytes / 4;
  return c;
}

tuning without_direct() {
  tuning t = assumed_tuning();
  t.direct_operation_ns = 1e9;
  return t;
}

/// The largest size of an all_reduce that goes over slots, by an engine that believes in these constants.
std::size_t last_over_slots(const tuning& t, int ranks) {
  const temporary_file file{to_toml(t)};
  engine_options o;
  o.tuning = file.path();
  planner p{o};
  std::size_t last = 0;
  for (std::size_t bytes = 8; bytes <= (1 << 20); bytes *= 2)
    if (const auto made = p.plan_for(all_reduce_of(bytes), layout::flat(ranks)); made->slots()) last = bytes;
  return last;
}

}  // namespace

TEST_CASE("a curve is straight on logarithmic axes, and constant beyond its ends") {
  const rate_curve c{{{1000, 100}, {100000, 1}}};
  CHECK(c.at(1) == 100);
  CHECK(c.at(1000) == 100);
  CHECK(c.at(10000) == doctest::Approx(10));
  CHECK(c.at(1e9) == 1);
}

TEST_CASE("a tuning file reads back as it was written") {
  const tuning t = strange(), back = parse_tuning(to_toml(t), "mine.toml");
  CHECK(back.machine == t.machine);
  CHECK(back.measured == t.measured);
  for (const tuning_key& k : tuning_schema()) {
    CAPTURE(k.key);
    if (k.number != nullptr) CHECK(back.*k.number == doctest::Approx(t.*k.number).epsilon(1e-3));
    else REQUIRE((back.*k.curve).points().size() == (t.*k.curve).points().size());
    if (k.curve != nullptr)
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK((back.*k.curve).points()[i].bytes == (t.*k.curve).points()[i].bytes);
        CHECK((back.*k.curve).points()[i].rate == doctest::Approx((t.*k.curve).points()[i].rate).epsilon(1e-3));
      }
  }
  for (std::size_t i = 0; i < t.type_rate.size(); ++i)
    CHECK(back.type_rate[i] == doctest::Approx(t.type_rate[i]).epsilon(1e-3));
  CHECK(to_toml(back) == to_toml(t));
}

TEST_CASE("what is wrong with a tuning file is said with its line") {
  CHECK(failure_of(to_toml(strange())) == "nothing was thrown");
  CHECK(has(failure_of("format = "), "mine.toml:1: "));
  CHECK(has(failure_of(""), "mine.toml: lacks the key format"));
  CHECK(has(failure_of(changed("format = 1", "format = 2")), "measure again with `troupe tune`"));
  const std::string misspelt = failure_of(changed("message = ", "mesage = "));
  CHECK(has(misspelt, "actors.mesage"));
  CHECK(has(misspelt, "did you mean actors.message?"));
  const std::string more = failure_of(changed("\\[slots\\]", "[slots]\nmessages = 3"));
  CHECK(has(more, "unknown key slots.messages; did you mean slots.message?"));
  CHECK(std::regex_search(more, std::regex{"mine\\.toml:[0-9]+: "}));
  CHECK(has(failure_of(changed("step = [0-9.e+]+", "step = 0")), "must be a number above 0"));
  CHECK(has(failure_of(changed("step = [0-9.e+]+", "step = \"fast\"")), "must be a number above 0"));
  CHECK(has(failure_of(changed("copy = \\[\\[1024", "copy = [[70000")),
            "memory.copy must be a list of [bytes, GB/s], bytes ascending"));
  CHECK(has(failure_of(changed("cores = [0-9]+", "cores = 0")), "machine.cores must be an integer from 1"));
  CHECK(has(failure_of(changed("bf16 = [^\n]*\n", "")), "lacks the key types.bf16"));
}

TEST_CASE("an engine does not begin with a file that it cannot follow") {
  engine_options o;
  o.tuning = "/nowhere/tuning.toml";
  CHECK_THROWS_WITH_AS(engine{o}, doctest::Contains("/nowhere/tuning.toml: the tuning file cannot be read"), error);
  const temporary_file broken{changed("step = [0-9.e+]+", "step = -1")};
  o.tuning = broken.path();
  CHECK_THROWS_WITH_AS(engine{o}, doctest::Contains(broken.path().c_str()), error);
  o.tuning = "none";
  CHECK_NOTHROW(engine{o});
}

TEST_CASE("where the file is looked for: options, TROUPE_TUNING, the default place") {
  using from = tuning_place::found;
  const auto folder = std::filesystem::temp_directory_path() / ("troupe_xdg_" + std::to_string(seed()));
  std::filesystem::create_directories(folder / "troupe");
  const std::string there = (folder / "troupe" / "tuning.toml").string();
  const variable xdg{"XDG_CONFIG_HOME", folder.string()};
  {
    const variable unset{"TROUPE_TUNING", ""};
    CHECK(find_tuning({}).from == from::nowhere);
    std::ofstream{there} << to_toml(strange());
    CHECK(find_tuning({}).from == from::default_place);
    CHECK(find_tuning({}).path == there);
    CHECK(configuration{}.dump().find("default: " + there) != std::string::npos);
    CHECK(find_tuning("none").path.empty());
    CHECK(find_tuning("mine.toml").path == "mine.toml");
    engine_options o;
    CHECK(load_tuning(o).file == there);
  }
  const variable named{"TROUPE_TUNING", "other.toml"};
  CHECK(find_tuning({}).from == from::environment);
  CHECK(find_tuning({}).path == "other.toml");
  CHECK(find_tuning("mine.toml").path == "mine.toml");
  configuration c;
  c.add_environment();
  CHECK(c.engine().tuning == "other.toml");
  CHECK(c.dump().find("environment TROUPE_TUNING") != std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("constants of another machine are used, with a warning") {
  tuning t = strange();
  t.machine.cpu = "Abacus";
  t.machine.cores += 3;
  const std::string text = differences(t.machine, this_machine());
  CHECK(has(text, "the processor was \"Abacus\""));
  CHECK(has(text, "the number of cores was"));
  CHECK(differences(this_machine(), this_machine()).empty());
  const temporary_file file{to_toml(t)};
  engine_options o;
  o.tuning = file.path();
  const tuning used = load_tuning(o);
  CHECK(used.slot_message_ns == doctest::Approx(t.slot_message_ns).epsilon(1e-3));
  CHECK(used.machine.cores == this_machine().cores);
  const temporary_file told{""};
  const std::string line =
      "TROUPE_TUNING='" + file.path() + "' '" TROUPE_PROGRAM "' bench -b 8 -e 8 -n 1 -t 2 >'" + told.path() + "' 2>&1";
  REQUIRE(std::system(line.c_str()) == 0);
  std::ostringstream words;
  words << std::ifstream{told.path()}.rdbuf();
  CHECK(has(words.str(), "measured on another machine"));
  CHECK(has(words.str(), "Abacus"));
}

TEST_CASE("decisions follow from the constants") {
  for (const int ranks : {2, 8}) {
    CAPTURE(ranks);
    std::size_t before = 0;
    for (const double factor : {0.001, 0.05, 1.0, 20.0}) {
      tuning t = without_direct();
      t.actor_operation_ns = 1000 * factor;
      t.actor_rank_ns = 5000 * factor;
      t.actor_message_ns = 500 * factor;
      const std::size_t now = last_over_slots(t, ranks);
      CAPTURE(factor);
      CHECK(now >= before);  // the dearer the actors, the larger is what goes over slots
      before = now;
    }
    CHECK(before == 65536);
    // And the dearer the slots, the smaller.
    tuning slow = without_direct();
    slow.ll_line_ns = slow.ll128_line_ns = 1e5;
    CHECK(last_over_slots(slow, ranks) < 65536);
  }
  tuning t = assumed_tuning();
  t.ll_line_ns = 1;
  t.ll128_line_ns = 1000;
  t.direct_operation_ns = 1e6;
  const temporary_file ll_is_cheap{to_toml(t)};
  engine_options o;
  o.tuning = ll_is_cheap.path();
  CHECK(planner{o}.plan_for(all_reduce_of(1024), layout::flat(2))->protocol() == message_protocol::ll);
}

TEST_CASE("a job's machines agree on the largest cost of each kind, and plan by it alike") {
  tuning slow = strange(), fast = assumed_tuning();
  slow.machine.cores = 4, fast.machine.cores = 2;
  CHECK(to_toml(with_costs(slow, costs_of(slow))) != to_toml(with_costs(slow, costs_of(fast))));
  std::vector<double> job = costs_of(slow);
  const std::vector<double> other = costs_of(fast);
  REQUIRE(job.size() == other.size());
  std::ranges::transform(job, other, job.begin(), [](double a, double b) { return std::max(a, b); });
  const tuning a = with_costs(slow, job), b = with_costs(fast, job);
  CHECK(costs_of(a) == costs_of(b));
  CHECK(a.machine.cores == 2);
  for (const tuning_key& k : tuning_schema()) {
    CAPTURE(k.key);
    if (k.number != nullptr) CHECK(a.*k.number == std::max(slow.*k.number, fast.*k.number));
    else
      for (const double bytes : {16384.0, 65536.0, 1073741824.0})
        CHECK((b.*k.curve).at(bytes) ==
              doctest::Approx(std::min((slow.*k.curve).at(bytes), (fast.*k.curve).at(bytes))));
  }
  for (const std::size_t bytes : {8U, 4096U, 1U << 20}) {
    const auto decided = [&](const tuning& own) {
      const temporary_file file{to_toml(own)};
      engine_options o;
      o.tuning = file.path();
      planner p{o};
      p.agree_on(job, 0);
      layout on = layout::placed({{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}});
      on.homes = {{0, 0}, {1, 1}, {2, 2}, {3, 3}};
      std::string text;
      for (const candidate& c : p.candidates(all_reduce_of(bytes), on))
        text += c.choreography + " " + c.protocol + " " + std::to_string(c.predicted_seconds) + (c.chosen ? "!" : "") +
                "\n";
      return text;
    };
    CHECK(decided(slow) == decided(fast));
  }
  for (const std::vector<double>& wrong :
       {std::vector<double>{}, std::vector<double>(job.size(), 0.0), std::vector<double>(job.size(), std::nan(""))})
    CHECK_THROWS_AS(with_costs(fast, wrong), error);
}

namespace {
/// Eight hosts with a rank each, in pods of four if they are in some.
layout hosts_in_pods(bool pods) {
  std::vector<std::vector<int>> paths;
  for (int host = 0; host < 8; ++host)
    paths.push_back(pods ? std::vector<int>{host / 4, host % 4, 0, 0} : std::vector<int>{host, 0, 0});
  layout on = layout::placed_in_groups(paths);
  for (int host = 0; host < 8; ++host) on.homes.push_back({host, host});
  return on;
}

candidate chosen_with(const tuning& t, const layout& on, std::size_t bytes) {
  const temporary_file file{to_toml(t)};
  engine_options o;
  o.tuning = file.path();
  planner p{o};
  return p.candidates(all_reduce_of(bytes), on).front();
}
}  // namespace

TEST_CASE("what is between groups of hosts costs what the file says, else what is between hosts") {
  tuning t = assumed_tuning();
  for (int borders = 0; borders <= most_borders; ++borders) {
    CHECK(t.network_message_ns(borders) == t.socket_message_ns);
    CHECK(t.network_kilobyte_ns(borders) == t.socket_kilobyte_ns);
  }
  CHECK_FALSE(has(to_toml(t), "outer"));
  t.outer_message_ns = {50'000, 90'000};
  t.outer_kilobyte_ns = {4000};
  const tuning back = parse_tuning(to_toml(t), "mine.toml");
  CHECK(back.network_message_ns(0) == t.socket_message_ns);
  CHECK(back.network_message_ns(1) == 50'000);
  CHECK(back.network_message_ns(2) == 90'000);
  CHECK(back.network_message_ns(most_borders) == 90'000);
  CHECK(back.network_kilobyte_ns(1) == 4000);
  CHECK(back.network_kilobyte_ns(2) == 4000);
  const tuning agreed = with_costs(assumed_tuning(), costs_of(t));
  for (int borders = 0; borders <= most_borders; ++borders) {
    CHECK(agreed.network_message_ns(borders) == t.network_message_ns(borders));
    CHECK(agreed.network_kilobyte_ns(borders) == t.network_kilobyte_ns(borders));
  }
  const auto with = [](const std::string& line) {
    return failure_of(changed("\\[links\\][^\n]*", "[links]\n" + line));
  };
  CHECK(with("outer_message = [1e8, 1e8]") == "nothing was thrown");
  CHECK(with("outer_message = []") == "nothing was thrown");
  CHECK(has(with("outer_message = 1e8"), "links.outer_message must be a list of at most 5 numbers"));
  CHECK(has(with("outer_message = [2e8, 1e8]"), "none below the one before it"));
  CHECK(has(with("outer_kilobyte = [0.001]"), "nor below links.socket_kilobyte"));
  CHECK(has(with("outer_kilobyte = [1e8, 1e8, 1e8, 1e8, 1e8, 1e8]"), "at most 5 numbers"));
  CHECK(has(with("outer_kilobyte = [\"far\"]"), "must be a number above 0"));
  CHECK(has(with("outer_kilobytes = [1e8]"), "did you mean links.outer_kilobyte?"));
}

TEST_CASE("where little goes between pods that are far from each other, another choreography is chosen") {
  const tuning near = assumed_tuning();
  tuning far = near;
  far.outer_message_ns = {20 * near.socket_message_ns};
  far.outer_kilobyte_ns = {20 * near.socket_kilobyte_ns};
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{1} << 24}) {
    CAPTURE(bytes);
    const candidate without = chosen_with(near, hosts_in_pods(false), bytes),
                    alike = chosen_with(near, hosts_in_pods(true), bytes),
                    apart = chosen_with(far, hosts_in_pods(true), bytes);
    CAPTURE(without.choreography);
    CAPTURE(alike.choreography);
    CAPTURE(apart.choreography);
    CHECK(chosen_with(far, hosts_in_pods(false), bytes).predicted_seconds == without.predicted_seconds);
    CHECK(apart.choreography != alike.choreography);
    CHECK(apart.predicted_seconds > alike.predicted_seconds);
  }
}

TEST_CASE("where a message between hosts takes long, a step takes several slices; where it takes work, it does not") {
  layout hosts = layout::flat(2);
  hosts.homes = {{0, 0}, {1, 1}};
  tuning far = assumed_tuning();
  far.socket_message_ns = 1e6;
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{16} << 20}) {
    const candidate near = chosen_with(assumed_tuning(), hosts, bytes), away = chosen_with(far, hosts, bytes);
    CHECK(near.slices_per_step == 1);
    CHECK(away.slices_per_step > 1);
  }
}

TEST_CASE("hosts with computers of their own do not share cores, and hosts of one computer do") {
  const layout apart = hosts_in_pods(false);
  layout together = apart;
  for (residence& home : together.homes) home.computer = 0;
  constexpr std::size_t bytes = std::size_t{16} << 20;
  const candidate own = chosen_with(assumed_tuning(), apart, bytes),
                  shared = chosen_with(assumed_tuning(), together, bytes);
  CHECK(own.predicted_seconds < shared.predicted_seconds / 2);
  // More hosts with as many bytes each take little longer.
  layout two = layout::placed({{0, 0, 0}, {1, 0, 0}});
  two.homes = {{0, 0}, {1, 1}};
  CHECK(own.predicted_seconds < 3 * chosen_with(assumed_tuning(), two, bytes).predicted_seconds);
}

TEST_CASE("between processes the direct port costs a staging buffer more, between threads none") {
  layout processes = layout::flat(2);
  processes.homes = {{0, 0}, {0, 1}};
  processes.copies = true;
  const auto direct_us = [](double staging_ns, const layout& on) {
    tuning t = assumed_tuning();
    t.direct_staging_ns = staging_ns;
    const temporary_file file{to_toml(t)};
    engine_options o;
    o.tuning = file.path();
    planner p{o};
    const auto all = p.candidates(all_reduce_of(16384), on);
    const auto found = std::ranges::find(all, std::string{"direct"}, &candidate::protocol);
    REQUIRE(found != all.end());
    return found->predicted_seconds * 1e6;
  };
  // Each of the two stages its input, and its output, side by side with the other.
  CHECK(direct_us(4000, processes) - direct_us(1000, processes) == doctest::Approx(6).epsilon(1e-6));
  CHECK(direct_us(4000, layout::flat(2)) == direct_us(1000, layout::flat(2)));
}

TEST_CASE("a fit finds the constants that made the measurements") {
  tuning truth = assumed_tuning();
  truth.machine.cores = 2;
  truth.actor_operation_ns = 700;
  truth.actor_rank_ns = 4000;
  truth.actor_message_ns = 1500;
  truth.slot_turn_ns = 3000;
  truth.ll_line_ns = 30;
  truth.ll128_line_ns = 8;
  std::vector<calibration> measured;
  for (const int ranks : {2, 4, 8})
    for (const char* name : {"one_shot", "recursive_doubling", "ring"}) {
      measured.push_back({name, ranks, 8, message_protocol::simple, 0});
      for (const std::size_t bytes : {8U, 2048U, 16384U})
        for (const message_protocol protocol : {message_protocol::ll, message_protocol::ll128})
          measured.push_back({name, ranks, bytes, protocol, 0});
    }
  for (calibration& c : measured) c.seconds = calibration_model{c}.predict(truth);
  tuning found = assumed_tuning();
  found.machine.cores = 2;
  CHECK(fit(found, measured) < 1.1);
  CHECK(found.slot_turn_ns == doctest::Approx(3000).epsilon(0.2));
  CHECK(found.ll_line_ns == doctest::Approx(30).epsilon(0.3));
}

TEST_CASE("a fit finds what frames between processes cost, and leaves the actors as they are") {
  tuning truth = assumed_tuning();
  truth.ring_message_ns = 2500, truth.ring_kilobyte_ns = 60;
  truth.socket_message_ns = 40000, truth.socket_kilobyte_ns = 900;
  std::vector<calibration> measured;
  for (const reach between : {reach::segment, reach::network})
    for (const char* name : {"one_shot", "recursive_doubling", "ring"})
      for (const std::size_t bytes : {8U, 2048U, 16384U, 131072U, 1U << 20})
        measured.push_back({name, 2, bytes, message_protocol::simple, 0, between});
  for (calibration& c : measured) c.seconds = calibration_model{c}.predict(truth);
  tuning found = assumed_tuning();
  CHECK(fit(found, measured) < 1.1);
  CHECK(found.ring_message_ns == doctest::Approx(2500).epsilon(0.2));
  CHECK(found.ring_kilobyte_ns == doctest::Approx(60).epsilon(0.3));
  CHECK(found.socket_message_ns == doctest::Approx(40000).epsilon(0.2));
  CHECK(found.socket_kilobyte_ns == doctest::Approx(900).epsilon(0.3));
  CHECK(found.actor_message_ns == truth.actor_message_ns);
}

// -- forced protocols -------------------------------------------------------------------------------------------------

TEST_CASE("a call's protocol is kept to, or refused") {
  planner p{engine_options{}};
  for (const collective what : {collective::all_reduce, collective::all_gather, collective::reduce_scatter,
                                collective::all_to_all, collective::barrier})
    for (const auto& [protocol, name] :
         {std::pair{message_protocol::simple, "simple"}, std::pair{message_protocol::ll, "ll"},
          std::pair{message_protocol::ll128, "ll128"}}) {
      call c = all_reduce_of(256);
      c.what = what;
      if (what == collective::barrier) c.count = 0;
      c.protocol = protocol;
      CAPTURE(to_string(c));
      CHECK(p.plan_for(c, layout::flat(4))->protocol() == parse_message_protocol(name));
      const auto rows = p.candidates(c, layout::flat(4));
      const auto chosen = std::find_if(rows.begin(), rows.end(), [](const candidate& r) { return r.chosen; });
      REQUIRE(chosen != rows.end());
      CHECK(chosen->protocol == name);
    }
  const auto refused = [&](call c, const std::string& why) {
    c.protocol = message_protocol::ll;
    CAPTURE(to_string(c));
    try {
      p.plan_for(c, layout::flat(4));
      FAIL("not refused");
    } catch (const error& e) {
      CHECK(e.code_value() == errc::unsupported);
      CHECK_MESSAGE(has(e.what(), why), e.what());
    }
    const auto rows = p.candidates(c, layout::flat(4));
    CHECK(std::none_of(rows.begin(), rows.end(), [](const candidate& r) { return r.chosen; }));
  };
  refused(all_reduce_of(1 << 20), "at most 65536 bytes");
  call c = all_reduce_of(64);
  c.type = datatype::f16;
  c.protocol = message_protocol::ll;
  CHECK(p.plan_for(c, layout::flat(4))->widened);  // else partial sums would be rounded
  c = all_reduce_of(64);
  c.choreography = "fused";
  refused(c, "fused");
  // By the direct port goes what one pass can do, of any size.
  c = all_reduce_of(1 << 20);
  c.protocol = message_protocol::direct;
  CHECK(p.plan_for(c, layout::flat(4))->direct());
  const auto refused_direct = [&](const call& what, const layout& placement, const std::string& why) {
    CAPTURE(to_string(what));
    try {
      p.plan_for(what, placement);
      FAIL("not refused");
    } catch (const error& e) {
      CHECK(e.code_value() == errc::unsupported);
      CHECK_MESSAGE(has(e.what(), why), e.what());
    }
  };
  refused_direct(c, layout::parse("2x2"), "on different servers, which share no memory");
  refused_direct(c, layout::parse("1x2"), "boards bypass what is between");
  c.choreography = "ring";
  refused_direct(c, layout::flat(4), "ring cannot: it works on its own memory only");
  c = all_reduce_of(0);
  c.what = collective::barrier;
  c.protocol = message_protocol::direct;
  CHECK(p.plan_for(c, layout::flat(4))->direct());  // to meet is what ranks do there
  refused_direct(c, layout::parse("2x2"), "on different servers, which share no memory");
  engine_options only_actors;
  only_actors.protocol = "simple";
  c = all_reduce_of(64);
  for (const auto which : {message_protocol::ll, message_protocol::direct}) {
    c.protocol = which;
    CHECK_THROWS_WITH_AS(planner{only_actors}.plan_for(c, layout::flat(4)),
                         doctest::Contains("its own protocol is simple"), error);
  }
  // The engine's is a wish: where its slots cannot, the planner chooses.
  engine_options o;
  o.protocol = "ll";
  CHECK(planner{o}.plan_for(all_reduce_of(1 << 20), layout::flat(4))->direct());
  // And the call's is stronger.
  c = all_reduce_of(64);
  c.protocol = message_protocol::simple;
  CHECK(planner{o}.plan_for(c, layout::flat(4))->protocol() == message_protocol::simple);
  c.protocol = message_protocol::automatic;
  CHECK(planner{o}.plan_for(c, layout::flat(4))->on_board());
}

TEST_CASE("ranks that insist on different protocols hear of it") {
  engine on{engine_options{}};
  int mismatches = 0;
  auto comms = on.communicators(2);
  std::vector<float> in(64, 1), out[2] = {std::vector<float>(64), std::vector<float>(64)};
  std::vector<request> both;
  for (std::size_t r = 0; r < 2; ++r) {
    call_options how;
    how.protocol = r == 0 ? message_protocol::ll : message_protocol::simple;
    both.push_back(comms[r].all_reduce_async(in, out[r], sum, how));
  }
  for (request& r : both) mismatches += r.try_wait() == errc::mismatch;
  CHECK(mismatches == 2);
}

TEST_CASE("many ranks: who cannot be verified does not decide who takes too long") {
  planner p{engine_options{}};
  const auto rows = p.candidates(all_reduce_of(8), layout::flat(8192));
  CHECK(std::count_if(rows.begin(), rows.end(), [](const candidate& c) { return c.chosen; }) == 1);
}

TEST_CASE("many ranks: how large a hierarchy is, is told from servers, not from a flat layout of as many") {
  // From flat layouts, where every rank is a server, `hierarchical` on 16 servers of 8 had 16 384 lanes, and was not tried.
  planner p{engine_options{}};
  for (const auto& [servers, cards] : {std::pair{16, 8}, std::pair{20, 4}, std::pair{8, 16}}) {
    int tried = 0;
    for (const candidate& c : p.candidates(all_reduce_of(1 << 20), layout::grid(servers, cards)))
      if (c.choreography.starts_with("hierarchical") &&
          c.choreography != "hierarchical_pipeline") {  // which has n² steps
        CAPTURE(c.choreography);
        CHECK_MESSAGE(c.why_rejected.find("about") == std::string::npos, c.why_rejected);
        tried += c.eligible() ? 1 : 0;
      }
    CHECK(tried >= 3);
  }
}

}  // namespace tuning_test
