// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "actors/flow/flow_plan.hpp"

namespace troupe::actors {

class flow_node_state;

enum class flow_progress : std::uint8_t {
  done,    ///< the work is done
  later,   ///< the node hears performed() when it is
  failed,  ///< the flow ends: the performer has told it
};

/// What a node says. All calls on the turn of the node.
class flow_outbox {
public:
  virtual ~flow_outbox() = default;
  /// `what` of the node's output for that input.
  virtual void give(flow_port to, flow_tile what) = 0;
  /// The node that gives stream `stream` gets a slot back from one of those that read it.
  virtual void give_back(std::int32_t stream, std::int32_t slot) = 0;
  /// The node wants to hear go_on(), when others have had their turn.
  virtual void again() = 0;
  /// The work of one tile: `in` has a tile for each input (none: there is nothing to read in this piece of work).
  /// `out`: null if nothing is written. `at`, of `every`: the how many-th piece for this output.
  virtual flow_progress perform(const std::vector<flow_tile>& in, const flow_tile* out, std::int32_t at) = 0;
  /// A collective's part is written, and may travel.
  virtual void ready(std::int32_t part) = 0;
  /// The node has taken and given all its tiles.
  virtual void finished() = 0;
};

/// What a node waits for.
struct flow_wait {
  enum class what_for : std::uint8_t { nothing, tile, credit, part, work };
  what_for what = what_for::nothing;
  std::int32_t stream = -1;  ///< of the tile or the credit
  std::int32_t index = 0;    ///< tile, or part
  bool operator==(const flow_wait&) const = default;
};

/// One node of a flow: a source, an operator, a sink, a buffer or a collective. One owner turns it: the holder of the run's turn (flow_cell.hpp), or the
/// rehearsal (rehearsal.hpp) where nothing is real.
///   begin                  once a run, of all nodes before any of them hears anything
///   tile(input, what)      from the node at the other end; at most the stream's credit of them are with us
///   given_back(slot)       by each reader of the output, once a tile
///   arrived(part)          of a collective's output, in any order
///   go_on                  once at first, and as the outbox has asked for
///   performed              as the outbox has promised
///   stop                   nothing is done any more; all later messages are ignored
/// A node performs at most one piece of work a message, so that others get their turn between its tiles; nothing blocks, and nothing is
/// allocated after the first run but by the queues of tiles, which are as long as the credit.
class flow_node_state {
public:
  flow_node_state(const flow_plan& plan, std::int32_t node);

  void begin();
  void tile(std::int32_t input, flow_tile what, flow_outbox& out);
  void given_back(std::int32_t slot, flow_outbox& out);
  void arrived(std::int32_t part, flow_outbox& out);
  void go_on(flow_outbox& out);
  void performed(flow_outbox& out);
  void stop() { over_ = true; }

  bool finished() const { return finished_; }
  flow_wait waits_for() const;

private:
  const flow_node& me() const { return plan_->nodes[static_cast<std::size_t>(node_)]; }
  const flow_stream& stream(std::int32_t which) const { return plan_->streams[static_cast<std::size_t>(which)]; }
  bool collective() const { return me().kind == flow_node::kind_of::collective; }
  bool leads() const { return work_ < me().lead; }
  bool writes() const;
  bool begins_output() const { return leads() || (work_ - me().lead) % me().every == 0; }
  bool ends_output() const { return leads() || (work_ - me().lead) % me().every == me().every - 1; }
  std::int32_t pieces() const { return me().taken + me().lead; }
  bool may_give() const { return given_out_ < stream(me().output).credit; }
  void advance(flow_outbox& out);
  void work(flow_outbox& out);
  void conclude(flow_outbox& out);
  void give_arrived(flow_outbox& out);
  void end_if_done(flow_outbox& out);
  flow_tile take_slot(std::int32_t index);
  void emit(flow_tile what, flow_outbox& out);

  const flow_plan* plan_;
  std::int32_t node_;
  std::vector<std::deque<flow_tile>> waiting_;  ///< by input
  std::vector<flow_tile> taken_;                ///< of the work under way
  flow_tile writing_;
  std::int32_t work_ = 0;              ///< pieces done
  std::int32_t given_out_ = 0;         ///< tiles of the output that have not come back
  std::int32_t given_ = 0;             ///< tiles of the output
  std::vector<std::int32_t> free_;     ///< slots
  std::vector<std::int32_t> readers_;  ///< by slot: the readers that have not given it back
  // a collective:
  std::vector<std::int32_t> missing_;  ///< by part of the input: tiles
  std::vector<bool> here_;             ///< by tile of the output
  std::deque<std::int32_t> arrivals_;  ///< tiles of the output, where they are given as they come
  std::int32_t tiles_in_ = 0;
  bool busy_ = false, comes_again_ = false, over_ = true, finished_ = false;
};

}  // namespace troupe::actors
