// SPDX-License-Identifier: Apache-2.0
#include "actors/elements/nic_state.hpp"

#include <utility>

namespace troupe::actors {

std::optional<chunk> nic_state::join(std::uint64_t sender, const packet& came, const chunk& sent,
                                     travel_memory& memory) {
  const auto [at, fresh] = arrivals_.try_emplace({sender, came.name});
  arrival& a = at->second;
  if (fresh) {
    a.missing = sent.bytes;
    a.buffer = memory.buffer(sent.bytes);
  }
  if (a.buffer && came.bytes > 0)
    troupe::copy(static_cast<std::byte*>(a.buffer->data()) + came.offset, sent.data + came.offset, came.bytes);
  a.missing -= came.bytes;
  if (a.missing > 0) return std::nullopt;
  std::optional<chunk> whole;
  if (a.buffer) own(whole.emplace(sent), std::move(a.buffer));
  arrivals_.erase(at);
  return whole;
}

}  // namespace troupe::actors
