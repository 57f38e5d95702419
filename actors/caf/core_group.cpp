// SPDX-License-Identifier: Apache-2.0
// A core group: owns its L0, which the MPE gives it, and its DMA engine. State: what the engine has sent to other core
// groups' shares of L2 (transfers_under_way), and who was granted L0 (tier_keeper); besides that the actor is the order, as
// everything on a core group shares its engine. The engine is no actor of its own: it would hear what the core group hears.
//   transfer, copy, shared_copy          for the engine (fabric.hpp), which serves one after the other
//   flush                                for the engine, too; answered at once, since pieces that are elsewhere touch no memory of
//                                        their asker until they come back here, and are dropped then
//   region_order                         from a rank that sits here and lacks L0; answered when the MPE has answered
// A host is one, too, for the ranks that sit there. Its L0 is its own: memory for staging, out of which PCIe is fed and into which it
// delivers, as a system pins some of a host's memory for that.

#include <memory>
#include <new>
#include <optional>

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"
#include "actors/caf/scheduler.hpp"
#include "actors/elements/tier_keeper.hpp"
#include "actors/elements/transfers_under_way.hpp"
#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"
#include "memory/tiers/block_head.hpp"
#include "memory/tiers/card_memory.hpp"

namespace troupe::actors {

namespace {

class dma_engine {
public:
  dma_engine(fabric& ways, element_id self) : ways_(ways), self_(self) {}

  void transfer(transfer_message& m) {
    if (!m.access) carry(m);
    else if (m.way == m.access->there) serve(m);
    else end(m);
  }
  void copy(const copy_message& m) {
    copy_here(m.target, m.source, m.bytes);
    tell(m.asker);
  }
  void copy(shared_copy_message& m) { begin(m); }
  void flush(const flush_message& m) {
    under_way_.drop([&](const transfer_asker& one) {
      return one.channel.members.get() == m.of && one.channel.rank == m.rank && (!m.which || one.which == *m.which);
    });
  }

private:
  static void tell(const transfer_asker& who) {
    who.channel.cell().post(
        rank_order{[which = who.which, channel = who.channel.channel,
                    lane = who.lane](rank_state& s, rank_outbox& out) { s.transferred(which, channel, lane, out); }});
  }

  void copy_here(std::byte* target, const std::byte* source, std::size_t bytes) {
    scheduler::before_long_work();
    troupe::copy(target, source, bytes);
    ways_.copied(self_, bytes);
  }

  /// Out: the payload leaves the sender's memory here, into a buffer that the chunk owns from now on. In: the performer's step
  /// writes the receiver's memory, so nothing is left to do but to hand over.
  void carry(transfer_message& m) {
    if (m.way->way.hops[m.at].way == direction::out && m.what.bytes > 0) {
      scheduler::before_long_work();
      if (!copy_out(m.what, ways_)) return;
    }
    ways_.forward(std::move(m));
  }

  // -- L2: the asker's engine begins and ends, that of the share serves -----------------------------------------------

  void begin(shared_copy_message& m) {
    const std::uint64_t number = under_way_.begin(std::move(m.asker), m.pieces.size());
    for (l2_access& piece : m.pieces) {
      piece.number = number;
      if (piece.there) send(std::make_shared<const l2_access>(std::move(piece)));
      else keep_here(piece);
    }
  }

  void keep_here(const l2_access& piece) {
    copy_here(piece.target, piece.source, piece.bytes);
    came_back(piece.number, true);
  }

  void send(const std::shared_ptr<const l2_access>& piece) {
    transfer_message out{{}, piece->there, 0, {}, {}, piece};
    if (!piece->reads && !take_up(out.what, *piece)) return came_back(piece->number, false);
    ways_.forward(std::move(out));
  }

  void serve(transfer_message& m) {
    ways_.arrived(m);
    const l2_access& piece = *m.access;
    if (!piece.reads) {
      put_down(m.what, piece);
      m.what = {};
    } else if (!take_up(m.what, piece)) {
      m.what = {};  // it comes back without its bytes, so that nobody waits for it
    }
    m.way = piece.back;
    m.at = 0;
    ways_.forward(std::move(m));
  }

  void end(transfer_message& m) {
    ways_.arrived(m);
    const l2_access& piece = *m.access;
    if (!under_way_.open(piece.number)) return;  // its asker has its memory back
    const bool whole = !piece.reads || m.what.bytes == piece.bytes;
    if (piece.reads && whole) put_down(m.what, piece);
    came_back(piece.number, whole);
  }

  bool take_up(chunk& what, const l2_access& piece) {
    scheduler::before_long_work();
    what.data = piece.source;
    what.bytes = piece.bytes;
    return copy_out(what, ways_);
  }
  static void put_down(const chunk& what, const l2_access& piece) {
    scheduler::before_long_work();
    troupe::copy(piece.target, what.data, what.bytes);
  }

  void came_back(std::uint64_t number, bool whole) {
    if (const auto asker = under_way_.came_back(number, whole)) tell(*asker);
  }

  fabric& ways_;
  const element_id self_;
  transfers_under_way<transfer_asker> under_way_;
};

/// Of a host. The bytes before the first whole page hold the head of the first block, as in card_memory.
struct staging {
  static constexpr std::size_t front = 4096;
  explicit staging(std::size_t bytes)
      : memory{front + bytes, false},
        heap{memory.at + front - sizeof(detail::block_head), bytes, bytes, "the host's staging memory"} {}
  detail::card_segment memory;
  tier_heap heap;
};

class core_group final : public caf::event_based_actor {
public:
  core_group(caf::actor_config& config, fabric& ways, element_id self)
      : event_based_actor(config), ways_(ways), self_(self), dma_(ways, self) {}

  caf::behavior make_behavior() override {
    return {
        [this](transfer_message& m) { dma_.transfer(m); },
        [this](const copy_message& m) { dma_.copy(m); },
        [this](shared_copy_message& m) { dma_.copy(m); },
        [this](const flush_message& m) {
          dma_.flush(m);
          return flushed_message{};
        },
        [this](const region_order_message& m) { return order(m); },
    };
  }

  void on_exit() override {
    if (l0_) l0_->end(core_group_has_ended(ways_.hardware().at(self_)));
    ways_.ended(self_);
  }

  const char* name() const override { return "core_group"; }

private:
  using region_answer = caf::typed_response_promise<region_message>;

  caf::result<region_message> order(const region_order_message& m) {
    auto answer = make_response_promise<region_message>();
    if (l0_) {
      answer.deliver(granted(*l0_, m));
      return answer;
    }
    const machine_element here = ways_.hardware().at(self_);
    if (here.kind == element_kind::host) {
      has_l0(staging_memory(), m, answer);
      return answer;
    }
    ask(*this, ways_.mpe_of(here.server, here.card), caf::infinite, l0_order_message{here.index})
        .then([this, m, answer](const l0_message& got) mutable { has_l0(got, m, answer); },
              [this, answer](const caf::error&) mutable {
                answer.deliver(region_message{nullptr, mpe_has_ended(ways_.hardware().at(self_))});
              });
    return answer;
  }
  l0_message staging_memory() const {
    try {
      const auto memory = std::make_shared<staging>(ways_.sizes().l0);
      return {{memory, &memory->heap}, nullptr};
    } catch (const error& e) {
      return {nullptr, make_failure(e.code_value(), e.what())};
    } catch (const std::bad_alloc&) {
      return {nullptr, make_failure(errc::out_of_memory, "there is no memory for what a host stages its transfers in")};
    }
  }
  /// Several orders may have asked for it.
  void has_l0(const l0_message& got, const region_order_message& m, region_answer& answer) {
    if (!l0_ && got.tier) l0_.emplace(got.tier);
    answer.deliver(l0_ ? granted(*l0_, m) : region_message{nullptr, got.why});
  }

  fabric& ways_;
  const element_id self_;
  dma_engine dma_;
  std::optional<tier_keeper> l0_;  ///< none: nobody has asked for any yet
};

}  // namespace

caf::actor spawn_core_group(caf::actor_system& system, fabric& ways, element_id self) {
  return system.spawn<core_group, caf::lazy_init>(std::ref(ways), self);
}

}  // namespace troupe::actors
