// SPDX-License-Identifier: Apache-2.0
// TROUPE_… variables and TROUPE_CONFIG in programs that have no configuration of their own.

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <unistd.h>

#include "engine/api/engine.hpp"
#include "engine/config/configuration.hpp"
#include "memory/error.hpp"

using namespace troupe;

namespace {

/// Set while it lives, and then as it was before. Tests of an executable run one after the other.
class variable {
public:
  variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~variable() {
    if (before_) setenv(name_.c_str(), before_->c_str(), 1);
    else unsetenv(name_.c_str());
  }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;

private:
  std::string name_;
  std::optional<std::string> before_;
};

std::string variable_of(std::string_view key) {
  std::string name = "TROUPE_";
  for (const char c : key) name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

/// A value that is not the default.
std::string other_value(const config_setting& s) {
  switch (s.kind) {
    case config_kind::boolean: return s.initial == "true" ? "false" : "true";
    case config_kind::integer: return std::to_string(std::stoll(std::string{s.initial}) + 1);
    case config_kind::real: return "0.5";
    case config_kind::bytes: return "64K";
    case config_kind::duration: return "7ms";
    case config_kind::choice: {
      const auto bar = s.choices.rfind('|');
      return std::string{s.choices.substr(bar + 1)};
    }
    default: break;
  }
  if (s.key == "engine.layout") return "2x2";
  if (s.key == "engine.choreography") return "ring";
  return "none";  // of engine.tuning
}

}  // namespace

TEST_CASE("every variable of [engine] reaches an engine whose program says nothing, and none that it says or forbids") {
  const variable no_file{"TROUPE_TUNING", ""};  // what main.cpp sets for all tests names a file of engine.tuning
  int keys = 0;
  for (const config_setting& s : config_schema()) {
    if (!s.key.starts_with("engine.") || s.key.ends_with('*')) continue;
    CAPTURE(s.key);
    const std::string value = other_value(s);
    configuration same;
    same.set(s.key, value);
    engine_options expected = same.engine();
    REQUIRE_FALSE(expected == engine_options{});
    expected.environment = false;
    const variable set{variable_of(s.key), value};
    CHECK(with_environment({}) == expected);
    engine_options forbids;
    forbids.environment = false;
    CHECK(with_environment(forbids) == forbids);
    ++keys;
  }
  CHECK(keys > 20);
  const variable set{"TROUPE_ENGINE_CREDITS", "3"}, of{"TROUPE_ENGINE_CHOREOGRAPHY_OF_ALL_REDUCE", "ring"};
  engine_options mine;
  mine.credits = 5;
  mine.choreography_of["all_gather"] = "bruck";
  const engine_options got = with_environment(mine);
  CHECK(got.credits == 5);
  CHECK(got.choreography_of == std::map<std::string, std::string>{{"all_gather", "bruck"}, {"all_reduce", "ring"}});
  CHECK(engine{}.options().credits == 3);
  mine = {};
  mine.environment = false;
  CHECK(engine{mine}.options().credits == 8);
}

TEST_CASE("TROUPE_CONFIG: a file below the variables, an error where it is wrong") {
  const auto path =
      std::filesystem::temp_directory_path() / ("troupe_environment_" + std::to_string(getpid()) + ".toml");
  std::ofstream{path} << "[engine]\ncredits = 4\nstreams = 2\n[workload]\nranks = 3\n";
  {
    const variable file{"TROUPE_CONFIG", path.string()};
    CHECK(engine{}.options().credits == 4);
    const variable stronger{"TROUPE_ENGINE_CREDITS", "6"};
    CHECK(engine{}.options().credits == 6);
    CHECK(engine{}.options().streams == 2);
    {
      const variable of_the_program{"TROUPE_WORKLOAD_RUN_0_TYPE", "f16"};
      CHECK_NOTHROW(engine{});
    }
    // What a configuration says is not asked for once more: this is the default, but said.
    configuration said;
    said.add_environment();
    said.set("engine.credits", "8");
    CHECK(engine{said.engine()}.options().credits == 8);
  }
  std::filesystem::remove(path);
  const variable nowhere{"TROUPE_CONFIG", path.string()};
  CHECK_THROWS_WITH_AS(engine{}, doctest::Contains("cannot be read"), error);
  engine_options alone;
  alone.environment = false;
  CHECK_NOTHROW(engine{alone});
}

TEST_CASE("a variable that names no key is an error of every engine") {
  const variable wrong{"TROUPE_ENGINE_CREDTIS", "3"};
  CHECK_THROWS_WITH_AS(engine{}, doctest::Contains("did you mean TROUPE_ENGINE_CREDITS?"), error);
}

TEST_CASE("a rank that is to be killed must be there") {
  engine_options o;
  o.faults.kill_after = 1;
  o.faults.kill_rank = 99;
  engine on{o};
  CHECK_THROWS_WITH_AS(on.communicators(4), doctest::Contains("faults.kill_rank is 99, but there are ranks 0 to 3"),
                       error);
}
