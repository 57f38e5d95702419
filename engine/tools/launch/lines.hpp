// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one process writes, line by line: the lines of many processes stay whole when they share a terminal.

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::launch {

class line_stream {
public:
  /// A line that gets longer than this is passed on in pieces.
  static constexpr std::size_t longest = std::size_t{64} << 10;

  /// @param prefix of every line; may be empty
  explicit line_stream(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Appends the lines that are complete now to `out`; the beginning of one is kept.
  void feed(std::string_view text, std::string& out) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      const std::size_t length = end == std::string_view::npos ? text.size() : end + 1;
      kept_ += text.substr(0, length);
      text.remove_prefix(length);
      if (end != std::string_view::npos || kept_.size() >= longest) pass_on(out);
    }
  }
  /// Nothing more comes: a last line without an end gets one, so that nobody else's begins behind it.
  void finish(std::string& out) {
    if (kept_.empty()) return;
    kept_ += '\n';
    pass_on(out);
  }

private:
  void pass_on(std::string& out) {
    out += prefix_;
    out += kept_;
    if (kept_.back() != '\n') out += '\n';  // others may write before its next piece
    kept_.clear();
  }

  std::string prefix_;
  std::string kept_;
};

}  // namespace troupe::launch
