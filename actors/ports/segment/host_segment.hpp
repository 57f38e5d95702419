// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory that the processes of a job on one host share: a *region* for each communicator whose ranks are all there, in which its boards lie
// (board_memory.hpp).
//
// It has no name: one process makes it and passes its descriptor to the others (mesh.hpp), sealed so that it keeps its size, so nothing is left when
// they are gone, however they end. It is as large as it may ever become; the system gives it memory page by page, when it is written to first.
//
// Its first pages are a table of regions, under a lock that the death of its holder does not take along (a robust mutex; a holder that was stopped
// and counts as lost is ended); every entry is whole at any moment at which its holder may die. Whichever process comes first makes a communicator's
// region; all others find it by the communicator's number. When each of its processes has given it back, its pages go back to the system, and its
// place is another region's. A process that dies does not give back: such a region stays until the job has ended.
//
// A process has memory there for its callers' data, too (lend()): the others map it when they first reach for an address in it, and work on it as
// threads would. The memory of a process that was killed stays until the job has ended: others may be at work on it that have not heard of that yet.
//
// Data that lie elsewhere are copied by the system, from the memory of one process to that of the other, if it may: all have tried it when they
// met. A number of a process may be another one's, later: each is known by what stands at an address that it has told, and a copy is made only
// while it has not ended since (pidfd).
//
// Every process of the job is trusted: it has proved that it has the job's key, and could end the others in simpler ways.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "actors/ports/link/sockets.hpp"
#include "actors/ports/segment/board_memory.hpp"
#include "actors/ports/segment/copy_costs.hpp"
#include "actors/waiting/doorbell.hpp"

namespace troupe::actors {

namespace segment {
class lock;
class neighbour;
struct table;
struct stretch;
}  // namespace segment

class host_segment : public std::enable_shared_from_this<host_segment> {
public:
  /// Throws error(io): the system gives no such memory.
  /// @param costs by which all of its processes decide what they stage
  static std::shared_ptr<host_segment> make(const copy_costs& costs = {});
  /// Maps the segment that another process has made. Throws error(io) if it is no such memory, or this process cannot use it as the others do.
  static std::shared_ptr<host_segment> take(descriptor from);
  ~host_segment();
  host_segment(const host_segment&) = delete;
  host_segment& operator=(const host_segment&) = delete;

  /// To be passed to the others, by the one who has made it.
  int get() const noexcept { return memory_.get(); }

  /// All processes of the host meet here, once, and find out whether the system lets each copy from every other's memory. @param here this one,
  /// of `processes` @param alone asked while it waits; true: others are lost, so give up. Throws error(timed_out), error(peer_lost).
  void meet(std::uint32_t here, std::uint32_t processes, std::chrono::steady_clock::time_point until,
            const std::function<bool()>& alone);
  /// Process `which` counts as lost from now on: while it touches a rank's memory that the rank wants back, or is at the lock that another one waits
  /// for, it is ended. Any thread.
  void lost(std::uint32_t which) noexcept {
    if (which < lost_.size()) lost_[which].store(true, std::memory_order_relaxed);
  }
  /// They may. Each finds the same. @pre they have met
  bool copies() const noexcept;

  /// The region of communicator `id`; it is given back with the result. All its processes ask for as many bytes. Null, in all of them: there is no
  /// room for it. Any thread. Throws error(out_of_memory), error(io).
  /// @param processes by rank, numbered as for meet()
  std::shared_ptr<board_memory> attach(std::uint64_t id, std::vector<std::uint32_t> processes, std::size_t bytes);
  /// Memory for callers' data, which the others map, too, when they first reach for it; zeros. Null: there is no room, or they have not met. Any
  /// thread.
  std::byte* lend(std::size_t bytes);
  /// What lend() gave. Nobody works on it any more. Any thread.
  void take_back(std::byte* what) noexcept;
  /// It is in what lend() gave this process. Any thread.
  bool lies_here(const std::byte* what) const noexcept;
  /// Where the thread of that process's NIC sleeps. It lives as long as this object. @pre they have met
  doorbell& nic_bell_of(std::uint32_t process) noexcept;
  /// Regions and lent memory in use, for tests and reports.
  std::uint32_t regions() const;

private:
  class region;
  host_segment(descriptor memory, segment::table* shared);
  static segment::table* map_table(int memory);
  segment::lock lock_table() const;
  void end_lost() const noexcept;
  segment::stretch* find_free(std::size_t bytes, std::size_t most);
  segment::stretch* find_or_make(std::uint64_t id, std::uint32_t processes, std::size_t bytes);
  void detach(std::uint32_t which) noexcept;
  void give_back(segment::stretch& what) noexcept;

  descriptor memory_;
  segment::table* shared_;
  std::uint32_t here_ = 0;
  std::uint64_t nonce_ = 0;              ///< by which the others know that they read from this process
  std::vector<std::atomic<bool>> lost_;  ///< by process
  std::function<void()> end_lost_;       ///< ends the processes that count as lost and are at the lock
  std::vector<std::unique_ptr<segment::neighbour>> neighbours_;  ///< by process; null: this one
  mutable std::mutex
      own_mutex_;  ///< of the following; held for a look-up, once an operation that may need a staging buffer
  std::map<std::uint64_t, std::uint64_t> own_;  ///< what lend() gave: bytes by address
};

}  // namespace troupe::actors
