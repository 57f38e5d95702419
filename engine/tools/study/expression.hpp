// SPDX-License-Identifier: Apache-2.0
#pragma once
// Expressions of integers, and names with expressions in them, as machine files have them.

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// What is wrong with an expression, or with its values: a sentence.
struct expression_error : std::runtime_error {
  using runtime_error::runtime_error;
};

using variable_map = std::map<std::string, std::int64_t, std::less<>>;

/// "(i + 1) % x": + - * / % == != < <= > >= && || ! and parentheses, as C++ has them; true is 1. Parsed again at every value: for
/// short texts.
class expression {
public:
  /// @throws expression_error if it is none
  explicit expression(std::string text);
  /// @throws expression_error: an unknown variable, a division by zero, a value beyond 2^62
  std::int64_t value(const variable_map& of) const;

private:
  std::string text_;
};

/// "node {i}.{(j + 1) % 4}".
class name_pattern {
public:
  explicit name_pattern(const std::string& text);
  std::string text(const variable_map& of) const;

private:
  std::vector<std::pair<std::string, std::string>> parts_;  ///< a text, and the expression behind it; empty: none
};

}  // namespace troupe
