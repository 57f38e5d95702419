// SPDX-License-Identifier: Apache-2.0
// What operations that fail, are cancelled, time out, or belong to communicators that come and go leave behind: nothing. The long run is
// bench/ours/soak.cpp.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

#include "bench/harness/soak.hpp"
#include "tests/issues/heap_use.hpp"

namespace soak_test {

/// What each look saw more than the first one.
std::string said(const bench::soak::result& all) {
  std::string text = "heap:";
  for (const auto& look : all.looks) text += ' ' + std::to_string(look.heap - all.looks.front().heap);
  return text;
}

}  // namespace soak_test

TEST_CASE("soak: mixed operations with failures are right, and the heap stays flat") {
  bench::soak::options how;
  how.ranks = 3;
  how.operations = 100'000;
  how.warm_up = 60'000;  // until lists of bounded length are full
  how.looks = 9;         // of which grown() compares three with three
  const auto all = bench::soak::run(how, [] { return static_cast<std::ptrdiff_t>(issues::heap_use()); });
  INFO(soak_test::said(all));
  CHECK(all.wrong == 0);
  CHECK(all.ends.at("performed") > 30'000);
  CHECK(all.ends.size() >= 7);  // errors of so many kinds
  // A leak of a byte in every third operation would show; what the engine's own threads keep for their next messages (3 KiB each) does not.
  CHECK(all.grown() < 8 * 1024);
  CHECK(all.least_step() < 16 * 1024);
}

TEST_CASE("soak: the same by the process's NIC, whose scratch is kept for the next operations") {
  bench::soak::options how;
  how.ranks = 3;
  how.offload = "always";
  how.operations = 80'000;
  how.warm_up = 60'000;
  how.looks = 4;
  const auto all = bench::soak::run(how, [] { return static_cast<std::ptrdiff_t>(issues::heap_use()); });
  INFO(soak_test::said(all));
  CHECK(all.wrong == 0);
  CHECK(all.ends.size() >= 7);
  // When the most is under way at once for the first time its scratch comes, up to the driver's bound.
  CHECK(all.grown() < std::ptrdiff_t{32} << 20);
  CHECK(all.least_step() < 16 * 1024);
}
