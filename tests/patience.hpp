// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifndef TROUPE_TEST_PATIENCE
#define TROUPE_TEST_PATIENCE 1
#endif

/// How many times as long as usual a test waits before it says that something never comes, and how many times as long a process may be silent in tests that
/// are not about silence: more where the processor is emulated, or code is sanitised (tests/CMakeLists.txt).
inline constexpr int patience = TROUPE_TEST_PATIENCE;
