// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model with layers of experts, as one iteration of training that a machine performs: what every rank computes, and how many bytes of tokens it
// has for every other. Tokens are routed by drawing, so that imbalance, drops and copies that share a way are counted, not assumed.
//
//   forward    dense part, dispatch of the tokens, experts, combine; for every layer
//   backward   the same from the last layer to the first, with twice the computation: the gradients of the results go where the tokens went,
//              those of the tokens come back
//
// Gathering rows for the way, and summing them behind it, costs nothing here.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/experts/expert_profile.hpp"
#include "engine/tools/replay/application.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

struct expert_layers {
  layout places;  ///< of the ranks; experts lie on them in blocks, as evenly as can be
  int layers = 48;
  int experts = 64;
  int top_k = 2;              ///< different experts of a token
  int tokens = 512;           ///< of a rank
  std::size_t hidden = 4096;  ///< elements of a token, in 16 bits
  double capacity = 0;        ///< a rank sends ⌈capacity · tokens · top_k / experts⌉ to an expert at most; 0: all
  double skew = 0;  ///< the i-th most popular expert is chosen as 1 / i^skew; which that is, is drawn for every routing
  std::int64_t expert_ns = 50'000;  ///< forward, a layer's experts of a rank, whose load is the average
  std::int64_t dense_ns = 0;        ///< forward, the rest of a layer
  int routings = 4;                 ///< so many are drawn, and layers take turns at them
  std::uint64_t seed = 1;
};

/// How tokens travel.
struct expert_way {
  bool bytes = false;      ///< dispatch in 8 bits, with a scale of 32 bits for 128 elements; back, and gradients, in 16
  bool by_server = false;  ///< once to each server, to the rank at the sender's place there, and spread inside
  int parts = 1;           ///< of the tokens: one travels while the experts compute another
};

struct expert_iteration {
  application what;
  // Of the choices of all routings' tokens, in forward direction.
  double dropped = 0;  ///< share that was not sent
  double crossing =
      0;  ///< rows that went to another server, of those that had to: 1, or less where copies share a way; 0: none had to
  double imbalance = 1;    ///< load of the rank that has most, by the average: mean over routings
  expert_profile profile;  ///< of all layers forward, without times, which are the run's
};

/// @throws error(bad_config): the numbers fit neither each other nor the places; by_server needs several servers of as many ranks
expert_iteration expert_iteration_of(const expert_layers& model, const expert_way& way);

}  // namespace troupe
