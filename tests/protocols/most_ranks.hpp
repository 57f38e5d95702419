// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The tests that prove scores have one thread, so ThreadSanitizer learns nothing from the large ones and takes minutes: there, and
/// only there, they stop at 8 ranks.
#if defined(__SANITIZE_THREAD__)
inline constexpr int most_ranks = 8;
#else
inline constexpr int most_ranks = 64;
#endif
