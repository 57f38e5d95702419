// SPDX-License-Identifier: Apache-2.0
// Work on the buffers of ranks in other processes, which the system copies from and to.

#include <algorithm>
#include <array>

#include "actors/ports/direct/direct_performer.hpp"
#include "actors/ports/slots/slot_board.hpp"
#include "memory/kernels/kernels.hpp"
#include "protocols/program/direct_staging.hpp"

namespace troupe {

namespace {

/// Of an operand: long beside what a copy by the system costs besides its bytes (0.4 µs), and all operands' pieces stay in a core's cache.
constexpr std::size_t longest_piece = 64 * 1024, shortest_piece = 8 * 1024, all_pieces = 256 * 1024;

constexpr std::size_t piece_of(std::size_t operands) {
  return std::clamp(all_pieces / std::max<std::size_t>(1, operands), shortest_piece, longest_piece);
}

}  // namespace

// -- lists ------------------------------------------------------------------------------------------------------------

/// The rank's own, for those who meet it. @pre `here` is away
void direct_performer::list() {
  relative<std::atomic<std::uint64_t>>& at = meeting_place().at(rank_).listed;
  std::atomic<std::uint64_t>* to = at.load(std::memory_order_relaxed);
  if (to == nullptr) {
    to = static_cast<std::atomic<std::uint64_t>*>(board_->memory().take(direct_board::listed_bytes(board_->ranks())));
    if (to == nullptr) throw std::bad_alloc{};
    at.store(to, std::memory_order_release);
  }
  const block_lists& mine = sizes().mine();
  const std::vector<std::size_t>* const all[] = {&mine.counts, &mine.received, &mine.input_begins, &mine.output_begins};
  for (const auto* each : all) (to++)->store(each->size(), std::memory_order_release);
  for (const auto* each : all)
    for (const std::size_t n : *each) (to++)->store(n, std::memory_order_release);
}

/// As they are in its words; they count if its `here` is the operation's afterwards.
const block_lists* direct_performer::lists_of(rank_t which) {
  const auto* from = meeting_place().at(which).listed.load(std::memory_order_acquire);
  if (from == nullptr) return nullptr;
  if (lists_read_.empty()) lists_read_.resize(static_cast<std::size_t>(board_->ranks()));
  block_lists& to = lists_read_[static_cast<std::size_t>(which)];
  std::vector<std::size_t>* const all[] = {&to.counts, &to.received, &to.input_begins, &to.output_begins};
  const auto most = static_cast<std::uint64_t>(board_->ranks());
  for (auto* each : all) each->resize(std::min(most, (from++)->load(std::memory_order_acquire)));
  for (auto* each : all)
    for (std::size_t& n : *each) n = (from++)->load(std::memory_order_acquire);
  return &to;
}

// -- buffers ----------------------------------------------------------------------------------------------------------

/// Of a rank that was met: what lies in memory that its process shares (host_segment.hpp) is worked on as if it were here.
void direct_performer::map_what_is_shared(rank_t which) {
  buffers& of = buffers_[static_cast<std::size_t>(which)];
  const auto map = [&](std::byte*& at, bool& near) {
    std::byte* const here = at == nullptr ? nullptr : others_->near(which, at);
    near = here != nullptr;
    if (near) at = here;
  };
  map(of.input, of.input_near);
  map(of.output, of.output_near);
  map(of.scratch, of.scratch_near);
}

// -- staging buffers --------------------------------------------------------------------------------------------------

/// To where others look for it. @param some what others read, where each rank performs its own copies
void direct_performer::copy_input(std::byte* to, std::span<const std::uint32_t> some) {
  const std::size_t whole = sizes().bytes_of_own(true);
  const auto stage = [&](std::size_t from, std::size_t bytes) {
    copier_.copy(to + from, mine_.input + from, bytes, whole);
  };
  std::size_t begin = 0, end = 0;  // of neighbours that are copied at once
  for (const std::uint32_t operand : some) {
    const cell_range& at = code_->operands[operand];
    const std::size_t offset = sizes().offset(at);
    if (offset != end) {
      stage(begin, end - begin);
      begin = offset;
    }
    end = offset + sizes().elements(at) * sizes().element_size();
  }
  stage(begin, end - begin);
  if (!some.empty()) return;
  if (sizes().equal()) return stage(0, whole);
  const auto lengths = sizes().own_blocks(true);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    stage(sizes().mine().input_begins[i] * sizes().element_size(), lengths[i] * sizes().element_size());
  }
}

/// What others do with an input or output of so many bytes.
copy_costs::use direct_performer::use_of(std::size_t bytes, bool input) const {
  const direct_program::passing& what = input ? code_->read_by_others : code_->written_by_others;
  const bool folds = is_reduction(code_->what);
  const auto part = static_cast<std::size_t>(static_cast<double>(bytes) * what.part);
  // A root that gathers copies its own block first, on a core that no other rank wants.
  const bool gathers = input && code_->what == collective::gather && board_->ranks() <= others_->costs().cores;
  return {.bytes = std::min(part, folds ? piece_of(code_->most_inputs) : longest_piece),
          .times = what.times,
          .stagers = what.owners,
          .others = what.others,
          .folds = folds,
          .is_long = folds && part >= all_pieces,
          .beside = gathers};
}

bool direct_performer::worth_staging(std::size_t bytes, bool input) const {
  return others_->costs().worth_staging(use_of(bytes, input), board_->ranks());
}

/// What others are to find in staging buffers, of an input and an output of so many bytes; 0: they do not use it, or find it in memory that they map. What costs say, or
/// the other way round, as the rank has found out. Each decides for itself; all see how long that makes the operation, so what one finds to be faster is faster for all.
direct_performer::staged direct_performer::choose_staged(std::size_t input, std::size_t output) {
  const staged expected{input > 0 && worth_staging(input, true), output > 0 && worth_staging(output, false)};
  const std::size_t bytes = std::max(input, output);
  // Of a source that runs ahead nobody sees when the others have its input. And whether each rank copies to its own output hangs on what is
  // expected, up to most_by_one, so all must say the same.
  const bool own_affair = !ahead_ && (code_->to_own.empty() || input > direct_staging::most_by_one);
  if (!others_->costs().tries || !own_affair || !staging_trials::tries(bytes)) return expected;
  if (trials_.of.empty()) trials_.of.resize(collective_count);
  trials_.asked = &trials_.of[static_cast<std::size_t>(code_->what)].of(bytes);
  trials_.bytes = bytes;
  trials_.begun = std::chrono::steady_clock::now();
  const bool any = expected.input || expected.output;
  trials_.staged = trials_.asked->takes_second(any);
  if (!trials_.staged) return {};
  return any ? expected : staged{true, true};
}

/// What the others are to take for the rank's buffers; and what its own passes work on.
direct_performer::buffers direct_performer::stage_what_others_use() {
  using namespace direct_staging;
  buffers shown = mine_;
  const direct_program::use_by_others& used = code_->used[static_cast<std::size_t>(rank_)];
  const std::size_t input = sizes().bytes_of_own(true), output = sizes().bytes_of_own(false);
  const std::byte *const in = mine_.input, *const out = mine_.output;
  const bool in_shared = input == 0 || others_->shares(in), out_shared = output == 0 || others_->shares(out);
  meeting_place().at(rank_).shared.store(in_shared && out_shared, std::memory_order_release);
  const bool apart = in == nullptr || out == nullptr || in + input <= out || out + output <= in;
  // An output that is the input, too, is worked on as one memory.
  const bool uses_output = !ahead_ && may_stage_output(*code_, used, output) &&
                           (apart || (in == out && input <= longest_output(*code_))) && !out_shared;
  const bool uses_input = may_stage_input(used, input) && !in_shared;
  const staged which = choose_staged(uses_input ? input : 0, uses_output ? output : 0);
  if (which.output && uses_output)
    if (std::byte* const at = output_staging_.grow(std::max(output, apart ? 0 : input))) {
      output_staged_ = true;
      shown.output = of_bodies_.output = at;
      if (!apart) {
        copy_input(at, {});
        shown.input = of_bodies_.input = at;
        return shown;
      }
    }
  if (which.input && uses_input) {
    // Of blocks that differ it is not known yet whether each rank copies to its own output, unless this rank's alone are enough for that.
    const bool enough = !code_->to_own.empty() && input > most_by_one;
    const bool alone = !ahead_ && (sizes().equal() ? copies_alone() : enough);
    const auto some = alone ? std::span{used.inputs} : std::span<const std::uint32_t>{};
    if (std::byte* const at = some.empty() ? input_staging_.grow(input) : input_staging_.reserve(input)) {
      copy_input(at, some);
      shown.input = at;
    }
  }
  // There may have been no memory for it.
  const bool as_chosen =
      (!which.input || !uses_input || shown.input != mine_.input) && (!which.output || !uses_output || output_staged_);
  if (!as_chosen) trials_.asked = nullptr;
  return shown;
}

/// What has been written to the rank's output. @pre the operation is over
void direct_performer::take_from_staging() {
  output_staged_ = false;
  for (const std::uint32_t operand : code_->used[static_cast<std::size_t>(rank_)].outputs) {
    const cell_range& at = code_->operands[operand];
    const std::size_t offset = sizes().offset(at);
    troupe::copy(mine_.output + offset, of_bodies_.output + offset, sizes().elements(at) * sizes().element_size());
  }
}

// -- alone ------------------------------------------------------------------------------------------------------------

/// Unless all buffers are shared. @pre sizes are equal, or all are met
bool direct_performer::copies_alone() const {
  if (code_->to_own.empty()) return false;
  const std::size_t all = sizes().bytes_to_own();
  if (all == 0 || all > direct_staging::most_by_one) return all > 0;
  // Half of that is read; an input's share of what others read of it.
  const double input = static_cast<double>(all) / 2 * code_->staged_share / std::max(code_->read_by_others.owners, 1);
  return !worth_staging(static_cast<std::size_t>(input), true);
}

/// The same answer at all ranks. @pre all are met
bool direct_performer::works_alone() const { return others_ != nullptr && !all_shared_ && copies_alone(); }

/// The copies to the rank's own output. False: sizes do not fit.
bool direct_performer::work_alone() {
  output_staged_ = false;  // nobody else writes it
  direct_board& place = meeting_place();
  const touching_others touching{place.at(rank_), mark_};
  if (!all_here(std::memory_order_seq_cst)) return true;
  const auto& own = code_->to_own[static_cast<std::size_t>(rank_)];
  // Ranks begin with different sources.
  const std::size_t first = own.size() * static_cast<std::size_t>(rank_) / static_cast<std::size_t>(place.ranks());
  for (std::size_t k = 0; k < own.size(); ++k) {
    if (place.gave_up.load(std::memory_order_relaxed) == mark_) return true;
    const direct_program::copy_between& next = own[(first + k) % own.size()];
    const std::array both{code_->operands[next.source], code_->operands[next.target]};
    if (!sizes().equal() && traits_of(code_->what).v != v_counts::common && !fits(both)) {
      place.at_odds.store(mark_, std::memory_order_release);
      tell_all();
      return false;
    }
    if (!copy_to_own(next)) return true;  // a process has ended, and the failure is on its way
    ++worked_;
  }
  if (place.left_alone.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    place.over.store(mark_, std::memory_order_release);
    tell_all();
  }
  return true;
}

/// False: the source's process has ended.
bool direct_performer::copy_to_own(const direct_program::copy_between& which) {
  const cell_range &source = code_->operands[which.source], &target = code_->operands[which.target];
  const std::size_t bytes = sizes().elements(source) * sizes().element_size();
  const buffers& theirs = buffers_[static_cast<std::size_t>(source.owner)];
  const std::byte* const from = (source.owner == rank_ ? mine_ : theirs).input + sizes().offset(source);
  std::byte* const to = mine_.output + sizes().offset(target);
  if (bytes == 0) return true;
  // Its address there may well be the same number as the target's here.
  if (source.owner != rank_ && !theirs.input_near) return others_->read(source.owner, to, from, bytes);
  if (from != to) copy(to, from, bytes, stores());
  return true;
}

// -- work -------------------------------------------------------------------------------------------------------------

/// False: a process has ended.
bool direct_performer::perform_between(const direct_program::pass& p, stretch which) {
  const bool scales = code_->sums.scales_inputs && p.inputs > 1;
  const bool copies = p.inputs == 1 && !scales && !(p.completes && code_->sums.divisor != 1);
  return copies ? copy_between(code_->operands_of(p), which) : fold_between(p, which);
}

bool direct_performer::copy_between(std::span<const cell_range> operands, stretch which) {
  const std::size_t size = sizes().element_size(), bytes = (which.end - which.begin) * size;
  const std::size_t offset = which.begin * size;
  const cell_range& source = operands.front();
  std::byte* const from = address(source) + offset;
  const std::byte* near = is_here(source) ? from : nullptr;
  for (const cell_range& target : operands.subspan(1)) {
    if (!is_here(target)) continue;
    std::byte* const to = address(target) + offset;
    if (near == nullptr && !others_->read(source.owner, to, from, bytes)) return false;
    if (near != nullptr && near != to) copy(to, near, bytes);
    near = to;
  }
  const std::size_t piece = near != nullptr ? bytes : std::min(bytes, longest_piece);
  if (near == nullptr && pieces_.size() < piece) pieces_.resize(piece);
  for (std::size_t at = 0; at < bytes; at += piece) {
    const std::size_t now = std::min(piece, bytes - at);
    const std::byte* data = near != nullptr ? near + at : pieces_.data();
    if (near == nullptr && !others_->read(source.owner, pieces_.data(), from + at, now)) return false;
    for (const cell_range& target : operands.subspan(1))
      if (!is_here(target) && !others_->write(target.owner, address(target) + offset + at, data, now)) return false;
  }
  return true;
}

/// Piece by piece: what is far is read, all is folded into one near result or more, and that goes to those that are far.
bool direct_performer::fold_between(const direct_program::pass& p, stretch which) {
  const auto operands = code_->operands_of(p), inputs = operands.first(p.inputs), outputs = operands.subspan(p.inputs);
  const auto here = [&](const cell_range& at) { return is_here(at); };
  const auto far_inputs = inputs.size() - static_cast<std::size_t>(std::ranges::count_if(inputs, here));
  const auto near_outputs = static_cast<std::size_t>(std::ranges::count_if(outputs, here));
  const std::size_t size = sizes().element_size();
  const std::size_t bytes = piece_of(far_inputs + 1);
  const std::size_t most = std::max<std::size_t>(1, bytes / size), room = most * size;
  if (pieces_.size() < (far_inputs + 1) * room) pieces_.resize((far_inputs + 1) * room);
  const bool scales = code_->sums.scales_inputs && p.inputs > 1;
  for (std::size_t at = which.begin; at < which.end; at += most) {
    const std::size_t count = std::min(most, which.end - at);
    std::byte* staging = pieces_.data() + room;  // behind a result that is nobody's here
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::byte* const from = address(inputs[i]) + at * size;
      const bool near = is_here(inputs[i]);
      if (!near && !others_->read(inputs[i].owner, staging, from, count * size)) return false;
      in_[i] = near ? from : staging;
      if (!near) staging += room;
      if (scales) factors_[i] = buffers_[static_cast<std::size_t>(inputs[i].owner)].factor;
    }
    std::size_t n = 0;
    for (const cell_range& to : outputs) {
      if (!is_here(to)) continue;
      out_[n++] = address(to) + at * size;
      if (to.owner == rank_) std::swap(out_[0], out_[n - 1]);  // as put_own_first()
    }
    if (n == 0) out_[n++] = pieces_.data();
    const store_hint hint = near_outputs == outputs.size() ? stores_to(outputs) : store_hint::cached;
    reduce_many(type_, reduction_, {in_.data(), p.inputs}, {out_.data(), n}, count, hint,
                {scales ? factors_.data() : nullptr, p.completes ? code_->sums.divisor : 1});
    for (const cell_range& to : outputs)
      if (!is_here(to) &&
          !others_->write(to.owner, address(to) + at * size, static_cast<const std::byte*>(out_[0]), count * size))
        return false;
  }
  return true;
}

}  // namespace troupe
