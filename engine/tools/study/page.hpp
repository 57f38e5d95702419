// SPDX-License-Identifier: Apache-2.0
#pragma once
// The report of a study as one HTML page that needs nothing else: no network, no other file.

#include <span>
#include <string>

namespace troupe {

/// @param documents_json one study, or two to compare; each a JSON document {"troupe_study": 1, …}. Nothing of it is checked
///   here: the page says in words what it cannot read.
/// @return the page, complete, in UTF-8. No text of a document can end its script element or be taken for markup.
/// Thread-safe. Throws error(invalid_argument) for none or more than two.
std::string study_page(std::span<const std::string> documents_json);

}  // namespace troupe
