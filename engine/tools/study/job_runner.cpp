// SPDX-License-Identifier: Apache-2.0
// A scenario with jobs → a result: where each job sits, how each of its calls is performed, then all of them together and each alone.
#include <algorithm>
#include <chrono>

#include "actors/virtual/offload_run.hpp"
#include "engine/tools/study/parts.hpp"
#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "protocols/offload/descriptor.hpp"

namespace troupe {

namespace {

/// @param key whose value it is about; empty: of the job as a whole
[[noreturn]] void refuse(const study_job& j, std::string_view key, const std::string& sentence) {
  throw error(errc::bad_config, j.at(key) + sentence);
}

/// Gives jobs the machine's ranks, in the order of the file.
class free_ranks {
public:
  explicit free_ranks(int ranks) : jobs_at_(static_cast<std::size_t>(ranks)) {}

  std::vector<int> take(const std::vector<study_job>& jobs, std::size_t index) {
    const study_job& j = jobs[index];
    std::vector<int> found = !j.on.empty() ? j.on : first_free(jobs, index);
    for (const int r : found) {
      if (r >= total())
        refuse(j, "on",
               "the machine has no rank " + std::to_string(r) + "; ranks are 0 to " + std::to_string(total() - 1));
      auto& here = jobs_at_[static_cast<std::size_t>(r)];
      for (const std::size_t other : here) {
        if (other == index) refuse(j, "on", "rank " + std::to_string(r) + " is named twice");
        if (!j.share || !jobs[other].share)
          refuse(j, j.on.empty() ? "" : "on",
                 "rank " + std::to_string(r) + " belongs to " + jobs[other].name +
                     " already; a place has one job, unless all that sit there say share = true");
      }
      here.push_back(index);
    }
    return found;
  }

private:
  int total() const { return static_cast<int>(jobs_at_.size()); }

  /// The first places that it may have; of places that are shared, those with the fewest jobs.
  std::vector<int> first_free(const std::vector<study_job>& jobs, std::size_t index) const {
    const study_job& j = jobs[index];
    std::vector<int> able;
    for (int r = 0; r < total(); ++r) {
      const auto& here = jobs_at_[static_cast<std::size_t>(r)];
      if (here.empty() ||
          (j.share && std::all_of(here.begin(), here.end(), [&](std::size_t o) { return jobs[o].share; })))
        able.push_back(r);
    }
    const int wanted = j.ranks > 0 ? j.ranks : total();
    if (static_cast<int>(able.size()) < wanted)
      refuse(j, j.ranks > 0 ? "ranks" : "",
             "it needs " + plural(static_cast<std::size_t>(wanted), "rank") + ", and " +
                 (able.empty() ? "none is" : std::to_string(able.size()) + (able.size() == 1 ? " is" : " are")) +
                 " free of the machine's " + std::to_string(total()) +
                 "; take fewer, a larger machine, or share = true on all that sit together");
    std::stable_sort(able.begin(), able.end(), [&](int a, int b) {
      return jobs_at_[static_cast<std::size_t>(a)].size() < jobs_at_[static_cast<std::size_t>(b)].size();
    });
    able.resize(static_cast<std::size_t>(wanted));
    std::sort(able.begin(), able.end());
    return able;
  }

  std::vector<std::vector<std::size_t>> jobs_at_;  ///< by rank
};

layout parsed_layout(const study_job& j) {
  try {
    return layout::parse(j.layout);
  } catch (const error& why) {
    std::string_view sentence = why.what();
    constexpr std::string_view said_already = "layout: ";
    if (sentence.starts_with(said_already)) sentence.remove_prefix(said_already.size());
    refuse(j, "layout", std::string{sentence});
  }
}

layout places_of(const study_job& j, const hardware& on, const std::vector<int>& ranks) {
  if (!j.layout.empty()) {
    layout own = parsed_layout(j);
    if (own.size() != static_cast<int>(ranks.size()))
      refuse(j, "layout",
             "\"" + j.layout + "\" has " + plural(static_cast<std::size_t>(own.size()), "rank") + ", the job " +
                 std::to_string(ranks.size()));
    return own;
  }
  return arrangement_of(on, ranks);
}

class job_run {
public:
  job_run(const study_scenario& s, const study_run_options& o)
      : scenario_(s), options_(o), machine_(study_machine_of(s)), on_(std::make_shared<const hardware>(machine_.on)) {
    refuse_losses(s, *on_, "[[study.job]] says nothing about what a job does then");
  }

  study_result run() {
    study_result result;
    result.scenario = scenario_;
    result.on = on_;
    place_all();
    part_studies parts{scenario_, machine_, options_.progress, options_.go_on, result.remarks};
    for (std::size_t i = 0; i < scenario_.jobs.size(); ++i) plan(i, parts, result);
    const auto begin = std::chrono::steady_clock::now();
    if (options_.progress) options_.progress("all jobs together");
    result.together = perform(jobs_);
    perform_alone(result);
    result.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    record(result);
    for (std::size_t i = 0; i < jobs_.size(); ++i) fill_times(result.jobs[i], result.together.jobs[i]);
    return result;
  }

private:
  void place_all() {
    free_ranks free{on_->ranks};
    if (constexpr std::size_t most = offload::most_jobs; on_->nics && scenario_.jobs.size() > most)
      refuse(scenario_.jobs[most], scenario_.jobs[most].places.contains("copies") ? "copies" : "",
             "where NICs perform there are at most " + std::to_string(most) +
                 " jobs, those by hosts among them; there are " + std::to_string(scenario_.jobs.size()));
    for (std::size_t i = 0; i < scenario_.jobs.size(); ++i) {
      const study_job& j = scenario_.jobs[i];
      virtual_job made;
      made.name = j.name;
      made.ranks = free.take(scenario_.jobs, i);
      made.places = places_of(j, *on_, made.ranks);
      made.start = j.start.count();
      made.compute = j.compute.count();
      made.period = j.period.count();
      made.rounds = j.rounds;
      if (j.by_nics && !on_->nics)
        refuse(j, "by", on_->name + " has no NICs that perform collectives; the preset tianhe_32 has");
      made.by_nics = j.by_nics.value_or(on_->nics && on_->nics->offload);
      if (j.root >= static_cast<rank_t>(made.ranks.size()))
        refuse(j, "root",
               "it has no rank " + std::to_string(j.root) + "; ranks are 0 to " +
                   std::to_string(made.ranks.size() - 1));
      jobs_.push_back(std::move(made));
    }
  }

  /// As the study of that collective alone would perform it. Copies of a job are performed alike.
  void plan(std::size_t index, part_studies& parts, study_result& result) {
    const study_job& j = scenario_.jobs[index];
    if (const std::string why = why_no_protocol(*on_, j.protocol); !why.empty()) {
      if (j.places.contains("protocol")) refuse(j, "protocol", why);
      throw error(errc::bad_config, said_at(scenario_, "study.protocol") + "study.protocol: " + why);
    }
    virtual_job& into = jobs_[index];
    study_job_row row;
    row.name = j.name;
    row.ranks = into.ranks;
    row.places = into.places;
    for (const study_call& c : j.calls) {
      study_scenario one = scenario_;
      one.jobs.clear();
      one.kind = c.kind;
      one.sizes = {c.kind.is_barrier() ? 0 : c.bytes};
      one.choreography = c.choreography.empty() ? j.choreography : c.choreography;
      one.protocol = j.protocol;
      one.type = j.type;
      one.reduction = j.reduction;
      one.root = has_root(c.kind.what) ? j.root : 0;
      try {
        const study_row best = parts.plan(
            one,
            {.ranks = into.ranks, .places = into.places, .by_nics = into.by_nics, .wished = c.choreography.empty()});
        row.calls.push_back(
            {c, best.bytes, best.choreography, best.protocol, best.cut, best.verified, best.bound_us(), {}, {}});
        into.calls.push_back(best.call);
        kept_.push_back(best.notes);
      } catch (const error& why) {
        const auto line = j.places.find("calls");
        throw error(why.code_value(), (line == j.places.end() ? j.place : line->second) + ": " + j.name + ": " +
                                          name(c.kind) + ": " + why.what());
      }
    }
    result.jobs.push_back(std::move(row));
  }

  /// Performs all once more, and remembers what those elements do that several jobs use. Runs are alike, so it is the same run.
  void record(study_result& result) const {
    if (options_.record == study_run_options::recorded::none || result.shared.empty()) return;
    if (on_->nics) {
      result.remarks.push_back(
          "not recorded: what elements that jobs share do over time, where NICs perform collectives");
      return;
    }
    const auto recording = std::make_shared<element_recording>();
    recording->of.resize(on_->elements.size());
    for (const study_shared_element& s : result.shared) recording->of[s.element] = true;
    if (options_.progress) options_.progress("all jobs together, to record what they share");
    perform(jobs_, recording.get());
    if (!recording->complete)
      result.remarks.push_back("not recorded to the end: what elements that jobs share do over time; " +
                               std::to_string(recording->most) + " messages and elements are kept");
    result.occupied = recording;
  }

  virtual_jobs_outcome perform(const std::vector<virtual_job>& jobs, element_recording* recording = nullptr) const {
    virtual_jobs_options o;
    o.record = recording;
    o.go_on = [](void* context, std::uint64_t) {
      const auto& asked = *static_cast<const study_run_options*>(context);
      return !asked.go_on || asked.go_on();
    };
    o.context = const_cast<study_run_options*>(&options_);
    return on_->nics ? perform_jobs_by_nics(jobs, *on_, o) : perform_jobs_virtually(jobs, *on_, o);
  }

  void perform_alone(study_result& result) const {
    std::vector<std::vector<element_use>> use;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (options_.progress) options_.progress(jobs_[i].name + " alone");
      virtual_jobs_outcome alone = perform({jobs_[i]});
      result.jobs[i].times_alone = std::move(alone.jobs.at(0));
      use.push_back(std::move(alone.use));
    }
    for (std::size_t e = 0; e < on_->elements.size(); ++e) {
      study_shared_element shared{e, {}};
      std::size_t users = 0;
      for (const auto& of : use) {
        shared.busy_ps.push_back(of[e].busy_ps);
        if (of[e].messages > 0) ++users;
      }
      if (users > 1) result.shared.push_back(std::move(shared));
    }
    const auto weight = [&](const study_shared_element& s) {
      const element_use& u = result.together.use[s.element];
      return std::pair{u.queued_ps, u.busy_ps};
    };
    std::stable_sort(result.shared.begin(), result.shared.end(),
                     [&](const auto& a, const auto& b) { return weight(a) > weight(b); });
  }

  static void fill_times(study_job_row& row, virtual_job_outcome& together) {
    row.times = together;
    row.together = spread_of(row.times.rounds);
    row.alone = spread_of(row.times_alone.rounds);
    const auto of_call = [](const virtual_job_outcome& times, std::size_t call) {
      std::vector<virtual_stretch> all;
      for (const auto& round : times.calls) all.push_back(round[call]);
      return spread_of(all);
    };
    for (std::size_t c = 0; c < row.calls.size(); ++c) {
      row.calls[c].together = of_call(row.times, c);
      row.calls[c].alone = of_call(row.times_alone, c);
    }
  }

  const study_scenario& scenario_;
  const study_run_options& options_;
  study_machine machine_;
  std::shared_ptr<const hardware> on_;
  std::vector<virtual_job> jobs_;
  std::vector<std::shared_ptr<const score>> kept_;  ///< of the calls
};

}  // namespace

study_spread spread_of(const std::vector<virtual_stretch>& of) {
  if (of.empty()) return {};
  std::vector<double> us;
  for (const virtual_stretch& s : of) us.push_back(static_cast<double>(s.end - s.begin) / 1e6);
  std::sort(us.begin(), us.end());
  const std::size_t half = us.size() / 2;
  return {us.front(), us.size() % 2 == 1 ? us[half] : (us[half - 1] + us[half]) / 2, us.back()};
}

double study_job_row::end_us() const {
  return times.rounds.empty() ? 0 : static_cast<double>(times.rounds.back().end) / 1e6;
}

study_result run_as_wished(const study_scenario& one, const study_run_options& options) {
  std::string why_not;
  try {
    return run_study(one, options);
  } catch (const error& why) {
    if (why.code_value() != errc::unsupported || one.choreography == "auto") throw;
    why_not = why.what();
  }
  study_scenario by_any = one;
  by_any.choreography = "auto";
  study_result found = run_study(by_any, options);
  found.remarks.push_back(why_not + "; it goes by " + found.rows.at(0).choreography + ", the fastest");
  return found;
}

study_result run_jobs(const study_scenario& scenario, const study_run_options& options) {
  return job_run{scenario, options}.run();
}

}  // namespace troupe
