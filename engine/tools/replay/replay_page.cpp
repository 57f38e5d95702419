// SPDX-License-Identifier: Apache-2.0
// A replay, and the run that it is of, as documents of the report page (../study/README.md): a track a rank.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "engine/tools/replay/replay.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

using ordered_json = nlohmann::ordered_json;
using op_kind_t = replay_operation::kind;

/// Names of the page's kinds, by replay_operation::kind.
constexpr const char* page_kinds[] = {"compute", "send", "copy", "call"};

/// The spans of one run, as text: there may be millions. Each call is named by its number among the names.
class span_list {
public:
  explicit span_list(const application& of) : of_(of) {}

  void add(std::size_t rank, std::size_t i, std::int64_t begin_ps, std::int64_t end_ps, rank_t sender) {
    const replay_operation& o = of_.ranks[rank].operations[i];
    std::int64_t from = -1, to = -1;
    std::uint64_t bytes = 0;
    std::string name;
    if (o.what == op_kind_t::collective) {
      const application::collective& c = of_.collectives[o.amount];
      bytes = bytes_of(c.what, of_.communicators[c.communicator].ranks.size());
      name = troupe::name(c.what.kind);
      if (c.communicator != 0) name += " of " + of_.communicators[c.communicator].name;
    } else if (o.what != op_kind_t::calc) {
      bytes = o.amount;
      from = o.what == op_kind_t::send ? static_cast<std::int64_t>(rank) : sender;
      to = o.what == op_kind_t::send ? o.peer : static_cast<std::int64_t>(rank);
      name = o.what == op_kind_t::send ? "send" : "receive";
    } else {
      name = "compute";
    }
    const std::size_t number = names_.try_emplace(name, names_.size()).first->second;
    text_ += text_.empty() ? "\n[" : ",\n[";
    for (const std::int64_t n :
         {static_cast<std::int64_t>(rank), begin_ps, end_ps, static_cast<std::int64_t>(o.what), from, to,
          static_cast<std::int64_t>(bytes), std::int64_t{-1}, static_cast<std::int64_t>(number)})
      text_ += std::to_string(n) + ",";
    text_.back() = ']';
  }

  ordered_json names() const {
    std::vector<std::string> all(names_.size());
    for (const auto& [name, number] : names_) all[number] = name;
    return all;
  }
  const std::string& text() const { return text_; }

private:
  const application& of_;
  std::map<std::string, std::size_t> names_;
  std::string text_;
};

std::string document(const replay_result& r, const replay_words& words, std::int64_t end_ps, const span_list& spans,
                     ordered_json path) {
  ordered_json actors = ordered_json::array();
  for (std::size_t rank = 0; rank < r.what->ranks.size(); ++rank)
    actors.push_back({{"name", "rank " + std::to_string(rank)}, {"kind", "rank"}, {"rank", rank}});
  const ordered_json whole{{"troupe_study", 1},
                           {"title", words.title},
                           {"about", words.about},
                           {"timeline", true},
                           {"scenario", path.empty() ? ordered_json::object() : ordered_json(r.scenario.as_said)},
                           {"ranks", r.what->ranks.size()},
                           {"end_ps", end_ps},
                           {"span_kinds", page_kinds},
                           {"span_names", spans.names()},
                           {"actors", std::move(actors)},
                           {"critical_path", std::move(path)},
                           {"remarks", r.remarks}};
  std::string text = whole.dump();
  text.back() = ',';
  if (!words.members.empty()) text += "\n" + words.members + ",";
  return text + "\n\"spans\":[" + spans.text() + "]}\n";
}

/// "run.goal", "run.0.et and 7 more files": without their folder.
std::string trace_name(const application& of) {
  std::set<std::string_view> files;
  std::string first;
  for (const replay_rank& r : of.ranks)
    if (!r.file.empty() && files.insert(r.file).second && first.empty())
      first = std::filesystem::path{r.file}.filename().string();
  if (files.empty()) return "A trace";
  return first + (files.size() > 1 ? " and " + plural(files.size() - 1, "more file") : "");
}

std::string recorded_document(const replay_result& r) {
  span_list spans{*r.what};
  for (std::size_t rank = 0; rank < r.what->recorded.size(); ++rank)
    for (std::size_t i = 0; i < r.what->recorded[rank].size(); ++i)
      if (const application::recorded_time& t = r.what->recorded[rank][i]; t.begin_ps >= 0)
        spans.add(rank, i, t.begin_ps, t.end_ps, r.what->ranks[rank].operations[i].peer);
  return document(r,
                  {trace_name(*r.what) + ", as it was recorded",
                   "A real run of " + plural(r.what->ranks.size(), "rank") +
                       ", by the wall clock: from when a call was made to when it returned, or was waited for."},
                  r.what->recorded_end_ps(), spans, ordered_json::array());
}

}  // namespace

std::string replay_document(const replay_result& r, const replay_words& words) {
  span_list spans{*r.what};
  for (std::size_t rank = 0; rank < r.what->ranks.size(); ++rank)
    for (std::size_t i = 0; i < r.what->ranks[rank].operations.size(); ++i)
      if (const replay_span& s = r.outcome.spans[rank][i]; s.begin >= 0)
        spans.add(rank, i, s.begin, s.end, s.from == static_cast<rank_t>(rank) ? -1 : s.from);
  ordered_json path = ordered_json::array();
  for (const replay_stretch& s : r.path)
    path.push_back({{"begin_ps", s.begin_ps},
                    {"end_ps", s.end_ps},
                    {"actor", s.rank},
                    {"spent", name(s.spent)},
                    {"text", stretch_text(r, s)}});
  return document(r, words, r.outcome.end_ps, spans, std::move(path));
}

std::vector<std::string> replay_documents(const replay_result& r) {
  std::vector<std::string> all;
  if (!r.what->recorded.empty()) all.push_back(recorded_document(r));
  all.push_back(
      replay_document(r, {trace_name(*r.what) + ", replayed", "Replayed on " + r.on->name + ", in virtual time."}));
  return all;
}

}  // namespace troupe
