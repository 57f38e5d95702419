// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/plan_choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/planning/planner.hpp"
#include "memory/error.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/program/slot_program.hpp"
#include "protocols/verify/reduction_forest.hpp"
#include "protocols/verify/verifier_structure.hpp"

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
using verifying::max_cells;
using verifying::max_lanes;

std::size_t ceiling(std::size_t a, std::size_t b) { return a / b + (a % b != 0); }

/// Bytes that a rank converts or scales before and after, on average.
double staging_bytes(const contender& c, const planning_task& task) {
  if (!c.widened && (!task.rules.scaled || c.scales_reads)) return 0;
  const double block = static_cast<double>(task.mean_block()) * static_cast<double>(size_of(c.work_type));
  const double in = block * input_blocks(task.what.what, task.ranks(), task.what.root, task.what.root).count;
  return in + (c.widened ? block : 0);
}

}  // namespace

std::size_t largest_part(std::size_t count, std::size_t n) {
  std::size_t most = 0;
  for (std::size_t k = 0; k < n; ++k) most = std::max(most, part_begin(count, n, k + 1) - part_begin(count, n, k));
  return most;
}

std::size_t planning_task::largest_block() const {
  if (!moves_data(what.what)) return 0;
  return counts.empty() ? what.count : *std::max_element(counts.begin(), counts.end());
}

std::size_t planning_task::mean_block() const {
  if (what.uniform || counts.empty()) return largest_block();
  double total = 0;
  for (const std::size_t n : counts) total += static_cast<double>(n);
  return static_cast<std::size_t>(std::ceil(total / static_cast<double>(counts.size())));
}

namespace {

planning_task checked(planning_task task) {
  const call& what = task.what;
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

}  // namespace

void check_counts(const call& what, int ranks, const std::vector<std::size_t>& counts) {
  const auto blocks = static_cast<std::size_t>(block_count(what.what, ranks));
  if (counts.size() == blocks) return;
  throw error(errc::invalid_argument, to_string(what) + " has " + std::to_string(blocks) +
                                          " blocks, but the sizes of " + std::to_string(counts.size()) + " were given");
}

planning_task make_task(const call& what, const layout& placement, const std::vector<std::size_t>* counts) {
  planning_task task{what, placement, reach_map{placement}, {}, rules_of(what, placement.size())};
  if (!what.uniform && counts) task.counts = *counts;
  if (!what.uniform) check_counts(what, task.ranks(), task.counts);
  return checked(std::move(task));
}

planning_task task_of_class(const call& what, const layout& placement, std::size_t largest) {
  planning_task task{what, placement, reach_map{placement}, {}, rules_of(what, placement.size())};
  task.what.count = largest;
  return checked(std::move(task));
}

bool may_run_ahead(const planning_task& task) {
  return task.what.agreement == agreement_time::eager && has_root(task.what.what) && task.what.uniform &&
         !traits_of(task.what.what).data_tell_all;
}

// -- shaping and pricing ----------------------------------------------------------------------------------------------

namespace {
/// Its sums are one pass of the kernel, which scales the inputs as it reads them if that is asked for.
bool needs_no_stage(const contender& c) {
  return c.lowered->sums_in_one_pass() && (!c.scales_reads || c.lowered->folds_inputs());
}
}  // namespace

contender plan_choice::consider(const std::string& name, const planning_task& task) {
  contender c;
  c.choreography = name;
  // One pass of the kernel scales and adds in f32, and rounds once by itself; anything else needs wide partial results, and inputs that
  // are scaled before.
  const bool one_pass = (task.rules.sums_in_f32 || task.rules.scaled) && task.ranks() > 1;
  if (one_pass) prepare(c, task, false, task.rules.scaled);
  if (!one_pass || !c.eligible() || !needs_no_stage(c)) {
    c = contender{};
    c.choreography = name;
    prepare_staged(c, task);
  }
  // Built-in ones have refused; a user's score says what it touches.
  if (c.eligible() && c.lowered->shares_memory && !task.where.why_apart().empty())
    c.why_rejected = "it reads or writes memory that all ranks reach, but " + task.where.why_apart();
  return c;
}

void plan_choice::prepare(contender& c, const planning_task& task, bool widened, bool scales_reads) {
  c.widened = widened;
  c.scales_reads = scales_reads;
  c.work_type = widened ? datatype::f32 : task.what.type;
  c.on.what = task.what.what;
  c.on.ranks = task.ranks();
  c.on.root = has_root(task.what.what) ? task.what.root : 0;
  const bool staged = widened || (task.rules.scaled && !scales_reads);
  c.on.in_place = task.what.in_place && agrees_on_place(task.what.what, task.what.uniform) && !staged;
  // What is staged, and a root, which alone knows whether its call is in place, is brought to what the user's score takes it for.
  if (staged || has_root(task.what.what)) c.on.in_place = library_.in_place(c.choreography).value_or(c.on.in_place);
  c.on.uniform = task.what.uniform;
  c.on.placement = task.placement;
  c.on.streams = options_.streams;
  c.on.through_scratch = options_.through_scratch;
  c.why_rejected = library_.refusal(c.choreography, c.on);
  if (c.eligible()) shape(c, task);
}

std::vector<contender> plan_choice::consider_all(const planning_task& task) {
  const std::vector<extent> extents = estimated(task);
  // Whoever cannot be verified says nothing about who takes too long.
  double least = std::numeric_limits<double>::infinity();
  for (const extent& e : extents)
    if (e.steps > 0 && e.too_large.empty()) least = std::min(least, e.steps);
  std::vector<contender> all;
  for (std::size_t i = 0; i < library_.names().size(); ++i) {
    const std::string& name = library_.names()[i];
    const extent& e = extents[i];
    if (e.too_large.empty() && (e.steps == 0 || e.steps <= std::max(most_steps_tried, many_times * least))) {
      all.push_back(consider(name, task));
      continue;
    }
    contender c;
    c.choreography = name;
    c.why_rejected = "on " + std::to_string(task.ranks()) + " ranks it " +
                     (e.too_large.empty() ? "takes about " + std::to_string(static_cast<long long>(e.steps / least)) +
                                                " times as many steps as others"
                                          : e.too_large);
    all.push_back(std::move(c));
  }
  return all;
}

namespace {

/// Of a score: what grows with the ranks.
struct measure_of_score {
  double steps = 0, lanes = 0, cells = 0;
};

measure_of_score measure(const score& s) {
  measure_of_score m{static_cast<double>(step_total(s)), 0, static_cast<double>(s.l2.size())};
  for (rank_t r = 0; r < s.ranks; ++r) {
    const part& player = s.players[static_cast<std::size_t>(r)];
    m.lanes += static_cast<double>(player.lanes.size());
    const int buffers =
        input_blocks(s.what, s.ranks, s.root, r).count + output_blocks(s.what, s.ranks, s.root, r).count;
    m.cells += static_cast<double>(player.scratch.size() + player.l0.size()) + static_cast<double>(buffers) * s.parts;
  }
  return m;
}

}  // namespace

/// Writing, pricing and verifying a score costs time and memory by the step, and some have n² steps. For many ranks its extent is
/// therefore guessed from the scores for 16 and for 32 ranks first. Nothing is known for few ranks, users' scores, and
/// choreographies that do not offer the collective.
std::vector<plan_choice::extent> plan_choice::estimated(const planning_task& task) {
  std::vector<extent> all(library_.names().size());
  if (task.ranks() <= few_ranks) return all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const choreography* which = find_choreography(library_.names()[i]);
    if (which == nullptr) continue;
    measure_of_score sizes[2];
    for (const int doubled : {0, 1}) {
      const stage small = flat_stage(task.what.what, doubled ? 32 : 16, 0, false, task.what.uniform);
      if (troupe::refusal(*which, small).empty()) sizes[doubled] = measure(lower_syncs(which->write(small)));
    }
    const auto grown = [&](double measure_of_score::*what) {
      if (sizes[0].*what <= 0 || sizes[1].*what <= 0) return 0.0;
      return sizes[1].*what * std::pow(task.ranks() / 32.0, std::log2(sizes[1].*what / sizes[0].*what));
    };
    all[i].steps = grown(&measure_of_score::steps);
    const auto about = [](double n) { return "about " + std::to_string(static_cast<long long>(n)); };
    if (const double lanes = grown(&measure_of_score::lanes); lanes > 1.01 * static_cast<double>(max_lanes))
      all[i].too_large = "has " + about(lanes) + " lanes, and the verifier takes at most " + std::to_string(max_lanes);
    else if (const double cells = grown(&measure_of_score::cells); cells > 1.01 * static_cast<double>(max_cells))
      all[i].too_large = "has " + about(cells) + " cells, and the verifier takes at most " + std::to_string(max_cells);
  }
  return all;
}

/// Chooses how to cut, and with it the lowering.
void plan_choice::shape(contender& c, const planning_task& task) {
  try {
    const bool split = c.rank_order_fold || !task.what.uniform;
    const auto whole = library_.get({c.choreography, c.on, split, c.rank_order_fold});
    c.seconds = std::numeric_limits<double>::infinity();
    if (!task.what.uniform && whole->touches_other_ranks) {
      c.cut = cutting{};
      c.lowered = whole;
      return;
    }
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
  const machine_constants machine = machine_.through_actors(bytes_a_core(task, size_class(bytes)), c.work_type);
  const double seconds =
      lowered->predict(bytes, cut, staging_bytes(c, task), machine) + machine_.actor_operation_seconds(task.ranks());
  if (!(seconds < c.seconds)) return;
  c.seconds = seconds;
  c.cut = cut;
  c.lowered = lowered;
}

/// Of all ranks' buffers, what each core has to do with.
double plan_choice::bytes_a_core(const planning_task& task, std::size_t block_bytes) const {
  const double block = static_cast<double>(block_bytes), blocks = traits_of(task.what.what).footprint(task.ranks());
  return std::max(1.0, block * blocks / std::max(1, std::min(machine_.machine.cores, task.ranks())));
}

/// What the options leave open. A channel's slice has at most about the chunk's bytes (part_begin rounds to 64 elements), and a
/// slice at least one element of the largest cell.
std::vector<cutting> plan_choice::cuts(const contender& c, const planning_task& task,
                                       const lowered_score& whole) const {
  const std::size_t cell =
      largest_part(task.largest_block(), static_cast<std::size_t>(std::max(1, whole.notes->parts)));
  if (cell == 0) return {cutting{}};
  std::vector<int> channels{options_.channels};
  if (options_.channels == 0) {
    channels = {1};
    for (int n = 2; n <= most_channels && n * task.ranks() <= machine_.machine.cores; n *= 2) channels.push_back(n);
  }
  const std::size_t chunk = options_.chunk_bytes > 0 ? options_.chunk_bytes
                            : whole.moves_chunks     ? automatic_chunk
                                                     : uncut_pass;
  const std::size_t chunk_elements = std::max<std::size_t>(1, chunk / size_of(c.work_type));
  std::vector<cutting> found;
  for (const int wanted : channels) {
    const std::size_t repeats =
        std::max<std::size_t>(1, most_instructions / std::max<std::size_t>(1, whole.single_steps));
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
/// Of all blocks together: every pair of ranks keeps room for its messages. Below, the cost model decides.
constexpr std::size_t most_slot_bytes = 64 * 1024;
/// Everybody with everybody: beyond, somebody else is always cheaper.
constexpr int most_direct_token_ranks = 16;
}  // namespace

std::string plan_choice::why_no_boards(const engine_options& options, const reach_map& where) {
  if (options.protocol == "simple") return "this engine has no boards to meet at, since its own protocol is simple";
  if (!where.why_apart().empty()) return where.why_apart();
  if (where.farthest() != reach::process) return "the ranks run in several processes";
  if (where.routed()) return "the layout places the ranks on several core groups, and boards bypass what is between";
  if (options.faults.any()) return "the faults that are asked for happen to messages between actors";
  return {};
}

std::string plan_choice::why_no_slots(const planning_task& task) const {
  const call& c = task.what;
  if (std::string why = why_no_boards(options_, task.where); !why.empty()) return why;
  if (task.ranks() > most_slot_ranks)
    return "slots are for at most " + std::to_string(most_slot_ranks) + " ranks, not " + std::to_string(task.ranks());
  if (!knows_all_blocks(c)) return "slots are for blocks whose sizes every rank knows";
  const bool single = block_count(c.what, task.ranks()) <= 1;
  const auto blocks = static_cast<std::size_t>(single ? 1 : task.ranks());
  const std::size_t block = task.largest_block() * (task.rules.sums_in_f32 ? sizeof(float) : size_of(c.type));
  if (block <= most_slot_bytes / blocks) return {};
  return "slots are for at most " + std::to_string(most_slot_bytes) + " bytes in all blocks together, not " +
         (blocks > 1 ? std::to_string(blocks) + " times " : "") + std::to_string(block);
}

namespace {
bool in_place_at_root(const contender& c) { return has_root(c.on.what) && c.on.in_place; }
constexpr const char* root_joins_buffers = "it is for a root in place, whose buffers only the actors bring together";
}  // namespace

void plan_choice::price_slots(contender& c, const planning_task& task) const {
  c.over_slots = {};
  if (!c.eligible()) return;
  const bool joins_staged = c.on.in_place && (c.widened || task.rules.scaled);
  const char* why_not = in_place_at_root(c)              ? root_joins_buffers
                        : joins_staged                   ? "its score is in place, and inputs are staged apart"
                        : c.lowered->touches_other_ranks ? "it reads or writes other ranks' memory"
                        : c.lowered->shares_memory       ? "it uses memory that ranks share"
                                                         : "";
  for (const slot_format format : {slot_format::ll, slot_format::ll128})
    if (*why_not != '\0') c.over(format).why_not = why_not;
    else c.over(format).seconds = seconds_over_slots(c, *c.lowered, format, task);
}

/// A message over slots is a few stores and a look; where ranks share cores, somebody else's turn.
double plan_choice::seconds_over_slots(const contender& c, const lowered_score& s, slot_format format,
                                       const planning_task& task) const {
  const std::size_t block = task.largest_block() * size_of(c.work_type);
  const double cell = static_cast<double>(block) / std::max(1, s.notes->parts);
  constexpr int no_limit = 64;
  return machine_.slot_operation_seconds() +
         timing_sheet(*s.notes).predict(
             cell, cutting{}, no_limit,
             machine_.over_slots(format, task.ranks(), bytes_a_core(task, block), c.work_type), staging_bytes(c, task));
}

void plan_choice::agree_over_slots(contender& c, const planning_task& task) {
  constexpr double never = std::numeric_limits<double>::infinity();
  if (c.over_slots[0].lowered || !std::isfinite(c.over_slots[0].seconds)) return;
  if (traits_of(task.what.what).data_tell_all) {
    for (contender::slot_way& way : c.over_slots) way.lowered = c.lowered;
    return;
  }
  const double alone[] = {c.over_slots[0].seconds, c.over_slots[1].seconds};
  c.over_slots.fill({never, "no form of agreement fits it", agreement_form::none, nullptr});
  for (const agreement_form form : agreement_forms) {
    const bool direct = form == agreement_form::direct;
    if (direct ? task.ranks() > most_direct_token_ranks : task.ranks() <= 2) continue;
    const auto made = library_.get({c.choreography, c.on, c.rank_order_fold, c.rank_order_fold, form});
    if (!made) continue;
    for (const slot_format format : {slot_format::ll, slot_format::ll128})
      if (const double seconds = seconds_over_slots(c, *made, format, task); seconds < c.over(format).seconds)
        c.over(format) = {seconds, {}, form, made};
  }
  if (!may_run_ahead(task)) return;
  // The agreement is made once in so many calls.
  for (std::size_t f = 0; f < c.over_slots.size(); ++f)
    if (contender::slot_way& way = c.over_slots[f]; std::isfinite(way.seconds))
      way.seconds = alone[f] + (way.seconds - alone[f]) / (most_ahead + 1);
}

bool plan_choice::fit_slots(contender& c, slot_format format, const planning_task& task) const {
  contender::slot_way& way = c.over(format);
  const call_shape sizes{task.largest_block(), {}, {}, {}, size_of(c.work_type)};
  if (!way.lowered->verified(1)->ok()) way.why_not = "the verifier found a fault";
  const std::size_t unit = size_of(unit_of(c.work_type, task.what.reduction.kind));
  for (rank_t r = 0; r < task.ranks() && way.why_not.empty(); ++r) {
    const program code = compile(*way.lowered->notes, r, sizes, cutting{});
    way.why_not = troupe::why_no_slots(code, format);
    if (way.why_not.empty()) way.why_not = why_torn(code, format, unit);
  }
  if (!way.why_not.empty()) way.seconds = std::numeric_limits<double>::infinity();
  return way.why_not.empty();
}

plan_choice::slot_choice plan_choice::best_over_slots(const std::vector<contender*>& all,
                                                      std::span<const slot_format> formats, const planning_task& task) {
  for (contender* c : all) price_slots(*c, task);
  while (true) {
    slot_choice first;
    for (contender* c : all)
      for (const slot_format format : formats) {
        const slot_choice next{c, format};
        if (c->eligible() && std::isfinite(next.seconds()) && (!first.who || next.seconds() < first.seconds()))
          first = next;
      }
    if (!first.who) return first;
    contender& c = *first.who;
    if (!c.settled) settle(c, task), price_slots(c, task);
    else if (!c.over(first.format).lowered) agree_over_slots(c, task);
    else if (fit_slots(c, first.format, task)) return first;
  }
}

// -- direct -----------------------------------------------------------------------------------------------------------

namespace {
/// Ranks look at each other's seats one by one.
constexpr int most_direct_ranks = 64;
}  // namespace

std::string plan_choice::why_not_direct(const planning_task& task) const {
  if (std::string why = why_no_boards(options_, task.where); !why.empty()) return why;
  if (task.ranks() < 2) return "a rank alone needs nobody's buffers";
  if (task.ranks() > most_direct_ranks)
    return "at most " + std::to_string(most_direct_ranks) + " ranks meet at the board, not " +
           std::to_string(task.ranks());
  return {};
}

void plan_choice::price_direct(contender& c, const planning_task& task) const {
  c.direct_seconds = std::numeric_limits<double>::infinity();
  c.why_not_direct.clear();
  if (!c.eligible()) return;
  const bool stages_factors = task.rules.scaled && !c.scales_reads;
  if (c.widened || stages_factors || in_place_at_root(c) || !c.lowered->touches_other_ranks) {
    c.why_not_direct = c.widened             ? "it widens its elements"
                       : stages_factors      ? "it multiplies its inputs before the first pass"
                       : in_place_at_root(c) ? root_joins_buffers
                                             : "it works on its own memory only";
    return;
  }
  const call_shape sizes{task.largest_block(), {}, {}, {}, size_of(c.work_type)};
  std::vector<std::shared_ptr<const program>> all;
  for (rank_t r = 0; r < task.ranks(); ++r)
    all.push_back(std::make_shared<const program>(compile(*c.lowered->notes, r, sizes, cutting{})));
  c.why_not_direct = troupe::why_not_direct(all);
  if (!c.why_not_direct.empty()) return;
  const std::size_t block_bytes = task.largest_block() * sizes.element_size;
  const direct_program made = compile_direct(all, {task.what.what, c.on.root, c.on.in_place});
  // At a root, input and output may be one memory: one pass may read what it writes, several may not.
  const auto passes = [](const direct_program::body& b) { return b.passes.size(); };
  if (keeps_input_apart(task.what.what, true) && std::ranges::max(made.bodies, {}, passes).passes.size() > 1) {
    c.why_not_direct = "its root takes several passes, which must not read what they have written";
    return;
  }
  // The same steps without messages are never slower.
  c.direct_seconds =
      std::min(c.seconds, machine_.direct_seconds(made, sizes, bytes_a_core(task, block_bytes), c.work_type));
}

contender* plan_choice::best_direct(const std::vector<contender*>& all, const planning_task& task) {
  for (contender* c : all) price_direct(*c, task);
  while (true) {
    contender* first = nullptr;
    for (contender* c : all)
      if (c->eligible() && std::isfinite(c->direct_seconds) && (!first || c->direct_seconds < first->direct_seconds))
        first = c;
    if (!first) return nullptr;
    if (!first->settled) {
      settle(*first, task), price_direct(*first, task);
      continue;
    }
    if (first->lowered->verified(1)->ok()) return first;
    first->direct_seconds = std::numeric_limits<double>::infinity();
    first->why_not_direct = "the verifier found a fault";
  }
}

// -- choosing ---------------------------------------------------------------------------------------------------------

contender* plan_choice::best(std::vector<contender>& all, const planning_task& task) {
  while (true) {
    contender* first = nullptr;
    for (contender& c : all)
      if (c.eligible() && std::isfinite(c.seconds) && (!first || c.seconds < first->seconds)) first = &c;
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
  // The fold may have torn a single pass apart; then it is staged after all.
  const bool staged = c.widened || (!task.rules.sums_in_f32 && !c.scales_reads);
  if (c.eligible() && !staged && !needs_no_stage(c)) {
    c.lowered.reset();
    prepare_staged(c, task);
  }
}

/// Whether a call is in place must not show in the bits either, as little as its size.
bool plan_choice::same_trees_in_place(const contender& c, const planning_task& task, const verdict& v) {
  if (!task.rules.trees.same_everywhere || task.rules.trees.left_fold || c.rank_order_fold) return true;
  // Where both kinds of call are staged, they are performed alike.
  const bool always_staged = task.rules.scaled && !c.scales_reads;
  stage other = c.on;
  other.in_place = !other.in_place;
  if (always_staged || !agrees_on_place(other.what, other.uniform) || !library_.refusal(c.choreography, other).empty())
    return true;
  const bool split = !task.what.uniform || c.cut != cutting{};
  const verdict& w = *library_.get({c.choreography, other, split, false})->verified(c.cut.slices);
  if (!w.ok() || !task.rules.trees.met_by(w)) return false;
  for (rank_t r = 0; r < other.ranks; ++r)
    if (tree_of(v, r, 0) != tree_of(w, r, 0)) return false;
  return true;
}

}  // namespace troupe
