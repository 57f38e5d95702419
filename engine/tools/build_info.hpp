// SPDX-License-Identifier: Apache-2.0
#pragma once
// What this program is, for results that outlive it.

#include <string>

namespace troupe {

/// "0.1.0".
std::string version();
/// Compiler and build type: "GCC 12.2.0, RelWithDebInfo".
std::string build_text();
/// Now, in UTC: "2026-11-22T05:12:00Z".
std::string date_text();

}  // namespace troupe
