// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an exchange keeps of a dispatch that starts early (expert_early.cpp).

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

struct expert_exchange::inside::early {
  early(communicator lane, const std::shared_ptr<lasting_memory>& memory, std::size_t ranks, std::size_t own_experts)
      : words(std::move(lane)), of(ranks), bases(memory) {
    for (source& one : of) {
      one.counts.resize(own_experts);
      for (auto* const piece : {&one.rows, &one.block, &one.sums}) *piece = std::make_unique<lasting_buffer>(memory);
    }
  }

  enum class stage : std::uint8_t { awaited, come, given, ready };
  struct source {
    stage is = stage::awaited;
    std::vector<std::size_t> counts;       ///< by own expert
    std::size_t all = 0;                   ///< their sum
    std::unique_ptr<lasting_buffer> rows;  ///< for the experts here
    std::unique_ptr<lasting_buffer> block,
        sums;                     ///< of another domain whose proxy this rank is: what came, and goes back
    std::uint32_t to_answer = 0;  ///< the same: ranks of the domain whose results are missing
  };
  struct peer {
    enum class what : std::uint8_t { word, block, sums } awaited = what::word;
    std::uint32_t words = 0;  ///< that it is going to send, beside the one that is awaited
    std::size_t block = 0;    ///< bytes that come next
    std::size_t sums = 0;     ///< bytes that come last
  };

  expert_words words;
  std::vector<source> of;
  std::vector<peer> from;
  std::deque<rank_t> to_give;
  lasting_buffer bases;  ///< [source][own expert]: the row in that source's
  bool open = false;     ///< begun, and its end was not waited for
  bool combined = false;
  rank_t refused_by = -1;
  std::uint64_t tiles = 0;  ///< as expert_word has it
  std::size_t given = 0;    ///< sources
  std::size_t results = 0, sums_coming = 0,
              to_sum = 0;  ///< of this rank's tokens: ranks that have yet to answer; of others': sums to be made

  bool all_given() const { return given == of.size(); }
  bool all_done() const { return all_given() && results == 0 && sums_coming == 0 && to_sum == 0; }
};

}  // namespace troupe
