// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/nic/nic_between.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "memory/error.hpp"
#include "protocols/offload/descriptor_form.hpp"
#include "protocols/offload/packed_programs.hpp"
#include "protocols/plan.hpp"
#include "protocols/size_list.hpp"

namespace troupe::actors {

namespace {
/// How long a home that counts as lost may still be at work, if it runs: as wait_for_touching().
constexpr std::chrono::seconds most_touching{1};

/// Keeps as much as fits, without half a character at the end.
template <std::size_t size>
void keep_text(char (&to)[size], const std::string& text) {
  std::size_t bytes = std::min(text.size(), size - 1);
  while (bytes < text.size() && bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0U) == 0x80U) --bytes;
  std::copy_n(text.data(), bytes, to);
  to[bytes] = 0;
}
}  // namespace

/// At home: a rank of another process, as the driver knows it.
class nic_between::far_rank final : public nic_client {
public:
  far_rank(nic_between& of, rank_t rank) : of_(of), rank_(rank) {}
  void performed(epoch_t epoch, failure_ptr why) override {
    answer a{why ? answer::kind::failed : answer::kind::performed, errc{}, rank_, epoch, {}};
    if (why) {
      a.code = why->code;
      keep_text(a.text, why->text);
    }
    of_.push_answer(rank_, a);
  }
  void differs(epoch_t epoch, rank_t from) override {
    of_.push_answer(rank_, {answer::kind::differs, errc{}, from, epoch, {}});
  }
  void let_go(epoch_t epoch) override { of_.push_answer(rank_, {answer::kind::let_go, errc{}, rank_, epoch, {}}); }

private:
  nic_between& of_;  // outlives what the driver has of its ranks: close()
  rank_t rank_;
};

nic_between::nic_between(options how) : how_(std::move(how)), clients_(static_cast<std::size_t>(how_.ranks)) {
  static_assert(std::is_trivially_copyable_v<head> && std::is_trivially_copyable_v<answer>);
  // Zeros are all that their queues begin with, too.
  common_ = how_.in->roots<common>(1);
  ends_ = how_.in->roots<ends>(static_cast<std::size_t>(how_.ranks));
  if (!at_home()) {
    if (how_.host) posted_.reserve(static_cast<std::size_t>(how_.ranks) * most_posted);
    return;
  }
  far_.resize(static_cast<std::size_t>(how_.ranks));
  for (rank_t r = 0; r < how_.ranks; ++r)
    if (!is_here(r)) far_[static_cast<std::size_t>(r)] = std::make_shared<far_rank>(*this, r);
}

std::size_t nic_between::most_bytes(int ranks) {
  return sizeof(common) + static_cast<std::size_t>(ranks) * sizeof(ends) + 2 * board_memory::alignment;
}

// -- a rank's turn ------------------------------------------------------------------------------------------------------

/// A home without ranks may end at any moment, and the process that notices may have looked already: so the rank looks again when it has posted.
bool nic_between::post(const nic_client_ptr& who, const nic_posting& what) {
  const rank_t rank = what.rank - how_.first_rank;
  auto& to = of(rank).heads;
  if (to.write_available() <= most_posted) return false;  // the rest is for recalls
  if (how_.host && how_.host->gone()) throw error(errc::peer_lost, how_.host->why_gone());
  head h{};
  h.epoch = what.epoch;
  h.fingerprint = what.fingerprint;
  h.input = what.memory.input;
  h.output = what.memory.output;
  h.input_bytes = what.input_bytes;
  h.output_bytes = what.output_bytes;
  h.brings_input = what.input_bytes > 0 && what.input_bytes <= most_inline_bytes && !others().shares(what.memory.input);
  if (h.brings_input) std::memcpy(h.inline_input.data(), what.memory.input, what.input_bytes);
  {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<nic_client>& known = clients_[static_cast<std::size_t>(rank)];
    if (known.expired()) known = who;
    if (how_.host) {
      packed programs;
      if (rank == first) {
        const kept_programs& kept = pack_for(what);
        h.programs = kept.bytes->data();
        h.program_bytes = kept.bytes->size();
        h.program_number = kept.number;
        h.type = what.type;
        h.reduction = what.reduction.kind;
        programs = kept.bytes;
      }
      posted_.push_back({rank, what.epoch, std::move(programs)});
      posted_count_.store(posted_.size());
      how_.host->counts(1);
    }
  }
  to.push(h);
  common_->heads.store(1);
  home_bell().note();
  if (how_.host && how_.host->gone()) {
    how_.own->note();
    how_.own->wake();
  }
  return true;
}

/// The packed programs that rank 0's head names. Made once for a plan and size, of the last few; else found. @pre locked
const nic_between::kept_programs& nic_between::pack_for(const nic_posting& what) {
  const auto same = [&](const kept_programs& k) {
    return k.of == what.how && k.elements == what.elements && (k.counts == nullptr) == (what.counts == nullptr) &&
           (k.counts == nullptr || same_sizes(*k.counts, *what.counts));
  };
  if (const auto known = std::ranges::find_if(kept_, same); known != kept_.end()) return *known;
  const auto program = what.descriptors_of(what.rank);
  auto bytes = std::make_shared<const std::vector<std::byte>>(
      offload::pack({program.get(), static_cast<std::size_t>(what.ranks)}));
  return place_for_programs() = {++programs_made_, what.how, what.elements, what.counts, std::move(bytes), nullptr};
}

void nic_between::forget_posted(rank_t rank, epoch_t epoch) {
  if (!how_.host) return;
  const std::lock_guard lock(mutex_);
  const auto gone = std::erase_if(posted_, [&](const posted& p) { return p.rank == rank && p.epoch == epoch; });
  posted_count_.store(posted_.size());
  how_.host->counts(-static_cast<int>(gone));
}

void nic_between::recall(epoch_t epoch, rank_t of_all) {
  const rank_t rank = of_all - how_.first_rank;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({rank, epoch, no_deadline});
    recalls_.store(waiting_.size());
  }
  head h{};
  h.recalls = true;
  h.epoch = epoch;
  of(rank).heads.push(h);
  common_->heads.store(1);
  home_bell().note();
  home_bell().wake();
}

void nic_between::end() {
  ended_.store(true);
  if (how_.host && !at_home()) how_.host->left(how_.id);
  how_.own->note();
  how_.own->wake();
}

// -- the home's thread --------------------------------------------------------------------------------------------------

bool nic_between::serve(nic_driver& driver, picoseconds now) {
  if (!at_home()) return read_answers();
  if (common_->heads.load() == 0 || common_->heads.exchange(0) == 0) return false;
  bool moved = false;
  head what{};
  for (rank_t r = 0; r < how_.ranks; ++r)
    while (!is_here(r) && of(r).heads.pop(what)) {
      hand_in(driver, r, what, now);
      moved = true;
    }
  return moved;
}

void nic_between::hand_in(nic_driver& driver, rank_t rank, const head& what, picoseconds now) {
  const nic_client_ptr& who = far_[static_cast<std::size_t>(rank)];
  if (what.recalls) return driver.recall(*who, how_.name, what.epoch, how_.first_rank + rank, now);
  nic_posting p;
  p.communicator = how_.name;
  p.epoch = what.epoch;
  p.rank = how_.first_rank + rank;
  p.ranks = how_.all_ranks > 0 ? how_.all_ranks : how_.ranks;
  p.ranks_here = how_.ranks;
  p.across = how_.across;
  p.fingerprint = what.fingerprint;
  p.memory.input = what.input;
  p.memory.output = what.output;
  p.input_bytes = what.input_bytes;
  p.output_bytes = what.output_bytes;
  p.far = &others();
  p.far_rank = rank;
  p.brings_input = what.brings_input && what.input_bytes <= most_inline_bytes;
  if (p.brings_input) p.inline_input = what.inline_input;
  if (how_.host && rank == first && !bring_programs(what, p)) return;  // its process has ended, and all will recall it
  driver.post(who, std::move(p));
}

namespace {
/// The form of each rank's is looked at again whenever an operation begins, since a NIC trusts nobody: this one is for the ranks together.
std::string why_not_performed(const std::vector<offload::rank_program>& all, std::size_t packet_bytes) {
  for (const offload::rank_program& p : all)
    if (std::string why = offload::why_not_well_formed(p, packet_bytes / p.element_size); !why.empty()) return why;
  return offload::why_not_among_themselves(all);
}
}  // namespace

/// The descriptors of all ranks, from rank 0's process if they are not kept. Bytes that are no descriptors are not kept, and fail the operation when all
/// have posted it. False: the process has ended.
bool nic_between::bring_programs(const head& what, nic_posting& into) {
  into.type = what.type;
  into.reduction = make_op(what.reduction);
  const auto same = [&](const kept_programs& k) { return k.number == what.program_number && k.all != nullptr; };
  if (const auto known = std::ranges::find_if(kept_, same); known != kept_.end()) {
    into.programs = known->all;
    return true;
  }
  into.why_no_programs = "they did not come";
  if (what.program_bytes > most_program_bytes) return true;
  std::vector<std::byte> bytes(what.program_bytes);
  try {
    if (!others().read(first, bytes.data(), what.programs, bytes.size())) return false;
  } catch (const error&) {
    return true;  // the system lets it read nothing there
  }
  auto all = offload::unpack(bytes);
  into.why_no_programs = all ? why_not_performed(*all, how_.packet_bytes) : "what came is none";
  if (!into.why_no_programs.empty()) return true;
  into.programs = std::make_shared<const std::vector<offload::rank_program>>(*std::move(all));
  place_for_programs() = {what.program_number, nullptr, 0, nullptr, nullptr, into.programs};
  return true;
}

/// @pre at home. There is room: a rank has as many under way at most, and each is answered twice at most, when it is recalled meanwhile.
void nic_between::push_answer(rank_t rank, const answer& what) {
  of(rank).answers.push(what);
  doorbell& there = *how_.bells[static_cast<std::size_t>(rank)];
  there.note();
  there.wake();
}

void nic_between::close(nic_driver& driver, picoseconds now) {
  if (!at_home()) return;
  driver.forget(how_.name, now);
  common_->closed.store(1);
}

// -- the thread of another process --------------------------------------------------------------------------------------

nic_client_ptr nic_between::client_of(rank_t rank) {
  const std::lock_guard lock(mutex_);
  return clients_[static_cast<std::size_t>(rank)].lock();
}

bool nic_between::read_answers() {
  bool moved = false;
  answer what{};
  for (rank_t r = 0; r < how_.ranks; ++r)
    while (is_here(r) && of(r).answers.pop(what)) {
      tell(r, what);
      moved = true;
    }
  return moved;
}

void nic_between::tell(rank_t rank, const answer& what) {
  const nic_client_ptr who = client_of(rank);
  if (what.what != answer::kind::let_go) forget_posted(rank, what.epoch);
  if (!who) return;
  switch (what.what) {
    case answer::kind::performed: return who->performed(what.epoch, nullptr);
    case answer::kind::failed: return who->performed(what.epoch, make_failure(what.code, what.text));
    case answer::kind::differs: return who->differs(what.epoch, what.from);
    case answer::kind::let_go:
      if (take_recall(rank, what.epoch)) who->let_go(what.epoch);
      return;
  }
}

/// False: it was told already.
bool nic_between::take_recall(rank_t rank, epoch_t epoch) {
  std::unique_lock lock(mutex_);
  const auto same = [&](const recalled& r) { return r.rank == rank && r.epoch == epoch; };
  const bool found = std::erase_if(waiting_, same) > 0;
  recalls_.store(waiting_.size());
  lock.unlock();
  if (found) forget_posted(rank, epoch);
  return found;
}

/// A home without ranks has ended: postings that it has not answered fail. Recalled ones come back as recalled.
void nic_between::fail_posted() {
  std::vector<posted> left;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(posted_, [&](const posted& p) {
      const auto same = [&](const recalled& r) { return r.rank == p.rank && r.epoch == p.epoch; };
      if (std::ranges::any_of(waiting_, same)) return false;
      left.push_back(p);
      return true;
    });
    posted_count_.store(posted_.size());
  }
  how_.host->counts(-static_cast<int>(left.size()));
  for (const posted& p : left)
    if (const nic_client_ptr who = client_of(p.rank))
      who->performed(p.epoch, make_failure(errc::peer_lost, how_.host->why_gone()));
}

void nic_between::look_after(steady_time now) {
  const bool over = common_->closed.load() != 0 || others().has_ended(home());
  const bool lost = !over && others().is_lost(home());
  if (over && how_.host && how_.host->gone()) {
    read_answers();  // the last ones
    fail_posted();
  }
  bool end = false;
  std::vector<recalled> free;
  {
    const std::lock_guard lock(mutex_);
    for (recalled& r : waiting_) {
      if (!lost) r.lost_since = no_deadline;
      else if (r.lost_since == no_deadline) r.lost_since = now;
      end = end || (lost && now - r.lost_since >= most_touching);
    }
    if (over) free = waiting_;
  }
  if (end) others().end(home());
  for (const recalled& r : free)
    if (const nic_client_ptr who = client_of(r.rank); take_recall(r.rank, r.epoch) && who) who->let_go(r.epoch);
}

}  // namespace troupe::actors
