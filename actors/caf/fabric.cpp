// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/fabric.hpp"

#include <new>

#include <caf/send.hpp>
#include <spdlog/spdlog.h>

#include "actors/caf/caf_compat.hpp"
#include "actors/elements/tier_keeper.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

path_ptr fabric::path_between(int from, int to, int channel) {
  auto result = std::make_shared<path>();
  result->way = route_between(machine_, from, to, channel);
  if (result->way.is_direct()) return nullptr;
  const std::lock_guard lock(mutex_);
  for (const hop& h : result->way.hops) result->hops.push_back(element_actor(h.id));
  return result;
}

caf::actor fabric::core_group_of(int rank) {
  const std::lock_guard lock(mutex_);
  return element_actor(machine_.memory_of(machine_.ranks().of(rank)));
}

caf::actor fabric::mpe_of(int server, int card) {
  const std::lock_guard lock(mutex_);
  caf::actor& found = mpes_[{server, card}];
  if (!found) {
    const lets_go_of_logger of_this_thread;
    found = spawn_mpe(system_, card_sizes_, machine_.ranks().core_groups, {element_kind::dma, server, card});
    if (closed_) post_exit(found, caf::exit_reason::user_shutdown);  // nobody will end it later
  }
  return found;
}

caf::actor fabric::element_actor(element_id id) {
  caf::actor& found = elements_[id];
  if (!found) {
    const lets_go_of_logger of_this_thread;
    switch (machine_.at(id).kind) {
      case element_kind::dma:
      case element_kind::host: found = spawn_core_group(system_, *this, id); break;
      case element_kind::nic: found = spawn_nic(system_, *this, id); break;
      default: found = spawn_ring_segment(system_, *this, id); break;
    }
    if (closed_) post_exit(found, caf::exit_reason::user_shutdown);  // nobody will end it later
  }
  return found;
}

void fabric::ended(element_id which) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    ended_.end(which);
  }
  if (tell_) tell_();
}

failure_ptr fabric::obstacle(element_id which) const {
  if (!ended_.contains(which)) return nullptr;
  const machine_element element = machine_.at(which);
  if (element.kind == element_kind::dma || element.kind == element_kind::host) return core_group_has_ended(element);
  return make_failure(errc::actor_lost, machine_.to_string(element) + " has ended, which its data had to pass");
}

failure_ptr fabric::obstacle(const path& way) const {
  for (const hop& one : way.way.hops)
    if (failure_ptr why = obstacle(one.id)) return why;
  return nullptr;
}

failure_ptr fabric::obstacle_at(int rank) const { return obstacle(machine_.memory_of(machine_.ranks().of(rank))); }

void fabric::forward(transfer_message&& what) {
  if (what.at + 1 == what.way->hops.size()) {
    arrived(what);
    return what.destination.cell().post(chunk_message{what.destination.channel, std::move(what.what)});
  }
  pass(what);
  const caf::actor& next = what.way->hops[++what.at];
  post(next, std::move(what));
}

void fabric::arrived(transfer_message& what) {
  if (!trace_) return;
  pass(what);
  std::vector<element_id> passed = std::exchange(what.passed, {});
  if (what.way->recorded.exchange(true)) return;
  const std::lock_guard lock(traced_mutex_);
  traced_.insert({what.way->way.from, what.way->way.to, std::move(passed)});
}

void fabric::pass(transfer_message& what, std::size_t at) {
  if (!trace_) return;
  what.passed.push_back(what.way->way.hops[at].id);
  count(what.passed.back(), what.what.bytes);
}

void fabric::count(element_id element, std::size_t bytes) {
  const std::lock_guard lock(traced_mutex_);
  element_traffic& of = traffic_[element];
  ++(bytes > 0 ? of.messages : of.tokens);
  of.bytes += bytes;
}

std::shared_ptr<scratch_block> fabric::buffer(std::size_t bytes) {
  try {
    return std::make_shared<scratch_block>(memory_.acquire(bytes));
  } catch (const std::exception& e) {
    log_->error("a chunk of {} bytes was dropped on its way: {}", bytes, e.what());
    return nullptr;
  }
}

region_message granted(tier_keeper& by, const region_order_message& what) {
  try {
    return {by.grant(*what.to, what.of, what.bytes), nullptr};
  } catch (const error& e) {
    return {nullptr, make_failure(e.code_value(), e.what())};
  } catch (const std::bad_alloc&) {
    return {nullptr, make_failure(errc::out_of_memory, "there is no memory for the notes about a block")};
  }
}

failure_ptr mpe_has_ended(const machine_element& of) {
  return make_failure(errc::actor_lost, "the MPE of card " + std::to_string(of.server) + "." + std::to_string(of.card) +
                                            " has ended, which owned its memory");
}

failure_ptr core_group_has_ended(const machine_element& of) {
  if (of.kind == element_kind::host)
    return make_failure(errc::actor_lost, "host " + std::to_string(of.server) +
                                              " has ended, which owned its memory and what moves it over PCIe");
  return make_failure(errc::actor_lost, "core group " + std::to_string(of.server) + "." + std::to_string(of.card) +
                                            "." + std::to_string(of.index) +
                                            " has ended, which owned its L0 and its DMA engine");
}

std::vector<std::string> fabric::traced() {
  const std::lock_guard lock(traced_mutex_);
  std::vector<std::string> lines;
  for (const traced_way& way : traced_) {
    std::string& line = lines.emplace_back("rank " + std::to_string(way.from));
    for (const element_id id : way.passed) line += " → " + machine_.to_string(machine_.at(id));
    line += " → rank " + std::to_string(way.to);
  }
  return lines;
}

std::vector<element_traffic> fabric::traffic() {
  const std::lock_guard lock(traced_mutex_);
  std::vector<element_traffic> all;
  for (const auto& [id, of] : traffic_) {
    all.push_back(of);
    all.back().element = machine_.to_string(machine_.at(id));
  }
  return all;
}

void fabric::close() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, actor] : elements_) post_exit(actor, caf::exit_reason::user_shutdown);
  for (auto& [card, actor] : mpes_) post_exit(actor, caf::exit_reason::user_shutdown);
  elements_.clear();
  mpes_.clear();
  closed_ = true;
}

}  // namespace troupe::actors
