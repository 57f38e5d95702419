// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/build_info.hpp"

#include <ctime>

#include "actors/ports/link/ucx/ucx_transport.hpp"

namespace troupe {

std::string version() { return TROUPE_VERSION; }

std::string build_text() {
#ifdef __clang__
  const std::string compiler = "Clang ";
#else
  const std::string compiler = "GCC ";
#endif
  const std::string ucx = actors::ucx_version();
  return compiler + __VERSION__ + ", " + TROUPE_BUILD_TYPE + (ucx.empty() ? "" : ", UCX " + ucx);
}

std::string date_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace troupe
