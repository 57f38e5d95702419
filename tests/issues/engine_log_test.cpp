// SPDX-License-Identifier: Apache-2.0
// What engines log: on standard error, at the level of each engine, whatever another one has.

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include "engine/api/engine.hpp"
#include "engine/api/troupe.hpp"

using namespace troupe;

namespace {

/// What is written to a descriptor while it lives.
class captured {
public:
  explicit captured(int descriptor) : descriptor_(descriptor), kept_(dup(descriptor)), file_(std::tmpfile()) {
    std::fflush(nullptr);
    dup2(fileno(file_), descriptor_);
  }
  std::string end() {
    std::fflush(nullptr);
    dup2(kept_, descriptor_);
    close(kept_);
    std::string text;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
    std::fclose(file_);
    return text;
  }

private:
  int descriptor_, kept_;
  std::FILE* file_;
};

struct both {
  std::string out, err;
};

engine at_level(const std::string& level) {
  engine_options o;
  o.log_level = level;
  return engine{o};
}

/// Two ranks; rank 0's callback throws, before its operation is done or after. Another thread may call it: the engine ends first.
both throwing_callback(const std::string& level, bool late) {
  captured out{STDOUT_FILENO}, err{STDERR_FILENO};
  {
    engine on = at_level(level);
    auto comms = on.communicators(2);
    std::vector<float> a(4, 1), b(4, 1);
    request first = comms[0].all_reduce_async(a);
    const auto throws = [](std::error_code) { throw std::runtime_error("not today"); };
    if (!late) first.then(throws);
    comms[1].all_reduce(b);
    first.wait();
    if (late) first.then(throws);
  }
  both made{out.end(), {}};
  made.err = err.end();
  return made;
}

}  // namespace

TEST_CASE("a callback that throws is logged on standard error, unless its engine's level says otherwise") {
  for (const bool late : {false, true}) {
    CAPTURE(late);
    const engine last = at_level("off");  // it no longer counts for all
    const both told = throwing_callback("error", late), hushed = throwing_callback("off", late);
    CHECK(told.out == "");
    CHECK((told.err.find("a callback of an operation threw: not today") != std::string::npos));
    CHECK(hushed.out == "");
    CHECK(hushed.err == "");
  }
}

TEST_CASE("what a request without an engine calls is logged as the environment says") {
  for (const char* level : {"", "off"}) {
    CAPTURE(level);
    if (*level != '\0') setenv("TROUPE_ENGINE_LOG_LEVEL", level, 1);
    captured err{STDERR_FILENO};
    request{}.then([](std::error_code) { throw std::runtime_error("not today"); });
    const std::string said = err.end();
    unsetenv("TROUPE_ENGINE_LOG_LEVEL");
    CHECK((said.find("a callback of an operation threw: not today") != std::string::npos) == (*level == '\0'));
  }
}

TEST_CASE("a planner's words are those of its engine's level") {
  for (const auto& [level, speaks] : {std::pair{"info", true}, {"warn", false}}) {
    engine_options o;
    o.log_level = level;
    o.protocol = "ll";
    engine on{o};
    const engine other = at_level(speaks ? "off" : "trace");
    captured err{STDERR_FILENO};
    on.run(2, [](communicator& comm) {
      std::vector<float> large(1 << 18, 1);
      comm.all_reduce(large);
    });
    CHECK((err.end().find("not by protocol ll, but as the planner chooses") != std::string::npos) == speaks);
  }
}
