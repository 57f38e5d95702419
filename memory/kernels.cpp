// Checks, dispatch, copy and user operations; the loops are in kernel_loops.hpp.
#include "memory/kernels.hpp"

#include "memory/error.hpp"
#include "memory/kernel_loops.hpp"

#include <cstring>
#include <limits>
#include <string>

namespace troupe {

namespace detail {

void check_buffer(const char* function, const char* role, const void* buffer, datatype type, std::size_t count) {
  const std::size_t size = size_of(type);
  if (size == 0) bad_datatype(type);
  if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / size)
    throw error{errc::size_overflow, std::string{function} + ": " + std::to_string(count) + " elements of " +
                                         std::string{name(type)} + " do not fit into the address space"};
  if (buffer == nullptr)
    throw error{errc::null_buffer, std::string{function} + ": " + role + " is null; pass " +
                                       std::to_string(count * size) + " bytes (" + std::to_string(count) +
                                       " elements of " + std::string{name(type)} + ") or a count of 0"};
}

void bad_datatype(datatype type) {
  throw error{errc::invalid_argument,
              "datatype " + std::to_string(static_cast<unsigned>(type)) + " is not one of troupe::datatype"};
}

}  // namespace detail

namespace {

detail::kernels find_kernels(datatype type, op_kind kind) {
  if (is_integer(type)) return detail::integer_kernels(type, kind);
  if (is_low_precision(type)) return detail::low_precision_kernels(type, kind);
  return detail::float_kernels(type, kind);
}

/// The fold for a user function: tiled like the built-in ones, so that scratch stays on the stack and in cache.
/// @pre at least two inputs and one output
void fold_user(datatype type, const op& operation, std::span<const void* const> in, std::span<void* const> out,
               std::size_t count) {
  const std::size_t size = size_of(type);
  const std::size_t tile = detail::tile_bytes / size;
  alignas(64) std::byte sums[detail::tile_bytes];
  for (std::size_t begin = 0; begin < count; begin += tile) {
    const std::size_t elements = std::min(tile, count - begin);
    const std::size_t offset = begin * size;
    const void* left = detail::at(in[0], offset);
    for (const void* right : in.subspan(1)) {
      operation.function(left, detail::at(right, offset), sums, elements, type, operation.context);
      left = sums;
    }
    for (void* to : out) std::memcpy(detail::at(to, offset), sums, elements * size);
  }
}

}  // namespace

bool supports(datatype type, op_kind kind) {
  if (size_of(type) == 0 || kind > op_kind::user) return false;
  const bool bitwise = kind == op_kind::band || kind == op_kind::bor || kind == op_kind::bxor;
  return !bitwise || is_integer(type);
}

void check_supported(datatype type, const op& operation) {
  if (size_of(type) == 0) detail::bad_datatype(type);
  if (operation.kind > op_kind::user)
    throw error{errc::invalid_argument, "operation " + std::to_string(static_cast<unsigned>(operation.kind)) +
                                            " is not one of troupe::op_kind"};
  if (!supports(type, operation.kind))
    throw error{errc::unsupported_type, "operation " + std::string{name(operation.kind)} + " is not defined on " +
                                            std::string{name(type)} +
                                            "; bitwise operations need an integer type (i8 u8 i32 u32 i64 u64)"};
  if (operation.kind == op_kind::user && operation.function == nullptr)
    throw error{errc::invalid_argument,
                "user operation without a function; build it with troupe::user_op(function, …)"};
}

reduce_kernel find_reduce(datatype type, op_kind kind) { return find_kernels(type, kind).pair; }

void reduce(datatype type, const op& operation, const void* left, const void* right, void* out, std::size_t count) {
  check_supported(type, operation);
  if (count == 0) return;
  detail::check_buffer("reduce", "the left input", left, type, count);
  detail::check_buffer("reduce", "the right input", right, type, count);
  detail::check_buffer("reduce", "the output", out, type, count);
  if (operation.kind == op_kind::user) operation.function(left, right, out, count, type, operation.context);
  else find_kernels(type, operation.kind).pair(left, right, out, count);
}

void reduce_many(datatype type, const op& operation, std::span<const void* const> in, std::span<void* const> out,
                 std::size_t count) {
  check_supported(type, operation);
  if (in.empty()) throw error{errc::invalid_argument, "reduce_many: no inputs; at least one is needed"};
  if (count == 0 || out.empty()) return;
  for (const void* buffer : in) detail::check_buffer("reduce_many", "an input", buffer, type, count);
  for (const void* buffer : out) detail::check_buffer("reduce_many", "an output", buffer, type, count);
  if (in.size() == 1) {
    for (void* to : out) copy(to, in[0], count * size_of(type));
  } else if (operation.kind == op_kind::user) {
    fold_user(type, operation, in, out, count);
  } else {
    find_kernels(type, operation.kind).fold(in, out, count);
  }
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (to == nullptr || from == nullptr)
    throw error{errc::null_buffer, std::string{"copy: the "} + (to == nullptr ? "destination" : "source") +
                                       " is null; pass " + std::to_string(bytes) + " bytes or a size of 0"};
  // memmove costs the same as memcpy here and keeps a caller's mistake from being undefined.
  std::memmove(to, from, bytes);
}

}  // namespace troupe
