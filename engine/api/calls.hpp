#pragma once
// What a caller writes down of an operation. One function per collective, so that its blocking, asynchronous and grouped forms
// on `communicator` share one description. n is the number of ranks; counts are in elements; buffers may be any contiguous range of
// an element type (std::span, std::vector, std::array, C array) or pointer + count + type.
//
// In place: out-of-place and in-place calls must not be mixed between ranks. One range (or equal pointers) for all_reduce,
// all_to_all, broadcast, reduce, scan and exscan; for all_gather, reduce_scatter, gather and scatter the smaller buffer is the rank's own block of the
// larger one. Any other overlap is errc::buffers_overlap.
//
// Ranks of one address space may read the same input. What an operation writes must overlap no other rank's buffer of the operation: peers
// read and write these buffers directly, at any time until it is done. Nobody checks that: the results would be undefined.

#include <concepts>
#include <cstddef>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/api/options.hpp"
#include "memory/error.hpp"
#include "memory/export.hpp"
#include "memory/types/types.hpp"
#include "protocols/call_description.hpp"

namespace troupe {

/// A contiguous range of elements, e.g. std::span<const float> or std::vector<troupe::bf16>.
template <class R>
concept buffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    element<std::remove_cv_t<std::ranges::range_value_t<R>>>;

template <buffer R>
inline constexpr datatype type_of = datatype_of<std::remove_cv_t<std::ranges::range_value_t<R>>>;

/// What an operation that outlives the call may be given: no range that ends with the call's expression and takes its memory along.
template <class A>
concept outlives_call = !buffer<A> || std::ranges::borrowed_range<A>;

/// Blocks of different sizes: elements of each rank's block, and where each begins (elements; empty: one behind the other).
/// A call has to name the type: comm.all_gather_v(in, out, troupe::block_list{counts}).
struct block_list {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displacements{};
};

namespace calls {

// -- whichever collective ---------------------------------------------------------------------------------------------

/// What the functions below are, each for one collective. An operation that it does not reduce with, and a root that it does not
/// have, are ignored.
TROUPE_API call_description any(collective what, const void* input, void* output, std::size_t count, datatype type,
                                const op& reduction, rank_t root, call_options options = {});
/// The v-form, from the sizes of all blocks (block_count() of them), of which `rank` says what it has to know.
call_description any_v(collective what, const void* input, void* output, std::span<const std::size_t> counts, int ranks,
                       rank_t rank, datatype type, const op& reduction, rank_t root, call_options options = {});

// -- all ranks, one block ---------------------------------------------------------------------------------------------

/// out[i] = in₀[i] ⊕ … ⊕ inₙ₋₁[i] at every rank. input, output: count elements.
inline call_description all_reduce(const void* input, void* output, std::size_t count, datatype type,
                                   const op& reduction = sum, call_options options = {}) {
  return any(collective::all_reduce, input, output, count, type, reduction, 0, std::move(options));
}
/// out[i] = in₀[i] ⊕ … ⊕ inᵣ[i] at rank r, combined in rank order where the operation or the determinism level asks for it, as
/// everywhere. average divides by r + 1.
inline call_description scan(const void* input, void* output, std::size_t count, datatype type,
                             const op& reduction = sum, call_options options = {}) {
  return any(collective::scan, input, output, count, type, reduction, 0, std::move(options));
}
/// The same without the rank's own input: in₀[i] ⊕ … ⊕ inᵣ₋₁[i]; average divides by r. Nothing comes before rank 0: its output is
/// never touched, and may be null unless the call is in place; in place its data stay as they are.
inline call_description exscan(const void* input, void* output, std::size_t count, datatype type,
                               const op& reduction = sum, call_options options = {}) {
  return any(collective::exscan, input, output, count, type, reduction, 0, std::move(options));
}
/// input: count elements at every rank; output: count at the root, ignored elsewhere (may be null).
inline call_description reduce(const void* input, void* output, std::size_t count, datatype type, const op& reduction,
                               rank_t root, call_options options = {}) {
  return any(collective::reduce, input, output, count, type, reduction, root, std::move(options));
}
/// data: count elements, read at the root, written elsewhere.
inline call_description broadcast(const void* input, void* output, std::size_t count, datatype type, rank_t root,
                                  call_options options = {}) {
  return any(collective::broadcast, input, output, count, type, sum, root, std::move(options));
}
inline call_description broadcast(void* data, std::size_t count, datatype type, rank_t root,
                                  call_options options = {}) {
  return broadcast(data, data, count, type, root, std::move(options));
}
/// Nobody leaves before everybody has come.
inline call_description barrier(call_options options = {}) {
  return any(collective::barrier, nullptr, nullptr, 0, datatype::u8, sum, 0, std::move(options));
}

// -- blocks of equal size (count = elements of one block) -------------------------------------------------------------

/// input: count; output: n·count, block r from rank r.
inline call_description all_gather(const void* input, void* output, std::size_t count, datatype type,
                                   call_options options = {}) {
  return any(collective::all_gather, input, output, count, type, sum, 0, std::move(options));
}
/// input: n·count; output: count, the reduction of all ranks' block of this rank.
inline call_description reduce_scatter(const void* input, void* output, std::size_t count, datatype type,
                                       const op& reduction = sum, call_options options = {}) {
  return any(collective::reduce_scatter, input, output, count, type, reduction, 0, std::move(options));
}
/// input: count; output at the root: n·count.
inline call_description gather(const void* input, void* output, std::size_t count, datatype type, rank_t root,
                               call_options options = {}) {
  return any(collective::gather, input, output, count, type, sum, root, std::move(options));
}
/// input at the root: n·count; output: count.
inline call_description scatter(const void* input, void* output, std::size_t count, datatype type, rank_t root,
                                call_options options = {}) {
  return any(collective::scatter, input, output, count, type, sum, root, std::move(options));
}
/// input, output: n·count; block j of rank i becomes block i of rank j.
inline call_description all_to_all(const void* input, void* output, std::size_t count, datatype type,
                                   call_options options = {}) {
  return any(collective::all_to_all, input, output, count, type, sum, 0, std::move(options));
}

// -- blocks of different sizes ----------------------------------------------------------------------------------------

/// blocks.counts[r]: elements from rank r, the same list at every rank.
TROUPE_API call_description all_gather_v(const void* input, void* output, block_list blocks, datatype type,
                                         call_options options = {});
/// blocks.counts[r]: elements that rank r keeps, the same list at every rank.
TROUPE_API call_description reduce_scatter_v(const void* input, void* output, block_list blocks, datatype type,
                                             const op& reduction = sum, call_options options = {});
/// `count`: elements of this rank; `blocks`: of all ranks, needed at the root only (elsewhere empty, or the same list).
TROUPE_API call_description gather_v(const void* input, std::size_t count, void* output, block_list blocks,
                                     datatype type, rank_t root, call_options options = {});
TROUPE_API call_description scatter_v(const void* input, block_list blocks, void* output, std::size_t count,
                                      datatype type, rank_t root, call_options options = {});
/// send.counts[j] elements go to rank j, receive.counts[i] come from rank i.
TROUPE_API call_description all_to_all_v(const void* input, block_list send, void* output, block_list receive,
                                         datatype type, call_options options = {});

// -- pairs ------------------------------------------------------------------------------------------------------------

/// Matched with the recv of the same position in the order of this pair's calls.
TROUPE_API call_description send(const void* data, std::size_t count, datatype type, rank_t to,
                                 call_options options = {});
TROUPE_API call_description recv(void* data, std::size_t count, datatype type, rank_t from, call_options options = {});

// -- the same on ranges -----------------------------------------------------------------------------------------------

namespace detail {
template <class A, class B>
concept same_elements = buffer<A> && buffer<B> && type_of<A>
== type_of<B>;
TROUPE_API void require(bool condition, const char* sentence, std::size_t a, std::size_t b);
}  // namespace detail

/// In place.
template <buffer B>
call_description all_reduce(B&& data, const op& reduction = sum, call_options options = {}) {
  return all_reduce(std::ranges::data(data), std::ranges::data(data), std::ranges::size(data), type_of<B>, reduction,
                    options);
}
template <class I, class O>
  requires detail::same_elements<I, O> call_description all_reduce(I&& in, O&& out, const op& reduction = sum,
                                                                   call_options options = {}) {
    detail::require(std::ranges::size(in) == std::ranges::size(out),
                    "all_reduce: input and output must have the same size, not %zu and %zu", std::ranges::size(in),
                    std::ranges::size(out));
    return all_reduce(std::ranges::data(in), std::ranges::data(out), std::ranges::size(in), type_of<I>, reduction,
                      options);
  }
template <buffer B>
call_description scan(B&& data, const op& reduction = sum, call_options options = {}) {
  return scan(std::ranges::data(data), std::ranges::data(data), std::ranges::size(data), type_of<B>, reduction,
              options);
}
template <class I, class O>
  requires detail::same_elements<I, O> call_description scan(I&& in, O&& out, const op& reduction = sum,
                                                             call_options options = {}) {
    auto d = scan(std::ranges::data(in), std::ranges::data(out), std::ranges::size(in), type_of<I>, reduction, options);
    d.output_limit = std::ranges::size(out);
    return d;
  }
template <buffer B>
call_description exscan(B&& data, const op& reduction = sum, call_options options = {}) {
  return exscan(std::ranges::data(data), std::ranges::data(data), std::ranges::size(data), type_of<B>, reduction,
                options);
}
/// `out` may be empty at rank 0.
template <class I, class O>
  requires detail::same_elements<I, O> call_description exscan(I&& in, O&& out, const op& reduction = sum,
                                                               call_options options = {}) {
    auto d =
        exscan(std::ranges::data(in), std::ranges::data(out), std::ranges::size(in), type_of<I>, reduction, options);
    d.output_limit = std::ranges::size(out);
    return d;
  }
template <buffer B>
call_description reduce(B&& data, const op& reduction, rank_t root, call_options options = {}) {
  return reduce(std::ranges::data(data), std::ranges::data(data), std::ranges::size(data), type_of<B>, reduction, root,
                options);
}
/// `out` may be empty at ranks other than the root.
template <class I, class O>
  requires detail::same_elements<I, O> call_description reduce(I&& in, O&& out, const op& reduction, rank_t root,
                                                               call_options options = {}) {
    auto d = reduce(std::ranges::data(in), std::ranges::data(out), std::ranges::size(in), type_of<I>, reduction, root,
                    options);
    d.output_limit = std::ranges::size(out);
    return d;
  }
template <buffer B>
call_description broadcast(B&& data, rank_t root, call_options options = {}) {
  return broadcast(std::ranges::data(data), std::ranges::size(data), type_of<B>, root, options);
}
/// `in` is read at the root only, and may be empty elsewhere; `out` is written everywhere, and its size is the count. At the root both
/// may be one range.
template <class I, class O>
  requires detail::same_elements<I, O> call_description broadcast(I&& in, O&& out, rank_t root,
                                                                  call_options options = {}) {
    auto d =
        broadcast(std::ranges::data(in), std::ranges::data(out), std::ranges::size(out), type_of<O>, root, options);
    d.input_limit = std::ranges::size(in);
    return d;
  }
/// Sizes: out = n·in.
template <class I, class O>
  requires detail::same_elements<I, O> call_description all_gather(I&& in, O&& out, call_options options = {}) {
    auto d = all_gather(std::ranges::data(in), std::ranges::data(out), std::ranges::size(in), type_of<I>, options);
    d.output_limit = std::ranges::size(out);
    return d;
  }
/// Sizes: in = n·out.
template <class I, class O>
  requires detail::same_elements<I, O> call_description reduce_scatter(I&& in, O&& out, const op& reduction = sum,
                                                                       call_options options = {}) {
    auto d = reduce_scatter(std::ranges::data(in), std::ranges::data(out), std::ranges::size(out), type_of<I>,
                            reduction, options);
    d.input_limit = std::ranges::size(in);
    return d;
  }
template <class I, class O>
  requires detail::same_elements<I, O> call_description gather(I&& in, O&& out, rank_t root,
                                                               call_options options = {}) {
    auto d = gather(std::ranges::data(in), std::ranges::data(out), std::ranges::size(in), type_of<I>, root, options);
    d.output_limit = std::ranges::size(out);
    return d;
  }
template <class I, class O>
  requires detail::same_elements<I, O> call_description scatter(I&& in, O&& out, rank_t root,
                                                                call_options options = {}) {
    auto d = scatter(std::ranges::data(in), std::ranges::data(out), std::ranges::size(out), type_of<I>, root, options);
    d.input_limit = std::ranges::size(in);
    return d;
  }
/// Sizes: both n·count. Sizes that n does not divide are errc::invalid_argument.
template <class I, class O>
  requires detail::same_elements<I, O> call_description all_to_all(I&& in, O&& out, call_options options = {}) {
    auto d = all_to_all(std::ranges::data(in), std::ranges::data(out), 0, type_of<I>, options);
    d.input_limit = std::ranges::size(in);
    d.output_limit = std::ranges::size(out);
    return d;
  }
template <class I, class O>
  requires detail::same_elements<I, O> call_description all_gather_v(I&& in, O&& out, block_list blocks,
                                                                     call_options options = {}) {
    auto d = all_gather_v(std::ranges::data(in), std::ranges::data(out), std::move(blocks), type_of<I>, options);
    d.input_limit = std::ranges::size(in);
    d.output_limit = std::ranges::size(out);
    return d;
  }
template <class I, class O>
  requires detail::same_elements<I, O> call_description reduce_scatter_v(I&& in, O&& out, block_list blocks,
                                                                         const op& reduction = sum,
                                                                         call_options options = {}) {
    auto d = reduce_scatter_v(std::ranges::data(in), std::ranges::data(out), std::move(blocks), type_of<I>, reduction,
                              options);
    d.input_limit = std::ranges::size(in);
    d.output_limit = std::ranges::size(out);
    return d;
  }
template <class I, class O>
  requires detail::same_elements<I, O> call_description all_to_all_v(I&& in, block_list send, O&& out,
                                                                     block_list receive, call_options options = {}) {
    auto d = all_to_all_v(std::ranges::data(in), std::move(send), std::ranges::data(out), std::move(receive),
                          type_of<I>, options);
    d.input_limit = std::ranges::size(in);
    d.output_limit = std::ranges::size(out);
    return d;
  }
template <class I, class O>
  requires detail::same_elements<I, O> call_description gather_v(I&& in, O&& out, block_list blocks, rank_t root,
                                                                 call_options options = {}) {
    auto d = gather_v(std::ranges::data(in), std::ranges::size(in), std::ranges::data(out), std::move(blocks),
                      type_of<I>, root, options);
    d.output_limit = std::ranges::size(out);
    return d;
  }
template <class I, class O>
  requires detail::same_elements<I, O> call_description scatter_v(I&& in, block_list blocks, O&& out, rank_t root,
                                                                  call_options options = {}) {
    auto d = scatter_v(std::ranges::data(in), std::move(blocks), std::ranges::data(out), std::ranges::size(out),
                       type_of<I>, root, options);
    d.input_limit = std::ranges::size(in);
    return d;
  }
template <buffer B>
call_description send(B&& data, rank_t to, call_options options = {}) {
  return send(std::ranges::data(data), std::ranges::size(data), type_of<B>, to, options);
}
template <buffer B>
call_description recv(B&& data, rank_t from, call_options options = {}) {
  return recv(std::ranges::data(data), std::ranges::size(data), type_of<B>, from, options);
}

}  // namespace calls
}  // namespace troupe
