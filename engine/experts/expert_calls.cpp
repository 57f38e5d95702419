// SPDX-License-Identifier: Apache-2.0
// The calls of an exchange, and its rounds.

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/experts/expert_inside.hpp"
#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {
std::string number(std::size_t n) { return std::to_string(n); }

/// @param which expert_exchange::inside::call
std::string name_of_call(std::uint64_t which) {
  constexpr std::array names{"dispatch()",         "combine()",
                             "combine_backward()", "dispatch_backward()",
                             "start_dispatch()",   "what a flow's node of gradients does",
                             "profile()",          "what follows start_dispatch()"};
  return names.at(which);
}

constexpr const char* in_one_order = "; all ranks make the same calls of an exchange in the same order";
}  // namespace

void expert_exchange::inside::lost(rank_t rank) {
  throw error(errc::peer_lost, "expert_exchange: what rank " + std::to_string(rank) +
                                   " shows cannot be read: its process has ended, or the memory that the processes of "
                                   "this host share is used up");
}

// -- rounds ---------------------------------------------------------------------------------------------------------------

std::string expert_exchange::inside::calls_that_differ(std::size_t rank, std::uint64_t its) const {
  const std::uint64_t differs = its ^ call_word();
  std::string what;
  if (differs >> generation_at != 0) what = name_of_call(its & which_call) + " of another exchange";
  else if ((differs & which_call) != 0) what = name_of_call(its & which_call);
  else what = "the same after other calls than this rank has made";
  return "expert_exchange: rank " + number(static_cast<std::size_t>(rank_)) + " calls " +
         name_of_call(call_word() & which_call) + ", and rank " + number(rank) + " " + what + in_one_order;
}

/// Where the communicator has found that calls differ, it names collectives that the caller has not called. @pre in a handler
std::exception_ptr expert_exchange::inside::why_failed() const {
  try {
    throw;
  } catch (const error& e) {
    const std::string text = e.what();
    if (e.code_value() != errc::mismatch || text.starts_with("expert_exchange:")) return std::current_exception();
    return std::make_exception_ptr(error(
        errc::mismatch, "expert_exchange: rank " + number(static_cast<std::size_t>(rank_)) + " calls " +
                            name_of_call(static_cast<std::uint64_t>(calling_)) + ", and not all ranks do" +
                            in_one_order + ". In the words of the collectives that these calls are made of: " + text));
  } catch (...) {
    return std::current_exception();
  }
}

void expert_exchange::inside::check_words(const std::string& wrong) {
  const std::uint64_t mine = call_word();
  const auto first = [&](auto&& is) { return std::ranges::find_if(all_words_, is); };
  const auto rank_of = [&](auto at) { return static_cast<std::size_t>(at - all_words_.begin()); };
  // The others' exchange has not had this round: this one ends.
  const auto stranger = first([&](std::uint64_t w) { return (w ^ mine) >> generation_at != 0; });
  if (stranger != all_words_.end()) throw error(errc::mismatch, calls_that_differ(rank_of(stranger), *stranger));
  const auto refuser = first([](std::uint64_t w) { return (w & refuses) != 0; });
  const auto other = first([&](std::uint64_t w) { return ((w ^ mine) & ~refuses) != 0; });
  if (refuser == all_words_.end() && other == all_words_.end()) return;
  // All ranks are here, so nobody reads any more; and all go on from here alike.
  refusing_ = true;
  last_ = kind::none;
  if (!wrong.empty()) throw error(errc::invalid_argument, wrong);
  if (refuser != all_words_.end())
    throw error(errc::peer_refused,
                "expert_exchange: rank " + number(rank_of(refuser)) + " refused this call; its own error says why");
  routed_ = false;
  throw error(errc::mismatch, calls_that_differ(rank_of(other), *other));
}

void expert_exchange::inside::round(const std::string& wrong) {
  mine().finished.store(rounds_, std::memory_order_release);
  comm_.all_gather(call_word() | (wrong.empty() ? 0 : refuses), all_words_, how_to_call());
  ++rounds_;
  check_words(wrong);
}

/// All have read what the last call of this kind has shown.
void expert_exchange::inside::before(kind what) {
  in_before_ = true;
  if (last_ == what) round({});
  in_before_ = false;
  last_ = what;
}

expert_exchange::inside::clock::time_point expert_exchange::inside::begin_call(call which) {
  const auto begin = clock::now();
  calling_ = which;
  in_before_ = false;
  if (first_call_ == clock::time_point{} && which != call::profile) first_call_ = begin;
  refusing_ = false;
  return begin;
}

/// @pre in a handler
void expert_exchange::inside::call_failed() {
  if (refusing_) {
    mine().finished.store(rounds_, std::memory_order_release);
    return;
  }
  failed_ = why_failed();
  routed_ = false;
  give_up_early();
  mine().finished.store(~std::uint64_t{0}, std::memory_order_release);
}

void expert_exchange::inside::call_ended(clock::time_point begin) {
  mine().finished.store(rounds_, std::memory_order_release);
  if (calling_ == call::profile) return;  // it is no exchange
  const auto end = clock::now();
  did_.exchanging += end - begin;
  did_.altogether = end - first_call_;
}

// -- what is wrong --------------------------------------------------------------------------------------------------------

std::string expert_exchange::inside::wrong_dispatch(const void* tokens, std::size_t elements, datatype type,
                                                    std::span<const std::int32_t> ids,
                                                    std::span<const float> weights) const {
  const auto k = static_cast<std::size_t>(options_.top_k);
  const auto who = [&] { return "expert_exchange: rank " + std::to_string(rank_) + " dispatches "; };
  if (type != options_.type)
    return who() + std::string{name(type)} + ", and the exchange was made for " + std::string{name(options_.type)};
  if (elements % options_.hidden != 0)
    return who() + number(elements) + " elements; tokens have " + number(options_.hidden) + " each";
  if (elements > 0 && tokens == nullptr) return who() + "from a null pointer";
  const std::size_t n = elements / options_.hidden;
  if (ids.size() != n * k)
    return who() + number(n) + " tokens with " + number(ids.size()) + " ids of experts; " + number(k) +
           " each would be " + number(n * k);
  if (!weights.empty() && weights.size() != ids.size())
    return who() + number(ids.size()) + " choices with " + number(weights.size()) +
           " weights; give one for each, or none";
  const auto unknown = std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= experts_; });
  if (unknown != ids.end())
    return who() + "token " + number(static_cast<std::size_t>(unknown - ids.begin()) / k) + " to expert " +
           std::to_string(*unknown) + "; experts are 0 to " + std::to_string(experts_ - 1) +
           ", and a negative number is none";
  if (ids.size() > 0xffff'fff0U) return who() + number(ids.size()) + " choices; there may be 4294967280 at most";
  return {};
}

std::string expert_exchange::inside::wrong_rows(const char* what, const void* rows, std::size_t elements,
                                                std::size_t wanted, datatype type) const {
  const auto who = [&] { return "expert_exchange: rank " + std::to_string(rank_) + " gives "; };
  if (!routed_) return "expert_exchange: there is no dispatch that succeeded before";
  if (type != options_.type)
    return who() + what + " of " + std::string{name(type)} + ", and the exchange was made for " +
           std::string{name(options_.type)};
  if (elements != wanted * options_.hidden)
    return who() + number(elements) + " elements of " + what + "; the last dispatch makes it " + number(wanted) +
           " rows of " + number(options_.hidden);
  if (elements > 0 && rows == nullptr) return who() + what + " as a null pointer";
  return {};
}

// -- calls ----------------------------------------------------------------------------------------------------------------

expert_exchange::rows_here expert_exchange::inside::arrived_in(const lasting_buffer& rows) const {
  return {rows.get(), received_ * options_.hidden, own_experts_, counts_, options_.hidden};
}

void* expert_exchange::inside::token_room(std::size_t n, datatype type) {
  if (type != options_.type)
    throw error(errc::invalid_argument, "expert_exchange: room for tokens of " + std::string{name(type)} +
                                            ", and the exchange was made for " + std::string{name(options_.type)});
  return spare_tokens_.grow(n * result_bytes());
}

expert_exchange::rows_here expert_exchange::inside::dispatch(const std::byte* tokens, std::size_t elements,
                                                             datatype type, std::span<const std::int32_t> ids,
                                                             std::span<const float> weights) {
  perform(call::dispatch, [&] {
    finish_early();
    before(kind::dispatch);
    routed_ = in_parts_ = false;
    const std::string wrong = wrong_dispatch(tokens, elements, type, ids, weights);
    tokens_ = wrong.empty() ? elements / options_.hidden : 0;
    if (wrong.empty()) route(ids, weights);
    else route({}, {});
    list_own();
    if (spreads()) {
      list_for_others();
      send_tokens(tokens, wrong);
    }
    show_tokens(tokens);
    if (some_share_ || !spreads()) round(wrong);
    find_streams();
    received_ = lay_out();
    did_.received += received_;
    for (std::size_t e = 0; e < counts_.size(); ++e)
      came_to_expert_[static_cast<std::size_t>(own_experts_[e])] += counts_[e];
    take_tokens();
    routed_ = true;
    ++dispatches_;
  });
  return arrived_in(rows_);
}

void expert_exchange::inside::combine(const std::byte* results, std::size_t elements, std::byte* output,
                                      std::size_t output_elements, datatype type, bool weighted) {
  perform(weighted ? call::combine : call::dispatch_backward, [&] {
    finish_early();
    before(kind::combine);
    std::string wrong;
    if (in_parts_)
      wrong = weighted ? "expert_exchange: the last dispatch has started early, so its results are where its parts "
                         "are; combine(output) takes them"
                       : "expert_exchange: combine_backward() comes before dispatch_backward()";
    if (wrong.empty()) wrong = wrong_rows(weighted ? "results" : "gradients", results, elements, received_, type);
    if (wrong.empty()) wrong = wrong_rows("output", output, output_elements, tokens_, type);
    if (wrong.empty())
      mine().results = reinterpret_cast<std::uint64_t>(shared_results(results, elements * size_of(type)));
    round(wrong);
    find_results();
    if (spreads()) sum_for_others(weighted);
    sum(output, weighted);
  });
}

expert_exchange::rows_here expert_exchange::inside::backward(const std::byte* gradient, std::size_t elements,
                                                             const std::byte* results, std::size_t result_elements,
                                                             std::span<float> weight_gradient, datatype type) {
  perform(call::combine_backward, [&] {
    finish_early();
    before(kind::dispatch);
    std::string wrong = wrong_rows("gradients", gradient, elements, tokens_, type);
    if (wrong.empty()) wrong = wrong_rows("results", results, result_elements, in_parts_ ? 0 : received_, type);
    if (wrong.empty() && !weight_gradient.empty() && weight_gradient.size() != replica_.size())
      wrong = "expert_exchange: rank " + std::to_string(rank_) + " wants the gradients of " +
              number(weight_gradient.size()) + " weights; the last dispatch had " + number(replica_.size());
    if (wrong.empty() && !in_parts_ && gradient_rows_.holds(results))
      wrong = "expert_exchange: rank " + std::to_string(rank_) +
              " gives results that lie where the gradients will be; they are those of the combine";
    if (wrong.empty()) show_gradients(gradient);
    mine().products =
        reinterpret_cast<std::uint64_t>(products_.grow(std::max<std::size_t>(received_ * sizeof(float), 1)));
    round(wrong);
    if (spreads()) {
      send_gradients(gradient);
      round({});
    }
    find_streams();
    if (in_parts_) lay_out();
    take_gradients(results);
    in_parts_ = false;
    round({});
    find_products();
    if (spreads()) send_products();
    collect_products(weight_gradient);
  });
  return arrived_in(gradient_rows_);
}

// -- profile --------------------------------------------------------------------------------------------------------------

void expert_exchange::inside::reset_profile() {
  did_ = {};
  dispatches_ = 0;
  first_call_ = {};
  std::fill(came_to_expert_.begin(), came_to_expert_.end(), 0);
  std::fill(sent_to_expert_.begin(), sent_to_expert_.end(), 0);
  std::fill(dropped_of_expert_.begin(), dropped_of_expert_.end(), 0);
}

expert_profile expert_exchange::inside::profile() {
  if (!failed_)
    perform(call::profile, [&] {
      finish_early();
      round({});
    });
  const auto e = static_cast<std::size_t>(experts_), n = static_cast<std::size_t>(ranks_);
  constexpr std::size_t words = 8;
  std::vector<std::uint64_t> mine{did_.tokens,
                                  did_.sent,
                                  did_.received,
                                  did_.dropped,
                                  did_.crossed,
                                  did_.crossing,
                                  static_cast<std::uint64_t>(did_.exchanging.count()),
                                  static_cast<std::uint64_t>(did_.altogether.count())};
  std::vector<std::uint64_t> ranks(words * n), of_experts(2 * e);
  std::copy(came_to_expert_.begin(), came_to_expert_.end(), of_experts.begin());
  std::copy(dropped_of_expert_.begin(), dropped_of_expert_.end(), of_experts.begin() + static_cast<std::ptrdiff_t>(e));
  expert_profile all;
  all.sent_to_expert.resize(n * e);
  comm_.all_gather(mine, ranks, how_to_call());
  comm_.all_gather(sent_to_expert_, all.sent_to_expert, how_to_call());
  comm_.all_reduce(of_experts, troupe::sum, how_to_call());
  all.dispatches = dispatches_;
  for (std::size_t r = 0; r < n; ++r) {
    const std::uint64_t* const w = ranks.data() + words * r;
    all.ranks.push_back(
        {w[0], w[1], w[2], w[3], w[4], w[5], std::chrono::nanoseconds(w[6]), std::chrono::nanoseconds(w[7])});
  }
  all.tokens_of_expert.assign(of_experts.begin(), of_experts.begin() + static_cast<std::ptrdiff_t>(e));
  all.dropped_of_expert.assign(of_experts.begin() + static_cast<std::ptrdiff_t>(e), of_experts.end());
  return all;
}

// -- what callers have ----------------------------------------------------------------------------------------------------

expert_exchange::expert_exchange() = default;
expert_exchange::expert_exchange(expert_exchange&&) noexcept = default;
expert_exchange& expert_exchange::operator=(expert_exchange&&) noexcept = default;
expert_exchange::~expert_exchange() = default;
expert_exchange::expert_exchange(std::unique_ptr<inside> what) : what_(std::move(what)) {}

expert_exchange::inside& expert_exchange::in() const {
  if (!what_) throw error(errc::invalid_argument, "this expert exchange is empty (moved from, or never made)");
  return *what_;
}

void* expert_exchange::token_room(std::size_t n, datatype type) { return in().token_room(n, type); }
expert_exchange::rows_here expert_exchange::dispatch_any(const void* tokens, std::size_t elements, datatype type,
                                                         std::span<const std::int32_t> ids,
                                                         std::span<const float> weights) {
  return in().dispatch(static_cast<const std::byte*>(tokens), elements, type, ids, weights);
}
void expert_exchange::combine_any(const void* results, std::size_t elements, void* output, std::size_t output_elements,
                                  datatype type, bool weighted) {
  in().combine(static_cast<const std::byte*>(results), elements, static_cast<std::byte*>(output), output_elements, type,
               weighted);
}
expert_exchange::rows_here expert_exchange::backward_any(const void* gradient, std::size_t elements,
                                                         const void* results, std::size_t result_elements,
                                                         std::span<float> weight_gradient, datatype type) {
  return in().backward(static_cast<const std::byte*>(gradient), elements, static_cast<const std::byte*>(results),
                       result_elements, weight_gradient, type);
}
void expert_exchange::start_any(const void* tokens, std::size_t elements, datatype type,
                                std::span<const std::int32_t> ids, std::span<const float> weights) {
  in().start(static_cast<const std::byte*>(tokens), elements, type, ids, weights);
}
std::optional<expert_exchange::part_here> expert_exchange::next_any(datatype type) { return in().next_part(type); }
bool expert_exchange::arrived(rank_t peer) { return in().has_arrived(peer); }
void expert_exchange::ready(rank_t peer) { in().ready(peer); }
void expert_exchange::combine_parts(void* output, std::size_t elements, datatype type) {
  in().combine_early(static_cast<std::byte*>(output), elements, type);
}
void expert_exchange::cancel() { in().cancel(); }
std::size_t expert_exchange::dropped() const { return in().dropped_; }
std::span<const std::uint8_t> expert_exchange::dropped_choices() const { return in().dropped_choices_; }
expert_profile expert_exchange::profile() { return in().profile(); }
void expert_exchange::reset_profile() { in().reset_profile(); }
std::size_t expert_exchange::hidden() const noexcept { return what_ ? what_->options_.hidden : 0; }
int expert_exchange::experts() const noexcept { return what_ ? what_->experts_ : 0; }

}  // namespace troupe
