// SPDX-License-Identifier: Apache-2.0
#pragma once
// The try_ forms: what a call throws, as its code.

#include <new>
#include <system_error>
#include <utility>

#include "memory/error.hpp"

namespace troupe {

/// @param otherwise of what is neither an error of ours nor a lack of memory: what a caller's own function threw
template <class Call>
std::error_code code_of_call(Call&& call, errc otherwise) noexcept {
  try {
    std::forward<Call>(call)();
    return {};
  } catch (const error& e) {
    return e.code();
  } catch (const std::bad_alloc&) {
    return make_error_code(errc::out_of_memory);
  } catch (...) {
    return make_error_code(otherwise);
  }
}

}  // namespace troupe
