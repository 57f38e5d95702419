// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/replay/chakra_nodes.hpp"

#include <charconv>
#include <cmath>
#include <sstream>

#include <nlohmann/json.hpp>
#include <protozero/pbf_reader.hpp>

#include "memory/error.hpp"

namespace troupe {

namespace {

using protozero::pbf_wire_type;
using json = nlohmann::json;

constexpr std::array<std::string_view, chakra_node::numbers> number_names{
    "is_cpu_op", "num_ops", "tensor_size", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "root"};
constexpr std::array<std::string_view, chakra_node::words> word_names{"pg_name", "data_type", "reduce_op"};

/// JSON takes some ten times its text in memory while it is read, one object at a time.
constexpr std::size_t most_json_bytes = std::size_t{256} << 20;

std::optional<std::int64_t> whole(double value) {
  if (!(std::abs(value) < 9e18)) return std::nullopt;
  return static_cast<std::int64_t>(std::llround(value));
}

// -- attributes ---------------------------------------------------------------------------------------------------------

/// A value of any of the schema's kinds.
struct attribute {
  std::string_view name;
  std::optional<std::int64_t> number;
  std::optional<std::string_view> text;
  bool a_false = false;  ///< among a list of bools
};

void keep(chakra_node& in, const attribute& a) {
  if (a.name == "involved_dim") in.some_dimensions = a.a_false;
  for (std::size_t i = 0; i < number_names.size(); ++i)
    if (a.name == number_names[i] && a.number) in.say[i] = a.number;
  for (std::size_t i = 0; i < word_names.size(); ++i) {
    if (a.name != word_names[i]) continue;
    if (a.text) in.tell[i] = std::string{*a.text};
    else if (a.number) in.tell[i] = std::to_string(*a.number);
  }
}

// -- the binary form ----------------------------------------------------------------------------------------------------

std::string_view view(protozero::data_view of) { return {of.data(), of.size()}; }

// et_def.proto's numbers of fields.
constexpr std::uint32_t varint(std::uint32_t field) { return protozero::tag_and_type(field, pbf_wire_type::varint); }
constexpr std::uint32_t bytes(std::uint32_t field) {
  return protozero::tag_and_type(field, pbf_wire_type::length_delimited);
}
constexpr std::uint32_t four(std::uint32_t field) { return protozero::tag_and_type(field, pbf_wire_type::fixed32); }
constexpr std::uint32_t eight(std::uint32_t field) { return protozero::tag_and_type(field, pbf_wire_type::fixed64); }

/// Beyond 2^63 a number is negative, which is refused where it matters.
std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

bool holds_false(protozero::pbf_reader list) {
  bool found = false;
  while (list.next()) {
    if (list.tag_and_type() == varint(1)) found = !list.get_bool() || found;
    else if (list.tag_and_type() == bytes(1))
      for (const bool value : list.get_packed_bool()) found = !value || found;
    else list.skip();
  }
  return found;
}

attribute read_attribute(protozero::pbf_reader in) {
  attribute a;
  while (in.next()) switch (in.tag_and_type()) {
      case bytes(1): a.name = view(in.get_view()); break;
      case eight(3): a.number = whole(in.get_double()); break;
      case four(5): a.number = whole(static_cast<double>(in.get_float())); break;
      case varint(7): a.number = in.get_int32(); break;
      case varint(9): a.number = in.get_int64(); break;
      case varint(11): a.number = in.get_uint32(); break;
      case varint(13): a.number = as_signed(in.get_uint64()); break;
      case varint(15): a.number = in.get_sint32(); break;
      case varint(17): a.number = in.get_sint64(); break;
      case four(19): a.number = in.get_fixed32(); break;
      case eight(21): a.number = as_signed(in.get_fixed64()); break;
      case four(23): a.number = in.get_sfixed32(); break;
      case eight(25): a.number = in.get_sfixed64(); break;
      case varint(27): a.number = in.get_bool() ? 1 : 0; break;
      case bytes(28): a.a_false = holds_false(in.get_message()); break;
      case bytes(29): a.text = view(in.get_view()); break;
      default: in.skip();
    }
  return a;
}

void read_inputs(protozero::pbf_reader in, chakra_node& into) {
  while (in.next()) switch (in.tag_and_type()) {
      case bytes(1): into.input_values = in.get_string(); break;
      case bytes(3): into.input_types = in.get_string(); break;
      default: in.skip();
    }
}

chakra_node read_node(protozero::pbf_reader in) {
  chakra_node n;
  while (in.next()) switch (in.tag_and_type()) {
      case varint(1): n.id = in.get_uint64(); break;
      case bytes(2): n.name = in.get_string(); break;
      case varint(3): n.type = static_cast<std::uint64_t>(in.get_int64()); break;
      case varint(4):
      case varint(5): n.needs.push_back(in.get_uint64()); break;
      case bytes(4):
      case bytes(5):
        for (const std::uint64_t id : in.get_packed_uint64()) n.needs.push_back(id);
        break;
      case varint(7): n.micros = in.get_uint64(); break;
      case bytes(8): read_inputs(in.get_message(), n); break;
      case bytes(10): keep(n, read_attribute(in.get_message())); break;
      default: in.skip();
    }
  return n;
}

[[noreturn]] void fail(const trace_text& file, const std::string& sentence) {
  throw error(errc::bad_config, file.file + ": " + sentence);
}

void read_binary(const trace_text& file, const std::function<void(chakra_node&&)>& take) {
  const char* at = file.text.data();
  const char* const end = at + file.text.size();
  if (file.text.starts_with("\x1f\x8b")) fail(file, "it is compressed; unpack it with gunzip first");
  std::size_t position = 0;
  std::size_t begin = 0;
  try {
    for (; at != end; ++position) {
      begin = static_cast<std::size_t>(at - file.text.data());
      const std::uint64_t length = protozero::decode_varint(&at, end);
      if (length > static_cast<std::uint64_t>(end - at))
        fail(file, "at byte " + std::to_string(begin) + " a message of " + std::to_string(length) +
                       " bytes is said to follow, but the file ends " + std::to_string(end - at) +
                       " bytes further on; it is cut off, or no Chakra trace");
      protozero::pbf_reader message{at, static_cast<std::size_t>(length)};
      at += length;
      // The first one is the GlobalMetadata, of which nothing is needed; its form is looked at all the same.
      if (position > 0) take(read_node(message));
      else
        while (message.next()) message.skip();
    }
  } catch (const protozero::exception& why) {
    fail(file, "the message at byte " + std::to_string(begin) + " is no " +
                   (position == 0 ? "GlobalMetadata" : "Node") + " of Chakra's (" + why.what() + ")");
  }
  if (position == 0) fail(file, "it is empty; a Chakra trace begins with its GlobalMetadata");
}

// -- JSON ---------------------------------------------------------------------------------------------------------------

/// A member by its name in the schema, "data_deps", or as protobuf writes it, "dataDeps".
const json* member(const json& of, std::string_view name) {
  if (!of.is_object()) return nullptr;
  auto found = of.find(name);
  if (found == of.end()) {
    std::string camel;
    for (std::size_t i = 0; i < name.size(); ++i)
      if (name[i] == '_' && i + 1 < name.size()) camel += static_cast<char>(name[++i] - 'a' + 'A');
      else camel += name[i];
    found = of.find(camel);
  }
  return found == of.end() ? nullptr : &*found;
}

/// Numbers of 64 bits are texts in protobuf's JSON.
std::optional<std::int64_t> number_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number_unsigned()) return as_signed(value.get<std::uint64_t>());
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) return whole(value.get<double>());
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

std::uint64_t type_of(const json& value) {
  static constexpr std::string_view names[] = {"INVALID_NODE", "METADATA_NODE",  "MEM_LOAD_NODE",  "MEM_STORE_NODE",
                                               "COMP_NODE",    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"};
  if (value.is_string())
    for (std::size_t i = 0; i < std::size(names); ++i)
      if (value.get_ref<const std::string&>() == names[i]) return i;
  return static_cast<std::uint64_t>(number_of(value).value_or(-1));
}

attribute attribute_of(const json& from) {
  attribute a;
  if (const json* name = member(from, "name"); name != nullptr && name->is_string())
    a.name = name->get_ref<const std::string&>();
  for (const auto& [key, value] : from.items()) {
    if (key == "name" || key == "doc_string" || key == "docString") continue;
    if (key == "string_val" || key == "stringVal") {
      if (value.is_string()) a.text = value.get_ref<const std::string&>();
    } else if (key == "bool_list" || key == "boolList") {
      if (const json* list = member(value, "values"); list != nullptr && list->is_array())
        for (const json& one : *list) a.a_false = a.a_false || one == false;
    } else {
      a.number = number_of(value);
    }
  }
  return a;
}

chakra_node node_of(const json& from) {
  chakra_node n;
  const auto number = [&](std::string_view name) -> std::uint64_t {
    const json* value = member(from, name);
    return value == nullptr ? 0 : static_cast<std::uint64_t>(number_of(*value).value_or(-1));
  };
  n.id = number("id");
  n.micros = number("duration_micros");
  if (const json* name = member(from, "name"); name != nullptr && name->is_string()) n.name = name->get<std::string>();
  if (const json* type = member(from, "type")) n.type = type_of(*type);
  for (const char* kind : {"ctrl_deps", "data_deps"})
    if (const json* list = member(from, kind); list != nullptr && list->is_array())
      for (const json& id : *list) n.needs.push_back(static_cast<std::uint64_t>(number_of(id).value_or(-1)));
  if (const json* inputs = member(from, "inputs")) {
    if (const json* v = member(*inputs, "values"); v != nullptr && v->is_string())
      n.input_values = v->get<std::string>();
    if (const json* t = member(*inputs, "types"); t != nullptr && t->is_string()) n.input_types = t->get<std::string>();
  }
  if (const json* list = member(from, "attr"); list != nullptr && list->is_array())
    for (const json& one : *list)
      if (one.is_object()) keep(n, attribute_of(one));
  return n;
}

void read_json(const trace_text& file, const std::function<void(chakra_node&&)>& take) {
  if (file.text.size() > most_json_bytes)
    fail(file, "it has more than " + std::to_string(most_json_bytes >> 20) + " MiB; take the binary form, .et");
  std::istringstream text{file.text};
  std::size_t position = 0;
  for (; (text >> std::ws).good() && text.peek() != std::istringstream::traits_type::eof(); ++position) {
    json one;
    try {
      text >> one;
    } catch (const json::exception& why) {
      fail(file, "object " + std::to_string(position) + " is no JSON: " + why.what());
    }
    if (!one.is_object())
      fail(file, "value " + std::to_string(position) + " is no JSON object, as Chakra's jsonizer writes them");
    if (position > 0) take(node_of(one));
  }
  if (position == 0) fail(file, "it is empty; a Chakra trace begins with its GlobalMetadata, for example {}");
}

}  // namespace

std::string_view name(chakra_node::number which) noexcept { return number_names[which]; }
std::string_view name(chakra_node::word which) noexcept { return word_names[which]; }

void for_each_chakra_node(const trace_text& file, const std::function<void(chakra_node&&)>& take) {
  if (file.file.ends_with(".json")) read_json(file, take);
  else read_binary(file, take);
}

}  // namespace troupe
