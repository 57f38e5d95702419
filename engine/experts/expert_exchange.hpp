// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mixtures of experts: tokens go to the ranks that have their experts, and the results come back (docs/experts.md).

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/api/arguments.hpp"
#include "engine/experts/expert_profile.hpp"
#include "memory/export.hpp"
#include "memory/types/types.hpp"
#include "protocols/collective.hpp"

namespace troupe {

/// How a token's elements travel on dispatch.
enum class expert_transport : std::uint8_t {
  exact,   ///< as they are
  f8e4m3,  ///< a byte each, with one f32 scale for 128: |error| <= |x|/16 + m/400 000, m the largest magnitude of the 128, before it is
           ///< rounded to the token's type
};

struct expert_options {
  std::size_t hidden = 0;         ///< elements of a token, at least 1
  datatype type = datatype::f32;  ///< of tokens and results: f32, bf16 or f16
  int top_k = 1;                  ///< experts of a token, 1 … most_top_k
  /// Of its n tokens a rank sends at most ⌈capacity · n · top_k / experts⌉ to one expert, the first ones; the others are dropped. 0: as many as come.
  double capacity = 0;
  expert_transport transport = expert_transport::exact;
  /// By expert: the ranks that have it, without repetition, at least one. A rank that is one of them sends to itself; others to those of their server, if
  /// there are some, else to all of them, in turn. Empty: expert e sits at rank ⌊e · ranks / experts⌋.
  std::vector<std::vector<rank_t>> placement{};
  std::optional<std::chrono::nanoseconds> deadline{};  ///< of every operation; empty: the communicator's
  /// start_dispatch() may be called. It takes a communicator of its own.
  bool starts_early = false;

  static constexpr int most_top_k = 32;
};

/// The tokens that have come for the experts of this rank. Refers to memory of the exchange: until its next dispatch (of gradients: next backward pass of a combine).
template <class T>
struct expert_tokens {
  std::span<T>
      rows;  ///< tokens of the first expert, of the second …; of one expert by the rank they are from, then in its order
  std::span<const std::int32_t> experts;  ///< that this rank has, ascending
  std::span<const std::size_t> counts;    ///< tokens of each
  std::size_t hidden = 0;

  std::size_t size() const noexcept { return hidden == 0 ? 0 : rows.size() / hidden; }
  /// The tokens of the expert at `local` in `experts`.
  std::span<T> of(std::size_t local) const {
    std::size_t first = 0;
    for (std::size_t e = 0; e < local; ++e) first += counts[e];
    return rows.subspan(first * hidden, counts[local] * hidden);
  }
};

/// The tokens that one rank has sent for the experts of this one. `rows`: of the first expert, of the second …; of one expert in that rank's order. Refers to memory of
/// the exchange: until its next dispatch.
template <class T>
struct expert_part : expert_tokens<T> {
  rank_t from = -1;
};

/// One rank's part in the exchanges of a layer of experts, made by communicator::expert_exchange():
///   auto moe = comm.expert_exchange(64, {.hidden = 4096, .top_k = 2, .capacity = 1.25});
///   auto mine = moe.dispatch<float>(tokens, ids, weights);    // tokens[n][hidden], ids[n][top_k], weights[n][top_k]
///   for (std::size_t e = 0; e < mine.experts.size(); ++e) feed_forward(mine.experts[e], mine.of(e));   // in place
///   moe.combine<float>(mine.rows, output);                    // output[n][hidden]: the weighted sums, at the tokens' places
///   auto gradient = moe.combine_backward<float>(d_output, mine.rows, d_weights);
///   …
///   moe.dispatch_backward<float>(gradient.rows, d_tokens);
/// Every rank makes the same calls in the same order; n and the routing differ between ranks and calls as they like, n may be 0.
///
/// Sums are taken in f32 in the order of a token's experts and rounded once, so results do not depend on timing. Between servers a sum of those experts
/// of a token that one server has travels, rounded to the token's type.
///
/// All calls but start_dispatch() block: a thread a rank. A call that is refused on one rank (errc::invalid_argument, sizes, an id that is no expert) throws there, and
/// errc::peer_refused on the others; all may go on. Ranks that make different calls get errc::mismatch, all of them, and may go on if they share memory and it was one exchange; but one that
/// starts early meets no round, so where others do not, they wait for each other until the engine or a deadline ends it. After any other error (a deadline, a lost rank) the exchange is useless: its calls throw that error again.
/// Repeated calls allocate nothing once they have been as large, between ranks that share memory. Move-only; one thread at a time; it takes the
/// communicator's place, so no other call of the communicator may be under way in another thread.
class TROUPE_API expert_exchange {
public:
  expert_exchange();
  expert_exchange(expert_exchange&&) noexcept;
  expert_exchange& operator=(expert_exchange&&) noexcept;
  ~expert_exchange();

  /// Where the next dispatch's tokens may be written in the first place, which saves it a copy: room for n tokens, until that dispatch.
  template <element T>
  std::span<T> token_buffer(std::size_t n) {
    return {static_cast<T*>(token_room(n, datatype_of<T>)), n * hidden()};
  }

  /// @param tokens n·hidden elements @param ids n·top_k experts; a negative one is none @param weights n·top_k, by which combine() multiplies; empty: 1
  template <element T>
  expert_tokens<T> dispatch(std::type_identity_t<std::span<const T>> tokens, std::span<const std::int32_t> ids,
                            std::span<const float> weights = {}) {
    return typed<T>(dispatch_any(tokens.data(), tokens.size(), datatype_of<T>, ids, weights));
  }
  /// @param results a row for each of the last dispatch, in its order; may be those rows themselves, which saves a copy;
  /// then they stay as they are until the next dispatch has ended, since others read them
  /// @param output n·hidden elements; a token without experts, or of which all were dropped, gets zeros
  template <element T>
  void combine(std::type_identity_t<std::span<const T>> results, std::type_identity_t<std::span<T>> output) {
    combine_any(results.data(), results.size(), output.data(), output.size(), datatype_of<T>, true);
  }

  // -- a dispatch that starts early (expert_options::starts_early), in the words of partitioned operations: its parts are the ranks --

  /// Begins a dispatch, and returns, once all ranks are done with the one before: what each rank has for this one's experts is given out by next_arrived() as soon as that rank has begun it, too (between
  /// servers: as soon as its tokens have come), however late others are. Then combine(output), in place of the one above:
  ///   moe.start_dispatch<float>(tokens, ids, weights);
  ///   while (auto part = moe.next_arrived<float>()) {
  ///     for (std::size_t e = 0; e < part->experts.size(); ++e) feed_forward(part->experts[e], part->of(e));   // in place
  ///     moe.ready(part->from);                                  // its results may be fetched
  ///   }
  ///   moe.combine<float>(output);
  /// The results are those of the calls above, bit for bit. Until `output` is there, `tokens` stay as they are.
  /// Every rank calls it instead of dispatch(). A rank that refuses its call waits for the others to begin theirs. combine_backward() then takes no results; its
  /// rows are by expert, of one by rank, as those of dispatch().
  /// The deadline counts from here to the end of combine(); it, cancel(), a lost rank, a revoke or abort, or an exchange that is destroyed before it combines end all of it on all
  /// ranks, in whatever call they are. Tokens that were given out before are right all the same.
  /// A rank that receives for other servers or sends sums there does so in calls of the exchange. Cost: two messages for each pair of ranks; it allocates.
  template <element T>
  void start_dispatch(std::type_identity_t<std::span<const T>> tokens, std::span<const std::int32_t> ids,
                      std::span<const float> weights = {}) {
    start_any(tokens.data(), tokens.size(), datatype_of<T>, ids, weights);
  }
  /// Waits until a rank's tokens have arrived that were not given out, and gives them out, in the order of their arrival; this rank's own come first. Nothing: all
  /// were. A rank that has nothing for this one is not given out. Throws peer_refused, instead of nothing, if a rank has refused its dispatch.
  template <element T>
  std::optional<expert_part<T>> next_arrived() {
    const std::optional<part_here> next = next_any(datatype_of<T>);
    if (!next) return std::nullopt;
    return expert_part<T>{typed<T>(next->what), next->from};
  }
  /// Whether the tokens of `peer` have arrived, be it that they are none. Looks, and never waits.
  bool arrived(rank_t peer);
  /// The results of the part of `peer` lie in its rows, and may be fetched. Throws errc::invalid_argument if it was not given out, or is ready.
  void ready(rank_t peer);
  /// Makes ready what is not, and waits for the results of the ranks that have this rank's tokens; for nobody else. Throws errc::invalid_argument,
  /// on this rank alone, while next_arrived() has not given out everything.
  template <element T>
  void combine(std::type_identity_t<std::span<T>> output) {
    combine_parts(output.data(), output.size(), datatype_of<T>);
  }
  /// Ends a dispatch that has started early, or its combine, with errc::cancelled on every rank that is not done with it. From any thread, while it is under
  /// way; returns at once.
  void cancel();

  /// The gradient of combine() with respect to its results, a row for each, and with respect to the weights.
  /// @param output_gradient n·hidden @param results those of the combine; nobody may have changed them @param weight_gradient n·top_k, or empty: not
  /// asked for, on all ranks. Of what was dropped it is 0.
  template <element T>
  expert_tokens<T> combine_backward(std::type_identity_t<std::span<const T>> output_gradient,
                                    std::type_identity_t<std::span<const T>> results,
                                    std::span<float> weight_gradient = {}) {
    return typed<T>(backward_any(output_gradient.data(), output_gradient.size(), results.data(), results.size(),
                                 weight_gradient, datatype_of<T>));
  }
  /// The gradient of dispatch() with respect to its tokens: the sum of what their copies' gradients are.
  template <element T>
  void dispatch_backward(std::type_identity_t<std::span<const T>> row_gradient,
                         std::type_identity_t<std::span<T>> token_gradient) {
    combine_any(row_gradient.data(), row_gradient.size(), token_gradient.data(), token_gradient.size(), datatype_of<T>,
                false);
  }

  /// Of this rank's last dispatch: for each token and choice whether it was beyond the capacity.
  std::size_t dropped() const;
  std::span<const std::uint8_t> dropped_choices() const;  ///< n·top_k, 1: dropped
  /// What all ranks have done since they made the exchange, or since reset_profile(). Collective.
  expert_profile profile();
  void reset_profile();

  std::size_t hidden() const noexcept;
  int experts() const noexcept;
  explicit operator bool() const noexcept { return what_ != nullptr; }

private:
  friend class communicator;
  friend struct expert_access;
  struct inside;
  struct rows_here {
    void* rows;
    std::size_t elements;
    std::span<const std::int32_t> experts;
    std::span<const std::size_t> counts;
    std::size_t hidden;
  };
  struct part_here {
    rows_here what;
    rank_t from;
  };
  explicit expert_exchange(std::unique_ptr<inside> what);
  template <class T>
  static expert_tokens<T> typed(const rows_here& a) {
    return {{static_cast<T*>(a.rows), a.elements}, a.experts, a.counts, a.hidden};
  }
  inside& in() const;
  void* token_room(std::size_t n, datatype type);
  rows_here dispatch_any(const void* tokens, std::size_t elements, datatype type, std::span<const std::int32_t> ids,
                         std::span<const float> weights);
  void start_any(const void* tokens, std::size_t elements, datatype type, std::span<const std::int32_t> ids,
                 std::span<const float> weights);
  std::optional<part_here> next_any(datatype type);
  void combine_parts(void* output, std::size_t elements, datatype type);
  void combine_any(const void* results, std::size_t elements, void* output, std::size_t output_elements, datatype type,
                   bool weighted);
  rows_here backward_any(const void* gradient, std::size_t elements, const void* results, std::size_t result_elements,
                         std::span<float> weight_gradient, datatype type);
  std::unique_ptr<inside> what_;
};

}  // namespace troupe
