#include "memory/kernel_loops.hpp"

namespace troupe::detail {

kernels low_precision_kernels(datatype type, op_kind kind) {
  switch (type) {
    case datatype::f16: return kernels_for<f16>(kind);
    case datatype::bf16: return kernels_for<bf16>(kind);
    case datatype::f8e4m3: return kernels_for<f8e4m3>(kind);
    case datatype::f8e5m2: return kernels_for<f8e5m2>(kind);
    default: return {};
  }
}

}  // namespace troupe::detail
