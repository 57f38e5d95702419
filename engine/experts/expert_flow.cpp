// SPDX-License-Identifier: Apache-2.0
// What the nodes of experts do with a tile: forward and back.
#include "engine/experts/expert_flow.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/experts/expert_node.hpp"
#include "engine/experts/expert_tape.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

using tape_inside = expert_access::tape;

/// work(expert, bytes before its rows, how many) for each expert that has some.
template <class Work>
void for_each_expert(const std::span<const std::int32_t> experts, const std::span<const std::size_t> counts,
                     std::size_t row_bytes, Work&& work) {
  std::size_t before = 0;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    if (counts[e] > 0) work(experts[e], before, counts[e]);
    before += counts[e] * row_bytes;
  }
}

class forward_pass final : public expert_pass {
public:
  /// @param tape null: nothing is kept
  forward_pass(expert_access::inside& through, detail::expert_functions what, std::shared_ptr<tape_inside> tape,
               const stream_type& tokens)
      : through_(&through),
        what_(std::move(what)),
        tape_(std::move(tape)),
        elements_(tokens.shape.elements()),
        tiles_(static_cast<std::uint64_t>(tokens.tiles)),
        ids_(tokens.shape[0] * static_cast<std::size_t>(through.options_.top_k)),
        weights_(ids_.size()) {}

  void start(const std::string& who) override {
    if (tape_) tape_->forward_starts(who);
  }

  void perform(const tile_place& in, const tile_place& out, expert_dispatch& dispatch) override {
    const datatype type = through_->options_.type;
    what_.route(in, ids_, weights_);
    dispatch.begins();
    through_->start(in.data, elements_, type, ids_, weights_, tiles_, tape_ ? tape_->tiles : nullptr);
    dispatch.begun();
    while (const auto part = through_->next_part(type)) {
      auto* const rows = static_cast<std::byte*>(part->what.rows);
      for_each_expert(part->what.experts, part->what.counts, through_->result_bytes(),
                      [&](std::int32_t expert, std::size_t before, std::size_t count) {
                        what_.compute({in.index, expert, part->from}, rows + before, count);
                      });
      through_->ready(part->from);
    }
    through_->combine_early(out.data, elements_, type);
    dispatch.combined();
    if (!tape_) return;
    auto& kept = tape_->at(in.index);
    through_->exchange_record(kept.record);
    kept.ids = ids_;
    tape_->keep(in.index);
  }

private:
  expert_access::inside* const through_;  ///< where it stays, wherever the exchange is moved
  const detail::expert_functions what_;
  const std::shared_ptr<tape_inside> tape_;
  const std::size_t elements_;
  const std::uint64_t tiles_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
};

class backward_pass final : public expert_pass {
public:
  backward_pass(expert_access::inside& through, detail::expert_back_functions what, std::shared_ptr<tape_inside> tape,
                const stream_type& gradients)
      : through_(&through),
        what_(std::move(what)),
        tape_(std::move(tape)),
        tiles_(static_cast<std::uint64_t>(gradients.tiles)),
        weights_(gradients.shape[0] * static_cast<std::size_t>(through.options_.top_k)) {}

  void start(const std::string&) override { tape_->back_starts(); }
  void ended() noexcept override { tape_->back_ended(); }

  void perform(const tile_place& in, const tile_place& out, expert_dispatch& dispatch) override {
    auto& kept = tape_->take(in.index);
    dispatch.begins();
    through_->start_back(kept.record, tape_->tiles, in.data, tiles_);
    dispatch.begun();
    while (const auto part = through_->next_gradients()) {
      auto* const rows = static_cast<std::byte*>(part->what.rows);
      const std::byte* const results = through_->results_of_part(part->from);
      for_each_expert(part->what.experts, part->what.counts, through_->result_bytes(),
                      [&](std::int32_t expert, std::size_t before, std::size_t count) {
                        what_.compute({in.index, expert, part->from}, results + before, rows + before, count);
                      });
      through_->ready(part->from);
    }
    through_->combine_back(kept.record, out.data, weights_);
    dispatch.combined();
    what_.route(out, kept.ids, weights_);
  }

private:
  expert_access::inside* const through_;
  const detail::expert_back_functions what_;
  const std::shared_ptr<tape_inside> tape_;
  const std::uint64_t tiles_;
  std::vector<float> weights_;
};

}  // namespace

stream_base detail::add_experts(flow& to, std::string name, const stream_base& tokens, expert_exchange& through,
                                expert_tape* tape, expert_functions what, const collective_options& options) {
  const std::string who = "flow " + to.name() + ": node " + name + ": ";
  check_fits(through, tokens, who);
  expert_access::inside& in = expert_access::in(through);
  const auto keeps = tape != nullptr ? expert_access::in(*tape) : nullptr;
  if (tape != nullptr && (!keeps || !keeps->forward.expired() || !keeps->back.expired()))
    throw error(errc::invalid_argument,
                who + (keeps ? "its tape is another node's already; each needs one of its own" : "its tape was moved"));
  const auto node = std::make_shared<expert_node>(
      in, std::make_unique<forward_pass>(in, std::move(what), keeps, tokens.type()), tokens.type().tiles);
  const stream_base gives = to.add_outside(std::move(name), "experts", tokens, in.comm_, node, options);
  if (keeps) {
    keeps->describe(in, tokens.type());
    keeps->forward = node;
  }
  in.node_ = node;
  return gives;
}

stream_base detail::add_experts_backward(flow& to, std::string name, const stream_base& gradients,
                                         expert_exchange& through, expert_tape& tape, expert_back_functions what,
                                         const collective_options& options) {
  const std::string who = "flow " + to.name() + ": node " + name + ": ";
  check_fits(through, gradients, who);
  expert_access::inside& in = expert_access::in(through);
  const auto by = expert_access::in(tape);
  if (const std::string wrong = by ? by->mismatch(in, gradients.type()) : "its tape was moved"; !wrong.empty())
    throw error(errc::invalid_argument, who + wrong);
  const auto node = std::make_shared<expert_node>(
      in, std::make_unique<backward_pass>(in, std::move(what), by, gradients.type()), gradients.type().tiles);
  const stream_base gives = to.add_outside(std::move(name), "experts back", gradients, in.comm_, node, options);
  by->back = node;
  in.node_ = node;
  return gives;
}

}  // namespace troupe
