// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/experts/expert_layers.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "engine/tools/simulate/dice.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

using matrix = std::vector<std::size_t>;  ///< from rank i to rank j at i·ranks + j

/// Tokens, by the part of the rank's tokens in which they are.
struct routed_part {
  matrix copies;              ///< choices of i's tokens whose expert j has
  matrix firsts;              ///< of i's tokens, those that server s needs, at i·servers + s
  std::vector<double> loads;  ///< by rank: copies to it
};

struct routing {
  std::vector<routed_part> parts;
  std::size_t choices = 0, dropped = 0, crossed = 0, crossing = 0;
  double imbalance = 1;
  std::vector<std::uint64_t> to_expert;      ///< choices of rank i for expert e, at i·experts + e …
  std::vector<std::uint64_t> not_to_expert;  ///< … and those that were dropped
  std::vector<std::uint64_t> crossed_of_rank, crossing_of_rank;  ///< of crossed and crossing
};

void check(const expert_layers& m, const expert_way& way) {
  const auto refuse = [](const std::string& why) { throw error(errc::bad_config, why); };
  const int ranks = m.places.size();
  if (m.experts < ranks)
    refuse(plural(static_cast<std::size_t>(m.experts), "expert") + " for " + std::to_string(ranks) +
           " ranks; every rank needs one");
  if (m.top_k > m.experts)
    refuse("a token cannot choose " + std::to_string(m.top_k) + " of " +
           plural(static_cast<std::size_t>(m.experts), "expert"));
  if (way.parts > m.tokens)
    refuse(plural(static_cast<std::size_t>(m.tokens), "token") + " cannot be cut into " + std::to_string(way.parts) +
           " parts");
  if (way.by_server && (m.places.server_count() < 2 || !m.places.uniform()))
    refuse("a token can go once to each server only where there are several, of as many ranks each; the layout is " +
           m.places.to_string());
}

/// Draws where tokens go.
class router {
public:
  router(const expert_layers& m, int parts, std::uint64_t number)
      : model_(m),
        ranks_(static_cast<std::size_t>(m.places.size())),
        servers_(static_cast<std::size_t>(m.places.server_count())),
        number_(number) {
    for (std::size_t r = 0; r < ranks_; ++r)
      server_.push_back(static_cast<std::size_t>(m.places.server_of(static_cast<int>(r))));
    std::vector<std::size_t> in_order = server_;  // without those that have no ranks
    std::ranges::sort(in_order);
    in_order.erase(std::unique(in_order.begin(), in_order.end()), in_order.end());
    for (std::size_t& s : server_)
      s = static_cast<std::size_t>(std::ranges::lower_bound(in_order, s) - in_order.begin());
    made_.parts.resize(static_cast<std::size_t>(parts),
                       {matrix(ranks_ * ranks_), matrix(ranks_ * servers_), std::vector<double>(ranks_)});
    const std::size_t pairs = ranks_ * static_cast<std::size_t>(m.experts);
    made_.to_expert.resize(pairs), made_.not_to_expert.resize(pairs);
    made_.crossed_of_rank.resize(ranks_), made_.crossing_of_rank.resize(ranks_);
  }

  routing draw() {
    popularity();
    for (std::size_t r = 0; r < ranks_; ++r) route_rank(r);
    double most = 0, all = 0;
    for (std::size_t r = 0; r < ranks_; ++r) {
      double load = 0;
      for (const routed_part& p : made_.parts) load += p.loads[r];
      most = std::max(most, load), all += load;
    }
    if (all > 0) made_.imbalance = most * static_cast<double>(ranks_) / all;
    return std::move(made_);
  }

private:
  /// Cumulated, of the experts in their order.
  void popularity() {
    simulate::dice dice{model_.seed, {number_, 0}};
    std::vector<double> weight(static_cast<std::size_t>(model_.experts));
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = std::pow(static_cast<double>(i + 1), -model_.skew);
    for (std::size_t i = weight.size(); i > 1; --i) std::swap(weight[i - 1], weight[dice.index(i)]);
    cumulated_.resize(weight.size());
    std::partial_sum(weight.begin(), weight.end(), cumulated_.begin());
  }

  std::size_t draw_expert(simulate::dice& dice) const {
    const double at = static_cast<double>(dice.next() >> 11) * 0x1p-53 * cumulated_.back();
    const auto found = std::upper_bound(cumulated_.begin(), cumulated_.end(), at);
    return std::min(static_cast<std::size_t>(found - cumulated_.begin()), cumulated_.size() - 1);
  }

  void route_rank(std::size_t rank) {
    simulate::dice dice{model_.seed, {number_, 1 + rank}};
    const auto tokens = static_cast<std::size_t>(model_.tokens), k = static_cast<std::size_t>(model_.top_k);
    std::vector<std::size_t> sent(static_cast<std::size_t>(model_.experts));
    std::size_t most = tokens;
    if (model_.capacity > 0)
      most = static_cast<std::size_t>(std::ceil(model_.capacity * static_cast<double>(tokens * k) / model_.experts));
    for (std::size_t t = 0; t < tokens; ++t) {
      routed_part& part = made_.parts[t * made_.parts.size() / tokens];
      chosen_.clear();
      while (chosen_.size() < k) {
        const std::size_t e = draw_expert(dice);
        if (std::ranges::find(chosen_, e) == chosen_.end()) chosen_.push_back(e);
      }
      const std::size_t row = rank * sent.size();
      std::erase_if(chosen_, [&](std::size_t e) {
        const bool dropped = sent[e]++ >= most;
        ++(dropped ? made_.not_to_expert : made_.to_expert)[row + e];
        return dropped;
      });
      made_.choices += k;
      made_.dropped += k - chosen_.size();
      send(rank, part);
    }
  }

  /// What is left of the choices of one token.
  void send(std::size_t rank, routed_part& part) {
    reached_.clear();
    for (const std::size_t e : chosen_) {
      const std::size_t to = e * ranks_ / static_cast<std::size_t>(model_.experts);
      ++part.copies[rank * ranks_ + to];
      part.loads[to] += 1;
      const std::size_t server = server_[to];
      const bool away = server != server_[rank];
      made_.crossed += away ? 1 : 0;
      made_.crossed_of_rank[rank] += away ? 1 : 0;
      if (std::ranges::find(reached_, server) != reached_.end()) continue;
      reached_.push_back(server);
      ++part.firsts[rank * servers_ + server];
      made_.crossing += away ? 1 : 0;
      made_.crossing_of_rank[rank] += away ? 1 : 0;
    }
  }

  const expert_layers& model_;
  std::size_t ranks_, servers_;
  std::uint64_t number_;
  std::vector<std::size_t> server_;  ///< by rank
  std::vector<double> cumulated_;
  std::vector<std::size_t> chosen_, reached_;
  routing made_;
};

/// Operations that all ranks have in the same order: one number means an operation of each.
class iteration_builder {
public:
  using numbers = std::vector<std::uint32_t>;

  iteration_builder(const expert_layers& m, const expert_way& way) : model_(m), way_(way) {
    const int ranks = m.places.size();
    application& a = made_.what;
    a.ranks.resize(static_cast<std::size_t>(ranks));
    a.communicators.push_back({"world", std::vector<int>(static_cast<std::size_t>(ranks))});
    std::iota(a.communicators[0].ranks.begin(), a.communicators[0].ranks.end(), 0);
    if (way.by_server) group_ranks();
  }

  expert_iteration build() {
    double dropped = 0, choices = 0, crossed = 0, crossing = 0, imbalance = 0;
    for (int i = 0; i < model_.routings; ++i) {
      routings_.push_back(router{model_, way_.parts, static_cast<std::uint64_t>(i)}.draw());
      const routing& r = routings_.back();
      dropped += static_cast<double>(r.dropped), choices += static_cast<double>(r.choices);
      crossed += static_cast<double>(r.crossed), crossing += static_cast<double>(r.crossing);
      imbalance += r.imbalance;
    }
    made_.dropped = choices > 0 ? dropped / choices : 0;
    made_.crossing = crossed == 0 ? 0 : way_.by_server ? crossing / crossed : 1;
    made_.imbalance = imbalance / model_.routings;
    begin_profile();
    for (int l = 0; l < model_.layers; ++l) layer(routing_of(l), 1), count(routing_of(l));
    for (int l = model_.layers - 1; l >= 0; --l) layer(routing_of(l), 2);
    return std::move(made_);
  }

private:
  const routing& routing_of(int layer) const { return routings_[static_cast<std::size_t>(layer % model_.routings)]; }

  void begin_profile() {
    const auto ranks = static_cast<std::size_t>(model_.places.size()),
               experts = static_cast<std::size_t>(model_.experts);
    expert_profile& p = made_.profile;
    p.ranks.resize(ranks);
    p.tokens_of_expert.resize(experts), p.dropped_of_expert.resize(experts), p.sent_to_expert.resize(ranks * experts);
  }

  void count(const routing& r) {
    expert_profile& p = made_.profile;
    const std::size_t experts = p.tokens_of_expert.size(), ranks = p.ranks.size();
    ++p.dispatches;
    for (std::size_t i = 0; i < ranks; ++i) {
      p.ranks[i].tokens += static_cast<std::uint64_t>(model_.tokens);
      // The profile's rows are those that travel, and its copies what experts get of them.
      p.ranks[i].crossed += way_.by_server ? r.crossing_of_rank[i] : r.crossed_of_rank[i];
      p.ranks[i].crossing += r.crossed_of_rank[i];
      for (std::size_t e = 0; e < experts; ++e) {
        const std::uint64_t sent = r.to_expert[i * experts + e], dropped = r.not_to_expert[i * experts + e];
        p.ranks[i].sent += sent, p.ranks[i].dropped += dropped;
        p.ranks[e * ranks / experts].received += sent;
        p.tokens_of_expert[e] += sent, p.dropped_of_expert[e] += dropped;
        p.sent_to_expert[i * experts + e] += sent;
      }
    }
  }

  /// @param times the computation's, of the forward direction
  void layer(const routing& r, std::int64_t times) {
    if (model_.dense_ns > 0)
      before_ = {calc(std::vector<std::int64_t>(made_.what.ranks.size(), times * model_.dense_ns), before_)};
    const bool forward = times == 1;  // and the rest are gradients
    const double average = static_cast<double>(model_.tokens) * model_.top_k;
    numbers after, sent = before_, back;
    for (const routed_part& part : r.parts) {
      sent = {move(part, true, forward && way_.bytes, joined(before_, sent))};
      std::vector<std::int64_t> ns;
      for (const double load : part.loads)
        ns.push_back(std::llround(static_cast<double>(times * model_.expert_ns) * load / average));
      const std::uint32_t computed = calc(ns, sent);
      back = {move(part, false, false, joined({computed}, back))};
      after.push_back(back.front());
    }
    before_ = after;
  }

  static numbers joined(numbers one, const numbers& other) {
    for (const std::uint32_t n : other)
      if (std::ranges::find(one, n) == one.end()) one.push_back(n);
    return one;
  }

  std::uint32_t add(const std::function<replay_operation(std::size_t rank)>& of, const numbers& needs) {
    const auto number = static_cast<std::uint32_t>(made_.what.ranks.front().operations.size());
    for (std::size_t r = 0; r < made_.what.ranks.size(); ++r) {
      replay_rank& rank = made_.what.ranks[r];
      rank.operations.push_back(of(r));
      rank.operations.back().line = number + 1;
      for (const std::uint32_t n : needs) rank.needs.push_back({number, n, false});
    }
    return number;
  }

  std::uint32_t calc(const std::vector<std::int64_t>& ns, const numbers& needs) {
    return add(
        [&](std::size_t r) {
          replay_operation o;
          o.amount = static_cast<std::uint64_t>(ns[r]) * 1000;
          return o;
        },
        needs);
  }

  /// The ranks of a server, and those at one place of all servers.
  void group_ranks() {
    application& a = made_.what;
    const auto ranks = a.ranks.size();
    server_of_.resize(ranks), peers_of_.resize(ranks);
    const auto group = [&](std::vector<std::size_t>& of, const std::string& name, const std::vector<int>& members) {
      const auto first = static_cast<std::size_t>(members.front());
      if (of[first] != 0) return;
      for (const int r : members) of[static_cast<std::size_t>(r)] = a.communicators.size();
      a.communicators.push_back({name + std::to_string(first), members});
    };
    for (std::size_t r = 0; r < ranks; ++r) {
      const int rank = static_cast<int>(r);
      group(server_of_, "server_of_", model_.places.ranks_of_server(model_.places.server_of(rank)));
      group(peers_of_, "peers_of_", model_.places.same_index_peers(rank));
    }
  }

  /// Tokens of a part to the experts, or back from there. Returns the operation that has brought the last.
  std::uint32_t move(const routed_part& part, bool there, bool bytes, const numbers& needs) {
    const std::size_t row = bytes ? model_.hidden + (model_.hidden + 127) / 128 * 4 : 2 * model_.hidden;
    const auto world = [&](std::size_t i, std::size_t j) { return part.copies[i * made_.what.ranks.size() + j]; };
    if (!way_.by_server) return exchange({0}, world, row, there, needs);
    const auto between = [&](std::size_t i, std::size_t j) { return between_servers(part, i, j); };
    const auto inside = [&](std::size_t i, std::size_t j) { return inside_server(part, i, j); };
    const std::uint32_t first =
        there ? exchange(peers_of_, between, row, there, needs) : exchange(server_of_, inside, row, there, needs);
    return there ? exchange(server_of_, inside, row, there, {first})
                 : exchange(peers_of_, between, row, there, {first});
  }

  /// To a rank at its own place of another server, which its communicator has in the order of servers.
  std::size_t between_servers(const routed_part& part, std::size_t i, std::size_t j) const {
    if (i == j) return 0;
    const std::vector<int>& peers = made_.what.communicators[peers_of_[i]].ranks;
    const auto server = std::ranges::find(peers, static_cast<int>(j)) - peers.begin();
    return part.firsts[i * peers.size() + static_cast<std::size_t>(server)];
  }

  /// What the rank i spreads to j: of its own tokens, and of those that came to it.
  std::size_t inside_server(const routed_part& part, std::size_t i, std::size_t j) const {
    std::size_t all = 0;
    for (const int from : made_.what.communicators[peers_of_[i]].ranks)
      all += part.copies[static_cast<std::size_t>(from) * made_.what.ranks.size() + j];
    return all;
  }

  /// An all_to_all_v of each of the communicators. @param of by rank, its communicator; one number: the same for all
  std::uint32_t exchange(const std::vector<std::size_t>& of,
                         const std::function<std::size_t(std::size_t, std::size_t)>& rows, std::size_t row_bytes,
                         bool there, const numbers& needs) {
    application& a = made_.what;
    std::vector<std::size_t> call(a.communicators.size());
    std::vector<std::size_t> all = of;
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    for (const std::size_t c : all) {
      const std::vector<int>& members = a.communicators[c].ranks;
      application_call what;
      what.kind = {collective::all_to_all, true, false};
      for (const int i : members)
        for (const int j : members) {
          const auto from = static_cast<std::size_t>(there ? i : j), to = static_cast<std::size_t>(there ? j : i);
          what.counts.push_back(rows(from, to) * row_bytes);
        }
      call[c] = a.collectives.size();
      a.collectives.push_back({c, std::move(what)});
    }
    return add(
        [&](std::size_t r) {
          replay_operation o;
          o.what = replay_operation::kind::collective;
          o.amount = call[of.size() == 1 ? of[0] : of[r]];
          return o;
        },
        needs);
  }

  const expert_layers& model_;
  const expert_way& way_;
  expert_iteration made_;
  std::vector<routing> routings_;
  std::vector<std::size_t> server_of_, peers_of_;  ///< by rank: the communicator
  numbers before_;
};

}  // namespace

expert_iteration expert_iteration_of(const expert_layers& model, const expert_way& way) {
  check(model, way);
  return iteration_builder{model, way}.build();
}

}  // namespace troupe
