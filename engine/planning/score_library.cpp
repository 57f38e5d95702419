// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/score_library.hpp"

#include <algorithm>
#include <bit>
#include <sstream>

#include <spdlog/spdlog.h>

#include "memory/error.hpp"
#include "memory/read_file.hpp"
#include "memory/spelling.hpp"
#include "memory/word_hash.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/partition.hpp"
#include "protocols/offload/offload_compiler.hpp"
#include "protocols/offload/offload_proof.hpp"

namespace troupe {

namespace {

/// About 350 MB of steps; then all that no plan holds are forgotten.
constexpr std::size_t most_kept_steps = std::size_t{1} << 22;
/// Sheets of longer scores (a megabyte and more) are made anew for other sizes.
constexpr std::size_t most_steps_of_kept_sheet = std::size_t{1} << 15;
constexpr std::size_t most_kept_tallies = 4096;
constexpr std::size_t long_verification = std::size_t{2} << 20;  // steps × slices: some seconds

template <class Predicate>
bool any_place(const score& s, Predicate holds) {
  for (const part& player : s.players)
    for (const lane& l : player.lanes)
      for (const step& at : l)
        if ((at.source.count > 0 && holds(at.source)) || (at.target.count > 0 && holds(at.target))) return true;
  return false;
}

bool names_other_ranks(const score& s) {
  return any_place(s, [](const place& at) { return at.owner != self; });
}

bool names_l2(const score& s) {
  return any_place(s, [](const place& at) { return at.buffer == buffer_kind::l2; });
}

bool carries_data(const score& s) {
  for (const part& player : s.players)
    for (const lane& l : player.lanes)
      for (const step& at : l) {
        const bool moves = sends(at.kind) || at.kind == step_kind::dma_get || at.kind == step_kind::dma_put;
        if (moves && std::max(at.source.count, at.target.count) > 0) return true;
      }
  return false;
}

std::string score_text(const std::string& path) {
  file_text file = read_file(path, most_score_file_bytes);
  if (!file.problem.empty()) throw error(errc::io, "cannot read the score file " + path + ": " + file.problem);
  return std::move(file.text);
}

std::size_t hash_of(const score_key& key) {
  word_hash h;
  h.add(key.choreography);
  h.add(static_cast<std::uint64_t>(key.on.what));
  h.add(static_cast<std::uint64_t>(key.on.ranks));
  h.add(static_cast<std::uint64_t>(key.on.root));
  h.add((key.on.in_place ? 1u : 0u) | (key.on.uniform ? 2u : 0u) | (key.one_cell ? 4u : 0u) |
        (key.rank_order_fold ? 8u : 0u) | static_cast<unsigned>(key.agreement) << 4 | (key.on.on_board ? 128u : 0u) |
        static_cast<std::uint64_t>(key.pieces) << 8 | std::uint64_t{key.on.contiguous} << 63);
  return static_cast<std::size_t>(h.state);
}

bool same(const score_key& a, const score_key& b) {
  return a.choreography == b.choreography && a.on.what == b.on.what && a.on.ranks == b.on.ranks &&
         a.on.root == b.on.root && a.on.in_place == b.on.in_place && a.on.uniform == b.on.uniform &&
         a.on.streams == b.on.streams && a.on.nics == b.on.nics && a.on.through_scratch == b.on.through_scratch &&
         a.on.on_board == b.on.on_board && a.on.contiguous == b.on.contiguous && a.one_cell == b.one_cell &&
         a.rank_order_fold == b.rank_order_fold && a.agreement == b.agreement && a.pieces == b.pieces &&
         a.on.placement == b.on.placement;
}

}  // namespace

bool uses_l0(const score& s) {
  return std::ranges::any_of(s.players, [](const part& player) { return !player.l0.empty(); });
}

// -- lowered_score ----------------------------------------------------------------------------------------------------

lowered_score::lowered_score(score s, int credits, std::shared_ptr<spdlog::logger> log)
    : notes(std::make_shared<const score>(std::move(s))),
      steps(step_total(*notes)),
      single_steps(single_step_total(*notes)),
      touches_other_ranks(names_other_ranks(*notes)),
      uses_l2(names_l2(*notes)),
      moves_chunks(carries_data(*notes)),
      credits_(credits),
      log_(std::move(log)) {}

lowered_score::in_slices& lowered_score::of(const slice_order& slices) {
  const slice_order order = slices.shortened();
  for (in_slices& known : in_slices_)
    if (known.order == order) return known;
  return in_slices_.emplace_back(in_slices{order, nullptr, std::nullopt});
}

const std::shared_ptr<const verdict>& lowered_score::verified(const slice_order& slices) {
  in_slices& known = of(slices);
  if (known.verified) return known.verified;
  if (steps * static_cast<std::size_t>(known.order.slices) > long_verification)
    log_->warn("verifying {} for {} ranks: {} steps in {} slices, this takes a while (once)", notes->choreography,
               notes->ranks, steps, known.order.slices);
  known.verified =
      std::make_shared<const verdict>(verify(*notes, {credits_, known.order.slices, known.order.slices_per_step}));
  return known.verified;
}

bool lowered_score::agrees() {
  if (!agrees_) agrees_ = everybody_hears_of_everybody(*notes);
  return *agrees_;
}

/// The proof is for short blocks, of which some messages are one packet and some are several. @param as notes, or the same with its buffers in one place
std::string lowered_score::why_no_descriptors(const score& as) {
  // Cheap tests come first.
  const auto places = offload::behind_one_nic(*notes);
  if (std::string why = offload::why_not_offloaded(*notes, {credits_, places, 1}); !why.empty()) return why;
  if (!verified()->ok()) return "the verifier found a fault: " + to_string(*verified()->first_fault);
  return offload::why_not_performed(*notes, as, *verified(), credits_);
}

const std::string& lowered_score::why_not_offloaded() {
  if (!why_not_offloaded_) why_not_offloaded_ = why_no_descriptors(*notes);
  return *why_not_offloaded_;
}

bool lowered_score::offloads_at_root_in_place() {
  if (offloads_at_root_in_place_) return *offloads_at_root_in_place_;
  score aliased = *notes;
  aliased.in_place = true;
  offloads_at_root_in_place_ = holds_at_root_in_place() && why_no_descriptors(aliased).empty();
  return *offloads_at_root_in_place_;
}

std::uint64_t lowered_score::digest() {
  if (!digest_) digest_ = troupe::digest(*notes);
  return *digest_;
}

bool lowered_score::holds_at_root_in_place(const slice_order& slices) {
  in_slices& known = of(slices);
  auto& answer = known.root_in_place;
  if (answer) return *answer;
  const verdict& apart = *verified(slices);
  const verdict in_place = verify(root_in_place(*notes), {credits_, known.order.slices, known.order.slices_per_step});
  answer = in_place.ok();
  if (is_reduction(notes->what))
    for (std::int32_t c = 0; *answer && c < notes->parts; ++c)
      answer = tree_of(apart, notes->root, c) == tree_of(in_place, notes->root, c);
  return *answer;
}

bool lowered_score::sums_in_one_pass() {
  if (one_pass_) return *one_pass_;
  // Operands of ⊕ have no contribution in common, so a pass with n inputs has one rank's raw contribution in each.
  const auto all_in_passes = [this] {
    if (!notes->uniform || any_place(*notes, [](const place& at) { return at.count > 1; })) return false;
    for (const part& player : notes->players)
      for (const lane& l : player.lanes)
        for (const step& at : l)
          if (reduces(at.kind) && at.kind != step_kind::reduce) return false;
    call_shape shape;
    shape.count = static_cast<std::size_t>(notes->parts);
    for (rank_t r = 0; r < notes->ranks; ++r)
      for (const auto& l : compile(*notes, r, shape, {1, 1}).lanes)
        for (const instruction& i : l)
          if (reduces(i.kind) || (i.inputs > 1 && i.inputs != notes->ranks)) return false;
    return true;
  };
  one_pass_ = all_in_passes();
  return *one_pass_;
}

bool lowered_score::folds_inputs() {
  if (folds_inputs_) return *folds_inputs_;
  call_shape shape;
  shape.count = static_cast<std::size_t>(notes->parts);
  // A result of one rank's contribution alone (of scans) is copied, and no pass would scale it.
  const auto of_all = [this](rank_t r) {
    const int terms = contributor_count(notes->what, notes->ranks, notes->root, r);
    return terms == 0 || terms == notes->ranks;
  };
  folds_inputs_ = true;
  for (rank_t r = 0; r < notes->ranks && *folds_inputs_; ++r) {
    folds_inputs_ = of_all(r);
    const program code = compile(*notes, r, shape, {1, 1});
    for (const auto& l : code.lanes)
      for (const instruction& i : l)
        for (std::size_t k = 0; k < i.inputs && i.inputs > 1; ++k)
          folds_inputs_ = *folds_inputs_ && code.operands[i.operands + k].buffer == buffer_kind::input;
  }
  return *folds_inputs_;
}

double lowered_score::hops() {
  if (!sheet_) sheet_.emplace(*notes);
  return sheet_->hops(credits_);
}

double lowered_score::predict(std::size_t block_bytes, const cutting& cut, double staging_bytes,
                              const machine_constants& costs, const reach_map* where, const machine* elements) {
  const std::size_t bytes = size_class(block_bytes);
  const auto staged = size_class(static_cast<std::size_t>(std::min(staging_bytes, 9e18)));
  const price_key key{bytes,
                      static_cast<std::uint64_t>(cut.channels),
                      static_cast<std::uint64_t>(cut.slices),
                      static_cast<std::uint64_t>(cut.slices_per_step),
                      staged,
                      std::bit_cast<std::uint64_t>(costs.copy_rate),
                      std::bit_cast<std::uint64_t>(costs.reduce_rate)};
  if (const auto known = prices_.find(key); known != prices_.end()) return known->second;
  if (!sheet_) sheet_.emplace(*notes, where, elements);
  const double seconds = sheet_->predict(static_cast<double>(bytes) / std::max(1, notes->parts), cut, credits_, costs,
                                         static_cast<double>(staged));
  prices_.emplace(key, seconds);
  if (steps > most_steps_of_kept_sheet) sheet_.reset();
  return seconds;
}

// -- score_library ----------------------------------------------------------------------------------------------------

score_library::score_library(const std::map<std::string, std::string>& files, int credits,
                             std::shared_ptr<spdlog::logger> log)
    : credits_(credits), log_(std::move(log)) {
  for (const choreography* c : all_choreographies()) names_.emplace_back(c->name);
  for (const auto& [name, path] : files) {
    if (name == "auto" || find_choreography(name))
      throw error(errc::bad_config, "the score file " + path + " cannot be called " + name +
                                        ": a built-in choreography is; choose another name");
    score s = from_json(score_text(path), path);
    score lowered;
    try {
      lowered = lower_syncs(s);
    } catch (const error& e) {
      throw error(errc::bad_score, path + ": " + e.what());
    }
    if (s.partitions > 0)
      throw error(errc::bad_score,
                  path + " is partitioned already; a score that is performed is written for whole blocks, "
                         "and calls with partitions cut it");
    if (const verdict v = verify(credits_ == 1 ? pace_sends(lowered, 1) : lowered, {credits_, 1}); !v.ok())
      throw error(errc::bad_score, path + " does not verify: " + to_string(*v.first_fault));
    own_.emplace(name, std::move(s));
    files_.emplace(name, path);
    names_.push_back(name);
  }
}

bool score_library::has(std::string_view name) const { return find_choreography(name) || own_.contains(name); }

bool score_library::offers(std::string_view name, collective what) const {
  if (const auto mine = own_.find(name); mine != own_.end()) return mine->second.what == what;
  const choreography* c = find_choreography(name);
  return c && std::find(c->collectives.begin(), c->collectives.end(), what) != c->collectives.end();
}

std::string score_library::suggestion(std::string_view name) const {
  if (const std::string_view near = closest(name, std::vector<std::string_view>(names_.begin(), names_.end()));
      !near.empty())
    return "; did you mean " + std::string{near} + '?';
  std::string text = "; there are";
  for (std::size_t i = 0; i < names_.size(); ++i) text += (i ? ", " : " ") + names_[i];
  return text;
}

std::optional<bool> score_library::in_place(std::string_view name) const {
  const auto mine = own_.find(name);
  return mine == own_.end() ? std::nullopt : std::optional<bool>{mine->second.in_place};
}

std::string score_library::refusal(std::string_view name, const setup& on) const {
  const auto mine = own_.find(name);
  if (mine == own_.end()) return troupe::refusal(*find_choreography(name), on);
  const score& s = mine->second;
  const std::string& path = files_.find(name)->second;
  const auto is_for = [&](const std::string& has, const std::string& wanted) {
    return path + " is for " + has + ", not " + wanted;
  };
  if (s.what != on.what) return is_for(std::string{troupe::name(s.what)}, std::string{troupe::name(on.what)});
  if (s.ranks != on.ranks) return is_for(std::to_string(s.ranks) + " ranks", std::to_string(on.ranks));
  if (has_root(s.what) && s.root != on.root) return is_for("root " + std::to_string(s.root), std::to_string(on.root));
  if (s.in_place != on.in_place)
    return path + " is for calls that are " + (s.in_place ? "in place" : "out of place") +
           " (\"in_place\" in the file)";
  if (s.uniform && !on.uniform) return is_for("blocks of equal size", "of different sizes (\"uniform\" in the file)");
  if (!on.uniform && names_other_ranks(s))
    return path +
           " names other ranks' buffers, where blocks of different sizes have places that only their owner knows";
  return {};
}

namespace {

/// A user's score is proved to be one before anything takes its indices for granted.
score written(const choreography& which, const setup& on) {
  score s = write_score(which, on);
  if (!is_built_in(which))
    if (const verdict v = verify(s); !v.ok())
      throw error(v.first_fault->too_large ? errc::unsupported : errc::bad_score,
                  std::string{which.name} + " does not verify: " + to_string(*v.first_fault));
  return s;
}

}  // namespace

std::optional<score> score_library::draft(const score_key& key) const {
  const auto mine = own_.find(key.choreography);
  setup on = key.on;
  on.contiguous = on.contiguous && !key.one_cell && key.pieces == 0;
  score s = lower_syncs(mine != own_.end() ? mine->second : written(*find_choreography(key.choreography), on));
  s.choreography = key.choreography;
  if (key.rank_order_fold) s = fold_in_rank_order(s);
  if (key.one_cell) s = one_cell_per_step(std::move(s));
  if (key.pieces > 0) s = partition(s, key.pieces);
  if (key.agreement != agreement_form::none) {
    auto agreeing = with_agreement(s, key.agreement);
    if (!agreeing) return std::nullopt;
    s = std::move(*agreeing);
  }
  if (credits_ == 1) s = pace_sends(s, 1);
  return s;
}

std::shared_ptr<const score_tally> score_library::tally(std::string_view name, const setup& on) {
  const choreography* const which = own_.contains(name) ? nullptr : find_choreography(name);
  if (which == nullptr || !is_built_in(*which)) return nullptr;
  score_key key{std::string{name}, on};
  const std::size_t hash = hash_of(key);
  const auto [first, last] = tallies_.equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (same(at->second.first, key)) return at->second.second;
  if (tallies_.size() >= most_kept_tallies) tallies_.clear();
  auto made = std::make_shared<const score_tally>(tally_of(*which, on));
  tallies_.emplace(hash, std::pair{std::move(key), made});
  return made;
}

std::shared_ptr<lowered_score> score_library::get(const score_key& key) {
  const std::size_t hash = hash_of(key);
  const auto [first, last] = made_.equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (same(at->second.key, key)) return at->second.lowered;
  auto drafted = draft(key);
  auto lowered = drafted ? std::make_shared<lowered_score>(std::move(*drafted), credits_, log_) : nullptr;
  const std::size_t steps = lowered ? lowered->steps : 0;
  kept_steps_ += steps;
  if (kept_steps_ > most_kept_steps) {
    made_.clear();
    kept_steps_ = steps;
  }
  made_.emplace(hash, entry{key, lowered});
  return lowered;
}

}  // namespace troupe
