// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a flow consists of, as its nodes see it: who gives tiles to whom, how many, and how many of them may be on their way. No
// memory, functions or types: those are the owner's (engine/flow).

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::actors {

/// A tile on its way: which one of its stream, and the slot of the stream's memory in which it lies.
struct flow_tile {
  std::int32_t index = 0;
  std::int32_t slot = 0;
};

/// An input of a node: the node, and which of its inputs.
struct flow_port {
  std::int32_t node = -1;
  std::int32_t port = -1;
};

/// Tiles 0 … tiles − 1 of one node for one or several others.
struct flow_stream {
  std::int32_t from = -1;
  std::vector<flow_port> to{};
  std::int32_t tiles = 0;
  std::int32_t credit = 2;  ///< tiles that may be given out before the first of them is given back by all that get it
  bool kept = false;        ///< each tile has memory of its own (slot = index); else as many slots as credit
  bool in_order = true;     ///< tiles come in the order of their indices; else as they arrive
};

/// Works tile by tile, or is a collective.
///
/// A node that works takes, for each piece of work, the next tile of each input and gives a tile of its output, or: has no
/// input (a source); has no output (a sink); gives a tile for every `every` tiles that it takes; gives `lead` tiles before it takes the first,
/// and for the last ones that it takes none (a buffer).
///
/// A collective has `parts` parts of its input, each of which consists of `blocks_in` tiles: tile p·blocks_in + b is part p of block b. Its output has
/// parts of `blocks_out` tiles in the same way, each of which arrives on its own.
struct flow_node {
  enum class kind_of : std::uint8_t { work, collective };

  std::string name;
  kind_of kind = kind_of::work;
  std::vector<std::int32_t> inputs{};  ///< streams
  std::int32_t output = -1;            ///< stream; −1: none
  std::int32_t taken = 0;              ///< tiles of each input; of a source: pieces of work
  std::int32_t lead = 0;
  std::int32_t every = 1;
  // a collective:
  std::int32_t parts = 0, blocks_in = 1, blocks_out = 1;
  std::int32_t given = 0;  ///< tiles of the output

  /// The operation numbers the parts of its output block by block, a stream its tiles part by part.
  std::int32_t tile_of(std::int32_t part) const { return part % parts * blocks_out + part / parts; }
};

struct flow_plan {
  std::string name;
  std::vector<flow_node> nodes{};
  std::vector<flow_stream> streams{};
};

}  // namespace troupe::actors
