#include "actors/caf/rank.hpp"

#include <map>
#include <set>

#include <caf/event_based_actor.hpp>

#include "actors/caf/caf_interface.hpp"
#include "actors/caf/fabric.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

class rank_actor final : public caf::event_based_actor, private rank_outbox {
public:
  rank_actor(caf::actor_config& config, crew_ptr members, rank_t rank)
      : event_based_actor(config),
        members_(std::move(members)),
        rank_(rank),
        state_(std::make_unique<rank_state>(rank, members_->ranks, members_->channels, members_->memory,
                                            members_->spaces, members_->name)) {
    set_down_handler([this](const caf::down_msg& m) { channel_down(m); });
    set_exit_handler([this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }

  caf::behavior make_behavior() override {
    watch_channels();
    return caf::message_handler{
        [this](submit_message& m) { state_->submit(std::move(m.what), *this); },
        [this](const agreed_message& m) { state_->agreed(m.epoch, m.counts, *this); },
        [this](const performed_message& m) { state_->performed(m.which, *this); },
        [this](const halt_message& m) { state_->stop(m.epoch, *this); },
        [this](const channel_stopped_message& m) { channel_stopped(m); },
        [this](const failed_message& m) { state_->failed(m.epoch, m.why, *this); },
        [this](const broken_message& m) { state_->broken(m.why, *this); },
        [this](const peer_left_message& m) { state_->peer_left(m.rank, *this); },
        [this](const mismatch_message& m) { state_->mismatch(m.which, m.from, *this); },
        [this](const channel_failed_message& m) { state_->channel_failed(m.which, m.why, *this); },
        [this](const end_message& m) { state_->end(m.which, m.why, *this); },
        [this](const peer_lost_message& m) { state_->peer_lost(m.rank, *this); },
        [this](const alarm_message& m) { state_->expire(m.number, *this); },
        [this](const stuck_message& m) { state_->stuck(m.look, members_->looks.load(), m.nobody_else, *this); },
        [this](const leave_message& m) { state_->leave(*this, m.operations); },
    }
        .or_else(pair_messages())
        .or_else([this](const collective_request& m) { return perform_request(m); });
  }

  void on_exit() override {
    for (const caf::actor& channel : channels()) send_exit(channel, caf::exit_reason::user_shutdown);
    if (!state_->idle()) members_->bury(std::move(state_));
    members_.reset();
  }

  const char* name() const override { return "rank"; }

private:
  caf::message_handler pair_messages() {
    return {
        [this](const revoke_message& m) { state_->revoke(m.sender, m.epoch, m.why, *this); },
        [this](const revoked_message& m) { state_->revoked(m.receiver, m.epoch, *this); },
        [this](const refuse_message& m) { state_->refused(m.from, m.epoch, m.sending, m.why, *this); },
        [this](const inquire_message& m) {
          state_->inquired(m.from, m.epoch, m.sending, m.look, m.nobody_else, *this);
        },
    };
  }

  /// A request that came as a message: answered when the operation is done, on this actor's turn.
  caf::result<collective_response> perform_request(const collective_request& m) {
    auto promise = make_response_promise<collective_response>();
    try {
      if (!m.what) throw error(errc::invalid_argument, "the request describes no collective");
      operation_ptr op = members_->accept(rank_, *m.what);
      const completion_ptr done = op->done;
      done->then([promise, done]() mutable {
        const failure_ptr& why = done->why();
        promise.deliver(why ? collective_response{make_error_code(why->code), why->text} : collective_response{});
      });
      if (!over_slots(*op)) state_->submit(std::move(op), *this);
    } catch (const error& e) {
      promise.deliver(collective_response{e.code(), e.what()});
    } catch (const std::exception& e) {
      promise.deliver(collective_response{make_error_code(errc::out_of_memory), e.what()});
    }
    return promise;
  }

  // -- rank_outbox ----------------------------------------------------------------------------------------------------

  void called(epoch_t epoch, const call& what) override { tell(called_message{epoch, rank_, what}); }
  void fail(epoch_t epoch, const std::string& title, failure_ptr why) override {
    tell(fail_message{epoch, title, std::move(why)});
  }
  void stopped(epoch_t epoch, std::vector<std::string> waits) override {
    tell(stopped_message{epoch, rank_, std::move(waits)});
  }
  void left(epoch_t operations) override { tell(left_message{rank_, operations}); }
  void quiet() override { tell(quiet_message{rank_}); }

  void start(int count, std::shared_ptr<const assignment> what) override {
    for (int c = 0; c < count; ++c) send_to_channel(c, start_message{what});
  }
  void skip(const operation_key& which, epoch_t passed) override {
    for (int c = 0; c < members_->channels; ++c) send_to_channel(c, skip_message{which, passed});
  }
  epoch_t settled(epoch_t called) const override { return members_->desk->settled(rank_, called); }
  int stop_channels(const operation_key& which) override {
    std::set<int>& awaited = awaited_[which];
    awaited.clear();
    for (int c = 0; c < members_->channels; ++c) {
      if (dead_.contains(c)) continue;
      awaited.insert(c);
      send_to_channel(c, stop_message{which});
    }
    const auto answers = static_cast<int>(awaited.size());
    if (answers == 0) awaited_.erase(which);
    return answers;
  }
  void revoke(rank_t receiver, epoch_t epoch, const failure_ptr& why) override {
    send(peer(receiver), revoke_message{rank_, epoch, why});
  }
  void revoked(rank_t sender, epoch_t epoch) override { send(peer(sender), revoked_message{rank_, epoch}); }
  void refuse(rank_t to, epoch_t epoch, bool sending, const failure_ptr& why) override {
    send(peer(to), refuse_message{rank_, epoch, sending, why});
  }
  void inquire(rank_t to, epoch_t epoch, bool sending, look_t look, bool nobody_else) override {
    send(peer(to), inquire_message{rank_, epoch, sending, look, nobody_else});
  }
  steady_time now() const override { return clock().now(); }
  void alarm(std::uint64_t number, std::chrono::nanoseconds after) override {
    delayed_send(this, after, alarm_message{number});
  }

  // -- channels -------------------------------------------------------------------------------------------------------

  const caf::actor& peer(rank_t rank) const { return members_->rank[static_cast<std::size_t>(rank)]; }
  const std::vector<caf::actor>& channels() const { return members_->channel[static_cast<std::size_t>(rank_)]; }

  template <class Message>
  void send_to_channel(int c, Message&& what) {
    send(channels()[static_cast<std::size_t>(c)], std::forward<Message>(what));
  }
  template <class Message>
  void tell(Message&& what) {
    send(members_->membership, std::forward<Message>(what));
  }

  void watch_channels() {
    for (const caf::actor& channel : channels()) monitor(channel);
  }

  void channel_stopped(const channel_stopped_message& m) {
    const auto at = awaited_.find(m.which);
    if (at == awaited_.end() || at->second.erase(m.channel) == 0) return;
    if (at->second.empty()) awaited_.erase(at);
    state_->channel_stopped(m.which, m.waits, *this);
  }

  /// A channel died: once its DMA engine has done what it had asked for, it refers to no buffer any more, so whoever waited for
  /// it to stop has its answer; and the communicator has lost a part of itself.
  void channel_down(const caf::down_msg& m) {
    int c = 0;
    while (c < members_->channels && channels()[static_cast<std::size_t>(c)].address() != m.source) ++c;
    if (c == members_->channels) return;
    tell(abort_message{make_failure(
        errc::actor_lost, members_->name + ": channel " + std::to_string(c) + " of rank " + std::to_string(rank_) +
                              " ended (" + caf::to_string(m.reason) + "); the communicator cannot be used any more")});
    after_transfers(*this, *members_, rank_, [this, c] {
      std::vector<operation_key> waiting;
      for (auto& [key, awaited] : awaited_)
        if (awaited.contains(c)) waiting.push_back(key);
      dead_.insert(c);
      for (const operation_key& key : waiting) channel_stopped({key, c, {}});
    });
  }

  crew_ptr members_;
  rank_t rank_;
  std::unique_ptr<rank_state> state_;
  std::set<int> dead_;
  std::unordered_map<operation_key, std::set<int>, operation_key_hash> awaited_;
};

}  // namespace

caf::actor spawn_rank(caf::actor_system& system, crew_ptr members, rank_t rank) {
  return system.spawn<rank_actor, caf::lazy_init>(std::move(members), rank);
}

}  // namespace troupe::actors
