// SPDX-License-Identifier: Apache-2.0
// What hosts and units do; offload_nic_network.cpp has the other half.
#include "actors/elements/offload/offload_nic.hpp"

#include <algorithm>
#include <utility>

#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"
#include "protocols/offload/descriptor_form.hpp"

namespace troupe::actors {

namespace {
std::string text(std::size_t n) { return std::to_string(n); }

void check_config(const offload_config& c) {
  const auto check = [](bool good, const char* what) {
    if (!good) throw error(errc::bad_config, std::string{"offload: "} + what);
  };
  check(c.units >= 1 && c.units <= 1024, "a NIC has 1 to 1024 units");
  check(c.packet_bytes >= 16 && c.packet_bytes <= std::size_t{1} << 20, "a packet has 16 bytes to 1 MiB");
  check(c.buffer_bytes >= c.packet_bytes, "a unit's buffer has room for a packet at least");
  check(c.window >= 1 && c.window < std::size_t{1} << 20, "a channel's window is 1 packet at least");
  check(c.reduction_elements >= 1, "the network reduces 1 element at once at least");
  check(c.pulses >= 1 && c.counters >= 1, "a pulse at least is under way, and there is a counter for it");
  check(c.resend.count() > 0 && c.longest_resend >= c.resend, "silence is longer than nothing");
  check(c.longest_counter_wait.count() > 0, "a sender waits for a counter");
}
}  // namespace

offload_nic::offload_nic(const offload_config& config) : config_(config) {
  check_config(config_);
  units_.reserve(static_cast<std::size_t>(config_.units));
  for (int u = 0; u < config_.units; ++u) units_.emplace_back(config_.buffer_bytes / config_.packet_bytes);
}

offload_nic::~offload_nic() = default;

// -- hosts ------------------------------------------------------------------------------------------------------------

std::string offload_nic::post(const offload_posting& what) {
  if (std::string why = why_not(what); !why.empty()) return why;
  auto of = std::make_shared<posted>(posted{what, what.program->sequences.size()});
  // What another job of this number has sent is not its own.
  if (std::exchange(epoch_of_[what.job.id], what.job.epoch) != what.job.epoch) pulses_[what.job.id] = 0;
  for (const offload::sequence& code : what.program->sequences) {
    const std::uint32_t name = name_of(what.job.id, code.port);
    auto made = make_run(of, code);
    run& r = *made;
    runs_.insert_or_assign(name, std::move(made));
    ++units_[static_cast<std::size_t>(r.unit)].sequences;
    wake(r);
    if (came_early_.test(name)) {
      came_early_.reset(name);
      for (const incoming& c : r.in) answer(r, c, true);
    }
  }
  return {};
}

std::string offload_nic::why_not(const offload_posting& what) const {
  const offload::rank_program& p = *what.program;
  if (config_.node && p.at.node != *config_.node)
    return "the descriptors are for node " + text(p.at.node) + ", this is node " + text(*config_.node);
  if (what.reduction.kind == op_kind::user || what.reduction.kind == op_kind::avg ||
      what.reduction.kind == op_kind::pre_mul_sum)
    return "a NIC has no " + std::string{name(what.reduction.kind)} + "; it reduces by operations of its own";
  if (p.element_size != size_of(what.type))
    return "the descriptors are for elements of " + text(p.element_size) + " bytes, " + std::string{name(what.type)} +
           " has " + text(size_of(what.type));
  if (runs_.size() + p.sequences.size() > config_.most_sequences)
    return "the NIC has " + text(config_.most_sequences) + " sequences at most, and " + text(runs_.size()) +
           " under way; post again when some have ended";
  if (std::string why = offload::why_not_well_formed(p, packet_elements(p)); !why.empty()) return why;
  for (const offload::sequence& s : p.sequences)
    if (std::string why = why_not_sequence(what, s); !why.empty()) return why;
  return {};
}

std::string offload_nic::why_not_sequence(const offload_posting& what, const offload::sequence& s) const {
  const std::uint32_t name = name_of(what.job.id, s.port);
  const std::string where = "port " + text(s.port) + " of job " + text(what.job.id);
  if (runs_.contains(name)) return where + " has a sequence under way";
  if (const auto before = ended_.find(name); before != ended_.end() && before->second.epoch >= what.job.epoch)
    return where + " has had epoch " + text(before->second.epoch) + "; the next one must be later";
  const offload::rank_program& p = *what.program;
  for (const offload::descriptor& d : s.descriptors) {
    if (pieces_of(p, d) >= std::size_t{1} << index_bits) return where + ": a message has too many packets";
    if (d.reduce && !supports(what.type, what.reduction.kind)) return why_unsupported(what.type, what.reduction.kind);
  }
  return {};
}

std::unique_ptr<offload_nic::run> offload_nic::make_run(const std::shared_ptr<posted>& of,
                                                        const offload::sequence& code) {
  auto r = std::make_unique<run>();
  r->of = of;
  r->code = &code;
  r->serial = ++serials_;
  const auto least = std::min_element(units_.begin(), units_.end(),
                                      [](const unit& a, const unit& b) { return a.sequences < b.sequences; });
  r->unit = static_cast<int>(least - units_.begin());
  list_channels(*r);
  return r;
}

void offload_nic::list_channels(run& r) const {
  bool first = true;
  for (const offload::descriptor& d : r.code->descriptors) {
    for (const offload::awaited_message& m : r.program().messages_of(d)) {
      if (std::exchange(first, false)) r.awaited = d.awaited;
      auto c = std::find_if(r.in.begin(), r.in.end(),
                            [&](const incoming& x) { return x.node == m.node && x.port == m.port; });
      if (c == r.in.end()) c = r.in.insert(c, {m.node, m.port, 0, none_refused});
      r.in_of.push_back(static_cast<std::uint16_t>(c - r.in.begin()));
    }
    std::size_t out = 0;
    if (d.triggers) {
      const std::uint16_t from = d.swap_local_port ? r.code->port : d.source_port;
      const offload_channel_name to{r.program().at.node, d.dest_node, from, d.dest_port};
      while (out < r.out.size() && r.out[out].name() != to) ++out;
      if (out == r.out.size()) r.out.emplace_back(to);
    }
    r.out_of.push_back(static_cast<std::uint16_t>(out));
  }
}

void offload_nic::abort(offload_job job, picoseconds now) { remove_job(job, now); }

void offload_nic::remove_job(offload_job job, picoseconds now) {
  std::vector<std::uint32_t> names;
  for (const auto& [name, r] : runs_)
    if (r->job() == job) names.push_back(name);
  for (const std::uint32_t name : names) remove(name, false, now);
  if (names.empty()) return;
  for (unit& u : units_) {
    note_fill(u, now);
    u.buffer.remove_job(job.id);
  }
}

/// The whole job ends here, whoever of it is at fault: its hosts tell the others.
void offload_nic::fail(offload_job job, const std::string& why, picoseconds now) {
  std::vector<rank_t> ranks;
  for (const auto& [name, r] : runs_)
    if (r->job() == job && std::find(ranks.begin(), ranks.end(), r->program().rank) == ranks.end())
      ranks.push_back(r->program().rank);
  std::sort(ranks.begin(), ranks.end());
  for (const rank_t rank : ranks) completions_.push_back({job, rank, why});
  remove_job(job, now);
}

void offload_nic::remove(std::uint32_t name, bool well, picoseconds now) {
  const auto found = runs_.find(name);
  run& r = *found->second;
  forget(r, now);
  unit& u = units_[static_cast<std::size_t>(r.unit)];
  note_fill(u, now);
  std::erase(u.ready, &r);
  --u.sequences;
  ended_[name] = {r.job().epoch, well};
  runs_.erase(found);
}

// -- units ------------------------------------------------------------------------------------------------------------

std::optional<offload_work> offload_nic::work(int which, picoseconds now) {
  unit& u = units_[static_cast<std::size_t>(which)];
  if (u.reads) {
    note_fill(u, now);
    u.buffer.end_reading();
    u.reads = false;
  }
  auto& ready = u.ready;
  while (!ready.empty()) {
    run& r = *ready.front();
    ready.pop_front();
    r.ready = false;
    const std::uint32_t name = name_of(r.job().id, r.code->port);
    auto done = advance(r, now);
    if (!done) continue;
    if (runs_.contains(name)) wake(r);  // and it is the others' turn first
    return done;
  }
  return std::nullopt;
}

std::optional<offload_work> offload_nic::advance(run& r, picoseconds now) {
  const offload::descriptor& d = r.now();
  if (d.collective_end) return end(r, now);
  const bool fires = !r.begun;
  if (fires && !begin(r)) return std::nullopt;
  if (d.count > 0) return take(r, fires, now);
  if (!d.triggers) return perform_local(r, fires);
  next_descriptor(r);
  return offload_work{r.job(), true};
}

/// False: it lacks a credit.
bool offload_nic::begin(run& r) {
  const offload::descriptor& d = r.now();
  r.pieces = pieces_of(r.program(), d);
  r.piece = r.source = 0;
  if (d.triggers) {
    const out_ref c{&r, r.out_of[r.next]};
    if (c->messages() >= static_cast<std::size_t>(r.program().credits)) return false;
    outgoing_message m;
    m.seq_id = d.seq_id;
    m.has_data = d.swap_remote_data;
    m.has_address = d.swap_remote_address;
    m.bytes = d.elements * r.program().element_size;
    m.packets = r.pieces;
    m.ready = d.count > 0 ? 0 : r.pieces;
    if (config_.carries && d.elements > 0) m.data = at(r, d.target.buffer != buffer_kind::none ? d.target : d.own);
    if (d.reduced_there && d.elements > config_.reduction_elements) {
      const std::size_t pulse = (config_.reduction_elements + static_cast<std::size_t>(config_.pulses) - 1) /
                                static_cast<std::size_t>(config_.pulses);
      const std::size_t each = packet_elements(r.program());
      m.pulse_packets = (pulse + each - 1) / each;
    }
    c->hand_over(m);
    if (m.ready > 0) activate(c);
  }
  return r.begun = true;
}

void offload_nic::next_descriptor(run& r) {
  ++r.next;
  r.begun = false;
}

std::optional<offload_work> offload_nic::end(run& r, picoseconds now) {
  for (const outgoing_channel& c : r.out)
    if (c.messages() > 0) return std::nullopt;
  const auto of = r.of;
  remove(name_of(r.job().id, r.code->port), true, now);
  if (--of->sequences == 0) completions_.push_back({of->what.job, of->what.program->rank, {}});
  return offload_work{of->what.job, true};
}

offload_work offload_nic::perform_local(run& r, bool fires) {
  const offload::descriptor& d = r.now();
  const std::size_t bytes = d.elements == 0 ? 0 : piece_bytes(r), offset = piece_offset(r);
  if (config_.carries && bytes > 0) {
    const std::byte* own = at(r, d.own) + offset;
    std::byte* target = at(r, d.target) + offset;
    const offload_posting& p = r.of->what;
    const std::size_t count = bytes / r.program().element_size;
    if (!d.reduce) troupe::copy(target, own, bytes);
    else if (d.swapped) reduce(p.type, p.reduction, own, target, target, count);
    else reduce(p.type, p.reduction, target, own, target, count);
  }
  if (++r.piece == r.pieces) next_descriptor(r);
  return {r.job(), fires, d.reduce, true, bytes};
}

/// One packet more of the descriptor's.
std::optional<offload_work> offload_nic::take(run& r, bool fires, picoseconds now) {
  const offload::descriptor& d = r.now();
  auto came = fetch(r, now);
  if (!came) return std::nullopt;
  if (const std::string why = why_not_taken(r, *came); !why.empty()) {
    const offload_job job = r.job();
    fail(job, why, now);
    return offload_work{job, true};
  }
  if (d.swap_local_data) combine(r, *came);
  const offload_work done{r.job(),     fires, d.reduce,    d.target.buffer != buffer_kind::none,
                          came->bytes, true,  r.piece == 0};
  incoming& c = r.in[r.in_of[d.awaited + r.source - r.awaited]];
  ++c.taken;
  answer(r, c, false);
  if (++r.source < d.count) return done;
  r.source = 0;
  if (d.triggers) {
    const out_ref to{&r, r.out_of[r.next]};
    to->one_more_ready();
    activate(to);
  }
  if (++r.piece == r.pieces) next_descriptor(r);
  return done;
}

std::string offload_nic::why_not_taken(const run& r, const stored& p) const {
  const offload::descriptor& d = r.now();
  const std::size_t expected = d.swap_local_data ? piece_bytes(r) : 0;
  const bool good = p.has_data == d.swap_local_data && p.bytes == expected && p.has_address == (r.pieces > 1) &&
                    (!config_.carries || p.lies_at != nullptr || p.data.size() == expected);
  if (good) return {};
  return "rank " + std::to_string(r.program().rank) + ", port " + text(r.code->port) + ", descriptor " + text(r.next) +
         ": a packet of " + text(p.bytes) + " bytes came where one of " + text(expected) +
         " was to come; the ranks perform different calls";
}

/// Combines with what there is: the rank's own data first, then what came before. The last one's result is kept at once.
void offload_nic::combine(run& r, const stored& p) {
  if (!config_.carries) return;
  const offload::descriptor& d = r.now();
  const std::size_t offset = piece_offset(r);
  const bool last = r.source + 1 == d.count;
  const bool keeps = last && d.target.buffer != buffer_kind::none;
  if (!keeps && r.sum.empty()) r.sum.resize(config_.packet_bytes);
  std::byte* out = keeps ? at(r, d.target) + offset : r.sum.data();
  if (!d.reduce) return troupe::copy(out, p.bytes_of_it(), p.bytes);
  const offload_posting& of = r.of->what;
  const std::byte* there = r.source == 0 ? at(r, d.own) + offset : r.sum.data();
  const std::size_t count = p.bytes / r.program().element_size;
  const bool swapped = r.program().awaited[d.awaited + r.source].swapped;
  if (swapped) reduce(of.type, of.reduction, there, p.bytes_of_it(), out, count);
  else reduce(of.type, of.reduction, p.bytes_of_it(), there, out, count);
}

// -- questions --------------------------------------------------------------------------------------------------------

offload_statistics offload_nic::statistics() const {
  offload_statistics s;
  s.sequences = runs_.size();
  for (const unit& u : units_) {
    const packet_buffer_statistics b = u.buffer.statistics();
    s.waiting += b.size;
    s.most_waiting = std::max(s.most_waiting, b.high_water);
    s.capacity = b.capacity;
  }
  s.refused = refused_;
  s.early = early_;
  s.again = again_;
  s.counters = counters_;
  s.most_counters = most_counters_;
  return s;
}

double offload_nic::average_fill(int which, picoseconds now) const {
  const unit& u = units_[static_cast<std::size_t>(which)];
  if (now.count() <= 0) return 0;
  const double so_far =
      u.filled + static_cast<double>(u.buffer.occupied()) * static_cast<double>((now - u.since).count());
  return so_far / static_cast<double>(now.count()) / static_cast<double>(u.buffer.capacity());
}

}  // namespace troupe::actors
