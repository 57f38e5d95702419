// SPDX-License-Identifier: Apache-2.0
#pragma once
// NICs that perform collectives, and a network between them that delivers what it likes when it likes, from a seed. No time passes but
// where nothing else can happen.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/elements/offload/offload_nic.hpp"
#include "protocols/offload/offload_compiler.hpp"
#include "protocols/verify/reduction_forest.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/protocols/reference.hpp"

namespace troupe::actors {

/// A call of 64-bit integers or floats, and the memory of all its ranks.
class offloaded_call {
public:
  offloaded_call(const score& s, std::size_t count, const offload_config& nic,
                 std::vector<offload::endpoint> places = {}, int credits = 8)
      : notes_(s), verified_(verify(s, {credits, 1})), shape_{count, {}, {}, {}, 8} {
    const auto all = offload::compile(s, shape_, {credits, places, nic.packet_bytes / 8});
    for (const offload::rank_program& p : all) {
      programs_.push_back(std::make_shared<const offload::rank_program>(p));
      buffers_.emplace_back(notes_, p.rank, shape_);
      scratch_.emplace_back(p.scratch_bytes);
    }
  }
  offloaded_call(const offloaded_call&) = delete;

  int ranks() const { return notes_.ranks; }
  const offload::rank_program& program(rank_t r) const { return *programs_[at(r)]; }
  /// Numbers whose sums depend on the order of adding.
  void use_floats() {
    type_ = datatype::f64;
    for (rank_t r = 0; r < ranks(); ++r) {
      const std::size_t words = input_bytes(notes_.what, ranks(), notes_.root, r, shape_) / 8;
      for (std::size_t i = 0; i < words; ++i) {
        std::int64_t whole = 0;
        std::memcpy(&whole, buffers_[at(r)].input() + 8 * i, 8);
        const double number = as_float(whole);
        std::memcpy(buffers_[at(r)].input() + 8 * i, &number, 8);
      }
    }
  }
  offload_posting posting(offload_job job, rank_t r) {
    memory_map memory;
    memory.input = buffers_[at(r)].input();
    memory.output = buffers_[at(r)].output();
    memory.scratch = scratch_[at(r)].data();
    return {job, programs_[at(r)], memory, type_, sum};
  }

  /// Outputs that are not what the collective is, of all ranks.
  std::size_t wrong() {
    std::size_t bad = 0;
    for (rank_t r = 0; r < ranks(); ++r) bad += type_ == datatype::f64 ? wrong_floats(r) : buffers_[at(r)].wrong();
    return bad;
  }

private:
  static std::size_t at(rank_t r) { return static_cast<std::size_t>(r); }
  static double as_float(std::int64_t whole) {
    return static_cast<double>(whole % 1'000'003) / 7.0 * (whole % 2 ? 1e9 : 1);
  }

  /// Bit by bit: added in the order of the tree that the verifier has found.
  std::size_t wrong_floats(rank_t r) {
    std::size_t bad = 0, element = 0;
    const block_run out = output_blocks(notes_.what, ranks(), notes_.root, r);
    for (int i = 0; i < out.count; ++i) {
      const std::int64_t block = out.first + std::int64_t{i} * out.stride;
      for (std::int32_t part = 0; part < notes_.parts; ++part) {
        const element_range cell =
            cut_range({0, shape_.count}, static_cast<std::size_t>(notes_.parts), static_cast<std::size_t>(part));
        for (std::size_t e = cell.begin; e < cell.end; ++e, ++element) {
          const double expected = value(verified_.forest->output(r, i * notes_.parts + part), block, e);
          bad += std::memcmp(&expected, buffers_[at(r)].output() + 8 * element, 8) != 0;
        }
      }
    }
    return bad;
  }
  double value(reduction_forest::node_id n, std::int64_t block, std::size_t e) const {
    const reduction_forest& f = *verified_.forest;
    if (f.is_leaf(n)) return as_float(reference::contribution(f.contributor(n), block, e));
    return value(f.left(n), block, e) + value(f.right(n), block, e);
  }

  score notes_;
  verdict verified_;
  call_shape shape_;
  datatype type_ = datatype::i64;
  std::vector<std::shared_ptr<const offload::rank_program>> programs_;
  std::vector<reference::user_buffers> buffers_;
  std::vector<std::vector<std::byte>> scratch_;
};

struct offload_weather {
  double lost = 0, doubled = 0;  ///< probabilities
  bool in_order = false;         ///< what was sent first comes first
};

class offload_network {
public:
  offload_network(int nodes, const offload_config& config, std::uint64_t seed, offload_weather is = {})
      : is_(is), random_(seed) {
    for (int n = 0; n < nodes; ++n) {
      offload_config own = config;
      own.node = static_cast<std::uint32_t>(n);
      nics_.push_back(std::make_unique<offload_nic>(own));
    }
  }

  offload_nic& nic(std::size_t n) { return *nics_[n]; }
  picoseconds now() const { return now_; }
  std::string post(offloaded_call& call, offload_job job, rank_t r) {
    return nic(call.program(r).at.node).post(call.posting(job, r));
  }
  void post_all(offloaded_call& call, offload_job job) {
    for (rank_t r = 0; r < call.ranks(); ++r)
      if (const std::string why = post(call, job, r); !why.empty()) throw std::runtime_error(why);
  }

  /// Until nothing happens any more, or `enough` returns true. Returns false where time passes and passes and nothing ends.
  bool run(const std::function<bool()>& enough = [] { return false; }) {
    for (int idle = 0; idle < 3000;) {
      if (enough()) return true;
      if (step()) {
        idle = 0;
        continue;
      }
      std::optional<picoseconds> next;
      for (const auto& n : nics_)
        if (const auto at = n->next_deadline(); at && (!next || *at < *next)) next = at;
      if (!next) return true;
      now_ = std::max(now_, *next);
      for (const auto& n : nics_) n->elapse(now_);
      ++idle;
    }
    return false;
  }

  std::vector<offload_completion> completions;
  std::vector<std::uint64_t> steps_at_completion;
  std::uint64_t steps = 0;
  /// Where set, chooses among so many messages that wait for the node; others come in order.
  std::function<std::size_t(std::size_t)> choose;
  std::uint32_t chosen_node = 0;

private:
  using message = std::variant<offload_packet, offload_response>;
  std::size_t below(std::size_t n) { return random_() % n; }
  bool chance(double p) { return std::uniform_real_distribution<double>{0, 1}(random_) < p; }

  /// One thing that can happen, at random.
  bool step() {
    ++steps;
    const std::size_t begin = below(nics_.size());
    for (std::size_t k = 0; k < nics_.size(); ++k) {
      offload_nic& n = *nics_[(begin + k) % nics_.size()];
      while (auto c = n.next_completion()) completions.push_back(*c), steps_at_completion.push_back(steps);
    }
    const bool deliver_first = !choose && !under_way_.empty() && chance(0.5);
    if (deliver_first) return deliver();
    for (std::size_t k = 0; k < nics_.size(); ++k)
      if (let_work(*nics_[(begin + k) % nics_.size()])) return true;
    return deliver();
  }

  bool let_work(offload_nic& n) {
    const int units = n.config().units, first = static_cast<int>(below(static_cast<std::size_t>(units)));
    for (int u = 0; u < units; ++u)
      if (n.work((first + u) % units, now_)) return true;
    if (auto r = n.next_response()) return send(*r);
    if (auto p = n.next_packet(now_)) return send(std::move(*p));
    return false;
  }

  bool send(message m) {
    if (chance(is_.lost)) return true;
    if (chance(is_.doubled)) under_way_.push_back(m);
    under_way_.push_back(std::move(m));
    return true;
  }

  bool deliver() {
    if (under_way_.empty()) return false;
    std::size_t which = is_.in_order ? 0 : below(under_way_.size());
    if (choose) which = chosen();
    message m = std::move(under_way_[which]);
    under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(which));
    if (auto* p = std::get_if<offload_packet>(&m)) {
      const std::uint32_t to = p->on.dest_node;
      nic(to).arrive(std::move(*p), now_);
    } else {
      const auto& r = std::get<offload_response>(m);
      nic(r.on.source_node).respond(r, now_);
    }
    return true;
  }
  std::size_t chosen() {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < under_way_.size(); ++i) {
      const auto* p = std::get_if<offload_packet>(&under_way_[i]);
      if (p == nullptr || p->on.dest_node != chosen_node) return i;
      open.push_back(i);
    }
    return open[choose(open.size())];
  }

  offload_weather is_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<offload_nic>> nics_;
  std::deque<message> under_way_;
  picoseconds now_{0};
};

}  // namespace troupe::actors
