// SPDX-License-Identifier: Apache-2.0
#pragma once
// Plans for simulated calls: any choreography on any port with any cutting and credits, as the planner would make it if it chose
// that one. The planner itself chooses the cheapest, which would leave most of what can be performed untried.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "protocols/call.hpp"
#include "protocols/lower/agreement_round.hpp"
#include "protocols/plan.hpp"
#include "protocols/tiers.hpp"

namespace troupe::simulate {

enum class port_kind : std::uint8_t { mailbox, ll, ll128, direct, nic, tiers };
std::string_view name(port_kind which);

/// How the ranks of a host perform their stage of a call in tiers, on a board.
struct stage_way {
  int choreography = 0;
  port_kind port = port_kind::ll;
  agreement_form agreement = agreement_form::none;
  bool operator==(const stage_way&) const = default;
  auto operator<=>(const stage_way&) const = default;
};

/// How a call is performed. The call itself says what. In tiers it is the way of the hosts' first ranks, by mailbox, but for `collect` and `spread`.
struct way {
  int choreography = 0;  ///< index into all_choreographies()
  port_kind port = port_kind::mailbox;
  agreement_form agreement = agreement_form::none;
  bool eager =
      false;  ///< rooted, over slots, by mailbox or, of blocks that differ in size, direct: may run ahead of the agreement
  bool own_blocks = false;  ///< by mailbox, of blocks whose sizes not every rank knows: without the membership
  bool ask = false;         ///< by mailbox: the membership is asked although the data would say
  bool fold = false;        ///< contributions travel unreduced, and are folded in rank order
  bool any_order = false;
  int credits = 8;
  int channels = 1;
  slice_order slices{};
  int of_host = 0;       ///< ranks of each of several hosts; 0: all share memory
  int packet_bytes = 0;  ///< by NIC
  stage_way collect, spread;
  bool operator==(const way&) const = default;
  auto operator<=>(const way&) const = default;
};

/// Not synchronised: a thread its own.
class plan_source {
public:
  /// Null if the call cannot be performed so.
  /// @param counts of all blocks, if they differ
  std::shared_ptr<const plan> plan_for(const call& what, int ranks, const way& how,
                                       const std::vector<std::size_t>* counts = nullptr);
  /// Of a stage on a board of a call in tiers. Null as above. @pre why_no_tiers(what).empty()
  std::shared_ptr<const plan> plan_of_stage(const call& what, tier which, int ranks, int of_host, const stage_way& by);

private:
  struct prepared {
    std::shared_ptr<const score> notes;  ///< null: it cannot be
    std::shared_ptr<const verdict> verified;
    bool agrees = false;
    std::optional<bool> offloads;  ///< NICs can perform it; none: not asked yet
  };
  using score_key =
      std::tuple<int, collective, int, rank_t, bool, bool, bool, bool, agreement_form, int, slice_order, int>;
  using plan_key = std::tuple<score_key, way, datatype, op_kind, std::size_t, std::vector<std::size_t>>;

  static score_key key_of(const call& what, int ranks, const way& how);
  prepared& score_for(const score_key& key);
  bool let_run_ahead(plan& made, const call& what, int ranks, const way& how);
  std::shared_ptr<plan> make(const call& what, int ranks, const way& how, prepared& from,
                             const std::vector<std::size_t>* counts);
  std::shared_ptr<plan> make_for_nic(std::shared_ptr<plan> made, const call& what, const way& how, prepared& from);
  std::shared_ptr<plan> make_in_tiers(const call& what, int ranks, const way& how);

  std::map<score_key, prepared> scores_;
  std::map<plan_key, std::shared_ptr<const plan>> plans_;
  std::size_t steps_ = 0;  ///< of what is in both
};

}  // namespace troupe::simulate
