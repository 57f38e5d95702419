// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank hands to the NIC of its process, in order: postings, and that it wants its memory back. Bounded, with one writer at a time (whoever has
// the rank's turn) and one reader (whoever performs the NIC), so Boost.Lockfree's spsc_queue. There is room for the recall of everything that was posted.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <boost/lockfree/spsc_queue.hpp>

#include "actors/ports/nic/nic_driver.hpp"

namespace troupe::actors {

class nic_words {
public:
  /// Operations that a rank may have posted, each with a word more for its recall.
  static constexpr std::size_t most_posted = 32;

  nic_words() = default;
  nic_words(const nic_words&) = delete;
  nic_words& operator=(const nic_words&) = delete;
  /// A queue of a fixed capacity destroys nothing itself (Boost 1.74), and what is left in it refers to plans.
  ~nic_words() {
    words_.consume_all([](const word&) {});
  }

  /// False: there is no room, and nothing has happened. The writer.
  bool post(const nic_posting& what) {
    if (words_.write_available() <= most_posted) return false;  // the rest is for recalls
    return words_.push(word{false, what});
  }
  /// The writer. @pre posted, and neither performed nor recalled
  void recall(std::uint64_t communicator, epoch_t epoch, rank_t rank) {
    word w;
    w.recalls = true;
    w.what.communicator = communicator;
    w.what.epoch = epoch;
    w.what.rank = rank;
    words_.push(w);
  }
  /// Hands everything to the driver. Returns the most posters of an operation among it. The reader.
  int read(nic_driver& driver, const nic_client_ptr& who, picoseconds now) {
    int most = 0;
    word w;
    while (words_.pop(w)) {
      if (w.recalls) {
        driver.recall(*who, w.what.communicator, w.what.epoch, w.what.rank, now);
        continue;
      }
      most = std::max(most, w.what.posters());
      driver.post(who, std::move(w.what));
    }
    return most;
  }

private:
  struct word {
    bool recalls = false;
    nic_posting what;
  };
  boost::lockfree::spsc_queue<word, boost::lockfree::capacity<2 * most_posted>> words_;
};

}  // namespace troupe::actors
