// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/hardware.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <sstream>
#include <utility>

#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "topology/machine/quantities.hpp"
#include "topology/machine/routes.hpp"
#include "topology/machine/shared_segment.hpp"

namespace troupe {

namespace {

[[noreturn]] void wrong(const std::string& sentence) { throw error(errc::bad_config, sentence); }

picoseconds time_of(std::string_view key, std::string_view text) {
  const auto time = parse_time(text);
  if (!time)
    wrong(std::string{key} + " is \"" + std::string{text} +
          "\"; it must be a time such as \"25us\", \"1.5 ns\" or \"0\"");
  if (*time > longest_setting)
    wrong(std::string{key} + " is \"" + std::string{text} + "\"; it may be at most " + to_text(longest_setting));
  return *time;
}

std::uint64_t rate_of(std::string_view key, std::string_view text) {
  if (text == "0" || text == "unlimited") return 0;
  const auto rate = parse_rate(text);
  if (!rate) wrong(std::string{key} + " is " + what_no_rate_is(text) + ", or \"unlimited\"");
  return *rate;
}

std::int64_t integer_of(std::string_view key, std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    wrong(std::string{key} + " is \"" + std::string{text} + "\"; it must be an integer from " + std::to_string(least) +
          " to " + std::to_string(most));
  return value;
}

template <std::size_t N>
std::size_t choice_of(std::string_view key, std::string_view text, const std::array<std::string_view, N>& names) {
  const auto at = std::find(names.begin(), names.end(), text);
  if (at != names.end()) return static_cast<std::size_t>(at - names.begin());
  std::string list;
  for (const std::string_view n : names) list += (list.empty() ? "" : ", ") + std::string{n};
  wrong(std::string{key} + " is \"" + std::string{text} + "\"; it must be one of " + list);
}

constexpr std::array<std::string_view, 3> services{"fifo", "fair", "max_min"};
constexpr std::array<std::string_view, 2> forwardings{"cut_through", "store_and_forward"};
constexpr std::array<std::string_view, 2> duplexes{"full", "half"};
constexpr std::array<std::string_view, 2> choices{"fixed", "adaptive"};
constexpr std::array<std::string_view, 2> booleans{"false", "true"};

std::string shown_rate(std::uint64_t rate) { return rate == 0 ? "unlimited" : rate_text(rate); }

/// One place for both directions: with `value` it assigns, and it always returns the text of what is there now.
class field_access {
public:
  field_access(std::string_view key, const std::string_view* value) : key_(key), value_(value) {}
  std::string time(picoseconds& at) const {
    if (value_) at = time_of(key_, *value_);
    return to_text(at);
  }
  std::string rate(std::uint64_t& at) const {
    if (value_) at = rate_of(key_, *value_);
    return shown_rate(at);
  }
  std::string power(std::uint64_t& at) const {
    if (value_) at = parsed(parse_power(*value_), "a power such as \"5W\" or \"350 mW\"");
    return power_text(at);
  }
  std::string energy(std::uint64_t& at) const {
    if (value_) at = parsed(parse_energy(*value_), "an energy such as \"80pJ/B\" or \"10 pJ/bit\"");
    return energy_text(at);
  }
  template <class Int>
  std::string integer(Int& at, std::int64_t least, std::int64_t most) const {
    if (value_) at = static_cast<Int>(integer_of(key_, *value_, least, most));
    return std::to_string(at);
  }
  template <class Enum, std::size_t N>
  std::string choice(Enum& at, const std::array<std::string_view, N>& names) const {
    if (value_) at = static_cast<Enum>(choice_of(key_, *value_, names));
    return std::string{names[static_cast<std::size_t>(at)]};
  }

private:
  std::uint64_t parsed(std::optional<std::uint64_t> value, const char* right) const {
    if (!value) wrong(std::string{key_} + " is \"" + std::string{*value_} + "\"; it must be " + right);
    return *value;
  }
  std::string_view key_;
  const std::string_view* value_;
};

constexpr std::array<std::string_view, 8> class_fields{"latency", "bandwidth",  "overhead", "discipline",
                                                       "passing", "directions", "units",    "handshake"};
constexpr std::array<std::string_view, 3> more_class_fields{"window", "idle_power", "energy"};

std::string class_field(element_class& c, std::string_view field, const field_access& access) {
  constexpr std::int64_t many = 64;
  if (field == "latency") return access.time(c.latency);
  if (field == "bandwidth") return access.rate(c.bytes_per_second);
  if (field == "overhead") return access.time(c.overhead);
  if (field == "discipline") return access.choice(c.discipline, services);
  if (field == "passing") return access.choice(c.passing, forwardings);
  if (field == "directions") return access.choice(c.directions, duplexes);
  if (field == "units") return access.integer(c.units, 1, many);
  if (field == "handshake") return access.time(c.handshake);
  if (field == "window") return access.integer(c.window, 0, many);
  if (field == "idle_power") return access.power(c.idle_microwatts);
  if (field == "energy") return access.energy(c.femtojoules_a_byte);
  return {};
}

constexpr std::array<std::string_view, 12> host_fields{
    "launch", "step",      "send",        "receive",          "forward", "transfer",
    "finish", "copy_rate", "reduce_rate", "receive_in_place", "sync",    "work_uses_dma"};

std::string host_field(host_costs& h, std::string_view field, const field_access& access,
                       const std::string_view* value) {
  if (field == "launch") return access.time(h.launch);
  if (field == "step") return access.time(h.step);
  if (field == "send") return access.time(h.send);
  if (field == "receive") return access.time(h.receive);
  if (field == "forward") return access.time(h.forward);
  if (field == "transfer") return access.time(h.transfer);
  if (field == "finish") return access.time(h.finish);
  if (field == "copy_rate") return access.rate(h.copy_rate);
  if (field == "reduce_rate") return access.rate(h.reduce_rate);
  if (field == "receive_in_place") return access.choice(h.receive_in_place, booleans);
  if (field == "work_uses_dma") return access.choice(h.work_uses_dma, booleans);
  if (field == "sync") {
    if (value && (*value == "messages")) h.sync = picoseconds{-1};
    else if (value || h.sync.count() >= 0) return access.time(h.sync);
    return "messages";
  }
  return {};
}

constexpr std::array<std::string_view, 5> protocol_fields{"wire", "payload", "latency", "slots", "slot_payload"};

std::string protocol_field(protocol_costs& p, std::string_view field, const field_access& access) {
  if (field == "wire") return access.integer(p.wire, 1, 1 << 20);
  if (field == "payload") return access.integer(p.payload, 1, 1 << 20);
  if (field == "latency") return access.time(p.latency);
  if (field == "slots") return access.integer(p.slots, 1, 1 << 20);
  if (field == "slot_payload") return access.integer(p.slot_payload, 0, std::int64_t{1} << 50);
  return {};
}

constexpr std::array<std::string_view, 14> nics_fields{
    "cpu",    "io",     "poll",   "soft",   "soft_rate",          "trigger", "unit_rate", "units",
    "buffer", "packet", "window", "pulses", "reduction_elements", "counters"};

std::string nics_field(nic_collectives& n, std::string_view field, const field_access& access) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 30, most = 1 << 20;
  if (field == "cpu") return access.time(n.cpu);
  if (field == "io") return access.time(n.io);
  if (field == "poll") return access.time(n.poll);
  if (field == "soft") return access.time(n.soft);
  if (field == "soft_rate") return access.rate(n.soft_rate);
  if (field == "trigger") return access.time(n.trigger);
  if (field == "unit_rate") return access.rate(n.unit_rate);
  if (field == "units") return access.integer(n.units, 1, 1024);
  if (field == "buffer") return access.integer(n.buffer, 1024, most_bytes);
  if (field == "packet") return access.integer(n.packet, 16, most);
  if (field == "window") return access.integer(n.window, 1, most - 1);
  if (field == "pulses") return access.integer(n.pulses, 1, most);
  if (field == "reduction_elements") return access.integer(n.reduction_elements, 1, most_bytes);
  if (field == "counters") return access.integer(n.counters, 1, most);
  return {};
}

/// Calls `visit(key, text of the value)` for every key; with `value`, assigns it to `wanted` alone. Returns whether `wanted` was
/// met.
template <class Visit>
bool each_setting(hardware& h, std::string_view wanted, const std::string_view* value, Visit visit) {
  bool met = false;
  const auto one = [&](const std::string& key, auto&& access_field) {
    if (value && key != wanted) return;
    met = met || key == wanted;
    visit(key, access_field(field_access{key, value}));
  };
  for (element_class& c : h.classes) {
    for (const std::string_view f : class_fields)
      one(c.name + "." + std::string{f}, [&](const field_access& a) { return class_field(c, f, a); });
    for (const std::string_view f : more_class_fields)
      one(c.name + "." + std::string{f}, [&](const field_access& a) { return class_field(c, f, a); });
  }
  for (const std::string_view f : host_fields)
    one("host." + std::string{f}, [&](const field_access& a) { return host_field(h.host, f, a, value); });
  one("routing", [&](const field_access& a) { return a.choice(h.routing, choices); });
  one("paths", [&](const field_access& a) { return a.integer(h.paths, 1, 64); });
  if (h.nics)
    for (const std::string_view f : nics_fields)
      one("nics." + std::string{f}, [&](const field_access& a) { return nics_field(*h.nics, f, a); });
  for (protocol_costs& p : h.protocols)
    for (const std::string_view f : protocol_fields)
      one("protocol." + p.name + "." + std::string{f}, [&](const field_access& a) { return protocol_field(p, f, a); });
  return met;
}

void check_class(const element_class& c, const std::string& where) {
  if (c.latency.count() < 0 || c.overhead.count() < 0 || c.handshake.count() < 0)
    wrong(where + ": element class " + c.name + " has a negative time");
  if (c.units < 1 || c.units > 64)
    wrong(where + ": element class " + c.name + " has " + std::to_string(c.units) + " units; 1 to 64 can be simulated");
  if (c.discipline != service::fifo && c.passing == forwarding::store_and_forward) {
    const std::string shared{services[static_cast<std::size_t>(c.discipline)]};
    wrong(where + ": element class " + c.name + " is " + shared + " and store_and_forward; a " + shared +
          " element passes heads on at once, so say passing = cut_through");
  }
}

/// bytes / rate in picoseconds, rounded up, saturating where there is room to add it to a time.
picoseconds duration(std::uint64_t bytes, std::uint64_t rate, std::int32_t slow_down) {
  __extension__ using wide = unsigned __int128;
  if (rate == 0) return picoseconds{0};
  const wide scaled = wide{bytes} * 1'000'000'000u * static_cast<std::uint32_t>(slow_down);
  const wide time = (scaled + rate - 1) / rate;
  constexpr auto most = static_cast<wide>(std::numeric_limits<std::int64_t>::max() / 4);
  return picoseconds{static_cast<std::int64_t>(time < most ? time : most)};
}

}  // namespace

std::string_view name(element_role role) noexcept {
  constexpr std::array<std::string_view, element_role_count> names{"link",   "ring_segment", "dma", "nic",
                                                                   "switch", "pcie",         "core"};
  const auto i = static_cast<std::size_t>(role);
  return i < names.size() ? names[i] : "unknown element";
}

// -- building ---------------------------------------------------------------------------------------------------------

class_id hardware::add_class(element_class of) {
  if (of.name.empty() || of.name.find('.') != std::string::npos)
    wrong(name + ": \"" + of.name + "\" cannot name a class of elements; a name has letters, and no dot");
  constexpr std::array<std::string_view, 5> reserved{"host", "protocol", "nics", "routing", "paths"};
  if (std::ranges::find(reserved, of.name) != reserved.end())
    wrong(name + ": \"" + of.name +
          "\" cannot name a class of elements, as settings of the machine begin with it; host, protocol, nics, routing "
          "and "
          "paths are reserved, so take another name");
  for (const element_class& c : classes)
    if (c.name == of.name) wrong(name + ": there are two element classes " + of.name);
  check_class(of, name);
  classes.push_back(std::move(of));
  return static_cast<class_id>(classes.size() - 1);
}

element_index hardware::add(class_id of, std::string element_name, int rank) {
  elements.push_back({of, rank, no_element, 1000, std::move(element_name)});
  return static_cast<element_index>(elements.size() - 1);
}

std::pair<element_index, element_index> hardware::add_pair(class_id of, std::string there, std::string back, int rank) {
  const element_index first = add(of, std::move(there), rank);
  const element_index second = add(of, std::move(back), rank);
  elements[static_cast<std::size_t>(first)].twin = second;
  elements[static_cast<std::size_t>(second)].twin = first;
  return {first, second};
}

void hardware::place(int rank, rank_place at) {
  if (places.empty()) places.resize(static_cast<std::size_t>(ranks));
  places[static_cast<std::size_t>(rank)] = at;
}

// -- overriding -------------------------------------------------------------------------------------------------------

void hardware::set(std::string_view key, std::string_view value) {
  if (each_setting(*this, key, &value, [](const std::string&, const std::string&) {})) return;
  std::vector<std::string> keys;
  for (auto& [known, present] : settings()) keys.push_back(known);
  const std::vector<std::string_view> names{keys.begin(), keys.end()};
  const auto near = closest(key, names);
  std::string list;
  for (const element_class& c : classes) list += (list.empty() ? "" : ", ") + c.name;
  wrong("hardware " + name + " has no setting " + std::string{key} +
        (near.empty()
             ? "; its element classes are " + list + " (each with .latency, .bandwidth, …), besides host and protocol"
             : "; did you mean " + std::string{near} + "?"));
}

std::vector<std::pair<std::string, std::string>> hardware::settings() const {
  hardware& me = const_cast<hardware&>(*this);  // without a value nothing is assigned
  std::vector<std::pair<std::string, std::string>> all;
  each_setting(me, {}, nullptr,
               [&](const std::string& key, std::string text) { all.emplace_back(key, std::move(text)); });
  return all;
}

void hardware::slow_down(std::string_view wanted, double times) {
  if (!(times >= 0.001 && times <= 1000))
    wrong("slow: " + std::string{wanted} + " cannot be " + std::to_string(times) + " times as slow; say 0.001 to 1000");
  for (const element_index e : named(wanted))
    elements[static_cast<std::size_t>(e)].slow_down = static_cast<std::int32_t>(std::lround(times * 1000));
}

/// Those whose name is this, or begins with it up to a space. Of directions that share an element (half duplex), that one, once.
std::vector<element_index> hardware::named(std::string_view wanted) const {
  std::vector<element_index> found;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::string_view n = elements[i].name;
    if (n == wanted || (n.starts_with(wanted) && n.size() > wanted.size() && n[wanted.size()] == ' '))
      found.push_back(resolved(static_cast<element_index>(i)));
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  if (!found.empty()) return found;
  std::vector<std::string_view> names;
  for (const hardware_element& e : elements) names.push_back(e.name);
  if (names.size() > 4096) names.resize(4096);
  const auto near = closest(wanted, names);
  wrong("hardware " + name + " has no element \"" + std::string{wanted} + "\"" +
        (!near.empty()   ? "; did you mean \"" + std::string{near} + "\"?"
         : names.empty() ? ""
                         : "; its first is \"" + std::string{names.front()} + "\""));
}

namespace {

/// "4 from 1ms to 2ms". The element is the caller's to fill in.
hardware_fault fault_of(std::string_view key, const std::string& said) {
  const auto bad = [&](const std::string& why) -> void {
    wrong(std::string{key} + ": \"" + said + "\" " + why +
          "; write, for example, \"4 from 1ms to 2ms\" (times as slow) or \"down from 100us to 300us\"");
  };
  std::istringstream in{said};
  std::string how, from, begin, to, end, more;
  in >> how >> from >> begin >> to >> end >> more;
  hardware_fault f;
  if (how != "down") {
    char* rest = nullptr;
    const double times = std::strtod(how.c_str(), &rest);
    if (how.empty() || *rest != 0 || !(times >= 1 && times <= 1000)) bad("does not begin with down, or 1 to 1000");
    f.slow_down = static_cast<std::int32_t>(std::lround(times * 1000));
  }
  if (from != "from" || begin.empty() || (!to.empty() && (to != "to" || end.empty())) || !more.empty())
    bad("does not say from when to when");
  f.begin_ps = time_of(key, begin).count();
  if (to.empty() && f.slow_down == 0) bad("does not say how long; what is down for ever ends no run");
  f.end_ps = to.empty() ? std::int64_t{1} << 62 : time_of(key, end).count();
  if (f.end_ps <= f.begin_ps) bad("ends before it begins");
  return f;
}

/// "exits at 2ms", "stops at 2ms", "stops at 2ms silence 500ms". The rank is the caller's to fill in; empty: it says something else.
std::optional<rank_loss> loss_of(std::string_view key, const std::string& said) {
  std::istringstream in{said};
  std::string how, at, time, silence, length, more;
  in >> how >> at >> time >> silence >> length >> more;
  if (how != "exits" && how != "stops") return std::nullopt;
  const bool stops = how == "stops";
  if (at != "at" || time.empty() || !more.empty() ||
      (!silence.empty() && (!stops || silence != "silence" || length.empty())))
    wrong(std::string{key} + ": \"" + said +
          "\" does not say when; write, for example, \"exits at 2ms\", or \"stops at 2ms silence 500ms\"");
  rank_loss l;
  l.at_ps = time_of(key, time).count();
  if (stops) l.silence_ps = silence.empty() ? default_silence.count() : time_of(key, length).count();
  if (stops && l.silence_ps == 0) wrong(std::string{key} + ": a silence of nothing is none; say, for example, 500ms");
  return l;
}

int rank_of(const std::string& key, std::string_view wanted, int ranks) {
  int r = -1;
  if (wanted.starts_with("rank ")) {
    const std::string_view digits = wanted.substr(5);
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), r);
    if (failure != std::errc{} || end != digits.data() + digits.size()) r = -1;
  }
  if (r < 0 || r >= ranks)
    wrong(key + ": only a rank, \"rank 0\" to \"rank " + std::to_string(ranks - 1) + "\", exits or stops");
  return r;
}

}  // namespace

void hardware::disturb(std::string_view wanted, std::string_view times) {
  const std::string key = "faults." + std::string{wanted};
  if (auto loss = loss_of(key, std::string{times})) {
    loss->rank = rank_of(key, wanted, ranks);
    for (const rank_loss& l : losses)
      if (l.rank == loss->rank) wrong(key + ": the rank is lost already");
    losses.push_back(*loss);
    return;
  }
  if (wanted.starts_with("rank ") &&
      std::ranges::none_of(elements, [&](const hardware_element& e) { return e.name == wanted; }))
    wrong(key + ": a rank exits or stops; write, for example, \"exits at 2ms\", or \"stops at 2ms silence 500ms\"");
  for (const element_index e : named(wanted)) {
    if (const service served = class_of(e).discipline; served != service::fifo)
      wrong(key + ": " + elements[static_cast<std::size_t>(e)].name + " is " +
            std::string{services[static_cast<std::size_t>(served)]} +
            "; faults are of fifo elements, so say discipline = fifo, or let it be slow all the time: slow." +
            std::string{wanted} + " = 4");
    std::string_view rest = times;
    while (true) {
      const auto comma = rest.find(',');
      hardware_fault f = fault_of(key, std::string{rest.substr(0, comma)});
      f.element = e;
      faults.push_back(f);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  std::sort(faults.begin(), faults.end(), [](const hardware_fault& a, const hardware_fault& b) {
    return std::pair{a.element, a.begin_ps} < std::pair{b.element, b.begin_ps};
  });
  for (std::size_t i = 0; i + 1 < faults.size(); ++i)
    if (faults[i].element == faults[i + 1].element && faults[i].end_ps > faults[i + 1].begin_ps)
      wrong(key + ": two times of " + elements[static_cast<std::size_t>(faults[i].element)].name + " overlap");
}

void hardware::validate() const {
  if (ranks < 1) wrong(name + ": there must be at least one rank");
  if (!way && ranks > 1) wrong(name + ": nobody has said by which way messages go");
  if (!places.empty() && places.size() != static_cast<std::size_t>(ranks)) wrong(name + ": places are for other ranks");
  for (const element_class& c : classes) check_class(c, name);
  for (const hardware_element& e : elements)
    if (e.of >= classes.size()) wrong(name + ": element " + e.name + " is of no class");
  if (nics && (!losses.empty() || routing != path_choice::fixed))
    wrong(name + ": where NICs perform collectives no rank is lost, and ways are fixed");
  if (!switches.empty() && !switch_way)
    wrong(name + ": nobody has said by which way messages go to switches that reduce");
  for (const reducing_switch& s : switches)
    if (s.unit != no_element && class_of(s.unit).discipline != service::fifo)
      wrong(name + ": a switch reduces in " + elements[static_cast<std::size_t>(s.unit)].name + ", which must be fifo");
  if (paths < 1 || paths > 64) wrong(name + ": paths is " + std::to_string(paths) + "; 1 to 64 ways can be looked at");
  if (routing == path_choice::adaptive)
    for (const element_class& c : classes)
      if (c.discipline != service::fifo)
        wrong(name + ": adaptive routing goes by queues, which " + c.name + ", " +
              std::string{services[static_cast<std::size_t>(c.discipline)]} + ", does not have; say discipline = fifo");
  if (nics && !faults.empty()) wrong(name + ": faults are not modelled where NICs perform collectives");
  for (const hardware_fault& f : faults)
    if (class_of(f.element).discipline != service::fifo)
      wrong(name + ": a fault of " + elements[static_cast<std::size_t>(f.element)].name + ", which is " +
            std::string{services[static_cast<std::size_t>(class_of(f.element).discipline)]} +
            "; faults are of fifo elements, so say discipline = fifo");
  if (nics && nics->buffer < nics->packet)
    wrong(name + ": nics.buffer is " + std::to_string(nics->buffer) + ", less than a packet of " +
          std::to_string(nics->packet) + " bytes");
}

// -- reading ----------------------------------------------------------------------------------------------------------

void hardware::route(int from, int to, int channel, std::vector<element_index>& into) const {
  into.clear();
  way(from, to, channel, into);
  resolve(into);
}

void hardware::access(int rank, memory_place at, bool writes, std::vector<element_index>& into) const {
  into.clear();
  memory_way(rank, at, writes, into);
  resolve(into);
}

void hardware::switch_route(int rank, int which, bool towards, std::vector<element_index>& into) const {
  into.clear();
  switch_way(rank, which, towards, into);
  resolve(into);
}

int hardware::switch_of(int server) const {
  for (std::size_t i = 0; i < switches.size(); ++i)
    if (switches[i].server == server) return static_cast<int>(i);
  return -1;
}

namespace {

/// The switches of `whole` as a part of it with these places sees them: servers have other numbers, and some have no rank any more.
std::vector<reducing_switch> switches_of_part(const hardware& whole, const std::vector<int>& members,
                                              const layout& places) {
  constexpr int nobodys = -2;
  std::vector<reducing_switch> seen = whole.switches;
  for (reducing_switch& s : seen) {
    if (s.server < 0) continue;
    const int was = std::exchange(s.server, nobodys);
    for (int server = 0; server < places.servers && s.server == nobodys; ++server) {
      const std::vector<int> here = places.ranks_of_server(server);
      const bool all_there = std::all_of(here.begin(), here.end(), [&](int r) {
        return whole.arrangement.server_of(members[static_cast<std::size_t>(r)]) == was;
      });
      if (!here.empty() && all_there) s.server = server;
    }
  }
  return seen;
}

}  // namespace

hardware part_of(const hardware& whole, std::vector<int> members, const layout& places) {
  if (members.empty()) wrong(whole.name + ": a part of it needs a rank");
  std::vector<bool> taken(static_cast<std::size_t>(whole.ranks), false);
  for (const int m : members) {
    if (m < 0 || m >= whole.ranks)
      wrong(whole.name + " has no rank " + std::to_string(m) + "; ranks are 0 to " + std::to_string(whole.ranks - 1));
    if (taken[static_cast<std::size_t>(m)]) wrong("rank " + std::to_string(m) + " is named twice");
    taken[static_cast<std::size_t>(m)] = true;
  }
  if (places.size() != static_cast<int>(members.size()))
    wrong("the layout has " + std::to_string(places.size()) + " ranks, the part " + std::to_string(members.size()));
  hardware made = whole;
  made.ranks = static_cast<int>(members.size());
  made.arrangement = places;
  if (!whole.places.empty()) {
    made.places.clear();
    for (const int m : members) made.places.push_back(whole.place_of(m));
  }
  if (!whole.switches.empty()) made.switches = switches_of_part(whole, members, places);
  const auto of = std::make_shared<const std::vector<int>>(std::move(members));
  const auto at = [of](int rank) { return (*of)[static_cast<std::size_t>(rank)]; };
  made.way = [ways = whole.way, at](int from, int to, int channel, std::vector<element_index>& way) {
    ways(at(from), at(to), channel, way);
  };
  if (whole.memory_way)
    made.memory_way = [ways = whole.memory_way, at](int rank, memory_place where, bool writes,
                                                    std::vector<element_index>& way) {
      ways(at(rank), {at(where.owner), where.in_segment}, writes, way);
    };
  if (whole.switch_way)
    made.switch_way = [ways = whole.switch_way, at](int rank, int which, bool towards,
                                                    std::vector<element_index>& way) {
      ways(at(rank), which, towards, way);
    };
  return made;
}

element_index hardware::resolved(element_index of) const {
  const hardware_element& e = elements[static_cast<std::size_t>(of)];
  return e.twin != no_element && classes[e.of].directions == duplex::half ? std::min(of, e.twin) : of;
}

void hardware::resolve(std::vector<element_index>& into) const {
  for (element_index& at : into) at = resolved(at);
}

picoseconds hardware::occupancy(element_index of, std::uint64_t bytes) const {
  const hardware_element& e = elements[static_cast<std::size_t>(of)];
  return duration(bytes, classes[e.of].bytes_per_second, e.slow_down);
}

picoseconds hardware::time_alone(int from, int to, int channel, std::uint64_t bytes) const {
  std::vector<element_index> elements_passed;
  route(from, to, channel, elements_passed);
  return time_along(elements_passed, bytes);
}

picoseconds hardware::time_along(std::span<const element_index> way, std::uint64_t bytes) const {
  picoseconds head{0}, arrival{0}, handshake{0};  // arrival: of the tail at the next element
  for (const element_index at : way) {
    const element_class& c = class_of(at);
    handshake = std::max(handshake, c.handshake);
    head += c.overhead;
    arrival = std::max(head + occupancy(at, bytes), arrival) + c.latency;
    head = c.passing == forwarding::cut_through ? head + c.latency : arrival;
  }
  return arrival + handshake;
}

const protocol_costs* hardware::protocol(std::string_view wanted) const {
  const auto at =
      std::find_if(protocols.begin(), protocols.end(), [&](const protocol_costs& p) { return p.name == wanted; });
  return at == protocols.end() ? nullptr : &*at;
}

// -- protocols --------------------------------------------------------------------------------------------------------

namespace {
constexpr std::uint64_t kib = 1024;
}

std::vector<protocol_costs> plain_protocols() {
  return {
      {"simple", 1, 1, picoseconds{0}, 8, 0, "8 slots (spec 5, NCCL_STEPS)"},
      {"ll", 8, 4, picoseconds{0}, 8, 16 * kib, "4 B data + 4 B flag; 16 KiB of a 32 KiB slot (spec 5)"},
      {"ll128", 128, 120, picoseconds{0}, 8, 576'000, "120 B data + 8 B flag; 562.5 KiB of a 600 KiB slot (spec 5)"}};
}

std::vector<protocol_costs> gpu_protocols() {
  auto table = plain_protocols();
  table[0].latency = std::chrono::microseconds{6};
  table[0].slot_payload = 512 * kib;
  table[0].source = "latency per hop about 6 us, slots of 512 KiB (spec 5)";
  table[1].latency = std::chrono::microseconds{1};
  table[1].source += "; latency per hop about 1 us";
  table[2].latency = std::chrono::microseconds{2};
  table[2].source += "; latency per hop about 2 us";
  return table;
}

// -- ready-made hardware ----------------------------------------------------------------------------------------------

hardware flat_hardware(int ranks) {
  hardware h{"flat", ranks};
  h.about = "every rank has a full-duplex port on one switch that never blocks";
  h.arrangement = layout::flat(ranks);
  h.protocols = plain_protocols();
  element_class link;
  link.name = "link";
  link.latency = std::chrono::nanoseconds{500};
  link.bytes_per_second = 10'000'000'000;
  link.source = "round figures: 1 us from rank to rank (half in each leg), 10 GB/s";
  const class_id of = h.add_class(link);
  h.elements.reserve(2 * static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) h.add_pair(of, "up " + std::to_string(r), "down " + std::to_string(r), r);
  h.way = [](int from, int to, int, std::vector<element_index>& way) { way.assign({2 * from, 2 * to + 1}); };
  return h;
}

namespace {

element_role role_of(element_kind kind) {
  switch (kind) {
    case element_kind::dma: return element_role::dma;
    case element_kind::ring_segment: return element_role::ring_segment;
    case element_kind::card_link: return element_role::link;
    case element_kind::nic: return element_role::nic;
    case element_kind::network_switch: return element_role::switch_port;
    case element_kind::host: return element_role::dma;
    case element_kind::pcie: return element_role::pcie;
  }
  return element_role::link;
}

constexpr std::array<std::string_view, element_kind_count> class_names{"dma",    "ring_segment", "card_link", "nic",
                                                                       "switch", "host_memory",  "pcie"};

}  // namespace

namespace {

/// The element that is the other direction of the same wire.
machine_element opposite(machine_element e) {
  if (e.kind == element_kind::card_link) std::swap(e.card, e.index);
  else if (e.kind == element_kind::pcie) e.way = e.way == direction::in ? direction::out : direction::in;
  else e.way = e.way == direction::clockwise ? direction::counterclockwise : direction::clockwise;
  return e;
}

/// Returns the element of every machine element's `out`; a DMA engine, a host and a NIC, which work in both directions at once, have
/// another one for `in` behind it.
std::vector<element_index> add_machine_elements(hardware& h, const machine& of) {
  std::vector<element_index> first(of.element_count());
  for (element_id id = 0; id < first.size(); ++id) {
    const machine_element e = of.at(id);
    const auto c = static_cast<class_id>(e.kind);
    if (e.kind == element_kind::dma || e.kind == element_kind::nic || e.kind == element_kind::host)
      first[id] = h.add_pair(c, of.to_string(e) + " out", of.to_string(e) + " in").first;
    else first[id] = h.add(c, of.to_string(e));
  }
  for (element_id id = 0; id < first.size(); ++id) {
    const machine_element e = of.at(id);
    if (e.kind == element_kind::ring_segment || e.kind == element_kind::card_link || e.kind == element_kind::pcie)
      h.elements[static_cast<std::size_t>(first[id])].twin = first[of.id_of(opposite(e))];
  }
  return first;
}

}  // namespace

namespace {
/// Besides a host.
bool on_one_card(const layout& l) { return l.servers == 1 && l.cards == (l.has_hosts() ? 2 : 1); }
}  // namespace

hardware machine_hardware(const machine& of) {
  hardware h{"machine", of.ranks().size()};
  h.about = "the elements of the layout " + of.ranks().to_string();
  h.arrangement = of.ranks();
  h.protocols = plain_protocols();
  for (int k = 0; k < element_kind_count; ++k) {
    const auto kind = static_cast<element_kind>(k);
    if ((kind == element_kind::host || kind == element_kind::pcie) && of.count_of(kind) == 0) continue;
    const link_default& constants = default_of(link_class_of(kind));
    element_class c;
    c.name = class_names[static_cast<std::size_t>(k)];
    c.role = role_of(kind);
    c.latency = constants.parameters.alpha;
    c.bytes_per_second = constants.parameters.bytes_per_second;
    c.source = constants.source;
    if (kind == element_kind::network_switch)
      c.units = 64;  // does not block: routes of a machine do not name its ports
    h.add_class(c);
  }
  const std::vector<element_index> first = add_machine_elements(h, of);
  h.way = [of, first](int from, int to, int channel, std::vector<element_index>& way) {
    for (const hop& at : route_between(of, from, to, channel).hops)
      way.push_back(first[at.id] + (at.way == direction::in && at.kind != element_kind::pcie ? 1 : 0));
  };
  h.memory_way = [of, first, message = h.way, one_card = on_one_card(of.ranks())](
                     int rank, memory_place at, bool writes, std::vector<element_index>& way) {
    if (at.in_segment && !one_card)
      throw error(errc::unsupported,
                  "a segment that all ranks share needs a machine of one card, not " + of.ranks().to_string());
    if (at.in_segment) at.owner = holder_of_share(of.ranks(), at.owner);
    if (at.owner != rank) return writes ? message(rank, at.owner, 0, way) : message(at.owner, rank, 0, way);
    way.push_back(first[of.memory_of(of.ranks().of(rank))] + (writes ? 0 : 1));
  };
  for (int r = 0; r < h.ranks; ++r) {
    h.place(r, {no_element, first[of.memory_of(of.ranks().of(r))]});
  }
  return h;
}

// -- presets ----------------------------------------------------------------------------------------------------------

int preset_request::number(std::string_view key, int otherwise, int least, int most) const {
  for (const auto& [said, value] : structure)
    if (said == key) return static_cast<int>(integer_of("study.structure." + said, value, least, most));
  return otherwise;
}

namespace {

bool listed(std::string_view list, std::string_view word) {
  while (true) {
    const auto end = list.find('|');
    if (list.substr(0, end) == word) return true;
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
}

}  // namespace

hardware build_preset(std::string_view wanted, const preset_request& request) {
  return build_preset(all_presets(), wanted, request);
}

hardware build_preset(const std::vector<preset>& all, std::string_view wanted, const preset_request& request) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const preset& p) { return p.name == wanted; });
  if (at == all.end()) {
    std::vector<std::string_view> names;
    std::string list;
    for (const preset& p : all) names.push_back(p.name), list += (list.empty() ? "" : ", ") + std::string{p.name};
    const auto near = closest(wanted, names);
    wrong("there is no preset " + std::string{wanted} +
          (near.empty() ? "; there are " + list : "; did you mean " + std::string{near} + "?"));
  }
  for (const auto& [key, value] : request.structure)
    if (!listed(at->structure, key))
      wrong("study.structure." + key + ": preset " + std::string{wanted} + " has no " + key +
            (at->structure.empty() ? "" : "; it has " + std::string{at->structure}));
  hardware made = at->build(request);
  made.validate();
  return made;
}

}  // namespace troupe
