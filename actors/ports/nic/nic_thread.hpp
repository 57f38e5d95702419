// SPDX-License-Identifier: Apache-2.0
#pragma once
// The thread that performs a process's NIC, and the ranks' queues to it. Of several processes of a host one's thread performs for all, and the others'
// tell their ranks what it says (nic_between.hpp).
//
// A rank writes words (a posting, or that it wants its memory back) into a queue of its own (nic_words.hpp). Then it *rings*: a queue that is not on
// the thread's list of those that rang is put there. So the thread looks at one word however many ranks there are. The rank that completes an operation (nic_arrivals.hpp), or recalls
// one, wakes the thread if it sleeps; the others' postings can wait for that.
// The end of an operation is told on the rank's turn, which the thread takes if it is free; else it leaves a word in the rank's inbox. So the
// outcome of an operation is there when its caller looks, and callbacks run on this thread.
//
// No ring is overlooked. Rank: R1 push into the queue, R2 put it on the list, R3 count itself among those that have posted, R4, if it is the
// last one, wake the doorbell, which looks whether it has been announced. Thread: T1 announce it, T2 look at the list, T3 sleep, unless it has rung
// since (doorbell.hpp). R2, R3, R4, T1, T2 are sequentially consistent, and the last one's R3 comes after all others'. A queue that is on the list is
// kept by it; the thread says that it has left the list before it reads the queue. A thread that dozes is left alone by R4, and goes through T1 and T2 again
// when its doze is over; a caller of the last rank that waits wakes it from that, too
// (rank_cell::enter_wait()).
//
// A posting costs its caller a copy of some 250 bytes, whatever the sizes and the number of ranks, and, of an operation, one rank a system
// call if the thread sleeps; that comes when the rank's turn was given back, since the thread may run at once on the same core. The thread looks on for `longest_look` after something has moved, if it has a core of its own, then
// dozes for a while, so that postings find it awake or about to look (dozes_after_work), then sleeps. Where ranks
// and this thread are more than the cores, or others want its core, it sleeps at once: looking or yielding would take the time from whoever
// computes, and one that yields is not woken but waits until the others' time is over. It asks the system for short slices of time, so
// that it is not kept waiting by those either. An operation that waits for a rank keeps the thread awake no longer than one
// that has ended.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "actors/ports/nic/nic_arrivals.hpp"
#include "actors/ports/nic/nic_between.hpp"
#include "actors/ports/nic/nic_driver.hpp"
#include "actors/ports/nic/nic_words.hpp"
#include "actors/waiting/doorbell.hpp"
#include "actors/waiting/policy.hpp"

namespace troupe::actors {

class nic_thread;

/// A rank's end. One thread at a time: the holder of the rank's turn.
class nic_queue : public nic_client, public std::enable_shared_from_this<nic_queue> {
public:
  static constexpr std::size_t most_posted = nic_words::most_posted;

  /// @param to outlives what is under way @param all of the rank's communicator; outlives the calls
  /// @param elsewhere another process's NIC performs, and this is the way to it; outlives the calls. Null: this one's
  nic_queue(nic_thread& to, nic_arrivals& all, nic_between* elsewhere = nullptr)
      : to_(&to), all_(&all), elsewhere_(elsewhere) {}
  enum class posted : std::uint8_t {
    full,     ///< nothing has happened
    well,     ///< another rank is to post the operation, too
    complete  ///< wake the thread, if it sleeps: nothing begins before: bell().wake_sleeper()
  };
  /// Throws std::system_error if there is no thread for it.
  posted post(const nic_posting& what);
  /// nic_client::let_go() follows; the thread is awake. @pre posted, and neither performed nor recalled
  void recall(std::uint64_t communicator, epoch_t epoch, rank_t rank);
  /// Where the thread that performs sleeps.
  doorbell& bell() const;

private:
  friend class nic_thread;
  nic_thread* to_;
  nic_arrivals* all_;
  nic_between* elsewhere_;
  nic_words words_;
  std::atomic<bool> rung_{false};    ///< on the list
  std::shared_ptr<nic_queue> self_;  ///< while it is
  nic_queue* next_rung_ = nullptr;
};

/// Thread-safe.
class nic_thread {
public:
  /// Starts no thread: the first ring does.
  /// @param cores that the process may use @param looks on before it sleeps, where there is a core for it
  nic_thread(int cores, bool looks) : cores_(cores), looks_(looks) {}
  ~nic_thread() { close(); }
  nic_thread(const nic_thread&) = delete;
  nic_thread& operator=(const nic_thread&) = delete;

  /// The thread ends. Operations that are under way stay where they are: nobody performs them any more.
  void close();
  /// The thread was started: something was posted.
  bool started() const { return started_.load(); }
  /// Where it sleeps. Any thread.
  doorbell& bell() const { return *bell_.load(); }
  /// From now on it sleeps there, where other processes of the host wake it, too. @param keeps `where` and `looks` @param looks counts how often it
  /// has looked for what they have left
  void sleep_at(doorbell& where, std::shared_ptr<const void> keeps, std::atomic<std::uint64_t>* looks = nullptr);
  /// Performs also for these ranks of other processes, or with these hosts, or hears from the one that does, until it has ended. Starts the thread. Throws as
  /// nic_queue::post().
  void serve(std::shared_ptr<nic_served> what);
  /// Something was left for one that it serves. Any thread.
  void ring() {
    bell().note();
    bell().wake();
  }
  /// Names communicators to the driver.
  std::uint64_t next_communicator() { return communicators_.fetch_add(1) + 1; }

private:
  friend class nic_queue;
  void start();
  void begin_thread();
  void ring(nic_queue& which);
  void work();
  bool take_words();
  void read(nic_queue& from);
  bool look_between();
  bool look_after_ranks();
  void take_new();
  bool sleep(std::chrono::nanoseconds doze);
  bool looks_on(int looks);
  bool has_core() const { return looks_ && most_ranks_ < cores_; }
  bool may_doze() const;
  picoseconds now() const { return std::chrono::steady_clock::now() - began_; }

  const int cores_;
  const bool looks_;
  std::atomic<nic_queue*> rung_{nullptr};
  std::atomic<bool> closed_{false}, started_{false};
  std::atomic<std::uint64_t> communicators_{0};
  doorbell own_bell_;
  std::atomic<doorbell*> bell_{&own_bell_};
  std::mutex mutex_;  // when the thread is started or ended, or a communicator of several processes begins or ends
  std::thread thread_;
  std::vector<std::shared_ptr<nic_served>> new_;  ///< under the mutex
  std::shared_ptr<const void> keeps_bell_;
  std::atomic<std::atomic<std::uint64_t>*> counts_looks_{nullptr};
  std::atomic<bool> has_new_{false};

  // Its own.
  std::unique_ptr<nic_driver> driver_;
  steady_time began_{};
  steady_time idle_since_{};
  dozes_after_work dozes_;
  bool dozed_ = false;  ///< since it has last had something to do
  std::uint32_t seen_rings_ = 0;
  doorbell* seen_bell_ = nullptr;                     ///< whose they are
  std::vector<std::shared_ptr<nic_served>> between_;  ///< that it serves
  steady_time next_care_{};                           ///< for ranks that wait for memory
  int most_ranks_ = 1;                                ///< of an operation so far
};

}  // namespace troupe::actors
