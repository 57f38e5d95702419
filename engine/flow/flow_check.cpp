// SPDX-License-Identifier: Apache-2.0
// The graph as a whole: what is wrong with it, its plan, its memory and its operations.
#include <algorithm>
#include <new>

#include "actors/flow/rehearsal.hpp"
#include "engine/flow/flow_inside.hpp"
#include "memory/error.hpp"

namespace troupe {

// -- memory of a stream ---------------------------------------------------------------------------------------------------

stream_memory::stream_memory(std::shared_ptr<std::pmr::memory_resource> from, std::size_t tile_bytes, int slots,
                             int blocks)
    : tile_bytes_(tile_bytes), parts_(slots / blocks), blocks_(blocks) {
  constexpr std::size_t alignment = 64;  // a cache line, and no vector is longer
  const std::size_t bytes = tile_bytes * static_cast<std::size_t>(slots);
  auto* const piece = static_cast<std::byte*>(from->allocate(bytes, alignment));
  data_ = {piece, [from = std::move(from), bytes](std::byte* what) { from->deallocate(what, bytes, alignment); }};
}

std::byte* stream_memory::at(int slot) const {
  const int place = slot % blocks_ * parts_ + slot / blocks_;
  return data_.get() + static_cast<std::size_t>(place) * tile_bytes_;
}

stream_memory stream_memory::block(int which) const {
  stream_memory part;
  part.tile_bytes_ = tile_bytes_;
  part.parts_ = parts_;
  part.data_ = {data_, data_.get() + static_cast<std::size_t>(which) * static_cast<std::size_t>(parts_) * tile_bytes_};
  return part;
}

// -- checks ---------------------------------------------------------------------------------------------------------------

void flow::check() { here().check(); }

void flow::inside::check() {
  if (checked) return;
  if (nodes.empty()) refuse("it has no nodes");
  check_ports();
  check_order();
  check_cycles();
  plan_graph();
  rehearse();
  lay_memory();
  prepare_operations();
  for (std::size_t n = 0; n < nodes.size(); ++n) states.emplace_back(*plan, static_cast<std::int32_t>(n));
  checked = true;
}

void flow::inside::check_ports() const {
  std::vector<bool> read(streams.size());
  for (const described& node : nodes)
    for (const int s : node.inputs) {
      const stream_of& end = streams[static_cast<std::size_t>(resolved(s))];
      if (end.node < 0)
        refuse(node.what.name, "its input " + end.promise +
                                   " was promised by later(), and no node gives it; call close() with one that does");
      read[static_cast<std::size_t>(resolved(s))] = true;
    }
  for (std::size_t s = 0; s < streams.size(); ++s)
    if (streams[s].node >= 0 && !read[s])
      refuse(nodes[static_cast<std::size_t>(streams[s].node)].what.name,
             "nobody takes its tiles; give its stream to an operator, a collective or a sink");
}

/// Which streams come as they arrive: those of collectives that are set so, and of operators that take one of those.
void flow::inside::check_order() const {
  std::vector<int> unordered(streams.size(), -1);  // the collective
  for (bool more = true; more;) {
    more = false;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const described& node = nodes[n];
      if (node.output < 0 || unordered[static_cast<std::size_t>(node.output)] >= 0) continue;
      int cause = node.collects && node.order == tile_order::as_arrived ? static_cast<int>(n) : -1;
      if (!node.collects)
        for (const int s : node.inputs) cause = std::max(cause, unordered[static_cast<std::size_t>(resolved(s))]);
      unordered[static_cast<std::size_t>(node.output)] = cause;
      more = more || cause >= 0;
    }
  }
  for (const described& node : nodes)
    for (const int s : node.inputs) {
      const int cause = unordered[static_cast<std::size_t>(resolved(s))];
      if (cause < 0 || node.collects || (node.inputs.size() == 1 && node.what.every == 1 && node.what.lead == 0))
        continue;
      refuse(node.what.name, "it needs its tiles in the order of their numbers, and those of collective " +
                                 nodes[static_cast<std::size_t>(cause)].what.name +
                                 " come as they arrive; give that tile_order::by_index");
    }
}

void flow::inside::check_cycles() const {
  enum class mark { unseen, on_path, done };
  std::vector<mark> marks(nodes.size(), mark::unseen);
  std::vector<std::size_t> path;
  const auto visit = [&](const auto& self, std::size_t n) -> void {
    if (marks[n] == mark::done) return;
    if (marks[n] == mark::on_path) {
      std::string way;
      for (auto at = std::find(path.begin(), path.end(), n); at != path.end(); ++at)
        way = nodes[*at].what.name + " → " + way;
      refuse("the nodes " + nodes[n].what.name + " → " + way.substr(0, way.size() - std::string{" → "}.size()) +
             " wait for each other's tiles: a cycle needs a buffer() in it, which gives the first ones");
    }
    marks[n] = mark::on_path;
    path.push_back(n);
    if (nodes[n].what.lead == 0)  // a buffer gives tiles before it takes any
      for (const int s : nodes[n].inputs)
        self(self, static_cast<std::size_t>(streams[static_cast<std::size_t>(resolved(s))].node));
    path.pop_back();
    marks[n] = mark::done;
  };
  for (std::size_t n = 0; n < nodes.size(); ++n) visit(visit, n);
}

// -- the plan -------------------------------------------------------------------------------------------------------------

void flow::inside::plan_graph() {
  plan = std::make_shared<actors::flow_plan>();
  plan->name = name;
  for (const stream_of& s : streams) {
    actors::flow_stream planned;
    planned.from = s.node;
    planned.tiles = s.type.tiles;
    if (s.node >= 0) {
      const described& giver = nodes[static_cast<std::size_t>(s.node)];
      planned.credit = std::min(giver.what.options.credit, s.type.tiles);
      planned.kept = giver.collects;
      planned.in_order = giver.order == tile_order::by_index;
    }
    plan->streams.push_back(std::move(planned));
  }
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const described& node = nodes[n];
    actors::flow_node planned;
    planned.name = node.what.name;
    planned.kind = node.collects ? actors::flow_node::kind_of::collective : actors::flow_node::kind_of::work;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const int s = resolved(node.inputs[i]);
      planned.inputs.push_back(s);
      actors::flow_stream& read = plan->streams[static_cast<std::size_t>(s)];
      read.to.push_back({static_cast<std::int32_t>(n), static_cast<std::int32_t>(i)});
      read.kept = read.kept || node.collects;
    }
    planned.output = node.output;
    planned.taken = node.inputs.empty() ? node.what.output->tiles
                                        : plan->streams[static_cast<std::size_t>(planned.inputs[0])].tiles;
    planned.lead = node.what.lead;
    planned.every = node.what.every;
    if (node.collects) {
      planned.parts = node.parts, planned.blocks_in = node.blocks_in, planned.blocks_out = node.blocks_out;
      planned.given = node.what.output ? node.what.output->tiles : 0;
    }
    plan->nodes.push_back(std::move(planned));
  }
}

std::string flow::inside::waits_text(const actors::flow_wait& what) const {
  using what_for = actors::flow_wait::what_for;
  const auto giver = [&] {
    return plan->nodes[static_cast<std::size_t>(plan->streams[static_cast<std::size_t>(what.stream)].from)].name;
  };
  switch (what.what) {
    case what_for::nothing: return {};
    case what_for::work: return "is at work on tile " + std::to_string(what.index);
    case what_for::tile: return "waits for tile " + std::to_string(what.index) + " of " + giver();
    case what_for::part: return "waits for the other ranks' parts of tile " + std::to_string(what.index);
    case what_for::credit: {
      std::string readers;
      for (const actors::flow_port& to : plan->streams[static_cast<std::size_t>(what.stream)].to)
        readers += (readers.empty() ? "" : " and ") + plan->nodes[static_cast<std::size_t>(to.node)].name;
      return "has given " + std::to_string(plan->streams[static_cast<std::size_t>(what.stream)].credit) +
             " tiles, and waits until " + readers +
             (plan->streams[static_cast<std::size_t>(what.stream)].to.size() > 1 ? " give" : " gives") + " one back";
    }
  }
  return {};
}

std::string flow::inside::waits_texts(const std::vector<actors::flow_wait>& all) const {
  std::string text;
  for (std::size_t n = 0; n < all.size(); ++n)
    if (const std::string one = waits_text(all[n]); !one.empty())
      text += (text.empty() ? "" : "; ") + plan->nodes[n].name + " " + one;
  return text;
}

void flow::inside::rehearse() const {
  const actors::flow_rehearsal played = actors::rehearse(*plan);
  if (played.ends) return;
  refuse("it would stop before its end (" + waits_texts(played.waits) +
         "); give the nodes that wait for tiles to come back a larger credit");
}

// -- memory and operations ------------------------------------------------------------------------------------------------

void flow::inside::lay_memory() {
  memory.resize(streams.size());
  for (std::size_t s = 0; s < streams.size(); ++s) {
    if (streams[s].node < 0) continue;
    const actors::flow_stream& planned = plan->streams[s];
    const described& giver = nodes[static_cast<std::size_t>(streams[s].node)];
    int blocks = giver.collects ? giver.blocks_out : 0;
    std::string laid = giver.what.name;
    for (const actors::flow_port& to : planned.to) {
      const described& reader = nodes[static_cast<std::size_t>(to.node)];
      if (!reader.collects) continue;
      if (blocks != 0 && blocks != reader.blocks_in)
        refuse(reader.what.name,
               "it needs the tiles of " + giver.what.name + " in " + std::to_string(reader.blocks_in) +
                   (reader.blocks_in == 1 ? " block, and " : " blocks, and ") + laid + " has them in " +
                   std::to_string(blocks) + "; put a map() between, whose tiles are its own");
      blocks = reader.blocks_in;
      laid = reader.what.name;
    }
    memory[s] = memory_of(s, planned.kept ? planned.tiles : planned.credit, std::max(1, blocks));
  }
  for (std::size_t s = 0; s < streams.size(); ++s) lay_in_place(s);
}

stream_memory flow::inside::memory_of(std::size_t stream, int slots, int blocks) const {
  const stream_type& type = streams[stream].type;
  const auto problem = [&](errc code, const std::string& what) {
    return error(code, "flow " + name + ": node " + nodes[static_cast<std::size_t>(streams[stream].node)].what.name +
                           ": " + what + " " + std::to_string(slots) + " tiles of " +
                           std::string{troupe::name(type.type)} + " " + to_string(type.shape) +
                           ", which its stream holds at a time; make them smaller, or fewer by its credit");
  };
  std::size_t bytes = 0, all = 0;
  if (__builtin_mul_overflow(type.shape.elements(), size_of(type.type), &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<std::size_t>(slots), &all))
    throw problem(errc::size_overflow, "no memory can have");
  try {
    const std::shared_ptr<std::pmr::memory_resource> from{core->memory, &core->memory->pooled()};
    return stream_memory{from, bytes, slots, blocks};
  } catch (const std::bad_alloc&) {
    throw problem(errc::out_of_memory, "there is no memory for");
  }
}

/// An operator writes its tiles for an all_gather or a broadcast where they belong in the result: so nobody copies them there.
void flow::inside::lay_in_place(std::size_t stream) {
  if (streams[stream].node < 0 || nodes[static_cast<std::size_t>(streams[stream].node)].collects) return;
  const described* by = nullptr;
  for (const actors::flow_port& to : plan->streams[stream].to) {
    const described& reader = nodes[static_cast<std::size_t>(to.node)];
    if (!reader.collects) continue;
    if (by != nullptr) return;  // another one reads it, too
    if (reader.kind != collective::all_gather && reader.kind != collective::broadcast) return;
    by = &reader;
  }
  if (by == nullptr) return;
  const int block = by->kind == collective::all_gather ? by->comm->rank() : 0;
  memory[stream] = memory[static_cast<std::size_t>(by->output)].block(block);
}

void flow::inside::prepare_operations() {
  operation_of.assign(nodes.size(), -1);
  std::vector<communicator*> communicators;
  for (const described& node : nodes)
    if (node.collects && std::none_of(communicators.begin(), communicators.end(),
                                      [&](communicator* c) { return state_of(*c) == state_of(*node.comm); }))
      communicators.push_back(node.comm);
  for (communicator* comm : communicators) {
    auto made = std::make_unique<operation>();
    made->comm = comm;
    const auto n = static_cast<std::size_t>(comm->size());
    made->votes.resize(n + 1);  // this rank's, and behind it all ranks'
    made->what =
        comm->all_gather_init(std::span{made->votes}.first(1), std::span{made->votes}.subspan(1), partitions(1));
    operations.push_back(std::move(made));
    const communicator_state& of = *state_of(*comm);
    ranks.push_back({&of.cell(comm->rank()), of.table->waiting().yields});
  }
  agreements = static_cast<int>(operations.size());
  if (!communicators.empty()) rank = communicators.front()->rank();
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const described& node = nodes[n];
    if (!node.collects) continue;
    auto made = std::make_unique<operation>();
    made->node = static_cast<int>(n);
    made->comm = node.comm;
    operation_of[n] = static_cast<int>(operations.size());
    if (node.outside) {
      made->outside = node.outside;
      operations.push_back(std::move(made));
      continue;
    }
    // A rank has both but for a broadcast that it receives and a reduction that it sends.
    const auto end = static_cast<std::size_t>(node.output >= 0 ? node.output : resolved(node.inputs[0]));
    const auto begin = node.inputs.empty() ? end : static_cast<std::size_t>(resolved(node.inputs[0]));
    const stream_type& type = streams[end].type;
    const std::size_t block = type.shape.elements() * static_cast<std::size_t>(node.parts);
    call_description call = calls::any(node.kind, memory[begin].data(), node.output >= 0 ? memory[end].data() : nullptr,
                                       block, type.type, node.reduction, node.root);
    made->what = node.comm->prepare(std::move(call), partitions(node.parts));
    operations.push_back(std::move(made));
  }
  for (std::size_t o = 0; o < operations.size(); ++o) {
    const int node = operations[o]->node;
    if (node < 0 || operations[o]->outside) continue;
    for (int part = 0; part < operations[o]->what.output_parts(); ++part)
      operations[o]->what.then(part, [to = under_way, node](int which) {
        if (const auto run = to->get()) run->arrived(node, which);
      });
  }
}

std::string flow::describe() const {
  const inside& in = here();
  std::string text;
  for (const inside::described& node : in.nodes) {
    text += node.what.name;
    if (node.collects)
      text += " (" + (node.outside ? node.outside_kind : std::string{troupe::name(node.kind)}) + " of " +
              node.comm->name() + ")";
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const auto& from = in.streams[static_cast<std::size_t>(in.resolved(node.inputs[i]))];
      text += (i == 0 ? " ← " : ", ") +
              (from.node < 0 ? from.promise : in.nodes[static_cast<std::size_t>(from.node)].what.name);
    }
    if (node.what.output)
      text += ": " + std::to_string(node.what.output->tiles) + " tiles of " +
              std::string{troupe::name(node.what.output->type)} + " " + to_string(node.what.output->shape) +
              ", credit " + std::to_string(node.what.options.credit);
    text += "\n";
  }
  return text;
}

}  // namespace troupe
