// SPDX-License-Identifier: Apache-2.0
// A scenario → a result.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "actors/virtual/offload_run.hpp"
#include "engine/planning/score_library.hpp"
#include "engine/tools/extent.hpp"
#include "engine/tools/study/bounds.hpp"
#include "engine/tools/study/prepared_scores.hpp"
#include "engine/tools/study/real_buffers.hpp"
#include "engine/tools/study/selection.hpp"
#include "engine/tools/study/study.hpp"
#include "engine/tools/study/text.hpp"
#include "memory/error.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

using clock_type = std::chrono::steady_clock;

/// A recording takes about 400 bytes a step.
constexpr std::uint64_t most_recorded_steps = 500'000;
/// Elements: shorter slices of a cell are not tried …
constexpr std::uint64_t least_sliced = 256;
/// … nor runs with more steps than this, of which each is to be a matter of a second or two.
constexpr std::uint64_t most_sliced_steps = 2'000'000;
/// Microseconds.
constexpr double never = std::numeric_limits<double>::infinity();

/// Integers only, so that every machine draws the same.
std::vector<std::int64_t> skew_of(const study_scenario& s, int ranks) {
  std::vector<std::int64_t> late;
  if (s.skew.empty() && s.skew_spread.count() == 0) return late;
  late.assign(static_cast<std::size_t>(ranks), 0);
  std::mt19937_64 random{s.seed};
  if (s.skew_spread.count() > 0)
    for (std::int64_t& l : late)
      l = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(s.skew_spread.count()));
  for (const auto& [rank, time] : s.skew) {
    if (rank >= ranks)
      throw error(errc::bad_config, said_at(s, "study.skew." + std::to_string(rank)) + "study.skew." +
                                        std::to_string(rank) + ": there is no rank " + std::to_string(rank) +
                                        "; ranks are 0 to " + std::to_string(ranks - 1));
    late[static_cast<std::size_t>(rank)] = time.count();
  }
  return late;
}

class study_run {
public:
  study_run(const study_scenario& s, const study_run_options& o)
      : scenario_(s),
        options_(o),
        machine_(
            o.part != nullptr
                ? study_machine{part_of(o.part->machine->on, o.part->ranks, o.part->places), o.part->machine->rates, {}}
                : study_machine_of(s)),
        on_(std::make_shared<hardware>(machine_.on)),
        library_(o.scores ? o.scores : scores_of(s)),
        scores_(s, *on_, *library_, remarks_) {
    if (has_root(s.kind.what) && s.root >= on_->ranks)
      throw error(errc::bad_config, said_at(s, "study.root") + "study.root: there is no rank " +
                                        std::to_string(s.root) + "; ranks are 0 to " + std::to_string(on_->ranks - 1));
    late_ = skew_of(s, on_->ranks);
    check_counts();
    check_computation();
    selection_.emplace(s, *on_, *library_, scores_, remarks_);
  }

  study_result run() {
    study_result result;
    result.scenario = scenario_;
    result.on = on_;
    result.shown = shown_size(scenario_, options_);
    for (const std::size_t size : scenario_.sizes) {
      const std::vector<std::string> names = selection_->select(shape_at(size).bytes);
      result.rows.push_back(best_row(size, names));
      as_performed_.push_back(scores_.way());
    }
    refuse_useless_groups();
    record(result);
    result.remarks = remarks_;
    return result;
  }

private:
  /// One way to perform a size.
  struct attempt {
    std::shared_ptr<const prepared_score> what;
    protocol_costs protocol;
    cutting cut;
  };

  void check_computation() const {
    const auto has_engine = [](const rank_place& at) { return at.dma != no_element; };
    if (scenario_.compute_dma_bytes == 0 || std::ranges::any_of(on_->places, has_engine)) return;
    throw error(errc::unsupported, said_at(scenario_, "study.compute_dma_bytes") +
                                       "study.compute_dma_bytes would do nothing: on " + on_->name +
                                       " no rank has a DMA engine");
  }

  /// If no size can be performed, that is a mistake; if some cannot, it is a remark.
  void refuse_useless_groups() const {
    if (scenario_.slices_per_step < 2 || groups_ || options_.part != nullptr || options_.one_of_many) return;
    constexpr std::string_view key = "study.slices_per_step: ";
    const auto told = std::ranges::find_if(remarks_, [&](const std::string& r) { return r.starts_with(key); });
    throw error(
        errc::unsupported,
        said_at(scenario_, "study.slices_per_step") + "study.slices_per_step would do nothing: " +
            (told == remarks_.end() ? "no message is cut (study.slices says how often)" : told->substr(key.size())));
  }

  void check_counts() const {
    const std::size_t n = static_cast<std::size_t>(on_->ranks), given = scenario_.counts.size();
    const bool matrix = scenario_.kind.has_matrix();
    if (given == 0 || given == (matrix ? n * n : n)) return;
    throw error(errc::bad_config,
                said_at(scenario_, "study.counts") + "study.counts has " + plural(given, "number") + "; " +
                    name(scenario_.kind) + " on " + plural(n, "rank") + " needs " +
                    (matrix ? "a row of " + std::to_string(n) + " for each rank" : "one for each rank"));
  }

  /// Before the buffers of a real payload are made: the system promises more memory than it has.
  void check_memory(const job_shape& shape) const {
    const double limit = static_cast<double>(usable_memory());
    const double largest =
        static_cast<double>(std::max<std::uint64_t>(shape.bytes, shape.count * size_of(scenario_.type)));
    // Input, output, and what the choreography keeps of them on the way.
    const double need = (scenario_.in_place ? 2 : 3) * largest * on_->ranks;
    if (need <= 0.8 * limit) return;
    const auto mebibytes = [](double bytes) { return bytes_text(static_cast<std::uint64_t>(bytes / (1 << 20)) << 20); };
    throw error(errc::out_of_memory, "a real payload of " + bytes_text(shape.bytes) + " on " +
                                         plural(static_cast<std::size_t>(on_->ranks), "rank") + " needs about " +
                                         mebibytes(need) + " of memory, this computer has " + mebibytes(limit) +
                                         "; use fewer ranks, smaller sizes, or payload = \"none\"");
  }

  // -- rows -----------------------------------------------------------------------------------------------------------

  job_shape shape_at(std::size_t bytes) const {
    job j;
    j.kind = scenario_.kind;
    j.bytes = bytes;
    j.type = scenario_.type;
    j.root = scenario_.root;
    j.counts = scenario_.counts;
    return shape_of(j, on_->ranks);
  }

  call_shape call_of(const job_shape& shape) const {
    call_shape c;
    c.element_size = size_of(scenario_.type);
    if (scenario_.kind.v_form) c.counts = shape.counts;
    else c.count = shape.count;
    return c;
  }

  /// How often cells are cut so that no chunk is larger than the protocol's slot, and each step has the slices that it takes.
  int slices_of(const score& notes, const job_shape& shape, const protocol_costs& protocol) const {
    if (scenario_.slices > 0) return scenario_.slices;
    const std::uint64_t cells = static_cast<std::uint64_t>(notes.parts) * static_cast<std::uint64_t>(way().channels);
    const std::uint64_t cell = shape.count * size_of(scenario_.type) / cells;
    const bool groups = scenario_.slices_per_step == 0 && way().slices_per_step > 1 && cell > way().least_cut;
    const auto of_step = static_cast<std::uint64_t>(groups ? way().slices_per_step : 1);
    const std::uint64_t limit = of_step * (way().chunk_bytes > 0 ? way().chunk_bytes : protocol.slot_payload);
    if (limit == 0) return static_cast<int>(of_step);
    return static_cast<int>(std::clamp<std::uint64_t>((cell + limit - 1) / limit, 1, 1 << 20) * of_step);
  }

  /// No more slices than a cell has elements: empty ones would be sent, too, and nobody sends them.
  int not_empty(int slices, const attempt& a, const job_shape& shape) {
    if (scenario_.kind.v_form || scenario_.kind.is_barrier() || on_->nics) return slices;
    const std::uint64_t cells =
        static_cast<std::uint64_t>(a.what->notes->parts) * static_cast<std::uint64_t>(way().channels);
    const std::uint64_t most = std::max<std::uint64_t>(1, shape.count / cells);
    if (static_cast<std::uint64_t>(slices) <= most) return slices;
    say_once(remarks_, "study.slices: " + bytes_text(shape.bytes) + " by " + a.what->choreography + " goes in " +
                           plural(most, "slice") + " instead of " + std::to_string(slices) +
                           ", as its cells have no more elements");
    return static_cast<int>(most);
  }

  /// Rates that depend on what the caches hold; what the scenario says is stronger.
  void set_rates(const job_shape& shape) {
    if (!machine_.rates) return;
    double block = static_cast<double>(shape.count);
    if (!shape.counts.empty())
      block = std::accumulate(shape.counts.begin(), shape.counts.end(), 0.0) / static_cast<double>(shape.counts.size());
    const double bytes =
        block * static_cast<double>(size_of(scenario_.type)) * traits_of(scenario_.kind.what).footprint(on_->ranks);
    machine_.rates(bytes, scenario_.type, on_->host);
    for (const auto& [key, value] : scenario_.overrides)
      if (key.starts_with("host.")) on_->set(key, value);
  }

  /// Where ranks are lost: the one that is best as long as nobody is, for the one that fails first would seem the fastest.
  study_row best_row_of_losses(std::size_t bytes, const std::vector<std::string>& names) {
    const auto losses = std::exchange(on_->losses, {});
    study_row whole = best_row(bytes, names);
    on_->losses = losses;
    const auto is_later = [&](const rank_loss& l) { return l.at_ps > whole.outcome.end_ps; };
    if (std::ranges::all_of(losses, is_later)) return whole;
    say_once(remarks_, bytes_text(bytes) + ": if nobody were lost, " + whole.choreography + " would take " +
                           study_text::time_text(whole.time_us) + " us");
    for (const protocol_costs& p : way().protocols)
      if (p.name == whole.protocol)
        return row_of(attempt_of(whole.choreography, p, shape_at(bytes), whole.cut.order()), shape_at(bytes), nullptr);
    return whole;
  }

  study_row best_row(std::size_t bytes, const std::vector<std::string>& names) {
    if (!on_->losses.empty()) return best_row_of_losses(bytes, names);
    const job_shape shape = shape_at(bytes);
    set_rates(shape);
    study_row best;
    std::string why_not;
    for (const std::string& n : names)
      for (const protocol_costs& p : way().protocols) {
        if (options_.go_on && !options_.go_on()) throw error(errc::cancelled, "interrupted");
        if (options_.progress) options_.progress(n + ", " + p.name + ", " + bytes_text(bytes));
        try {
          if (std::string why = scores_.why_not_by_switches(n, p); !why.empty()) {
            if (way().protocols.size() == 1) throw error(errc::unsupported, why);
            continue;
          }
          study_row row = best_cut_of(n, p, shape, best.choreography.empty() ? never : best.time_us);
          if (best.choreography.empty() || row.time_us < best.time_us) best = std::move(row);
        } catch (const error& wrong) {
          if (scenario_.choreography != "auto" || wrong.code_value() == errc::cancelled) throw;
          why_not = n + ": " + wrong.what();
          if (wrong.code_value() != errc::unsupported)
            say_once(remarks_, "auto: " + n + " is left out, " + wrong.what());
        }
      }
    if (best.choreography.empty())
      throw error(errc::unsupported, "no choreography can perform " + name(scenario_.kind) + " here; " + why_not);
    return best;
  }

  /// `auto` begins with as many slices as the protocol's slots ask for, and tries the powers of two above. Along them a time falls and then
  /// rises, as what one more slice costs grows with their number, and what it saves shrinks; where it is flat it may rise by a trifle in
  /// between, so two in a row have to be no faster. Then it tries 2, 4, … slices a step in the same way, as far as credits go, and with as many as
  /// are fastest the powers of two again. A run that can only be slower than `of_others`, or than those that were tried, is not performed to its
  /// end. Cost: at most 2 log2(most_sliced_steps) runs, and each but the first of up to most_sliced_steps.
  study_row best_cut_of(const std::string& choreography, const protocol_costs& protocol, const job_shape& shape,
                        double of_others) {
    const attempt whole = attempt_of(choreography, protocol, shape);
    const bool searches = searches_cuts();
    const int first = whole.cut.slices, most = searches ? std::max(first, most_slices(whole, shape)) : first;
    const bool groups = searches && scenario_.slices_per_step == 0;
    // So much faster is the fastest at most: of so many slices, the first go the same ways with so much less of the bytes.
    const double most_gain = groups ? most : static_cast<double>(most) / first;
    study_row best = row_of(whole, shape, nullptr, of_others * most_gain);
    if (!searches || least_of_any_cut(best) > of_others) return best;
    search_cuts(best, whole, shape, of_others * most_gain,
                doubled({first, std::max(1, scenario_.slices_per_step)}, most));
    if (!groups) return best;
    std::vector<slice_order> grouped;
    for (int n = 2; n <= std::min(most, most_slices_per_step(whole)); n *= 2)
      grouped.push_back({std::max(first, n), n});
    search_cuts(best, whole, shape, of_others * most_gain, grouped);
    if (best.cut.slices_per_step > 1)
      search_cuts(best, whole, shape, of_others * most_gain, doubled(best.cut.order(), most));
    return best;
  }

  /// Until two in a row are no faster than the best so far, or that is over `hopeless`.
  void search_cuts(study_row& best, const attempt& whole, const job_shape& shape, double hopeless,
                   const std::vector<slice_order>& cuts) {
    int no_faster = 0;
    for (const slice_order& cut : cuts) {
      if (no_faster == 2 || best.time_us > hopeless) return;
      if (options_.go_on && !options_.go_on()) throw error(errc::cancelled, "interrupted");
      std::optional<study_row> row = row_if_it_goes_on(whole, shape, cut, best.time_us);
      if (!row || row->time_us >= best.time_us) ++no_faster;
      else no_faster = 0, best = std::move(*row);
    }
  }

  /// Several slices a step may need more credits than there are: then none.
  std::optional<study_row> row_if_it_goes_on(const attempt& whole, const job_shape& shape, const slice_order& cut,
                                             double limit) {
    try {
      return row_of(attempt_of(whole.what->choreography, whole.protocol, shape, cut), shape, nullptr, limit);
    } catch (const error& wrong) {
      const errc code = wrong.code_value();
      if (cut.slices_per_step == 1 || (code != errc::bad_score && code != errc::message_lost)) throw;
      return std::nullopt;
    }
  }

  /// The next powers of two slices.
  static std::vector<slice_order> doubled(const slice_order& from, int most) {
    std::vector<slice_order> cuts;
    for (std::int64_t n = 2 * static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(from.slices)));
         n <= most; n *= 2)
      cuts.push_back({static_cast<int>(n), std::min(static_cast<int>(n), from.slices_per_step)});
    return cuts;
  }

  /// Not where the scenario says how often to cut, or what is cut depends on the ranks' counts.
  bool searches_cuts() const {
    return scenario_.choreography == "auto" && scenario_.slices == 0 && way().chunk_bytes == 0 && !on_->nics &&
           !scenario_.kind.v_form;
  }

  /// That are not too short, nor too many to be performed often.
  int most_slices(const attempt& whole, const job_shape& shape) const {
    const auto channels = static_cast<std::uint64_t>(way().channels);
    const std::uint64_t cells = static_cast<std::uint64_t>(whole.what->notes->parts) * channels;
    const std::uint64_t longest = shape.count / cells / least_sliced;
    const std::size_t steps = single_step_total(*whole.what->notes);
    const std::uint64_t most = std::min(longest, most_sliced_steps / std::max<std::uint64_t>(1, steps * channels));
    return static_cast<int>(most);
  }

  /// Half the credits, so that a step can begin while the one before it is under way.
  static int most_slices_per_step(const attempt& whole) {
    return uses_l0(*whole.what->notes) ? 1 : whole.protocol.slots / 2;
  }

  /// However it is cut, the same bytes pass each element. Where they may choose their way, nothing is known.
  double least_of_any_cut(const study_row& row) const {
    double most = 0;
    for (std::size_t e = 0; e < row.outcome.use.size() && on_->routing != path_choice::adaptive; ++e) {
      const auto at = static_cast<element_index>(e);
      most = std::max(most, static_cast<double>(on_->occupancy(at, row.outcome.use[e].bytes).count()) /
                                on_->class_of(at).units / 1e6);
    }
    return most;
  }

  /// @param slices none: as the protocol's slots ask for
  attempt attempt_of(const std::string& choreography, const protocol_costs& protocol, const job_shape& shape,
                     const std::optional<slice_order>& slices = {}) {
    attempt a;
    a.protocol = protocol;
    a.what = scores_.prepare(choreography, scores_.cut_by_all());
    const int wanted = slices ? slices->slices : not_empty(slices_of(*a.what->notes, shape, protocol), a, shape);
    const int usual = scenario_.slices_per_step > 0 ? scenario_.slices_per_step : way().slices_per_step;
    const int together = slices ? slices->slices_per_step : usual;
    a.cut = {way().channels, wanted, std::min(wanted, together)};
    groups_ = groups_ || (a.cut.slices_per_step > 1 && !uses_l0(*a.what->notes));
    if (a.cut.slices_per_step > 1 && uses_l0(*a.what->notes)) {
      a.cut.slices_per_step = 1;
      say_once(remarks_,
               "study.slices_per_step: " + choreography +
                   " has cells in L0, which are the same memory in every slice, so its steps take one slice each");
    } else if (scenario_.slices_per_step > 1 && a.cut.slices == 1 && scenario_.choreography != "auto") {
      say_once(remarks_, "study.slices_per_step: " + bytes_text(shape.bytes) + " by " + choreography + ", " +
                             protocol.name + ", is not cut, so there is one slice (study.slices says how many)");
    }
    if (a.cut.slices > 1) a.what = scores_.prepare(choreography, true, a.cut.order());
    return a;
  }

  /// A fault of the score comes before whatever else it led to.
  /// @param limit microseconds: what takes longer need not be performed to its end; its time is then more than that, and no more is known
  study_row row_of(const attempt& a, const job_shape& shape, virtual_recording* recording, double limit = never) {
    try {
      study_row row = perform(a, shape, recording, limit);
      prepared_scores::confirm(*a.what);
      return row;
    } catch (const error& wrong) {
      if (wrong.code_value() != errc::cancelled) prepared_scores::confirm(*a.what);
      throw;
    }
  }

  study_row perform(const attempt& a, const job_shape& shape, virtual_recording* recording, double limit) {
    virtual_options o;
    if (limit < never) o.give_up_after = static_cast<std::int64_t>(std::ceil(limit * 1e6));
    o.protocol = a.protocol;
    o.carry = scenario_.carry;
    o.by = scenario_.by;
    o.type = scenario_.type;
    o.reduction = scenario_.reduction;
    o.any_order = scenario_.any_order;
    o.skew = late_;
    o.compute = scenario_.compute.count();
    o.compute_blocks = scenario_.compute_blocks;
    o.compute_dma_bytes = scenario_.compute_dma_bytes;
    o.overlap = scenario_.overlap;
    o.record = recording;
    o.go_on = [](void* context, std::uint64_t) {
      const auto& asked = *static_cast<const study_run_options*>(context);
      return !asked.go_on || asked.go_on();
    };
    o.context = const_cast<study_run_options*>(&options_);
    std::optional<real_buffers> buffers;
    if (o.carry == payload::real) check_memory(shape), o.memory = buffers.emplace(scenario_, shape, on_->ranks).maps();

    study_row row;
    const auto begin = clock_type::now();
    if (options_.part != nullptr) {
      row.notes = a.what->notes;
      row.call = {row.notes.get(), call_of(shape), a.cut, o, on_->host};
    }
    if (on_->nics) {
      if (const std::string why = why_not_by_nics(*on_, a.cut, o); !why.empty()) throw error(errc::bad_config, why);
      row.outcome = options_.part != nullptr ? perform_part_by_nics(row.call)
                                             : perform_by_nics(*a.what->notes, call_of(shape), *on_, o);
    } else {
      row.outcome = perform_virtually(*a.what->notes, call_of(shape), a.cut, *on_, o);
    }
    row.wall_seconds = std::chrono::duration<double>(clock_type::now() - begin).count();
    row.bytes = shape.bytes;
    row.count = shape.count;
    row.choreography = a.what->choreography;
    row.protocol = a.protocol.name;
    row.cut = a.cut;
    row.verified = a.what->verified;
    row.time_us = static_cast<double>(row.outcome.end_ps) / 1e6;
    row.algbw = row.time_us > 0 && !row.failed() ? static_cast<double>(shape.bytes) / row.time_us / 1e3 : 0;
    row.busbw = row.algbw * bus_factor(scenario_.kind, on_->ranks);
    if (!cuts_) cuts_ = cuts_of(*on_);
    const study_bounds bounds = bounds_of(*on_, *cuts_, scenario_.kind, shape, size_of(scenario_.type), scenario_.root);
    row.latency_bound_us = bounds.latency_us;
    row.bandwidth_bound_us = bounds.bandwidth_us;
    for (std::size_t e = 0; e < row.outcome.use.size(); ++e) {
      const int units = on_->class_of(static_cast<element_index>(e)).units;
      row.busiest_us = std::max(row.busiest_us, static_cast<double>(row.outcome.use[e].busy_ps) / units / 1e6);
    }
    if (buffers && row.outcome.ends.empty()) row.wrong = buffers->wrong();
    return row;
  }

  /// On the nodes of the whole machine: a NIC is its node's.
  virtual_outcome perform_part_by_nics(const virtual_call& call) const {
    const study_part& part = *options_.part;
    virtual_job alone;
    alone.ranks = part.ranks;
    alone.calls = {call};
    alone.by_nics = part.by_nics;
    virtual_jobs_outcome all =
        perform_jobs_by_nics({alone}, part.machine->on, {call.options.go_on, call.options.context});
    virtual_outcome made;
    made.end_ps = all.end_ps;
    made.use = std::move(all.use);
    made.steps = all.steps;
    made.messages = all.messages;
    made.events = all.events;
    return made;
  }

  const study_way& way() const { return scores_.way(); }

  /// The row that is shown; then the others, the last first, as long as together they are not more than one may be.
  void record(study_result& result) {
    using recorded = study_run_options::recorded;
    if (options_.record == recorded::none || result.rows.empty()) return;
    if (on_->nics) {
      say_once(
          remarks_,
          "not recorded: what NICs do is not; there are spans, moves and the critical path where hosts' ranks perform");
      return;
    }
    std::uint64_t steps = result.shown_row()->outcome.steps;
    if (steps > most_recorded_steps) {
      say_once(remarks_, "not recorded: " + std::to_string(steps) + " steps are more than " +
                             std::to_string(most_recorded_steps) +
                             "; spans, moves and the critical path are for smaller runs");
      steps = 0;
    } else {
      record(result, result.shown);
    }
    if (options_.record != recorded::all) return;
    std::string left_out;
    for (std::size_t i = result.rows.size(); i-- > 0;) {
      if (i == result.shown) continue;
      if (steps + result.rows[i].outcome.steps > most_recorded_steps) {
        left_out = bytes_text(result.rows[i].bytes) + (left_out.empty() ? "" : ", ") + left_out;
        continue;
      }
      steps += result.rows[i].outcome.steps;
      record(result, i);
    }
    if (!left_out.empty())
      say_once(remarks_, "not recorded: " + left_out + ", as all sizes together have more than " +
                             std::to_string(most_recorded_steps) + " steps; take fewer sizes, or name one with --at");
  }

  /// Performs the row once more, and remembers. Runs are alike, so it is the same run.
  void record(study_result& result, std::size_t i) {
    study_row& row = result.rows[i];
    const job_shape shape = shape_at(scenario_.sizes[i]);
    scores_.take_up(as_performed_[i]);
    set_rates(shape);
    for (const protocol_costs& p : way().protocols) {
      if (p.name != row.protocol) continue;
      auto recording = std::make_shared<virtual_recording>();
      const attempt a = attempt_of(row.choreography, p, shape, row.cut.order());
      row = row_of(a, shape, recording.get());
      row.recording = std::move(recording);
      row.notes = a.what->notes;
    }
  }

  const study_scenario& scenario_;
  const study_run_options& options_;
  study_machine machine_;
  std::shared_ptr<hardware> on_;
  std::optional<std::vector<machine_cut>> cuts_;
  std::shared_ptr<score_library> library_;
  std::vector<std::int64_t> late_;
  std::vector<std::string> remarks_;
  prepared_scores scores_;
  std::optional<study_selection> selection_;
  std::vector<study_way> as_performed_;  ///< at every size so far
  bool groups_ = false;                  ///< some step took several slices
};

}  // namespace

void say_once(std::vector<std::string>& remarks, const std::string& remark) {
  if (std::ranges::find(remarks, remark) == remarks.end()) remarks.push_back(remark);
}

std::size_t shown_size(const study_scenario& scenario, const study_run_options& options) {
  const std::vector<std::size_t>& sizes = scenario.sizes;
  if (!options.at) return sizes.empty() ? 0 : sizes.size() - 1;
  if (const auto at = std::ranges::find(sizes, *options.at); at != sizes.end())
    return static_cast<std::size_t>(at - sizes.begin());
  std::string list;
  for (const std::size_t n : sizes) list += (list.empty() ? "" : ", ") + bytes_text(n);
  throw error(errc::bad_config, "the study has no size " + bytes_text(*options.at) + " to show; its sizes are " + list);
}

double study_row::bound_us() const { return latency_bound_us + bandwidth_bound_us; }

bool study_row::failed() const {
  const auto& ends = outcome.ends;
  return std::ranges::any_of(ends, [](const virtual_end& e) { return e.code != errc{}; }) ||
         (!ends.empty() && std::ranges::all_of(ends, &virtual_end::lost));
}

std::shared_ptr<score_library> scores_of(const study_scenario& scenario) {
  return std::make_shared<score_library>(scenario.score_files, 8);
}

namespace {

/// A machine of millions of ranks takes a minute to make. On `flat`, whose ranks have no places, a score that is too large is refused before.
void refuse_too_long_score(const study_scenario& s) {
  const choreography* const by = find_choreography(s.choreography);
  if (by == nullptr || s.score_files.contains(s.choreography) || s.preset_name != "flat" || s.request.ranks <= 0 ||
      !s.request.layout.empty())
    return;
  const setup on = flat_setup(s.kind.what, s.request.ranks, 0, s.in_place, !s.kind.v_form);
  if (!refusal(*by, on).empty()) return;
  if (const std::string why = too_many_steps(*by, on, bytes_of_a_step, bytes_of_a_rank); !why.empty())
    throw error(errc::out_of_memory, why);
}

}  // namespace

study_result run_study(const study_scenario& scenario, const study_run_options& options) {
  if (!scenario.jobs.empty()) return run_jobs(scenario, options);
  if (!scenario.flow.nodes.empty()) return run_flow(scenario, options);
  if (options.part == nullptr) refuse_too_long_score(scenario);
  return study_run{scenario, options}.run();
}

}  // namespace troupe
