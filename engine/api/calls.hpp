// SPDX-License-Identifier: Apache-2.0
#pragma once
// The descriptions that callers write of operations. One function per collective, so that its blocking, asynchronous and grouped forms
// on `communicator` share one description. n is the number of ranks; counts are in elements; buffers may be any contiguous range of
// an element type (std::span, std::vector, std::array, C array) or pointer + count + type.
//
// In place: out-of-place and in-place calls must not be mixed between ranks. One range (or equal pointers) for all_reduce,
// all_to_all, broadcast, reduce, scan and exscan; for all_gather, reduce_scatter, gather and scatter the smaller buffer is the rank's own block of the
// larger one. Any other overlap is errc::buffers_overlap.
//
// Ranks of one address space may read the same input. An output must overlap no other rank's buffer of the operation: peers
// read and write these buffers directly, at any time until it is done. Nobody checks that: the results would be undefined.

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "engine/api/arguments.hpp"
#include "engine/api/options.hpp"
#include "memory/error.hpp"
#include "memory/export.hpp"
#include "memory/types/types.hpp"
#include "protocols/call_description.hpp"

namespace troupe {

/// Blocks of different sizes: elements (of ranges: objects) of each rank's block, and where each begins (the same; empty: one behind
/// the other).
/// A call has to name the type: comm.all_gather_v(in, out, troupe::block_list{counts}).
struct block_list {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displacements{};
};

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

// -- whichever collective ---------------------------------------------------------------------------------------------

/// The general form of the functions below, each for one collective. An operation that it does not reduce with, and a root that it does not
/// have, are ignored. Throws error(invalid_argument) if `what` is no enumerator.
inline plain_call any(collective what, const void* input, void* output, std::size_t count, datatype type,
                      const op& reduction, rank_t root, call_options&& options) {
  if (static_cast<std::size_t>(what) >= collective_count) bad_collective(what);
  plain_call c;
  c.what = what;
  c.type = type;
  c.root = root;
  c.input = input;
  c.output = output;
  c.count = count;
  if (is_reduction(what)) c.reduction = reduction;
  // Most calls have none. Fields that were written a moment ago one by one are only looked at one by one: a move would read several at once, which
  // waits for all of them.
  if (options.any()) c.options = std::move(options);
  return c;
}
inline plain_call any(collective what, const void* input, void* output, std::size_t count, datatype type,
                      const op& reduction, rank_t root, const call_options& options = {}) {
  return any(what, input, output, count, type, reduction, root, call_options{options});
}
/// The v-form, from the sizes of all blocks (block_count() of them), of which `rank` says what it has to know.
plain_v_call any_v(collective what, const void* input, void* output, std::span<const std::size_t> counts, int ranks,
                   rank_t rank, datatype type, const op& reduction, rank_t root, call_options options = {});

// -- all ranks, one block ---------------------------------------------------------------------------------------------

/// out[i] = in₀[i] ⊕ … ⊕ inₙ₋₁[i] at every rank. input, output: count elements.
inline plain_call all_reduce(const void* input, void* output, std::size_t count, datatype type,
                             const op& reduction = sum, call_options options = {}) {
  return any(collective::all_reduce, input, output, count, type, reduction, 0, std::move(options));
}
/// out[i] = in₀[i] ⊕ … ⊕ inᵣ[i] at rank r, combined in rank order where the operation or the determinism level asks for it, as
/// everywhere. average divides by r + 1.
inline plain_call scan(const void* input, void* output, std::size_t count, datatype type, const op& reduction = sum,
                       call_options options = {}) {
  return any(collective::scan, input, output, count, type, reduction, 0, std::move(options));
}
/// The same without the rank's own input: in₀[i] ⊕ … ⊕ inᵣ₋₁[i]; average divides by r. Nothing comes before rank 0: its output is
/// never touched, and may be null unless the call is in place; in place its data stay as they are.
inline plain_call exscan(const void* input, void* output, std::size_t count, datatype type, const op& reduction = sum,
                         call_options options = {}) {
  return any(collective::exscan, input, output, count, type, reduction, 0, std::move(options));
}
/// input: count elements at every rank; output: count at the root, ignored elsewhere (may be null).
inline plain_call reduce(const void* input, void* output, std::size_t count, datatype type, const op& reduction,
                         rank_t root, call_options options = {}) {
  return any(collective::reduce, input, output, count, type, reduction, root, std::move(options));
}
/// data: count elements, read at the root, written elsewhere.
inline plain_call broadcast(const void* input, void* output, std::size_t count, datatype type, rank_t root,
                            call_options options = {}) {
  return any(collective::broadcast, input, output, count, type, sum, root, std::move(options));
}
inline plain_call broadcast(void* data, std::size_t count, datatype type, rank_t root, call_options options = {}) {
  return broadcast(data, data, count, type, root, std::move(options));
}
/// Nobody leaves before everybody has come.
inline plain_call barrier(call_options options = {}) {
  return any(collective::barrier, nullptr, nullptr, 0, datatype::u8, sum, 0, std::move(options));
}

// -- blocks of equal size (count = elements of one block) -------------------------------------------------------------

/// input: count; output: n·count, block r from rank r.
inline plain_call all_gather(const void* input, void* output, std::size_t count, datatype type,
                             call_options options = {}) {
  return any(collective::all_gather, input, output, count, type, sum, 0, std::move(options));
}
/// input: n·count; output: count, the reduction of all ranks' block of this rank.
inline plain_call reduce_scatter(const void* input, void* output, std::size_t count, datatype type,
                                 const op& reduction = sum, call_options options = {}) {
  return any(collective::reduce_scatter, input, output, count, type, reduction, 0, std::move(options));
}
/// input: count; output at the root: n·count.
inline plain_call gather(const void* input, void* output, std::size_t count, datatype type, rank_t root,
                         call_options options = {}) {
  return any(collective::gather, input, output, count, type, sum, root, std::move(options));
}
/// input at the root: n·count; output: count.
inline plain_call scatter(const void* input, void* output, std::size_t count, datatype type, rank_t root,
                          call_options options = {}) {
  return any(collective::scatter, input, output, count, type, sum, root, std::move(options));
}
/// input, output: n·count; block j of rank i becomes block i of rank j.
inline plain_call all_to_all(const void* input, void* output, std::size_t count, datatype type,
                             call_options options = {}) {
  return any(collective::all_to_all, input, output, count, type, sum, 0, std::move(options));
}

// -- blocks of different sizes ----------------------------------------------------------------------------------------

/// blocks.counts[r]: elements from rank r, the same list at every rank. In place where input is the rank's own block of output; a rank
/// whose block is empty may give any pointer.
TROUPE_API plain_v_call all_gather_v(const void* input, void* output, const block_list& blocks, datatype type,
                                     call_options options = {});
/// blocks.counts[r]: elements that rank r keeps, the same list at every rank. In place where output is the rank's own block of input.
TROUPE_API plain_v_call reduce_scatter_v(const void* input, void* output, const block_list& blocks, datatype type,
                                         const op& reduction = sum, call_options options = {});
/// `count`: elements of this rank; `blocks`: of all ranks, needed at the root only (elsewhere empty, or the same list).
TROUPE_API plain_v_call gather_v(const void* input, std::size_t count, void* output, const block_list& blocks,
                                 datatype type, rank_t root, call_options options = {});
TROUPE_API plain_v_call scatter_v(const void* input, const block_list& blocks, void* output, std::size_t count,
                                  datatype type, rank_t root, call_options options = {});
/// send.counts[j] elements go to rank j, receive.counts[i] come from rank i.
TROUPE_API plain_v_call all_to_all_v(const void* input, const block_list& send, void* output, const block_list& receive,
                                     datatype type, call_options options = {});

// -- pairs ------------------------------------------------------------------------------------------------------------

/// Matched with the recv of the same tag (call_options) and position in the order of the calls of this pair with this tag, of which there may be 2⁴⁷. `proc_null`: done at once.
TROUPE_API call_description send(const void* data, std::size_t count, datatype type, rank_t to,
                                 call_options options = {});
TROUPE_API call_description recv(void* data, std::size_t count, datatype type, rank_t from, call_options options = {});

// -- the same of ranges and single objects -------------------------------------------------------------------------------
//
// The same calls for arguments that hold their elements themselves (arguments.hpp). Sizes and counts are in objects; the sentences of errors count the elements that those
// travel as.

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
