// SPDX-License-Identifier: Apache-2.0
#include "protocols/lower/agreement_round.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "protocols/lower/lowering.hpp"
#include "protocols/lower/rewriting.hpp"

namespace troupe {

namespace {

/// A set of ranks.
class hearing {
public:
  hearing(int ranks, rank_t first) : words_((static_cast<std::size_t>(ranks) + 63) / 64) {
    words_[static_cast<std::size_t>(first) / 64] |= std::uint64_t{1} << (first % 64);
  }
  void join(const hearing& other) {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
  }
  bool contains(rank_t r) const { return (words_[static_cast<std::size_t>(r) / 64] >> (r % 64) & 1) != 0; }

private:
  std::vector<std::uint64_t> words_;
};

/// Runs a score to see who hears of whom. Lanes never choose, so any order will do, and credits only take orders away.
class rumour {
public:
  explicit rumour(const score& s) : s_(s) {
    for (rank_t r = 0; r < s.ranks; ++r) {
      auto& lanes = heard_.emplace_back();
      lanes.resize(s.players[static_cast<std::size_t>(r)].lanes.size());
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (rank_t r = 0; r < s.ranks; ++r)
        for (std::size_t l = 0; l < heard_[static_cast<std::size_t>(r)].size(); ++l)
          while (step_once(r, l)) moved = true;
    }
  }

  bool ended() const {
    for (std::size_t r = 0; r < heard_.size(); ++r)
      for (std::size_t l = 0; l < heard_[r].size(); ++l)
        if (heard_[r][l].size() < s_.players[r].lanes[l].size()) return false;
    return true;
  }

  /// By its end.
  hearing heard_by(rank_t rank) const {
    hearing all{s_.ranks, rank};
    for (const auto& steps : heard_[static_cast<std::size_t>(rank)])
      if (!steps.empty()) all.join(steps.back());
    return all;
  }

private:
  using channel = std::tuple<rank_t, rank_t, std::size_t>;

  bool step_once(rank_t r, std::size_t l) {
    auto& lanes = heard_[static_cast<std::size_t>(r)];
    const lane& steps = s_.players[static_cast<std::size_t>(r)].lanes[l];
    if (lanes[l].size() == steps.size()) return false;
    const step& now = steps[lanes[l].size()];
    hearing knows = lanes[l].empty() ? hearing{s_.ranks, r} : lanes[l].back();
    if (now.after.lane >= 0) {
      const auto& other = lanes[static_cast<std::size_t>(now.after.lane)];
      if (other.size() <= static_cast<std::size_t>(now.after.step)) return false;
      knows.join(other[static_cast<std::size_t>(now.after.step)]);
    }
    if (receives(now.kind)) {
      auto& waiting = under_way_[{now.from, r, l}];
      if (waiting.empty()) return false;
      knows.join(waiting.front());
      waiting.pop_front();
    }
    if (sends(now.kind)) under_way_[{r, now.to, l}].push_back(knows);
    lanes[l].push_back(std::move(knows));
    return true;
  }

  const score& s_;
  std::vector<std::vector<std::vector<hearing>>> heard_;  ///< by rank, lane and performed step
  std::map<channel, std::deque<hearing>> under_way_;
};

// -- forms ------------------------------------------------------------------------------------------------------------

step token_to(rank_t peer) {
  step t;
  t.kind = step_kind::send;
  t.to = peer;
  return t;
}

step token_from(rank_t peer) {
  step t;
  t.kind = step_kind::recv;
  t.from = peer;
  return t;
}

/// Peers in the order in which they first occur.
struct partners {
  std::vector<rank_t> to, from;
};

partners partners_of(const part& player) {
  const auto add = [](std::vector<rank_t>& all, rank_t peer) {
    if (std::find(all.begin(), all.end(), peer) == all.end()) all.push_back(peer);
  };
  partners found;
  for (const lane& steps : player.lanes)
    for (const step& at : steps) {
      if (sends(at.kind)) add(found.to, at.to);
      if (receives(at.kind)) add(found.from, at.from);
    }
  return found;
}

lane& first_lane(part& player) {
  if (player.lanes.empty()) player.lanes.emplace_back();
  return player.lanes.front();
}

/// Steps of `tokens` go before the step `at` of lane 0 of `rank`.
void insert(score& s, step_map& moved, rank_t rank, std::size_t at, const std::vector<step>& tokens) {
  lane& steps = first_lane(s.players[static_cast<std::size_t>(rank)]);
  for (std::size_t i = at; i < steps.size(); ++i) moved.put(rank, 0, i, i + tokens.size());
  steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), tokens.begin(), tokens.end());
}

step_map unmoved(const score& s) {
  step_map moved{s};
  for (rank_t r = 0; r < s.ranks; ++r) {
    const auto& lanes = s.players[static_cast<std::size_t>(r)].lanes;
    for (std::size_t l = 0; l < lanes.size(); ++l)
      for (std::size_t i = 0; i < lanes[l].size(); ++i) moved.put(r, l, i, i);
  }
  return moved;
}

std::size_t first_wait(const lane& steps) {
  const auto waits = [](const step& at) { return receives(at.kind) || at.after.lane >= 0 || at.ready_part >= 0; };
  return static_cast<std::size_t>(std::find_if(steps.begin(), steps.end(), waits) - steps.begin());
}

/// A rank that another does not hear of with the data has not sent it anything either, so a token is alone between the two.
score with_direct_tokens(const score& s) {
  const rumour data{s};
  std::vector<hearing> heard;
  for (rank_t r = 0; r < s.ranks; ++r) heard.push_back(data.heard_by(r));
  score made = s;
  step_map moved = unmoved(s);
  for (rank_t r = 0; r < s.ranks; ++r) {
    std::vector<step> out, in;
    for (int k = 1; k < s.ranks; ++k) {
      const rank_t after = (r + k) % s.ranks, before = (r - k + s.ranks) % s.ranks;
      if (!heard[static_cast<std::size_t>(after)].contains(r)) out.push_back(token_to(after));
      if (!heard[static_cast<std::size_t>(r)].contains(before)) in.push_back(token_from(before));
    }
    insert(made, moved, r, first_wait(first_lane(made.players[static_cast<std::size_t>(r)])), out);
    lane& steps = made.players[static_cast<std::size_t>(r)].lanes.front();
    steps.insert(steps.end(), in.begin(), in.end());
  }
  moved.apply(made);
  return made;
}

/// @param before the data; else after them
score with_mirrored_tokens(const score& s, bool before) {
  score made = s;
  step_map moved = unmoved(s);
  for (rank_t r = 0; r < s.ranks; ++r) {
    auto [to, from] = partners_of(s.players[static_cast<std::size_t>(r)]);
    // The rank that sent last, or was sent to last, has the shortest way here, or the longest.
    std::reverse(to.begin(), to.end());
    std::reverse(from.begin(), from.end());
    std::vector<step> tokens;
    for (const rank_t peer : to) tokens.push_back(token_from(peer));
    for (const rank_t peer : from) tokens.push_back(token_to(peer));
    insert(made, moved, r, before ? 0 : first_lane(made.players[static_cast<std::size_t>(r)]).size(), tokens);
  }
  moved.apply(made);
  return made;
}

score with_rounds(score s) {
  std::size_t lanes = 0;
  for (const part& player : s.players) lanes = std::max(lanes, player.lanes.size());
  step all;
  all.kind = step_kind::sync;
  for (part& player : s.players) {
    player.lanes.resize(lanes + 1);
    player.lanes.back() = {all};
  }
  return lower_syncs(std::move(s));
}

}  // namespace

std::string_view name(agreement_form form) {
  switch (form) {
    case agreement_form::none: return "none";
    case agreement_form::direct: return "direct";
    case agreement_form::mirrored: return "mirrored";
    case agreement_form::rounds: return "rounds";
  }
  return "?";
}

bool everybody_hears_of_everybody(const score& s) {
  const rumour told{s};
  if (!told.ended()) return false;
  for (rank_t r = 0; r < s.ranks; ++r) {
    const hearing heard = told.heard_by(r);
    for (rank_t q = 0; q < s.ranks; ++q)
      if (!heard.contains(q)) return false;
  }
  return true;
}

std::optional<score> with_agreement(const score& s, agreement_form form) {
  const bool from_root = traits_of(s.what).root == root_role::source;
  score made = form == agreement_form::direct     ? with_direct_tokens(s)
               : form == agreement_form::mirrored ? with_mirrored_tokens(s, from_root)
               : form == agreement_form::rounds   ? with_rounds(s)
                                                  : s;
  // A message in both directions, or of several lanes, cannot be mirrored.
  if (!everybody_hears_of_everybody(made)) return std::nullopt;
  return made;
}

}  // namespace troupe
