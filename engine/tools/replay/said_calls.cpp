// SPDX-License-Identifier: Apache-2.0
// Single ranks' calls → collectives of all.
#include "engine/tools/replay/said_calls.hpp"

#include <algorithm>

#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

std::string where(const said_call& c) { return std::string{c.file} + ":" + std::to_string(c.line); }

bool same_call(const application_call& a, const application_call& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.reduction.kind == b.reduction.kind &&
         a.root == b.root && a.choreography == b.choreography &&
         (traits_of(a.kind.what).v != v_counts::common || a.counts == b.counts);
}

std::string text_of(const application_call& c) {
  std::string text = name(c.kind);
  if (c.kind.is_barrier()) return text;
  if (!c.kind.v_form) text += " " + std::to_string(c.count);
  text += " " + std::string{name(c.type)};
  if (c.kind.reduces()) text += " " + std::string{name(c.reduction.kind)};
  if (c.kind.rooted()) text += " root " + std::to_string(c.root);
  return text + (c.choreography.empty() ? "" : " by " + c.choreography);
}

/// The calls of one collective, by rank of the communicator → what all call.
application_call merged(const std::vector<const said_call*>& calls) {
  application_call whole = calls.front()->what;
  for (const said_call* c : calls)
    if (!same_call(c->what, whole))
      throw error(errc::bad_config, where(*c) + ": " + text_of(c->what) +
                                        ", where the communicator's first rank calls " + text_of(whole) + " (" +
                                        where(*calls.front()) + "); ranks must call alike, in the same order");
  if (!whole.kind.v_form) return whole;
  switch (traits_of(whole.kind.what).v) {
    case v_counts::every_pair:
      whole.counts.clear();
      for (const said_call* c : calls)
        whole.counts.insert(whole.counts.end(), c->what.counts.begin(), c->what.counts.end());
      break;
    case v_counts::rooted: {
      whole.counts = calls[static_cast<std::size_t>(whole.root)]->what.counts;
      for (std::size_t i = 0; i < calls.size(); ++i)
        if (static_cast<rank_t>(i) != whole.root && calls[i]->what.counts[0] != whole.counts[i])
          throw error(errc::bad_config, where(*calls[i]) + ": this rank's block has " +
                                            std::to_string(calls[i]->what.counts[0]) + " elements, the root says " +
                                            std::to_string(whole.counts[i]));
      break;
    }
    case v_counts::none:
    case v_counts::common: break;
  }
  return whole;
}

}  // namespace

std::string problem_of(const application_call& c, const application::communicator& group, rank_t rank) {
  const std::size_t n = group.ranks.size();
  const auto me = std::find(group.ranks.begin(), group.ranks.end(), rank);
  if (me == group.ranks.end()) return "rank " + std::to_string(rank) + " is not in communicator " + group.name;
  if (c.root >= static_cast<rank_t>(n))
    return "there is no root " + std::to_string(c.root) + " in communicator " + group.name + " of " + plural(n, "rank");
  if (!c.kind.v_form)
    return c.count > most_trace_payload / n / size_of(c.type) ? "its blocks have more than 2^50 bytes together"
                                                              : std::string{};
  const bool one = traits_of(c.kind.what).v == v_counts::rooted && me - group.ranks.begin() != c.root;
  if (c.counts.size() != (one ? 1 : n))
    return name(c.kind) + " has the elements of " + plural(c.counts.size(), "block") + "; this rank must name " +
           std::to_string(one ? 1 : n);
  std::size_t total = 0;
  for (const std::size_t count : c.counts)
    if ((total += count) > most_trace_payload / size_of(c.type) / n) return "its blocks have too many bytes together";
  return {};
}

void join_collectives(application& made, const said_calls& from) {
  for (std::size_t c = 0; c < made.communicators.size(); ++c) {
    const auto& members = made.communicators[c].ranks;
    std::vector<const std::vector<said_call>*> all;
    static const std::vector<said_call> none;
    for (const int r : members) {
      const auto at = from[static_cast<std::size_t>(r)].find(c);
      all.push_back(at == from[static_cast<std::size_t>(r)].end() ? &none : &at->second);
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (all[i]->size() == all[0]->size()) continue;
      const bool fewer = all[i]->size() < all[0]->size();
      const auto& longer = fewer ? *all[0] : *all[i];
      const auto& shorter = fewer ? *all[i] : *all[0];
      throw error(errc::bad_config,
                  where(longer[shorter.size()]) + ": rank " + std::to_string(fewer ? members[0] : members[i]) +
                      " calls " + plural(longer.size(), "collective") + " of communicator " +
                      made.communicators[c].name + ", rank " + std::to_string(fewer ? members[i] : members[0]) + " " +
                      std::to_string(shorter.size()) + "; all its ranks must call all of them");
    }
    for (std::size_t call = 0; call < all[0]->size(); ++call) {
      std::vector<const said_call*> calls;
      for (const auto* of : all) calls.push_back(&(*of)[call]);
      for (std::size_t i = 0; i < members.size(); ++i)
        made.ranks[static_cast<std::size_t>(members[i])].operations[calls[i]->operation].amount =
            made.collectives.size();
      made.collectives.push_back({c, merged(calls)});
    }
  }
}

}  // namespace troupe
