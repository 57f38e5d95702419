#include "engine/plan_choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/planner.hpp"
#include "memory/error.hpp"
#include "protocols/reduction_forest.hpp"

namespace troupe {

namespace {

/// A slice should stay in L2 between the rank that writes and the one that reads it, and be long beside a message's latency.
constexpr std::size_t automatic_chunk = 256 * 1024;
/// A score that only reads and writes other ranks' buffers gains nothing from slices, except that it can be cancelled between them.
constexpr std::size_t uncut_pass = std::size_t{16} << 20;
/// Of all ranks' programs of a plan together: some 200 MB.
constexpr std::size_t most_instructions = std::size_t{1} << 21;
constexpr int most_channels = 16;
/// Up to here every choreography is tried, whatever its steps.
constexpr int few_ranks = 64;
/// Scores with fewer steps than this are tried on any number of ranks; longer ones if they are not so many times longer than others.
constexpr double most_steps_tried = 30'000;
constexpr double many_times = 8;

std::size_t ceiling(std::size_t a, std::size_t b) { return a / b + (a % b != 0); }

bool can_be_in_place(collective what) {
  return what == collective::all_reduce || what == collective::all_gather || what == collective::reduce_scatter ||
         what == collective::all_to_all;
}

void check_counts(const planning_task& task) {
  const auto blocks = static_cast<std::size_t>(block_count(task.what.what, task.ranks()));
  if (task.what.uniform || task.counts.size() == blocks) return;
  throw error(errc::invalid_argument, to_string(task.what) + " has " + std::to_string(blocks) + " blocks, but the sizes of " +
                                          std::to_string(task.counts.size()) + " were given");
}

/// Bytes that a rank converts or scales before and after, on average.
double staging_bytes(const contender& c, const planning_task& task) {
  if (!c.widened && !task.rules.scaled) return 0;
  const double block = static_cast<double>(task.mean_block()) * static_cast<double>(size_of(c.work_type));
  const double in = task.what.what == collective::reduce_scatter ? block * task.ranks() : block;
  return in + (c.widened ? block : 0);
}

}  // namespace

std::size_t largest_part(std::size_t count, std::size_t n) {
  std::size_t most = 0;
  for (std::size_t k = 0; k < n; ++k) most = std::max(most, part_begin(count, n, k + 1) - part_begin(count, n, k));
  return most;
}

std::size_t planning_task::largest_block() const {
  if (what.what == collective::barrier) return 0;
  if (what.uniform) return what.count;
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

std::size_t planning_task::mean_block() const {
  if (what.uniform || counts.empty()) return largest_block();
  double total = 0;
  for (const std::size_t n : counts) total += static_cast<double>(n);
  return static_cast<std::size_t>(std::ceil(total / static_cast<double>(counts.size())));
}

planning_task make_task(const call& what, const layout& placement, const std::vector<std::size_t>* counts) {
  planning_task task{what, placement, {}, rules_of(what, placement.size())};
  if (!what.uniform && counts) task.counts = *counts;
  check_counts(task);
  if (has_root(what.what) && (what.root < 0 || what.root >= task.ranks()))
    throw error(errc::bad_root, to_string(what) + ": the root must be a rank of 0…" + std::to_string(task.ranks() - 1));
  // The widest that any choreography may work in; throws size_overflow.
  const std::size_t width = task.rules.sums_in_f32 ? sizeof(float) : size_of(what.type);
  const call_shape sizes{what.count, task.counts, {}, {}, width};
  const rank_t rank = has_root(what.what) ? what.root : 0;
  input_bytes(what.what, task.ranks(), what.root, rank, sizes);
  output_bytes(what.what, task.ranks(), what.root, rank, sizes);
  return task;
}

// -- shaping and pricing ----------------------------------------------------------------------------------------------

contender plan_choice::consider(const std::string& name, const planning_task& task, bool forced) {
  contender c;
  c.choreography = name;
  // One pass of the kernel adds in f32 and rounds once by itself; anything else needs wide partial results.
  const bool may_stay_narrow = task.rules.sums_in_f32 && !task.rules.always_widened && task.what.uniform;
  prepare(c, task, task.rules.sums_in_f32 && !may_stay_narrow);
  if (may_stay_narrow && !(c.eligible() && c.lowered->sums_in_one_pass())) {
    c = contender{};
    c.choreography = name;
    prepare(c, task, true);
  }
  if (c.eligible() && !forced && c.lowered->shares_memory && task.placement.server_count() > 1)
    c.why_rejected = "the ranks sit on several servers, which share no memory";
  return c;
}

void plan_choice::prepare(contender& c, const planning_task& task, bool widened) {
  c.widened = widened;
  c.work_type = widened ? datatype::f32 : task.what.type;
  c.on.what = task.what.what;
  c.on.ranks = task.ranks();
  c.on.root = has_root(task.what.what) ? task.what.root : 0;
  c.on.in_place = task.what.in_place && can_be_in_place(task.what.what) && !widened && !task.rules.scaled;
  c.on.uniform = task.what.uniform;
  c.on.placement = task.placement;
  c.on.streams = options_.streams;
  c.on.through_scratch = options_.through_scratch;
  c.why_rejected = library_.refusal(c.choreography, c.on);
  if (c.eligible()) shape(c, task);
}

std::vector<contender> plan_choice::consider_all(const planning_task& task) {
  const std::vector<double> steps = estimated_steps(task);
  const double least = *std::min_element(steps.begin(), steps.end());
  std::vector<contender> all;
  for (std::size_t i = 0; i < library_.names().size(); ++i) {
    const std::string& name = library_.names()[i];
    if (steps[i] <= std::max(most_steps_tried, many_times * least)) {
      all.push_back(consider(name, task, false));
      continue;
    }
    contender c;
    c.choreography = name;
    c.why_rejected = "on " + std::to_string(task.ranks()) + " ranks it takes about " +
                     std::to_string(static_cast<long long>(steps[i] / least)) + " times as many steps as others";
    all.push_back(std::move(c));
  }
  return all;
}

/// Writing, pricing and verifying a score costs time and memory by the step, and some have n² steps. For many ranks the number of
/// steps is therefore guessed from the scores for 16 and for 32 ranks first. 0: few ranks, or it cannot be told.
std::vector<double> plan_choice::estimated_steps(const planning_task& task) {
  std::vector<double> steps;
  for (const std::string& name : library_.names()) {
    const choreography* which = find_choreography(name);
    double guess = 0;
    if (which != nullptr && task.ranks() > few_ranks) {
      double sizes[2] = {0, 0};
      for (const int doubled : {0, 1}) {
        const stage small = flat_stage(task.what.what, doubled ? 32 : 16, 0, false, task.what.uniform);
        if (troupe::refusal(*which, small).empty()) sizes[doubled] = static_cast<double>(step_total(which->write(small)));
      }
      if (sizes[0] > 0 && sizes[1] > 0)
        guess = sizes[1] * std::pow(task.ranks() / 32.0, std::log2(sizes[1] / sizes[0]));
    }
    steps.push_back(guess);
  }
  // Those that do not offer the collective are refused at no cost, and say nothing about the others.
  double least = std::numeric_limits<double>::infinity();
  for (const double s : steps)
    if (s > 0) least = std::min(least, s);
  for (double& s : steps)
    if (s == 0) s = std::isfinite(least) ? least : 0;
  return steps;
}

/// Chooses how to cut, and with it the lowering.
void plan_choice::shape(contender& c, const planning_task& task) {
  try {
    const bool split = c.rank_order_fold || !task.what.uniform;
    const auto whole = library_.get({c.choreography, c.on, split, c.rank_order_fold});
    c.seconds = std::numeric_limits<double>::infinity();
    for (const cutting& cut : cuts(c, task, *whole)) price(c, task, cut);
    if (!c.lowered)
      c.why_rejected = "it cannot go on with the credits that there are (" + std::to_string(options_.credits) + ")";
  } catch (const error& e) {
    c.why_rejected = e.what();
    c.faulty = e.code_value() == errc::bad_score;
  }
}

void plan_choice::price(contender& c, const planning_task& task, const cutting& cut) {
  const bool split = c.rank_order_fold || !task.what.uniform || cut != cutting{};
  const auto lowered = library_.get({c.choreography, c.on, split, c.rank_order_fold});
  const std::size_t bytes = task.mean_block() * size_of(c.work_type);
  const double seconds = lowered->predict(bytes, cut, staging_bytes(c, task), machine_);
  if (!(seconds < c.seconds)) return;
  c.seconds = seconds;
  c.cut = cut;
  c.lowered = lowered;
}

/// What the options leave open. A channel's slice has at most about the chunk's bytes (part_begin rounds to 64 elements), and a
/// slice at least one element of the largest cell.
std::vector<cutting> plan_choice::cuts(const contender& c, const planning_task& task, const lowered_score& whole) const {
  const std::size_t cell = largest_part(task.largest_block(), static_cast<std::size_t>(std::max(1, whole.notes->parts)));
  if (cell == 0) return {cutting{}};
  std::vector<int> channels{options_.channels};
  if (options_.channels == 0) {
    channels = {1};
    for (int n = 2; n <= most_channels && n * task.ranks() <= machine_.cores; n *= 2) channels.push_back(n);
  }
  const std::size_t chunk = options_.chunk_bytes > 0 ? options_.chunk_bytes : whole.moves_chunks ? automatic_chunk : uncut_pass;
  const std::size_t chunk_elements = std::max<std::size_t>(1, chunk / size_of(c.work_type));
  std::vector<cutting> found;
  for (const int wanted : channels) {
    const std::size_t repeats = std::max<std::size_t>(1, most_instructions / std::max<std::size_t>(1, whole.single_steps));
    const std::size_t side = std::min({static_cast<std::size_t>(wanted), cell, repeats});
    const std::size_t length = largest_part(cell, side);
    const std::size_t most = std::max<std::size_t>(1, repeats / side);
    const std::size_t slices = std::min({ceiling(length, chunk_elements), length, most});
    found.push_back({static_cast<int>(side), static_cast<int>(std::max<std::size_t>(1, slices))});
  }
  return found;
}

// -- slots ------------------------------------------------------------------------------------------------------------

namespace {
/// Of all blocks together. Measured on two cores: beyond, a reference costs less than two copies.
constexpr std::size_t most_slot_bytes = 32 * 1024;
constexpr std::size_t most_forced_slot_bytes = 64 * 1024;
constexpr int most_slot_ranks = 64;
/// Everybody with everybody: beyond, somebody else is always cheaper.
constexpr int most_direct_token_ranks = 16;
}  // namespace

bool plan_choice::may_use_slots(const planning_task& task, bool forced) const {
  const call& c = task.what;
  if (!troupe::may_use_slots(options_) || !task.placement.is_flat() || task.ranks() > most_slot_ranks) return false;
  if (!c.uniform) return false;
  if (task.rules.scaled || task.rules.sums_in_f32) return false;
  const std::size_t block = task.largest_block() * size_of(c.type);
  const bool single = block_count(c.what, task.ranks()) <= 1;
  const auto blocks = static_cast<std::size_t>(single ? 1 : task.ranks());
  return block <= (forced ? most_forced_slot_bytes : most_slot_bytes) / blocks;
}

/// A message over slots is a few stores and a look; where ranks share cores, somebody else's turn.
void plan_choice::price_slots(contender& c, const planning_task& task) const {
  c.over_slots = nullptr;
  c.slot_seconds = std::numeric_limits<double>::infinity();
  if (!c.eligible() || c.widened || c.lowered->shares_memory || c.lowered->touches_other_ranks) return;
  c.slot_seconds = seconds_over_slots(c, *c.lowered, task);
}

double plan_choice::seconds_over_slots(const contender& c, const lowered_score& s, const planning_task& task) const {
  machine_constants slots = machine_;
  slots.message = task.ranks() <= machine_.cores ? 0.06e-6 : 0.6e-6;
  slots.step = 0.03e-6;
  slots.copy_rate = 6e9;
  slots.reduce_rate = 4e9;
  const score& notes = *s.notes;
  const double cell = static_cast<double>(task.largest_block() * size_of(c.work_type)) / std::max(1, notes.parts);
  constexpr int no_limit = 64;
  return timing_sheet(notes).predict(cell, cutting{}, no_limit, slots);
}

void plan_choice::agree_over_slots(contender& c, const planning_task& task) {
  if (c.over_slots || !std::isfinite(c.slot_seconds)) return;
  if (!has_root(task.what.what)) {  // its data make everybody hear of everybody
    c.over_slots = c.lowered;
    return;
  }
  c.slot_seconds = std::numeric_limits<double>::infinity();
  for (const agreement_form form : agreement_forms) {
    const bool direct = form == agreement_form::direct;
    if (direct ? task.ranks() > most_direct_token_ranks : task.ranks() <= 2) continue;
    const auto made = library_.get({c.choreography, c.on, c.rank_order_fold, c.rank_order_fold, form});
    if (!made) continue;
    const double seconds = seconds_over_slots(c, *made, task);
    if (!(seconds < c.slot_seconds)) continue;
    c.slot_seconds = seconds;
    c.over_slots = made;
    c.agreement = form;
  }
}

double plan_choice::actor_seconds(const planning_task& task) const {
  return 1e-6 + 4e-6 * task.ranks();  // measured
}

contender* plan_choice::best_over_slots(std::vector<contender*> all, const planning_task& task) {
  for (contender* c : all) price_slots(*c, task);
  while (true) {
    contender* first = nullptr;
    for (contender* c : all)
      if (c->eligible() && std::isfinite(c->slot_seconds) && (!first || c->slot_seconds < first->slot_seconds)) first = c;
    if (!first) return nullptr;
    if (!first->settled) {
      settle(*first, task), price_slots(*first, task);
    } else if (!first->over_slots) {
      agree_over_slots(*first, task);
    } else if (first->over_slots->verified(1)->ok()) {
      return first;
    } else {
      first->slot_seconds = std::numeric_limits<double>::infinity();
    }
  }
}

// -- direct -----------------------------------------------------------------------------------------------------------

namespace {
/// Ranks look at each other's seats one by one.
constexpr int most_direct_ranks = 64;
}  // namespace

bool plan_choice::may_be_direct(const planning_task& task) const {
  if (!troupe::may_use_slots(options_) || (options_.protocol != "auto" && options_.protocol != "direct")) return false;
  if (!task.placement.is_flat() || task.ranks() < 2 || task.ranks() > most_direct_ranks) return false;
  return task.what.uniform && !task.rules.scaled;
}

/// Two meetings and the memory's traffic. Measured on two cores (bench): a meeting is a cache line from every rank, or a turn
/// of every rank where they share cores.
void plan_choice::price_direct(contender& c, const planning_task& task) const {
  c.direct_seconds = std::numeric_limits<double>::infinity();
  if (!c.eligible() || c.widened || !c.lowered->touches_other_ranks) return;
  const call_shape sizes{task.largest_block(), {}, {}, {}, size_of(c.work_type)};
  std::vector<std::shared_ptr<const program>> all;
  for (rank_t r = 0; r < task.ranks(); ++r)
    all.push_back(std::make_shared<const program>(compile(*c.lowered->notes, r, sizes, cutting{})));
  if (!why_not_direct(all).empty()) return;
  const direct_program made = compile_direct(all, {task.what.what, c.on.in_place, task.largest_block() * sizes.element_size});
  // At the root of a reduce, input and output may be one memory: one pass may read what it writes, several may not.
  const auto passes = [](const direct_program::body& b) { return b.passes.size(); };
  if (task.what.what == collective::reduce && std::ranges::max(made.bodies, {}, passes).passes.size() > 1) return;
  const bool own_cores = task.ranks() <= machine_.cores;
  const double rate = made.stores == store_hint::streamed ? 30e9 : 100e9;
  c.direct_seconds = 0.2e-6 + task.ranks() * (own_cores ? 0.06e-6 : 0.6e-6) +
                     static_cast<double>(made.bytes) / (rate * std::min(task.ranks(), machine_.cores));
}

contender* plan_choice::best_direct(std::vector<contender*> all, const planning_task& task) {
  for (contender* c : all) price_direct(*c, task);
  while (true) {
    contender* first = nullptr;
    for (contender* c : all)
      if (c->eligible() && std::isfinite(c->direct_seconds) && (!first || c->direct_seconds < first->direct_seconds)) first = c;
    if (!first) return nullptr;
    if (first->settled && first->lowered->verified(1)->ok()) return first;
    if (first->settled) first->direct_seconds = std::numeric_limits<double>::infinity();
    else settle(*first, task), price_direct(*first, task);
  }
}

// -- choosing ---------------------------------------------------------------------------------------------------------

contender* plan_choice::best(std::vector<contender>& all, const planning_task& task) {
  while (true) {
    contender* first = nullptr;
    for (contender& c : all)
      if (c.eligible() && (!first || c.seconds < first->seconds)) first = &c;
    if (!first || first->settled) return first;
    settle(*first, task);
  }
}

void plan_choice::settle(contender& c, const planning_task& task) {
  if (!c.eligible() || c.settled) return;
  const verdict& v = *c.lowered->verified(c.cut.slices);
  if (!v.ok()) {
    c.faulty = true;
    c.why_rejected = "the verifier found a fault: " + to_string(*v.first_fault);
    return;
  }
  if (task.rules.trees.met_by(v) && same_trees_in_place(c, task, v)) {
    c.settled = true;
    return;
  }
  if (c.rank_order_fold) {
    c.why_rejected = "its contributions cannot be folded in rank order";
    return;
  }
  c.rank_order_fold = true;
  c.lowered.reset();
  shape(c, task);
  // The fold may have torn a single pass apart, and wide partial results need another stage.
  if (c.eligible() && task.rules.sums_in_f32 && !c.widened && !c.lowered->sums_in_one_pass()) {
    c.lowered.reset();
    prepare(c, task, true);
  }
}

/// Whether a call is in place must not show in the bits either, as little as its size.
bool plan_choice::same_trees_in_place(const contender& c, const planning_task& task, const verdict& v) {
  if (!task.rules.trees.same_everywhere || task.rules.trees.left_fold || c.rank_order_fold) return true;
  // Where both kinds of call are staged, they are performed alike.
  const bool always_staged = task.rules.scaled || (task.rules.sums_in_f32 && (task.rules.always_widened || !task.what.uniform));
  stage other = c.on;
  other.in_place = !other.in_place;
  if (always_staged || !can_be_in_place(other.what) || !library_.refusal(c.choreography, other).empty()) return true;
  const bool split = !task.what.uniform || c.cut != cutting{};
  const verdict& w = *library_.get({c.choreography, other, split, false})->verified(c.cut.slices);
  return w.ok() && task.rules.trees.met_by(w) && tree_of(v, 0, 0) == tree_of(w, 0, 0);
}

}  // namespace troupe
