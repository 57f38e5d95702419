#include "memory/kernel_loops.hpp"

namespace troupe::detail {

kernels integer_kernels(datatype type, op_kind kind) {
  switch (type) {
    case datatype::i8: return kernels_for<std::int8_t>(kind);
    case datatype::u8: return kernels_for<std::uint8_t>(kind);
    case datatype::i32: return kernels_for<std::int32_t>(kind);
    case datatype::u32: return kernels_for<std::uint32_t>(kind);
    case datatype::i64: return kernels_for<std::int64_t>(kind);
    case datatype::u64: return kernels_for<std::uint64_t>(kind);
    default: return {};
  }
}

}  // namespace troupe::detail
