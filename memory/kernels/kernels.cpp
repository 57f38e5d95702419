// SPDX-License-Identifier: Apache-2.0
// Checks, dispatch, copy and user operations; the loops are in kernel_loops.hpp.
#include "memory/kernels/kernels.hpp"

#include "memory/error.hpp"
#include "memory/kernels/kernel_loops.hpp"
#include "memory/kernels/user_functions.hpp"

#include <algorithm>
#include <array>
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

detail::kernels choose_kernels(datatype type, op_kind kind) {
  if (is_integer(type)) return detail::integer_kernels(type, kind);
  if (is_complex(type)) return detail::complex_kernels(type, kind);
  if (is_low_precision(type) && size_of(type) == 1) return detail::f8_kernels(type, kind);
  if (is_low_precision(type)) return detail::f16_kernels(type, kind);
  return detail::float_kernels(type, kind);
}

/// @pre find_sum_of_two(Type, 1)
template <datatype Type>
void add_pair(const void* left, const void* right, void* out, std::size_t count) {
  static const detail::sum_of_two add = detail::find_sum_of_two(Type, 1);
  add(left, right, out, count, {});
}
/// Of two inputs and of more the faster ways, as far as there are.
template <datatype Type>
void fold_fp8(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
              const detail::adjustment& how) {
  if (in.size() == 2) return add_pair<Type>(detail::at(in[0], offset), detail::at(in[1], offset), out, count);
  const detail::fold_kernel fold = detail::find_fold_of_fp8(Type, 1, in.size());
  (fold != nullptr ? fold : detail::f8_kernels(Type, op_kind::sum).fold)(in, offset, out, count, how);
}

detail::kernels choose_best(datatype type, op_kind kind) {
  detail::kernels found = choose_kernels(type, kind);
  if (!is_sum(kind) || detail::find_sum_of_two(type, 1) == nullptr) return found;
  const bool e4m3 = type == datatype::f8e4m3;
  found.pair = e4m3 ? &add_pair<datatype::f8e4m3> : &add_pair<datatype::f8e5m2>;
  found.fold = e4m3 ? &fold_fp8<datatype::f8e4m3> : &fold_fp8<datatype::f8e5m2>;
  return found;
}

using kernel_table = std::array<std::array<detail::kernels, all_op_kinds.size()>, all_datatypes.size()>;

/// Chosen for this processor once: asking Highway costs more than an 8-byte reduction.
const detail::kernels& find_kernels(datatype type, op_kind kind) {
  static constexpr detail::kernels none;
  static const kernel_table table = [] {
    kernel_table all;
    for (datatype t : all_datatypes)
      for (op_kind k : all_op_kinds) all[static_cast<std::size_t>(t)][static_cast<std::size_t>(k)] = choose_best(t, k);
    return all;
  }();
  const auto row = static_cast<std::size_t>(type), column = static_cast<std::size_t>(kind);
  return row < table.size() && column < table[row].size() ? table[row][column] : none;
}

// Where streaming starts to win when the caller does not say, measured with bench/kernels --hint on 1 MiB of L2 and 32 MiB
// of L3: copies from half of a core's share of the L3; folds when inputs and outputs are twice the L3, but hardly ever with
// two inputs and one output.
constexpr std::size_t stream_copy_bytes = std::size_t{8} << 20;
constexpr std::size_t stream_fold_bytes = std::size_t{64} << 20;

bool any_is_input(std::span<const void* const> in, std::span<void* const> out) {
  for (const void* to : out)
    if (std::find(in.begin(), in.end(), to) != in.end()) return true;
  return false;
}

/// An output that is an input has its lines in the cache already: streaming would only throw them out.
bool should_stream(store_hint hint, std::span<const void* const> in, std::span<void* const> out, std::size_t bytes) {
  if (hint == store_hint::cached || hint == store_hint::elsewhere) return false;
  const std::size_t regions = in.size() + out.size();
  if (hint == store_hint::by_size && (regions <= 3 || bytes <= stream_fold_bytes / regions)) return false;
  return !any_is_input(in, out);
}

/// Elements [begin, end). Every tile is folded into the first output and copied on from the cache.
void fold_cached(const detail::adjusted_sum& sum, std::span<const void* const> in, std::span<void* const> out,
                 std::size_t begin, std::size_t end, std::size_t size) {
  const detail::fold_kernel fold = sum.use.fold;
  if (out.size() == 1) return fold(in, begin * size, detail::at(out[0], begin * size), end - begin, sum.how);
  const std::size_t tile = detail::tile_bytes / size;
  for (; begin < end; begin += tile) {
    const std::size_t elements = std::min(tile, end - begin);
    const std::size_t offset = begin * size;
    std::byte* const first = detail::at(out[0], offset);
    fold(in, offset, first, elements, sum.how);
    for (void* other : out.subspan(1))
      if (other != out[0]) std::memcpy(detail::at(other, offset), first, elements * size);
  }
}

/// Every tile is folded on the stack, and goes to each output from there by `put`.
template <class Put>
void fold_apart(const detail::adjusted_sum& sum, std::span<const void* const> in, std::span<void* const> out,
                std::size_t count, std::size_t size, Put put) {
  const std::size_t tile = detail::tile_bytes / size;
  alignas(64) std::byte result[detail::tile_bytes];
  for (std::size_t begin = 0; begin < count; begin += tile) {
    const std::size_t elements = std::min(tile, count - begin);
    const std::size_t offset = begin * size;
    sum.use.fold(in, offset, result, elements, sum.how);
    for (void* to : out) put(detail::at(to, offset), result, elements * size);
  }
}

std::size_t to_next_line(const void* pointer) { return -reinterpret_cast<std::uintptr_t>(pointer) % 64; }

bool begin_at_lines(std::span<void* const> regions) {
  return std::all_of(regions.begin(), regions.end(), [](const void* at) { return to_next_line(at) == 0; });
}

/// Whole lines go from the registers to all outputs; both ends are stored as usual.
void fold_streamed(const detail::adjusted_sum& sum, std::span<const void* const> in, std::span<void* const> out,
                   std::size_t count, std::size_t size) {
  const std::size_t head = to_next_line(out[0]), bytes = count * size;
  const bool together = sum.use.stream != nullptr && head % size == 0 && head < bytes &&
                        std::all_of(out.begin(), out.end(), [=](const void* to) { return to_next_line(to) == head; });
  if (together) {
    const std::size_t length = (bytes - head) / detail::stream_step * detail::stream_step;
    fold_cached(sum, in, out, 0, head / size, size);
    sum.use.stream(in, out, head, length, sum.how);
    fold_cached(sum, in, out, (head + length) / size, count, size);
  } else {
    fold_apart(sum, in, out, count, size, detail::stream_bytes);  // they are at different places of their lines
  }
  detail::finish_streams();
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
      call_user_function(operation, left, detail::at(right, offset), sums, elements, type);
      left = sums;
    }
    for (void* to : out) std::memcpy(detail::at(to, offset), sums, elements * size);
  }
}

}  // namespace

std::string why_unsupported(datatype type, op_kind kind) {
  const std::string text = std::string{name(kind)} + " is not defined on " + std::string{name(type)};
  if (is_complex(type))
    return text + "; complex numbers have no order, truth or bits: only sum, prod, avg and pre_mul_sum";
  return text + "; band, bor and bxor need an integer type (i8 u8 i32 u32 i64 u64)";
}

bool supports(datatype type, op_kind kind) {
  if (size_of(type) == 0 || kind > op_kind::user) return false;
  if (is_complex(type)) return is_sum(kind) || kind == op_kind::prod || kind == op_kind::user;
  const bool bitwise = kind == op_kind::band || kind == op_kind::bor || kind == op_kind::bxor;
  return !bitwise || is_integer(type);
}

void check_supported(datatype type, const op& operation) {
  if (size_of(type) == 0) detail::bad_datatype(type);
  if (operation.kind > op_kind::user)
    throw error{errc::invalid_argument, "operation " + std::to_string(static_cast<unsigned>(operation.kind)) +
                                            " is not one of troupe::op_kind"};
  if (!supports(type, operation.kind))
    throw error{errc::unsupported_type, "operation " + why_unsupported(type, operation.kind)};
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
  if (operation.kind == op_kind::user) call_user_function(operation, left, right, out, count, type);
  else find_kernels(type, operation.kind).pair(left, right, out, count);
}

namespace {

void check_scaling(const op& operation, const sum_scaling& scaling) {
  const bool adds =
      operation.kind == op_kind::sum || operation.kind == op_kind::avg || operation.kind == op_kind::pre_mul_sum;
  if (scaling.divisor == 0) throw error{errc::invalid_argument, "reduce_many: the divisor is 0; it must be at least 1"};
  if (!adds || (scaling.factors != nullptr && scaling.divisor != 1))
    throw error{errc::invalid_argument, "reduce_many: factors or a divisor, not both, and for sums only, not " +
                                            std::string{name(operation.kind)}};
}

}  // namespace

void reduce_many(datatype type, const op& operation, std::span<const void* const> in, std::span<void* const> out,
                 std::size_t count, store_hint hint, const sum_scaling& scaling) {
  check_supported(type, operation);
  if (in.empty()) throw error{errc::invalid_argument, "reduce_many: no inputs; at least one is needed"};
  if (scaling.any()) check_scaling(operation, scaling);
  if (count == 0 || out.empty()) return;
  for (const void* buffer : in) detail::check_buffer("reduce_many", "an input", buffer, type, count);
  for (const void* buffer : out) detail::check_buffer("reduce_many", "an output", buffer, type, count);
  if (const datatype unit = unit_of(type, operation.kind); unit != type) {
    count *= size_of(type) / size_of(unit);
    type = unit;
  }
  if (in.size() == 1 && !scaling.any()) {
    for (void* to : out) copy(to, in[0], count * size_of(type), hint);
  } else if (operation.kind == op_kind::user) {
    fold_user(type, operation, in, out, count);
  } else {
    const std::size_t size = size_of(type);
    const detail::adjusted_sum sum = scaling.any() ? detail::find_adjusted(type, scaling, in.size())
                                                   : detail::adjusted_sum{find_kernels(type, operation.kind), {}};
    if (should_stream(hint, in, out, count * size)) fold_streamed(sum, in, out, count, size);
    else if (hint == store_hint::elsewhere && begin_at_lines(out) && !any_is_input(in, out))
      fold_apart(sum, in, out, count, size,
                 [](std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); });
    else if (in.size() == 2 && out.size() == 1 && !scaling.any()) sum.use.pair(in[0], in[1], out[0], count);
    else fold_cached(sum, in, out, 0, count, size);
  }
}

namespace {

/// glibc copies by the processor's string instruction up to the size of its second cache, on AMD's processors (`ld.so --list-tunables`:
/// x86_rep_movsb_threshold; the upper bound is not listed), and by vectors beyond. Lines that another core has read or written the instruction takes
/// over without reading them first, if it begins to write at one: a scatter of 1 MiB between two processes takes 34 µs by pieces and 137 at once, on two cores without a common cache
/// (`troupe launch -n 2 build/release/bench/contenders/troupe_ranks join 1 scatter:1048576`).
constexpr std::size_t longest_string_copy = 256 * 1024;

void copy_in_pieces(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > longest_string_copy && (to + bytes <= from || from + bytes <= to))
    for (; bytes > longest_string_copy;
         to += longest_string_copy, from += longest_string_copy, bytes -= longest_string_copy)
      std::memcpy(to, from, longest_string_copy);
  // memmove costs the same as memcpy here and keeps a caller's mistake from being undefined.
  std::memmove(to, from, bytes);
}

}  // namespace

void copy(void* to, const void* from, std::size_t bytes, store_hint hint) {
  if (bytes == 0 || to == from) return;
  if (to == nullptr || from == nullptr)
    throw error{errc::null_buffer, std::string{"copy: the "} + (to == nullptr ? "destination" : "source") +
                                       " is null; pass " + std::to_string(bytes) + " bytes or a size of 0"};
  if (hint == store_hint::streamed || (hint == store_hint::by_size && bytes >= stream_copy_bytes)) {
    const auto distance = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
    if (distance >= bytes && std::uintptr_t{} - distance >= bytes) {
      detail::stream_bytes(to, from, bytes);
      return detail::finish_streams();
    }
  }
  copy_in_pieces(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
}

const char* kernel_instruction_set() { return detail::instruction_set(); }

}  // namespace troupe
