// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the ranks of a process hand in what its NIC is to perform, and the NIC behind it: a plain state. No CAF, thread or clock in here.
//
//   post(posting)     from a rank   its part of an operation: descriptors, and where its memory is
//   recall(…)         from a rank   give that memory back, performed or not
//   turn()            from the owner: performs what can be performed
//   performed, differs, let_go   to the rank (nic_client)
//
// An operation is known by its communicator and epoch. It begins when all its ranks have posted it with the same fingerprint; so nobody's memory
// is touched before everybody is known to have called the same, no packet comes early, and a JobID is used for no longer than packets
// are under way. A rank that posts another fingerprint than the first is told so (`differs`), and its part is not kept.
//
// What ends. A rank's part is over when it has been performed, has failed, or was recalled: then nothing here refers to its memory. A recall
// ends the whole operation in the NIC, since the others could not end it either; their parts are kept until they are recalled, too.
//
// Bounded by what ranks have under way, which is 32 operations each. Operations beyond the NIC's jobs and sequences wait in the order in
// which they became complete. Scratch is the driver's own, from the beginning of an operation to the end of each part: what is posted and waits for
// others has none. Those that need little have a quarter of `most_scratch`, those that need more the rest, and of those that need more than that alone
// one is in the NIC at a time, beside the others. An operation without room waits only behind those of its kind: else short ones would wait for long ones
// of other ranks. Descriptors are compiled here, not by the ranks that post.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/elements/offload/offload_nic.hpp"
#include "memory/arena.hpp"
#include "protocols/agreement/agreement.hpp"
#include "protocols/offload/descriptor.hpp"
#include "protocols/perform/performer.hpp"

namespace troupe {
class process_memory;
class plan;
}  // namespace troupe

namespace troupe::actors {

class nic_hosts;
class nic_wire;

/// Largest packet, and so what is reduced, or passed on, at a time: it should stay in a core's cache beside its operands.
inline constexpr std::size_t nic_packet_bytes = std::size_t{64} * 1024;
/// Of the process's NIC. Packets refer to their senders' memory, so that the hash buffers hold names and no bytes.
offload_config nic_config();

/// An input of so few bytes travels with the posting of a rank in another process: a call of the system costs more than to copy them.
inline constexpr std::size_t most_inline_bytes = 64;

/// A rank's part of an operation.
struct nic_posting {
  std::uint64_t communicator = 0;  ///< the same for its ranks, another one for every other communicator of the process
  epoch_t epoch = 0;
  rank_t rank = 0;
  int ranks = 1;
  int ranks_here = 0;  ///< of them those for whom this NIC performs; 0: all
  std::uint64_t fingerprint = 0;
  std::shared_ptr<const offload::rank_program>
      program;          ///< for behind_one_nic(); null: `how` has it, or of a rank elsewhere those who bring it
  memory_map memory{};  ///< without scratch
  datatype type = datatype::u8;
  op reduction{};
  // Where ranks live in several processes (nic_between.hpp):
  std::shared_ptr<const plan>
      how;  ///< of a rank that lives here: with the descriptors of the others, for so many elements
  std::size_t elements = 0;
  std::shared_ptr<const std::vector<std::size_t>> counts{};  ///< of blocks that differ in size; null: they are equal
  std::size_t input_bytes = 0, output_bytes = 0;
  process_memory* far = nullptr;  ///< the rank lives elsewhere: `memory` is an address there, reached in this way, …
  rank_t far_rank = 0;            ///< … which knows it by this number
  bool brings_input = false;      ///< which lies in `inline_input`
  std::array<std::byte, most_inline_bytes> inline_input{};
  /// Of a rank elsewhere, where all are (nic_host.hpp): the descriptors of all ranks, instead of `how`; one rank brings them, with type and reduction.
  std::shared_ptr<const std::vector<offload::rank_program>> programs;
  std::string why_no_programs;  ///< why those that ought to have come are none
  nic_hosts* across = nullptr;  ///< other hosts' NICs perform for the others; outlives what is under way

  /// Of all ranks of the communicator. @pre `how`
  std::shared_ptr<const offload::rank_program> descriptors_of(rank_t which) const;
  /// Ranks that post it here.
  int posters() const { return ranks_here > 0 ? ranks_here : ranks; }
};

/// A rank, as the driver knows it. Called on the driver's own thread.
class nic_client {
public:
  virtual ~nic_client() = default;
  /// @param why null: well. Nothing refers to the rank's memory any more.
  virtual void performed(epoch_t epoch, failure_ptr why) = 0;
  /// `from` has posted another call for this epoch. Nothing of the posting was kept.
  virtual void differs(epoch_t epoch, rank_t from) = 0;
  /// The memory that was recalled is the rank's again.
  virtual void let_go(epoch_t epoch) = 0;
};
using nic_client_ptr = std::shared_ptr<nic_client>;

class nic_driver {
public:
  static constexpr std::size_t default_scratch = std::size_t{32} << 20;
  /// Operations between hosts in the NIC at once. The rest of its names is for those that no other host has a part in, which end by themselves.
  static constexpr int most_between_hosts = offload::most_jobs * 7 / 8;

  /// @param most_scratch bytes of operations in the NIC, besides one that needs more, and of blocks that are kept for the next ones
  explicit nic_driver(const offload_config& config = nic_config(), std::size_t most_scratch = default_scratch);

  void post(nic_client_ptr who, nic_posting&& what);
  void recall(nic_client& who, std::uint64_t communicator, epoch_t epoch, rank_t rank, picoseconds now);
  /// Nothing of that communicator is performed any more, and nobody of it is told. @pre its ranks that live here have posted nothing
  void forget(std::uint64_t communicator, picoseconds now);

  // -- from other hosts' NICs (nic_hosts.hpp). Words about an operation that is over here are dropped. --

  void ready_came(std::uint64_t communicator, epoch_t epoch, int host, std::uint64_t fingerprint, picoseconds now);
  /// Its `job` says nothing.
  void packet_came(std::uint64_t communicator, epoch_t epoch, offload_packet&& what, picoseconds now);
  void response_came(std::uint64_t communicator, epoch_t epoch, const offload_response& what, picoseconds now);

  /// Performs some packets. True: there may be more to do at once.
  bool turn(picoseconds now);
  /// No operation is here, not even one that waits for ranks that have not posted.
  bool empty() const { return jobs_.empty() && told_.empty(); }
  std::size_t operations() const { return jobs_.size(); }
  std::size_t under_way() const { return static_cast<std::size_t>(offload::most_jobs) - free_.size(); }
  const offload_nic& nic() const { return nic_; }
  arena::statistics scratch() const { return scratch_.usage(); }

private:
  /// In the NIC at once, of operations that other hosts have a part in, and of those that none has.
  static constexpr std::size_t most_sequences = 8192;
  using key = std::pair<std::uint64_t, epoch_t>;
  /// Of a rank elsewhere, as the NIC works on it: in memory that both map, or copies of the driver's.
  struct staging {
    std::byte* input = nullptr;   ///< where it stands here …
    std::byte* output = nullptr;  ///< …
    std::size_t bytes = 0;        ///< of the driver's copy of both
    std::size_t input_at = 0, output_at = 0;
    bool reads = false, writes = false;  ///< the input is copied to there, the output from there
    std::size_t copied = 0;              ///< bytes of it, so far
    scratch_block memory{};
  };
  struct part {
    nic_client_ptr who;
    nic_posting what;
    scratch_block scratch{};
    staging staged{};
    memory_map here{};  ///< what the NIC works on
  };
  /// Of another host: that it is ready.
  struct told {
    int host;
    std::uint64_t fingerprint;
  };
  struct job {
    std::vector<part>
        parts;       ///< in the order of their posting, as long as their ranks are not told or have not recalled them
    int posted = 0;  ///< ranks, so far
    std::optional<offload_job> runs_as;
    bool broken = false;  ///< somebody has recalled his part
    std::size_t sequences = 0, scratch_bytes = 0;
    std::uint64_t ready_as = 0;  ///< the number of those that were complete before it
    // Where other hosts' NICs perform, too:
    nic_hosts* across = nullptr;
    std::vector<told> ready;                  ///< of them
    bool ready_here = false;                  ///< and they know it
    bool in_nic = false;                      ///< with all its parts
    bool again = false;                       ///< something was sent twice
    std::vector<offload_channel_name> early;  ///< channels of which something came before it began
  };
  /// Operations that wait for one another: `most` bytes of them are in the NIC, or a single one that needs more.
  struct line {
    std::deque<key> ready;  ///< complete, and not begun
    std::size_t bytes = 0;  ///< of those in the NIC, until all their parts have ended
    std::size_t most = 0;
  };

  void complete(const key& which, job& what);
  static void lay_out(part& p);
  memory_map staging_for(part& p);
  bool copy_some(picoseconds now);
  bool bring_piece(const key& which, picoseconds now);
  bool take_piece(const key& which, rank_t rank);
  void hand_over(const key& which, job& what, picoseconds now);
  void say_ready(const key& which, job& what, picoseconds now);
  void begin_across(const key& which, job& what, picoseconds now);
  void give_to_nic(job& what);
  nic_wire* way_to(std::uint32_t node, const offload_job& of);
  void send_away(const offload_packet& what);
  void send_away(const offload_response& what);
  void let_go_of_links(const key& which, const job& what);
  bool is_oldest(const key& which) const { return jobs_.lower_bound({which.first, 0})->first == which; }
  void conclude(std::map<key, job>::iterator which, std::vector<part>::iterator mine, const failure_ptr& why);
  line& line_of(const job& what);
  line* next_line();
  line& between_hosts() { return lines_.back(); }
  const line& between_hosts() const { return lines_.back(); }
  std::optional<std::size_t> next_across() const;
  void begin_ready_across(picoseconds now);
  void begin_ready(picoseconds now);
  void begin(const key& which, job& what, picoseconds now);
  void stop(const key& which, job& what, picoseconds now);
  void fail(const key& which, job& what, errc code, const std::string& why, picoseconds now);
  void release(job& what);
  void ended(const offload_completion& what);
  bool perform(picoseconds now);

  arena scratch_;
  offload_nic nic_;
  std::map<key, job> jobs_;
  std::map<key, std::vector<told>> told_;  ///< of operations that nobody has posted here yet
  /// Of those that need little scratch, much, and more than all others together may have; and of those that other hosts perform, too.
  std::array<line, 4> lines_;
  std::uint64_t completed_ = 0;
  std::deque<key> coming_;                      ///< begun, and inputs are being copied from elsewhere
  std::deque<std::pair<key, rank_t>> leaving_;  ///< performed, and the rank's output is being copied to it
  std::vector<std::uint8_t> free_;
  std::vector<key> by_id_;
  std::uint64_t serial_ = 0;
  int across_ = 0;  ///< operations in the NIC that other hosts perform, too …
  std::size_t sequences_across_ = 0;
  std::size_t sequences_ = 0;  ///< of the others
};

}  // namespace troupe::actors
