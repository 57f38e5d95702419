// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/fabric.hpp"

#include <caf/send.hpp>
#include <spdlog/spdlog.h>

#include "actors/caf/caf_compat.hpp"

namespace troupe::actors {

path_ptr fabric::path_between(int from, int to, int channel) {
  auto result = std::make_shared<path>();
  result->way = route_between(machine_, from, to, channel);
  if (result->way.is_direct()) return nullptr;
  const std::lock_guard lock(mutex_);
  for (const hop& h : result->way.hops) result->hops.push_back(element_actor(h.id));
  return result;
}

caf::actor fabric::dma_of(int rank) {
  const coordinates at = machine_.ranks().of(rank);
  const std::lock_guard lock(mutex_);
  return element_actor(machine_.id_of({element_kind::dma, at.server, at.card, at.core_group, direction::out}));
}

caf::actor fabric::element_actor(element_id id) {
  caf::actor& found = elements_[id];
  if (!found) {
    const lets_go_of_logger of_this_thread;
    switch (machine_.at(id).kind) {
      case element_kind::dma: found = spawn_dma_engine(system_, *this); break;
      case element_kind::nic: found = spawn_nic(system_, *this); break;
      default: found = spawn_ring_segment(system_, *this); break;
    }
    if (closed_) post_exit(found, caf::exit_reason::user_shutdown);  // nobody will end it later
  }
  return found;
}

void fabric::forward(transfer_message&& what) {
  if (trace_) what.passed.push_back(what.way->way.hops[what.at].id);
  if (++what.at < what.way->hops.size()) {
    const caf::actor& next = what.way->hops[what.at];
    post(next, std::move(what));
    return;
  }
  if (trace_ && !what.way->recorded.exchange(true)) record(*what.way, what.passed);
  what.destination.cell().post(chunk_message{what.destination.channel, std::move(what.what)});
}

void fabric::record(path& way, const std::vector<element_id>& passed) {
  std::string text = "rank " + std::to_string(way.way.from);
  for (const element_id id : passed) text += " → " + machine_.to_string(machine_.at(id));
  text += " → rank " + std::to_string(way.way.to);
  const std::lock_guard lock(mutex_);
  traced_.push_back(std::move(text));
}

std::shared_ptr<scratch_block> fabric::buffer(std::size_t bytes) {
  try {
    return std::make_shared<scratch_block>(memory_.acquire(bytes));
  } catch (const std::exception& e) {
    log_->error("a chunk of {} bytes was dropped on its way: {}", bytes, e.what());
    return nullptr;
  }
}

std::vector<std::string> fabric::traced() {
  const std::lock_guard lock(mutex_);
  return traced_;
}

void fabric::close() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, actor] : elements_) post_exit(actor, caf::exit_reason::user_shutdown);
  elements_.clear();
  closed_ = true;
}

}  // namespace troupe::actors
