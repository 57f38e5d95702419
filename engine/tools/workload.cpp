// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/workload.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/planning/choreography_wish.hpp"
#include "engine/tools/launch/hosts.hpp"
#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

namespace {

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// The values of one [[workload.run]], defaults filled in.
class run_reader {
public:
  run_reader(const configuration& from, std::size_t index, int ranks)
      : table_(from.runs()[index]), own_scores_(from.under("engine.score_files")), ranks_(ranks) {}

  job_group read() const {
    const std::string collective_name = text("collective", "all_reduce");
    const auto kind = parse_job_kind(collective_name);
    if (!kind) {
      const std::vector<std::string_view> names{all_job_names().begin(), all_job_names().end()};
      const auto near = closest(collective_name, names);
      fail("collective",
           "there is no collective \"" + collective_name + "\"; " +
               (near.empty() ? "there are " + list_of(all_job_names()) : "did you mean " + std::string{near} + "?"));
    }
    job common;
    common.kind = *kind;
    common.choreography = choreography();
    if (const std::string wanted = text("protocol", ""); !wanted.empty())
      common.protocol = *parse_message_protocol(wanted);
    if (const std::string level = text("determinism", ""); !level.empty()) common.level = parse_determinism(level);
    const std::string places = text("in_place", "both");
    common.places = places == "out" ? job_places::out : places == "in" ? job_places::in : job_places::both;
    common.counts = counts(*kind);
    job_group group{title(common), {}};
    for (const datatype type : types())
      for (const op& reduction : operations(*kind, type))
        for (const rank_t root : roots(*kind))
          for (const std::size_t bytes : sizes(common)) {
            job one = common;
            one.type = type;
            one.reduction = reduction;
            one.root = root;
            one.bytes = bytes;
            group.jobs.push_back(std::move(one));
          }
    return group;
  }

private:
  [[noreturn]] void fail(std::string_view key, const std::string& sentence) const {
    const auto found = table_.find(key);
    throw error(errc::bad_config,
                (found == table_.end() ? place_of(table_.begin()->second.origin) : place_of(found->second.origin)) +
                    ": workload.run." + std::string{key} + ": " + sentence);
  }

  const config_value* find(std::string_view key) const {
    const auto found = table_.find(key);
    return found == table_.end() ? nullptr : &found->second.value;
  }
  std::string text(std::string_view key, const char* initial) const {
    const auto* value = find(key);
    return value == nullptr ? initial : std::get<std::string>(*value);
  }
  std::int64_t number(std::string_view key, std::int64_t initial) const {
    const auto* value = find(key);
    return value == nullptr ? initial : std::get<std::int64_t>(*value);
  }

  static std::string title(const job& common) {
    std::string text = name(common.kind);
    if (!common.choreography.empty()) text += ", " + common.choreography;
    if (common.protocol != message_protocol::unset) text += ", " + std::string{troupe::name(common.protocol)};
    if (common.level) text += ", " + std::string{name(*common.level)};
    return text;
  }

  std::string choreography() const {
    std::string wanted = text("choreography", "");
    if (wanted.empty() || wanted == "auto" || find_choreography(wanted) != nullptr ||
        own_scores_.find(wanted) != own_scores_.end())
      return wanted;
    std::vector<std::string> files;
    for (const auto& [own, file] : own_scores_) files.push_back(own);
    const std::vector<std::string> known = known_choreographies(files);
    if (wanted.starts_with('^')) {
      if (const std::string wrong = wrong_choreography(wanted, known); !wrong.empty()) fail("choreography", wrong);
      return wanted;
    }
    const std::vector<std::string_view> names(known.begin(), known.end());
    const auto near = closest(wanted, names);
    fail("choreography", "there is no choreography \"" + wanted + "\"; " +
                             (near.empty() ? "`troupe list` shows all" : "did you mean " + std::string{near} + "?"));
  }

  std::vector<datatype> types() const {
    auto found = types_of(text("type", "f32"));
    if (found.empty()) {
      std::vector<std::string> known;
      for (const datatype t : all_datatypes) known.emplace_back(name(t));
      fail("type", "there is no element type \"" + text("type", "") + "\"; there are " + list_of(known) + ", and all");
    }
    return found;
  }

  std::vector<op> operations(const job_kind& kind, datatype type) const {
    if (!kind.reduces()) return {sum};
    const std::string wanted = text("op", "sum");
    auto found = ops_of(wanted, type);
    if (found.empty() && wanted != "all" && !parse_op(wanted)) {
      std::vector<std::string> known;
      for (const op_kind o : all_op_kinds)
        if (o != op_kind::user) known.emplace_back(name(o));
      fail("op", "there is no operation \"" + wanted + "\"; there are " + list_of(known) + ", and all");
    }
    if (found.empty() && text("type", "f32") != "all") fail("op", why_unsupported(type, *parse_op(wanted)));
    return found;
  }

  std::vector<rank_t> roots(const job_kind& kind) const {
    const std::int64_t root = number("root", 0);
    if (!kind.rooted()) return {0};
    if (root >= ranks_)
      fail("root", "rank " + std::to_string(root) + " does not exist; the workload has ranks 0 to " +
                       std::to_string(ranks_ - 1));
    if (root >= 0) return {static_cast<rank_t>(root)};
    std::vector<rank_t> all(static_cast<std::size_t>(ranks_));
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<rank_t>(r);
    return all;
  }

  std::vector<std::size_t> sizes(const job& common) const {
    if (common.kind.is_barrier() || !common.counts.empty()) return {0};
    const auto* value = find("sizes");
    if (value == nullptr) return {std::size_t{1} << 20};
    std::vector<std::size_t> list;
    for (const std::int64_t bytes : std::get<std::vector<std::int64_t>>(*value))
      list.push_back(static_cast<std::size_t>(bytes));
    return list;
  }

  std::vector<std::size_t> counts(const job_kind& kind) const {
    const auto* value = find("counts");
    if (value == nullptr) return {};
    if (!kind.v_form) fail("counts", name(kind) + " has blocks of one size; counts are for the v-forms");
    const auto& rows = std::get<std::vector<std::vector<std::int64_t>>>(*value);
    const auto n = static_cast<std::size_t>(ranks_);
    const bool matrix = kind.has_matrix();
    const std::string right = matrix ? std::to_string(n) + " rows (a sender each) of " + std::to_string(n) + " counts"
                                     : "a list of " + std::to_string(n) + " counts";
    if (rows.size() != (matrix ? n : 1))
      fail("counts", "there are " + std::to_string(rows.size()) + " rows; " + name(kind) + " on " + plural(n, "rank") +
                         " needs " + right);
    const auto unit = static_cast<std::size_t>(number("unit", 1));
    std::vector<std::size_t> flat;
    for (const auto& row : rows) {
      if (row.size() != n)
        fail("counts", "a row has " + std::to_string(row.size()) + " counts; " + name(kind) + " on " +
                           plural(n, "rank") + " needs " + right);
      for (const std::int64_t c : row) {
        if (static_cast<std::uint64_t>(c) > (std::uint64_t{1} << 40) / unit)
          fail("counts",
               std::to_string(c) + " times unit " + std::to_string(unit) + " is more than any buffer can hold");
        flat.push_back(static_cast<std::size_t>(c) * unit);
      }
    }
    return flat;
  }

  const config_table& table_;
  std::map<std::string, config_entry> own_scores_;
  int ranks_;
};

/// Of ranks that live in `processes` processes.
int ranks_of_job(const configuration& from, int processes) {
  const auto& entry = from.at("workload.ranks");
  const auto wanted = static_cast<int>(std::get<std::int64_t>(entry.value));
  if (wanted % processes != 0)
    throw error(errc::bad_config, place_of(entry.origin) + ": workload.ranks is " + std::to_string(wanted) +
                                      ", which " + std::to_string(processes) +
                                      " processes cannot share alike; take a multiple");
  return wanted == 0 ? processes : wanted;
}

/// As many as the file says that are to be started.
void read_processes(const configuration& from, workload& w) {
  const auto text = [&](const char* key) { return std::get<std::string>(from.at(key).value); };
  w.hosts = text("workload.hosts");
  const auto asked = static_cast<int>(std::get<std::int64_t>(from.at("workload.processes").value));
  w.processes = asked > 0 ? asked : w.hosts.empty() ? 1 : launch::slots_of(launch::read_hosts(w.hosts));
}

int ranks_of(const configuration& from) {
  const auto& entry = from.at("workload.ranks");
  const auto wanted = static_cast<int>(std::get<std::int64_t>(entry.value));
  const auto& where = from.at("engine.layout");
  const auto& text = std::get<std::string>(where.value);
  if (layout::leaves_places_open(text)) return wanted == 0 ? 8 : wanted;
  const int placed = layout::parse(text).size();
  const std::string which = "engine.layout \"" + text + "\" (" + place_of(where.origin) + ")";
  if (wanted > placed)
    throw error(errc::bad_config, place_of(entry.origin) + ": workload.ranks is " + std::to_string(wanted) + ", but " +
                                      which + " places " + plural(static_cast<std::size_t>(placed), "rank") +
                                      "; take at most so many, or leave workload.ranks out");
  if (wanted == 0 && placed > most_ranks_of_a_process)
    throw error(errc::bad_config,
                which + " places " + std::to_string(placed) + " ranks, but one process performs at most " +
                    std::to_string(most_ranks_of_a_process) + "; set workload.ranks, or take a smaller layout");
  return wanted == 0 ? placed : wanted;
}

/// Weights 1, 2, … with an empty block in the middle: what v-forms get when the workload only says a size.
std::vector<std::size_t> skewed(std::size_t total, std::size_t blocks) {
  std::vector<std::size_t> weights(blocks);
  std::size_t sum_of_weights = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    weights[b] = blocks > 2 && b == blocks / 2 ? 0 : b % 8 + 1;
    sum_of_weights += weights[b];
  }
  for (std::size_t& w : weights) w = total / sum_of_weights * w;
  return weights;
}

/// Largest number of elements that one rank sends or receives.
std::size_t largest_side(const std::vector<std::size_t>& matrix, std::size_t n) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t sent = 0, received = 0;
    for (std::size_t j = 0; j < n; ++j) sent += matrix[i * n + j], received += matrix[j * n + i];
    most = std::max({most, sent, received});
  }
  return most;
}

}  // namespace

std::string name(const job_kind& kind) {
  return kind.send_recv ? "send_recv" : std::string{name(kind.what)} + (kind.v_form ? "_v" : "");
}

std::optional<job_kind> parse_job_kind(std::string_view text) {
  if (text == "send_recv" || text == "sendrecv") return job_kind{.send_recv = true};
  if (const auto plain = parse_collective(text)) return job_kind{*plain, false, false};
  if (!text.ends_with("_v")) return std::nullopt;
  const auto what = parse_collective(text.substr(0, text.size() - 2));
  if (!what || !has_v_form(*what)) return std::nullopt;
  return job_kind{*what, true, false};
}

const std::vector<std::string>& all_job_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (const collective c : all_collectives) made.emplace_back(name(c));
    for (const collective c : all_collectives)
      if (has_v_form(c)) made.push_back(std::string{name(c)} + "_v");
    made.emplace_back("send_recv");
    return made;
  }();
  return names;
}

std::vector<datatype> types_of(std::string_view text) {
  if (text == "all") return {all_datatypes.begin(), all_datatypes.end()};
  if (const auto one = parse_datatype(text)) return {*one};
  return {};
}

std::vector<op> ops_of(std::string_view text, datatype type) {
  std::vector<op> found;
  const auto add = [&](op_kind kind) {
    // 2: exact in every type, and a wrong or missing factor shows.
    if (kind != op_kind::user && supports(type, kind))
      found.push_back(kind == op_kind::pre_mul_sum ? pre_mul_sum(2.0) : make_op(kind));
  };
  if (text == "all")
    for (const op_kind kind : all_op_kinds) add(kind);
  else if (const auto one = parse_op(text)) add(*one);
  return found;
}

workload read_workload(const configuration& from, int processes) {
  const auto number = [&](const char* key) { return static_cast<int>(std::get<std::int64_t>(from.at(key).value)); };
  workload w;
  if (processes > 0) w.processes = processes;
  else read_processes(from, w);
  const bool alone = w.processes == 1 && w.hosts.empty();
  w.ranks = alone ? ranks_of(from) : ranks_of_job(from, w.processes);
  w.iterations = number("workload.iterations");
  w.warmup = number("workload.warmup");
  w.check = std::get<bool>(from.at("workload.check").value);
  w.one_thread = std::get<bool>(from.at("workload.one_thread").value);
  if (w.one_thread && !alone)
    throw error(errc::bad_config, place_of(from.at("workload.one_thread").origin) +
                                      ": workload.one_thread drives the ranks of one process, not those of several");
  for (std::size_t i = 0; i < from.runs().size(); ++i) w.groups.push_back(run_reader{from, i, w.ranks}.read());
  return w;
}

layout first_places(const std::string& layout_text, int ranks) {
  if (layout::leaves_places_open(layout_text)) {
    layout flat = layout::flat(ranks);
    flat.reduces = layout::reduction_of(layout_text);
    return flat;
  }
  layout whole = layout::parse(layout_text);
  if (whole.size() == ranks) return whole;
  std::vector<int> first(static_cast<std::size_t>(ranks));
  std::iota(first.begin(), first.end(), 0);
  return whole.subset(first);
}

job_shape shape_of(const job& j, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t e = size_of(j.type), elements = j.bytes / e;
  job_shape shape;
  if (j.kind.is_barrier()) return shape;
  if (j.kind.v_form) {
    const bool matrix = j.kind.has_matrix();
    shape.counts = j.counts;
    if (shape.counts.empty() && !matrix) shape.counts = skewed(elements, n);
    if (shape.counts.empty()) {
      const auto row = skewed(elements, n);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < n; ++k) shape.counts.push_back(row[(k + n - i) % n]);
    }
    shape.count = *std::max_element(shape.counts.begin(), shape.counts.end());
    std::size_t total = 0;
    for (const std::size_t c : shape.counts) total += c;
    shape.bytes = (matrix ? largest_side(shape.counts, n) : total) * e;
    return shape;
  }
  const bool one_block = j.kind.send_recv || block_count(j.kind.what, ranks) == 1;
  shape.count = one_block ? elements : elements / n;
  shape.bytes = shape.count * e * (one_block ? 1 : n);
  return shape;
}

double bus_factor(const job_kind& kind, int ranks) {
  return kind.send_recv ? 1 : traits_of(kind.what).bus_factor(ranks);
}

}  // namespace troupe
