// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/tools/replay/application.hpp"
#include "engine/tools/replay/chakra.hpp"
#include "memory/error.hpp"
#include "memory/read_file.hpp"

namespace troupe {

namespace {

trace_text text_of(const std::string& file, const char* advice) {
  file_text read = read_file(file, most_trace_bytes);
  if (!read.problem.empty())
    throw error(errc::bad_config, file + ": the trace cannot be read: " + read.problem + "; " + advice);
  return {file, std::move(read.text)};
}

}  // namespace

application load_application(const std::vector<std::string>& files, const trace_reading& how) {
  const bool chakra = !files.empty() && names_chakra(files.front());
  for (const std::string& file : files)
    if (names_chakra(file) != chakra)
      throw error(errc::bad_config, file + ": a trace is in files of one form; " + files.front() + " is in " +
                                        (chakra ? "Chakra's" : "GOAL"));
  if (!chakra && !how.groups.empty())
    throw error(errc::bad_config, how.groups + ": a GOAL file says its communicators itself: comm NAME { 0 1 … }");
  std::vector<trace_text> texts;
  for (const std::string& file : files)
    texts.push_back(text_of(file, "give the path of a GOAL file, for example config/traces/training.goal, or of Chakra "
                                  "files, one a rank: run.0.et run.1.et …"));
  if (!chakra) return read_goal(texts, how.own);
  trace_text groups;
  if (!how.groups.empty()) groups = text_of(how.groups, "give a JSON file such as {\"1\": [0, 2]}");
  return read_chakra(texts, groups, how);
}

}  // namespace troupe
