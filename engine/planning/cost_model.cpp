// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/cost_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "actors/elements/nic_state.hpp"
#include "memory/flat_index.hpp"
#include "topology/machine/routes.hpp"

namespace troupe {

namespace {

constexpr int longest_rehearsal = 4;  // slices; where several go together, two groups

std::uint64_t queue_key(rank_t from, rank_t to, std::size_t lane) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 40 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(to)) << 16 | (lane & 0xffffu);
}

/// A local step that only continues the pass its predecessor began (see `fold` in program.hpp) moves half the bytes.
bool continues(const lane& steps, std::size_t i) {
  if (i == 0 || steps[i].after.lane >= 0) return false;
  const step& before = steps[i - 1];
  const bool local = before.kind == step_kind::copy || before.kind == step_kind::reduce;
  if (!local) return false;
  if (steps[i].kind == step_kind::reduce) return steps[i].target == before.target;
  return steps[i].kind == step_kind::copy &&
         (before.kind == step_kind::reduce ? steps[i].source == before.target : steps[i].source == before.source);
}

}  // namespace

std::size_t size_class(std::size_t bytes) {
  if (bytes < 8) return bytes;
  const int drop = static_cast<int>(std::bit_width(bytes)) - 3;
  return bytes >> drop << drop;
}

/// Numbers the elements that messages pass, where they pass any.
class timing_sheet::passage {
public:
  explicit passage(const machine* hardware) : hardware_(hardware) {}

  std::uint32_t elements() const { return static_cast<std::uint32_t>(numbers_.size()); }

  /// As channel 0 goes. The others take the next ports of the same NICs, so that each port has as much to do on the whole.
  void append(rank_t from, rank_t to, std::vector<crossing>& list) {
    if (hardware_ == nullptr) return;
    route_between(*hardware_, from, to, 0, way_);
    bool left = false;  // the sender's server
    for (const hop& h : way_.hops) {
      // The two ways through a DMA engine are one actor, those through a NIC as well.
      const auto number = static_cast<std::int32_t>(numbers_.size());
      const std::int32_t element = numbers_.try_emplace(static_cast<std::uint64_t>(h.id), number).first;
      const bool arrives = h.kind == element_kind::nic && h.way == direction::in;
      const bool at_memory = h.kind == element_kind::dma || h.kind == element_kind::host;
      const bool leaves_memory = at_memory && h.way == direction::out;
      list.push_back({static_cast<std::uint32_t>(element), leaves_memory || arrives, left && !at_memory});
      left = left || h.kind == element_kind::nic;
    }
  }

private:
  const machine* hardware_;
  flat_index numbers_{64};  ///< by id
  route way_;
};

timing_sheet::timing_sheet(const score& s, const reach_map* where, const machine* elements) {
  passage passed(elements);
  const std::size_t total = step_total(s);
  flat_index queues(total / 2);
  const auto queue = [&](rank_t from, rank_t to, std::size_t l) {
    const auto [at, fresh] = queues.try_emplace(queue_key(from, to, l), static_cast<std::int32_t>(queues.size()));
    if (fresh) {
      receiver_.push_back(-1), sender_.push_back(-1), first_message_.push_back(0);
      const int way =
          where == nullptr ? 0 : static_cast<int>(where->link_between(from, to)) + where->borders_between(from, to);
      way_.push_back(static_cast<std::uint8_t>(way));
      first_crossing_.push_back(static_cast<std::uint32_t>(crossings_.size()));
      passed.append(from, to, crossings_);
    }
    return at;
  };
  steps_.reserve(total);
  for (std::size_t r = 0; r < s.players.size(); ++r) {
    const auto& lanes = s.players[r].lanes;
    first_lane_.push_back(static_cast<std::uint32_t>(lanes_.size()));
    std::vector<std::size_t> begins{steps_.size()};
    for (const lane& l : lanes) begins.push_back(begins.back() + l.size());
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      const auto number = static_cast<std::int32_t>(lanes_.size());
      lanes_.push_back({static_cast<std::uint32_t>(begins[l]), static_cast<std::uint32_t>(begins[l + 1]),
                        static_cast<std::int32_t>(r)});
      for (std::size_t i = 0; i < lanes[l].size(); ++i) {
        const step& from = lanes[l][i];
        timed_step to;
        if (receives(from.kind))
          receiver_[static_cast<std::size_t>(to.receives = queue(from.from, static_cast<rank_t>(r), l))] = number;
        if (sends(from.kind)) {
          const auto q = static_cast<std::size_t>(to.sends = queue(static_cast<rank_t>(r), from.to, l));
          sender_[q] = number;
          ++first_message_[q];
        }
        if (from.after.lane >= 0)
          to.after = static_cast<std::int32_t>(begins[static_cast<std::size_t>(from.after.lane)]) + from.after.step;
        to.cells = std::max(from.source.count, from.target.count);
        to.continues = continues(lanes[l], i);
        to.by_engine = elements != nullptr && (from.kind == step_kind::dma_get || from.kind == step_kind::dma_put);
        if (reduces(from.kind)) to.reduced = 1;
        else if (writes(from.kind) && !(from.kind == step_kind::copy && from.source == from.target)) to.copied = 1;
        steps_.push_back(to);
      }
    }
  }
  first_lane_.push_back(static_cast<std::uint32_t>(lanes_.size()));
  first_message_.push_back(0);
  std::exclusive_scan(first_message_.begin(), first_message_.end(), first_message_.begin(), 0u);
  first_crossing_.push_back(static_cast<std::uint32_t>(crossings_.size()));
  elements_ = passed.elements();
}

/// Runs the lanes in model time. Lanes never choose, so the order in which they are looked at does not matter.
class rehearsal {
public:
  rehearsal(const timing_sheet& sheet, double bytes, const slice_order& order, int credits,
            const machine_constants& machine)
      : sheet_(sheet),
        machine_(machine),
        per_cell_copy_(bytes / machine.copy_rate),
        per_cell_reduce_(bytes / machine.reduce_rate),
        bytes_(bytes),
        order_(order),
        credits_(static_cast<std::size_t>(credits)),
        at_(sheet.lanes_.size()),
        ends_(sheet.steps_.size() * static_cast<std::size_t>(order.slices), -1),
        queues_(sheet.receiver_.size()),
        arrivals_(sheet.first_message_.back() * static_cast<std::size_t>(order.slices)),
        taken_(arrivals_.size()),
        busy_(sheet.first_lane_.size(), 0),
        lane_busy_(sheet.lanes_.size(), 0),
        element_busy_(sheet.elements_ + 1, 0),
        sent_(sheet.first_lane_.size(), 0),
        slice_ends_(static_cast<std::size_t>(order.slices), 0) {}

  /// Whether every lane came to its end.
  bool run() {
    for (std::size_t l = sheet_.lanes_.size(); l-- > 0;) wake(static_cast<std::int32_t>(l));
    while (!ready_.empty()) {
      const auto l = static_cast<std::size_t>(ready_.back());
      ready_.pop_back();
      at_[l].queued = false;
      advance(l);
    }
    return std::all_of(sheet_.lanes_.begin(), sheet_.lanes_.end(), [&, l = std::size_t{0}](const auto& lane) mutable {
      return at_[l++].where.step == lane.end - lane.begin;
    });
  }

  double end_of(int slice) const { return slice_ends_[static_cast<std::size_t>(slice)]; }
  double busiest_rank() const { return *std::max_element(busy_.begin(), busy_.end()); }
  /// What a rank does in other lanes than its busiest one.
  double beside_a_lane() const {
    double most = 0;
    for (std::size_t r = 0; r + 1 < sheet_.first_lane_.size(); ++r) {
      const auto first = lane_busy_.begin() + sheet_.first_lane_[r],
                 last = lane_busy_.begin() + sheet_.first_lane_[r + 1];
      if (first != last) most = std::max(most, busy_[r] - *std::max_element(first, last));
    }
    return most;
  }
  /// Elements take one chunk after the other, so nobody is done sooner; in which order they come is left open.
  double busiest_element() const { return *std::max_element(element_busy_.begin(), element_busy_.end()); }
  double work() const { return work_; }

private:
  struct position {
    slice_order::position where;
    double clock = 0;
    bool queued = false;
    bool waits_after = false;
  };
  struct queue {
    std::uint32_t sent = 0, taken = 0;  ///< messages so far
  };

  void wake(std::int32_t l) {
    if (l < 0 || at_[static_cast<std::size_t>(l)].queued) return;
    at_[static_cast<std::size_t>(l)].queued = true;
    ready_.push_back(l);
  }

  void advance(std::size_t l) {
    const auto& lane = sheet_.lanes_[l];
    position& p = at_[l];
    if (lane.begin == lane.end) return;
    bool moved = false;
    const std::size_t steps = lane.end - lane.begin;
    while (p.where.step < steps && step_once(l)) {
      moved = true;
      if (p.where.step + 1 == steps) {
        double& end = slice_ends_[static_cast<std::size_t>(p.where.slice)];
        end = std::max(end, p.clock);
      }
      p.where = order_.next(steps, p.where);
    }
    if (!moved) return;
    const auto r = static_cast<std::size_t>(lane.rank);
    for (std::uint32_t other = sheet_.first_lane_[r]; other < sheet_.first_lane_[r + 1]; ++other)
      if (at_[other].waits_after) wake(static_cast<std::int32_t>(other));
  }

  bool step_once(std::size_t l) {
    const auto& lane = sheet_.lanes_[l];
    position& p = at_[l];
    const std::size_t index = lane.begin + p.where.step;
    const auto& s = sheet_.steps_[index];
    const std::size_t offset = sheet_.steps_.size() * static_cast<std::size_t>(p.where.slice);
    double start = p.clock;
    p.waits_after = s.after >= 0 && ends_[offset + static_cast<std::size_t>(s.after)] < 0;
    if (p.waits_after) return false;
    if (s.after >= 0) start = std::max(start, ends_[offset + static_cast<std::size_t>(s.after)]);
    queue* in = s.receives < 0 ? nullptr : &queues_[static_cast<std::size_t>(s.receives)];
    queue* out = s.sends < 0 ? nullptr : &queues_[static_cast<std::size_t>(s.sends)];
    if (in) {
      if (in->sent == in->taken) return false;
      start = std::max(start, arrivals_[message(s.receives, in->taken)]);
    }
    if (out && out->sent >= credits_) {
      const std::size_t wanted = out->sent - credits_;
      if (wanted >= out->taken) return false;
      start = std::max(start, taken_[message(s.sends, wanted)]);
    }
    static constexpr message_costs none{0, 0, 0, 0};
    const message_costs& receiving = in ? costs_of(s.receives) : none;
    const message_costs& sending = out ? costs_of(s.sends) : none;
    const bool continues = s.continues && order_.slices_per_step == 1;
    const double share = continues ? machine_.operand_share : 1;
    const double cost = (continues ? machine_.operand : machine_.step) +
                        s.cells * (share * (s.copied * per_cell_copy_ + s.reduced * per_cell_reduce_) +
                                   bytes_ * (receiving.receive_byte + sending.send_byte));
    const auto rank = static_cast<std::size_t>(lane.rank);
    double end = start + cost;
    if (sending.sending > 0) end = sent_[rank] = std::max(end, sent_[rank]) + sending.sending;
    const double told = s.by_engine ? 2 * machine_.element : 0;
    const double carried = out ? carry(s.sends, s.cells * bytes_) : 0;
    p.clock = ends_[offset + index] = end += told;
    work_ += cost + told + carried + (sending.message - sending.idle) * machine_.message_share;
    busy_[rank] += cost + sending.sending;
    lane_busy_[l] += cost + sending.sending;
    if (in) {
      taken_[message(s.receives, in->taken++)] = p.clock;
      wake(sheet_.sender_[static_cast<std::size_t>(s.receives)]);
    }
    if (out) {
      arrivals_[message(s.sends, out->sent++)] = p.clock + carried + (sending.message - sending.sending);
      wake(sheet_.receiver_[static_cast<std::size_t>(s.sends)]);
    }
    return true;
  }

  /// What the elements between the two ranks of a queue take for a message, one after the other.
  double carry(std::int32_t queue, double bytes) {
    const auto q = static_cast<std::size_t>(queue);
    const double packets = std::max(1.0, std::ceil(bytes / static_cast<double>(actors::nic_state::packet_bytes)));
    double all = 0;
    for (std::uint32_t at = sheet_.first_crossing_[q]; at < sheet_.first_crossing_[q + 1]; ++at) {
      const auto& passed = sheet_.crossings_[at];
      const double one =
          machine_.element * (passed.by_packet ? packets : 1) + (passed.copies ? bytes / machine_.copy_rate : 0);
      element_busy_[passed.element] += one;
      all += one;
    }
    return all;
  }

  const message_costs& costs_of(std::int32_t queue) const {
    return machine_.messages[sheet_.way_[static_cast<std::size_t>(queue)]];
  }
  /// Of a queue: where it stands among all messages.
  std::size_t message(std::int32_t queue, std::size_t number) const {
    return sheet_.first_message_[static_cast<std::size_t>(queue)] * static_cast<std::size_t>(order_.slices) + number;
  }

  const timing_sheet& sheet_;
  const machine_constants& machine_;
  double per_cell_copy_, per_cell_reduce_, bytes_;
  slice_order order_;
  std::size_t credits_;
  std::vector<position> at_;
  std::vector<double> ends_;
  std::vector<queue> queues_;
  std::vector<double> arrivals_;      ///< of messages …
  std::vector<double> taken_;         ///< … and when the receiver gave the credit back
  std::vector<double> busy_;          ///< by rank: one thread at a time performs a rank's channel
  std::vector<double> lane_busy_;     ///< the same by lane
  std::vector<double> element_busy_;  ///< by element, and one that does nothing
  std::vector<double> sent_;          ///< by rank: when its last message was handed out, in whatever lane
  std::vector<std::int32_t> ready_;
  std::vector<double> slice_ends_;
  double work_ = 0;
};

double timing_sheet::predict(double cell_bytes, const cutting& cut, int credits, const machine_constants& machine,
                             double staging_bytes) const {
  const int group = cut.slices_per_step;  // slices that end together
  const int rehearsed = std::clamp(cut.slices, 1, std::max(longest_rehearsal, 2 * group));
  const double bytes = cell_bytes / (static_cast<double>(cut.channels) * cut.slices);
  rehearsal run(*this, bytes, {rehearsed, group}, std::max(1, credits), machine);
  if (!run.run()) return std::numeric_limits<double>::infinity();
  double path = run.end_of(rehearsed - 1);
  const double more = cut.slices - rehearsed;
  if (more > 0) path += more / group * (path - run.end_of(rehearsed - 1 - group));
  const double repeats = static_cast<double>(cut.slices) / rehearsed;
  if (machine.one_thread) path += run.beside_a_lane() * repeats;
  const double staging = staging_bytes / machine.copy_rate;
  const double ranks = static_cast<double>(first_lane_.size() - 1);
  const double total = run.work() * repeats * cut.channels + staging * ranks;
  return std::max({path + staging, run.busiest_rank() * repeats + staging,
                   run.busiest_element() * repeats * cut.channels + staging, total / std::max(1, machine.cores)});
}

double timing_sheet::hops(int credits) const {
  machine_constants only_messages;
  only_messages.messages.fill({1, 0, 0, 0});
  only_messages.message_share = only_messages.step = only_messages.operand = only_messages.element = 0;
  return predict(0, {}, credits, only_messages);
}

least_time least_of(const score_tally& of, double cell_bytes, const machine_constants& machine, double staging_bytes,
                    int most_channels, reach nearest) {
  const message_costs& messages = machine.over(nearest);
  // A local step may turn out to be one more operand of the pass before it.
  const double local = std::min(machine.step, machine.operand), share = std::min(1.0, machine.operand_share);
  const double copy = cell_bytes / machine.copy_rate, reduce = cell_bytes / machine.reduce_rate;
  double total = 0, busiest = 0, ranks = 0;
  for (const auto& [each, count] : of.kinds) {
    const auto n = [](std::int64_t number) { return static_cast<double>(number); };
    const double busy = n(each.steps) * machine.step + n(each.locals) * local +
                        (n(each.copied) + share * n(each.local_copied)) * copy +
                        (n(each.reduced) + share * n(each.local_reduced)) * reduce +
                        cell_bytes * (n(each.sent) * messages.send_byte + n(each.received) * messages.receive_byte);
    total += count * (busy + n(each.messages) * (messages.message - messages.idle) * machine.message_share);
    busiest = std::max(busiest, busy / most_channels);  // who performs a rank's channels need not be one thread
    ranks += count;
  }
  const double staging = staging_bytes / machine.copy_rate;
  const double path = static_cast<double>(of.hops) * messages.message;
  // Sums of the same numbers in another order differ in their last bits.
  constexpr double rounded = 1 - 1e-9;
  return {rounded * std::max(busiest + staging, (total + staging * ranks) / std::max(1, machine.cores)),
          rounded * (path + staging)};
}

}  // namespace troupe
