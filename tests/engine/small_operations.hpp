// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the tests of operations over slots share.

#include <string>

#include "tests/engine/jobs.hpp"

namespace engine_tests {

struct seen {
  errc code = errc::ok;
  std::string text;
};

template <class Function>
seen error_of(Function function) {
  try {
    function();
  } catch (const troupe::error& e) {
    return {e.code_value(), e.what()};
  }
  return {};
}

inline troupe::engine_options over(const char* protocol, int workers = -1) {
  troupe::engine_options o;
  o.protocol = protocol;
  o.workers = workers;
  return o;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace engine_tests
