// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/nic/nic_desk.hpp"

#include <algorithm>

#include "actors/ports/segment/board_memory.hpp"
#include "memory/error.hpp"
#include "memory/exception_text.hpp"
#include "protocols/plan.hpp"

namespace troupe::actors {

namespace {
/// Rounds of all units between two looks at what has been handed in.
constexpr int rounds_a_turn = 16;
/// Of an output behind an input in a copy of both.
constexpr std::size_t stage_alignment = 64;
}  // namespace

offload_config nic_config() {
  offload_config c;
  c.units = 4;
  c.packet_bytes = nic_packet_bytes;
  c.buffer_bytes = 256 * nic_packet_bytes;  // 256 names
  c.refers = true;
  return c;
}

nic_desk::nic_desk(const offload_config& config, std::size_t most_scratch)
    : most_scratch_(most_scratch), scratch_(most_scratch), nic_(config), by_id_(offload::most_jobs) {
  for (int id = offload::most_jobs - 1; id >= 0; --id) free_.push_back(static_cast<std::uint8_t>(id));
}

void nic_desk::post(nic_client_ptr who, nic_posting&& what) {
  const key which{what.communicator, what.epoch};
  job& of = jobs_[which];
  if (!of.parts.empty() && of.parts.front().what.fingerprint != what.fingerprint)
    return who->differs(what.epoch, of.parts.front().what.rank);
  const int ranks = what.ranks;
  of.parts.push_back({std::move(who), std::move(what)});
  if (++of.posted < ranks || of.broken) return;
  try {
    complete(of);
  } catch (...) {
    return fail(which, of, errc::aborted, text_of(std::current_exception()), picoseconds{0});
  }
  ready_.push_back(which);
}

/// All have posted it. What a rank elsewhere calls is what those here have called, since the fingerprints are equal.
void nic_desk::complete(job& what) {
  const auto here = std::ranges::find_if(what.parts, [](const part& p) { return p.what.far == nullptr; });
  for (part& p : what.parts) {
    if (p.what.far != nullptr) {
      const nic_posting& like = here->what;
      p.what.program = like.how->descriptors_of(p.what.rank, like.elements);
      p.what.type = like.type;
      p.what.reduction = like.reduction;
      lay_out(p);
    }
    what.sequences += p.what.program->sequences.size();
    what.scratch_bytes += p.what.program->scratch_bytes + p.staged.bytes;
  }
}

void nic_desk::recall(nic_client& who, std::uint64_t communicator, epoch_t epoch, rank_t rank, picoseconds now) {
  const key which{communicator, epoch};
  if (const auto at = jobs_.find(which); at != jobs_.end()) {
    job& of = at->second;
    of.broken = true;
    std::erase(ready_, which);
    if (of.runs_as) stop(of, now);
    std::erase_if(of.parts, [&](const part& p) { return p.what.rank == rank; });
    if (of.parts.empty()) jobs_.erase(at);
  }
  who.let_go(epoch);
}

void nic_desk::forget(std::uint64_t communicator, picoseconds now) {
  for (auto at = jobs_.lower_bound({communicator, 0}); at != jobs_.end() && at->first.first == communicator;) {
    job& of = at->second;
    std::erase(ready_, at->first);
    if (of.runs_as) {
      nic_.abort(*of.runs_as, now);
      release(of);
    }
    at = jobs_.erase(at);
  }
}

void nic_desk::release(job& what) {
  free_.push_back(what.runs_as->id);
  sequences_ -= what.sequences;
  scratch_bytes_ -= what.scratch_bytes;
  what.runs_as.reset();
}

// -- memory of ranks elsewhere ------------------------------------------------------------------------------------------

/// Where the NIC finds it: at an address here, if both map it, else in copies. Buffers that overlap there overlap here.
void nic_desk::lay_out(part& p) {
  const nic_posting& what = p.what;
  stage& to = p.staged;
  const std::byte *const in = what.memory.input, *const out = what.memory.output;
  const std::size_t in_bytes = in != nullptr ? what.input_bytes : 0, out_bytes = out != nullptr ? what.output_bytes : 0;
  if (in_bytes > 0) to.input = what.far->near(what.rank, what.memory.input);
  if (out_bytes > 0) to.output = what.far->near(what.rank, what.memory.output);
  to.reads = in_bytes > 0 && to.input == nullptr;
  to.writes = out_bytes > 0 && to.output == nullptr;
  const bool overlap = to.reads && to.writes && in < out + out_bytes && out < in + in_bytes;
  if (overlap) {
    const std::byte* const begin = std::min(in, out);
    to.input_at = static_cast<std::size_t>(in - begin);
    to.output_at = static_cast<std::size_t>(out - begin);
    to.bytes = std::max(to.input_at + in_bytes, to.output_at + out_bytes);
    return;
  }
  to.bytes = to.reads ? in_bytes : 0;
  if (!to.writes) return;
  to.output_at = (to.bytes + stage_alignment - 1) / stage_alignment * stage_alignment;
  to.bytes = to.output_at + out_bytes;
}

/// False: its process has ended, and the failure is on its way. Throws error(io): the system forbids it.
bool nic_desk::bring(part& p) {
  stage& to = p.staged;
  if (to.bytes == 0) return true;
  to.memory = scratch_.acquire(to.bytes);
  auto* const begin = static_cast<std::byte*>(to.memory.data());
  if (to.writes) to.output = begin + to.output_at;
  if (!to.reads) return true;
  to.input = begin + to.input_at;
  return p.what.far->read(p.what.rank, to.input, p.what.memory.input, p.what.input_bytes);
}

/// @pre its part has been performed. Who has ended needs no result.
failure_ptr nic_desk::take_out(const part& p) {
  if (!p.staged.writes) return nullptr;
  try {
    static_cast<void>(p.what.far->write(p.what.rank, p.what.memory.output, p.staged.output, p.what.output_bytes));
  } catch (const error& e) {
    return make_failure(e.code_value(), e.what());
  }
  return nullptr;
}

// -- what is complete begins --------------------------------------------------------------------------------------------

bool nic_desk::has_room_for(const job& what) const {
  if (under_way() == 0) return true;
  return !free_.empty() && sequences_ + what.sequences <= nic_.config().most_sequences &&
         scratch_bytes_ + what.scratch_bytes <= most_scratch_;
}

void nic_desk::begin_ready(picoseconds now) {
  while (!ready_.empty()) {
    const key which = ready_.front();
    job& of = jobs_.at(which);
    if (!has_room_for(of)) return;
    ready_.pop_front();
    begin(which, of, now);
  }
}

void nic_desk::begin(const key& which, job& what, picoseconds now) {
  what.runs_as = offload_job{free_.back(), ++serial_};
  free_.pop_back();
  by_id_[what.runs_as->id] = which;
  sequences_ += what.sequences;
  scratch_bytes_ += what.scratch_bytes;
  try {
    for (part& p : what.parts) {
      p.scratch = scratch_.acquire(p.what.program->scratch_bytes);
      memory_map memory = p.what.memory;
      memory.scratch = static_cast<std::byte*>(p.scratch.data());
      if (p.what.far != nullptr) {
        if (!bring(p)) return stop(what, now);
        memory.input = p.staged.input;
        memory.output = p.staged.output;
      }
      const std::string why = nic_.post({*what.runs_as, p.what.program, memory, p.what.type, p.what.reduction});
      if (!why.empty())
        throw error(errc::aborted, "rank " + std::to_string(p.what.rank) + ": the NIC refuses it: " + why);
    }
  } catch (const error& e) {
    fail(which, what, e.code_value(), e.what(), now);
  }
}

/// It cannot go on, and its ranks will recall their parts.
void nic_desk::stop(job& what, picoseconds now) {
  what.broken = true;
  nic_.abort(*what.runs_as, now);
  release(what);
  for (part& p : what.parts) p.scratch = {}, p.staged.memory = {};
}

void nic_desk::fail(const key& which, job& what, errc code, const std::string& why, picoseconds now) {
  if (what.runs_as) {
    nic_.abort(*what.runs_as, now);
    release(what);
  }
  std::vector<part> parts = std::move(what.parts);
  jobs_.erase(which);
  for (const part& p : parts) p.who->performed(which.second, make_failure(code, why));
}

// -- a turn -------------------------------------------------------------------------------------------------------------

bool nic_desk::turn(picoseconds now) {
  if (!ready_.empty()) begin_ready(now);
  if (const auto due = nic_.next_deadline(); due && *due <= now) nic_.elapse(now);
  bool more = true;
  for (int round = 0; round < rounds_a_turn && more; ++round) more = perform(now);
  return more || (!ready_.empty() && has_room_for(jobs_.at(ready_.front())));
}

/// A packet of a sequence in every unit, and what follows from it. False: nothing could be done.
bool nic_desk::perform(picoseconds now) {
  bool moved = false;
  for (int unit = 0; unit < nic_.config().units; ++unit) moved = nic_.work(unit, now).has_value() || moved;
  while (auto packet = nic_.next_packet(now)) {
    nic_.arrive(std::move(*packet), now);
    moved = true;
  }
  while (const auto response = nic_.next_response()) {
    nic_.respond(*response, now);
    moved = true;
  }
  while (const auto end = nic_.next_completion()) ended(*end);
  return moved;
}

void nic_desk::ended(const offload_completion& what) {
  const auto at = jobs_.find(by_id_[what.job.id]);
  if (at == jobs_.end() || at->second.runs_as != what.job) return;  // recalled meanwhile
  job& of = at->second;
  const auto mine =
      std::find_if(of.parts.begin(), of.parts.end(), [&](const part& p) { return p.what.rank == what.rank; });
  if (mine == of.parts.end()) return;
  const nic_client_ptr who = std::move(mine->who);
  const epoch_t epoch = mine->what.epoch;
  const failure_ptr why = what.error.empty() ? take_out(*mine) : make_failure(errc::aborted, what.error);
  of.parts.erase(mine);
  if (of.parts.empty()) {
    release(of);
    jobs_.erase(at);
  }
  who->performed(epoch, why);
}

}  // namespace troupe::actors
