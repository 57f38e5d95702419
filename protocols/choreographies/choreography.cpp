#include "protocols/choreographies/choreography.hpp"

#include <algorithm>
#include <array>

#include "memory/error.hpp"
#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe {

std::span<const choreography* const> all_choreographies() {
  namespace c = choreographies;
  static constexpr std::array<const choreography*, 14> all = {&c::ring,
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
                                                              &c::one_shot};
  return all;
}

const choreography* find_choreography(std::string_view name) {
  const auto all = all_choreographies();
  const auto found = std::find_if(all.begin(), all.end(), [&](const choreography* c) { return c->name == name; });
  return found == all.end() ? nullptr : *found;
}

score choreography::write(const stage& on) const {
  if (on.ranks == 1) return choreographies::alone(on, name);
  return std::find(collectives.begin(), collectives.end(), on.what)->write(on);
}

std::string refusal(const choreography& which, const stage& on) {
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

score write_score(const choreography& which, const stage& on) {
  if (const std::string why = refusal(which, on); !why.empty()) throw error(errc::unsupported, why);
  return which.write(on);
}

}  // namespace troupe
