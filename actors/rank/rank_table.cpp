// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/rank_table.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "memory/error.hpp"

namespace troupe::actors {

int ranks_here(const rank_table_options& o) {
  return o.ranks - static_cast<int>(std::count(o.elsewhere.begin(), o.elsewhere.end(), true));
}

namespace {
int ranks_on_board(const rank_table_options& o) { return o.of_host > 0 ? o.of_host : o.boards ? o.ranks : 0; }

placed_ptr<slot_board> make_board(const rank_table_options& o, const waiting_policy& waiting,
                                  std::pmr::memory_resource& memory) {
  const int ranks = ranks_on_board(o);
  if (ranks == 0) return nullptr;
  if (o.boards_in) return place_in<slot_board>(memory, ranks, o.boards_in, waiting.spin == 0);
  auto roots = std::allocate_shared<heap_memory>(std::pmr::polymorphic_allocator<heap_memory>{&memory},
                                                 !waiting.many_sleep, &memory);
  return place_in<slot_board>(memory, ranks, std::move(roots));
}

/// About what lies in the block: cells, their places in lists, the board.
std::size_t room_for(const rank_table_options& o) {
  constexpr std::size_t listed = 8 * sizeof(void*);
  const auto here = static_cast<std::size_t>(ranks_here(o));
  const bool roots = o.boards_in == nullptr;
  return here * (sizeof(rank_cell) + listed) + static_cast<std::size_t>(o.ranks) * sizeof(void*) + sizeof(slot_board) +
         (roots ? slot_board::root_bytes(ranks_on_board(o)) : 0) + 4 * board_memory::alignment;
}
}  // namespace

rank_table::rank_table(const rank_table_options& options, arena& memory, rank_threads& threads)
    : threads_(&threads),
      waiting_(waiting_for(ranks_here(options) + options.neighbours, options.cores, options.spin)),
      of_host_(options.of_host),
      block_(memory.acquire(room_for(options))),
      own_(block_.data(), block_.size()),
      board_(make_board(options, waiting_, own_)),
      spaces_(options.ranks),
      cells_(&own_),
      by_rank_(static_cast<std::size_t>(options.ranks), nullptr, &own_),
      attendant_(
          cells_, board_.get(), options.ranks, [&threads] { threads.start_attendant(); }, own_) {
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
