// SPDX-License-Identifier: Apache-2.0
#include "engine/api/calls.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "memory/word_hash.hpp"

namespace troupe::detail {

std::uint64_t type_mark_of(std::string_view type_name) noexcept {
  word_hash h;
  h.add(type_name);
  return std::max<std::uint64_t>(h.state, 1);
}

void refuse_null_function() {
  throw error(errc::invalid_argument, "the function that reduces is null; pass one, or an operation such as sum");
}

void require_reduces(arithmetic reduces, const op& with) {
  const auto any_of = [&](std::initializer_list<op_kind> kinds) {
    return std::find(kinds.begin(), kinds.end(), with.kind) != kinds.end();
  };
  using enum op_kind;
  const auto refuse = [&](const char* objects, const char* kinds) {
    throw error(errc::unsupported, std::string{objects} + " cannot be reduced with " + std::string{name(with.kind)} +
                                       ", only with " + kinds);
  };
  if (reduces == arithmetic::bits && !any_of({band, bor, bxor, user})) refuse("std::byte", "band, bor and bxor");
  if (reduces == arithmetic::logic && !any_of({land, lor, band, bor, bxor, min, max, prod, user}))
    refuse("bool", "land, lor, band, bor, bxor, minimum, maximum and prod");
  if (reduces == arithmetic::componentwise && !any_of({sum, avg, pre_mul_sum}))
    refuse("std::complex of a type other than float and double", "sum, average and pre_mul_sum");
}

block_list in_elements(block_list objects, std::size_t width) {
  for (auto* list : {&objects.counts, &objects.displacements})
    for (std::size_t& n : *list)
      if (__builtin_mul_overflow(n, width, &n))
        throw error(errc::size_overflow, "a block of that many objects exceeds the address space");
  return objects;
}

}  // namespace troupe::detail

namespace troupe::calls {

plain_v_call any_v(collective what, const void* input, void* output, std::span<const std::size_t> counts, int ranks,
                   rank_t rank, datatype type, const op& reduction, rank_t root, call_options options) {
  const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank);
  std::vector<std::size_t> known{counts.begin(), counts.end()}, received;
  const v_counts knows = traits_of(what).v;
  if (knows == v_counts::rooted && rank != root) known = {counts[me]};
  if (knows == v_counts::every_pair) {
    known.assign(counts.begin() + static_cast<std::ptrdiff_t>(me * n),
                 counts.begin() + static_cast<std::ptrdiff_t>(me * n + n));
    for (std::size_t r = 0; r < n; ++r) received.push_back(counts[r * n + me]);
  }
  return {any(what, input, output, 0, type, reduction, root, std::move(options)), known, received, {}, {}};
}

plain_v_call all_gather_v(const void* input, void* output, const block_list& blocks, datatype type,
                          call_options options) {
  return {any(collective::all_gather, input, output, 0, type, sum, 0, std::move(options)),
          blocks.counts,
          {},
          {},
          blocks.displacements};
}

plain_v_call reduce_scatter_v(const void* input, void* output, const block_list& blocks, datatype type,
                              const op& reduction, call_options options) {
  return {any(collective::reduce_scatter, input, output, 0, type, reduction, 0, std::move(options)),
          blocks.counts,
          {},
          blocks.displacements,
          {}};
}

namespace {
/// A rank that is not the root need not know more.
size_list counts_or_own(const block_list& blocks, std::size_t count) {
  return blocks.counts.empty() ? size_list{count} : size_list{blocks.counts};
}
}  // namespace

plain_v_call gather_v(const void* input, std::size_t count, void* output, const block_list& blocks, datatype type,
                      rank_t root, call_options options) {
  plain_v_call c{any(collective::gather, input, output, 0, type, sum, root, std::move(options)),
                 counts_or_own(blocks, count),
                 {},
                 {},
                 blocks.displacements};
  c.words.input_limit = count;
  return c;
}

plain_v_call scatter_v(const void* input, const block_list& blocks, void* output, std::size_t count, datatype type,
                       rank_t root, call_options options) {
  plain_v_call c{any(collective::scatter, input, output, 0, type, sum, root, std::move(options)),
                 counts_or_own(blocks, count),
                 {},
                 blocks.displacements,
                 {}};
  c.words.output_limit = count;
  return c;
}

plain_v_call all_to_all_v(const void* input, const block_list& send, void* output, const block_list& receive,
                          datatype type, call_options options) {
  return {any(collective::all_to_all, input, output, 0, type, sum, 0, std::move(options)), send.counts, receive.counts,
          send.displacements, receive.displacements};
}

call_description send(const void* data, std::size_t count, datatype type, rank_t to, call_options options) {
  call_description d = any(collective::broadcast, data, nullptr, count, type, sum, 0, std::move(options));
  d.pair = true;
  d.peer = to;
  d.sending = true;
  return d;
}

call_description recv(void* data, std::size_t count, datatype type, rank_t from, call_options options) {
  call_description d = any(collective::broadcast, nullptr, data, count, type, sum, 0, std::move(options));
  d.pair = true;
  d.peer = from;
  return d;
}

}  // namespace troupe::calls
