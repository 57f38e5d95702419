// SPDX-License-Identifier: Apache-2.0
#pragma once
// The agreements on who is left (protocols/agreement/survivors.hpp) that one process of a job takes part in: of which communicators, which of
// them are over, who is asked, and what is answered to whom. No thread, socket or clock in here, so that it runs unchanged under simulation
// (engine/tools/simulate/job.hpp).
//
//   enter ──▶ here ──all_left──▶ left ──forget──▶ unknown
//
// An agreement begins with the first of its words that arrives, or with this process's contribution. To any process that asks, one whose ranks have all
// left answers `absent`. A process that is lost, for the job or for one communicator, is gone from all agreements, also from those that begin later.
//
// Bounds: an agreement that has its answer is kept for processes that have not heard it yet, the last `most_decided` of them. One that has none is kept
// until all ranks here have left; one to which they have contributed beyond that, until it has its answer.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/ports/link/frames.hpp"
#include "actors/ports/link/given_up.hpp"
#include "memory/error.hpp"
#include "protocols/agreement/agreement.hpp"
#include "protocols/agreement/survivors.hpp"

namespace troupe::actors {

/// Not synchronised.
class shrink_agreements {
public:
  /// Where its words and answers go. Calls happen during its transitions, and must not call it back.
  class outbox {
  public:
    virtual ~outbox() = default;
    virtual void send(std::uint32_t process, communicator_id of, const shrink_word& what) = 0;
    /// Once for each contribution: the ranks that are left, in their order; or why that cannot be known.
    virtual void answered(communicator_id of, std::uint64_t number, const std::vector<rank_t>& members,
                          const failure_ptr& why) = 0;
  };

  explicit shrink_agreements(std::uint32_t here) : here_(here) {}

  // -- communicators --
  /// It is here. @param process_of by rank; one of them is this process
  void enter(communicator_id of, std::span<const std::uint32_t> process_of, parentage from = {});
  /// All its ranks that live here have left: they take no part in what this process has not contributed to.
  void all_left(communicator_id of, outbox& out);
  /// It has ended here.
  void forget(communicator_id of, outbox& out);

  // -- agreements --
  /// These ranks of this process take part; the others that live here have left. Once for each number.
  void contribute(communicator_id of, std::uint64_t number, std::vector<rank_t> mine, outbox& out);
  enum class reception : std::uint8_t {
    taken,
    early,     ///< of a communicator that is not here: the caller keeps it until that enters
    nonsense,  ///< it cannot be
  };
  /// @param over the communicator has been here
  reception heard(std::uint32_t from, communicator_id of, const shrink_word& what, bool over, outbox& out);
  /// The process is out of the job.
  void lost(std::uint32_t process, outbox& out);
  /// It is nobody in this communicator.
  void lost_for(communicator_id of, std::uint32_t process, outbox& out);
  /// That rank of the whole has not got its part: its process may be nobody in that (given_up.hpp). Also where the part has ended here already: this
  /// process may have contributed to an agreement for which others wait.
  void gave_up(communicator_id whole, epoch_t split, rank_t rank, outbox& out);
  /// The others count this process as lost: it decides nothing alone that they decide without it.
  void expelled(const std::string& why, outbox& out);

  /// Processes that have not said yet who of theirs is left, as far as this one knows.
  std::vector<std::uint32_t> missing(communicator_id of, std::uint64_t number) const;
  /// Agreements that it keeps, with and without answer.
  std::size_t kept() const { return agreements_.size(); }
  /// Those that have none.
  std::size_t open() const;

  static constexpr std::size_t most_decided = 4096;

private:
  using key = std::pair<communicator_id, std::uint64_t>;
  struct communicator {
    std::vector<std::uint32_t> process_of;
    std::vector<std::uint32_t> processes;  ///< participants, in their order
    std::set<std::uint32_t> lost{};        ///< for it alone
    parentage from{};
    empty_places empty{};
    bool left = false;  ///< by all ranks here
  };
  using communicator_ptr = std::shared_ptr<communicator>;  ///< its agreements outlive it
  struct agreement;
  struct voice;

  void begin(const key& which, const communicator_ptr& of, outbox& out);
  void bound();

  std::uint32_t here_;
  std::map<communicator_id, communicator_ptr> here_now_;
  std::map<key, std::shared_ptr<agreement>> agreements_;
  std::deque<key> decided_;  ///< of them, the oldest first
  std::set<std::uint32_t> lost_;
  std::string expelled_;  ///< why; empty: it is not
};

}  // namespace troupe::actors
