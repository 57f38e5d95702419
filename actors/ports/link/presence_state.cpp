// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/presence_state.hpp"

#include <algorithm>
#include <map>
#include <new>
#include <variant>

namespace troupe::actors {

namespace {

std::string text_of(std::chrono::milliseconds time) { return std::to_string(time.count()) + " ms"; }

}  // namespace

std::string name_of(const roster& in, std::uint32_t process) {
  const process_place& p = in.processes[process];
  const std::string last = std::to_string(p.first_rank + p.ranks - 1);
  return "process " + std::to_string(process) + " (" +
         (p.ranks == 1 ? "rank " + last : "ranks " + std::to_string(p.first_rank) + "–" + last) + ", pid " +
         std::to_string(p.pid) + " on host " + p.host + ")";
}

std::string trouble_with_groups(const roster& in) {
  const auto said = [&](std::uint32_t p) {
    std::string path;
    for (const std::string& group : in.processes[p].groups) path += (path.empty() ? "" : "/") + group;
    return path.empty() ? std::string{"names no pod"} : "is in pod " + path;
  };
  const auto both = [&](std::uint32_t p, std::uint32_t q) {
    return name_of(in, p) + " " + said(p) + ", and " + name_of(in, q) + " " + said(q);
  };
  std::map<std::uint64_t, std::uint32_t> first_of;  // by host
  for (std::uint32_t p = 0; p < in.processes.size(); ++p) {
    const process_place& mine = in.processes[p];
    if (mine.groups.size() > most_groups)
      return name_of(in, p) + " is in a pod of " + std::to_string(mine.groups.size()) + " levels; there can be " +
             std::to_string(most_groups);
    if (mine.groups.empty() != in.processes[0].groups.empty() && (mine.told_groups || in.processes[0].told_groups))
      return both(0, p) + "; say it of all hosts of the job (TROUPE_POD, or pod in the file of hosts), or of none";
    if (const auto at = first_of.try_emplace(mine.host_key, p).first->second;
        names_groups(in) && in.processes[at].groups != mine.groups)
      return both(at, p) + "; a host is in one pod (TROUPE_POD)";
  }
  return {};
}

presence_state::presence_state(const roster& all, std::uint32_t here, std::chrono::milliseconds silence,
                               steady_time now)
    : all_(all),
      here_(here),
      silence_(silence),
      fate_(all.processes.size()),
      leavers_(all.processes.size()),
      hears_(all.processes.size()),
      heard_(all.processes.size(), now),
      losses_(all.processes.size()),
      greeted_(static_cast<std::uint32_t>(all.processes.size())),
      greeted_at_(now),
      ran_(now) {
  departed_.reserve(all.processes.size());  // each at most once
}

std::uint32_t presence_state::registrar() const {
  for (std::uint32_t p = 0; p < processes(); ++p)
    if (p == here_ || alive(p)) return p;
  return here_;
}

void presence_state::greet(steady_time now, presence_outbox& out) {
  const std::uint32_t it = registrar();
  if (greeted_ == it) return;
  // A new one may not have heard of those who were lost before.
  const auto greet_one = [&](std::uint32_t who) {
    out.tell(who, beat_word{});
    for (std::uint32_t p = 0; p < processes(); ++p) {
      if (fate_[p].load() != fate::lost || losses_[p].alone || !losses_[p].told) continue;
      if (it == here_) out.tell(who, lost_word{p, losses_[p].how});
      else out.tell(who, suspect_word{p, losses_[p].how});
    }
  };
  if (it != here_) greet_one(it);
  else
    for (std::uint32_t p = 0; p < processes(); ++p)
      if (p != here_) greet_one(p);
  greeted_ = it;
  greeted_at_ = now;
}

void presence_state::hears(std::uint32_t process, bool stands, steady_time now) {
  runs(now);
  hears_[process] = stands;
  if (stands) heard_[process] = now;
}

void presence_state::awake(steady_time now) {
  runs(now);
  std::fill(heard_.begin(), heard_.end(), now);
}

void presence_state::runs(steady_time now) {
  if (now - ran_ > silence_ - between_ticks()) woke_ = now;
  ran_ = std::max(ran_, now);
}

// -- who is lost --------------------------------------------------------------------------------------------------------

void presence_state::ended(std::uint32_t process, const std::string& how, steady_time now, presence_outbox& out) {
  runs(now);
  if (leavers_[process]) return gone(process, now, out);
  if (!leaving_ && alive(process) && woke_within(2 * between_ticks(), now))
    return lose_all("this process was stopped for longer than it may be silent, and " + name_of(all_, process) +
                        " does not count on it any more: " + how,
                    now, out);
  lose(process, how, now, out);
}

/// Of those that are left, but this one.
bool presence_state::is_last(std::uint32_t process) const {
  for (std::uint32_t p = 0; p < processes(); ++p)
    if (p != process && p != here_ && alive(p)) return false;
  return true;
}

void presence_state::lose(std::uint32_t process, const std::string& how, steady_time now, presence_outbox& out) {
  if (leaving_) return gone(process, now, out);
  if (process == here_ || !alive(process)) return;
  // Others had lost this process shortly before it loses the last one that is left: none of them goes on with it.
  if (!doubted_.how.empty() && now - doubted_.when <= 2 * silence_ && is_last(process))
    return lose_all(doubted_.how, now, out);
  try {
    // It may only have been stopped: when it goes on it must hear that nobody counts on it any more.
    if (out.can_hear(process)) out.tell(process, lost_word{process, how});
  } catch (const std::bad_alloc&) {  // it hears so from others, or by its own silence
  }
  set_lost(process, how, false);
  out.say_lost(process);
  out.close(process);
  tell_loss(process, now, out);
}

void presence_state::set_lost(std::uint32_t process, const std::string& how, bool alone) {
  loss& mine = losses_[process];
  try {
    mine.how = how.empty() ? "no memory" : how;
  } catch (const std::bad_alloc&) {  // lost all the same
  }
  mine.told = false;
  mine.alone = alone;
  fate_[process].store(fate::lost);
}

/// Telling it twice does no harm.
void presence_state::tell_loss(std::uint32_t process, steady_time now, presence_outbox& out) {
  const std::string& how = losses_[process].how;
  if (!losses_[process].alone) {
    if (registrar() != here_) out.tell(registrar(), suspect_word{process, how});
    else
      for (std::uint32_t p = 0; p < processes(); ++p)
        if (p != here_) out.tell(p, lost_word{process, how});
    greet(now, out);
  }
  losses_[process].told = true;
  try {
    out.lost(process, how);
  } catch (const std::bad_alloc&) {
    losses_[process].told = false;
    throw;
  }
  if (!losses_[process].alone) judge(now, out);  // there may be another registrar than before
}

void presence_state::tell_losses(steady_time now, presence_outbox& out) {
  for (std::uint32_t p = 0; p < processes(); ++p)
    if (!losses_[p].told) tell_loss(p, now, out);
}

/// It has said "bye".
void presence_state::gone(std::uint32_t process, steady_time now, presence_outbox& out) {
  if (process == here_ || !alive(process)) return;
  fate_[process].store(fate::left);
  out.close(process);  // which tells it that it has been heard
  // A process that leaves because of a loss may be heard before that loss is.
  if (!leaving_) departed_.emplace_back(process, now);
}

bool presence_state::word(std::uint32_t from, const process_word& what, steady_time now, presence_outbox& out) {
  runs(now);
  if (std::holds_alternative<bye_word>(what)) {
    gone(from, now, out);
  } else if (const auto* s = std::get_if<suspect_word>(&what)) {
    if (s->process >= processes()) return false;
    accuse({from, s->process, true, s->how}, now, out);
  } else if (const auto* l = std::get_if<lost_word>(&what)) {
    if (l->process >= processes()) return false;
    if (l->process != here_) return accuse({from, l->process, false, l->how}, now, out), true;
    const std::string by = "this process was taken for lost by " + name_of(all_, from) + ": " + l->how;
    if (leaving_) return gone(from, now, out), true;
    if (registrar() != here_ || woke_within(silence_, now)) return lose_all(by, now, out), true;
    doubted_ = {by, now};
    lose(from, by, now, out);  // who does not believe the registrar goes
  }
  return true;
}

/// The registrar believes everybody, the others only the registrar. An accusation by a process that may be the registrar soon, or to one that may, is kept until then.
void presence_state::accuse(accusation what, steady_time now, presence_outbox& out) {
  if (!alive(what.process) || what.process == here_) return;
  const auto same = [&](const accusation& a) {
    return a.from == what.from && a.process == what.process && a.suspicion == what.suspicion;
  };
  if (std::none_of(accusations_.begin(), accusations_.end(), same)) accusations_.push_back(std::move(what));
  judge(now, out);
}

void presence_state::judge(steady_time now, presence_outbox& out) {
  for (;;) {
    std::erase_if(accusations_, [this](const accusation& a) { return !alive(a.process) || !alive(a.from); });
    const auto is_due = [this](const accusation& a) { return (a.suspicion ? here_ : a.from) == registrar(); };
    const auto due = std::find_if(accusations_.begin(), accusations_.end(), is_due);
    if (due == accusations_.end()) return;
    const accusation a = std::move(*due);
    accusations_.erase(due);
    lose(a.process, a.how, now, out);
  }
}

/// Nobody counts on this process. It tells nobody: they would believe it of each other.
void presence_state::lose_all(const std::string& how, steady_time now, presence_outbox& out) {
  out.expelled(how);
  for (std::uint32_t p = 0; p < processes(); ++p) {
    if (p == here_ || !alive(p)) continue;
    set_lost(p, how, true);
    out.close(p);
  }
  tell_losses(now, out);
}

// -- time -----------------------------------------------------------------------------------------------------------------

void presence_state::tick(steady_time now, presence_outbox& out) {
  runs(now);
  while (!departed_.empty() && now - departed_.front().second >= between_ticks()) {
    const std::uint32_t process = departed_.front().first;
    departed_.erase(departed_.begin());
    out.left(process);
    greet(now, out);  // not before: most jobs end now, and nobody needs a registrar
    judge(now, out);
  }
  look_for_silent(now, out);
  for (std::uint32_t p = 0; p < processes(); ++p)
    if (p != here_ && alive(p)) out.beat(p);
  tell_losses(now, out);
}

void presence_state::look_for_silent(steady_time now, presence_outbox& out) {
  const bool all_have_called = now - greeted_at_ > std::max<std::chrono::milliseconds>(silence_, first_contact);
  for (std::uint32_t p = 0; p < processes(); ++p) {
    if (p == here_ || !alive(p)) continue;
    if (hears_[p] && now - heard_[p] > silence_ - between_ticks())
      ended(p, "nothing was heard of it for " + text_of(silence_), now, out);
    // A process that was stopped before its connection stood is missed, too.
    else if (!hears_[p] && all_have_called && (here_ == greeted_ || p == greeted_))
      ended(p, "it has never called, or not since its last connection ended", now, out);
  }
}

}  // namespace troupe::actors
