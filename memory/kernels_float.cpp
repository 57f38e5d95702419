#include "memory/kernel_loops.hpp"

namespace troupe::detail {

kernels float_kernels(datatype type, op_kind kind) {
  switch (type) {
    case datatype::f32: return kernels_for<float>(kind);
    case datatype::f64: return kernels_for<double>(kind);
    default: return {};
  }
}

}  // namespace troupe::detail
