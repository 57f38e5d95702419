// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's calls that may have run ahead: they may have ended here before every other rank was known to have called the same.
//
// Nothing wrong is delivered by them: whatever arrives carries its sender's fingerprint. It may go unnoticed that a rank that nothing is
// expected from calls something else. So every later message carries, with its own call's fingerprint, a hash of all such calls before
// it, and a rank that performs an operation that waits for everybody then knows that all of them were the same. At most `most_ahead` of them
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

  /// For the call of that number. Throws std::bad_alloc.
  void make_room(epoch_t epoch) {
    auto& some = last_[place_of(epoch) / in_a_chunk];
    if (!some) [[unlikely]]
      some = std::make_unique<chunk>();
  }
  /// The call of that number may run ahead. @param fingerprint of it, without number and history @param lists_number the number of its lists, as in
  /// call_shape @pre make_room(epoch), and no later one was added
  void add(epoch_t epoch, const call& what, const std::shared_ptr<const plan>& how, std::uint64_t fingerprint,
           std::uint64_t lists_number = 0) {
    entry& e = (*last_[place_of(epoch) / in_a_chunk])[place_of(epoch) % in_a_chunk];
    // A loop of calls, with a root that moves on perhaps, finds what it has written the last time. Sizes that only some ranks know are not
    // in the fingerprint.
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
    ended_ = epoch + 1;
  }
  /// A call that waits for everybody is numbered.
  void add_strict() { in_a_row_ = 0; }
  /// Such a one was performed, so all before it were the same everywhere.
  void confirm(epoch_t epoch) {
    if (confirmed_ < epoch + 1) confirmed_ = epoch + 1;
  }

  /// There are calls of which the rank does not know that they were the same everywhere.
  bool any_unconfirmed() const { return ended_ > confirmed_; }
  /// The call of that number, if it is one of these.
  std::optional<call> unconfirmed(epoch_t epoch) const {
    const entry* const e = epoch < confirmed_ ? nullptr : find(epoch);
    if (e == nullptr) return std::nullopt;
    return reported(e->what, e->how, epoch, e->history, true);
  }
  /// `what`, numbered `epoch`, as the membership compares it: with its plan, and what was called before it. Allocates.
  call reported(call what, const std::shared_ptr<const plan>& how, epoch_t epoch, std::uint64_t history,
                bool ahead) const {
    what.history = history;
    what.report = nullptr;
    if (how == nullptr && !ahead && ended_ == 0 && confirmed_ == 0) return what;  // of a rank that has called nothing
    const auto report = std::make_shared<call_report>();
    if (how != nullptr) {
      report->plan = how->identity;
      report->planned = how->title();
      report->by_nic = how->nic() != nullptr;
    }
    report->ahead = ahead;
    report->known_from = std::max(confirmed_, oldest());
    for (epoch_t at = report->known_from; at < std::min(epoch, ended_); ++at)
      if (const entry* const e = find(at)) report->earlier.push_back({at, to_string(e->what), e->fingerprint});
    what.report = report;
    return what;
  }

private:
  struct entry {
    /// Another call than the last time. Throws std::bad_alloc.
    [[gnu::noinline]] void is(const call& c, const std::shared_ptr<const plan>& p, std::uint64_t its_fingerprint) {
      fingerprint = 0;  // until all is there: there may be no memory for it
      what = c;
      if (how != p) how = p;
      fingerprint = its_fingerprint;
    }

    epoch_t epoch = 0;
    std::uint64_t fingerprint = 0;
    std::uint64_t history = 0;  ///< before it
    std::uint64_t lists_number = 0;
    call what;
    std::shared_ptr<const plan> how;
  };
  static constexpr std::size_t in_a_chunk = 8;  ///< made when first needed: few calls need few
  using chunk = std::array<entry, in_a_chunk>;

  // By number, so that a root that moves on finds its own call: ranks are a power of two more often than not.
  static std::size_t place_of(epoch_t epoch) { return static_cast<std::size_t>(epoch % most_ahead); }
  /// Of older ones nothing is kept.
  epoch_t oldest() const { return ended_ > most_ahead ? ended_ - most_ahead : 0; }
  /// Null: the call of that number did not run ahead, or nothing is kept of it.
  const entry* find(epoch_t epoch) const {
    const auto& some = last_[place_of(epoch) / in_a_chunk];
    const entry* const e = some ? &(*some)[place_of(epoch) % in_a_chunk] : nullptr;
    return e != nullptr && e->fingerprint != 0 && e->epoch == epoch ? e : nullptr;
  }
  /// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
  static std::uint64_t mixed(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
  }

  std::array<std::unique_ptr<chunk>, most_ahead / in_a_chunk> last_;
  epoch_t ended_ = 0;  ///< behind the last one that may have run ahead
  unsigned most_;
  unsigned in_a_row_ = 0;
  epoch_t confirmed_ = 0;
  std::uint64_t history_ = 0;
};

}  // namespace troupe::actors
