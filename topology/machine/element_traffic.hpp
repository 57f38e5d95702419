// SPDX-License-Identifier: Apache-2.0
#pragma once
// The traffic through one element of a machine, as real runs count it (engine::traffic()).

#include <cstdint>
#include <string>

namespace troupe {

struct element_traffic {
  std::string element;         ///< as machine::to_string() names it: "ring 0.0:1→2"
  std::uint64_t messages = 0;  ///< with a payload; a NIC's packets of one message count as one
  std::uint64_t bytes = 0;     ///< of payload
  std::uint64_t tokens = 0;    ///< messages without: barriers, requests, answers

  friend bool operator==(const element_traffic&, const element_traffic&) = default;
};

}  // namespace troupe
