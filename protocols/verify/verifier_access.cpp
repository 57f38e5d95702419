// SPDX-License-Identifier: Apache-2.0
#include "protocols/verify/verifier_run.hpp"

#include <algorithm>

namespace troupe::verifying {

// -- words ------------------------------------------------------------------------------------------------------------

bool symbolic_run::wrong(const player& me, std::string what) {
  found_ = fault{me.rank, me.lane, static_cast<int>(me.at), me.slice, std::move(what)};
  return false;
}

std::string symbolic_run::step_name(epoch e) const {
  const player& p = player_at(e.lane);
  const auto [step, slice] = limits_.order().at(p.steps->size(), index(e.time) - 1);
  std::string text =
      "rank " + std::to_string(p.rank) + " lane " + std::to_string(p.lane) + " step " + std::to_string(step);
  if (limits_.slices > 1) text += " (slice " + std::to_string(slice) + ')';
  return text;
}

/// The end of a sentence about an access that nothing orders with `other`.
std::string symbolic_run::unordered(epoch other, bool reads) const {
  if (index(other.lane) < players_.size())
    return ", which " + step_name(other) + (reads ? " reads" : " writes") + ", and nothing orders the two";
  const std::int32_t which = other.lane - static_cast<std::int32_t>(players_.size());
  return ", which is input of rank " + std::to_string(which / score_.partitions) + ", before piece " +
         std::to_string(which % score_.partitions) + " of it is known to be ready";
}

std::string symbolic_run::cell_name(const place& at, std::int32_t i) const {
  return to_string(place{at.buffer, at.owner, at.cell + i, 1});
}

std::string symbolic_run::value_name(node_id n) const {
  const std::int64_t chunk = forest_->chunk(n);
  const std::int64_t blocks = block_count(score_.what, score_.ranks);
  const std::int64_t within = chunk % (blocks * score_.parts);
  std::string text = (forest_->is_leaf(n) ? "rank " : "the reduction over ranks ") + forest_->members(n) +
                     " of block " + std::to_string(within / score_.parts);
  if (score_.parts > 1) text += " part " + std::to_string(within % score_.parts);
  if (limits_.slices > 1) text += " slice " + std::to_string(chunk / (blocks * score_.parts));
  return text;
}

// -- accesses ---------------------------------------------------------------------------------------------------------

/// Another rank's buffers may be touched only after that rank has come and before it leaves.
bool symbolic_run::check_foreign(const player& me, const place& at) {
  if (at.buffer == buffer_kind::l2 || at.owner == self || at.owner == me.rank || at.count == 0) return true;
  const clock_view mine = known(me);
  for (std::int32_t l = first_player_[index(at.owner)]; l < first_player_[index(at.owner) + 1]; ++l)
    if (mine[index(l)] > 0) {
      note_foreign(me, at.owner, at);
      return true;
    }
  return wrong(me, "touches " + to_string(at) + " without a message that says that rank " + std::to_string(at.owner) +
                       " has begun the operation");
}

void symbolic_run::note_foreign(const player& me, rank_t owner, const place& what, std::int32_t sent_by,
                                std::int32_t sent_at) {
  const auto key = static_cast<std::uint64_t>(owner) * players_.size() + static_cast<std::uint64_t>(me.number);
  std::int32_t& at = foreign_numbers_.at(key);
  if (at < 0) {
    at = static_cast<std::int32_t>(foreign_.size());
    foreign_.emplace_back();
  }
  foreign_[index(at)] = {key,      now(me).time, me.number, static_cast<std::int32_t>(me.at),
                         me.slice, what,         sent_by,   sent_at};
}

fault symbolic_run::foreign_fault(rank_t owner, const foreign_access& access) const {
  const player& who = player_at(access.lane);
  const std::string what = access.sent_by < 0
                               ? to_string(access.what)
                               : "the cells that rank " + std::to_string(player_at(access.sent_by).rank) + " step " +
                                     std::to_string(access.sent_at) + " sent";
  return {who.rank, who.lane, access.step, access.slice,
          "touches " + what + ", but rank " + std::to_string(owner) + " may have ended the operation by then"};
}

bool symbolic_run::load(player& me, const place& from, std::vector<node_id>& into) {
  into.clear();
  if (!check_foreign(me, from)) return false;
  if (from.count == 0) return true;
  const std::size_t cell = table_.number(me.rank, from);
  for (std::int32_t i = 0; i < from.count; ++i) {
    const std::size_t at = table_.location(cell + index(i), me.slice);
    if (const epoch other = memory_.read(at, known(me), now(me)); other.time != 0)
      return wrong(me, "reads " + cell_name(from, i) + unordered(other));
    const node_id value = memory_.value(at);
    if (value == reduction_forest::none)
      return wrong(me, "reads " + cell_name(from, i) + ", which nothing has written");
    into.push_back(value);
  }
  return true;
}

bool symbolic_run::receive(player& me, message& m) {
  const place& into = received_into(me.now());
  const rank_t from = me.now().from;
  if (m.count != into.count)
    return wrong(
        me,
        "expects " +
            (into.count == 0 ? std::string{"a token"} : std::to_string(into.count) + " cells for " + to_string(into)) +
            ", but the message of rank " + std::to_string(from) + " step " + std::to_string(m.sender_step) +
            (m.count == 0 ? " is a token" : " has " + std::to_string(m.count) + " cells"));
  incoming_.clear();
  if (m.count == 0) return true;
  const std::size_t mine = table_.number(me.rank, into);
  const auto sender = [&] { return "rank " + std::to_string(from) + " step " + std::to_string(m.sender_step); };
  for (std::size_t i = 0; i < index(m.count); ++i)
    if (!table_.same_size(m.cell + i, mine + i))
      return wrong(me, "cell " + std::to_string(i) + " of the message of " + sender() + " differs in size from " +
                           cell_name(into, static_cast<std::int32_t>(i)));
  if (!m.slot.empty()) {
    std::swap(incoming_, m.slot);
    return true;
  }
  if (m.owner >= 0 && m.owner != me.rank && m.owner != from)
    note_foreign(me, m.owner, {}, channel_at(wired(me).in).sender, m.sender_step);
  for (std::size_t i = 0; i < index(m.count); ++i) {
    const std::size_t at = table_.location(m.cell + i, m.slice);
    memory_.give_back(at);
    if (const epoch other = memory_.read(at, known(me), now(me)); other.time != 0)
      return wrong(me, "reads what " + sender() + " sent" + unordered(other));
    incoming_.push_back(memory_.value(at));
  }
  if (!writes(me.now().kind) || m.count < 2) return true;
  const std::size_t first = table_.location(m.cell, m.slice);
  const std::size_t target = table_.location(mine, me.slice);
  const auto count = index(m.count);
  if (first != target && first < target + count && target < first + count)
    return wrong(me, "receives " + to_string(into) + " from cells that overlap it without being equal");
  return true;
}

bool symbolic_run::combine(const player& me, const std::vector<node_id>& left, const std::vector<node_id>& right,
                           const place& named) {
  result_.clear();
  for (std::size_t i = 0; i < left.size(); ++i) {
    const auto where = [&] { return cell_name(named, static_cast<std::int32_t>(i)); };
    if (forest_->chunk(left[i]) != forest_->chunk(right[i]))
      return wrong(me, "combines different chunks into one at " + where() + ": " + value_name(left[i]) + " with " +
                           value_name(right[i]));
    if (!forest_->disjoint(left[i], right[i]))
      return wrong(me, "counts a contribution twice at " + where() + ": " + value_name(left[i]) + " with " +
                           value_name(right[i]));
    result_.push_back(forest_->combine(left[i], right[i]));
  }
  return true;
}

/// The step under way has combined its cells.
void symbolic_run::note_completion(player& me) {
  if (result_.empty() || me.completes.empty()) return;
  std::size_t complete = 0;
  for (const node_id n : result_) complete += forest_->contributors(n) == score_.ranks ? 1 : 0;
  const bool all = complete == result_.size();
  completes_in_part_ =
      completes_in_part_ || (complete > 0 && !all) || (me.combined[me.at] && me.completes[me.at] != all);
  me.combined[me.at] = true;
  me.completes[me.at] = all;
}

/// Fetches what is there already, combines and writes the target. recv_reduce_send only combines.
bool symbolic_run::work(player& me) {
  const step& s = me.now();
  if (reads_source(s.kind) && !load(me, s.source, local_)) return false;
  if (!reduces(s.kind)) {
    result_ = receives(s.kind) ? incoming_ : local_;
    return store(me);
  }
  if (s.kind == step_kind::reduce)
    std::swap(incoming_, local_);  // target ⊕ source: the source takes the place of a message
  if (reads_target(s.kind) && !load(me, s.target, local_)) return false;
  const bool incoming_first = (s.kind == step_kind::reduce) == s.swapped;
  if (!combine(me, incoming_first ? incoming_ : local_, incoming_first ? local_ : incoming_, received_into(s)))
    return false;
  note_completion(me);
  return store(me);
}

bool symbolic_run::store(player& me) {
  const step& s = me.now();
  if (!writes(s.kind) || s.target.count == 0) return true;
  if (!check_foreign(me, s.target)) return false;
  if (score_.partitions > 1 && s.target.buffer == buffer_kind::output && !independent(me, s.target)) return false;
  const std::size_t cell = table_.number(me.rank, s.target);
  for (std::int32_t i = 0; i < s.target.count; ++i) {
    const std::size_t at = table_.location(cell + index(i), me.slice);
    bool read = false;
    if (const epoch other = memory_.write(at, known(me), now(me), result_[index(i)], read); other.time != 0)
      return wrong(me, "writes " + cell_name(s.target, i) + unordered(other, read));
    if (memory_.lent(at)) return overwrites_lent(me, at, i);
  }
  return true;
}

/// A piece of the output waits for nothing but the same piece of the inputs: else it could not arrive before the others are ready.
bool symbolic_run::independent(const player& me, const place& target) {
  const clock_view mine = known(me);
  for (std::int32_t i = 0; i < target.count; ++i) {
    const int piece = partition_of(score_, (target.cell + i) % score_.parts);
    for (rank_t r = 0; r < score_.ranks; ++r)
      for (int other = 0; other < score_.partitions; ++other)
        if (other != piece && mine[index(announcement(r, other))] > 0)
          return wrong(me, "writes " + cell_name(target, i) + " of piece " + std::to_string(piece) +
                               " only after piece " + std::to_string(other) + " of rank " + std::to_string(r) +
                               " was made ready");
  }
  return true;
}

/// Finds the rank that has still to read: only once, for the fault.
bool symbolic_run::overwrites_lent(const player& me, std::size_t location, std::int32_t i) {
  for (const channel& c : channels_)
    for (std::int32_t at = c.under_way > 0 ? c.first : -1; at >= 0; at = messages_[index(at)].next) {
      const message& m = messages_[index(at)];
      for (std::int32_t k = 0; m.slot.empty() && k < m.count; ++k) {
        if (table_.location(m.cell + index(k), m.slice) != location) continue;
        const player& sender = player_at(c.sender);
        return wrong(me, "overwrites " + cell_name(me.now().target, i) + " while rank " +
                             std::to_string((*sender.steps)[index(m.sender_step)].to) +
                             " has still to read what rank " + std::to_string(sender.rank) + " step " +
                             std::to_string(m.sender_step) + " sent from there");
      }
    }
  return wrong(me, "overwrites " + cell_name(me.now().target, i) + " while a message refers to it");
}

void symbolic_run::send(player& me) {
  const step& s = me.now();
  channel& c = channel_at(wired(me).out);
  const place& from = sent_from(s);
  message& m = push(c);
  m.clock = pool_.share(me.clock);
  m.time = me.time;
  m.sender_step = static_cast<std::int32_t>(me.at);
  m.slice = me.slice;
  m.cell = 0;
  m.count = from.count;
  m.owner = from.owner;
  m.slot.clear();
  if (from.buffer == buffer_kind::l2) m.owner = self;
  if (from.count > 0) {
    m.cell = table_.number(me.rank, from);
    if (s.kind == step_kind::recv_reduce_send) {
      m.slot = result_;
      m.owner = self;
    } else {
      for (std::int32_t i = 0; i < from.count; ++i) memory_.lend(table_.location(m.cell + index(i), me.slice));
    }
  }
  ++c.sent;
  ++messages_sent_;
  wake(c.receiver);
}

}  // namespace troupe::verifying
