// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The seed of this test run: TROUPE_TEST_SEED (decimal, or hexadecimal with 0x) if set, else random. The test's main prints it
/// on start, so a failure is repeated with `TROUPE_TEST_SEED=<seed> test_property`. The same value on every call; any thread.
std::uint64_t seed();
