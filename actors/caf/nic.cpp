// One port of a server's NIC.
//
// Out: a chunk is cut into packets of at most `packet_bytes`, which go to the NIC at the other end (through the switch). In: packets
// are copied into a buffer of this NIC, in whatever order they come; when all bytes are there the chunk goes on to the
// destination's DMA engine. So nothing of the sender's server is referred to on the receiver's. The credit that the
// receiver's channel gives back is what bounds the chunks under way (spec 5: CTS), so the NIC needs no bound of its own.

#include <unordered_map>

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"
#include "actors/caf/scheduler.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t packet_bytes = 64 * 1024;

class nic final : public caf::event_based_actor {
public:
  nic(caf::actor_config& config, fabric& ways) : event_based_actor(config), ways_(ways) {}

  caf::behavior make_behavior() override {
    return {
        [this](transfer_message& m) { cut(m); },
        [this](const packet_message& m) { join(m); },
    };
  }

  const char* name() const override { return "nic"; }

private:
  struct arrival {
    std::shared_ptr<scratch_block> buffer;
    std::size_t missing = 0;
  };
  struct arrival_name {
    caf::actor_id sender;
    std::uint64_t transfer;
    bool operator==(const arrival_name&) const = default;
  };
  struct arrival_hash {
    std::size_t operator()(const arrival_name& n) const noexcept {
      return static_cast<std::size_t>((n.transfer ^ n.sender << 40) * 0x9e3779b97f4a7c15u >> 7);
    }
  };

  void cut(transfer_message& m) {
    if (ways_.traces()) m.passed.push_back(m.way->way.hops[m.at].id);
    const std::size_t at = m.at + 1;
    const caf::actor next = m.way->hops[at];
    const std::size_t bytes = m.what.bytes;
    const auto whole = std::make_shared<const transfer_message>(std::move(m));
    const caf::actor self{caf::actor_cast<caf::actor>(this)};
    const std::uint64_t name = next_name_++;
    std::size_t offset = 0;
    do {  // an empty chunk is one empty packet
      const std::size_t part = std::min(packet_bytes, bytes - offset);
      send(next, packet_message{whole, at, name, offset, part, self});
      offset += part;
    } while (offset < bytes);
  }

  void join(const packet_message& m) {
    const chunk& sent = m.whole->what;
    const auto [at, fresh] = arrivals_.try_emplace({m.sender.id(), m.name});
    arrival& a = at->second;
    if (fresh) {
      a.missing = sent.bytes;
      a.buffer = ways_.buffer(sent.bytes);
    }
    if (a.buffer && m.bytes > 0) {
      if (m.bytes == packet_bytes) scheduler::before_long_work();
      troupe::copy(static_cast<std::byte*>(a.buffer->data()) + m.offset, sent.data + m.offset, m.bytes);
    }
    a.missing -= m.bytes;
    if (a.missing > 0) return;
    if (!a.buffer) {
      arrivals_.erase(at);
      return;
    }
    transfer_message arrived = *m.whole;
    arrived.at = m.at;
    if (ways_.traces())
      for (std::size_t k = m.whole->at + 1; k < m.at; ++k) arrived.passed.push_back(arrived.way->way.hops[k].id);
    arrived.what.data = static_cast<const std::byte*>(a.buffer->data());
    arrived.what.keep = std::move(a.buffer);
    arrivals_.erase(at);
    ways_.forward(std::move(arrived));
  }

  fabric& ways_;
  std::uint64_t next_name_ = 0;
  std::unordered_map<arrival_name, arrival, arrival_hash> arrivals_;
};

}  // namespace

caf::actor spawn_nic(caf::actor_system& system, fabric& ways) {
  return system.spawn<nic, caf::lazy_init>(std::ref(ways));
}

}  // namespace troupe::actors
