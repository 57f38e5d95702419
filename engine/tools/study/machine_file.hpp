// SPDX-License-Identifier: Apache-2.0
#pragma once
// A machine of one's own: a TOML file of element classes, elements and ways, which takes a preset's place (`preset = "torus.toml"`, `--on
// torus.toml`). Numbers that repeat are written once: an entry with `for` stands for one a value, and {…} in a name is an expression.
//
//   ranks = 16                                  an expression, too
//   [parameters]                                study.structure.KEY changes one; `ranks` here is what study.ranks changes
//   x = 4
//   [class.wire]                                latency, bandwidth, … as study.hardware.wire.… ; role and source for reports
//   [[element]]                                 one thing that messages pass
//   for = { r = "ranks" }                       r = 0, 1, … ranks − 1; several: the last one turns fastest
//   class = "wire"
//   name = "up {r}"                             pair = "down {r}": the other direction; rank = "r": whose it is
//   [[route]]                                   the first whose `when` is true of from, to and channel says the way
//   via = ["up {from}", "down {to}"]
// or a graph, on which messages take a shortest way; of several, the one whose links come first in the file (channel c: the c-th, in turn):
//   [[link]]                                    two elements, "A - B" and "B - A"
//   for = { i = "x" }
//   from = "node {i}"
//   to = "node {(i + 1) % x}"                   passing = "switch": an element of that class for every node on the way, but the ends
//   [[rank]]                                    where rank 0, 1, … sit; core, dma: elements by name
//   for = { r = "ranks" }
//   at = "node {r}"
// Expressions are of integers: + − * / % == != < <= > >= && || ! and parentheses.

#include <string>

#include "topology/machine/hardware.hpp"

namespace troupe {

/// Whether a preset's name means a file.
bool is_machine_file(std::string_view preset);

/// @throws error(bad_config) that names file and line, what is wrong, and what would be right
hardware read_machine(const std::string& text, const std::string& file, const preset_request& wanted);
/// The file's. @throws error(bad_config) also if it cannot be read
hardware load_machine(const std::string& file, const preset_request& wanted);

}  // namespace troupe
