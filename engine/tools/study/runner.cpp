// SPDX-License-Identifier: Apache-2.0
// A scenario → a result.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>
#include <utility>

#include "actors/virtual/offload_run.hpp"
#include "engine/planning/cost_model.hpp"
#include "engine/planning/nccl_selection.hpp"
#include "engine/planning/score_library.hpp"
#include "engine/tools/extent.hpp"
#include "engine/tools/study/bounds.hpp"
#include "engine/tools/study/real_buffers.hpp"
#include "engine/tools/study/study.hpp"
#include "engine/tools/study/text.hpp"
#include "engine/tools/study/this_machine.hpp"
#include "memory/error.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/verify/verifier.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

using clock_type = std::chrono::steady_clock;

/// Steps up to which a score is verified before it is performed: about a second of the verifier, whose memory grows with ranks ×
/// steps.
constexpr std::size_t most_verified_steps = 200'000;
constexpr int most_verified_ranks = 256;
/// A score with fewer steps is verified in less time than a thread takes to begin and end.
constexpr std::size_t least_steps_for_a_thread = 2'000;
/// A recording takes about 400 bytes a step.
constexpr std::uint64_t most_recorded_steps = 500'000;
/// `auto` looks for the fastest of all; a choreography that needs more steps than this is left out where another one can.
constexpr std::size_t most_steps_of_a_candidate = 20'000'000;
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
        library_(o.scores ? o.scores : scores_of(s)) {
    if (has_root(s.kind.what) && s.root >= on_->ranks)
      throw error(errc::bad_config, said_at(s, "study.root") + "study.root: there is no rank " +
                                        std::to_string(s.root) + "; ranks are 0 to " + std::to_string(on_->ranks - 1));
    late_ = skew_of(s, on_->ranks);
    check_counts();
    find_protocols();
  }

  study_result run() {
    study_result result;
    result.scenario = scenario_;
    result.on = on_;
    if (!scenario_.sizes.empty()) result.shown = options_.at ? place_of(*options_.at) : scenario_.sizes.size() - 1;
    std::vector<std::string> names;
    const bool as_hccl = scenario_.choreography == "hccl", as_nccl = scenario_.choreography == "nccl";
    if (!as_hccl && !as_nccl) names = candidates(scenario_.choreography);
    for (std::size_t i = 0; i < scenario_.sizes.size(); ++i) {
      if (as_hccl) names = select_as_hccl(scenario_.sizes[i]);
      if (as_nccl) names = select_as_nccl(scenario_.sizes[i]);
      result.rows.push_back(best_row(scenario_.sizes[i], names));
      as_performed_.push_back(now_);
    }
    record(result);
    result.remarks = remarks_;
    return result;
  }

private:
  /// A score as it is performed.
  struct prepared {
    std::string choreography;
    bool one_cell = false;
    bool through_scratch = false;
    std::shared_ptr<const score> notes;
    std::size_t steps = 0;
    bool verified = false;                             ///< unless …
    std::shared_future<std::optional<fault>> proof{};  ///< … this finds a fault, which confirm() throws
  };
  /// One way to perform a size.
  struct attempt {
    std::shared_ptr<const prepared> what;
    protocol_costs protocol;
    cutting cut;
  };

  /// What changes from size to size where somebody selects.
  struct performing {
    bool through_scratch = false;
    std::uint64_t chunk_bytes = 0;
    int channels = 1;
    std::vector<protocol_costs> protocols;  ///< that are tried
  };

  /// What is kept of scores is as the protocols that were tried allow.
  void take_up(const performing& way) {
    if (!std::ranges::equal(way.protocols, now_.protocols, {}, &protocol_costs::name, &protocol_costs::name))
      kept_.clear(), kept_steps_ = 0;
    now_ = way;
  }
  bool is_said(const char* key) const { return scenario_.as_said.contains(std::string{"study."} + key); }

  void find_protocols() {
    const bool any = scenario_.protocol == "auto" || (scenario_.choreography == "nccl" && !is_said("protocol"));
    for (const protocol_costs& p : on_->protocols)
      if (any || scenario_.protocol == p.name) now_.protocols.push_back(p);
    if (now_.protocols.empty())
      throw error(errc::bad_config, said_at(scenario_, "study.protocol") +
                                        "study.protocol: " + why_no_protocol(*on_, scenario_.protocol));
    if (scenario_.credits > 0)
      for (protocol_costs& p : now_.protocols) p.slots = scenario_.credits;
    protocols_ = now_.protocols;
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

  stage stage_of() const {
    stage on;
    on.what = scenario_.kind.what;
    on.ranks = on_->ranks;
    on.root = has_root(on.what) ? scenario_.root : 0;
    on.in_place = scenario_.in_place;
    on.uniform = !scenario_.kind.v_form;
    on.placement = on_->arrangement.size() == on_->ranks ? on_->arrangement : layout::flat(on_->ranks);
    on.streams = scenario_.streams;
    on.through_scratch = now_.through_scratch;
    return on;
  }

  std::vector<std::string> select_as_hccl(std::size_t bytes) {
    const job_shape shape = shape_at(bytes);
    hccl_case asked = scenario_.hccl;
    asked.places = stage_of().placement;
    asked.bytes = shape.bytes;
    if (asked.places.is_flat()) asked.places = layout::grid(1, on_->ranks);
    const hccl_choice choice = troupe::select_as_hccl(asked, scenario_.streams);
    now_.through_scratch = scenario_.through_scratch || choice.through_scratch;
    now_.chunk_bytes = scenario_.chunk_bytes > 0 ? scenario_.chunk_bytes : choice.chunk_bytes;
    remark("hccl: " + bytes_text(shape.bytes) + ": " + std::string{name(choice.algorithm)} + " by rule " +
           std::to_string(choice.rule) + " (" + choice.why + (choice.through_scratch ? "; BCopy" : "") +
           "), performed by " + choice.choreography);
    for (const std::string& line : choice.path)
      if (line.starts_with("level")) remark("hccl: " + bytes_text(shape.bytes) + ": " + line);
    return candidates(choice.choreography);
  }

  /// The fastest by its tuning model of those that somebody performs here. What the study says of protocol and channels is stronger.
  std::vector<std::string> select_as_nccl(std::size_t bytes) {
    const job_shape shape = shape_at(bytes);
    const std::string at = "nccl: " + bytes_text(shape.bytes) + ": ";
    if (scenario_.kind.what == collective::all_to_all) {
      remark("nccl: a group of sends and receives, performed by grouped");
      return candidates("grouped");
    }
    const nccl_choice choice = troupe::select_as_nccl({.places = stage_of().placement,
                                                       .what = scenario_.kind.what,
                                                       .bytes = shape.bytes,
                                                       .type = scenario_.type,
                                                       .op = scenario_.reduction.kind,
                                                       .machine = scenario_.nccl,
                                                       .tree = {}});
    for (const std::size_t i : choice.order) {
      const nccl_row& row = choice.rows[i];
      const auto by = std::ranges::find(protocols_, name(row.how), &protocol_costs::name);
      if (by == protocols_.end() && is_said("protocol") && scenario_.protocol != "auto") continue;
      const std::string who = std::string{name(row.algorithm)} + ' ' + std::string{name(row.how)};
      const std::string why = by == protocols_.end() ? "the machine has no protocol " + std::string{name(row.how)}
                                                     : why_not_as_nccl(row.choreography, *by);
      if (!why.empty()) {
        remark(at + who + " is skipped: " + why);
        continue;
      }
      performing way = now_;
      way.protocols = {*by};
      // Of what a switch reduces NCCL's channels are not modelled. A tree's two halves are two of them, and one here.
      const int channels = row.algorithm == nccl_algorithm::tree ? (row.channels + 1) / 2 : row.channels;
      way.channels = is_said("channels") || channels == 0 ? scenario_.channels : channels;
      take_up(way);
      remark(at + who + ", which its model says takes " + study_text::time_text(row.us) + " us" +
             (row.channels > 0 ? ", over " + plural(static_cast<std::size_t>(row.channels), "channel") : "") +
             ", performed by " + row.choreography);
      return {row.choreography};
    }
    throw error(errc::unsupported, "nobody performs here what NCCL would take for " + name(scenario_.kind) + " of " +
                                       bytes_text(shape.bytes) + (remarks_.empty() ? "" : "; " + remarks_.back()));
  }

  std::string why_not_as_nccl(const std::string& choreography, const protocol_costs& by) {
    if (choreography.empty()) return "nobody performs it";
    if (!library_->offers(choreography, scenario_.kind.what))
      return choreography + " does not offer " + name(scenario_.kind);
    if (const std::string why = library_->refusal(choreography, stage_of()); !why.empty())
      return choreography + ": " + why;
    return why_not_by_switches(choreography, by);
  }

  std::vector<std::string> candidates(const std::string& wanted) {
    const stage on = stage_of();
    if (wanted != "auto") {
      if (!library_->offers(wanted, on.what))
        throw error(errc::unsupported, wanted + " does not offer " + name(scenario_.kind));
      if (const std::string why = library_->refusal(wanted, on); !why.empty())
        throw error(errc::unsupported, wanted + " cannot perform " + name(scenario_.kind) + " here: " + why);
      return {wanted};
    }
    std::vector<std::string> able;
    for (const std::string& n : library_->names()) {
      if (!library_->offers(n, on.what) || !library_->refusal(n, on).empty()) continue;
      const choreography* c = find_choreography(n);
      if (c != nullptr && guessed_steps(*c, on) > static_cast<double>(most_steps_of_a_candidate)) {
        remark("auto: " + n + " is left out, its score would have over " +
               std::to_string(most_steps_of_a_candidate / 1'000'000) + " million steps; name it to try it");
        continue;
      }
      able.push_back(n);
    }
    if (able.empty()) throw error(errc::unsupported, "no choreography can perform " + name(scenario_.kind) + " here");
    return able;
  }

  /// Sizes, protocols and jobs that it holds for alike say it once.
  void remark(const std::string& text) {
    if (std::ranges::find(remarks_, text) == remarks_.end()) remarks_.push_back(text);
  }

  // -- scores ---------------------------------------------------------------------------------------------------------

  std::shared_ptr<const prepared> prepare(const std::string& choreography, bool one_cell, int slices) {
    for (const auto& p : kept_)
      if (p->choreography == choreography && p->one_cell == one_cell && p->through_scratch == now_.through_scratch)
        return p;
    auto made = std::make_shared<prepared>();
    made->choreography = choreography;
    made->one_cell = one_cell;
    made->through_scratch = now_.through_scratch;
    score s = write(choreography, one_cell);
    made->steps = step_total(s);
    made->notes = std::make_shared<const score>(std::move(s));
    verify_if_small(*made, slices);
    kept_steps_ += made->steps;
    if (kept_steps_ > most_steps_of_a_candidate) kept_.clear(), kept_steps_ = made->steps;
    kept_.push_back(made);
    return made;
  }

  score write(const std::string& choreography, bool one_cell) {
    stage on = stage_of();
    on.contiguous = scenario_.contiguous && !one_cell;
    const troupe::choreography* built_in = find_choreography(choreography);
    score s;
    if (built_in == nullptr || scenario_.score_files.find(choreography) != scenario_.score_files.end()) {
      s = library_->as_written(choreography);
    } else {
      if (const std::string why = too_many_steps(*built_in, on, bytes_of_a_step); !why.empty())
        throw error(errc::out_of_memory, why);
      s = write_score(*built_in, on);
      if (!is_built_in(*built_in)) check_others(s, choreography);
    }
    s.choreography = choreography;
    const bool keeps_syncs = on_->host.sync.count() >= 0;
    if (!keeps_syncs) s = lower_syncs(std::move(s));
    if (one_cell) s = one_cell_per_step(std::move(s));
    for (const protocol_costs& p : now_.protocols)
      if (p.slots == 1) return pace_sends(s, 1);
    return s;
  }

  /// Before anything takes the indices of a score for granted that somebody else has written.
  static void check_others(const score& s, const std::string& choreography) {
    if (const verdict v = verify(lower_syncs(s)); !v.ok())
      throw error(errc::bad_score, choreography + " does not verify: " + to_string(*v.first_fault));
  }

  bool is_ours(const std::string& choreography) const {
    const troupe::choreography* const by = find_choreography(choreography);
    return by != nullptr && is_built_in(*by);
  }

  void verify_if_small(prepared& p, int slices) {
    int credits = now_.protocols.front().slots;
    for (const protocol_costs& c : now_.protocols) credits = std::min(credits, c.slots);
    const int ranks = p.notes->ranks;
    const performing_limits limits{credits, std::min(slices, 3)};
    if (p.steps * static_cast<std::size_t>(slices) > most_verified_steps || ranks > most_verified_ranks ||
        is_too_large(*p.notes, limits)) {
      remark(p.choreography + ": not verified at this size (" + plural(static_cast<std::size_t>(ranks), "rank") + ", " +
             plural(p.steps, "step") +
             (is_ours(p.choreography)
                  ? "); the same generator is verified for smaller numbers of ranks"
                  : "); it was as it was written, but not with the slices and credits of this study"));
      return;
    }
    p.verified = true;
    const bool meanwhile = may_be_performed_meanwhile(p);
    p.proof =
        std::async(meanwhile ? std::launch::async | std::launch::deferred : std::launch::deferred,
                   [notes = p.notes, limits, keeps_syncs = on_->host.sync.count() >= 0] {
                     return (keeps_syncs ? verify(lower_syncs(*notes), limits) : verify(*notes, limits)).first_fault;
                   });
    if (!meanwhile) confirm(p);
  }

  /// Somebody else's score may do anything before it is verified.
  bool may_be_performed_meanwhile(const prepared& p) const {
    return p.steps >= least_steps_for_a_thread && is_ours(p.choreography);
  }

  static void confirm(const prepared& p) {
    if (!p.verified) return;
    if (const std::optional<fault>& wrong = p.proof.get())
      throw error(errc::bad_score, p.choreography + ": " + to_string(*wrong));
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

  /// How often cells are cut so that no chunk is larger than the protocol's slot.
  int slices_of(const score& notes, const job_shape& shape, const protocol_costs& protocol) const {
    if (scenario_.slices > 0) return scenario_.slices;
    const std::uint64_t limit = now_.chunk_bytes > 0 ? now_.chunk_bytes : protocol.slot_payload;
    if (limit == 0) return 1;
    const std::uint64_t block = shape.count * size_of(scenario_.type);
    const std::uint64_t cells = static_cast<std::uint64_t>(notes.parts) * static_cast<std::uint64_t>(now_.channels);
    return static_cast<int>(std::clamp<std::uint64_t>((block / cells + limit - 1) / limit, 1, 1 << 20));
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

  /// Where ranks are lost: the one that is best as long as nobody is, for whoever fails first would seem the fastest.
  study_row best_row_of_losses(std::size_t bytes, const std::vector<std::string>& names) {
    const auto losses = std::exchange(on_->losses, {});
    study_row whole = best_row(bytes, names);
    on_->losses = losses;
    const auto is_later = [&](const rank_loss& l) { return l.at_ps > whole.outcome.end_ps; };
    if (std::ranges::all_of(losses, is_later)) return whole;
    remark(bytes_text(bytes) + ": if nobody were lost, " + whole.choreography + " would take " +
           study_text::time_text(whole.time_us) + " us");
    for (const protocol_costs& p : now_.protocols)
      if (p.name == whole.protocol)
        return row_of(attempt_of(whole.choreography, p, shape_at(bytes), whole.cut.slices), shape_at(bytes), nullptr);
    return whole;
  }

  study_row best_row(std::size_t bytes, const std::vector<std::string>& names) {
    if (!on_->losses.empty()) return best_row_of_losses(bytes, names);
    const job_shape shape = shape_at(bytes);
    set_rates(shape);
    study_row best;
    std::string why_not;
    for (const std::string& n : names)
      for (const protocol_costs& p : now_.protocols) {
        if (options_.go_on && !options_.go_on()) throw error(errc::cancelled, "interrupted");
        if (options_.progress) options_.progress(n + ", " + p.name + ", " + bytes_text(bytes));
        try {
          if (std::string why = why_not_by_switches(n, p); !why.empty()) {
            if (now_.protocols.size() == 1) throw error(errc::unsupported, why);
            continue;
          }
          study_row row = best_cut_of(n, p, shape, best.choreography.empty() ? never : best.time_us);
          if (best.choreography.empty() || row.time_us < best.time_us) best = std::move(row);
        } catch (const error& wrong) {
          if (scenario_.choreography != "auto" || wrong.code_value() == errc::cancelled) throw;
          why_not = n + ": " + wrong.what();
          if (wrong.code_value() != errc::unsupported) remark("auto: " + n + " is left out, " + wrong.what());
        }
      }
    if (best.choreography.empty())
      throw error(errc::unsupported, "no choreography can perform " + name(scenario_.kind) + " here; " + why_not);
    return best;
  }

  /// LL and LL128 write a flag into every line, and a switch that adds up lines would add up their flags, too; NCCL's NVLS and CollNet go by
  /// Simple alone.
  std::string why_not_by_switches(const std::string& choreography, const protocol_costs& protocol) {
    if (on_->switches.empty() || protocol.wire == protocol.payload) return {};
    if (prepare(choreography, cut_by_all(), 1)->notes->switches.empty()) return {};
    return "by " + protocol.name + " there is a flag in every line, and the switches that reduce for " + choreography +
           " would add them up; take simple";
  }

  /// `auto` begins with as many slices as the protocol's slots ask for, and tries the powers of two above. Along them a time falls and then
  /// rises, as what one more slice costs grows with their number, and what it saves shrinks; where it is flat it may rise by a trifle in
  /// between, so two in a row have to be no faster. What can only be slower than `of_others`, or than fewer slices, is not performed to its
  /// end. Cost: at most log2(most_sliced_steps) + 1 runs, and each but the first of up to most_sliced_steps.
  study_row best_cut_of(const std::string& choreography, const protocol_costs& protocol, const job_shape& shape,
                        double of_others) {
    const attempt whole = attempt_of(choreography, protocol, shape);
    const std::vector<int> finer = finer_cuts(whole, shape);
    study_row best = row_of(whole, shape, nullptr, of_others * most_gain(finer.size()));
    if (least_of_any_cut(best) > of_others) return best;
    int no_faster = 0;
    for (std::size_t i = 0; i < finer.size() && no_faster < 2; ++i) {
      if (options_.go_on && !options_.go_on()) throw error(errc::cancelled, "interrupted");
      if (best.time_us > of_others * most_gain(finer.size() - i)) break;
      study_row row = row_of(attempt_of(choreography, protocol, shape, finer[i]), shape, nullptr, best.time_us);
      if (row.time_us >= best.time_us) ++no_faster;
      else no_faster = 0, best = std::move(row);
    }
    return best;
  }

  /// How much faster `doublings` of the slices make a run at most: the first halves of all slices go the same ways with half the bytes, which
  /// takes them no less than half the time.
  static double most_gain(std::size_t doublings) { return std::ldexp(1.0, static_cast<int>(doublings)); }

  /// Numbers of slices that the search tries beyond those of `whole`, from few to many. Empty where the scenario says how often to cut, or what
  /// is cut depends on the ranks' counts.
  std::vector<int> finer_cuts(const attempt& whole, const job_shape& shape) {
    std::vector<int> cuts;
    if (scenario_.choreography != "auto" || scenario_.slices > 0 || now_.chunk_bytes > 0 || on_->nics ||
        scenario_.kind.v_form)
      return cuts;
    const auto channels = static_cast<std::uint64_t>(now_.channels);
    const std::uint64_t cells = static_cast<std::uint64_t>(whole.what->notes->parts) * channels;
    const std::uint64_t first = 2 * std::bit_floor(static_cast<std::uint64_t>(whole.cut.slices));
    const std::uint64_t longest = shape.count / cells / least_sliced;
    if (first > longest) return cuts;
    const std::size_t steps = prepare(whole.what->choreography, true, 2)->steps;
    const std::uint64_t most = std::min(longest, most_sliced_steps / std::max<std::uint64_t>(1, steps * channels));
    for (std::uint64_t n = first; n <= most; n *= 2) cuts.push_back(static_cast<int>(n));
    return cuts;
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

  bool cut_by_all() const { return now_.channels > 1 || scenario_.kind.v_form || scenario_.slices > 1; }

  /// @param slices 0: as the protocol's slots ask for
  attempt attempt_of(const std::string& choreography, const protocol_costs& protocol, const job_shape& shape,
                     int slices = 0) {
    attempt a;
    a.protocol = protocol;
    a.cut.channels = now_.channels;
    a.what = prepare(choreography, cut_by_all(), 1);
    a.cut.slices = slices > 0 ? slices : slices_of(*a.what->notes, shape, protocol);
    if (a.cut.slices > 1 && !a.what->one_cell) a.what = prepare(choreography, true, std::min(a.cut.slices, 3));
    return a;
  }

  /// What is wrong with the score comes before whatever else it led to.
  /// @param limit microseconds: what takes longer need not be performed to its end; its time is then more than that, and no more is known
  study_row row_of(const attempt& a, const job_shape& shape, virtual_recording* recording, double limit = never) {
    try {
      study_row row = perform(a, shape, recording, limit);
      confirm(*a.what);
      return row;
    } catch (const error& wrong) {
      if (wrong.code_value() != errc::cancelled) confirm(*a.what);
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

  std::size_t place_of(std::size_t bytes) const {
    const auto at = std::find(scenario_.sizes.begin(), scenario_.sizes.end(), bytes);
    if (at != scenario_.sizes.end()) return static_cast<std::size_t>(at - scenario_.sizes.begin());
    std::string list;
    for (const std::size_t n : scenario_.sizes) list += (list.empty() ? "" : ", ") + bytes_text(n);
    throw error(errc::bad_config, "the study has no size " + bytes_text(bytes) + " to show; its sizes are " + list);
  }

  /// The row that is shown; then the others, the last first, as long as together they are not more than one may be.
  void record(study_result& result) {
    using recorded = study_run_options::recorded;
    if (options_.record == recorded::none || result.rows.empty()) return;
    if (on_->nics) {
      remark(
          "not recorded: what NICs do is not; there are spans, moves and the critical path where hosts' ranks perform");
      return;
    }
    std::uint64_t steps = result.shown_row()->outcome.steps;
    if (steps > most_recorded_steps) {
      remark("not recorded: " + std::to_string(steps) + " steps are more than " + std::to_string(most_recorded_steps) +
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
      remark("not recorded: " + left_out + ", as all sizes together have more than " +
             std::to_string(most_recorded_steps) + " steps; take fewer sizes, or name one with --at");
  }

  /// Performs the row once more, and remembers. Runs are alike, so it is the same run.
  void record(study_result& result, std::size_t i) {
    study_row& row = result.rows[i];
    const job_shape shape = shape_at(scenario_.sizes[i]);
    take_up(as_performed_[i]);
    set_rates(shape);
    for (const protocol_costs& p : now_.protocols) {
      if (p.name != row.protocol) continue;
      auto recording = std::make_shared<virtual_recording>();
      const attempt a = attempt_of(row.choreography, p, shape, row.cut.slices);
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
  std::vector<protocol_costs> protocols_;  ///< that the machine has and the study lets
  std::vector<std::shared_ptr<const prepared>> kept_;
  std::size_t kept_steps_ = 0;
  std::vector<std::string> remarks_;
  performing now_{scenario_.through_scratch, scenario_.chunk_bytes, scenario_.channels, {}};  ///< at the present size
  std::vector<performing> as_performed_;                                                      ///< at every size so far
};

}  // namespace

double study_row::bound_us() const { return latency_bound_us + bandwidth_bound_us; }

bool study_row::failed() const {
  const auto& ends = outcome.ends;
  return std::ranges::any_of(ends, [](const virtual_end& e) { return e.code != errc{}; }) ||
         (!ends.empty() && std::ranges::all_of(ends, &virtual_end::lost));
}

namespace {

/// Whether some message could choose: the ways of two channels are as long, and not the same. True also where looking would take too long.
bool has_equal_ways(const hardware& on) {
  constexpr std::int64_t most_pairs = 4'000'000;
  const int channels = std::max(on.paths, hardware{"", 1}.paths);
  std::vector<std::vector<element_index>> ways(static_cast<std::size_t>(channels));
  std::int64_t left = most_pairs;
  // Neighbours first, then those further apart.
  for (int distance = 1; distance < on.ranks; ++distance)
    for (int from = 0; from < on.ranks; ++from) {
      if (--left < 0) return true;
      for (int c = 0; c < channels; ++c) {
        const auto end = ways.begin() + c;
        on.route(from, (from + distance) % on.ranks, c, *end);
        if (std::any_of(ways.begin(), end, [&](const auto& w) { return w.size() == end->size() && w != *end; }))
          return true;
      }
    }
  return on.ranks < 2;
}

}  // namespace

namespace {

/// What the machine says of a key's value, behind the place where that stands.
template <class Action>
void at_place_of(const study_scenario& s, const std::string& key, Action action) {
  try {
    action();
  } catch (const error& why) {
    throw error(why.code_value(), said_at(s, key) + why.what());
  }
}

study_machine built_machine_of(const study_scenario& s) {
  try {
    return build_study_machine(s.preset_name, s.request);
  } catch (const error& why) {
    throw error(why.code_value(), said_at(s, key_told_of(why.what())) + why.what());
  }
}

}  // namespace

study_machine study_machine_of(const study_scenario& s) {
  study_machine made = built_machine_of(s);
  for (const auto& [key, value] : s.overrides)
    at_place_of(s, "study.hardware." + key, [&, &key = key, &value = value] { made.on.set(key, value); });
  for (const auto& [element, times] : s.slow)
    at_place_of(s, "study.slow." + element, [&, &name = element, t = times] { made.on.slow_down(name, t); });
  for (const auto& [element, times] : s.faults)
    at_place_of(s, "study.faults." + element, [&, &name = element, &t = times] { made.on.disturb(name, t); });
  made.on.validate();
  if (!made.on.losses.empty() && s.by == performed_by::player)
    throw error(errc::unsupported,
                said_at(s, "study.performed_by") +
                    "study.performed_by: the player does not know what ranks do when one is lost (study.faults); "
                    "take \"states\", or leave it away");
  const bool asked = std::ranges::any_of(s.overrides, [](const auto& said) { return said.first == "routing"; });
  if (asked && made.on.routing == path_choice::adaptive && !has_equal_ways(made.on))
    throw error(errc::unsupported, said_at(s, "study.hardware.routing") +
                                       "study.hardware.routing: adaptive would do nothing: on " + made.on.name +
                                       " there is but one way from a rank to another one; leave it away");
  return made;
}

void refuse_losses(const study_scenario& scenario, const hardware& on, const std::string& why) {
  if (on.losses.empty()) return;
  const std::string key = "study.faults.rank " + std::to_string(on.losses.front().rank);
  throw error(errc::unsupported,
              said_at(scenario, key) + key + ": ranks are lost in studies of one collective; " + why);
}

std::string why_no_protocol(const hardware& on, const std::string& wanted) {
  if (wanted == "auto" || on.protocol(wanted) != nullptr) return {};
  std::string list = "auto";
  for (const protocol_costs& p : on.protocols) list += ", " + p.name;
  return on.name + " has no protocol \"" + wanted + "\"; there are " + list;
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
  const stage on = flat_stage(s.kind.what, s.request.ranks, 0, s.in_place, !s.kind.v_form);
  if (!refusal(*by, on).empty()) return;
  if (const std::string why = too_many_steps(*by, on, bytes_of_a_step); !why.empty())
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
