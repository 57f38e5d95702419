#include "actors/caf/channel.hpp"

#include <optional>

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"
#include "actors/caf/fault_injector.hpp"
#include "actors/caf/scheduler.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

/// A chunk that fault injection held back.
struct held_back_message {
  rank_t to;
  chunk what;
};

}  // namespace troupe::actors

TROUPE_LOCAL_MESSAGE(troupe::actors::held_back_message)

namespace troupe::actors {

namespace {

/// Below this, waking another thread costs more than the work it could take over.
constexpr std::size_t long_work_bytes = 64 * 1024;

class channel_actor final : public caf::event_based_actor, private channel_outbox {
public:
  channel_actor(caf::actor_config& config, crew_ptr members, rank_t rank, int number)
      : event_based_actor(config),
        members_(std::move(members)),
        state_(rank, number, members_->memory),
        faults_(members_->faults, rank, number),
        rank_(rank),
        number_(number) {
    set_exit_handler([this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }

  caf::behavior make_behavior() override {
    return {
        [this](chunk& c) {
          if (c.bytes >= long_work_bytes) scheduler::before_long_work();
          state_.on_chunk(std::move(c), *this);
        },
        [this](const credit& c) { state_.on_credit(c, *this); },
        [this](const start_message& m) { state_.start(m.what, *this); },
        [this](const copied_message& m) { state_.transferred(m.which, m.lane, *this); },
        [this](const skip_message& m) { state_.skip(m.which, m.passed); },
        [this](const stop_message& m) {
          channel_stopped_message answer{m.which, number_, state_.stop(m.which)};
          after_transfers(*this, *members_, rank_, [this, answer = std::move(answer)] { send(own_rank(), answer); });
        },
        [this](held_back_message& m) {
          members_->let_go.fetch_add(1);
          pass_on(m.to, std::move(m.what));
        },
    };
  }

  void on_exit() override {
    paths_.clear();
    members_.reset();
  }

  const char* name() const override { return "channel"; }

private:
  // -- channel_outbox -------------------------------------------------------------------------------------------------

  void deliver(rank_t to, chunk&& what) override {
    if (faults_.active()) return deliver_with_faults(to, std::move(what));
    pass_on(to, std::move(what));
  }

  void give_back(rank_t to, const credit& what) override { send(peer(to), what); }

  void performed(const operation_key& which) override { send(own_rank(), performed_message{which}); }

  void mismatch(const operation_key& which, rank_t from) override { send(own_rank(), mismatch_message{which, from}); }

  void failed(const operation_key& which, failure_ptr why) override {
    send(own_rank(), channel_failed_message{which, std::move(why)});
  }

  bool transfer(const operation_key& which, int lane, std::byte* target, const std::byte* source,
                std::size_t bytes) override {
    if (members_->ways == nullptr || bytes == 0) {
      troupe::copy(target, source, bytes);
      return true;
    }
    if (!dma_) dma_ = members_->ways->dma_of(members_->machine_rank[static_cast<std::size_t>(rank_)]);
    send(dma_, copy_message{target, source, bytes, which, lane});
    return false;
  }

  // -- the way --------------------------------------------------------------------------------------------------------

  void pass_on(rank_t to, chunk&& what) {
    const path_ptr* way = members_->ways == nullptr ? nullptr : &path_to(to);
    if (way == nullptr || *way == nullptr) return send(peer(to), std::move(what));
    send((*way)->hops.front(), transfer_message{std::move(what), *way, 0, peer(to), {}});
  }

  const path_ptr& path_to(rank_t to) {
    const auto [at, fresh] = paths_.try_emplace(to);
    if (fresh) {
      const auto& places = members_->machine_rank;
      at->second = members_->ways->path_between(places[static_cast<std::size_t>(rank_)],
                                                places[static_cast<std::size_t>(to)], number_);
    }
    return at->second;
  }

  void deliver_with_faults(rank_t to, chunk&& what) {
    const auto m = faults_.next();
    if (m.kill) return quit(caf::exit_reason::kill);
    if (m.drop) return;
    // What comes late or twice may come when the operation is over. A channel drops that unread; a DMA engine reads everything.
    if (members_->ways != nullptr && (m.twice || m.delay.count() > 0)) own_copy(what);
    if (m.twice) pass_on(to, chunk{what});
    if (m.delay.count() == 0) return pass_on(to, std::move(what));
    members_->held_back.fetch_add(1);
    delayed_send(this, m.delay, held_back_message{to, std::move(what)});
  }

  void own_copy(chunk& what) const {
    if (what.bytes == 0) return;
    auto buffer = std::make_shared<scratch_block>(members_->memory.acquire(what.bytes));
    troupe::copy(buffer->data(), what.data, what.bytes);
    what.data = static_cast<const std::byte*>(buffer->data());
    what.keep = std::move(buffer);
  }

  const caf::actor& peer(rank_t rank) const {
    return members_->channel[static_cast<std::size_t>(rank)][static_cast<std::size_t>(number_)];
  }
  const caf::actor& own_rank() const { return members_->rank[static_cast<std::size_t>(rank_)]; }

  crew_ptr members_;
  channel_state state_;
  fault_injector faults_;
  rank_t rank_;
  int number_;
  caf::actor dma_;
  std::unordered_map<rank_t, path_ptr> paths_;
};

}  // namespace

caf::actor spawn_channel(caf::actor_system& system, crew_ptr members, rank_t rank, int channel) {
  return system.spawn<channel_actor, caf::lazy_init>(std::move(members), rank, channel);
}

}  // namespace troupe::actors
