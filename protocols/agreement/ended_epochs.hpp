// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations that ended where somebody has still to hear of it. Their number has no bound: one rank may begin operation after operation and
// let each time out while another calls nothing. So they are kept as ranges, and only the first ones with a reason of their own.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "protocols/agreement/agreement.hpp"

namespace troupe {

/// Epochs, each with the reason why it ended. Neighbours with the same reason are one range. While there are `most_reasons` ranges, what
/// ends next has the reason of the first that found it so: one for each error code, whose text says that it stands for others. While there
/// are `most_ranges`, neighbours become one whatever their reasons, and share the first. So memory is bounded by the gaps, and in a gap
/// lies an operation that is under way somewhere, or a tag that nobody uses.
class ended_epochs {
public:
  static constexpr std::size_t most_reasons = 64;
  static constexpr std::size_t most_ranges = 4096;

  /// The first of several reasons stays.
  void add(epoch_t epoch, const failure_ptr& why) {
    auto after = ranges_.upper_bound(epoch);
    if (after != ranges_.begin() && epoch < std::prev(after)->second.end) return;
    const failure_ptr kept = ranges_.size() + 1 < most_reasons ? why : shared(why);
    if (after != ranges_.begin()) {
      const auto at = std::prev(after);
      if (epoch == at->second.end && joins(at->second.why, kept)) {
        ++at->second.end;
        return merge(at, after);
      }
    }
    merge(ranges_.emplace_hint(after, epoch, range{epoch + 1, kept}), after);
  }

  bool empty() const { return ranges_.empty(); }
  bool contains(epoch_t epoch) const { return find(epoch) != ranges_.end(); }

  /// The reason, after which the epoch is forgotten; null if it is not here.
  failure_ptr take(epoch_t epoch) {
    const auto at = find(epoch);
    if (at == ranges_.end()) return nullptr;
    const epoch_t first = at->first, end = at->second.end;
    failure_ptr why = at->second.why;
    if (epoch + 1 < end) ranges_.emplace(epoch + 1, range{end, why});
    const auto mine = ranges_.find(first);
    if (first == epoch) ranges_.erase(mine);
    else mine->second.end = epoch;
    if (ranges_.empty()) shared_.clear();
    return why;
  }

  std::size_t range_count() const { return ranges_.size(); }

private:
  struct range {
    epoch_t end;
    failure_ptr why;
  };
  using range_map = std::map<epoch_t, range>;  // by first epoch

  bool joins(const failure_ptr& a, const failure_ptr& b) const { return a == b || ranges_.size() >= most_ranges; }

  failure_ptr shared(const failure_ptr& why) {
    const auto known =
        std::find_if(shared_.begin(), shared_.end(), [&](const auto& s) { return s->code == why->code; });
    if (known != shared_.end()) return *known;
    return shared_.emplace_back(
        make_failure(why->code, "it ended as many others did, of which the first was: " + why->text));
  }

  void merge(range_map::iterator at, range_map::iterator after) {
    if (after == ranges_.end() || at->second.end != after->first || !joins(at->second.why, after->second.why)) return;
    at->second.end = after->second.end;
    ranges_.erase(after);
  }

  range_map::const_iterator find(epoch_t epoch) const {
    const auto after = ranges_.upper_bound(epoch);
    if (after == ranges_.begin() || epoch >= std::prev(after)->second.end) return ranges_.end();
    return std::prev(after);
  }

  range_map ranges_;
  std::vector<failure_ptr> shared_;  ///< one for each error code
};

}  // namespace troupe
