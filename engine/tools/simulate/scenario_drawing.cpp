// SPDX-License-Identifier: Apache-2.0
// A seed's scenario, and the same with ranks left out. Whatever was added later is drawn from dice of its own, so that the seeds of before go on meaning the same.
#include <algorithm>
#include <array>

#include "engine/tools/simulate/dice.hpp"
#include "engine/tools/simulate/scenario.hpp"
#include "engine/tools/simulate/virtual_time.hpp"
#include "engine/world/division_state.hpp"
#include "memory/kernels/kernels.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/chunk.hpp"
#include "protocols/tiers.hpp"

namespace troupe::simulate {

namespace {

enum purpose : std::uint64_t {
  of_scenario = 1,
  of_item,
  of_disturbance,
  of_ports,
  of_sends,
  of_split,
  of_hosts,
  of_nics
};

/// One of so many seeds has a split, ranks on several hosts, NICs that perform.
constexpr std::uint64_t seeds_a_split = 8, seeds_of_hosts = 6, seeds_of_nics = 6;

constexpr std::array all_collectives{collective::all_reduce, collective::all_gather, collective::reduce_scatter,
                                     collective::broadcast,  collective::reduce,     collective::gather,
                                     collective::scatter,    collective::all_to_all, collective::barrier};
constexpr std::array collectives_in_tiers{collective::all_reduce, collective::all_gather, collective::reduce_scatter,
                                          collective::barrier};

std::size_t draw_count(dice& d) {
  if (d.one_in(60)) return 1531;
  return d.any_of<std::size_t>({0, 1, 1, 2, 3, 5, 7, 13, 31, 127});
}

datatype draw_type(dice& d) {
  return d.any_of({datatype::i32, datatype::i32, datatype::f32, datatype::f64, datatype::u8, datatype::i64,
                   datatype::bf16, datatype::c128});
}

op draw_op(dice& d, datatype type) {
  op chosen;
  chosen.kind = d.any_of({op_kind::sum, op_kind::sum, op_kind::prod, op_kind::min, op_kind::max, op_kind::user});
  if (is_integer(type) && d.one_in(4)) chosen.kind = op_kind::bxor;
  if (!is_integer(type) && d.one_in(4)) chosen.kind = op_kind::avg;
  if (type == datatype::bf16 && chosen.kind == op_kind::user) chosen.kind = op_kind::sum;
  if (!supports(type, chosen.kind)) chosen.kind = op_kind::prod;
  return chosen;
}

void draw_v_counts(item& it, int ranks, dice& d) {
  it.what.uniform = false;
  it.counts.resize(static_cast<std::size_t>(block_count(it.what.what, ranks)));
  for (std::size_t& n : it.counts) n = d.any_of<std::size_t>({0, 1, 2, 3, 5, 11});
}

slice_order draw_slices(dice& d) {
  return d.any_of<slice_order>({{1, 1}, {1, 1}, {1, 1}, {2, 1}, {3, 1}, {2, 2}, {3, 2}, {5, 2}});
}

int draw_choreography(dice& d) { return static_cast<int>(d.index(all_choreographies().size())); }

/// Several hosts have no board together.
port_kind draw_port(const scenario& s, dice& d) {
  using enum port_kind;
  if (s.nic.any() && d.one_in(2)) return nic;
  return s.of_host > 0 ? mailbox : d.any_of({mailbox, mailbox, ll, ll128, direct});
}

way draw_way(const scenario& s, const item& it, dice& d) {
  way how;
  how.choreography = draw_choreography(d);
  how.port = draw_port(s, d);
  how.of_host = s.of_host;
  if (how.port == port_kind::nic && knows_all_blocks(it.what)) {
    how.credits = d.any_of({1, 8, 8});
    how.packet_bytes = s.nic.packet_bytes;
    return how;
  }
  if (how.port != port_kind::direct && !knows_all_blocks(it.what)) how.port = port_kind::mailbox;
  how.agreement =
      d.any_of({agreement_form::none, agreement_form::direct, agreement_form::mirrored, agreement_form::rounds});
  if (how.port == port_kind::direct) how.agreement = agreement_form::none;
  how.fold = d.one_in(8);
  how.eager = it.what.agreement == agreement_time::eager;
  if (how.port != port_kind::mailbox) return how;
  how.own_blocks = !knows_all_blocks(it.what) && d.one_in(2);
  how.ask = d.one_in(6);
  how.any_order = d.one_in(4);
  how.credits = d.any_of({1, 2, 8});
  how.channels = d.between(1, s.channels);
  how.slices = draw_slices(d);
  return how;
}

bool can_perform(const item& it, int ranks, plan_source& plans) {
  call c = call_of(it, ranks, has_root(it.what.what) ? it.what.root : 0);
  return plans.plan_for(c, ranks, it.how, it.what.uniform ? nullptr : &it.counts) != nullptr;
}

/// Makes some of those that can be partitioned so.
void draw_pieces(item& it, int ranks, plan_source& plans, dice& d) {
  if (!it.what.uniform || !moves_data(it.what.what) || it.how.port != port_kind::mailbox || !d.one_in(2)) return;
  item cut = it;
  cut.what.agreement = agreement_time::strict;
  cut.how.eager = cut.how.any_order = false;
  cut.how.channels = 1;
  cut.how.slices = {};
  const auto pieces = static_cast<std::uint32_t>(d.between(1, 5));
  std::vector<std::size_t> sizes;
  if (d.one_in(3)) {
    sizes.assign(pieces, 0);
    for (std::size_t i = 0; i < it.what.count; ++i) ++sizes[d.index(pieces)];
  }
  partition_call(cut.what, pieces, std::move(sizes));
  if (can_perform(cut, ranks, plans)) it = std::move(cut);
}

constexpr int most_attempts = 40;

/// Of two in three that have tiers, where ranks are on several hosts. False: they are not, or no way was found.
bool draw_tiers(const scenario& s, item& it, plan_source& plans, dice& d) {
  if (s.of_host < 2 || !why_no_tiers(it.what).empty() || d.one_in(3)) return false;
  way how;
  const auto found = [&](stage_way& by, tier which) {
    for (int attempt = 0; attempt < most_attempts; ++attempt) {
      by.choreography = draw_choreography(d);
      by.port = d.any_of({port_kind::ll, port_kind::ll128, port_kind::direct});
      by.agreement = d.any_of({agreement_form::none, agreement_form::direct, agreement_form::rounds});
      if (by.port == port_kind::direct) by.agreement = agreement_form::none;
      if (plans.plan_of_stage(it.what, which, s.ranks, s.of_host, by) != nullptr) return true;
    }
    return false;
  };
  if (!found(how.collect, tier::collect) || !found(how.spread, tier::spread)) return false;
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    it.how = how;
    it.how.port = port_kind::tiers;
    it.how.of_host = s.of_host;
    it.how.choreography = draw_choreography(d);
    it.how.agreement = d.any_of({agreement_form::none, agreement_form::direct, agreement_form::rounds});
    it.how.any_order = d.one_in(4);
    it.how.credits = d.any_of({1, 2, 8});
    it.how.channels = d.between(1, s.channels);
    it.how.slices = draw_slices(d);
    if (can_perform(it, s.ranks, plans)) return true;
  }
  return false;
}

item draw_collective(int id, const scenario& s, plan_source& plans, dice& d) {
  const int ranks = s.ranks;
  item it;
  it.id = id;
  it.what.what = s.of_host > 1 && d.one_in(2) ? d.pick(collectives_in_tiers) : d.pick(all_collectives);
  it.what.type = draw_type(d);
  it.what.root = has_root(it.what.what) ? d.between(0, ranks - 1) : 0;
  if (is_reduction(it.what.what)) it.what.reduction = draw_op(d, it.what.type);
  it.what.count = it.what.what == collective::barrier ? 0 : draw_count(d);
  // Of equal blocks over the direct board, such a call waits for everybody all the same.
  if (has_root(it.what.what) && d.one_in(2)) it.what.agreement = agreement_time::eager;
  const bool single = it.what.what == collective::all_reduce || it.what.what == collective::broadcast ||
                      it.what.what == collective::reduce || it.what.what == collective::barrier;
  if (!single && it.what.count > 200) it.what.count = 37;
  if (!single && d.one_in(4)) {
    draw_v_counts(it, ranks, d);
    it.what.count = 0;
  } else {
    const bool may = it.what.what == collective::all_reduce || it.what.what == collective::all_gather ||
                     it.what.what == collective::reduce_scatter || it.what.what == collective::all_to_all;
    it.what.in_place = may && it.what.count > 0 && d.one_in(4);
  }
  if (draw_tiers(s, it, plans, d)) return it;
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    it.how = draw_way(s, it, d);
    if (!can_perform(it, ranks, plans)) continue;
    draw_pieces(it, ranks, plans, d);
    return it;
  }
  it = item{};
  it.id = id;
  it.what.what = collective::barrier;
  for (int c = 0;; ++c) {  // some choreography always offers it
    it.how = way{};
    it.how.choreography = c;
    it.how.of_host = s.of_host;
    if (can_perform(it, ranks, plans)) return it;
  }
}

/// The planner plans calls that are alike alike, whatever their blocks' sizes; those which that way cannot take are another one's.
void plan_alike(const scenario& s, item& it, plan_source& plans) {
  const std::uint64_t mine = fingerprint(it.what, 0);
  const item* like = nullptr;
  const auto look = [&](const item& other) {
    if (!other.pair && fingerprint(other.what, 0) == mine) like = &other;
  };
  for (const item& other : s.items) look(other);
  for (const disturbance& x : s.disturbances)
    for (const item& other : x.instead) look(other);
  if (like == nullptr) return;
  it.how = like->how;
  if (!it.what.uniform && !can_perform(it, s.ranks, plans)) it.counts = like->counts;
}

item draw_pair(int id, int ranks, dice& d) {
  item it;
  it.id = id;
  it.pair = true;
  it.from = d.between(0, ranks - 1);
  it.to = d.between(0, ranks - 1);
  it.what.what = collective::broadcast;
  it.what.type = draw_type(d);
  it.what.count = draw_count(d);
  it.tag = d.any_of({0, 0, 0, 1, 2, most_tag});
  return it;
}

/// More short messages of one pair than its lane has slots.
void draw_burst(scenario& s, dice& d) {
  item it = draw_pair(static_cast<int>(s.items.size()), s.ranks, d);
  it.to = it.from == s.ranks - 1 ? 0 : it.from + 1;
  it.tag = 0;
  it.what.count = d.any_of<std::size_t>({0, 1, 6, 40});
  for (int left = d.between(5, 10); left > 0; --left, ++it.id) s.items.push_back(it);
}

/// What became of an earlier item.
item draw_outcome(int id, const scenario& s, dice& d) {
  item it;
  it.id = id;
  it.what.what = collective::barrier;
  it.what.uniform = false;
  it.what.outcome_of = ended_call{};
  it.asks_about = s.items[d.index(s.items.size())].id;
  return it;
}

std::int64_t draw_time(dice& d) {
  return d.any_of<std::int64_t>({0, 500, 3 * us, 20 * us, 100 * us, 2 * ms, 7 * ms, 60 * ms, 200 * ms});
}

/// A rank that calls something else than a split: mostly what has as many bytes to exchange in the same way.
item draw_no_split(const scenario& s, const item& at, plan_source& plans, dice& d) {
  if (d.one_in(3)) {
    item other = draw_collective(at.id, s, plans, d);
    plan_alike(s, other, plans);
    return other;
  }
  item other = at;
  other.divided.clear();
  other.parts.clear();
  other.what.purpose = d.one_in(3) ? call_purpose::duplicate : call_purpose::itself;
  if (other.what.purpose == at.what.purpose) other.what.purpose = call_purpose::itself;
  return other;
}

/// What a rank calls while the others call `at`.
item draw_other_call(const scenario& s, const item& at, plan_source& plans, dice& d) {
  if (at.splits()) return draw_no_split(s, at, plans, d);
  item other = at;
  // What has as many bytes to exchange in the same way, only the fingerprints tell from it.
  if (s.of_host > 1 && !at.pair && is_reduction(at.what.what) && d.one_in(2)) {
    other.what.reduction.kind = at.what.reduction.kind == op_kind::min ? op_kind::max : op_kind::min;
    if (supports(other.what.type, other.what.reduction.kind) && can_perform(other, s.ranks, plans)) return other;
    other = at;
  }
  if (at.pair) {
    other.what.count = at.what.count + 1 + d.below(3);
  } else if (d.one_in(2)) {
    other = draw_collective(at.id, s, plans, d);
  } else {
    other.what.count = at.what.uniform && at.what.what != collective::barrier ? at.what.count + 1 : 0;
    if (other.what.pieces > 0) partition_call(other.what, other.what.pieces, {});
    if (!other.what.uniform || at.what.what == collective::barrier || !can_perform(other, s.ranks, plans))
      other = draw_collective(at.id, s, plans, d);
  }
  if (!other.pair) plan_alike(s, other, plans);
  return other;
}

std::vector<disturbance::kind> kinds_of(const fault_kinds& may) {
  using kind = disturbance::kind;
  std::vector<kind> kinds;
  if (may.mismatch) kinds.insert(kinds.end(), {kind::other_call, kind::skip});
  if (may.cancel) kinds.insert(kinds.end(), {kind::cancel, kind::cancel});
  if (may.deadline) kinds.insert(kinds.end(), {kind::deadline, kind::deadline});
  if (may.leave) kinds.push_back(kind::leave);
  if (may.raise) kinds.push_back(kind::raise);
  if (may.refuse) kinds.push_back(kind::refuse);
  if (may.kill) kinds.push_back(kind::kill);
  if (may.abort) kinds.push_back(kind::abort);
  return kinds;
}

/// What a rank calls instead, all of its host call, so that only between hosts it can be found out.
void join_hosts(scenario& s) {
  const disturbance x = s.disturbances.back();
  for (rank_t r = x.rank / s.of_host * s.of_host; s.host_of(r) == s.host_of(x.rank); ++r) {
    if (r == x.rank) continue;
    s.disturbances.push_back(x);
    s.disturbances.back().rank = r;
  }
}

void draw_disturbance(scenario& s, const fault_kinds& may, plan_source& plans, dice& d) {
  using kind = disturbance::kind;
  const std::vector<kind> kinds = kinds_of(may);
  if (kinds.empty() || s.items.empty()) return;
  disturbance x;
  x.what = d.pick(kinds);
  x.rank = d.between(0, s.ranks - 1);
  const item& at = s.items[d.index(s.items.size())];
  x.item = at.id;
  x.after_ns = draw_time(d);
  if (x.what == kind::deadline) x.after_ns = d.any_of<std::int64_t>({0, 2 * us, 20 * us, 1 * ms, 8 * ms, 300 * ms});
  x.number = d.between(1, 4);
  if (at.pair &&
      (x.what == kind::skip || x.what == kind::other_call || x.what == kind::cancel || x.what == kind::deadline))
    x.rank = d.one_in(2) ? at.from : at.to;
  if (at.pair && x.what == kind::refuse) return;  // of these nobody is told
  if (x.what == kind::raise) {
    const auto has_user = [](const item& it) {
      return !it.pair && is_reduction(it.what.what) && it.what.reduction.kind == op_kind::user;
    };
    const auto found = std::find_if(s.items.begin(), s.items.end(), has_user);
    if (found == s.items.end()) return;
    x.item = found->id;
  }
  if (x.what == kind::other_call) x.instead.push_back(draw_other_call(s, at, plans, d));
  if (x.what == kind::kill || x.what == kind::abort) x.item = -1;
  s.disturbances.push_back(std::move(x));
  if (s.disturbances.back().what == kind::other_call && !at.pair && s.of_host > 1 && d.one_in(2)) join_hosts(s);
}

/// What a scenario's ranks call, one after the other.
void draw_items(scenario& s, int items, bool repeat, plan_source& plans) {
  for (int i = 0; i < items; ++i) {
    dice own(s.seed, {of_item, static_cast<std::uint64_t>(i)});
    if (repeat && i > 0 && own.percent(60)) {
      s.items.push_back(s.items.back());
      s.items.back().id = i;
    } else {
      if (i > 0 && own.percent(15)) {
        s.items.push_back(draw_outcome(i, s, own));
        continue;
      }
      item it = own.percent(25) ? draw_pair(i, s.ranks, own) : draw_collective(i, s, plans, own);
      if (!it.pair) plan_alike(s, it, plans);
      s.items.push_back(std::move(it));
    }
  }
}

// -- splits -------------------------------------------------------------------------------------------------------------------

/// A color and a key of each rank: all alike, some, none; and some ranks that want no part.
std::vector<std::int32_t> draw_colors_and_keys(int ranks, dice& d) {
  std::vector<std::int32_t> all;
  const int colors = d.any_of({1, 1, 2, 2, 3, ranks}), keys = d.between(0, 3);
  const bool some_stay = d.one_in(4);
  for (rank_t r = 0; r < ranks; ++r) {
    all.push_back(some_stay && d.one_in(3) ? -1 : static_cast<std::int32_t>(d.index(static_cast<std::size_t>(colors))));
    all.push_back(keys == 0 ? 0 : keys == 1 ? r : keys == 2 ? ranks - r : d.between(-2, 2));
  }
  return all;
}

void disturb_split(scenario& s, const item& at, const fault_kinds& may, plan_source& plans, dice& d) {
  using kind = disturbance::kind;
  std::vector<kind> kinds = kinds_of(may);
  std::erase(kinds, kind::raise);
  if (kinds.empty()) return;
  disturbance x;
  x.what = d.pick(kinds);
  x.rank = d.between(0, s.ranks - 1);
  x.item = at.id;
  x.after_ns = d.any_of<std::int64_t>({0, 1 * us, 3 * us, 10 * us, 40 * us, 1 * ms});
  if (x.what == kind::other_call) x.instead.push_back(draw_other_call(s, at, plans, d));
  s.disturbances.push_back(std::move(x));
}

bool goes_missing(const scenario& s) {
  const auto by = [&](const disturbance& x) {
    return x.what == disturbance::kind::skip || x.what == disturbance::kind::other_call ||
           (x.what == disturbance::kind::leave && s.leave_late);
  };
  const auto in = [](const item& it) {
    return std::any_of(it.parts.begin(), it.parts.end(), [](const part_of_split& p) { return goes_missing(p.what); });
  };
  return s.lose_percent > 0 || std::any_of(s.disturbances.begin(), s.disturbances.end(), by) ||
         std::any_of(s.items.begin(), s.items.end(), in);
}

void add_split(scenario& s, const fault_kinds& may, bool again, plan_source& plans, dice& d);

part_of_split draw_part(const scenario& whole, const item& split, std::int32_t color, const fault_kinds& may,
                        bool again, plan_source& plans) {
  part_of_split p;
  p.color = color;
  p.what.seed = mix(whole.seed ^ static_cast<std::uint64_t>(split.id) << 32 ^ static_cast<std::uint64_t>(color) << 48);
  p.what.ranks = static_cast<int>(members_of_part(split.divided, color).size());
  p.what.channels = whole.channels;
  p.what.nic = whole.nic;
  dice d(p.what.seed, {of_scenario});
  p.what.leave_late = d.one_in(3);
  draw_items(p.what, d.between(0, 3), d.one_in(4), plans);
  if (again && d.one_in(4)) add_split(p.what, may, false, plans, d);
  for (int i = d.any_of({0, 0, 1}); i > 0; --i) draw_disturbance(p.what, may, plans, d);
  return p;
}

/// @param again parts may be split, too
void add_split(scenario& s, const fault_kinds& may, bool again, plan_source& plans, dice& d) {
  item it;
  it.id = static_cast<int>(s.items.size());
  it.what.what = collective::all_gather;
  it.what.type = datatype::i32;
  it.what.count = 2;
  it.what.purpose = d.one_in(5) ? call_purpose::duplicate : call_purpose::split;
  it.divided = draw_colors_and_keys(s.ranks, d);
  if (it.what.purpose == call_purpose::duplicate)
    for (rank_t r = 0; r < s.ranks; ++r) {
      it.divided[2 * static_cast<std::size_t>(r)] = 0;
      it.divided[2 * static_cast<std::size_t>(r) + 1] = r;
    }
  do it.how = draw_way(s, it, d);
  while (!can_perform(it, s.ranks, plans));
  for (std::int32_t color = 0; color < s.ranks; ++color)
    if (!members_of_part(it.divided, color).empty()) it.parts.push_back(draw_part(s, it, color, may, again, plans));
  for (int i = d.any_of({0, 1, 1, 2}); i > 0; --i) disturb_split(s, it, may, plans, d);
  s.items.insert(s.items.begin() + static_cast<std::ptrdiff_t>(d.index(s.items.size() + 1)), std::move(it));
}

/// Drawn behind everything else, so that seeds without one mean what they meant before there were splits.
void draw_split(scenario& s, const fault_kinds& may, plan_source& plans) {
  dice d(s.seed, {of_split});
  if (!d.one_in(seeds_a_split) || s.of_host > 0) return;
  add_split(s, may, true, plans, d);
  s.strangers = s.strangers && !goes_missing(s);
}

// -- hosts and NICs -----------------------------------------------------------------------------------------------------------

/// Also of one rank each, where there are NICs, which perform for several hosts; calls in tiers are of two or more.
void draw_hosts(scenario& s, const scenario_limits& limits) {
  dice d(s.seed, {of_nics});
  if (d.one_in(seeds_of_nics))
    s.nic = {d.any_of({64, 256, 65'536}), d.any_of<std::size_t>({4, 64}), d.any_of({1, 4}),
             d.any_of<std::size_t>({256, 8'192, std::size_t{1} << 20})};
  d = dice(s.seed, {of_hosts});
  if (!d.one_in(seeds_of_hosts)) return;
  std::vector<std::pair<int, int>> shapes;
  for (int hosts = 2; hosts <= limits.most_ranks; ++hosts)
    for (int each = s.nic.any() ? 1 : 2; hosts * each <= limits.most_ranks; ++each)
      if (hosts * each >= limits.least_ranks) shapes.emplace_back(hosts, each);
  if (shapes.empty()) return;
  const auto [hosts, each] = d.pick(shapes);
  s.ranks = hosts * each;
  s.of_host = each;
  s.pairs_by_mailbox = s.parts_by_mailbox = true;
  s.sends_are_left = false;
}

/// Every other host with NICs and two ranks has several processes, some of them a NIC process.
void draw_processes(scenario& s) {
  dice d(s.seed, {of_nics, 1});
  if (!s.nic.any() || s.ranks_of_host() < 2 || !d.one_in(2)) return;
  s.nic.processes = d.between(2, s.ranks_of_host());
  s.nic.maps = d.one_in(3);
  s.nic.nicd = s.of_host == 0 && d.one_in(2);
}

void draw_end_of_nicd(scenario& s) {
  dice d(s.seed, {of_nics, 2});
  if (!s.nic.nicd || !d.one_in(2)) return;
  s.nic.ends_after_ns = draw_time(d);
  s.nic.ends_in_order = d.one_in(3);
}

/// What ranks of several processes say to each other goes over links then, as between hosts. The membership is nobody's here, so it may be any of them
/// (`--processes` loses the one that has it).
void draw_loss_of_process(scenario& s) {
  using kind = process_loss::kind;
  dice d(s.seed, {of_nics, 3});
  if (s.nic.processes < 2 || !d.one_in(2)) return;
  process_loss& loss = s.nic.loses;
  loss.host = d.between(0, s.hosts() - 1);
  loss.process = d.between(0, s.nic.processes - 1);
  loss.what = d.any_of({kind::killed, kind::killed, kind::uncounted, kind::unrung, kind::stopped});
  const bool performs = loss.process == 0 && !s.nic.nicd;
  if (performs && d.one_in(2)) loss.what = kind::at_work;
  loss.after_ns = d.one_in(4)                  ? draw_time(d)
                  : loss.what == kind::at_work ? 0
                                               : static_cast<std::int64_t>(d.below(60 * us));  // mostly amid its calls
  if ((loss.what == kind::stopped && d.one_in(2)) || loss.what == kind::at_work)
    loss.goes_on_after_ns = d.any_of<std::int64_t>({100 * us, 5 * ms, 300 * ms, 1'500 * ms});
  s.pairs_by_mailbox = s.parts_by_mailbox = true;
  s.sends_are_left = false;
}

/// Nobody sees that nothing moves between hosts, so nothing may go missing for good: a rank that leaves a call out leaves early, and no other rank waits
/// for a message of that rank meanwhile.
void let_hosts_end(scenario& s) {
  if (s.of_host == 0) return;
  const bool pairs = std::any_of(s.items.begin(), s.items.end(), [](const item& it) { return it.pair; });
  if (pairs) std::erase_if(s.disturbances, [](const disturbance& x) { return x.what == disturbance::kind::skip; });
  if (goes_missing(s)) s.leave_late = false;
}

}  // namespace

scenario make_scenario(std::uint64_t seed, const scenario_limits& limits, plan_source& plans) {
  dice d(seed, {of_scenario});
  scenario s;
  s.seed = seed;
  s.ranks = d.between(limits.least_ranks, limits.most_ranks);
  if (s.ranks > 3 && d.one_in(2)) s.ranks = d.between(std::min(2, limits.least_ranks) + 0, 3);
  s.ranks = std::clamp(s.ranks, limits.least_ranks, limits.most_ranks);
  s.channels = d.between(1, 3);
  s.first = d.one_in(6) ? d.any_of<std::uint64_t>({(std::uint64_t{1} << 31) - 3, (std::uint64_t{1} << 32) - 5}) : 0;
  s.dma = d.one_in(3);
  s.leave_late = d.one_in(3);
  s.all_async = d.one_in(5);
  s.pairs_by_mailbox = dice(seed, {of_ports}).one_in(2);
  s.parts_by_mailbox = dice(seed, {of_ports, 1}).one_in(3);
  s.sends_are_left = !s.pairs_by_mailbox && dice(seed, {of_sends}).percent(70);
  s.most_ahead = static_cast<unsigned>(d.between(1, 4));
  draw_hosts(s, limits);
  draw_processes(s);
  if (limits.faults.kill) draw_loss_of_process(s);
  const int items = d.between(1, limits.most_items);
  const bool repeat = d.one_in(4);
  draw_items(s, items, repeat, plans);
  if (dice own(seed, {of_sends, 1}); s.sends_are_left && s.ranks > 1 && own.one_in(5)) draw_burst(s, own);
  const fault_kinds& may = limits.faults;
  const int calm = d.between(0, 9);
  if (calm < 2) {
    s.nic.loses = {};
    draw_split(s, parse_faults("none"), plans);
    return s;
  }
  if (may.delay) s.late_percent = d.any_of({0, 2, 10, 30});
  if (may.twice) s.twice_percent = d.any_of({0, 0, 5, 30});
  if (may.lose) s.lose_percent = d.any_of({0, 0, 0, 0, 2, 10});
  const int disturbances = d.any_of({0, 0, 1, 1, 1, 2, 3});
  for (int i = 0; i < disturbances; ++i) {
    dice own(seed, {of_disturbance, static_cast<std::uint64_t>(i)});
    draw_disturbance(s, may, plans, own);
  }
  if (may.kill) draw_end_of_nicd(s);
  let_hosts_end(s);
  // Where calls go missing for good, only who knows all callers can find out.
  s.strangers = !goes_missing(s) && d.one_in(2);
  draw_split(s, may, plans);
  return s;
}

namespace {

bool leave_out_ranks(item& it, int ranks, plan_source& plans) {
  if (it.pair) return it.from < ranks && it.to < ranks;
  if (it.what.outcome_of) return true;
  if (has_root(it.what.what) && it.what.root >= ranks) return false;
  if (!it.what.uniform) it.counts.resize(static_cast<std::size_t>(block_count(it.what.what, ranks)));
  if (!can_perform(it, ranks, plans)) return false;
  if (!it.splits()) return true;
  it.divided.resize(2 * static_cast<std::size_t>(ranks));
  std::erase_if(it.parts, [&](const part_of_split& p) { return members_of_part(it.divided, p.color).empty(); });
  return std::all_of(it.parts.begin(), it.parts.end(), [&](part_of_split& p) {
    const auto left = static_cast<int>(members_of_part(it.divided, p.color).size());
    return left == p.what.ranks || simulate::leave_out_ranks(p.what, left, plans);
  });
}

}  // namespace

bool leave_out_ranks(scenario& of, int ranks, plan_source& plans) {
  if (of.of_host > 0 && (ranks % of.of_host != 0 || ranks == of.of_host)) return false;
  of.ranks = ranks;
  of.nic.processes = std::min(of.nic.processes, of.ranks_of_host());
  if (of.nic.loses.process >= of.nic.processes || of.nic.loses.host >= of.hosts()) of.nic.loses = {};
  std::erase_if(of.disturbances, [&](const disturbance& x) { return x.rank >= ranks; });
  const auto fits = [&](item& it) { return leave_out_ranks(it, ranks, plans); };
  return std::all_of(of.items.begin(), of.items.end(), fits) &&
         std::all_of(of.disturbances.begin(), of.disturbances.end(),
                     [&](disturbance& x) { return std::all_of(x.instead.begin(), x.instead.end(), fits); });
}

}  // namespace troupe::simulate
