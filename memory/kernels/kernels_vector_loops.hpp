// SPDX-License-Identifier: Apache-2.0
// Private to kernels_*.cpp: the folds over the vectors of kernels_vectors.hpp, once for every instruction set.
//
// Nothing outside of the regions is touched. The last elements are done by a vector that overlaps the one before it, and
// so are the first ones when the output is not aligned: both are computed before anything is written, because the
// output may be an input, and stored at the end. Less than one vector is masked, or left to the plain loops.
// clang-format off: the guard flips with every inclusion, see hwy/foreach_target.h
#if defined(TROUPE_KERNEL_VECTOR_LOOPS) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_KERNEL_VECTOR_LOOPS
#undef TROUPE_KERNEL_VECTOR_LOOPS
#else
#define TROUPE_KERNEL_VECTOR_LOOPS
#endif
// clang-format on

#include "memory/kernels/kernels_bytes.hpp"
#include "memory/kernels/kernels_vectors.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
using loops = plain_loops;
#else

inline constexpr std::size_t line_bytes = 64;

/// Numbers in a row that an operation takes for one element, which no vector may tear.
template <class Op>
inline constexpr std::size_t parts_in_element = std::is_same_v<Op, multiply_complex> ? 2 : 1;

/// What is done to an input's elements as they are read, and to the result's before they are written: nothing. See
/// kernels_adjustments.hpp for more.
struct unadjusted {
  static constexpr bool for_byte_sums = true;  ///< a sum's result may be rounded by byte_sums
  static constexpr bool exact_products =
      false;  ///< of elements and factors: add() instead of read(), after the first input

  template <class V>
  HWY_INLINE V read(V value, std::size_t) const {
    return value;
  }
  template <class V>
  HWY_INLINE V finish(V value) const {
    return value;
  }
};

/// Four vectors are folded at a time, from all inputs: enough independent additions to hide their latency, and the totals
/// stay in registers. Passing over a tile in the cache once per input, or few, was up to twice slower from memory.
template <class Op, class T, class Adjust = unadjusted>
struct fold_of {
  using traits = element<T>;
  using stored = typename traits::stored;
  using vector = typename traits::vector;
  static constexpr std::size_t lanes = hn::MaxLanes(stored{});
  static constexpr std::size_t bytes = lanes * sizeof(T);

  Adjust how;

  HWY_INLINE vector widened(const void* const* in, std::size_t k, std::size_t offset) const {
    return traits::widen(load_vector(stored{}, static_cast<const std::byte*>(in[k]) + offset));
  }
  HWY_INLINE vector load(const void* const* in, std::size_t k, std::size_t offset) const {
    return how.read(widened(in, k, offset), k);
  }
  /// Input k's vector with what was folded before it.
  HWY_INLINE vector folded(vector total, const void* const* in, std::size_t k, std::size_t offset) const {
    if constexpr (Adjust::exact_products) return how.add(total, widened(in, k, offset), k);
    else return apply(total, load(in, k, offset));
  }
  static HWY_INLINE void store(vector value, std::byte* to) { store_vector(stored{}, traits::narrow(value), to); }
  static HWY_INLINE vector apply(vector left, vector right) {
    return vector_op<Op>::apply(typename traits::computed{}, left, right);
  }

  /// `Inputs` is their number where it is fixed, else 0 and `inputs` counts.
  template <std::size_t Inputs>
  HWY_INLINE vector fold(const void* const* in, std::size_t inputs, std::size_t offset) const {
    vector total = load(in, 0, offset);
    for (std::size_t k = 1; k < (Inputs != 0 ? Inputs : inputs); ++k) total = folded(total, in, k, offset);
    return how.finish(total);
  }

  struct block {
    vector a, b, c, d;
  };
  static constexpr bool sums_bytes =
      sizeof(T) == 1 && !std::is_arithmetic_v<T> && std::is_same_v<Op, add> && Adjust::for_byte_sums;
  static constexpr std::size_t block_bytes = 4 * bytes;

  template <std::size_t Inputs>
  HWY_INLINE block fold_block(const void* const* in, std::size_t inputs, std::size_t offset) const {
    block total{load(in, 0, offset), load(in, 0, offset + bytes), load(in, 0, offset + 2 * bytes),
                load(in, 0, offset + 3 * bytes)};
    for (std::size_t k = 1; k < (Inputs != 0 ? Inputs : inputs); ++k) {
      total.a = folded(total.a, in, k, offset);
      total.b = folded(total.b, in, k, offset + bytes);
      total.c = folded(total.c, in, k, offset + 2 * bytes);
      total.d = folded(total.d, in, k, offset + 3 * bytes);
    }
    return {how.finish(total.a), how.finish(total.b), how.finish(total.c), how.finish(total.d)};
  }

  /// A block of fp8, as bytes.
  template <std::size_t Inputs>
  HWY_INLINE auto fold_bytes(const void* const* in, std::size_t inputs, std::size_t offset) const {
    hn::Vec<pairs> result;
    if (HWY_LIKELY((byte_sums<T, Adjust>::template fold<Inputs>(how, in, inputs, offset, result)))) return result;
    alignas(block_bytes) std::byte apart[block_bytes];
    const block total = fold_block<Inputs>(in, inputs, offset);
    store(total.a, apart);
    store(total.b, apart + bytes);
    store(total.c, apart + 2 * bytes);
    store(total.d, apart + 3 * bytes);
    return load_vector(pairs{}, apart);
  }

  /// Bytes [done, end) in whole blocks and then whole vectors; the last vector, whole or not, is the caller's to store.
  template <std::size_t Inputs>
  HWY_INLINE void fold_middle(const void* const* in, std::size_t inputs, std::size_t offset, std::byte* out,
                              std::size_t done, std::size_t end) const {
    for (; done + block_bytes <= end; done += block_bytes) {
      if constexpr (sums_bytes) {
        store_vector(pairs{}, fold_bytes<Inputs>(in, inputs, offset + done), out + done);
        continue;
      }
      const block total = fold_block<Inputs>(in, inputs, offset + done);
      store(total.a, out + done);
      store(total.b, out + done + bytes);
      store(total.c, out + done + 2 * bytes);
      store(total.d, out + done + 3 * bytes);
    }
    for (; done + bytes < end; done += bytes) store(fold<Inputs>(in, inputs, offset + done), out + done);
  }

#if TROUPE_MASKS
  /// Fewer elements than a vector has.
  HWY_INLINE void fold_few(std::span<const void* const> in, std::size_t offset, std::byte* out,
                           std::size_t count) const {
    const stored d;
    vector total = how.read(traits::widen(load_first(d, at(in[0], offset), count)), 0);
    for (std::size_t k = 1; k < in.size(); ++k)
      total = apply(total, how.read(traits::widen(load_first(d, at(in[k], offset), count)), k));
    store_first(d, traits::narrow(how.finish(total)), out, count);
  }
#endif

  /// @pre without masks at least a vector's elements
  template <std::size_t Inputs>
  HWY_INLINE void run(std::span<const void* const> inputs, std::size_t offset, std::byte* out,
                      std::size_t count) const {
#if TROUPE_MASKS
    if (count < lanes) return fold_few(inputs, offset, out, count);
#endif
    const void* const* const in = inputs.data();
    const std::size_t k = inputs.size();
    const std::size_t end = count * sizeof(T);
    const vector last = fold<Inputs>(in, k, offset + end - bytes);
    // A store that crosses a line costs twice; so the loop starts at one where whole elements allow it.
    const std::size_t ahead = (line_bytes - reinterpret_cast<std::uintptr_t>(out) % line_bytes) % bytes;
    if (ahead != 0 && ahead % (parts_in_element<Op> * sizeof(T)) == 0 && end >= 2 * block_bytes) {
      const vector first = fold<Inputs>(in, k, offset);
      fold_middle<Inputs>(in, k, offset, out, ahead, end);
      store(first, out);
    } else {
      fold_middle<Inputs>(in, k, offset, out, 0, end);
    }
    store(last, out + end - bytes);
  }

  /// See stream_kernel. Every line is complete before the next output's turn.
  HWY_INLINE void run_streamed(std::span<const void* const> in, std::span<void* const> out, std::size_t offset,
                               std::size_t length) const {
    static_assert(stream_step % block_bytes == 0 && block_bytes % line_bytes == 0);
    for (const std::size_t end = offset + length; offset < end; offset += block_bytes) {
      if constexpr (sums_bytes) {
        const auto total = fold_bytes<0>(in.data(), in.size(), offset);
        for (void* to : out) stream_vector(pairs{}, total, at(to, offset));
        continue;
      }
      const block total = fold_block<0>(in.data(), in.size(), offset);
      for (void* to : out) stream(total, at(to, offset));
    }
  }

  static HWY_INLINE void stream(const block& total, std::byte* to) {
    const stored d;
    stream_vector(d, traits::narrow(total.a), to);
    stream_vector(d, traits::narrow(total.b), to + bytes);
    stream_vector(d, traits::narrow(total.c), to + 2 * bytes);
    stream_vector(d, traits::narrow(total.d), to + 3 * bytes);
  }
};

/// Whether run() may be called.
template <class Fold>
HWY_INLINE bool enough_for(const Fold&, std::size_t count) {
  return TROUPE_MASKS != 0 || count >= Fold::lanes;
}

template <class Op, class T>
void reduce_vectors(const void* left, const void* right, void* out, std::size_t count) {
  const void* const in[] = {left, right};
  const fold_of<Op, T> fold{};
  if (enough_for(fold, count)) fold.template run<2>(in, 0, static_cast<std::byte*>(out), count);
  else fold_elements<Op, T>({in, 2}, 0, out, count);
}

template <class Op, class T>
void fold_vectors(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                  const adjustment&) {
  if (in.size() == 2) return reduce_vectors<Op, T>(at(in[0], offset), at(in[1], offset), out, count);
  const fold_of<Op, T> fold{};
  if (enough_for(fold, count)) fold.template run<0>(in, offset, static_cast<std::byte*>(out), count);
  else fold_elements<Op, T>(in, offset, out, count);
}

template <class Op, class T>
void stream_folds(std::span<const void* const> in, std::span<void* const> out, std::size_t offset, std::size_t length,
                  const adjustment&) {
  fold_of<Op, T>{}.run_streamed(in, out, offset, length);
}

struct loops {
  template <class Op, class T>
  static constexpr kernels of() {
    // Vectors shorter than 16 bytes have no streaming store (Highway would write 16).
    if constexpr (fold_of<Op, T>::bytes >= 16)
      return {&reduce_vectors<Op, T>, &fold_vectors<Op, T>, &stream_folds<Op, T>};
    else return {&reduce_vectors<Op, T>, &fold_vectors<Op, T>, nullptr};
  }
};

#endif

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // guard
