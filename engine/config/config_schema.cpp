// SPDX-License-Identifier: Apache-2.0
// The schema, and the reading of single values. configuration.cpp has the sources and their order.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/config/configuration.hpp"
#include "engine/planning/option_bounds.hpp"

namespace troupe {

namespace {

using enum config_kind;
constexpr double unlimited = 9.0e15;  // below 2^53, so that double holds every bound exactly

constexpr std::string_view levels = "fast|run_stable|size_stable|topology_stable";

/// A text of the program, as a template's argument.
template <std::size_t n>
struct literal {
  char text[n]{};
  consteval literal(const char (&of)[n]) { std::copy_n(of, n, text); }
};

template <literal a, literal b>
struct joined_literals {
  static constexpr std::size_t first = sizeof a.text - 1, second = sizeof b.text - 1;
  static constexpr std::array<char, first + second> text = [] {
    std::array<char, first + second> made{};
    std::copy_n(a.text, first, made.begin());
    std::copy_n(b.text, second, made.begin() + first);
    return made;
  }();
};
/// One behind the other.
template <literal a, literal b>
constexpr std::string_view joined{joined_literals<a, b>::text.data(), joined_literals<a, b>::text.size()};

/// What an engine's planner and a study's choreography are told alike. @param who "of planner"
template <literal table, literal who>
consteval auto selection_settings() {
  return std::array<config_setting, 18>{{
      {joined<table, ".hccl.device">, choice, "910b", joined<who, " hccl">, 0, 0, "910b|910_93|310p"},
      {joined<table, ".hccl.buffer">, bytes, "200M", joined<who, " hccl: the CCL buffer">},
      {joined<table, ".hccl.super_pod">, boolean, "false", joined<who, " hccl: the servers are of one super-pod">},
      {joined<table, ".hccl.aiv">, boolean, "false", joined<who, " hccl: the vector cores may communicate">},
      {joined<table, ".hccl.aicpu_unfolded">, boolean, "false", joined<who, " hccl: no DirectFullMesh">},
      {joined<table, ".hccl.one_level">, boolean, "false", joined<who, " hccl: the user forces a single level">},
      {joined<table, ".hccl.level0">, choice, "na", joined<who, " hccl: the algorithm inside servers; na: its own">, 0,
       0, "na|ring|pairwise|mesh|nhr|nb|hd"},
      {joined<table, ".hccl.level1">, choice, "na", joined<who, " hccl: the algorithm between servers; na: its own">, 0,
       0, "na|ring|pairwise|mesh|nhr|nb|hd"},
      {joined<table, ".nccl.version">, choice, "2.19", joined<who, " nccl: whose tables; 2.23 has PAT">, 0, 0,
       "2.19|2.23"},
      {joined<table, ".nccl.device">, choice, "hopper", joined<who, " nccl">, 0, 0, "hopper|ampere|volta"},
      {joined<table, ".nccl.host">, choice, "intel", joined<who, " nccl: the servers' processors">, 0, 0,
       "intel|amd|power"},
      {joined<table, ".nccl.nvlink">, boolean, "true", joined<who, " nccl: NVLink inside servers, else PCI">},
      {joined<table, ".nccl.ll128">, boolean, "true", joined<who, " nccl: stores of 128 bytes stay whole">},
      {joined<table, ".nccl.channels">, integer, "12", joined<who, " nccl: what its search found">, 1, 32},
      {joined<table, ".nccl.inside">, real, "30", joined<who, " nccl: GB/s a channel inside servers">, 0.001, 1e6},
      {joined<table, ".nccl.between">, real, "30", joined<who, " nccl: GB/s a channel between servers">, 0.001, 1e6},
      {joined<table, ".nccl.nvls">, boolean, "false", joined<who, " nccl: the switch inside servers reduces">},
      {joined<table, ".nccl.collnet">, boolean, "false", joined<who, " nccl: the network between servers reduces">},
  }};
}

template <std::size_t... counts>
consteval auto one_after_another(const std::array<config_setting, counts>&... parts) {
  std::array<config_setting, (counts + ...)> all;
  auto end = all.begin();
  ((end = std::copy(parts.begin(), parts.end(), end)), ...);
  return all;
}

// docs/config.md describes every key of these tables; a test compares the two.
constexpr std::array settings_up_to_planners{
    config_setting{"engine.layout", text, "",
                   "where ranks sit: 8, 2x4 (servers x cards), 2x4x4 (x core groups), 2x2x4x1 (pods in front), 4+3, "
                   "1x1x4+host; empty: flat; "
                   "behind it, or alone, which switches reduce: :inside"},
    config_setting{"engine.nic_ports", integer, "1", "NIC ports of a server", 1, 64},
    config_setting{
        "engine.choreography", text, "auto",
        "of every collective that it offers; auto: the planner chooses; ^ring,bruck: but none of these; ^tree: none "
        "whose name has that word"},
    config_setting{
        "engine.planner", choice, "model",
        "who chooses where none is named: predicted time, what troupe tune --choices measured, HCCL's selection, or "
        "NCCL's tuning model",
        0, 0, "model|measured|hccl|nccl"},
    config_setting{"engine.protocol", choice, "auto", "how messages travel", 0, 0, wanted_protocols},
    config_setting{"engine.tuning", text, "",
                   "a file of troupe tune, or none; empty: TROUPE_TUNING, else the default place"},
    config_setting{"engine.channels", integer, "0",
                   "pieces of a message performed side by side; 0: the planner decides", 0, most_channels_wanted},
    config_setting{"engine.chunk_bytes", bytes, "0", "largest slice of a channel's cell; 0: the planner decides"},
    config_setting{
        "engine.slices_per_step", integer, "0",
        "slices that a step takes before the next step, at most as credits let go on; 0: the planner decides", 0,
        most_credits},
    config_setting{"engine.credits", integer, "8", "chunks under way per (source, destination, lane)", 1, most_credits},
    config_setting{"engine.streams", integer, "4", "exchanges at once in direct_full_mesh", 1, most_streams},
    config_setting{"engine.through_scratch", boolean, "false",
                   "pairwise, direct_full_mesh: BCopy through scratch instead of ZCopy"},
    config_setting{"engine.scratch_bytes", bytes, "200M",
                   "of BCopy: a rank's staging memory, at least 4K; larger blocks go in pieces"},
    config_setting{"engine.determinism", choice, "run_stable", "what may be relied on when a reduction is repeated", 0,
                   0, levels},
    config_setting{
        "engine.agreement", choice, "eager",
        "small rooted collectives end before (eager) or after (strict) all are known to call the same, short "
        "blocking sends before or after they were received",
        0, 0, "eager|strict"},
    config_setting{
        "engine.offload", choice, "never",
        "collectives that the process's NIC thread performs: none, started ones that are long, all that it can", 0, 0,
        "never|auto|always"},
    config_setting{
        "engine.nic", text, "process",
        "the NIC of several processes of a host: rank 0's (process), troupe nicd (host), or unix:@name where it "
        "listens"},
    config_setting{"engine.stages", choice, "measured",
                   "between processes of a host: whether data is copied to memory that all map, or by the system; the "
                   "first process's word counts",
                   0, 0, "measured|always|never"},
    config_setting{"engine.deadline", duration, "none", "of every operation that names none"},
    config_setting{"engine.workers", integer, "-1",
                   "threads of the engine's own; -1: one a core; 0: only callers perform: while nobody waits or tests, "
                   "no deadline passes and no callback is called",
                   -1, 1024},
    config_setting{"engine.spin", integer, "64", "how often an idle thread looks again before it sleeps", 0, 1e6},
    config_setting{"engine.trace_routes", boolean, "false", "record the elements that chunks pass"},
    config_setting{"engine.record", text, "",
                   "a file to write ranks' calls to in GOAL, for troupe replay; of a job's process 3 run.3.goal"},
    config_setting{"engine.tls_certificate", text, "",
                   "PEM file of this process's certificate, for TLS between hosts; empty: no TLS"},
    config_setting{"engine.tls_key", text, "", "PEM file of the certificate's key, open to its owner only"},
    config_setting{"engine.tls_authority", text, "", "PEM file of the authority that all certificates come from"},
    config_setting{"engine.lanes", integer, "1", "connections to each process of another host, for long messages", 1,
                   16},
    config_setting{"engine.transport", choice, "sockets", "what carries data between hosts", 0, 0, "sockets|ucx"},
    config_setting{"engine.log_level", choice, "warn", "least severe message that is logged", 0, 0,
                   "trace|debug|info|warn|error|off"},
    config_setting{"engine.card.l0", bytes, "1G",
                   "L0 of a core group of the layout, for choreographies that use it (csc); whole pages of 8K"},
    config_setting{"engine.card.l2", bytes, "64G", "L2 of a card of the layout, likewise"},
};

constexpr std::array settings_up_to_selections{
    config_setting{"engine.choreography_of.*", text, "",
                   "choreography of one collective, stronger than engine.choreography"},
    config_setting{"engine.score_files.*", text, "", "a choreography of your own: its name = its score file (JSON)"},
    config_setting{"engine.choreography_libraries.*", text, "",
                   "a shared library with choreographies of your own: any name = its file"},
    config_setting{"engine.faults.seed", integer, "0", "of the mischief below", 0, unlimited},
    config_setting{"engine.faults.drop", real, "0",
                   "probability that a chunk message is lost, or what a rank asks of its card", 0, 1},
    config_setting{"engine.faults.duplicate", real, "0", "probability that it comes twice", 0, 1},
    config_setting{"engine.faults.reorder", real, "0", "probability that the next one overtakes it", 0, 1},
    config_setting{"engine.faults.delay", real, "0", "probability that it comes late", 0, 1},
    config_setting{"engine.faults.longest_delay", duration, "500us", "how late at most"},
    config_setting{"engine.faults.kill_after", integer, "-1",
                   "a rank's actor dies at its chunk of this number; -1: never", -1, unlimited},
    config_setting{"engine.faults.kill_rank", integer, "0", "rank whose channel dies", 0, 1e6},
    config_setting{"workload.ranks", integer, "0",
                   "number of ranks, at most the layout's places; 0: all of them, else 8", 0, most_ranks_of_a_process},
    config_setting{"workload.processes", integer, "0",
                   "processes that share the ranks alike; 0: one, or with workload.hosts as many as they have slots", 0,
                   1024},
    config_setting{"workload.hosts", text, "",
                   "a file of hosts (troupe launch --help) where the processes run; empty: here"},
    config_setting{"workload.iterations", integer, "20", "timed repetitions", 1, 1e9},
    config_setting{"workload.warmup", integer, "5",
                   "repetitions before them, at least: they go on until times settle; 0: none", 0, 1e9},
    config_setting{"workload.check", boolean, "true", "check every result in a separate, untimed run"},
    config_setting{"workload.one_thread", boolean, "false",
                   "one thread drives all ranks in groups, instead of a thread a rank"},
    config_setting{"workload.run.collective", text, "all_reduce", "what to run; a collective, a v-form, or send_recv"},
    config_setting{"workload.run.sizes", sizes, "1M", "bytes, as nccl-tests counts them: the whole buffer of a rank"},
    config_setting{"workload.run.type", text, "f32", "element type, or all"},
    config_setting{"workload.run.op", text, "sum", "reduction, or all (of reducing collectives)"},
    config_setting{"workload.run.root", integer, "0", "root (of rooted collectives); -1: every rank in turn", -1,
                   most_ranks_of_a_process - 1},
    config_setting{"workload.run.in_place", choice, "both", "out of place, in place, or both", 0, 0, "out|in|both"},
    config_setting{"workload.run.choreography", text, "", "of this run; empty: the engine's"},
    config_setting{"workload.run.protocol", choice, "", "of this run; empty: the engine's", 0, 0, wanted_protocols},
    config_setting{"workload.run.determinism", choice, "", "of this run; empty: the engine's", 0, 0, levels},
    config_setting{"workload.run.counts", counts, "",
                   "v-forms: elements of each rank's block; all_to_all_v: a row a sender"},
    config_setting{"workload.run.unit", integer, "1", "elements that one of `counts` stands for", 1, 1e9},
    config_setting{"study.title", text, "", "heading of reports; empty: made from the rest"},
    config_setting{"study.collective", text, "all_reduce", "what is studied; a collective or a v-form"},
    config_setting{
        "study.choreography", text, "auto",
        "one of troupe list, of study.score_files or of engine.score_files; auto: the fastest of all that can; "
        "hccl: what HCCL's selection takes; nccl: what NCCL's tuning model takes"},
    config_setting{"study.protocol", text, "simple", "of the preset's table (simple, ll, ll128); auto: the fastest"},
    config_setting{"study.channels", integer, "1", "pieces of every cell that are performed side by side", 1,
                   most_channels_wanted},
    config_setting{"study.slices", integer, "0",
                   "pieces that follow one another; 0: as many as the chunk size asks for (with `auto`, and no limit, "
                   "as many as are fastest)",
                   0, 1e6},
    config_setting{
        "study.slices_per_step", integer, "0",
        "slices that a step takes before the next step; 0: one (with `auto`, and no `slices`, as many as are fastest; "
        "with `nccl` two where NCCL's primitives have two)",
        0, 1e6},
    config_setting{"study.chunk_bytes", bytes, "0", "largest chunk; 0: what the protocol's slot holds"},
    config_setting{"study.credits", integer, "0",
                   "chunks under way per (source, destination, lane); 0: the protocol's slots", 0, 1e6},
    config_setting{"study.sizes", sizes, "1M", "bytes, as nccl-tests counts them: the whole buffer of a rank"},
    config_setting{"study.counts", counts, "", "v-forms: elements of each rank's block; all_to_all_v: a row a sender"},
    config_setting{"study.unit", integer, "1", "elements that one of `counts` stands for", 1, 1e9},
    config_setting{"study.type", text, "f32", "element type"},
    config_setting{"study.op", text, "sum", "reduction"},
    config_setting{"study.root", integer, "0", "root (of rooted collectives)", 0, 16777215},
    config_setting{"study.in_place", boolean, "false", "the call is in place"},
    config_setting{"study.streams", integer, "4", "exchanges at once in direct_full_mesh", 1, most_streams},
    config_setting{"study.through_scratch", boolean, "false",
                   "pairwise, direct_full_mesh: BCopy through scratch instead of ZCopy"},
    config_setting{"study.contiguous", boolean, "false",
                   "csc: an all_gather fetches up to three blocks at once where they lie beside each other in L2"},
    config_setting{"study.preset", text, "flat",
                   "the machine; troupe study --presets lists all; or a file of your own: torus.toml"},
    config_setting{"study.ranks", integer, "0", "number of ranks; 0: the preset's own", 0, 16777216},
    config_setting{
        "study.layout", text, "",
        "servers x cards x core groups, groups of servers in front, where the preset has one; empty: its own"},
    config_setting{"study.skew_spread", text, "0", "every rank begins late by a random time below this"},
    config_setting{"study.seed", integer, "1", "of the random times", 0, unlimited},
    config_setting{"study.payload", choice, "none",
                   "real: bytes are moved, reduced and checked; none: only their time is spent", 0, 0, "none|real"},
    config_setting{
        "study.performed_by", choice, "auto",
        "the ranks' states as in a real run, or the player, which takes the same times; auto: the player for "
        "large runs that move no bytes",
        0, 0, "auto|states|player"},
    config_setting{"study.any_order", boolean, "false",
                   "contributions may be combined in the order of arrival (determinism fast)"},
    config_setting{"study.compute", text, "0", "a computation of every rank, on its core, before the collective"},
    config_setting{"study.compute_blocks", integer, "1", "equal pieces of it", 1, 1e6},
    config_setting{"study.compute_dma_bytes", bytes, "0", "that a piece moves through the rank's DMA engine"},
    config_setting{"study.overlap", boolean, "false", "the computation goes on beside the collective"},
};

constexpr std::array further_settings{
    config_setting{"study.score_files.*", text, "",
                   "a choreography of your own, besides those of engine.score_files: its name = its score file (JSON)"},
    config_setting{"study.structure.*", scalar, "", "how the preset is built; each says what it has"},
    config_setting{"study.hardware.**", scalar, "",
                   "a constant of the machine: nic.bandwidth, host.launch, protocol.ll.latency"},
    config_setting{"study.slow.**", real, "", "an element by its name = how many times as slow it is", 0.001, 1000},
    config_setting{
        "study.faults.**", text, "",
        "an element by its name = when it is slower, or down: 4 from 1ms to 2ms, down from 5ms to 6ms; or rank 3 = "
        "exits at 2ms, stops at 2ms"},
    config_setting{"study.skew.*", text, "", "a rank = how late it begins"},
    config_setting{"study.job.name", text, "", "of reports; empty: job 0, job 1, ..."},
    config_setting{"study.job.calls", text, "",
                   "what a round of it performs, one after the other: \"all_reduce 4M, all_gather 64K by ring\""},
    config_setting{"study.job.ranks", integer, "0",
                   "number of ranks, on the first places that are free; 0: all of them", 0, 16777216},
    config_setting{"study.job.on", text, "", "or the machine's ranks that it sits on: \"0-7, 16-31:2\""},
    config_setting{"study.job.layout", text, "", "of its ranks, as choreographies see it; empty: the machine's part"},
    config_setting{"study.job.choreography", text, "", "of calls that name none; empty: the study's"},
    config_setting{"study.job.protocol", text, "", "empty: the study's"},
    config_setting{"study.job.type", text, "", "element type; empty: the study's"},
    config_setting{"study.job.op", text, "", "reduction; empty: the study's"},
    config_setting{"study.job.root", integer, "0", "root (of rooted collectives), one of the job's ranks", 0, 16777215},
    config_setting{"study.job.start", text, "0", "when it begins"},
    config_setting{"study.job.rounds", integer, "1", "how often it does so", 1, 1e6},
    config_setting{"study.job.compute", text, "0", "every rank's computation between two rounds, on its core"},
    config_setting{"study.job.period", text, "0", "from the begin of a round to that of the next, at least"},
    config_setting{"study.job.copies", integer, "1", "so many jobs of this kind", 1, 4096},
    config_setting{"study.job.share", boolean, "false", "it may sit where other jobs that share sit"},
    config_setting{"study.job.by", choice, "", "who performs, on machines whose NICs can; empty: the machine's", 0, 0,
                   "nics|hosts"},
    config_setting{"study.flow.tile", bytes, "16K",
                   "of a flow: bytes of a tile, at most; cores and parts have equally many"},
    config_setting{"study.flow.cores", integer, "1", "of a rank; tiles are dealt to them in turn", 1, 65536},
    config_setting{"study.flow.depth", integer, "2", "tiles that a core has room for at once", 1, 65536},
    config_setting{"study.node.name", text, "", "of reports, and for `from`; empty: node 0, node 1, ..."},
    config_setting{"study.node.kind", choice, "", "what it is", 0, 0, "source|operator|collective|sink"},
    config_setting{"study.node.from", text, "",
                   "the node whose tiles it takes; of an operator that takes two streams both"},
    config_setting{"study.node.holds", choice, "share", "of a source: a rank's share of the tensor, or the whole", 0, 0,
                   "share|whole"},
    config_setting{"study.node.through", text, "l1",
                   "where its tiles come through: the core's memory (l0), the rank's (l1), or that of all ranks (l2)"},
    config_setting{"study.node.exchange", choice, "", "what ranks make of tiles in l2", 0, 0,
                   "all_gather|reduce_scatter"},
    config_setting{"study.node.sync", choice, "kernel", "of an exchange: one sync between its kernels, or one a tile",
                   0, 0, "kernel|tile"},
    config_setting{"study.node.keeps", boolean, "false", "of an all_gather: stores others' tiles in l1 besides"},
    config_setting{"study.node.time", text, "0", "of an operator: a core's work on a tile"},
    config_setting{"study.node.loads", bytes, "0", "of an operator: bytes of other operands a tile, from l1"},
    config_setting{
        "study.node.kernel", text, "",
        "nodes of one kernel share a launch; empty: its own, or where it takes tiles in l0 that of the node before"},
    config_setting{"study.node.begins", choice, "after",
                   "its kernel: after those before it in the file, or beside the last of them", 0, 0, "after|beside"},
    config_setting{"study.node.collective", choice, "", "what a collective performs", 0, 0,
                   "all_gather|reduce_scatter"},
    config_setting{"study.node.choreography", text, "", "of a collective; empty: the study's"},
    config_setting{"study.node.channels", integer, "0", "of a collective; 0: the study's", 0, most_channels_wanted},
    config_setting{
        "study.node.parts", integer, "0",
        "of a collective: it takes each of so many parts of its input as soon as that is there; 0: it begins "
        "when all is",
        0, 1e6},
};

constexpr auto schema =
    one_after_another(settings_up_to_planners, selection_settings<"engine", "of planner">(), settings_up_to_selections,
                      selection_settings<"study", "of choreography">(), further_settings);

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < unlimited)
    return std::to_string(static_cast<std::int64_t>(value));
  std::string text = std::to_string(value);
  while (text.back() == '0') text.pop_back();
  return text;
}

struct unit {
  std::string_view name;
  double factor;
};

/// A number that is not negative, and what follows it.
bool split_number(std::string_view text, double& number, std::string_view& rest) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (failure != std::errc{} || number < 0 || !std::isfinite(number)) return false;
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  return true;
}

std::int64_t with_unit(std::string_view text, std::span<const unit> units) {
  double number = 0;
  std::string_view rest;
  if (!split_number(text, number, rest)) return -1;
  for (const unit& u : units)
    if (u.name == rest) {
      const double value = number * u.factor;
      return value < unlimited ? static_cast<std::int64_t>(std::llround(value)) : -1;
    }
  return -1;
}

}  // namespace

std::span<const config_setting> config_schema() { return schema; }

std::string what_is_right(const config_setting& s) {
  switch (s.kind) {
    case boolean: return "true or false";
    case integer:
      return s.most >= unlimited ? "an integer of at least " + number_text(s.least)
                                 : "an integer from " + number_text(s.least) + " to " + number_text(s.most);
    case real: return "a number from " + number_text(s.least) + " to " + number_text(s.most);
    case text: return "a text";
    case scalar: return "a text, a number, true or false";
    case choice: {
      std::string list = "one of ";
      for (const char c : s.choices) list += c == '|' ? std::string{", "} : std::string(1, c);
      return list;
    }
    case bytes: return "a number of bytes such as 65536, \"512K\" or \"1M\"";
    case duration:
      return s.initial == "none" ? "a duration above 0 such as \"100ms\" or \"5s\", or \"none\""
                                 : "a duration such as \"500us\" or \"100ms\"";
    case sizes: return "a list of sizes such as [8, \"64K\"], or { from = \"8\", to = \"64M\", factor = 4 }";
    case counts: return "a list of counts such as [3, 0, 5], or a list of such lists";
  }
  return {};
}

std::int64_t parse_bytes(std::string_view text) {
  static constexpr std::array<unit, 17> units{{{"", 1},
                                               {"B", 1},
                                               {"K", 1024},
                                               {"k", 1024},
                                               {"KB", 1024},
                                               {"KiB", 1024},
                                               {"M", 1 << 20},
                                               {"m", 1 << 20},
                                               {"MB", 1 << 20},
                                               {"MiB", 1 << 20},
                                               {"G", 1 << 30},
                                               {"g", 1 << 30},
                                               {"GB", 1 << 30},
                                               {"GiB", 1 << 30},
                                               {"T", 1099511627776.0},
                                               {"TB", 1099511627776.0},
                                               {"TiB", 1099511627776.0}}};
  return with_unit(text, units);
}

std::int64_t parse_duration(std::string_view text) {
  static constexpr std::array<unit, 7> units{
      {{"ns", 1}, {"us", 1e3}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}}};
  return with_unit(text, units);
}

std::string bytes_text(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 4> suffixes{"", "K", "M", "G"};
  std::size_t suffix = 0;
  while (suffix + 1 < suffixes.size() && bytes >= 1024 && bytes % 1024 == 0) bytes /= 1024, ++suffix;
  return std::to_string(bytes) + std::string{suffixes[suffix]};
}

std::string to_string(const config_origin& origin) {
  switch (origin.from) {
    case config_origin::source::initial: return "default";
    case config_origin::source::file: return origin.where;
    case config_origin::source::environment: return "environment " + origin.where;
    case config_origin::source::command_line: return "command line";
    case config_origin::source::api: return "API";
  }
  return {};
}

std::string place_of(const config_origin& origin) { return origin.where.empty() ? to_string(origin) : origin.where; }

}  // namespace troupe
