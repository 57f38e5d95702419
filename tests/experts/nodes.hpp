// SPDX-License-Identifier: Apache-2.0
#pragma once
// What tests of the nodes of experts have in common.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "memory/error.hpp"
#include "tests/experts/layer.hpp"

namespace expert_nodes {

using namespace expert_tests;
using namespace std::chrono_literals;
using troupe::communicator;
using troupe::engine;
using troupe::errc;
using troupe::tensor;
using troupe::tile;

constexpr std::size_t n = 6, hidden = 20;  // of a tile
constexpr int tiles = 5, top_k = 2;

/// What token `t` of a rank's tile is, and where it goes.
struct input {
  input(int rank, int index, std::uint64_t run, int experts) {
    random_numbers random{run * 10'000 + static_cast<std::uint64_t>(index * 100 + rank)};
    for (std::size_t i = 0; i < n * hidden; ++i) tokens.push_back(random.centred());
    for (std::size_t c = 0; c < n * top_k; ++c) {
      ids.push_back(random.below(experts + 1) - 1);
      weights.push_back(random.centred());
    }
  }
  std::vector<float> tokens, weights;
  std::vector<std::int32_t> ids;
};

inline troupe::expert_options options_of(troupe::datatype type = troupe::datatype::f32) {
  return {.hidden = hidden, .type = type, .top_k = top_k, .deadline = 60s, .starts_early = true};
}

/// All to one's own expert, with a weight of 1.
inline void to_oneself(std::span<std::int32_t> ids, std::span<float> weights, int rank) {
  std::fill(ids.begin(), ids.end(), -1);
  for (std::size_t t = 0; t < n; ++t) ids[t * top_k] = rank;
  std::fill(weights.begin(), weights.end(), 1.0F);
}
/// Each token to the expert of another rank, until all have some.
inline void to_each(std::span<std::int32_t> ids, std::span<float> weights, int ranks) {
  for (std::size_t c = 0; c < ids.size(); ++c) ids[c] = static_cast<std::int32_t>(c) % ranks;
  std::fill(weights.begin(), weights.end(), 1.0F);
}

template <class What>
void wait_for(What&& what) {
  for (const auto end = std::chrono::steady_clock::now() + 60s; !what();) {
    expect(std::chrono::steady_clock::now() < end, "it never comes");
    std::this_thread::sleep_for(1ms);
  }
}

struct ending {
  errc code = errc::ok;
  std::string text;
};
inline ending end_of(troupe::flow& f) {
  try {
    f.wait();
    return {};
  } catch (const troupe::error& e) {
    return {e.code_value(), e.what()};
  }
}

}  // namespace expert_nodes
