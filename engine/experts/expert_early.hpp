// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an exchange keeps of a dispatch that starts early (expert_early.cpp).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "engine/experts/expert_inside.hpp"
#include "engine/experts/expert_words.hpp"
#include "engine/experts/lasting_memory.hpp"

namespace troupe {

/// What a dispatch that has started early leaves when it has combined, and its way back needs: the routes of this rank's tokens, and what has come here.
struct expert_exchange::inside::record {
  struct source {
    std::vector<std::size_t> counts;        ///< by own expert
    std::size_t all = 0;                    ///< their sum
    std::unique_ptr<lasting_buffer> rows;   ///< for the experts here; then their results
    std::unique_ptr<lasting_buffer> block;  ///< of another domain whose proxy this rank is: what came
  };
  struct parts {
    parts(const std::shared_ptr<lasting_memory>& memory, std::size_t ranks, std::size_t own_experts)
        : of(ranks), bases(memory) {
      for (source& one : of) {
        one.counts.resize(own_experts);
        one.rows = std::make_unique<lasting_buffer>(memory);
        one.block = std::make_unique<lasting_buffer>(memory);
      }
    }
    std::vector<source> of;
    lasting_buffer bases;  ///< [source][own expert]: the row in that source's
  };

  record(const std::shared_ptr<lasting_memory>& memory, std::size_t ranks, std::size_t own_experts)
      : lists(memory), came(memory, ranks, own_experts) {}

  // As members of the exchange have it (expert_inside.hpp):
  std::size_t tokens = 0;
  std::vector<std::int32_t> replica;
  std::vector<std::uint32_t> index, begin_of_replica, row_there, rows_there, rows_from, entries_there;
  lasting_buffer lists;
  parts came;
};

struct expert_exchange::inside::early {
  early(communicator lane, const std::shared_ptr<lasting_memory>& memory, std::size_t ranks, std::size_t own_experts)
      : words(std::move(lane)), came(memory, ranks, own_experts), of(ranks) {
    for (source& one : of)
      for (auto* const piece : {&one.sums, &one.gradients, &one.gradient_block, &one.products})
        *piece = std::make_unique<lasting_buffer>(memory);
  }

  enum class state : std::uint8_t { awaited, come, given, ready };
  struct source {
    state is = state::awaited;
    std::unique_ptr<lasting_buffer> sums;  ///< of another domain whose proxy this rank is: what goes back
    std::uint32_t to_answer = 0;           ///< the same: ranks of the domain whose results are missing
    std::unique_ptr<lasting_buffer> gradients, gradient_block,
        products;  ///< on the way back: of the rows here; what came, as a block; of the rows' weights
  };
  struct peer {
    enum class what : std::uint8_t { word, block, sums } awaited = what::word;
    std::uint32_t words = 0;  ///< that it is going to send, beside the one that is awaited
    std::size_t block = 0;    ///< bytes that come next
    std::size_t sums = 0;     ///< bytes that come last
  };

  expert_words words;
  record::parts came;  ///< of the dispatch under way; on the way back of the one whose way back it is
  std::vector<source> of;
  std::vector<peer> from;
  std::deque<rank_t> to_give;
  std::vector<const float*> products_of;  ///< by rank of the domain, as results_of_
  std::shared_ptr<void> keeps;            ///< records that others may be reading
  bool back = false;                      ///< it is gradients that go to the experts
  rank_t next = 0;                        ///< the same: whose are given out next
  bool open = false;                      ///< begun, and its end was not waited for
  bool combined = false;
  rank_t refused_by = -1;
  std::uint64_t tiles = 0;  ///< as expert_word has it
  std::size_t given = 0;    ///< sources
  std::size_t results = 0, sums_coming = 0,
              to_sum = 0;  ///< of this rank's tokens: ranks that have yet to answer; of others': sums to be made

  bool all_given() const { return given == of.size(); }
  bool all_done() const { return all_given() && results == 0 && sums_coming == 0 && to_sum == 0; }
};

/// They show it until this is over, or the end of all has come, which it throws.
template <class Read>
void expert_exchange::inside::read_others(Read&& read) {
  std::atomic<std::uint32_t>& reading = mine().reading;
  struct until_then {
    std::atomic<std::uint32_t>& of;
    ~until_then() { of.store(0, std::memory_order_release); }
  } const scope{reading};
  // In one order with `ended`: either this rank sees that, or the other one that it is read.
  reading.store(1, std::memory_order_seq_cst);
  for (const rank_t r : members()) {
    if (r == rank_) continue;
    const expert_shown& its = shown(r);
    if (its.ended.load(std::memory_order_seq_cst) == 0 && its.generation.load(std::memory_order_acquire) == generation_)
      continue;
    reading.store(0, std::memory_order_release);
    for (;;) {  // it has ended all before
      while (early_->words.next()) {}
      early_->words.sleep();
    }
  }
  read();
}

}  // namespace troupe
