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
    case lane_wait::reason::transfer: return where + " waits for its DMA engine";
  }
  return where;
}

template class basic_performer<program>;

void perform_local(const instruction& i, const location* operands, const memory_map& memory, datatype type,
                   const op& reduction, std::size_t element_size) {
  if (i.kind == step_kind::wait || i.elements == 0) return;
  if (i.inputs > 0) {
    // A fold's operand list is short; gathering the addresses here keeps the program independent of the buffers.
    const void* in[64];
    void* out[64];
    std::vector<const void*> many_in;
    std::vector<void*> many_out;
    const void** inputs = in;
    void** outputs = out;
    if (i.inputs > 64)
      inputs = (many_in.resize(i.inputs), many_in.data());  // more than 64 ranks: one allocation a fold
    if (i.outputs > 64) outputs = (many_out.resize(i.outputs), many_out.data());
    const location* operand = operands + i.operands;
    for (int k = 0; k < i.inputs; ++k) inputs[k] = memory.at(*operand++);
    for (int k = 0; k < i.outputs; ++k) outputs[k] = memory.at(*operand++);
    reduce_many(type, reduction, {inputs, i.inputs}, {outputs, i.outputs}, i.elements);
    return;
  }
  std::byte* target = memory.at(i.target);
  const std::byte* source = memory.at(i.source);
  if (i.kind != step_kind::reduce) troupe::copy(target, source, i.elements * element_size);
  else if (i.swapped) reduce(type, reduction, source, target, target, i.elements);
  else reduce(type, reduction, target, source, target, i.elements);
}

}  // namespace troupe
