// SPDX-License-Identifier: Apache-2.0
// Ranks that reduced by different lambdas got results that nobody could explain: without a name nothing of a function was compared. Of function objects
// it is the type.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace functions_compared_test {

using namespace troupe;

namespace {

struct larger {
  int operator()(int a, int b) const { return std::max(a, b); }
};
struct smaller {
  int operator()(int a, int b) const { return std::min(a, b); }
};

/// Of two ranks, with what it has to say; errc::ok if they agree.
template <class Left, class Right>
errc end_of(const Left& left, const Right& right, std::initializer_list<const char*> parts = {}) {
  engine e;
  auto comms = e.communicators(3);
  std::vector<int> data(3, 1);
  std::vector<std::vector<int>> outs(3, data);
  group together;
  comms[0].all_reduce_async(together, data, outs[0], left);
  comms[1].all_reduce_async(together, data, outs[1], left);
  comms[2].all_reduce_async(together, data, outs[2], right);
  try {
    together.wait();
  } catch (const error& why) {
    const std::string text = why.what();
    for (const std::string part : parts) CHECK_MESSAGE(text.find(part) != std::string::npos, text);
    return why.code_value();
  }
  return errc::ok;
}

}  // namespace

TEST_CASE("ranks that reduce by different lambdas disagree, and are told what would be right") {
  const auto add = [](int a, int b) { return a + b; };
  const auto multiply = [](int a, int b) { return a * b; };
  int bias = 0;
  const auto shifted = [&bias](int a, int b) { return a + b + bias; };
  CHECK(end_of(add, multiply,
               {"operation #0: the ranks reduce by functions of different types", "troupe::named()",
                "ranks 0–1: all_reduce(count 3, i32, user (not commutative)), function type 1",
                "rank 2: all_reduce(count 3, i32, user (not commutative)), function type 2"}) == errc::mismatch);
  CHECK(end_of(larger{}, smaller{}) == errc::mismatch);
  CHECK(end_of(add, shifted) == errc::mismatch);
  CHECK(end_of(commutative(larger{}), commutative(smaller{}), {"functions of different types"}) == errc::mismatch);
  CHECK(end_of(larger{}, user_op([](const void*, const void*, void*, std::size_t, datatype, void*) {}, nullptr, false),
               {"rank 2", "no function object"}) == errc::mismatch);
}

TEST_CASE("functions of one type, or with one name, are the same to all ranks") {
  int bias[2] = {0, 0};
  const auto with = [&](int which) { return [of = bias + which](int a, int b) { return a + b + *of; }; };
  const auto mine = with(0), theirs = with(1);
  CHECK(end_of(mine, theirs) == errc::ok);
  CHECK(end_of(larger{}, larger{}) == errc::ok);
  CHECK(end_of(commutative(larger{}), commutative(larger{})) == errc::ok);
  CHECK(end_of(named("max", larger{}), named("max", [](int a, int b) { return a > b ? a : b; })) == errc::ok);
  CHECK(end_of(named("max", commutative(larger{})),
               commutative(named("max", [](int a, int b) { return a > b ? a : b; }))) == errc::ok);
  CHECK(end_of(std::plus<>{}, sum) == errc::ok);
}

}  // namespace functions_compared_test
