// SPDX-License-Identifier: Apache-2.0
#include "protocols/call.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

constexpr std::array<std::string_view, 4> level_names = {"fast", "run_stable", "size_stable", "topology_stable"};
constexpr std::array<std::string_view, 3> agreement_names = {"", "strict", "eager"};
constexpr std::array<std::string_view, 7> protocol_names = {"", "auto", "simple", "ll", "ll128", "direct", "nic"};

template <std::size_t N, class Enum>
std::string_view name_among(const std::array<std::string_view, N>& names, Enum which) {
  const auto index = static_cast<std::size_t>(which);
  return index < N ? names[index] : "?";
}

std::string join(std::span<const std::size_t> values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i == 8 && values.size() > 10) return text + ", … " + std::to_string(values.size()) + " in all]";
    if (i) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + ']';
}

/// A line for each rank, or for several in a row that are alike.
template <class Line>
std::string table_of(std::size_t ranks, const Line& line) {
  std::string text;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::size_t last = r;
    while (last + 1 < ranks && line(last + 1) == line(r)) ++last;
    text += "\n  rank" + std::string(last > r ? "s " : " ") + std::to_string(r);
    if (last > r) text += "–" + std::to_string(last);
    text += ": " + line(r);
    r = last;
  }
  return text;
}

/// Numbered by the types that come before it: their names mean something to a linker only.
std::string function_of(std::span<const call> calls, std::size_t rank) {
  const std::uint64_t mark = calls[rank].reduction.type_mark;
  if (mark == 0 || !is_reduction(calls[rank].what)) return "no function object";
  std::vector<std::uint64_t> seen;
  for (std::size_t r = 0; r < rank; ++r) {
    const std::uint64_t other = calls[r].reduction.type_mark;
    if (other != 0 && std::ranges::find(seen, other) == seen.end()) seen.push_back(other);
  }
  const auto place = std::ranges::find(seen, mark) - seen.begin();
  return "function type " + std::to_string(place + 1);
}

/// @param plans say how each rank planned its call, too
std::string table(std::span<const call> calls, bool plans = false) {
  const bool agree_otherwise =
      std::any_of(calls.begin(), calls.end(), [&](const call& c) { return c.agreement != calls[0].agreement; });
  const bool offload_otherwise =
      std::any_of(calls.begin(), calls.end(), [&](const call& c) { return c.offload != calls[0].offload; });
  const bool reduce_otherwise = std::any_of(calls.begin(), calls.end(), [&](const call& c) {
    return is_reduction(c.what) && c.reduction.type_mark != calls[0].reduction.type_mark;
  });
  return table_of(calls.size(), [&](std::size_t r) {
    std::string line = to_string(calls[r]);
    if (reduce_otherwise) line += ", " + function_of(calls, r);
    if (offload_otherwise) line += calls[r].offload ? ", to be offloaded" : ", not to be offloaded";
    if (plans) line += ", planned as " + (calls[r].report ? calls[r].report->planned : std::string{});
    if (agree_otherwise) line += ", agreement " + std::string{name(calls[r].agreement)};
    return line;
  });
}

/// What a rank said of an earlier operation; null: nothing.
const call_report::entry* said_of(const call& c, std::uint64_t sequence) {
  if (c.report)
    for (const call_report::entry& e : c.report->earlier)
      if (e.sequence == sequence) return &e;
  return nullptr;
}

std::string exchange_disagreement(std::span<const call> calls) {
  for (std::size_t i = 0; i < calls.size(); ++i)
    for (std::size_t j = 0; j < calls.size(); ++j)
      if (calls[i].counts[j] != calls[j].receive_counts[i])
        return "rank " + std::to_string(i) + " sends " + std::to_string(calls[i].counts[j]) + " elements to rank " +
               std::to_string(j) + ", which expects " + std::to_string(calls[j].receive_counts[i]);
  return {};
}

std::string rooted_disagreement(std::span<const call> calls) {
  const call& root = calls[static_cast<std::size_t>(calls[0].root)];
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (calls[i].counts.size() == 1 && calls[i].counts[0] != root.counts[i])
      return "the root counts " + std::to_string(root.counts[i]) + " elements for rank " + std::to_string(i) +
             ", which counts " + std::to_string(calls[i].counts[0]);
  return {};
}

}  // namespace

std::string_view name(determinism level) { return name_among(level_names, level); }

std::optional<determinism> parse_determinism(std::string_view text) {
  for (std::size_t i = 0; i < level_names.size(); ++i)
    if (level_names[i] == text) return static_cast<determinism>(i);
  return std::nullopt;
}

std::string_view name(message_protocol which) { return name_among(protocol_names, which); }

std::optional<message_protocol> parse_message_protocol(std::string_view text) {
  for (std::size_t i = 0; i < protocol_names.size(); ++i)
    if (protocol_names[i] == text) return static_cast<message_protocol>(i);
  return std::nullopt;
}

std::string_view name(agreement_time when) { return name_among(agreement_names, when); }

std::optional<agreement_time> parse_agreement_time(std::string_view text) {
  for (std::size_t i = 0; i < agreement_names.size(); ++i)
    if (agreement_names[i] == text) return static_cast<agreement_time>(i);
  return std::nullopt;
}

void partition_call(call& c, std::uint32_t pieces, std::vector<std::size_t> sizes) {
  c.pieces = pieces;
  c.counts = std::move(sizes);
  word_hash h;
  h.add(pieces);
  for (const std::size_t n : c.counts) h.add(n);
  c.pieces_mark = std::max<std::uint64_t>(h.state, 1);
}

std::uint64_t fingerprint(const call& c, std::uint64_t sequence, std::uint64_t plan) {
  word_hash h;
  h.add(sequence);
  identity_of(c).add_to(h);
  h.add(c.history);
  h.add(plan);
  return h.state;
}

std::string to_string(const call& c) {
  if (c.outcome_of)
    return c.outcome_of->sequence == ended_call::unnamed
               ? "outcome()"
               : "outcome(of operation #" + std::to_string(c.outcome_of->sequence) + ')';
  switch (c.purpose) {
    case call_purpose::itself: break;
    case call_purpose::split: return "split()";
    case call_purpose::duplicate: return "duplicate()";
    case call_purpose::expert_exchange: return "expert_exchange()";
  }
  std::string text{name(c.what)};
  if (!c.uniform) text += "_v";
  if (!moves_data(c.what)) return text + "()";
  text += '(';
  if (c.uniform) text += "count " + std::to_string(c.count);
  else text += "counts " + join(c.counts);
  if (!c.receive_counts.empty()) text += ", receive counts " + join(c.receive_counts);
  text += ", " + std::string{name(c.type)};
  if (is_reduction(c.what)) {
    text += ", " + std::string{name(c.reduction.kind)};
    if (!c.reduction.name.empty()) text += " \"" + std::string{c.reduction.name.view()} + '"';
    if (!c.reduction.commutative) text += " (not commutative)";
  }
  if (has_root(c.what)) text += ", root " + std::to_string(c.root);
  if (c.in_place) text += ", in place";
  if (c.pieces > 0)
    text += c.counts.empty() ? ", partitions " + std::to_string(c.pieces) : ", partitions of " + join(c.counts);
  if (c.level != determinism::run_stable) text += ", " + std::string{name(c.level)};
  if (!c.choreography.empty()) text += ", choreography " + c.choreography;
  if (c.protocol != message_protocol::unset) text += ", protocol " + std::string{name(c.protocol)};
  return text + ')';
}

namespace {
bool is_for_nic(const call& c) { return c.report && c.report->by_nic; }

bool differ_in_function_alone(std::span<const call> calls) {
  call first = calls[0];
  first.reduction.type_mark = 0;
  return std::ranges::all_of(calls, [&](call c) {
    c.reduction.type_mark = 0;
    return identity_of(c) == identity_of(first);
  });
}
}  // namespace

std::string disagreement(std::span<const call> calls, std::uint64_t sequence) {
  if (calls.empty()) return {};
  if (std::string why = earlier_disagreement(calls, sequence); !why.empty()) return why;
  const auto differs = [&](auto&& value_of) {
    return std::ranges::any_of(calls, [&](const call& c) { return value_of(c) != value_of(calls[0]); });
  };
  if (differs([](const call& c) { return identity_of(c); }) && differ_in_function_alone(calls))
    return "operation #" + std::to_string(sequence) +
           ": the ranks reduce by functions of different types; all must give the same one, or troupe::named() "
           "gives theirs one name" +
           table(calls);
  if (differs([](const call& c) { return identity_of(c); }))
    return "operation #" + std::to_string(sequence) +
           ": the ranks called different operations; all must call the same collective with the same count, type, "
           "op, root and options, in the same order" +
           table(calls);
  if (differs([](const call& c) { return c.plan(); }) && differs(is_for_nic))
    return "operation #" + std::to_string(sequence) +
           ": the ranks called the same, but some would have it performed by a NIC (engine.offload) and others by "
           "themselves; with offload = \"auto\" that depends on whether a rank starts the call or waits in it, and all "
           "must do the same; else all must have the same options, tuning and score files" +
           table(calls, true);
  if (differs([](const call& c) { return c.plan(); }))
    return "operation #" + std::to_string(sequence) +
           ": the ranks called the same, but planned it differently; all must have the same options, tuning and score "
           "files" +
           table(calls, true);
  std::string why;
  const v_counts known = traits_of(calls[0].what).v;
  if (!calls[0].uniform && known == v_counts::every_pair) why = exchange_disagreement(calls);
  if (!calls[0].uniform && known == v_counts::rooted) why = rooted_disagreement(calls);
  if (why.empty()) return {};
  return "operation #" + std::to_string(sequence) + ": " + why + table(calls);
}

std::string earlier_disagreement(std::span<const call> calls, std::uint64_t sequence) {
  if (std::all_of(calls.begin(), calls.end(), [&](const call& c) { return c.history == calls[0].history; })) return {};
  std::vector<std::uint64_t> all;
  std::uint64_t known_from = 0;
  for (const call& c : calls) {
    if (!c.report) continue;
    known_from = std::max(known_from, c.report->known_from);
    for (const call_report::entry& e : c.report->earlier) all.push_back(e.sequence);
  }
  std::sort(all.begin(), all.end());
  const std::string seen = "; operation #" + std::to_string(sequence) + " shows it";
  for (const std::uint64_t one : all) {
    const auto said = [&](std::size_t r) {
      const call_report::entry* const e = said_of(calls[r], one);
      return e != nullptr ? e->text : "nothing that may run ahead";
    };
    const call_report::entry* const first = said_of(calls[0], one);
    const bool differ = std::ranges::any_of(calls, [&](const call& c) {
      const call_report::entry* const e = said_of(c, one);
      return (e == nullptr) != (first == nullptr) || (e != nullptr && e->fingerprint != first->fingerprint);
    });
    if (one >= known_from && differ)
      return "operation #" + std::to_string(one) +
             ": the ranks called different operations, which may run ahead (agreement eager)" + seen +
             table_of(calls.size(), said);
  }
  return "the ranks called different operations before, which may run ahead (agreement eager)" + seen + table(calls);
}

bool disagrees_late(std::span<const call> calls) {
  return std::any_of(calls.begin(), calls.end(),
                     [&](const call& c) { return c.ahead() || c.history != calls[0].history; });
}

std::vector<std::size_t> merge_counts(std::span<const call> calls) {
  if (calls[0].outcome_of) {
    std::vector<std::size_t> results;
    for (const call& c : calls) results.push_back(static_cast<std::size_t>(c.outcome_of->result));
    return results;
  }
  const v_counts known = traits_of(calls[0].what).v;
  if (known == v_counts::every_pair) {
    std::vector<std::size_t> all;
    all.reserve(calls.size() * calls.size());
    for (const call& c : calls) all.insert(all.end(), c.counts.begin(), c.counts.end());
    return all;
  }
  return known == v_counts::rooted ? calls[static_cast<std::size_t>(calls[0].root)].counts : calls[0].counts;
}

}  // namespace troupe
