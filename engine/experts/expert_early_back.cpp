// SPDX-License-Identifier: Apache-2.0
// The way back of a dispatch that has started early. Gradients of the sums go to the experts as the tokens did, by the same routes and messages (expert_early.cpp),
// and gradients of the tokens return as the results did; so a dispatch that goes back is one whose lists are there before, and whose rows are others. With the
// sums returns what the gradients of the weights are: behind the rows of a block between servers, else where all see it.

#include <algorithm>
#include <utility>

#include "engine/experts/expert_early.hpp"
#include "engine/experts/expert_inside.hpp"
#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {
std::uint64_t address_of(const void* of) { return reinterpret_cast<std::uint64_t>(of); }
}  // namespace

/// Pointers alone change places: what others see of it stays where it is.
void expert_exchange::inside::exchange_record(record& with) {
  std::swap(tokens_, with.tokens);
  replica_.swap(with.replica);
  index_.swap(with.index);
  begin_of_replica_.swap(with.begin_of_replica);
  row_there_.swap(with.row_there);
  rows_there_.swap(with.rows_there);
  rows_from_.swap(with.rows_from);
  entries_there_.swap(with.entries_there);
  lists_.swap(with.lists);
  early_->came.of.swap(with.came.of);
  early_->came.bases.swap(with.came.bases);
  routed_ = false;  // the calls without a record have nothing to go back to
}

void expert_exchange::inside::start_back(record& of, std::shared_ptr<void> keeps, const std::byte* gradient,
                                         std::uint64_t tiles) {
  perform(call::start_back, [&] {
    finish_early();
    if (last_ == kind::dispatch) round({});  // others may still read what it has shown
    last_ = kind::none;
    early& e = *early_;
    e.keeps = std::move(keeps);
    e.back = true;
    e.next = 0;
    e.products_of.resize(static_cast<std::size_t>(ranks_));
    exchange_record(of);
    for (rank_t s = 0; s < ranks_; ++s) mine().streams[s] = {};
    show_gradients(gradient);
    if (spreads()) pack_gradients(gradient);
    meet_early(true, tiles | expert_word::back, gradients_out_.get());
  });
}

const std::byte* expert_exchange::inside::results_of_part(rank_t source) const {
  return early_->came.of[static_cast<std::size_t>(source)].rows->get();
}

/// They lie as the tokens do that came from there.
void expert_exchange::inside::take_gradients_of(rank_t source, const entry_lists& lists, const std::byte* rows) {
  early& e = *early_;
  const auto s = static_cast<std::size_t>(source);
  const std::size_t row_bytes = result_bytes();
  const std::byte* result = results_of_part(source);
  std::byte* to = e.of[s].gradients->grow(e.came.of[s].all * row_bytes);
  auto* product = reinterpret_cast<float*>(e.of[s].products->grow(e.came.of[s].all * sizeof(float)));
  mine().streams[source].products = address_of(product);
  const std::uint32_t first = replicas_.in_domain[replicas_.first[static_cast<std::size_t>(rank_)]];
  for (std::size_t entry = lists.begins[first]; entry < lists.begins[first + own_experts_.size()];
       ++entry, to += row_bytes, result += row_bytes)
    *product++ = take_gradient(rows + lists.rows[entry] * row_bytes, lists.weights[entry], result, to);
}

/// Results are taken in the order in which they come. Functions sum what they get, so they get it in an order that does not depend on time.
std::optional<expert_exchange::part_here> expert_exchange::inside::next_gradients() {
  early& e = started("next_gradients()");
  std::optional<part_here> part;
  perform(call::of_parts, [&] {
    while (!part && e.next < ranks_) {
      const auto s = static_cast<std::size_t>(e.next);
      if (e.of[s].is == early::state::awaited || e.of[s].is == early::state::come) {
        static_cast<void>(take_next());
        continue;
      }
      if (e.of[s].is == early::state::given)
        part = {{e.of[s].gradients->get(), e.came.of[s].all * options_.hidden, own_experts_, e.came.of[s].counts,
                 options_.hidden},
                e.next};
      ++e.next;
    }
  });
  return part;
}

/// What the ranks of the domain have of the weights of that rank, in the order of its lists.
void expert_exchange::inside::products_for(rank_t source, float* to) {
  const entry_lists lists = lists_here(source);
  for (std::uint32_t place = 0; place < domain_replicas(); ++place) {
    const std::uint32_t replica = domain_replica_[place];
    const rank_t r = replicas_.rank_of[replica];
    for (std::uint32_t e = lists.begins[place]; e < lists.begins[place + 1]; ++e)
      to[e] = early_->products_of[static_cast<std::size_t>(r)][row_at(r, replica, source, e - lists.begins[place])];
  }
}

void expert_exchange::inside::combine_back(record& of, std::byte* output, std::span<float> weight_gradient) {
  early& e = started("combine_back()");
  const auto weights = [&] {
    for (std::size_t c = 0; c < replica_.size(); ++c) {
      weight_gradient[c] = 0;
      if (replica_[c] < 0) continue;
      const auto replica = static_cast<std::size_t>(replica_[c]);
      const std::size_t d = domain_of_replica(replica);
      if (d == static_cast<std::size_t>(domain_)) {
        const rank_t r = replicas_.rank_of[replica];
        weight_gradient[c] = e.products_of[static_cast<std::size_t>(r)][row_at(r, replica, rank_, index_[c])];
      } else {
        const auto* const came = reinterpret_cast<const float*>(
            sums_in_.get() + coming_begins_[static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_))] +
            in_lines(rows_there_[d] * result_bytes()));
        weight_gradient[c] = came[begin_of_replica_[replica] + index_[c]];
      }
    }
  };
  perform(call::of_parts, [&] {
    combine_all();
    read_others([&] {
      find_results_of(rank_);
      sum(output, false);
      weights();
    });
    e.words.vote();
    e.combined = true;
    exchange_record(of);
  });
}

}  // namespace troupe
