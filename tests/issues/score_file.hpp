// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

namespace issues {

/// A user's score in a file that is gone at the end of the test.
class score_file {
public:
  explicit score_file(const std::string& text) {
    static std::atomic<int> number{0};
    path_ = (std::filesystem::temp_directory_path() /
             ("troupe_issue_" + std::to_string(getpid()) + '_' + std::to_string(number++) + ".json"))
                .string();
    std::ofstream{path_} << text;
  }
  ~score_file() { std::filesystem::remove(path_); }
  score_file(const score_file&) = delete;
  score_file& operator=(const score_file&) = delete;
  const std::string& path() const { return path_; }

private:
  std::string path_;
};

}  // namespace issues
