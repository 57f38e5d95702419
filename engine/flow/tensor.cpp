// SPDX-License-Identifier: Apache-2.0
#include "engine/flow/tensor.hpp"

#include <algorithm>

namespace troupe {

tensor_shape::tensor_shape(std::span<const std::size_t> extents) : rank_(extents.size()) {
  if (extents.size() > most)
    throw error(errc::invalid_argument, "a tensor of " + std::to_string(extents.size()) +
                                            " dimensions: there are at most 4; make one of those that belong together");
  std::copy(extents.begin(), extents.end(), extents_.begin());
  if (std::find(extents.begin(), extents.end(), std::size_t{0}) != extents.end())
    throw error(errc::invalid_argument, "the shape " + to_string(*this) + " has an extent of 0; each is at least 1");
  std::size_t product = 1;
  for (const std::size_t extent : extents)
    if (__builtin_mul_overflow(product, extent, &product))
      throw error(errc::size_overflow, "the shape " + to_string(*this) + " has more elements than can be counted");
}

void detail::refuse_gaps(const char* taker, const tensor_shape& shape,
                         const std::array<std::size_t, tensor_shape::most>& strides) {
  std::string steps;
  for (std::size_t d = 0; d < shape.rank(); ++d) steps += (d > 0 ? ", " : "") + std::to_string(strides[d]);
  throw error(errc::invalid_argument,
              std::string{taker} + " takes tensors whose elements lie one behind the other, and gets one of shape " +
                  to_string(shape) + " with strides " + steps + "; copy it to memory of its own");
}

void detail::check_same(const char* what, const tensor_shape& a, const tensor_shape& b) {
  if (a != b)
    throw error(errc::invalid_argument,
                std::string{what} + " " + to_string(a) + " and " + to_string(b) + "; they must be of one shape");
}

std::string to_string(const tensor_shape& shape) {
  if (shape.rank() == 0) return "one element";
  std::string text;
  for (std::size_t d = 0; d < shape.rank(); ++d) text += (d > 0 ? "x" : "") + std::to_string(shape[d]);
  return text;
}

}  // namespace troupe
