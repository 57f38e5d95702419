// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/crafted_values.hpp"

#include <algorithm>
#include <cstring>

#include "memory/kernels/kernels.hpp"
#include "memory/types/floats.hpp"

namespace troupe {

namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64 (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool is_signed(datatype type) { return type != datatype::u8 && type != datatype::u32 && type != datatype::u64; }

/// All integers of at most this magnitude are values of the type.
std::int64_t exact_up_to(datatype type) {
  switch (type) {
    case datatype::i8:
    case datatype::u8: return 127;
    case datatype::f16: return 2048;
    case datatype::bf16: return 256;
    case datatype::f8e4m3: return 16;
    case datatype::f8e5m2: return 8;
    default: return 1 << 20;
  }
}

template <class T>
void put(std::byte* to, std::int64_t value) {
  T typed;
  if constexpr (std::is_arithmetic_v<T>) typed = static_cast<T>(value);
  else typed = T{static_cast<float>(value)};
  std::memcpy(to, &typed, sizeof typed);
}

/// Of a real type.
void put(datatype type, std::byte* to, std::int64_t value) {
  switch (type) {
    case datatype::i8: return put<std::int8_t>(to, value);
    case datatype::u8: return put<std::uint8_t>(to, value);
    case datatype::i32: return put<std::int32_t>(to, value);
    case datatype::u32: return put<std::uint32_t>(to, value);
    case datatype::i64: return put<std::int64_t>(to, value);
    case datatype::u64: return put<std::uint64_t>(to, value);
    case datatype::f16: return put<f16>(to, value);
    case datatype::bf16: return put<bf16>(to, value);
    case datatype::f32: return put<float>(to, value);
    case datatype::f64: return put<double>(to, value);
    case datatype::f8e4m3: return put<f8e4m3>(to, value);
    case datatype::f8e5m2: return put<f8e5m2>(to, value);
    case datatype::c64:
    case datatype::c128: break;
  }
}

std::int64_t sum_term(datatype type, std::int64_t limit, std::int64_t ranks, std::int64_t rank, std::int64_t index) {
  const std::int64_t most = std::min<std::int64_t>(limit / ranks, 5);
  const std::uint64_t random = mix(static_cast<std::uint64_t>(rank * 4099 + index));
  if (most > 0) {
    if (!is_signed(type)) return static_cast<std::int64_t>(random % static_cast<std::uint64_t>(most + 1));
    return static_cast<std::int64_t>(random % static_cast<std::uint64_t>(2 * most + 1)) - most;
  }
  // More ranks than the type can count: every `apart`-th one has ±1, so at most `limit` of them.
  const std::int64_t apart = (ranks + limit - 1) / limit;
  if ((rank + index) % apart != 0) return 0;
  return is_signed(type) && (random & 1) != 0 ? -1 : 1;
}

/// Integers are divided truncating, which hides small differences: sums that a rank less, or one twice, moves across a multiple
/// of n.
std::int64_t average_term(datatype type, std::int64_t limit, std::int64_t ranks, std::int64_t rank,
                          std::int64_t index) {
  if (!is_integer(type) || 2 * ranks - 1 > limit || index % 3 == 2) return sum_term(type, limit, ranks, rank, index);
  if (index % 3 == 0) return 1;          // n
  return index % ranks == rank ? 1 : 2;  // 2n − 1
}

std::int64_t product_term(datatype type, std::int64_t ranks, std::int64_t rank, std::int64_t index) {
  // At most three ranks double; powers of two are exact everywhere.
  const std::int64_t apart = (ranks + 2) / 3;
  const std::int64_t magnitude = (rank + index) % apart == 0 ? 2 : 1;
  return is_signed(type) && (rank * 5 + index) % 7 == 0 ? -magnitude : magnitude;
}

std::int64_t bit_term(std::int64_t ranks, std::int64_t rank, std::int64_t index) {
  const std::uint64_t random = mix(static_cast<std::uint64_t>(rank * 4099 + index));
  return random % static_cast<std::uint64_t>(ranks) == 0 ? std::int64_t{1} << (random >> 32) % 7 : 0;
}

std::int64_t term(datatype type, const op& reduction, std::int64_t ranks, std::int64_t rank, std::int64_t index) {
  const std::int64_t limit = exact_up_to(type);
  const bool odd_one = index % (2 * ranks) == rank;  // of land and lor: half of the elements have no odd one
  switch (reduction.kind) {
    case op_kind::sum: return sum_term(type, limit, ranks, rank, index);
    case op_kind::avg: return average_term(type, limit, ranks, rank, index);
    case op_kind::pre_mul_sum:
      return sum_term(type, std::max<std::int64_t>(1, limit / static_cast<std::int64_t>(reduction.scale)), ranks, rank,
                      index);
    case op_kind::prod: return product_term(type, ranks, rank, index);
    case op_kind::min:
    case op_kind::max: {
      // One rank decides each element; the others lie between.
      const std::int64_t most = 16, middle = 2 + (rank * 11 + index * 5) % 13,
                         extreme = reduction.kind == op_kind::max ? most : 0;
      return (index % ranks == rank ? extreme : middle) - (is_signed(type) ? 8 : 0);
    }
    case op_kind::land: return odd_one ? 0 : 1 + index % 2;
    case op_kind::lor: return odd_one ? 2 : 0;
    case op_kind::band: return 0x7f ^ bit_term(ranks, rank, index);
    case op_kind::bor: return bit_term(ranks, rank, index);
    case op_kind::bxor: return static_cast<std::int64_t>(mix(static_cast<std::uint64_t>(rank * 4099 + index)) & 0x7f);
    case op_kind::user: break;
  }
  return 0;
}

std::int64_t combine(op_kind kind, std::int64_t left, std::int64_t right) {
  switch (kind) {
    case op_kind::sum:
    case op_kind::avg:
    case op_kind::pre_mul_sum: return left + right;
    case op_kind::prod: return left * right;
    case op_kind::min: return std::min(left, right);
    case op_kind::max: return std::max(left, right);
    case op_kind::land: return left != 0 && right != 0 ? 1 : 0;
    case op_kind::lor: return left != 0 || right != 0 ? 1 : 0;
    case op_kind::band: return left & right;
    case op_kind::bor: return left | right;
    case op_kind::bxor: return left ^ right;
    case op_kind::user: break;
  }
  return 0;
}

// -- complex numbers --------------------------------------------------------------------------------------------------

/// Exact as integers, and then in every type.
struct gaussian {
  std::int64_t real, imaginary;
};

/// Parts of sums are elements of their own. At most three ranks multiply by 2 + i, or it turned by right angles, the others by 1: no power
/// of it has a part that is zero, whose sign would depend on the order.
gaussian complex_term(datatype type, const op& reduction, std::int64_t ranks, std::int64_t rank, std::int64_t index) {
  if (is_sum(reduction.kind))
    return {term(part_of(type), reduction, ranks, rank, 2 * index),
            term(part_of(type), reduction, ranks, rank, 2 * index + 1)};
  const std::int64_t apart = (ranks + 2) / 3;
  if ((rank + index) % apart != 0) return {1, 0};
  static constexpr gaussian turned[] = {{2, 1}, {-1, 2}, {-2, -1}, {1, -2}};
  return turned[(rank * 5 + index) % 4];
}

gaussian combine(op_kind kind, gaussian left, gaussian right) {
  if (is_sum(kind)) return {left.real + right.real, left.imaginary + right.imaginary};
  return {left.real * right.real - left.imaginary * right.imaginary,
          left.real * right.imaginary + left.imaginary * right.real};
}

void put(datatype type, std::byte* to, gaussian value) {
  put(part_of(type), to, value.real);
  put(part_of(type), to + size_of(part_of(type)), value.imaginary);
}

/// Calls function(make, scale_by) with what makes one rank's term and what multiplies a value: of integers, or pairs of them.
template <class Function>
void with_terms(datatype type, const op& reduction, int ranks, Function function) {
  if (is_complex(type))
    function([=, &reduction](std::int64_t rank,
                             std::int64_t index) { return complex_term(type, reduction, ranks, rank, index); },
             [](gaussian value, std::int64_t factor) {
               return gaussian{value.real * factor, value.imaginary * factor};
             });
  else
    function(
        [=, &reduction](std::int64_t rank, std::int64_t index) { return term(type, reduction, ranks, rank, index); },
        [](std::int64_t value, std::int64_t factor) { return value * factor; });
}

template <class Piece>
void for_each_piece(std::size_t element_size, const std::vector<crafted_block>& blocks, Piece piece) {
  std::size_t offset = 0;
  for (const crafted_block& block : blocks) {
    std::size_t at = block.phase % crafted_period;
    for (std::size_t done = 0; done < block.elements;) {
      const std::size_t count = std::min(block.elements - done, crafted_period - at);
      piece(offset, at * element_size, count * element_size);
      offset += count * element_size;
      done += count;
      at = 0;
    }
  }
}

}  // namespace

std::vector<std::byte> crafted_input(datatype type, const op& reduction, int ranks, rank_t rank) {
  const std::size_t e = size_of(type);
  std::vector<std::byte> table(crafted_period * e);
  with_terms(type, reduction, ranks, [&](const auto& term_of, const auto&) {
    for (std::size_t i = 0; i < crafted_period; ++i)
      put(type, table.data() + i * e, term_of(rank, static_cast<std::int64_t>(i)));
  });
  return table;
}

std::vector<std::byte> crafted_result(datatype type, const op& reduction, int ranks, const rank_range& contributors) {
  const std::size_t e = size_of(type);
  std::vector<std::byte> table(crafted_period * e);
  with_terms(type, reduction, ranks, [&](const auto& term_of, const auto& times) {
    for (std::size_t i = 0; i < crafted_period; ++i) {
      const auto index = static_cast<std::int64_t>(i);
      auto value = term_of(contributors.first, index);
      for (rank_t r = contributors.first + 1; r < contributors.first + contributors.count; ++r)
        value = combine(reduction.kind, value, term_of(r, index));
      if (reduction.kind == op_kind::pre_mul_sum) value = times(value, static_cast<std::int64_t>(reduction.scale));
      put(type, table.data() + i * e, value);
    }
  });
  // The sum is exact, so the only rounding is that of the division itself.
  if (reduction.kind == op_kind::avg)
    divide(type, static_cast<std::size_t>(contributors.count), table.data(), table.data(), crafted_period);
  return table;
}

std::vector<std::byte> crafted_bits(datatype type) {
  std::vector<std::byte> table(crafted_period * size_of(type));
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::byte>(mix(i) & 0xff);
  return table;
}

void fill(std::byte* to, const std::vector<std::byte>& table, std::size_t element_size,
          const std::vector<crafted_block>& blocks) {
  for_each_piece(element_size, blocks, [&](std::size_t offset, std::size_t from, std::size_t bytes) {
    std::memcpy(to + offset, table.data() + from, bytes);
  });
}

std::uint64_t count_wrong(const std::byte* found, const std::vector<std::byte>& table, std::size_t element_size,
                          const std::vector<crafted_block>& blocks) {
  std::uint64_t wrong = 0;
  for_each_piece(element_size, blocks, [&](std::size_t offset, std::size_t from, std::size_t bytes) {
    if (std::memcmp(found + offset, table.data() + from, bytes) == 0) return;
    for (std::size_t i = 0; i < bytes; i += element_size)
      if (std::memcmp(found + offset + i, table.data() + from + i, element_size) != 0) ++wrong;
  });
  return wrong;
}

}  // namespace troupe
