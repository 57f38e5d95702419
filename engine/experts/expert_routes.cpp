// SPDX-License-Identifier: Apache-2.0
// Which token goes to which replica, and the lists by which those who take them know.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/experts/expert_inside.hpp"

namespace troupe {

namespace {
constexpr std::uint32_t none = ~std::uint32_t{0};

/// What entry_lists reads.
struct lists_to_fill {
  std::uint32_t* begins = nullptr;
  std::uint32_t* rows = nullptr;
  float* weights = nullptr;

  lists_to_fill() = default;  // of a domain that gets none: there is no memory that it could lie in
  lists_to_fill(std::byte* at, std::uint32_t replicas, std::size_t entries)
      : begins(reinterpret_cast<std::uint32_t*>(at)),
        rows(begins + replicas + 1),
        weights(reinterpret_cast<float*>(rows + entries)) {}
};
}  // namespace

/// Every choice gets a replica, unless it is none, or beyond its expert's capacity.
void expert_exchange::inside::route(std::span<const std::int32_t> ids, std::span<const float> weights) {
  const std::size_t choices = ids.size();
  replica_.resize(choices);
  index_.resize(choices);
  dropped_choices_.assign(choices, 0);
  if (weights.empty()) weights_.assign(choices, 1.0F);
  else weights_.assign(weights.begin(), weights.end());
  per_expert_.assign(static_cast<std::size_t>(experts_), 0);
  per_replica_.assign(replicas_.replicas(), 0);
  dropped_ = 0;
  const double most = options_.capacity == 0 ? static_cast<double>(choices)
                                             : std::ceil(options_.capacity * static_cast<double>(choices) / experts_);
  for (std::size_t c = 0; c < choices; ++c) {
    replica_[c] = -1;
    if (ids[c] < 0) continue;
    const auto e = static_cast<std::size_t>(ids[c]);
    if (static_cast<double>(per_expert_[e]) >= most) {
      dropped_choices_[c] = 1;
      ++dropped_;
      ++dropped_of_expert_[e];
      continue;
    }
    const auto& among = choices_[e];
    const std::uint32_t replica = among.size() == 1 ? among[0] : among[per_expert_[e] % among.size()];
    ++per_expert_[e];
    replica_[c] = static_cast<std::int32_t>(replica);
    index_[c] = per_replica_[replica]++;
  }
  begin_of_replica_.resize(replicas_.replicas());
  // By rank and so by domain only within one: a domain's replicas may lie apart.
  std::vector<std::uint32_t>& entries = tally_;
  entries.assign(replicas_.domains.size(), 0);
  for (std::size_t s = 0; s < replicas_.replicas(); ++s) {
    std::uint32_t& next = entries[domain_of_replica(s)];
    begin_of_replica_[s] = next;
    next += per_replica_[s];
  }
  did_.tokens += tokens_;
  for (std::size_t e = 0; e < per_expert_.size(); ++e) sent_to_expert_[e] += per_expert_[e];
  for (const std::uint32_t sent : per_replica_) did_.sent += sent;
  did_.dropped += dropped_;
}

/// For the own domain: rows are the rank's tokens.
void expert_exchange::inside::list_own() {
  const std::uint32_t replicas = domain_replicas();
  std::size_t entries = 0;
  for (const rank_t r : members())
    for (std::uint32_t s = replicas_.first[static_cast<std::size_t>(r)];
         s < replicas_.first[static_cast<std::size_t>(r) + 1]; ++s)
      entries += per_replica_[s];
  const lists_to_fill to(lists_.grow(entry_lists::bytes(replicas, entries)), replicas, entries);
  for (const rank_t r : members())
    for (std::uint32_t s = replicas_.first[static_cast<std::size_t>(r)];
         s < replicas_.first[static_cast<std::size_t>(r) + 1]; ++s)
      to.begins[replicas_.in_domain[s]] = begin_of_replica_[s];
  to.begins[replicas] = static_cast<std::uint32_t>(entries);
  const auto k = static_cast<std::size_t>(options_.top_k);
  for (std::size_t c = 0; c < replica_.size(); ++c) {
    if (replica_[c] < 0) continue;
    const auto s = static_cast<std::size_t>(replica_[c]);
    if (domain_of_replica(s) != static_cast<std::size_t>(domain_)) continue;
    const std::uint32_t at = begin_of_replica_[s] + index_[c];
    to.rows[at] = static_cast<std::uint32_t>(c / k);
    to.weights[at] = weights_[c];
  }
}

/// For each other domain a block: how many rows and entries, their lists, and, to be filled in, the rows.
void expert_exchange::inside::list_for_others() {
  const std::size_t domains = replicas_.domains.size(), n = static_cast<std::size_t>(ranks_);
  const auto k = static_cast<std::size_t>(options_.top_k);
  row_there_.assign(domains * tokens_, none);
  rows_there_.assign(domains, 0);
  std::vector<std::uint32_t>& entries = entries_there_;
  entries.assign(domains, 0);
  for (std::size_t c = 0; c < replica_.size(); ++c) {
    if (replica_[c] < 0) continue;
    const std::size_t d = domain_of_replica(static_cast<std::size_t>(replica_[c]));
    if (d == static_cast<std::size_t>(domain_)) continue;
    ++entries[d];
    std::uint32_t& row = row_there_[d * tokens_ + c / k];
    if (row == none) row = rows_there_[d]++;
  }
  sizes_.assign(n, 0);
  begins_.assign(n, 0);
  for (std::size_t d = 0; d < domains; ++d) {
    if (entries[d] == 0) continue;
    sizes_[static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_))] =
        block_bytes(replicas_.replicas_of_domain[d], rows_there_[d], entries[d], token_bytes_);
    did_.crossed += rows_there_[d];
    did_.crossing += entries[d];
  }
  std::size_t all = 0;
  for (std::size_t r = 0; r < n; ++r) {
    begins_[r] = all;
    all += sizes_[r];
  }
  std::byte* const out = outgoing_.grow(all);
  std::vector<lists_to_fill> fill(domains);
  for (std::size_t d = 0; d < domains; ++d) {
    if (entries[d] == 0) continue;
    std::byte* const at = out + begins_[static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_))];
    const std::uint32_t head[2] = {rows_there_[d], entries[d]};
    std::memcpy(at, head, sizeof head);
    fill[d] = {at + sizeof head, replicas_.replicas_of_domain[d], entries[d]};
    fill[d].begins[replicas_.replicas_of_domain[d]] = entries[d];
  }
  for (std::size_t s = 0; s < replicas_.replicas(); ++s)
    if (const std::size_t d = domain_of_replica(s); entries[d] != 0)
      fill[d].begins[replicas_.in_domain[s]] = begin_of_replica_[s];
  for (std::size_t c = 0; c < replica_.size(); ++c) {
    if (replica_[c] < 0) continue;
    const auto s = static_cast<std::size_t>(replica_[c]);
    const std::size_t d = domain_of_replica(s);
    if (entries[d] == 0) continue;  // the own one
    fill[d].rows[begin_of_replica_[s] + index_[c]] = row_there_[d * tokens_ + c / k];
    fill[d].weights[begin_of_replica_[s] + index_[c]] = weights_[c];
  }
}

}  // namespace troupe
