// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which of two ways a rank's messages or calls go, as it finds out by trying: by a staging buffer or copied by the system (staging_trials.hpp), stored past the
// caches or to them (store_trials.hpp). What was measured beforehand decides how it begins. But it changes during a job: two virtual cores share a
// cache now, and do not a minute later; other virtual machines take a part of it; and where the data were last, only the application knows. So
// whoever decides times what comes of it, and goes the other way for a few messages now and then, the less often the more that costs.
//
// Ranks that call one collective decide each for itself, and what one of them gains by a change may hang on whether the others change, too. As long as
// they have counted the same calls, they try the same way in the same one.
//
// Pure: it is told how long things took, from the moment before the first copy to the moment when this rank saw that the other end has all. Not synchronised.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// Of messages of similar lengths, or calls of one collective.
class way_trials {
public:
  /// Messages a trial, in pairs: every second one may find lines where the one before has left them. Other work on the cores makes some pairs longer and
  /// none shorter, so the shortest pair is what a way takes.
  static constexpr unsigned series = 6;
  /// Messages from one occasion to the next, at which all try the first way or all the second, in turn. How the very first messages go is of no interest:
  /// memory is new, and ranks find their cores.
  static constexpr unsigned between_occasions = 32;
  static constexpr unsigned shortest_gap = 2 * between_occasions, longest_gap = 32 * shortest_gap;
  /// Trials are to take so much of the time, one part in so many. The first ones take more, since gaps only double, and those of a way that is very much slower:
  /// there is a longest gap.
  static constexpr unsigned part_for_trials = 64;
  static constexpr unsigned tie = 4;      ///< gaps at least, after a trial that has changed nothing
  static constexpr double better = 0.9;   ///< of the other way's time: it is worth a change
  static constexpr double changed = 1.5;  ///< times as long as at the last trial: so there is another one soon

  /// For the next message: whether it goes the second way. @param expected what is known beforehand
  bool takes_second(bool expected) {
    if (count_ == 0) chosen_ = expected;
    // The first one is half as far away.
    const std::uint64_t from_there = count_++ + between_occasions / 2;
    const std::uint64_t occasion = from_there / between_occasions, place = from_there % between_occasions;
    const bool second = occasion % 2 == 0;
    if (trying_ && place >= series) end_trial();
    if (occasion == 0 || place >= series || second == chosen_ || occasion / 2 % gaps_ != 0) return chosen_;
    if (place == 0) {
      ways_[second].begin();
      trying_ = true;
    }
    return second;
  }
  /// @param time in any unit, the same for all lengths that share this
  void took(bool second, double time) {
    way& its = ways_[second];
    if (!its.ends_series(time)) return;
    if (second != chosen_) judge();
    else if (at_trial_ > 0 && its.time > changed * at_trial_) gaps_ = 1;
  }

private:
  struct way {
    double time = 0;  ///< of a pair of the last whole series; 0: there was none
    double least = 0, first = 0;
    unsigned messages = 0;

    void begin() { messages = 0; }
    bool ends_series(double took) {
      if (++messages % 2 == 1) return first = took, false;
      least = messages == 2 ? first + took : std::min(least, first + took);
      return messages >= series && end();
    }
    /// False: nothing is known of a pair.
    bool end() {
      const bool known = messages >= 2;
      if (known) time = least;
      messages = 0;
      return known;
    }
  };
  /// Of some messages nobody may have told how long they took.
  void end_trial() {
    if (ways_[!chosen_].end()) return judge();
    trying_ = false;
    lengthen(longest_gap / shortest_gap);
  }
  void judge() {
    trying_ = false;
    const way &tried = ways_[!chosen_], &usual = ways_[chosen_];
    if (usual.time == 0) return;
    const double ratio = tried.time / usual.time;
    if (ratio < better) {
      chosen_ = !chosen_;
      gaps_ = 1;
    } else {
      const double gaps = series * (ratio - 1) * part_for_trials / shortest_gap;
      lengthen(static_cast<unsigned>(std::clamp<double>(gaps, tie, longest_gap / shortest_gap)));
    }
    at_trial_ = ways_[chosen_].time;
  }
  /// To a power of two, so that ranks that differ in it have occasions in common; and no more than doubled, since a trial may have been disturbed.
  void lengthen(unsigned wanted) { gaps_ = std::min({std::bit_ceil(wanted), 2 * gaps_, longest_gap / shortest_gap}); }

  std::array<way, 2> ways_{};
  double at_trial_ = 0;      ///< what the chosen way took then
  std::uint64_t count_ = 0;  ///< messages
  unsigned gaps_ = 1;        ///< shortest ones, from one trial to the next
  bool chosen_ = false;      ///< the second way
  bool trying_ = false;      ///< the other way, and there is no verdict yet
};

}  // namespace troupe
