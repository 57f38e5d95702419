// SPDX-License-Identifier: Apache-2.0
#pragma once
// An application on a modelled machine: `troupe replay`. Its collectives are performed by our choreographies, each planned as the study of that
// collective alone would plan it; messages and computations are the trace's.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/tools/replay/application.hpp"
#include "engine/tools/study/study.hpp"

namespace troupe {

/// The calls of one collective, size and communicator.
struct replay_group_row {
  std::size_t communicator = 0;
  application_call what;
  std::size_t bytes = 0;  ///< S of the bandwidth formulas
  std::string choreography, protocol;
  cutting cut;
  std::size_t calls = 0;
  study_spread all;         ///< us, from the first rank's begin to the last rank's end
  study_spread after_last;  ///< us, from the last rank's begin
};

/// Why the end was not earlier, from the start.
struct replay_stretch {
  /// message: as long as it takes alone; queue: what the same took longer, among others on its way; core: a computation waited for its core
  enum class part : std::uint8_t { compute, collective, message, queue, core };
  static constexpr std::size_t parts = 5;
  part spent = part::compute;
  rank_t rank = 0;  ///< whose operation ended it
  std::uint32_t operation = 0;
  std::int64_t begin_ps = 0, end_ps = 0;
};
/// "compute", "collective", "message", "queue", "core".
std::string_view name(replay_stretch::part part) noexcept;

struct replay_result {
  study_scenario scenario;
  std::shared_ptr<const hardware> on;
  std::shared_ptr<const application> what;
  std::vector<replay_group_row> groups;
  std::vector<std::string> remarks;
  replay_outcome outcome;
  std::vector<replay_stretch> path;
  std::shared_ptr<const element_recording> occupied;  ///< all elements, where replay_request::record asked for it
  double wall_seconds = 0;
};

/// S of nccl-tests, of which a study makes the same blocks again; 0 of barriers and v-forms.
std::size_t bytes_of(const application_call& what, std::size_t ranks);

struct replay_request {
  std::uint64_t eager_bytes = 64 * 1024;
  bool record = false;  ///< what elements do over time, for the timeline
  std::function<void(const std::string&)> progress;
  std::function<bool()> go_on;
};

/// On the scenario's machine, by its choreography and protocol; ranks sit on the machine's first places. Where neither `ranks` nor `layout` is said,
/// the machine gets as many ranks as the trace has, or the next number that the preset can have.
/// Throws error as run_study() and perform_replay(): bad_config also for a machine that is too small.
replay_result run_replay(const study_scenario& scenario, const std::shared_ptr<const application>& what,
                         const replay_request& how);

void print_replay(std::ostream& to, const replay_result& result);
void print_replay_path(std::ostream& to, const replay_result& result);
/// "rank 3: all_reduce (line 17)"
std::string stretch_text(const replay_result& result, const replay_stretch& stretch);
/// The document described in engine/tools/replay/README.md.
std::string replay_json(const replay_result& result);
/// For the report page (../study/page.hpp): the run that was recorded, where the trace is of one, and the replay.
std::vector<std::string> replay_documents(const replay_result& result);
struct replay_words {
  std::string title, about;
  std::string members{};  ///< of the document besides, as JSON text: "\"name\":value"
};
/// The replay alone, in other words.
std::string replay_document(const replay_result& result, const replay_words& words);
/// For Perfetto and chrome://tracing: a track a rank, an arrow a message; of a recorded run its own tracks, too; and curves: what ranks do at once,
/// and how many messages each class of elements serves, where that was recorded.
std::string replay_timeline(const replay_result& result);

}  // namespace troupe
