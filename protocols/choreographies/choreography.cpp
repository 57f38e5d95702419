// SPDX-License-Identifier: Apache-2.0
#include "protocols/choreographies/choreography.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <mutex>
#include <string>

#include "memory/error.hpp"
#include "memory/short_lock.hpp"
#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe {

namespace {

namespace c = choreographies;
constexpr auto built_in = std::to_array<const choreography*>({&c::ring,
                                                              &c::double_binary_tree,
                                                              &c::binomial,
                                                              &c::recursive_doubling,
                                                              &c::halving_doubling,
                                                              &c::pairwise,
                                                              &c::direct_full_mesh,
                                                              &c::staged_pairwise,
                                                              &c::bruck,
                                                              &c::hierarchical,
                                                              &c::hierarchical_pipeline,
                                                              &c::csc,
                                                              &c::fused,
                                                              &c::one_shot,
                                                              &c::pat,
                                                              &c::nhr,
                                                              &c::nb,
                                                              &c::chained_double_tree,
                                                              &c::hierarchical_hd,
                                                              &c::hierarchical_nhr,
                                                              &c::hierarchical_nb,
                                                              &c::nvls,
                                                              &c::nvls_tree,
                                                              &c::collnet_direct,
                                                              &c::collnet_chain,
                                                              &c::grouped,
                                                              &c::ring_per_nic,
                                                              &c::tree_per_nic,
                                                              &c::one_copy,
                                                              &c::each_a_copy});

/// Only grows, in place: spans of it stay valid.
struct registry {
  std::array<const choreography*, 256> all{};
  std::atomic<std::size_t> count{built_in.size()};
  short_lock growing;
  registry() { std::copy(built_in.begin(), built_in.end(), all.begin()); }
};
registry& known() {
  static registry them;
  return them;
}

std::string what_is_wrong(const choreography& which) {
  const auto letter = [](char l) { return std::isalnum(static_cast<unsigned char>(l)) || l == '_' || l == '-'; };
  if (which.name.empty() || !std::all_of(which.name.begin(), which.name.end(), letter))
    return "its name must be of letters, digits, _ and -";
  if (which.name == "auto") return "auto is the planner's own choice; choose another name";
  if (which.collectives.empty()) return "it offers no collective";
  if (which.refuses == nullptr) return "it has no function `refuses`";
  for (const offer& each : which.collectives)
    if (static_cast<score (*)(const setup&)>(each.write) == nullptr)
      return "it has no function that writes " + std::string{name(static_cast<collective>(each.what))};
  return {};
}

}  // namespace

std::span<const choreography* const> all_choreographies() {
  return {known().all.data(), known().count.load(std::memory_order_acquire)};
}

bool is_built_in(const choreography& which) {
  return std::find(built_in.begin(), built_in.end(), &which) != built_in.end();
}

void register_choreography(const choreography& which) {
  registry& in = known();
  const std::lock_guard lock(in.growing);
  const choreography* const same = find_choreography(which.name);
  if (same == &which) return;
  std::string wrong = what_is_wrong(which);
  if (wrong.empty() && same != nullptr) wrong = "there is one of that name; choose another name";
  const std::size_t count = in.count.load(std::memory_order_relaxed);
  if (wrong.empty() && count == in.all.size())
    wrong = "there are " + std::to_string(count) + " already, and room for no more";
  if (!wrong.empty())
    throw error(errc::bad_config, "the choreography '" + std::string{which.name} + "' cannot be registered: " + wrong);
  in.all[count] = &which;
  in.count.store(count + 1, std::memory_order_release);
}

const choreography* find_choreography(std::string_view name) {
  const auto all = all_choreographies();
  const auto found = std::find_if(all.begin(), all.end(), [&](const choreography* c) { return c->name == name; });
  return found == all.end() ? nullptr : *found;
}

score choreography::write(const setup& on) const {
  if (on.ranks == 1) return choreographies::alone(on, name);
  return std::find(collectives.begin(), collectives.end(), on.what)->write(on);
}

std::string refusal(const choreography& which, const setup& on) {
  const auto offered = which.collectives;
  if (std::find(offered.begin(), offered.end(), on.what) == offered.end()) {
    std::string text = std::string{which.name} + " does not offer " + std::string{name(on.what)} + "; it offers";
    for (const collective c : offered) text += ' ' + std::string{name(c)};
    return text;
  }
  if (on.ranks < 1) return "a collective needs at least one rank";
  if (has_root(on.what) && (on.root < 0 || on.root >= on.ranks))
    return "root " + std::to_string(on.root) + " is not a rank of 0…" + std::to_string(on.ranks - 1);
  // Block (i, j) would be received over block (j, i), which may be larger or lie elsewhere: the engine keeps the input apart.
  if (traits_of(on.what).v == v_counts::every_pair && on.in_place && !on.uniform)
    return "an " + std::string{name(on.what)} + " with blocks of different sizes cannot be in place";
  return which.refuses(on);
}

score write_score(const choreography& which, const setup& on) {
  // Lists of candidates say "it" behind a name; an error has the name in that place.
  if (const std::string why = refusal(which, on); !why.empty())
    throw error(errc::unsupported, why.starts_with("it ") ? std::string{which.name} + why.substr(2) : why);
  return which.write(on);
}

}  // namespace troupe
