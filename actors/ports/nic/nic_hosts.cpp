// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/nic/nic_hosts.hpp"

#include <algorithm>
#include <utility>

namespace troupe::actors {

nic_hosts::nic_hosts(options how) : how_(std::move(how)) {
  ranks_here_ = static_cast<int>(std::ranges::count(how_.host_of, how_.here));
}

rank_t nic_hosts::first_rank_of(int host) const {
  return static_cast<rank_t>(std::ranges::find(how_.host_of, host) - how_.host_of.begin());
}

// -- any thread -----------------------------------------------------------------------------------------------------------

bool nic_hosts::came(int from, epoch_t epoch, offload_packet&& what) {
  const bool its_own =
      is_other(from) && std::cmp_equal(what.on.source_node, from) && std::cmp_equal(what.on.dest_node, how_.here);
  return its_own && keep({epoch, std::move(what)});
}

bool nic_hosts::came(int from, epoch_t epoch, const offload_response& what) {
  const bool its_own =
      is_other(from) && std::cmp_equal(what.on.dest_node, from) && std::cmp_equal(what.on.source_node, how_.here);
  return its_own && keep({epoch, what});
}

bool nic_hosts::came_ready(int from, epoch_t epoch, std::uint64_t fingerprint) {
  return is_other(from) && keep({epoch, ready{from, fingerprint}});
}

bool nic_hosts::keep(news&& what) {
  {
    const std::lock_guard lock(mutex_);
    news_.push_back(std::move(what));  // allocates until it has held as much as ever comes at once
    has_news_.store(true);
  }
  how_.ring();
  return true;
}

void nic_hosts::end() {
  ended_.store(true);
  how_.ring();
}

// -- the NIC's thread -----------------------------------------------------------------------------------------------------

bool nic_hosts::serve(nic_driver& driver, picoseconds now) {
  if (!has_news_.load()) return false;
  {
    const std::lock_guard lock(mutex_);
    std::swap(taken_, news_);
    has_news_.store(false);
  }
  for (news& each : taken_) {
    if (auto* const packet = std::get_if<offload_packet>(&each.what))
      driver.packet_came(how_.name, each.epoch, std::move(*packet), now);
    else if (const auto* const response = std::get_if<offload_response>(&each.what))
      driver.response_came(how_.name, each.epoch, *response, now);
    else if (const auto* const word = std::get_if<ready>(&each.what))
      driver.ready_came(how_.name, each.epoch, word->host, word->fingerprint, now);
  }
  taken_.clear();
  return true;
}

void nic_hosts::close(nic_driver& driver, picoseconds now) { driver.forget(how_.name, now); }

}  // namespace troupe::actors
