// SPDX-License-Identifier: Apache-2.0
#include "engine/api/persistent.hpp"

#include "engine/world/communicator_state.hpp"
#include "engine/world/persistent_prepared.hpp"
#include "memory/error.hpp"

namespace troupe {

std::shared_ptr<request::state> persistent::prepared::repeat() {
  if (under_way())
    throw error(errc::invalid_argument,
                "this persistent operation is still under way; wait for it before it is started again");
  if (outgoing) {
    last_pair = std::make_shared<request::started_pair>(member->of, member->rank, call_description{what},
                                                        call_description{*outgoing}, replaces);
    return latest();
  }
  if (last && last.use_count() == 1 && on_board(last->op)) {
    last->again();
    return latest();
  }
  auto made = std::make_shared<request::started>(member->of, member->rank);
  call_description again = what;
  member->of->describe(made->op, member->rank, again, plan);
  last = std::move(made);
  return latest();
}

persistent::persistent() = default;
persistent::persistent(persistent&&) noexcept = default;
persistent& persistent::operator=(persistent&&) noexcept = default;
persistent::persistent(std::unique_ptr<prepared> what) : what_(std::move(what)) {}

persistent::~persistent() {
  if (!what_ || !what_->under_way() || actors::no_waiting::here()) return;
  static_cast<void>(request{what_->latest()}.try_wait());
}

void persistent::run() {
  if (!what_) return;
  const communicator::impl& member = *what_->member;
  {
    const gate::pass inside{member.of->core->door, member.doorway()};
    if (!inside) refuse_closed();
    actors::runtime::check_may_wait();
    if (what_->nothing) return;
    if (what_->under_way()) static_cast<void>(what_->call(caller_waits::yes));  // throws
    actors::plan_ptr plan;
    const bool on_board = !what_->plan || what_->plan->nic() == nullptr;
    const bool recorded = member.of->record != nullptr;  // by start(), which notes it
    if (!recorded && !what_->outgoing && on_board && member.of->run_on_board(member.rank, what_->what, plan)) return;
    if (!recorded && what_->outgoing && !what_->replaces &&
        member.of->run_pairs(member.rank, {&what_->what, &*what_->outgoing}))
      return;
  }
  start().wait();
}

request persistent::start() {
  if (!what_) return {};
  const communicator::impl& member = *what_->member;
  const gate::pass inside{member.of->core->door, member.doorway()};
  if (!inside) refuse_closed();
  if (what_->nothing) return {};
  request r{what_->call(caller_waits::no)};
  try {
    r.state_->begin({r.state_, r.state_->what});
  } catch (...) {
    what_->forget();  // not begun, and never done
    throw;
  }
  return r;
}

request persistent::start(group& in) {
  if (!what_) return {};
  const communicator::impl& member = *what_->member;
  const gate::pass inside{member.of->core->door, member.doorway()};
  if (!inside) refuse_closed();
  if (what_->nothing) return {};
  std::shared_ptr<request::state> made;
  try {
    made = what_->repeat();
  } catch (...) {
    in.refuse(what_->member, what_->what);
  }
  return in.add(made, what_->member);
}

persistent communicator::prepare(call_description what) {
  if (!impl_) refuse_empty();
  const gate::pass inside{impl_->of->core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  auto made = std::make_unique<persistent::prepared>();
  made->member = impl_;
  made->nothing = impl_->of->is_nothing(impl_->rank, what);
  if (made->nothing) return persistent{std::move(made)};
  actors::operation first;  // says what is wrong now rather than at the first start, and makes the plan
  call_description checked = what;
  impl_->of->describe(first, impl_->rank, checked);  // not a call yet: nobody else hears of a refusal
  first.done->complete(nullptr);
  made->plan = first.plan;
  made->what = std::move(what);
  made->what.what.choreography = made->what.options.choreography;  // run_on_board() exchanges the two
  return persistent{std::move(made)};
}

}  // namespace troupe
