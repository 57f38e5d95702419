// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <shared_mutex>
#include <span>
#include <unordered_map>

#include <spdlog/spdlog.h>

#include "actors/ports/nic/nic_desk.hpp"
#include "engine/planning/choreography_library.hpp"
#include "engine/planning/choreography_wish.hpp"
#include "engine/planning/nic_choice.hpp"
#include "engine/planning/option_bounds.hpp"
#include "engine/planning/plan_choice.hpp"
#include "engine/planning/selection.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "memory/word_hash.hpp"
#include "protocols/program/completion.hpp"
#include "protocols/tiers.hpp"
#include "topology/reach.hpp"

namespace troupe {

namespace {

/// Plans hold their programs: at most about this many instructions of all ranks, then all are forgotten (users keep theirs).
constexpr std::size_t most_cached_instructions = std::size_t{1} << 23;
constexpr std::size_t most_cached_plans = 4096;
/// size_stable where ranks do not share memory: whoever is best at this size is chosen for all.
constexpr std::size_t reference_bytes = 64 * 1024;
constexpr std::size_t least_scratch_bytes = 4096;
/// Of all ranks, whose sizes a rank that knows its own lays out with every call.
constexpr std::int64_t most_own_blocks = 128 * 128;

// -- cache ------------------------------------------------------------------------------------------------------------

/// A key that refers to the caller's arguments, so that a look-up copies nothing.
struct plan_key_view {
  call_identity what;
  const layout& placement;
};

struct plan_key {
  explicit plan_key(const plan_key_view& of)
      : what(of.what), choreography(of.what.choreography), placement(of.placement) {}
  operator plan_key_view() const {  // NOLINT: a view of itself
    plan_key_view view{what, placement};
    view.what.choreography = choreography;
    return view;
  }

private:
  call_identity what;  ///< without counts
  std::string choreography;
  layout placement;
};

struct plan_key_hash {
  using is_transparent = void;
  std::size_t operator()(const plan_key_view& key) const {
    word_hash h;
    key.what.add_to(h);
    h.add(static_cast<std::uint64_t>(key.placement.size()));
    return static_cast<std::size_t>(h.state);
  }
};

struct plan_key_equal {
  using is_transparent = void;
  bool operator()(const plan_key_view& a, const plan_key_view& b) const {
    return a.what == b.what && (&a.placement == &b.placement || a.placement == b.placement);
  }
};

/// `count` of the class of those calls of which every rank knows some blocks only, planned for whatever sizes.
constexpr std::size_t any_size = static_cast<std::size_t>(-1);

/// The class, from the blocks of all ranks.
call_identity class_of(const call& what, const std::vector<std::size_t>& counts) {
  call_identity id = troupe::class_of(what);
  id.count = largest_of_class(counts.empty() ? 0 : std::ranges::max(counts));
  return id;
}

// -- forced choreographies --------------------------------------------------------------------------------------------

constexpr std::string_view only_direct = "it works on other ranks' buffers; of blocks of different sizes, and in other "
                                         "processes, only the direct port knows their places";

constexpr std::string_view nobody_in_one_pass =
    "no choreography that may perform it does so in one pass over all ranks' buffers";

struct forced_name {
  std::string name;  ///< empty: the planner chooses
  std::string by;    ///< who says so
};

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

}  // namespace

struct planner::impl {
  impl(const engine_options& o, const tuning* costs)
      : options(checked(o)),
        log(make_log(options.log_level)),
        library(options.score_files, options.credits, log),
        machine(costs != nullptr ? *costs : load_tuning(options)),
        choice(options, library, machine, machine_of_job) {
    check_names();
  }

  static engine_options checked(engine_options o) {
    for (const choreography* mine : o.choreographies) register_choreography(*mine);
    for (const auto& [name, file] : o.choreography_libraries) load_choreographies(file.c_str());
    const auto wrong = [](const std::string& text) { throw error(errc::bad_config, text); };
    const auto check_range = [&](const std::string& name, int value, int least, int most) {
      if (value < least || value > most)
        wrong(name + " is " + std::to_string(value) + "; it must be " + std::to_string(least) + " … " +
              std::to_string(most));
    };
    check_range("credits", o.credits, 1, most_credits);
    check_range("channels", o.channels, 0, most_channels_wanted);
    check_range("streams", o.streams, 1, most_streams);
    if (o.scratch_bytes < least_scratch_bytes)
      wrong("scratch_bytes is " + std::to_string(o.scratch_bytes) + "; staging needs at least " +
            std::to_string(least_scratch_bytes));
    if (!is_one_of(o.protocol, wanted_protocols))
      wrong("protocol is \"" + o.protocol + "\"; it must be " + choices_in_words(wanted_protocols));
    if (o.planner != "model" && o.planner != "hccl" && o.planner != "nccl")
      wrong("there is no planner " + o.planner + "; there are model, hccl and nccl");
    if (const nccl_options& n = o.nccl; n.channels < 1 || n.channels > 32 || !(n.inside > 0) || !(n.between > 0))
      wrong("nccl: channels must be 1 … 32, and inside and between more than 0 GB/s");
    return o;
  }

  void check_names() const {
    const auto check = [&](const std::string& name, const std::string& where) {
      if (const std::string wrong = wrong_choreography(name, library.names()); !wrong.empty())
        throw error(errc::bad_config, where + ": " + wrong);
    };
    check(options.choreography, "choreography");
    for (const auto& [collective_name, name] : options.choreography_of) {
      const auto what = parse_collective(collective_name);
      if (!what) throw error(errc::bad_config, "choreography of " + collective_name + ": there is no such collective");
      check(name, "choreography of " + collective_name);
      if (const choreography_wish wish{name}; !wish.name.empty() && !library.offers(wish.name, *what))
        throw error(errc::bad_config, "choreography of " + collective_name + ": " + name +
                                          " does not offer it; these do: " + join(offering(*what)));
    }
  }

  std::vector<std::string> offering(collective what) const {
    std::vector<std::string> names;
    for (const std::string& n : library.names())
      if (library.offers(n, what)) names.push_back(n);
    return names;
  }

  // -- what is forced --

  /// Who is named, by the call or by the options.
  forced_name named(const call& what) const {
    const auto named = [](const std::string& n) { return !choreography_wish{n}.name.empty(); };
    if (!what.choreography.empty())
      return named(what.choreography) ? forced_name{what.choreography, "the call"} : forced_name{};
    if (const auto own = options.choreography_of.find(std::string{name(what.what)});
        own != options.choreography_of.end())
      return named(own->second) ? forced_name{own->second, "the options for " + own->first} : forced_name{};
    return named(options.choreography) ? forced_name{options.choreography, "the options"} : forced_name{};
  }

  /// Who must perform `what`. The engine-wide name is a wish: where it cannot be fulfilled, the planner chooses. So is a selection, which
  /// has asked already (select_as).
  forced_name forced(const planning_task& task) {
    if (!task.selected.choreography.empty()) return {task.selected.choreography, task.selected.by};
    forced_name by = named(task.what);
    if (by.by != "the options") return by;
    const std::string why = why_not_performed(by.name, task);
    if (why.empty()) return by;
    log->info("{}: {} is not used: {}", to_string(task.what), by.name, why);
    return {};
  }

  /// Why a wish for `wanted` cannot be fulfilled; empty: it can, or is a fault that must be told.
  std::string why_not_performed(const std::string& wanted, const planning_task& task) {
    if (!library.offers(wanted, task.what.what)) return "it does not offer this";
    contender c = choice.contender_of(wanted, task);
    choice.consider(c, task);
    const bool somehow = std::isfinite(c.seconds) || choice.why_not_direct(task).empty();
    if ((c.eligible() && somehow) || c.faulty) return {};
    return c.eligible() ? std::string{only_direct} : c.why_rejected;
  }

  /// What the planner of the options makes of it, where nobody is named.
  selected_way selection(const planning_task& task) {
    if (options.planner == "model" || !named(task.what).name.empty()) return {};
    selected_way way = select_as(options, task, [&](const std::string& wanted, const planning_task& so) {
      const std::string by = excluded_by(wanted, task.what);
      return by.empty() ? why_not_performed(wanted, so) : "excluded by " + by;
    });
    if (!way.unused.empty()) log->info("{}: {}", to_string(task.what), way.unused);
    const bool over_slots = way.protocol == message_protocol::ll || way.protocol == message_protocol::ll128;
    if (const std::string why = over_slots ? why_not(way.protocol, task) : std::string{}; !why.empty())
      way.path.push_back("not by " + std::string{name(way.protocol)} + ", " + why +
                         "; the cost model chooses the protocol");
    return way;
  }

  /// Where all ranks share memory, one pass over everybody's buffers is hard to beat at large sizes, and it is a left fold; so that is the
  /// tree that all sizes share (size_stable), and what may be performed in other ways at other sizes.
  planning_task with_trees(planning_task task) {
    task.selected = selection(task);
    const bool shared = task.where.why_no_buffers().empty();
    if (task.rules.trees.same_everywhere && shared && forced(task).name.empty()) task.rules.trees.left_fold = true;
    return task;
  }

  /// Who says that the planner must not choose `which`; empty: nobody does.
  std::string excluded_by(std::string_view which, const call& what) const {
    const auto says = [&](const std::string& text, std::string who) {
      return choreography_wish{text}.excludes(which) ? std::move(who) + " (\"" + text + "\")" : std::string{};
    };
    if (std::string by = says(what.choreography, "the call"); !by.empty()) return by;
    const auto own = options.choreography_of.find(std::string{name(what.what)});
    if (own != options.choreography_of.end())
      if (std::string by = says(own->second, "the options for " + own->first); !by.empty()) return by;
    return says(options.choreography, "the options");
  }

  /// Those that are excluded are among them, rejected.
  std::vector<contender> contenders(const planning_task& task) {
    auto all = choice.all_contenders(task);
    for (contender& c : all) {
      const std::string by = excluded_by(c.choreography, task.what);
      if (by.empty()) continue;
      contender rejected;
      rejected.choreography = c.choreography;
      rejected.why_rejected = "excluded by " + by;
      c = std::move(rejected);
    }
    return all;
  }

  // -- choosing --

  /// All contenders, and which is the one.
  struct outcome {
    std::vector<contender> all;
    contender* chosen = nullptr;
    forced_name force;
    bool only = false;  ///< nobody but `chosen` may, because of who asked or of the bits that are promised
    message_protocol way = message_protocol::simple;  ///< how `chosen` performs it
    bool counts_told = false;                         ///< by the membership, which has heard of everybody then
    std::string why_not_so;                           ///< nobody may, because the call's protocol cannot do it

    bool is(const contender& c, message_protocol so) const { return &c == chosen && way == so; }
    double seconds() const { return plan_choice::option{chosen, way}.seconds(); }
  };

  outcome choose(const planning_task& task, bool everybody) {
    if (const std::string wrong = wrong_choreography(task.what.choreography, library.names());
        task.what.choreography.starts_with('^') && !wrong.empty())
      throw error(errc::unsupported, to_string(task.what) + ": " + wrong);
    outcome o;
    o.force = forced(task);
    std::string only = o.force.name;
    if (only.empty() && task.rules.trees.same_everywhere && !task.rules.trees.left_fold) only = reference_choice(task);
    if (only.empty() || everybody) o.all = contenders(task);
    std::vector<contender*> able;
    if (only.empty()) {
      for (contender& c : o.all) able.push_back(&c);
    } else {
      if (!library.has(only))
        throw error(errc::unsupported,
                    to_string(task.what) + ": there is no choreography " + only + library.suggestion(only));
      o.only = true;
      auto at = std::find_if(o.all.begin(), o.all.end(), [&](const contender& c) { return c.choreography == only; });
      if (at == o.all.end()) at = o.all.insert(o.all.end(), contender{});
      *at = choice.contender_of(only, task);
      able.push_back(&*at);
    }
    choose_among(o, able, task);
    return o;
  }

  message_protocol wanted_protocol(const call& what) const {
    if (what.protocol != message_protocol::unset) return what.protocol;
    return parse_message_protocol(options.protocol).value_or(message_protocol::automatic);
  }

  /// By the planner of the options, where nobody asks for another one.
  message_protocol selected_protocol(const outcome& o, const planning_task& task) const {
    const bool free = wanted_protocol(task.what) == message_protocol::automatic && o.force.by == task.selected.by;
    return free ? task.selected.protocol : message_protocol::automatic;
  }

  /// Why calls of the task cannot be performed so, whoever would, as the end of a sentence; empty if they can.
  std::string why_not(message_protocol how, const planning_task& task) const {
    if (how == message_protocol::ll || how == message_protocol::ll128) return choice.why_no_slots(task);
    if (how == message_protocol::simple) return {};
    if (std::string why = choice.why_not_direct(task); !why.empty()) return why;
    // Who can do it on lists was chosen before anybody asked for counts (make_plan_on_lists).
    return knows_all_blocks(task.what) ? std::string{} : std::string{nobody_in_one_pass};
  }

  /// The cheapest in any way, or in the one that is wanted. The options' wish that cannot be fulfilled leaves the choice free, the call's
  /// is an error.
  void choose_among(outcome& o, std::span<contender* const> able, const planning_task& task) {
    const message_protocol wanted = wanted_protocol(task.what);
    std::string why;
    if (wanted != message_protocol::automatic && wanted != message_protocol::simple) {
      why = why_not(wanted, task);
      if (why.empty()) take(o, choice.cheapest(able, std::array{wanted}, task));
      if (o.chosen) return;
      if (why.empty()) why = why_nobody(o, *able.front(), wanted, task);
      const bool anybody = std::ranges::any_of(able, [](const contender* c) { return c->eligible(); });
      if (task.what.protocol != message_protocol::unset) {
        if (anybody) o.why_not_so = "the call wants protocol " + std::string{name(wanted)} + ", but " + why;
        return;
      }
    }
    const message_protocol selected = selected_protocol(o, task);
    if (selected != message_protocol::automatic && selected != message_protocol::simple &&
        why_not(selected, task).empty())
      take(o, choice.cheapest(able, std::array{selected}, task));
    if (o.chosen) return;
    // Of ways that take as long as each other, the first.
    static constexpr std::array ways{message_protocol::direct, message_protocol::simple, message_protocol::ll128,
                                     message_protocol::ll};
    std::vector<message_protocol> open;
    std::ranges::copy_if(ways, std::back_inserter(open), [&](message_protocol how) {
      if (selected == message_protocol::simple && (how == message_protocol::ll128 || how == message_protocol::ll))
        return false;
      return how == message_protocol::simple || (wanted != message_protocol::simple && why_not(how, task).empty());
    });
    take(o, choice.cheapest(able, open, task));
    if (o.chosen && !why.empty())
      log->info("{}: not by protocol {}, but as the planner chooses: {}", to_string(task.what), name(wanted), why);
    if (!o.chosen && o.only && able.front()->eligible())
      o.why_not_so = able.front()->choreography + " cannot: " + std::string{only_direct};
  }

  static void take(outcome& o, const plan_choice::option& best) {
    o.chosen = best.who;
    o.way = best.how;
  }

  /// @param one who alone may, if anybody
  std::string why_nobody(const outcome& o, contender& one, message_protocol wanted, const planning_task& task) {
    const bool direct = wanted == message_protocol::direct;
    if (!o.only)
      return direct ? std::string{nobody_in_one_pass} : "no choreography that may perform it can: see troupe explain";
    // It may be known already that it cannot, but not why.
    choice.consider(one, task);
    if (direct) choice.price_direct(one, task);
    else choice.price_slots(one, format_of(wanted), task);
    return one.choreography + " cannot: " + (direct ? one.why_not_direct : one.over(format_of(wanted)).why_not);
  }

  /// So that agreement travels with the data. Where it cannot, the membership is asked. Returns what is performed.
  std::shared_ptr<lowered_score> agree_by_mailbox(bool& agrees, const contender& c, const planning_task& task) {
    agrees = traits_of(task.what.what).data_tell_all || c.lowered->agrees();
    const bool split = c.rank_order_fold || c.cut != cutting{};
    for (const agreement_form form : agreement_forms) {
      // In slices, tokens would be repeated with them; what takes so long can wait for the membership.
      if (agrees || c.cut != cutting{}) break;
      if ((form == agreement_form::direct) != (task.ranks() <= 2)) continue;
      auto with = library.get({c.choreography, c.on, split, c.rank_order_fold, form});
      if (!with || !with->verified(c.cut.slices)->ok()) continue;
      agrees = true;
      return with;
    }
    return c.lowered;
  }

  /// Sets the plan's port, and returns what is performed there.
  std::shared_ptr<lowered_score> choose_port(plan& made, const outcome& o, const planning_task& task) {
    const contender& c = *o.chosen;
    if (o.way == message_protocol::direct) {
      made.port = direct_plan{task.where.farthest() != reach::process};
      return c.lowered;
    }
    if (o.way != message_protocol::simple) {
      made.port = slots_plan{format_of(o.way)};
      return c.over(format_of(o.way)).lowered;
    }
    bool agrees = false;
    if (task.what.pieces > 0) {
      auto pieces = in_pieces(agrees, c, task);
      made.port = mailbox_plan{{}, options.credits, false, agrees};  // any_order would give nobody anything
      return pieces;
    }
    auto as = o.counts_told ? c.lowered : agree_by_mailbox(agrees, c, task);
    made.port = mailbox_plan{c.cut, options.credits, task.rules.any_order, agrees};
    return as;
  }

  /// The same without the agreement, for calls that may run ahead. Nobody is the earlier for it where the data tell all.
  static void let_run_ahead(plan& made, const contender& c, const planning_task& task) {
    if (!may_run_ahead(task)) return;
    made.gives_ahead = made.direct() != nullptr && !knows_all_blocks(task.what);
    // By mailbox, where tokens are not repeated with slices.
    const bool tokens = made.slots() != nullptr ? c.over(made.slots()->format).agreement != agreement_form::none
                                                : made.mailbox() != nullptr && made.agrees() && !c.lowered->agrees();
    if (!tokens || !c.lowered->verified(1)->ok()) return;
    const auto ahead = std::shared_ptr<plan>(new plan(made.with_score(c.lowered->notes, c.lowered->verified(1))));
    ahead->runs_ahead = true;
    // One answer for both, since a call is prepared before it is known which of them is performed.
    made.root_in_place = ahead->root_in_place = made.root_in_place && c.lowered->holds_at_root_in_place(1);
    made.divides = ahead->divides = made.divides && divides_in_steps(task.what, task.ranks(), *ahead->verified);
    made.ahead = ahead;
  }

  /// size_stable where ranks do not share memory: the same choice for all sizes, in place or not; empty if nobody can do both.
  std::string reference_choice(const planning_task& task) {
    planning_task reference = task;
    const std::size_t count = reference_bytes / size_of(task.what.type);
    reference.what.count = count;
    std::fill(reference.counts.begin(), reference.counts.end(), count);
    reference.what.in_place = !task.what.in_place;
    const auto others = considered(reference);
    reference.what.in_place = false;
    auto all = considered(reference);
    std::vector<contender*> able;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (others[i].eligible()) able.push_back(&all[i]);
    const contender* winner = choice.cheapest(able, std::array{message_protocol::simple}, reference).who;
    return winner ? winner->choreography : std::string{};
  }

  std::vector<contender> considered(const planning_task& task) {
    auto all = contenders(task);
    for (contender& c : all) choice.consider(c, task);
    return all;
  }

  [[noreturn]] void refuse(const planning_task& task, outcome& o) {
    const std::string title = to_string(task.what) + " on " + plural(static_cast<std::size_t>(task.ranks()), "rank");
    if (!o.why_not_so.empty()) throw error(errc::unsupported, title + ": " + o.why_not_so);
    if (!o.force.name.empty()) {
      const contender& c = o.all.front();
      if (c.faulty) throw error(errc::bad_score, title + ": " + c.choreography + ": " + c.why_rejected);
      std::vector<std::string> able;
      for (const contender& other : considered(task))
        if (other.eligible()) able.push_back(other.choreography);
      throw error(errc::unsupported, title + ": " + o.force.by + " wants " + c.choreography + ", but " +
                                         c.why_rejected + (able.empty() ? "" : "; these can: " + join(able)));
    }
    std::string text = title + ": no choreography can do it";
    bool faulty = false;
    for (const contender& c : o.all) {
      text += "\n  " + c.choreography + ": " + c.why_rejected;
      faulty = faulty || c.faulty;
    }
    throw error(faulty ? errc::bad_score : errc::unsupported, text);
  }

  /// A row for every protocol, with the reason where it cannot be performed so. One row if it cannot be performed at all.
  void append_rows(std::vector<candidate>& rows, contender& c, const outcome& o, const planning_task& task) {
    const auto add = [&](message_protocol how, const cutting& cut, double seconds, std::string why_not,
                         agreement_form agreement = agreement_form::none) {
      rows.push_back({c.choreography,
                      std::string{name(how)},
                      cut.channels,
                      cut.slices,
                      seconds,
                      std::move(why_not),
                      o.is(c, how),
                      {},
                      c.rank_order_fold,
                      agreement == agreement_form::none ? std::string{}
                      : may_run_ahead(task)             ? std::string{name(agreement_time::eager)}
                                                        : std::string{name(agreement)}});
    };
    const bool by_actors = !c.eligible() || std::isfinite(c.seconds);
    add(message_protocol::simple, c.cut, c.seconds, by_actors ? c.why_rejected : std::string{only_direct});
    if (!c.eligible()) return;
    const std::string no_slots = choice.why_no_slots(task), not_direct = choice.why_not_direct(task);
    if (no_slots.empty()) {
      for (const slot_format format : {slot_format::ll128, slot_format::ll}) choice.price_slots(c, format, task);
      choice.agree_over_slots(c, task);
    }
    for (const slot_format format : {slot_format::ll128, slot_format::ll}) {
      if (no_slots.empty() && std::isfinite(c.over(format).seconds)) choice.fit_slots(c, format, task);
      const auto& way = c.over(format);
      add(protocol_of(format), {}, way.seconds, no_slots.empty() ? way.why_not : no_slots, way.agreement);
    }
    if (not_direct.empty()) choice.price_direct(c, task);
    add(message_protocol::direct, {}, c.direct_seconds, not_direct.empty() ? c.why_not_direct : not_direct);
  }

  std::shared_ptr<plan> make_plan(const planning_task& task) {
    if (task.what.pieces > 0) return make_partitioned_plan(task);
    outcome o = choose(task, false);
    o.counts_told = !knows_all_blocks(task.what);
    if (!o.chosen) refuse(task, o);
    for (const contender& c : o.all)
      if (c.faulty) log->warn("{}: {} is not used: {}", to_string(task.what), c.choreography, c.why_rejected);
    return make_plan(task, o);
  }

  /// The whole call's choreography, by mailbox, cut into the caller's pieces and no further.
  std::shared_ptr<plan> make_partitioned_plan(planning_task task) {
    message_protocol& wanted = task.what.protocol;
    if (wanted != message_protocol::unset && wanted != message_protocol::automatic &&
        wanted != message_protocol::simple)
      throw error(errc::unsupported, to_string(task.what) + ": the call wants protocol " + std::string{name(wanted)} +
                                         ", but pieces travel by messages between the ranks only (protocol simple)");
    wanted = message_protocol::simple;
    outcome o = choose(task, false);
    if (!o.chosen) refuse(task, o);
    o.chosen->cut = {};
    auto made = make_plan(task, o);
    if (task.what.reduction.kind == op_kind::avg && is_reduction(task.what.what) && task.ranks() > 1 && !made->divides)
      throw error(errc::unsupported, to_string(task.what) + ": " + made->choreography +
                                         " divides averages at the end only; use sum, or another choreography");
    return made;
  }

  /// Tokens once an operation, beside the pieces.
  std::shared_ptr<lowered_score> in_pieces(bool& agrees, const contender& c, const planning_task& task) {
    const bool split = c.rank_order_fold;
    score_key key{
        c.choreography, c.on, split, c.rank_order_fold, agreement_form::none, static_cast<int>(task.what.pieces)};
    auto plain = library.get(key);
    if (const verdict& v = *plain->verified(1); !v.ok())
      throw error(v.first_fault->rank < 0 ? errc::unsupported : errc::bad_score,
                  to_string(task.what) + ": " + c.choreography + ": " + to_string(*v.first_fault));
    agrees = traits_of(task.what.what).data_tell_all || plain->agrees();
    for (const agreement_form form : agreement_forms) {
      if (agrees) break;
      if ((form == agreement_form::direct) != (task.ranks() <= 2)) continue;
      key.agreement = form;
      auto with = library.get(key);
      if (!with || !with->verified(1)->ok()) continue;
      agrees = true;
      return with;
    }
    return plain;
  }

  /// By the direct port, where ranks read each other's lists; null: the call has to wait for all ranks' counts.
  std::shared_ptr<plan> make_plan_on_lists(const planning_task& task) {
    const message_protocol wanted = wanted_protocol(task.what);
    // The options' wish for slots cannot be fulfilled, so it leaves the choice free; the call's is an error then.
    const bool insists = task.what.protocol != message_protocol::unset || wanted == message_protocol::simple;
    if (insists && wanted != message_protocol::automatic && wanted != message_protocol::direct) return nullptr;
    if (!choice.why_not_direct(task).empty()) return nullptr;
    outcome o;
    o.force = forced(task);
    if (o.force.name.empty() && !excluded_by("fused", task.what).empty()) return nullptr;
    o.all.push_back(choice.contender_of(o.force.name.empty() ? "fused" : o.force.name, task));
    contender* const one = &o.all.front();
    take(o, choice.cheapest(std::span{&one, 1}, std::array{message_protocol::direct}, task));
    return o.chosen ? make_plan(task, o) : nullptr;
  }

  /// By mailbox between processes, where each rank makes do with the sizes that it knows of itself; null: as above.
  std::shared_ptr<plan> make_plan_of_own_blocks(const planning_task& task) {
    const message_protocol wanted = task.what.protocol;
    const bool mailbox = wanted == message_protocol::unset || wanted == message_protocol::automatic ||
                         wanted == message_protocol::simple;
    if (!mailbox || task.where.farthest_link() == reach::process || task.where.routed()) return nullptr;
    // How many pieces staging memory needs depends on all ranks' sizes.
    if (options.through_scratch || task.selected.through_scratch) return nullptr;
    if (block_count(task.what.what, task.ranks()) > most_own_blocks) return nullptr;
    outcome o;
    o.force = forced(task);
    if (o.force.name.empty()) o.all = contenders(task);
    else o.all.push_back(choice.contender_of(o.force.name, task));
    std::vector<contender*> able;
    for (contender& c : o.all) {
      choice.consider(c, task);
      if (c.eligible() && needs_only_own_blocks(*c.lowered->notes)) able.push_back(&c);
    }
    take(o, choice.cheapest(able, std::array{message_protocol::simple}, task));
    if (!o.chosen) return nullptr;
    o.chosen->cut = {};  // who knows how long they are
    return make_plan(task, o);
  }

  std::shared_ptr<plan> make_plan(const planning_task& task, const outcome& o) {
    const contender& c = *o.chosen;
    auto made = std::make_shared<plan>();
    made->choreography = c.choreography;
    made->count = moves_data(task.what.what) ? task.what.count : 0;
    made->work_type = c.work_type;
    made->widened = c.widened;
    made->scaled = task.rules.scaled && !c.scales_reads;
    made->scales_reads = c.scales_reads;
    made->predicted_seconds = o.seconds();
    made->in_place = c.on.in_place;
    const std::shared_ptr<lowered_score> as = choose_port(*made, o, task);
    const cutting cut = made->cut();
    made->notes = as->notes;
    made->verified = as->verified(cut.slices);
    if (has_root(task.what.what) && !made->in_place) made->root_in_place = as->holds_at_root_in_place(cut.slices);
    const slots_plan* slots = made->slots();
    made->divides = slots == nullptr && divides_in_steps(task.what, task.ranks(), *made->verified);
    let_run_ahead(*made, c, task);
    made->identity = made->computed_identity(as->digest());
    const bool as_priced =
        !made->divides && !made->scales_reads && c.on.in_place == (made->in_place || made->root_in_place);
    if (made->direct() != nullptr && as_priced) made->direct()->programs.set(0, 1, c.direct);
    const auto agreement = slots != nullptr ? c.over(slots->format).agreement : agreement_form::none;
    log->debug("{}: {}, {}, agreement {}{}, {} channels, {} slices, predicted {:.1f} us", to_string(task.what),
               c.choreography, name(made->protocol()), name(agreement), made->may_run_ahead() ? " or ahead of it" : "",
               cut.channels, cut.slices, made->predicted_seconds * 1e6);
    return made;
  }

  // -- by the process's NIC --

  nic_choice choose_for_nic(std::vector<contender>& all, const planning_task& task) {
    if (std::string why = why_not_by_nic(task, options); !why.empty()) return {nullptr, 0, std::move(why)};
    if (const forced_name force = forced(task); force.name.empty()) all = contenders(task);
    else if (library.has(force.name)) all.push_back(choice.contender_of(force.name, task));
    return troupe::choose_for_nic(all, choice, library, task, machine, options.credits, options.nic != "process");
  }

  /// Null: it goes as calls go that nobody wants to offload.
  std::shared_ptr<plan> make_plan_for_nic(const planning_task& task) {
    std::vector<contender> all;
    const nic_choice chosen = choose_for_nic(all, task);
    if (chosen.who == nullptr) {
      // Who has asked for all hears of the first one that is not, though there was something to do; `troupe explain` tells of each.
      const bool asked = options.offload == "always" && task.ranks() > 1 && !std::exchange(told_of_offload, true);
      log->log(asked ? spdlog::level::warn : spdlog::level::info, "{}: not offloaded: {}", to_string(task.what),
               chosen.why_not);
      return nullptr;
    }
    const contender& c = *chosen.who;
    auto made = std::make_shared<plan>();
    made->choreography = c.choreography;
    made->count = moves_data(task.what.what) ? task.largest_block() : 0;
    made->work_type = c.work_type;
    made->widened = c.widened;
    made->scaled = task.rules.scaled;
    made->in_place = c.on.in_place;
    made->predicted_seconds = chosen.seconds;
    made->port = nic_plan{options.credits, actors::nic_packet_bytes, task.where.hosts()};
    made->notes = c.lowered->notes;
    made->verified = c.lowered->verified(1);
    if (has_root(task.what.what) && !made->in_place) made->root_in_place = c.lowered->offloads_at_root_in_place();
    made->identity = made->computed_identity(c.lowered->digest());
    log->debug("{}: offloaded, {}, predicted {:.1f} us", to_string(task.what), c.choreography, chosen.seconds * 1e6);
    return made;
  }

  /// For all of its class, as plan_of(). @pre what.offload
  std::shared_ptr<const plan> plan_for_nic(const call& what, const layout& placement) {
    if (!knows_all_blocks(what)) return nullptr;  // why_not_by_nic()
    if (!what.uniform) check_counts(what, placement.size(), what.counts);
    const plan_key_view key{troupe::class_of(what), placement};
    return cached_or(key, [&] {
      auto made = make_plan_for_nic(with_trees(task_of_class(what, placement, key.what.count)));
      if (made) made->exact = false;
      return made;
    });
  }

  /// All sizes of a class share the choice, the score, its proof and its programs. Null: made only with all ranks' counts.
  std::shared_ptr<const plan> plan_of(const call& what, const layout& placement,
                                      const std::vector<std::size_t>* counts) {
    if (what.offload) [[unlikely]] {
      try {
        if (auto by_nic = plan_for_nic(what, placement)) return by_nic;
      } catch (const error&) {}  // the other way says what is wrong, or that only the largest of the class is too large
      call otherwise = what;
      otherwise.offload = false;
      return plan_of(otherwise, placement, counts);
    }
    const bool on_lists = !knows_all_blocks(what) && counts == nullptr;
    if (!knows_all_blocks(what) && counts != nullptr)
      if (auto without = plan_of(what, placement, nullptr)) return without;
    if (!what.uniform && !on_lists) check_counts(what, placement.size(), counts != nullptr ? *counts : what.counts);
    plan_key_view key{what.uniform || counts == nullptr ? troupe::class_of(what) : class_of(what, *counts), placement};
    const std::size_t largest = key.what.count;
    if (on_lists) key.what.count = any_size;
    try {
      return cached_or(key, [&] {
        const std::size_t most = on_lists ? reference_bytes / size_of(what.type) : largest;
        const planning_task task = with_trees(task_of_class(what, placement, most));
        auto made = on_lists ? make_plan_on_lists(task) : make_plan(task);
        if (on_lists && !made) made = make_plan_of_own_blocks(task);
        if (made) made->exact = false;
        return made;
      });
    } catch (const error&) {
      if (!what.uniform || largest == what.count) throw;
    }
    // The largest of the class is too large for what is forced, and this size perhaps not.
    key.what = identity_of(what);
    return cached_or(key, [&] { return make_plan(with_trees(make_task(what, placement, nullptr))); });
  }

  // -- in tiers --

  /// Why its stages, or what is asked for, do not allow it, as the end of a sentence; empty: they do.
  std::string why_not_in_tiers(const call& what) const {
    if (std::string why = why_no_tiers(what); !why.empty()) return why;
    if (what.offload) return "the NIC is asked to perform it";
    if (!what.choreography.empty()) return "the call says who may perform it: " + what.choreography;
    if (options.planner != "model") return "the planner " + options.planner + " knows no tiers";
    if (const forced_name by = named(what); !by.name.empty()) return by.by + " name " + by.name;
    if (wanted_protocol(what) != message_protocol::automatic)
      return "the protocol is to be " + std::string{name(wanted_protocol(what))};
    return {};
  }

  /// Not under the lock, which each stage's plan takes.
  tiers_prospect make_in_tiers(call what, const layout& placement, int of_host) {
    tiers_prospect found;
    found.why_not = why_not_in_tiers(what);
    if (!found.why_not.empty()) return found;
    what.count = largest_of_class(what.count);
    const layout host = layout_of_host(placement, of_host), first = layout_of_first_ranks(placement, of_host);
    const int hosts = first.size();
    const auto plan_of_tier = [&](tier which, const layout& where) {
      return plan_of(call_of_tier(what, which, hosts, of_host), where, nullptr);
    };
    tiers_plan stages{of_host, plan_of_tier(tier::collect, host), nullptr, plan_of_tier(tier::spread, host)};
    const auto across = plan_of_tier(tier::across, first);
    const std::array all{stages.collect, across, stages.spread};
    if (std::ranges::any_of(all, [](const auto& p) { return !p || p->widened; }))
      found.why_not = "its sums are made in a wider type, and would be rounded between the stages";
    else if (!stages.collect->on_board() || !stages.spread->on_board())
      found.why_not = "what a host's ranks do of it is not performed over memory that they share";
    else if (across->mailbox() == nullptr) found.why_not = "its hosts' first ranks do not send messages";
    if (!found.why_not.empty()) return found;
    // The same for ranks of other numbers.
    const auto renamed = std::shared_ptr<plan>(new plan(across->with_score(across->notes, across->verified)));
    renamed->ahead = nullptr;
    std::get<mailbox_plan>(renamed->port).stride = of_host;
    stages.across = renamed;
    auto made = std::make_shared<plan>();
    made->choreography =
        "tiers: " + stages.collect->choreography + ", " + across->choreography + ", " + stages.spread->choreography;
    made->count = what.count;
    made->exact = false;
    made->work_type = what.type;
    for (const auto& p : all) made->predicted_seconds += p->predicted_seconds;
    made->port = std::move(stages);
    made->identity = made->computed_identity(0);
    const auto other = plan_of(what, placement, nullptr);
    found.other_seconds = other ? other->predicted_seconds : std::numeric_limits<double>::infinity();
    found.how = std::move(made);
    return found;
  }

  std::shared_ptr<const plan> plan_in_tiers(const call& what, const layout& placement, int of_host) {
    const plan_key_view key{troupe::class_of(what), placement};
    {
      const std::shared_lock lock(cache_mutex);
      if (const auto known = tiers.find(key); known != tiers.end()) return known->second;
    }
    tiers_prospect found = make_in_tiers(what, placement, of_host);
    if (found.how != nullptr)
      log->debug("{}: {}, predicted {:.1f} us, else {:.1f}: {}", to_string(what), found.how->choreography,
                 found.how->predicted_seconds * 1e6, found.other_seconds * 1e6,
                 found.chosen() ? "chosen" : "not chosen");
    const std::unique_lock lock(cache_mutex);
    if (tiers.size() >= most_cached_plans) tiers.clear();  // users keep theirs
    return tiers.emplace(plan_key{key}, found.chosen() ? std::move(found.how) : nullptr).first->second;
  }

  template <class Make>
  std::shared_ptr<const plan> cached_or(const plan_key_view& key, Make&& make) {
    if (const auto known = cached(key)) return *known;
    const std::lock_guard lock(planning);
    if (const auto known = cached(key)) return *known;
    std::shared_ptr<const plan> made = make();
    keep(key, made);
    return made;
  }

  std::optional<std::shared_ptr<const plan>> cached(const plan_key_view& key) {
    const std::shared_lock lock(cache_mutex);
    const auto found = cache.find(key);
    return found == cache.end() ? std::nullopt : std::optional{found->second};
  }

  void keep(const plan_key_view& key, const std::shared_ptr<const plan>& made) {
    const std::size_t weight = !made ? 1
                                     : step_total(*made->notes) * static_cast<std::size_t>(made->cut().slices) *
                                           static_cast<std::size_t>(made->cut().channels);
    decltype(cache) forgotten;  // destroyed outside the lock
    const std::unique_lock lock(cache_mutex);
    cached_instructions += weight;
    if (cached_instructions > most_cached_instructions || cache.size() >= most_cached_plans) {
      cache.swap(forgotten);
      cached_instructions = weight;
    }
    cache.emplace(plan_key{key}, made);
  }

  engine_options options;
  std::shared_ptr<spdlog::logger> log;
  bool told_of_offload = false;
  score_library library;
  tuning machine;
  std::optional<tuning> machine_of_job;  ///< under `planning`
  plan_choice choice;
  std::mutex planning;  ///< held while a plan is made, so that ranks that ask for the same at once make it once
  std::shared_mutex cache_mutex;  ///< a shared lock an operation and rank
  std::unordered_map<plan_key, std::shared_ptr<const plan>, plan_key_hash, plan_key_equal> cache;
  std::size_t cached_instructions = 0;
  decltype(cache) tiers;  ///< null: not so; under `cache_mutex`, too
};

planner::planner(const engine_options& options) : impl_(std::make_unique<impl>(options, nullptr)) {}
planner::planner(const engine_options& options, const tuning& machine)
    : impl_(std::make_unique<impl>(options, &machine)) {}
planner::~planner() = default;

const tuning& planner::machine() const { return impl_->machine; }

void planner::agree_on(std::span<const double> costs) {
  const std::lock_guard lock(impl_->planning);
  impl_->machine_of_job = with_costs(impl_->machine, costs);
}

bool planner::has_boards(const layout& placement) const {
  return placement.size() <= most_slot_ranks &&
         plan_choice::why_no_boards(impl_->options, reach_map{placement}).empty();
}

std::shared_ptr<const plan> planner::plan_for(const call& what, const layout& placement,
                                              const std::vector<std::size_t>* counts) {
  return impl_->plan_of(what, placement, counts);
}

std::shared_ptr<const plan> planner::plan_in_tiers(const call& what, const layout& placement, int of_host) {
  return impl_->plan_in_tiers(what, placement, of_host);
}

tiers_prospect planner::tiers_of(const call& what, const layout& placement, int of_host) {
  return impl_->make_in_tiers(what, placement, of_host);
}

/// The use of a memo, for as long as it lives.
class plan_memo::use {
public:
  explicit use(plan_memo& of) : of_(of), alone_(!of.taken_.exchange(true, std::memory_order_acquire)) {}
  ~use() {
    if (alone_) of_.taken_.store(false, std::memory_order_release);
  }
  use(const use&) = delete;
  use& operator=(const use&) = delete;
  explicit operator bool() const { return alone_; }

private:
  plan_memo& of_;
  bool alone_;
};

std::shared_ptr<const plan> planner::plan_again(const call& what, plan_memo& last) {
  const plan_memo::use mine{last};
  return mine && last.plan_ && last.own_ == identity_of(what) ? last.plan_ : nullptr;
}

std::shared_ptr<const plan> planner::plan_for(const call& what, const layout& placement, plan_memo& last, int of_host) {
  const auto planned = [&] {
    auto in_tiers = of_host > 0 ? plan_in_tiers(what, placement, of_host) : nullptr;
    return in_tiers ? in_tiers : plan_for(what, placement);
  };
  const plan_memo::use mine{last};
  if (!mine) return planned();
  if (last.plan_ && class_of(last.what_) == class_of(what) && (!last.plan_->exact || last.what_.count == what.count))
    return last.plan_;
  const auto made = planned();
  if (!made) return nullptr;
  // Ranks that share a plan would otherwise fight for its reference count with every call.
  auto own = std::make_shared<std::shared_ptr<const plan>>(made);
  const plan* target = made.get();
  last.plan_ = nullptr;  // until the call is there, too
  last.what_ = what;
  last.own_ = identity_of(last.what_);
  last.plan_ = std::shared_ptr<const plan>(std::move(own), target);
  return last.plan_;
}

offload_prospect planner::offload_of(const call& what, const layout& placement,
                                     const std::vector<std::size_t>* counts) {
  const std::lock_guard lock(impl_->planning);
  std::vector<contender> all;
  const nic_choice chosen = impl_->choose_for_nic(all, impl_->with_trees(make_task(what, placement, counts)));
  if (chosen.who == nullptr) return {{}, 0, chosen.why_not};
  const offload_wish wish = offload_wish_of(impl_->options);
  return {chosen.who->choreography,
          chosen.seconds,
          {},
          wants_offload(wish, what, placement.size(), false),
          wants_offload(wish, what, placement.size(), true),
          impl_->options.nic != "process"};
}

offload_wish offload_wish_of(const engine_options& options) {
  return options.offload == "never"  ? offload_wish::never
         : options.offload == "auto" ? offload_wish::automatic
                                     : offload_wish::always;
}

bool wants_offload(offload_wish wish, const call& what, int ranks, bool started) {
  if (wish != offload_wish::automatic) return wish == offload_wish::always;
  if (!what.uniform)
    return started && knows_all_blocks(what) &&
           std::accumulate(what.counts.begin(), what.counts.end(), std::size_t{0}) >=
               least_offloaded_bytes / size_of(what.type);
  const auto blocks = static_cast<std::size_t>(block_count(what.what, ranks) == 1 ? 1 : ranks);
  return started && moves_data(what.what) && what.count >= least_offloaded_bytes / size_of(what.type) / blocks;
}

std::vector<std::string> planner::path(const call& what, const layout& placement,
                                       const std::vector<std::size_t>* counts) {
  const std::lock_guard lock(impl_->planning);
  return impl_->with_trees(make_task(what, placement, counts)).selected.path;
}

std::string planner::asked() const {
  const std::string& who = impl_->options.planner;
  return who == "hccl" ? "HCCL's selection" : who == "nccl" ? "NCCL's tuning model" : "";
}

std::vector<candidate> planner::candidates(const call& what, const layout& placement,
                                           const std::vector<std::size_t>* counts) {
  const auto on_lists = knows_all_blocks(what) ? nullptr : impl_->plan_of(what, placement, nullptr);
  const std::lock_guard lock(impl_->planning);
  const planning_task task = impl_->with_trees(make_task(what, placement, counts));
  auto o = impl_->choose(task, true);
  for (contender& c : o.all) impl_->choice.consider(c, task);
  // What needs nobody's counts goes first, whatever the counts are.
  if (on_lists)
    for (contender& c : o.all)
      if (c.choreography == on_lists->choreography) o.chosen = &c, o.way = on_lists->protocol();
  // Folding in rank order changes prices, and only a verified score says whether it is needed.
  if (task.rules.trees.any())
    for (contender& c : o.all)
      while (c.eligible() && !c.settled) impl_->choice.settle(c, task);
  std::vector<candidate> list;
  for (contender& c : o.all) impl_->append_rows(list, c, o, task);
  std::stable_sort(list.begin(), list.end(), [](const candidate& a, const candidate& b) {
    if (a.eligible() != b.eligible()) return a.eligible();
    return a.eligible() && a.predicted_seconds < b.predicted_seconds;
  });
  return list;
}

}  // namespace troupe
