// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/prepared_scores.hpp"

#include <algorithm>
#include <utility>

#include "engine/tools/extent.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "protocols/lower/lowering.hpp"

namespace troupe {

namespace {

/// Steps up to which a score is verified before it is performed: about a second of the verifier, whose memory grows with ranks ×
/// steps.
constexpr std::size_t most_verified_steps = 200'000;
constexpr int most_verified_ranks = 256;
/// A score with fewer steps is verified in less time than a thread takes to begin and end.
constexpr std::size_t least_steps_for_a_thread = 2'000;

bool is_ours(const std::string& choreography) {
  const troupe::choreography* const by = find_choreography(choreography);
  return by != nullptr && is_built_in(*by);
}

/// Somebody else's score may do anything before it is verified.
bool may_be_performed_meanwhile(const prepared_score& p) {
  return p.steps >= least_steps_for_a_thread && is_ours(p.choreography);
}

/// Before anything takes the indices of a score for granted that somebody else has written.
void check_others(const score& s, const std::string& choreography) {
  if (const verdict v = verify(lower_syncs(s)); !v.ok())
    throw error(errc::bad_score, choreography + " does not verify: " + to_string(*v.first_fault));
}

}  // namespace

setup setup_of(const study_scenario& scenario, const hardware& on, bool through_scratch, int nics) {
  setup made;
  made.what = scenario.kind.what;
  made.ranks = on.ranks;
  made.root = has_root(made.what) ? scenario.root : 0;
  made.in_place = scenario.in_place;
  made.uniform = !scenario.kind.v_form;
  made.placement = on.arrangement.size() == on.ranks ? on.arrangement : layout::flat(on.ranks);
  made.streams = scenario.streams;
  made.through_scratch = through_scratch;
  made.nics = nics;
  return made;
}

std::string why_not_a_candidate(const std::string& choreography, const setup& on) {
  const troupe::choreography* const by = find_choreography(choreography);
  if (by == nullptr || guessed_steps(*by, on) <= static_cast<double>(most_steps_of_a_candidate)) return {};
  return "its score would have over " + std::to_string(most_steps_of_a_candidate / 1'000'000) + " million steps";
}

prepared_scores::prepared_scores(const study_scenario& scenario, const hardware& on, score_library& library,
                                 std::vector<std::string>& remarks)
    : scenario_(scenario),
      on_(on),
      library_(library),
      remarks_(remarks),
      way_{scenario.through_scratch, scenario.chunk_bytes, scenario.channels, 0, {}, 1, 0} {}

void prepared_scores::take_up(const study_way& way) {
  if (!std::ranges::equal(way.protocols, way_.protocols, {}, &protocol_costs::name, &protocol_costs::name))
    kept_.clear(), kept_steps_ = 0;
  way_ = way;
}

std::shared_ptr<const prepared_score> prepared_scores::prepare(const std::string& choreography, bool one_cell,
                                                               const slice_order& slices) {
  auto made = std::make_shared<prepared_score>();
  made->choreography = choreography;
  made->one_cell = one_cell;
  made->through_scratch = way_.through_scratch;
  made->nics = way_.nics;
  made->slices = slices.shortened();
  for (const auto& p : kept_) {
    if (p->choreography != choreography || p->one_cell != one_cell || p->through_scratch != way_.through_scratch ||
        p->nics != way_.nics)
      continue;
    if (p->slices == made->slices) return p;
    made->notes = p->notes;
    made->steps = p->steps;
  }
  if (!made->notes) {
    score s = write(choreography, one_cell);
    made->steps = step_total(s);
    made->notes = std::make_shared<const score>(std::move(s));
    kept_steps_ += made->steps;
    if (kept_steps_ > most_steps_of_a_candidate) kept_.clear(), kept_steps_ = made->steps;
  }
  verify_if_small(*made);
  kept_.push_back(made);
  return made;
}

score prepared_scores::write(const std::string& choreography, bool one_cell) {
  setup on = present_setup();
  on.contiguous = scenario_.contiguous && !one_cell;
  const troupe::choreography* built_in = find_choreography(choreography);
  score s;
  if (built_in == nullptr || scenario_.score_files.find(choreography) != scenario_.score_files.end()) {
    s = library_.as_written(choreography);
  } else {
    if (const std::string why = too_many_steps(*built_in, on, bytes_of_a_step, bytes_of_a_rank); !why.empty())
      throw error(errc::out_of_memory, why);
    s = write_score(*built_in, on);
    if (!is_built_in(*built_in)) check_others(s, choreography);
  }
  s.choreography = choreography;
  const bool keeps_syncs = on_.host.sync.count() >= 0;
  if (!keeps_syncs) s = lower_syncs(std::move(s));
  if (one_cell) s = one_cell_per_step(std::move(s));
  for (const protocol_costs& p : way_.protocols)
    if (p.slots == 1) return pace_sends(s, 1);
  return s;
}

void prepared_scores::verify_if_small(prepared_score& p) {
  int credits = way_.protocols.front().slots;
  for (const protocol_costs& c : way_.protocols) credits = std::min(credits, c.slots);
  const int ranks = p.notes->ranks;
  const performing_limits limits{credits, p.slices.slices, p.slices.slices_per_step};
  if (p.steps * static_cast<std::size_t>(limits.slices) > most_verified_steps || ranks > most_verified_ranks ||
      is_too_large(*p.notes, limits)) {
    say_once(remarks_, p.choreography + ": not verified at this size (" +
                           plural(static_cast<std::size_t>(ranks), "rank") + ", " + plural(p.steps, "step") +
                           (is_ours(p.choreography)
                                ? "); the same generator is verified for smaller numbers of ranks"
                                : "); it was as it was written, but not with the slices and credits of this study"));
    return;
  }
  p.verified = true;
  const bool meanwhile = may_be_performed_meanwhile(p);
  p.proof =
      std::async(meanwhile ? std::launch::async | std::launch::deferred : std::launch::deferred,
                 [notes = p.notes, limits, keeps_syncs = on_.host.sync.count() >= 0] {
                   return (keeps_syncs ? verify(lower_syncs(*notes), limits) : verify(*notes, limits)).first_fault;
                 });
  if (!meanwhile) confirm(p);
}

void prepared_scores::confirm(const prepared_score& p) {
  if (!p.verified) return;
  if (const std::optional<fault>& wrong = p.proof.get())
    throw error(errc::bad_score, p.choreography + ": " + to_string(*wrong));
}

/// LL and LL128 write a flag into every line, and a switch that adds up lines would add up their flags, too; NCCL's NVLS and CollNet go by
/// Simple alone.
std::string prepared_scores::why_not_by_switches(const std::string& choreography, const protocol_costs& protocol) {
  if (on_.switches.empty() || protocol.wire == protocol.payload) return {};
  if (prepare(choreography, cut_by_all())->notes->switches.empty()) return {};
  return "by " + protocol.name + " there is a flag in every line, and the switches that reduce for " + choreography +
         " would add them up; take simple";
}

}  // namespace troupe
