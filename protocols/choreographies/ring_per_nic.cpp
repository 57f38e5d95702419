// SPDX-License-Identifier: Apache-2.0
// NCCL's rings where servers have several NICs (spec 5, "Channels"; ncclTopoSearchRec of search.cc): as many rings as a server has NICs, each
// with its own part of every block. Of a server of m ranks with n NICs, which neighbours share, ring c enters at rank ⌈c·m/n⌉ and goes through the ranks
// behind it, round to the one before, which it leaves by. So each NIC carries what enters by one ring and what leaves by another, and all of them
// are at work, where a single ring has one NIC of a server busy and the others idle. Inside servers rings take the same ways.
//
// A ring is a lane, whose steps are those of `ring` (ring.cpp), and like it needs two credits as it is written. setup::nics says how many there are;
// unless it does, each rank has a NIC. Servers may be of any size; the smallest one limits the number of rings.

#include <algorithm>
#include <string>
#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace ring_per_nic_scores {
namespace {

using namespace notation;

/// All ranks, server by server, each from the rank on where this ring enters.
class nic_ring {
public:
  nic_ring(const hierarchy& where, int number, int nics) : number_(number) {
    for (int server = 0; server < where.servers(); ++server) {
      const int first = entrance_of(number, nics, where.size_of(server));
      for (int i = 0; i < where.size_of(server); ++i) at_.push_back(where.at(server, first + i));
    }
  }
  int number() const { return number_; }
  int size() const { return static_cast<int>(at_.size()); }
  /// The rank at a position; positions wrap round.
  rank_t operator[](int position) const { return at_[static_cast<std::size_t>(wrapped(position))]; }
  int position_of(rank_t rank) const { return static_cast<int>(std::find(at_.begin(), at_.end(), rank) - at_.begin()); }
  /// The lane of the rank at a position, between its neighbours.
  lane_writer at(score_builder& s, int p) const {
    return s.lane((*this)[p], number_).from((*this)[p - 1]).to((*this)[p + 1]);
  }
  int wrapped(int position) const { return (position % size() + size()) % size(); }

private:
  int number_;
  std::vector<rank_t> at_;
};

std::vector<nic_ring> rings_of(const setup& on) {
  const hierarchy where{on.placement};
  std::vector<nic_ring> rings;
  const int nics = nics_used(on, where);
  for (int c = 0; c < nics; ++c) rings.emplace_back(where, c, nics);
  return rings;
}

score all_reduce(const setup& on) {
  const std::vector<nic_ring> rings = rings_of(on);
  const int k = on.ranks;
  score_builder s{on, "ring_per_nic", k * static_cast<int>(rings.size())};
  for (const nic_ring& ring : rings)
    for (int p = 0; p < k; ++p) {
      const auto part = [&](int c) { return ring.number() * k + ring.wrapped(c); };
      auto me = ring.at(s, p);
      me.send(input[part(p)]);
      for (int step = 1; step < k - 1; ++step) me.recv_reduce_send(input[part(p - step)]);
      me.recv_reduce_copy_send(input[part(p + 1)], output[part(p + 1)]);
      for (int step = 0; step < k - 2; ++step) me.recv_copy_send(output[part(p - step)]);
      me.recv(output[part(p + 2)]);
    }
  return s.finish();
}

score all_gather(const setup& on) {
  const std::vector<nic_ring> rings = rings_of(on);
  const int k = on.ranks, parts = static_cast<int>(rings.size());
  score_builder s{on, "ring_per_nic", parts};
  for (const nic_ring& ring : rings)
    for (int p = 0; p < k; ++p) {
      const auto part_of = [&](int position) { return output[ring[position] * parts + ring.number()]; };
      auto me = ring.at(s, p);
      me.send(input[ring.number()]);
      me.copy_own(input[ring.number()], part_of(p));
      for (int step = 1; step < k - 1; ++step) me.recv_copy_send(part_of(p - step));
      me.recv(part_of(p + 1));
    }
  return s.finish();
}

score reduce_scatter(const setup& on) {
  const std::vector<nic_ring> rings = rings_of(on);
  const int k = on.ranks, parts = static_cast<int>(rings.size());
  score_builder s{on, "ring_per_nic", parts};
  for (const nic_ring& ring : rings)
    for (int p = 0; p < k; ++p) {
      const auto part_of = [&](int position) { return input[ring[position] * parts + ring.number()]; };
      auto me = ring.at(s, p);
      me.send(part_of(p - 1));
      for (int step = 1; step < k - 1; ++step) me.recv_reduce_send(part_of(p - 1 - step));
      me.recv_reduce_copy(part_of(p), output[ring.number()]);
    }
  return s.finish();
}

/// Each chain leads from the root round its ring to the root's predecessor there.
score broadcast(const setup& on) {
  const std::vector<nic_ring> rings = rings_of(on);
  score_builder s{on, "ring_per_nic", static_cast<int>(rings.size())};
  for (const nic_ring& ring : rings) {
    const int first = ring.position_of(on.root), last = first + on.ranks - 1, part = ring.number();
    for (int p = first; p <= last; ++p) {
      auto me = ring.at(s, p);
      if (p == first) {
        me.send(input[part]);
        me.copy_own(input[part], output[part]);
      } else if (p < last) {
        me.recv_copy_send(output[part]);
      } else {
        me.recv(output[part]);
      }
    }
  }
  return s.finish();
}

/// Each chain leads from the root's successor in its ring to the root.
score reduce(const setup& on) {
  const std::vector<nic_ring> rings = rings_of(on);
  score_builder s{on, "ring_per_nic", static_cast<int>(rings.size())};
  for (const nic_ring& ring : rings) {
    const int last = ring.position_of(on.root), first = last - on.ranks + 1, part = ring.number();
    for (int p = first; p <= last; ++p) {
      auto me = ring.at(s, p);
      if (p == first) me.send(input[part]);
      else if (p < last) me.recv_reduce_send(input[part]);
      else me.recv_reduce_copy(input[part], output[part]);
    }
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::all_reduce, all_reduce},
                             {collective::all_gather, all_gather},
                             {collective::reduce_scatter, reduce_scatter},
                             {collective::broadcast, broadcast},
                             {collective::reduce, reduce}};

std::string refuses(const setup& on) { return refuses_without_nics(on, 1, "ring"); }

}  // namespace
}  // namespace ring_per_nic_scores

constinit const choreography ring_per_nic{
    "ring_per_nic", "a ring for each NIC of a server, which enters and leaves servers at ranks of its own",
    "NCCL 2.19 (arXiv 2507.04786)", ring_per_nic_scores::offered, ring_per_nic_scores::refuses};

}  // namespace troupe::choreographies
