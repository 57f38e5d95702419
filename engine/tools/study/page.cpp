// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/page.hpp"

#include <string_view>

#include "engine/tools/study/page_files.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

/// In JSON "<" stands only inside of strings, where \u003c means the same: no "</script" and no "<!--" is left.
void append_escaped(std::string& to, std::string_view json) {
  for (std::size_t from = 0;;) {
    const std::size_t at = json.find('<', from);
    to += json.substr(from, at - from);
    if (at == std::string_view::npos) return;
    to += "\\u003c";
    from = at + 1;
  }
}

void append_data(std::string& to, std::span<const std::string> documents) {
  if (documents.size() == 1) return append_escaped(to, documents[0]);
  to += "{\"troupe_study\":1,\"runs\":[";
  append_escaped(to, documents[0]);
  to += ',';
  append_escaped(to, documents[1]);
  to += "]}";
}

}  // namespace

std::string study_page(std::span<const std::string> documents_json) {
  if (documents_json.empty() || documents_json.size() > 2)
    throw error(errc::invalid_argument,
                "a report shows one study, or compares two; there are " + std::to_string(documents_json.size()));
  std::string page;
  page.reserve(page_files::html.size() + page_files::style.size() + page_files::script.size() +
               documents_json[0].size() + documents_json.back().size() + 1024);
  // The places are taken in the order of the template, so that nothing which is put in is searched again.
  std::string_view rest = page_files::html;
  const auto until = [&](std::string_view place) {
    const std::size_t at = rest.find(place);
    if (at == std::string_view::npos) throw error(errc::io, "page.html has no place " + std::string(place));
    page += rest.substr(0, at);
    rest.remove_prefix(at + place.size());
  };
  until("@style@");
  page += page_files::style;
  until("@data@");
  append_data(page, documents_json);
  until("@script@");
  page += page_files::script;
  page += rest;
  return page;
}

}  // namespace troupe
