// SPDX-License-Identifier: Apache-2.0
#include "protocols/offload/descriptor.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace troupe::offload {

namespace {

struct flag {
  std::string_view name;
  bool descriptor::*set;
};
constexpr std::array flags{flag{"C", &descriptor::collective},
                           flag{"CH", &descriptor::head},
                           flag{"CT", &descriptor::tail},
                           flag{"CP", &descriptor::triggers},
                           flag{"SwapLocalData", &descriptor::swap_local_data},
                           flag{"SwapLocalVP", &descriptor::swap_local_port},
                           flag{"SwapRemoteData", &descriptor::swap_remote_data},
                           flag{"SwapRemoteAddr", &descriptor::swap_remote_address},
                           flag{"ReduceFlag", &descriptor::reduce},
                           flag{"CollEndFlag", &descriptor::collective_end}};

/// "3:0#1": port 0 of node 3, SeqID 1.
std::string address(std::uint32_t node, unsigned port, unsigned seq_id) {
  return std::to_string(node) + ':' + std::to_string(port) + '#' + std::to_string(seq_id);
}

std::string text_of(const operand& at) {
  return at.buffer == buffer_kind::none ? "nothing" : std::string{name(at.buffer)} + '+' + std::to_string(at.offset);
}

/// Columns of text are counted in code points: "→" is one.
void pad(std::string& text, std::size_t width) {
  std::size_t used = 0;
  for (const char c : text) used += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  if (used < width) text.append(width - used, ' ');
}

std::string flags_of(const descriptor& d) {
  std::string text;
  for (const flag& f : flags)
    if (d.*f.set) text += (text.empty() ? "" : " ") + std::string{f.name};
  return text;
}

/// What it takes, has, keeps and sends.
std::string data_of(const rank_program& who, const descriptor& d) {
  std::string text;
  for (const awaited_message& m : who.messages_of(d))
    text += (text.empty() ? "" : " ⊕ ") + address(m.node, m.port, m.seq_id) + (m.swapped ? "'" : "");
  if (d.own.buffer != buffer_kind::none) text += (text.empty() ? "" : " ⊕ ") + text_of(d.own);
  if (d.count == 0 && d.reduce) text += " ⊕ " + text_of(d.target);
  if (d.target.buffer != buffer_kind::none) text += " → " + text_of(d.target);
  if (d.triggers) text += (text.empty() ? "→ " : " → ") + address(d.dest_node, d.dest_port, d.seq_id);
  return text;
}

nlohmann::ordered_json json_of(const operand& at) {
  if (at.buffer == buffer_kind::none) return nullptr;
  return {{"buffer", name(at.buffer)}, {"offset", at.offset}};
}

nlohmann::ordered_json json_of(const rank_program& who, const descriptor& d) {
  nlohmann::ordered_json j{{"kind", kind_of(d)}, {"SourceVP", d.source_port}, {"CPCount", d.count}};
  for (const flag& f : flags) j[std::string{f.name}] = d.*f.set;
  if (d.triggers || d.collective_end) j["DestID"] = d.dest_node, j["DestVP"] = d.dest_port;
  if (d.triggers) j["SeqID"] = d.seq_id;
  auto awaits = nlohmann::ordered_json::array();
  for (const awaited_message& m : who.messages_of(d))
    awaits.push_back({{"NodeID", m.node}, {"VP", m.port}, {"SeqID", m.seq_id}, {"swapped", m.swapped}});
  if (d.count > 0) j["awaits"] = std::move(awaits);
  j["bytes"] = d.elements * who.element_size;
  j["own"] = json_of(d.own);
  j["target"] = json_of(d.target);
  if (d.score_step >= 0) j["lane"] = d.score_lane, j["step"] = d.score_step;
  return j;
}

}  // namespace

std::string kind_of(const descriptor& d) {
  if (d.collective_end) return "end";
  if (d.elements == 0) return "token";
  if (d.count > 1) return "gather";
  if (d.count == 1) return d.triggers ? "receive and forward" : "receive";
  if (d.triggers) return "send";
  return d.reduce ? "local reduction" : "local copy";
}

std::string to_string(const rank_program& who, const descriptor& d) {
  std::string text = kind_of(d);
  pad(text, 20);
  text += data_of(who, d);
  if (d.elements > 0) text += ", " + std::to_string(d.elements * who.element_size) + " B";
  pad(text, 76);
  text += "[" + flags_of(d);
  if (d.count > 0) text += " CPCount=" + std::to_string(d.count);
  return text + "]";
}

std::string to_text(const rank_program& what) {
  std::string text = "rank " + std::to_string(what.rank) + ", node " + std::to_string(what.at.node) + "\n";
  for (const sequence& s : what.sequences) {
    text += "  port " + std::to_string(s.port) + "\n";
    for (std::size_t i = 0; i < s.descriptors.size(); ++i) {
      std::string number = std::to_string(i);
      pad(number, 4);
      text += "    " + number + to_string(what, s.descriptors[i]) + "\n";
    }
  }
  return text;
}

std::string to_json(std::span<const rank_program> all, int indent) {
  auto ranks = nlohmann::ordered_json::array();
  for (const rank_program& p : all) {
    auto sequences = nlohmann::ordered_json::array();
    for (const sequence& s : p.sequences) {
      auto list = nlohmann::ordered_json::array();
      for (const descriptor& d : s.descriptors) list.push_back(json_of(p, d));
      sequences.push_back({{"port", s.port}, {"descriptors", std::move(list)}});
    }
    ranks.push_back({{"rank", p.rank},
                     {"node", p.at.node},
                     {"scratch_bytes", p.scratch_bytes},
                     {"sequences", std::move(sequences)}});
  }
  return ranks.dump(indent);
}

}  // namespace troupe::offload
