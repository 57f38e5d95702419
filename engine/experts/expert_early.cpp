// SPDX-License-Identifier: Apache-2.0
// A dispatch that starts early. Each rank's tokens are taken as soon as its word has come, and results as soon as the word of the rank that has made
// them has; between servers the proxy, whichever call of the exchange its rank is in, shows what has come for its server and announces it, and sends the sums
// back. Each pair of ranks exchanges its messages in one order, which both know:
//
//   of one domain   the word `shown` of the sender, then in any order: one for each source that it is the proxy of, and `results` for each source that the
//                   receiver answers for and has sent something to the sender
//   a rank's proxy  from it the word `shown`, with how many bytes, and, if these are not 0, they themselves; to it, if they are not 0, the sums

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "engine/experts/expert_early.hpp"
#include "engine/experts/expert_inside.hpp"
#include "engine/experts/expert_words.hpp"

namespace troupe {

namespace {
std::uint64_t address(const void* of) { return reinterpret_cast<std::uint64_t>(of); }

std::string caller_of(std::uint64_t tiles) {
  if (tiles == 0) return "outside of a flow";
  return "in a flow's node of " + std::string{(tiles & expert_word::back) != 0 ? "gradients of " : ""} +
         std::to_string(tiles & ~expert_word::back) + " tiles";
}
}  // namespace

// -- what has come ----------------------------------------------------------------------------------------------------------

/// @pre this rank is the source, or its proxy
entry_lists expert_exchange::inside::lists_here(rank_t source) const {
  const std::uint64_t at = mine().streams[source].lists;
  return {reinterpret_cast<const std::byte*>(at), domain_replicas()};  // NOLINT(performance-no-int-to-ptr): one's own
}

/// How many of them are for replicas of that rank of the domain.
std::size_t expert_exchange::inside::entries_for(const entry_lists& lists, rank_t rank) const {
  const std::uint32_t replicas = replicas_.replicas_at(rank);
  if (replicas == 0) return 0;
  const std::uint32_t place = replicas_.in_domain[replicas_.first[static_cast<std::size_t>(rank)]];
  return lists.begins[place + replicas] - lists.begins[place];
}

void expert_exchange::inside::await_next(rank_t from) {
  early& e = *early_;
  early::peer& peer = e.from[static_cast<std::size_t>(from)];
  if (e.words.awaits(from)) return;
  if (const std::size_t bytes = std::exchange(peer.block, 0); bytes > 0) {
    peer.awaited = early::peer::what::block;
    const auto s = static_cast<std::size_t>(from);
    e.words.await_block(from, (e.back ? e.of[s].gradient_block : e.came.of[s].block)->grow(bytes), bytes);
  } else if (peer.words > 0) {
    --peer.words;
    peer.awaited = early::peer::what::word;
    e.words.await(from);
  } else if (const std::size_t sums = std::exchange(peer.sums, 0); sums > 0) {
    peer.awaited = early::peer::what::sums;
    e.words.await_block(from, sums_in_.get() + coming_begins_[static_cast<std::size_t>(from)], sums);
  }
}

void expert_exchange::inside::look() {
  while (const auto next = early_->words.next()) {
    heard(next->from, next->what);
    await_next(next->from);
  }
}

void expert_exchange::inside::heard(rank_t from, const expert_word* what) {
  early& e = *early_;
  early::peer& peer = e.from[static_cast<std::size_t>(from)];
  if (what == nullptr) {
    if (peer.awaited == early::peer::what::sums) --e.sums_coming;
    else show_block(from);
    return;
  }
  const auto source = static_cast<rank_t>(what->source);
  if (what->what == expert_word::kind::results) {
    if (source == rank_) {
      --e.results;
    } else {
      --e.of[static_cast<std::size_t>(source)].to_answer;
      sum_if_all_are_there(source);
    }
    return;
  }
  if (what->tiles != e.tiles)
    throw error(errc::mismatch, "expert_exchange: rank " + std::to_string(source) + " dispatches " +
                                    caller_of(what->tiles) + ", and rank " + std::to_string(rank_) + " " +
                                    caller_of(e.tiles) + "; all ranks need the same");
  if (what->what == expert_word::kind::refused) e.refused_by = source;
  if (taker(source) == from) {
    has_come(source);
  } else {  // of another domain, and this rank is the proxy
    peer.block = coming_[static_cast<std::size_t>(source)] = what->bytes;
    if (peer.block == 0) show_block(source);
  }
}

/// The tokens of a source of another domain, or their gradients, or nothing, are here: they are shown to this domain.
void expert_exchange::inside::show_block(rank_t source) {
  early& e = *early_;
  const auto s = static_cast<std::size_t>(source);
  expert_shown::stream& shown = mine().streams[source];
  shown.lists = shown.rows = 0;
  if (!e.back) rows_from_[s] = 0;
  if (coming_[s] > 0) {
    const std::byte* const block = e.came.of[s].block->get();
    std::uint32_t head[2];
    std::memcpy(head, block, sizeof head);
    rows_from_[s] = head[0];
    shown.lists = address(block + sizeof head);
    shown.rows = address(e.back ? e.of[s].gradient_block->get() : block + lists_bytes(domain_replicas(), head[1]));
    const entry_lists lists = lists_here(source);
    e.of[s].to_answer = 0;
    ++e.to_sum;
    for (const rank_t r : members()) {
      if (entries_for(lists, r) == 0) continue;
      ++e.of[s].to_answer;
      if (r == rank_) continue;
      ++e.from[static_cast<std::size_t>(r)].words;
      await_next(r);
    }
  }
  const auto what = e.refused_by == source ? expert_word::kind::refused : expert_word::kind::shown;
  for (const rank_t r : members())
    if (r != rank_) e.words.send(r, {what, static_cast<std::uint32_t>(source), 0, e.tiles});
  has_come(source);
}

void expert_exchange::inside::has_come(rank_t source) {
  early_->of[static_cast<std::size_t>(source)].is = early::state::come;
  early_->to_give.push_back(source);
}

// -- what is read of others -----------------------------------------------------------------------------------------------

/// Copies what the source has for this rank's experts. @pre it has come
void expert_exchange::inside::take_part(rank_t source) {
  early& e = *early_;
  const auto s = static_cast<std::size_t>(source);
  record::source& of = e.came.of[s];
  const std::size_t experts = own_experts_.size(), row_bytes = result_bytes();
  const rank_t from = taker(source);
  auto* const bases = e.came.bases.as<std::uint32_t>() + s * experts;
  if (!e.back) {
    std::fill(of.counts.begin(), of.counts.end(), 0);
    of.all = 0;
  }
  const auto copy = [&] {
    // Not the rest of it, which that rank writes when it takes the same.
    const expert_shown::stream& its = shown(from).streams[source];
    if (its.lists == 0 || experts == 0) return;
    const entry_lists lists{found<std::byte>(from, its.lists), domain_replicas()};
    of.all = entries_for(lists, rank_);
    if (of.all == 0) return;
    const std::byte* const rows = found<std::byte>(from, its.rows);
    if (e.back) return take_gradients_of(source, lists, rows);
    std::byte* to = of.rows->grow(of.all * row_bytes);
    const store_hint stores = stores_of(of.all * row_bytes);
    const std::uint32_t first = replicas_.in_domain[replicas_.first[static_cast<std::size_t>(rank_)]];
    std::size_t row = 0;
    for (std::size_t x = 0; x < experts; ++x) {
      const std::size_t begin = lists.begins[first + x], end = lists.begins[first + x + 1];
      bases[x] = static_cast<std::uint32_t>(row);
      of.counts[x] = end - begin;
      row += end - begin;
      for (std::size_t entry = begin; entry < end; ++entry, to += row_bytes)
        take_row(rows + lists.rows[entry] * token_bytes_, to, stores);
    }
  };
  if (from == rank_) copy();
  else read_others(copy);
  mine().streams[source].results = address((e.back ? e.of[s].gradients : of.rows)->get());
  mine().streams[source].bases = address(bases);
  e.of[s].is = of.all == 0 ? early::state::ready : early::state::given;
  ++e.given;
  if (e.back) return;
  did_.received += of.all;
  received_ += of.all;
  for (std::size_t x = 0; x < experts; ++x) came_to_expert_[static_cast<std::size_t>(own_experts_[x])] += of.counts[x];
}

const std::byte* expert_exchange::inside::part_row(const came_row& which) const {
  const std::uint32_t* const bases = early_->came.bases.as<std::uint32_t>() + which.source * own_experts_.size();
  return early_->came.of[which.source].rows->get() + (bases[which.expert] + which.nth) * result_bytes();
}

/// Where the ranks of the domain have the results of its tokens.
void expert_exchange::inside::find_results_of(rank_t source) {
  const entry_lists lists = lists_here(source);
  for (const rank_t r : members()) {
    if (entries_for(lists, r) == 0) continue;
    const expert_shown::stream& its = shown(r).streams[source];
    bases_of_[static_cast<std::size_t>(r)] = found<std::uint32_t>(r, its.bases);
    results_of_[static_cast<std::size_t>(r)] = found<std::byte>(r, its.results);
    if (early_->back) early_->products_of[static_cast<std::size_t>(r)] = found<float>(r, its.products);
  }
}

void expert_exchange::inside::sum_if_all_are_there(rank_t source) {
  early& e = *early_;
  const auto s = static_cast<std::size_t>(source);
  if (e.of[s].to_answer > 0) return;
  const std::size_t sums = in_lines(rows_from_[s] * result_bytes());
  const std::size_t bytes =
      sums + (e.back ? in_lines(lists_here(source).begins[domain_replicas()] * sizeof(float)) : 0);
  std::byte* const to = e.of[s].sums->grow(bytes);
  read_others([&] {
    find_results_of(source);
    sum_of(source, to, !e.back);
    if (e.back) products_for(source, reinterpret_cast<float*>(to + sums));
  });
  e.words.send_block(source, to, bytes);
  --e.to_sum;
}

/// @pre it was given out
void expert_exchange::inside::tell_ready(rank_t source) {
  early& e = *early_;
  early::source& of = e.of[static_cast<std::size_t>(source)];
  of.is = early::state::ready;
  if (taker(source) != rank_) {
    e.words.send(taker(source), {expert_word::kind::results, static_cast<std::uint32_t>(source), 0});
  } else if (source != rank_) {
    --of.to_answer;
    sum_if_all_are_there(source);
  }
}

// -- the calls ------------------------------------------------------------------------------------------------------------

expert_exchange::inside::early& expert_exchange::inside::started(const char* call) const {
  const std::string who = "expert_exchange: " + std::string{call} + " on rank " + std::to_string(rank_);
  if (!early_)
    throw error(errc::invalid_argument, who + ": the exchange was made without expert_options::starts_early");
  if (!early_->open || early_->combined)
    throw error(errc::invalid_argument, who + ": no dispatch is under way that start_dispatch() has begun");
  return *early_;
}

void expert_exchange::inside::start(const std::byte* tokens, std::size_t elements, datatype type,
                                    std::span<const std::int32_t> ids, std::span<const float> weights,
                                    std::uint64_t tiles, std::shared_ptr<void> keeps) {
  if (!early_)
    throw error(errc::invalid_argument, "expert_exchange: start_dispatch() on rank " + std::to_string(rank_) +
                                            ": the exchange was made without expert_options::starts_early");
  perform(call::start_dispatch, [&] {
    finish_early();
    early_->keeps = std::move(keeps);
    if (last_ == kind::dispatch) round({});  // others may still read what it has shown
    last_ = kind::none;
    routed_ = false;
    const std::string wrong = wrong_dispatch(tokens, elements, type, ids, weights);
    tokens_ = wrong.empty() ? elements / options_.hidden : 0;
    if (wrong.empty()) route(ids, weights);
    else route({}, {});
    begin_early(tokens, wrong.empty(), tiles);
    ++dispatches_;
    if (wrong.empty()) return;
    finish_early();
    --dispatches_;
    refusing_ = true;
    throw error(errc::invalid_argument, wrong);
  });
}

/// @pre routed
void expert_exchange::inside::begin_early(const std::byte* tokens, bool right, std::uint64_t tiles) {
  early& e = *early_;
  const auto n = static_cast<std::size_t>(ranks_);
  e.back = false;
  list_own();
  show_tokens(tokens);
  rows_from_.assign(n, 0);
  received_ = 0;
  e.came.bases.grow(std::max<std::size_t>(n * own_experts_.size() * sizeof(std::uint32_t), 1));
  if (spreads()) {
    list_for_others();
    pack_tokens(tokens);
  }
  meet_early(right, tiles, outgoing_.get());
}

/// This rank's tokens are there: all hear of it, and it awaits theirs. @param blocks for other domains
void expert_exchange::inside::meet_early(bool right, std::uint64_t tiles, const std::byte* blocks) {
  early& e = *early_;
  const auto n = static_cast<std::size_t>(ranks_);
  coming_.assign(n, 0);
  coming_begins_.assign(n, 0);
  in_parts_ = true;
  for (early::source& one : e.of) one.is = early::state::awaited;
  std::fill(e.from.begin(), e.from.end(), early::peer{});
  e.from.resize(n);
  e.to_give.clear();
  e.combined = false;
  e.refused_by = right ? -1 : rank_;
  e.tiles = tiles;
  e.given = e.results = e.sums_coming = e.to_sum = 0;
  if (spreads()) await_sums();
  const entry_lists lists = lists_here(rank_);
  for (rank_t s = 0; s < ranks_; ++s)
    if (s != rank_) ++e.from[static_cast<std::size_t>(taker(s) == rank_ ? s : taker(s))].words;
  for (const rank_t r : members()) {
    if (r == rank_ || entries_for(lists, r) == 0) continue;
    ++e.from[static_cast<std::size_t>(r)].words;
    ++e.results;
  }
  e.open = true;
  e.words.begin(state_of(comm_)->deadline_for(rank_, how_to_call().deadline).optional());
  // The next one first, so that not all tell the same.
  for (rank_t step = 1; step < ranks_; ++step) {
    const rank_t to = (rank_ + step) % ranks_;
    const int domain = replicas_.domain_of[static_cast<std::size_t>(to)];
    if (domain != domain_ && replicas_.proxy(domain, rank_) != to) continue;
    const std::size_t bytes = spreads() ? sizes_[static_cast<std::size_t>(to)] : 0;
    e.words.send(to, {right ? expert_word::kind::shown : expert_word::kind::refused, static_cast<std::uint32_t>(rank_),
                      bytes, tiles});
    if (bytes > 0) e.words.send_block(to, blocks + begins_[static_cast<std::size_t>(to)], bytes);
  }
  for (rank_t from = 0; from < ranks_; ++from)
    if (from != rank_) await_next(from);
  has_come(rank_);
}

/// From each other domain that has some of this rank's tokens one block, where sum() looks for it.
void expert_exchange::inside::await_sums() {
  early& e = *early_;
  std::size_t all = 0;
  for (std::size_t d = 0; d < replicas_.domains.size(); ++d) {
    if (rows_there_[d] == 0) continue;
    const auto proxy = static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_));
    coming_begins_[proxy] = all;
    all += e.from[proxy].sums =
        in_lines(rows_there_[d] * result_bytes()) + (e.back ? in_lines(entries_there_[d] * sizeof(float)) : 0);
    ++e.sums_coming;
  }
  sums_in_.grow(std::max(all, line));
}

/// Waits for the next rank that has shown its tokens, and takes what is for this one. Nothing: all have been taken.
std::optional<rank_t> expert_exchange::inside::take_next() {
  early& e = *early_;
  for (look(); !e.all_given(); look()) {
    if (e.to_give.empty()) {
      e.words.sleep();
      continue;
    }
    const rank_t source = e.to_give.front();
    e.to_give.pop_front();
    take_part(source);
    return source;
  }
  return std::nullopt;
}

std::optional<expert_exchange::part_here> expert_exchange::inside::next_part(datatype type) {
  early& e = started("next_arrived()");
  if (type != options_.type)
    throw error(errc::invalid_argument, "expert_exchange: next_arrived() of " + std::string{name(type)} +
                                            ", and the exchange was made for " + std::string{name(options_.type)});
  std::optional<part_here> part;
  perform(call::of_parts, [&] {
    while (!part) {
      const std::optional<rank_t> source = take_next();
      if (!source) break;
      const record::source& of = e.came.of[static_cast<std::size_t>(*source)];
      if (of.all > 0)
        part = {{of.rows->get(), of.all * options_.hidden, own_experts_, of.counts, options_.hidden}, *source};
    }
    if (part) return;
    if (e.refused_by >= 0) {
      const rank_t by = e.refused_by;
      finish_early();
      refusing_ = true;
      throw error(errc::peer_refused,
                  "expert_exchange: rank " + std::to_string(by) + " refused this call; its own error says why");
    }
    routed_ = true;
  });
  return part;
}

bool expert_exchange::inside::has_arrived(rank_t peer) {
  early& e = started("arrived()");
  check_peer("arrived()", peer);
  perform(call::of_parts, [&] { look(); });
  return e.of[static_cast<std::size_t>(peer)].is != early::state::awaited;
}

void expert_exchange::inside::check_peer(const char* call, rank_t peer) const {
  if (peer < 0 || peer >= ranks_)
    throw error(errc::invalid_argument, "expert_exchange: " + std::string{call} + " of rank " + std::to_string(peer) +
                                            "; ranks are 0 to " + std::to_string(ranks_ - 1));
}

void expert_exchange::inside::ready(rank_t peer) {
  early& e = started("ready()");
  check_peer("ready()", peer);
  const early::state is = e.of[static_cast<std::size_t>(peer)].is;
  if (is != early::state::given)
    throw error(errc::invalid_argument,
                "expert_exchange: ready() of the part of rank " + std::to_string(peer) + " on rank " +
                    std::to_string(rank_) +
                    (is == early::state::ready && e.came.of[static_cast<std::size_t>(peer)].all > 0
                         ? ", which was made ready before"
                         : ", which next_arrived() has not given out"));
  perform(call::of_parts, [&] {
    tell_ready(peer);
    look();
  });
}

/// Until nobody needs anything more of this rank, nor it of others.
void expert_exchange::inside::combine_all() {
  early& e = *early_;
  for (rank_t s = 0; s < ranks_; ++s)
    if (e.of[static_cast<std::size_t>(s)].is == early::state::given) tell_ready(s);
  for (look(); !e.all_done(); look()) e.words.sleep();
}

void expert_exchange::inside::combine_early(std::byte* output, std::size_t elements, datatype type) {
  early& e = started("combine(output)");
  if (!routed_) {
    for (rank_t s = 0; s < ranks_; ++s)
      if (const auto& of = e.of[static_cast<std::size_t>(s)];
          of.is == early::state::awaited || of.is == early::state::come)
        throw error(errc::invalid_argument, "expert_exchange: combine(output) on rank " + std::to_string(rank_) +
                                                " before next_arrived() has given out what rank " + std::to_string(s) +
                                                " sends; call it until it returns nothing");
    // The last part was given out, and nobody has asked for another: so nobody has heard of a refusal.
    static_cast<void>(next_part(type));
  }
  if (const std::string wrong = wrong_rows("output", output, elements, tokens_, type); !wrong.empty())
    throw error(errc::invalid_argument, wrong);
  perform(call::of_parts, [&] {
    combine_all();
    read_others([&] {
      find_results_of(rank_);
      sum(output, true);
    });
    e.words.vote();
    e.combined = true;
  });
}

void expert_exchange::inside::cancel(const failure_ptr& why) {
  if (early_) early_->words.cancel(why);
}

void expert_exchange::inside::finish_early() {
  if (!early_ || !early_->open) return;
  early& e = *early_;
  if (!e.combined) {
    while (take_next()) {}
    combine_all();
    e.words.vote();
  }
  e.words.wait();
  e.open = false;
  last_ = kind::none;
  count_rows();
}

/// Of parts, what a whole dispatch would have counted.
void expert_exchange::inside::count_rows() {
  for (std::size_t x = 0; x < counts_.size(); ++x) {
    counts_[x] = 0;
    for (const record::source& one : early_->came.of) counts_[x] += one.counts[x];
  }
}

/// @pre in a handler
void expert_exchange::inside::give_up_early() noexcept {
  if (!early_) return;
  failure_ptr why;
  try {
    throw;
  } catch (const error& e) {
    why = make_failure(e.code_value(), e.what());
  } catch (...) {}  // the others hear that this rank has cancelled it
  early_->words.give_up(why);
  mine().ended.store(1, std::memory_order_seq_cst);
}

}  // namespace troupe
