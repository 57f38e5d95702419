// SPDX-License-Identifier: Apache-2.0
#pragma once
// The arguments of operations: ranges, single objects, and the functions that reduce them. Elements of these types travel:
//   integers of 1, 4 and 8 bytes, char, float, double,
//   f16, bf16, f8e4m3, f8e5m2,
//   _Float16, std::float16_t, std::bfloat16_t             as the element type of their size; every reduction
//   std::complex<float>, std::complex<double>             as c64, c128; sum, product, average, pre_mul_sum, functions
//   bool                                                  as u8; and, or, xor, minimum, maximum, product
//   std::byte                                             as u8; band, bor, bxor
//   std::complex of another element type                  as two elements; sum, average, pre_mul_sum
//   enumerations, short, long double, wchar_t, char16_t,
//   other trivially copyable objects                      as bytes; everything that does not reduce
// A trivially copyable object travels as it is: a pointer inside one means nothing to a receiver in another process.

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ranges>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#if __has_include(<stdfloat>)
#include <stdfloat>
#endif

#include "engine/api/options.hpp"
#include "memory/export.hpp"
#include "memory/types/types.hpp"

namespace troupe {

namespace detail {

/// Which reductions make sense of a type.
enum class arithmetic { none, bits, logic, componentwise, all };

/// An object is `width` elements of `type`.
struct carriage {
  datatype type;
  std::size_t width;
  arithmetic reduces;
};

template <class T>
inline constexpr bool is_half = false;
#if defined(__FLT16_MANT_DIG__)
template <>
inline constexpr bool is_half<_Float16> = true;
#endif
template <class T>
inline constexpr bool is_brain_half = false;
#if defined(__STDCPP_BFLOAT16_T__)
template <>
inline constexpr bool is_brain_half<std::bfloat16_t> = true;
#endif
template <class T>
inline constexpr bool is_pair = false;
template <element T>
inline constexpr bool is_pair<std::complex<T>> = true;

/// @pre travels<T>
template <class T>
constexpr carriage carriage_of() {
  if constexpr (element<T>) return {datatype_of<T>, 1, arithmetic::all};
  else if constexpr (std::is_same_v<T, bool>) return {datatype::u8, 1, arithmetic::logic};
  else if constexpr (std::is_same_v<T, std::byte>) return {datatype::u8, 1, arithmetic::bits};
  else if constexpr (std::is_same_v<T, char> || std::is_same_v<T, char8_t>)
    return {std::is_signed_v<T> ? datatype::i8 : datatype::u8, 1, arithmetic::all};
  else if constexpr (is_half<T>) return {datatype::f16, 1, arithmetic::all};
  else if constexpr (is_brain_half<T>) return {datatype::bf16, 1, arithmetic::all};
  else if constexpr (is_pair<T>) return {datatype_of<typename T::value_type>, 2, arithmetic::componentwise};
  else return {datatype::u8, sizeof(T), arithmetic::none};
}

template <class T>
concept travels = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_member_pointer_v<T> &&
                  !std::is_null_pointer_v<T> && !std::is_same_v<T, op>;

template <class R>
concept contiguous = std::ranges::contiguous_range<R> && std::ranges::sized_range<R>;
template <class R>
concept range_of_objects = contiguous<R> && travels<std::ranges::range_value_t<R>>;
template <class T>
concept single_object = !std::ranges::range<T> && travels<std::remove_cvref_t<T>>;

template <class B>
struct item {
  using type = std::remove_cvref_t<B>;
};
template <std::ranges::range B>
struct item<B> {
  using type = std::ranges::range_value_t<B>;
};

}  // namespace detail

/// A buffer holds the elements of an operation: a contiguous range (std::span, std::vector, std::array, C array), or one object.
template <class B>
concept buffer = detail::range_of_objects<B> || detail::single_object<B>;

/// The type of one object of a buffer.
template <class B>
using item_of = typename detail::item<B>::type;

namespace detail {

template <buffer B>
inline constexpr carriage carried = carriage_of<item_of<B>>();

template <class B>
auto* data_of(B& where) {
  if constexpr (std::ranges::range<B>) return std::ranges::data(where);
  else return std::addressof(where);
}
/// In elements of the type that it travels as.
template <class B>
std::size_t size_of_buffer(B& what) {
  if constexpr (std::ranges::range<B>) return std::ranges::size(what) * carried<B>.width;
  else return carried<B>.width;
}

template <class B>
concept writable = buffer<B> && !std::is_const_v<std::remove_pointer_t<decltype(data_of(std::declval<B&>()))>>;

}  // namespace detail

/// A buffer that is written. A single object has to be a variable; a temporary range may refer to memory that lasts.
template <class B>
concept output_buffer = detail::writable<B> &&(std::ranges::range<B> || std::is_lvalue_reference_v<B>);

template <buffer B>
inline constexpr datatype type_of = detail::carried<B>.type;

/// Holds the same objects as `Other`.
template <class B, class Other>
concept same_objects = buffer<B> && buffer<Other> && std::same_as<item_of<B>, item_of<Other>>;

// Sentences of compilers are in refusals.hpp; these two are said here, too. They end with communicator.hpp.
#define TROUPE_SENTENCE_no_reduction                                                                                   \
  "troupe: objects of this type do not reduce; integers of 1, 4 and 8 bytes, char, float, double, floats of 2 bytes "  \
  "and 1, bool, std::byte and std::complex do"
#define TROUPE_SENTENCE_no_function "troupe: a function of one's own reduces objects that travel as one element each"

// -- what reduces -----------------------------------------------------------------------------------------------------

/// A promise that f(a, b) equals f(b, a), so that any order of ranks will do: comm.all_reduce(v, troupe::commutative(f)).
template <class F>
struct commutative_function {
  F function;
};
template <class F>
constexpr commutative_function<F> commutative(F function) {
  return {std::move(function)};
}

/// A function with a name, which the ranks compare: comm.all_reduce(v, troupe::named("max_abs", f)). Ranks that call by other names, or without one, get
/// errc::mismatch with both names. Of function objects without a name, lambdas among them, they compare the types: each lambda of a program has its own,
/// so ranks that come to different ones which do the same give these one name. Of plain functions without a name nothing is compared.
template <class F>
struct named_function {
  op_name name;
  F function;
};
/// At most 31 bytes of printable ASCII, else error(invalid_argument). Goes with commutative() in either order.
template <class F>
  requires(!std::is_convertible_v<const F&, op>)
named_function<F> named(std::string_view name, F function) { return {op_name{name}, std::move(function)}; }

namespace detail {

template <class F, class T>
concept combines = requires(const F& f, const T& a, const T& b) {
  { f(a, b) } -> std::convertible_to<T>;
};

template <class F>
inline constexpr bool is_promised = false;
template <class F>
inline constexpr bool is_promised<commutative_function<F>> = true;
template <class F>
inline constexpr bool is_named = false;
template <class F>
inline constexpr bool is_named<named_function<F>> = true;
template <class F>
struct unwrapped {
  using type = F;
};
template <class F>
struct unwrapped<commutative_function<F>> : unwrapped<F> {};
template <class F>
struct unwrapped<named_function<F>> : unwrapped<F> {};

template <class F, class T>
constexpr bool is_reduction_function() {
  return !std::is_convertible_v<const F&, op> && combines<typename unwrapped<F>::type, T>;
}
template <class F, class T>
concept reduction_function = is_reduction_function<F, T>();
template <class F>
inline constexpr bool is_stateless = std::is_empty_v<F>&& std::is_default_constructible_v<F>;

/// The kind that a function object of the standard library is; `user` for every other.
template <class F, class T>
constexpr op_kind known_kind() {
  const auto is = []<template <class> class Standard>() {
    return std::is_same_v<F, Standard<void>> || std::is_same_v<F, Standard<T>>;
  };
  if (is.template operator()<std::plus>()) return op_kind::sum;
  if (is.template operator()<std::multiplies>()) return op_kind::prod;
  if (is.template operator()<std::logical_and>()) return op_kind::land;
  if (is.template operator()<std::logical_or>()) return op_kind::lor;
  if (is.template operator()<std::bit_and>()) return op_kind::band;
  if (is.template operator()<std::bit_or>()) return op_kind::bor;
  if (is.template operator()<std::bit_xor>()) return op_kind::bxor;
  return op_kind::user;
}

/// Throws errc::unsupported with what would be right.
TROUPE_API void require_reduces(arithmetic reduces, const op& with);
[[noreturn]] TROUPE_API void refuse_null_function();

template <class F, class T>
void apply(const void* left, const void* right, void* out, std::size_t count, datatype, void* context) {
  const auto* a = static_cast<const T*>(left);
  const auto* b = static_cast<const T*>(right);
  auto* to = static_cast<T*>(out);
  const auto all = [&](const auto& function) {
    for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<T>(function(a[i], b[i]));
  };
  if constexpr (std::is_pointer_v<F>) all(*reinterpret_cast<F>(context));
  else if constexpr (is_stateless<F>) all(F{});
  else all(*static_cast<const F*>(context));
}

TROUPE_API std::uint64_t type_mark_of(std::string_view type_name) noexcept;
/// The same in all processes whose compilers call types alike. 0 without run-time type information.
template <class F>
std::uint64_t type_mark_of() {
#ifdef __cpp_rtti
  static const std::uint64_t mark = type_mark_of(typeid(F).name());
  return mark;
#else
  return 0;
#endif
}

/// A function, or a pointer to one, is the context itself; of one without state there is none.
template <class T, class F>
op op_of(const F& function) {
  static_assert(carriage_of<T>().width == 1, TROUPE_SENTENCE_no_function);
  constexpr op_kind kind = known_kind<F, T>();
  if constexpr (kind != op_kind::user) {
    return make_op(kind);
  } else if constexpr (is_promised<F>) {
    op what = op_of<T>(function.function);
    what.commutative = true;
    return what;
  } else if constexpr (is_named<F>) {
    op what = op_of<T>(function.function);
    if (what.kind == op_kind::user) what.name = function.name, what.type_mark = 0;
    return what;
  } else if constexpr (std::is_function_v<F> || std::is_pointer_v<F>) {
    const std::decay_t<F> pointer = function;
    if constexpr (std::is_pointer_v<F>)
      if (pointer == nullptr) refuse_null_function();
    return user_op(&apply<std::decay_t<F>, T>, reinterpret_cast<void*>(pointer), false);
  } else {
    // user_function has no const: apply() restores it.
    if constexpr (!std::is_empty_v<F> && requires { static_cast<bool>(function == nullptr); })
      if (function == nullptr) refuse_null_function();  // a std::function without one
    op what = is_stateless<F>
                  ? user_op(&apply<F, T>, nullptr, false)
                  : user_op(&apply<F, T>, const_cast<void*>(static_cast<const void*>(std::addressof(function))), false);
    what.type_mark = type_mark_of<F>();
    return what;
  }
}

}  // namespace detail

/// A reduction combines two objects of type T: an op, or a function of two of them that is associative. std::plus and its like are the op that
/// they mean. Any other function counts as not commutative unless it is marked with commutative(), and is called as user_function describes. One
/// that has a state is referred to, so it must live as long as the operation.
template <class T>
class reduction {
public:
  reduction(const op& what) : what_(what) {
    static_assert(detail::carriage_of<T>().reduces != detail::arithmetic::none, TROUPE_SENTENCE_no_reduction);
    detail::require_reduces(detail::carriage_of<T>().reduces, what);
  }
  template <detail::reduction_function<T> F>
  reduction(const F& function) : reduction(detail::op_of<T>(function)) {}

  const op& what() const { return what_; }

private:
  op what_;
};

// -- what outlives a call ---------------------------------------------------------------------------------------------

namespace detail {

/// A range that takes its elements along when the call's expression ends.
template <class A>
concept owning_range = std::ranges::range<A> && !std::ranges::borrowed_range<A>;

/// A function whose state ends with the call's expression, where T is reduced.
template <class A, class T>
constexpr bool is_temporary_function() {
  using F = std::remove_cvref_t<A>;
  if constexpr (std::is_lvalue_reference_v<A> || !std::is_class_v<F>) return false;
  else {
    using inner = typename unwrapped<F>::type;
    return reduction_function<F, T> && !is_stateless<inner> && !std::is_pointer_v<inner>;
  }
}

template <class... A>
inline constexpr bool outlive_call = true;
template <class First, class... Others>
inline constexpr bool outlive_call<First, Others...> =
    !owning_range<First> && (!single_object<First> || std::is_lvalue_reference_v<First>)&&(
                                (!owning_range<Others> && !is_temporary_function<Others, item_of<First>>()) && ...);

}  // namespace detail

/// The arguments, in this order, of an operation that outlives the call. None may be a range that owns its elements,
/// an object to be sent or a function with a state if it ends with the call's expression.
template <class... Arguments>
concept outlives_call = detail::outlive_call<Arguments...>;

}  // namespace troupe
