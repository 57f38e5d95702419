// SPDX-License-Identifier: Apache-2.0
#pragma once
// Calls that cannot work are refused by the compiler in one sentence: clang by an attribute of the member of communicator that is called, which leads
// it to the caller's line; others, and clang where the attribute does not count (a pointer to such a member), by a static_assert within.

#include <cstddef>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/api/arguments.hpp"
#include "engine/api/options.hpp"

namespace troupe::detail {

enum class refusal { none, temporary, no_range, no_form, without_rank, no_reduction, no_function };

// As macros, since both want literals; those of reductions are in arguments.hpp.
#define TROUPE_SENTENCE_temporary                                                                                      \
  "troupe: an operation that outlives its call takes no temporary that owns what it refers to: name the range, "       \
  "object or function, or pass a std::span"
#define TROUPE_SENTENCE_no_range                                                                                       \
  "troupe: ranges are contiguous (std::vector, std::array, std::span, C array; not std::list or std::vector<bool>), "  \
  "and their objects trivially copyable and no pointers; so is a single object (std::pair and std::tuple are not)"
#define TROUPE_SENTENCE_no_form                                                                                        \
  "troupe: no form takes these arguments (engine/api/calls.hpp); input and output hold the same "                      \
  "type, an output is not const, what reduces is an op or a function of two objects, and counts of blocks are a "      \
  "troupe::block_list"
#define TROUPE_SENTENCE_without_rank                                                                                   \
  "troupe: a rank is missing behind these arguments: the root of the collective, or whom a message goes to or comes "  \
  "from; a reduce names its operation before it"
#define TROUPE_SENTENCE_in_braces                                                                                      \
  "troupe: options in braces are .deadline (with a unit: 1s), .level, .choreography, .protocol, .tag and .agreement, " \
  "in this order; counts of blocks are troupe::block_list{{1, 2, 3}}; of an overloaded function, such as "             \
  "std::max<float>, a lambda says which one"

/// Nothing: for sentences about arguments that nothing takes.
template <class...>
inline constexpr bool never = false;
template <class A>
inline constexpr bool is_range_of_others = std::ranges::range<A> && !range_of_objects<A>;
/// The first argument is always a buffer.
template <class First = int, class...>
inline constexpr bool begins_with_other_object =
    std::is_class_v<std::remove_cvref_t<First>> && !std::ranges::range<First> && !single_object<First>;

/// Of arguments that no form takes, with a rank behind them or without.
template <class... A>
constexpr refusal refusal_of() {
  return (is_range_of_others<A> || ...) || begins_with_other_object<A...> ? refusal::no_range : refusal::no_form;
}

template <class... A>
inline constexpr bool ends_with_options = false;
template <class Last>
inline constexpr bool ends_with_options<Last> = std::is_same_v<Last, call_options>;
template <class First, class Second, class... A>
inline constexpr bool ends_with_options<First, Second, A...> = ends_with_options<Second, A...>;

/// @tparam Takes has `of<…>`: whether a form takes arguments of these types
template <class Takes, class... Options, class... A>
constexpr bool takes_with_rank(std::type_identity<std::tuple<A...>>) {
  return Takes::template of<A..., rank_t, Options...> || Takes::template of<A..., const op&, rank_t, Options...>;
}
/// Whether a form would take the arguments if there were a rank, too: behind them all, or before the options.
template <class Takes, class... A>
constexpr bool lacks_rank() {
  using given = std::tuple<A...>;
  constexpr std::size_t options = ends_with_options<A...> ? 1 : 0;
  return []<std::size_t... I>(std::index_sequence<I...>) {
    using before = std::type_identity<std::tuple<std::tuple_element_t<I, given>...>>;
    if constexpr (options == 1) return takes_with_rank<Takes, call_options>(before{});
    else return takes_with_rank<Takes>(before{});
  }
  (std::make_index_sequence<sizeof...(A) - options>());
}

/// Of a collective that reduces: what class reduction would come to.
template <class First = int, class... Others>
constexpr refusal refusal_to_reduce() {
  if constexpr (buffer<First>) {
    if (carried<First>.reduces == arithmetic::none) return refusal::no_reduction;
    if (carried<First>.width != 1 && (reduction_function<std::remove_cvref_t<Others>, item_of<First>> || ...))
      return refusal::no_function;
  }
  return refusal::none;
}

template <refusal Why, class Result, class... A>
Result refused() {
  if constexpr (Why == refusal::temporary) static_assert(never<A...>, TROUPE_SENTENCE_temporary);
  else if constexpr (Why == refusal::no_range) static_assert(never<A...>, TROUPE_SENTENCE_no_range);
  else if constexpr (Why == refusal::without_rank) static_assert(never<A...>, TROUPE_SENTENCE_without_rank);
  else static_assert(never<A...>, TROUPE_SENTENCE_no_form);
  return {};
}

/// For an exception specification, which is looked at before the compiler says what is wrong with an argument that has no type.
template <class First>
constexpr bool refused_in_braces() {
  static_assert(never<First>, TROUPE_SENTENCE_in_braces);
  return true;
}
/// The first argument of a call of which no form takes an argument without a type: a list in braces, or the name of several functions. Any form that
/// takes the call is a better match. Without this one the compiler would list them all.
struct anything {
  template <class First>
  anything(const First&) noexcept(refused_in_braces<First>());
};

}  // namespace troupe::detail
