// SPDX-License-Identifier: Apache-2.0
#pragma once
// The program as a user calls it, for tests of the command line: its output, its messages and its exit code.

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace troupe_program {

namespace fs = std::filesystem;
using json = nlohmann::json;

/// A folder of this process, removed at its end; in the build tree, so that nothing is left elsewhere of a test that is killed.
inline const fs::path& folder() {
  static const struct owner {
    fs::path path = fs::path{TROUPE_PROGRAM}.parent_path() / "Testing" / ("cli_" + std::to_string(getpid()));
    owner() { fs::create_directories(path); }
    ~owner() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } the;
  return the.path;
}

inline std::string contents(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string write(const std::string& name, const std::string& text) {
  std::ofstream{folder() / name} << text;
  return (folder() / name).string();
}

struct outcome {
  int code = -1;
  std::string out, err;
};

/// @param before goes in front of the program: variables, or another program.
inline outcome run(const std::string& arguments, const std::string& before = {}) {
  const auto out = folder() / "out", err = folder() / "err";
  const std::string line =
      before + " '" TROUPE_PROGRAM "' " + arguments + " >'" + out.string() + "' 2>'" + err.string() + "' </dev/null";
  const int status = std::system(line.c_str());
  outcome o;
  o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  o.out = contents(out);
  o.err = contents(err);
  return o;
}

inline std::string config_folder() { return std::string{TROUPE_SOURCE_DIR} + "/config/"; }

inline void check_says(const std::string& text, const std::string& part) {
  INFO("\"", text, "\" lacks \"", part, "\"");
  CHECK((text.find(part) != std::string::npos));
}

/// Refused as a mistake of the user: exit code 2, nothing on standard output, one message.
inline void check_refused(const outcome& o, const std::vector<std::string>& says) {
  CHECK(o.code == 2);
  CHECK(o.out == "");
  for (const std::string& part : says) check_says(o.err, part);
  check_says(o.err, "troupe");
  CHECK((o.err.find("terminate called") == std::string::npos));
}

/// The rows of a table: lines that are no comments, cut at blanks.
inline std::vector<std::vector<std::string>> rows_of(const std::string& table) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines{table};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words{line};
    rows.emplace_back();
    for (std::string word; words >> word;) rows.back().push_back(word);
  }
  return rows;
}

}  // namespace troupe_program
