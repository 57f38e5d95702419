// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/rank_shell.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <spdlog/spdlog.h>

#include "actors/caf/caf_interface.hpp"
#include "actors/caf/fabric.hpp"
#include "actors/caf/fault_injector.hpp"
#include "actors/caf/job_links.hpp"
#include "actors/rank/rank_nic_queue.hpp"
#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

/// To the shell itself, on whose turn alone it may answer.
struct answer_message {
  std::shared_ptr<caf::typed_response_promise<collective_response>> to;
  collective_response what;
};

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_answer, 90)
TROUPE_LOCAL_MESSAGE(troupe_answer, troupe::actors::answer_message)
TROUPE_END_MESSAGES(troupe_answer)

namespace troupe::actors {

rank_order order_of(const pair_word& what) {
  return [what](rank_state& s, rank_outbox& o) {
    switch (what.what) {
      case pair_word::kind::revoke: return s.revoke(what.from, what.epoch, what.why, o);
      case pair_word::kind::revoked: return s.revoked(what.from, what.epoch, what.flag, o);
      case pair_word::kind::refuse: return s.refused(what.from, what.epoch, what.flag, what.why, o);
      case pair_word::kind::inquire:
        return s.inquired(what.from, what.epoch, what.flag, what.look, what.nobody_else, o);
      case pair_word::kind::ask_for: return s.asked_for(what.from, what.epoch, what.flag, what.text, o);
      case pair_word::kind::look_again: return s.look_again(what.from, what.flag, o);
    }
  };
}

namespace {

// -- what a rank says -----------------------------------------------------------------------------------------------------

class outbox_of_rank final : public rank_outbox {
public:
  outbox_of_rank(communicator_actors& members, rank_t rank) : members_(members), rank_(rank) {
    if (members_.faults.any())
      for (int c = 0; c < members_.channels; ++c) faults_.emplace_back(members_.faults, rank, c);
  }

  void called(epoch_t epoch, const call& what) override { tell(called_message{epoch, rank_, what}); }
  void differs(epoch_t epoch) override { tell(differs_message{epoch}); }
  void withdraw(epoch_t epoch, const call* ahead) override {
    tell(withdraw_message{epoch, rank_, ahead != nullptr ? std::optional<call>{*ahead} : std::nullopt});
  }
  void fail(epoch_t epoch, const std::string& title, failure_ptr why) override {
    tell(fail_message{epoch, title, std::move(why)});
  }
  void stopped(epoch_t epoch, std::vector<std::string> waits, presence came) override {
    tell(stopped_message{epoch, rank_, std::move(waits), std::move(came)});
  }
  void left(epoch_t operations, call last, sends_ptr sent) override {
    members_.left(rank_, operations, std::move(last), std::move(sent));
  }
  void quiet() override { members_.quiet(rank_); }
  void abort(const failure_ptr& why) override { tell(abort_message{why}); }
  void perished() override {
    if (members_.links != nullptr) members_.links->let_go(members_, rank_);
    tell(perished_message{rank_});
  }

  bool deliver(rank_t to, int channel, chunk&& what) override {
    if (!faults_.empty()) return deliver_with_faults(to, channel, std::move(what)), false;
    if (!killed_ && !members_.is_here(to))
      return members_.links->send(members_, to, channel, what, mesh::may_settle::yes);
    pass_on(to, channel, std::move(what));
    return false;
  }
  void give_back(rank_t to, int channel, const credit& what) override {
    if (killed_) return;
    if (!members_.is_here(to)) return members_.links->send(members_, to, channel, what);
    peer(to).post(credit_message{channel, what});
  }
  bool shares_parts() const override {
    return (members_.links == nullptr || members_.table->shares_areas()) && members_.ways == nullptr &&
           !members_.faults.any();
  }
  void news_of_parts(rank_t to, const std::shared_ptr<operation_parts>& whose) override { peer(to).hear(whose); }
  bool offer_place(int, const expected_chunk& what) override {
    if (members_.is_here(what.source)) return false;
    members_.links->offer_place(members_, rank_, what);
    return true;
  }
  void withdraw_place(int, const expected_chunk& what) override {
    members_.links->withdraw_place(members_, rank_, what);
  }
  void clear(rank_t to, int channel, const credit& what) override {
    if (!killed_) members_.links->send_clear(members_, to, channel, what);
  }
  void revoke(rank_t receiver, epoch_t epoch, const failure_ptr& why) override {
    say(receiver, {pair_word::kind::revoke, rank_, epoch, false, why, 0, false, {}});
  }
  void revoked(rank_t sender, epoch_t epoch, bool received) override {
    say(sender, {pair_word::kind::revoked, rank_, epoch, received, nullptr, 0, false, {}});
  }
  void refuse(rank_t to, epoch_t epoch, bool sending, const failure_ptr& why) override {
    say(to, {pair_word::kind::refuse, rank_, epoch, sending, why, 0, false, {}});
  }
  void inquire(rank_t to, epoch_t epoch, bool sending, look_t look, bool nobody_else) override {
    say(to, {pair_word::kind::inquire, rank_, epoch, sending, nullptr, look, nobody_else, {}});
  }
  void ask_for(rank_t to, epoch_t epoch, bool sending, const std::string& text) override {
    say(to, {pair_word::kind::ask_for, rank_, epoch, sending, nullptr, 0, false, text});
  }
  void warn(const std::string& text) override { members_.log->warn("{}", text); }

  void look_again(rank_t to, bool sending) override {
    if (!members_.is_here(to)) return say(to, {pair_word::kind::look_again, rank_, 0, sending, nullptr, 0, false, {}});
    peer(to).post(
        rank_order{[from = rank_, sending](rank_state& s, rank_outbox& o) { s.look_again(from, sending, o); }});
  }

  bool transfer(const operation_key& which, int channel, int lane, std::byte* target, const std::byte* source,
                std::size_t bytes) override {
    if (members_.ways == nullptr || bytes == 0) {
      troupe::copy(target, source, bytes);
      return true;
    }
    if (loses_request(channel)) return false;
    if (!core_group_) core_group_ = members_.ways->core_group_of(place(rank_));
    post(core_group_, copy_message{target, source, bytes, asker(which, channel, lane)});
    return false;
  }
  bool transfer_shared(const operation_key& which, int channel, int lane, const shared_transfer& what) override {
    const bool here = members_.ways == nullptr || what.bytes == 0;
    std::vector<l2_access> pieces = here ? std::vector<l2_access>{} : accesses(channel, what);
    if (std::ranges::all_of(pieces, [](const l2_access& piece) { return piece.there == nullptr; }))
      return transfer(which, channel, lane, what.target, what.source, what.bytes);
    if (loses_request(channel)) return false;
    if (!core_group_) core_group_ = members_.ways->core_group_of(place(rank_));
    post(core_group_, shared_copy_message{std::move(pieces), asker(which, channel, lane)});
    return false;
  }
  failure_ptr obstacle(const program& code) override {
    if (members_.ways == nullptr || !members_.ways->any_ended()) return nullptr;
    for (std::size_t l = 0; l < code.lanes.size(); ++l)
      for (const instruction& i : code.lanes[l])
        if (failure_ptr why = obstacle(code, i, static_cast<int>(l) / code.lanes_per_channel)) return why;
    return nullptr;
  }
  bool flush(const operation_key& which) override {
    if (members_.links != nullptr) members_.links->let_go(members_, rank_, which);
    if (members_.ways == nullptr) return false;
    post(shell(), flush_order_message{which});
    return true;
  }
  void ask_room(epoch_t epoch, rank_t of, std::size_t bytes) override {
    if (!loses_request(0)) post(shell(), ask_room_message{epoch, of, bytes});
  }
  void tell_of_room(rank_t to, epoch_t epoch) override {
    peer(to).post(rank_order{[epoch](rank_state& s, rank_outbox& o) { s.hear_of_room(epoch, o); }});
  }
  void post_to_nic(nic_posting&& what) override {
    if (!nic_) nic_ = make_nic_queue();
    what.communicator = members_.name_at_nic;
    what.across = members_.nic_across.get();
    what.ranks_here = members_.ranks_at_nic;
    const auto how = nic_->post(what);
    if (how == nic_queue::posted::full)
      throw error(errc::out_of_memory, "more than " + std::to_string(nic_queue::most_posted) +
                                           " operations of the rank are in its queue to the NIC");
    wakes_nic_ = wakes_nic_ || how == nic_queue::posted::complete;
  }
  doorbell* take_nic_to_wake() noexcept override { return std::exchange(wakes_nic_, false) ? &nic_->bell() : nullptr; }
  void recall_from_nic(epoch_t epoch) override { nic_->recall(members_.name_at_nic, epoch, rank_); }
  steady_time now() const override { return std::chrono::steady_clock::now(); }

  /// On the rank's turn, like all of the above.
  void pass_on(rank_t to, int channel, chunk&& what) {
    if (killed_) return;
    if (!members_.is_here(to)) {
      // Only with faults that are injected: the one that is dropped or late must have a sender that waits for it.
      static_cast<void>(members_.links->send(members_, to, channel, what, mesh::may_settle::no));
      return;
    }
    const path_ptr* way = members_.ways == nullptr ? nullptr : &path_to(to, channel);
    if (way == nullptr || *way == nullptr) return peer(to).post(chunk_message{channel, std::move(what)});
    post((*way)->hops.front(),
         transfer_message{std::move(what), *way, 0, {members_.shared_from_this(), to, channel}, {}});
  }

private:
  void deliver_with_faults(rank_t to, int channel, chunk&& what) {
    const auto m = faults_[static_cast<std::size_t>(channel)].next();
    if (m.kill) {
      killed_ = true;  // from now on it says nothing more to its peers
      post_exit(shell(), caf::exit_reason::kill);
      return;
    }
    if (m.drop) return;
    // What comes late or twice may come when the operation is over. A channel drops that unread; a DMA engine reads everything.
    if (members_.ways != nullptr && (m.twice || m.delay.count() > 0)) own_copy(what);
    if (m.twice) pass_on(to, channel, chunk{what});
    if (m.delay.count() == 0) return pass_on(to, channel, std::move(what));
    members_.held_back.fetch_add(1);
    post_later(shell(), m.delay, held_back_message{to, channel, std::move(what)});
  }

  /// Of what goes to the card's actors.
  bool loses_request(int channel) { return !faults_.empty() && faults_[static_cast<std::size_t>(channel)].loses(); }

  void own_copy(chunk& what) const {
    if (what.bytes == 0) return;
    auto buffer = std::make_shared<scratch_block>(members_.memory.acquire(what.bytes));
    troupe::copy(buffer->data(), what.data, what.bytes);
    what.data = static_cast<const std::byte*>(buffer->data());
    what.keep = std::move(buffer);
  }

  std::shared_ptr<rank_nic_queue> make_nic_queue() const {
    nic_between* const shared = members_.nic_shared.get();
    return std::make_shared<rank_nic_queue>(*members_.nic, shared != nullptr ? shared->arrivals() : members_.at_nic,
                                            peer(rank_), members_.weak_from_this(),
                                            shared != nullptr && !shared->at_home() ? shared : nullptr);
  }

  const path_ptr& path_to(rank_t to, int channel) {
    const auto [at, fresh] = paths_.try_emplace(name_of(to, channel));
    if (fresh) at->second = members_.ways->path_between(place(rank_), place(to), channel);
    return at->second;
  }
  const path_ptr& path_from(rank_t from, int channel) {
    const auto [at, fresh] = paths_back_.try_emplace(name_of(from, channel));
    if (fresh) at->second = members_.ways->path_between(place(from), place(rank_), channel);
    return at->second;
  }
  static std::uint64_t name_of(rank_t peer, int channel) {
    return std::uint64_t{static_cast<std::uint32_t>(peer)} << 32 | static_cast<std::uint32_t>(channel);
  }

  failure_ptr obstacle(const program& code, const instruction& i, int channel) {
    failure_ptr why;
    if (sends(i.kind)) why = obstacle_to(i.to, channel);
    if (!why && receives(i.kind)) why = obstacle_from(i.from, channel);
    if (why || (i.kind != step_kind::dma_get && i.kind != step_kind::dma_put)) return why;
    why = members_.ways->obstacle_at(place(rank_));
    if (!why && touches_l2(i))
      for (const shared_piece& piece : shared_pieces(code, i)) {
        const rank_t home = holder(piece.home);
        if (!why) why = obstacle_to(home, channel);
        if (!why) why = obstacle_from(home, channel);
      }
    return why;
  }
  failure_ptr obstacle_to(rank_t to, int channel) {
    return members_.is_here(to) ? obstacle_on(path_to(to, channel)) : nullptr;
  }
  failure_ptr obstacle_from(rank_t from, int channel) {
    return members_.is_here(from) ? obstacle_on(path_from(from, channel)) : nullptr;
  }
  failure_ptr obstacle_on(const path_ptr& way) const { return way ? members_.ways->obstacle(*way) : nullptr; }

  transfer_asker asker(const operation_key& which, int channel, int lane) {
    return {{members_.shared_from_this(), rank_, channel}, which, lane};
  }
  /// By whose share of L2 they are of. Such ranks share memory, so no way of theirs has a NIC on it, which could lose a
  /// piece.
  std::vector<l2_access> accesses(int channel, const shared_transfer& what) {
    std::vector<l2_access> pieces;
    const bool reads = what.what.kind == step_kind::dma_get;
    for (const shared_piece& piece : shared_pieces(what.code, what.what)) {
      const rank_t home = holder(piece.home);
      pieces.push_back({reads, what.target + piece.begin, what.source + piece.begin, piece.bytes,
                        path_to(home, channel), path_from(home, channel), what.keep});
    }
    return pieces;
  }
  /// The rank in whose core group's memory the share of L2 lies that is called `home`'s.
  rank_t holder(rank_t home) const { return at_host(home) ? members_.first_on_card : home; }
  bool at_host(rank_t rank) const { return members_.ways->hardware().ranks().of(place(rank)).host; }

  template <class Message>
  void tell(Message&& what) {
    members_.tell_membership(std::forward<Message>(what));
  }
  void say(rank_t to, const pair_word& what) {
    if (!members_.is_here(to)) return members_.links->send(members_, to, what);
    peer(to).post(order_of(what));
  }
  int place(rank_t rank) const { return members_.machine_rank[static_cast<std::size_t>(rank)]; }
  rank_cell& peer(rank_t rank) const { return members_.table->at(rank); }
  const caf::actor& shell() const { return members_.shell(rank_); }

  communicator_actors& members_;
  rank_t rank_;
  bool killed_ = false;
  std::vector<fault_injector> faults_;                              ///< by channel; empty: none
  caf::actor core_group_;                                           ///< null: nothing was asked of it yet
  std::unordered_map<std::uint64_t, path_ptr> paths_, paths_back_;  ///< by peer and channel
  std::shared_ptr<rank_nic_queue> nic_;                             ///< null: nothing was posted yet
  bool wakes_nic_ = false;
};

// -- the actor --------------------------------------------------------------------------------------------------------------

class rank_shell final : public caf::event_based_actor {
public:
  rank_shell(caf::actor_config& config, communicator_actors_ptr members, rank_t rank)
      : event_based_actor(config), members_(std::move(members)), rank_(rank) {
    on_exit_message(*this, [this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }

  caf::behavior make_behavior() override {
    return caf::message_handler{
        [this](const agreed_message& m) {
          tell([m](rank_state& s, rank_outbox& o) { s.agreed(m.epoch, m.counts, o); });
        },
        [this](const ask_message& m) { tell([m](rank_state& s, rank_outbox& o) { s.asked(m.epoch, o); }); },
        [this](const halt_message& m) { tell([m](rank_state& s, rank_outbox& o) { s.stop(m.epoch, o); }); },
        [this](const failed_message& m) { tell([m](rank_state& s, rank_outbox& o) { s.failed(m.epoch, m.why, o); }); },
        [this](const broken_message& m) { tell([m](rank_state& s, rank_outbox& o) { s.broken(m.why, o); }); },
        [this](const peer_left_message& m) {
          tell([m](rank_state& s, rank_outbox& o) { s.peer_left(m.rank, m.sent, o); });
        },
        [this](const peer_lost_message& m) { tell([m](rank_state& s, rank_outbox& o) { s.peer_lost(m.rank, o); }); },
        [this](const stuck_message& m) {
          tell([m, members = members_.get()](rank_state& s, rank_outbox& o) {
            s.stuck(m.look, members->looks.load(), m.nobody_else, o);
          });
        },
        [this](const flush_order_message& m) { flush(m.which); },
        [this](const ask_room_message& m) { ask_room(m); },
        [this](held_back_message& m) {
          members_->let_go.fetch_add(1);
          tell([held = std::make_shared<held_back_message>(std::move(m))](rank_state&, rank_outbox& o) {
            static_cast<outbox_of_rank&>(o).pass_on(held->to, held->channel, std::move(held->what));
          });
        },
        [this](const collective_request& m) { return perform_request(m); },
        [](answer_message& m) { m.to->deliver(std::move(m.what)); },
    };
  }

  void on_exit() override {
    tell([](rank_state& s, rank_outbox& o) { s.perish(o); });
    members_.reset();
  }

  const char* name() const override { return "rank"; }

private:
  template <class Order>
  void tell(Order&& what) {
    members_->table->at(rank_).post(rank_order{std::forward<Order>(what)});
  }

  void flush(const operation_key& which) {
    after_transfers(*this, *members_, rank_, which,
                    [this, which] { tell([which](rank_state& s, rank_outbox& o) { s.flushed(which, o); }); });
  }

  void ask_room(const ask_room_message& m) {
    const bool shared = m.of == card_tiers::shared;
    const fabric& ways = *members_->ways;
    const int place = members_->machine_rank[static_cast<std::size_t>(shared ? members_->first_on_card : rank_)];
    const coordinates at = ways.hardware().ranks().of(place);
    ask(*this, shared ? members_->ways->mpe_of(at.server, at.card) : members_->ways->core_group_of(place),
        caf::infinite, region_order_message{members_->card, m.of, m.bytes})
        .then([this, m](region_message& got) { tell_of_room(m, std::move(got)); },
              [this, m, shared, at](const caf::error&) {
                const machine& on = members_->ways->hardware();
                const machine_element owner = on.at(on.memory_of(at));
                tell_of_room(m, {nullptr, shared ? mpe_has_ended(owner) : core_group_has_ended(owner)});
              });
  }
  /// Moves the block all the way, so that it is free when its operation drops it.
  void tell_of_room(const ask_room_message& m, region_message&& got) {
    tell([m, got = std::move(got)](rank_state& s, rank_outbox& o) mutable {
      if (got.block) s.room_came(m.epoch, m.of, std::move(got.block), o);
      else s.no_room(m.epoch, got.why, o);
    });
  }

  /// A request that came as a message: answered when the operation is done.
  caf::result<collective_response> perform_request(const collective_request& m) {
    using promise_type = caf::typed_response_promise<collective_response>;
    auto promise = make_response_promise<collective_response>();
    try {
      if (!m.what) throw error(errc::invalid_argument, "the request describes no collective");
      operation_ptr op = members_->accept(rank_, *m.what);
      const completion_ptr done = op->done;
      done->then([self = caf::actor_cast<caf::actor>(this), to = std::make_shared<promise_type>(promise), done] {
        const failure_ptr& why = done->why();
        post(self, answer_message{to, why ? collective_response{make_error_code(why->code), why->text}
                                          : collective_response{}});
      });
      members_->table->at(rank_).submit(std::move(op));
    } catch (const error& e) {
      promise.deliver(collective_response{e.code(), e.what()});
    } catch (const std::exception& e) {
      promise.deliver(collective_response{make_error_code(errc::out_of_memory), e.what()});
    }
    return promise;
  }

  communicator_actors_ptr members_;
  rank_t rank_;
};

}  // namespace

caf::actor spawn_rank_shell(caf::actor_system& system, communicator_actors_ptr members, rank_t rank) {
  return system.spawn<rank_shell, caf::lazy_init>(std::move(members), rank);
}

std::unique_ptr<rank_outbox> make_outbox(communicator_actors& of, rank_t rank) {
  return std::make_unique<outbox_of_rank>(of, rank);
}

}  // namespace troupe::actors
