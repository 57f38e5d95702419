#include "actors/caf/membership.hpp"

#include <string>

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"
#include "actors/rank/membership_state.hpp"

namespace troupe::actors {

namespace {

/// Unpacks messages for the state, and sends what it says.
class membership_actor final : public caf::event_based_actor, private membership_outbox {
public:
  membership_actor(caf::actor_config& config, communicator_actors_ptr members)
      : event_based_actor(config), members_(std::move(members)), state_(members_->ranks, members_->name) {
    on_down(*this, [this](const caf::down_msg& m) { down(m); });
    on_exit_message(*this, [this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }

  caf::behavior make_behavior() override {
    for (const caf::actor& rank : members_->rank) watch_actor(*this, rank);
    return {
        [this](called_message& m) { state_.called(m.epoch, m.rank, std::move(m.what), *this); },
        [this](const withdraw_message& m) { state_.withdraw(m.epoch, m.rank, *this); },
        [this](fail_message& m) { state_.fail(m.epoch, m.title, std::move(m.why), *this); },
        [this](stopped_message& m) { state_.stopped(m.epoch, m.rank, std::move(m.waits), std::move(m.came), *this); },
        [this](const left_message& m) { state_.left(m.rank, m.operations, *this); },
        [this](const quiet_message& m) { state_.quiet(m.rank, *this); },
        [this](const perished_message& m) { state_.perished(m.rank, *this); },
        [this](abort_message& m) { state_.abort(std::move(m.why), *this); },
        [this](const stuck_message& m) { state_.stuck(m.look, members_->looks.load(), m.nobody_else, *this); },
        [this](const dissolve_message&) { state_.dissolve(*this); },
    };
  }

  void on_exit() override { members_.reset(); }

  const char* name() const override { return "membership"; }

private:
  void down(const caf::down_msg& m) {
    for (rank_t rank = 0; rank < members_->ranks; ++rank)
      if (members_->rank[static_cast<std::size_t>(rank)].address() == m.source)
        state_.down(rank, caf::to_string(m.reason), *this);
  }

  // -- membership_outbox ----------------------------------------------------------------------------------------------

  void agreed(epoch_t epoch, const counts_ptr& counts) override { tell_all(agreed_message{epoch, counts}); }
  void ask(epoch_t epoch) override { tell_all(ask_message{epoch}); }
  void stop(epoch_t epoch) override { tell_all(halt_message{epoch}); }
  void failed(epoch_t epoch, const failure_ptr& why) override { tell_all(failed_message{epoch, why}); }
  void broken(const failure_ptr& why) override { tell_all(broken_message{why}); }
  void peer_left(rank_t rank) override { tell_all(peer_left_message{rank}); }
  void peer_lost(rank_t rank) override { tell_all(peer_lost_message{rank}); }
  void stuck(look_t look, bool nobody_else) override { tell_all(stuck_message{look, nobody_else}); }
  void flush(rank_t rank) override {
    after_transfers(*this, *members_, rank, [this, rank] { state_.flushed(rank, *this); });
  }
  void bury(rank_t rank, const failure_ptr& why) override {
    members_->table->at(rank).post(rank_order{[why](rank_state& s, rank_outbox&) { s.bury(why); }});
  }
  void dissolve() override {
    const communicator_actors_ptr members = members_;
    for (const caf::actor& rank : members->rank) post_exit(rank, caf::exit_reason::user_shutdown);
    members->ended.store(true);
    members->table->close();
    quit();
  }

  template <class Message>
  void tell_all(const Message& what) {
    for (const caf::actor& rank : members_->rank) post(rank, what);
  }

  communicator_actors_ptr members_;
  membership_state state_;
};

}  // namespace

caf::actor spawn_membership(caf::actor_system& system, communicator_actors_ptr members) {
  return system.spawn<membership_actor, caf::lazy_init>(std::move(members));
}

}  // namespace troupe::actors
