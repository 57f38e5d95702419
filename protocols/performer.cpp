#include "protocols/performer.hpp"

#include <algorithm>

namespace troupe {

std::string to_string(const lane_wait& wait) {
  std::string where = "lane " + std::to_string(wait.lane);
  if (wait.step >= 0) where += " step " + std::to_string(wait.step);  // −1: performed, but not all credits have come back
  switch (wait.why) {
    case lane_wait::reason::nothing: return where + " has not started";
    case lane_wait::reason::chunk: return where + " waits for a chunk from rank " + std::to_string(wait.peer);
    case lane_wait::reason::credit: return where + " waits for a credit from rank " + std::to_string(wait.peer);
    case lane_wait::reason::lane: return where + " waits for lane " + std::to_string(wait.peer) + " of its own rank";
    case lane_wait::reason::transfer: return where + " waits for its DMA engine";
  }
  return where;
}

performer::performer(const program& code, int channel, const memory_map& memory, datatype type, const op& reduction,
                     bool any_order)
    : code_(&code), memory_(memory), reduction_(reduction), type_(type),
      any_order_(any_order && reduction.commutative && reduction.associative) {
  lanes_.resize(static_cast<std::size_t>(code.lanes_per_channel));
  for (int l = 0; l < code.lanes_per_channel; ++l) {
    at(l).code = code.lane(channel, l);
    if (!at(l).code.empty()) ++unfinished_;
  }
}

bool performer::ready(const instruction& i) const {
  return i.after_lane < 0 ||
         lanes_[static_cast<std::size_t>(i.after_lane)].next > static_cast<std::size_t>(i.after_index);
}

std::size_t performer::fan_size(const lane_state& l) const {
  const std::size_t most = std::min<std::size_t>(l.code.size() - l.next, 64);
  std::size_t size = 1;
  while (size < most && l.code[l.next + size].fan == l.code[l.next].fan && l.code[l.next + size].slice == l.code[l.next].slice)
    ++size;
  return size;
}

void performer::go_on(lane_state& l) {
  l.wait.why = lane_wait::reason::nothing;
  if (++l.next == l.code.size()) --unfinished_;
}

performer::outcome performer::stuck(lane_state& l, lane_wait::reason why, rank_t peer, int lane) {
  l.wait = {why, lane, peer, l.code[l.next].score_step};
  return outcome::stuck;
}

std::vector<lane_wait> performer::waits() const {
  std::vector<lane_wait> result;
  for (std::size_t l = 0; l < lanes_.size(); ++l)
    if (lanes_[l].next < lanes_[l].code.size()) {
      lane_wait wait = lanes_[l].wait;
      wait.lane = static_cast<int>(l);
      if (wait.step < 0) wait.step = lanes_[l].code[lanes_[l].next].score_step;
      result.push_back(wait);
    }
  return result;
}

void performer::combine(const instruction& i, const std::byte* incoming, const std::byte* local, std::byte* out) const {
  if (i.swapped) reduce(type_, reduction_, local, incoming, out, i.elements);
  else reduce(type_, reduction_, incoming, local, out, i.elements);
}

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
    if (i.inputs > 64) inputs = (many_in.resize(i.inputs), many_in.data());  // more than 64 ranks: one allocation a fold
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
