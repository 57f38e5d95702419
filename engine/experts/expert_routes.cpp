// SPDX-License-Identifier: Apache-2.0
// Which token goes to which seat, and the lists by which those who take them know.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/experts/expert_inside.hpp"

namespace troupe {

namespace {
constexpr std::uint32_t none = ~std::uint32_t{0};

/// What entry_lists reads.
struct lists_to_fill {
  std::uint32_t* begins;
  std::uint32_t* rows;
  float* weights;

  lists_to_fill(std::byte* at, std::uint32_t seats, std::size_t entries)
      : begins(reinterpret_cast<std::uint32_t*>(at)),
        rows(begins + seats + 1),
        weights(reinterpret_cast<float*>(rows + entries)) {}
};
}  // namespace

/// Every choice gets a seat, unless it is none, or beyond its expert's capacity.
void expert_exchange::inside::route(std::span<const std::int32_t> ids, std::span<const float> weights) {
  const std::size_t choices = ids.size();
  seat_.resize(choices);
  index_.resize(choices);
  dropped_choices_.assign(choices, 0);
  if (weights.empty()) weights_.assign(choices, 1.0F);
  else weights_.assign(weights.begin(), weights.end());
  per_expert_.assign(static_cast<std::size_t>(experts_), 0);
  per_seat_.assign(seats_.seats(), 0);
  dropped_ = 0;
  const double most = options_.capacity == 0 ? static_cast<double>(choices)
                                             : std::ceil(options_.capacity * static_cast<double>(choices) / experts_);
  for (std::size_t c = 0; c < choices; ++c) {
    seat_[c] = -1;
    if (ids[c] < 0) continue;
    const auto e = static_cast<std::size_t>(ids[c]);
    if (static_cast<double>(per_expert_[e]) >= most) {
      dropped_choices_[c] = 1;
      ++dropped_;
      ++dropped_of_expert_[e];
      continue;
    }
    const auto& among = choices_[e];
    const std::uint32_t seat = among.size() == 1 ? among[0] : among[per_expert_[e] % among.size()];
    ++per_expert_[e];
    seat_[c] = static_cast<std::int32_t>(seat);
    index_[c] = per_seat_[seat]++;
  }
  begin_of_seat_.resize(seats_.seats());
  // By rank and so by domain only within one: a domain's seats may lie apart.
  std::vector<std::uint32_t>& entries = tally_;
  entries.assign(seats_.domains.size(), 0);
  for (std::size_t s = 0; s < seats_.seats(); ++s) {
    std::uint32_t& next = entries[domain_of_seat(s)];
    begin_of_seat_[s] = next;
    next += per_seat_[s];
  }
  did_.tokens += tokens_;
  for (std::size_t e = 0; e < per_expert_.size(); ++e) sent_to_expert_[e] += per_expert_[e];
  for (const std::uint32_t sent : per_seat_) did_.sent += sent;
  did_.dropped += dropped_;
}

/// For the own domain: rows are the rank's tokens.
void expert_exchange::inside::list_own() {
  const std::uint32_t seats = domain_seats();
  std::size_t entries = 0;
  for (const rank_t r : members())
    for (std::uint32_t s = seats_.first[static_cast<std::size_t>(r)]; s < seats_.first[static_cast<std::size_t>(r) + 1];
         ++s)
      entries += per_seat_[s];
  const lists_to_fill to(lists_.grow(entry_lists::bytes(seats, entries)), seats, entries);
  for (const rank_t r : members())
    for (std::uint32_t s = seats_.first[static_cast<std::size_t>(r)]; s < seats_.first[static_cast<std::size_t>(r) + 1];
         ++s)
      to.begins[seats_.in_domain[s]] = begin_of_seat_[s];
  to.begins[seats] = static_cast<std::uint32_t>(entries);
  const auto k = static_cast<std::size_t>(options_.top_k);
  for (std::size_t c = 0; c < seat_.size(); ++c) {
    if (seat_[c] < 0) continue;
    const auto s = static_cast<std::size_t>(seat_[c]);
    if (domain_of_seat(s) != static_cast<std::size_t>(domain_)) continue;
    const std::uint32_t at = begin_of_seat_[s] + index_[c];
    to.rows[at] = static_cast<std::uint32_t>(c / k);
    to.weights[at] = weights_[c];
  }
}

/// For each other domain a block: how many rows and entries, their lists, and, to be filled in, the rows.
void expert_exchange::inside::list_for_others() {
  const std::size_t domains = seats_.domains.size(), n = static_cast<std::size_t>(ranks_);
  const auto k = static_cast<std::size_t>(options_.top_k);
  row_there_.assign(domains * tokens_, none);
  rows_there_.assign(domains, 0);
  std::vector<std::uint32_t>& entries = entries_there_;
  entries.assign(domains, 0);
  for (std::size_t c = 0; c < seat_.size(); ++c) {
    if (seat_[c] < 0) continue;
    const std::size_t d = domain_of_seat(static_cast<std::size_t>(seat_[c]));
    if (d == static_cast<std::size_t>(domain_)) continue;
    ++entries[d];
    std::uint32_t& row = row_there_[d * tokens_ + c / k];
    if (row == none) row = rows_there_[d]++;
  }
  sizes_.assign(n, 0);
  begins_.assign(n, 0);
  for (std::size_t d = 0; d < domains; ++d) {
    if (entries[d] == 0) continue;
    sizes_[static_cast<std::size_t>(seats_.proxy(static_cast<int>(d), rank_))] =
        block_bytes(seats_.seats_of_domain[d], rows_there_[d], entries[d], token_bytes_);
    did_.crossed += rows_there_[d];
    did_.crossing += entries[d];
  }
  std::size_t all = 0;
  for (std::size_t r = 0; r < n; ++r) {
    begins_[r] = all;
    all += sizes_[r];
  }
  std::byte* const out = outgoing_.grow(all);
  std::vector<lists_to_fill> fill;
  for (std::size_t d = 0; d < domains; ++d) {
    std::byte* const at = out + begins_[static_cast<std::size_t>(seats_.proxy(static_cast<int>(d), rank_))];
    const std::uint32_t head[2] = {rows_there_[d], entries[d]};
    fill.emplace_back(at + sizeof head, seats_.seats_of_domain[d], entries[d]);
    if (entries[d] == 0) continue;
    std::memcpy(at, head, sizeof head);
    fill[d].begins[seats_.seats_of_domain[d]] = entries[d];
  }
  for (std::size_t s = 0; s < seats_.seats(); ++s)
    if (const std::size_t d = domain_of_seat(s); entries[d] != 0)
      fill[d].begins[seats_.in_domain[s]] = begin_of_seat_[s];
  for (std::size_t c = 0; c < seat_.size(); ++c) {
    if (seat_[c] < 0) continue;
    const auto s = static_cast<std::size_t>(seat_[c]);
    const std::size_t d = domain_of_seat(s);
    if (entries[d] == 0) continue;  // the own one
    fill[d].rows[begin_of_seat_[s] + index_[c]] = row_there_[d * tokens_ + c / k];
    fill[d].weights[begin_of_seat_[s] + index_[c]] = weights_[c];
  }
}

}  // namespace troupe
