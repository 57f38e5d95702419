// SPDX-License-Identifier: Apache-2.0
// Building: each node is looked at when it is added.
#include "engine/flow/flow.hpp"

#include <algorithm>

#include "engine/flow/flow_inside.hpp"
#include "memory/error.hpp"

namespace troupe {

flow::flow(engine& on, std::string name, flow_options options) : inside_(std::make_shared<inside>()) {
  inside_->core = core_of(on);
  inside_->name = std::move(name);
  inside_->options = options;
}
flow::flow(flow&&) noexcept = default;
flow& flow::operator=(flow&& other) noexcept {
  const flow before{std::move(*this)};  // ends what is under way
  inside_ = std::move(other.inside_);
  return *this;
}
flow::~flow() {
  if (!inside_ || done()) return;
  cancel();
  if (actors::no_waiting::here()) return;  // inside a callback: the run keeps what is the flow's own until it is over
  static_cast<void>(try_wait());
}

const std::string& flow::name() const noexcept {
  static const std::string none;
  return inside_ ? inside_->name : none;
}

flow::inside& flow::here() const {
  if (!inside_)
    throw error(errc::invalid_argument,
                "this flow is empty, since it was moved from; use the one that it was moved to");
  return *inside_;
}

// -- what is refused ------------------------------------------------------------------------------------------------------

void flow::inside::refuse(const std::string& why) const {
  throw error(errc::invalid_argument, "flow " + name + ": " + why);
}
void flow::inside::refuse(const std::string& node, const std::string& why) const {
  refuse("node " + node + ": " + why);
}

void flow::refuse(const std::string& node, const std::string& why) const { here().refuse(node, why); }

void flow::inside::check_open() const {
  if (checked) refuse("nothing can be added once it was checked or started; build another flow");
}

void flow::inside::check_new(const described& node) const {
  const node_description& what = node.what;
  if (what.name.empty()) refuse("node " + std::to_string(nodes.size()) + " has no name");
  for (const described& other : nodes)
    if (other.what.name == what.name) refuse(what.name, "there is a node of this name already; give each its own");
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const stream_type& given = streams[static_cast<std::size_t>(node.inputs[i])].type;
    const stream_type& first = streams[static_cast<std::size_t>(node.inputs[0])].type;
    if (given.tiles != first.tiles)
      refuse(what.name, "input 0 has " + std::to_string(first.tiles) + " tiles and input " + std::to_string(i) +
                            " has " + std::to_string(given.tiles) + "; it takes one of each, so they must be as many");
    if (i >= what.takes.size() || !what.takes[i]) continue;
    const stream_type& wanted = *what.takes[i];
    if (wanted.type != given.type)
      refuse(what.name, "input " + std::to_string(i) + " takes tiles of " + std::string{troupe::name(wanted.type)} +
                            ", and gets " + std::string{troupe::name(given.type)});
    if (wanted.shape != given.shape)
      refuse(what.name, "input " + std::to_string(i) + " takes tiles of shape " + to_string(wanted.shape) +
                            ", and gets " + to_string(given.shape));
  }
  const int credit = what.options.credit;
  if (credit < 1) refuse(what.name, "a credit of " + std::to_string(credit) + " lets no tile pass; at least 1");
  if (what.output && what.output->tiles < 1)
    refuse(what.name, "it would give " + std::to_string(what.output->tiles) + " tiles; at least 1");
  if (!what.output && node.inputs.empty()) refuse(what.name, "it has neither an input nor an output");
}

int flow::inside::stream_id(const stream_base& which, const std::string& node) const {
  if (which.of_ != this)
    refuse(node, "one of its inputs is a stream of another flow; a node takes streams of its own flow");
  return which.id_;
}

stream_base flow::inside::make_stream(int node, const stream_type& type) {
  streams.push_back({.type = type, .node = node});
  return stream_base{this, static_cast<int>(streams.size()) - 1, type};
}

// -- nodes ----------------------------------------------------------------------------------------------------------------

std::optional<stream_base> flow::add(node_description what) {
  inside& in = here();
  in.check_open();
  inside::described node;
  for (const stream_base& input : what.inputs) node.inputs.push_back(in.stream_id(input, what.name));
  if (what.every < 1) in.refuse(what.name, "it makes a tile of " + std::to_string(what.every) + " tiles; at least 1");
  if (!what.inputs.empty()) {
    const int tiles = what.inputs[0].type().tiles;
    if (tiles % what.every != 0)
      in.refuse(what.name, "it makes a tile of every " + std::to_string(what.every) + ", and its input has " +
                               std::to_string(tiles) + " tiles; " + std::to_string(what.every) + " must divide them");
    if (what.lead < 0 || (what.lead > 0 && what.lead > tiles))
      in.refuse(what.name, "it holds back " + std::to_string(what.lead) + " of " + std::to_string(tiles) +
                               " tiles; 0 … " + std::to_string(tiles) + " are possible");
    if (what.output && what.output->tiles != tiles / what.every)
      in.refuse(what.name, "it says that it gives " + std::to_string(what.output->tiles) + " tiles, and takes " +
                               std::to_string(tiles) + ", which makes " + std::to_string(tiles / what.every));
  }
  if (!what.work) in.refuse(what.name, "it has no function");
  node.what = std::move(what);
  return in.add(std::move(node));
}

/// A node of all ranks of `comm`, as far as it does not depend on what it does.
flow::inside::described flow::inside::of_all_ranks(const std::string& node, const stream_base* input,
                                                   communicator& comm, const collective_options& how) {
  check_open();
  const communicator_state* state = state_of(comm);
  if (state == nullptr) refuse(node, "its communicator is empty");
  if (state->core != core && state->core->root() != core)
    refuse(node, "communicator " + comm.name() + " is not of the engine that the flow was made with");
  described made;
  made.collects = true;
  made.comm = &comm;
  made.order = how.order;
  if (input != nullptr) made.inputs = {stream_id(*input, node)};
  made.what.options.credit = how.credit;
  return made;
}

std::optional<stream_base> flow::inside::add(described node) {
  check_new(node);
  std::optional<stream_base> gives;
  if (node.what.output) {
    gives = make_stream(static_cast<int>(nodes.size()), *node.what.output);
    node.output = gives->id_;
  }
  nodes.push_back(std::move(node));
  return gives;
}

void flow::inside::check_root(const std::string& node, const described& rooted, const communicator& comm) const {
  if (rooted.root < 0 || rooted.root >= comm.size())
    refuse(node, "its root is rank " + std::to_string(rooted.root) + " of " + std::to_string(comm.size()) +
                     "; ranks are 0 … " + std::to_string(comm.size() - 1));
  if (rooted.kind != collective::broadcast || rooted.inputs.empty() == (comm.rank() != rooted.root)) return;
  if (rooted.inputs.empty()) refuse(node, "this rank is the root; it gives the stream that it broadcasts");
  refuse(node, "its root is rank " + std::to_string(rooted.root) + ", and this is rank " + std::to_string(comm.rank()) +
                   "; it gives the shape and the number of the tiles that come");
}

std::optional<stream_base> flow::collect(std::string name, const collected& how, const stream_base* input,
                                         const stream_type& type, communicator& comm,
                                         const collective_options& options) {
  inside& in = here();
  inside::described node = in.of_all_ranks(name, input, comm, options);
  node.kind = how.what;
  node.reduction = how.reduction;
  node.root = how.root;
  const int n = comm.size();
  if (has_root(how.what)) in.check_root(name, node, comm);
  if (how.what == collective::reduce_scatter || how.what == collective::all_to_all) node.blocks_in = n;
  if (how.what == collective::all_gather || how.what == collective::all_to_all) node.blocks_out = n;
  if (type.tiles % node.blocks_in != 0)
    in.refuse(name, std::string{troupe::name(how.what)} + " of " + std::to_string(n) + " ranks takes " +
                        std::to_string(n) + "·k tiles, and gets " + std::to_string(type.tiles));
  node.parts = type.tiles / node.blocks_in;
  if (node.parts > partitions::most)
    in.refuse(name, "a block of " + std::to_string(node.parts) + " tiles; at most " + std::to_string(partitions::most) +
                        ", so take larger ones");
  node.what.name = std::move(name);
  if (how.what != collective::reduce || comm.rank() == how.root)
    node.what.output = stream_type{type.type, type.shape, node.parts * node.blocks_out};
  return in.add(std::move(node));
}

stream_base flow::add_outside(std::string name, std::string kind, const stream_base& input, communicator& comm,
                              std::shared_ptr<flow_outside> by, const collective_options& options) {
  inside& in = here();
  inside::described node = in.of_all_ranks(name, &input, comm, options);
  if (!by) in.refuse(name, "nobody is named who performs it");
  node.kind = collective::all_reduce;  // as many tiles as it takes, in one block
  node.outside_kind = std::move(kind);
  node.outside = std::move(by);
  node.parts = input.type().tiles;
  node.what.name = std::move(name);
  node.what.output = input.type();
  return *in.add(std::move(node));
}

stream_base flow::promise(std::string name, const stream_type& what) {
  inside& in = here();
  in.check_open();
  stream_base promised = in.make_stream(-1, what);
  in.streams.back().promise = std::move(name);
  return promised;
}

void flow::fulfil(const stream_base& promised, const stream_base& by) {
  inside& in = here();
  in.check_open();
  inside::stream_of& open = in.streams[static_cast<std::size_t>(in.stream_id(promised, "close()"))];
  const int with = in.stream_id(by, "close()");
  if (open.node >= 0) in.refuse("close() of a stream that has a node; it is for those that later() has promised");
  if (open.closed_by >= 0) in.refuse(open.promise, "it was closed before");
  if (in.resolved(with) == promised.id_) in.refuse(open.promise, "it cannot be closed with itself");
  if (open.type.shape != by.type().shape || open.type.tiles != by.type().tiles)
    in.refuse(open.promise, "promised were " + std::to_string(open.type.tiles) + " tiles of shape " +
                                to_string(open.type.shape) + ", and come " + std::to_string(by.type().tiles) +
                                " of shape " + to_string(by.type().shape));
  open.closed_by = with;
}

int flow::inside::resolved(int stream) const {
  while (streams[static_cast<std::size_t>(stream)].closed_by >= 0)
    stream = streams[static_cast<std::size_t>(stream)].closed_by;
  return stream;
}

}  // namespace troupe
