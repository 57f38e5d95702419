// SPDX-License-Identifier: Apache-2.0
// From the last completion back to the begin: what each step on the way was waiting for, merged into sentences.
#include <algorithm>
#include <cstdlib>

#include "engine/tools/study/study.hpp"

namespace troupe {

namespace {

std::string microseconds(std::int64_t ps) {
  const double us = static_cast<double>(ps) / 1e6;
  char text[32];
  std::snprintf(text, sizeof text, us >= 100 ? "%.0f µs" : us >= 1 ? "%.1f µs" : "%.3f µs", us);
  return text;
}

class path_writer {
public:
  path_writer(const study_result& r, const study_row& row) : result_(r), row_(row), recording_(*row.recording) {}

  std::vector<critical_stretch> write() {
    std::vector<std::int32_t> chain;
    for (std::int32_t at = recording_.last; at >= 0; at = recording_.causes[static_cast<std::size_t>(at)].previous)
      chain.push_back(at);
    std::reverse(chain.begin(), chain.end());
    std::int64_t before = 0;
    for (const std::int32_t index : chain) {
      const virtual_cause& c = recording_.causes[static_cast<std::size_t>(index)];
      if (c.begin > before) waited(c, before);
      if (c.end > c.begin) add({c.begin, c.end, c.rank, work, "rank " + std::to_string(c.rank) + " worked"}, c.rank);
      before = std::max(before, c.end);
    }
    const std::int64_t end = row_.outcome.end_ps;
    if (end > before) add({before, end, -1, other, "the last rank finished"}, -1);
    for (stretch& s : all_) finish(s);
    std::vector<critical_stretch> made;
    for (stretch& s : all_) made.push_back(std::move(s.what));
    return made;
  }

private:
  using enum path_part;
  struct stretch {
    critical_stretch what;
    std::int32_t key;  ///< whom it is about: neighbours of one kind and key are merged
    int count = 1;
    std::vector<std::vector<rank_t>>
        ways{};  ///< travel: another one begins where a sender is not the receiver before it
  };

  const std::string& element(std::int32_t index) const {
    return result_.on->elements[static_cast<std::size_t>(index)].name;
  }

  void waited(const virtual_cause& c, std::int64_t since) {
    using reason = virtual_cause::reason;
    const std::string rank = "rank " + std::to_string(c.rank);
    switch (c.why) {
      case reason::arrival: {
        // Every queue that it waited in, and the way between them.
        std::int64_t at = since;
        for (std::int32_t i = 0; i < c.queues; ++i) {
          const virtual_queue& q = recording_.queues[static_cast<std::size_t>(c.first_queue + i)];
          const std::int64_t begin = std::clamp(q.begin, at, c.begin), end = std::clamp(q.end, begin, c.begin);
          if (end == begin) continue;
          travelled(c, at, begin);
          add({begin, end, result_.on->ranks + q.element, queue, rank + " waited {time} for " + element(q.element)},
              q.element);
          at = end;
        }
        travelled(c, at, c.begin);
        return;
      }
      case reason::credit: return add({since, c.begin, c.rank, credit, rank + " waited {time} for a credit"}, c.rank);
      case reason::sync: return add({since, c.begin, c.rank, other, "all ranks met at a barrier, {time}"}, -2);
      case reason::start:
        return add({since, c.begin, c.rank, other, rank + " began {time} late or was being launched"}, -3);
      default: return add({since, c.begin, c.rank, other, rank + " waited {time} for its own other lane"}, c.rank);
    }
  }

  void travelled(const virtual_cause& c, std::int64_t begin, std::int64_t end) {
    if (end <= begin) return;
    add({begin, end, c.rank, travel, {}}, 0);
    stretch& s = all_.back();
    if (s.ways.empty() || s.ways.back().back() != c.from) s.ways.push_back({c.from});
    s.ways.back().push_back(c.rank);
  }

  /// How far each rank is from the one before it, round all ranks, where that is always as far: from −n/2 to n/2. 0: it is not.
  int stride_of(const std::vector<rank_t>& way) const {
    const int n = result_.on->ranks;
    const auto far = [&](std::size_t i) { return ((way[i] - way[i - 1]) % n + n) % n; };
    for (std::size_t i = 2; i < way.size(); ++i)
      if (far(i) != far(1)) return 0;
    return far(1) <= n / 2 ? far(1) : far(1) - n;
  }

  /// A long way whose hops are alike names them all in few words. Otherwise of more than eleven ranks the first nine and the last two.
  struct hops_words {
    std::string text;
    bool complete = true;
  };
  hops_words hops_text(const std::vector<std::vector<rank_t>>& ways) const {
    constexpr std::size_t most = 11, first = 9, last = 2;
    std::size_t total = 0, at = 0;
    for (const auto& way : ways) total += way.size();
    hops_words made;
    bool gap = false;
    for (const std::vector<rank_t>& way : ways) {
      const int stride = total > most && way.size() > 5 ? stride_of(way) : 0;
      for (std::size_t i = 0; i < way.size(); ++i, ++at) {
        const bool skipped =
            stride != 0 ? i > 2 && i + 1 < way.size() : total > most && at >= first && at < total - last;
        if (skipped && !gap) made.text += " → …";
        if (!skipped) made.text += (at == 0 ? "" : i == 0 ? ", " : " → ") + std::to_string(way[i]);
        made.complete = made.complete && (!skipped || stride != 0);
        gap = skipped;
      }
      if (stride != 0) made.text += ", each " + std::to_string(std::abs(stride)) + (stride > 0 ? " further" : " back");
    }
    return made;
  }

  void add(critical_stretch what, std::int32_t key) {
    if (!all_.empty() && all_.back().what.spent == what.spent && all_.back().key == key) {
      stretch& s = all_.back();
      s.what.end_ps = what.end_ps;
      s.what.text = std::move(what.text);
      ++s.count;
      return;
    }
    all_.push_back({std::move(what), key});
  }

  void finish(stretch& s) const {
    const std::string time = microseconds(s.what.end_ps - s.what.begin_ps);
    if (s.what.spent == travel) {
      const hops_words hops = hops_text(s.ways);
      s.what.text = s.count == 1 ? "a chunk travelled " + time + ": rank " + hops.text
                                 : std::to_string(s.count) + " chunks travelled " + time +
                                       ", one after the other: ranks " + hops.text;
      if (!hops.complete) s.what.hops = std::move(s.ways);
      return;
    }
    const auto place = s.what.text.find("{time}");
    if (place != std::string::npos) s.what.text.replace(place, 6, time);
    else s.what.text += " " + time;
    if (s.count > 1) s.what.text += " (" + std::to_string(s.count) + " in a row)";
  }

  const study_result& result_;
  const study_row& row_;
  const virtual_recording& recording_;
  std::vector<stretch> all_;
};

}  // namespace

std::string_view name(path_part part) noexcept {
  constexpr std::string_view names[] = {"work", "queue", "travel", "credit", "other"};
  return names[static_cast<std::size_t>(part)];
}

std::vector<critical_stretch> critical_path(const study_result& r, const study_row& row) {
  // Where ranks were lost it ended because of that.
  if (!row.recording || !row.outcome.ends.empty()) return {};
  return path_writer{r, row}.write();
}

std::vector<critical_stretch> critical_path(const study_result& r) {
  const study_row* row = r.shown_row();
  return row == nullptr ? std::vector<critical_stretch>{} : critical_path(r, *row);
}

}  // namespace troupe
