// SPDX-License-Identifier: Apache-2.0
#pragma once
// The calls of calls.hpp on what holds its elements itself: ranges and single objects (arguments.hpp). Sizes and counts
// are in objects; the sentences of errors count the elements that those travel as.

#include <cstddef>
#include <utility>

#include "engine/api/arguments.hpp"
#include "engine/api/calls.hpp"
#include "engine/api/options.hpp"
#include "memory/export.hpp"

namespace troupe {

/// Holds the objects that I holds, and is written.
template <class O, class I>
concept output_for = output_buffer<O> && same_objects<O, I>;

namespace detail {

/// Counts of objects as counts of elements. Throws errc::size_overflow.
TROUPE_API block_list in_elements(block_list objects, std::size_t width);
template <buffer B>
decltype(auto) blocks_of(const block_list& objects) {
  if constexpr (carried<B>.width == 1) return (objects);
  else return in_elements(objects, carried<B>.width);
}

}  // namespace detail

namespace calls {

using troupe::detail::blocks_of;
using troupe::detail::data_of;
using troupe::detail::size_of_buffer;

/// In place.
template <output_buffer B>
plain_call all_reduce(B&& data, const reduction<item_of<B>>& with = sum, call_options options = {}) {
  return all_reduce(data_of(data), data_of(data), size_of_buffer(data), type_of<B>, with.what(), std::move(options));
}
template <output_buffer B>
plain_call all_reduce(B&& data, call_options options) {
  return all_reduce(data, sum, std::move(options));
}
/// Sizes: equal.
template <buffer I, output_for<I> O>
plain_call all_reduce(I&& in, O&& out, const reduction<item_of<I>>& with = sum, call_options options = {}) {
  auto d = all_reduce(data_of(in), data_of(out), size_of_buffer(in), type_of<I>, with.what(), std::move(options));
  d.input_limit = size_of_buffer(in);
  d.output_limit = size_of_buffer(out);
  return d;
}
template <buffer I, output_for<I> O>
plain_call all_reduce(I&& in, O&& out, call_options options) {
  return all_reduce(in, out, sum, std::move(options));
}
template <output_buffer B>
plain_call scan(B&& data, const reduction<item_of<B>>& with = sum, call_options options = {}) {
  return scan(data_of(data), data_of(data), size_of_buffer(data), type_of<B>, with.what(), std::move(options));
}
template <output_buffer B>
plain_call scan(B&& data, call_options options) {
  return scan(data, sum, std::move(options));
}
template <buffer I, output_for<I> O>
plain_call scan(I&& in, O&& out, const reduction<item_of<I>>& with = sum, call_options options = {}) {
  auto d = scan(data_of(in), data_of(out), size_of_buffer(in), type_of<I>, with.what(), std::move(options));
  d.output_limit = size_of_buffer(out);
  return d;
}
template <buffer I, output_for<I> O>
plain_call scan(I&& in, O&& out, call_options options) {
  return scan(in, out, sum, std::move(options));
}
template <output_buffer B>
plain_call exscan(B&& data, const reduction<item_of<B>>& with = sum, call_options options = {}) {
  return exscan(data_of(data), data_of(data), size_of_buffer(data), type_of<B>, with.what(), std::move(options));
}
template <output_buffer B>
plain_call exscan(B&& data, call_options options) {
  return exscan(data, sum, std::move(options));
}
/// `out` may be empty at rank 0.
template <buffer I, output_for<I> O>
plain_call exscan(I&& in, O&& out, const reduction<item_of<I>>& with = sum, call_options options = {}) {
  auto d = exscan(data_of(in), data_of(out), size_of_buffer(in), type_of<I>, with.what(), std::move(options));
  d.output_limit = size_of_buffer(out);
  return d;
}
template <buffer I, output_for<I> O>
plain_call exscan(I&& in, O&& out, call_options options) {
  return exscan(in, out, sum, std::move(options));
}
template <output_buffer B>
plain_call reduce(B&& data, const reduction<item_of<B>>& with, rank_t root, call_options options = {}) {
  return reduce(data_of(data), data_of(data), size_of_buffer(data), type_of<B>, with.what(), root, std::move(options));
}
/// `out` may be empty at ranks other than the root.
template <buffer I, output_for<I> O>
plain_call reduce(I&& in, O&& out, const reduction<item_of<I>>& with, rank_t root, call_options options = {}) {
  auto d = reduce(data_of(in), data_of(out), size_of_buffer(in), type_of<I>, with.what(), root, std::move(options));
  d.output_limit = size_of_buffer(out);
  return d;
}
template <output_buffer B>
plain_call broadcast(B&& data, rank_t root, call_options options = {}) {
  return broadcast(data_of(data), size_of_buffer(data), type_of<B>, root, std::move(options));
}
/// `in` is read at the root only, and may be empty elsewhere; `out` is written everywhere, and its size is the count. At the root both
/// may be one range.
template <buffer I, output_for<I> O>
plain_call broadcast(I&& in, O&& out, rank_t root, call_options options = {}) {
  auto d = broadcast(data_of(in), data_of(out), size_of_buffer(out), type_of<O>, root, std::move(options));
  d.input_limit = size_of_buffer(in);
  return d;
}
/// Sizes: out = n·in.
template <buffer I, output_for<I> O>
plain_call all_gather(I&& in, O&& out, call_options options = {}) {
  auto d = all_gather(data_of(in), data_of(out), size_of_buffer(in), type_of<I>, std::move(options));
  d.output_limit = size_of_buffer(out);
  return d;
}
/// Sizes: in = n·out.
template <buffer I, output_for<I> O>
plain_call reduce_scatter(I&& in, O&& out, const reduction<item_of<I>>& with = sum, call_options options = {}) {
  auto d = reduce_scatter(data_of(in), data_of(out), size_of_buffer(out), type_of<I>, with.what(), std::move(options));
  d.input_limit = size_of_buffer(in);
  return d;
}
template <buffer I, output_for<I> O>
plain_call reduce_scatter(I&& in, O&& out, call_options options) {
  return reduce_scatter(in, out, sum, std::move(options));
}
template <buffer I, output_for<I> O>
plain_call gather(I&& in, O&& out, rank_t root, call_options options = {}) {
  auto d = gather(data_of(in), data_of(out), size_of_buffer(in), type_of<I>, root, std::move(options));
  d.output_limit = size_of_buffer(out);
  return d;
}
template <buffer I, output_for<I> O>
plain_call scatter(I&& in, O&& out, rank_t root, call_options options = {}) {
  auto d = scatter(data_of(in), data_of(out), size_of_buffer(out), type_of<I>, root, std::move(options));
  d.input_limit = size_of_buffer(in);
  return d;
}
/// Sizes: both n·count. Sizes that n does not divide are errc::invalid_argument.
template <buffer I, output_for<I> O>
plain_call all_to_all(I&& in, O&& out, call_options options = {}) {
  auto d = all_to_all(data_of(in), data_of(out), 0, type_of<I>, std::move(options));
  d.input_limit = size_of_buffer(in);
  d.output_limit = size_of_buffer(out);
  d.object_elements = troupe::detail::carried<I>.width;
  return d;
}
template <buffer I, output_for<I> O>
plain_v_call all_gather_v(I&& in, O&& out, const block_list& blocks, call_options options = {}) {
  auto d = all_gather_v(data_of(in), data_of(out), blocks_of<I>(blocks), type_of<I>, std::move(options));
  d.words.input_limit = size_of_buffer(in);
  d.words.output_limit = size_of_buffer(out);
  return d;
}
template <buffer I, output_for<I> O>
plain_v_call reduce_scatter_v(I&& in, O&& out, const block_list& blocks, const reduction<item_of<I>>& with = sum,
                              call_options options = {}) {
  auto d =
      reduce_scatter_v(data_of(in), data_of(out), blocks_of<I>(blocks), type_of<I>, with.what(), std::move(options));
  d.words.input_limit = size_of_buffer(in);
  d.words.output_limit = size_of_buffer(out);
  return d;
}
template <buffer I, output_for<I> O>
plain_v_call all_to_all_v(I&& in, const block_list& send, O&& out, const block_list& receive,
                          call_options options = {}) {
  auto d = all_to_all_v(data_of(in), blocks_of<I>(send), data_of(out), blocks_of<I>(receive), type_of<I>,
                        std::move(options));
  d.words.input_limit = size_of_buffer(in);
  d.words.output_limit = size_of_buffer(out);
  return d;
}
template <buffer I, output_for<I> O>
plain_v_call gather_v(I&& in, O&& out, const block_list& blocks, rank_t root, call_options options = {}) {
  auto d = gather_v(data_of(in), size_of_buffer(in), data_of(out), blocks_of<I>(blocks), type_of<I>, root,
                    std::move(options));
  d.words.output_limit = size_of_buffer(out);
  return d;
}
template <buffer I, output_for<I> O>
plain_v_call scatter_v(I&& in, const block_list& blocks, O&& out, rank_t root, call_options options = {}) {
  auto d = scatter_v(data_of(in), blocks_of<I>(blocks), data_of(out), size_of_buffer(out), type_of<I>, root,
                     std::move(options));
  d.words.input_limit = size_of_buffer(in);
  return d;
}
template <buffer B>
call_description send(B&& data, rank_t to, call_options options = {}) {
  return send(data_of(data), size_of_buffer(data), type_of<B>, to, std::move(options));
}
template <output_buffer B>
call_description recv(B&& data, rank_t from, call_options options = {}) {
  return recv(data_of(data), size_of_buffer(data), type_of<B>, from, std::move(options));
}

}  // namespace calls
}  // namespace troupe
