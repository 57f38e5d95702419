// SPDX-License-Identifier: Apache-2.0
// A core group's DMA engine. State: what it has sent to other core groups' shares of L2 (transfers_under_way); besides
// that the actor is the order.

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"
#include "actors/caf/scheduler.hpp"
#include "actors/elements/transfers_under_way.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

namespace {

class dma_engine final : public caf::event_based_actor {
public:
  dma_engine(caf::actor_config& config, fabric& ways, element_id self)
      : event_based_actor(config), ways_(ways), self_(self) {}

  caf::behavior make_behavior() override {
    return {
        [this](transfer_message& m) {
          if (!m.access) carry(m);
          else if (m.way == m.access->there) serve(m);
          else end(m);
        },
        [this](const copy_message& m) {
          copy_here(m.target, m.source, m.bytes);
          tell(m.asker);
        },
        [this](shared_copy_message& m) { begin(m); },
        [this](const flush_message&) -> caf::result<flushed_message> {
          auto answer = make_response_promise<flushed_message>();
          if (under_way_.flush(answer)) answer.deliver(flushed_message{});
          return answer;
        },
    };
  }

  void on_exit() override {
    under_way_.end();
    answer_flushes();
  }

  const char* name() const override { return "dma_engine"; }

private:
  using flush_answer = caf::typed_response_promise<flushed_message>;

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
    answer_flushes();
  }
  void answer_flushes() {
    while (auto answer = under_way_.flushed()) answer->deliver(flushed_message{});
  }

  fabric& ways_;
  const element_id self_;
  transfers_under_way<transfer_asker, flush_answer> under_way_;
};

}  // namespace

caf::actor spawn_dma_engine(caf::actor_system& system, fabric& ways, element_id self) {
  return system.spawn<dma_engine, caf::lazy_init>(std::ref(ways), self);
}

}  // namespace troupe::actors
