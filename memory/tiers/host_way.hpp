// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace troupe {

/// How data come from the host to all core groups of a card, and back (spec 1, "Host → card"; fig. 12).
enum class host_way {
  one_copy,     ///< once into L2, from where every core group copies it: three tiers
  each_a_copy,  ///< to every core group: two tiers
};

}  // namespace troupe
