// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/values.hpp"

#include <algorithm>
#include <complex>
#include <cstring>
#include <stdexcept>

#include "engine/tools/simulate/dice.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::simulate {

namespace {

template <class T>
void store(std::byte* to, std::int64_t value) {
  const T as = static_cast<T>(value);
  std::memcpy(to, &as, sizeof(T));
}

/// A complex number has a second part, except in products, where zeros of both signs would come of it.
void put(const item& it, std::byte* to, std::int64_t value) {
  const datatype type = it.what.type;
  const bool multiplies = is_reduction(it.what.what) && it.what.reduction.kind == op_kind::prod;
  switch (type) {
    case datatype::c128:
      store<double>(to, value);
      return store<double>(to + sizeof(double), multiplies ? 0 : 3 * value);
    case datatype::i32: return store<std::int32_t>(to, value);
    case datatype::u8: return store<std::uint8_t>(to, value);
    case datatype::i64: return store<std::int64_t>(to, value);
    case datatype::f32: return store<float>(to, value);
    case datatype::f64: return store<double>(to, value);
    default: {  // bf16 and the like; small integers are exact
      const float wide = static_cast<float>(value);
      return convert(datatype::f32, &wide, type, to, 1);
    }
  }
}

/// What `rank` contributes to an element of a block of a reduction.
std::int64_t contribution(const item& it, std::uint64_t salt, int ranks, rank_t rank, std::int64_t block,
                          std::size_t at) {
  const std::uint64_t word =
      mix(salt ^ (static_cast<std::uint64_t>(block) << 40) ^ (static_cast<std::uint64_t>(rank) << 32) ^ at);
  switch (it.what.reduction.kind) {
    case op_kind::prod: return 1 + static_cast<std::int64_t>(word % 2);
    case op_kind::avg: return ranks * static_cast<std::int64_t>(word % 4);
    case op_kind::sum:
    case op_kind::user: return static_cast<std::int64_t>(word % 16);
    default: return static_cast<std::int64_t>(word % 120);
  }
}

std::int64_t combined(const item& it, std::uint64_t salt, int ranks, std::int64_t block, std::size_t at) {
  std::int64_t result = contribution(it, salt, ranks, 0, block, at);
  for (rank_t r = 1; r < ranks; ++r) {
    const std::int64_t next = contribution(it, salt, ranks, r, block, at);
    switch (it.what.reduction.kind) {
      case op_kind::prod: result *= next; break;
      case op_kind::min: result = std::min(result, next); break;
      case op_kind::max: result = std::max(result, next); break;
      case op_kind::bxor: result ^= next; break;
      default: result += next; break;
    }
  }
  return it.what.reduction.kind == op_kind::avg ? result / ranks : result;
}

std::int64_t moved(std::uint64_t salt, std::int64_t block, std::size_t at) {
  return static_cast<std::int64_t>(mix(salt ^ (static_cast<std::uint64_t>(block) << 40) ^ at) % 120);
}

std::size_t elements_of(const item& it, std::int64_t block) {
  return it.what.uniform ? it.what.count : it.counts[static_cast<std::size_t>(block)];
}

/// Of a call that moves what it is given.
auto moved_by(const item& it, std::uint64_t salt) {
  return [&it, salt](std::int64_t block, std::size_t at) {
    return it.splits() ? it.divided[2 * static_cast<std::size_t>(block) + at] : moved(salt, block, at);
  };
}

template <class Value>
std::vector<std::byte> blocks(const item& it, const block_run& run, const Value& value) {
  const std::size_t width = size_of(it.what.type);
  std::size_t total = 0;
  for (int i = 0; i < run.count; ++i) total += elements_of(it, run.first + std::int64_t{i} * run.stride);
  std::vector<std::byte> bytes(total * width);
  std::byte* to = bytes.data();
  for (int i = 0; i < run.count; ++i) {
    const std::int64_t block = run.first + std::int64_t{i} * run.stride;
    for (std::size_t at = 0; at < elements_of(it, block); ++at, to += width) put(it, to, value(block, at));
  }
  return bytes;
}

template <class T>
void add(const void* left, const void* right, void* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, static_cast<const std::byte*>(left) + i * sizeof(T), sizeof(T));
    std::memcpy(&b, static_cast<const std::byte*>(right) + i * sizeof(T), sizeof(T));
    const T sum = static_cast<T>(a + b);
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof(T), &sum, sizeof(T));
  }
}

}  // namespace

std::vector<std::byte> input_of(const item& it, std::uint64_t salt, int ranks, rank_t rank) {
  if (it.pair) {
    if (rank != it.from) return {};
    return blocks(it, {0, 1, 1}, [&](std::int64_t block, std::size_t at) { return moved(salt, block, at); });
  }
  const block_run run = input_blocks(it.what.what, ranks, it.what.root, rank);
  if (is_reduction(it.what.what))
    return blocks(it, run,
                  [&](std::int64_t block, std::size_t at) { return contribution(it, salt, ranks, rank, block, at); });
  return blocks(it, run, moved_by(it, salt));
}

std::vector<std::byte> output_of(const item& it, std::uint64_t salt, int ranks, rank_t rank) {
  if (it.pair) {
    if (rank != it.to) return {};
    return blocks(it, {0, 1, 1}, [&](std::int64_t block, std::size_t at) { return moved(salt, block, at); });
  }
  const block_run run = output_blocks(it.what.what, ranks, it.what.root, rank);
  if (is_reduction(it.what.what))
    return blocks(it, run, [&](std::int64_t block, std::size_t at) { return combined(it, salt, ranks, block, at); });
  return blocks(it, run, moved_by(it, salt));
}

std::size_t place_in_place(const item& it, rank_t rank) {
  if (it.what.what != collective::all_gather && it.what.what != collective::reduce_scatter) return 0;
  return static_cast<std::size_t>(rank) * it.what.count * size_of(it.what.type);
}

void user_sum(const void* left, const void* right, void* out, std::size_t count, datatype type, void* context) {
  if (auto* const limit = static_cast<countdown*>(context); limit != nullptr && --limit->left == 0) {
    limit->thrown = true;
    throw std::runtime_error("the reduction throws");
  }
  switch (type) {
    case datatype::i32: return add<std::int32_t>(left, right, out, count);
    case datatype::u8: return add<std::uint8_t>(left, right, out, count);
    case datatype::i64: return add<std::int64_t>(left, right, out, count);
    case datatype::f32: return add<float>(left, right, out, count);
    case datatype::f64: return add<double>(left, right, out, count);
    case datatype::c128: return add<std::complex<double>>(left, right, out, count);
    default: throw std::logic_error("scenarios have no user's reduction of this type");
  }
}

}  // namespace troupe::simulate
