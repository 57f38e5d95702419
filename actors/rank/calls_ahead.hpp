// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's calls that may have run ahead: they may have ended here before every other rank was known to have called the same.
//
// Nothing wrong is delivered by them: whatever arrives carries its sender's fingerprint. What may be missed is that a rank that nothing is
// expected from calls something else. So every later message carries, with its own call's fingerprint, a hash of all such calls before
// it, and whoever performs an operation that waits for everybody then knows that all of them were the same. At most `most_ahead` of them
// follow each other; the next one waits for everybody, whatever it is.
//
// By number, not by time: which of the calls may run ahead follows from the calls alone, so that ranks that call the same agree on it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocols/call.hpp"
#include "protocols/chunk.hpp"
#include "protocols/plan.hpp"

namespace troupe::actors {

class calls_ahead {
public:
  /// @param most in a row; at most most_ahead
  explicit calls_ahead(unsigned most = most_ahead) : most_(most) {}

  /// The next call may: the last ones did not all.
  bool may_run_ahead() const { return in_a_row_ < most_; }
  /// Of all that were numbered before; 0 if there are none. Part of the next call's fingerprint.
  std::uint64_t history() const { return history_; }

  /// Throws std::bad_alloc.
  void make_room() {
    if (!last_) last_ = std::make_unique<std::array<entry, most_ahead>>();
  }
  /// The call of that number may run ahead. @param fingerprint of it, without number and history @param lists_number the number of its lists, as in
  /// call_shape @pre make_room()
  void add(epoch_t epoch, const call& what, const std::shared_ptr<const plan>& how, std::uint64_t fingerprint,
           std::uint64_t lists_number = 0) {
    entry& e = (*last_)[count_++ % most_ahead];
    // A loop of calls finds what it has written the last time. Sizes that only some ranks know are not in the fingerprint.
    if (e.fingerprint != fingerprint) [[unlikely]] {
      e.is(what, how, fingerprint);
    } else if (!what.uniform && (lists_number == 0 || lists_number != e.lists_number) && e.what.counts != what.counts) {
      e.what.counts = what.counts;
    }
    e.lists_number = lists_number;
    e.epoch = epoch;
    e.history = history_;
    history_ += mixed(fingerprint + epoch * 0x9e3779b97f4a7c15u);
    ++in_a_row_;
  }
  /// A call that waits for everybody is numbered.
  void add_strict() { in_a_row_ = 0; }
  /// Such a one was performed, so all before it were the same everywhere.
  void confirm(epoch_t epoch) {
    if (confirmed_ < epoch + 1) confirmed_ = epoch + 1;
  }

  /// There are calls of which the rank does not know that they were the same everywhere.
  bool any_unconfirmed() const { return count_ > 0 && at(count_ - 1).epoch >= confirmed_; }
  /// The call of that number, if it is one of these.
  std::optional<call> unconfirmed(epoch_t epoch) const {
    if (epoch < confirmed_) return std::nullopt;
    for (std::size_t i = first(); i < count_; ++i)
      if (at(i).epoch == epoch) return reported(at(i).what, at(i).how, epoch, at(i).history, true);
    return std::nullopt;
  }
  /// `what`, numbered `epoch`, as the membership compares it: with its plan, and what was called before it. Allocates.
  call reported(call what, const std::shared_ptr<const plan>& how, epoch_t epoch, std::uint64_t history,
                bool ahead) const {
    const auto report = std::make_shared<call_report>();
    if (how != nullptr) {
      report->plan = how->identity;
      report->planned = how->title();
      report->by_nic = how->nic() != nullptr;
    }
    report->ahead = ahead;
    report->known_from = confirmed_;
    if (first() > 0) report->known_from = std::max(confirmed_, at(first()).epoch);
    for (std::size_t i = first(); i < count_; ++i)
      if (at(i).epoch >= report->known_from && at(i).epoch < epoch)
        report->earlier.push_back({at(i).epoch, to_string(at(i).what), at(i).fingerprint});
    what.history = history;
    what.report = report;
    return what;
  }

private:
  struct entry {
    /// Another call than the last time. Throws std::bad_alloc.
    [[gnu::noinline]] void is(const call& c, const std::shared_ptr<const plan>& p, std::uint64_t its_fingerprint) {
      fingerprint = 0;  // until all is there: there may be no memory for it
      what = c;
      how = p;
      fingerprint = its_fingerprint;
    }

    epoch_t epoch = 0;
    std::uint64_t fingerprint = 0;
    std::uint64_t history = 0;  ///< before it
    std::uint64_t lists_number = 0;
    call what;
    std::shared_ptr<const plan> how;
  };
  const entry& at(std::size_t i) const { return (*last_)[i % most_ahead]; }
  std::size_t first() const { return count_ > most_ahead ? count_ - most_ahead : 0; }
  /// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
  static std::uint64_t mixed(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
  }

  std::unique_ptr<std::array<entry, most_ahead>> last_;
  std::size_t count_ = 0;
  unsigned most_;
  unsigned in_a_row_ = 0;
  epoch_t confirmed_ = 0;
  std::uint64_t history_ = 0;
};

}  // namespace troupe::actors
