// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/membership.hpp"

#include <chrono>
#include <optional>
#include <string>

#include <caf/event_based_actor.hpp>
#include <spdlog/spdlog.h>

#include "actors/caf/fabric.hpp"
#include "actors/caf/job_links.hpp"
#include "actors/rank/membership_state.hpp"

namespace troupe::actors {

namespace {

/// How long ranks wait for another one's call before the log says so: looks, and the time between them.
constexpr int looks_until_overdue = 5;
constexpr std::chrono::seconds between_looks{1};

/// Unpacks messages for the state, and sends what it says.
class membership_actor final : public caf::event_based_actor, private membership_outbox {
public:
  membership_actor(caf::actor_config& config, communicator_actors_ptr members)
      : event_based_actor(config), members_(std::move(members)), state_(members_->ranks, members_->name) {
    on_down(*this, [this](const caf::down_msg& m) { down(m); });
    on_exit_message(*this, [this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }

  caf::behavior make_behavior() override {
    for (const caf::actor& rank : members_->shells)
      if (rank) watch_actor(*this, rank);
    return {
        [this](called_message& m) {
          state_.called(m.epoch, m.rank, std::move(m.what), *this);
          watch();
        },
        [this](const differs_message& m) { state_.differs(m.epoch, *this); },
        [this](withdraw_message& m) { state_.withdraw(m.epoch, m.rank, std::move(m.ahead), *this); },
        [this](fail_message& m) {
          state_.fail(m.epoch, m.title, std::move(m.why), *this);
          watch();
        },
        [this](stopped_message& m) { state_.stopped(m.epoch, m.rank, std::move(m.waits), std::move(m.came), *this); },
        [this](left_message& m) { state_.left(m.rank, m.operations, std::move(m.last), m.sent, *this); },
        [this](const quiet_message& m) { state_.quiet(m.rank, *this); },
        [this](const perished_message& m) { state_.perished(m.rank, *this); },
        [this](rank_lost_message& m) { state_.lost(m.rank, std::move(m.why), *this); },
        [this](abort_message& m) { state_.abort(std::move(m.why), *this); },
        [this](const stuck_message& m) { state_.stuck(m.look, members_->looks.load(), m.nobody_else, *this); },
        [this](const overdue_message&) {
          watching_ = false;
          warn();
          watch();
        },
        [this](const dissolve_message&) { state_.dissolve(*this); },
    };
  }

  void on_exit() override { members_.reset(); }

  const char* name() const override { return "membership"; }

private:
  void down(const caf::down_msg& m) {
    for (rank_t rank = 0; rank < members_->ranks; ++rank)
      if (const caf::actor& shell = members_->shells[static_cast<std::size_t>(rank)];
          shell && shell.address() == m.source)
        state_.down(rank, caf::to_string(m.reason), *this);
  }

  // -- membership_outbox ----------------------------------------------------------------------------------------------

  void agreed(epoch_t epoch, const counts_ptr& counts) override { tell_all(agreed_message{epoch, counts}); }
  void ask(epoch_t epoch) override { tell_all(ask_message{epoch}); }
  void stop(epoch_t epoch) override { tell_all(halt_message{epoch}); }
  void failed(epoch_t epoch, const failure_ptr& why) override { tell_all(failed_message{epoch, why}); }
  void broken(const failure_ptr& why) override { tell_all(broken_message{why}); }
  void peer_left(rank_t rank, const sends_ptr& sent) override { tell_all(peer_left_message{rank, sent}); }
  void peer_lost(rank_t rank) override { tell_all(peer_lost_message{rank}); }
  void stuck(look_t look, bool nobody_else) override { tell_here(stuck_message{look, nobody_else}); }
  void flush(rank_t rank) override {
    if (!members_->is_here(rank)) return state_.flushed(rank, *this);
    after_transfers(*this, *members_, rank, std::nullopt, [this, rank] { state_.flushed(rank, *this); });
  }
  void bury(rank_t rank, const failure_ptr& why) override {
    if (!members_->is_here(rank)) return;
    members_->table->at(rank).post(rank_order{[why](rank_state& s, rank_outbox&) { s.bury(why); }});
  }
  void untold(const std::string& why) override { members_->log->error("{}", why); }
  void dissolve() override {
    const communicator_actors_ptr members = members_;
    if (members->links != nullptr) members->links->send(*members, ranks_word{dissolved_message{}});
    members->end_ranks();
    quit();
  }

  /// In whichever process a rank is.
  template <class Message>
  void tell_all(const Message& what) {
    if (members_->links != nullptr) members_->links->send(*members_, ranks_word{what});
    tell_here(what);
  }
  template <class Message>
  void tell_here(const Message& what) {
    for (const caf::actor& rank : members_->shells)
      if (rank) post(rank, what);
  }

  // -- what takes suspiciously long -----------------------------------------------------------------------------------

  /// Looks again after a while, as long as some operation is neither agreed on nor failed. Most are, before it looks.
  void watch() {
    if (watching_ || state_.dissolved() || state_.open_operations() == 0) return;
    watching_ = true;
    post_later(caf::actor_cast<caf::actor>(this), between_looks, overdue_message{});
  }

  /// A program that hangs because a rank never calls, or never comes back from a function of its own, should not do so without a word.
  void warn() {
    const auto after = (between_looks * looks_until_overdue).count();
    for (const auto& texts : {state_.overdue(looks_until_overdue), state_.held(looks_until_overdue)})
      for (const std::string& text : texts) members_->log->warn("waiting for more than {} s: {}", after, text);
  }

  communicator_actors_ptr members_;
  membership_state state_;
  bool watching_ = false;  ///< an overdue_message is under way
};

}  // namespace

caf::actor spawn_membership(caf::actor_system& system, communicator_actors_ptr members) {
  return system.spawn<membership_actor, caf::lazy_init>(std::move(members));
}

}  // namespace troupe::actors
