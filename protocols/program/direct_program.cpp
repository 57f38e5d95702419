#include "protocols/program/direct_program.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "memory/error.hpp"

namespace troupe {

namespace {

/// Read and written by a unit: long beside what claiming it costs, short beside the whole.
constexpr std::size_t unit_bytes = 128 * 1024;
constexpr std::size_t most_units = 64;
/// All regions together; beyond, plain stores would read from memory what they overwrite, and nothing is found in a cache later.
/// Measured beside bench/limits, which tries both, with a last-level cache of 32 MiB: plain stores won at 32 MiB, others at 64.
constexpr std::size_t stream_bytes = std::size_t{48} << 20;

bool is_token(const instruction& i) {
  return i.kind == step_kind::wait || ((i.kind == step_kind::send || i.kind == step_kind::recv) && i.elements == 0);
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
};

sections sections_of(std::span<const instruction> lane) {
  const auto local = [](const instruction& i) { return !is_token(i); };
  const auto first = std::find_if(lane.begin(), lane.end(), local);
  const auto last = std::find_if(lane.rbegin(), lane.rend(), local);
  if (first == lane.end()) return {lane.size(), lane.size()};
  return {static_cast<std::size_t>(first - lane.begin()), lane.size() - static_cast<std::size_t>(last - lane.rbegin())};
}

std::span<const location> operands_of(const program& code, const instruction& i) {
  return std::span(code.operands).subspan(i.operands, std::size_t{i.inputs} + i.outputs);
}

bool reachable(const location& at) {
  return at.buffer == buffer_kind::input || at.buffer == buffer_kind::output || at.buffer == buffer_kind::scratch;
}

std::string wrong_step(const program& code, std::span<const instruction> lane, sections s) {
  for (std::size_t i = s.begin; i < s.end; ++i) {
    if (!is_local(lane[i])) return "a message stands between its local steps";
    const auto many = operands_of(code, lane[i]);
    const bool fine = lane[i].inputs > 0 ? std::all_of(many.begin(), many.end(), reachable)
                                         : reachable(lane[i].source) && reachable(lane[i].target);
    if (!fine) return "a step uses L0 or L2";
  }
  return {};
}

/// Tokens sent and received before the local steps, by (source, destination).
using token_counts = std::map<std::pair<rank_t, rank_t>, int>;

// -- cutting ----------------------------------------------------------------------------------------------------------

/// Memory that two locations may share has one name.
location canonical(location at, const direct_setting& setting, int ranks) {
  if (!setting.in_place || (at.buffer != buffer_kind::input && at.buffer != buffer_kind::output)) return at;
  // The owner's block of what all ranks' blocks make together, where the owner holds that one only.
  const collective_traits& traits = traits_of(setting.what);
  const std::int64_t all = traits.blocks(ranks);
  const int in = input_blocks(setting.what, ranks, 0, at.owner).count,
            out = output_blocks(setting.what, ranks, 0, at.owner).count;
  const bool one_in = in == 1 && all > 1 && !traits.reduces, one_out = out == 1 && all > 1;
  if (at.buffer == (one_in ? buffer_kind::input : one_out ? buffer_kind::output : buffer_kind::none))
    at.offset += static_cast<std::size_t>(at.owner) * setting.block_bytes;
  at.buffer = buffer_kind::output;
  return at;
}

class body_maker {
public:
  body_maker(direct_program& made, const direct_setting& setting, int ranks)
      : made_(made), setting_(setting), ranks_(ranks) {}

  direct_program::body make(const program& code, rank_t rank) {
    const auto lane = only_lane(code);
    const sections s = sections_of(lane);
    direct_program::body body;
    body.scratch_bytes = code.scratch_bytes;
    for (std::size_t i = s.begin; i < s.end; ++i)
      if (is_local(lane[i]) && lane[i].elements > 0) body.passes.push_back(make_pass(code, lane[i], rank));
    std::size_t bytes = 0, longest = 0;
    for (const auto& p : body.passes) {
      bytes += p.elements * made_.element_size * (std::size_t{p.inputs} + p.outputs);
      longest = std::max(longest, p.elements);
      made_.most_operands = std::max(made_.most_operands, std::size_t{p.inputs} + p.outputs);
    }
    made_.bytes += bytes;
    const std::size_t wanted = std::clamp<std::size_t>(bytes / unit_bytes, 1, most_units);
    if (!body.passes.empty()) body.units = static_cast<std::uint32_t>(can_cut(body) ? std::min(wanted, longest) : 1);
    return body;
  }

private:
  direct_program::pass make_pass(const program& code, const instruction& i, rank_t rank) {
    direct_program::pass made;
    made.operands = static_cast<std::uint32_t>(made_.operands.size());
    made.elements = i.elements;
    made.completes = i.completes;
    const auto add = [&](location at) {
      if (at.owner == self) at.owner = rank;
      made_.operands.push_back(at);
    };
    if (i.inputs > 0) {
      made.inputs = i.inputs;
      made.outputs = i.outputs;
      for (const location& at : operands_of(code, i)) add(at);
      return made;
    }
    made.inputs = i.kind == step_kind::reduce ? 2 : 1;
    made.outputs = 1;
    if (made.inputs == 2) add(i.swapped ? i.source : i.target), add(i.swapped ? i.target : i.source);
    else add(i.source);
    add(i.target);
    return made;
  }

  std::span<const location> all_of(const direct_program::pass& p) const {
    return std::span(made_.operands).subspan(p.operands, std::size_t{p.inputs} + p.outputs);
  }

  /// What is written by one operand and touched by another, of the same pass or not, are the same elements or none.
  bool can_cut(const direct_program::body& body) const {
    for (const auto& p : body.passes)
      for (const location& to : all_of(p).subspan(p.inputs))
        for (const auto& q : body.passes)
          for (const location& other : all_of(q))
            if (conflict(to, p.elements, other, q.elements)) return false;
    return true;
  }
  bool conflict(const location& x, std::size_t x_elements, const location& y, std::size_t y_elements) const {
    const location a = canonical(x, setting_, ranks_), b = canonical(y, setting_, ranks_);
    if (a.buffer != b.buffer || a.owner != b.owner) return false;
    if (a.offset == b.offset && x_elements == y_elements) return false;
    return a.offset < b.offset + y_elements * made_.element_size &&
           b.offset < a.offset + x_elements * made_.element_size;
  }

  direct_program& made_;
  const direct_setting& setting_;
  int ranks_;
};

}  // namespace

std::string why_not_direct(program_list all) {
  if (all.size() < 2) return "a rank alone needs nobody's buffers";
  token_counts sent, received;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const program& code = *all[r];
    if (code.channels != 1) return "it is cut into channels";
    const auto lane = only_lane(code);
    if (lane.empty()) return "rank " + std::to_string(r) + " has not exactly one lane";
    const sections s = sections_of(lane);
    if (const std::string why = wrong_step(code, lane, s); !why.empty())
      return "rank " + std::to_string(r) + ": " + why;
    for (const instruction& i : lane.first(s.begin)) {
      if (i.kind == step_kind::send) ++sent[{static_cast<rank_t>(r), i.to}];
      if (i.kind == step_kind::recv) ++received[{i.from, static_cast<rank_t>(r)}];
    }
  }
  for (const auto& [pair, count] : received) {
    const auto at = sent.find(pair);
    if (at == sent.end() || at->second < count)
      return "rank " + std::to_string(pair.second) + " begins its local steps after some of rank " +
             std::to_string(pair.first);
  }
  return {};
}

direct_program compile_direct(program_list all, const direct_setting& setting) {
  if (const std::string why = why_not_direct(all); !why.empty())
    throw error(errc::unsupported, "not for the direct port: " + why);
  direct_program made;
  made.element_size = all.front()->element_size;
  made.sums = all.front()->sums;
  body_maker maker{made, setting, static_cast<int>(all.size())};
  for (std::size_t r = 0; r < all.size(); ++r) made.bodies.push_back(maker.make(*all[r], static_cast<rank_t>(r)));
  for (const auto& b : made.bodies) made.units += b.units;
  if (made.units == 0) made.units = made.bodies.front().units = 1;  // somebody must be the last
  made.stores = made.bytes > stream_bytes ? store_hint::streamed : store_hint::cached;
  return made;
}

}  // namespace troupe
