// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random numbers that depend only on what they are drawn for. A simulation draws every choice from a source named by the seed and by
// what is chosen (a message of a link, a caller's step), so that taking something out of a scenario leaves the rest as it was.

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace troupe::simulate {

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): every bit of the result depends on every bit of the word.
inline std::uint64_t mix(std::uint64_t word) {
  word += 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

class dice {
public:
  explicit dice(std::uint64_t seed) : state_(mix(seed)) {}
  /// One source for each list of names.
  dice(std::uint64_t seed, std::initializer_list<std::uint64_t> names) : state_(mix(seed)) {
    for (const std::uint64_t name : names) state_ = mix(state_ ^ name);
  }

  std::uint64_t next() { return state_ = mix(state_); }
  /// 0 … n − 1. @pre n > 0
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  std::size_t index(std::size_t n) { return static_cast<std::size_t>(below(n)); }
  int between(int least, int most) {
    return least + static_cast<int>(below(static_cast<std::uint64_t>(most - least + 1)));
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  bool percent(int chance) { return below(100) < static_cast<std::uint64_t>(chance); }
  template <class List>
  auto pick(const List& of) {
    return *(of.begin() + static_cast<std::ptrdiff_t>(below(of.size())));
  }
  template <class T>
  T any_of(std::initializer_list<T> list) {
    return *(list.begin() + static_cast<std::ptrdiff_t>(below(list.size())));
  }

private:
  std::uint64_t state_;
};

}  // namespace troupe::simulate
