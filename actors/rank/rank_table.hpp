// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks of one communicator that live in this process, what they share, and who cares for those that nobody turns.

#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "actors/rank/attendant.hpp"
#include "actors/rank/rank_cell.hpp"
#include "memory/arena.hpp"
#include "memory/placed.hpp"

namespace troupe::actors {

/// The threads that ranks are turned on. Any thread.
class rank_threads {
public:
  virtual ~rank_threads() = default;
  /// Have a thread call which.run() soon. @pre which lives until then
  virtual void schedule(rank_cell& which) = 0;
  /// Runs on the calling thread what waits for a thread; a little. False: nothing did.
  virtual bool help_one() = 0;
  /// Have a thread of its own call attendant::work(). Throws if there is none.
  virtual void start_attendant() = 0;
};

struct rank_table_options {
  std::string communicator = "world";
  int ranks = 1;
  int channels = 1;
  bool boards = false;  ///< the ranks share boards
  /// Of a communicator of several hosts, whose ranks follow each other: how many ranks each host has, which share a board; 0: they do not. Not with `boards`.
  int of_host = 0;
  std::shared_ptr<board_memory> boards_in{};  ///< between processes; null: in this one's memory
  int cores = 1;                              ///< that the process may use, or all that wait there
  int neighbours = 0;                         ///< ranks of other processes on those cores
  int spin = 4096;                            ///< most looks of a waiting caller
  epoch_t first = 0;                          ///< see rank_state_options
  card_tiers* card = nullptr;                 ///< where L0 and L2 of its operations lie; null: in the arena
  std::vector<bool> elsewhere{};              ///< by rank: it lives in another process; empty: all live here
};

/// How many ranks live in this process.
int ranks_here(const rank_table_options& o);

/// All that lasts as long as the communicator lies in one block, which the next one of about as many ranks gets: programs split and drop
/// communicators again and again.
class rank_table final : private rank_host {
public:
  /// @param out makes the outbox of a rank. The others outlive the table.
  template <class MakeOutbox>
  rank_table(const rank_table_options& options, arena& memory, rank_threads& threads, MakeOutbox&& out)
      : rank_table(options, memory, threads) {
    rank_host& host = *this;
    const int waiting = ranks_here(options) + options.neighbours;
    for (rank_t r = 0; r < options.ranks; ++r) {
      if (!options.elsewhere.empty() && options.elsewhere[static_cast<std::size_t>(r)]) continue;
      cells_.push_back(place_in<rank_cell>(own_,
                                           rank_state_options{.rank = r,
                                                              .ranks = options.ranks,
                                                              .channels = options.channels,
                                                              .communicator = options.communicator,
                                                              .first = options.first,
                                                              .crowded = waiting >= options.cores,
                                                              .patience = long_wait_of(waiting, options.cores),
                                                              .on_host = of_host_ > 0 ? r % of_host_ : -1},
                                           memory, spaces_, board_.get(), waiting_, host, out(r)));
      by_rank_[static_cast<std::size_t>(r)] = cells_.back().get();
    }
  }
  ~rank_table() override;
  rank_table(const rank_table&) = delete;
  rank_table& operator=(const rank_table&) = delete;

  int ranks() const { return static_cast<int>(by_rank_.size()); }
  bool is_here(rank_t rank) const { return by_rank_[static_cast<std::size_t>(rank)] != nullptr; }
  /// @pre is_here(rank)
  rank_cell& at(rank_t rank) const { return *by_rank_[static_cast<std::size_t>(rank)]; }
  /// The ranks that live here, in their order.
  const attendant::cell_list& cells() const { return cells_; }
  /// Plans may be performed on boards here.
  bool has_boards() const { return board_ != nullptr && of_host_ == 0; }
  /// So many ranks of each host may meet at a board of theirs (plan::tiers); 0: they do not.
  int of_host() const { return board_ != nullptr ? of_host_ : 0; }
  /// What of the memory of ranks in other processes this one maps, or the system copies. Null: all are here, or no memory is shared.
  process_memory* others_memory() const;
  /// Parts of partitioned operations go through memory that its ranks share, though they live in several processes.
  bool shares_areas() { return spaces_.areas() != nullptr; }
  const waiting_policy& waiting() const { return waiting_; }
  attendant& care() { return attendant_; }

  /// Everything under way fails, and everything later. Thread-safe.
  void broken(const failure_ptr& why);
  /// The same; the attendant ends. Nothing is begun afterwards. Thread-safe.
  void close();
  /// What is still under way fails. @pre nobody refers to its buffers, nor performs it
  void bury();
  /// Something is under way on some rank.
  bool any_pending() const;
  /// Nothing moves, and has not since the call before.
  bool stands_still();

private:
  rank_table(const rank_table_options& options, arena& memory, rank_threads& threads);

  void schedule(rank_cell& which) override { threads_->schedule(which); }
  bool help_one() override { return threads_->help_one(); }
  void unattended(rank_cell&) override { attendant_.something_left(); }
  void attend(rank_cell& which) override { attendant_.take(which); }
  void help_unattended(rank_cell& except) override;

  rank_threads* threads_;
  waiting_policy waiting_;
  int of_host_;
  scratch_block block_;
  std::pmr::monotonic_buffer_resource own_;  ///< the block, and what it turns out to be too small for
  placed_ptr<slot_board> board_;             ///< of all ranks, or of those of this host
  shared_spaces spaces_;                     ///< may lie in the board's memory
  attendant::cell_list cells_;
  std::pmr::vector<rank_cell*> by_rank_;  ///< null: elsewhere
  attendant attendant_;
};

}  // namespace troupe::actors
