// SPDX-License-Identifier: Apache-2.0
// Chakra's nodes → application.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/tools/replay/chakra.hpp"
#include "engine/tools/replay/chakra_nodes.hpp"
#include "engine/tools/replay/said_calls.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

using json = nlohmann::json;
using op_kind_t = replay_operation::kind;

constexpr std::size_t most_files = 1 << 17;
/// Of all ranks: some 100 bytes each.
constexpr std::size_t most_nodes = std::size_t{1} << 26;
constexpr double most_picoseconds = 1e18;
constexpr std::int32_t of_device = 0, of_processor = 1, of_messages = 2;  ///< cpus

[[noreturn]] void fail(const std::string& file, const std::string& sentence) {
  throw error(errc::bad_config, file + ": " + sentence);
}

std::string printable(std::string_view text) {
  std::string shown{text.substr(0, 40)};
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return shown;
}

/// NAME.RANK.et
std::size_t rank_in(const std::string& file) {
  const std::string_view stem = std::string_view{file}.substr(0, file.rfind('.'));
  const std::string_view digits = stem.substr(stem.rfind('.') + 1);
  std::size_t rank = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (failure != std::errc{} || end != digits.data() + digits.size())
    fail(file, "a Chakra file's name says its rank: NAME.0.et, NAME.1.et, …");
  return rank;
}

// -- communicators ------------------------------------------------------------------------------------------------------

class group_list {
public:
  explicit group_list(application& into) : into_(into) {
    std::vector<int> all(into.ranks.size());
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
    into_.communicators.push_back({"world", std::move(all)});
  }

  /// `ranks` is a JSON array; an empty one is all. Where the same is said again, it must be the same.
  void add(const std::string& name, const json& ranks, const std::string& file) {
    std::vector<int> members;
    const std::size_t size = into_.ranks.size();
    if (!ranks.is_array()) fail(file, "the ranks of communicator " + printable(name) + " are no list, such as [0, 2]");
    for (const json& r : ranks) {
      if (!r.is_number_unsigned() || r.get<std::uint64_t>() >= size)
        fail(file, "communicator " + printable(name) + " has the rank " + printable(r.dump()) + "; ranks are 0 to " +
                       std::to_string(size - 1));
      members.push_back(r.get<int>());
    }
    if (members.empty()) members = into_.communicators[0].ranks;
    auto sorted = members;
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
      fail(file, "communicator " + printable(name) + " has rank " + std::to_string(*twice) + " twice");
    const auto [at, fresh] = known_.try_emplace(name, into_.communicators.size());
    if (fresh && members == into_.communicators[0].ranks) at->second = 0;
    else if (fresh) into_.communicators.push_back({name, std::move(members)});
    else if (into_.communicators[at->second].ranks != members)
      fail(file, "communicator " + printable(name) + " has other ranks than elsewhere in the trace");
  }

  void add_all(const trace_text& file) {
    const json said = json::parse(file.text, nullptr, false);
    if (!said.is_object()) fail(file.file, "it is no JSON object of communicators' ranks, such as {\"1\": [0, 2]}");
    for (const auto& [name, ranks] : said.items()) add(name, ranks, file.file);
  }

  /// As PyTorch's traces have them: a list of objects, as a text within a list of Python's.
  void add_process_groups(const std::string& values, const std::string& file) {
    const auto begin = values.find("[{"), end = values.rfind("}]");
    if (begin == std::string::npos || end == std::string::npos || end < begin) return;
    const json said = json::parse(values.substr(begin, end + 2 - begin), nullptr, false);
    if (!said.is_array()) fail(file, "its process groups are no JSON");
    for (const json& one : said) {
      const auto name = one.is_object() ? one.find("pg_name") : one.end();
      const auto ranks = one.is_object() ? one.find("ranks") : one.end();
      if (!one.is_object() || name == one.end() || ranks == one.end() || !name->is_string())
        fail(file, "a process group has no pg_name or no ranks");
      add(name->get<std::string>(), *ranks, file);
    }
  }

  /// As ASTRA-sim: none, and "0" where nobody says who that is, are all ranks.
  std::optional<std::size_t> find(const std::optional<std::string>& name) const {
    if (!name || name->empty()) return 0;
    const auto at = known_.find(*name);
    if (at != known_.end()) return at->second;
    return *name == "0" ? std::optional<std::size_t>{0} : std::nullopt;
  }

private:
  application& into_;
  std::map<std::string, std::size_t> known_;
};

// -- nodes --------------------------------------------------------------------------------------------------------------

job_kind kind_of(std::uint64_t comm_type, const std::string& where) {
  switch (comm_type) {
    case 0: return {collective::all_reduce};
    case 1: return {collective::reduce};
    case 2: return {collective::all_gather};
    case 3: return {collective::gather};
    case 4: return {collective::scatter};
    case 5: return {collective::broadcast};
    case 6: return {collective::all_to_all};
    case 7:
    case 8: return {collective::reduce_scatter};
    case 9: return {collective::barrier};
  }
  throw error(errc::bad_config, where + "comm_type is " + std::to_string(comm_type) + "; Chakra has 0 to 9");
}

/// Of PyTorch's names of tensors' types.
std::optional<datatype> tensor_type(const std::string& types) {
  static const std::pair<std::string_view, datatype> names[] = {{"Tensor(float)", datatype::f32},
                                                                {"Tensor(double)", datatype::f64},
                                                                {"Tensor(c10::BFloat16)", datatype::bf16},
                                                                {"Tensor(c10::Half)", datatype::f16},
                                                                {"Tensor(int)", datatype::i32},
                                                                {"Tensor(long int)", datatype::i64},
                                                                {"Tensor(signed char)", datatype::i8},
                                                                {"Tensor(unsigned char)", datatype::u8}};
  std::optional<datatype> found;
  std::size_t first = std::string::npos;
  for (const auto& [text, type] : names)
    if (const auto at = types.find(text); at < first) first = at, found = type;
  return found;
}

class rank_reader {
public:
  rank_reader(const trace_text& file, rank_t rank, application& into, group_list& groups, said_calls& calls,
              const trace_reading& how)
      : file_(file), rank_(rank), into_(into), groups_(groups), calls_(calls), how_(how) {}

  void read() {
    here().file = file_.file;
    for_each_chakra_node(file_, [&](chakra_node&& n) { add(n); });
    for (const auto& [later, id] : needs_) {
      const auto earlier = by_id_.find(id);
      if (earlier == by_id_.end())
        fail(file_.file, "node " + std::to_string(ids_[later]) + " depends on node " + std::to_string(id) +
                             ", which is not in the file");
      if (earlier->second == later) fail(file_.file, "node " + std::to_string(ids_[later]) + " depends on itself");
      here().needs.push_back({later, earlier->second, false});
    }
  }

  std::size_t nodes() const { return ids_.size(); }

private:
  replay_rank& here() { return into_.ranks[static_cast<std::size_t>(rank_)]; }

  void add(chakra_node& n) {
    where_ =
        file_.file + ": node " + std::to_string(n.id) + (n.name.empty() ? "" : " (" + printable(n.name) + ")") + ": ";
    if (ids_.size() >= most_nodes) fail(file_.file, "it has more than " + std::to_string(most_nodes) + " nodes");
    const auto index = static_cast<std::uint32_t>(ids_.size());
    if (!by_id_.try_emplace(n.id, index).second)
      throw error(errc::bad_config, where_ + "another node of the file has its id; give each one of its own");
    ids_.push_back(n.id);
    if (n.type > static_cast<std::uint64_t>(chakra_type::collective))
      throw error(errc::bad_config, where_ + "its type is " + std::to_string(n.type) + "; Chakra has 0 to 7");
    replay_operation o;
    // Ids are what people know nodes by; none of 33 bits has been seen.
    o.line = static_cast<std::uint32_t>(std::min<std::uint64_t>(n.id, 0xffff'ffff));
    fill(o, n);
    here().operations.push_back(o);
    std::sort(n.needs.begin(), n.needs.end());
    n.needs.erase(std::unique(n.needs.begin(), n.needs.end()), n.needs.end());
    for (const std::uint64_t id : n.needs) needs_.emplace_back(index, id);
  }

  void fill(replay_operation& o, chakra_node& n) {
    switch (static_cast<chakra_type>(n.type)) {
      case chakra_type::invalid: return;
      case chakra_type::metadata:
        if (n.name.find("process_group") != std::string::npos) groups_.add_process_groups(n.input_values, file_.file);
        return;
      case chakra_type::load:
      case chakra_type::store:
      case chakra_type::compute:
        o.cpu = n.say[chakra_node::is_cpu_op].value_or(0) != 0 ? of_processor : of_device;
        o.amount = picoseconds(n);
        return;
      case chakra_type::send:
      case chakra_type::recv: return message(o, n);
      case chakra_type::collective: return collective(o, n);
    }
  }

  std::uint64_t number(const chakra_node& n, chakra_node::number which, std::uint64_t most,
                       std::optional<std::uint64_t> otherwise = {}) const {
    const auto& said = n.say[which];
    if (!said && otherwise) return *otherwise;
    if (!said) throw error(errc::bad_config, where_ + "it has no " + std::string{name(which)});
    if (*said < 0 || static_cast<std::uint64_t>(*said) > most)
      throw error(errc::bad_config, where_ + std::string{name(which)} + " is " + std::to_string(*said) +
                                        "; it can be 0 to " + std::to_string(most));
    return static_cast<std::uint64_t>(*said);
  }

  /// The duration where there is one; else what a roofline makes of the operations and bytes.
  std::uint64_t picoseconds(const chakra_node& n) const {
    double time = static_cast<double>(n.micros) * 1e6;
    if (n.micros == 0) {
      const auto operations = number(n, chakra_node::num_ops, most_trace_payload, 0);
      const auto bytes = number(n, chakra_node::tensor_size, most_trace_payload, 0);
      const bool memory = static_cast<chakra_type>(n.type) != chakra_type::compute;
      if (operations > 0 && how_.operations_a_second <= 0)
        throw error(errc::bad_config, where_ + "it says " + plural(operations, "operation") +
                                          " and no duration; say how many a second the machine does, --flops 300T");
      if (memory && bytes > 0 && how_.memory_bytes_a_second <= 0)
        throw error(errc::bad_config, where_ + "it says " + plural(bytes, "byte") +
                                          " of memory and no duration; say how fast that is, --memory-rate 2TB/s");
      if (operations > 0) time = static_cast<double>(operations) / how_.operations_a_second * 1e12;
      if ((operations > 0 || memory) && how_.memory_bytes_a_second > 0)
        time = std::max(time, static_cast<double>(bytes) / how_.memory_bytes_a_second * 1e12);
    }
    if (!(time <= most_picoseconds))
      throw error(errc::bad_config, where_ + "it takes more than " + std::to_string(most_picoseconds * 1e-12) + " s");
    return static_cast<std::uint64_t>(std::llround(time));
  }

  void message(replay_operation& o, const chakra_node& n) const {
    const bool sends = static_cast<chakra_type>(n.type) == chakra_type::send;
    o.what = sends ? op_kind_t::send : op_kind_t::recv;
    o.cpu = of_messages;
    o.amount = number(n, chakra_node::comm_size, most_trace_payload);
    o.tag = static_cast<std::int64_t>(number(n, chakra_node::comm_tag, std::uint64_t{1} << 32, 0));
    const auto mine = sends ? chakra_node::comm_src : chakra_node::comm_dst;
    const auto others = sends ? chakra_node::comm_dst : chakra_node::comm_src;
    const std::size_t last = into_.ranks.size() - 1;
    o.peer = static_cast<rank_t>(number(n, others, last));
    if (number(n, mine, last, static_cast<std::uint64_t>(rank_)) != static_cast<std::uint64_t>(rank_))
      throw error(errc::bad_config, where_ + std::string{name(mine)} + " is " + std::to_string(*n.say[mine]) +
                                        ", but the file is rank " + std::to_string(rank_) + "'s");
  }

  void collective(replay_operation& o, const chakra_node& n) {
    o.what = op_kind_t::collective;
    if (n.some_dimensions)
      throw error(errc::bad_config, where_ + "involved_dim leaves out dimensions of ASTRA-sim's network, which has no "
                                             "meaning here; say its ranks by a communicator, pg_name");
    application_call c;
    c.kind = kind_of(number(n, chakra_node::comm_type, ~std::uint64_t{0} >> 1), where_);
    const auto communicator = groups_.find(n.tell[chakra_node::pg_name]);
    if (!communicator)
      throw error(errc::bad_config, where_ + "nobody says which ranks communicator " +
                                        printable(*n.tell[chakra_node::pg_name]) +
                                        " has; name a file that does, --groups FILE, for example {\"1\": [0, 2]}");
    const auto& group = into_.communicators[*communicator];
    if (c.kind.rooted()) c.root = static_cast<rank_t>(number(n, chakra_node::root, most_files, 0));
    if (!c.kind.is_barrier()) elements(c, n, group.ranks.size());
    if (const std::string why = problem_of(c, group, rank_); !why.empty()) throw error(errc::bad_config, where_ + why);
    calls_[static_cast<std::size_t>(rank_)][*communicator].push_back(
        {c, static_cast<std::uint32_t>(here().operations.size()), file_.file, o.line});
  }

  /// comm_size is what a rank puts in: one block where all blocks are one or it has one, else one for each rank.
  void elements(application_call& c, const chakra_node& n, std::size_t ranks) const {
    const std::uint64_t bytes = number(n, chakra_node::comm_size, most_trace_payload);
    const bool many = c.kind.what == collective::reduce_scatter || c.kind.what == collective::all_to_all ||
                      c.kind.what == collective::scatter;
    const std::uint64_t block = many ? (bytes + ranks - 1) / ranks : bytes;
    c.type = block % 4 == 0 ? datatype::f32 : datatype::u8;
    if (const auto type = tensor_type(n.input_types)) c.type = *type;
    if (const auto& said = n.tell[chakra_node::data_type]) {
      const auto types = types_of(*said);
      if (types.size() != 1)
        throw error(errc::bad_config, where_ + "data_type is no element type; take, for example, f32");
      c.type = types.front();
    }
    if (const auto& said = n.tell[chakra_node::reduce_op]; said && c.kind.reduces()) {
      const auto ops = ops_of(*said, c.type);
      if (ops.size() != 1) throw error(errc::bad_config, where_ + "reduce_op is no operation; take, for example, sum");
      c.reduction = ops.front();
    }
    c.count = static_cast<std::size_t>((block + size_of(c.type) - 1) / size_of(c.type));
  }

  const trace_text& file_;
  rank_t rank_;
  application& into_;
  group_list& groups_;
  said_calls& calls_;
  const trace_reading& how_;
  std::string where_;
  std::vector<std::uint64_t> ids_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_id_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> needs_;
};

}  // namespace

bool names_chakra(std::string_view file) noexcept { return file.ends_with(".et") || file.ends_with(".json"); }

application read_chakra(const std::vector<trace_text>& files, const trace_text& groups, const trace_reading& how) {
  if (files.empty() || files.size() > most_files)
    throw error(errc::bad_config, "a Chakra trace is one file a rank, at most " + std::to_string(most_files));
  std::vector<const trace_text*> by_rank(files.size(), nullptr);
  for (const trace_text& file : files) {
    const std::size_t rank = rank_in(file.file);
    if (rank >= files.size())
      fail(file.file, "it is rank " + std::to_string(rank) + "'s, but there " + (files.size() == 1 ? "is " : "are ") +
                          plural(files.size(), "file") + "; name those of all ranks, 0 to the last");
    if (by_rank[rank] != nullptr) fail(file.file, by_rank[rank]->file + " is that rank's, too");
    by_rank[rank] = &file;
  }
  application made;
  made.ranks.resize(files.size());
  group_list known{made};
  if (!groups.file.empty()) known.add_all(groups);
  said_calls calls(files.size());
  std::size_t nodes = 0;
  for (std::size_t r = 0; r < files.size(); ++r) {
    rank_reader one{*by_rank[r], static_cast<rank_t>(r), made, known, calls, how};
    one.read();
    if ((nodes += one.nodes()) > most_nodes)
      fail(by_rank[r]->file, "the trace has more than " + std::to_string(most_nodes) + " nodes");
  }
  if (nodes == 0)
    fail(by_rank[0]->file, "the trace has no node; a Chakra trace has its GlobalMetadata first, and then nodes");
  join_collectives(made, calls);
  return made;
}

}  // namespace troupe
