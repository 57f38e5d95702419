// SPDX-License-Identifier: Apache-2.0
#include "protocols/agreement/agreement.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {
std::size_t index(rank_t rank) { return static_cast<std::size_t>(rank); }
constexpr std::size_t most_waits_told = 8;
}  // namespace

failure_ptr make_failure(errc code, std::string text) {
  return std::make_shared<const failure>(failure{code, std::move(text)});
}

std::string list_ranks(const std::vector<rank_t>& ranks) {
  std::vector<std::string> items;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    items.push_back(std::to_string(ranks[i]));
    if (last == i + 1) items.push_back(std::to_string(ranks[last]));
    if (last > i + 1) items.back() += "–" + std::to_string(ranks[last]);
    i = last;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return text;
}

agreement::agreement(int ranks, std::string communicator)
    : ranks_(ranks),
      communicator_(std::move(communicator)),
      gone_(index(ranks)),
      called_by_gone_(index(ranks)),
      last_of_gone_(index(ranks)),
      dead_(index(ranks)) {}

// -- transitions ------------------------------------------------------------------------------------------------------

void agreement::called(epoch_t epoch, rank_t rank, call what, audience& out) {
  record& r = open(epoch);
  if (!r.calls[index(rank)]) ++r.called;
  r.calls[index(rank)] = std::move(what);
  r.suspected = r.doomed = 0;
  if (r.stopping) return;
  if (broken_) return begin_stop(epoch, r, broken_, out);
  if (r.called < ranks_)
    for (rank_t other = 0; other < ranks_; ++other)
      if (gone_[index(other)] && !r.calls[index(other)] && !before(epoch, called_by_gone_[index(other)]))
        return begin_stop(epoch, r, departure(other), out);
  // They wait for each other, or for somebody who has run ahead and says nothing by itself. Asked once: a rank that has not come yet remembers it.
  if (!r.differ && differs_from_another(r, rank, epoch)) {
    r.differ = true;
    if (r.called < ranks_) out.ask(epoch);
  }
  conclude_if_known(epoch, r, out);
}

/// From the first of the others that came, who are alike, or have been found to differ.
bool agreement::differs_from_another(const record& r, rank_t rank, epoch_t epoch) {
  const call& mine = *r.calls[index(rank)];
  for (const auto& c : r.calls)
    if (c && &*c != &mine)
      return fingerprint(*c, epoch, c->plan()) != fingerprint(mine, epoch, mine.plan()) || c->history != mine.history;
  return false;
}

/// Everybody has come, or has performed it, which nobody can before all are known to call the same.
void agreement::conclude_if_known(epoch_t epoch, record& r, audience& out) {
  for (rank_t rank = 0; rank < ranks_; ++rank)
    if (!r.calls[index(rank)] && !r.performed[index(rank)]) return;
  std::vector<call> calls;
  calls.reserve(index(ranks_));
  for (auto& c : r.calls)
    if (c) calls.push_back(*c);
  if (static_cast<int>(calls.size()) < ranks_) {
    records_.erase(epoch);
    return out.agreed(epoch, nullptr);
  }
  if (std::string why = disagreement(calls, epoch); !why.empty()) {
    failure_ptr told = make_failure(errc::mismatch, communicator_ + ", " + why);
    return disagrees_late(calls) ? abort(std::move(told), out) : begin_stop(epoch, r, std::move(told), out);
  }
  counts_ptr counts;
  if (!calls[0].uniform) counts = std::make_shared<const std::vector<std::size_t>>(merge_counts(calls));
  records_.erase(epoch);
  out.agreed(epoch, counts);
}

void agreement::differs(epoch_t epoch, audience& out) {
  const auto at = records_.find(epoch);
  if (at != records_.end() && !at->second.stopping) out.ask(epoch);
}

void agreement::withdraw(epoch_t epoch, rank_t rank, audience& out, std::optional<call> ahead) {
  const auto at = records_.find(epoch);
  if (at == records_.end() || at->second.stopping) return;
  record& r = at->second;
  const bool waited = r.calls[index(rank)] && !r.ahead[index(rank)];
  if (waited) --r.called;
  // A rank that has performed it had heard of everybody; one that ran ahead has not, and is asked with every look.
  if (!ahead || !r.ahead[index(rank)]) r.suspected = r.doomed = 0;
  r.ahead[index(rank)] = ahead.has_value();
  r.performed[index(rank)] = !ahead;
  r.calls[index(rank)] = std::move(ahead);
  if (r.called == 0) records_.erase(at);
  else conclude_if_known(epoch, r, out);
}

void agreement::fail(epoch_t epoch, const std::string& title, failure_ptr why, audience& out) {
  ++failures_;  // suspicions of all begin anew: stuck()
  record& r = open(epoch);
  if (r.title.empty()) r.title = title;
  // A refusal is the reason why the others timed out or gave up, if they just did.
  if (!r.stopping) begin_stop(epoch, r, std::move(why), out);
  else if (why->code == errc::peer_refused && r.why->code != errc::mismatch && r.why != broken_) r.why = std::move(why);
}

void agreement::stopped(epoch_t epoch, rank_t rank, std::vector<std::string> waits, audience& out, presence came) {
  const auto at = records_.find(epoch);
  if (at == records_.end() || !at->second.stopping) return;
  record& r = at->second;
  r.has_stopped[index(rank)] = true;
  r.performed[index(rank)] = came.performed;
  r.ahead[index(rank)] = r.ahead[index(rank)] || came.ahead;
  if (came.what && !r.calls[index(rank)]) {
    r.calls[index(rank)] = std::move(came.what);
    ++r.called;
  }
  for (std::string& wait : waits)
    if (r.waits.size() < most_waits_told) r.waits.push_back("rank " + std::to_string(rank) + " " + std::move(wait));
  finish_if_stopped(epoch, out);
}

void agreement::left(rank_t rank, epoch_t operations, audience& out, call last, const sends_ptr& sent) {
  gone_[index(rank)] = true;
  called_by_gone_[index(rank)] = operations;
  last_of_gone_[index(rank)] = std::move(last);
  out.peer_left(rank, sent);
  for (auto& [epoch, r] : records_)
    if (!r.stopping && !r.calls[index(rank)] && !before(epoch, operations)) begin_stop(epoch, r, departure(rank), out);
}

void agreement::lost(rank_t rank, const std::string& reason, audience& out) {
  lost(rank,
       make_failure(errc::actor_lost, communicator_ + ": an actor of rank " + std::to_string(rank) + " ended (" +
                                          reason + "); the communicator cannot be used any more"),
       out);
}

void agreement::lost(rank_t rank, failure_ptr why, audience& out) {
  if (dead_[index(rank)]) return;
  dead_[index(rank)] = true;
  out.peer_lost(rank);
  abort(std::move(why), out);
  std::vector<epoch_t> waiting;
  for (const auto& [epoch, r] : records_) waiting.push_back(epoch);
  for (const epoch_t epoch : waiting) finish_if_stopped(epoch, out);
}

void agreement::abort(failure_ptr why, audience& out) {
  if (!broken_) {
    broken_ = std::move(why);
    out.broken(broken_);
  }
  for (auto& [epoch, r] : records_)
    if (!r.stopping) begin_stop(epoch, r, broken_, out);
}

void agreement::stuck(look_t look, look_t latest, bool nobody_else, audience& out) {
  for (auto& [epoch, r] : records_) {
    if (r.stopping || r.called == 0) continue;
    if (std::exchange(r.failures_seen, failures_) != failures_) r.suspected = r.doomed = 0;
    const bool known = r.suspected != 0;
    const bool confirmed = nobody_else && confirm(r.suspected, look, latest);
    if (!confirmed) {
      if (!known) out.ask(epoch);
      continue;
    }
    // The ranks hear of this look, too, and may find that another operation has lost a message. Then that one fails, and a rank that waits for
    // it goes on, and may call this one: fail() begins anew.
    if (r.doomed == 0) r.doomed = look;
    if (look == r.doomed) continue;
    begin_stop(epoch, r,
               make_failure(errc::rank_missing,
                            "every rank waits and nothing is under way, so this operation can never complete"),
               out);
  }
}

std::vector<std::string> agreement::overdue(int looks) {
  std::vector<std::string> result;
  for (auto& [epoch, r] : records_) {
    if (r.stopping || r.called == 0 || ++r.seen_open != looks) continue;
    std::vector<rank_t> here, missing;
    for (rank_t rank = 0; rank < ranks_; ++rank)
      if (!r.calls[index(rank)] && !r.performed[index(rank)]) missing.push_back(rank);
      else if (r.calls[index(rank)] && !r.ahead[index(rank)]) here.push_back(rank);
    result.push_back(name_of(epoch, r) + ": " + list_ranks(here) + (here.size() == 1 ? " waits" : " wait") + "; " +
                     list_ranks(missing) + (missing.size() == 1 ? " has" : " have") + " not called it" +
                     partial_table(r));
  }
  return result;
}

std::vector<std::string> agreement::held(int looks) {
  std::vector<std::string> result;
  for (auto& [epoch, r] : records_) {
    if (!r.stopping || ++r.seen_stopping != looks) continue;
    std::vector<rank_t> by;
    for (rank_t rank = 0; rank < ranks_; ++rank)
      if (!r.has_stopped[index(rank)] && !dead_[index(rank)]) by.push_back(rank);
    // A rank that performs looks up after every piece of work; what can keep it is not ours.
    result.push_back(name_of(epoch, r) + ": has failed (" + r.why->text + "), but " + list_ranks(by) +
                     (by.size() == 1 ? " does" : " do") +
                     " not let go of it, as where a function that reduces does not return, or a process is stopped");
  }
  return result;
}

// -- records ----------------------------------------------------------------------------------------------------------

agreement::record& agreement::open(epoch_t epoch) {
  record& r = records_[epoch];
  if (r.calls.empty()) {
    r.calls.resize(index(ranks_));
    r.ahead.resize(index(ranks_));
    r.has_stopped.resize(index(ranks_));
    r.performed.resize(index(ranks_));
  }
  return r;
}

void agreement::begin_stop(epoch_t epoch, record& r, failure_ptr why, audience& out) {
  r.stopping = true;
  r.why = std::move(why);
  out.stop(epoch);
}

void agreement::finish_if_stopped(epoch_t epoch, audience& out) {
  const auto at = records_.find(epoch);
  if (at == records_.end() || !at->second.stopping) return;
  for (rank_t rank = 0; rank < ranks_; ++rank)
    if (!at->second.has_stopped[index(rank)] && !dead_[index(rank)]) return;
  record& r = at->second;
  r.called =
      static_cast<int>(std::count_if(r.calls.begin(), r.calls.end(), [](const auto& c) { return c.has_value(); }));
  // A rank that has performed it called what the others called.
  if (const auto known = std::find_if(r.calls.begin(), r.calls.end(), [](const auto& c) { return c.has_value(); });
      known != r.calls.end()) {
    for (rank_t rank = 0; rank < ranks_; ++rank)
      if (r.performed[index(rank)] && !r.calls[index(rank)]) r.calls[index(rank)] = **known, ++r.called;
  }
  // A mismatch is its own table, and a broken communicator its own story; everything else is told with who came.
  const bool plain = r.why->code == errc::mismatch || r.why == broken_;
  const failure_ptr told = plain ? r.why : make_failure(r.why->code, describe(epoch, r));
  // Results that some ranks have got cannot be taken back; from here on no rank can get one.
  const bool late = (told->code == errc::mismatch || told->code == errc::peer_refused) &&
                    std::any_of(r.calls.begin(), r.calls.end(), [](const auto& c) { return c && c->ahead(); });
  records_.erase(at);
  out.failed(epoch, told);
  if (late) abort(told, out);
}

std::string agreement::untold_disagreement() const {
  if (broken_) return {};
  const epoch_t last = *std::max_element(called_by_gone_.begin(), called_by_gone_.end());
  std::string why = earlier_disagreement(last_of_gone_, last);
  return why.empty() ? why : communicator_ + ", " + why;
}

std::string agreement::name_of(epoch_t epoch, const record& r) const {
  for (const auto& c : r.calls)
    if (c) return communicator_ + ", operation #" + std::to_string(epoch) + " " + to_string(*c);
  return communicator_ + ", operation #" + std::to_string(epoch) + ' ' + r.title;
}

failure_ptr agreement::departure(rank_t rank) const {
  const epoch_t operations = called_by_gone_[index(rank)];
  return make_failure(errc::rank_missing, "rank " + std::to_string(rank) + " left the communicator after " +
                                              std::to_string(operations) +
                                              (operations == 1 ? " operation" : " operations") + " and cannot call it");
}

std::string agreement::describe(epoch_t epoch, const record& r) const {
  std::string text = name_of(epoch, r) + ": " + r.why->text;
  if (r.why->code == errc::peer_refused) return text;  // it says who is missing, and nobody waits any more
  // Without any call in the record the operation was agreed on before it failed: everybody had come.
  if (r.called > 0 && r.called < ranks_) {
    std::vector<rank_t> here, missing;
    for (rank_t rank = 0; rank < ranks_; ++rank) {
      if (r.ahead[index(rank)]) continue;  // it has performed its part
      if (r.calls[index(rank)]) here.push_back(rank);
      else if (!gone_[index(rank)] && !dead_[index(rank)]) missing.push_back(rank);
    }
    // Of those that may still come it is only said that they have not; those that left are named already, and what the dead called nobody
    // knows.
    if (!missing.empty())
      text += "; " + list_ranks(missing) + (missing.size() == 1 ? " has" : " have") + " not called it";
    if (!here.empty())
      text += (missing.empty() ? "; " : ", ") + list_ranks(here) + (here.size() == 1 ? " waits" : " wait");
    text += partial_table(r);
  } else {
    for (const std::string& wait : r.waits) text += "\n  " + wait;
  }
  return text;
}

/// Those who came called different things: say so, it is the likelier cause.
std::string agreement::partial_table(const record& r) const {
  std::string first, text;
  bool differ = false;
  for (rank_t rank = 0; rank < ranks_; ++rank) {
    const auto& c = r.calls[index(rank)];
    if (!c) continue;
    const std::string line = to_string(*c);
    if (first.empty()) first = line;
    differ |= line != first;
    text += "\n  rank " + std::to_string(rank) + ": " + line;
  }
  return differ ? "; and those that came called different operations" + text : std::string{};
}

}  // namespace troupe
