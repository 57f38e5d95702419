// SPDX-License-Identifier: Apache-2.0
#pragma once
// A collective on crafted inputs, and the image that every byte of every rank's memory must have afterwards: outputs, inputs
// that must not change, gaps between blocks, and guard bytes around everything.
//
// The layout of blocks and the results are computed here from the definitions of the collectives alone.

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/api/troupe.hpp"
#include "memory/kernels/kernels.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "tests/memory/values.hpp"

namespace engine_tests {

using troupe::all_collectives;
using troupe::call_description;
using troupe::call_options;
using troupe::collective;
using troupe::communicator;
using troupe::datatype;
using troupe::errc;
using troupe::op;
using troupe::op_kind;
using troupe::rank_t;

struct job {
  collective what = collective::all_reduce;
  bool v_form = false;
  datatype type = datatype::f32;
  op reduction = troupe::sum;
  rank_t root = 0;
  int ranks = 1;
  std::size_t count = 0;            ///< elements of a block
  std::vector<std::size_t> counts;  ///< v-forms: of the blocks; all_to_all_v: block (i, j) at i·n + j
  bool gaps = false;                ///< v-forms: elements between the blocks, which lie in descending order
  bool in_place = false;
  std::size_t misalignment = 0;  ///< bytes
  std::uint64_t salt = 0;        ///< other values
  call_options options;
};

inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <class Function>
void with_type(datatype type, Function function) {
  switch (type) {
    case datatype::i8: return function.template operator()<std::int8_t>();
    case datatype::u8: return function.template operator()<std::uint8_t>();
    case datatype::i32: return function.template operator()<std::int32_t>();
    case datatype::u32: return function.template operator()<std::uint32_t>();
    case datatype::i64: return function.template operator()<std::int64_t>();
    case datatype::u64: return function.template operator()<std::uint64_t>();
    case datatype::f16: return function.template operator()<troupe::f16>();
    case datatype::bf16: return function.template operator()<troupe::bf16>();
    case datatype::f32: return function.template operator()<float>();
    case datatype::f64: return function.template operator()<double>();
    case datatype::f8e4m3: return function.template operator()<troupe::f8e4m3>();
    case datatype::f8e5m2: return function.template operator()<troupe::f8e5m2>();
    case datatype::c64: return function.template operator()<std::complex<float>>();
    case datatype::c128: return function.template operator()<std::complex<double>>();
  }
}

inline constexpr double scale_of_tests = 3;

// -- values -----------------------------------------------------------------------------------------------------------

template <class T>
inline constexpr bool is_complex_number = false;
template <class Real>
inline constexpr bool is_complex_number<std::complex<Real>> = true;

/// Parts of sums are small integers. 14 ranks multiply by 2 + i, turned by right angles, the others by 1: products are exact in f32, and no part
/// of one becomes a zero, whose sign would depend on the order.
template <class Complex>
Complex complex_contribution(op_kind kind, std::size_t rank, std::uint64_t bits) {
  using real = typename Complex::value_type;
  if (kind != op_kind::prod)
    return {static_cast<real>(static_cast<int>(bits % 9) - 4), static_cast<real>(static_cast<int>(bits / 9 % 9) - 4)};
  constexpr real turned[4][2] = {{2, 1}, {-1, 2}, {-2, -1}, {1, -2}};
  return rank < 14 ? Complex{turned[bits % 4][0], turned[bits % 4][1]} : Complex{1, 0};
}

/// What `rank` contributes to element i of a block. No intermediate result in f32 (f64 for f64) is ever rounded, whatever the
/// order, so only the rounding at the end is left, and one result is right. Integers wrap.
template <class T>
T contribution(const job& j, std::size_t rank, std::size_t block, std::size_t i) {
  const std::uint64_t bits = mix(j.salt ^ mix(rank << 40 ^ block << 24 ^ i));
  if constexpr (std::is_integral_v<T>) return static_cast<T>(bits);
  else if constexpr (is_complex_number<T>) return complex_contribution<T>(j.reduction.kind, rank, bits);
  else {
    const auto kind = j.reduction.kind;
    if (kind == op_kind::prod) {
      const float power = bits % 3 == 0 ? 0.5f : bits % 3 == 1 ? 1.0f : 2.0f;
      return static_cast<T>(bits & 64 ? -power : power);
    }
    const int small = static_cast<int>(bits % 9) - 4;
    if (kind == op_kind::sum || kind == op_kind::avg || kind == op_kind::pre_mul_sum)
      return static_cast<T>(static_cast<float>(small));
    return static_cast<T>(small == 0 && bits & 64 ? -0.0f : static_cast<float>(small) / 4);
  }
}

template <class Complex>
Complex reduced_complex(const job& j, std::size_t end, std::size_t block, std::size_t i) {
  using real = typename Complex::value_type;
  const auto kind = j.reduction.kind;
  Complex all{};
  for (std::size_t r = 0; r < end; ++r) {
    Complex mine = contribution<Complex>(j, r, block, i);
    if (kind == op_kind::pre_mul_sum) mine *= static_cast<real>(j.reduction.scale);
    if (r == 0) all = mine;
    else if (kind != op_kind::prod) all += mine;
    else
      all = {all.real() * mine.real() - all.imag() * mine.imag(), all.real() * mine.imag() + all.imag() * mine.real()};
  }
  return kind == op_kind::avg ? all / static_cast<real>(end) : all;
}

/// @param end of the ranks that contribute, from 0 on
template <class T>
T reduced(const job& j, std::size_t end, std::size_t block, std::size_t i) {
  if constexpr (is_complex_number<T>) {
    return reduced_complex<T>(j, end, block, i);
  } else {
    using C = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
    const auto kind = j.reduction.kind;
    C all{};
    for (std::size_t r = 0; r < end; ++r) {
      C mine = static_cast<C>(contribution<T>(j, r, block, i));
      if (kind == op_kind::pre_mul_sum)
        mine = memory_tests::reference<C>(op_kind::prod, mine, static_cast<C>(j.reduction.scale));
      all = r == 0 ? mine : memory_tests::reference<C>(kind, all, mine);
    }
    if (kind == op_kind::avg) all = static_cast<C>(all / static_cast<C>(end));
    return static_cast<T>(all);
  }
}

// -- blocks -----------------------------------------------------------------------------------------------------------

struct placed {
  std::size_t block;  ///< number among all of the collective
  std::size_t begin;  ///< elements
  std::size_t count;
};

/// One rank's memory and arguments.
class rank_memory {
public:
  rank_memory(const job& j, int rank)
      : j_(j), n_(static_cast<std::size_t>(j.ranks)), rank_(static_cast<std::size_t>(rank)) {
    place();
    size_ = troupe::size_of(j.type);
    const std::size_t in_end = end(inputs_), out_end = end(outputs_);
    if (j.in_place) {
      out_ = make(std::max(in_end, out_end));
      write(out_, inputs_, false);
    } else {
      in_ = make(in_end);
      out_ = make(out_end);
      write(in_, inputs_, false);
    }
    expected_in_ = in_;
    expected_out_ = out_;
    if (j.in_place && j.what == collective::reduce_scatter) free_ = inputs_;  // the other blocks may be used as scratch
    write(expected_out_, outputs_, true);
  }

  call_description call() {
    std::byte* out = data(out_);
    std::byte* in = j_.in_place ? out + in_offset_ * size_ : data(in_);
    std::byte* to = out + out_offset_ * size_;
    const auto o = j_.options;
    namespace c = troupe::calls;
    if (!j_.v_form) switch (j_.what) {
        case collective::all_reduce: return c::all_reduce(in, to, j_.count, j_.type, j_.reduction, o);
        case collective::reduce:
          return c::reduce(in, is_root() || j_.in_place ? to : nullptr, j_.count, j_.type, j_.reduction, j_.root, o);
        case collective::broadcast:
          return j_.in_place ? c::broadcast(to, j_.count, j_.type, j_.root, o)
                             : c::broadcast(is_root() ? in : nullptr, to, j_.count, j_.type, j_.root, o);
        case collective::all_gather: return c::all_gather(in, to, j_.count, j_.type, o);
        case collective::reduce_scatter: return c::reduce_scatter(in, to, j_.count, j_.type, j_.reduction, o);
        case collective::gather: return c::gather(in, is_root() ? to : nullptr, j_.count, j_.type, j_.root, o);
        case collective::scatter: return c::scatter(is_root() ? in : nullptr, to, j_.count, j_.type, j_.root, o);
        case collective::all_to_all: return c::all_to_all(in, to, j_.count, j_.type, o);
        case collective::barrier: return c::barrier(o);
        case collective::scan: return c::scan(in, to, j_.count, j_.type, j_.reduction, o);
        case collective::exscan:
          return c::exscan(in, rank_ > 0 || j_.in_place ? to : nullptr, j_.count, j_.type, j_.reduction, o);
      }
    switch (j_.what) {
      case collective::all_gather: return c::all_gather_v(in, to, {j_.counts, list(outputs_)}, j_.type, o);
      case collective::reduce_scatter:
        return c::reduce_scatter_v(in, to, {j_.counts, list(inputs_)}, j_.type, j_.reduction, o);
      case collective::gather:
        return c::gather_v(in, j_.counts[rank_], is_root() ? to : nullptr,
                           is_root() ? troupe::block_list{j_.counts, list(outputs_)} : troupe::block_list{}, j_.type,
                           j_.root, o);
      case collective::scatter:
        return c::scatter_v(is_root() ? in : nullptr,
                            is_root() ? troupe::block_list{j_.counts, list(inputs_)} : troupe::block_list{}, to,
                            j_.counts[rank_], j_.type, j_.root, o);
      case collective::all_to_all:
        return c::all_to_all_v(in, {numbers(inputs_), list(inputs_)}, to, {numbers(outputs_), list(outputs_)}, j_.type,
                               o);
      default: throw std::logic_error("no such v-form");
    }
  }

  /// Bytes that are not as they must be.
  std::size_t wrong() const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < in_.size(); ++i) n += in_[i] != expected_in_[i];
    if (free_.empty()) {
      if (out_ != expected_out_)
        for (std::size_t i = 0; i < out_.size(); ++i) n += out_[i] != expected_out_[i];
      return n;
    }
    std::vector<bool> any(out_.size());
    const auto mark = [&](const placed& p, bool value) {
      for (std::size_t i = p.begin * size_; i < (p.begin + p.count) * size_; ++i)
        any[guard + j_.misalignment + i] = value;
    };
    for (const placed& p : free_) mark(p, true);
    for (const placed& p : outputs_) mark(p, false);
    for (std::size_t i = 0; i < out_.size(); ++i) n += !any[i] && out_[i] != expected_out_[i];
    return n;
  }

private:
  static constexpr std::size_t guard = 64;
  using image = std::vector<std::byte>;

  /// Ranks that contribute to this rank's output, from 0 on.
  std::size_t contributors() const {
    return j_.what == collective::scan ? rank_ + 1 : j_.what == collective::exscan ? rank_ : n_;
  }
  bool is_root() const { return static_cast<std::size_t>(j_.root) == rank_; }
  std::size_t count_of(std::size_t block) const { return j_.v_form ? j_.counts[block] : j_.count; }
  std::byte* data(image& of) const { return of.data() + guard + j_.misalignment; }
  image make(std::size_t elements) const {
    return image(2 * guard + j_.misalignment + elements * size_, std::byte{0xa5});
  }

  std::vector<placed> run(std::size_t first, std::size_t count, std::size_t stride = 1) const {
    std::vector<placed> blocks;
    for (std::size_t k = 0; k < count; ++k) blocks.push_back({first + k * stride, 0, count_of(first + k * stride)});
    if (!j_.gaps || count == 1) {
      std::size_t at = 0;
      for (placed& p : blocks) p.begin = std::exchange(at, at + p.count);
    } else {
      std::size_t at = 2;
      for (std::size_t k = count; k-- > 0;) blocks[k].begin = std::exchange(at, at + blocks[k].count + 1 + k % 3);
    }
    return blocks;
  }

  void place() {
    switch (j_.what) {
      case collective::all_reduce: inputs_ = outputs_ = run(0, 1); break;
      case collective::reduce:
        inputs_ = run(0, 1);
        if (is_root()) outputs_ = inputs_;
        break;
      case collective::broadcast:
        outputs_ = run(0, 1);
        if (is_root()) inputs_ = outputs_;
        break;
      case collective::all_gather: inputs_ = run(rank_, 1), outputs_ = run(0, n_); break;
      case collective::reduce_scatter: inputs_ = run(0, n_), outputs_ = run(rank_, 1); break;
      case collective::gather:
        inputs_ = run(rank_, 1);
        if (is_root()) outputs_ = run(0, n_);
        break;
      case collective::scatter:
        outputs_ = run(rank_, 1);
        if (is_root()) inputs_ = run(0, n_);
        break;
      case collective::all_to_all: inputs_ = run(rank_ * n_, n_), outputs_ = run(rank_, n_, n_); break;
      case collective::barrier: break;
      case collective::scan: inputs_ = outputs_ = run(0, 1); break;
      case collective::exscan:
        inputs_ = run(0, 1);
        if (rank_ > 0) outputs_ = inputs_;  // in place, rank 0's contribution stays
        break;
    }
    // In place the smaller buffer is the rank's own block of the larger one.
    if (!j_.in_place) return;
    if (inputs_.size() == 1 && outputs_.size() == n_ && n_ > 1) inputs_[0].begin = in_offset_ = outputs_[rank_].begin;
    else if (outputs_.size() == 1 && inputs_.size() == n_ && n_ > 1)
      outputs_[0].begin = out_offset_ = inputs_[rank_].begin;
  }

  static std::size_t end(const std::vector<placed>& blocks) {
    std::size_t last = 0;
    for (const placed& p : blocks) last = std::max(last, p.begin + p.count);
    return last;
  }
  std::vector<std::size_t> list(const std::vector<placed>& blocks) const {
    std::vector<std::size_t> begins;
    if (j_.gaps)
      for (const placed& p : blocks) begins.push_back(p.begin);
    return begins;
  }
  static std::vector<std::size_t> numbers(const std::vector<placed>& blocks) {
    std::vector<std::size_t> counts;
    for (const placed& p : blocks) counts.push_back(p.count);
    return counts;
  }

  void write(image& to, const std::vector<placed>& blocks, bool result) const {
    with_type(j_.type, [&]<class T>() {
      for (const placed& p : blocks)
        for (std::size_t i = 0; i < p.count; ++i) {
          const T value = !troupe::is_reduction(j_.what) ? moved<T>(p.block, i)
                          : result                       ? reduced<T>(j_, contributors(), p.block, i)
                                                         : contribution<T>(j_, rank_, p.block, i);
          std::memcpy(to.data() + guard + j_.misalignment + (p.begin + i) * sizeof(T), &value, sizeof(T));
        }
    });
  }

  /// Bits of any kind: infinities, NaNs and negative zeros are only moved.
  template <class T>
  T moved(std::size_t block, std::size_t i) const {
    const std::uint64_t bits = mix(j_.salt ^ mix(block << 32 ^ i));
    if constexpr (sizeof(T) == 16) return std::bit_cast<T>(std::array{bits, mix(bits)});
    else return std::bit_cast<T>(static_cast<memory_tests::word_of<T>>(bits));
  }

  job j_;
  std::size_t n_, rank_, size_ = 1;
  std::size_t in_offset_ = 0, out_offset_ = 0;
  std::vector<placed> inputs_, outputs_, free_;
  image in_, out_, expected_in_, expected_out_;
};

// -- running ----------------------------------------------------------------------------------------------------------

inline std::string to_string(const job& j) {
  std::string text = std::string{name(j.what)} + (j.v_form ? "_v" : "") + " on " + std::to_string(j.ranks) +
                     " ranks, count " + std::to_string(j.count) + ", " + std::string{name(j.type)} + ", " +
                     std::string{name(j.reduction.kind)} + ", root " + std::to_string(j.root) +
                     (j.in_place ? ", in place" : "") + (j.gaps ? ", gaps" : "") + ", misaligned by " +
                     std::to_string(j.misalignment) + ", salt " + std::to_string(j.salt);
  if (j.options.level) text += ", " + std::string{name(*j.options.level)};
  if (!j.options.choreography.empty()) text += ", " + j.options.choreography;
  if (j.v_form) {
    text += ", counts";
    for (const std::size_t n : j.counts) text += ' ' + std::to_string(n);
  }
  return text;
}

enum class form { asynchronous, grouped };

/// One thread drives all ranks. Returns wrong bytes over all of them; throws what the collective throws.
inline std::size_t wrong_bytes(std::vector<communicator>& comms, const job& j, form how = form::grouped) {
  std::vector<rank_memory> memory;
  for (int r = 0; r < j.ranks; ++r) memory.emplace_back(j, r);
  if (how == form::grouped) {
    troupe::group together;
    for (std::size_t r = 0; r < memory.size(); ++r) comms[r].join(together, memory[r].call());
    together.wait();
  } else {
    std::vector<troupe::request> requests;
    for (std::size_t r = 0; r < memory.size(); ++r) requests.push_back(comms[r].start(memory[r].call()));
    for (auto& r : requests) r.wait();
  }
  std::size_t wrong = 0;
  for (const rank_memory& m : memory) wrong += m.wrong();
  return wrong;
}

/// The same from a rank's own thread.
inline std::size_t wrong_bytes(communicator& comm, const job& j) {
  rank_memory memory(j, comm.rank());
  comm.run(memory.call());
  return memory.wrong();
}

/// Whether the operation makes sense on the type; user functions aside.
inline bool defined_on(datatype type, op_kind kind) {
  const bool bitwise = kind == op_kind::band || kind == op_kind::bor || kind == op_kind::bxor;
  if (troupe::is_complex(type)) return troupe::is_sum(kind) || kind == op_kind::prod;
  return kind != op_kind::user && (!bitwise || troupe::is_integer(type));
}
inline op op_of(op_kind kind) {
  return kind == op_kind::pre_mul_sum ? troupe::pre_mul_sum(scale_of_tests) : troupe::make_op(kind);
}

/// Names of built-in choreographies that offer the collective.
inline std::vector<std::string> offering(collective what) {
  std::vector<std::string> names;
  for (const troupe::choreography* c : troupe::all_choreographies())
    for (const collective offered : c->collectives)
      if (offered == what) names.emplace_back(c->name);
  return names;
}

}  // namespace engine_tests
