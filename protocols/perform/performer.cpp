// SPDX-License-Identifier: Apache-2.0
#include "protocols/perform/performer.hpp"

namespace troupe {

std::string to_string(const lane_wait& wait) {
  std::string where = "lane " + std::to_string(wait.lane);
  if (wait.step >= 0)
    where += " step " + std::to_string(wait.step);  // −1: performed, but not all credits have come back
  switch (wait.why) {
    case lane_wait::reason::nothing: return where + " has not started";
    case lane_wait::reason::chunk: return where + " waits for a chunk from rank " + std::to_string(wait.peer);
    case lane_wait::reason::credit: return where + " waits for a credit from rank " + std::to_string(wait.peer);
    case lane_wait::reason::lane: return where + " waits for lane " + std::to_string(wait.peer) + " of its own rank";
    case lane_wait::reason::piece: return "part " + std::to_string(wait.peer) + " was not made ready";
    case lane_wait::reason::transfer: return where + " waits for its DMA engine";
  }
  return where;
}

template class basic_performer<program>;

void perform_local(const instruction& i, const location* operands, const memory_map& memory, datatype type,
                   const op& reduction, std::size_t element_size, const sum_handling& sums) {
  if (i.kind == step_kind::wait || i.elements == 0) return;
  if (i.inputs > 0) {
    // A fold's operand list is short; gathering the addresses here keeps the program independent of the buffers.
    const void* in[64];
    void* out[64];
    double factor[64];
    std::vector<const void*> many_in;
    std::vector<void*> many_out;
    std::vector<double> many_factors;
    const void** inputs = in;
    void** outputs = out;
    double* factors = factor;
    if (i.inputs > 64) {  // more than 64 ranks: some allocations a fold
      inputs = (many_in.resize(i.inputs), many_in.data());
      if (sums.scales_inputs) factors = (many_factors.resize(i.inputs), many_factors.data());
    }
    if (i.outputs > 64) outputs = (many_out.resize(i.outputs), many_out.data());
    const location* operand = operands + i.operands;
    for (int k = 0; k < i.inputs; ++k, ++operand) {
      inputs[k] = memory.at(*operand);
      if (sums.scales_inputs) factors[k] = operand->owner == self ? memory.factor : memory.peers[operand->owner].factor;
    }
    for (int k = 0; k < i.outputs; ++k) outputs[k] = memory.at(*operand++);
    reduce_many(type, reduction, {inputs, i.inputs}, {outputs, i.outputs}, i.elements, store_hint::by_size,
                {sums.scales_inputs ? factors : nullptr, i.completes ? sums.divisor : 1});
    return;
  }
  std::byte* target = memory.at(i.target);
  const std::byte* source = memory.at(i.source);
  if (i.kind != step_kind::reduce) return troupe::copy(target, source, i.elements * element_size);
  if (i.completes && sums.divisor != 1) {
    const void* const in[] = {i.swapped ? source : target, i.swapped ? target : source};
    void* const out[] = {target};
    return reduce_many(type, reduction, in, out, i.elements, store_hint::by_size, {nullptr, sums.divisor});
  }
  if (i.swapped) reduce(type, reduction, source, target, target, i.elements);
  else reduce(type, reduction, target, source, target, i.elements);
}

}  // namespace troupe
