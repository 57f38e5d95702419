// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/expression.hpp"

#include <array>
#include <cctype>
#include <charconv>
#include <string_view>

namespace troupe {

namespace {

constexpr int deepest = 64;

/// Computes while it reads. Without variables every name is 1, for a look at the grammar alone.
class calculator {
public:
  calculator(std::string_view text, const variable_map* of) : text_(text), of_(of) {}

  std::int64_t all() {
    const std::int64_t v = binary(0);
    skip();
    if (at_ < text_.size()) fail("\"" + std::string{text_.substr(at_, 1)} + "\" is not expected there");
    return v;
  }

private:
  [[noreturn]] void fail(const std::string& why) const {
    throw expression_error("the expression \"" + std::string{text_.substr(0, 200)} + "\": " + why);
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(std::string_view word) {
    skip();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  /// The operators, the weakest first; of one row those with two characters first.
  static constexpr std::array<std::array<std::string_view, 4>, 6> rows{
      {{"||"}, {"&&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}}};

  std::int64_t binary(std::size_t row) {
    if (row == rows.size()) return unary();
    std::int64_t left = binary(row + 1);
    for (;;) {
      std::string_view found;
      for (const std::string_view o : rows[row])
        if (!o.empty() && found.empty() && take(o)) found = o;
      if (found.empty()) return left;
      left = apply(found, left, binary(row + 1));
    }
  }

  std::int64_t apply(std::string_view o, std::int64_t a, std::int64_t b) const {
    if (o == "||") return a != 0 || b != 0;
    if (o == "&&") return a != 0 && b != 0;
    if (o == "==") return a == b;
    if (o == "!=") return a != b;
    if (o == "<=") return a <= b;
    if (o == ">=") return a >= b;
    if (o == "<") return a < b;
    if (o == ">") return a > b;
    if ((o == "/" || o == "%") && b == 0) {
      if (of_ == nullptr) return 1;
      fail("a division by zero");
    }
    std::int64_t v = 0;
    const bool over = o == "+"   ? __builtin_add_overflow(a, b, &v)
                      : o == "-" ? __builtin_sub_overflow(a, b, &v)
                      : o == "*" ? __builtin_mul_overflow(a, b, &v)
                                 : (v = o == "/" ? a / b : a % b, false);
    constexpr std::int64_t most = std::int64_t{1} << 62;
    if (over || v > most || v < -most) fail("a value is too large");
    return v;
  }

  std::int64_t unary() {
    if (++depth_ > deepest) fail("it is nested too deeply");
    std::int64_t v = 0;
    skip();
    if (take("!")) v = unary() == 0;
    else if (take("-")) v = -unary();
    else if (take("(")) {
      v = binary(0);
      if (!take(")")) fail("a ) is missing");
    } else if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) v = number();
    else v = variable();
    --depth_;
    return v;
  }

  std::int64_t number() {
    std::int64_t v = 0;
    const auto [end, failure] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (failure != std::errc{} || v > std::int64_t{1} << 62) fail("a number is too large");
    at_ = static_cast<std::size_t>(end - text_.data());
    return v;
  }

  std::int64_t variable() {
    const std::size_t begin = at_;
    const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty())
      fail(at_ < text_.size() ? "\"" + std::string{text_.substr(at_, 1)} + "\" is not expected there"
                              : "it ends too early");
    if (of_ == nullptr) return 1;
    const auto found = of_->find(name);
    if (found == of_->end()) {
      std::string list;
      for (const auto& [known, value] : *of_) list += (list.empty() ? "" : ", ") + known;
      fail("there is no " + std::string{name} + " here" + (list.empty() ? "" : "; there are " + list));
    }
    return found->second;
  }

  std::string_view text_;
  const variable_map* of_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

expression::expression(std::string text) : text_(std::move(text)) {
  static_cast<void>(calculator{text_, nullptr}.all());
}

std::int64_t expression::value(const variable_map& of) const { return calculator{text_, &of}.all(); }

name_pattern::name_pattern(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto open = text.find('{', at);
    const auto close = open == std::string::npos ? std::string::npos : text.find('}', open);
    if (open != std::string::npos && close == std::string::npos)
      throw expression_error("the name \"" + text + "\": a } is missing");
    if (open == std::string::npos) {
      parts_.emplace_back(text.substr(at), "");
      return;
    }
    const std::string inside = text.substr(open + 1, close - open - 1);
    static_cast<void>(expression{inside});
    parts_.emplace_back(text.substr(at, open - at), inside);
    at = close + 1;
  }
}

std::string name_pattern::text(const variable_map& of) const {
  std::string made;
  for (const auto& [before, inside] : parts_) {
    made += before;
    if (!inside.empty()) made += std::to_string(calculator{inside, &of}.all());
  }
  return made;
}

}  // namespace troupe
