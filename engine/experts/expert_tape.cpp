// SPDX-License-Identifier: Apache-2.0
#include "engine/experts/expert_tape.hpp"

#include <utility>

#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"

namespace troupe {

expert_tape::expert_tape() : what_(std::make_shared<inside>()) {}
expert_tape::expert_tape(expert_tape&&) noexcept = default;
expert_tape& expert_tape::operator=(expert_tape&&) noexcept = default;
expert_tape::~expert_tape() = default;

void expert_tape::inside::describe(const expert_access::inside& exchange, const stream_type& tokens) {
  const auto ranks = static_cast<std::size_t>(exchange.ranks_);
  const communicator_state& of = *state_of(exchange.comm_);
  comm = of.weak_from_this();
  options = exchange.options_;
  replicas = exchange.replicas_;
  type = tokens;
  goes_back = false;
  tiles = std::make_shared<std::vector<std::unique_ptr<kept_tile>>>();
  for (int t = 0; t < tokens.tiles; ++t)
    tiles->push_back(std::make_unique<kept_tile>(of.core->lasting, ranks, exchange.own_experts_.size()));
}

std::string expert_tape::inside::mismatch(const expert_access::inside& through, const stream_type& gradients) const {
  if (forward.expired()) return "its tape is of no node yet; experts() comes first";
  if (!back.expired()) return "another node goes back by its tape already";
  if (gradients.shape != type.shape || gradients.tiles != type.tiles || gradients.type != type.type)
    return "it gets " + std::to_string(gradients.tiles) + " tiles of " + std::string{name(gradients.type)} + " " +
           to_string(gradients.shape) + ", and the node that it goes back for has " + std::to_string(type.tiles) +
           " of " + std::string{name(type.type)} + " " + to_string(type.shape);
  if (state_of(through.comm_) != comm.lock().get())
    return "its exchange is of another communicator than that which it goes back by";
  const expert_options& its = through.options_;
  if (its.hidden != options.hidden || its.type != options.type || its.top_k != options.top_k ||
      through.replicas_.expert_of != replicas.expert_of || through.replicas_.first != replicas.first ||
      through.replicas_.domain_of != replicas.domain_of)
    return "its exchange has another number of experts, or other options, than that which it goes back for; both need "
           "the same hidden, type, top_k and placement";
  return {};
}

void expert_tape::inside::forward_starts(const std::string& who) {
  const std::lock_guard lock(mutex);
  if (goes_back)
    throw error(errc::invalid_argument,
                who + ": the node that goes back by its tape is still under way, in another flow; wait for its end");
  for (const auto& tile : *tiles) tile->is = state::empty;
}

void expert_tape::inside::back_starts() {
  const std::lock_guard lock(mutex);
  goes_back = true;
}

void expert_tape::inside::back_ended() noexcept {
  const std::lock_guard lock(mutex);
  goes_back = false;
}

void expert_tape::inside::keep(int tile) {
  const std::lock_guard lock(mutex);
  at(tile).is = state::kept;
}

expert_tape::inside::kept_tile& expert_tape::inside::take(int tile) {
  const std::lock_guard lock(mutex);
  kept_tile& one = at(tile);
  if (one.is != state::kept)
    throw error(errc::invalid_argument,
                one.is == state::empty
                    ? "there is nothing to go back by: its forward node has not combined this tile in a run since"
                    : "it has gone back before; each run of its forward node goes back once");
  one.is = state::went_back;
  return one;
}

}  // namespace troupe
