// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a simulated rank says, put on the simulated network.

#include "engine/tools/simulate/world.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::simulate {

class simulation::world::outbox final : public actors::rank_outbox {
public:
  outbox(world& of, rank_t rank) : w_(of), rank_(rank) {}

  void called(epoch_t epoch, const call& what) override {
    w_.post_to_membership(message_kind::called, rank_,
                          [this, epoch, what] { w_.membership_.called(epoch, rank_, what, w_); });
    if (w_.breaks(mutant::agreed_early)) w_.agreed(epoch, nullptr);
  }
  void differs(epoch_t epoch) override {
    w_.post_to_membership(message_kind::differs, rank_, [this, epoch] { w_.membership_.differs(epoch, w_); });
  }
  void withdraw(epoch_t epoch, const call* ahead) override {
    w_.post_to_membership(message_kind::withdraw, rank_,
                          [this, epoch, what = ahead != nullptr ? std::optional<call>{*ahead} : std::nullopt] {
                            w_.membership_.withdraw(epoch, rank_, what, w_);
                          });
  }
  void fail(epoch_t epoch, const std::string& title, failure_ptr why) override {
    w_.tell(
        [&] { return "rank " + std::to_string(rank_) + " wants to end " + std::to_string(epoch) + ": " + why->text; });
    w_.post_to_membership(message_kind::fail, rank_,
                          [this, epoch, title, why] { w_.membership_.fail(epoch, title, why, w_); });
  }
  void stopped(epoch_t epoch, std::vector<std::string> waits, presence came) override {
    w_.stop_answered_.try_emplace({epoch, rank_}, w_.now_);
    w_.post_to_membership(message_kind::stopped, rank_,
                          [this, epoch, waits = std::move(waits), came = std::move(came)] {
                            w_.rank_stopped(rank_, epoch, waits, came);
                          });
  }
  void left(epoch_t operations, call last, sends_ptr sent) override {
    w_.post_to_membership(message_kind::left, rank_,
                          [this, operations, last, sent] { w_.membership_.left(rank_, operations, last, sent, w_); });
  }
  void quiet() override {
    w_.post_to_membership(message_kind::quiet, rank_, [this] { w_.membership_.quiet(rank_, w_); });
  }
  void abort(const failure_ptr& why) override {
    w_.post_to_membership(message_kind::fail, rank_, [this, why] { w_.membership_.abort(why, w_); });
  }
  void perished() override {
    w_.let_go(rank_, nullptr);
    w_.post_to_membership(message_kind::perished, rank_, [this] { w_.membership_.perished(rank_, w_); });
  }

  bool deliver(rank_t to, int channel, chunk&& what) override {
    w_.deliver_chunk(rank_, to, channel, std::move(what));
    return false;
  }
  void give_back(rank_t to, int channel, const credit& what) override { w_.give_back(rank_, to, channel, what); }
  bool offer_place(int, const expected_chunk& what) override { return w_.offer_place(rank_, what); }
  void withdraw_place(int, const expected_chunk& what) override { w_.withdraw_place(rank_, what); }
  void clear(rank_t to, int channel, const credit& what) override { w_.clear(rank_, to, channel, what); }
  bool shares_parts() const override { return !w_.what_.parts_by_mailbox; }
  void news_of_parts(rank_t to, const std::shared_ptr<actors::operation_parts>& whose) override {
    w_.news_of_parts(rank_, to, whose);
  }
  void revoke(rank_t receiver, epoch_t epoch, const failure_ptr& why) override {
    w_.post_to_rank(
        message_kind::revoke, rank_, receiver,
        [from = rank_, epoch, why](actors::rank_state& s, actors::rank_outbox& o) { s.revoke(from, epoch, why, o); });
    if (w_.breaks(mutant::revoked_early, 100))
      w_.post_to_rank(
          message_kind::order, receiver, rank_,
          [receiver, epoch](actors::rank_state& s, actors::rank_outbox& o) { s.revoked(receiver, epoch, false, o); });
  }
  void revoked(rank_t sender, epoch_t epoch, bool received) override {
    w_.post_to_rank(message_kind::revoked, rank_, sender,
                    [from = rank_, epoch, received](actors::rank_state& s, actors::rank_outbox& o) {
                      s.revoked(from, epoch, received, o);
                    });
  }
  void refuse(rank_t peer, epoch_t epoch, bool sending, const failure_ptr& why) override {
    w_.said_at_.try_emplace(why.get(), w_.now_);
    w_.post_to_rank(message_kind::refuse, rank_, peer,
                    [from = rank_, epoch, sending, why](actors::rank_state& s, actors::rank_outbox& o) {
                      s.refused(from, epoch, sending, why, o);
                    });
  }
  void inquire(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else) override {
    w_.post_to_rank(message_kind::inquire, rank_, peer,
                    [from = rank_, epoch, sending, look, nobody_else](actors::rank_state& s, actors::rank_outbox& o) {
                      s.inquired(from, epoch, sending, look, nobody_else, o);
                    });
  }
  void look_again(rank_t peer, bool sending) override {
    w_.post_to_rank(
        message_kind::look_again, rank_, peer,
        [from = rank_, sending](actors::rank_state& s, actors::rank_outbox& o) { s.look_again(from, sending, o); });
  }

  bool transfer(const actors::operation_key& which, int channel, int lane, std::byte* target, const std::byte* source,
                std::size_t bytes) override {
    if (!w_.what_.dma || bytes == 0) {
      troupe::copy(target, source, bytes);
      return true;
    }
    w_.transfer(rank_, which, channel, lane, target, source, bytes);
    return false;
  }
  bool flush(const actors::operation_key& which) override { return w_.flush(rank_, which); }
  void post_to_nic(actors::nic_posting&& what) override { w_.post_to_nic(rank_, std::move(what)); }
  void recall_from_nic(epoch_t epoch) override { w_.recall_from_nic(rank_, epoch); }
  steady_time now() const override { return w_.clock(); }

private:
  world& w_;
  rank_t rank_;
};

}  // namespace troupe::simulate
