// SPDX-License-Identifier: Apache-2.0
#pragma once
// Visits every state that a small model can be in, whatever the order of its threads' steps, and looks for one that must not be.
// A model is a struct of small numbers without padding, and a list of threads: functions that make one step, or say that they cannot.

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace model {

template <class State>
struct thread {
  const char* name;
  /// One step. False: it has ended, or waits for another thread. May be asked for each of several alternatives: `choice` is 0, 1, … until
  /// it answers false for the first time.
  std::function<bool(State&, int choice)> step;
};

struct outcome {
  std::size_t states = 0;
  std::string wrong;               ///< empty: nothing
  std::vector<std::string> trace;  ///< the steps to it
};

/// @param always what is wrong in a state; empty: nothing. @param finally the same of a state in which no thread can make a step
template <class State>
outcome explore(const State& start, const std::vector<thread<State>>& threads,
                const std::function<std::string(const State&)>& always,
                const std::function<std::string(const State&)>& finally) {
  static_assert(std::has_unique_object_representations_v<State>);
  struct visited {
    State at;
    std::size_t from;
    const char* by;
  };
  std::vector<visited> all{{start, 0, ""}};
  const auto bytes = [](const State& s) { return std::string(reinterpret_cast<const char*>(&s), sizeof s); };
  std::unordered_set<std::string> known{bytes(start)};
  outcome result;
  for (std::size_t i = 0; i < all.size(); ++i) {
    result.wrong = always(all[i].at);
    bool stands = true;
    for (const auto& t : threads) {
      if (!result.wrong.empty()) break;
      for (int choice = 0;; ++choice) {
        State next = all[i].at;
        if (!t.step(next, choice)) break;
        stands = false;
        if (known.insert(bytes(next)).second) all.push_back({next, i, t.name});
      }
    }
    if (stands && result.wrong.empty()) result.wrong = finally(all[i].at);
    if (result.wrong.empty()) continue;
    for (std::size_t at = i; at != 0; at = all[at].from) result.trace.insert(result.trace.begin(), all[at].by);
    break;
  }
  result.states = all.size();
  return result;
}

inline std::string told(const outcome& o) {
  std::string text = o.wrong + " after";
  for (const std::string& step : o.trace) text += " " + step;
  return text;
}

}  // namespace model
