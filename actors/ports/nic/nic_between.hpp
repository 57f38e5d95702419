// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory that the ranks of a communicator in several processes of a host share with the NIC that performs for all of them, their *home*: that of the first
// one's process, or a process of its own, `troupe nicd` (nic_host.hpp), where no rank lives. It lies in the communicator's region (board_memory.hpp), and each process has a view of it.
//
// A rank that lives elsewhere has a queue of *heads* to its home, and one of *answers* back: Boost.Lockfree's spsc_queue, written by whoever has the
// rank's turn and read by the home's thread, and the other way round. A head says what a posting says but for the descriptors: plans are alike in all
// processes, and the home's own posting of the same call brings those of all ranks. A home without ranks reads them from rank 0's process, packed
// into one piece, whose address rank 0's head has; it keeps the last ones, so that this is once for a plan and size. A head's addresses are those of its process; the driver reaches them as
// every rank's does (process_memory). Ranks at home post as they would without other processes, and all count in the same arrivals.
//
// What ends. A rank that recalls its part waits for the home's answer, until which the home may touch its memory. Its process's own thread looks after
// that: a home that has ended, or has closed (it let go of everything before it closed), touches nothing any more. One that counts as lost and is there
// still was stopped, and is ended: it must not go on where it was (as wait_for_touching()). A process that dies here leaves only whole words behind.
// When a home without ranks has ended, no communicator ends with it: what was posted and not answered fails, and so does what is posted later.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <boost/lockfree/spsc_queue.hpp>

#include "actors/ports/nic/nic_arrivals.hpp"
#include "actors/ports/nic/nic_driver.hpp"
#include "actors/ports/nic/nic_of_host.hpp"
#include "actors/ports/nic/nic_served.hpp"
#include "actors/ports/segment/board_memory.hpp"
#include "actors/waiting/doorbell.hpp"

namespace troupe::actors {

class nic_between final : public nic_served {
public:
  /// The rank of the host whose process is the home, or whose heads bring the descriptors to it. (Inside ranks count from the host's first.)
  static constexpr rank_t first = 0;

  struct options {
    int ranks = 0;          ///< of this host
    rank_t first_rank = 0;  ///< of the communicator; they follow each other
    int all_ranks = 0;      ///< of the communicator; 0: as many
    std::shared_ptr<board_memory>
        in;  ///< with peers(); where the home has no ranks, these know it as the rank behind the last
    std::vector<doorbell*> bells;         ///< by rank of the host: its process's NIC's; they live as long as `in`
    std::shared_ptr<nic_of_host> host{};  ///< the home has no ranks; null: it is the first one's process
    doorbell* own = nullptr;              ///< this process's
    std::uint64_t name = 0;               ///< of the communicator, at this process's NIC
    std::uint64_t id = 0;                 ///< of the communicator in its job; with `host`
    nic_hosts* across = nullptr;          ///< at home: the other hosts' NICs; outlives this
    std::size_t packet_bytes = nic_packet_bytes;  ///< of the home's NIC
  };
  /// Takes a root. All processes of the communicator make one, or none.
  explicit nic_between(options how);
  /// Of its root.
  static std::size_t most_bytes(int ranks);

  bool at_home() const override { return is_here(home()); }
  int ranks() const override { return how_.ranks; }
  /// That has to hear of what is posted.
  doorbell& home_bell() const { return how_.host ? how_.host->bell() : *how_.bells.front(); }
  nic_arrivals& arrivals() const { return common_->arrivals; }

  // -- the rank's turn. @pre not at home --

  /// False: more than `most_posted` are there; nothing has happened. Throws error(peer_lost): the home has ended, and has no ranks.
  bool post(const nic_client_ptr& who, const nic_posting& what);
  /// As nic_queue's.
  void recall(epoch_t epoch, rank_t rank);

  /// The communicator has ended in this process. Any thread, once.
  void end();

  // -- this process's NIC's thread --

  /// Reads what has come, and hands it in or tells the ranks here.
  bool serve(nic_driver& driver, picoseconds now) override;
  /// Some rank waits for its memory, or for the end of what a home has left behind, so look_after() has to be called now and then, though nobody rings.
  bool waits() const override {
    return recalls_.load(std::memory_order_relaxed) > 0 ||
           (how_.host && how_.host->gone() && posted_count_.load(std::memory_order_relaxed) > 0);
  }
  void look_after(steady_time now) override;
  bool has_ended() const override { return ended_.load(); }
  /// Nothing of it is performed any more, and nothing here touches other processes' memory.
  void close(nic_driver& driver, picoseconds now) override;

private:
  /// Postings that are unread, beside as many recalls.
  static constexpr std::size_t most_posted = 32;
  struct head {
    bool recalls;
    epoch_t epoch;
    std::uint64_t fingerprint;
    std::byte *input, *output;
    std::size_t input_bytes, output_bytes;
    bool brings_input;
    std::array<std::byte, most_inline_bytes> inline_input;
    // Of rank 0, where the home has no ranks:
    const std::byte* programs;  ///< packed, until the operation's answer
    std::size_t program_bytes;
    std::uint64_t program_number;  ///< the same for the same ones
    datatype type;
    op_kind reduction;
  };
  struct answer {
    enum class kind : std::uint8_t { performed, failed, differs, let_go };
    kind what;
    errc code;
    rank_t from;
    epoch_t epoch;
    char text[224];  ///< ends with a zero
  };
  struct alignas(board_memory::alignment) common {
    nic_arrivals arrivals;
    alignas(64) std::atomic<std::uint32_t> heads;  ///< some were left
    std::atomic<std::uint32_t> closed;             ///< the home performs nothing any more
  };
  struct alignas(board_memory::alignment) ends {
    boost::lockfree::spsc_queue<head, boost::lockfree::capacity<2 * most_posted>> heads;
    boost::lockfree::spsc_queue<answer, boost::lockfree::capacity<2 * most_posted>> answers;
  };
  class far_rank;
  struct recalled {
    rank_t rank;
    epoch_t epoch;
    steady_time lost_since;
  };
  using packed = std::shared_ptr<const std::vector<std::byte>>;
  struct posted {
    rank_t rank;
    epoch_t epoch;
    packed programs;  ///< that the home may still read
  };
  /// Of a plan and size. In a rank's process packed, at home as it reads them.
  struct kept_programs {
    std::uint64_t number = 0;
    std::shared_ptr<const plan> of;
    std::size_t elements = 0;
    std::shared_ptr<const std::vector<std::size_t>> counts;
    packed bytes;
    std::shared_ptr<const std::vector<offload::rank_program>> all;
  };
  static constexpr std::size_t most_kept = 8;
  static constexpr std::size_t most_program_bytes = std::size_t{256} << 20;

  rank_t home() const { return how_.host ? how_.ranks : first; }
  process_memory& others() const { return *how_.in->peers(); }
  bool is_here(rank_t rank) const { return others().is_here(rank); }
  ends& of(rank_t rank) const { return ends_[static_cast<std::size_t>(rank)]; }
  nic_client_ptr client_of(rank_t rank);
  void hand_in(nic_driver& driver, rank_t rank, const head& what, picoseconds now);
  const kept_programs& pack_for(const nic_posting& what);
  kept_programs& place_for_programs() { return kept_[next_kept_++ % most_kept]; }
  bool bring_programs(const head& what, nic_posting& into);
  void tell(rank_t rank, const answer& what);
  bool read_answers();
  void push_answer(rank_t rank, const answer& what);
  bool take_recall(rank_t rank, epoch_t epoch);
  void forget_posted(rank_t rank, epoch_t epoch);
  void fail_posted();

  const options how_;
  common* common_ = nullptr;
  ends* ends_ = nullptr;             ///< by rank
  std::vector<nic_client_ptr> far_;  ///< by rank; at home, of those elsewhere
  std::atomic<bool> ended_{false};
  std::atomic<std::size_t> recalls_{0};  ///< that are not answered
  std::mutex mutex_;                     ///< of the following; once for each rank, for an answer, and a recall
  std::vector<std::weak_ptr<nic_client>> clients_;  ///< by rank; of those here
  std::vector<recalled> waiting_;
  std::vector<posted> posted_;                 ///< to a home without ranks, and not answered
  std::atomic<std::size_t> posted_count_{0};   ///< of them
  std::array<kept_programs, most_kept> kept_;  ///< at home its thread's alone
  std::size_t next_kept_ = 0;
  std::uint64_t programs_made_ = 0;
};

}  // namespace troupe::actors
