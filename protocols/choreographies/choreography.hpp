#pragma once
// A choreography is a pure function (collective, ranks, root, layout) → score. One file each in choreographies/.

#include <span>
#include <string>
#include <string_view>

#include "memory/export.hpp"
#include "protocols/score/score.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

/// Everything that a choreography may depend on. Never the message's size.
struct stage {
  collective what = collective::all_reduce;
  int ranks = 1;
  rank_t root = 0;
  bool in_place = false;
  bool uniform = true;  ///< false: blocks of different sizes (v-collectives)
  layout placement;     ///< servers × cards × core groups; flat unless the configuration says otherwise
  int streams = 4;      ///< direct_full_mesh: exchanges under way at once (spec 4: C, 4–8)
  bool through_scratch =
      false;  ///< pairwise: BCopy, through small scratch cells, instead of ZCopy between user buffers
};
/// A stage on a flat layout.
TROUPE_API stage flat_stage(collective what, int ranks, rank_t root = 0, bool in_place = false, bool uniform = true);

/// A collective and the function that writes its score.
struct offer {
  required<collective> what;
  /// @pre on.what is `what`, on.ranks > 1, and the choreography does not refuse.
  required<score (*)(const stage& on)> write;
  constexpr operator collective() const { return what; }
};

struct choreography {
  std::string_view name;
  std::string_view summary;  ///< one line for `troupe list`
  std::string_view source;   ///< paper or page it comes from
  std::span<const offer> collectives;
  /// Empty when `on` can be staged, else one sentence that says why not. @pre `on.what` is among `collectives`.
  std::string (*refuses)(const stage& on);
  /// @pre `on.what` is among `collectives`, and refuses(on) is empty.
  score write(const stage& on) const;
};

/// All built-in choreographies, in the order of the documentation.
TROUPE_API std::span<const choreography* const> all_choreographies();
/// nullptr if there is none of that name.
TROUPE_API const choreography* find_choreography(std::string_view name);
/// Why `which` cannot do `on` ("does not offer broadcast", …), empty if it can.
TROUPE_API std::string refusal(const choreography& which, const stage& on);
/// Calls `write` and returns the score; throws error(unsupported) with the refusal.
TROUPE_API score write_score(const choreography& which, const stage& on);

}  // namespace troupe
