#include "actors/caf/membership.hpp"

#include <map>
#include <set>
#include <string>

#include <caf/event_based_actor.hpp>

#include "actors/caf/fabric.hpp"

namespace troupe::actors {

namespace {

class membership_actor final : public caf::event_based_actor, private agreement::audience {
public:
  membership_actor(caf::actor_config& config, communicator_actors_ptr members)
      : event_based_actor(config), members_(std::move(members)), state_(members_->ranks, members_->name) {
    set_down_handler([this](const caf::down_msg& m) { down(m); });
    set_exit_handler([this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }

  caf::behavior make_behavior() override {
    for (const caf::actor& rank : members_->rank) monitor(rank);
    return {
        [this](called_message& m) { state_.called(m.epoch, m.rank, std::move(m.what), *this); },
        [this](const withdraw_message& m) { state_.withdraw(m.epoch, m.rank, *this); },
        [this](fail_message& m) { state_.fail(m.epoch, m.title, std::move(m.why), *this); },
        [this](stopped_message& m) { state_.stopped(m.epoch, m.rank, std::move(m.waits), *this, std::move(m.came)); },
        [this](const left_message& m) { rank_left(m); },
        [this](const quiet_message& m) { rank_quiet(m.rank); },
        [this](const perished_message& m) {
          perished_.insert(m.rank);
          lose(m.rank);
        },
        [this](abort_message& m) { state_.abort(std::move(m.why), *this); },
        [this](const stuck_message& m) {
          state_.stuck(m.look, members_->looks.load(), m.nobody_else, *this);
          tell_all(m);
        },
        [this](const dissolve_message&) { dissolve(); },
    };
  }

  void on_exit() override { members_.reset(); }

  const char* name() const override { return "membership"; }

private:
  // -- agreement::audience --------------------------------------------------------------------------------------------

  void agreed(epoch_t epoch, const counts_ptr& counts) override { tell_all(agreed_message{epoch, counts}); }
  void ask(epoch_t epoch) override { tell_all(ask_message{epoch}); }
  void stop(epoch_t epoch) override { tell_all(halt_message{epoch}); }
  void failed(epoch_t epoch, const failure_ptr& why) override { tell_all(failed_message{epoch, why}); }
  void broken(const failure_ptr& why) override { tell_all(broken_message{why}); }
  void peer_left(rank_t rank) override { tell_all(peer_left_message{rank}); }
  void peer_lost(rank_t rank) override { tell_all(peer_lost_message{rank}); }

  template <class Message>
  void tell_all(const Message& what) {
    for (const caf::actor& rank : members_->rank) send(rank, what);
  }

  // -- who is here ----------------------------------------------------------------------------------------------------

  void rank_left(const left_message& m) {
    gone_.insert(m.rank);
    state_.left(m.rank, m.operations, *this);
    if (static_cast<int>(gone_.size()) == members_->ranks) dissolve();
  }

  /// Once the communicator is broken: a rank that refers to nobody's buffers any more.
  void rank_quiet(rank_t rank) {
    quiet_.insert(rank);
    bury_if_quiet();
  }

  void bury_if_quiet() {
    if (lost_.empty() || static_cast<int>(quiet_.size() + lost_.size()) < members_->ranks) return;
    // Nobody refers to the buffers of the dead any more.
    for (const rank_t rank : lost_)
      members_->table->at(rank).post(rank_order{[why = state_.broken()](rank_state& s, rank_outbox&) { s.bury(why); }});
    for (const rank_t rank : lost_)
      if (!gone_.contains(rank)) rank_left({rank, 0});
  }

  void down(const caf::down_msg& m) {
    for (rank_t rank = 0; rank < members_->ranks; ++rank)
      if (members_->rank[static_cast<std::size_t>(rank)].address() == m.source) {
        reasons_[rank] = caf::to_string(m.reason);
        lose(rank);
      }
  }

  /// A rank whose actor has ended is lost when it touches nobody's memory any more: it has said so itself, and its DMA engine has
  /// done what it was asked for before.
  void lose(rank_t rank) {
    if (dissolving_ || !reasons_.contains(rank) || !perished_.contains(rank)) return;
    after_transfers(*this, *members_, rank, [this, rank] {
      lost_.insert(rank);
      state_.lost(rank, reasons_[rank], *this);
      bury_if_quiet();
    });
  }

  void dissolve() {
    if (dissolving_) return;
    dissolving_ = true;
    const communicator_actors_ptr members = members_;
    for (const caf::actor& rank : members->rank) send_exit(rank, caf::exit_reason::user_shutdown);
    members->ended.store(true);
    members->table->close();
    quit();
  }

  communicator_actors_ptr members_;
  agreement state_;
  std::set<rank_t> gone_, quiet_, perished_, lost_;
  std::map<rank_t, std::string> reasons_;
  bool dissolving_ = false;
};

}  // namespace

caf::actor spawn_membership(caf::actor_system& system, communicator_actors_ptr members) {
  return system.spawn<membership_actor, caf::lazy_init>(std::move(members));
}

}  // namespace troupe::actors
