// SPDX-License-Identifier: Apache-2.0
// A mesh's further connections to a process, and the chunks that go over all of them in stripes.
#include <algorithm>
#include <utility>

#include "actors/ports/link/mesh_connections.hpp"

namespace troupe::actors {

// -- sending ----------------------------------------------------------------------------------------------------------------

/// Its memory is the whole's.
mesh::piece mesh::striped_chunk::take() {
  if (!in_stripes) {
    next = whole.payload_bytes;
    whole.stripe = true;
    return std::move(whole);
  }
  frame_head head;
  stripe_body body;
  std::memcpy(&head, whole.start.data(), sizeof head);
  std::memcpy(&body.name, whole.start.data() + sizeof head, sizeof body.name);
  body.bytes = whole.payload_bytes;
  body.offset = next;
  const std::uint64_t bytes = std::min(stripe_bytes, body.bytes - next);
  head.kind = frame_kind::stripe;
  head.bytes = sizeof body + bytes;
  piece one{head, &body, sizeof body};
  one.payload = whole.payload + next;
  one.payload_bytes = static_cast<std::size_t>(bytes);
  one.keep = whole.keep;
  one.source = whole.source;
  one.epoch = whole.epoch;
  one.stripe = true;
  next += bytes;
  return one;
}

/// @pre locked
bool mesh::goes_in_stripes(const outgoing& way, std::size_t bytes) const {
  return bytes > stripe_bytes && way.may_have(options_.lanes);
}

/// @pre locked, and may_have()
void mesh::want_lanes(outgoing& way) {
  if (!way.lanes.empty()) return;
  try {
    std::vector<std::unique_ptr<outgoing>> lanes;
    for (int lane = 1; lane < options_.lanes; ++lane) {
      lanes.push_back(std::make_unique<outgoing>(way, static_cast<std::uint8_t>(lane)));
      lanes.back()->now = outgoing::phase::wanted;
    }
    way.lanes = std::move(lanes);
  } catch (const std::bad_alloc&) {  // it goes without; perhaps the next one does not
    return;
  }
  wake();
}

/// Piece by piece, to each lane that has room in turn, so that all that are open carry even the first chunk. The rest goes when the system says
/// that a lane has room again. @pre locked
void mesh::hand_out(outgoing& way) {
  const std::size_t lanes = way.lanes.size() + 1;
  for (std::size_t in_vain = 0; in_vain < lanes && !way.striped.empty(); way.turn = (way.turn + 1) % lanes) {
    outgoing& lane = way.turn == 0 ? way : *way.lanes[way.turn - 1];
    in_vain = lane.flush_one() ? 0 : in_vain + 1;
  }
  const auto go_on = [&](outgoing& lane) {
    if (lane.problem != 0) wake();
    else if (lane.now == outgoing::phase::open) wait_for_room(lane, lane.has_more());
  };
  go_on(way);
  for (const auto& lane : way.lanes) go_on(*lane);
}

// -- connections ------------------------------------------------------------------------------------------------------------

/// Null: there is none of that number.
mesh::outgoing* mesh::lane_of(outgoing& first, std::size_t lane) {
  if (lane == 0) return &first;
  const std::lock_guard lock(first.mutex);
  return lane <= first.lanes.size() ? first.lanes[lane - 1].get() : nullptr;
}

/// @pre locked
int mesh::lanes_open(const outgoing& first) {
  const auto further = std::count_if(first.lanes.begin(), first.lanes.end(),
                                     [](const auto& lane) { return lane->now == outgoing::phase::open; });
  return static_cast<int>(further) + (first.now == outgoing::phase::open ? 1 : 0);
}

int mesh::lanes_open(std::uint32_t to) const {
  const outgoing& way = *out_[to];
  const std::lock_guard lock(way.mutex);
  return lanes_open(way);
}

/// Says "bye" in each, behind its last stripe. True: the other end has closed them all, so nothing of theirs is on its way any more.
bool mesh::lanes_have_ended(outgoing& first) {
  const std::lock_guard lock(first.mutex);
  bool all = true;
  for (const auto& lane : first.lanes) {
    if (lane->now == outgoing::phase::closed) continue;
    if (lane->now != outgoing::phase::open) {
      close_locked(*lane);
      continue;
    }
    all = false;
    if (lane->said_bye || !first.striped.empty()) continue;
    lane->said_bye = true;
    send_locked(*lane, piece_of(bye_word{}));
  }
  return all && first.striped.empty();
}

// -- receiving --------------------------------------------------------------------------------------------------------------

/// The chunk that the stripe is of, which its first one begins. Null: the connection has ended.
std::shared_ptr<mesh::arriving_chunk> mesh::arriving(incoming& way, const frame_head& head, const stripe_body& body) {
  inflow& in = *inflow_[way.process];
  const chunk_body& name = body.name;
  const auto found = std::find_if(in.chunks.begin(), in.chunks.end(), [&](const auto& c) {
    return c->head.communicator == head.communicator && c->head.to == head.to && c->head.channel == head.channel &&
           c->name.epoch == name.epoch && c->name.source == name.source && c->name.lane == name.lane &&
           c->name.sequence == name.sequence;
  });
  if (found != in.chunks.end()) {
    if ((*found)->stripes.bytes() == body.bytes && (*found)->name.fingerprint == name.fingerprint) return *found;
    return ended(way, "it sent stripes of two chunks with one name"), nullptr;
  }
  // Which have been cleared nobody remembers, but how many.
  if (in.begun >= in.cleared.load()) return ended(way, "it sent a stripe of a chunk that was not cleared"), nullptr;
  frame_head whole = head;
  whole.kind = frame_kind::chunk;
  whole.bytes = sizeof name + body.bytes;
  std::shared_ptr<received_block> block;
  const std::uint64_t place = places_[way.process]->take(whole, name);
  if (place == 0)
    block = std::make_shared<received_block>(memory_.acquire(static_cast<std::size_t>(body.bytes)), way.freed);
  // Allocates, once for a long chunk.
  in.chunks.push_back(std::make_shared<arriving_chunk>(
      arriving_chunk{whole, name, stripe_set{body.bytes}, place, false, std::move(block)}));
  ++in.begun;
  return in.chunks.back();
}

/// False: the connection has ended. @pre its body is there
bool mesh::begin_stripe(incoming& way, const frame_head& head) {
  const std::byte* const at = static_cast<const std::byte*>(way.block->data()) + way.begin + sizeof head;
  stripe_body body;
  std::memcpy(&body, at, sizeof body);
  if (const std::string why = why_no_stripe(head, body); !why.empty()) return ended(way, "it sent " + why), false;
  way.into = arriving(way, head, body);
  if (!way.into) return false;
  arriving_chunk& into = *way.into;
  if (!into.stripes.begin(body.offset)) return ended(way, "it sent a stripe twice"), false;
  way.offset = static_cast<std::size_t>(body.offset);
  way.large_bytes = static_cast<std::size_t>(head.bytes) - sizeof body;
  way.large_done = std::min(way.end - way.begin - sizeof head - sizeof body, way.large_bytes);
  way.place = into.place;
  way.large_block = into.block;
  const auto begin = [&](std::byte* whole) {
    if (way.large_done > 0) std::memcpy(whole + way.offset, at + sizeof body, way.large_done);
  };
  if (into.sinks || (way.place != 0 && !places_[way.process]->fill(way.place, begin))) sink(way);
  else if (way.place == 0) begin(static_cast<std::byte*>(into.block->data()));
  begin_frame(way, head, sizeof body);
  return true;
}

/// All of it is here. False: the connection has ended.
bool mesh::stripe_came(incoming& way) {
  const auto into = std::exchange(way.into, nullptr);
  const auto offset = std::exchange(way.offset, 0);
  way.place = 0;
  way.sinks = false;
  way.large_block.reset();
  if (!into->stripes.finish(offset)) return true;
  std::erase(inflow_[way.process]->chunks, into);
  const std::byte* body = nullptr;
  if (into->place != 0) body = places_[way.process]->finish(into->place);
  else if (!into->sinks) body = static_cast<const std::byte*>(into->block->data());
  if (body == nullptr) return true;  // it was withdrawn
  way.large_chunk = into->name;
  return arrived(way, into->head, body, into->block);
}

}  // namespace troupe::actors
