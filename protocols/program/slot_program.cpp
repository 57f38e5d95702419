#include "protocols/program/slot_program.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "memory/error.hpp"

namespace troupe {

namespace {

/// Lines per (peer, direction), in the order of lanes.
class places {
public:
  explicit places(slot_format format) : format_(format) {}

  /// Index of the channel and the first line of the next message.
  std::pair<std::uint32_t, std::size_t> take(rank_t peer, bool outgoing, std::size_t bytes) {
    const auto [found, is_new] = index_.try_emplace({peer, outgoing}, static_cast<std::uint32_t>(lines_.size()));
    if (is_new) lines_.push_back({peer, outgoing, 0});
    place& at = lines_[found->second];
    return {found->second, std::exchange(at.lines, at.lines + slots::lines_of(format_, bytes))};
  }

  std::int32_t find(rank_t peer, bool outgoing) const {
    const auto found = index_.find({peer, outgoing});
    return found == index_.end() ? -1 : static_cast<std::int32_t>(found->second);
  }

  struct place {
    rank_t peer;
    bool outgoing;
    std::size_t lines;
  };
  const std::vector<place>& all() const { return lines_; }

private:
  slot_format format_;
  std::map<std::pair<rank_t, bool>, std::uint32_t> index_;
  std::vector<place> lines_;
};

std::size_t bytes_of(const program& code, const instruction& i) { return i.elements * code.element_size; }

std::uint32_t salt_of(slot_format format, std::size_t bytes) {
  const std::uint64_t mixed = (std::uint64_t{bytes} * 2 + (format == slot_format::ll128 ? 1 : 0)) * 0x9e3779b97f4a7c15U;
  return static_cast<std::uint32_t>(mixed >> 32);
}

bool overlap(const location& a, std::size_t a_bytes, const location& b, std::size_t b_bytes) {
  return a.buffer == b.buffer && a.owner == b.owner && a.offset < b.offset + b_bytes && b.offset < a.offset + a_bytes;
}

/// A step in the making.
struct draft {
  instruction what;
  slot_step made;
};

/// Of a program of one lane: a copy to scratch that nothing writes again and whose source is unchanged until its last reader is left
/// out, and readers read the source. In place calls copy their input so that peers may read it by reference; over slots they need not.
/// The input and the output of an in-place call are one memory, so a write to either counts.
class copy_forwarding {
public:
  copy_forwarding(std::vector<draft>& steps, std::span<const location> operands) : steps_(steps), operands_(operands) {}

  void run() {
    for (std::size_t i = 0; i < steps_.size(); ++i)
      if (can_forward(i)) forward(i);
  }

private:
  static bool user_buffer(buffer_kind b) { return b == buffer_kind::input || b == buffer_kind::output; }

  bool writes_to(const draft& s, const location& at, std::size_t bytes) const {
    if (!writes(s.what.kind) || s.made.bytes == 0) return false;
    const auto touches = [&](const location& target) {
      // How input and output lie to each other is known only when the call is made.
      if (user_buffer(at.buffer) && user_buffer(target.buffer) && at.buffer != target.buffer) return true;
      return overlap(target, s.made.bytes, at, bytes);
    };
    if (s.what.inputs == 0) return touches(s.what.target);
    const auto out = operands_.subspan(s.what.operands + s.what.inputs, s.what.outputs);
    return std::any_of(out.begin(), out.end(), touches);
  }
  bool reads_fold(const draft& s, const location& at, std::size_t bytes) const {
    if (s.what.inputs == 0) return false;
    const auto in = operands_.subspan(s.what.operands, s.what.inputs);
    return std::any_of(in.begin(), in.end(), [&](const location& l) { return overlap(l, s.made.bytes, at, bytes); });
  }

  bool can_forward(std::size_t i) const {
    const draft& copy = steps_[i];
    if (copy.what.kind != step_kind::copy || copy.what.inputs != 0 || copy.made.bytes == 0) return false;
    if (copy.what.target.buffer != buffer_kind::scratch) return false;
    const location from = copy.what.source, to = copy.what.target;
    bool changed = false;
    for (std::size_t k = 0; k < steps_.size(); ++k) {
      const draft& s = steps_[k];
      if (k == i) continue;
      if (writes_to(s, to, copy.made.bytes)) return false;
      const bool reader =
          reads_source(s.what.kind) && s.what.inputs == 0 && overlap(s.what.source, s.made.bytes, to, copy.made.bytes);
      if (reads_fold(s, to, copy.made.bytes)) return false;
      if (reader && (k < i || changed || !inside(s, to, copy.made.bytes))) return false;
      // A step that combines its source into the copy's memory element by element may do that; its later readers may not.
      if (reader && writes_to(s, from, copy.made.bytes) && !same_elements(s, to, from)) return false;
      if (k > i) changed = changed || writes_to(s, from, copy.made.bytes);
    }
    return true;
  }
  static bool inside(const draft& s, const location& to, std::size_t bytes) {
    return s.what.source.offset >= to.offset && s.what.source.offset + s.made.bytes <= to.offset + bytes;
  }
  /// Reads and writes the very same bytes once the source is forwarded: kernels allow that. Across the two user buffers only
  /// the call knows, so only the whole buffers' begin, where in-place calls have them equal or apart by whole blocks.
  static bool same_elements(const draft& s, const location& to, const location& from) {
    const std::size_t forwarded = s.what.source.offset - to.offset + from.offset;
    return s.what.target.buffer == from.buffer ? s.what.target.offset == forwarded
                                               : forwarded == 0 && s.what.target.offset == 0;
  }

  void forward(std::size_t i) {
    const draft copy = steps_[i];
    for (draft& s : steps_) {
      if (&s == &steps_[i] || !reads_source(s.what.kind) || s.what.inputs != 0) continue;
      if (!overlap(s.what.source, s.made.bytes, copy.what.target, copy.made.bytes)) continue;
      location moved = copy.what.source;
      moved.offset += s.what.source.offset - copy.what.target.offset;
      s.what.source = moved;
    }
    steps_[i].what.kind = step_kind::wait;
    steps_[i].made.bytes = 0;
    steps_[i].what.elements = 0;
  }

  std::vector<draft>& steps_;
  std::span<const location> operands_;
};

draft make_draft(const program& code, const instruction& i, slot_format format, places& where) {
  draft d;
  d.what = i;
  d.made.bytes = bytes_of(code, i);
  d.made.salt = salt_of(format, d.made.bytes);
  if (receives(i.kind)) {
    const auto [channel, line] = where.take(i.from, false, d.made.bytes);
    d.made.in_channel = channel;
    d.made.in_line = static_cast<std::uint32_t>(line);
  }
  if (sends(i.kind)) {
    const auto [channel, line] = where.take(i.to, true, d.made.bytes);
    d.made.out_channel = channel;
    d.made.out_line = static_cast<std::uint32_t>(line);
  }
  return d;
}

slot_step finish(const draft& d) {
  slot_step made = d.made;
  made.kind = d.what.kind;
  made.swapped = d.what.swapped;
  made.fold = d.what.inputs > 0;
  made.source = d.what.source.buffer;
  made.target = d.what.target.buffer;
  made.source_offset = d.what.source.offset;
  made.target_offset = d.what.target.offset;
  return made;
}

/// `after` names a lane by its number among all lanes of its channel; here by its place among those that are not empty, and by a
/// step of the whole list. −1 when it names nothing that is still to wait for.
void resolve_after(const program& code, slot_program& made, const std::vector<std::int32_t>& index_of_lane) {
  for (std::size_t l = 0; l < code.lanes.size(); ++l) {
    if (index_of_lane[l] < 0) continue;
    const auto range = made.lanes[static_cast<std::size_t>(index_of_lane[l])];
    const std::size_t first_of_channel = l - l % static_cast<std::size_t>(code.lanes_per_channel);
    for (std::uint32_t s = range.begin; s < range.end; ++s) {
      const instruction& i = made.instructions[s];
      if (i.after_lane < 0) continue;
      const std::int32_t lane = index_of_lane[first_of_channel + static_cast<std::size_t>(i.after_lane)];
      if (lane < 0) continue;
      made.steps[s].after_lane = lane;
      made.steps[s].after_index =
          made.lanes[static_cast<std::size_t>(lane)].begin + static_cast<std::uint32_t>(i.after_index);
    }
  }
}

void append_lane(slot_program& made, const std::vector<draft>& drafts, bool drop_waits) {
  const auto begin = static_cast<std::uint32_t>(made.steps.size());
  for (const draft& d : drafts) {
    if (drop_waits && d.what.kind == step_kind::wait) continue;
    made.steps.push_back(finish(d));
    made.instructions.push_back(d.what);
    made.largest = std::max(made.largest, d.made.bytes);
    made.reduces = made.reduces || reduces(d.what.kind) || d.what.inputs > 1;
  }
  const auto end = static_cast<std::uint32_t>(made.steps.size());
  if (end > begin) made.lanes.push_back({begin, end});
}

std::string too_large(const places::place& at, std::size_t most_lines) {
  return "messages " + std::string{at.outgoing ? "to" : "from"} + " rank " + std::to_string(at.peer) + " take " +
         std::to_string(at.lines) + " slot lines in one operation; a channel has " + std::to_string(most_lines);
}

}  // namespace

std::string why_no_slots(const program& code, slot_format format, std::size_t most_lines) {
  if (code.shares_memory) return "the program reads or writes other ranks' memory, which slots do not order";
  places where{format};
  for (const auto& lane : code.lanes)
    for (const instruction& i : lane) {
      if (i.kind == step_kind::sync) return "the score has a sync that was not lowered";
      make_draft(code, i, format, where);
    }
  const std::size_t limit = std::min(most_lines, slots::most_lines);
  for (const auto& at : where.all())
    if (at.lines > limit) return too_large(at, limit);
  return {};
}

slot_program compile_slots(const program& code, slot_format format, std::size_t most_lines) {
  if (const std::string why = why_no_slots(code, format, most_lines); !why.empty()) throw error(errc::unsupported, why);
  static std::atomic<std::uint64_t> programs{0};
  slot_program made;
  made.format = format;
  made.ranks = code.ranks;
  made.element_size = code.element_size;
  made.scratch_bytes = code.scratch_bytes;
  made.l0_bytes = code.l0_bytes;
  made.operands = code.operands;
  made.identity = programs.fetch_add(1, std::memory_order_relaxed) + 1;
  places where{format};
  std::vector<std::int32_t> index_of_lane(code.lanes.size(), -1);
  // One lane performs its steps in order anyhow, so it needs no waits.
  const bool alone = std::count_if(code.lanes.begin(), code.lanes.end(), [](const auto& l) { return !l.empty(); }) == 1;
  for (std::size_t l = 0; l < code.lanes.size(); ++l) {
    if (code.lanes[l].empty()) continue;
    index_of_lane[l] = static_cast<std::int32_t>(made.lanes.size());
    std::vector<draft> drafts;
    for (const instruction& i : code.lanes[l]) drafts.push_back(make_draft(code, i, format, where));
    if (alone) copy_forwarding{drafts, made.operands}.run();
    append_lane(made, drafts, alone);
  }
  if (!alone) resolve_after(code, made, index_of_lane);
  for (const auto& at : where.all())
    made.channels.push_back(
        {at.peer, at.outgoing, static_cast<std::uint32_t>(at.lines), at.outgoing ? where.find(at.peer, false) : -1});
  return made;
}

}  // namespace troupe
