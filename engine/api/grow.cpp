// SPDX-License-Identifier: Apache-2.0
// New processes for a running job: the processes of a communicator and the new ones join a job of their own (world/join), which has a core of its
// own in each process that was there before.
//
// The ranks talk about it on a copy of their communicator, the *watch*, which tells them also when one of them is lost:
//
//   copy ──▶ rank 0 serves a rendezvous, and all hear of it ──▶ of each process one rank joins, for all ranks here ──▶ barrier ──▶ shrink
//
// A process that fails on the way revokes the watch, with its error as the reason: that ends the wait of all others, wherever they are. The shrink at the end
// is the agreement: processes that got through the barrier take part, the others have dropped the watch. If all are left, all have grown; if not, none
// has.

#include <algorithm>
#include <charconv>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/ports/link/rendezvous.hpp"
#include "engine/api/code_of_call.hpp"
#include "engine/api/communicator.hpp"
#include "engine/api/end_of_communicator.hpp"
#include "engine/world/communicator_state.hpp"
#include "engine/world/job_id.hpp"
#include "engine/world/join.hpp"
#include "engine/world/tls.hpp"
#include "memory/error.hpp"
#include "memory/exception_text.hpp"

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds look{20};
/// Beyond the deadline of the wait for new processes, so that who waits for another rank's end of it hears that.
constexpr std::chrono::seconds grace{10};

/// An error that ended one rank's part, as the reason of a revoke; and back.
constexpr std::string_view mark = "it ended the grow with code ";
std::string reason_of(errc code, rank_t rank, const std::string& text) {
  return std::string{mark} + std::to_string(static_cast<int>(code)) + ", rank " + std::to_string(rank) + ": " + text;
}
std::optional<error> error_from(const std::string& text) {
  const auto at = text.find(mark);
  if (at == text.npos) return std::nullopt;
  int code = 0;
  const char* const end = text.data() + text.size();
  const auto [behind, problem] = std::from_chars(text.data() + at + mark.size(), end, code);
  if (problem != std::errc{} || end - behind < 2 || code <= 0 || code > static_cast<int>(last_errc))
    return std::nullopt;
  return error(static_cast<errc>(code), std::string{behind + 2, end});
}

/// Which of the communicator's processes lives here, in the order of their first ranks; and how many there are.
std::pair<std::uint32_t, std::uint32_t> number_of_process(const communicator_state& of, rank_t mine) {
  if (of.process_of.empty()) return {0, 1};
  std::vector<std::uint32_t> seen;
  for (const std::uint32_t process : of.process_of)
    if (std::ranges::find(seen, process) == seen.end()) seen.push_back(process);
  const auto at = std::ranges::find(seen, of.process_of[static_cast<std::size_t>(mine)]);
  return {static_cast<std::uint32_t>(at - seen.begin()), static_cast<std::uint32_t>(seen.size())};
}

}  // namespace

/// One rank's call.
struct TROUPE_INTERNAL communicator::grow_call {
  const std::shared_ptr<communicator_state> of;
  const rank_t rank;
  const int processes;
  const grow_options options;
  const clock::time_point until;
  communicator watch{};
  std::unique_ptr<actors::rendezvous_service> service{};  ///< on rank 0

  communicator run(communicator& whole);

private:
  bool cancelled() const { return options.cancel != nullptr && options.cancel->load(); }
  std::chrono::nanoseconds left() const {
    return std::max<std::chrono::nanoseconds>(until - clock::now(), std::chrono::nanoseconds{0});
  }
  void finish(request what) const;
  void copy(communicator& whole);
  job_id agree();
  void join(const job_id& id);
  void settle();
  communicator take();
  void tell_others(errc code, const std::string& text);
};

/// Waits for it, unless the caller cancels.
void communicator::grow_call::finish(request what) const {
  while (!what.wait_for(look))
    if (cancelled()) {
      what.cancel();
      static_cast<void>(what.try_wait());
      throw error(errc::cancelled, "it was cancelled");
    }
}

void communicator::grow_call::copy(communicator& whole) try {
  finish(whole.duplicate_async(watch, {.deadline = left()}));
} catch (const error& e) {
  switch (e.code_value()) {
    case errc::peer_lost:
    case errc::revoked:
    case errc::communicator_aborted:
    case errc::actor_lost:
      throw error(e.code_value(),
                  of->name + ": only a communicator that is whole can grow; shrink it, and let grow what is left (" +
                      e.what() + ")");
    default: throw error(e.code_value(), of->name + ": grow: " + e.what());
  }
}

/// On the job that is going to be.
job_id communicator::grow_call::agree() {
  if (processes < 1 || processes > 65535)
    throw error(errc::invalid_argument, std::to_string(processes) + " new processes; there can be 1 … 65535");
  job_id id;
  if (rank == 0) {
    if (!options.invite)
      throw error(errc::invalid_argument, "rank 0 has nobody to give the invitation to: grow_options::invite is empty");
    const join_options& joined = of->core->root()->joined_by;
    const auto time = std::chrono::ceil<std::chrono::milliseconds>(left() + grace);
    served_id made =
        serve_id({.listen = options.listen, .serve_for = time},
                 joined.interfaces.empty() ? interfaces_of_environment() : joined.interfaces,
                 number_of_process(*of, rank).second, static_cast<std::uint32_t>(processes), tls_of(of->core->options));
    id = made.id;
    service = std::move(made.service);
  }
  finish(watch.broadcast_async(id.bytes, 0, {.deadline = left()}));
  if (const auto fresh = meeting_of(id).fresh; fresh != static_cast<std::uint32_t>(processes))
    throw error(errc::mismatch, "rank 0 grows by " + std::to_string(fresh) + " processes, and rank " +
                                    std::to_string(rank) + " by " + std::to_string(processes));
  if (rank == 0) {
    const actors::no_waiting inside;
    options.invite(text_of_invitation(id));
  }
  return id;
}

/// By one rank of each process, for all that live in it.
void communicator::grow_call::join(const job_id& id) {
  const auto& cells = of->table->cells();
  if (rank != cells.front()->rank()) return;
  const std::shared_ptr<engine_core> root = of->core->root();
  root->end_unused();
  const auto core = std::make_shared<engine_core>(of->core->options);
  core->grown_from = root;
  join_options how = root->joined_by;
  how.deadline = std::chrono::ceil<std::chrono::milliseconds>(left());
  end_of_communicator end{watch};
  const auto give_up = [&] { return end.came() || cancelled(); };
  try {
    join_grown(*core, id, number_of_process(*of, rank).first, static_cast<int>(cells.size()), how, give_up);
    root->adopt(core);
    const auto world = found_job_world(*core, of->run);
    std::vector<communicator> here;
    std::vector<int> order;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      auto member = std::make_shared<impl>();
      member->of = world;
      member->rank = world->table->cells()[i]->rank();
      here.push_back(communicator{std::move(member)});
      order.push_back(cells[i]->rank());
    }
    std::vector<communicator> grown = ordered(std::move(here), order, until, give_up);
    for (std::size_t i = 0; i < cells.size(); ++i) watch.impl_->of->grown.emplace_back(order[i], std::move(grown[i]));
  } catch (const error&) {
    if (end.came()) end.raise();
    throw;
  }
}

void communicator::grow_call::settle() {
  communicator rest = watch.shrink({.deadline = communicator_state::usual_deadline});
  if (rest.size() != watch.size())
    throw error(errc::peer_lost, "a rank gave up, or its process was lost, when the others were ready");
}

/// The world that this process's rank has made for all.
communicator communicator::grow_call::take() {
  auto& all = watch.impl_->of->grown;
  return std::move(std::ranges::find(all, rank, [](const auto& one) { return one.first; })->second);
}

/// The ranks by way of the watch, new processes at the rendezvous. Nothing if they know better.
void communicator::grow_call::tell_others(errc code, const std::string& text) {
  watch.revoke(reason_of(code, rank, text));
  if (!service) return;
  service->refuse("the job does not grow: " + text, number_of_process(*of, rank).second);
  serve_in_background(std::move(service));
}

communicator communicator::grow_call::run(communicator& whole) {
  copy(whole);
  try {
    const job_id id = agree();
    join(id);
    finish(watch.barrier_async({.deadline = left() + grace}));
    settle();
    if (service) serve_in_background(std::move(service));
    return take();
  } catch (const error& e) {
    const std::optional<error> of_other = error_from(e.what());
    const error& cause = of_other ? *of_other : e;
    tell_others(cause.code_value(), cause.what());
    throw error(cause.code_value(), of->name + ": grow: " + cause.what());
  } catch (const std::bad_alloc&) {
    tell_others(errc::out_of_memory, "there is no memory for it");
    throw;
  } catch (...) {
    tell_others(errc::aborted, "its invite threw: " + text_of(std::current_exception()));
    throw;
  }
}

communicator communicator::grow(int processes, grow_options options) {
  if (!impl_) refuse_empty();
  const std::shared_ptr<communicator_state> of = impl_->of;
  const gate::pass inside{of->core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  actors::runtime::check_may_wait();
  const auto time = of->deadline_for(impl_->rank, options.deadline).value_or(communicator_state::usual_deadline);
  return grow_call{of, impl_->rank, processes, std::move(options), clock::now() + time}.run(*this);
}

std::error_code communicator::try_grow(communicator& into, int processes, grow_options options) noexcept {
  return code_of_call([&] { into = grow(processes, std::move(options)); }, errc::aborted);
}

std::vector<communicator> communicator::ordered(std::vector<communicator> whole, const std::vector<int>& keys,
                                                clock::time_point until, const std::function<bool()>& give_up) {
  std::vector<communicator> parts(whole.size());
  std::vector<request> asked;
  std::exception_ptr problem;
  const auto stop = [&](std::exception_ptr why) {
    if (!problem) problem = std::move(why);
    for (request& each : asked) each.cancel();
  };
  const auto left = std::max<std::chrono::nanoseconds>(until - clock::now(), std::chrono::nanoseconds{0});
  try {
    for (std::size_t i = 0; i < whole.size(); ++i)
      asked.push_back(whole[i].split_async(parts[i], 0, keys[i], {.deadline = left}));
  } catch (...) {
    stop(std::current_exception());
  }
  // All of them end before anything is thrown: they write to `parts`.
  for (request& each : asked) try {
      while (!each.wait_for(look))
        if (!problem && give_up()) stop(std::make_exception_ptr(error(errc::cancelled, "the join was cancelled")));
    } catch (...) {
      stop(std::current_exception());
    }
  if (problem) std::rethrow_exception(problem);
  return parts;
}

}  // namespace troupe
