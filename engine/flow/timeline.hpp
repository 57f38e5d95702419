// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "memory/export.hpp"

namespace troupe {

/// What flows did, tile by tile, in real time: give it to flow_options::timeline, of all ranks of a process alike. A rank is a process of the
/// trace and a node a track; a span is a node's work on a tile, or its wait, named by what it waits for; an arrow leads each tile from node to node.
/// Recording costs two looks at the clock a tile and 32 bytes a span, without bound: one is for the few runs that somebody looks at. Thread-safe.
class TROUPE_API timeline {
public:
  timeline();
  ~timeline();
  timeline(const timeline&) = delete;
  timeline& operator=(const timeline&) = delete;

  /// For Perfetto (https://ui.perfetto.dev) and chrome://tracing. What has ended so far.
  std::string json() const;
  /// The same into a file. Throws error(io).
  void write(const std::string& path) const;
  /// Forgets everything.
  void clear();

private:
  friend class flow;
  struct inside;
  std::unique_ptr<inside> inside_;
};

}  // namespace troupe
