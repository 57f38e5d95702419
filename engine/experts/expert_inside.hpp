// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inside of an expert_exchange. A rank shows its tokens to the ranks that share memory with it (its *domain*: a process, or the processes of a
// host), with lists of which of them are for which replica, and each takes what is for its own experts straight to where it belongs. Results go back the
// same way: a rank shows them, and each takes what its tokens have become, and sums. So a token is copied once on its way, and there are no packed buffers.
//
// A token goes to another domain once, in one all_to_all_v between proxies (expert_replicas::proxy), with its lists; the proxy shows it as
// if it were its own. On the way back the proxy sums what the domain's experts have made of a token.
//
// The order of reads. A rank shows, takes part in a *round* (an all_gather of one word a rank, which says exchange, call and refusal), and reads what others have shown. A rank that has ended a round
// knows that all have begun it, so have read what they read after the round before. Dispatches and combines show different words, in different memory,
// and mostly alternate, so what a rank shows next nobody reads any more; where one follows another of its kind there is a round more between them.
//
// Where a dispatch starts early, words between pairs of ranks take the place of rounds (expert_words.hpp), and rows of each source have a buffer of their
// own, since nobody knows yet how many others will bring. The last word of it is known to have been read by all.
//
// Failures. A round that fails makes the exchange useless at that rank, so it writes to nothing any more that a peer may still read. A rank that ends waits
// until the others have read what they may read after the last round that has ended here: each tells how many it has `finished`, and one that fails or
// ends has finished all. They have all been in that round, so that takes no longer than their reading. Then its memory is used again, but it is not
// unmapped (lasting_memory.hpp). Outside of rounds a reader marks itself before it looks whether the other has `ended`, and that one waits until it is told
// that nobody reads, which takes no longer than a part. A reader of a header that is another exchange's by now finds another `generation`.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/communicator.hpp"
#include "engine/experts/expert_exchange.hpp"
#include "engine/experts/expert_replicas.hpp"
#include "engine/experts/lasting_memory.hpp"
#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe {

class process_memory;
struct expert_word;

/// What one rank shows the others of its domain. Addresses are its process's; an all-zero word is none.
struct expert_shown {
  /// Tokens of one source: its own, or of another domain.
  struct stream {
    std::uint64_t lists, rows;
    std::uint64_t results, bases,
        products;  ///< where a dispatch has started early: of this rank's experts; the last one on its way back
  };
  std::atomic<std::uint64_t> generation;
  std::atomic<std::uint64_t> finished;  ///< rounds after which it has read all it will
  std::atomic<std::uint32_t> reading;   ///< 1: what others show outside of rounds
  std::atomic<std::uint32_t> ended;     ///< 1: nobody begins to read that any more
  std::uint64_t results, bases, products;
  stream streams[1];  ///< by source; as many as there are ranks

  static std::size_t bytes(int ranks) {
    return sizeof(expert_shown) + static_cast<std::size_t>(ranks) * sizeof(stream);
  }
};

/// The lists of a stream, one behind the other: where the entries of each of the domain's replicas begin, and the end; of each entry the row, and
/// its weight.
struct entry_lists {
  const std::uint32_t* begins = nullptr;
  const std::uint32_t* rows = nullptr;
  const float* weights = nullptr;

  entry_lists() = default;
  entry_lists(const std::byte* at, std::uint32_t replicas)
      : begins(reinterpret_cast<const std::uint32_t*>(at)),
        rows(begins + replicas + 1),
        weights(reinterpret_cast<const float*>(rows + begins[replicas])) {}
  static std::size_t bytes(std::uint32_t replicas, std::size_t entries) {
    return (replicas + 1 + entries) * sizeof(std::uint32_t) + entries * sizeof(float);
  }
};

struct TROUPE_INTERNAL expert_exchange::inside {
  using clock = std::chrono::steady_clock;
  enum class kind : std::uint8_t { none, dispatch, combine };
  /// What a caller has called. One that all ranks make together is in the words of its rounds.
  enum class call : std::uint8_t {
    dispatch,
    combine,
    combine_backward,
    dispatch_backward,
    start_dispatch,
    start_back,
    profile,
    of_parts
  };
  struct early;
  struct record;

  inside(communicator of, int experts, expert_options how);
  ~inside();
  inside(const inside&) = delete;
  inside& operator=(const inside&) = delete;

  // -- setting up: expert_setup.cpp --
  void find_domains();
  void agree(int experts);
  void meet();

  // -- the calls: expert_calls.cpp --
  rows_here dispatch(const std::byte* tokens, std::size_t elements, datatype type, std::span<const std::int32_t> ids,
                     std::span<const float> weights);
  void combine(const std::byte* results, std::size_t elements, std::byte* output, std::size_t output_elements,
               datatype type, bool weighted);
  rows_here backward(const std::byte* gradient, std::size_t elements, const std::byte* results,
                     std::size_t result_elements, std::span<float> weight_gradient, datatype type);
  void* token_room(std::size_t n, datatype type);
  expert_profile profile();
  void reset_profile();
  /// Nothing if the arguments fit.
  std::string wrong_dispatch(const void* tokens, std::size_t elements, datatype type, std::span<const std::int32_t> ids,
                             std::span<const float> weights) const;
  std::string wrong_rows(const char* what, const void* rows, std::size_t elements, std::size_t wanted,
                         datatype type) const;

  // -- routing: expert_routes.cpp --
  void route(std::span<const std::int32_t> ids, std::span<const float> weights);
  void list_own();
  void list_for_others();

  // -- what moves: expert_moves.cpp --
  void show_tokens(const std::byte* tokens);
  void show_gradients(const std::byte* gradient);
  void send_tokens(const std::byte* tokens, const std::string& wrong);
  void pack_gradients(const std::byte* gradient);
  void send_gradients(const std::byte* gradient);
  void find_streams();
  std::size_t lay_out();
  /// Which of the rows for this rank's experts.
  struct came_row {
    std::size_t source, expert, nth;
  };
  template <class Take>
  void take_each(std::size_t row_bytes, Take&& take);
  void take_tokens();
  void take_row(const std::byte* from, std::byte* to, store_hint stores) const;
  void pack_tokens(const std::byte* tokens);
  void take_gradients(const std::byte* results);
  float take_gradient(const std::byte* from, float weight, const std::byte* result, std::byte* to) const;
  void find_results();
  void sum_for_others(bool weighted);
  void sum_of(rank_t source, std::byte* to, bool weighted);
  void sum(std::byte* output, bool weighted);
  void find_products();
  void send_products();
  void collect_products(std::span<float> weight_gradient);
  /// Which row of what that rank has for the replica, in the memory of results_of_.
  std::size_t row_at(rank_t rank, std::size_t replica, rank_t source, std::size_t nth) const {
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t expert = replica - replicas_.first[r];
    return nth + bases_of_[r][in_parts_ ? expert
                                        : expert * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(source)];
  }
  const std::byte* part_row(const came_row& which) const;
  const std::byte* shared_results(const std::byte* rows, std::size_t bytes);
  /// Exchanges blocks of bytes with the proxies. Sizes are whole lines.
  void exchange_blocks(const lasting_buffer& out, std::span<const std::size_t> sizes, lasting_buffer& in,
                       std::span<const std::size_t> coming);
  static constexpr std::size_t line = 64;
  static std::size_t in_lines(std::size_t bytes) { return (bytes + line - 1) / line * line; }
  /// Of a block that goes to another domain: what is before its rows, and the whole of it.
  static std::size_t lists_bytes(std::uint32_t replicas, std::size_t entries) {
    return in_lines(2 * sizeof(std::uint32_t) + entry_lists::bytes(replicas, entries));
  }
  static std::size_t block_bytes(std::uint32_t replicas, std::size_t rows, std::size_t entries, std::size_t row) {
    return lists_bytes(replicas, entries) + in_lines(rows * row);
  }

  // -- a dispatch that starts early: expert_early.cpp --
  /// @param tiles of the node of a flow that calls; 0: none does @param keeps what its records are part of
  void start(const std::byte* tokens, std::size_t elements, datatype type, std::span<const std::int32_t> ids,
             std::span<const float> weights, std::uint64_t tiles = 0, std::shared_ptr<void> keeps = nullptr);
  std::optional<part_here> next_part(datatype type);
  bool has_arrived(rank_t peer);
  void ready(rank_t peer);
  void combine_early(std::byte* output, std::size_t elements, datatype type);
  /// @param why null: cancelled
  void cancel(const failure_ptr& why = nullptr);
  /// One that is under way comes to its end: what is still missing is nobody's any more. Throws what that ends with.
  void finish_early();
  /// It has failed. @pre in a handler
  void give_up_early() noexcept;
  early& started(const char* call) const;
  void look();
  /// @param what null: a block
  void heard(rank_t from, const expert_word* what);
  void has_come(rank_t source);
  void show_block(rank_t source);
  void await_next(rank_t from);
  void take_part(rank_t source);
  std::optional<rank_t> take_next();
  void tell_ready(rank_t source);
  void sum_if_all_are_there(rank_t source);
  void find_results_of(rank_t source);
  void combine_all();
  void count_rows();
  void begin_early(const std::byte* tokens, bool right, std::uint64_t tiles);
  void await_sums();
  void meet_early(bool right, std::uint64_t tiles, const std::byte* blocks);
  void check_peer(const char* call, rank_t peer) const;
  template <class Read>
  void read_others(Read&& read);
  entry_lists lists_here(rank_t source) const;
  std::size_t entries_for(const entry_lists& lists, rank_t rank) const;

  // -- the same back, for the node of a flow: expert_early_back.cpp --
  /// Swaps what the last dispatch has left with `with`. @pre it has combined, or none has begun
  void exchange_record(record& with);
  /// Gradients of what combine_early() has given go to the experts. `of` is taken until combine_back() gives it back.
  /// @param keeps what `of` is part of @param tiles of the node that calls
  void start_back(record& of, std::shared_ptr<void> keeps, const std::byte* gradient, std::uint64_t tiles);
  /// The next rank's gradients of the results here, in the order of the ranks.
  std::optional<part_here> next_gradients();
  const std::byte* results_of_part(rank_t source) const;
  void take_gradients_of(rank_t source, const entry_lists& lists, const std::byte* rows);
  void products_for(rank_t source, float* to);
  void combine_back(record& of, std::byte* output, std::span<float> weight_gradient);

  // -- among the ranks --
  /// @param wrong why this rank refuses its call; empty: it does not. Throws what the round ends with.
  void round(const std::string& wrong);
  void before(kind what);
  /// Throws if this rank or another one refuses the call, or another one is in a different one. @pre all_words_ are all ranks' words of it
  void check_words(const std::string& wrong);
  std::string calls_that_differ(std::size_t rank, std::uint64_t its) const;
  std::exception_ptr why_failed() const;
  /// Which exchange, whether this rank refuses, whether before() has begun this round, and which call: words of ranks that are where they should be
  /// differ by `refuses` alone.
  std::uint64_t call_word() const {
    return generation_ << generation_at | (in_before_ ? in_before : 0) | static_cast<std::uint64_t>(calling_);
  }
  static constexpr std::uint64_t which_call = 7, in_before = 8, refuses = 16;
  static constexpr int generation_at = 5;
  /// A call: its time, and what becomes of the exchange if it fails.
  template <class Call>
  void perform(call which, Call&& body) {
    if (failed_) std::rethrow_exception(failed_);
    const gate::pass inside_engine{state_of(comm_)->core->door, static_cast<std::size_t>(rank_)};
    if (!inside_engine) refuse_closed();
    const auto begin = begin_call(which);
    try {
      body();
    } catch (...) {
      call_failed();
      if (failed_) std::rethrow_exception(failed_);
      throw;
    }
    call_ended(begin);
  }
  clock::time_point begin_call(call which);
  void call_failed();
  void call_ended(clock::time_point begin);
  void wait_for_readers() noexcept;
  call_options how_to_call() const;
  /// Where this process finds what a rank of the domain has there. Null: nowhere, its process has ended or there is no shared memory left.
  const std::byte* near(rank_t rank, std::uint64_t its) const;
  const expert_shown* shown_by(rank_t rank) const;
  rank_t place_near(rank_t rank) const;
  /// The same, of what is needed. Throws error.
  template <class T>
  const T* found(rank_t rank, std::uint64_t its) const {
    if (const std::byte* const at = near(rank, its)) return reinterpret_cast<const T*>(at);
    lost(rank);
  }
  [[noreturn]] static void lost(rank_t rank);
  const expert_shown& shown(rank_t rank) const {
    return *found<expert_shown>(rank, headers_[static_cast<std::size_t>(rank)]);
  }
  expert_shown& mine() const { return *header_.as<expert_shown>(); }
  const std::vector<rank_t>& members() const { return replicas_.domains[static_cast<std::size_t>(domain_)]; }
  rank_t taker(rank_t source) const {
    return replicas_.domain_of[static_cast<std::size_t>(source)] == domain_ ? source : replicas_.proxy(domain_, source);
  }
  bool spreads() const { return replicas_.domains.size() > 1; }  ///< there are other domains
  std::size_t domain_of_replica(std::size_t replica) const {
    return static_cast<std::size_t>(replicas_.domain_of[static_cast<std::size_t>(replicas_.rank_of[replica])]);
  }
  std::uint32_t domain_replicas() const { return replicas_.replicas_of_domain[static_cast<std::size_t>(domain_)]; }
  /// A larger block is not found in a cache later (kernels.cpp has the same for copies); beside the reads of as much.
  static constexpr std::size_t streamed_bytes = std::size_t{8} << 20;
  static store_hint stores_of(std::size_t bytes) {
    return bytes >= streamed_bytes ? store_hint::streamed : store_hint::cached;
  }
  std::size_t result_bytes() const { return options_.hidden * size_of(options_.type); }
  rows_here arrived_in(const lasting_buffer& rows) const;

  communicator comm_, near_;  ///< near_: of the domain's server, where that is not all; else empty
  process_memory* others_ = nullptr;
  rank_t rank_ = 0;
  int ranks_ = 1, experts_ = 1, domain_ = 0;
  expert_options options_;
  expert_replicas replicas_;
  std::unique_ptr<early> early_;  ///< null: the options have none
  std::weak_ptr<void> node_;      ///< of a flow, whose it is
  bool in_parts_ = false;         ///< the rows of the last dispatch are its parts, until its first way back
  std::vector<std::vector<std::uint32_t>> choices_;  ///< by expert
  std::vector<std::int32_t> own_experts_;
  bool some_share_ = false;      ///< a domain has several ranks
  std::size_t token_bytes_ = 0;  ///< as it travels
  std::uint64_t generation_ = 0;
  std::uint64_t rounds_ = 0;  ///< that have ended here
  call calling_ = call::of_parts;
  bool in_before_ = false;  ///< this round is before()'s
  bool refusing_ = false;
  std::exception_ptr failed_;

  // -- of the last dispatch --
  kind last_ = kind::none;
  bool routed_ = false;
  std::size_t tokens_ = 0, received_ = 0;
  std::vector<std::int32_t> replica_;  ///< by choice; −1: none
  std::vector<std::uint32_t> index_;   ///< by choice: which of the replica's entries from here it is
  std::vector<float> weights_;
  std::vector<std::uint8_t> dropped_choices_;
  std::vector<std::uint32_t> per_expert_, per_replica_, begin_of_replica_;
  std::vector<std::size_t> counts_;  ///< rows of each own expert
  std::size_t dropped_ = 0;
  // Of other domains; empty if there are none:
  std::vector<std::uint32_t> row_there_;               ///< [domain][token]: which row it is there; none: −1
  std::vector<std::uint32_t> rows_there_, rows_from_;  ///< by domain: sent; by source: received for it
  std::vector<std::size_t> sizes_, begins_, coming_, coming_begins_;  ///< by rank: bytes of blocks
  std::vector<std::size_t> came_begins_;                       ///< the same, where blocks of tokens are in incoming_
  std::vector<std::uint64_t> words_, came_words_, all_words_;  ///< all_words_: by rank
  std::vector<std::uint32_t> entries_there_;                   ///< by domain: sent
  std::vector<std::uint32_t> tally_, of_row_;

  // Of the round under way: by source its lists and rows; by rank of the domain what it shows.
  std::vector<entry_lists> lists_of_;
  std::vector<const std::byte*> rows_of_, results_of_, row_at_;
  std::vector<const std::uint32_t*> bases_of_;
  std::vector<double> factor_of_;
  std::vector<std::uint32_t> domain_replica_;  ///< by place in the domain: the replica

  lasting_buffer header_, lists_, tokens_shown_, spare_tokens_, results_, rows_, gradient_rows_, bases_, products_,
      outgoing_, incoming_, gradients_out_, gradients_in_, sums_out_, sums_in_;
  std::vector<std::uint64_t> headers_;  ///< by rank: where it shows what, in its process
  std::vector<rank_t> place_near_;      ///< by rank of the domain: its number for `others_`

  // -- profile --
  expert_profile::of_rank did_;
  std::uint64_t dispatches_ = 0;
  std::vector<std::uint64_t> came_to_expert_, sent_to_expert_, dropped_of_expert_;
  clock::time_point first_call_{};
};

}  // namespace troupe
