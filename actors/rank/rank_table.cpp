// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/rank_table.hpp"

#include <algorithm>

#include "memory/error.hpp"

namespace troupe::actors {

int ranks_here(const rank_table_options& o) {
  return o.ranks - static_cast<int>(std::count(o.elsewhere.begin(), o.elsewhere.end(), true));
}

namespace {
std::unique_ptr<slot_board> make_board(const rank_table_options& o, const waiting_policy& waiting) {
  if (!o.boards && o.of_host == 0) return nullptr;
  const int ranks = o.of_host > 0 ? o.of_host : o.ranks;
  if (!o.boards_in) return std::make_unique<slot_board>(ranks, !waiting.many_sleep);
  return std::make_unique<slot_board>(ranks, o.boards_in, waiting.spin == 0);
}
}  // namespace

rank_table::rank_table(const rank_table_options& options, rank_threads& threads)
    : threads_(&threads),
      waiting_(waiting_for(ranks_here(options) + options.neighbours, options.cores, options.spin)),
      of_host_(options.of_host),
      board_(make_board(options, waiting_)),
      spaces_(options.ranks),
      by_rank_(static_cast<std::size_t>(options.ranks)),
      attendant_(cells_, board_.get(), options.ranks, [&threads] { threads.start_attendant(); }) {
  cells_.reserve(static_cast<std::size_t>(ranks_here(options)));
  spaces_.lie_on(options.card);
  // All processes find the same, so their roots are one behind the other alike.
  if (has_boards() && board_->between_processes() && board_->memory().peers() != nullptr)
    spaces_.lie_in(board_->memory());
}

rank_table::~rank_table() = default;

process_memory* rank_table::others_memory() const { return board_ ? board_->memory().peers() : nullptr; }

void rank_table::help_unattended(rank_cell& except) {
  for (const auto& cell : cells_)
    if (cell.get() != &except && cell->unattended.load(std::memory_order_relaxed) != rank_cell::care::none) cell->run();
}

void rank_table::broken(const failure_ptr& why) {
  for (const auto& cell : cells_)
    cell->post(rank_order{[why](rank_state& s, rank_outbox& out) { s.broken(why, out); }});
}

void rank_table::close() {
  broken(make_failure(errc::engine_closed, "the communicator ended with this operation under way"));
  attendant_.close();
}

void rank_table::bury() {
  const auto why = make_failure(errc::engine_closed, "the engine was closed with this operation under way");
  for (const auto& cell : cells_) {
    cell->post(rank_order{[why](rank_state& s, rank_outbox&) { s.bury(why); }});
    cell->run();
  }
}

bool rank_table::any_pending() const {
  return std::any_of(cells_.begin(), cells_.end(), [](const auto& cell) { return cell->pending(); });
}

bool rank_table::stands_still() {
  const bool rest = std::all_of(cells_.begin(), cells_.end(), [](const auto& cell) { return cell->rests(); });
  return attendant_.stands_still() && rest;
}

}  // namespace troupe::actors
