// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "engine/flow/tensor.hpp"

namespace troupe {

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): four random words of a counter and a key, the same on every machine. No state.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0], b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

/// Each element is dropped (0) with probability `rate` and else divided by 1 − rate. Which ones depends only on `seed`, `call` and the element's
/// number, `first` + (tile's index)·(elements of a tile) + (its place there): so the same in every order of tiles, and again in the backward pass, which is this
/// very operator applied to what comes back, with the same members. An operator on a part of a tensor names that part by `first`.
struct dropout {
  double rate = 0.5;  ///< 0 ≤ rate < 1
  std::uint64_t seed = 0;
  std::uint64_t call = 0;   ///< of a step of the training, say
  std::uint64_t first = 0;  ///< number of the first element of tile 0

  /// Throws errc::invalid_argument for a rate that drops everything, or is none.
  tensor_shape shape(const tensor_shape& in) const {
    if (!(rate >= 0 && rate < 1))
      throw error(errc::invalid_argument, "its rate is " + std::to_string(rate) + "; 0 ≤ rate < 1");
    return in;
  }
  template <class T>
  void operator()(tile<const T> in, tile<T> out) const {
    const auto from = in.dense("dropout");
    const auto to = out.dense("dropout");
    const auto dropped_below = static_cast<std::uint64_t>(rate * 4294967296.0);
    const T scale = static_cast<T>(1 / (1 - rate));
    std::uint64_t number = first + static_cast<std::uint64_t>(in.index) * to.size();
    std::array<std::uint32_t, 4> words{};
    for (std::size_t i = 0; i < to.size(); ++i, ++number) {
      if (i == 0 || number % 4 == 0) {  // four elements a block
        const std::uint64_t block = number / 4;
        words = philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                        static_cast<std::uint32_t>(call), static_cast<std::uint32_t>(call >> 32)},
                       {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
      }
      to[i] = words[number % 4] < dropped_below ? T(0) : from[i] * scale;
    }
  }
};

}  // namespace troupe
