// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/config_json_schema.hpp"

#include <nlohmann/json.hpp>

#include "engine/config/configuration.hpp"
#include "engine/tools/study/this_machine.hpp"
#include "engine/tools/workload.hpp"
#include "memory/types/types.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr const char* bytes_pattern = "^[0-9]+([.][0-9]+)? ?([KkMmGgT]|[KMGT]i?B|B)?$";
constexpr const char* duration_pattern = "^[0-9]+([.][0-9]+)? ?(ns|us|µs|ms|s|min|h)$";
constexpr double least_unlimited = 9.0e15;  // as the schema has it for integers that only begin somewhere

json bytes_schema() {
  return {{"anyOf", {{{"type", "integer"}, {"minimum", 0}}, {{"type", "string"}, {"pattern", bytes_pattern}}}}};
}

json sizes_schema() {
  const json one = bytes_schema();
  json range{{"type", "object"}, {"required", {"from", "to"}}, {"additionalProperties", false}};
  for (const char* key : {"from", "to", "factor", "step"}) range["properties"][key] = one;
  range["oneOf"] = {{{"required", {"factor"}}}, {{"required", {"step"}}}};
  return {{"anyOf", {one, {{"type", "array"}, {"items", one}, {"minItems", 1}}, range}}};
}

json counts_schema() {
  const json row{{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", 0}}}};
  return {{"anyOf", {row, {{"type", "array"}, {"items", row}}}}};
}

json number_schema(const config_setting& s) {
  json made{{"type", s.kind == config_kind::integer ? "integer" : "number"}};
  const auto bound = [&](double value) -> json {
    return s.kind == config_kind::integer ? json(static_cast<std::int64_t>(value)) : json(value);
  };
  made["minimum"] = bound(s.least);
  if (s.most < least_unlimited) made["maximum"] = bound(s.most);
  return made;
}

json text_schema(std::string_view key) {
  const known_words known = words_of_setting(key);
  if (known.words.empty()) return {{"type", "string"}};
  const json some{{"enum", known.words}};
  if (!known.open) return {{"type", "string"}, {"enum", known.words}};
  return {{"anyOf", {some, {{"type", "string"}}}}};
}

json schema_of(const config_setting& s) {
  switch (s.kind) {
    case config_kind::boolean: return {{"type", "boolean"}};
    case config_kind::integer:
    case config_kind::real: return number_schema(s);
    case config_kind::text:
    case config_kind::choice: return text_schema(s.key);
    case config_kind::scalar: return {{"type", {"string", "number", "boolean"}}};
    case config_kind::bytes: return bytes_schema();
    case config_kind::duration: {
      json made{{"type", "string"}, {"pattern", duration_pattern}};
      if (s.initial != "none") return made;
      return {{"anyOf", {{{"enum", {"none"}}}, made}}};
    }
    case config_kind::sizes: return sizes_schema();
    case config_kind::counts: return counts_schema();
  }
  return {};
}

json initial_of(const config_setting& s) {
  switch (s.kind) {
    case config_kind::boolean: return s.initial == "true";
    case config_kind::integer: return std::stoll(std::string{s.initial});
    case config_kind::real: return std::stod(std::string{s.initial});
    default: return s.initial;
  }
}

json described(const config_setting& s) {
  json made = schema_of(s);
  made["description"] = std::string{s.help} + "\n" + what_is_right(s);
  const bool wild = s.key.ends_with('*');
  if (!wild && s.kind != config_kind::counts) made["default"] = initial_of(s);
  return made;
}

json table(std::string_view description = {}) {
  json made{{"type", "object"}, {"properties", json::object()}, {"additionalProperties", false}};
  if (!description.empty()) made["description"] = description;
  return made;
}

/// The table that a key stands in, made where it is missing; `key` becomes its last part.
json& table_of(json& document, std::string_view& key) {
  json* at = &document;
  for (auto dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.')) {
    json& members = (*at)["properties"];
    const std::string name{key.substr(0, dot)};
    if (!members.contains(name)) members[name] = table();
    at = &members[name];
    if (at->value("type", "") == "array") at = &(*at)["items"];
    key.remove_prefix(dot + 1);
  }
  return *at;
}

void add(json& document, const config_setting& s) {
  std::string_view key = s.key;
  json& into = table_of(document, key);
  json one = described(s);
  if (key == "**") {  // nic.bandwidth = … and [study.hardware.nic] are the same key
    into["additionalProperties"] = {{"anyOf", {one, {{"type", "object"}}}}};
  } else if (key == "*") {
    into["additionalProperties"] = one;
  } else {
    into["properties"][std::string{key}] = std::move(one);
  }
}

std::vector<std::string> collectives(bool v_forms) {
  std::vector<std::string> names;
  for (const std::string& n : all_job_names())
    if (v_forms || parse_collective(n)) names.push_back(n);
  return names;
}

std::vector<std::string> choreographies() {
  std::vector<std::string> names{"auto"};
  for (const choreography* c : all_choreographies()) names.emplace_back(c->name);
  return names;
}

std::vector<std::string> types() {
  std::vector<std::string> names;
  for (const datatype t : all_datatypes) names.emplace_back(name(t));
  return names;
}

std::vector<std::string> operations() {
  std::vector<std::string> names;
  for (const op_kind o : all_op_kinds)
    if (o != op_kind::user) names.emplace_back(name(o));
  return names;
}

std::vector<std::string> with(std::vector<std::string> words, const char* one_more) {
  words.emplace_back(one_more);
  return words;
}

}  // namespace

known_words words_of_setting(std::string_view key) {
  for (const config_setting& s : config_schema())
    if (s.key == key && s.kind == config_kind::choice) {
      known_words made;
      for (std::string_view rest = s.choices; !rest.empty();) {
        const auto end = std::min(rest.find('|'), rest.size());
        made.words.emplace_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      return made;
    }
  if (key == "engine.choreography" || key == "engine.choreography_of.*" || key == "workload.run.choreography" ||
      key == "study.job.choreography" || key == "study.node.choreography")
    return {choreographies(), true};
  if (key == "study.choreography") return {with(with(choreographies(), "hccl"), "nccl"), true};
  if (key == "workload.run.collective") return {collectives(true), false};
  if (key == "study.collective") return {collectives(true), true};
  if (key == "workload.run.type") return {with(types(), "all"), false};
  if (key == "study.type" || key == "study.job.type") return {types(), false};
  if (key == "workload.run.op") return {with(operations(), "all"), false};
  if (key == "study.op" || key == "study.job.op") return {operations(), false};
  if (key == "study.preset") {
    known_words made;
    for (const preset& p : study_presets()) made.words.emplace_back(p.name);
    made.open = true;
    return made;
  }
  return {};
}

std::string config_json_schema() {
  json document{{"$schema", "http://json-schema.org/draft-07/schema#"},
                {"title", "Troupe configuration"},
                {"description", "docs/config.md describes every key."}};
  document.update(table());
  json& members = document["properties"];
  members["engine"] = table("How collectives are performed.");
  members["workload"] = table("What `troupe run` runs.");
  members["study"] = table("What `troupe study` performs in virtual time.");
  json run = table("One table for each run, in the order in which they are run.");
  run["required"] = {"collective"};
  members["workload"]["properties"]["run"] = {{"type", "array"}, {"items", std::move(run)}};
  json job = table("One table for each of the jobs that run at the same time.");
  job["required"] = {"calls"};
  members["study"]["properties"]["job"] = {{"type", "array"}, {"items", std::move(job)}};
  json node = table("One table for each of the nodes of a flow, which the tiles pass in this order.");
  node["required"] = {"kind"};
  members["study"]["properties"]["node"] = {{"type", "array"}, {"items", std::move(node)}};
  for (const config_setting& s : config_schema()) add(document, s);
  // A collective's own choreography, by the collective's name.
  json& of = members["engine"]["properties"]["choreography_of"];
  for (const std::string& each : collectives(false)) of["properties"][each] = of["additionalProperties"];
  of["additionalProperties"] = false;
  return document.dump(2) + "\n";
}

}  // namespace troupe
