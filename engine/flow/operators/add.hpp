// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/flow/tensor.hpp"

namespace troupe {

/// out = a + b, element by element; for flow::map("add", from(a, b), add{}). Backward: what comes back goes to both as it is.
struct add {
  /// Throws errc::invalid_argument if they differ.
  tensor_shape shape(const tensor_shape& a, const tensor_shape& b) const {
    detail::check_same("it adds tiles of shape", a, b);
    return a;
  }
  template <class T>
  void operator()(tile<const T> a, tile<const T> b, tile<T> out) const {
    const auto x = a.dense("add"), y = b.dense("add");
    const auto to = out.dense("add");
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = x[i] + y[i];
  }
};

}  // namespace troupe
