// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the NIC of one host knows of a communicator whose ranks are on several: the other hosts' NICs, each of which performs for the ranks of its own.
//
// The descriptors name a host by its *node*, its number among the hosts of the communicator, so a packet for another node leaves by a link, and one
// that a link brings is the driver's as if its own NIC had sent it. On the way an operation has the name that all hosts know, the communicator's and its epoch; its JobID is each NIC's own affair.
//
// Each host *begins* when it has heard of every other one that it is *ready*: that all of its ranks have posted the operation, with which
// fingerprint, and that what its NIC works on is there. So no rank's memory is touched before all ranks of all hosts are known to have called the
// same, no packet comes long before somebody can take it, and no pulse counter is held for a host that is late. A host begins a little later than
// another where the word of a third one takes longer: what comes until then is dropped, and asked for when it begins.
//
// The link loses nothing and keeps the order, so nothing is sent again but for that reason, or where a buffer was full. What is sent refers to the
// ranks' memory until it is taken; otherwise the link has to let go of it before it is given back.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "actors/ports/nic/nic_served.hpp"

namespace troupe::actors {

/// How a communicator's words get to the other hosts' NICs: the links of its process. Called on the NIC's thread; must not wait for it.
class nic_wire {
public:
  virtual ~nic_wire() = default;
  /// Refers to the packet's bytes until its response has come, or let_go().
  virtual void send(int host, epoch_t epoch, const offload_packet& what) = 0;
  virtual void send(int host, epoch_t epoch, const offload_response& what) = 0;
  virtual void send_ready(int host, epoch_t epoch, std::uint64_t fingerprint) = 0;
  /// Nothing refers to what `rank` has sent in that operation.
  virtual void let_go(rank_t rank, epoch_t epoch) = 0;
};

class nic_hosts final : public nic_served {
public:
  struct options {
    int hosts = 0;             ///< of the communicator
    int here = 0;              ///< which of them this is
    std::vector<int> host_of;  ///< by rank
    std::uint64_t name = 0;    ///< of the communicator, at this NIC
    std::unique_ptr<nic_wire> wire;
    std::function<void()> ring;  ///< wakes the NIC's thread, if there still is one
  };
  explicit nic_hosts(options how);

  int hosts() const { return how_.hosts; }
  int here() const { return how_.here; }
  /// Of the host; it stands for all of that host's.
  rank_t first_rank_of(int host) const;
  nic_wire& wire() const { return *how_.wire; }

  // -- any thread: what the links bring. False: no NIC of that host sends such a thing. --

  /// Its `job` says nothing.
  bool came(int from, epoch_t epoch, offload_packet&& what);
  bool came(int from, epoch_t epoch, const offload_response& what);
  bool came_ready(int from, epoch_t epoch, std::uint64_t fingerprint);
  /// The communicator has ended in this process. Once.
  void end();

  // -- the NIC's thread --

  bool serve(nic_driver& driver, picoseconds now) override;
  bool at_home() const override { return true; }
  int ranks() const override { return ranks_here_; }
  bool has_ended() const override { return ended_.load(); }
  void close(nic_driver& driver, picoseconds now) override;

private:
  struct ready {
    int host;
    std::uint64_t fingerprint;
  };
  struct news {
    epoch_t epoch;
    std::variant<offload_packet, offload_response, ready> what;
  };
  bool is_other(std::int64_t host) const { return host >= 0 && host < how_.hosts && host != how_.here; }
  bool keep(news&& what);

  const options how_;
  int ranks_here_ = 0;
  std::atomic<bool> ended_{false}, has_news_{false};
  std::mutex mutex_;        // once for each thing that comes, and once for all that has come
  std::vector<news> news_;  ///< as much as the others' windows allow
  std::vector<news> taken_;
};

}  // namespace troupe::actors
