// SPDX-License-Identifier: Apache-2.0
// Callers of partitioned operations: who makes what ready when, and what they find when something has arrived.

#include <algorithm>
#include <cstring>

#include "engine/tools/simulate/world.hpp"

namespace troupe::simulate {

namespace {

/// [begin, end) of a piece of a block, in elements.
std::pair<std::size_t, std::size_t> piece_of(const call& c, int piece) {
  const auto p = static_cast<std::size_t>(piece), k = static_cast<std::size_t>(c.pieces);
  if (c.counts.empty()) return {p * c.count / k, (p + 1) * c.count / k};
  std::size_t begin = 0;
  for (std::size_t i = 0; i < p; ++i) begin += c.counts[i];
  return {begin, begin + c.counts[p]};
}

}  // namespace

/// Pieces get ready in any order, soon or late; where somebody ends the operation, some of them never.
void simulation::world::partition(caller_operation& o, actors::operation& op) {
  const auto code = o.plan->program_of(o.rank);
  const bool has_input = input_blocks(o.what.what, what_.ranks, o.what.root, o.rank).count > 0;
  o.parts = op.parts =
      std::make_shared<actors::operation_parts>(has_input ? static_cast<int>(o.what.pieces) : 0, code->arrivals_needed);
  // Ranks note what arrives only for listeners; the world looks at it itself (take_arrivals()).
  if (o.parts->outputs() > 0) o.parts->then(0, [](int) {});
  dice d(what_.seed, {0x91, static_cast<std::uint64_t>(o.it->id), static_cast<std::uint64_t>(o.rank)});
  const bool will_end = std::ranges::any_of(what_.disturbances, [&](const disturbance& x) {
    return (x.what == disturbance::kind::cancel || x.what == disturbance::kind::deadline) && x.item == o.it->id &&
           x.rank == o.rank;
  });
  const nanoseconds_t spread = d.any_of<nanoseconds_t>({1, 5 * us, 50 * us, 3 * ms, 20 * ms});
  for (int p = 0; p < o.parts->inputs(); ++p) {
    if (will_end && d.one_in(3)) continue;
    const auto wait = static_cast<nanoseconds_t>(d.below(static_cast<std::uint64_t>(spread) + 1));
    at(now_ + wait, [this, &o, p] { announce(o, p); });
  }
}

void simulation::world::announce(caller_operation& o, int piece) {
  if (o.over) return;
  last_progress_ = now_;
  const std::size_t width = size_of(o.what.type);
  const auto [begin, end] = piece_of(o.what, piece);
  const auto write = [&o, width, begin = begin, end = end] {
    if (o.over) return;
    for (std::size_t block = 0; (block + 1) * o.what.count * width <= o.complete.size() && end > begin; ++block) {
      const std::size_t from = (block * o.what.count + begin) * width, bytes = (end - begin) * width;
      std::memcpy(o.given.data() + from, o.complete.data() + from, bytes);
      std::memcpy(o.in + from, o.complete.data() + from, bytes);
    }
  };
  if (breaks(mutant::announced_early)) at(now_ + 10 * us, write);
  else write();
  o.parts->announce(piece);
  tell([&] { return o.title() + ": part " + std::to_string(piece) + " is ready"; });
  if (breaks(mutant::drop_announced)) return;
  post_to_rank(message_kind::order, of_caller, o.rank,
               [parts = o.parts](actors::rank_state& s, actors::rank_outbox& out) { s.announced(*parts, out); });
}

/// Any rank that looks sees what has come over the board; the word that it shall look may be lost, late, or come twice.
void simulation::world::news_of_parts(rank_t from, rank_t to, const std::shared_ptr<actors::operation_parts>& whose) {
  if (at_rank(from).muted || breaks(mutant::drop_news)) return;
  const epoch_t epoch = whose->epoch;
  dice d(what_.seed, {0x92, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), epoch, news_++});
  if (d.percent(what_.lose_percent)) {
    tell([&] { return "news of epoch " + std::to_string(epoch) + " for rank " + std::to_string(to) + " are lost"; });
    lost_in_.insert(epoch);
    return;
  }
  for (int times = d.percent(what_.twice_percent) ? 2 : 1; times > 0; --times)
    post_to_rank(message_kind::chunk, from, to,
                 [parts = whose](actors::rank_state& s, actors::rank_outbox& out) { s.announced(*parts, out); });
}

void simulation::world::take_arrivals(rank_t rank) {
  std::shared_ptr<actors::operation_parts> list = at_rank(rank).state->take_arrivals();
  while (list) {
    const std::shared_ptr<actors::operation_parts> one = std::exchange(list, nullptr);
    list = std::move(one->next_listed);
    one->listed.store(false);
    for (caller_operation* o : at_rank(rank).mine) {
      if (o->parts != one) continue;
      for (; o->arrivals < one->arrivals() && result_.ok(); ++o->arrivals) check_arrival(*o, one->arrival(o->arrivals));
      if (o->arrivals == 0 || o->arrivals >= one->outputs() || !breaks(mutant::arrived_early)) continue;
      for (int p = 0; p < one->outputs(); ++p)
        if (!one->arrived(p)) check_arrival(*o, p);
    }
  }
}

void simulation::world::check_arrival(const caller_operation& o, int piece) {
  const int k = static_cast<int>(o.what.pieces);
  const auto [begin, end] = piece_of(o.what, piece % k);
  const std::size_t width = size_of(o.what.type);
  const std::size_t from = (static_cast<std::size_t>(piece / k) * o.what.count + begin) * width;
  if (end == begin || std::memcmp(o.out + from, o.expected.data() + from, (end - begin) * width) == 0) return;
  fault(o.title() + ": output part " + std::to_string(piece) + " has arrived, and is not what it should be");
}

}  // namespace troupe::simulate
