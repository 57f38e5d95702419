// SPDX-License-Identifier: Apache-2.0
// Candidates that may be the cheapest: what a choreography takes at least, before its score is written, and which are not worth a try for so many
// ranks.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/planning/plan_choice.hpp"
#include "engine/planning/plan_limits.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/verify/verifier_structure.hpp"

namespace troupe {

namespace {

/// Scores with fewer steps than this are tried on any number of ranks; longer ones if they are not so many times longer than others.
constexpr double most_steps_tried = 30'000;
constexpr double many_times = 8;
/// Up to here steps are counted at once; beyond, who does much more than others is found out by a guess from fewer ranks, …
constexpr int most_counted_ranks = 32;
/// … which is right to a few hundredths where a choreography is regular; this much of it is taken for certain.
constexpr double sure_of_guess = 0.75;
using verifying::max_cells;
using verifying::max_lanes;

/// As prices are shared by a class of sizes.
double class_of_staging(double bytes) {
  return static_cast<double>(size_class(static_cast<std::size_t>(std::min(bytes, 9e18))));
}

}  // namespace

/// What it takes at least, in whichever of the forms write() will find.
void plan_choice::bound(contender& c, const planning_task& task, bool counted) {
  contender staged = c;
  frame(staged, task, task.rules.sums_in_f32, false);
  c.least.fill(never);
  c.counted = counted;
  if (staged.eligible()) lower_bounds(c, staged, task);
  c.why_rejected = staged.why_rejected;
  if (!may_take_one_pass(task)) return;
  contender at_once = c;
  frame(at_once, task, false, task.rules.scaled);
  if (!at_once.eligible()) return;
  lower_bounds(c, at_once, task);
  c.why_rejected.clear();
}

namespace {
setup fewer_ranks(const setup& on, int ranks) {
  setup small = on;
  small.ranks = ranks;
  small.root = 0;
  small.placement = layout::flat(ranks);
  return small;
}
/// Of something that is so much for 16 and for 32 ranks.
double as_power(double sixteen, double thirty_two, int ranks) {
  if (sixteen <= 0 || thirty_two <= 0) return 0;
  return thirty_two * std::pow(ranks / 32.0, std::log2(thirty_two / sixteen));
}
/// The same of what grows at least with the logarithm of the ranks.
double as_logarithm(double sixteen, double thirty_two, int ranks) {
  return thirty_two + (thirty_two - sixteen) * std::log2(ranks / 32.0);
}
}  // namespace

/// For 16 and for 32 ranks, if the task is for many more; counting takes time by the step. Empty: no guess.
plan_choice::tally_list plan_choice::small_tallies(const contender& form, const planning_task& task) {
  tally_list found;
  if (task.ranks() <= most_counted_ranks || task.placement != layout::flat(task.ranks())) return found;
  for (const int ranks : {16, 32}) {
    const setup small = fewer_ranks(form.on, ranks);
    auto tally =
        library_.refusal(form.choreography, small).empty() ? library_.tally(form.choreography, small) : nullptr;
    if (!tally) return {};
    found.push_back(std::move(tally));
  }
  return found;
}

/// Messages that follow one another at least; where ranks are so many that a guess will do. A score for 32 ranks is soon written.
double plan_choice::fewest_hops(const contender& form, const planning_task& task) {
  if (task.ranks() <= few_ranks || small_tallies(form, task).empty()) return 0;
  double hops[2];
  for (const int doubled : {0, 1})
    hops[doubled] = library_.get({form.choreography, fewer_ranks(form.on, doubled ? 32 : 16)})->hops();
  return std::max(0.0, as_logarithm(hops[0], hops[1], task.ranks()));
}

least_time plan_choice::least_time_of(const score_tally& tally, message_protocol how, const contender& form,
                                      const planning_task& task) const {
  const double staging = staging_bytes(form, task), parts = std::max(1, tally.parts);
  if (how == message_protocol::simple) {
    const std::size_t bytes = size_class(task.mean_block() * size_of(form.work_type));
    return least_of(tally, static_cast<double>(bytes) / parts, least_through_actors(task, bytes, form.work_type),
                    class_of_staging(staging), wanted_channels(task) > 0 ? wanted_channels(task) : most_channels_tried,
                    task.where.nearest_link());
  }
  const std::size_t block = task.largest_block() * size_of(form.work_type);
  return least_of(tally, static_cast<double>(block) / parts,
                  costs(task).over_slots(format_of(how), task.ranks(), bytes_a_core(task, block), form.work_type),
                  staging);
}

/// With the fewest elements that any message passes: the way out of one core group's memory and into another's, and what joins the two.
machine_constants plan_choice::least_through_actors(const planning_task& task, std::size_t bytes, datatype type) const {
  constexpr int fewest_elements = 3;
  machine_constants m = through_actors(task, bytes, type);
  const bool all_apart = task.placement.is_grid() && task.placement.ranks_per_core_group == 1;
  if (task.where.routed() && all_apart)
    m.messages[static_cast<std::size_t>(task.where.nearest_link())].message += fewest_elements * m.element;
  return m;
}

void plan_choice::lower_bounds(contender& c, const contender& form, const planning_task& task) {
  tally_list tallies;
  if (!c.counted) tallies = small_tallies(form, task);
  if (tallies.empty()) {
    c.counted = true;
    tallies.push_back(task.ranks() > 1 ? library_.tally(c.choreography, form.on) : nullptr);
  }
  if (!tallies.front()) return c.least.fill(0);
  const double hops = fewest_hops(form, task);
  const auto seconds = [&](message_protocol how, double message) {
    least_time least = least_time_of(*tallies.back(), how, form, task);
    if (!c.counted) {
      const least_time half = least_time_of(*tallies.front(), how, form, task);
      // Some hand the work of what is beyond a power of two to the others.
      const int ranks = static_cast<int>(std::bit_floor(static_cast<unsigned>(task.ranks())));
      least.work = sure_of_guess * as_power(half.work, least.work, ranks);
      least.path = as_logarithm(half.path, least.path, ranks);
    }
    return std::max(least.seconds(), hops * message);
  };
  const auto lower = [&c](message_protocol how, double least) {
    double& known = c.least[static_cast<std::size_t>(how)];
    known = std::min(known, least);
  };
  const double by_actors =
      costs(task).actor_operation_seconds(task.where.most_ranks_of_computer()) +
      seconds(message_protocol::simple,
              least_through_actors(task, 1, form.work_type).over(task.where.nearest_link()).message);
  lower(message_protocol::simple, by_actors);
  const bool touches = tallies.back()->touches_other_ranks;
  // As price_direct(): a barrier is what ranks do at the board anyway.
  if (touches || !moves_data(task.what.what))
    lower(message_protocol::direct, std::min(by_actors, costs(task).direct_operation_seconds(task.ranks())));
  if (touches) return;
  for (const slot_format format : {slot_format::ll128, slot_format::ll})
    lower(protocol_of(format),
          costs(task).slot_operation_seconds() +
              seconds(protocol_of(format),
                      costs(task).over_slots(format, task.ranks(), 1, form.work_type).over(reach::process).message));
}

std::vector<contender> plan_choice::all_contenders(const planning_task& task) {
  const std::vector<extent> extents = estimated(task);
  // A candidate that cannot be verified sets no bound for the others.
  double least = std::numeric_limits<double>::infinity();
  for (const extent& e : extents)
    if (e.steps > 0 && e.too_large.empty()) least = std::min(least, e.steps);
  std::vector<contender> all;
  for (std::size_t i = 0; i < library_.names().size(); ++i) {
    const std::string& name = library_.names()[i];
    const extent& e = extents[i];
    // Blocks of different sizes are a message each by any way but the board.
    const bool at_board = e.touches_other_ranks && !task.what.uniform;
    const std::size_t a_rank = at_board ? most_exchange_steps_a_rank : most_steps_a_rank;
    const double most = std::max({most_steps_tried, many_times * least, static_cast<double>(a_rank) * task.ranks()});
    if (e.too_large.empty() && (e.steps == 0 || e.steps <= most)) {
      all.push_back(contender_of(name, task));
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

/// Something that is so much for two numbers of servers (or ranks), one double the other, for as many as there are.
struct samples {
  layout small, doubled;
  double doublings = 0;  ///< from the second one on; negative: between the two, or before
};

/// The same along each of more than two levels, from few members of all others.
std::vector<samples> samples_along(const choreographies::nested_groups& groups) {
  const int few = std::max(2, 7 - groups.depth());
  std::vector<int> base = groups.extents();
  for (int& members : base) members = std::min(members, few);
  std::vector<samples> found;
  for (std::size_t level = 0; level < base.size(); ++level) {
    const int members = groups.extents()[level];
    if (members == base[level]) continue;
    std::vector<int> doubled = base;
    doubled[level] *= 2;
    found.push_back({groups.like(base), groups.like(doubled), std::log2(members / (2.0 * base[level]))});
  }
  if (found.empty()) found.push_back({groups.like(base), groups.like(base), 0});
  return found;
}

/// The growth along servers, or flat ranks, and then along the cards of a server, from grids of few of both: hierarchies grow with the
/// square of the one and the logarithm of the other, so that what flat layouts of as many ranks say is many times too much.
std::vector<samples> samples_of(const layout& on) {
  if (on.uniform() && !on.is_flat())
    if (const choreographies::nested_groups groups{on}; groups.depth() > 2) return samples_along(groups);
  if (on.is_flat()) return {{layout::flat(16), layout::flat(32), std::log2(on.size() / 32.0)}};
  constexpr int few_cards = 4, few_servers = 8;
  const int servers = on.server_count(), cards = on.size() / servers, fewer = std::min(cards, few_cards);
  std::vector<samples> found{{layout::grid(few_servers, fewer), layout::grid(2 * few_servers, fewer),
                              std::log2(servers / (2.0 * few_servers))}};
  if (cards > fewer)
    found.push_back(
        {layout::grid(few_servers, fewer), layout::grid(few_servers, 2 * fewer), std::log2(cards / (2.0 * fewer))});
  return found;
}

}  // namespace

/// Writing, pricing and verifying a score costs time and memory by the step, and some have n² steps. For many ranks its extent is
/// therefore guessed from scores for few ranks first. Nothing is known for few ranks, users' scores, and choreographies that do not offer
/// the collective.
std::vector<plan_choice::extent> plan_choice::estimated(const planning_task& task) {
  std::vector<extent> all(library_.names().size());
  if (task.ranks() <= few_ranks) return all;
  const std::vector<samples> along = samples_of(task.placement);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<std::array<std::shared_ptr<const score_tally>, 2>> sizes;
    for (const samples& s : along) {
      sizes.emplace_back();
      for (const bool doubled : {false, true}) {
        setup small =
            flat_setup(task.what.what, doubled ? s.doubled.size() : s.small.size(), 0, false, task.what.uniform);
        small.placement = doubled ? s.doubled : s.small;
        if (library_.refusal(library_.names()[i], small).empty())
          sizes.back()[doubled] = library_.tally(library_.names()[i], small);
      }
    }
    if (std::any_of(sizes.begin(), sizes.end(), [](const auto& two) { return !two[0] || !two[1]; })) continue;
    const auto grown = [&](auto count) {
      double whole = 0;
      for (std::size_t a = 0; a < along.size(); ++a) {
        const double small = count(*sizes[a][0]), doubled = count(*sizes[a][1]);
        if (small <= 0 || doubled <= 0) return 0.0;
        // Along the cards it is told from the same few servers how many times as much it is.
        whole = (a == 0 ? doubled : whole * doubled / small) * std::pow(doubled / small, along[a].doublings);
      }
      return whole;
    };
    all[i].steps = grown([](const score_tally& t) { return static_cast<double>(t.steps()); });
    all[i].touches_other_ranks = sizes.front()[0]->touches_other_ranks;
    const auto about = [](double n) { return "about " + std::to_string(static_cast<long long>(n)); };
    if (const double lanes = grown([](const score_tally& t) { return static_cast<double>(t.lanes); });
        lanes > 1.01 * static_cast<double>(max_lanes))
      all[i].too_large = "has " + about(lanes) + " lanes, and the verifier takes at most " + std::to_string(max_lanes);
    else if (const double cells = grown([](const score_tally& t) { return static_cast<double>(t.cells); });
             cells > 1.01 * static_cast<double>(max_cells))
      all[i].too_large = "has " + about(cells) + " cells, and the verifier takes at most " + std::to_string(max_cells);
  }
  return all;
}

}  // namespace troupe
