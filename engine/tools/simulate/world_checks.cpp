// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/world.hpp"
#include "engine/tools/simulate/world_outbox.hpp"

#include <algorithm>
#include <cstring>

#include "memory/error.hpp"

namespace troupe::simulate {

namespace {

constexpr std::byte poison{0xdb};

bool all_are(const std::byte* begin, const std::byte* end, std::byte value) {
  return std::all_of(begin, end, [=](std::byte b) { return b == value; });
}

/// The ranks of "; ranks 0–2 and 5 have not called it".
std::vector<rank_t> said_not_to_have_called(const std::string& text) {
  std::size_t end = text.find(" have not called it");
  if (end == std::string::npos) end = text.find(" has not called it");
  if (end == std::string::npos) return {};
  const std::size_t begin = text.rfind("; rank", end);
  if (begin == std::string::npos) return {};
  std::vector<rank_t> ranks;
  bool range = false;
  for (std::size_t i = begin; i < end;) {
    if (text[i] >= '0' && text[i] <= '9') {
      std::size_t length = 0;
      const rank_t r = std::stoi(text.substr(i), &length);
      if (range)
        for (rank_t k = ranks.back() + 1; k < r; ++k) ranks.push_back(k);
      ranks.push_back(r);
      range = false;
      i += length;
    } else {
      range = range || text.compare(i, 3, "–") == 0;
      ++i;
    }
  }
  return ranks;
}

}  // namespace

void simulation::world::fault(const std::string& text) {
  if (!result_.ok()) return;
  result_.fault = (whole_ != nullptr ? name_ + ": " : "") + text;
  tell([&] { return "FAULT: " + text; });
}

// -- an operation ends ----------------------------------------------------------------------------------------------------------

void simulation::world::ended(caller_operation& o, failure_ptr why) {
  if (o.over) return fault(o.title() + " ended twice");
  if (o.peer < 0 && with_nic(o.rank, o.key.epoch))
    return fault(o.title() + ": its caller has its buffers back while the NIC has them");
  o.over = true;
  o.why = std::move(why);
  o.over_at = now_;
  o.held.reset();
  last_progress_ = now_;
  tell([&] { return o.title() + (o.why ? " fails: " + o.why->text : " is performed"); });
  ++(o.why ? result_.failed : result_.performed);
  if (!o.what.outcome_of) check_buffers(o);
  if (o.why) check_reason(o);
  if (!o.memory.empty()) std::memset(o.memory.data(), static_cast<int>(poison), o.memory.size());
}

void simulation::world::check_buffers(const caller_operation& o) {
  const std::byte *begin = o.memory.data(), *end = begin + o.memory.size();
  const std::byte *in_end = o.in + o.given.size(), *out_end = o.out + o.expected.size();
  const std::byte *first = std::min(o.in, o.out), *last = std::max(in_end, out_end);
  if (!all_are(begin, first, guard) || !all_are(last, end, guard) ||
      (!o.in_place && in_end < o.out && !all_are(in_end, o.out, guard)))
    return fault(o.title() + ": bytes beside its buffers were written");
  // In place the input is overwritten.
  if (!o.in_place && !o.given.empty() && std::memcmp(o.in, o.given.data(), o.given.size()) != 0)
    return fault(o.title() + ": its input was written");
  if (o.why || o.expected.empty()) return;
  for (std::size_t i = 0; i < o.expected.size(); ++i)
    if (o.out[i] != o.expected[i])
      return fault(o.title() + ": wrong result: byte " + std::to_string(i) + " of " +
                   std::to_string(o.expected.size()) + " is " + std::to_string(std::to_integer<int>(o.out[i])) +
                   ", not " + std::to_string(std::to_integer<int>(o.expected[i])));
}

/// The text of a failure must be true.
void simulation::world::check_reason(const caller_operation& o) {
  const auto untrue = [&](const std::string& why) {
    fault(o.title() + " failed for a reason that is not true (" + why + "): " + o.why->text);
  };
  const auto any = [&](auto holds) {
    if (o.peer < 0) {
      const auto& parts = parts_of(o.sequence);
      return std::any_of(parts.begin(), parts.end(), [&](const auto* p) { return p != nullptr && holds(*p); });
    }
    const rank_t from = o.sending ? o.rank : o.peer, to = o.sending ? o.peer : o.rank;
    const auto& ends = pairs_[{from, to, o.sequence}];
    return (ends.first != nullptr && holds(*ends.first)) || (ends.second != nullptr && holds(*ends.second));
  };
  if (o.refused && o.why->code == errc::null_buffer) return;
  if (o.peer < 0) check_named(o);
  if (o.peer < 0 && o.why->code == errc::mismatch && !of_communicator(o)) check_split_named(o);
  const auto pair_name_of = [&] {
    return std::tuple{o.sending ? o.rank : o.peer, o.sending ? o.peer : o.rank, o.key.epoch};
  };
  switch (o.why->code) {
    case errc::cancelled:
      if (!any([](const caller_operation& p) { return p.cancelled; })) untrue("nobody cancelled it");
      return;
    case errc::timed_out:
      if (!any([&](const caller_operation& p) { return p.expires >= 0 && p.expires <= now_; }))
        untrue("no deadline passed");
      return;
    case errc::aborted:
      if (!any([](const caller_operation& p) { return p.thrower.thrown; })) untrue("nothing threw");
      return;
    case errc::communicator_aborted:
      if (!aborted_) untrue("nobody aborted");
      return;
    case errc::actor_lost:
      if (!killed_) untrue("no actor ended");
      return;
    case errc::peer_lost:
      if (!lost_ranks_ && (!what_.nic.nicd || !course_->nics.back().ended))
        untrue("no rank of it was lost, nor a NIC process");
      return;
    case errc::mismatch:
      if (of_communicator(o) ? !differed_ahead()
          : o.peer < 0
              ? !differ(parts_of(o.sequence))
              : !any([&](const caller_operation& p) { return fingerprint(p.what, 0) != fingerprint(o.what, 0); }))
        untrue("all called the same");
      return;
    case errc::message_lost:
      if (o.peer < 0 ? !lost_in_.contains(o.key.epoch) : !lost_between_.contains(pair_name_of()))
        untrue("no message of it was lost");
      return;
    case errc::peer_refused:
      if (of_communicator(o) ? !differed_ahead() : !any([](const caller_operation& p) { return p.refused; }))
        untrue("no call of it was refused");
      return;
    case errc::rank_missing: return check_missing(o);
    default: return untrue("there is no such reason here");
  }
}

/// Called before the rank was stopped, as far as that can be known from outside.
bool simulation::world::came_before_stop(const caller_operation& o, rank_t rank) {
  const caller_operation* p = parts_of(o.sequence)[static_cast<std::size_t>(rank)];
  const auto stopped = stop_answered_.find({o.key.epoch, rank});
  return p != nullptr && (stopped == stop_answered_.end() || p->called_at < stopped->second);
}

/// Of nobody it is said that it had not called, if it had.
void simulation::world::check_named(const caller_operation& o) {
  for (const rank_t r : said_not_to_have_called(o.why->text))
    if (came_before_stop(o, r))
      return fault(o.title() + " failed for a reason that is not true (rank " + std::to_string(r) +
                   " had called it): " + o.why->text);
}

/// Where some split and others call something else, the sentence names both.
void simulation::world::check_split_named(const caller_operation& o) {
  const auto& parts = parts_of(o.sequence);
  std::set<std::string> called;
  bool any_split = false;
  for (const caller_operation* p : parts) {
    if (p == nullptr) continue;
    any_split = any_split || p->it->splits();
    called.insert(to_string(p->what));
  }
  if (!any_split || called.size() < 2) return;
  for (const std::string& name : called)
    if (o.why->text.find(name) == std::string::npos)
      return fault(o.title() + " failed, and the reason does not name " + name + ": " + o.why->text);
}

/// The members of a rank's part, in their order: found by counting, not by sorting.
void simulation::world::check_members(const caller_operation& o, const std::vector<rank_t>& members) {
  const auto& all = o.it->divided;
  const auto color = [&](rank_t r) { return all[2 * static_cast<std::size_t>(r)]; };
  const auto key = [&](rank_t r) { return all[2 * static_cast<std::size_t>(r) + 1]; };
  std::size_t count = 0;
  for (rank_t r = 0; r < what_.ranks; ++r) {
    if (color(r) != color(o.rank)) continue;
    ++count;
    std::size_t before = 0;
    for (rank_t other = 0; other < what_.ranks; ++other)
      before += color(other) == color(r) && (key(other) < key(r) || (key(other) == key(r) && other < r)) ? 1 : 0;
    if (before >= members.size() || members[before] != r)
      return fault(o.title() + ": rank " + std::to_string(r) + " should be rank " + std::to_string(before) +
                   " of its part, and is not");
  }
  if (members.size() != count)
    fault(o.title() + ": its part has " + std::to_string(members.size()) + " ranks, not " + std::to_string(count));
}

void simulation::world::check_missing(const caller_operation& o) {
  const auto untrue = [&](const std::string& why) {
    fault(o.title() + " failed for a reason that is not true (" + why + "): " + o.why->text);
  };
  if (o.peer >= 0) {
    const rank_t from = o.sending ? o.rank : o.peer, to = o.sending ? o.peer : o.rank;
    const auto& ends = pairs_[{from, to, o.sequence}];
    const auto said = said_at_.find(o.why.get());
    const nanoseconds_t when = said == said_at_.end() ? now_ : said->second;
    if (ends.first != nullptr && ends.second != nullptr &&
        std::max(ends.first->called_at, ends.second->called_at) < when &&
        o.why->text.find("left the communicator") == std::string::npos)
      untrue("both ends were called");
    return;
  }
  const auto& parts = parts_of(o.sequence);
  const auto came = [&](rank_t r) { return came_before_stop(o, r); };
  // A rank that was missing when the membership told so may have come before it was stopped.
  const auto begun = stop_begun_.find(o.key.epoch);
  int present = 0;
  for (rank_t r = 0; r < what_.ranks; ++r)
    present +=
        came(r) && begun != stop_begun_.end() && parts[static_cast<std::size_t>(r)]->called_at < begun->second ? 1 : 0;
  if (present == what_.ranks) return untrue("every rank had called it");
  if (const std::size_t at = o.why->text.find(": rank ");
      at != std::string::npos && o.why->text.find("left the communicator") != std::string::npos) {
    const rank_t r = std::stoi(o.why->text.substr(at + 7));
    if (!at_rank(r).left) untrue("rank " + std::to_string(r) + " has not left");
    else if (parts[static_cast<std::size_t>(r)] != nullptr) untrue("rank " + std::to_string(r) + " had called it");
  }
}

// -- chunks ----------------------------------------------------------------------------------------------------------------------

caller_operation* simulation::world::under_way(rank_t rank, const actors::operation_key& key) const {
  for (caller_operation* o : members_[static_cast<std::size_t>(rank)].mine)
    if (o->key == key && !o->over) return o;
  return nullptr;
}

void simulation::world::check_sent(rank_t from, rank_t to, const chunk& what) {
  const bool pair = (what.epoch & point_to_point) != 0;
  caller_operation* const of = under_way(from, {what.epoch, pair ? to : -1, pair});
  if (of == nullptr)
    return fault("rank " + std::to_string(from) + " sends a chunk of epoch " +
                 std::to_string(what.epoch & ~point_to_point) + ", which is over there");
  const auto [at, fresh] =
      sent_.try_emplace({from, to, what.epoch, what.lane, what.sequence}, sent_chunk{of, false, false});
  if (!fresh) return fault("rank " + std::to_string(from) + " sends the same chunk twice");
  ++at_rank(to).unread;
  // v-forms have a plan like the one of their item, whose credits are the same.
  const int credits = pair ? 1 : of->it->how.credits;
  if (++outstanding_[{from, to, what.epoch, what.lane}] > credits)
    fault(of->title() + ": more chunks are under way to rank " + std::to_string(to) + " than the " +
          std::to_string(credits) + " that were granted");
}

void simulation::world::check_consumed(rank_t by, rank_t from, const credit& what) {
  const auto at = sent_.find({from, by, what.epoch, what.lane, what.sequence});
  if (at == sent_.end()) return fault("rank " + std::to_string(by) + " gives back a chunk that was never sent");
  if (std::exchange(at->second.consumed, true))
    return fault("rank " + std::to_string(by) + " consumes a chunk of rank " + std::to_string(from) + " twice");
  --at_rank(by).unread;
  if (at->second.of->over)
    fault("rank " + std::to_string(by) + " reads a buffer of rank " + std::to_string(from) +
          " that its caller has back: " + at->second.of->title());
}

void simulation::world::check_touch(const std::byte* at, std::size_t bytes, const char* what) {
  for (const caller_operation& o : operations_)
    if (o.over && std::less<>{}(at, o.memory.data() + o.memory.size()) && std::less<>{}(o.memory.data(), at + bytes))
      return fault(o.title() + ": its buffer is " + what + " after its caller has it back");
}

bool simulation::world::is_callers(const std::byte* at) const {
  return std::any_of(operations_.begin(), operations_.end(), [&](const caller_operation& o) {
    return !std::less<>{}(at, o.memory.data()) && std::less<>{}(at, o.memory.data() + o.memory.size());
  });
}

void simulation::world::check_poison() const {
  for (const caller_operation& o : operations_)
    if (o.over && !all_are(o.memory.data(), o.memory.data() + o.memory.size(), poison))
      return const_cast<world*>(this)->fault(o.title() + ": its buffers were written after its caller had them back");
}

/// Of chunks that the rank has consumed, and that may lie there until their operation is over.
std::size_t simulation::world::second_copies(rank_t rank) const {
  return static_cast<std::size_t>(std::count_if(sent_.begin(), sent_.end(), [&](const auto& each) {
    const auto& [name, chunk] = each;
    const rank_t peer = (name.epoch & point_to_point) != 0 ? name.from : -1;
    return chunk.twice && chunk.consumed && name.to == rank && under_way(rank, {name.epoch, peer, false}) != nullptr;
  }));
}

/// Early chunks are at most those that were sent to the rank and not consumed, which the credits bound. Those of a dead rank go with the
/// communicator.
void simulation::world::check_bounds(rank_t rank) {
  if (at_rank(rank).shell_gone) return;
  const std::size_t early = at_rank(rank).state->early_chunks(), unread = at_rank(rank).unread;
  if (early > unread && early > unread + second_copies(rank))
    fault("rank " + std::to_string(rank) + " keeps " + std::to_string(early) + " early chunks, and " +
          std::to_string(unread) + " were sent to it that it has not consumed");
}

// -- the end ----------------------------------------------------------------------------------------------------------------------

std::vector<caller_operation*>& simulation::world::parts_of(std::uint64_t sequence) {
  auto& parts = collectives_[sequence];
  if (parts.empty()) parts.resize(members_.size());
  return parts;
}

/// Those who called it did not call the same, as far as they are there.
bool simulation::world::differ(const std::vector<caller_operation*>& parts) const {
  std::vector<call> calls;
  for (const caller_operation* p : parts)
    if (p != nullptr) calls.push_back(p->what);
  if (calls.size() == parts.size()) return !disagreement(calls, 0).empty();
  return std::any_of(calls.begin(), calls.end(),
                     [&](const call& c) { return fingerprint(c, 0) != fingerprint(calls.front(), 0); });
}

/// It was told the end of the communicator.
bool simulation::world::of_communicator(const caller_operation& o) const {
  return o.why && (o.why == membership_.broken() || o.why->code == errc::actor_lost || o.why->code == errc::peer_lost ||
                   o.why->code == errc::communicator_aborted);
}

/// An operation that may run ahead was not called alike by all, so far.
bool simulation::world::differed_ahead() const {
  for (const auto& [number, parts] : collectives_) {
    const bool ahead =
        std::any_of(parts.begin(), parts.end(), [](const auto* p) { return p != nullptr && may_run_ahead(*p); });
    const bool odd = std::any_of(parts.begin(), parts.end(), [](const auto* p) { return p == nullptr || p->refused; });
    if (ahead && (odd || differ(parts))) return true;
  }
  return false;
}

/// A rank that had performed what the others called differently has heard of it since.
bool simulation::world::heard_later(const caller_operation& p) {
  if (membership_.broken() || !untold_.empty()) return true;
  return std::any_of(at_rank(p.rank).mine.begin(), at_rank(p.rank).mine.end(), [&](const caller_operation* o) {
    return o->peer < 0 && o->sequence > p.sequence && o->why && o->why->code == errc::mismatch;
  });
}

/// All ranks that live got the same answer, and a true one, or none did.
void simulation::world::check_outcome(const std::vector<caller_operation*>& parts) {
  const caller_operation* first = nullptr;
  for (const caller_operation* p : parts) {
    if (p == nullptr || !p->what.outcome_of || !p->over || p->refused || at_rank(p->rank).lost) continue;
    if (at_rank(p->rank).shell_gone && killed_) continue;  // no survivor
    if (first == nullptr) first = p;
    if ((p->why == nullptr) != (first->why == nullptr))
      return fault(p->title() + (p->why ? " failed, and on rank " : " succeeded, and not on rank ") +
                   std::to_string(first->rank) + " it did " + (p->why ? "not" : "so") + ": " +
                   (p->why ? p->why->text : first->why->text));
    if (p->why) continue;
    if (p->told != first->told)
      return fault(p->title() + " was answered otherwise than on rank " + std::to_string(first->rank));
    for (const caller_operation* said : parts)
      if (said == nullptr || !said->what.outcome_of ||
          p->told[static_cast<std::size_t>(said->rank)] != said->what.outcome_of->result)
        return fault(p->title() + " was answered with something that a rank has not said");
  }
}

void simulation::world::check_equal(std::uint64_t sequence) {
  const auto& parts = parts_of(sequence);
  const caller_operation* first = nullptr;
  check_outcome(parts);
  const bool different = differ(parts),
             incomplete = std::any_of(parts.begin(), parts.end(), [](auto*p) { return p == nullptr; }),
             refused = std::any_of(parts.begin(), parts.end(), [](auto*p) { return p != nullptr && p->refused; });
  for (const caller_operation* p : parts) {
    if (p == nullptr || at_rank(p->rank).lost) continue;
    if (!p->over) return fault(p->title() + " is not over\n" + who_waits());
    if (!p->why && may_run_ahead(*p)) {
      if ((different || incomplete || refused) && !heard_later(*p))
        return fault(p->title() + " ran ahead and was performed, and its rank never heard that the others differ");
      continue;
    }
    if (!p->why) {
      if (different) return fault(p->title() + " was performed although the ranks called different operations");
      if (incomplete) return fault(p->title() + " was performed although not every rank has called it");
      if (refused) return fault(p->title() + " was performed although a rank's call was refused");
      for (const caller_operation* other : parts)
        if (other->called_at > p->over_at) return fault(p->title() + " was performed before every rank had called it");
      continue;
    }
    if (at_rank(p->rank).shell_gone && killed_) continue;  // no survivor
    if (p->refused) continue;                              // it was told its own reason
    // The rank that heard of the end of the communicator first has that as the reason.
    if (of_communicator(*p)) continue;
    if (first == nullptr) first = p;
    if (p->why->text != first->why->text || p->why->code != first->why->code)
      return fault(p->title() + " failed otherwise than on rank " + std::to_string(first->rank) + ":\n  " +
                   p->why->text + "\n  " + first->why->text);
  }
}

void simulation::world::check_pairs() {
  for (const auto& [name, ends] : pairs_)
    for (const caller_operation* o : {ends.first, ends.second}) {
      if (o == nullptr || at_rank(o->rank).lost) continue;
      if (!o->over) return fault(o->title() + " is not over\n" + who_waits());
      if (o->why || o->may_be_left) continue;
      const caller_operation* const other = o == ends.first ? ends.second : ends.first;
      if (other == nullptr) return fault(o->title() + " was performed although the other end was never called");
      if (at_rank(other->rank).lost) continue;
      if (o->sending && other->why) return fault(o->title() + " was performed but not received: " + other->why->text);
      if (fingerprint(o->what, 0) != fingerprint(other->what, 0))
        return fault(o->title() + " was performed although the ends differ");
    }
}

void simulation::world::check_end() {
  if (!complete()) return check_hang();
  for (const auto& part : parts_)
    if (result_.ok()) part->check_end();
  if (result_.ok() && divisions_.open() > 0)
    return fault(std::to_string(divisions_.open()) + " parts of it wait for ranks whose split is over");
  for (const auto& [sequence, parts] : collectives_)
    if (result_.ok()) check_equal(sequence);
  if (result_.ok()) check_pairs();
  if (!result_.ok()) return;
  check_poison();
  if (whole_ == nullptr && what_.nic.any()) check_nics();
  if (!untold_.empty() && !differed_ahead())
    return fault("at the end a disagreement was told, and there was none: " + untold_);
  const bool calm = whole_ == nullptr && !what_.disturbed() && what_.lose_percent == 0;
  if (calm && result_.failed > 0)
    return fault(std::to_string(result_.failed) + " operations failed although nothing was wrong");
  for (rank_t r = 0; r < what_.ranks; ++r) {
    const actors::rank_state& s = *at_rank(r).state;
    if (at_rank(r).lost) continue;
    if (s.pending()) return fault("rank " + std::to_string(r) + " has something under way although all is over");
    if (membership_.is_lost(r)) continue;
    // A dead sender revokes nothing.
    if (s.early_chunks() > 0 && !killed_ && !lost_ranks_)
      return fault("rank " + std::to_string(r) + " keeps " + std::to_string(s.early_chunks()) +
                   " chunks that nobody will take");
    if (s.channels_under_way() > 0)
      return fault("a channel of rank " + std::to_string(r) + " still performs something");
  }
}

/// All callers have gone, nothing is under way, and nobody has left.
void simulation::world::check_rest() {
  if (membership_.open_operations() > 0)
    return fault("the membership keeps " + std::to_string(membership_.open_operations()) + " operations that are over");
  for (rank_t r = 0; r < what_.ranks; ++r)
    if (at_rank(r).state->stopping() > 0 && !membership_.is_lost(r))
      return fault("rank " + std::to_string(r) + " still waits to be told that something failed");
}

void simulation::world::check_hang() { fault("nothing moves any more, and not all is over\n" + who_waits()); }

std::string simulation::world::who_waits() const {
  std::string text = whole_ != nullptr ? "  waiting in " + name_ + ":" : "  waiting:";
  for (const caller_operation& o : operations_)
    if (!o.over) text += "\n    " + o.title() + ", called at " + std::to_string(o.called_at / 1000) + " us";
  for (rank_t r = 0; r < what_.ranks; ++r) {
    const member& m = members_[static_cast<std::size_t>(r)];
    text += "\n    rank " + std::to_string(r) +
            (m.finished ? ": its thread has ended"
             : m.comes  ? ": its thread is in step " + std::to_string(m.next_step)
                        : ": its split has not ended") +
            (m.state->pending() ? ", something is under way" : "") +
            (membership_.has_left(r) ? ", it has left" : ", it has not left") +
            (caller_performs(m) ? ", a caller performs" : "");
  }
  if (in_flight_ > 0) text += "\n    " + std::to_string(in_flight_) + " messages are under way";
  if (membership_.open_operations() > 0)
    text += "\n    the membership knows " + std::to_string(membership_.open_operations()) + " operations";
  if (membership_.dissolved()) text += "\n    the membership has dissolved";
  for (const auto& part : parts_)
    if (!part->complete()) text += "\n" + part->who_waits();
  return text;
}

}  // namespace troupe::simulate
