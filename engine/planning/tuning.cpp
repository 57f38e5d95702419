// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/tuning.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>
#include <sstream>

#include <spdlog/spdlog.h>
#include <sys/utsname.h>
#include <toml++/toml.h>

#include "actors/log.hpp"
#include "memory/error.hpp"
#include "memory/read_file.hpp"
#include "memory/spelling.hpp"
#include "protocols/program/direct_staging.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

constexpr std::array<std::string_view, 5> choice_keys{"collective", "ranks", "up_to", "choreography", "protocol"};
/// Of the file. 1: the first.
constexpr std::int64_t file_format = 1;
constexpr double most_ns = 1e9;
constexpr double most_rate = 1e6;  // GB/s
/// Bytes that the direct port copies at once between processes.
constexpr double peer_piece = 64 * 1024;

constexpr std::array schema{
    tuning_key{"actors.operation", "ns", "fit to small collectives over actors", &tuning::actor_operation_ns},
    tuning_key{"actors.rank", "ns", "the same fit", &tuning::actor_rank_ns},
    tuning_key{"actors.message", "ns", "the same fit", &tuning::actor_message_ns},
    tuning_key{"actors.step", "ns", "the same fit", &tuning::actor_step_ns},
    tuning_key{"actors.operand", "ns", "the same fit", &tuning::actor_operand_ns},
    tuning_key{"slots.operation", "ns", "fit to small collectives over slots", &tuning::slot_operation_ns},
    tuning_key{"slots.message", "ns", "the same fit, ranks with a core each", &tuning::slot_message_ns},
    tuning_key{"slots.turn", "ns", "the same fit, ranks that share cores", &tuning::slot_turn_ns},
    tuning_key{"slots.step", "ns", "the same fit", &tuning::slot_step_ns},
    tuning_key{"slots.ll_line", "ns", "the same fit, 64 bytes of data", &tuning::ll_line_ns},
    tuning_key{"slots.ll128_line", "ns", "the same fit, 120 bytes of data", &tuning::ll128_line_ns},
    tuning_key{"direct.operation", "ns", "fit to fused collectives by the direct port", &tuning::direct_operation_ns},
    tuning_key{"direct.rank", "ns", "the same fit, ranks with a core each", &tuning::direct_rank_ns},
    tuning_key{"direct.turn", "ns", "the same fit, ranks that share cores", &tuning::direct_turn_ns},
    tuning_key{"direct.line", "ns", "the same fit, 128 bytes of another core's", &tuning::direct_line_ns},
    tuning_key{"direct.stage", "ns", "4 KiB, copied by one thread and taken by another", &tuning::direct_staging_ns},
    tuning_key{"links.ring_message", "ns", "fit to small and large collectives of two processes of a host, by its ring",
               &tuning::ring_message_ns},
    tuning_key{"links.ring_kilobyte", "ns", "the same fit, 1024 bytes at either end", &tuning::ring_kilobyte_ns},
    tuning_key{"links.socket_message", "ns", "the same of two processes that share nothing, by TCP",
               &tuning::socket_message_ns},
    tuning_key{"links.socket_kilobyte", "ns", "the same fit, 1024 bytes at either end", &tuning::socket_kilobyte_ns},
    tuning_key{"peers.call", "ns", "a copy of 64 bytes by the system, as between processes", &tuning::peer_call_ns},
    tuning_key{"peers.kilobyte", "ns", "the same, of 64 KiB", &tuning::peer_kilobyte_ns},
    tuning_key{"nic.step", "ns", "all_reduces of one number by the process's NIC, eight ranks beside two",
               &tuning::nic_step_ns},
    tuning_key{"nic.post", "ns",
               "the first of three ranks begins an all_reduce that the NIC performs, and looks when it is done",
               &tuning::nic_post_ns},
    tuning_key{"nic.wake", "ns", "the third, which wakes the thread, beside the second", &tuning::nic_wake_ns},
    tuning_key{"fit.deviation", "", "typical ratio of predicted and measured time", &tuning::deviation},
    tuning_key{"threads.flag_exchange", "ns", "two threads on two cores, each sees the other's flag",
               &tuning::flag_exchange_ns},
    tuning_key{"threads.switch", "ns", "two threads on one core give it to each other", &tuning::switch_ns},
    tuning_key{"threads.wake", "ns", "two threads wake each other, half a round", &tuning::wake_ns},
    tuning_key{"memory.copy", "GB/s", "copy, every core its own", nullptr, &tuning::copy},
    tuning_key{"memory.copy_one_core", "GB/s", "copy, the other cores idle", nullptr, &tuning::copy_one_core},
    tuning_key{"memory.copy_streamed", "GB/s", "copy with non-temporal stores, every core its own", nullptr,
               &tuning::copy_streamed},
    tuning_key{"memory.reduce", "GB/s", "f32 sum of two, every core its own", nullptr, &tuning::reduce},
    tuning_key{"memory.reduce_one_core", "GB/s", "f32 sum of two, the other cores idle", nullptr,
               &tuning::reduce_one_core},
    tuning_key{"memory.pass", "GB/s", "f32 sum of four into four, every core its own", nullptr, &tuning::pass},
};

[[noreturn]] void fail(const std::string& place, const std::string& sentence) {
  throw error(errc::bad_config, place + ": " + sentence);
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  utsname about{};
  return uname(&about) == 0 ? about.machine : "unknown";
}

}  // namespace

// -- values -----------------------------------------------------------------------------------------------------------

double rate_curve::at(double bytes) const {
  if (points_.empty()) return 1;
  const auto above = std::find_if(points_.begin(), points_.end(), [&](const point& p) { return p.bytes >= bytes; });
  if (above == points_.begin()) return points_.front().rate;
  if (above == points_.end()) return points_.back().rate;
  const point &a = above[-1], &b = *above;
  const double share = std::log(bytes / a.bytes) / std::log(b.bytes / a.bytes);
  return std::exp(std::log(a.rate) + share * std::log(b.rate / a.rate));
}

machine_constants tuning::through_actors(double bytes_a_core, datatype type, int ranks_of_host, int computers) const {
  // Of what a frame takes until it is read, the sender's system call: writing into a ring is little of it; a segment is carried as far as the
  // receiver's socket before sendmsg() returns (perf trace: 6 to 7 of 15 µs).
  constexpr double of_ring = 0.3, of_socket = 0.4;
  // Between two hosts of one computer (veth) there is nothing but work. Elsewhere the rest of a frame's time is spent on its way.
  constexpr double most_socket_work_ns = 15'000;
  machine_constants m;
  m.cores = machine.cores * std::max(1, computers);
  // As over_slots(): all others of a core that is shared have their turns before the receiver.
  const double turn = ranks_of_host > machine.cores ? frame_turn_ns * ranks_of_host / machine.cores : 0;
  const auto frames = [&](double message_ns, double worked_ns, double share_of_sender, double kilobyte_ns) {
    const double byte = kilobyte_ns / 1024 * 1e-9;
    return message_costs{(actor_message_ns + message_ns + turn) * 1e-9, share_of_sender * worked_ns * 1e-9, byte, byte,
                         (turn + message_ns - worked_ns) * 1e-9};
  };
  const auto of = [](reach how) { return static_cast<std::size_t>(how); };
  m.messages[of(reach::process)] = message_costs{actor_message_ns * 1e-9, 0, 0, 0};
  m.messages[of(reach::segment)] = frames(ring_message_ns, ring_message_ns, of_ring, ring_kilobyte_ns);
  // A frame that goes far keeps its sender, and is worked for, no longer than one that goes near.
  for (int borders = 0; borders <= most_borders; ++borders)
    m.messages[of(reach::network) + static_cast<std::size_t>(borders)] =
        frames(network_message_ns(borders), std::min(socket_message_ns, most_socket_work_ns), of_socket,
               network_kilobyte_ns(borders));
  m.step = actor_step_ns * 1e-9;
  m.operand = actor_operand_ns * 1e-9;
  m.element = actor_message_ns * 1e-9;  // an element is an actor like the channels
  const double copying = copy.at(bytes_a_core), reducing = reduce.at(bytes_a_core);
  m.copy_rate = copying * 1e9;
  m.reduce_rate = std::min(reducing, type_rate[static_cast<std::size_t>(part_of(type))]) * 1e9;
  // The pass of four into four is one sum of two, two further inputs, and three further outputs.
  const double further = (1 / pass.at(bytes_a_core) - 1 / reducing) / (2 / reducing + 3 / copying);
  m.operand_share = std::clamp(further, 0.1, 1.0);
  return m;
}

machine_constants tuning::over_slots(slot_format format, int ranks, double bytes_a_core, datatype type) const {
  machine_constants m = through_actors(bytes_a_core, type);
  const bool shared = ranks > machine.cores;
  // Where ranks share cores nobody sees a message before its turn, and all ranks of the core have theirs before. The core works meanwhile.
  const double message = shared ? slot_turn_ns * 1e-9 * ranks / machine.cores : slot_message_ns * 1e-9;
  const double byte = (format == slot_format::ll ? ll_line_ns / 64 : ll128_line_ns / 120) * 1e-9 / 2;
  m.messages.fill({message, 0, byte, byte});
  m.message_share = 0;
  m.one_thread = !shared;  // else other ranks' turns come between, whatever a rank does in its own
  m.step = m.operand = slot_step_ns * 1e-9;
  return m;
}

double tuning::direct_seconds(const direct_program& made, const call_shape& shape, double bytes_a_core, datatype type,
                              const reach_map* where) const {
  direct_sizes sizes;
  sizes.set(made, 0, shape);
  const machine_constants m = through_actors(bytes_a_core, type);
  const int ranks = static_cast<int>(made.bodies.size()), cores = std::max(1, machine.cores);
  const bool shared = ranks > cores;
  // Any rank that runs works for all: where ranks share cores, it is chance whose buffers the core has seen last.
  const double chance = 1 - 1.0 / cores;
  double work = 0, foreign_bytes = 0;
  std::size_t units = 0;
  // Between processes: what a rank copies to its staging buffer, and what others find there (direct_staging.hpp). As if that were always worth it: each host decides
  // that by itself (copy_costs.hpp), and all must plan alike.
  const bool alone = !made.to_own.empty() && sizes.bytes() > direct_staging::most_by_one;
  const auto bytes_of = [&](rank_t r, bool input) {
    const block_run blocks =
        input ? input_blocks(made.what, ranks, made.root, r) : output_blocks(made.what, ranks, made.root, r);
    return static_cast<std::size_t>(blocks.count) * shape.count * shape.element_size;
  };
  const auto staged = [&](rank_t r, bool input) {
    if (where == nullptr || made.used.empty()) return false;
    const auto& used = made.used[static_cast<std::size_t>(r)];
    if (input) return direct_staging::may_stage_input(used, bytes_of(r, true));
    return !alone && direct_staging::may_stage_output(made, used, bytes_of(r, false));
  };
  int stages = 0;
  for (rank_t r = 0; r < ranks; ++r)
    for (const bool input : {true, false}) {
      if (!staged(r, input)) continue;
      ++stages;
      work += static_cast<double>(bytes_of(r, input)) / m.copy_rate;
      foreign_bytes += static_cast<double>(bytes_of(r, input));  // its reader has had these lines
    }
  for (const rank_t r : made.at_work) {
    units += sizes.units(r);
    for (const direct_program::pass& p : made.bodies[static_cast<std::size_t>(r)].passes) {
      const auto operands = made.operands_of(p);
      const auto bytes = static_cast<double>(sizes.elements(operands.front()) * shape.element_size);
      work += p.inputs > 1 ? bytes / m.reduce_rate : bytes / m.copy_rate;
      work += m.operand_share * bytes * (std::max(0, p.inputs - 2) / m.reduce_rate + (p.outputs - 1) / m.copy_rate);
      for (const cell_range& at : operands) {
        const bool far = where != nullptr && where->between(r, at.owner) != reach::process &&
                         !staged(at.owner, at.buffer == buffer_kind::input) &&
                         !(alone && at.buffer == buffer_kind::output);
        if (far) work += (peer_call_ns * std::ceil(bytes / peer_piece) + peer_kilobyte_ns * bytes / 1024) * 1e-9;
        else foreign_bytes += bytes * (shared ? chance : at.owner != r ? 1.0 : 0.0);
      }
    }
  }
  const double workers = std::min({static_cast<double>(ranks), static_cast<double>(cores), static_cast<double>(units)});
  // All are woken for their own copies, and once more for the end.
  const double turn = where != nullptr && alone && shared ? direct_turn_ns * 1e-9 * ranks / cores : 0;
  // Ranks copy side by side, as many as there are cores.
  const double waves = std::ceil(static_cast<double>(stages) / std::min(ranks, cores));
  return direct_operation_seconds(ranks) + turn + waves * direct_staging_ns * 1e-9 +
         direct_line_ns * foreign_bytes / 128 / workers * 1e-9 + work / workers;
}

double tuning::direct_operation_seconds(int ranks) const {
  const int cores = std::max(1, machine.cores);
  const double meetings = ranks > cores ? direct_turn_ns * ranks / cores : direct_rank_ns * ranks;
  return (direct_operation_ns + meetings) * 1e-9;
}

double tuning::actor_operation_seconds(int ranks) const {
  return (actor_operation_ns + actor_rank_ns * ranks / std::clamp(machine.cores, 1, std::max(1, ranks))) * 1e-9;
}

namespace {

/// Where tables are taken for a job: the sizes at which `troupe tune` measures, up to its largest.
constexpr double first_job_bytes = 16 * 1024, last_job_bytes = 1 << 30;

/// Calls `with(number, sign)` for each number in their order: sign −1 for what is better if larger.
template <class Tuning, class Function>
void each_cost(Tuning& t, Function&& with) {
  for (const tuning_key& k : schema)
    if (k.number != nullptr) with(t.*k.number, 1.0);
  for (auto& rate : t.type_rate) with(rate, -1.0);
}

}  // namespace

std::vector<double> costs_of(const tuning& t) {
  std::vector<double> all{-static_cast<double>(t.machine.cores)};
  each_cost(t, [&](double number, double sign) { all.push_back(sign * number); });
  for (int borders = 1; borders <= most_borders; ++borders) {
    all.push_back(t.network_message_ns(borders));
    all.push_back(t.network_kilobyte_ns(borders));
  }
  for (const tuning_key& k : schema)
    if (k.curve != nullptr)
      for (double bytes = first_job_bytes; bytes <= last_job_bytes; bytes *= 4) all.push_back(-(t.*k.curve).at(bytes));
  return all;
}

tuning with_costs(tuning t, std::span<const double> costs) {
  const auto sane = [](double sign, double n) { return sign * n > 0 && sign * n <= most_ns; };
  const auto refuse = [] { throw error(errc::mismatch, "the costs that the job agreed on are none"); };
  if (costs.size() != costs_of(t).size()) refuse();
  std::size_t next = 0;
  const auto take = [&](double sign) {
    const double n = costs[next++];
    if (!sane(sign, n)) refuse();
    return sign * n;
  };
  t.machine.cores = static_cast<int>(std::min(take(-1), 1048576.0));
  each_cost(t, [&](double& number, double sign) { number = take(sign); });
  t.outer_message_ns.clear(), t.outer_kilobyte_ns.clear();
  for (int borders = 1; borders <= most_borders; ++borders) {
    t.outer_message_ns.push_back(take(1));
    t.outer_kilobyte_ns.push_back(take(1));
  }
  for (const tuning_key& k : schema) {
    if (k.curve == nullptr) continue;
    std::vector<rate_curve::point> points;
    for (double bytes = first_job_bytes; bytes <= last_job_bytes; bytes *= 4) points.push_back({bytes, take(-1)});
    t.*k.curve = std::move(points);
  }
  return t;
}

machine_fingerprint this_machine() {
  static const std::string cpu = cpu_name();
  const host& here = discover();
  return {cpu, std::max(1, here.usable_cpus()), here.l1_bytes, here.l2_bytes, here.l3_bytes};
}

std::string differences(const machine_fingerprint& measured, const machine_fingerprint& here) {
  std::string text;
  const auto compare = [&](const char* what, const auto& a, const auto& b, const auto& show) {
    if (a != b) text += (text.empty() ? "" : "; ") + std::string{what} + " was " + show(a) + ", here it is " + show(b);
  };
  const auto word = [](const std::string& s) { return '"' + s + '"'; };
  const auto number = [](auto n) { return std::to_string(n); };
  compare("the processor", measured.cpu, here.cpu, word);
  compare("the number of cores", measured.cores, here.cores, number);
  compare("the first-level cache", measured.l1_bytes, here.l1_bytes, number);
  compare("the second-level cache", measured.l2_bytes, here.l2_bytes, number);
  compare("the third-level cache", measured.l3_bytes, here.l3_bytes, number);
  return text;
}

tuning assumed_tuning() {
  tuning t;
  t.machine = this_machine();
  return t;
}

std::span<const tuning_key> tuning_schema() { return schema; }

// -- reading ----------------------------------------------------------------------------------------------------------

namespace {

/// One document; every key is asked for by name, and what was not asked for is an error.
class tuning_reader {
public:
  tuning_reader(const toml::table& document, std::string name) : document_(document), name_(std::move(name)) {}

  tuning read() {
    check_format();
    tuning t;
    t.machine.cpu = text("machine.cpu");
    t.machine.cores = static_cast<int>(whole("machine.cores", 1, 1 << 20));
    t.machine.l1_bytes = static_cast<std::uint64_t>(whole("machine.l1_bytes", 0, std::int64_t{1} << 50));
    t.machine.l2_bytes = static_cast<std::uint64_t>(whole("machine.l2_bytes", 0, std::int64_t{1} << 50));
    t.machine.l3_bytes = static_cast<std::uint64_t>(whole("machine.l3_bytes", 0, std::int64_t{1} << 50));
    t.measured = text("measured");
    t.links = text("links_measured");
    for (const tuning_key& k : schema)
      if (k.number != nullptr) t.*k.number = real(std::string{k.key}, most_ns);
      else t.*k.curve = curve(std::string{k.key});
    for (const datatype type : tuned_datatypes)
      t.type_rate[static_cast<std::size_t>(type)] = real("types." + std::string{troupe::name(type)}, most_rate);
    t.outer_message_ns = outer(t.socket_message_ns, "message");
    t.outer_kilobyte_ns = outer(t.socket_kilobyte_ns, "kilobyte");
    t.choices = choices();
    refuse_others();
    return t;
  }

private:
  std::string place(const toml::node& node) const { return name_ + ":" + std::to_string(node.source().begin.line); }

  void check_format() {
    const toml::node& node = find("format");
    const auto version = node.value_exact<std::int64_t>();
    if (version != file_format)
      fail(place(node), "format is " + (version ? std::to_string(*version) : std::string{"no integer"}) +
                            ", this version of troupe reads format " + std::to_string(file_format) +
                            "; measure again with `troupe tune`");
  }

  const toml::node& find(const std::string& key) {
    known_.insert(key);
    const toml::table* in = &document_;
    const auto dot = key.find('.');
    if (dot != std::string::npos) in = document_[key.substr(0, dot)].as_table();
    const toml::node* node = in == nullptr ? nullptr : in->get(dot == std::string::npos ? key : key.substr(dot + 1));
    if (node == nullptr)
      fail(name_, "lacks the key " + key + unknown_alike(key) + "; measure again with `troupe tune`");
    return *node;
  }

  /// A misspelt key is missing first and unknown second: both belong in one sentence.
  std::string unknown_alike(const std::string& wanted) const {
    for (const auto& [name, where] : all_keys())
      if (const std::array<std::string_view, 1> one{wanted};
          name != wanted && !is_known(name) && !closest(name, one).empty())
        return " (line " + std::to_string(where) + " has " + name + ", which is none: did you mean " + wanted + "?)";
    return {};
  }

  std::string text(const std::string& key) {
    const toml::node& node = find(key);
    if (const auto value = node.value_exact<std::string>()) return *value;
    fail(place(node), key + " must be a text");
  }
  std::int64_t whole(const std::string& key, std::int64_t least, std::int64_t most) {
    const toml::node& node = find(key);
    if (const auto value = node.value_exact<std::int64_t>(); value && *value >= least && *value <= most) return *value;
    fail(place(node), key + " must be an integer from " + std::to_string(least) + " to " + std::to_string(most));
  }
  double real(const std::string& key, double most) { return real(find(key), key, most); }
  double real(const toml::node& node, const std::string& key, double most) const {
    if (const auto value = node.value<double>(); node.is_number() && value && *value > 0 && *value <= most)
      return *value;
    std::ostringstream limit;
    limit << most;
    fail(place(node), key + " must be a number above 0 and at most " + limit.str());
  }
  rate_curve curve(const std::string& key) {
    const toml::node& node = find(key);
    const toml::array* rows = node.as_array();
    const std::string right = key + " must be a list of [bytes, GB/s], bytes ascending";
    if (rows == nullptr || rows->empty()) fail(place(node), right);
    std::vector<rate_curve::point> points;
    for (const toml::node& row : *rows) {
      const toml::array* pair = row.as_array();
      if (pair == nullptr || pair->size() != 2) fail(place(row), right);
      points.push_back({real(*pair->get(0), key, 1e18), real(*pair->get(1), key, most_rate)});
      if (points.size() > 1 && points[points.size() - 2].bytes >= points.back().bytes) fail(place(row), right);
    }
    return points;
  }

  /// What lies between groups of hosts, if the file says so; the planner's bounds rely on nothing farther out being cheaper.
  std::vector<double> outer(double inside, const std::string& what) {
    const std::string key = "links.outer_" + what;
    known_.insert(key);
    if (!document_.at_path(key)) return {};
    const toml::node& node = find(key);
    const toml::array* list = node.as_array();
    const std::string right = key + " must be a list of at most " + std::to_string(most_borders) +
                              " numbers (ns), between pods, then between groups of pods and so on, none below the one "
                              "before it nor below links.socket_" +
                              what;
    if (list == nullptr || list->size() > static_cast<std::size_t>(most_borders)) fail(place(node), right);
    std::vector<double> all;
    for (const toml::node& one : *list) {
      all.push_back(real(one, key, most_ns));
      if (all.back() < (all.size() > 1 ? all[all.size() - 2] : inside)) fail(place(one), right);
    }
    return all;
  }

  /// [[choices]], which the file need not have.
  std::vector<measured_choice> choices() {
    known_.insert("choices");
    const toml::node* const node = document_.get("choices");
    if (node == nullptr) return {};
    const std::string right =
        "choices must be tables [[choices]] with collective, ranks, up_to (bytes; left out: all larger ones, too), "
        "choreography and protocol";
    const toml::array* const list = node->as_array();
    if (list == nullptr) fail(place(*node), right);
    std::vector<measured_choice> all;
    for (const toml::node& one : *list) {
      const toml::table* const row = one.as_table();
      if (row == nullptr) fail(place(one), right);
      const auto word = [&](const char* key) {
        const auto value = (*row)[key].value_exact<std::string>();
        if (!value) fail(place(one), right);
        return *value;
      };
      const auto whole = [&](const char* key, std::int64_t most) {
        const auto value = (*row)[key].value_exact<std::int64_t>();
        if (!value || *value < 1 || *value > most) fail(place(one), right);
        return *value;
      };
      for (const auto& [key, value] : *row)
        if (std::ranges::find(choice_keys, key.str()) == choice_keys.end())
          fail(place(value), "a choice has no " + std::string{key.str()} + "; " + right);
      measured_choice c;
      const auto what = parse_collective(word("collective"));
      if (!what) fail(place(one), "there is no collective " + word("collective"));
      const auto protocol = parse_message_protocol(word("protocol"));
      using enum message_protocol;
      if (!protocol || (*protocol != simple && *protocol != direct && *protocol != ll && *protocol != ll128))
        fail(place(one), "protocol must be simple, direct, ll or ll128");
      c.what = *what;
      c.ranks = static_cast<int>(whole("ranks", 1 << 20));
      if (row->contains("up_to"))
        c.up_to = static_cast<std::uint64_t>(whole("up_to", std::numeric_limits<std::int64_t>::max()));
      c.choreography = word("choreography");
      c.protocol = *protocol;
      if (std::ranges::any_of(all, [&](const measured_choice& other) {
            return other.what == c.what && other.ranks == c.ranks && other.up_to == c.up_to;
          }))
        fail(place(one), "there are two choices of one collective for as many ranks and bytes");
      all.push_back(std::move(c));
    }
    return all;
  }

  /// Keys and their lines; a table counts by what is in it.
  std::vector<std::pair<std::string, std::size_t>> all_keys() const {
    std::vector<std::pair<std::string, std::size_t>> list;
    for (const auto& [key, node] : document_) {
      const std::string name{key.str()};
      if (!node.is_table()) list.emplace_back(name, node.source().begin.line);
      else
        for (const auto& [inner, value] : *node.as_table())
          list.emplace_back(name + "." + std::string{inner.str()}, value.source().begin.line);
    }
    return list;
  }

  static bool is_known(std::string_view key) {
    static constexpr std::array<std::string_view, 11> others{
        "format",           "measured",         "links_measured",   "machine.cpu",         "machine.cores",
        "machine.l1_bytes", "machine.l2_bytes", "machine.l3_bytes", "links.outer_message", "links.outer_kilobyte",
        "choices"};
    const auto is = [&](const tuning_key& k) { return k.key == key; };
    const auto type = key.starts_with("types.") ? parse_datatype(key.substr(6)) : std::nullopt;
    return std::find(others.begin(), others.end(), key) != others.end() ||
           std::any_of(schema.begin(), schema.end(), is) || (type && !is_complex(*type));
  }

  void refuse_others() const {
    for (const auto& [name, line] : all_keys()) {
      if (known_.contains(name)) continue;
      const std::vector<std::string_view> names{known_.begin(), known_.end()};
      const auto near = closest(name, names);
      fail(name_ + ":" + std::to_string(line),
           "unknown key " + name +
               (near.empty() ? "; docs/tuning.md lists all" : "; did you mean " + std::string{near} + "?"));
    }
  }

  const toml::table& document_;
  std::string name_;
  std::set<std::string> known_;
};

}  // namespace

tuning parse_tuning(std::string_view toml, const std::string& name) {
  toml::table document;
  try {
    document = toml::parse(toml, name);
  } catch (const toml::parse_error& wrong) {
    fail(name + ":" + std::to_string(wrong.source().begin.line), std::string{wrong.description()});
  }
  return tuning_reader{document, name}.read();
}

tuning read_tuning(const std::string& path) {
  const file_text file = read_file(path, most_config_bytes);
  if (!file.problem.empty())
    fail(path, "the tuning file cannot be read: " + file.problem + "; `troupe tune --output " + path + "` writes one");
  tuning t = parse_tuning(file.text, path);
  t.file = path;
  return t;
}

// -- writing ----------------------------------------------------------------------------------------------------------

namespace {

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::table{{"x", text}}["x"];
  return out.str();
}

/// Always a float in TOML, with as many digits as matter.
std::string number(double value) {
  std::ostringstream out;
  out.precision(4);
  out << value;
  return out.str().find_first_of(".e") == std::string::npos ? out.str() + ".0" : out.str();
}

std::string list_text(const std::vector<double>& numbers) {
  std::string text;
  for (const double n : numbers) text += (text.empty() ? "" : ", ") + number(n);
  return '[' + text + ']';
}

std::string curve_text(const rate_curve& curve) {
  std::string text = "[";
  for (const auto& p : curve.points())
    text += (text.size() > 1 ? ", [" : "[") + std::to_string(static_cast<std::int64_t>(p.bytes)) + ", " +
            number(p.rate) + "]";
  return text + "]";
}

}  // namespace

std::string to_toml(const tuning& t) {
  std::ostringstream out;
  out << "# What this machine costs: written by `troupe tune`, read by every engine (docs/tuning.md).\n"
      << "format = " << file_format << "\nmeasured = " << quoted(t.measured) << "\nlinks_measured = " << quoted(t.links)
      << "\n\n[machine]\ncpu = " << quoted(t.machine.cpu) << "\ncores = " << t.machine.cores
      << "\nl1_bytes = " << t.machine.l1_bytes << "\nl2_bytes = " << t.machine.l2_bytes
      << "\nl3_bytes = " << t.machine.l3_bytes << '\n';
  std::string_view open;
  for (const tuning_key& k : schema) {
    const auto dot = k.key.find('.');
    if (const auto table = k.key.substr(0, dot); table != open) {
      open = table;
      out << "\n[" << table << "]  # "
          << (k.unit.empty()        ? "a ratio"
              : k.number != nullptr ? "ns"
                                    : "[bytes that a core touches, GB/s of result and core]")
          << '\n';
    }
    out << k.key.substr(dot + 1) << " = " << (k.number != nullptr ? number(t.*k.number) : curve_text(t.*k.curve))
        << "  # " << k.how << '\n';
    if (k.number != &tuning::socket_kilobyte_ns) continue;
    if (!t.outer_message_ns.empty()) out << "outer_message = " << list_text(t.outer_message_ns) << '\n';
    if (!t.outer_kilobyte_ns.empty()) out << "outer_kilobyte = " << list_text(t.outer_kilobyte_ns) << '\n';
  }
  out << "\n[types]  # sum of two in the first-level cache, GB/s of result\n";
  for (const datatype type : tuned_datatypes)
    out << name(type) << " = " << number(t.type_rate[static_cast<std::size_t>(type)]) << '\n';
  for (const measured_choice& c : t.choices) {
    out << "\n[[choices]]\ncollective = " << quoted(std::string{name(c.what)}) << "\nranks = " << c.ranks << '\n';
    if (c.up_to != measured_choice::no_limit) out << "up_to = " << c.up_to << '\n';
    out << "choreography = " << quoted(c.choreography) << "\nprotocol = " << quoted(std::string{name(c.protocol)})
        << '\n';
  }
  return out.str();
}

// -- finding ----------------------------------------------------------------------------------------------------------

std::string default_tuning_path() {
  if (const char* base = std::getenv("XDG_CONFIG_HOME"); base != nullptr && *base != '\0')
    return std::string{base} + "/troupe/tuning.toml";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::string{home} + "/.config/troupe/tuning.toml";
  return {};
}

tuning_place find_tuning(const std::string& option) {
  using from = tuning_place::found;
  if (option == "none") return {{}, from::options};
  if (!option.empty()) return {option, from::options};
  if (const char* named = std::getenv("TROUPE_TUNING"); named != nullptr && *named != '\0')
    return {std::string_view{named} == "none" ? "" : named, from::environment};
  const std::string path = default_tuning_path();
  std::error_code ignored;
  if (!path.empty() && std::filesystem::exists(path, ignored)) return {path, from::default_place};
  return {};
}

tuning load_tuning(const engine_options& options) {
  const tuning_place place = find_tuning(options.tuning);
  if (place.path.empty()) return assumed_tuning();
  tuning t = read_tuning(place.path);
  const machine_fingerprint here = this_machine();
  if (const std::string why = differences(t.machine, here); !why.empty()) {
    static std::mutex mutex;
    static std::set<std::string> told;
    const std::lock_guard lock(mutex);
    if (told.insert(place.path + why).second)
      make_log(options.log_level)
          ->warn("{}: measured on another machine ({}); predictions may be wrong: measure again with `troupe tune`",
                 place.path, why);
  }
  t.machine.cores = here.cores;  // who may run at once is known, not measured
  return t;
}

}  // namespace troupe
