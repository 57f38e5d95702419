// SPDX-License-Identifier: Apache-2.0
// troupe verify [FILE | --all]
#include "engine/tools/cli/cli.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include <nlohmann/json.hpp>

#include "engine/planning/choreography_wish.hpp"
#include "engine/planning/score_library.hpp"
#include "engine/tools/extent.hpp"
#include "memory/error.hpp"
#include "memory/large_pages.hpp"
#include "memory/read_file.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/agreement_round.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/rewriting.hpp"
#include "protocols/perform/program_proof.hpp"
#include "protocols/program/cells.hpp"
#include "protocols/verify/verifier.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe::cli {

namespace verify_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe verify --all --ranks 1-17
  troupe verify --all --ranks 24,31,32,64 --choreography ring
  troupe verify mine.json                     a score file
  troupe verify config/quickstart.toml        what that workload could perform

Every score is checked in and out of place, with blocks of one and of different sizes, for every root, whole and in three
slices, one by one and two in each step, with several numbers of streams where they matter, with 1, 2 and 8 credits (8 where a step has
two slices), on a flat layout and on every way of placing the ranks on servers × cards and on the core groups of one card, of up to 64
ranks also on groups of servers and on some servers of different sizes; with switches that reduce, where a choreography needs them. A
score that one credit does not let through as it is written is checked as it will be performed then: with its sends paced. What would
perform it is performed on symbols, too, and must come to the same: the programs that run by mailbox, of up to 64 ranks whole, on two
channels in three slices with two credits, in three slices with one, and with two of them a step; and those for slots or the direct board;
where a rank hears of the others by tokens only (broadcast, reduce, gather, scatter, scan, exscan over slots) with these in every form, of
up to 64 ranks.

It stops at nothing: all faults are counted, the first 20 are printed, each with rank, lane and step. Exit code 1 if there is one, 2 if there
is nothing to verify.)";

struct arguments {
  std::string file, ranks, collective, choreography;
  configuration_options config;
  bool all = false, json = false;
};

/// Scores to verify together: one choreography, one collective, one placement of the ranks.
struct task {
  const choreography* which = nullptr;
  collective what = collective::barrier;
  layout placement;
  std::optional<layout> unlike{};  ///< only if the score there is another one
};

constexpr int most_in_groups = 64;
/// Clocks are quadratic in the lanes.
constexpr int most_ranks_by_mailbox = 64;

std::vector<layout> placements(int ranks) {
  std::vector<layout> list{layout::flat(ranks)};
  if (ranks > 1) list.push_back(layout::grid(1, 1, ranks));
  for (int servers = 2; servers <= ranks; ++servers)
    if (ranks % servers == 0) list.push_back(layout::grid(servers, ranks / servers));
  for (int servers = 2; servers * 4 <= ranks; ++servers)  // three levels
    if (ranks % (2 * servers) == 0) list.push_back(layout::grid(servers, 2, ranks / (2 * servers)));
  if (ranks > most_in_groups) return list;
  for (int servers = 2; servers <= 3; ++servers)
    if (ranks > servers && ranks % servers != 0) list.push_back(layout::spread(ranks, servers));
  if (ranks > 3) list.push_back(layout::ragged(std::array{1, ranks - 1}));
  for (int pods = 2; pods * 2 <= ranks; ++pods)
    for (int servers = 2; pods * servers <= ranks; ++servers) {
      if (ranks % (pods * servers) != 0) continue;
      const int inside = ranks / (pods * servers);
      list.push_back(layout::nested(std::array{pods, servers, inside, 1}));
      if (inside % 4 == 0) list.push_back(layout::nested(std::array{pods, servers, inside / 2, 2}));
      if (servers % 4 == 0) list.push_back(layout::nested(std::array{pods, servers / 2, 2, inside, 1}));
    }
  return list;
}

/// Another layout on which most choreographies do the same: they need not be verified twice.
std::optional<layout> like(const layout& placement) {
  if (placement.is_flat()) return {};
  if (placement.outer.empty()) return layout::flat(placement.size());
  layout without_groups = placement;
  without_groups.outer.clear();
  return without_groups;
}

std::vector<rank_t> roots_of(collective what, int ranks) {
  std::vector<rank_t> roots{0};
  if (!has_root(what)) return roots;
  for (rank_t r = 1; r < ranks; ++r) roots.push_back(r);
  return roots;
}

std::string describe(const std::string& who, const setup& on) {
  std::string text = who + " " + std::string{name(on.what)} + ", " + plural(static_cast<std::size_t>(on.ranks), "rank");
  if (!on.placement.is_flat() || on.placement.reduces != fabric_reduction::none)
    text += " on " + on.placement.to_string();
  if (has_root(on.what)) text += ", root " + std::to_string(on.root);
  if (on.in_place) text += ", in place";
  if (!on.uniform) text += ", blocks of different sizes";
  if (on.through_scratch) text += ", through scratch";
  if (on.on_board) text += ", on a board";
  if (on.contiguous) text += ", contiguous";
  if (on.nics > 0) text += ", " + plural(static_cast<std::size_t>(on.nics), "NIC");
  if (on.streams != setup{}.streams) text += ", " + plural(static_cast<std::size_t>(on.streams), "stream");
  return text;
}

/// What has been verified so far, by all threads.
class tally {
public:
  /// @param limits how the score is to be performed
  void add(const std::string& title, const performing_limits& limits, const verdict& v) {
    ++scores;
    grouped += limits.slices_per_step > 1 ? 1 : 0;
    steps += v.steps;
    if (v.ok()) return;
    const std::lock_guard lock{mutex_};
    if (v.first_fault->too_large) {
      --scores;
      grouped -= limits.slices_per_step > 1 ? 1 : 0;
      if (++too_large_ == 1) first_too_large_ = title + ": " + v.first_fault->what;
      return;
    }
    if (++faults_ <= 20)
      texts_.push_back(title + ", " + plural(static_cast<std::size_t>(limits.credits), "credit") + ", " +
                       slices_text({1, limits.slices, limits.slices_per_step}) + ": " + to_string(*v.first_fault));
  }
  void fail(const std::string& text) {
    const std::lock_guard lock{mutex_};
    if (++faults_ <= 20) texts_.push_back(text);
  }

  bool empty() const { return scores == 0 && faults_ == 0 && too_large_ == 0; }

  /// {scores, two_slices_a_step, steps, programs, mailbox_programs, seconds, faults, first_faults [text], too_large}
  std::string json_text(double seconds) const {
    const nlohmann::ordered_json document{{"scores", scores.load()},
                                          {"two_slices_a_step", grouped.load()},
                                          {"steps", steps.load()},
                                          {"programs", programs.load()},
                                          {"mailbox_programs", mailbox_programs.load()},
                                          {"seconds", seconds},
                                          {"faults", faults_},
                                          {"first_faults", texts_},
                                          {"too_large", too_large_}};
    return document.dump(2) + "\n";
  }
  int code() const { return faults_ == 0 && scores > 0 ? exit_ok : exit_wrong; }

  int report(double seconds) const {
    for (const std::string& text : texts_) std::cerr << text << '\n';
    if (faults_ > texts_.size()) std::cerr << "… and " << faults_ - texts_.size() << " more\n";
    std::ostringstream time;
    time.precision(1);
    time << std::fixed << seconds;
    std::cout << plural(scores, "score") << " verified (" << plural(steps, "step") << "; two slices a step: " << grouped
              << "; programs for slots or the direct board: " << programs << ", by mailbox: " << mailbox_programs
              << "; " << time.str() << " s): "
              << (faults_ > 0   ? std::to_string(faults_) + " FAILED"
                  : scores == 0 ? "nothing is proved"
                                : "all right")
              << '\n';
    if (too_large_ > 0)
      std::cout << plural(too_large_, "score") << " not verified, the first of them " << first_too_large_ << '\n';
    return code();
  }

  std::atomic<std::size_t> scores{0}, steps{0};
  std::atomic<std::size_t> grouped{0};   ///< of the scores, with several slices a step
  std::atomic<std::size_t> programs{0};  ///< sets of them, for all ranks: for slots or the direct board
  std::atomic<std::size_t> mailbox_programs{0};

private:
  std::mutex mutex_;
  std::size_t faults_ = 0, too_large_ = 0;
  std::string first_too_large_;
  std::vector<std::string> texts_;
};

/// Blocks of different sizes, some of them empty.
std::vector<std::size_t> uneven_counts(const score& s) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(block_count(s.what, s.ranks)));
  for (std::size_t b = 0; b < counts.size(); ++b) counts[b] = b * 5 % (2 * static_cast<std::size_t>(s.parts) + 2);
  return counts;
}

/// Programs for slots and for the direct board, made of a score for one size and fitted to that of a small call, do what the verifier has
/// seen.
class program_prover {
public:
  /// @param whole as it is performed: cell by cell where blocks differ in size @param v what the verifier has found
  program_prover(std::string title, const score& whole, const verdict& v, bool uniform, tally& into)
      : title_(std::move(title)), whole_(whole), verified_(v), uniform_(uniform), into_(into) {
    planned_.count = 4 * static_cast<std::size_t>(whole.parts) + 3;
    shape_.count = 2 * static_cast<std::size_t>(whole.parts) + 1;
    if (!uniform) counts_ = uneven_counts(whole);
    shape_.counts = counts_;
  }

  void run() {
    const auto programs = programs_of(whole_);
    if (why_not_direct(programs).empty()) {
      const direct_setting setting{whole_.what, whole_.root, whole_.in_place};
      add("over the direct board", why_not_the_score({whole_, verified_, shape_}, compile_direct(programs, setting)));
    }
    if (!uniform_ && traits_of(whole_.what).v != v_counts::common) return;  // slots are for sizes that every rank knows
    if (!go_over_slots(programs)) return;
    if (everybody_hears_of_everybody(whole_)) return prove_slots("over slots", whole_, verified_, programs);
    // Else with tokens, whose form the planner chooses.
    if (whole_.ranks > most_ranks_with_tokens) return;
    for (const agreement_form form : agreement_forms)
      if (const auto agreed = with_agreement(whole_, form))
        prove_slots("over slots, agreement " + std::string{name(form)}, *agreed, verify(*agreed), programs_of(*agreed));
  }

private:
  /// The tokens of many ranks are many more than their data: 256 of a binomial broadcast take minutes.
  static constexpr int most_ranks_with_tokens = 64;

  using programs_of_ranks = std::vector<std::shared_ptr<const program>>;

  programs_of_ranks programs_of(const score& s) const {
    programs_of_ranks all;
    for (rank_t r = 0; r < s.ranks; ++r)
      all.push_back(std::make_shared<const program>(compile(s, r, planned_, cutting{})));
    return all;
  }
  static bool go_over_slots(const programs_of_ranks& programs) {
    return std::all_of(programs.begin(), programs.end(),
                       [](const auto& code) { return why_no_slots(*code, slot_format::ll128).empty(); });
  }
  void prove_slots(const std::string& port, const score& s, const verdict& v, const programs_of_ranks& programs) {
    if (!v.ok()) return add(port, to_string(*v.first_fault));
    if (!go_over_slots(programs)) return;
    std::vector<slot_program> over_slots;
    for (const auto& code : programs) {
      over_slots.push_back(compile_slots(*code, slot_format::ll128));
      fit(over_slots.back(), shape_);
    }
    add(port, why_not_the_score({s, v, shape_}, over_slots));
  }
  void add(const std::string& port, const std::string& difference) {
    ++into_.programs;
    if (!difference.empty()) into_.fail(title_ + ", " + port + ": " + difference);
  }

  std::string title_;
  const score& whole_;
  const verdict& verified_;
  bool uniform_;
  tally& into_;
  std::vector<std::size_t> counts_;
  call_shape planned_, shape_;
};

/// Programs that run by mailbox do what the verifier has seen: cut so, with so many credits.
void prove_by_mailbox(const std::string& title, const score& s, const verdict& v, const cutting& cut, int credits,
                      tally& into) {
  if (s.ranks > most_ranks_by_mailbox) return;
  const auto parts = static_cast<std::size_t>(s.parts);
  const std::size_t pieces = static_cast<std::size_t>(cut.channels) * static_cast<std::size_t>(cut.slices);
  call_shape planned, shape;
  planned.count = 4 * parts + 3;
  shape.count = (pieces + 1) * parts + 1;
  std::vector<std::size_t> counts;
  if (!s.uniform) counts = uneven_counts(s);
  shape.counts = counts;
  std::vector<std::shared_ptr<const program>> programs;
  for (rank_t r = 0; r < s.ranks; ++r) {
    auto made = std::make_shared<program>(compile(s, r, planned, cut));
    fit(*made, shape);
    programs.push_back(std::move(made));
  }
  ++into.mailbox_programs;
  const std::string difference = why_not_the_score({s, v, shape}, programs, credits);
  if (!difference.empty())
    into.fail(title + ", by mailbox, " + plural(static_cast<std::size_t>(cut.channels), "channel") + ", " +
              slices_text(cut) + ", " + plural(static_cast<std::size_t>(credits), "credit") + ": " + difference);
}

/// A score as it is performed: whole messages as they are; slices and blocks of different sizes cell by cell.
void verify_under_all_limits(const std::string& title, const score& written, bool uniform, tally& into) {
  const score whole = lower_syncs(written);
  const score cells = one_cell_per_step(whole);
  std::optional<score> paced;
  for (const int slices : {1, 3})
    for (const int credits : {1, 2, 8}) {
      const performing_limits limits{credits, slices};
      const score* performed = slices == 1 && uniform ? &whole : &cells;
      verdict v = verify(*performed, limits);
      if (!v.ok() && credits == 1) {
        if (!paced) paced = pace_sends(cells, 1);
        performed = &*paced;
        v = verify(*paced, limits);
      }
      into.add(title, limits, v);
      if (v.ok() && slices == 1 && credits == 8) program_prover(title, *performed, v, uniform, into).run();
      if (v.ok() && (slices == 1) == (credits == 8))
        prove_by_mailbox(title, *performed, v, {slices > 1 && credits == 2 ? 2 : 1, slices}, credits, into);
    }
  if (uses_l0(cells)) return;  // the same memory in every slice: its steps take one
  const performing_limits two_a_step{8, 3, 2};
  const verdict v = verify(cells, two_a_step);
  into.add(title, two_a_step, v);
  if (v.ok()) prove_by_mailbox(title, cells, v, {1, 3, 2}, two_a_step.credits, into);
}

std::vector<setup> variants(const task& t) {
  std::vector<setup> list;
  const int ranks = t.placement.size();
  const bool blocks = block_count(t.what, ranks) > 1 || (ranks == 1 && block_count(t.what, 2) > 1);
  for (const rank_t root : roots_of(t.what, ranks))
    for (const bool in_place : {false, true})
      for (const bool uniform : {true, false}) {
        if ((!uniform && !blocks) || (in_place && traits_of(t.what).place == in_place_rule::never)) continue;
        setup on = flat_setup(t.what, ranks, root, in_place, uniform);
        on.placement = t.placement;
        list.push_back(on);
        on.through_scratch = true;
        list.push_back(on);
        on.through_scratch = false;
        for (const int streams : {1, 2, 8}) {
          on.streams = streams;
          list.push_back(on);
        }
        on.streams = setup{}.streams;
        on.nics = 1;
        list.push_back(on);
        on.nics = 0;
        on.on_board = true;
        if (t.placement.is_flat()) list.push_back(on);
        on.on_board = false;
        on.contiguous = true;
        list.push_back(on);
      }
  return list;
}

void verify_task(const task& t, tally& into, const std::atomic<bool>& stop) {
  for (const setup& on : variants(t)) {
    if (stop) return;
    if (!refusal(*t.which, on).empty()) continue;
    const std::string title = describe(std::string{t.which->name}, on);
    try {
      const score s = write_score(*t.which, on);
      // Scores about which placement, scratch, streams or a board change nothing are verified already.
      setup plain = on;
      plain.through_scratch = false;
      plain.streams = setup{}.streams;
      plain.nics = 0;
      plain.on_board = false;
      plain.contiguous = false;
      const bool variant =
          on.through_scratch || on.on_board || on.contiguous || on.nics > 0 || on.streams != plain.streams;
      if (variant && write_score(*t.which, plain) == s) continue;
      plain = on;
      if (t.unlike) plain.placement = *t.unlike;
      if (t.unlike && refusal(*t.which, plain).empty() && write_score(*t.which, plain) == s) continue;
      verify_under_all_limits(title, s, on.uniform, into);
    } catch (const error& failure) {
      into.fail(title + ": " + failure.what());
    }
  }
}

/// All tasks on all cores, the longest first.
void verify_tasks(std::vector<task> tasks, tally& into, const std::atomic<bool>& stop, progress_line& line) {
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const task& a, const task& b) { return a.placement.size() > b.placement.size(); });
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t ended = 0;
  const auto work = [&] {
    for (std::size_t at = next++; at < tasks.size() && !stop; at = next++) verify_task(tasks[at], into, stop);
    const std::lock_guard lock{mutex};
    ++ended;
    changed.notify_one();
  };
  std::vector<std::thread> threads;
  try {
    for (int i = std::max(1, discover().usable_cpus()); i > 0; --i) threads.emplace_back(work);
  } catch (const std::system_error&) {  // fewer take longer
    if (threads.empty()) return work();
  }
  {
    std::unique_lock lock{mutex};
    while (!changed.wait_for(lock, std::chrono::milliseconds{200}, [&] { return ended == threads.size(); }))
      line.show(std::to_string(into.scores) + " scores, " + std::to_string(std::min(next.load(), tasks.size())) +
                " of " + std::to_string(tasks.size()) + " groups");
  }
  for (std::thread& t : threads) t.join();
  line.clear();
}

std::vector<const choreography*> selected_choreographies(const std::string& wanted) {
  std::vector<const choreography*> list;
  std::vector<std::string_view> names;
  for (const choreography* c : all_choreographies()) {
    names.push_back(c->name);
    if (wanted.empty() || wanted == c->name) list.push_back(c);
  }
  if (!list.empty()) return list;
  const auto near = closest(wanted, names);
  usage_error("there is no choreography \"" + wanted + "\"; " +
              (near.empty() ? "`troupe list` shows all" : "did you mean " + std::string{near} + "?"));
}

/// A user who asks for so many ranks hears at once that the score would not fit, not after minutes of swapping.
void check_extent(const task& t) {
  setup on = flat_setup(t.what, t.placement.size());
  on.placement = t.placement;
  if (const std::string why = too_many_steps(*t.which, on, bytes_of_a_verified_step); !why.empty())
    throw error(errc::out_of_memory, why);
}

bool is_refused(const choreography& which, collective what, const layout& placement) {
  setup on = flat_setup(what, placement.size());
  on.placement = placement;
  return !refusal(which, on).empty();
}

/// The same places with switches that reduce, for choreographies that need them.
std::vector<layout> with_switches(const choreography& which, collective what, const layout& placement) {
  std::vector<layout> list;
  if (!is_refused(which, what, placement)) return list;
  for (const auto reduces : {fabric_reduction::inside, fabric_reduction::between, fabric_reduction::both}) {
    layout reducing = placement;
    reducing.reduces = reduces;
    if (!is_refused(which, what, reducing)) list.push_back(std::move(reducing));
  }
  return list;
}

std::vector<task> tasks_of(const arguments& a) {
  std::optional<collective> only;
  if (!a.collective.empty()) only = parse_collective_option(a.collective);
  std::vector<task> tasks;
  for (const int ranks : parse_ranks(a.ranks.empty() ? "1-17" : a.ranks))
    for (const layout& placement : placements(ranks))
      for (const choreography* c : selected_choreographies(a.choreography))
        for (const collective what : c->collectives) {
          if (only && *only != what) continue;
          tasks.push_back({c, what, placement, like(placement)});
          for (layout& reducing : with_switches(*c, what, placement)) {
            const std::optional<layout> other = like(reducing);
            tasks.push_back({c, what, std::move(reducing), other});
          }
        }
  if (tasks.empty()) usage_error(a.choreography + " does not offer " + a.collective);
  for (const task& t : tasks) check_extent(t);
  return tasks;
}

int verify_score_file(const std::string& path, tally& into) {
  const file_text file = read_file(path, most_score_file_bytes);
  if (!file.problem.empty())
    usage_error(path + ": cannot be read: " + file.problem + "; give a score (JSON) or a configuration (TOML)");
  const score s = from_json(file.text, path);
  try {
    verify_under_all_limits(path, s, s.uniform, into);
  } catch (const error& failure) {
    into.fail(path + ": " + failure.what());
  }
  return exit_ok;
}

/// What a workload could perform: each run's choreography, or every one that offers the collective, on the workload's ranks.
std::vector<task> tasks_of_workload(const configuration& config, const std::string& path, tally& into) {
  const engine_options options = config.engine();
  const workload work = read_workload(config);
  const layout placement = first_places(options.layout, work.ranks);
  for (const auto& [own, file] : options.score_files) verify_score_file(file, into);
  std::vector<std::string> own_names;
  for (const auto& [own, file] : options.score_files) own_names.push_back(own);
  const std::vector<std::string> known = known_choreographies(own_names);
  std::set<std::pair<const choreography*, collective>> pairs;
  for (const job_group& group : work.groups)
    for (const job& j : group.jobs) {
      if (j.kind.send_recv) continue;
      const auto of = options.choreography_of.find(std::string{name(j.kind.what)});
      std::string wanted = !j.choreography.empty()               ? j.choreography
                           : of != options.choreography_of.end() ? of->second
                                                                 : options.choreography;
      const auto excluded = [&](std::string_view which) {
        const auto by = [&](std::string_view text) { return choreography_wish{text}.excludes(which, known); };
        return by(j.choreography) || by(options.choreography) ||
               (of != options.choreography_of.end() && by(of->second));
      };
      wanted = choreography_wish{wanted}.name;
      if (!wanted.empty() && find_choreography(wanted) == nullptr) continue;  // the user's own
      const auto offers = [&](const choreography* c) {
        return std::find(c->collectives.begin(), c->collectives.end(), j.kind.what) != c->collectives.end();
      };
      if (!wanted.empty() && !offers(find_choreography(wanted))) {
        if (!j.choreography.empty())
          usage_error(path + ": " + wanted + " does not offer " + std::string{name(j.kind.what)});
        wanted.clear();  // the engine's is a wish: the planner chooses where it offers nothing
      }
      for (const choreography* c : selected_choreographies(wanted))
        if (offers(c) && (!wanted.empty() || !excluded(c->name))) pairs.emplace(c, j.kind.what);
    }
  std::vector<task> tasks;
  for (const auto& [c, what] : pairs) tasks.push_back({c, what, placement, {}});
  return tasks;
}

configuration workload_of(const arguments& a) {
  return read_configuration(a.file, a.config.said(), {"engine.", "workload."});
}

int verify_all(const arguments& a) {
  put_heap_on_large_pages(computing_heap);
  if (a.all == !a.file.empty())
    usage_error(a.all ? "verify: give a FILE or --all, not both" : "verify: give a FILE, or --all");
  if (!a.file.empty() && !(a.ranks.empty() && a.collective.empty() && a.choreography.empty()))
    usage_error("verify: --ranks, --collective and --choreography belong to --all; a file says them itself");
  if (!a.config.assignments.empty() && !a.file.ends_with(".toml"))
    usage_error("verify: --set changes a configuration; give a FILE that is one (.toml)");
  if (a.config.dump && !a.file.ends_with(".toml"))
    usage_error("verify: --dump-config needs a FILE that is a configuration (.toml)");
  if (a.config.dump) return dump(workload_of(a));
  std::atomic<bool> stop{false};
  const interrupt_guard guard{[&] { stop = true; }};
  tally into;
  progress_line line;
  const auto begin = std::chrono::steady_clock::now();
  if (a.all) verify_tasks(tasks_of(a), into, stop, line);
  else if (a.file.ends_with(".toml")) verify_tasks(tasks_of_workload(workload_of(a), a.file, into), into, stop, line);
  else verify_score_file(a.file, into);
  if (into.empty() && !stop)
    usage_error(a.all ? "verify: nothing was verified: no choreography that was asked for can do it on these ranks"
                      : a.file + ": there is nothing to verify: it has no [[workload.run]] of a collective, and no "
                                 "[engine.score_files]");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (a.json && !stop) std::cout << into.json_text(seconds);
  const int code = a.json && !stop ? into.code() : into.report(seconds);
  if (!stop) return code;
  std::cerr << "troupe: interrupted\n";
  return exit_interrupted;
}

}  // namespace
}  // namespace verify_command

void add_verify(command program, action& chosen) {
  using namespace verify_command;
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command("verify", "prove scores right under every interleaving, and say how many");
  sub.add_option("file", a->file, "a score (JSON), or a configuration whose workload is meant").type_name("FILE");
  sub.add_flag("--all", a->all, "all built-in choreographies");
  sub.add_option("--ranks", a->ranks, "with --all: such as 1-17,24,31 (default 1-17)").type_name("LIST");
  sub.add_option("--collective", a->collective, "with --all: only this one").type_name("COLLECTIVE");
  sub.add_option("--choreography", a->choreography, "with --all: only this one").type_name("CHOREOGRAPHY");
  sub.add_flag("--json", a->json, "how many, and the first faults, as JSON");
  a->config.add_to(sub, "");
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return verify_all(*a); }; });
}

}  // namespace troupe::cli
