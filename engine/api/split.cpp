// SPDX-License-Identifier: Apache-2.0
// Communicators made of a communicator: an all-gather of colors and keys, whose last step on each rank makes or finds the part.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/caf/job_links.hpp"
#include "engine/api/code_of_call.hpp"
#include "engine/api/communicator.hpp"
#include "engine/world/communicator_state.hpp"
#include "engine/world/division_state.hpp"
#include "memory/error.hpp"

namespace troupe {

/// One rank's call, until it has ended. Keeps the rank in the whole until then.
struct TROUPE_INTERNAL communicator::split_call {
  split_call(std::shared_ptr<impl> of, communicator& part, int color, int key)
      : whole(std::move(of)), into(&part), mine{color, key}, all(2 * static_cast<std::size_t>(whole->of->ranks)) {}

  std::shared_ptr<impl> whole;
  communicator* into;
  std::int32_t mine[2];           ///< color and key
  std::vector<std::int32_t> all;  ///< everybody's

  failure_ptr conclude(epoch_t which, failure_ptr why);
};

/// On whichever thread ends the exchange. The number of the operation names the split, the same at every rank; ranks need not have
/// succeeded with the same splits before.
failure_ptr communicator::split_call::conclude(epoch_t which, failure_ptr why) {
  communicator_state& of = *whole->of;
  const gate::pass inside{of.core->door, whole->doorway()};
  if (!inside)
    return why ? why : make_failure(errc::engine_closed, "the engine was destroyed before the communicator was made");
  if (why) {
    of.give_up(which, whole->rank);
    return why;
  }
  if (mine[0] < 0) {
    *into = communicator{};
    return nullptr;
  }
  try {
    const std::vector<rank_t> ranks = members_of_part(all, mine[0]);
    auto i = std::make_shared<impl>();
    const auto make = [&] {
      std::vector<int> places;
      places.reserve(ranks.size());
      for (const rank_t r : ranks) places.push_back(of.machine_ranks[static_cast<std::size_t>(r)]);
      const auto part = of.part_for(ranks, which, mine[0]);
      const std::string number = ".split" + std::to_string(which) + "(" + std::to_string(mine[0]) + ")";
      return of.core->found(of.part_has_name ? of.name : of.name + number, of.placement.subset(ranks),
                            std::move(places), of.run, part ? &*part : nullptr,
                            of.record ? of.record->part(ranks) : nullptr);
    };
    auto made = of.parts.take(which, mine[0], ranks, std::ref(make));
    i->rank = static_cast<rank_t>(std::find(ranks.begin(), ranks.end(), whole->rank) - ranks.begin());
    i->of = std::move(made);
    *into = communicator{std::move(i)};
    return nullptr;
  } catch (const error& e) {
    why = make_failure(e.code_value(), e.what());
  } catch (const std::exception& e) {
    why = make_failure(errc::out_of_memory, std::string{"the communicator cannot be made: "} + e.what());
  }
  of.give_up(which, whole->rank);
  return why;
}

std::optional<actors::job_part> communicator_state::part_for(std::span<const rank_t> members, epoch_t which,
                                                             int color) const {
  if (process_of.empty()) return std::nullopt;
  actors::job_part part;
  for (const rank_t r : members) part.process_of.push_back(process_of[static_cast<std::size_t>(r)]);
  if (std::ranges::count(part.process_of, part.process_of.front()) == std::ssize(members)) return std::nullopt;
  part.id = identity_of_part(id, which, color);
  part.parent = id;
  part.split = which;
  part.parent_rank.assign(members.begin(), members.end());
  return part;
}

void communicator_state::give_up(epoch_t which, rank_t rank) {
  if (!process_of.empty()) core->runtime->job()->send_gave_up(*members, which, rank);
  parts.give_up(which, rank);
}

namespace {

/// A rank that calls a plain all-gather of as many bytes meanwhile has called something else.
call_description exchange_of(const std::int32_t (&mine)[2], std::vector<std::int32_t>& all, call_purpose what,
                             call_options options) {
  call_description d = calls::all_gather(mine, all, std::move(options));
  d.what.purpose = what;
  return d;
}

}  // namespace

request communicator::divide(communicator& into, int color, int key, call_purpose what, call_options options, group* in,
                             bool waits) {
  if (!impl_) refuse_empty();
  communicator_state& of = *impl_->of;
  const gate::pass inside{of.core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  const auto asked = std::make_shared<split_call>(impl_, into, color, key);
  const auto made = std::make_shared<request::started>(impl_->of, impl_->rank);
  call_description gather = exchange_of(asked->mine, asked->all, what, std::move(options));
  if (!waits) of.open_collective(made->op, impl_->rank, gather);
  try {
    of.describe(made->op, impl_->rank, gather);
  } catch (...) {
    if (in != nullptr) in->refuse(impl_, gather);
    of.refuse(impl_->rank, gather, waits ? caller_waits::yes : caller_waits::no);
  }
  made->op.last_step = [asked](const actors::operation& op, failure_ptr why) {
    return asked->conclude(op.epoch, std::move(why));
  };
  if (in != nullptr) return in->add({made, &made->caller}, impl_);
  request r{std::shared_ptr<request::state>(made, &made->caller)};
  r.state_->begin(request::started::share(made));
  return r;
}

communicator communicator::divide(int color, int key, call_purpose what, call_options options) {
  actors::runtime::check_may_wait();
  if (!impl_) refuse_empty();
  communicator_state& of = *impl_->of;
  communicator made;
  if (!of.record) {  // what records sees it as a call that is begun and waited for
    const gate::pass inside{of.core->door, impl_->doorway()};
    if (!inside) refuse_closed();
    split_call asked{impl_, made, color, key};
    call_description gather = exchange_of(asked.mine, asked.all, what, std::move(options));
    actors::plan_ptr plan;
    if (of.table->has_boards()) {
      failure_ptr failed;
      if (of.end_on_board(impl_->rank, gather, plan, failed)) {
        const epoch_t number = of.cell(impl_->rank).number_of_call();
        if (const failure_ptr why = asked.conclude(number, std::move(failed))) throw_failure(why);
        return made;
      }
    }
    options = std::move(gather.options);
  }
  divide(made, color, key, what, std::move(options), nullptr, true).wait();
  return made;
}

communicator communicator::split(int color, int key, call_options options) {
  return divide(color, key, call_purpose::split, std::move(options));
}
std::error_code communicator::try_split(communicator& into, int color, int key, call_options options) noexcept {
  return code_of_call([&] { into = split(color, key, std::move(options)); }, errc::invalid_argument);
}
request communicator::split_async(communicator& into, int color, int key, call_options options) {
  return divide(into, color, key, call_purpose::split, std::move(options), nullptr, false);
}
request communicator::split_async(group& in, communicator& into, int color, int key, call_options options) {
  return divide(into, color, key, call_purpose::split, std::move(options), &in, false);
}

communicator communicator::duplicate(call_options options) {
  return divide(0, rank(), call_purpose::duplicate, std::move(options));
}
std::error_code communicator::try_duplicate(communicator& into, call_options options) noexcept {
  return code_of_call([&] { into = duplicate(std::move(options)); }, errc::invalid_argument);
}
request communicator::duplicate_async(communicator& into, call_options options) {
  return divide(into, 0, rank(), call_purpose::duplicate, std::move(options), nullptr, false);
}
request communicator::duplicate_async(group& in, communicator& into, call_options options) {
  return divide(into, 0, rank(), call_purpose::duplicate, std::move(options), &in, false);
}

}  // namespace troupe
