// SPDX-License-Identifier: Apache-2.0
// What a study of several jobs prints, its CSV and its trace. Its JSON is in study_report.cpp with the rest.
#include <algorithm>
#include <map>
#include <vector>

#include "engine/flow/trace_events.hpp"
#include "engine/tools/study/study.hpp"
#include "engine/tools/study/text.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

using study_text::csv_field;
using study_text::format;
using study_text::time_text;

constexpr std::size_t most_shown = 8;

std::string call_text(const study_call_row& c) {
  std::string text = name(c.what.kind);
  if (!c.what.kind.is_barrier()) text += " " + bytes_text(c.bytes);
  text += ": " + c.choreography + ", " + c.protocol;
  if (c.cut.channels > 1) text += ", " + plural(static_cast<std::size_t>(c.cut.channels), "channel");
  if (c.cut.slices > 1) text += ", " + slices_text(c.cut);
  return text;
}

/// One line; the columns are those of print_jobs().
std::string row_text(const std::string& who, std::size_t rounds, const study_spread& together,
                     const study_spread& alone, const std::string& end, const std::string& rest) {
  const double slow_down = alone.median > 0 ? together.median / alone.median : 1;
  return format("%-20s  %6zu  %9s  %9s  %9s  %9s  %8.2f  %9s  ", who.c_str(), rounds, time_text(together.least).c_str(),
                time_text(together.median).c_str(), time_text(together.most).c_str(), time_text(alone.median).c_str(),
                slow_down, end.c_str()) +
         rest + '\n';
}

void print_shared(std::ostream& to, const study_result& r) {
  if (r.shared.empty()) {
    to << "#\n# The jobs share no element of the machine.\n";
    return;
  }
  to << "#\n# Elements that several jobs use, the longest queues first; us that each job alone occupies them:\n";
  for (std::size_t i = 0; i < std::min(most_shown, r.shared.size()); ++i) {
    const study_shared_element& s = r.shared[i];
    const element_use& use = r.together.use[s.element];
    const int units = r.on->class_of(static_cast<element_index>(s.element)).units;
    const double busy =
        r.together.end_ps == 0 ? 0 : static_cast<double>(use.busy_ps) / units / static_cast<double>(r.together.end_ps);
    to << format("# %-24s %5.1f%% busy, messages waited %.2f us:", r.on->elements[s.element].name.c_str(), 100 * busy,
                 static_cast<double>(use.queued_ps) / 1e6);
    std::size_t named = 0;
    for (std::size_t j = 0; j < s.busy_ps.size(); ++j) {
      if (s.busy_ps[j] == 0) continue;
      if (++named > 4) continue;
      to << (named == 1 ? " " : ", ") << r.jobs[j].name << ' ' << time_text(static_cast<double>(s.busy_ps[j]) / 1e6);
    }
    to << (named > 4 ? " and " + std::to_string(named - 4) + " more" : "") << '\n';
  }
  if (r.shared.size() > most_shown) to << "# and " << r.shared.size() - most_shown << " more\n";
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    // The longest run with one step; two ranks make none.
    std::size_t end = i + 1;
    const int step = end < ranks.size() ? ranks[end] - ranks[i] : 0;
    while (step > 0 && end < ranks.size() && ranks[end] - ranks[end - 1] == step) ++end;
    if (end - i < 3) end = i + 1;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (end - i > 1) text += "-" + std::to_string(ranks[end - 1]) + (step > 1 ? ":" + std::to_string(step) : "");
    i = end;
  }
  return text;
}

void print_job_rows(std::ostream& to, const study_result& r, const std::string& value) {
  for (const study_job_row& j : r.jobs)
    to << (value.empty() ? "  " : format("  %-18s", value.c_str()))
       << row_text(j.name, j.times.rounds.size(), j.together, j.alone, time_text(j.end_us()),
                   "ranks " + ranks_text(j.ranks));
}

void print_jobs(std::ostream& to, const study_result& r) {
  to << "#\n"
     << format("# %-20s  %6s  %9s  %9s  %9s  %9s  %8s  %9s  %s\n", "job", "rounds", "least", "median", "most", "alone",
               "slow-down", "end", "where; how")
     << format("# %-20s  %6s  %9s  %9s  %9s  %9s  %8s  %9s\n", "", "", "(us)", "(us)", "(us)", "(us)", "", "(us)");
  for (const study_job_row& j : r.jobs) {
    const bool one = j.calls.size() == 1;
    to << "  "
       << row_text(j.name, j.times.rounds.size(), j.together, j.alone, time_text(j.end_us()),
                   "ranks " + ranks_text(j.ranks) + (one ? "; " + call_text(j.calls.front()) : ""));
    if (one) continue;
    for (const study_call_row& c : j.calls)
      to << "  " << row_text("  " + name(c.what.kind), j.times.rounds.size(), c.together, c.alone, "", call_text(c));
  }
  print_shared(to, r);
}

std::string jobs_csv_heading() {
  return "key,value,job,call,collective,bytes,choreography,protocol,preset,ranks,rounds,least_us,median_us,most_us,"
         "alone_us,slow_down,end_us,channels,slices,slices_per_step,refused\n";
}

std::string jobs_csv(const study_result& r, const std::string& key, const std::string& value) {
  std::string text;
  const auto add = [&](const study_job_row& j, const std::string& call, const std::string& what,
                       const study_spread& together, const study_spread& alone, const cutting* cut) {
    text += csv_field(key) + "," + csv_field(value) + "," + csv_field(j.name) + "," + call + "," + what + "," +
            csv_field(r.scenario.preset_name) +
            format(",%zu,%zu,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,", j.ranks.size(), j.times.rounds.size(), together.least,
                   together.median, together.most, alone.median, alone.median > 0 ? together.median / alone.median : 1,
                   j.end_us()) +
            (cut != nullptr ? format("%d,%d,%d,\n", cut->channels, cut->slices, cut->slices_per_step) : ",,,\n");
  };
  for (const study_job_row& j : r.jobs) {
    add(j, "", ",,,", j.together, j.alone, nullptr);
    for (std::size_t c = 0; c < j.calls.size(); ++c) {
      const study_call_row& call = j.calls[c];
      add(j, std::to_string(c),
          name(call.what.kind) + "," + std::to_string(call.bytes) + "," + csv_field(call.choreography) + "," +
              call.protocol,
          call.together, call.alone, &call.cut);
    }
  }
  return text;
}

namespace {

/// A track a job, with its rounds and their calls; then those of the elements that jobs share, and whose messages they serve.
class job_trace_writer {
public:
  explicit job_trace_writer(const study_result& r) : result_(r) {}

  std::string write() {
    events_.name_process(job_process, "jobs");
    for (const study_job_row& job : result_.jobs) add_job(job);
    calls_.write(events_, job_process, "calls under way");
    if (result_.occupied) add_elements(*result_.occupied);
    return events_.finish();
  }

private:
  static constexpr std::int64_t job_process = 1, element_process = 2;

  void add_job(const study_job_row& job) {
    trace_row rounds, calls;
    for (std::size_t r = 0; r < job.times.rounds.size(); ++r) {
      const virtual_stretch& round = job.times.rounds[r];
      rounds.add("round " + std::to_string(r), "round", round.begin, round.end, "");
      for (std::size_t c = 0; c < job.times.calls[r].size(); ++c) {
        const virtual_stretch& call = job.times.calls[r][c];
        calls.add(name(job.calls[c].what.kind), "call", call.begin, call.end,
                  "\"bytes\":" + std::to_string(job.calls[c].bytes));
        calls_.add(call.begin, call.end);
      }
    }
    next_ = rounds.write(events_, job_process, next_, job.name);
    next_ = calls.write(events_, job_process, next_, job.name + ": calls");
  }

  void add_elements(const element_recording& did) {
    events_.name_process(element_process, "shared elements");
    std::map<std::size_t, trace_row> rows;
    std::map<class_id, trace_curve> of_class;
    std::vector<trace_curve> of_job(result_.jobs.size());
    for (const element_recording::stretch& s : did.stretches) {
      const std::string whose = s.job < 0 ? "own work" : result_.jobs[static_cast<std::size_t>(s.job)].name;
      rows[static_cast<std::size_t>(s.element)].add(whose, "occupy", s.begin, s.end,
                                                    "\"from\":" + std::to_string(s.from) + ",\"to\":" +
                                                        std::to_string(s.to) + ",\"bytes\":" + std::to_string(s.bytes));
      of_class[result_.on->elements[static_cast<std::size_t>(s.element)].of].add(s.begin, s.end);
      if (s.job >= 0) of_job[static_cast<std::size_t>(s.job)].add(s.begin, s.end);
    }
    for (const study_shared_element& s : result_.shared)
      next_ = rows[s.element].write(events_, element_process, next_, result_.on->elements[s.element].name);
    for (const auto& [of, curve] : of_class)
      curve.write(events_, element_process, "messages served: " + result_.on->classes[of].name);
    for (std::size_t i = 0; i < of_job.size(); ++i)
      of_job[i].write(events_, element_process, "messages served of " + result_.jobs[i].name);
  }

  const study_result& result_;
  std::int64_t next_ = 0;  ///< track
  trace_curve calls_;
  trace_events events_;
};

}  // namespace

std::string job_trace(const study_result& r) { return job_trace_writer{r}.write(); }

}  // namespace troupe
