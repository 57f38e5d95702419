// SPDX-License-Identifier: Apache-2.0
// Boards perform the verified score: of all built-in choreographies, in every form in which plans use them. And broken
// programs are not.

#include "protocols/perform/program_proof.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/agreement_round.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/partition.hpp"
#include "protocols/program/arrivals.hpp"
#include "protocols/program/direct_sizes.hpp"
#include "tests/seed.hpp"

using namespace troupe;

namespace {

/// A score as it is performed, and a call of it. Its programs are made for another size, and fitted to that of the call.
struct subject {
  score notes;
  verdict verified;
  std::size_t count;                ///< of every block …
  std::vector<std::size_t> counts;  ///< … or of each
  score aliased;                    ///< the score with the buffers of the call; else as `notes`

  subject(score s, std::size_t elements)
      : notes(std::move(s)), verified(verify(notes)), count(elements), aliased(notes) {}
  subject(score s, std::vector<std::size_t> elements) : subject(std::move(s), 0) { counts = std::move(elements); }
  call_shape shape() const { return {count, counts, {}, {}, 8}; }
  proof_subject proof() const { return {aliased, verified, shape()}; }
  std::vector<std::shared_ptr<const program>> programs() const {
    std::vector<std::shared_ptr<const program>> all;
    const call_shape planned{count + count / 8 + 3, {}, {}, {}, 8};
    for (rank_t r = 0; r < notes.ranks; ++r)
      all.push_back(std::make_shared<const program>(compile(notes, r, planned, {})));
    return all;
  }
};

/// Cut so, by mailbox. @pre cut {1, 1}, or one cell a step
std::vector<std::shared_ptr<program>> by_mailbox(const subject& of, const cutting& cut) {
  std::vector<std::shared_ptr<program>> all;
  const call_shape planned{of.count + of.count / 8 + 3, {}, {}, {}, 8};
  for (rank_t r = 0; r < of.notes.ranks; ++r) {
    all.push_back(std::make_shared<program>(compile(of.notes, r, planned, cut)));
    fit(*all.back(), of.shape());
  }
  return all;
}

std::string why_not_by_mailbox(const subject& of, const std::vector<std::shared_ptr<program>>& programs, int credits) {
  const std::vector<std::shared_ptr<const program>> all(programs.begin(), programs.end());
  return why_not_the_score(of.proof(), all, credits);
}

std::optional<std::vector<slot_program>> over_slots(const subject& of, slot_format format) {
  std::vector<slot_program> all;
  for (const auto& code : of.programs()) {
    if (!why_no_slots(*code, format).empty()) return std::nullopt;
    all.push_back(compile_slots(*code, format));
    fit(all.back(), of.shape());
  }
  return all;
}

direct_program over_buffers(const subject& of) {
  return compile_direct(of.programs(), {of.notes.what, of.notes.root, of.aliased.in_place});
}

/// Of each rank's input: the operands of others' own copies, all of which it has to bring to where they look; or all of the input.
void check_what_others_read(const direct_program& made) {
  const auto n = static_cast<int>(made.bodies.size());
  for (rank_t r = 0; r < n; ++r) {
    const direct_program::use_by_others& used = made.used[static_cast<std::size_t>(r)];
    std::int64_t brought = 0;
    for (const std::uint32_t operand : used.inputs) {
      const cell_range& at = made.operands[operand];
      CHECK(at.owner == r);
      CHECK(at.buffer == buffer_kind::input);
      brought += at.count;
    }
    if (!used.inputs.empty()) CHECK(brought < input_blocks(made.what, n, made.root, r).count * made.parts);
    for (rank_t other = 0; other < n; ++other)
      for (const auto& c : made.to_own[static_cast<std::size_t>(other)]) {
        const cell_range& source = made.operands[c.source];
        if (other == r || source.owner != r) continue;
        CHECK(used.reads_input);
        CHECK((used.inputs.empty() || std::ranges::any_of(used.inputs, [&](std::uint32_t operand) {
                 return made.operands[operand] == source;
               })));
      }
  }
}

/// As processes perform it that each do the copies to their own output; nothing: it is not performed so.
std::optional<direct_program> each_alone(const subject& of) {
  direct_program made = compile_direct(of.programs(), {of.notes.what, of.notes.root, of.aliased.in_place, true});
  if (made.to_own.empty()) return std::nullopt;
  check_what_others_read(made);
  made.at_work.clear();
  for (std::size_t r = 0; r < made.bodies.size(); ++r) {
    made.bodies[r].passes.clear();
    for (const auto& c : made.to_own[r]) {
      direct_program::pass copy;
      copy.operands = static_cast<std::uint32_t>(made.operands.size());
      copy.inputs = copy.outputs = 1;
      made.operands.push_back(cell_range{made.operands[c.source]});
      made.operands.push_back(cell_range{made.operands[c.target]});
      made.bodies[r].passes.push_back(copy);
    }
    made.at_work.push_back(static_cast<rank_t>(r));
  }
  return made;
}

/// The forms in which plans perform a choreography on slots: as it is or folded in rank order, with an agreement where its messages
/// do not tell everybody of everybody.
std::vector<score> forms_of(const choreography& who, const setup& on) {
  std::vector<score> forms;
  const score plain = lower_syncs(write_score(who, on));
  std::vector<score> lowered{plain};
  if (is_reduction(on.what)) try {
      lowered.push_back(fold_in_rank_order(plain));
    } catch (const std::exception&) {  // this one cannot be
    }
  for (const score& s : lowered) {
    if (everybody_hears_of_everybody(s)) forms.push_back(s);
    for (const agreement_form form : agreement_forms)
      if (auto with = with_agreement(s, form); with && on.ranks > 1) forms.push_back(std::move(*with));
  }
  return forms;
}

void for_each_setup(const choreography& who, const std::function<void(const setup&)>& act, bool uniform = true) {
  for (int ranks = 2; ranks <= 9; ++ranks)
    for (const collective what : who.collectives)
      for (const rank_t root : {0, ranks / 2, ranks - 1})
        for (const bool in_place : {false, true}) {
          if (root > 0 && !has_root(what)) continue;
          const setup on = flat_setup(what, ranks, root, in_place, uniform);
          if ((in_place && !agrees_on_place(what, uniform)) || (!uniform && block_count(what, ranks) < 2)) continue;
          if (refusal(who, on).empty()) act(on);
        }
}

std::string title(const subject& of) {
  return of.notes.choreography + ' ' + std::string{name(of.notes.what)} + ", " + std::to_string(of.notes.ranks) +
         " ranks, root " + std::to_string(of.notes.root) + ", " +
         (of.counts.empty() ? std::to_string(of.count) : "different") + " elements" +
         (of.aliased.in_place ? ", in place" : "");
}

/// Of all bodies. @pre blocks are equal
std::size_t units_of(const subject& of, const direct_program& program) {
  direct_sizes sizes;
  sizes.set(program, 0, of.shape());
  std::size_t sum = 0;
  for (rank_t r = 0; r < of.notes.ranks; ++r) sum += sizes.units(r);
  return sum;
}

/// Of every block of a call with blocks of different sizes; some are empty.
std::vector<std::size_t> random_counts(const score& s, std::mt19937_64& random) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(block_count(s.what, s.ranks)));
  for (std::size_t& n : counts) n = random() % 4 == 0 ? 0 : random() % 40;
  return counts;
}

/// The same score at a root whose call is in place, if it may be performed so.
std::optional<subject> at_root_in_place(const subject& of) {
  if (traits_of(of.notes.what).place != in_place_rule::at_root) return std::nullopt;
  const verdict v = verify(root_in_place(of.notes));
  if (!v.ok()) return std::nullopt;
  for (std::int32_t c = 0; is_reduction(of.notes.what) && c < of.notes.parts; ++c)
    if (tree_of(v, of.notes.root, c) != tree_of(of.verified, of.notes.root, c)) return std::nullopt;
  subject same = of;
  same.aliased.in_place = true;
  return same;
}

}  // namespace

TEST_CASE("what slots perform is the score: all choreographies, in every form that plans use") {
  std::size_t checked = 0, in_place_at_root = 0, offered = 0;
  for (const choreography* who : all_choreographies()) {
    for_each_setup(*who, [&](const setup& on) {
      for (score& s : forms_of(*who, on))
        for (const std::size_t count : {1U, 5U, 40U}) {
          const subject of{s, count};
          INFO(title(of));
          REQUIRE_MESSAGE(of.verified.ok(), to_string(*of.verified.first_fault));
          ++offered;
          const slot_format format = offered % 2 == 0 ? slot_format::ll : slot_format::ll128;
          const auto programs = over_slots(of, format);
          if (!programs) continue;
          ++checked;
          CHECK(why_not_the_score(of.proof(), *programs) == "");
          if (const auto same = at_root_in_place(of)) {
            ++in_place_at_root;
            CHECK(why_not_the_score(same->proof(), *programs) == "");
          }
        }
    });
  }
  MESSAGE(checked << " of " << offered << " go over slots; " << in_place_at_root
                  << " of those at a root in place, too");
  CHECK(checked > offered / 2);
  CHECK(in_place_at_root > 0);
}

TEST_CASE("what the direct port's units do is the score: every collective that it performs") {
  std::size_t checked = 0, cut = 0, alone = 0;
  const choreography& fused = *find_choreography("fused");
  for_each_setup(fused, [&](const setup& on) {
    for (const std::size_t count : {1U, 5U, 40U, 70'001U}) {
      if (count > 1000 && on.ranks > 3) continue;
      const subject of{lower_syncs(write_score(fused, on)), count};
      INFO(title(of));
      REQUIRE(of.verified.ok());
      const direct_program program = over_buffers(of);
      ++checked;
      cut += units_of(of, program) > of.notes.players.size();
      CHECK(why_not_the_score(of.proof(), program) == "");
      if (const auto same = at_root_in_place(of)) CHECK(why_not_the_score(same->proof(), over_buffers(*same)) == "");
      if (const auto own = each_alone(of)) CHECK(why_not_the_score(of.proof(), *own) == ""), ++alone;
    }
  });
  CHECK(checked > 200);
  CHECK(cut > 10);
  CHECK(alone > 100);
}

TEST_CASE("a block that a rank keeps for itself is not brought to where others read") {
  const auto brought = [](collective what, rank_t rank) {
    const subject of{lower_syncs(write_score(*find_choreography("fused"), flat_setup(what, 4, 1, false, false))), 9};
    const direct_program made = compile_direct(of.programs(), {what, of.notes.root, false, true});
    REQUIRE(made.to_own.size() == 4);
    return made.used[static_cast<std::size_t>(rank)].inputs.size();
  };
  CHECK(brought(collective::scatter, 1) == 3);
  CHECK(brought(collective::all_to_all, 2) == 3);
  CHECK(brought(collective::all_gather, 2) == 0);  // all of it
}

TEST_CASE("what others read of inputs and write to outputs, and how many ranks do, by which staging is weighed") {
  const auto made_of = [](collective what) {
    const subject of{lower_syncs(write_score(*find_choreography("fused"), flat_setup(what, 4, 1, false, false))), 9};
    return compile_direct(of.programs(), {what, of.notes.root, false, true});
  };
  const auto is = [](const direct_program::passing& found, double times, double part, int owners, int others) {
    CHECK(found.times == doctest::Approx(times));
    CHECK(found.part == doctest::Approx(part));
    CHECK(found.owners == owners);
    CHECK(found.others == others);
  };
  const auto read = [&](collective what) { return made_of(what).read_by_others; };
  is(read(collective::all_to_all), 0.75, 0.25, 4, 4);
  is(read(collective::all_gather), 3, 1, 4, 4);
  is(read(collective::broadcast), 3, 0.25, 1, 3);
  is(read(collective::scatter), 0.75, 0.25, 1, 3);
  is(read(collective::gather), 1, 1, 3, 1);
  is(read(collective::all_reduce), 0.75, 0.25, 4, 4);
  is(made_of(collective::all_reduce).written_by_others, 0.75, 0.25, 4, 4);
  is(made_of(collective::gather).written_by_others, 0.75, 0.25, 1, 3);
  CHECK(made_of(collective::all_reduce).most_inputs == 4);
  // Copies to the ranks' own outputs are read, too.
  CHECK(made_of(collective::all_gather).staged_share == doctest::Approx(0.25));
  CHECK(made_of(collective::all_to_all).staged_share == doctest::Approx(1));
  CHECK(made_of(collective::gather).staged_share == doctest::Approx(0.75));
}

TEST_CASE("with blocks of different sizes, too: slots where every rank knows them, the direct port always") {
  std::mt19937_64 random{seed()};
  std::size_t over_lines = 0, direct = 0, alone = 0;
  for (const choreography* who : all_choreographies())
    for_each_setup(
        *who,
        [&](const setup& on) {
          for (const score& whole : forms_of(*who, on)) {
            const score s = one_cell_per_step(whole);
            const subject of{s, random_counts(s, random)};
            INFO(title(of));
            REQUIRE(of.verified.ok());
            const auto programs =
                traits_of(on.what).v == v_counts::common ? over_slots(of, slot_format::ll128) : std::nullopt;
            if (programs) CHECK(why_not_the_score(of.proof(), *programs) == "");
            over_lines += programs.has_value();
          }
        },
        false);
  const choreography& fused = *find_choreography("fused");
  for_each_setup(
      fused,
      [&](const setup& on) {
        const score s = lower_syncs(write_score(fused, on));
        for (int i = 0; i < 3; ++i) {
          const subject of{s, random_counts(s, random)};
          INFO(title(of));
          CHECK(why_not_the_score(of.proof(), over_buffers(of)) == "");
          if (const auto same = at_root_in_place(of))
            CHECK(why_not_the_score(same->proof(), over_buffers(*same)) == "");
          if (const auto own = each_alone(of)) CHECK(why_not_the_score(of.proof(), *own) == ""), ++alone;
          ++direct;
        }
      },
      false);
  MESSAGE(over_lines << " over slots, " << direct << " by the direct port");
  CHECK(over_lines > 50);
  CHECK(direct > 100);
  CHECK(alone > 100);
}

TEST_CASE("what runs by mailbox is the score: all choreographies, in channels and slices, with few credits") {
  std::mt19937_64 random{seed()};
  std::size_t whole = 0, cut = 0, in_groups = 0, sent_alone = 0;
  for (const bool uniform : {true, false})
    for (const choreography* who : all_choreographies())
      for_each_setup(
          *who,
          [&](const setup& on) {
            for (const score& s : forms_of(*who, on)) {
              const score cells = one_cell_per_step(s), paced = pace_sends(cells, 1);
              const auto sized = [&](const score& of, std::size_t count) {
                return uniform ? subject{of, count} : subject{of, random_counts(of, random)};
              };
              const subject plain = sized(uniform ? s : cells, 5), pieces = sized(cells, 40), one = sized(paced, 7);
              INFO(title(plain));
              CHECK(why_not_by_mailbox(plain, by_mailbox(plain, {}), 8) == "");
              CHECK(why_not_by_mailbox(pieces, by_mailbox(pieces, {2, 3}), 2) == "");
              ++whole, ++cut;
              if (const cutting of_two{2, 5, 2}; verify(cells, {8, of_two.slices, of_two.slices_per_step}).ok()) {
                const subject grouped = sized(cells, 60);
                CHECK(why_not_by_mailbox(grouped, by_mailbox(grouped, of_two), 8) == "");
                ++in_groups;
              }
              if (!verify(paced, {1, 1}).ok()) continue;
              ++sent_alone;
              CHECK(why_not_by_mailbox(one, by_mailbox(one, {3, 1}), 1) == "");
            }
          },
          uniform);
  MESSAGE(whole << " whole, " << cut << " cut, " << in_groups << " in groups of slices, " << sent_alone
                << " with one credit");
  CHECK(whole > 1000);
  CHECK(sent_alone > whole / 2);
  CHECK(in_groups > whole / 2);
}

TEST_CASE("what runs by mailbox part by part is the score, and waits for every piece of its input") {
  std::size_t checked = 0, noticed = 0, early = 0, by_others = 0;
  for (const choreography* who : all_choreographies())
    for_each_setup(*who, [&](const setup& on) {
      const score s = lower_syncs(write_score(*who, on));
      if (on.ranks > 5 || !moves_data(on.what) || !why_not_partitioned(s).empty()) return;
      const subject of{partition(s, 3), 11};
      INFO(title(of));
      REQUIRE_MESSAGE(of.verified.ok(), to_string(*of.verified.first_fault));
      auto programs = by_mailbox(of, {});
      for (rank_t r = 0; r < on.ranks; ++r) mark_arrivals(*programs[static_cast<std::size_t>(r)], of.notes, r);
      CHECK(why_not_by_mailbox(of, programs, 8) == "");
      ++checked;
      program& last = *programs.back();
      if (!last.arrivals.empty()) {
        const arrival first = last.arrivals.front();
        auto& lane = last.lanes[static_cast<std::size_t>(first.lane)];
        const auto tell_at = [&](std::int32_t index) {
          lane[static_cast<std::size_t>(last.arrivals.front().index)].arrives = false;
          lane[static_cast<std::size_t>(last.arrivals.front().index = index)].arrives = true;
        };
        if (first.index > 0 && !lane[static_cast<std::size_t>(first.index - 1)].arrives) {
          tell_at(first.index - 1);
          early += why_not_by_mailbox(of, programs, 8).find("said to have arrived") != std::string::npos;
          tell_at(first.index);
        }
        // Where others write to its output, it has to hear of them all.
        if (on.what == collective::all_reduce && on.ranks > 1 && who->name == "fused") {
          const auto own = std::ranges::find_if(lane, [](const instruction& i) { return i.inputs > 0; });
          REQUIRE(own - lane.begin() < first.index);
          tell_at(static_cast<std::int32_t>(own - lane.begin()));
          CHECK(why_not_by_mailbox(of, programs, 8).find("said to have arrived") != std::string::npos);
          tell_at(first.index);
          ++by_others;
        }
        --last.arrivals_needed[static_cast<std::size_t>(first.piece)];
        CHECK(why_not_by_mailbox(of, programs, 8).find("tell of it") != std::string::npos);
        ++last.arrivals_needed[static_cast<std::size_t>(first.piece)];
      }
      for (auto& lane : programs[0]->lanes)
        for (instruction& i : lane) i.ready_part = -1;
      noticed += !why_not_by_mailbox(of, programs, 8).empty();
    });
  MESSAGE(checked << " part by part");
  CHECK(checked > 100);
  CHECK(early > checked / 2);
  CHECK(by_others >= 4);
  CHECK(noticed > checked / 2);  // rank 0 has no input where another one is the root
}

TEST_CASE("broken programs by mailbox are not the score") {
  const auto all_of = [](const char* name, collective what, int ranks) {
    return subject{one_cell_per_step(lower_syncs(write_score(*find_choreography(name), flat_setup(what, ranks)))), 40};
  };
  const subject ring = all_of("ring", collective::all_reduce, 4);
  const subject scattered = all_of("ring", collective::reduce_scatter, 4);
  const subject trees = all_of("double_binary_tree", collective::all_reduce, 6);
  const subject doubling = all_of("recursive_doubling", collective::barrier, 5);
  using programs = std::vector<std::shared_ptr<program>>;
  const auto broken = [](const subject& of, const cutting& cut, int credits,
                         const std::function<void(programs&)>& how) {
    programs all = by_mailbox(of, cut);
    REQUIRE(why_not_by_mailbox(of, all, 8) == "");
    how(all);
    return why_not_by_mailbox(of, all, credits);
  };
  const auto has = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  const auto first = [](program& code, const std::function<bool(const instruction&)>& is) -> instruction& {
    for (auto& lane : code.lanes)
      for (instruction& i : lane)
        if (is(i)) return i;
    throw std::logic_error("there is no such instruction");
  };
  const auto receiving = [](const instruction& i) { return receives(i.kind); };
  const auto combining = [](const instruction& i) { return receives(i.kind) && reduces(i.kind); };
  const auto kept = [](const instruction& i) { return receives(i.kind) && writes(i.kind); };

  has(broken(ring, {2, 2}, 8, [&](auto& all) { first(*all[1], combining).source.offset += 8; }), "belong together");
  has(broken(ring, {2, 2}, 8, [&](auto& all) { first(*all[1], combining).swapped ^= true; }), " instead of ");
  has(broken(ring, {2, 2}, 8, [&](auto& all) { first(*all[1], receiving).elements -= 1; }), "meets a chunk of");
  has(broken(ring, {1, 1}, 8, [&](auto& all) { first(*all[2], receiving).from = 0; }), "it lacks a chunk");
  has(broken(ring, {1, 1}, 8, [&](auto& all) { first(*all[2], receiving).from = 9; }), "a rank that does not exist");
  has(broken(ring, {1, 1}, 8, [&](auto& all) { all[2]->lanes[0].pop_back(); }), "never takes a chunk");
  has(broken(ring, {1, 1}, 8, [&](auto& all) { all.pop_back(); }), "not every rank has a program");
  has(broken(ring, {1, 1}, 8, [&](auto& all) { first(*all[0], kept).target.buffer = buffer_kind::l2; }),
      "memory that the port does not have");
  has(broken(scattered, {2, 3}, 8, [&](auto& all) { all[3]->slot_bytes -= 8; }), "is longer than a slot");
  // What one channel writes another one must not touch, nor a lane what it has lent to a peer.
  has(broken(ring, {2, 1}, 8,
             [&](auto& all) {
               for (auto& i : all[0]->lanes[1])
                 if (kept(i)) i.target.offset -= i.elements * 8;
             }),
      "at the same time");
  has(broken(ring, {1, 1}, 8,
             [&](auto& all) {
               auto& lane = all[1]->lanes[0];
               instruction spoils = first(*all[1], kept);
               spoils.kind = step_kind::copy;
               spoils.source = lane.front().source;
               lane.push_back(spoils);
             }),
      "at the same time");
  // Slices that come in another order than they were sent.
  has(broken(ring, {1, 2}, 8,
             [&](auto& all) { std::swap(all[1]->lanes[0][0], all[1]->lanes[0][all[1]->lanes[0].size() / 2]); }),
      "belong together");
  CHECK(broken(trees, {2, 2}, 8, [](auto& all) {
          for (auto& code : all)
            for (auto& lane : code->lanes)
              for (instruction& i : lane) i.after_lane = -1;
        }) != "");
  has(broken(doubling, {1, 1}, 8,
             [](auto& all) {
               for (auto& code : all)
                 for (auto& lane : code->lanes) lane.clear();
             }),
      "may end before it has heard of");
  // Two ranks that send two chunks before they take any come to an end with two credits, and not with one.
  const subject crossing = all_of("pairwise", collective::all_to_all, 3);
  has(broken(crossing, {1, 2}, 1,
             [](auto& all) {
               for (auto& code : all)
                 for (auto& lane : code->lanes)
                   std::stable_partition(lane.begin(), lane.end(), [](const instruction& i) { return sends(i.kind); });
             }),
      "it lacks a credit");
}

TEST_CASE("broken slot programs are not the score") {
  const auto all_of = [](const char* name, collective what, int ranks, std::size_t count = 40) {
    return subject{lower_syncs(write_score(*find_choreography(name), flat_setup(what, ranks))), count};
  };
  const subject summing = all_of("one_shot", collective::all_reduce, 3);
  const subject doubling = all_of("recursive_doubling", collective::all_reduce, 4);
  const subject ring = all_of("ring", collective::all_reduce, 4);
  const subject trees = all_of("double_binary_tree", collective::all_reduce, 6);
  using breaker = std::function<void(std::vector<slot_program>&)>;
  const auto broken = [](const subject& of, const breaker& how) {
    auto programs = over_slots(of, slot_format::ll128).value();
    REQUIRE(why_not_the_score(of.proof(), programs) == "");
    how(programs);
    return why_not_the_score(of.proof(), programs);
  };
  const auto has = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  const auto first = [](slot_program& code, const std::function<bool(const slot_step&)>& is) -> slot_step& {
    return *std::find_if(code.steps.begin(), code.steps.end(), is);
  };
  const auto receiving = [](const slot_step& s) { return receives(s.kind); };
  const auto combining = [](const slot_step& s) { return receives(s.kind) && reduces(s.kind); };

  has(broken(ring, [&](auto& all) { first(all[1], combining).source_offset += 8; }), "do not belong together");
  has(broken(ring, [&](auto& all) { first(all[1], combining).swapped ^= true; }), " instead of ");
  has(broken(ring, [&](auto& all) { all[2].steps.back().target_offset += 8; }), "is never written");
  has(broken(ring, [&](auto& all) { first(all[1], receiving).bytes -= 8; }), "meets a message of");
  has(broken(ring, [&](auto& all) { first(all[1], receiving).salt ^= 1; }), "meets a message of");
  has(broken(ring, [&](auto& all) { first(all[1], receiving).in_line += 7; }), "never comes to pass");
  has(broken(ring, [&](auto& all) { all[0].steps.back().kind = step_kind::wait; }), "never reads a message");
  has(broken(ring, [&](auto& all) { first(all[3], combining).kind = step_kind::recv; }),
      "memory that the port does not have");
  has(broken(summing,
             [&](auto& all) {
               for (slot_step& s : all[1].steps)
                 if (sends(s.kind)) s.out_line = 0;
               all[1].channels.clear();
               for (slot_step& s : all[1].steps) s.out_channel = 0;
               all[1].channels.push_back({0, true, 100, -1});
             }),
      "writes over another message");
  has(broken(doubling, [&](auto& all) { first(all[0], receiving).target = buffer_kind::l2; }), "memory");
  has(broken(doubling,
             [&](auto& all) {
               for (auto& use : all[0].channels) use.lines = 0;
             }),
      "beyond its channel's lines");
  // Lanes of a rank that are not ordered any more.
  CHECK(broken(trees, [](auto& all) {
          for (auto& code : all)
            for (slot_step& s : code.steps) s.after_lane = -1;
        }) != "");
  // A barrier, whose bytes are all right whatever it leaves out.
  const subject barrier = all_of("recursive_doubling", collective::barrier, 5);
  has(broken(barrier,
             [&](auto& all) {
               for (auto& code : all) code.lanes.clear(), code.steps.clear();
             }),
      "may end before it has heard of");
}

TEST_CASE("broken units are not the score") {
  const subject sum{lower_syncs(write_score(*find_choreography("fused"), flat_setup(collective::all_reduce, 3))), 40};
  const subject in_place{
      lower_syncs(write_score(*find_choreography("fused"), flat_setup(collective::reduce_scatter, 3, 0, true))), 40};
  using breaker = std::function<void(direct_program&)>;
  const auto broken = [](const subject& of, const breaker& how) {
    direct_program program = over_buffers(of);
    REQUIRE(why_not_the_score(of.proof(), program) == "");
    how(program);
    return why_not_the_score(of.proof(), program);
  };
  const auto has = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  // To the next cell of the same block.
  const auto move = [](cell_range& at, int cells) { at.cell += cells, at.part += cells; };
  has(broken(sum, [&](auto& p) { move(p.operands[0], 1); }), "do not belong together");
  has(broken(sum, [&](auto& p) { move(p.operands[0], 2); }), "differ in size");
  has(broken(sum, [](auto& p) { p.operands[1].owner = p.operands[0].owner; }), "a contribution with itself");
  has(broken(sum, [](auto& p) { std::swap(p.operands[0], p.operands[1]); }), " instead of ");
  has(broken(sum, [](auto& p) { ++p.operands[0].part; }), "is not of its block");
  has(broken(sum, [](auto& p) { ++p.operands[0].index; }), "is not of its block");
  has(broken(sum, [&](auto& p) { move(p.operands[0], 3); }), "do not exist");
  has(broken(sum, [](auto& p) { p.operands[0].buffer = buffer_kind::l2; }), "memory that the port does not have");
  has(broken(sum, [](auto& p) { p.bodies[1] = p.bodies[0]; }), "touched by two units");
  has(broken(sum, [](auto& p) { p.bodies[1].passes.clear(); }), "is never written");
  has(broken(sum, [](auto& p) { --p.bodies[2].passes[0].outputs; }), "is never written");
  has(broken(sum, [](auto& p) { p.bodies.pop_back(); }), "not every rank has a body");
  // A pass that reads an element which it has written at another place, and units that are not apart.
  const subject even{sum.notes, 39};
  const auto shift = [&](auto& p) {
    const direct_program::pass& first = p.bodies[0].passes[0];
    for (std::size_t k = 0; k < first.all(); ++k) p.operands[first.operands + k].count = 2;
    cell_range& to = p.operands[first.operands + first.inputs];
    to = p.operands[first.operands];
    move(to, 1);
  };
  has(broken(even, shift), "is read in the pass that overwrites it");
  const subject long_in_place{in_place.notes, 40'000};
  CHECK(units_of(long_in_place, over_buffers(long_in_place)) > 3);
  CHECK(broken(long_in_place, [](auto& p) {
          cell_range& from = p.operands[p.bodies[1].passes[0].operands];
          from.cell = from.index = 0, from.block = 0;
        }) != "");
}

TEST_CASE("lists that do not fit the blocks are not the score") {
  const auto all_gather =
      lower_syncs(write_score(*find_choreography("fused"), flat_setup(collective::all_gather, 3, 0, false, false)));
  const subject of{all_gather, {4, 0, 7}};
  direct_program program = over_buffers(of);
  REQUIRE(why_not_the_score(of.proof(), program) == "");
  // The first output of a body goes to where another rank's block lies.
  cell_range& to = program.operands[program.bodies[0].passes[0].operands + program.bodies[0].passes[0].inputs];
  to.cell = to.index = 2, to.block = 2;
  CHECK(why_not_the_score(of.proof(), program).find("differ in size") != std::string::npos);
}
