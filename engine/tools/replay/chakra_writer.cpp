// SPDX-License-Identifier: Apache-2.0
// application → Chakra's binary form.
#include <protozero/pbf_writer.hpp>
#include <protozero/varint.hpp>

#include <nlohmann/json.hpp>

#include "engine/tools/replay/chakra.hpp"
#include "engine/tools/replay/chakra_nodes.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

using op_kind_t = replay_operation::kind;

/// Fields of et_def.proto.
constexpr std::uint32_t metadata_version = 1;
constexpr std::uint32_t node_id = 1, node_name = 2, node_type = 3, node_data_deps = 5, node_duration = 7,
                        node_attr = 10;
constexpr std::uint32_t attr_name = 1, attr_int32 = 7, attr_int64 = 9, attr_bool = 27, attr_string = 29;

void append(std::string& to, const std::string& message) {
  protozero::add_varint_to_buffer(&to, message.size());
  to += message;
}

template <class Value>
void add_attribute(protozero::pbf_writer& node, std::string_view name, Value value) {
  protozero::pbf_writer attribute{node, node_attr};
  attribute.add_string(attr_name, name.data(), name.size());
  value(attribute);
}
void add_int64(protozero::pbf_writer& node, chakra_node::number which, std::uint64_t value) {
  add_attribute(node, name(which), [&](auto& a) { a.add_int64(attr_int64, static_cast<std::int64_t>(value)); });
}
/// What ASTRA-sim's feeder takes as 32 bits.
void add_int32(protozero::pbf_writer& node, chakra_node::number which, std::int64_t value) {
  add_attribute(node, name(which), [&](auto& a) { a.add_int32(attr_int32, static_cast<std::int32_t>(value)); });
}
void add_bool(protozero::pbf_writer& node, chakra_node::number which, bool value) {
  add_attribute(node, name(which), [&](auto& a) { a.add_bool(attr_bool, value); });
}
void add_word(protozero::pbf_writer& node, chakra_node::word which, std::string_view value) {
  add_attribute(node, name(which), [&](auto& a) { a.add_string(attr_string, value.data(), value.size()); });
}

/// The schema's CollectiveCommType.
std::optional<std::uint64_t> comm_type_of(const job_kind& kind) {
  if (kind.v_form) return std::nullopt;
  switch (kind.what) {
    case collective::all_reduce: return 0;
    case collective::reduce: return 1;
    case collective::all_gather: return 2;
    case collective::gather: return 3;
    case collective::scatter: return 4;
    case collective::broadcast: return 5;
    case collective::all_to_all: return 6;
    case collective::reduce_scatter: return 7;
    case collective::barrier: return 9;
    case collective::scan:
    case collective::exscan: break;
  }
  return std::nullopt;
}

[[noreturn]] void cannot(const replay_rank& of, const replay_operation& o, const std::string& what) {
  throw error(errc::unsupported, of.file + ":" + std::to_string(o.line) + ": a Chakra trace cannot say " + what);
}

void add_collective(protozero::pbf_writer& node, const application& all, const replay_rank& of,
                    const replay_operation& o) {
  const application::collective& c = all.collectives[o.amount];
  const std::size_t ranks = all.communicators[c.communicator].ranks.size();
  const auto type = comm_type_of(c.what.kind);
  if (!type) cannot(of, o, name(c.what.kind));
  const bool many = c.what.kind.what == collective::reduce_scatter || c.what.kind.what == collective::all_to_all ||
                    c.what.kind.what == collective::scatter;
  add_bool(node, chakra_node::is_cpu_op, false);
  add_int64(node, chakra_node::comm_type, *type);
  add_int64(node, chakra_node::comm_size, c.what.count * size_of(c.what.type) * (many ? ranks : 1));
  if (c.communicator != 0) add_word(node, chakra_node::pg_name, std::to_string(c.communicator));
  if (c.what.kind.rooted()) add_int32(node, chakra_node::root, c.what.root);
  if (c.what.kind.is_barrier()) return;
  add_word(node, chakra_node::data_type, name(c.what.type));
  if (c.what.kind.reduces()) add_word(node, chakra_node::reduce_op, name(c.what.reduction.kind));
}

void add_message(protozero::pbf_writer& node, const replay_rank& of, rank_t rank, const replay_operation& o) {
  const bool sends = o.what == op_kind_t::send;
  if (o.peer == any_rank || o.tag == any_tag) cannot(of, o, "that it receives from any rank, or with any tag");
  if (o.tag > 0x7fff'ffff) cannot(of, o, "tags beyond 31 bits");
  add_bool(node, chakra_node::is_cpu_op, false);
  add_int64(node, chakra_node::comm_size, o.amount);
  add_int32(node, chakra_node::comm_src, sends ? rank : o.peer);
  add_int32(node, chakra_node::comm_dst, sends ? o.peer : rank);
  add_int32(node, chakra_node::comm_tag, o.tag);
}

chakra_type type_of(op_kind_t what) {
  switch (what) {
    case op_kind_t::calc: return chakra_type::compute;
    case op_kind_t::send: return chakra_type::send;
    case op_kind_t::recv: return chakra_type::recv;
    case op_kind_t::collective: return chakra_type::collective;
    case op_kind_t::memory:
    case op_kind_t::ready:
    case op_kind_t::arrived: break;
  }
  return chakra_type::invalid;
}

std::string file_of(const application& all, std::size_t rank) {
  const replay_rank& of = all.ranks[rank];
  std::vector<std::vector<std::uint64_t>> needs(of.operations.size());
  for (const replay_dependency& n : of.needs) {
    if (n.begun) cannot(of, of.operations[n.later], "that an operation begins when another has begun (irequires)");
    needs[n.later].push_back(n.earlier);
  }
  std::string made, message;
  protozero::pbf_writer{message}.add_string(metadata_version, "1.0.0");
  append(made, message);
  for (std::size_t i = 0; i < of.operations.size(); ++i) {
    const replay_operation& o = of.operations[i];
    message.clear();
    protozero::pbf_writer node{message};
    node.add_uint64(node_id, i);
    const std::string label = std::string{name(o.what)} + " " + std::to_string(o.line);
    node.add_string(node_name, label);
    node.add_enum(node_type, static_cast<int>(type_of(o.what)));
    node.add_packed_uint64(node_data_deps, needs[i].begin(), needs[i].end());
    if (o.what == op_kind_t::calc) {
      node.add_uint64(node_duration, (o.amount + 500'000) / 1'000'000);
      add_bool(node, chakra_node::is_cpu_op, o.cpu != 0);
    } else if (o.what == op_kind_t::collective) {
      add_collective(node, all, of, o);
    } else {
      add_message(node, of, static_cast<rank_t>(rank), o);
    }
    append(made, message);
  }
  return made;
}

}  // namespace

std::vector<std::string> write_chakra(const application& what) {
  std::vector<std::string> files;
  for (std::size_t r = 0; r < what.ranks.size(); ++r) files.push_back(file_of(what, r));
  return files;
}

std::string chakra_groups(const application& what) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::object();
  for (std::size_t c = 1; c < what.communicators.size(); ++c) groups[std::to_string(c)] = what.communicators[c].ranks;
  return groups.empty() ? std::string{} : groups.dump() + "\n";
}

}  // namespace troupe
