// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/flow/tensor.hpp"

namespace troupe {

/// out = a + b, element by element; for flow::map("add", from(a, b), add{}). Backward: what comes back goes to both as it is.
struct add {
  /// Throws errc::invalid_argument if they differ.
  tensor_shape shape(const tensor_shape& a, const tensor_shape& b) const {
    if (a != b)
      throw error(errc::invalid_argument,
                  "it adds tiles of shape " + to_string(a) + " and " + to_string(b) + "; they must be of one shape");
    return a;
  }
  template <class T>
  void operator()(tile<const T> a, tile<const T> b, tile<T> out) const {
    const auto x = a.flat(), y = b.flat();
    const auto to = out.flat();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = x[i] + y[i];
  }
};

}  // namespace troupe
