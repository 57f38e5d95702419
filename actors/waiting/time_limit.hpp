// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

#include "actors/waiting/parking.hpp"

namespace troupe::actors {

/// How long something may take, if there is a limit. One word: a std::optional is passed in two registers, of which the second is read as a
/// word behind the byte that has just been written, and such a load waits for the store.
class time_limit {
public:
  constexpr time_limit() = default;  ///< none
  constexpr time_limit(std::nullopt_t) {}
  template <class Rep, class Period>
  constexpr time_limit(std::chrono::duration<Rep, Period> limit) : ns_(std::chrono::nanoseconds{limit}.count()) {}
  constexpr time_limit(std::optional<std::chrono::nanoseconds> limit) : ns_(limit ? limit->count() : none) {}

  constexpr explicit operator bool() const { return ns_ != none; }
  constexpr std::chrono::nanoseconds operator*() const { return std::chrono::nanoseconds{ns_}; }  ///< @pre there is one
  constexpr std::chrono::nanoseconds value_or(std::chrono::nanoseconds other) const { return *this ? **this : other; }
  constexpr std::optional<std::chrono::nanoseconds> optional() const {
    return *this ? std::optional{**this} : std::nullopt;
  }
  /// When what began then has no more time.
  steady_time after(steady_time begun) const {
    return *this && **this < no_deadline - begun ? begun + **this : no_deadline;
  }

private:
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::int64_t ns_ = none;
};

}  // namespace troupe::actors
