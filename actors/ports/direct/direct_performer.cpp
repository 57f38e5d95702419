// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/direct/direct_performer.hpp"

#include <algorithm>
#include <cstring>

#if defined(__linux__)
#include <sched.h>
#endif

#include "actors/ports/slots/slot_board.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe {

static_assert(direct_sizes::most_units < direct_board::most_units);
static_assert(snapshots::places == slot_channel::ring_epochs,
              "with cores enough, whoever only gives runs as far ahead on either board");

namespace {

/// The bodies of those at work that a rank begins with, and takes from the front; what is left of others' it takes from the end, so that each
/// core finds in its cache what it worked on last time. Where ranks share cores, any rank that runs works for all, and if it is much the bodies belong to
/// the core that it runs on.
struct own_bodies {
  std::size_t first, count;
};
own_bodies bodies_of(rank_t rank, int ranks, std::size_t bodies, bool much) {
#if defined(__linux__)
  if (const int cores = usable_cores(); ranks > cores && much)
    if (const int core = ::sched_getcpu(); core >= 0) {
      const auto of = static_cast<std::size_t>(cores), k = static_cast<std::size_t>(core) % of;
      return {k * bodies / of, std::max<std::size_t>((k + 1) * bodies / of - k * bodies / of, 1)};
    }
#else
  static_cast<void>(ranks), static_cast<void>(much);
#endif
  return {static_cast<std::size_t>(rank) % bodies, 1};
}

}  // namespace

direct_board& direct_performer::meeting_place() const { return board_->direct(); }

// -- an operation begins and ends -------------------------------------------------------------------------------------

void direct_performer::start(const direct_program& code, const memory_map& memory, const call_shape& shape,
                             datatype type, const op& reduction, std::uint64_t sequence, std::uint64_t fingerprint,
                             bool ahead, direct_fit* kept) {
  fit_ = kept != nullptr ? kept : &own_fit_;
  fit_->unpacked = fit_->sizes.set(code, rank_, shape) || fit_->unpacked;
  const auto ranks = static_cast<std::size_t>(board_->ranks());
  if (buffers_.size() < ranks) buffers_.resize(ranks);
  if (in_.size() < code.most_operands)
    in_.resize(code.most_operands), out_.resize(code.most_operands), factors_.resize(code.most_operands);
  code_ = &code;
  if (fit_->unpacked) prepare();
  if (scratch_.size() < fit_->scratch_bytes) scratch_.resize(fit_->scratch_bytes);
  ahead_ = ahead && fit_->may_leave_early;
  if (fit_->small || ahead_) meeting_place().brought.lay_down();
  mine_ = {memory.input, memory.output, scratch_.data(), reduction.scale};
  type_ = type;
  reduction_ = reduction;
  sequence_ = sequence;
  mark_ = direct_board::mark_of(sequence);
  fingerprint_ = fingerprint;
  worked_ = 0;
  met_ = 0;
  balance_ = 0;
  taken_ = 0;
  lent_ = false;
  all_brought_ = fit_->small && !ahead_;
  output_staged_ = alone_ = false;
  trials_.asked = nullptr;
  stores_.asked = nullptr;
  choose_stores();
  all_shared_ = true;
  suspect_ = -1;
  phase_ = phase::coming;
}

/// The same at all ranks, as long as they have counted the same operations. Nothing is tried where sizes are not known yet, and where each rank may copy
/// to its own output.
void direct_performer::choose_stores() {
  if (!sizes().equal()) return;
  stores_.hint = sizes().stores();
  if (!store_trials::tries(sizes().bytes()) || (others_ != nullptr && !code_->to_own.empty())) return;
  if (stores_.of.empty()) stores_.of.resize(collective_count);
  stores_.asked = &stores_.of[static_cast<std::size_t>(code_->what)].of(sizes().bytes());
  const bool streams = stores_.asked->takes_second(stores_.hint == store_hint::streamed);
  stores_.hint = streams ? store_hint::streamed : store_hint::cached;
}

void direct_performer::come() {
  direct_board& place = meeting_place();
  direct_board::rank_words& mine = place.at(rank_);
  if (rank_ == 0) {
    place.left.store(code_->at_work.size() * direct_board::share, std::memory_order_relaxed);
    place.left_alone.store(static_cast<std::size_t>(place.ranks()), std::memory_order_relaxed);
  }
  // A rank that still looks for the operation before, which others have ended meanwhile, must not take what is written now for its.
  mine.here.store(direct_board::away, std::memory_order_relaxed);
  fit_->sizes.weigh();
  const std::size_t units = sizes().units(rank_);
  mine.units.store(static_cast<std::uint32_t>(units), std::memory_order_release);
  mine.open.store(direct_board::open_units(sequence_, 0, units), std::memory_order_release);
  mine.fingerprint.store(fingerprint_, std::memory_order_release);
  of_bodies_ = mine_;
  // Where all have brought copies nobody looks at the buffers; where somebody has not, the system copies what is little.
  const bool nobody_looks = all_brought_ && (known_to_all() || own_elements() * sizes().element_size() <= little_bytes);
  const bool staging = others_ != nullptr && !code_->used.empty() && !nobody_looks;
  const buffers shown = staging ? stage_what_others_use() : mine_;
  if (!staging) mine.shared.store(false, std::memory_order_release);
  mine.input.store(shown.input, std::memory_order_release);
  mine.output.store(shown.output, std::memory_order_release);
  mine.scratch.store(mine_.scratch, std::memory_order_release);
  mine.factor.store(mine_.factor, std::memory_order_release);
  if (!between_) mine.lists.store(sizes().equal() ? nullptr : &sizes().mine(), std::memory_order_release);
  else if (!sizes().equal()) list();
  mine.here.store(mark_, std::memory_order_seq_cst);
  if (place.counts()) place.came.add(sequence_);
  phase_ = phase::meeting;
}

/// `performed`: all are here.
direct_performer::status direct_performer::meet() {
  direct_board& place = meeting_place();
  // The last to come sees all, so nobody need be told that somebody has come.
  if (place.counts() && !place.came.all(sequence_, place.ranks())) return status::waiting;
  for (; met_ < place.ranks(); ++met_)
    if (const status s = meet(met_); s != status::performed) return s;
  all_finished_ = sequence_;
  phase_ = phase::working;
  return status::performed;
}

direct_performer::status direct_performer::meet(rank_t which) {
  const direct_board::rank_words& other = meeting_place().at(which);
  if (other.here.load(std::memory_order_seq_cst) != mark_) return status::waiting;
  const bool same = other.fingerprint.load(std::memory_order_acquire) == fingerprint_;
  buffers_[static_cast<std::size_t>(which)] = {
      other.input.load(std::memory_order_acquire), other.output.load(std::memory_order_acquire),
      other.scratch.load(std::memory_order_acquire), other.factor.load(std::memory_order_acquire)};
  const bool shared = other.shared.load(std::memory_order_acquire);
  const block_lists* lists = sizes().equal() ? nullptr
                             : between_      ? lists_of(which)
                                             : other.lists.load(std::memory_order_acquire);
  if (other.here.load(std::memory_order_relaxed) != mark_)
    return status::waiting;  // gave up, and the failure is on its way; or all is over, and it is at the next operation
  if (!same) return differs(which);
  all_shared_ = all_shared_ && shared;
  if (which == rank_) buffers_[static_cast<std::size_t>(which)] = of_bodies_;
  else if (others_ != nullptr) map_what_is_shared(which);
  // This rank knows its own lists; the words that it would read here are overwritten by its next call.
  if (!sizes().equal() && which != rank_) fit_->sizes.learn(which, lists);
  return status::performed;
}

direct_performer::status direct_performer::differs(rank_t suspect) {
  phase_ = phase::at_odds;
  suspect_ = suspect;
  return status::mismatch;
}

direct_performer::status direct_performer::advance() {
  if (phase_ == phase::none) return status::performed;
  if (phase_ == phase::at_odds) return status::mismatch;
  if (ahead_) return advance_ahead();
  const bool first = phase_ == phase::coming;
  if (first) {
    if (all_brought_) all_brought_ = bring();
    // If all others have brought copies already, nobody looks at this rank's words.
    if (all_brought_)
      if (const status s = meet_with_snapshots(); s != status::waiting) return s == status::performed ? take(true) : s;
    come();
  }
  if (phase_ == phase::meeting) {
    // Ranks that came after this one may have done everything, and be at the next operation by now.
    if (meeting_place().counts() && is_over()) return leave();
    if (all_brought_) {
      const status s = meet_with_snapshots();
      if (s == status::performed) return take(first);
      if (all_brought_) return s == status::waiting && is_over() ? leave() : s;
    }
    if (const status s = meet(); s != status::performed) return s == status::waiting && is_over() ? leave() : s;
    alone_ = works_alone();
    if (first && alone_) tell_all();
    else if (first && sizes().bytes() >= much_bytes) wake_helpers();
  }
  if (phase_ == phase::working) {
    if (!(alone_ ? work_alone() : work())) {
      phase_ = phase::at_odds;
      return status::mismatch;
    }
    phase_ = phase::leaving;
  }
  return wait_for_end();
}

direct_performer::status direct_performer::wait_for_end() {
  if (is_over()) return leave();
  if (meeting_place().at_odds.load(std::memory_order_acquire) != mark_) return status::waiting;
  phase_ = phase::at_odds;
  return status::mismatch;
}

bool direct_performer::is_over() const { return meeting_place().over.load(std::memory_order_acquire) == mark_; }

direct_performer::status direct_performer::leave() {
  all_finished_ = sequence_;
  // The same at all ranks that see the end, so that they change together; those that have found nothing to do, too.
  if (stores_.asked != nullptr && is_over())
    if (const double took = meeting_place().took.load(std::memory_order_relaxed); took > 0)
      stores_.asked->took(stores_.hint == store_hint::streamed, took);
  const status left = leave_early();
  if (trials_.asked != nullptr) {
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - trials_.begun;
    trials_.asked->took(trials_.staged, took.count() / static_cast<double>(trials_.bytes));
  }
  return left;
}

/// Others may not have come yet.
direct_performer::status direct_performer::leave_early() {
  if (output_staged_) take_from_staging();
  phase_ = phase::none;
  board_->finish(rank_, sequence_);
  return status::performed;
}

void direct_performer::abandon() {
  if (phase_ == phase::none) return;
  const bool came = phase_ > phase::coming;
  phase_ = phase::none;
  if (came) give_up();
  board_->finish(rank_, sequence_);
}

void direct_performer::give_up() const {
  direct_board& place = meeting_place();
  place.at(rank_).here.store(mark_ | direct_board::given_up, std::memory_order_seq_cst);
  place.gave_up.store(mark_, std::memory_order_relaxed);
  for (rank_t r = 0; r < place.ranks(); ++r)
    wait_for_touching(others_, r, [&] { return place.at(r).touching.load(std::memory_order_seq_cst) != mark_; });
}

bool direct_performer::waits_for_other_cores() const {
  if (together()) return !alone_;  // what is not done is under way, but where each rank works for itself
  if (phase_ != phase::meeting || ahead_) return false;
  const shared_cores& cores = board_->cores();
  for (rank_t r = 0; r < board_->ranks(); ++r)
    if (r != rank_ && cores.are_together(rank_, r) && lacks(r)) return false;
  return true;
}

std::vector<lane_wait> direct_performer::waits() const {
  if (idle()) return {};
  rank_t missing = phase_ == phase::at_odds ? suspect_ : -1;
  if (phase_ == phase::meeting)
    for (rank_t r = board_->ranks() - 1; r >= 0; --r)
      if (lacks(r)) missing = r;
  return {{lane_wait::reason::chunk, 0, missing, -1}};
}

// -- snapshots --------------------------------------------------------------------------------------------------------

/// Derives from the program and its new sizes what the performer needs.
void direct_performer::prepare() {
  fit_->scratch_bytes = sizes().scratch_bytes();
  const bool some_bring = !sizes().equal() && !code_->copies.empty() && meeting_place().brought.offered() &&
                          (others_ != nullptr || !known_to_all());
  fit_->small = some_bring && is_small();
  fit_->may_leave_early = some_bring && gives_in_advance();
  if (fit_->small) pack();
  if (some_bring) list_takes();
  fit_->balanced = false;
  fit_->unpacked = false;
}

/// Where all ranks know all blocks, the same at all of them: nobody brings its own in vain.
bool direct_performer::is_small() const {
  const std::size_t room = meeting_place().brought.room(), size = sizes().element_size();
  if (known_to_all()) {
    const auto& blocks = sizes().mine().counts;
    return !blocks.empty() && *std::max_element(blocks.begin(), blocks.end()) <= room / size;
  }
  return own_elements() <= room / size;
}

std::size_t direct_performer::own_elements() const {
  const auto blocks = sizes().own_blocks(true);
  const auto ranks = static_cast<std::size_t>(board_->ranks());  // so many: one for each, and one for itself
  std::size_t elements = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (blocks.size() != ranks || i != static_cast<std::size_t>(rank_)) elements += blocks[i];
  return elements;
}

/// Allocates for more blocks than ever before.
void direct_performer::list_takes() {
  const auto& copies = code_->copies[static_cast<std::size_t>(rank_)];
  fit_->takes.resize(copies.size());
  fit_->own = {};
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const cell_range &source = code_->operands[copies[i]], &target = code_->operands[copies[i] + 1];
    fit_->takes[i] = {source.owner, static_cast<std::size_t>(source.index),
                      sizes().elements(target) * sizes().element_size(), sizes().offset(target)};
    if (source.owner != rank_) continue;
    const std::size_t bytes = sizes().elements(source) * sizes().element_size();
    fit_->own = {bytes == fit_->takes[i].bytes, bytes, sizes().offset(source), fit_->takes[i].offset};
  }
}

/// Where the blocks lie in the copy. @pre is_small()
void direct_performer::pack() {
  const auto blocks = sizes().own_blocks(true);
  const auto ranks = static_cast<std::size_t>(board_->ranks()), own = static_cast<std::size_t>(rank_);
  const auto brought = [&](std::size_t i) {
    return blocks.size() == ranks && i == own ? 0 : blocks[i] * sizes().element_size();
  };
  const std::size_t bytes = own_elements() * sizes().element_size();
  std::size_t at = meeting_place().brought.begin_for(blocks.size(), is_rooted(), bytes);
  for (std::size_t i = 0; i < blocks.size(); at += brought(i++)) fit_->begins[i] = static_cast<std::uint16_t>(at);
  fit_->begins[blocks.size()] = static_cast<std::uint16_t>(at);
}

/// Of this rank alone. 0: the fingerprint has all counts.
std::uint64_t direct_performer::balance_of_own() const {
  if (known_to_all()) return 0;
  const root_role rooted = traits_of(code_->what).root;
  std::uint64_t balance = 0;
  rank_t other = 0;
  for (const std::size_t n : sizes().own_blocks(true))
    balance -= snapshots::weight(rank_, rooted == root_role::sink ? code_->root : other++, n * sizes().element_size());
  other = 0;
  for (const std::size_t n : sizes().own_blocks(false))
    balance +=
        snapshots::weight(rooted == root_role::source ? code_->root : other++, rank_, n * sizes().element_size());
  return balance;
}

/// All ranks have finished operation `last`, whose snapshot was where the next one is to be.
bool direct_performer::may_reuse(std::uint64_t last) {
  if (last < all_finished_) return true;
  std::uint64_t finished = sequence_;  // of this rank; others may have gone over slots since
  for (rank_t r = 0; r < board_->ranks(); ++r)
    if (r != rank_) finished = std::min(finished, board_->done(r));
  all_finished_ = std::max(all_finished_, finished);
  return last < all_finished_;
}

/// False: the place is in use.
bool direct_performer::bring() {
  const snapshots& brought = meeting_place().brought;
  std::uint64_t& used = brought_[sequence_ % snapshots::places];
  std::uint64_t& annex = annexed_[snapshots::annex_of(sequence_, is_rooted())];
  const bool annexes = brought.is_in_annex(fit_->begins[0]);
  if (const std::uint64_t last = annexes ? std::max(used, annex) : used; last != 0 && !may_reuse(last - 1))
    return false;
  used = sequence_ + 1;
  if (annexes) annex = used;
  snapshots::place& to = brought.of(rank_, sequence_);
  const auto& from = sizes().mine().input_begins;
  const std::size_t size = sizes().element_size(), blocks = from.size();
  if (!ahead_ && !fit_->balanced) fit_->balance = balance_of_own(), fit_->balanced = true;
  to.fingerprint = fingerprint_;
  if (!ahead_) brought.set_balance(to, is_rooted(), fit_->balance);
  brought.set_begins(to, is_rooted(), {fit_->begins.data(), blocks + 1});
  std::byte* const at = brought.at(rank_, sequence_, is_rooted(), fit_->begins[0]);
  for (std::size_t i = 0; i < blocks; ++i)
    if (const auto bytes = static_cast<std::size_t>(fit_->begins[i + 1] - fit_->begins[i]); bytes > 0)
      std::memcpy(at + (fit_->begins[i] - fit_->begins[0]), mine_.input + from[i] * size, bytes);
  to.mark.store(mark_, std::memory_order_release);
  return true;
}

/// `performed`: all are here, with snapshots. If that is not enough, `all_brought_` is false, and they have to meet as others do.
direct_performer::status direct_performer::meet_with_snapshots() {
  const direct_board& place = meeting_place();
  for (; met_ < place.ranks(); ++met_) {
    const snapshots::place& theirs = place.brought.of(met_, sequence_);
    // In one order with come(): the last to come sees all.
    if (theirs.mark.load(std::memory_order_acquire) != mark_) {
      if (place.at(met_).here.load(std::memory_order_seq_cst) != mark_) return status::waiting;
      if (theirs.mark.load(std::memory_order_acquire) != mark_) break;  // it has come without
    }
    if (theirs.fingerprint != fingerprint_) return differs(met_);
    balance_ += place.brought.balance(theirs, is_rooted());
  }
  all_brought_ = met_ == place.ranks() && balance_ == 0;
  if (all_brought_) return status::performed;
  met_ = 0;
  return status::waiting;
}

/// @param last nobody may know yet that all have come
direct_performer::status direct_performer::take(bool last) {
  output_staged_ = false;  // nobody writes there
  // Its own block first: the others' may come to where it lies.
  if (!copy_own()) return differs(rank_);
  for (const direct_fit::taken& block : fit_->takes)
    if (block.owner != rank_ && !take_copy(block)) [[unlikely]]  // by a chance of 2⁻⁶⁴ (snapshots.hpp)
      return differs(block.owner);
  if (last) tell_all();
  return leave();
}

/// From the copy that its owner has brought. False: that one counts other elements.
bool direct_performer::take_copy(const direct_fit::taken& block) const {
  const snapshots& brought = meeting_place().brought;
  const snapshots::place& theirs = brought.of(block.owner, sequence_);
  const std::size_t begin = theirs.begin_of(block.index, is_rooted());
  const std::size_t bytes = theirs.begin_of(block.index + 1, is_rooted()) - begin;
  if (bytes != block.bytes) return false;
  if (bytes > 0)
    std::memcpy(mine_.output + block.offset, brought.at(block.owner, sequence_, is_rooted(), begin), bytes);
  return true;
}

// -- work -------------------------------------------------------------------------------------------------------------

bool direct_performer::all_here(std::memory_order order) const {
  const direct_board& place = meeting_place();
  for (rank_t r = 0; r < place.ranks(); ++r)
    if (place.at(r).here.load(order) != mark_) return false;
  return true;
}

bool direct_performer::claim(rank_t body, bool from_end, claimed& unit) const {
  direct_board::rank_words& of = meeting_place().at(body);
  std::uint64_t seen = of.open.load(std::memory_order_relaxed);
  while (direct_board::is_open(seen, sequence_)) {
    const std::uint64_t first = direct_board::first_open(seen), end = direct_board::end_of_open(seen);
    const std::uint64_t left = from_end ? direct_board::open_units(sequence_, first, end - 1)
                                        : direct_board::open_units(sequence_, first + 1, end);
    if (!of.open.compare_exchange_weak(seen, left, std::memory_order_relaxed)) continue;
    unit = {static_cast<std::uint32_t>(from_end ? end - 1 : first), of.units.load(std::memory_order_relaxed)};
    return true;
  }
  return false;
}

/// False: sizes do not fit, and the operation cannot end.
bool direct_performer::work() {
  direct_board& place = meeting_place();
  const touching_others touching{place.at(rank_), mark_};
  if (!all_here(std::memory_order_seq_cst)) return true;
  const auto begun =
      stores_.asked != nullptr ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
  std::size_t done = 0;
  bool fit = true;
  const std::size_t bodies = code_->at_work.size();
  const own_bodies own = bodies_of(rank_, place.ranks(), bodies, sizes().bytes() >= much_bytes);
  for (std::size_t k = 0; fit && k < bodies; ++k)
    fit = work_on(code_->at_work[(own.first + k) % bodies], k >= own.count, done);
  finished(done, place.left, stores_.asked != nullptr ? time_a_byte(done, begun) : 0);
  return fit;
}

/// Of the operation's bytes, as one core would do them alone. 0: unknown.
double direct_performer::time_a_byte(std::size_t done, std::chrono::steady_clock::time_point begun) const {
  const double part = static_cast<double>(done) / static_cast<double>(code_->at_work.size() * direct_board::share);
  // Who has done less than half of what would be its part has come late, or was disturbed.
  if (2 * part * std::min(board_->ranks(), usable_cores()) < 1) return 0;
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begun;
  return took.count() / (part * static_cast<double>(sizes().bytes()));
}

/// Units of one body. Adds the shares that were done. @pre the rank touches others', and they are here
bool direct_performer::work_on(rank_t body, bool from_end, std::size_t& done) {
  direct_board& place = meeting_place();
  // A rank that gives up waits for `touching`, so one look a unit is enough, and only so that it waits no longer.
  for (claimed next; place.gave_up.load(std::memory_order_relaxed) != mark_ && claim(body, from_end, next);) {
    const status s = perform(code_->bodies[static_cast<std::size_t>(body)], next);
    if (s == status::waiting) return true;
    if (s == status::mismatch) {
      place.at_odds.store(mark_, std::memory_order_release);
      tell_all();
      return false;
    }
    done += direct_board::share_of(next.unit, next.units);
    ++worked_;
  }
  return true;
}

/// Takes shares from those that are left. The rank that takes the last ones ends the operation.
void direct_performer::finished(std::size_t shares, std::atomic<std::size_t>& left, double took) const {
  // Release what was written here, acquire what others wrote, for the ranks that see `over`.
  if (shares == 0 || left.fetch_sub(shares, std::memory_order_acq_rel) != shares) return;
  meeting_place().took.store(took, std::memory_order_relaxed);
  meeting_place().over.store(mark_, std::memory_order_release);
  tell_all();
}

std::byte* direct_performer::address(const cell_range& at) const {
  const buffers& of = buffers_[static_cast<std::size_t>(at.owner)];
  std::byte* const base = at.buffer == buffer_kind::input    ? of.input
                          : at.buffer == buffer_kind::output ? of.output
                                                             : of.scratch;
  return base + sizes().offset(at);
}

/// Both ends of a block count the same elements for it.
bool direct_performer::fits(std::span<const cell_range> operands) {
  const std::size_t expected = sizes().elements(operands.front());
  const auto odd = std::find_if(operands.begin(), operands.end(),
                                [&](const cell_range& at) { return sizes().elements(at) != expected; });
  if (odd == operands.end()) return true;
  suspect_ = odd->owner != rank_ ? odd->owner : operands.front().owner;
  return false;
}

/// The first output is the one that a fold is stored to; the others are copies of it.
void direct_performer::put_own_first(std::span<const cell_range> outputs) {
  const auto own = std::ranges::find(outputs, rank_, &cell_range::owner);
  if (own != outputs.end()) std::swap(out_[0], out_[static_cast<std::size_t>(own - outputs.begin())]);
}

/// Of a fold into these. Outputs that others read after the last operation are in their cores' caches.
store_hint direct_performer::stores_to(std::span<const cell_range> outputs) const {
  const store_hint hint = stores();
  const bool own = std::ranges::find(outputs, rank_, &cell_range::owner) != outputs.end();
  return hint == store_hint::cached && !own ? store_hint::elsewhere : hint;
}

/// `waiting`: a process has ended whose memory it takes, so it will never be performed, and the failure is on its way.
direct_performer::status direct_performer::perform(const direct_program::body& body, claimed unit) {
  const bool agreed = sizes().equal() || traits_of(code_->what).v == v_counts::common;
  for (const direct_program::pass& p : body.passes) {
    const auto operands = code_->operands_of(p);
    if (!agreed && !fits(operands)) return status::mismatch;
    const std::size_t elements = sizes().elements(operands.front());
    const std::size_t begin = part_begin(elements, unit.units, unit.unit),
                      end = part_begin(elements, unit.units, unit.unit + 1);
    if (begin == end) continue;
    if (others_ != nullptr && !std::ranges::all_of(operands, [&](const cell_range& at) { return is_here(at); })) {
      if (!perform_between(p, {begin, end})) return status::waiting;
      continue;
    }
    const std::size_t offset = begin * sizes().element_size();
    const bool scales = code_->sums.scales_inputs && p.inputs > 1;
    const cell_range* operand = operands.data();
    for (std::size_t i = 0; i < p.inputs; ++i, ++operand) {
      in_[i] = address(*operand) + offset;
      if (scales) factors_[i] = buffers_[static_cast<std::size_t>(operand->owner)].factor;
    }
    const std::span outputs{operand, p.outputs};
    for (std::size_t i = 0; i < p.outputs; ++i) out_[i] = address(outputs[i]) + offset;
    put_own_first(outputs);
    reduce_many(type_, reduction_, {in_.data(), p.inputs}, {out_.data(), p.outputs}, end - begin, stores_to(outputs),
                {scales ? factors_.data() : nullptr, p.completes ? code_->sums.divisor : 1});
  }
  return status::performed;
}

// -- waking -----------------------------------------------------------------------------------------------------------

void direct_performer::tell_all() const {
  for (rank_t r = 0; r < board_->ranks(); ++r)
    if (r != rank_) board_->notify(r, slot_board::anybody);  // also who waits for a certain one
}

void direct_performer::wake_helpers() const {
  int helpers = std::min(board_->ranks(), usable_cores()) - 1;
  for (rank_t k = 1; k < board_->ranks() && helpers > 0; ++k)
    if (board_->notify((rank_ + k) % board_->ranks(), rank_)) --helpers;
}

}  // namespace troupe
