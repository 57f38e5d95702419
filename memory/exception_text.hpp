// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

namespace troupe {

/// The text of an exception of any type. Any thread. Throws std::bad_alloc. @pre not null
inline std::string text_of(const std::exception_ptr& problem) {
  try {
    std::rethrow_exception(problem);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "a function threw something that is no std::exception";
  }
}

}  // namespace troupe
