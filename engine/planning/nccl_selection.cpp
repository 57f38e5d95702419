// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/nccl_selection.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>

#include "engine/config/configuration.hpp"
#include "protocols/choreographies/hierarchy.hpp"

namespace troupe {

namespace {

using nccl_protocols = std::array<double, 3>;                         ///< LL, LL128, Simple
using nccl_table = std::array<nccl_protocols, nccl_algorithm_count>;  ///< by algorithm
using nccl_by_servers = std::array<std::array<double, 3>, 3>;         ///< device, then 1, 2, more servers
enum nccl_way : std::size_t { over_nvlink, over_pci, over_network };  ///< rows of hop latencies
enum nccl_column : std::size_t { column_ll, column_ll128, column_simple };

/// What differs between the versions. Latencies in µs, bandwidths in GB/s.
struct nccl_constants {
  nccl_table base;                ///< baseLat
  std::array<nccl_table, 3> hop;  ///< hwLat
  nccl_by_servers ll_most;        ///< llMaxBws, of all channels
};

constexpr nccl_constants constants_of_2_19{
    {{{6.8, 14.0, 0}, {6.6, 14.0, 8.4}, {}, {}, {}, {}, {}}},
    {{{{{0.6, 1.25, 28}, {0.6, 1.9, 3.4}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 23}, {0, 0, 23}, {}}},
      {{{1.0, 1.9, 28}, {1.0, 2.5, 5.7}, {0, 0, 3.7}, {0, 0, 2.8}, {}, {}, {}}},
      {{{5.0, 8.5, 28}, {2.7, 4.0, 14.0}, {0, 0, 31}, {0, 0, 30}, {0, 0, 18}, {0, 0, 14}, {}}}}},
    {{{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {87.7, 22.5, 19.0}}}};
constexpr nccl_constants constants_of_2_23{
    {{{6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}, {}, {}, {}, {}, {}}},
    {{{{{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 25}, {0, 0, 25}, {}}},
      {{{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, {0, 0, 3.7}, {0, 0, 2.8}, {}, {}, {}}},
      {{{5.0, 8.5, 14}, {2.7, 4.0, 14.0}, {0, 0, 31}, {0, 0, 30}, {0, 0, 18}, {0, 0, 14}, {}}}}},
    {{{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141.0, 45.0, 35.0}}}};
// perChMaxRingLL128Bws, perChMaxTreeLL128Bws, perChMaxTreeBws: of a channel.
constexpr nccl_by_servers ring_ll128_most{{{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}}};
constexpr nccl_by_servers tree_ll128_most{{{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}}};
constexpr nccl_by_servers tree_most{{{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}}};
/// treeCorrectionFactor: by protocol and the power of two, 64 B … 256 MB.
constexpr std::array<std::array<double, 23>, 3> tree_correction{
    {{1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1.0, 1.0, 1.0, 1.0},
     {1.0, 1.0, 1.0, 1.0, 1.0, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1.0, 1.0},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};
constexpr std::uint64_t nic_fifo_bytes = 512u << 10;  // a slot of Simple's buffer (spec 5, "Protocols")
constexpr double pci_bandwidth = 12.0;  // PCI_BW: not faster than one PCI gen 3 x16, and a ring has half the threads

std::size_t column(message_protocol how) {
  if (how == message_protocol::ll) return column_ll;
  return how == message_protocol::ll128 ? column_ll128 : column_simple;
}

int floor_log2(std::uint64_t n) { return n == 0 ? 0 : static_cast<int>(std::bit_width(n)) - 1; }

/// The formulas, of one case.
class nccl_model {
public:
  explicit nccl_model(const nccl_case& of)
      : of_(of),
        m_(of.machine),
        numbers_(m_.version == nccl_version::v2_19 ? constants_of_2_19 : constants_of_2_23),
        ranks_(of.places.size()),
        servers_(of.places.server_count()),
        cards_(ranks_ / std::max(servers_, 1)),
        a_server_(static_cast<double>(ranks_) / std::max(servers_, 1)) {}

  nccl_row row(nccl_algorithm a, message_protocol how) const {
    nccl_row r;
    r.algorithm = a;
    r.how = how;
    r.choreography = performer(a);
    r.why_not = why_not(a, how);
    if (!r.why_not.empty()) return r;
    r.bandwidth = bandwidth(a, how);
    r.latency_us = latency(a, how);
    r.us = time(r);
    count_channels(r);
    // ALLREDUCE_, ALLGATHER_ and REDUCESCATTER_CHUNKSTEPS are 4, their SLICESTEPS 2; all others' are 1, and LL and LL128 have no slices.
    if (a == nccl_algorithm::ring && how == message_protocol::simple && !rooted()) r.slices = r.slots = 2;
    return r;
  }

  /// Channels of the communicator: each that was found, twice.
  int all_channels() const { return std::min(most_channels_of(m_), 2 * graph(nccl_algorithm::tree).channels); }

private:
  bool newer() const { return m_.version == nccl_version::v2_23; }
  bool all_reduce() const { return of_.what == collective::all_reduce; }
  bool rooted() const { return of_.what == collective::broadcast || of_.what == collective::reduce; }
  std::size_t device() const { return static_cast<std::size_t>(m_.device); }
  std::size_t by_servers() const { return static_cast<std::size_t>(std::min(servers_, 3) - 1); }

  nccl_graph graph(nccl_algorithm a) const {
    const nccl_graph ring{m_.channels, m_.inside, m_.between};
    if (a == nccl_algorithm::ring) return ring;
    if (a == nccl_algorithm::tree || a == nccl_algorithm::pat) return of_.tree.value_or(ring);
    // A channel for each card's part, with all bandwidth that rings have together.
    const double share = static_cast<double>(ring.channels) / std::max(cards_, 1);
    return {cards_, ring.inside * share, (servers_ == 1 ? ring.inside : ring.between) * share};
  }

  std::string why_not(nccl_algorithm a, message_protocol how) const {
    using enum nccl_algorithm;
    const bool simple = how == message_protocol::simple;
    if (a != ring && a != tree && !simple) return "with Simple only";
    if (how == message_protocol::ll128 && !m_.nvlink) return "LL128 needs NVLink inside servers";
    if (how == message_protocol::ll128 && !m_.ll128) return "ll128 is off";
    if (a == ring) return {};
    if (a == tree) return all_reduce() ? "" : "of all_reduce only";
    if (rooted()) return "broadcast and reduce go along rings only";
    if (a == pat) return why_not_pat();
    if (a == nvls || a == nvls_tree) return why_not_nvls(a);
    if (!m_.collnet) return "the network does not reduce (collnet is off)";
    if (!all_reduce() && (a == collnet_chain || !newer())) return "of all_reduce only";
    if (servers_ == 1) return "there is one server";
    if (a == collnet_direct && !m_.nvlink) return "it needs NVSwitch";
    return a == collnet_direct && cards_ > 8 ? "it is for up to 8 cards a server" : "";
  }

  std::string why_not_pat() const {
    if (!newer()) return "since 2.23";
    if (all_reduce()) return "of all_gather and reduce_scatter only";
    if (servers_ != ranks_) return "it is for one card a server";
    const bool scaled = of_.op == op_kind::pre_mul_sum || of_.op == op_kind::avg;
    return of_.what == collective::reduce_scatter && scaled ? "it does not scale" : "";
  }

  /// ncclNvlsSupported; an all_gather reduces nothing.
  std::string why_not_nvls(nccl_algorithm a) const {
    if (!m_.nvls) return "the switch does not reduce (nvls is off)";
    if (m_.device != nccl_device::hopper) return "it needs a hopper";
    if (a == nccl_algorithm::nvls_tree && !all_reduce()) return "of all_reduce only";
    if (a == nccl_algorithm::nvls_tree && servers_ == 1) return "there is one server";
    if (a == nccl_algorithm::nvls && servers_ > 1) {
      if (!all_reduce()) return "on one server only";
      if (!m_.collnet) return "between servers it needs a network that reduces (collnet is off)";
    }
    if (of_.what == collective::all_gather) return {};
    using enum datatype;
    constexpr std::array bounded{i32, u32, i64, u64, f16, bf16};
    const bool extremes = std::find(bounded.begin(), bounded.end(), of_.type) != bounded.end();
    const bool sums = extremes || of_.type == f32 || of_.type == f64;
    if (of_.op == op_kind::sum ? sums : extremes && (of_.op == op_kind::min || of_.op == op_kind::max)) return {};
    return "the switch cannot reduce this type so";
  }

  /// Of the bus.
  double bus(nccl_algorithm a, message_protocol how) const {
    using enum nccl_algorithm;
    const nccl_graph g = graph(a);
    const bool collnet = a == collnet_direct || a == collnet_chain;
    double channel = servers_ <= 2 || collnet ? g.inside : g.between;
    if (a == nvls) channel = std::min(g.inside, g.between);
    if (a == nvls_tree) channel = std::min(g.inside, servers_ <= 2 ? g.between : g.between / 2);
    const double all = g.channels * channel;
    if (a == ring) return ring_bus(how, all, g.channels);
    if (a == tree) return tree_bus(how, all, g);
    if (a == pat) return all * .85;
    if (a != collnet_direct) return all;
    if (!all_reduce()) {  // as measured with 1 and with 8 cards a server, and between them
      const double w = (a_server_ - 1) / 7;
      return a_server_ * channel * (w * .85 + (1 - w) * .95);
    }
    const double cards_a_nic = a_server_ / g.channels;
    return all / (cards_a_nic - (cards_a_nic - 1) / 2) * (m_.device == nccl_device::hopper ? .85 : 1);
  }

  /// LL: on one server it depends on the card, on several on their processors.
  double ll_most() const {
    const std::size_t by = servers_ == 1 ? device() : m_.host == nccl_host::amd ? 1u : 0u;
    return numbers_.ll_most[by][by_servers()];
  }

  double ring_bus(message_protocol how, double all, int channels) const {
    if (how == message_protocol::ll) {
      const bool quarter = servers_ > 1 || all_reduce() || of_.what == collective::reduce;
      return std::min(ll_most(), all * (newer() ? .5 : quarter ? 1. / 4 : 1. / 3));
    }
    if (how != message_protocol::ll128) return all;
    return std::min(all * (a_server_ < 2 && !newer() ? .7 : .92), channels * ring_ll128_most[device()][by_servers()]);
  }

  double tree_bus(message_protocol how, double all, const nccl_graph& g) const {
    double most = std::min(all * .92, g.channels * tree_most[device()][by_servers()]);
    if (how == message_protocol::ll) most = std::min(most / 3.8, ll_most());
    if (how == message_protocol::ll128)
      most =
          std::min(most * (servers_ == 1 ? 7. / 9 : 120. / 128), g.channels * tree_ll128_most[device()][by_servers()]);
    return g.one_card ? most * .85 : most;
  }

  /// Of rings, rounds from rank to rank.
  int steps() const { return all_reduce() ? 2 * (ranks_ - 1) : rooted() ? ranks_ : ranks_ - 1; }

  /// Bytes of the call a second.
  double bandwidth(nccl_algorithm a, message_protocol how) const {
    using enum nccl_algorithm;
    const double all = bus(a, how);
    if (a == ring) return all * ranks_ / steps();
    if (newer() && !all_reduce()) return all;
    return all * (a == nvls || a == nvls_tree ? 5. / 6 : .5);
  }

  double hop(nccl_way way, nccl_algorithm a, std::size_t protocol) const {
    using enum nccl_algorithm;
    if (way == over_pci && a == tree && protocol == column_simple && m_.host == nccl_host::power) a = ring;
    return numbers_.hop[way][static_cast<std::size_t>(a)][protocol];
  }

  double latency(nccl_algorithm a, message_protocol how) const {
    using enum nccl_algorithm;
    const std::size_t p = column(how);
    const double inside = hop(m_.nvlink ? over_nvlink : over_pci, a, p);
    const double between = hop(over_network, newer() && a_server_ == 1 ? tree : a, p);
    const double base = numbers_.base[static_cast<std::size_t>(a)][p];
    const double levels = floor_log2(static_cast<std::uint64_t>(servers_));
    switch (a) {
      case ring: return base + ring_latency(how, inside, between);
      case tree: return base + 2 * ((cards_ - 1) * inside + levels * between);
      case collnet_direct: return 2 * (std::min(1, cards_ - 1) * inside + (cards_ - 1) * 0.4) + between;
      case collnet_chain: return 2 * (cards_ - 1) * inside + between;
      case nvls: return inside + (servers_ > 1 ? between : 0);
      case nvls_tree: return inside + 2 * levels * between;
      case pat: return 8 + levels * (between / 3.5) + ranks_ * 2.8;
    }
    return base;
  }

  double ring_latency(message_protocol how, double inside, double between) const {
    using enum nccl_algorithm;
    // A chain whose chunks follow one another: only the first hop counts.
    if (rooted()) return hop(servers_ > 1 ? over_network : m_.nvlink ? over_nvlink : over_pci, ring, column(how));
    // Rings through several servers post something to the network in every step.
    const double post = servers_ == 1 ? 0 : m_.host == nccl_host::amd ? 2.0 : 1.0;
    const double step = std::max(inside, post * (how == message_protocol::simple ? 3 : 1));
    const int crossings = servers_ == 1   ? 0
                          : !all_reduce() ? servers_ - 1
                          : newer()       ? 2 * (servers_ - 1)
                                          : 2 * servers_;
    return (steps() - crossings) * step + crossings * between;
  }

  double time(const nccl_row& r) const {
    double bandwidth = r.bandwidth, latency = r.latency_us;
    const auto power = static_cast<std::size_t>(floor_log2(of_.bytes >> 6));
    if (r.algorithm == nccl_algorithm::tree && power < tree_correction[0].size())
      bandwidth *= tree_correction[column(r.how)][power];
    const auto pieces = static_cast<std::uint64_t>(all_channels()) * static_cast<std::uint64_t>(ranks_);
    // The plateau of rings: "plateau effect" in the source.
    if (r.algorithm == nccl_algorithm::ring && r.how == message_protocol::simple && servers_ > 1 && all_reduce() &&
        of_.bytes / pieces >= 64)
      latency *= m_.device == nccl_device::volta ? 1.9 : 1.4;
    return latency + static_cast<double>(of_.bytes) / (1000 * bandwidth);
  }

  /// No more than give every channel's threads something to do. Threads and bytes a thread: NCCL_*_MAX_NTHREADS, NCCL_*_THREAD_THRESHOLD.
  /// Between servers no more than fill what the NIC sends at once, either: with less a channel it would send half-empty buffers
  /// (spec 5, "Channels"). That is Simple's slot; LL and LL128 are for what does not fill it.
  void count_channels(nccl_row& r) const {
    const nccl_algorithm a = r.algorithm;
    const int all = all_channels();
    if (a == nccl_algorithm::pat) r.channels = all, r.why_channels = "it takes all";
    if (a != nccl_algorithm::ring && a != nccl_algorithm::tree) return;
    const bool is_ring = a == nccl_algorithm::ring, simple = r.how == message_protocol::simple;
    std::uint64_t threads = 512, bytes = 8;
    if (r.how == message_protocol::ll128) threads = 640;
    if (r.how == message_protocol::ll && is_ring) bytes *= static_cast<std::uint64_t>(ranks_);
    if (simple) bytes = 64;
    if (simple && is_ring && m_.inside * m_.channels <= pci_bandwidth) threads = 256;
    const bool by_nic = simple && servers_ > 1;
    const std::uint64_t least = by_nic ? nic_fifo_bytes : threads * bytes;
    r.channels = static_cast<int>(std::clamp<std::uint64_t>(of_.bytes / least, 1, static_cast<std::uint64_t>(all)));
    r.why_channels = r.channels == all ? "there is enough for all"
                     : by_nic          ? bytes_text(least) + " for each fill the NIC's FIFO"
                                       : bytes_text(least) + " for each keep its threads busy";
  }

  /// NCCL's tree is one of servers with chains of their cards inside.
  const char* performer(nccl_algorithm a) const {
    if (a == nccl_algorithm::ring) return "ring";
    if (a == nccl_algorithm::pat) return "pat";
    if (a == nccl_algorithm::tree) return servers_ == ranks_ ? "double_binary_tree" : "chained_double_tree";
    if (a == nccl_algorithm::collnet_direct) return "collnet_direct";
    if (a == nccl_algorithm::collnet_chain) return "collnet_chain";
    return a == nccl_algorithm::nvls ? "nvls" : "nvls_tree";
  }

  const nccl_case& of_;
  const nccl_options& m_;
  const nccl_constants& numbers_;
  int ranks_, servers_;
  int cards_;        ///< of a server, rounded down as NCCL does
  double a_server_;  ///< not rounded
};

constexpr std::array nccl_collectives{collective::all_reduce, collective::all_gather, collective::reduce_scatter,
                                      collective::broadcast, collective::reduce};

template <class Enum, std::size_t n>
std::string_view word_of(const std::array<std::string_view, n>& words, Enum which) {
  return words[std::min(static_cast<std::size_t>(which), n - 1)];
}
template <class Enum, std::size_t n>
std::optional<Enum> which_of(const std::array<std::string_view, n>& words, std::string_view text) {
  const auto at = std::find(words.begin(), words.end(), text);
  if (at == words.end()) return std::nullopt;
  return static_cast<Enum>(at - words.begin());
}
constexpr std::array<std::string_view, 2> version_words{"2.19", "2.23"};
constexpr std::array<std::string_view, 3> device_words{"volta", "ampere", "hopper"};
constexpr std::array<std::string_view, 3> host_words{"intel", "amd", "power"};
constexpr std::array<std::string_view, nccl_algorithm_count> algorithm_words{
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};

std::string_view spoken(message_protocol how) {
  return how == message_protocol::ll ? "LL" : how == message_protocol::ll128 ? "LL128" : "Simple";
}

}  // namespace

std::string_view name(nccl_version version) noexcept { return word_of(version_words, version); }
std::string_view name(nccl_device device) noexcept { return word_of(device_words, device); }
std::string_view name(nccl_host host) noexcept { return word_of(host_words, host); }
std::string_view name(nccl_algorithm algorithm) noexcept { return word_of(algorithm_words, algorithm); }

std::optional<nccl_version> parse_nccl_version(std::string_view text) noexcept {
  return which_of<nccl_version>(version_words, text);
}
std::optional<nccl_device> parse_nccl_device(std::string_view text) noexcept {
  return which_of<nccl_device>(device_words, text);
}
std::optional<nccl_host> parse_nccl_host(std::string_view text) noexcept {
  return which_of<nccl_host>(host_words, text);
}

const nccl_row* nccl_choice::find(nccl_algorithm algorithm, message_protocol how) const {
  const auto at =
      std::ranges::find_if(rows, [&](const nccl_row& r) { return r.algorithm == algorithm && r.how == how; });
  return at == rows.end() ? nullptr : &*at;
}

nccl_performance performance_of(const nccl_row& row, const layout& places, int nics) {
  const bool pairs = row.algorithm == nccl_algorithm::tree;
  const int wanted = pairs ? (row.channels + 1) / 2 : row.channels;
  const choreographies::hierarchy where{places};
  const int used = std::min({nics, wanted, where.smallest()});
  const bool of_ring = row.algorithm == nccl_algorithm::ring;
  if (used < 2 || where.servers() < 2 || !(pairs || of_ring)) return {row.choreography, 0, wanted};
  return {of_ring ? "ring_per_nic" : "tree_per_nic", used, std::max(1, (wanted + used / 2) / used)};
}

bool has_nccl_selection(collective what) noexcept {
  return std::find(nccl_collectives.begin(), nccl_collectives.end(), what) != nccl_collectives.end();
}

nccl_choice select_as_nccl(const nccl_case& of) {
  nccl_choice c;
  if (!has_nccl_selection(of.what)) return c;
  if (of.places.size() < 2) {
    nccl_row alone;  // nothing is sent
    alone.choreography = "ring";
    c.rows.push_back(std::move(alone));
    c.order.push_back(0);
    return c;
  }
  const nccl_model model{of};
  c.channels = model.all_channels();
  for (int a = 0; a < nccl_algorithm_count; ++a)
    for (const message_protocol how : {message_protocol::ll, message_protocol::ll128, message_protocol::simple})
      c.rows.push_back(model.row(static_cast<nccl_algorithm>(a), how));
  for (std::size_t i = 0; i < c.rows.size(); ++i)
    if (c.rows[i].why_not.empty()) c.order.push_back(i);
  std::stable_sort(c.order.begin(), c.order.end(),
                   [&](std::size_t a, std::size_t b) { return c.rows[a].us < c.rows[b].us; });
  return c;
}

std::vector<std::string> table_of(const nccl_choice& choice) {
  std::vector<std::string> lines;
  char line[160];
  std::snprintf(line, sizeof line, "%-13s %-8s %10s %8s %12s %8s  %s", "algorithm", "protocol", "latency us", "GB/s",
                "predicted us", "channels", "performed by");
  lines.emplace_back(line);
  for (const std::size_t i : choice.order) {
    const nccl_row& r = choice.rows[i];
    std::snprintf(line, sizeof line, "%-13s %-8s %10.1f %8.1f %12.1f %8s  %s", std::string{name(r.algorithm)}.c_str(),
                  std::string{spoken(r.how)}.c_str(), r.latency_us, r.bandwidth, r.us,
                  r.channels > 0 ? std::to_string(r.channels).c_str() : "-",
                  r.choreography.empty() ? "nobody" : r.choreography.c_str());
    lines.emplace_back(line);
  }
  for (const nccl_row& r : choice.rows) {
    if (r.why_not.empty() || r.why_not == "with Simple only") continue;
    std::string told = "not " + std::string{name(r.algorithm)} + ' ' + std::string{spoken(r.how)} + ": " + r.why_not;
    lines.push_back(std::move(told));
  }
  return lines;
}

}  // namespace troupe
