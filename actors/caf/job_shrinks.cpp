// SPDX-License-Identifier: Apache-2.0
// The agreement on the ranks that are left of a communicator of a job: carries its words between the processes, and its answers to the callers that wait.

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/caf/job_links.hpp"

namespace troupe::actors {

/// What one transition of the agreements says. Its words leave at once: the mesh calls nobody back for that. Its answers are told when the lock is given
/// back: a receiver may hold, or want, locks of a communicator under which others come here.
class job_links::answers final : public shrink_agreements::outbox {
public:
  explicit answers(job_links& l) : links_(l) {}
  void send(std::uint32_t process, communicator_id of, const shrink_word& what) override {
    frame_head head;
    head.communicator = of;
    head.kind = frame_kind::process;
    links_.mesh_.send_word(process, head, to_wire(process_word{what}));
  }
  void answered(communicator_id of, std::uint64_t number, const std::vector<rank_t>& members,
                const failure_ptr& why) override {
    if (auto at = links_.told_.extract({of, number})) all_.push_back({std::move(at.mapped()), members, why});
  }
  void tell() const {
    for (const auto& each : all_) each.told(each.members, each.why);
  }

private:
  struct answer {
    survivors_told told;
    std::vector<rank_t> members;
    failure_ptr why;
  };
  job_links& links_;
  std::vector<answer> all_;
};

job_links::job_links(mesh_options options, roster in, std::uint32_t here, const job_key& key,
                     std::vector<descriptor> listeners, arena& memory, std::shared_ptr<spdlog::logger> log)
    : log_(std::move(log)),
      agreements_(here),
      mesh_(std::move(options), std::move(in), here, key, std::move(listeners), memory, *this) {}

job_links::~job_links() = default;

/// @pre not locked, but by enter(): nobody waits yet for an answer of a communicator that is being entered
template <class Transition>
void job_links::decide(Transition&& transition) {
  answers out(*this);
  {
    const std::lock_guard lock(mutex_);
    transition(out);
  }
  out.tell();
}

void job_links::contribute(const communicator_actors_ptr& of, std::uint64_t which, std::vector<rank_t> mine,
                           survivors_told told) {
  decide([&](answers& out) {
    told_.insert_or_assign({of->id, which}, std::move(told));
    agreements_.contribute(of->id, which, std::move(mine), out);
  });
}

std::vector<std::uint32_t> job_links::missing(communicator_id of, std::uint64_t which) {
  const std::lock_guard lock(mutex_);
  return agreements_.missing(of, which);
}

void job_links::all_left(communicator_id of) {
  decide([&](answers& out) { agreements_.all_left(of, out); });
}

void job_links::forget(communicator_id id) {
  decide([&](answers& out) {
    agreements_.forget(id, out);
    communicators_.erase(id);
    early_.end(id);
  });
  ended_.notify_all();
}

void job_links::end_shrinks() {
  std::map<std::pair<communicator_id, std::uint64_t>, survivors_told> nobody;
  const std::lock_guard lock(mutex_);
  nobody.swap(told_);
}

void job_links::lost_for(communicator_id of, std::uint32_t process) {
  decide([&](answers& out) { agreements_.lost_for(of, process, out); });
}

void job_links::place_given_up(communicator_id parent, const gave_up_word& what) {
  decide([&](answers& out) { agreements_.gave_up(parent, what.epoch, what.rank, out); });
}

void job_links::remember_lost(std::uint32_t process, const std::string& how) {
  decide([&](answers& out) {
    lost_on_host(process);
    lost_.emplace(process, how);
    agreements_.lost(process, out);
  });
}

void job_links::expelled(const std::string& why) {
  decide([&](answers& out) { agreements_.expelled(why, out); });
}

bool job_links::shrink_arrived(std::uint32_t from, const frame_head& head, std::span<const std::byte> body,
                               const shrink_word& what) {
  auto met = shrink_agreements::reception::taken;
  decide([&](answers& out) {
    met = agreements_.heard(from, head.communicator, what, early_.is_over(head.communicator), out);
    if (met == shrink_agreements::reception::early)
      early_.keep(head.communicator, from, [&] { return early_frame{head, {}, {}, {body.begin(), body.end()}}; });
  });
  return met != shrink_agreements::reception::nonsense;
}

}  // namespace troupe::actors
