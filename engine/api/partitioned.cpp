// SPDX-License-Identifier: Apache-2.0
#include "engine/api/partitioned.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/rank/operation_parts.hpp"
#include "actors/rank/staging.hpp"
#include "engine/world/communicator_state.hpp"
#include "engine/world/partitioned_access.hpp"
#include "engine/world/wide_parts.hpp"
#include "memory/error.hpp"

namespace troupe {

struct TROUPE_INTERNAL partitioned::prepared {
  std::shared_ptr<communicator::impl> member;
  call_description what;
  std::shared_ptr<wide_parts>
      wide;  ///< of sums that are kept in f32; else null. Shared with callbacks, which may be under way
  actors::plan_ptr plan;
  std::shared_ptr<actors::operation_parts> parts;
  int pieces = 0;
  bool has_input = true;
  std::shared_ptr<request::started> last;
  std::vector<std::shared_ptr<request::started>> made_before;  ///< of earlier repetitions
  static constexpr std::size_t most_kept = 4;
  int given = 0;  ///< of the parts that have arrived, by next_arrived()

  const communicator_state& of() const { return *member->of; }
  const actors::completion& end() const { return last->done; }
  bool under_way() const { return last && !end().done(); }

  void make_ready();
  [[noreturn]] void refuse(const std::string& why) const {
    throw error(errc::invalid_argument, of().name + ", rank " + std::to_string(member->rank) + ", partitioned " +
                                            to_string(wide ? wide->called() : what.what) + ": " + why);
  }
  /// A piece lies in the caller's output as soon as the caller hears that it has arrived.
  void deliver(int part) const {
    if (wide) wide->round(part);
  }
  void deliver_arrived() const {
    for (int p = 0; wide && p < parts->outputs(); ++p)
      if (parts->arrived(p)) wide->round(p);
  }
  void check(int part, int parts, const char* buffer) const {
    if (part < 0 || part >= parts)
      refuse("there is no part " + std::to_string(part) + " of the " + buffer +
             (parts == 0 ? ", which this rank does not have" : "; parts are 0 … " + std::to_string(parts - 1)));
  }
  void check_started() const {
    if (!last) refuse("it was not started yet; call start() first");
  }
  void wait_for_news(int known) const {
    const actors::completion& over = end();
    parts->wait_for_news(known, over, [&](actors::completion& news) {
      const gate::pass inside{of().core->door, member->doorway()};
      const actors::completion_ptr shared{parts, &news};
      if (!inside) {  // the engine is closing, which ends the operation
        actors::parker place;
        if (!news.enter(place)) return;
        while (!news.done()) place.park(actors::no_deadline);
        news.leave(place);
        return;
      }
      of().wait(member->rank, shared);
    });
  }
};

partitioned::partitioned() = default;
partitioned::partitioned(partitioned&&) noexcept = default;
partitioned& partitioned::operator=(partitioned&& other) noexcept {
  const partitioned before{std::move(*this)};  // ends what is under way
  what_ = std::move(other.what_);
  return *this;
}
partitioned::partitioned(std::unique_ptr<prepared> what) : what_(std::move(what)) {}

partitioned::~partitioned() {
  if (!what_ || !what_->under_way() || actors::no_waiting::here()) return;
  cancel();
  static_cast<void>(try_wait());
}

partitioned::prepared& partitioned::here() const {
  if (!what_)
    throw error(errc::invalid_argument,
                "this partitioned operation is empty: it was never made, or moved from; make one by all_gather_init() "
                "or another _init() of a communicator");
  return *what_;
}

void partitioned::start() {
  prepared& p = here();
  const gate::pass inside{p.of().core->door, p.member->doorway()};
  if (!inside) refuse_closed();
  if (p.under_way()) p.refuse("it is still under way; wait for it before it is started again");
  if (p.parts->tells_here()) p.refuse("a callback of one of its parts cannot start it again; start it when it is done");
  p.parts->begin_again();
  if (p.wide) p.wide->begin_again();
  p.given = 0;
  p.make_ready();
  p.last->caller.begin(request::started::share(p.last));
}

/// Over a board the memory of earlier repetitions serves later ones. There are several, since the thread that has told an end may still hold the last one.
void partitioned::prepared::make_ready() {
  const auto is_free = [](const std::shared_ptr<request::started>& one) { return one.use_count() == 1; };
  if (parts->performer && last) {
    const auto other = is_free(last) ? made_before.end() : std::ranges::find_if(made_before, is_free);
    if (other != made_before.end()) std::swap(*other, last);
    if (is_free(last)) return last->again();
  }
  auto made = std::make_shared<request::started>(member->of, member->rank);
  call_description again = what;
  member->of->prepare(made->op, member->rank, again, caller_waits::no, plan);
  made->op.parts = parts;
  if (parts->performer && last && made_before.size() < most_kept) made_before.push_back(std::move(last));
  last = std::move(made);
}

void partitioned::ready(int part) {
  prepared& p = here();
  p.check(part, p.pieces, "input");
  p.check_started();
  if (!p.has_input || p.end().done()) return;
  if (p.wide && !p.parts->ready(part)) p.wide->widen(part);
  if (!p.parts->announce(part)) p.refuse("part " + std::to_string(part) + " was made ready before in this repetition");
  if (const gate::pass inside{p.of().core->door, p.member->doorway()}; inside)
    p.of().cell(p.member->rank).announce(p.parts);
}

bool partitioned::arrived(int part) const {
  const prepared& p = here();
  p.check(part, p.parts->outputs(), "output");
  if (!p.parts->arrived(part)) return false;
  p.deliver(part);
  return true;
}

std::optional<int> partitioned::next_arrived() {
  prepared& p = here();
  p.check_started();
  if (p.given == p.parts->outputs()) return std::nullopt;
  if (p.parts->arrivals() == p.given && !p.end().done()) {
    actors::runtime::check_may_wait();
    p.wait_for_news(p.given);
  }
  if (p.given < p.parts->arrivals()) {
    const int part = p.parts->arrival(p.given++);
    p.deliver(part);
    return part;
  }
  if (p.end().why()) throw_failure(p.end().why());
  return std::nullopt;
}

void partitioned::then(int part, std::function<void(int)> callback) {
  prepared& p = here();
  p.check(part, p.parts->outputs(), "output");
  if (!callback) callback = [](int) {};
  p.parts->then(part, [callback = std::move(callback), log = p.of().core->log, wide = p.wide](int which) {
    const actors::no_waiting inside;
    if (wide) wide->round(which);
    try {
      callback(which);
    } catch (const std::exception& e) {
      log->error("a callback of part {} threw: {}", which, e.what());
    } catch (...) {
      log->error("a callback of part {} threw something that is no std::exception", which);
    }
  });
}

void partitioned::wait() {
  prepared& p = here();
  p.check_started();
  p.last->caller.wait_until(actors::no_deadline);
  p.deliver_arrived();
  if (p.end().why()) throw_failure(p.end().why());
}

std::error_code partitioned::try_wait() noexcept {
  try {
    here().check_started();
    what_->last->caller.wait_until(actors::no_deadline);
  } catch (const error& e) {
    return e.code();
  } catch (...) {
    return make_error_code(errc::invalid_argument);
  }
  what_->deliver_arrived();
  return what_->end().why() ? make_error_code(what_->end().why()->code) : std::error_code{};
}

void partitioned::cancel() {
  if (!what_ || !what_->under_way()) return;
  if (const gate::pass inside{what_->of().core->door, what_->member->doorway()}; inside)
    request::state::end_cancelled({what_->last, &what_->last->caller});
}

void partitioned_access::when_done(partitioned& which, std::function<void(const failure_ptr&)> callback) {
  const std::shared_ptr<request::started> last = which.what_->last;
  // The completion outlives its callbacks: the thread that completes it holds the operation.
  last->done.then([end = &last->done, callback = std::move(callback)] { callback(end->why()); });
}

void partitioned_access::end(partitioned& which, const failure_ptr& why) {
  partitioned::prepared& p = *which.what_;
  if (!p.under_way()) return;
  if (const gate::pass inside{p.of().core->door, p.member->doorway()}; inside)
    request::state::end_with({p.last, &p.last->caller}, why);
}

bool partitioned::done() const noexcept {
  if (!what_ || !what_->last) return true;
  if (!what_->end().done()) return false;
  what_->deliver_arrived();
  return true;
}
int partitioned::input_parts() const noexcept { return what_ ? what_->pieces : 0; }
int partitioned::output_parts() const noexcept { return what_ ? what_->parts->outputs() : 0; }
std::string partitioned::plan() const { return what_ ? what_->plan->title() : std::string{}; }

namespace {

/// An operation that is under way has its parts, and so the memory that it is performed in.
struct board {
  board(std::shared_ptr<wide_parts> in, int inputs, std::vector<std::int32_t> needed)
      : wide(std::move(in)), parts(inputs, std::move(needed)) {}
  std::shared_ptr<wide_parts> wide;
  actors::operation_parts parts;
};

void cut(call_description& what, const partitions& how) {
  call& c = what.what;
  const auto refuse = [&](const std::string& why) {
    throw error(errc::invalid_argument, "partitions of " + to_string(c) + ": " + why);
  };
  if (!c.uniform || what.pair || !traits_of(c.what).partitioned)
    throw error(errc::unsupported, to_string(c) + " cannot be partitioned; " + names_of([](const collective_traits& t) {
                                     return t.partitioned.value;
                                   }) + " can");
  if (how.count < 1 || how.count > partitions::most)
    refuse("there are " + std::to_string(how.count) + " parts; there must be 1 … " + std::to_string(partitions::most));
  const std::size_t each = std::max<std::size_t>(1, what.object_elements), block = c.count / each;
  std::vector<std::size_t> sizes;
  std::size_t left = block;  // so that no sum can be more than fits
  for (const std::size_t objects : how.sizes) {
    if (objects > left) refuse("their sizes make more than the " + std::to_string(block) + " elements of a block");
    left -= objects;
    sizes.push_back(objects * each);
  }
  if (!sizes.empty() && left > 0)
    refuse("their sizes make " + std::to_string(block - left) + " elements, but a block has " + std::to_string(block));
  partition_call(c, static_cast<std::uint32_t>(how.count), std::move(sizes));
}

}  // namespace

partitioned communicator::prepare(call_description what, const partitions& how) {
  if (!impl_) refuse_empty();
  const gate::pass inside{impl_->of->core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  what.options.agreement = agreement_time::strict;  // a part that arrives is right, so there is nothing to be ahead of
  auto made = std::make_unique<partitioned::prepared>();
  made->member = impl_;
  made->pieces = how.count;
  check_call(what, impl_->rank, impl_->of->ranks);
  cut(what, how);
  made->wide = wide_parts::made_for(what, impl_->rank, impl_->of->ranks,
                                    {impl_->of->core->memory, &impl_->of->core->memory->pooled()});
  actors::operation first;
  call_description checked = what;
  impl_->of->describe(first, impl_->rank, checked);
  first.done->complete(nullptr);
  made->plan = first.plan;
  made->what = std::move(what);
  if (actors::keeps_input_apart(*made->plan, first.what, impl_->rank, first.buffers()))
    throw error(errc::unsupported, to_string(first.what) + ": the choreography " + made->plan->choreography +
                                       " cannot be performed in place at the root piece by piece; use two buffers");
  const auto code = made->plan->program_of(impl_->rank);
  made->has_input = input_blocks(first.what.what, impl_->of->ranks, first.what.root, impl_->rank).count > 0;
  const auto kept = std::make_shared<board>(made->wide, made->has_input ? how.count : 0, code->arrivals_needed);
  made->parts = {kept, &kept->parts};
  return partitioned{std::move(made)};
}

}  // namespace troupe
