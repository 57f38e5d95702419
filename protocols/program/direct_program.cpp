// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/direct_program.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "memory/error.hpp"

namespace troupe {

namespace {

bool is_token(const instruction& i) {
  const bool empty = i.source_cells.count == 0 && i.target_cells.count == 0;
  return i.kind == step_kind::wait || ((i.kind == step_kind::send || i.kind == step_kind::recv) && empty);
}
bool is_local(const instruction& i) { return i.kind == step_kind::copy || i.kind == step_kind::reduce; }

/// The one lane that has instructions; empty if there are several.
std::span<const instruction> only_lane(const program& code) {
  std::span<const instruction> found;
  for (const auto& lane : code.lanes) {
    if (lane.empty()) continue;
    if (!found.empty()) return {};
    found = lane;
  }
  return found;
}

/// Local steps are [begin, end).
struct sections {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool empty() const { return begin == end; }
};

sections sections_of(std::span<const instruction> lane) {
  const auto local = [](const instruction& i) { return !is_token(i); };
  const auto first = std::find_if(lane.begin(), lane.end(), local);
  const auto last = std::find_if(lane.rbegin(), lane.rend(), local);
  if (first == lane.end()) return {lane.size(), lane.size()};
  return {static_cast<std::size_t>(first - lane.begin()), lane.size() - static_cast<std::size_t>(last - lane.rbegin())};
}

std::span<const cell_range> operands_of(const program& code, const instruction& i) {
  return std::span(code.operand_cells).subspan(i.operands, std::size_t{i.inputs} + i.outputs);
}

bool reachable(const cell_range& at) {
  return at.buffer == buffer_kind::input || at.buffer == buffer_kind::output || at.buffer == buffer_kind::scratch;
}

std::string wrong_step(const program& code, std::span<const instruction> lane, sections s) {
  for (std::size_t i = s.begin; i < s.end; ++i) {
    if (!is_local(lane[i])) return "a message stands between its local steps";
    const auto many = operands_of(code, lane[i]);
    const bool fine = lane[i].inputs > 0 ? std::all_of(many.begin(), many.end(), reachable)
                                         : reachable(lane[i].source_cells) && reachable(lane[i].target_cells);
    if (!fine) return "a step uses L0 or L2";
  }
  return {};
}

/// Tokens sent and received before the local steps, by (source, destination).
using token_counts = std::map<std::pair<rank_t, rank_t>, int>;

// -- cutting ----------------------------------------------------------------------------------------------------------

/// Memory that two operands may share has one name.
cell_range canonical(cell_range at, const direct_setting& setting, int ranks, int parts) {
  if (!setting.in_place || (at.buffer != buffer_kind::input && at.buffer != buffer_kind::output)) return at;
  // The owner's block of what all ranks' blocks make together, where the owner holds that one only.
  const collective_traits& traits = traits_of(setting.what);
  const std::int64_t all = traits.blocks(ranks);
  const int in = input_blocks(setting.what, ranks, 0, at.owner).count,
            out = output_blocks(setting.what, ranks, 0, at.owner).count;
  const bool one_in = in == 1 && all > 1 && !traits.reduces, one_out = out == 1 && all > 1;
  if (at.buffer == (one_in ? buffer_kind::input : one_out ? buffer_kind::output : buffer_kind::none))
    at.cell += at.owner * parts;
  at.buffer = buffer_kind::output;
  return at;
}

}  // namespace

class body_maker {
public:
  body_maker(direct_program& made, const direct_setting& setting, int ranks)
      : made_(made), setting_(setting), ranks_(ranks) {}

  direct_program::body make(const program& code, rank_t rank) {
    const auto lane = only_lane(code);
    const sections s = sections_of(lane);
    direct_program::body body;
    body.scratch = code.places.scratch_cells();
    body.passes.reserve(s.end - s.begin);
    for (std::size_t i = s.begin; i < s.end; ++i)
      if (is_local(lane[i])) body.passes.push_back(make_pass(code, lane[i], rank));
    for (const auto& p : body.passes) {
      for (const cell_range& at : made_.operands_of(p)) body.cells += static_cast<std::size_t>(at.count);
      body.operands += p.all();
      made_.most_operands = std::max(made_.most_operands, p.all());
    }
    made_.cells += body.cells;
    body.divisible = can_cut(body);
    return body;
  }

private:
  direct_program::pass make_pass(const program& code, const instruction& i, rank_t rank) {
    direct_program::pass made;
    made.operands = static_cast<std::uint32_t>(made_.operands.size());
    made.completes = i.completes;
    const auto add = [&](cell_range at) {
      if (at.owner == self) at.owner = rank;
      made_.operands.push_back(at);
    };
    if (i.inputs > 0) {
      made.inputs = i.inputs;
      made.outputs = i.outputs;
      for (const cell_range& at : operands_of(code, i)) add(at);
      return made;
    }
    made.inputs = i.kind == step_kind::reduce ? 2 : 1;
    made.outputs = 1;
    if (made.inputs == 2)
      add(i.swapped ? i.source_cells : i.target_cells), add(i.swapped ? i.target_cells : i.source_cells);
    else add(i.source_cells);
    add(i.target_cells);
    return made;
  }

  /// What is written by one operand and touched by another, of the same pass or not, are the same elements or none.
  bool can_cut(const direct_program::body& body) {
    touched_.clear();
    for (const auto& p : body.passes) {
      const auto operands = made_.operands_of(p);
      for (std::size_t k = 0; k < operands.size(); ++k)
        touched_.emplace_back(canonical(operands[k], setting_, ranks_, made_.parts), k >= p.inputs);
    }
    std::sort(touched_.begin(), touched_.end());
    const touched_cells* before = nullptr;
    std::int32_t end_of_all = 0, end_of_written = 0;  // of the cells before this one's, in its buffer
    for (std::size_t i = 0; i < touched_.size();) {
      const touched_cells& first = touched_[i];
      if (before == nullptr || !before->same_buffer(first)) end_of_all = end_of_written = 0;
      bool written = false;
      for (before = &first; i < touched_.size() && touched_[i].same_cells(first); ++i)
        written = written || touched_[i].written();
      if (end_of_written > first.cell() || (written && end_of_all > first.cell())) return false;
      const std::int32_t end = first.cell() + first.count();
      end_of_all = std::max(end_of_all, end);
      if (written) end_of_written = std::max(end_of_written, end);
    }
    return true;
  }

  /// In the order of owners, buffers, cells: two words, since a body of many ranks has hundreds to be sorted.
  class touched_cells {
  public:
    touched_cells(const cell_range& at, bool written)
        : where_(std::uint64_t{static_cast<std::uint32_t>(at.owner)} << bits_below_owner |
                 std::uint64_t{static_cast<std::uint8_t>(at.buffer)} << bits_of_cell |
                 static_cast<std::uint32_t>(at.cell)),
          how_many_(std::uint64_t{static_cast<std::uint32_t>(at.count)} << 1 | (written ? 1u : 0u)) {}
    std::int32_t cell() const { return static_cast<std::int32_t>(static_cast<std::uint32_t>(where_)); }
    std::int32_t count() const { return static_cast<std::int32_t>(how_many_ >> 1); }
    bool written() const { return (how_many_ & 1u) != 0; }
    bool operator<(const touched_cells& other) const {
      return where_ != other.where_ ? where_ < other.where_ : how_many_ < other.how_many_;
    }
    bool same_buffer(const touched_cells& other) const { return (where_ ^ other.where_) >> bits_of_cell == 0; }
    bool same_cells(const touched_cells& other) const {
      return where_ == other.where_ && how_many_ >> 1 == other.how_many_ >> 1;
    }

  private:
    static constexpr int bits_of_cell = 32, bits_below_owner = bits_of_cell + 3;
    static_assert(static_cast<int>(buffer_kind::l2) < 1 << (bits_below_owner - bits_of_cell));
    std::uint64_t where_, how_many_;
  };

  std::vector<touched_cells> touched_;
  direct_program& made_;
  const direct_setting& setting_;
  int ranks_;
};

namespace {

/// See direct_program::copies.
std::vector<std::vector<std::uint32_t>> copies_by_target(const direct_program& made) {
  constexpr std::size_t most_ranks = 16;
  const std::size_t ranks = made.bodies.size();
  if (ranks > most_ranks || made.parts != 1 || is_reduction(made.what)) return {};
  std::vector<std::vector<std::uint32_t>> copies(ranks);
  for (const auto& body : made.bodies)
    for (const direct_program::pass& p : body.passes) {
      const auto operands = made.operands_of(p);
      const auto whole = [](const cell_range& at, buffer_kind in) { return at.buffer == in && at.count == 1; };
      if (operands.size() != 2 || !whole(operands[0], buffer_kind::input) || !whole(operands[1], buffer_kind::output))
        return {};
      copies[static_cast<std::size_t>(operands[1].owner)].push_back(p.operands);
    }
  return copies;
}

/// Whether what one copy writes is what another one reads, or writes, where input and output are one memory; but for copies of cells to
/// themselves, which do nothing.
bool any_order(const direct_program& made, const direct_setting& setting) {
  constexpr std::size_t most_looks = 1'000'000;
  const auto ranks = static_cast<int>(made.bodies.size());
  const auto name = [&](std::uint32_t operand) {
    return canonical(made.operands[operand], setting, ranks, made.parts);
  };
  std::size_t looks = 0;
  std::vector<std::vector<cell_range>> read(made.bodies.size());
  for (const auto& own : made.to_own)
    for (const auto& c : own) {
      const cell_range from = name(c.source);
      auto& of = read[static_cast<std::size_t>(from.owner)];
      if (of.empty() || !(of.back() == from)) of.push_back(from);
    }
  for (const auto& own : made.to_own)
    for (std::size_t i = 0; i < own.size(); ++i) {
      const cell_range to = name(own[i].target), from = name(own[i].source);
      const bool itself = overlap(to, from) && to.cell == from.cell && to.count == from.count;
      const auto& others = read[static_cast<std::size_t>(to.owner)];
      if ((looks += others.size() + own.size() - i) > most_looks) return false;
      if (!itself && std::ranges::any_of(others, [&](const cell_range& at) { return overlap(to, at); })) return false;
      for (std::size_t k = i + 1; k < own.size(); ++k)
        if (overlap(to, name(own[k].target))) return false;
    }
  return true;
}

/// See direct_program::to_own.
void divide_by_target(direct_program& made, const direct_setting& setting) {
  if (is_reduction(made.what)) return;
  made.to_own.resize(made.bodies.size());
  for (const auto& body : made.bodies)
    for (const direct_program::pass& p : body.passes) {
      const auto operands = made.operands_of(p);
      bool copies = p.inputs == 1 && operands.front().buffer == buffer_kind::input;
      for (std::uint32_t k = 1; copies && k < operands.size(); ++k) {
        copies = operands[k].buffer == buffer_kind::output;
        made.to_own[static_cast<std::size_t>(operands[k].owner)].push_back({p.operands, p.operands + k});
      }
      if (!copies) return made.to_own.clear();
    }
  if (!any_order(made, setting)) made.to_own.clear();
}

/// See direct_program::used.
void see_who_uses(direct_program& made) {
  const std::size_t ranks = made.bodies.size();
  made.used.resize(ranks);
  std::vector<bool> written(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    for (const direct_program::pass& p : made.bodies[r].passes) {
      const auto operands = made.operands_of(p);
      for (std::size_t k = 0; k < operands.size(); ++k) {
        const cell_range& at = operands[k];
        const auto owner = static_cast<std::size_t>(at.owner);
        const bool reads = at.buffer == buffer_kind::input, writes = at.buffer == buffer_kind::output && k >= p.inputs;
        if (reads && owner != r) made.used[owner].reads_input = true;
        if (writes) made.used[owner].outputs.push_back(p.operands + static_cast<std::uint32_t>(k));
        if (writes && owner != r) written[owner] = true;
      }
    }
  for (std::size_t r = 0; r < made.to_own.size(); ++r)
    for (const auto& c : made.to_own[r]) {
      const rank_t source = made.operands[c.source].owner;
      if (source == static_cast<rank_t>(r)) continue;
      direct_program::use_by_others& used = made.used[static_cast<std::size_t>(source)];
      used.reads_input = true;
      if (used.inputs.empty() || !(made.operands[used.inputs.back()] == made.operands[c.source]))
        used.inputs.push_back(c.source);
      written[r] = true;  // by the performer of its source's body
    }
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<std::uint32_t>& inputs = made.used[r].inputs;
    const block_run own = input_blocks(made.what, static_cast<int>(ranks), made.root, static_cast<rank_t>(r));
    std::int64_t left = own.count * made.parts;
    for (const std::uint32_t operand : inputs) left -= made.operands[operand].count;
    if (left <= 0) inputs.clear();  // others read all of it, or some of it several times: it is brought whole
  }
  for (std::size_t r = 0; r < ranks; ++r)
    if (!written[r]) made.used[r].outputs.clear();
}

/// Adds up for direct_program::passing.
class passing_cells {
public:
  void passes(const cell_range& at) {
    ++times_;
    cells_ += at.count;
  }
  /// The other rank has passed all that it does.
  void end_of_rank() {
    if (times_ > before_) ++found_.others;
    before_ = times_;
  }
  void owner(std::int64_t cells) {
    ++found_.owners;
    owned_ += cells;
  }
  std::int64_t owned() const { return owned_; }
  direct_program::passing result() const {
    direct_program::passing all = found_;
    if (times_ == 0 || owned_ == 0) return all;
    all.times = static_cast<double>(cells_) / static_cast<double>(owned_);
    all.part = all.times * all.owners / static_cast<double>(times_);
    return all;
  }

private:
  direct_program::passing found_;
  std::int64_t times_ = 0, before_ = 0, cells_ = 0, owned_ = 0;
};

/// See direct_program::read_by_others. @pre the same of `used`
void see_what_passes(direct_program& made) {
  const auto ranks = static_cast<rank_t>(made.bodies.size());
  passing_cells read, written;
  std::int64_t copied = 0;  // by to_own, also of ranks' own
  for (rank_t r = 0; r < ranks; ++r) {
    const auto at = static_cast<std::size_t>(r);
    const auto reads = [&](const cell_range& source) {
      if (source.buffer == buffer_kind::input && source.owner != r) read.passes(source);
    };
    if (!made.to_own.empty())
      for (const auto& c : made.to_own[at]) {
        reads(made.operands[c.source]);
        copied += made.operands[c.source].count;
      }
    for (const direct_program::pass& p : made.bodies[at].passes) {
      const auto operands = made.operands_of(p);
      made.most_inputs = std::max<std::size_t>(made.most_inputs, p.inputs);
      if (made.to_own.empty()) std::ranges::for_each(operands.first(p.inputs), reads);
      for (const cell_range& to : operands.subspan(p.inputs))
        if (to.buffer == buffer_kind::output && to.owner != r) written.passes(to);
    }
    read.end_of_rank();
    written.end_of_rank();
    if (!made.used[at].outputs.empty())
      written.owner(std::int64_t{output_blocks(made.what, ranks, made.root, r).count} * made.parts);
    if (made.used[at].reads_input)
      read.owner(std::int64_t{input_blocks(made.what, ranks, made.root, r).count} * made.parts);
  }
  made.read_by_others = read.result();
  made.written_by_others = written.result();
  if (copied > 0) made.staged_share = static_cast<double>(read.owned()) / static_cast<double>(copied);
}

/// See direct_program::by_source.
bool are_by_source(const direct_program& made) {
  if (made.copies.empty() || traits_of(made.what).root != root_role::sink) return false;
  for (std::size_t r = 0; r < made.bodies.size(); ++r) {
    const auto& passes = made.bodies[r].passes;
    const bool root = static_cast<rank_t>(r) == made.root;
    if (passes.size() > 1 || (passes.empty() && !root)) return false;
    if (!passes.empty() && made.operands_of(passes.front()).front().owner != static_cast<rank_t>(r)) return false;
  }
  return true;
}

}  // namespace

// -- direct_compiler --------------------------------------------------------------------------------------------------

class direct_compiler::hidden {
public:
  hidden(const direct_setting& setting, int ranks, std::size_t steps)
      : setting_(setting),
        ranks_(ranks),
        most_operands_(most_operands_of_step * steps),
        maker_(made_, setting_, ranks) {
    if (ranks < 2) why_not_ = "a rank alone needs nobody's buffers";
    made_.what = setting.what;
    made_.root = setting.root;
    made_.bodies.reserve(static_cast<std::size_t>(ranks));
  }

  bool add(const program& code) {
    if (!why_not_.empty()) return false;
    why_not_ = why_not(code);
    if (!why_not_.empty()) return false;
    const std::size_t rank = made_.bodies.size();
    if (rank == 0) made_.sums = code.sums, made_.parts = code.parts;
    const auto lane = only_lane(code);
    const sections s = sections_of(lane);
    const std::span<const instruction> before = s.empty() ? lane : lane.first(s.begin);
    if (s.empty()) tokens_of_idle_.push_back({static_cast<rank_t>(rank), {before.begin(), before.end()}});
    else first_ = std::min(first_, s.begin), count_tokens(static_cast<rank_t>(rank), before);
    made_.bodies.push_back(maker_.make(code, static_cast<rank_t>(rank)));
    // Most ranks are alike.
    if (rank == 0)
      made_.operands.reserve(std::min(most_operands_, made_.operands.size() * static_cast<std::size_t>(ranks_)));
    if (!made_.bodies.back().passes.empty()) made_.at_work.push_back(static_cast<rank_t>(rank));
    if (rank + 1 == static_cast<std::size_t>(ranks_)) why_not_ = why_not_in_order();
    return why_not_.empty();
  }
  const std::string& why_not() const { return why_not_; }

  direct_program finish() {
    if (!why_not_.empty()) throw error(errc::unsupported, "not for the direct port: " + why_not_);
    static std::atomic<std::uint64_t> programs{0};
    made_.identity = programs.fetch_add(1, std::memory_order_relaxed) + 1;
    if (made_.at_work.empty()) made_.at_work.push_back(0);
    if (made_.operands.capacity() > 2 * made_.operands.size())
      made_.operands.shrink_to_fit();  // most steps were tokens
    made_.copies = copies_by_target(made_);
    made_.by_source = are_by_source(made_);
    if (setting_.between_processes) {
      divide_by_target(made_, setting_);
      see_who_uses(made_);
      see_what_passes(made_);
    }
    return std::move(made_);
  }

private:
  /// Of a step that is no fold.
  static constexpr std::size_t most_operands_of_step = 3;

  std::string why_not(const program& code) const {
    const std::string rank = "rank " + std::to_string(made_.bodies.size());
    if (code.channels != 1) return "it is cut into channels";
    const auto lane = only_lane(code);
    if (lane.empty()) return rank + " has not exactly one lane";
    const std::string why = wrong_step(code, lane, sections_of(lane));
    return why.empty() ? why : rank + ": " + why;
  }
  void count_tokens(rank_t rank, std::span<const instruction> before) {
    for (const instruction& i : before) {
      if (i.kind == step_kind::send) ++sent_[{rank, i.to}];
      if (i.kind == step_kind::recv) ++received_[{i.from, rank}];
    }
  }
  std::string why_not_in_order() {
    // A rank without local steps only passes tokens on; any place that keeps the rule will do for it, and ranks are mostly alike.
    for (const auto& [rank, tokens] : tokens_of_idle_)
      count_tokens(rank, std::span(tokens).first(std::min(first_, tokens.size())));
    for (const auto& [pair, count] : received_) {
      const auto at = sent_.find(pair);
      if (at == sent_.end() || at->second < count)
        return "rank " + std::to_string(pair.second) + " begins its local steps after some of rank " +
               std::to_string(pair.first);
    }
    return {};
  }

  direct_setting setting_;
  int ranks_;
  std::size_t most_operands_;  ///< of all ranks; 0: not known
  direct_program made_;
  body_maker maker_;
  std::string why_not_;
  std::size_t first_ = std::numeric_limits<std::size_t>::max();  ///< place of the first local step of any rank
  token_counts sent_, received_;
  std::vector<std::pair<rank_t, std::vector<instruction>>> tokens_of_idle_;  ///< of ranks without local steps
};

direct_compiler::direct_compiler(const direct_setting& setting, int ranks, std::size_t steps)
    : hidden_(std::make_unique<hidden>(setting, ranks, steps)) {}
direct_compiler::~direct_compiler() = default;
direct_compiler::direct_compiler(direct_compiler&&) noexcept = default;
bool direct_compiler::add(const program& of_next_rank) { return hidden_->add(of_next_rank); }
const std::string& direct_compiler::why_not() const { return hidden_->why_not(); }
direct_program direct_compiler::finish() { return hidden_->finish(); }

namespace {
direct_compiler compiled(program_list all, const direct_setting& setting) {
  direct_compiler made{setting, static_cast<int>(all.size())};
  for (const auto& code : all)
    if (!made.add(*code)) break;
  return made;
}
}  // namespace

std::string why_not_direct(program_list all) { return compiled(all, {}).why_not(); }

direct_program compile_direct(program_list all, const direct_setting& setting) {
  return compiled(all, setting).finish();
}

}  // namespace troupe
