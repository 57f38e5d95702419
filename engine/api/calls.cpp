#include "engine/api/calls.hpp"

#include <cstdio>

namespace troupe::calls {

namespace {

call_description describe(collective what, const void* input, void* output, std::size_t count, datatype type,
                          call_options&& options) {
  call_description d;
  d.what.what = what;
  d.what.type = type;
  d.what.count = count;
  d.input = input;
  d.output = output;
  d.options = std::move(options);
  return d;
}

call_description reducing(call_description d, const op& reduction) {
  d.what.reduction = reduction;
  return d;
}

call_description rooted(call_description d, rank_t root) {
  d.what.root = root;
  return d;
}

call_description with_blocks(call_description d, std::vector<std::size_t> counts) {
  d.what.uniform = false;
  d.what.counts = std::move(counts);
  return d;
}

}  // namespace

namespace detail {
void require(bool condition, const char* sentence, std::size_t a, std::size_t b) {
  if (condition) return;
  char text[256];
  std::snprintf(text, sizeof text, sentence, a, b);
  throw error(errc::invalid_argument, text);
}
}  // namespace detail

call_description all_reduce(const void* input, void* output, std::size_t count, datatype type, const op& reduction,
                            call_options options) {
  return reducing(describe(collective::all_reduce, input, output, count, type, std::move(options)), reduction);
}

call_description reduce(const void* input, void* output, std::size_t count, datatype type, const op& reduction,
                        rank_t root, call_options options) {
  return rooted(reducing(describe(collective::reduce, input, output, count, type, std::move(options)), reduction),
                root);
}

call_description broadcast(void* data, std::size_t count, datatype type, rank_t root, call_options options) {
  return rooted(describe(collective::broadcast, data, data, count, type, std::move(options)), root);
}

call_description broadcast(const void* input, void* output, std::size_t count, datatype type, rank_t root,
                           call_options options) {
  return rooted(describe(collective::broadcast, input, output, count, type, std::move(options)), root);
}

call_description barrier(call_options options) {
  return describe(collective::barrier, nullptr, nullptr, 0, datatype::u8, std::move(options));
}

call_description all_gather(const void* input, void* output, std::size_t count, datatype type, call_options options) {
  return describe(collective::all_gather, input, output, count, type, std::move(options));
}

call_description reduce_scatter(const void* input, void* output, std::size_t count, datatype type, const op& reduction,
                                call_options options) {
  return reducing(describe(collective::reduce_scatter, input, output, count, type, std::move(options)), reduction);
}

call_description gather(const void* input, void* output, std::size_t count, datatype type, rank_t root,
                        call_options options) {
  return rooted(describe(collective::gather, input, output, count, type, std::move(options)), root);
}

call_description scatter(const void* input, void* output, std::size_t count, datatype type, rank_t root,
                         call_options options) {
  return rooted(describe(collective::scatter, input, output, count, type, std::move(options)), root);
}

call_description all_to_all(const void* input, void* output, std::size_t count, datatype type, call_options options) {
  return describe(collective::all_to_all, input, output, count, type, std::move(options));
}

call_description all_gather_v(const void* input, void* output, block_list blocks, datatype type, call_options options) {
  auto d = with_blocks(describe(collective::all_gather, input, output, 0, type, std::move(options)),
                       std::move(blocks.counts));
  d.output_displacements = std::move(blocks.displacements);
  return d;
}

call_description reduce_scatter_v(const void* input, void* output, block_list blocks, datatype type,
                                  const op& reduction, call_options options) {
  auto d = with_blocks(describe(collective::reduce_scatter, input, output, 0, type, std::move(options)),
                       std::move(blocks.counts));
  d.input_displacements = std::move(blocks.displacements);
  return reducing(std::move(d), reduction);
}

call_description gather_v(const void* input, std::size_t count, void* output, block_list blocks, datatype type,
                          rank_t root, call_options options) {
  if (blocks.counts.empty()) blocks.counts = {count};
  auto d =
      with_blocks(describe(collective::gather, input, output, 0, type, std::move(options)), std::move(blocks.counts));
  d.input_limit = count;
  d.output_displacements = std::move(blocks.displacements);
  return rooted(std::move(d), root);
}

call_description scatter_v(const void* input, block_list blocks, void* output, std::size_t count, datatype type,
                           rank_t root, call_options options) {
  if (blocks.counts.empty()) blocks.counts = {count};
  auto d =
      with_blocks(describe(collective::scatter, input, output, 0, type, std::move(options)), std::move(blocks.counts));
  d.output_limit = count;
  d.input_displacements = std::move(blocks.displacements);
  return rooted(std::move(d), root);
}

call_description all_to_all_v(const void* input, block_list send, void* output, block_list receive, datatype type,
                              call_options options) {
  auto d =
      with_blocks(describe(collective::all_to_all, input, output, 0, type, std::move(options)), std::move(send.counts));
  d.what.receive_counts = std::move(receive.counts);
  d.input_displacements = std::move(send.displacements);
  d.output_displacements = std::move(receive.displacements);
  return d;
}

call_description send(const void* data, std::size_t count, datatype type, rank_t to, call_options options) {
  auto d = describe(collective::broadcast, data, nullptr, count, type, std::move(options));
  d.pair = true;
  d.peer = to;
  d.sending = true;
  return d;
}

call_description recv(void* data, std::size_t count, datatype type, rank_t from, call_options options) {
  auto d = describe(collective::broadcast, nullptr, data, count, type, std::move(options));
  d.pair = true;
  d.peer = from;
  return d;
}

}  // namespace troupe::calls
