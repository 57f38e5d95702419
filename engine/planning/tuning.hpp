// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a machine costs: the constants of the planner's cost model. Measured by `troupe tune` (engine/tools/tune.hpp), kept in a TOML file
// (docs/tuning.md), loaded by every engine; without a file, the assumed constants below.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/options.hpp"
#include "engine/planning/cost_model.hpp"
#include "engine/planning/measured_choices.hpp"
#include "memory/types/types.hpp"
#include "protocols/program/direct_sizes.hpp"
#include "protocols/program/slot_formats.hpp"
#include "topology/reach.hpp"

namespace troupe {

/// GB/s (10⁹) over bytes: straight lines between the points on logarithmic axes, constant beyond the first and the last.
class rate_curve {
public:
  struct point {
    double bytes = 0;
    double rate = 0;
    bool operator==(const point&) const = default;
  };
  rate_curve() = default;
  /// @pre not empty, bytes ascending, all above 0
  rate_curve(std::vector<point> points) : points_(std::move(points)) {}  // NOLINT: a list of points is a curve
  double at(double bytes) const;
  const std::vector<point>& points() const { return points_; }

private:
  std::vector<point> points_;
};

/// Which machine constants belong to.
struct machine_fingerprint {
  std::string cpu;  ///< as the processor names itself
  int cores = 1;    ///< that can really run at once (host::usable_cpus)
  std::uint64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;
  bool operator==(const machine_fingerprint&) const = default;
};
machine_fingerprint this_machine();
/// "cpu is …, here it is …; …"; empty if they are the same.
std::string differences(const machine_fingerprint& measured, const machine_fingerprint& here);

/// The assumed values are what `troupe tune` measured on two cores of an AMD EPYC (family 26, 2.6 GHz, 1 MiB L2 a core, 32 MiB L3,
/// virtual machine), rounded; but those of lines and of ranks with a core each, by which slots end and the direct port begins, lie between
/// what cores that share a cache take and ones that do not, where 2 to 5 KiB are as fast by either, depending on the collective.
struct tuning {
  machine_fingerprint machine;
  std::string measured;  ///< when; empty: assumed
  std::string
      links;  ///< between which processes frames were measured, for people; empty: the constants of links are assumed
  std::string file;  ///< where it was read from; empty: assumed

  double deviation = 1;  ///< typical ratio of a predicted to a measured small collective, ≥ 1

  // Through the actors, ns.
  double actor_operation_ns = 3600;  ///< an operation, besides its steps
  double actor_rank_ns = 14000;      ///< each of its ranks, of a core's time
  double actor_message_ns = 1000;    ///< one chunk and its credit through two channels, until the receiver runs
  double actor_step_ns = 50;         ///< one instruction of a performer, without its bytes
  double actor_operand_ns = 10;      ///< one more input or output of a pass over several

  // Over slots, ns.
  double slot_operation_ns = 25;  ///< an operation, besides its steps
  double slot_message_ns = 15;    ///< until a line has come to the receiver, if it runs on another core
  double slot_turn_ns = 1000;     ///< until it has come, where ranks share cores: the receiver's turn on the core
  double slot_step_ns = 65;
  double ll_line_ns = 8;       ///< 128 bytes that carry 64, written by one thread and read by another
  double ll128_line_ns = 9.5;  ///< 128 bytes that carry 120

  // On each other's buffers (the direct port), ns.
  double direct_operation_ns = 160;  ///< an operation, besides what follows
  double direct_rank_ns = 90;        ///< each rank comes and is told that all is done, if it has a core of its own
  double direct_turn_ns = 2000;      ///< a rank's turn on a core that it shares
  double direct_line_ns = 0.5;       ///< 128 bytes that another core has written last, besides what memory costs
  /// Between processes: until what one has copied to its staging buffer has been taken by another, besides its bytes.
  double direct_staging_ns = 600;

  // From another process's memory or to it, by the system.
  double peer_call_ns = 400;     ///< a copy, besides its bytes
  double peer_kilobyte_ns = 70;  ///< 1024 of them, to or from a core's cache

  // By the process's NIC, which one thread performs, ns.
  double nic_step_ns = 400;   ///< a packet is handed over, found and answered, without its bytes
  double nic_post_ns = 1500;  ///< of a caller: to post an operation, and to see that it is done
  double nic_wake_ns = 3000;  ///< of the one who posts last: to wake the thread

  // Over links: what a frame takes besides what actors do, and 1024 bytes of it at either end. Assumed: of two processes of a host, through their ring; and of two hosts, through sockets (veth).
  double ring_message_ns = 700, ring_kilobyte_ns = 150;
  double socket_message_ns = 15'000, socket_kilobyte_ns = 400;
  /// The same between groups of hosts (pods, racks of pods …), innermost first. Farther groups cost what the last of them does; without any, what
  /// sockets do.
  std::vector<double> outer_message_ns, outer_kilobyte_ns;
  double frame_turn_ns = 3000;  ///< of a process that looks for frames and yields its core, until the next one's turn

  // Threads, ns. For people; the model has what follows from them above.
  double flag_exchange_ns = 56;  ///< two threads on two cores, each sees the other's flag
  double switch_ns = 550;        ///< a core goes from one thread to another
  double wake_ns = 16000;        ///< from waking a sleeping thread until it runs

  // Memory, GB/s of result and core, by the bytes that one core touches (inputs and output).
  rate_curve copy = std::vector<rate_curve::point>{{16384, 154},  {1 << 18, 126}, {1 << 20, 100}, {1 << 22, 53},
                                                   {1 << 24, 50}, {1 << 26, 22}};  ///< all cores at work
  rate_curve copy_one_core = std::vector<rate_curve::point>{{16384, 155},  {1 << 18, 125}, {1 << 20, 105},
                                                            {1 << 22, 56}, {1 << 24, 60},  {1 << 26, 41}};
  rate_curve copy_streamed = std::vector<rate_curve::point>{
      {16384, 38}, {1 << 18, 48}, {1 << 24, 48}, {1 << 26, 22}};  ///< non-temporal, all cores
  rate_curve reduce = std::vector<rate_curve::point>{{16384, 127},  {1 << 16, 70}, {1 << 20, 52}, {1 << 22, 36},
                                                     {1 << 24, 28}, {1 << 26, 10}};  ///< f32 sum of two, all cores
  rate_curve reduce_one_core = std::vector<rate_curve::point>{{16384, 125},  {1 << 16, 70}, {1 << 20, 52},
                                                              {1 << 22, 36}, {1 << 24, 38}, {1 << 26, 18}};
  rate_curve pass =
      std::vector<rate_curve::point>{{16384, 25},  {1 << 18, 17}, {1 << 20, 15}, {1 << 22, 14},
                                     {1 << 24, 9}, {1 << 26, 3.5}};  ///< f32 sum of four into four, all cores

  /// Sum of two in the first-level cache, GB/s of result, by datatype: how fast a type can be computed at best.
  std::vector<double> type_rate{115, 115, 115, 115, 115, 115, 46, 29, 115, 115, 4.7, 7.1};

  /// What was the fastest, for planner "measured"; in the file a list [[choices]].
  std::vector<measured_choice> choices;

  /// What a score through the actors, and in frames between processes, costs that keeps every core busy with `bytes_a_core`.
  /// @param ranks_of_host of several processes: that have their turns one after the other; those of other hosts on the same computer mostly sleep
  machine_constants through_actors(double bytes_a_core, datatype type, int ranks_of_host = 1, int computers = 1) const;
  /// What a score over slots costs.
  machine_constants over_slots(slot_format format, int ranks, double bytes_a_core, datatype type) const;
  /// What an operation by the direct port takes: two meetings, the passes by as many cores as there are, and the lines that come from other
  /// cores' caches.
  /// @param sizes blocks are equal @param where between processes: the system copies what is in another one; null: in one process
  double direct_seconds(const direct_program& made, const call_shape& sizes, double bytes_a_core, datatype type,
                        const reach_map* where = nullptr) const;
  /// That part of it that no program changes.
  double direct_operation_seconds(int ranks) const;
  double actor_operation_seconds(int ranks) const;
  /// Of a frame between hosts, with so many borders of groups between them.
  double network_message_ns(int borders) const { return beyond(outer_message_ns, borders, socket_message_ns); }
  double network_kilobyte_ns(int borders) const { return beyond(outer_kilobyte_ns, borders, socket_kilobyte_ns); }
  double slot_operation_seconds() const { return slot_operation_ns * 1e-9; }

private:
  static double beyond(const std::vector<double>& outer, int borders, double inside) {
    if (borders == 0 || outer.empty()) return inside;
    return outer[std::min(static_cast<std::size_t>(borders), outer.size()) - 1];
  }
};

/// What the processes of a job exchange: the constants as numbers of which the larger is the dearer (rates are negative), tables at fixed
/// sizes, and the cores. As many of every machine.
std::vector<double> costs_of(const tuning& t);
/// A machine with these costs; the rest as `t` says. Throws error(mismatch) for numbers that costs_of() cannot have made.
tuning with_costs(tuning t, std::span<const double> costs);

/// What type_rate has: complex numbers are as fast as their parts.
inline constexpr std::span<const datatype> tuned_datatypes{all_datatypes.data(),
                                                           static_cast<std::size_t>(datatype::c64)};
static_assert(tuned_datatypes.size() + 2 == all_datatypes.size());

/// One constant of the file.
struct tuning_key {
  std::string_view key;  ///< "slots.message"
  std::string_view unit;
  std::string_view how;              ///< it is measured
  double tuning::*number = nullptr;  ///< this or …
  rate_curve tuning::*curve = nullptr;
};
/// In the order of the file. [types] has a key for every one of tuned_datatypes besides.
std::span<const tuning_key> tuning_schema();

/// The assumed constants, for this machine.
tuning assumed_tuning();
/// Throws error(bad_config) that names file and line: what cannot be read, unknown and missing keys, values that make no sense, a file of
/// another format.
tuning read_tuning(const std::string& path);
tuning parse_tuning(std::string_view toml, const std::string& name);
/// TOML that read_tuning() reads back the same.
std::string to_toml(const tuning& t);

/// Which file an engine with these options loads, and why: options, TROUPE_TUNING, the default place. Empty path: none.
struct tuning_place {
  std::string path;
  enum class found : std::uint8_t { nowhere, options, environment, default_place } from = found::nowhere;
};
tuning_place find_tuning(const std::string& option);
/// $XDG_CONFIG_HOME/troupe/tuning.toml, else ~/.config/troupe/tuning.toml; empty if neither variable is set.
std::string default_tuning_path();
/// Of that place; logs a warning, once a file, if it was measured on another machine. Throws as read_tuning().
tuning load_tuning(const engine_options& options);

}  // namespace troupe
