// SPDX-License-Identifier: Apache-2.0
#pragma once
// Keys of [study] that are said and do nothing, as another key says what they are no part of: study.nccl.channels where the choreography is not
// nccl. That is a mistake, and an error, unless what makes them do nothing comes from a stronger source (configuration.hpp; --sweep, --set-a
// and --set-b are stronger than --set): a file's [study.nccl] is no mistake of a user of --set choreography=ring.

#include <span>
#include <string>

#include "engine/config/configuration.hpp"
#include "engine/tools/study/study.hpp"

namespace troupe {

/// Throws error(bad_config) for keys that are said and do nothing wherever they are said; not where a file says what holds anyway, as a dump
/// does. @param keys without "study." @param why "the study has jobs, …"
void refuse_keys(const configuration& from, std::span<const char* const> keys, const std::string& why);

/// Throws error(bad_config) for the first key that does nothing, and says what would be right.
void refuse_useless_keys(const configuration& from, const study_scenario& scenario, study_use use);

/// Without what a stronger source makes do nothing: what a dump of it says can be read as one file.
configuration without_useless_keys(configuration from, const study_scenario& scenario, study_use use);

}  // namespace troupe
