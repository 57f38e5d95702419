// SPDX-License-Identifier: Apache-2.0
#pragma once
// Everything an engine can be told. A configuration file, TROUPE_… variables and this struct say the same things.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protocols/call_description.hpp"
#include "topology/machine/card_sizes.hpp"

namespace troupe {

struct choreography;

/// Seeded mischief, for tests of what an application does when things go wrong. Probabilities are per chunk message, 0 … 1.
struct fault_options {
  std::uint64_t seed = 0;
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;
  double delay = 0;
  std::chrono::microseconds longest_delay{500};
  std::int64_t kill_after = -1;  ///< a rank's actor dies at its kill_after-th chunk; −1: never
  int kill_rank = 0;             ///< of this rank
  bool any() const { return drop > 0 || duplicate > 0 || reorder > 0 || delay > 0 || kill_after >= 0; }
  bool operator==(const fault_options&) const = default;
};

enum class hccl_device : std::uint8_t { ascend_910b, ascend_910_93, ascend_310p };
/// A level's algorithm: as a user may force it (spec 4: NA, RING, PAIRWISE, MESH, NHR, NB; the sources have halving and doubling, too).
enum class hccl_level : std::uint8_t { na, ring, pairwise, mesh, nhr, nb, hd };

/// The device and the wishes that HCCL's selection goes by, where `planner` is "hccl" (docs/config.md).
struct hccl_options {
  hccl_device device = hccl_device::ascend_910b;
  std::size_t buffer = std::size_t{200} << 20;  ///< the CCL buffer
  bool super_pod = false;                       ///< the servers are of one super-pod
  bool aiv = false;                             ///< the vector cores may communicate
  bool aicpu_unfolded = false;                  ///< no DirectFullMesh
  bool one_level = false;                       ///< the user forces a single level
  hccl_level level0 = hccl_level::na;           ///< the user's own algorithm inside servers; na: the selection's
  hccl_level level1 = hccl_level::na;           ///< between servers
  bool operator==(const hccl_options&) const = default;
};

enum class nccl_version : std::uint8_t { v2_19, v2_23 };
enum class nccl_device : std::uint8_t { volta, ampere, hopper };
/// The servers' processors, as far as the model tells them apart.
enum class nccl_host : std::uint8_t { intel, amd, power };

/// The machine that NCCL's tuning model goes by, where `planner` is "nccl" (docs/config.md). The defaults are eight H100 a server.
struct nccl_options {
  nccl_version version = nccl_version::v2_19;  ///< whose tables; 2.23 has PAT
  nccl_device device = nccl_device::hopper;
  nccl_host host = nccl_host::intel;
  bool nvlink = true;  ///< cards of a server reach each other over NVLink, else over PCI
  bool ll128 = true;   ///< stores of 128 bytes stay whole on every way; also needs NVLink
  /// The channels that NCCL's search found for rings and trees, as its log prints it: "nChannels 12, bw 30.0/30.0".
  int channels = 12;
  double inside = 30, between = 30;  ///< GB/s (10⁹) a channel
  bool nvls = false;                 ///< the switch inside servers reduces (NVLink SHARP)
  bool collnet = false;              ///< the network between them does (SHARP)
  bool operator==(const nccl_options&) const = default;
};

struct engine_options {
  /// Where ranks sit: "8", "2x4" (servers × cards), "2x4x4" (× core groups), "2x2x4x1" (pods in front), "4+3" … (topology/layout/layout.hpp). Empty: flat.
  /// ":inside", ":between", ":both": which switches reduce, and no places; all that a process of a job may say.
  std::string layout{};
  int nic_ports = 1;  ///< per server
  card_sizes
      card{};  ///< of every card of the layout: what operations whose choreography uses L0 and L2 (csc) find there
  /// Of every collective that offers it; "auto": the planner chooses; "^ring,tree": it chooses, but not ring and none whose name has the word tree.
  std::string choreography = "auto";
  /// Collective name → choreography, stronger than `choreography`; "^…" excludes, besides what `choreography` excludes.
  std::map<std::string, std::string> choreography_of{};
  /// How a choreography is chosen where none is named. "model": predicted time. "measured": what `troupe tune --choices` found to be the fastest. "hccl": HCCL's selection, "nccl": NCCL's tuning model, where they have an
  /// answer for the call.
  std::string planner = "model";
  hccl_options hccl{};
  nccl_options nccl{};
  std::map<std::string, std::string> score_files{};  ///< a user's own choreographies: name → file
  /// Choreographies of your own, as code; register_choreography() says what that means.
  std::vector<const struct choreography*> choreographies{};
  std::map<std::string, std::string>
      choreography_libraries{};  ///< the same in shared libraries (plugin.hpp): any name → file
  /// "simple": messages between actors. "direct": by the callers, straight on all ranks' buffers, wherever one pass
  /// can do it. "ll", "ll128": small collectives are performed by their callers over slots of that kind wherever that is
  /// possible. "auto": the planner decides, as it does where a wish cannot be fulfilled. A wish, as `choreography`: call_options::protocol insists.
  std::string protocol = "auto";
  /// The costs of this machine, by which the planner chooses: a file of `troupe tune` (docs/tuning.md). Empty: the one that
  /// TROUPE_TUNING names, else $XDG_CONFIG_HOME/troupe/tuning.toml if there is one, else assumed constants; "none": those.
  std::string tuning{};
  int channels = 0;             ///< pieces of a message performed side by side; 0: the planner decides
  std::size_t chunk_bytes = 0;  ///< largest slice of a channel's cell; 0: the planner decides
  /// Slices that a step takes before the next step begins, at most as many as credits let go on; 0: the planner decides. One: a message's slices
  /// go one after the other through all steps of a rank, and each pays the latency of all hops.
  int slices_per_step = 0;
  int credits = 8;               ///< chunks under way per (source, destination, lane), 1 … 64
  int streams = 4;               ///< exchanges at once in direct_full_mesh
  bool through_scratch = false;  ///< pairwise, direct_full_mesh: BCopy instead of ZCopy
  /// Of BCopy: what a rank has for staging, at least 4 KiB. Blocks that are larger go through it in pieces.
  std::size_t scratch_bytes = std::size_t{200} << 20;
  determinism level = determinism::run_stable;
  /// When ranks learn that all have called the same. eager: a small rooted collective may succeed on a rank that needs nobody else
  /// (the root of a broadcast or scatter, the others of a reduce or gather), which then runs ahead of the others, by 32 operations (by mailbox, and over slots where ranks share cores: 64) at
  /// most. The results are right all the same. If the ranks turn out to have called different operations, that is told with a later one
  /// (at the latest with the next collective that is not rooted, with the 65th rooted one, or at the end of engine::run; a communicator
  /// that ends without any logs it), and ends the communicator. strict: before a call succeeds anywhere, and only that call fails.
  /// A blocking send of up to 1 KiB to a rank of the same host: eager: it ends when it lies in memory that both share, and at most four such wait for
  /// a peer; if the peer calls another count or type, refuses it or never receives, only the peer hears of that. strict: it ends when it was
  /// received, and both ends have the same outcome.
  agreement_time agreement = agreement_time::eager;
  /// Which collectives the process's NIC performs: a thread of the engine's that goes on while callers compute (docs/offload.md). Between hosts the NICs of
  /// their first processes perform together. "never".
  /// "auto": those that are started and not waited for (…_async, persistent) and that are long enough for it. "always": all that a NIC
  /// can perform. Calls that it cannot perform go the way that they go otherwise. All ranks must start a call alike then, or all wait in it.
  std::string offload = "never";
  /// Which NIC performs what processes of a host have in common: "process": that of rank 0's process. "host": that of the host, `troupe nicd`, where
  /// it listens if nothing else is said; "unix:@name": one that listens there. Calls within a process go to its own NIC.
  std::string nic = "process";
  /// Data that no other process of the host maps: "measured": copied to a staging buffer that all map where that costs less than having the system copy it, as
  /// the host's first process has measured when it joined (docs/hosts.md, "Staging buffers"); "always", "never". That process's word counts.
  std::string stages = "measured";
  std::optional<std::chrono::nanoseconds> deadline{};  ///< of every operation that names none
  /// Threads of the engine's own; −1: one a core. 0: only callers perform: while nobody waits or tests, nothing moves, no deadline passes, no callback is
  /// called, and nobody is told of a hang.
  int workers = -1;
  int spin = 64;              ///< how often an idle thread looks again before it sleeps
  bool trace_routes = false;  ///< record the elements that chunks pass
  /// A file that what ranks call, and how long they compute between, is written to in GOAL, for `troupe replay` (docs/study.md): when the last
  /// communicator of a world is gone, or the engine. run.goal; of the process's next world run-2.goal; of process 3 of a job run.3.goal. Empty: none.
  std::string record{};
  /// Of connections to other hosts (docs/hosts.md): PEM files with this process's certificate, its key, and the authority that all certificates of
  /// the job come from. All three, in all processes: then every TCP connection is TLS 1.3, with certificates of both. Empty: they are open.
  std::string tls_certificate{}, tls_key{}, tls_authority{};
  /// Connections to each process of another host, 1 … 16: long messages (docs/hosts.md, "Lanes") are divided over them. Each process decides for what
  /// it sends. 1: more would only help where one connection cannot fill the path.
  int lanes = 1;
  /// The transport of data between hosts (docs/hosts.md, "UCX"): "sockets", or "ucx", where Troupe was built with it. The same in all processes of a job.
  std::string transport = "sockets";
  std::string log_level = "warn";  ///< trace, debug, info, warn, error, off
  fault_options faults{};
  /// As if that many small operations had been performed in every communicator before: for tests of long runs, and so not in files. At most 2⁴⁶.
  std::uint64_t first_operation = 0;
  /// Options that are left at their defaults here are taken from the environment: the file that TROUPE_CONFIG names, then TROUPE_ENGINE_… variables, which
  /// are stronger (docs/config.md). False: the program alone decides.
  bool environment = true;

  bool operator==(const engine_options&) const = default;
};

}  // namespace troupe
