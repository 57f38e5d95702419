// SPDX-License-Identifier: Apache-2.0
#pragma once
// The communicators of a job that have ranks in this process and in others: brings what they say to each other from the mesh to the ranks,
// and back (the link port's upper half).
//
// A communicator's membership is in one process, its *home*: at first the one of its rank 0. When that is lost, every other process is the home of
// its own ranks from then on, with all others counted as lost: they only have to end what is under way, together with nobody.

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/caf/communicator_actors.hpp"
#include "actors/log.hpp"
#include "actors/ports/link/early_frames.hpp"
#include "actors/ports/link/frames.hpp"
#include "actors/ports/link/given_up.hpp"
#include "actors/ports/link/mesh.hpp"
#include "actors/ports/link/shrink_agreements.hpp"
#include "actors/ports/nic/nic_host.hpp"
#include "actors/ports/segment/host_segment.hpp"

namespace troupe::actors {

class job_links final : public mesh_receiver {
public:
  /// @param key, listeners as mesh; the others outlive it
  job_links(mesh_options options, roster in, std::uint32_t here, const job_key& key, std::vector<descriptor> listeners,
            arena& memory, std::shared_ptr<spdlog::logger> log);
  ~job_links() override;

  // -- communicators; any thread --
  /// From now on it hears what comes for it, and what came before it was made here. Throws error(invalid_argument) if its id is taken.
  void enter(const communicator_actors_ptr& what);
  /// It has ended. What still comes for it is dropped.
  void forget(communicator_id id);
  /// Waits until every communicator has ended: others may not have left yet, and what they say would come to nobody. False: not until then.
  bool wait_for_others(steady_time until);
  /// The end of the process's part in the job.
  void leave() { mesh_.leave(); }

  // -- what ranks and memberships say; any thread --
  /// True: settled.
  bool send(const communicator_actors& of, rank_t to, int channel, const chunk& what, mesh::may_settle may);
  void send(const communicator_actors& of, rank_t to, int channel, const credit& what);
  void send(const communicator_actors& of, rank_t to, const pair_word& what);
  void send(const communicator_actors& of, const home_word& what);
  /// To every other process that has ranks of it.
  void send(const communicator_actors& of, const ranks_word& what);
  void send_gave_up(const communicator_actors& of, epoch_t which, rank_t rank);
  /// The chunk that `to` has announced may come; and where. `rank` is here, `to` and the chunk's source elsewhere.
  void send_clear(const communicator_actors& of, rank_t to, int channel, const credit& what);
  void offer_place(const communicator_actors& of, rank_t rank, const expected_chunk& what);
  void withdraw_place(const communicator_actors& of, rank_t rank, const expected_chunk& what);
  /// A communicator's words to other hosts' NICs, which may outlive it: it is nobody's memory but the sender's.
  std::unique_ptr<nic_wire> wire_to_nics(communicator_id id, std::vector<std::uint32_t> nic_of_host);
  void send_revoke(const communicator_actors& of, rank_t rank, const std::string& text);
  /// Nothing on its way refers to the rank's memory of that operation.
  void let_go(const communicator_actors& of, rank_t rank, const operation_key& which);
  /// Nor to any memory of the rank.
  void let_go(const communicator_actors& of, rank_t rank);

  // -- who is left (shrink_agreements.hpp); any thread --
  /// The ranks that are left, in their order; or why that cannot be known.
  using survivors_told = std::function<void(const std::vector<rank_t>& members, const failure_ptr& why)>;
  /// These ranks of this process take part in shrink number `which`; the others that live here have left. `told` hears the answer, once, on any
  /// thread, and must not wait.
  void contribute(const communicator_actors_ptr& of, std::uint64_t which, std::vector<rank_t> mine,
                  survivors_told told);
  /// Processes that have not said yet who of theirs is left, as far as this one knows.
  std::vector<std::uint32_t> missing(communicator_id of, std::uint64_t which);
  /// All its ranks that live here have left: they take no part in what is not agreed on with them yet.
  void all_left(communicator_id of);
  /// Nobody here is told of any answer any more.
  void end_shrinks();
  /// It will not hear of that process any more.
  void lost_for(communicator_id of, std::uint32_t process);

  /// See mesh.
  bool poll() noexcept { return mesh_.poll(); }
  bool rest() noexcept { return mesh_.rest(); }
  mesh::slept sleep(parker& place, steady_time until) noexcept { return mesh_.sleep(place, until); }

  /// Where communicators of one host have their boards: made by that host's first process, or to be had from it. Waits for all processes of the
  /// host. Once, before any communicator is made. Throws error(timed_out), error(peer_lost), error(io).
  /// @param nic where the host's NIC process listens, which takes part then (nic_host.hpp); empty: none does. Throws as nic_host_link, too.
  /// @param silence as nic_host_link's
  void share_boards(std::shared_ptr<host_segment> own, steady_time until, const std::string& nic = {},
                    std::uint64_t build = 0, std::chrono::milliseconds silence = {});
  /// A region for the boards of a communicator with ranks in these processes, all of this host; null: there is no room (host_segment.hpp).
  /// Those of some ranks have no place for the host's NIC process, which performs for all of a communicator or for none.
  enum class boards_of : std::uint8_t { all_ranks, some_ranks };
  std::shared_ptr<board_memory> boards_for(communicator_id id, std::span<const std::uint32_t> process_of,
                                           boards_of whose) const;

  /// The host's NIC process; null: none, or the system lets nobody copy.
  std::shared_ptr<nic_of_host> host_nic() const { return copies() ? nic_ : nullptr; }
  /// More have no place for it, and no plan for a NIC.
  static constexpr std::size_t most_nic_ranks = 255;
  /// The communicator has a place for the host's NIC process, which performs for it from now on. False, and throws, as nic_host_link::enter(). @pre host_nic()
  bool enter_nic(communicator_id id, std::span<const std::uint32_t> process_of) const;

  /// Where the NIC's thread of that process sleeps. @pre it is of this host, and boards() are shared
  doorbell* nic_bell_of(std::uint32_t process) const;
  /// The processes of this host may copy from each other's memory.
  const std::shared_ptr<host_segment>& boards() const { return boards_; }
  bool copies() const { return boards_ != nullptr && boards_->copies(); }

  std::uint32_t here() const { return mesh_.here(); }
  const roster& all() const { return mesh_.all(); }

private:
  class answers;
  /// Came before its communicator was made here.
  struct early_frame {
    frame_head head;
    chunk what;  ///< of chunks
    credit back;
    std::vector<std::byte> body;
  };

  bool chunk_arrived(std::uint32_t from, const frame_head& head, chunk&& what) override;
  bool credit_arrived(std::uint32_t from, const frame_head& head, const credit& what) override;
  bool word_arrived(std::uint32_t from, const frame_head& head, std::span<const std::byte> body) override;
  void process_lost(std::uint32_t process, const std::string& how) override;
  void process_left(std::uint32_t process) override;
  void expelled(const std::string& why) override;
  void turned_away(const std::string& who_and_why) override;
  void lanes_changed(std::uint32_t process, int open, const std::string& why_not) override;

  void to_others(const communicator_actors& of, const frame_head& head, const std::vector<std::byte>& body);
  template <class Frame>
  communicator_actors_ptr find_or_keep(std::uint32_t from, const frame_head& head, Frame&& frame);
  static bool deliver(const communicator_actors& to, std::uint32_t from, const frame_head& head, chunk&& what);
  static bool deliver_to_nic(const communicator_actors& to, std::uint32_t from, const frame_head& head, chunk&& what);
  static bool deliver_to_nic(const communicator_actors& to, std::uint32_t from, const credit& what);
  static bool deliver(const communicator_actors& to, std::uint32_t from, const frame_head& head, const credit& what);
  bool deliver(const communicator_actors_ptr& to, std::uint32_t from, const frame_head& head,
               std::span<const std::byte> body);
  std::vector<communicator_actors_ptr> known();
  void place_given_up(communicator_id parent, const gave_up_word& what);
  bool gave_up_arrived(std::uint32_t from, communicator_id parent, const gave_up_word& what);
  bool shrink_arrived(std::uint32_t from, const frame_head& head, std::span<const std::byte> body,
                      const shrink_word& what);
  template <class Transition>
  void decide(Transition&& transition);
  void lost_on_host(std::uint32_t process);
  std::uint32_t processes_on_host() const;
  void remember_lost(std::uint32_t process, const std::string& how);

  std::shared_ptr<spdlog::logger> log_;
  std::shared_ptr<host_segment> boards_;  ///< null: no other process is on this host
  std::shared_ptr<nic_host_link> nic_;
  /// Held for a look-up. Frames arrive on one thread at a time; communicators come and go on others. Recursive: frames that came early for a
  /// communicator may end it at once.
  std::recursive_mutex mutex_;
  std::condition_variable_any ended_;
  std::unordered_map<communicator_id, std::weak_ptr<communicator_actors>> communicators_;
  early_frames<early_frame> early_;
  std::map<std::uint32_t, std::string> lost_;  ///< how, by process
  int turned_away_ = 0;                        ///< how many were; the thread that reads the mesh has it
  shrink_agreements agreements_;
  std::map<std::pair<communicator_id, std::uint64_t>, survivors_told> told_;  ///< who hears the answer
  given_up_places given_up_;
  mesh mesh_;  ///< last: its thread calls
};

/// Null: kept, or dropped because the communicator has ended. @param frame makes what is kept
template <class Frame>
communicator_actors_ptr job_links::find_or_keep(std::uint32_t from, const frame_head& head, Frame&& frame) {
  const std::lock_guard lock(mutex_);
  if (const auto at = communicators_.find(head.communicator); at != communicators_.end())
    if (auto members = at->second.lock()) return members;
  early_.keep(head.communicator, from, std::forward<Frame>(frame));
  return nullptr;
}

}  // namespace troupe::actors
