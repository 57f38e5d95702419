// SPDX-License-Identifier: Apache-2.0
#pragma once
// What to run and measure: collectives × sizes × types × operations, on so many ranks. `troupe run` reads it from a file's
// [workload], `troupe bench` makes it from its flags.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/configuration.hpp"
#include "memory/types/types.hpp"
#include "protocols/call.hpp"
#include "protocols/collective.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

/// A collective as people name it: also the v-forms, and send_recv (every rank sends to the next and receives from the one before).
struct job_kind {
  collective what = collective::all_reduce;
  bool v_form = false;
  bool send_recv = false;  ///< `what` means nothing

  bool reduces() const { return !send_recv && is_reduction(what); }
  bool rooted() const { return !send_recv && has_root(what); }
  bool is_barrier() const { return !send_recv && !moves_data(what); }
  /// Whether the call can be made in place.
  bool in_place_exists() const {
    const collective_traits& t = traits_of(what);
    return !send_recv && t.place != in_place_rule::never && !(v_form && t.v == v_counts::every_pair);
  }
  /// Whether a v-form has a block for every pair of ranks.
  bool has_matrix() const { return v_form && traits_of(what).v == v_counts::every_pair; }
  bool operator==(const job_kind&) const = default;
};
std::string name(const job_kind& kind);
std::optional<job_kind> parse_job_kind(std::string_view text);
/// "all_reduce", "all_gather", …, "send_recv".
const std::vector<std::string>& all_job_names();

enum class job_places : std::uint8_t { out, in, both };

/// One line of a result table.
struct job {
  job_kind kind;
  std::size_t bytes = 0;  ///< as asked for; what is run is rounded down to whole blocks
  datatype type = datatype::f32;
  op reduction = sum;
  rank_t root = 0;
  job_places places = job_places::both;
  std::string choreography;                             ///< empty: the engine's
  message_protocol protocol = message_protocol::unset;  ///< unset: the engine's
  std::optional<determinism> level;                     ///< empty: the engine's
  /// v-forms: elements. all_to_all_v: of block (i, j) at i·n + j; others: of rank r's block. Empty: made from `bytes`, skewed.
  std::vector<std::size_t> counts;
};

/// Jobs that belong under one heading.
struct job_group {
  std::string title;  ///< "all_reduce", "all_to_all_v (pairwise)"
  std::vector<job> jobs;
};

/// Whose time a repetition takes, of the ranks' own times.
enum class time_of : std::uint8_t {
  all,  ///< from the first rank's begin to the last rank's end
  rank_0,
  average,
  least,
  most,
};

struct workload {
  int ranks = 8;        ///< of all processes together
  int processes = 1;    ///< of a job that is joined; every one has the same number of ranks
  std::string hosts{};  ///< where they are to be started; empty: here, or they have been
  int iterations = 20;
  int warmup = 5;
  bool settle =
      false;  ///< after `warmup` repetitions, unless that is 0: go on until their times do not get shorter any more
  bool check = true;
  bool one_thread = false;
  int aggregated =
      1;  ///< calls that are started and waited for together, each on buffers of its own; times are a call's
  time_of whose = time_of::all;     ///< of several processes, which may have other clocks, `most` instead
  bool cpu_time = false;            ///< instead of the time that passes: what the process uses, of all threads
  bool spread = false;              ///< also the distribution over the repetitions, from a series of its own
  std::chrono::seconds timeout{0};  ///< of a row's test, out of place or in place; 0: none
  std::vector<job_group> groups;

  int ranks_here() const { return ranks / processes; }
};

/// The [workload] of a configuration. Throws error(bad_config) that names the file and line of what is wrong: an unknown
/// collective or type, an operation that the type does not have, a root that is no rank, counts that do not fit the ranks.
/// @param processes that have been started already, for this workload; 0: none, then it says itself how many there are to be
workload read_workload(const configuration& from, int processes = 0);

/// Where `ranks` ranks sit: on the first places of the layout; empty: flat.
/// @pre the layout has so many
layout first_places(const std::string& layout_text, int ranks);

/// Elements of every block: one number for uniform collectives, block_count() of them for v-forms. `bytes` is rounded down
/// to whole blocks and elements.
struct job_shape {
  std::size_t count = 0;            ///< per block; v-forms: the largest
  std::vector<std::size_t> counts;  ///< v-forms
  std::size_t bytes = 0;            ///< S of the bandwidth formulas: see bus_factor()
};
job_shape shape_of(const job& j, int ranks);

/// busbw = algbw × this, algbw = S ÷ t, with S and the factors of nccl-tests (collective_traits::bus_factor): S is count·e where
/// there is one block, and for send_recv; count·e·n for the others; all_to_all_v: the largest send or receive of a rank.
double bus_factor(const job_kind& kind, int ranks);

/// Operations that `run` and `bench` know, all of "all": user-defined ones have no name.
std::vector<op> ops_of(std::string_view text, datatype type);
std::vector<datatype> types_of(std::string_view text);

}  // namespace troupe
