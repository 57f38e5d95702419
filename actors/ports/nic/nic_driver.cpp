// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/nic/nic_driver.hpp"

#include <algorithm>
#include <span>

#include "actors/ports/nic/nic_hosts.hpp"
#include "memory/error.hpp"
#include "memory/exception_text.hpp"
#include "protocols/offload/packed_programs.hpp"
#include "protocols/plan.hpp"

namespace troupe::actors {

namespace {
/// Rounds of all units between two looks at what has been handed in.
constexpr int rounds_a_turn = 16;
/// Operations that need little are at least so many together.
constexpr std::size_t few_at_least = 8;
}  // namespace

offload_config nic_config() {
  offload_config c;
  c.units = 4;
  c.packet_bytes = nic_packet_bytes;
  c.buffer_bytes = 256 * nic_packet_bytes;  // 256 names
  c.refers = true;
  c.pulses = 16;
  c.node.reset();
  // Nothing is lost, here or on a link, so nothing is sent again of itself.
  c.resend = c.longest_resend = std::chrono::hours{1};
  c.longest_counter_wait = std::chrono::seconds{30};
  c.counter_retry = std::chrono::milliseconds{1};
  // next_line() and next_across() see to that they are few.
  c.most_sequences = std::size_t{offload::most_jobs} * offload::most_ports;
  return c;
}

nic_driver::nic_driver(const offload_config& config, std::size_t most_scratch)
    : scratch_(most_scratch), nic_(config), by_id_(offload::most_jobs) {
  lines_[0].most = most_scratch / 4;
  lines_[1].most = most_scratch - lines_[0].most;
  between_hosts().most = most_scratch;
  for (int id = offload::most_jobs - 1; id >= 0; --id) free_.push_back(static_cast<std::uint8_t>(id));
}

std::shared_ptr<const offload::rank_program> nic_posting::descriptors_of(rank_t which) const {
  return how->descriptors_of(which, elements, counts ? std::span{*counts} : std::span<const std::size_t>{});
}

void nic_driver::post(nic_client_ptr who, nic_posting&& what) {
  const key which{what.communicator, what.epoch};
  job& of = jobs_[which];
  if (!of.parts.empty() && of.parts.front().what.fingerprint != what.fingerprint)
    return who->differs(what.epoch, of.parts.front().what.rank);
  const int posters = what.posters();
  of.across = what.across;
  of.parts.push_back({std::move(who), std::move(what)});
  if (++of.posted < posters || of.broken) return;
  try {
    complete(which, of);
  } catch (...) {
    return fail(which, of, errc::aborted, text_of(std::current_exception()), picoseconds{0});
  }
  of.ready_as = ++completed_;
  line_of(of).ready.push_back(which);
}

namespace {
/// Of what others have written nothing is believed that would reach beyond their buffers.
std::shared_ptr<const offload::rank_program> brought_for(const nic_posting& part, const nic_posting& by) {
  if (static_cast<std::size_t>(part.ranks) != by.programs->size())
    throw error(errc::aborted, "the NIC refuses its descriptors: they are of " + std::to_string(by.programs->size()) +
                                   " ranks, and the communicator has " + std::to_string(part.ranks));
  const offload::rank_program& its = (*by.programs)[static_cast<std::size_t>(part.rank)];
  if (std::string why = offload::why_not_within(its, part.input_bytes, part.output_bytes); !why.empty())
    throw error(errc::aborted, "rank " + std::to_string(part.rank) + ": the NIC refuses it: " + why);
  return {by.programs, &its};
}
}  // namespace

/// All have posted it. The fingerprints are equal, so every rank elsewhere has called what the rank has called that brings the descriptors.
void nic_driver::complete(const key& which, job& what) {
  auto brings = std::ranges::find_if(what.parts, [](const part& p) { return p.what.far == nullptr; });
  if (brings == what.parts.end())
    brings = std::ranges::find_if(what.parts, [](const part& p) { return p.what.programs != nullptr; });
  if (brings == what.parts.end()) {
    const auto said = std::ranges::find_if(what.parts, [](const part& p) { return !p.what.why_no_programs.empty(); });
    throw error(errc::aborted, "the NIC refuses its descriptors: " +
                                   (said == what.parts.end() ? "they did not come" : said->what.why_no_programs));
  }
  for (part& p : what.parts) {
    if (p.what.far != nullptr) {
      const nic_posting& like = brings->what;
      p.what.program = like.how != nullptr ? like.descriptors_of(p.what.rank) : brought_for(p.what, like);
      p.what.type = like.type;
      p.what.reduction = like.reduction;
      lay_out(p);
    } else if (p.what.program == nullptr) {
      p.what.program = p.what.descriptors_of(p.what.rank);
    }
    what.sequences += p.what.program->sequences.size();
    what.scratch_bytes += p.what.program->scratch_bytes + p.staged.bytes;
  }
  // Ranks post in the order of their calls, so of what came before all have posted what they ever will.
  const auto from = told_.lower_bound({which.first, 0}), to = told_.lower_bound(which);
  told_.erase(from, to);
  if (auto heard = told_.extract(which)) what.ready = std::move(heard.mapped());
}

void nic_driver::recall(nic_client& who, std::uint64_t communicator, epoch_t epoch, rank_t rank, picoseconds now) {
  const key which{communicator, epoch};
  if (const auto at = jobs_.find(which); at != jobs_.end()) {
    job& of = at->second;
    of.broken = true;
    std::erase(line_of(of).ready, which);
    if (of.runs_as) stop(which, of, now);
    std::erase_if(of.parts, [&](const part& p) { return p.what.rank == rank; });
    if (of.parts.empty()) jobs_.erase(at);
  }
  who.let_go(epoch);
}

void nic_driver::forget(std::uint64_t communicator, picoseconds now) {
  for (auto at = jobs_.lower_bound({communicator, 0}); at != jobs_.end() && at->first.first == communicator;) {
    job& of = at->second;
    std::erase(line_of(of).ready, at->first);
    if (of.runs_as) {
      nic_.abort(*of.runs_as, now);
      release(of);
    }
    at = jobs_.erase(at);
  }
  told_.erase(told_.lower_bound({communicator, 0}), told_.lower_bound({communicator + 1, 0}));
}

void nic_driver::release(job& what) {
  free_.push_back(what.runs_as->id);
  across_ -= what.across != nullptr ? 1 : 0;
  (what.across != nullptr ? sequences_across_ : sequences_) -= what.sequences;
  line_of(what).bytes -= what.scratch_bytes;
  what.runs_as.reset();
}

// -- what is complete begins --------------------------------------------------------------------------------------------

nic_driver::line& nic_driver::line_of(const job& what) {
  if (what.across != nullptr) return between_hosts();
  line& little = lines_[0];
  line& much = lines_[1];
  if (what.scratch_bytes <= little.most / few_at_least) return little;
  return what.scratch_bytes <= much.most ? much : lines_[2];
}

/// Null: none of those that wait can begin. Of the lines' first ones whose scratch there is, the one that was complete first.
nic_driver::line* nic_driver::next_line() {
  line* next = nullptr;
  std::uint64_t first = 0;
  for (line& l : lines_) {
    if (l.ready.empty() || &l == &between_hosts()) continue;
    const job& what = jobs_.at(l.ready.front());
    if (l.bytes > 0 && l.bytes + what.scratch_bytes > l.most) continue;
    if (next == nullptr || what.ready_as < first) next = &l, first = what.ready_as;
  }
  if (next == nullptr || under_way() == 0) return next;
  const job& what = jobs_.at(next->ready.front());
  return free_.empty() || sequences_ + what.sequences > most_sequences ? nullptr : next;
}

void nic_driver::begin_ready(picoseconds now) {
  while (line* const next = next_line()) {
    const key which = next->ready.front();
    next->ready.pop_front();
    begin(which, jobs_.at(which), now);
  }
  begin_ready_across(now);
}

void nic_driver::begin(const key& which, job& what, picoseconds now) {
  what.runs_as = offload_job{free_.back(), ++serial_};
  free_.pop_back();
  by_id_[what.runs_as->id] = which;
  across_ += what.across != nullptr ? 1 : 0;
  (what.across != nullptr ? sequences_across_ : sequences_) += what.sequences;
  line_of(what).bytes += what.scratch_bytes;
  try {
    for (part& p : what.parts) p.here = staging_for(p);
    if (std::ranges::none_of(what.parts, [](const part& p) { return p.staged.reads; }))
      return hand_over(which, what, now);
    coming_.push_back(which);
  } catch (const error& e) {
    fail(which, what, e.code_value(), e.what(), now);
  }
}

/// All that it reads is here.
void nic_driver::hand_over(const key& which, job& what, picoseconds now) {
  if (what.across != nullptr) say_ready(which, what, now);
  else give_to_nic(what);
}

void nic_driver::give_to_nic(job& what) {
  what.in_nic = true;
  for (const part& p : what.parts) {
    const std::string why = nic_.post({*what.runs_as, p.what.program, p.here, p.what.type, p.what.reduction});
    if (!why.empty())
      throw error(errc::aborted, "rank " + std::to_string(p.what.rank) + ": the NIC refuses it: " + why);
  }
}

/// It cannot go on, and its ranks will recall their parts.
void nic_driver::stop(const key& which, job& what, picoseconds now) {
  what.broken = true;
  nic_.abort(*what.runs_as, now);
  let_go_of_links(which, what);
  release(what);
  for (part& p : what.parts) p.scratch = {}, p.staged.memory = {};
}

void nic_driver::fail(const key& which, job& what, errc code, const std::string& why, picoseconds now) {
  if (what.runs_as) {
    nic_.abort(*what.runs_as, now);
    let_go_of_links(which, what);
    release(what);
  }
  std::vector<part> parts = std::move(what.parts);
  jobs_.erase(which);
  for (const part& p : parts) p.who->performed(which.second, make_failure(code, why));
}

// -- a turn -------------------------------------------------------------------------------------------------------------

bool nic_driver::turn(picoseconds now) {
  begin_ready(now);
  if (const auto due = nic_.next_deadline(); due && *due <= now) nic_.elapse(now);
  bool more = copy_some(now);
  for (int round = 0; round < rounds_a_turn && (round == 0 || more); ++round) more = perform(now);
  return more || !coming_.empty() || !leaving_.empty() || next_line() != nullptr || next_across().has_value();
}

/// A packet of a sequence in every unit, and what follows from it. False: nothing could be done.
bool nic_driver::perform(picoseconds now) {
  bool moved = false;
  for (int unit = 0; unit < nic_.config().units; ++unit) moved = nic_.work(unit, now).has_value() || moved;
  while (auto packet = nic_.next_packet(now)) {
    if (packet->on.dest_node == packet->on.source_node) nic_.arrive(std::move(*packet), now);
    else send_away(*packet);
    moved = true;
  }
  while (const auto response = nic_.next_response()) {
    if (response->on.dest_node == response->on.source_node) nic_.respond(*response, now);
    else send_away(*response);
    moved = true;
  }
  while (const auto end = nic_.next_completion()) ended(*end);
  return moved;
}

void nic_driver::ended(const offload_completion& what) {
  const auto at = jobs_.find(by_id_[what.job.id]);
  if (at == jobs_.end() || at->second.runs_as != what.job) return;  // recalled meanwhile
  job& of = at->second;
  const auto mine =
      std::find_if(of.parts.begin(), of.parts.end(), [&](const part& p) { return p.what.rank == what.rank; });
  if (mine == of.parts.end()) return;
  if (what.error.empty() && mine->staged.writes) {
    leaving_.emplace_back(at->first, what.rank);
    return;
  }
  conclude(at, mine, what.error.empty() ? nullptr : make_failure(errc::aborted, what.error));
}

/// The part is over.
void nic_driver::conclude(std::map<key, job>::iterator which, std::vector<part>::iterator mine,
                          const failure_ptr& why) {
  job& of = which->second;
  const nic_client_ptr who = std::move(mine->who);
  const epoch_t epoch = mine->what.epoch;
  if (of.again) of.across->wire().let_go(mine->what.rank, epoch);
  of.parts.erase(mine);
  if (of.parts.empty()) {
    release(of);
    jobs_.erase(which);
  }
  who->performed(epoch, why);
}

}  // namespace troupe::actors
