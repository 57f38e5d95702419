// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace {

std::uint64_t choose_seed() {
  const char* text = std::getenv("TROUPE_TEST_SEED");
  if (text == nullptr || *text == '\0') {
    std::random_device entropy;
    return (std::uint64_t{entropy()} << 32) | entropy();
  }
  char* end = nullptr;
  errno = 0;
  const auto value = std::strtoull(text, &end, 0);
  if (*end != '\0' || errno != 0 || *text == '-') {
    // A mistyped seed must not run as another one and look like a pass.
    std::fprintf(stderr, "TROUPE_TEST_SEED is '%s'; it must be an unsigned 64-bit number\n", text);
    std::exit(2);
  }
  return value;
}

}  // namespace

std::uint64_t seed() {
  static const std::uint64_t value = choose_seed();
  return value;
}

int main(int argc, char** argv) {
  // Measured costs of a machine decide how calls are planned: tests must not depend on a file of their user.
  ::setenv("TROUPE_TUNING", "none", 1);
  doctest::Context context(argc, argv);
  std::printf("seed: TROUPE_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed()));
  std::fflush(stdout);
  return context.run();
}
