// SPDX-License-Identifier: Apache-2.0
// The words of simulated processes and their ranks, and how they travel.

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/tools/simulate/job_world.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::simulate {

// -- processes -------------------------------------------------------------------------------------------------------------

void job_world::presence_voice::tell(std::uint32_t to, const process_word& what) {
  if (w.is(job_mutant::no_suspicion) &&
      (std::holds_alternative<suspect_word>(what) || std::holds_alternative<lost_word>(what)))
    return;
  w.send(p.here, static_cast<int>(to), [this_world = &w, from = p.here, what](process& there) {
    there.presence.word(static_cast<std::uint32_t>(from), what, this_world->clock(), *there.says);
  });
}

bool job_world::presence_voice::can_hear(std::uint32_t to) {
  const connection& c = w.line(p.here, static_cast<int>(to));
  return c.used && c.writes;
}

void job_world::presence_voice::beat(std::uint32_t to) {
  if (!w.is(job_mutant::no_beats) && can_hear(to)) tell(to, beat_word{});
}

void job_world::presence_voice::expelled(const std::string& why) {
  w.tell("process " + std::to_string(p.here) + " is taken for lost: " + why);
  p.expelled = true;
  p.agreements.expelled(why, *p.agreements_say);
}

/// In its connection, as every frame.
void job_world::agreements_voice::send(std::uint32_t to, communicator_id of, const shrink_word& what) {
  if (w.is(job_mutant::absent_unsaid) && what.what.what == survivors_word::kind::absent) return;
  static constexpr const char* names[] = {"ready", "ask", "waiting", "propose", "accept", "decide", "absent"};
  w.send(p.here, static_cast<int>(to), [this_world = &w, from = p.here, of, what](process& there) {
    job_world& world = *this_world;
    world.tell("process " + std::to_string(there.here) + " hears `" + names[static_cast<int>(what.what.what)] +
               "` of process " + std::to_string(from) + " for shrink " + std::to_string(what.number) + " of " +
               std::to_string(of % 10'000));
    const auto again = [from, what](member& m) {
      static_cast<void>(
          m.in.agreements.heard(static_cast<std::uint32_t>(from), m.id, what, false, *m.in.agreements_say));
    };
    switch (there.agreements.heard(static_cast<std::uint32_t>(from), of, what, there.early.is_over(of),
                                   *there.agreements_say)) {
      case shrink_agreements::reception::taken: return;
      case shrink_agreements::reception::nonsense: return world.fault("a word of a shrink is taken for nonsense");
      case shrink_agreements::reception::early:
        if (!world.is(job_mutant::early_dropped))
          there.early.keep(of, static_cast<std::uint32_t>(from), [&] { return to_member{again}; });
    }
  });
}

/// Later, as by job_links: a receiver may come back to the agreements.
void job_world::agreements_voice::answered(communicator_id of, std::uint64_t number, const std::vector<rank_t>& members,
                                           const failure_ptr& why) {
  w.at_process(p.here, [this, of, number, members, why](process& here) {
    for (const auto& m : here.members)
      if (!m->local && m->id == of) w.decided(*m, number, members, why);
  });
}

// -- ranks, to the membership ----------------------------------------------------------------------------------------------

void job_world::rank_voice::left(epoch_t operations, call last, sends_ptr sent) {
  keep(left_message{rank, operations, std::move(last), std::move(sent)});
  m.at(rank).left = true;
  w.all_left_if_so(m);
}

void job_world::rank_voice::say(home_word&& word) {
  if (m.at_home) return w.at_process(m.in.here, [this, word = std::move(word)](process&) { w.to_membership(m, word); });
  w.send_to(m, m.home, [word = std::move(word)](member& home) {
    if (home.at_home) home.world.to_membership(home, word);
    else home.world.fault("a word for a home that is none");
  });
}

void job_world::rank_voice::keep(home_word&& word) {
  m.kept.push_back(word);
  say(std::move(word));
}

// -- ranks, to others ------------------------------------------------------------------------------------------------------

void job_world::rank_voice::order(rank_t to, const rank_order& what) {
  if (m.is_here(to)) return w.at_process(m.in.here, [this, to, what](process&) { w.to_rank(m, to, what); });
  w.send_to(m, m.process_of[static_cast<std::size_t>(to)],
            [to, what](member& there) { there.world.to_rank(there, to, what); });
}

bool job_world::rank_voice::deliver(rank_t to, int channel, chunk&& what) {
  if (m.is_here(to)) {
    order(to,
          [channel, what = std::move(what)](rank_state& s, rank_outbox& o) { s.on_chunk(channel, chunk{what}, o); });
    return false;
  }
  const job_chunk_name name{rank, to, what.epoch, what.lane, what.sequence};
  const std::uint64_t where = m.whole == 0 ? 0x51 : mix(m.id ^ 0x51);
  dice d(w.seed_, {where, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(to), what.epoch, what.lane,
                   what.sequence});
  if (what.bytes == 0 || !d.percent(40)) {
    what.settled = d.percent(50);  // carry() keeps a copy
    carry(to, channel, what);
    return what.settled;
  }
  chunk announced = what;
  announced.data = nullptr;
  announced.announced = true;
  m.parked.insert_or_assign(name, std::move(what));
  order(to, [channel, announced](rank_state& s, rank_outbox& o) { s.on_chunk(channel, chunk{announced}, o); });
  return false;
}

/// The system takes a copy.
void job_world::rank_voice::carry(rank_t to, int channel, const chunk& what) {
  auto bytes = std::make_shared<std::vector<std::byte>>(what.data, what.data + what.bytes);
  chunk sent = what;
  sent.data = bytes->data();
  sent.keep = bytes;
  w.send_to(m, m.process_of[static_cast<std::size_t>(to)], [to, channel, sent](member& there) {
    chunk here = sent;
    const auto at = there.places.find({sent.source, to, sent.epoch, sent.lane, sent.sequence});
    if (at != there.places.end() && at->second.bytes == sent.bytes && at->second.fingerprint == sent.fingerprint) {
      std::memcpy(at->second.place, sent.data, sent.bytes);
      here.data = at->second.place;
      here.keep = nullptr;
      there.places.erase(at);
    }
    there.world.to_rank(there, to,
                        [channel, here](rank_state& s, rank_outbox& o) { s.on_chunk(channel, chunk{here}, o); });
  });
}

void job_world::rank_voice::give_back(rank_t to, int channel, const credit& what) {
  order(to, [channel, what](rank_state& s, rank_outbox& o) { s.on_credit(channel, what, o); });
}

bool job_world::rank_voice::offer_place(int, const expected_chunk& what) {
  if (m.is_here(what.source)) return false;
  m.places[{what.source, rank, what.epoch, what.lane, what.sequence}] = what;
  return true;
}

void job_world::rank_voice::withdraw_place(int, const expected_chunk& what) {
  m.places.erase({what.source, rank, what.epoch, what.lane, what.sequence});
}

void job_world::rank_voice::clear(rank_t to, int channel, const credit& what) {
  w.send_to(m, m.process_of[static_cast<std::size_t>(to)], [me = rank, to, channel, what](member& there) {
    const auto at = there.parked.find({to, me, what.epoch, what.lane, what.sequence});
    if (at == there.parked.end()) return;
    const chunk cleared = std::move(at->second);
    there.parked.erase(at);
    there.at(to).says->carry(me, channel, cleared);
  });
}

bool job_world::rank_voice::transfer(const operation_key&, int, int, std::byte* target, const std::byte* source,
                                     std::size_t bytes) {
  troupe::copy(target, source, bytes);
  return true;
}

bool job_world::rank_voice::flush(const operation_key& which) {
  // A send and a receive of one peer may have one number.
  const auto is_of = [&](epoch_t epoch, rank_t other, bool sending) {
    return epoch == which.epoch && (which.peer < 0 || (which.peer == other && which.sending == sending));
  };
  std::erase_if(m.parked, [&](const auto& each) {
    return each.first.from == rank && is_of(each.first.epoch, each.first.to, true);
  });
  std::erase_if(m.places, [&](const auto& each) {
    return each.first.to == rank && is_of(each.first.epoch, each.first.from, false);
  });
  return false;
}

}  // namespace troupe::simulate
