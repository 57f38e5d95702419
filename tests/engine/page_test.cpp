// SPDX-License-Identifier: Apache-2.0
// The report page's writer. What the page does in a browser is tested in tests/page/.

#include <array>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "engine/tools/study/page.hpp"
#include "memory/error.hpp"

using namespace troupe;

namespace {

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

std::string page_of(std::vector<std::string> documents) { return study_page(documents); }

}  // namespace

TEST_CASE("study page: is complete, and names no other place") {
  const std::string page = page_of({R"({"troupe_study":1,"title":"one"})"});
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.ends_with("</html>\n"));
  CHECK(count_of(page, R"({"troupe_study":1,"title":"one"})") == 1);
  CHECK(count_of(page, "--paper:") > 0);
  CHECK(count_of(page, "class study_page") == 1);
  CHECK(count_of(page, "@style@") + count_of(page, "@data@") + count_of(page, "@script@") == 0);
  // The only address is a name that no browser asks for: the SVG namespace.
  CHECK(count_of(page, "http://") + count_of(page, "https://") == 1);
  CHECK(count_of(page, "http://www.w3.org/2000/svg") == 1);
}

TEST_CASE("study page: no text of a document ends its element or fills another place") {
  const std::string page = page_of({R"({"title":"</script><script>alert(1)</script><!-- @script@ @data@"})"});
  CHECK(count_of(page, "alert(1)") == 1);
  CHECK(count_of(page, "<script>alert") == 0);
  CHECK(count_of(page, "</script>") == 2);
  CHECK(count_of(page, "<!--") == 0);
  CHECK(count_of(page, R"(\u003c/script>\u003cscript>alert(1)\u003c/script>\u003c!-- @script@ @data@)") == 1);
  CHECK(count_of(page, "class study_page") == 1);
}

TEST_CASE("study page: two documents are compared, none and three are refused") {
  const std::string page = page_of({R"({"a":1})", R"({"b":2})"});
  CHECK(count_of(page, R"("runs":[{"a":1},{"b":2}])") == 1);
  for (const std::vector<std::string>& documents : {std::vector<std::string>{}, std::vector<std::string>(3, "{}")}) {
    try {
      study_page(documents);
      FAIL("accepted");
    } catch (const error& fault) {
      CHECK(fault.code() == errc::invalid_argument);
      CHECK(std::string(fault.what()).find("there are " + std::to_string(documents.size())) != std::string::npos);
    }
  }
}
