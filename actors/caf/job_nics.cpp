// SPDX-License-Identifier: Apache-2.0
// What the NICs of several hosts say to each other over a job's links (ports/nic/nic_hosts.hpp), as frames: docs/protocol.md.

#include <algorithm>
#include <utility>

#include "actors/caf/job_links.hpp"

namespace troupe::actors {

namespace {

// A packet as a chunk: the ports are its lane, its place in the message the sequence, its number in the channel the fingerprint, and what is left is
// where a chunk has its channel.
constexpr unsigned port_shift = 16;
constexpr std::uint16_t has_data_bit = 1 << 8, has_address_bit = 1 << 9;
/// Of a response's sequence. So many packets a channel never has: 128 TiB.
constexpr std::uint32_t again_bit = std::uint32_t{1} << 31;

std::uint32_t lane_of(const offload_channel_name& on) {
  return std::uint32_t{on.source_port} << port_shift | on.dest_port;
}
void set_ports(offload_channel_name& on, std::uint32_t lane) {
  on.source_port = static_cast<std::uint16_t>(lane >> port_shift);
  on.dest_port = static_cast<std::uint16_t>(lane);
}

std::uint16_t flags_of(const offload_packet& p) {
  return static_cast<std::uint16_t>(p.seq_id | (p.has_data ? has_data_bit : 0) | (p.has_address ? has_address_bit : 0));
}

/// By number among the communicator's hosts; −1: its NIC performs for none of them.
int host_of(const communicator_actors& of, std::uint32_t process) {
  const auto at = std::ranges::find(of.nic_of_host, process);
  return at == of.nic_of_host.end() ? -1 : static_cast<int>(at - of.nic_of_host.begin());
}

class wire_of_job final : public nic_wire {
public:
  wire_of_job(mesh& by, communicator_id id, std::vector<std::uint32_t> nic_of_host)
      : mesh_(by), id_(id), nic_of_host_(std::move(nic_of_host)) {}

  void send(int host, epoch_t epoch, const offload_packet& what) override {
    frame_head head = head_of(frame_kind::packet);
    head.channel = flags_of(what);
    chunk c;
    c.data = what.lies_at;
    c.bytes = what.bytes;
    c.fingerprint = what.number;
    c.epoch = epoch;
    c.source = what.rank;
    c.lane = lane_of(what.on);
    c.sequence = what.index;
    mesh_.send_from_nic(process_of(host), head, c);
  }
  void send(int host, epoch_t epoch, const offload_response& what) override {
    const auto taken = static_cast<std::uint32_t>(what.taken);
    mesh_.send_response(process_of(host), head_of(frame_kind::response),
                        {epoch, -1, lane_of(what.on), what.again ? taken | again_bit : taken});
  }
  void send_ready(int host, epoch_t epoch, std::uint64_t fingerprint) override {
    chunk c;
    c.fingerprint = fingerprint;
    c.epoch = epoch;
    mesh_.send_from_nic(process_of(host), head_of(frame_kind::ready), c);
  }
  void let_go(rank_t rank, epoch_t epoch) override { mesh_.let_go(id_, rank, epoch, -1, true); }

private:
  std::uint32_t process_of(int host) const { return nic_of_host_[static_cast<std::size_t>(host)]; }
  frame_head head_of(frame_kind kind) const {
    frame_head head;
    head.communicator = id_;
    head.kind = kind;
    return head;
  }

  mesh& mesh_;
  communicator_id id_;
  std::vector<std::uint32_t> nic_of_host_;
};

}  // namespace

std::unique_ptr<nic_wire> job_links::wire_to_nics(communicator_id id, std::vector<std::uint32_t> nic_of_host) {
  return std::make_unique<wire_of_job>(mesh_, id, std::move(nic_of_host));
}

bool job_links::deliver_to_nic(const communicator_actors& to, std::uint32_t from, const frame_head& head,
                               chunk&& what) {
  if (to.nic_across == nullptr) return false;
  const int host = host_of(to, from);
  if (head.kind == frame_kind::ready) return to.nic_across->came_ready(host, what.epoch, what.fingerprint);
  offload_packet p;
  p.on.source_node = static_cast<std::uint32_t>(host);
  p.on.dest_node = static_cast<std::uint32_t>(to.nic_across->here());
  set_ports(p.on, what.lane);
  p.seq_id = static_cast<std::uint8_t>(head.channel);
  p.has_data = (head.channel & has_data_bit) != 0;
  p.has_address = (head.channel & has_address_bit) != 0;
  p.index = what.sequence;
  p.number = what.fingerprint;
  p.bytes = what.bytes;
  p.lies_at = what.data;
  p.keep = std::move(what.keep);
  return to.nic_across->came(host, what.epoch, std::move(p));
}

bool job_links::deliver_to_nic(const communicator_actors& to, std::uint32_t from, const credit& what) {
  if (to.nic_across == nullptr) return false;
  const int host = host_of(to, from);
  offload_response r;
  r.on.source_node = static_cast<std::uint32_t>(to.nic_across->here());
  r.on.dest_node = static_cast<std::uint32_t>(host);
  set_ports(r.on, what.lane);
  r.taken = what.sequence & ~again_bit;
  r.again = (what.sequence & again_bit) != 0;
  return to.nic_across->came(host, what.epoch, r);
}

}  // namespace troupe::actors
