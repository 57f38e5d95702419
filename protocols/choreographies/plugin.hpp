// SPDX-License-Identifier: Apache-2.0
#pragma once
// Choreographies in a shared library that a configuration names: [engine.choreography_libraries] mine = "libmine.so". The library has, once,
//   TROUPE_CHOREOGRAPHIES(&swap, &other)
// for objects of type troupe::choreography. It is linked with troupe::troupe, of the same version as the program that loads it.

#include <array>
#include <cstddef>

#include "protocols/choreographies/choreography.hpp"

namespace troupe {

/// The table that such a library exports under the name troupe_choreographies.
struct choreography_list {
  /// Of the types that pass between the library and the program; they change with the version.
  std::size_t sizes[4];
  const choreography* const* begin;
  std::size_t count;

  static constexpr std::array<std::size_t, 4> wanted_sizes{sizeof(score), sizeof(step), sizeof(setup),
                                                           sizeof(choreography)};
};

}  // namespace troupe

#define TROUPE_CHOREOGRAPHIES(...)                                                                                     \
  namespace {                                                                                                          \
  constexpr const troupe::choreography* troupe_choreographies_here[] = {__VA_ARGS__};                                  \
  }                                                                                                                    \
  extern "C" __attribute__((visibility("default"))) const troupe::choreography_list troupe_choreographies;             \
  const troupe::choreography_list troupe_choreographies = {                                                            \
      {sizeof(troupe::score), sizeof(troupe::step), sizeof(troupe::setup), sizeof(troupe::choreography)},              \
      troupe_choreographies_here,                                                                                      \
      sizeof troupe_choreographies_here / sizeof *troupe_choreographies_here}
