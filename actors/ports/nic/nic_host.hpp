// SPDX-License-Identifier: Apache-2.0
#pragma once
// One NIC process for all processes of a host and of a user, `troupe nicd`, and a process's connection to it.
//
// It listens at a Unix socket. A process that joins a job connects to it, and stays connected as long as it is in the job; one on each host passes it
// the memory that the processes of the job share there (host_segment.hpp), which it enters as one process more, with a number behind the others'. So
// it reaches their memory as they reach each other's, and posting and answering are as between processes (nic_between.hpp): queues in the region of a
// communicator, to which the processes of its ranks invite it. It has one thread and one driver for all jobs, which sleeps at one doorbell.
//
//   process → NIC process   hello{job, number, of}   → welcome   then a descriptor: the page with the doorbell
//                           memory, and its descriptor → done     by the first process of the host
//                           enter{communicator, ranks}  → done     when a communicator is made; it is attached with the first
//                           leave{communicator}                   when it has ended; with the last it is given back
//
// What ends. A process that ends closes its connection. Its communicators are over then: their operations are aborted, so that their units, counters
// and entries are free, and the memory is the ranks' again (nic_between::close()); those of others go on. The NIC process ends: its connections
// close. One thread of each process sleeps at that, and wakes its own NIC's thread, which fails what was posted. One that is stopped is found out by
// that thread, too, which looks every second whether it goes on while something is posted: after the job's silence it is ended.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "actors/ports/link/sockets.hpp"
#include "actors/ports/nic/nic_of_host.hpp"
#include "actors/waiting/parking.hpp"

namespace troupe::actors {

class host_segment;

/// Where a user's NIC process listens if nothing else is said.
std::string usual_nic_address();

/// A process's end. Any thread.
class nic_host_link final : public nic_of_host {
public:
  struct enrolment {
    std::uint64_t build = 0;  ///< the same in all processes and in the NIC process
    std::uint64_t job = 0;
    std::uint32_t number = 0;  ///< of this process among `processes` of the job on the host
    std::uint32_t processes = 0;
  };
  /// Throws error(peer_lost): nobody listens there, or it has ended; error(bad_config): another user, another build; error(timed_out), error(io).
  /// @param address "unix:@name" @param silence after which a NIC process that does not go on is ended
  nic_host_link(const std::string& address, const enrolment& who, steady_time until, std::chrono::milliseconds silence);
  ~nic_host_link() override;

  /// Of the host's first process, before anybody meets there. Throws as the constructor.
  void pass(const host_segment& memory, steady_time until);
  /// From now on `own` is rung when the NIC process has gone. @param keeps `own` Once.
  void watch(doorbell& own, std::shared_ptr<const void> keeps);
  /// It has closed the connection.
  bool hung_up() const noexcept;
  /// A communicator with ranks in these processes of the host, by rank, whose region has so many bytes. False: one of them has ended, as the NIC process has
  /// seen. Throws as the constructor; error(out_of_memory).
  bool enter(std::uint64_t communicator, std::span<const std::uint32_t> process_of, std::uint64_t bytes,
             steady_time until);
  void left(std::uint64_t communicator) noexcept override;
  std::string why_gone() const override;

private:
  void look_on();
  void end_it() noexcept;
  std::string name() const;

  std::string address_;
  enrolment me_;
  std::chrono::milliseconds silence_;
  std::int64_t pid_ = 0;
  descriptor process_;  ///< of the NIC process (pidfd)
  descriptor stop_;     ///< an event
  std::mutex mutex_;    ///< one question at a time
  descriptor socket_;
  std::atomic<bool> ended_by_us_{false};
  doorbell* own_ = nullptr;
  std::shared_ptr<const void> keeps_own_;
  std::thread watcher_;
};

/// The NIC process's part. One thread serves; stop() from any.
class nic_host_service {
public:
  /// Listens. Throws error(io): somebody does already; error(bad_config): no Unix socket. @param build of the processes @param cores as nic_thread's
  nic_host_service(const std::string& address, std::uint64_t build, int cores);
  ~nic_host_service();
  /// Until stop(). Then what is under way is aborted, and the memory is its owners'.
  void serve();
  void stop() noexcept;
  const std::string& address() const { return address_; }

private:
  struct hidden;
  std::string address_;
  std::unique_ptr<hidden> hidden_;
};

}  // namespace troupe::actors
