// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memory/error.hpp"

namespace troupe_tests {

/// Of the error that the call throws; ok: none.
template <class Call>
troupe::errc code_of(Call&& call) {
  try {
    call();
  } catch (const troupe::error& why) {
    return why.code_value();
  }
  return troupe::errc::ok;
}

}  // namespace troupe_tests
