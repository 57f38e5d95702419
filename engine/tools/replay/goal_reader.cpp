// SPDX-License-Identifier: Apache-2.0
// GOAL's text form → an application. A line is a statement, as the grammar of LogGOPSim's txt2bin has it.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/tools/replay/said_calls.hpp"
#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe {

namespace {

constexpr int most_ranks = 1 << 17;
constexpr std::uint64_t most_nanoseconds =
    1'000'000'000'000'000;  // eleven days: what is later than 53 is refused when it is run
constexpr std::size_t nowhere = ~std::size_t{0};

/// What the files have said so far.
struct reading {
  application made;
  bool sized = false;
  std::map<std::string, std::size_t, std::less<>> communicators;
  std::vector<bool> defined;  ///< by rank
  said_calls calls;
  std::vector<std::string> clocks;  ///< by rank: of its times; empty: not said
};

/// All times from the first on. Files whose clocks differ, or that name none, begin at the same moment.
void align_times(application& of, const std::vector<std::string>& clocks) {
  std::map<std::string, std::int64_t> first;
  const auto clock_of = [&](std::size_t r) { return clocks[r].empty() ? of.ranks[r].file : clocks[r]; };
  for (std::size_t r = 0; r < of.recorded.size(); ++r)
    for (application::recorded_time& t : of.recorded[r]) {
      if (t.begin_ps < 0 || t.end_ps < t.begin_ps) t = {};  // nobody waited for it
      else if (const auto [at, fresh] = first.try_emplace(clock_of(r), t.begin_ps); !fresh)
        at->second = std::min(at->second, t.begin_ps);
    }
  for (std::size_t r = 0; r < of.recorded.size(); ++r)
    for (application::recorded_time& t : of.recorded[r])
      if (t.begin_ps >= 0) t.begin_ps -= first[clock_of(r)], t.end_ps -= first[clock_of(r)];
  if (first.empty()) of.recorded.clear();
}

/// LogGOPSim's Parser.hpp: a file begins with 4223 in eight bytes of little endian, or with 2342 once a simulation has used it up.
bool is_binary(std::string_view text) {
  using namespace std::string_view_literals;
  return text.starts_with("\x7f\x10\0\0\0\0\0\0"sv) || text.starts_with("\x26\x09\0\0\0\0\0\0"sv);
}

/// Words of a line: names and numbers, and each of { } : by itself.
class goal_file {
public:
  goal_file(const trace_text& from, const std::vector<std::string>& own, reading& into)
      : from_(from), own_(own), into_(into) {}

  void read() {
    if (is_binary(from_.text))
      throw error(errc::bad_config,
                  from_.file +
                      ": it is GOAL's binary form, as LogGOPSim's txt2bin writes it; give the text that it was "
                      "made from");
    std::string_view rest = from_.text;
    bool in_comment = false;
    while (!rest.empty()) {
      const auto end = rest.find('\n');
      ++line_;
      const std::string_view line = rest.substr(0, end);
      const bool measured = !in_comment && line.starts_with("//@ ");
      split(measured ? line.substr(4) : line, in_comment);
      if (measured) measurement();
      else if (!words_.empty()) statement();
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    if (in_comment) fail("a comment that begins with /* does not end");
    if (rank_ >= 0) fail("the operations of rank " + std::to_string(rank_) + " do not end; a } is missing");
    if (!into_.sized) fail("it does not say how many ranks there are; begin with, for example, \"num_ranks 8\"");
  }

private:
  [[noreturn]] void fail(const std::string& sentence, std::uint32_t line = 0) const {
    const std::uint32_t at = line > 0 ? line : line_;  // 0: the file is empty
    throw error(errc::bad_config, from_.file + (at > 0 ? ":" + std::to_string(at) : "") + ": " + sentence);
  }

  void split(std::string_view text, bool& in_comment) {
    words_.clear();
    next_ = 0;
    std::size_t begin = nowhere;
    const auto end_word = [&](std::size_t at) {
      if (begin != nowhere) words_.push_back(text.substr(begin, at - begin));
      begin = nowhere;
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::string_view two = text.substr(i, 2);
      if (in_comment) {
        if (two == "*/") in_comment = false, ++i;
      } else if (two == "//") {
        return end_word(i);
      } else if (two == "/*") {
        end_word(i);
        in_comment = true, ++i;
      } else if (text[i] == ' ' || text[i] == '\t' || text[i] == '\r') {
        end_word(i);
      } else if (text[i] == '{' || text[i] == '}' || text[i] == ':') {
        end_word(i);
        words_.push_back(text.substr(i, 1));
      } else if (begin == nowhere) {
        begin = i;
      }
    }
    end_word(text.size());
  }

  // -- words ------------------------------------------------------------------------------------------------------------

  bool more() const { return next_ < words_.size(); }
  std::string shown(std::size_t i) const {
    if (i >= words_.size()) return "the line ends";
    std::string word{words_[i].substr(0, 40)};
    for (char& c : word)
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
    return "there is \"" + word + "\"";
  }
  std::string_view word(const char* expected) {
    if (!more()) fail(std::string{"the line ends; expected "} + expected);
    return words_[next_++];
  }
  void expect(std::string_view wanted) {
    if (!more() || words_[next_] != wanted) fail(shown(next_) + "; expected \"" + std::string{wanted} + "\"");
    ++next_;
  }
  bool take(std::string_view wanted) {
    if (!more() || words_[next_] != wanted) return false;
    ++next_;
    return true;
  }
  void end_line() const {
    if (more()) fail(shown(next_) + " behind the end of the statement");
  }
  std::uint64_t number(const char* what, std::uint64_t most, std::string_view behind = {}) {
    const std::size_t at = next_;
    std::string_view text = word(what);
    const bool fits = text.ends_with(behind);
    if (fits) text.remove_suffix(behind.size());
    std::uint64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (!fits || failure == std::errc::invalid_argument || end != text.data() + text.size())
      fail(shown(at) + "; expected " + what);
    if (failure != std::errc{} || value > most)
      fail(shown(at) + ", which is too large; expected " + what + " of at most " + std::to_string(most));
    return value;
  }
  /// "-1" is any, where there is an any.
  std::int64_t number_or_any(const char* what, std::uint64_t most, bool any) {
    if (any && take("-1")) return -1;
    return static_cast<std::int64_t>(number(what, most));
  }
  rank_t rank_number(const char* what, bool any = false) {
    const std::size_t at = next_;
    const std::int64_t r = number_or_any(what, most_ranks, any);
    if (r >= static_cast<std::int64_t>(into_.made.ranks.size()))
      fail(shown(at) + ": ranks are 0 to " + std::to_string(into_.made.ranks.size() - 1));
    return static_cast<rank_t>(r);
  }

  // -- measured times ---------------------------------------------------------------------------------------------------

  std::int64_t nanoseconds() {
    return 1000 * static_cast<std::int64_t>(number("a number of nanoseconds", most_nanoseconds));
  }

  void measurement() {
    if (rank_ < 0 && take("cpu")) {
      const std::int64_t had = nanoseconds();
      expect("of");
      if (const std::int64_t wall = nanoseconds(); wall > 0) {
        into_.made.recorded_cpu_ps += had;
        into_.made.recorded_cores += static_cast<double>(had) / static_cast<double>(wall);
      }
      if (take("recording")) into_.made.recording_ps += nanoseconds();
      return end_line();
    }
    if (rank_ < 0) {
      expect("clock");
      clock_ = word("a clock's name");
      since_ = nanoseconds();
      return end_line();
    }
    const std::string_view label = word("the label of an operation");
    const auto at = labels_.find(label);
    if (at == labels_.end())
      fail("no operation of rank " + std::to_string(rank_) + " above has the label " +
           std::string{label.substr(0, 40)});
    into_.made.recorded.resize(into_.made.ranks.size());
    auto& times = into_.made.recorded[static_cast<std::size_t>(rank_)];
    times.resize(std::max<std::size_t>(times.size(), at->second + 1));
    if (take("from")) times[at->second].begin_ps = since_ + nanoseconds();
    if (take("to")) times[at->second].end_ps = since_ + nanoseconds();
    end_line();
  }

  // -- statements -------------------------------------------------------------------------------------------------------

  void statement() {
    if (rank_ < 0) {
      if (take("num_ranks")) return ranks();
      if (!into_.sized) fail(shown(0) + "; expected \"num_ranks\" and how many there are, before anything else");
      if (take("comm")) return communicator();
      if (take("rank")) return begin_rank();
      fail(shown(0) + "; expected \"rank\" or \"comm\"");
    }
    if (take("}")) {
      end_line();
      return end_rank();
    }
    std::string_view label;
    if (words_.size() > 1 && words_[1] == ":") {
      label = words_[0];
      next_ = 2;
    } else if (words_.size() > 1 && (words_[1] == "requires" || words_[1] == "irequires")) {
      return dependency();
    }
    operation();
    if (label.empty()) return;
    const auto [at, fresh] = labels_.try_emplace(label, static_cast<std::uint32_t>(here().operations.size() - 1));
    if (!fresh)
      fail("the label " + std::string{label.substr(0, 40)} + " is that of line " +
           std::to_string(here().operations[at->second].line) +
           " already; give each operation of a rank one of its own");
  }

  replay_rank& here() { return into_.made.ranks[static_cast<std::size_t>(rank_)]; }

  void ranks() {
    const auto count = number("how many ranks there are", most_ranks);
    if (count == 0) fail("there must be at least one rank");
    if (into_.sized && count != into_.made.ranks.size())
      fail("it has " + plural(count, "rank") + ", another file of the trace " +
           std::to_string(into_.made.ranks.size()));
    end_line();
    if (into_.sized) return;
    into_.sized = true;
    into_.made.ranks.resize(count);
    into_.defined.resize(count);
    into_.clocks.resize(count);
    into_.calls.resize(count);
    into_.communicators["world"] = 0;
    into_.made.communicators.push_back({"world", {}});
    for (std::size_t r = 0; r < count; ++r) into_.made.communicators[0].ranks.push_back(static_cast<int>(r));
  }

  void communicator() {
    const std::string name{word("the name of a communicator")};
    std::vector<int> members;
    expect("{");
    while (!take("}")) members.push_back(rank_number("a rank or \"}\""));
    end_line();
    if (members.empty()) fail("communicator " + name + " has no ranks");
    auto sorted = members;
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
      fail("communicator " + name + " has rank " + std::to_string(*twice) + " twice");
    const auto [at, fresh] = into_.communicators.try_emplace(name, into_.made.communicators.size());
    if (fresh) into_.made.communicators.push_back({name, std::move(members)});
    else if (into_.made.communicators[at->second].ranks != members)
      fail("communicator " + name + " has other ranks before; give it another name");
  }

  void begin_rank() {
    rank_ = rank_number("the number of a rank");
    expect("{");
    end_line();
    if (into_.defined[static_cast<std::size_t>(rank_)])
      fail("rank " + std::to_string(rank_) + " has its operations already");
    into_.defined[static_cast<std::size_t>(rank_)] = true;
    here().file = from_.file;
    into_.clocks[static_cast<std::size_t>(rank_)] = clock_;
    labels_.clear();
    needs_.clear();
  }

  void end_rank() {
    for (const said_dependency& d : needs_) {
      const auto later = labels_.find(d.later), earlier = labels_.find(d.earlier);
      for (const auto& [at, label] : {std::pair{later, d.later}, std::pair{earlier, d.earlier}})
        if (at == labels_.end())
          fail("no operation of rank " + std::to_string(rank_) + " has the label " + std::string{label.substr(0, 40)},
               d.line);
      if (later->second == earlier->second) fail("an operation cannot require itself", d.line);
      here().needs.push_back({later->second, earlier->second, d.begun});
    }
    rank_ = -1;
  }

  void dependency() {
    const std::string_view later = words_[0];
    const bool begun = words_[1] == "irequires";
    next_ = 2;
    const std::string_view earlier = word("the label of an operation");
    end_line();
    needs_.push_back({later, earlier, begun, line_});
  }

  void operation() {
    replay_operation o;
    o.line = line_;
    const std::size_t at = next_;
    const std::string_view what = word("calc, send, recv or coll");
    if (what == "calc") {
      o.what = replay_operation::kind::calc;
      o.amount = 1000 * number("a number of nanoseconds", most_nanoseconds);
      options(o);
    } else if (what == "send" || what == "recv") {
      const bool sends = what == "send";
      o.what = sends ? replay_operation::kind::send : replay_operation::kind::recv;
      o.amount = number("a number of bytes, such as 8b", most_trace_payload, "b");
      expect(sends ? "to" : "from");
      o.peer = rank_number(sends ? "the receiver" : "the sender, or -1", !sends);
      options(o);
    } else if (what == "coll") {
      o.what = replay_operation::kind::collective;
      collective();
    } else {
      static constexpr std::string_view known[] = {"calc", "send", "recv", "coll", "requires", "irequires"};
      const auto near = closest(what, known);
      fail(shown(at) + "; " +
           (near.empty() ? "expected calc, send, recv or coll" : "did you mean " + std::string{near} + "?"));
    }
    here().operations.push_back(o);
  }

  void options(replay_operation& o) {
    const bool message = o.what != replay_operation::kind::calc;
    while (more()) {
      if (take("cpu")) o.cpu = static_cast<std::int32_t>(number("the number of a cpu", 1 << 20));
      else if (message && take("tag"))
        o.tag = number_or_any("a tag", std::uint64_t{1} << 62, o.what == replay_operation::kind::recv);
      else if (message && take("nic")) static_cast<void>(number("the number of a NIC", 1 << 20));
      else fail(shown(next_) + "; expected " + (message ? "tag, cpu or nic" : "cpu"));
    }
  }

  // -- collectives ------------------------------------------------------------------------------------------------------

  void collective() {
    said_call said;
    application_call& c = said.what;
    const std::size_t at = next_;
    const std::string_view what = word("the name of a collective");
    const auto kind = parse_job_kind(what);
    if (!kind || kind->send_recv) {
      std::vector<std::string_view> names;
      for (const std::string& n : all_job_names())
        if (n != "send_recv") names.push_back(n);
      const auto near = closest(what, names);
      fail(shown(at) + ", which is no collective" +
           (near.empty() ? "; write, for example, all_reduce" : "; did you mean " + std::string{near} + "?"));
    }
    c.kind = *kind;
    if (!c.kind.is_barrier()) sizes(c);
    std::size_t communicator = 0;
    while (more()) {
      const std::size_t option = next_;
      if (take("comm")) {
        const auto found = into_.communicators.find(word("the name of a communicator"));
        if (found == into_.communicators.end())
          fail(shown(option + 1) + ", which is no communicator; define it above: comm NAME { 0 1 … }");
        communicator = found->second;
      } else if (c.kind.rooted() && take("root")) {
        c.root = static_cast<rank_t>(number("the root's rank in the communicator", most_ranks));
      } else if (take("by")) {
        c.choreography = word("the name of a choreography");
        if (find_choreography(c.choreography) == nullptr && std::ranges::find(own_, c.choreography) == own_.end())
          fail(shown(option + 1) + ", which is no choreography; " + which_choreographies(c.choreography, own_));
      } else {
        fail(shown(option) + "; expected comm, by" + (c.kind.rooted() ? " or root" : ""));
      }
    }
    said.operation = static_cast<std::uint32_t>(here().operations.size());
    said.file = from_.file;
    said.line = line_;
    if (const std::string why = problem_of(c, into_.made.communicators[communicator], rank_); !why.empty()) fail(why);
    into_.calls[static_cast<std::size_t>(rank_)][communicator].push_back(std::move(said));
  }

  void sizes(application_call& c) {
    const std::size_t at = next_;
    if (c.kind.v_form) {
      std::string_view list = word("the blocks' elements, such as 3,0,5");
      while (true) {
        const auto comma = list.find(',');
        const std::string_view one = list.substr(0, comma);
        std::size_t n = 0;
        const auto [end, failure] = std::from_chars(one.data(), one.data() + one.size(), n);
        if (failure != std::errc{} || end != one.data() + one.size() || n > most_trace_payload)
          fail(shown(at) + "; expected the blocks' elements, such as 3,0,5");
        c.counts.push_back(n);
        if (comma == std::string_view::npos) break;
        list.remove_prefix(comma + 1);
      }
    } else {
      c.count = number("the elements of a block", most_trace_payload);
    }
    const std::size_t type = next_;
    const auto types = types_of(word("an element type, such as f32"));
    if (types.size() != 1) fail(shown(type) + ", which is no element type; take, for example, f32");
    c.type = types.front();
    if (!c.kind.reduces()) return;
    const std::size_t op = next_;
    const auto ops = ops_of(word("an operation, such as sum"), c.type);
    if (ops.size() != 1)
      fail(shown(op) + ", which is no operation of " + std::string{name(c.type)} + "; take, for example, sum");
    c.reduction = ops.front();
  }

  struct said_dependency {
    std::string_view later, earlier;
    bool begun;
    std::uint32_t line;
  };

  const trace_text& from_;
  const std::vector<std::string>& own_;
  reading& into_;
  std::uint32_t line_ = 0;
  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
  rank_t rank_ = -1;
  std::string clock_;
  std::int64_t since_ = 0;  ///< ps of this clock, at which the file's times begin
  std::unordered_map<std::string_view, std::uint32_t> labels_;
  std::vector<said_dependency> needs_;
};

}  // namespace

application read_goal(const std::vector<trace_text>& files, const std::vector<std::string>& own) {
  reading all;
  for (const trace_text& one : files) goal_file{one, own, all}.read();
  if (!all.sized) throw error(errc::bad_config, "there is no file to read a trace from");
  join_collectives(all.made, all.calls);
  for (std::size_t r = 0; r < all.made.recorded.size(); ++r)
    all.made.recorded[r].resize(all.made.ranks[r].operations.size());
  align_times(all.made, all.clocks);
  return std::move(all.made);
}

}  // namespace troupe
