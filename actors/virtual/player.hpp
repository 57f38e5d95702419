#pragma once
// One rank in virtual time: performs all its lanes and channels with the performer of real runs, over a port on which work takes
// time.
//
// Owner: the player actor. What may arrive, in any order after start:
//   start              its rank begins (once)
//   arrival(message)   a message has come to one of its lanes
//   work(lane)         the work of the lane's present step has ended; only now the step consumes and sends
//   access(lane)       an access of the lane's present step to other ranks' memory has ended
//   credit(lane)       a message that the lane sent has been consumed, and it had waited for that
//   compute(block)     a block of the computation beside the collective has ended

#include <cstdint>
#include <exception>
#include <vector>

#include "actors/virtual/traffic.hpp"
#include "protocols/perform/performer.hpp"
#include "protocols/program/lazy_program.hpp"

namespace troupe::actors {

class recorder;

/// What the players of a run share.
struct ensemble {
  ensemble(const score& notes, const lazy_sizes& sizes, const hardware& on, const virtual_options& options,
           traffic& ways, recorder* record);

  const score& notes;
  const hardware& on;
  const virtual_options& options;
  traffic& ways;
  recorder* record;
  const int lanes, channels;
  bool free_steps;  ///< a rank's own work takes no time at all

  struct waiting_rank {
    rank_t rank;
    std::int64_t since;
  };
  std::vector<std::vector<waiting_rank>> barriers;  ///< hardware syncs: who waits, by channel × lanes + lane
  std::vector<std::vector<std::byte>> slots;  ///< payload::real: results of recv_reduce_send, connection × credits
  std::uint64_t steps = 0;
  std::int64_t waited_chunk = 0, waited_credit = 0;
  std::vector<std::int64_t> finished;  ///< by rank; −1: not yet
  int unfinished = 0;
  std::exception_ptr failure;  ///< the first; ends the run
};

class player_state {
public:
  player_state(ensemble& with, rank_t rank, lazy_program code, const memory_map& memory);
  player_state(const player_state&) = delete;

  void on_start();
  void on_arrival(std::uint32_t message);
  void on_work(std::int32_t lane);
  void on_access(std::int32_t lane);
  void on_credit(std::int32_t lane);
  void on_compute(std::int32_t block);

  /// What its lanes wait for. For verdicts.
  std::vector<lane_wait> waits() const;

private:
  using reason = virtual_cause::reason;
  struct lane_info {
    std::int64_t since = 0;     ///< end of the lane's last step
    std::int64_t work_end = 0;  ///< of the rank's own part of a step that accesses others' memory
    std::uint32_t in_hint = 0, out_hint = 0;
    int accesses = 0;  ///< under way
    reason waits_for = reason::start;
  };
  struct port;

  void begin();
  void advance(int channel);
  void rank_finished();
  void compute_block(std::int32_t block);
  bool reach_barrier(std::int32_t lane);
  std::int64_t end_of_work(const instruction& i, std::int64_t now);
  bool access_shared(const instruction& i, std::int32_t lane);

  ensemble& with_;
  rank_t rank_;
  lazy_program code_;
  std::vector<basic_performer<lazy_program>> performers_;  ///< by channel
  std::vector<lane_info> lanes_;                           ///< by channel × lanes + lane
  int unfinished_ = 0;                                     ///< channels, and the computation beside them
  bool begun_ = false;
};

caf::actor spawn_player(caf::actor_system& system, ensemble& with, player_state& state);

}  // namespace troupe::actors
