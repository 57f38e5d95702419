// SPDX-License-Identifier: Apache-2.0
#pragma once
// The processes of a job find each other here: each says which one it is and where it listens, and all get the same roster when the last has come.
//
// Over one connection a process: the handshake, then messages of four bytes length and a body (wire.hpp). The service tells all that have come each time
// one does, so that a process that waits in vain can name those that are missing, and those that had come and have gone. A contradiction (two that say they are number 3, other options) is
// refused to all, with the sentence that names both.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "actors/ports/link/job_key.hpp"
#include "actors/ports/link/rendezvous_words.hpp"
#include "actors/ports/link/sockets.hpp"
#include "actors/ports/link/tls.hpp"

namespace troupe::actors {

/// Serves one job, on a thread of its own, until all have their roster.
class rendezvous_service {
public:
  using time_point = std::chrono::steady_clock::time_point;
  /// @param listen "tcp://127.0.0.1:0", "unix:@name"; port 0: any. Throws error(io), error(bad_config) as listen_at(); and without a key
  ///        error(bad_config) where strangers could come: beyond loopback.
  /// @param processes 0: as many as the first that comes says
  /// @param until then it gives up, if not all have come
  /// @param tls who this process is, to those who come over a network; null: without TLS
  rendezvous_service(const std::string& listen, std::uint32_t processes, const job_key& key, std::uint64_t build,
                     std::shared_ptr<const tls_identity> tls = nullptr, time_point until = time_point::max());
  ~rendezvous_service();
  rendezvous_service(const rendezvous_service&) = delete;
  rendezvous_service& operator=(const rendezvous_service&) = delete;

  /// With the port that it got.
  const std::string& address() const { return address_; }
  /// All have been told.
  bool done() const { return done_.load(); }
  /// It serves nobody any more: all have been told, or it was stopped, or it has given up.
  bool over() const { return over_.load(); }
  /// Returns then. One thread
  void wait();
  void stop();
  /// The same, but does not wait for the thread. Any thread.
  void ask_to_stop();
  /// If not all have come, it is over: those from process `first` on are refused with this sentence, also who comes yet; the others are expected to
  /// know, and to go. Any thread.
  void refuse(const std::string& why, std::uint32_t first);
  /// The outcome: how many processes the job has, and why they were refused; empty: they were not. @pre done()
  std::uint32_t came() const { return came_; }
  const std::string& refused() const { return refused_; }

private:
  struct guest;
  void note_turned_away(const guest& who);
  void work();
  bool take_message(guest& from);
  void make_room();
  void tell_all_who_came();
  void finish();
  void refuse_all(const std::string& why, std::uint32_t first = 0);
  void heed_bell();
  std::uint32_t processes() const;
  bool has_time() const;

  const std::uint32_t processes_;
  const time_point until_;
  const job_key key_;
  const std::uint64_t build_;
  const std::shared_ptr<const tls_identity> tls_;
  std::uint64_t job_ = 0;
  descriptor listener_, bell_;
  std::string address_;
  std::vector<std::unique_ptr<guest>> guests_;
  std::uint32_t came_ = 0;  ///< written before done_, as refused_ is
  std::string refused_, turned_away_;
  std::map<std::uint32_t, std::string> gone_;  ///< those who had come, by number: who they were, and how they went
  time_point done_at_{};
  std::atomic<bool> stopping_{false}, done_{false}, over_{false};
  std::mutex mutex_;
  std::string refusal_;  ///< asked for from outside
  std::uint32_t refused_from_ = 0;
  std::thread thread_;
};

struct join_limits {
  std::chrono::steady_clock::time_point until;  ///< throws error(timed_out) then, with who is missing
  std::function<bool()> cancelled;              ///< asked now and then; true: throws error(cancelled)
  bool served = false;     ///< somebody serves there already: if nobody does any more, throws error(peer_lost)
  std::string unserved{};  ///< why this process, which should, does not serve itself; for errors
  /// Of a job that grows: the processes from this number on are the new ones, and errors count them from 0.
  std::uint32_t first_new = 0xffffffff;
  /// Told once, if it waits for more than 5 s, which processes wait and which have not come: by the first one of those who have; by each of them where nobody
  /// serves.
  std::function<void(const std::string& text)> overdue{};
};

/// Enrols the calling process. Waits also for the service itself to come. @param rendezvous several addresses may be said, separated by commas:
/// each is tried. Throws error(timed_out), error(cancelled), error(mismatch) (what others
/// say does not fit, or it or the service is turned away), error(peer_lost) (a process that had come has gone, and does not come again within a second; or
/// the service, within three), error(io).
roster enrol(const std::string& rendezvous, const job_key& key, std::uint64_t build, const enrolment& mine,
             const join_limits& limits, std::shared_ptr<const tls_identity> tls = nullptr);

}  // namespace troupe::actors
