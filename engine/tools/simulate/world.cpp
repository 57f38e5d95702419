// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/world.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/tools/simulate/world_outbox.hpp"

namespace troupe::simulate {

namespace {

constexpr nanoseconds_t look_period = 50 * ms;
/// After so long without anything having been done, and without data, nothing will be. Callers think for less, and deadlines are shorter.
constexpr nanoseconds_t hopeless = 700 * ms;
/// As long as one that was stopped may have others' memory before it is ended (nic_between).
constexpr nanoseconds_t patience_with_stopped = 1'200 * ms;
constexpr std::uint64_t most_events = 400'000;

constexpr std::array<std::string_view, 34> kind_names{
    "called",    "differs",     "withdraw",   "fail",       "stopped",    "left",   "quiet",
    "perished",  "abort",       "down",       "stuck",      "agreed",     "ask",    "stop",
    "failed",    "broken",      "peer_left",  "peer_lost",  "perish",     "bury",   "revoke",
    "revoked",   "refuse",      "inquire",    "look_again", "chunk",      "credit", "flushed",
    "offloaded", "nic_differs", "nic_let_go", "nic_ready",  "nic_packet", "order"};

}  // namespace

std::string_view name(message_kind which) { return kind_names[static_cast<std::size_t>(which)]; }

// -- life ---------------------------------------------------------------------------------------------------------------

simulation::simulation(const scenario& what, plan_source& plans, const simulation_options& options)
    : world_(std::make_unique<world>(what, plans, options)) {}
simulation::~simulation() = default;
simulation_result simulation::run() { return world_->run(); }

simulation::world::world(const scenario& what, plan_source& plans, const simulation_options& options)
    : world(what, std::make_shared<course>(&plans, options), nullptr, "world", {}) {}

simulation::world::world(const scenario& what, std::shared_ptr<course> in, world* whole, std::string name,
                         std::vector<rank_t> members)
    : what_(what),
      course_(std::move(in)),
      plans_(course_->plans),
      options_(course_->options),
      result_(course_->result),
      now_(course_->now),
      orders_(course_->orders),
      last_progress_(course_->last_progress),
      whole_(whole),
      name_(std::move(name)),
      in_whole_(std::move(members)),
      breaking_(what.seed, {0xb0, static_cast<std::uint64_t>(options_.broken)}),
      spaces_(what.ranks),
      members_(static_cast<std::size_t>(what.ranks)),
      membership_(what.ranks, name_) {
  for (int h = 0; h < what_.hosts(); ++h) hosts_.emplace_back(what_.ranks_of_host());
  for (rank_t r = 0; r < what_.ranks; ++r)
    process_of_.push_back(whole_ != nullptr ? whole_->process_of(in_whole_[static_cast<std::size_t>(r)])
                                            : what_.process_of(r));
  if (what_.nic.any()) add_nics();
  for (rank_t r = 0; r < what_.ranks; ++r) {
    member& m = at_rank(r);
    actors::rank_state_options how{r,
                                   what_.ranks,
                                   what_.channels,
                                   name_,
                                   what_.first,
                                   what_.pairs_by_mailbox,
                                   what_.most_ahead,
                                   1,
                                   !breaks(mutant::history_hidden, 100)};
    if (what_.of_host > 0) how.on_host = place_on_board(r);
    const bool swaps = what_.of_host > 1 && breaks(mutant::boards_swapped, 30);
    const rank_t board = swaps ? (r + what_.of_host) % what_.ranks : r;
    m.out = std::make_unique<outbox>(*this, r);
    m.state = std::make_unique<actors::rank_state>(std::move(how), memory_, spaces_, &board_of(board));
    m.next_collective = what_.first;
    m.thinks = dice(what_.seed, {0x7a, static_cast<std::uint64_t>(r)});
    m.by_item.resize(what_.items.size());
  }
  write_programs();
}

simulation::world::~world() {
  // Ends of operations that are still under way after a fault are told to nobody.
  course_->over = true;
  parts_.clear();
  for (member& m : members_) m.state.reset();
}

// -- the clock ------------------------------------------------------------------------------------------------------------

void simulation::world::at(nanoseconds_t when, std::function<void()> what) {
  course_->events.push({std::max(when, now_), orders_++, std::move(what)});
}

/// The callers of a part come one by one.
void simulation::world::begin() {
  for (rank_t r = 0; r < what_.ranks; ++r)
    if (at_rank(r).comes) at(static_cast<nanoseconds_t>(at_rank(r).thinks.below(4 * us)), [this, r] { act(r); });
  for (const disturbance& x : what_.disturbances) {
    if (x.item >= 0) continue;
    if (x.what == disturbance::kind::kill) at(now_ + x.after_ns, [this, r = x.rank] { kill(r); });
    if (x.what == disturbance::kind::abort) at(now_ + x.after_ns, [this] { abort(); });
  }
  if (whole_ == nullptr && what_.nic.ends_after_ns >= 0) at(now_ + what_.nic.ends_after_ns, [this] { end_nicd(); });
  if (const process_loss& x = what_.nic.loses; whole_ == nullptr && x.any())
    if (x.what == process_loss::kind::killed || x.what == process_loss::kind::stopped)
      at(now_ + x.after_ns, [this] { lose_process(); });
}

simulation_result simulation::world::run() {
  begin();
  at(options_.broken == mutant::look_while_busy ? us : look_period, [this] { look(); });
  auto& events = course_->events;
  while (result_.ok() && !complete() && !events.empty()) {
    if (++result_.events > most_events) {
      fault("it does not come to an end: " + std::to_string(most_events) + " events\n" + who_waits());
      break;
    }
    event next = std::move(const_cast<event&>(events.top()));
    events.pop();
    step(std::move(next));
  }
  if (result_.ok()) check_end();
  return std::move(result_);
}

void simulation::world::step(event&& next) {
  now_ = std::max(now_, next.at);
  next.what();
  if (!options_.strict) return;
  for (const world* w : all())
    if (result_.ok()) w->check_poison();
}

bool simulation::world::complete() const {
  return membership_.dissolved() && in_flight_ == 0 &&
         std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->complete(); });
}

bool simulation::world::idle() const {
  if (in_flight_ > 0) return false;
  return std::all_of(members_.begin(), members_.end(),
                     [](const member& m) {
                       return !m.polled && m.inline_pairs.empty() && m.inbox.empty() && m.transfers == 0;
                     }) &&
         std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->idle(); });
}

std::vector<simulation::world*> simulation::world::all() {
  std::vector<world*> found{this};
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::vector<world*> inside = parts_[i]->all();
    found.insert(found.end(), inside.begin(), inside.end());
  }
  return found;
}

/// As runtime::look_for_trouble(): looks at all communicators begin, then everything is seen idle, then the threads are seen still to wait.
void simulation::world::look() {
  if (complete()) return;
  at(now_ + (options_.broken == mutant::look_while_busy ? 20 * us : look_period), [this] { look(); });
  if (now_ - last_progress_ > hopeless + (what_.nic.loses.any() ? patience_with_stopped : 0)) return check_hang();
  std::vector<std::pair<world*, look_t>> begun;
  for (world* w : all())
    if (w->what_.of_host == 0) begun.emplace_back(w, ++w->looks_);  // what is between hosts nobody sees
  const bool nobody = all_wait();
  at(now_ + static_cast<nanoseconds_t>(mix(what_.seed ^ looks_) % 5000), [this, begun = std::move(begun), nobody] {
    if (!idle() && !breaks(mutant::look_while_busy, 100)) return;
    const bool nobody_else = (nobody && all_wait()) || breaks(mutant::always_nobody_else, 100);
    tell([&] { return "everything is idle" + std::string{nobody_else ? ", and every caller waits" : ""}; });
    for (const auto& [w, number] : begun) w->post_look(number, nobody_else);
  });
}

void simulation::world::post_look(look_t number, bool nobody_else) {
  post_to_membership(message_kind::stuck, of_watchdog, [this, number, nobody_else] {
    const int times = breaks(mutant::one_look_is_enough, 100) ? 3 : 1;  // suspects, confirms, ends
    for (int i = 0; i < times; ++i) {
      const look_t look = number + static_cast<look_t>(i) * 1000;
      membership_.stuck(look, std::max(look, looks_), nobody_else, *this);
    }
  });
}

void simulation::world::say(const std::string& text) {
  std::string when = std::to_string(now_ / 1000) + "." + std::to_string(now_ % 1000 / 100);
  when.insert(0, when.size() < 10 ? 10 - when.size() : 0, ' ');
  result_.trace.push_back(when + " us  " + (whole_ != nullptr ? name_ + ": " : "") + text);
}

// -- mutants ----------------------------------------------------------------------------------------------------------------

bool simulation::world::breaks(mutant which, int percent) {
  if (options_.broken != which || !breaking_.percent(percent)) return false;
  ++result_.mutations;
  tell([&] { return "MUTANT: " + std::string{simulate::name(which)}; });
  return true;
}

bool simulation::world::drops(message_kind kind) {
  if (options_.broken == mutant::none) return false;
  switch (kind) {
    case message_kind::called: return breaks(mutant::drop_called);
    case message_kind::withdraw: return breaks(mutant::drop_withdraw);
    case message_kind::fail: return breaks(mutant::drop_fail);
    case message_kind::stopped: return breaks(mutant::drop_stopped);
    case message_kind::left: return breaks(mutant::drop_left);
    case message_kind::quiet: return breaks(mutant::drop_quiet);
    case message_kind::perished: return breaks(mutant::drop_perished);
    case message_kind::agreed: return breaks(mutant::drop_agreed);
    case message_kind::ask: return breaks(mutant::drop_ask);
    case message_kind::stop: return breaks(mutant::drop_stop);
    case message_kind::failed: return breaks(mutant::drop_failed);
    case message_kind::broken: return breaks(mutant::drop_broken);
    case message_kind::peer_left: return breaks(mutant::drop_peer_left);
    case message_kind::peer_lost: return breaks(mutant::drop_peer_lost);
    case message_kind::bury: return breaks(mutant::drop_bury);
    case message_kind::stuck: return breaks(mutant::drop_stuck, 100);
    case message_kind::revoke: return breaks(mutant::drop_revoke);
    case message_kind::revoked: return breaks(mutant::drop_revoked);
    case message_kind::refuse: return breaks(mutant::drop_refuse);
    case message_kind::inquire: return breaks(mutant::drop_inquire, 100);
    case message_kind::look_again: return breaks(mutant::drop_look_again);
    case message_kind::credit: return breaks(mutant::drop_credit, 15);
    case message_kind::flushed: return breaks(mutant::drop_flushed);
    case message_kind::offloaded: return breaks(mutant::drop_offloaded);
    case message_kind::nic_let_go: return breaks(mutant::drop_nic_let_go);
    case message_kind::nic_ready: return breaks(mutant::drop_nic_ready);
    case message_kind::nic_packet: return breaks(mutant::drop_nic_packet, 20);
    default: return false;
  }
}

// -- the network --------------------------------------------------------------------------------------------------------------

nanoseconds_t simulation::world::latency(int link, int to) {
  auto& [last, count] = links_[{link, to}];
  dice d(what_.seed, {0x11, static_cast<std::uint64_t>(link + 8), static_cast<std::uint64_t>(to + 8), count++});
  if (what_.calm != 0) return us;
  if (d.percent(what_.late_percent)) return static_cast<nanoseconds_t>(d.below(1ull << d.between(10, 24)));
  return 100 + static_cast<nanoseconds_t>(d.below(3 * us));
}

void simulation::world::post(message_kind kind, int link, int to, bool in_order, std::function<void()> deliver) {
  if (drops(kind)) return;
  nanoseconds_t when = now_ + latency(link, to);
  if (in_order) {
    nanoseconds_t& last = links_[{link, to}].first;
    if (!breaks(mutant::control_overtakes, 50)) when = std::max(when, last + 1);
    last = std::max(last, when);
  }
  ++in_flight_;
  at(when, [this, link, to, deliver = std::move(deliver)] {
    --in_flight_;
    if (!is_cut(link, to)) deliver();
  });
}

void simulation::world::post_to_rank(message_kind kind, int link, rank_t to, actors::rank_order what) {
  const bool in_order = kind != message_kind::chunk && kind != message_kind::credit;
  post(kind, link, to, in_order, [this, kind, link, to, what = std::move(what)] {
    const bool by_shell = link == of_membership && kind != message_kind::bury && kind != message_kind::perish;
    if (by_shell && at_rank(to).shell_gone) return;
    if (kind == message_kind::stop && is_at_stage(to) && breaks(mutant::stop_spares_boards, 50)) return;
    if (kind != message_kind::chunk && kind != message_kind::credit)
      tell([&] {
        return std::string{simulate::name(kind)} + (link >= 0 ? " from rank " + std::to_string(link) : "") +
               " reaches rank " + std::to_string(to);
      });
    turn(to, what);
  });
}

void simulation::world::post_to_membership(message_kind kind, int link, std::function<void()> what) {
  post(kind, link, of_membership, true, [this, kind, link, what = std::move(what)] {
    if (membership_.dissolved()) return;
    tell([&] {
      return std::string{simulate::name(kind)} + (link >= 0 ? " from rank " + std::to_string(link) : "") +
             " reaches the membership";
    });
    what();
  });
}

/// That a rank's own chunks of the operation have.
std::uint64_t simulation::world::own_fingerprint(const caller_operation& mine, epoch_t epoch) const {
  const auto op = std::find_if(known_.begin(), known_.end(), [&](const auto& each) { return each.second == &mine; });
  const auto print = [epoch](const call& c, std::uint64_t identity) {
    return fingerprint(c, epoch, identity) ^ c.history;
  };
  const std::uint64_t whole =
      print(op != known_.end() ? op->first->what : mine.what, mine.plan ? mine.plan->identity : 0);
  const tiers_plan* const stages = mine.plan ? mine.plan->tiers() : nullptr;
  if (stages == nullptr) return whole;
  call between = call_of_tier(mine.what, tier::across, stages->hosts(), stages->of_host);
  between.history = whole;
  return print(between, stages->across->identity);
}

/// Of an operation in tiers, on its host's board.
bool simulation::world::is_at_stage(rank_t rank) const {
  const actors::operation* const on_board = at_rank(rank).state->on_board();
  return on_board != nullptr && on_board->plan->tiers() != nullptr;
}

bool simulation::world::in_tiers(rank_t rank, epoch_t epoch) const {
  if (what_.of_host < 2) return false;
  const caller_operation* const of = under_way(rank, {epoch, -1, false});
  return of != nullptr && of->plan != nullptr && of->plan->tiers() != nullptr;
}

void simulation::world::deliver_chunk(rank_t from, rank_t to, int channel, chunk&& what) {
  if (options_.broken == mutant::stride_forgotten && in_tiers(from, what.epoch) && breaks(mutant::stride_forgotten, 20))
    to /= what_.of_host;
  check_sent(from, to, what);
  if (at_rank(from).muted) return;
  const bool pair = (what.epoch & point_to_point) != 0;
  dice d(what_.seed, {0x22, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), what.epoch, what.lane,
                      what.sequence});
  const bool inside = what_.host_of(from) == what_.host_of(to);
  if (what_.of_host > 0 && (!inside && d.percent(what_.lose_percent))) return lose_connection(from, to);
  if (what_.of_host == 0 && d.percent(what_.lose_percent)) {
    tell([&] {
      return "chunk " + std::to_string(what.sequence) + " of epoch " + std::to_string(what.epoch & ~point_to_point) +
             " from rank " + std::to_string(from) + " to rank " + std::to_string(to) + " is lost";
    });
    if (pair) lost_between_.insert({from, to, what.epoch});
    else lost_in_.insert(what.epoch);
    return;
  }
  if (breaks(mutant::wrong_epoch, 20))
    what.epoch = ((what.epoch - 1) & ~point_to_point) | (what.epoch & point_to_point);
  if (breaks(mutant::sequence_swapped, 20)) what.sequence ^= 1;
  const bool twice = d.percent(what_.twice_percent);
  // Long ones ask first. Which those are says the seed.
  if (what.bytes > 0 && d.percent(30)) {
    chunk name = what;
    name.data = nullptr;
    name.announced = true;
    parked_.try_emplace({from, to, what.epoch, what.lane, what.sequence}, std::move(what));
    return carry_chunk(from, to, channel, name, twice);
  }
  carry_chunk(from, to, channel, what, twice);
}

void simulation::world::carry_chunk(rank_t from, rank_t to, int channel, const chunk& what, bool twice) {
  if (what_.host_of(from) != what_.host_of(to) && !what.announced && what.keep == nullptr) {  // a frame
    chunk frame = what;
    const auto bytes = std::make_shared<std::vector<std::byte>>(what.data, what.data + what.bytes);
    frame.data = bytes->data();
    frame.keep = bytes;
    return carry_chunk(from, to, channel, frame, twice);
  }
  // From now on the message may be in the place that was offered.
  const chunk_name name{from, to, what.epoch, what.lane, what.sequence};
  if (const auto at = places_.find(name); at != places_.end() && !what.announced && !at->second.filled &&
                                          at->second.bytes == what.bytes &&
                                          at->second.fingerprint == what.fingerprint) {
    check_touch(at->second.at, what.bytes, "received into");
    std::memcpy(at->second.at, what.data, what.bytes);
    at->second.filled = true;
  }
  const auto deliver = [this, from, to, channel, name](const chunk& c) {
    post_to_rank(message_kind::chunk, from, to,
                 [this, from, to, channel, c, name](actors::rank_state& s, actors::rank_outbox& o) {
                   tell([&] {
                     return "chunk " + std::to_string(c.sequence) + " of epoch " +
                            std::to_string(c.epoch & ~point_to_point) + ", lane " + std::to_string(c.lane) +
                            ", from rank " + std::to_string(from) + " reaches rank " + std::to_string(to);
                   });
                   last_progress_ = now_;
                   chunk copy = c;
                   if (const auto at = places_.find(name); at != places_.end() && at->second.filled && !c.announced)
                     copy.data = at->second.at;
                   const mutant forges = in_tiers(to, c.epoch) ? mutant::tiers_unmarked : mutant::fingerprint_forged;
                   if (options_.broken == forges)
                     if (const caller_operation* mine =
                             under_way(to, {c.epoch, (c.epoch & point_to_point) != 0 ? from : -1, false});
                         mine != nullptr && own_fingerprint(*mine, c.epoch) != c.fingerprint && breaks(forges, 100))
                       copy.fingerprint = own_fingerprint(*mine, c.epoch);
                   if (breaks(mutant::credit_early, 30))
                     send_credit(message_kind::credit, to, from, channel, {c.epoch, to, c.lane, c.sequence});
                   if (breaks(mutant::chunk_invented, 30)) {
                     chunk invented = copy;
                     invented.sequence += 1'000;
                     s.on_chunk(channel, std::move(invented), o);
                   }
                   s.on_chunk(channel, std::move(copy), o);
                 });
  };
  if (const auto at = sent_.find(name); at != sent_.end()) at->second.twice = at->second.twice || twice;
  if (twice) deliver(what);
  deliver(what);
}

bool simulation::world::offer_place(rank_t rank, const expected_chunk& what) {
  places_[{what.source, rank, what.epoch, what.lane, what.sequence}] = {what.place, what.bytes, what.fingerprint};
  return true;
}

void simulation::world::withdraw_place(rank_t rank, const expected_chunk& what) {
  places_.erase({what.source, rank, what.epoch, what.lane, what.sequence});
}

void simulation::world::clear(rank_t from, rank_t to, int channel, const credit& what) {
  if (at_rank(from).muted || breaks(mutant::drop_clear)) return;
  post(message_kind::chunk, from, to, false, [this, from, to, channel, what] {
    const auto at = parked_.find({to, from, what.epoch, what.lane, what.sequence});
    if (at == parked_.end() || at_rank(to).muted) return;
    const chunk cleared = std::move(at->second);
    parked_.erase(at);
    carry_chunk(to, from, channel, cleared, false);
  });
}

/// Nothing of that operation is sent any more that was only announced, and nothing received into its buffers.
/// @param which null: of all of the rank's
/// @param callers_too false: only what lies in scratch, which goes back to the arena
void simulation::world::let_go(rank_t rank, const actors::operation_key* which, bool callers_too) {
  const auto goes = [&](const std::byte* at) { return callers_too || !is_callers(at); };
  // A send and a receive of one peer may have one number.
  const auto is_of = [&](const chunk_name& n, rank_t other, bool sending) {
    return which == nullptr ||
           (n.epoch == which->epoch && (which->peer < 0 || (which->peer == other && which->sending == sending)));
  };
  std::erase_if(parked_, [&](const auto& each) {
    return each.first.from == rank && is_of(each.first, each.first.to, true) && goes(each.second.data);
  });
  std::erase_if(places_, [&](const auto& each) {
    return each.first.to == rank && is_of(each.first, each.first.from, false) && goes(each.second.at);
  });
}

void simulation::world::give_back(rank_t from, rank_t to, int channel, const credit& what) {
  check_consumed(from, to, what);
  if (at_rank(from).muted) return;
  dice d(what_.seed, {0x33, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), what.epoch, what.lane,
                      what.sequence});
  if (d.percent(what_.twice_percent)) send_credit(message_kind::order, from, to, channel, what);
  send_credit(message_kind::credit, from, to, channel, what);
  if (breaks(mutant::credit_for_two, 30)) {
    credit next = what;
    ++next.sequence;
    send_credit(message_kind::order, from, to, channel, next);
  }
}

void simulation::world::send_credit(message_kind kind, rank_t from, rank_t to, int channel, const credit& what) {
  if (drops(kind)) return;
  post(message_kind::chunk, from, to, false, [this, from, to, channel, what] {
    tell([&] {
      return "credit " + std::to_string(what.sequence) + " of epoch " + std::to_string(what.epoch & ~point_to_point) +
             ", lane " + std::to_string(what.lane) + ", from rank " + std::to_string(from) + " reaches rank " +
             std::to_string(to);
    });
    turn(to, [this, from, to, channel, what](actors::rank_state& s, actors::rank_outbox& o) {
      if (const auto at = sent_.find({to, from, what.epoch, what.lane, what.sequence});
          at != sent_.end() && !std::exchange(at->second.returned, true))
        --outstanding_[{to, from, what.epoch, what.lane}];
      s.on_credit(channel, what, o);
    });
  });
}

// -- DMA engines ----------------------------------------------------------------------------------------------------------------

void simulation::world::transfer(rank_t rank, const actors::operation_key& which, int channel, int lane,
                                 std::byte* target, const std::byte* source, std::size_t bytes) {
  member& m = at_rank(rank);
  m.transfers_end = std::max(m.transfers_end, now_) + latency(rank, of_dma);
  ++m.transfers;
  at(m.transfers_end, [this, rank, which, channel, lane, target, source, bytes] {
    --at_rank(rank).transfers;
    if (at_rank(rank).lost) return;
    check_touch(target, bytes, "written by a DMA engine");
    check_touch(source, bytes, "read by a DMA engine");
    if (!result_.ok()) return;
    if (under_way(rank, which) == nullptr)  // scratch, too, is somebody else's by now
      return fault("a DMA engine copies on rank " + std::to_string(rank) + " for an operation that is over there");
    std::memcpy(target, source, bytes);
    post_to_rank(message_kind::order, of_dma, rank,
                 [which, channel, lane](actors::rank_state& s, actors::rank_outbox& o) {
                   s.transferred(which, channel, lane, o);
                 });
  });
}

bool simulation::world::flush(rank_t rank, const actors::operation_key& which) {
  // Those in scratch do not stay: of a write there only the arena would take harm.
  let_go(rank, &which, !breaks(mutant::places_stay, 100));
  if (!what_.dma) return false;
  if (breaks(mutant::flushed_early, 100)) return false;
  member& m = at_rank(rank);
  ++in_flight_;  // the engine has been asked
  at(std::max(m.transfers_end, now_) + 1, [this, rank, which] {
    --in_flight_;
    post_to_rank(message_kind::flushed, of_dma, rank,
                 [which](actors::rank_state& s, actors::rank_outbox& o) { s.flushed(which, o); });
  });
  return true;
}

}  // namespace troupe::simulate
