// SPDX-License-Identifier: Apache-2.0
// How the ranks of an exchange find each other.

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "actors/rank/rank_table.hpp"
#include "engine/experts/expert_early.hpp"
#include "engine/experts/expert_inside.hpp"
#include "engine/experts/scaled_rows.hpp"
#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"
#include "memory/word_hash.hpp"
#include "topology/reach.hpp"

namespace troupe {

namespace {

void check(int experts, const expert_options& how) {
  const auto refuse = [](const std::string& why) { throw error(errc::invalid_argument, "expert_exchange: " + why); };
  if (experts < 1) refuse("there are " + std::to_string(experts) + " experts; there must be at least one");
  if (how.hidden < 1) refuse("hidden, the elements of a token, is 0; it must be at least 1");
  if (how.top_k < 1 || how.top_k > expert_options::most_top_k)
    refuse("top_k is " + std::to_string(how.top_k) + "; it must be 1 to " + std::to_string(expert_options::most_top_k));
  if (!(how.capacity >= 0) || how.capacity > 1e9)
    refuse("capacity is " + std::to_string(how.capacity) + "; it must be a factor, or 0 for none");
  if (how.type != datatype::f32 && how.type != datatype::f16 && how.type != datatype::bf16)
    throw error(errc::unsupported_type,
                "expert_exchange: tokens of " + std::string{name(how.type)} + "; f32, f16 and bf16 are possible");
}

std::uint64_t fingerprint_of(int experts, const expert_options& how) {
  word_hash all;
  for (const std::uint64_t word : {static_cast<std::uint64_t>(experts), static_cast<std::uint64_t>(how.hidden),
                                   static_cast<std::uint64_t>(how.type), static_cast<std::uint64_t>(how.top_k),
                                   std::bit_cast<std::uint64_t>(how.capacity),
                                   static_cast<std::uint64_t>(how.transport), std::uint64_t{how.starts_early}})
    all.add(word);
  for (const auto& ranks : how.placement) {
    all.add(ranks.size());
    for (const rank_t r : ranks) all.add(static_cast<std::uint64_t>(r));
  }
  return all.state;
}

const communicator_state& state_in(const communicator& of) {
  const communicator_state* const found = state_of(of);
  if (found == nullptr) refuse_empty();
  return *found;
}

/// Named for what it is for: a rank that calls an all-gather of its own meanwhile has called something else.
template <class T>
void gather_for_setup(communicator& comm, const T& mine, std::vector<T>& all, call_options options) {
  call_description d = calls::all_gather(mine, all, std::move(options));
  d.what.purpose = call_purpose::expert_exchange;
  comm.run(std::move(d));
}

}  // namespace

expert_exchange communicator::expert_exchange(int experts, expert_options options) {
  if (!impl_) refuse_empty();
  check(experts, options);
  return troupe::expert_exchange{
      std::make_unique<troupe::expert_exchange::inside>(communicator{impl_}, experts, std::move(options))};
}

expert_exchange::inside::inside(communicator of, int experts, expert_options how)
    : comm_(std::move(of)),
      rank_(comm_.rank()),
      ranks_(comm_.size()),
      experts_(experts),
      options_(std::move(how)),
      header_(state_in(comm_).core->lasting, lasting_memory::use::header),
      lists_(state_in(comm_).core->lasting),
      tokens_shown_(state_in(comm_).core->lasting),
      spare_tokens_(state_in(comm_).core->lasting),
      results_(state_in(comm_).core->lasting),
      rows_(state_in(comm_).core->lasting),
      gradient_rows_(state_in(comm_).core->lasting),
      bases_(state_in(comm_).core->lasting),
      products_(state_in(comm_).core->lasting),
      outgoing_(state_in(comm_).core->lasting),
      incoming_(state_in(comm_).core->lasting),
      gradients_out_(state_in(comm_).core->lasting),
      gradients_in_(state_in(comm_).core->lasting),
      sums_out_(state_in(comm_).core->lasting),
      sums_in_(state_in(comm_).core->lasting) {
  const auto n = static_cast<std::size_t>(ranks_);
  all_words_.resize(n);
  agree(experts);
  find_domains();
  domain_ = replicas_.domain_of[static_cast<std::size_t>(rank_)];
  for (int e = 0; e < experts; ++e) choices_.push_back(replicas_.choices(e, rank_));
  const auto r = static_cast<std::size_t>(rank_);
  own_experts_.assign(replicas_.expert_of.begin() + replicas_.first[r],
                      replicas_.expert_of.begin() + replicas_.first[r + 1]);
  counts_.resize(own_experts_.size());
  came_to_expert_.resize(static_cast<std::size_t>(experts));
  sent_to_expert_.resize(static_cast<std::size_t>(experts));
  dropped_of_expert_.resize(static_cast<std::size_t>(experts));
  domain_replica_.resize(domain_replicas());
  for (std::uint32_t s = 0; s < replicas_.replicas(); ++s)
    if (domain_of_replica(s) == static_cast<std::size_t>(domain_)) domain_replica_[replicas_.in_domain[s]] = s;
  token_bytes_ =
      options_.transport == expert_transport::exact ? result_bytes() : scaled_rows::row_bytes(options_.hidden);
  place_near_.resize(n);
  for (const rank_t member : members()) place_near_[static_cast<std::size_t>(member)] = place_near(member);
  lists_of_.resize(n);
  rows_of_.resize(n);
  results_of_.resize(n);
  bases_of_.resize(n);
  if (options_.starts_early) {
    communicator lane = comm_.duplicate(how_to_call());
    take_along(comm_, lane);
    early_ = std::make_unique<early>(std::move(lane), state_in(comm_).core->lasting, n, own_experts_.size());
  }
  meet();
}

expert_exchange::inside::~inside() {
  if (early_) early_->words.give_up();
  header_.as<expert_shown>()->ended.store(1, std::memory_order_seq_cst);
  header_.as<expert_shown>()->finished.store(~std::uint64_t{0}, std::memory_order_release);
  wait_for_readers();
  header_.as<expert_shown>()->generation.store(0, std::memory_order_release);
}

void expert_exchange::inside::wait_for_readers() noexcept {
  for (const rank_t r : members()) {
    const auto has_read = [&] {
      try {
        const expert_shown* const its = shown_by(r);
        return its == nullptr || its->generation.load(std::memory_order_acquire) != generation_ ||
               (its->finished.load(std::memory_order_acquire) >= rounds_ &&
                its->reading.load(std::memory_order_seq_cst) == 0);
      } catch (const std::exception&) {  // no memory to map what it shows
        return true;
      }
    };
    if (r != rank_) wait_for_touching(others_, place_near_[static_cast<std::size_t>(r)], has_read);
  }
}

call_options expert_exchange::inside::how_to_call() const {
  call_options how;
  how.deadline = options_.deadline;
  return how;
}

/// All have the same options; and a name for what follows that no exchange has had here.
void expert_exchange::inside::agree(int experts) {
  struct word {
    std::uint64_t fingerprint, number;
  };
  static std::atomic<std::uint64_t> made{0};
  word_hash number;
  number.add(++made);
  number.add(static_cast<std::uint64_t>(clock::now().time_since_epoch().count()));
  const word mine{fingerprint_of(experts, options_), number.state | 1};
  std::vector<word> all(static_cast<std::size_t>(ranks_));
  gather_for_setup(comm_, mine, all, how_to_call());
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r].fingerprint != all[0].fingerprint)
      throw error(errc::mismatch, "expert_exchange: rank " + std::to_string(r) +
                                      " has another number of experts, or other options, than rank 0; all ranks need "
                                      "the same hidden, type, top_k, capacity, transport, placement and starts_early");
  generation_ = all[0].number;
}

/// Those that read each other's memory: all of a process and a server; and of a server's processes, if the system shares memory between them.
void expert_exchange::inside::find_domains() {
  const communicator_state& all = state_in(comm_);
  const reach_map reaches(all.placement);
  const communicator_state* of_server = &all;
  if (reaches.farthest_link() == reach::network) {
    near_ = comm_.split(all.placement.homes[static_cast<std::size_t>(rank_)].host, rank_, how_to_call());
    of_server = &state_in(near_);
  }
  const bool here_only = reach_map(of_server->placement).farthest() == reach::process;
  if (!here_only) others_ = of_server->table->others_memory();
  // Of which rank's domain it is: the server's first rank, or the process's.
  std::int32_t mine = rank_;
  for (rank_t r = 0; r < ranks_; ++r) {
    const auto how = reaches.between(r, rank_);
    if (how == reach::process || (how == reach::segment && others_ != nullptr)) {
      mine = r;
      break;
    }
  }
  std::vector<std::int32_t> first(static_cast<std::size_t>(ranks_));
  gather_for_setup(comm_, mine, first, how_to_call());
  std::vector<int> domains(first.size());
  int count = 0;
  for (std::size_t r = 0; r < first.size(); ++r)
    domains[r] = first[r] == static_cast<std::int32_t>(r) ? count++ : domains[static_cast<std::size_t>(first[r])];
  replicas_ = replicas_of(experts_, options_.placement, std::move(domains));
  for (const auto& ranks : replicas_.domains) some_share_ = some_share_ || ranks.size() > 1;
}

/// Every rank shows where it will show what.
void expert_exchange::inside::meet() {
  const std::size_t bytes = expert_shown::bytes(ranks_);
  std::memset(header_.grow(bytes), 0, bytes);
  auto* const mine = new (header_.get()) expert_shown{};
  mine->generation.store(generation_, std::memory_order_release);
  headers_.resize(static_cast<std::size_t>(ranks_));
  gather_for_setup(comm_, reinterpret_cast<std::uint64_t>(mine), headers_, how_to_call());
}

// -- others' memory -----------------------------------------------------------------------------------------------------

rank_t expert_exchange::inside::place_near(rank_t rank) const {
  if (!near_) return rank;
  // The ranks of the host, in their order, have formed it.
  const auto& homes = state_in(comm_).placement.homes;
  const int host = homes[static_cast<std::size_t>(rank)].host;
  return static_cast<rank_t>(
      std::count_if(homes.begin(), homes.begin() + rank, [&](const residence& r) { return r.host == host; }));
}

const std::byte* expert_exchange::inside::near(rank_t rank, std::uint64_t its) const {
  auto* const at = reinterpret_cast<std::byte*>(its);  // NOLINT(performance-no-int-to-ptr): its process's
  if (others_ == nullptr || rank == rank_) return at;
  return others_->near(place_near_[static_cast<std::size_t>(rank)], at);
}

const expert_shown* expert_exchange::inside::shown_by(rank_t rank) const {
  return reinterpret_cast<const expert_shown*>(near(rank, headers_[static_cast<std::size_t>(rank)]));
}

}  // namespace troupe
