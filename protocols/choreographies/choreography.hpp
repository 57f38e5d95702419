// SPDX-License-Identifier: Apache-2.0
#pragma once
// A choreography is a pure function (collective, ranks, root, layout) → score. One file each in choreographies/.

#include <span>
#include <string>
#include <string_view>

#include "memory/export.hpp"
#include "protocols/score/score.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

struct score_tally;

/// Everything that a choreography may depend on. Never the message's size.
struct setup {
  collective what = collective::all_reduce;
  int ranks = 1;
  rank_t root = 0;
  bool in_place = false;
  bool uniform = true;  ///< false: blocks of different sizes (v-collectives)
  layout placement;     ///< servers × cards × core groups; flat unless the configuration says otherwise
  int streams = 4;      ///< direct_full_mesh: exchanges under way at once (spec 4: C, 4–8)
  bool through_scratch =
      false;  ///< pairwise, direct_full_mesh: BCopy, through small scratch cells, instead of ZCopy between user buffers
  int nics = 0;  ///< ring_per_nic, tree_per_nic: NICs of a server that are used; 0: one for each of its ranks
  /// csc's all_gather: blocks that lie beside each other in L2 are fetched by one command, where they are alike. For scores whose steps may
  /// have several cells; split into single cells they would be worse than without.
  bool contiguous = false;
  /// Ranks reach each other's buffers, and meet at a board (fused.cpp): nvls takes that for the switch.
  bool on_board = false;
  /// Not null: steps are counted there instead of written (tally_of), and the score has none.
  score_tally* counted = nullptr;
};
/// A setup on a flat layout.
TROUPE_API setup flat_setup(collective what, int ranks, rank_t root = 0, bool in_place = false, bool uniform = true);

/// A collective and the function that writes its score.
struct offer {
  required<collective> what;
  /// @pre on.what is `what`, on.ranks > 1, and the choreography does not refuse.
  required<score (*)(const setup& on)> write;
  constexpr operator collective() const { return what; }
};

struct choreography {
  std::string_view name;
  std::string_view summary;  ///< one line for `troupe list`
  std::string_view source;   ///< paper or page it comes from
  std::span<const offer> collectives;
  /// Empty when it can be written for `on`, else one sentence that says why not. @pre `on.what` is among `collectives`.
  std::string (*refuses)(const setup& on);
  /// @pre `on.what` is among `collectives`, and refuses(on) is empty.
  score write(const setup& on) const;
};

/// All built-in choreographies, in the order of the documentation, then those that were registered. Thread-safe.
TROUPE_API std::span<const choreography* const> all_choreographies();
/// Makes one of your own known in this process, by its name: to engines that are made afterwards, which may choose it, and to every
/// tool. It must live as long as the process; the same one again is ignored. Its scores are verified before they are performed.
/// Thread-safe. Throws errc::bad_config: a name that is taken or no name, nothing offered, a function that is missing.
TROUPE_API void register_choreography(const choreography& which);
TROUPE_API bool is_built_in(const choreography& which);
/// nullptr if there is none of that name.
TROUPE_API const choreography* find_choreography(std::string_view name);
/// Why `which` cannot do `on` ("does not offer broadcast", …), empty if it can.
TROUPE_API std::string refusal(const choreography& which, const setup& on);
/// Calls `write` and returns the score; throws error(unsupported) with the refusal.
TROUPE_API score write_score(const choreography& which, const setup& on);

}  // namespace troupe
