// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/choreography_wish.hpp"
#include "engine/planning/planner.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "engine/api/engine.hpp"
#include "engine/config/configuration.hpp"
#include "engine/tools/explain.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/agreement_round.hpp"
#include "protocols/perform/program_proof.hpp"

using namespace troupe;

namespace {

call call_of(collective what, std::size_t count, datatype type = datatype::f32,
             determinism level = determinism::run_stable) {
  call c;
  c.what = what;
  c.count = count;
  c.type = type;
  c.level = level;
  return c;
}

call all_reduce_of(std::size_t count, datatype type = datatype::f32, determinism level = determinism::run_stable) {
  return call_of(collective::all_reduce, count, type, level);
}

engine_options with(const std::string& choreography) {
  engine_options o;
  o.choreography = choreography;
  return o;
}

template <class Body>
std::pair<errc, std::string> failure_of(Body body) {
  try {
    body();
  } catch (const error& e) {
    return {e.code_value(), e.what()};
  }
  return {errc::ok, "nothing was thrown"};
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const candidate& named(const std::vector<candidate>& all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const candidate& c) { return c.choreography == name; });
  REQUIRE(found != all.end());
  return *found;
}

/// A file that is gone at the end of the test.
class score_file {
public:
  explicit score_file(const std::string& text) {
    static std::atomic<int> number{0};
    path_ = (std::filesystem::temp_directory_path() /
             ("troupe_planner_" + std::to_string(getpid()) + '_' + std::to_string(number++) + ".json"))
                .string();
    std::ofstream{path_} << text;
  }
  ~score_file() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

private:
  std::string path_;
};

engine_options with_file(const score_file& file) {
  engine_options o;
  o.score_files["mine"] = file.path();
  return o;
}

score written(const std::string& name, collective what, int ranks, rank_t root = 0) {
  return write_score(*find_choreography(name), flat_setup(what, ranks, root));
}

/// Elements of the largest slice that a rank's program has.
std::size_t largest_slice(const plan& p) {
  std::size_t most = 0;
  for (rank_t r = 0; r < p.notes->ranks; ++r)
    for (const auto& l : p.program_of(r)->lanes)
      for (const instruction& i : l) most = std::max(most, i.elements);
  return most;
}

/// Has the rank's program made, whichever port performs it.
void compile_for(const plan& p, rank_t r) {
  if (p.mailbox()) p.program_of(r);
  else if (p.slots()) p.slot_program_of(r);
  else p.direct_program_of_all();
}

/// They are made, and on the boards do what the verifier has seen.
void check_programs(const plan& p) {
  for (rank_t r = 0; r < p.notes->ranks; ++r) CHECK_NOTHROW(compile_for(p, r));
  if (p.count > 200) return;  // symbols take long
  const proof_subject what{*p.notes, *p.verified, p.shape()};
  if (p.direct()) CHECK(why_not_the_score(what, *p.direct_program_of_all()) == "");
  if (!p.slots()) return;
  std::vector<slot_program> all;
  for (rank_t r = 0; r < p.notes->ranks; ++r) all.push_back(*p.slot_program_of(r));
  CHECK(why_not_the_score(what, all) == "");
}

}  // namespace

TEST_CASE("every collective gets a verified plan, whatever the ranks") {
  planner p{engine_options{}};
  for (int w = 0; w < collective_count; ++w)
    for (const int ranks : {1, 2, 3, 5, 8, 13})
      for (const std::size_t count : {0U, 1U, 7U, 1000U}) {
        const auto what = static_cast<collective>(w);
        CAPTURE(name(what));
        CAPTURE(ranks);
        CAPTURE(count);
        call c = call_of(what, count);
        c.root = has_root(what) ? ranks - 1 : 0;
        const auto made = p.plan_for(c, layout::flat(ranks));
        REQUIRE(made);
        CHECK(made->verified->ok());
        CHECK(made->notes->what == what);
        CHECK(made->notes->ranks == ranks);
        CHECK(made->notes->root == c.root);
        if (made->slots()) CHECK(everybody_hears_of_everybody(*made->notes));
        if (count <= 1) CHECK(made->cut() == cutting{});
        check_programs(*made);
      }
}

TEST_CASE("candidates: eligible ones by predicted time, the first one chosen, then the rejected with a reason") {
  planner p{engine_options{}};
  const auto all = p.candidates(all_reduce_of(100000), layout::flat(8));
  std::set<std::pair<std::string, std::string>> rows;
  for (const candidate& c : all) rows.insert({c.choreography, c.protocol});
  CHECK(rows.size() == all.size());
  for (const choreography* c : all_choreographies()) CHECK(rows.contains({std::string{c->name}, "simple"}));
  CHECK(std::count_if(all.begin(), all.end(), [](const candidate& c) { return c.chosen; }) == 1);
  CHECK(all.front().chosen);
  CHECK(all.front().choreography == p.plan_for(all_reduce_of(100000), layout::flat(8))->choreography);
  for (std::size_t i = 1; i < all.size(); ++i) {
    CHECK(all[i - 1].eligible() >= all[i].eligible());
    if (all[i].eligible()) CHECK(all[i - 1].predicted_seconds <= all[i].predicted_seconds);
  }
  CHECK(mentions(named(all, "bruck").why_rejected, "does not offer all_reduce"));
  // In place or of different sizes, other choreographies refuse, or some protocols cannot.
  call v = call_of(collective::all_to_all, 0);
  v.uniform = false;
  const std::vector<std::size_t> counts{5, 0, 9, 1, 1, 1, 2, 3, 4};
  const auto uneven = p.candidates(v, layout::flat(3), &counts);
  CHECK(mentions(named(uneven, "bruck").why_rejected, "one size"));
  const auto row = [&](std::string_view protocol) {
    return *std::find_if(uneven.begin(), uneven.end(),
                         [&](const candidate& c) { return c.choreography == "fused" && c.protocol == protocol; });
  };
  CHECK(mentions(row("simple").why_rejected, "different sizes"));
  CHECK(row("direct").eligible());
}

TEST_CASE("several servers share no memory, whoever insists") {
  planner p{engine_options{}};
  const layout two = layout::grid(2, 4);
  const std::string why = "ranks 0 and 4 are on different servers, which share no memory";
  for (const char* name : {"fused", "csc"}) {
    CAPTURE(name);
    CHECK(mentions(named(p.candidates(all_reduce_of(1000), two), name).why_rejected, why));
    // On one server they may, whatever lies between its cards.
    CHECK(named(p.candidates(all_reduce_of(1000), layout::flat(8)), name).eligible());
    CHECK(named(p.candidates(all_reduce_of(1000), layout::parse("1x2x4")), name).eligible());
    call insisting = all_reduce_of(1000);
    insisting.choreography = name;
    const auto told = failure_of([&] { p.plan_for(insisting, two); });
    const std::string& text = told.second;
    CHECK(told.first == errc::unsupported);
    CHECK_MESSAGE(mentions(text, why), text);
    CHECK(mentions(text, "these can: ring"));
    engine_options for_all_reduce;
    for_all_reduce.choreography_of["all_reduce"] = name;
    CHECK(mentions(failure_of([&] { planner{for_all_reduce}.plan_for(all_reduce_of(1000), two); }).second, why));
    CHECK(planner{with(name)}.plan_for(all_reduce_of(1000), two)->choreography != name);  // for all collectives: a wish
  }
}

TEST_CASE("a choreography costs what the layout puts between its ranks") {
  planner p{engine_options{}};
  const auto us = [&p](const call& what, const char* name, const char* where) {
    const auto all = p.candidates(what, layout::parse(where));
    const auto at = std::ranges::find_if(
        all, [&](const candidate& c) { return c.choreography == name && c.protocol == "simple" && c.eligible(); });
    REQUIRE(at != all.end());
    return at->predicted_seconds * 1e6;
  };
  for (const std::size_t count : {std::size_t{16}, std::size_t{1} << 18}) {
    CAPTURE(count);
    // Nothing, a link, NICs for some messages, and for all of them.
    double before = us(all_reduce_of(count), "ring", "8");
    for (const char* where : {"1x8", "2x4", "4x2", "8x1"}) {
      CAPTURE(where);
      const double now = us(all_reduce_of(count), "ring", where);
      CHECK(now > before);
      before = now;
    }
    CHECK(us(all_reduce_of(count), "ring", "2x2x2x1") == us(all_reduce_of(count), "ring", "4x2"));
  }
  CHECK(mentions(
      explain(p, all_reduce_of(16), layout::parse("2x2")).costs,
      "at each element that it passes, from rank 0 to 1: dma, card link, dma; to 2: dma, nic, switch, nic, dma"));
  CHECK_FALSE(mentions(explain(p, all_reduce_of(16), layout::parse("4")).costs, "element"));
  // The pipeline takes each block to the other server once, where the ring is no dearer without servers.
  const call large = call_of(collective::all_gather, std::size_t{1} << 19);
  CHECK(us(large, "hierarchical_pipeline", "8") >= us(large, "ring", "8"));
  CHECK(us(large, "hierarchical_pipeline", "2x4") < us(large, "ring", "2x4"));
  CHECK(p.plan_for(large, layout::parse("2x4"))->choreography.starts_with("hierarchical"));
}

TEST_CASE("a user's score in other ranks' memory is refused where they share none, too") {
  const score_file file{to_json(written("fused", collective::broadcast, 2))};
  planner p{with_file(file)};
  call c = call_of(collective::broadcast, 10);
  c.choreography = "mine";
  CHECK(p.plan_for(c, layout::parse("1x2"))->choreography == "mine");
  CHECK(mentions(failure_of([&] { p.plan_for(c, layout::parse("2x1")); }).second,
                 "reads or writes memory that all ranks reach, and ranks 0 and 1 are on different servers"));
}

// -- forced names -----------------------------------------------------------------------------------------------------

TEST_CASE("who forces: the call before the collective's option before the engine's") {
  engine_options o = with("ring");
  o.choreography_of["all_reduce"] = "halving_doubling";
  planner p{o};
  call c = all_reduce_of(1000);
  CHECK(p.plan_for(c, layout::flat(4))->choreography == "halving_doubling");
  c.choreography = "direct_full_mesh";
  CHECK(p.plan_for(c, layout::flat(4))->choreography == "direct_full_mesh");
  CHECK(p.plan_for(call_of(collective::all_gather, 1000), layout::flat(4))->choreography == "ring");
  // Ring has no barrier: the engine-wide name is for those that offer it.
  CHECK(p.plan_for(call_of(collective::barrier, 0), layout::flat(4))->choreography != "ring");
  const auto all = p.candidates(c, layout::flat(4));
  CHECK(named(all, "direct_full_mesh").chosen);
  CHECK(named(all, "ring").eligible());
  CHECK_FALSE(named(all, "ring").chosen);
}

TEST_CASE("what cannot be forced says why, and who can") {
  planner p{engine_options{}};
  call c = all_reduce_of(1000);
  c.choreography = "binomial";
  auto [code, text] = failure_of([&] { p.plan_for(c, layout::flat(4)); });
  CHECK(code == errc::unsupported);
  CHECK(mentions(text, "binomial does not offer all_reduce"));
  CHECK(mentions(text, "ring"));
  c.choreography = "rign";
  std::tie(code, text) = failure_of([&] { p.plan_for(c, layout::flat(4)); });
  CHECK(code == errc::unsupported);
  CHECK(mentions(text, "did you mean ring?"));
  c.choreography = "zzzzzzzzzz";
  CHECK(mentions(failure_of([&] { p.plan_for(c, layout::flat(4)); }).second, "there are ring, double_binary_tree"));
}

TEST_CASE("options that make no sense are refused at once") {
  std::tuple<errc, std::string> seen;
  engine_options o = with("halving_dubling");
  seen = failure_of([&] { planner{o}; });
  CHECK(std::get<0>(seen) == errc::bad_config);
  CHECK(mentions(std::get<1>(seen), "did you mean halving_doubling?"));
  o = {};
  o.choreography_of["all_redoce"] = "ring";
  CHECK(failure_of([&] { planner{o}; }).first == errc::bad_config);
  o.choreography_of = {{"barrier", "ring"}};
  CHECK(mentions(failure_of([&] { planner{o}; }).second, "these do: binomial, recursive_doubling"));
  o = {};
  o.credits = 0;
  CHECK(failure_of([&] { planner{o}; }).first == errc::bad_config);
  o.credits = 8;
  o.protocol = "complicated";
  CHECK(failure_of([&] { planner{o}; }).first == errc::bad_config);
}

TEST_CASE("calls that make no sense") {
  planner p{engine_options{}};
  call c = call_of(collective::broadcast, 10);
  c.root = 4;
  CHECK(failure_of([&] { p.plan_for(c, layout::flat(4)); }).first == errc::bad_root);
  c = call_of(collective::all_gather, 0);
  c.uniform = false;
  CHECK(failure_of([&] { p.plan_for(c, layout::flat(4)); }).first == errc::invalid_argument);
  const std::vector<std::size_t> three{1, 2, 3};
  CHECK(failure_of([&] { p.plan_for(c, layout::flat(4), &three); }).first == errc::invalid_argument);
}

// -- determinism ------------------------------------------------------------------------------------------------------

TEST_CASE("a ring sums its chunks in different orders, so size_stable folds it in rank order") {
  planner p{with("ring")};
  const layout eight = layout::flat(8);
  const auto plain = p.plan_for(all_reduce_of(1000), eight);
  CHECK_FALSE(plain->verified->same_tree_everywhere);
  for (const determinism level : {determinism::size_stable, determinism::topology_stable}) {
    const auto folded = p.plan_for(all_reduce_of(1000, datatype::f32, level), eight);
    CHECK(folded->choreography == "ring");
    CHECK(folded->verified->left_fold);
    CHECK(named(p.candidates(all_reduce_of(1000, datatype::f32, level), eight), "ring").rank_order_fold);
    // Integers do not care for the order.
    CHECK_FALSE(p.plan_for(all_reduce_of(1000, datatype::i32, level), eight)->verified->left_fold);
    call maximum = all_reduce_of(1000, datatype::f32, level);
    maximum.reduction.kind = op_kind::max;
    CHECK_FALSE(p.plan_for(maximum, eight)->verified->left_fold);
  }
}

TEST_CASE("where ranks meet on a board, nvls takes that for the switch") {
  planner p{with("nvls")};
  layout threads = layout::flat(4), processes = threads;
  threads.reduces = processes.reduces = fabric_reduction::inside;
  for (int r = 0; r < 4; ++r) processes.homes.push_back({0, r});
  processes.copies = true;
  for (const layout& where : {threads, processes})
    for (const collective what : {collective::all_reduce, collective::reduce_scatter, collective::all_gather})
      for (const std::size_t count : {2u, 300u, 1000000u}) {
        CAPTURE(where.to_string());
        CAPTURE(name(what));
        CAPTURE(count);
        const auto made = p.plan_for(call_of(what, count), where);
        CHECK(made->choreography == "nvls");
        REQUIRE(made->direct() != nullptr);
        CHECK(made->direct()->between_processes == !where.homes.empty());
        CHECK(made->notes->switches.empty());
      }
  // Nobody meets there whose messages are to be sent, or who has no memory in common; half floats are added in one pass.
  call sent = all_reduce_of(1000);
  sent.protocol = message_protocol::simple;
  CHECK(p.plan_for(sent, threads)->notes->switches.size() == 1);
  CHECK(p.plan_for(all_reduce_of(1000), layout::parse("1x4:inside"))->notes->switches.size() == 1);
  CHECK(p.plan_for(all_reduce_of(1000, datatype::f16), processes)->direct() != nullptr);
  CHECK(p.plan_for(all_reduce_of(1000, datatype::f32, determinism::topology_stable), processes)->verified->left_fold);
}

TEST_CASE("topology_stable is a left fold with every choreography") {
  for (const choreography* which : all_choreographies()) {
    if (std::count(which->collectives.begin(), which->collectives.end(), collective::all_reduce) == 0) continue;
    CAPTURE(which->name);
    planner p{with(std::string{which->name})};
    if (!refusal(*which, flat_setup(collective::all_reduce, 8)).empty()) {
      // A switch folds nothing.
      setup reducing = flat_setup(collective::all_reduce, 8);
      reducing.placement = layout::parse(which->name == "nvls" ? "1x8:inside" : "2x4:both");
      if (refusal(*which, reducing).empty() && !write_score(*which, reducing).switches.empty()) {
        CHECK_THROWS_WITH_AS(
            p.plan_for(all_reduce_of(1000, datatype::f32, determinism::topology_stable), reducing.placement),
            doctest::Contains("a switch adds up what passes it"), error);
        continue;
      }
    }
    for (const int ranks : {2, 3, 6, 8}) {
      // Some are for servers only.
      const bool flat = refusal(*which, flat_setup(collective::all_reduce, ranks)).empty();
      const auto made = p.plan_for(all_reduce_of(1000, datatype::f32, determinism::topology_stable),
                                   flat ? layout::flat(ranks) : layout::grid(2, ranks));
      CHECK(made->choreography == which->name);
      CHECK(made->verified->left_fold);
    }
  }
}

TEST_CASE("size_stable: one tree for all sizes, in place or not") {
  for (const char* protocol : {"auto", "simple"}) {
    engine_options o;
    o.protocol = protocol;
    planner p{o};
    for (const layout& where : {layout::flat(8), layout::flat(6), layout::grid(2, 4)})
      for (const auto what : {collective::all_reduce, collective::reduce_scatter}) {
        std::set<std::string> trees, run_stable_names;
        for (std::size_t count = 1; count <= std::size_t{1} << 22; count *= 8)
          for (const bool in_place : {false, true}) {
            call c = call_of(what, count, datatype::f32, determinism::size_stable);
            c.in_place = in_place;
            const auto made = p.plan_for(c, where);
            CHECK(made->verified->same_tree_everywhere);
            trees.insert(tree_of(*made->verified, 0, 0));
            c.level = determinism::run_stable;
            run_stable_names.insert(p.plan_for(c, where)->choreography);
          }
        CHECK(trees.size() == 1);
        CHECK(*trees.begin() != "-");
        // Else this test proves nothing. Straight on all buffers, one choreography is best at every size.
        if (what == collective::all_reduce && o.protocol == "simple") CHECK(run_stable_names.size() > 1);
      }
  }
}

TEST_CASE("a weaker level of determinism is never performed in a worse way than a stronger one") {
  constexpr std::array levels{determinism::fast, determinism::run_stable, determinism::size_stable,
                              determinism::topology_stable};
  constexpr std::array kinds{op_kind::sum, op_kind::avg, op_kind::pre_mul_sum, op_kind::max};
  for (const char* protocol : {"auto", "simple"}) {
    engine_options o;
    o.protocol = protocol;
    planner p{o};
    for (const int ranks : {2, 3, 8, 65})
      for (const auto what : {collective::all_reduce, collective::reduce_scatter, collective::reduce, collective::scan,
                              collective::exscan, collective::all_gather})
        for (const datatype type : {datatype::f32, datatype::i8, datatype::f16, datatype::f64})
          for (const op_kind kind : kinds)
            // Planning for many ranks takes its time, and types and operations make no other difference there.
            for (std::size_t count = 1; count <= std::size_t{1} << 22; count *= 32) {
              if (ranks > 8 && (type != datatype::f32 || kind != op_kind::sum)) break;
              call c = call_of(what, count, type);
              c.reduction.kind = kind;
              c.in_place = count % 3 == 1 && what == collective::all_reduce;
              double stronger = std::numeric_limits<double>::infinity();
              for (std::size_t level = levels.size(); level-- > 0;) {
                c.level = levels[level];
                const double seconds = p.plan_for(c, layout::flat(ranks))->predicted_seconds;
                CAPTURE(to_string(c));
                CAPTURE(ranks);
                CHECK(seconds <= stronger);
                stronger = seconds;
              }
              if (!is_reduction(what)) break;
            }
  }
}

TEST_CASE("size_stable: in place or not does not show with any choreography either") {
  for (const choreography* which : all_choreographies())
    for (const auto what : {collective::all_reduce, collective::reduce_scatter}) {
      if (std::count(which->collectives.begin(), which->collectives.end(), what) == 0) continue;
      CAPTURE(which->name);
      CAPTURE(name(what));
      planner p{with(std::string{which->name})};
      for (int ranks = 2; ranks <= 9; ++ranks)
        for (const datatype type : {datatype::f32, datatype::f16}) {
          call c = call_of(what, 1000, type, determinism::size_stable);
          const auto apart = p.plan_for(c, layout::flat(ranks));
          c.in_place = true;
          const auto together = p.plan_for(c, layout::flat(ranks));
          if (apart->choreography != which->name || together->choreography != which->name) continue;
          CHECK(apart->verified->same_tree_everywhere);
          CHECK(together->verified->same_tree_everywhere);
          CHECK(tree_of(*apart->verified, 0, 0) == tree_of(*together->verified, 0, 0));
        }
    }
}

TEST_CASE("operations that do not commute or associate") {
  engine_options o = with("ring");
  o.protocol = "simple";  // by messages, which may come in any order
  planner p{o};
  call c = all_reduce_of(1000, datatype::i32);
  c.reduction.kind = op_kind::user;
  CHECK_FALSE(p.plan_for(c, layout::flat(5))->verified->rank_ordered);
  c.reduction.commutative = false;
  CHECK(p.plan_for(c, layout::flat(5))->verified->rank_ordered);
  c.level = determinism::fast;
  CHECK(p.plan_for(c, layout::flat(5))->verified->rank_ordered);
  CHECK_FALSE(p.plan_for(c, layout::flat(5))->mailbox()->any_order);
  c.reduction.commutative = true;
  CHECK(p.plan_for(c, layout::flat(5))->mailbox()->any_order);
  c.reduction.associative = false;
  CHECK(p.plan_for(c, layout::flat(5))->verified->left_fold);
  CHECK_FALSE(p.plan_for(c, layout::flat(5))->mailbox()->any_order);
  CHECK(p.plan_for(all_reduce_of(10, datatype::f32, determinism::fast), layout::flat(5))->mailbox()->any_order);
  CHECK_FALSE(p.plan_for(all_reduce_of(10), layout::flat(5))->mailbox()->any_order);
}

// -- types ------------------------------------------------------------------------------------------------------------

TEST_CASE("low precision is summed in f32") {
  planner p{with("ring")};
  for (const datatype type : {datatype::f16, datatype::bf16, datatype::f8e4m3, datatype::f8e5m2})
    for (const op_kind kind : {op_kind::sum, op_kind::prod, op_kind::avg, op_kind::pre_mul_sum}) {
      call c = all_reduce_of(1000, type);
      c.reduction.kind = kind;
      c.in_place = true;
      const auto made = p.plan_for(c, layout::flat(4));
      CHECK(made->widened);
      CHECK(made->work_type == datatype::f32);
      CHECK(made->scaled == (kind == op_kind::pre_mul_sum));
      CHECK_FALSE(made->notes->in_place);  // both buffers are staged
      CHECK_FALSE(p.plan_for(c, layout::flat(1))->widened);
    }
  for (const op_kind kind : {op_kind::min, op_kind::max, op_kind::lor, op_kind::user}) {
    call c = all_reduce_of(1000, datatype::bf16);
    c.reduction.kind = kind;
    const auto made = p.plan_for(c, layout::flat(4));
    CHECK_FALSE(made->widened);
    CHECK(made->work_type == datatype::bf16);
  }
  CHECK_FALSE(p.plan_for(call_of(collective::all_gather, 10, datatype::f16), layout::flat(4))->widened);
  CHECK_FALSE(p.plan_for(all_reduce_of(1000, datatype::f64), layout::flat(4))->widened);
}

TEST_CASE("one pass of the kernel needs no wide copies, and scales or divides by itself") {
  planner p{with("fused")};
  for (const auto level : {determinism::run_stable, determinism::topology_stable})
    for (const bool in_place : {false, true}) {
      call c = all_reduce_of(1000, datatype::f16, level);
      c.in_place = in_place;
      const auto narrow = p.plan_for(c, layout::flat(4));
      CHECK_FALSE(narrow->widened);
      CHECK(narrow->notes->in_place == in_place);
      // The promise itself: no instruction combines but passes over all ranks' contributions.
      for (rank_t r = 0; r < 4; ++r) {
        const program code = compile(*narrow->notes, r, narrow->shape(), {});
        for (const instruction& i : code.lane(0, 0)) {
          CHECK_FALSE(reduces(i.kind));
          if (i.inputs > 1) CHECK(i.inputs == 4);
        }
      }
      for (const op_kind kind : {op_kind::avg, op_kind::pre_mul_sum}) {
        c.reduction.kind = kind;
        const auto made = p.plan_for(c, layout::flat(4));
        CHECK_FALSE(made->widened);
        CHECK_FALSE(made->scaled);
        CHECK(made->divides == (kind == op_kind::avg));
        CHECK(made->scales_reads == (kind == op_kind::pre_mul_sum));
        CHECK(made->notes->in_place == in_place);
        const auto code = made->direct_program_of_all();
        CHECK(code->sums.divisor == (kind == op_kind::avg ? 4U : 1U));
        CHECK(code->sums.scales_inputs == (kind == op_kind::pre_mul_sum));
        for (const auto& body : code->bodies)
          for (const auto& pass : body.passes) CHECK(pass.completes == (kind == op_kind::avg));
      }
    }
}

TEST_CASE("averages are divided where their sum is completed, except over slots and in scans") {
  call c = all_reduce_of(1 << 20);
  c.reduction.kind = op_kind::avg;
  for (const char* name : {"ring", "halving_doubling", "double_binary_tree", "fused", "csc"})
    CHECK(planner{with(name)}.plan_for(c, layout::flat(4))->divides);
  CHECK_FALSE(planner{with("ring")}.plan_for(all_reduce_of(1 << 20), layout::flat(4))->divides);
  engine_options slots;
  slots.protocol = "ll128";
  c.count = 2;
  const auto small = planner{slots}.plan_for(c, layout::flat(4));
  CHECK(small->slots());
  CHECK_FALSE(small->divides);
  call prefix = call_of(collective::scan, 1 << 20);
  prefix.reduction.kind = op_kind::avg;
  CHECK_FALSE(planner{engine_options{}}.plan_for(prefix, layout::flat(4))->divides);
}

TEST_CASE("in place only where nothing is staged and no rank is special") {
  planner p{with("ring")};
  call c = all_reduce_of(1000);
  CHECK_FALSE(p.plan_for(c, layout::flat(4))->notes->in_place);
  c.in_place = true;
  CHECK(p.plan_for(c, layout::flat(4))->notes->in_place);
  c.reduction.kind = op_kind::pre_mul_sum;
  CHECK_FALSE(p.plan_for(c, layout::flat(4))->notes->in_place);
  c = call_of(collective::broadcast, 1000);
  c.in_place = true;
  CHECK_FALSE(p.plan_for(c, layout::flat(4))->notes->in_place);
}

// -- sizes ------------------------------------------------------------------------------------------------------------

TEST_CASE("chunks bound the slices, and a slice has at least an element") {
  engine_options o = with("ring");
  o.protocol = "simple";  // slots are not cut
  o.chunk_bytes = 4096;
  planner p{o};
  for (const std::size_t count : {0U, 1U, 3U, 5U, 1023U, 1025U, 4096U, 12289U, 99991U, 1U << 20}) {
    CAPTURE(count);
    const auto made = p.plan_for(all_reduce_of(count), layout::flat(4));
    const std::size_t cell = (count + 3) / 4;
    CHECK(made->cut().channels == 1);
    CHECK(static_cast<std::size_t>(made->cut().slices) <= std::max<std::size_t>(1, cell));
    CHECK(largest_slice(*made) <= 1024 + 64);
    if (cell <= 1024) CHECK(made->cut().slices == 1);
    else CHECK(made->cut().slices > 1);
  }
  o.chunk_bytes = 1;
  o.channels = 3;
  const auto tiny = planner{o}.plan_for(all_reduce_of(41), layout::flat(4));
  CHECK(tiny->cut() == cutting{3, 4});  // cells of 11, channels of 4, slices of 1
  CHECK(planner{o}.plan_for(all_reduce_of(5), layout::flat(4))->cut() == cutting{2, 1});
}

TEST_CASE("a step takes as many slices as it is told to, as there are, and as credits let go on") {
  const auto slices = [](const char* choreography, int wanted, int credits, std::size_t count, const char* on = "4") {
    engine_options o = with(choreography);
    o.protocol = "simple";
    o.chunk_bytes = 4096;
    o.slices_per_step = wanted;
    o.credits = credits;
    planner p{o};
    const auto made = p.plan_for(all_reduce_of(count), layout::parse(on));
    REQUIRE(made->verified->ok());
    return made->cut();
  };
  constexpr std::size_t eight_slices = 4 * 8 * 1024;
  CHECK(slices("ring", 3, 8, eight_slices) == cutting{1, 8, 3});
  CHECK(slices("ring", 64, 64, eight_slices) == cutting{1, 8, 8});
  CHECK(slices("ring", 4, 4, eight_slices) == cutting{1, 8, 2});  // four would get stuck with so few credits
  CHECK(slices("ring", 4, 1, eight_slices).slices_per_step == 1);
  CHECK(slices("ring", 4, 8, 1024).slices == 1);
  CHECK(slices("ring", 4, 8, 1024).slices_per_step == 1);
  CHECK(slices("ring", 0, 8, eight_slices) == cutting{1, 8});
  CHECK(slices("csc", 4, 8, std::size_t{1} << 16, "1x1x4").slices_per_step == 1);  // its cells in L0 are all slices'
}

TEST_CASE("automatic chunks are a few hundred KiB") {
  planner p{with("ring")};
  const auto made = p.plan_for(all_reduce_of(std::size_t{1} << 24), layout::flat(2));
  const std::size_t bytes = largest_slice(*made) * sizeof(float);
  CHECK(bytes >= 64 * 1024);
  CHECK(bytes <= 512 * 1024 + 256);
  // A connection between hosts is a pipeline by itself.
  layout hosts = layout::flat(2);
  hosts.homes = {{0, 0}, {1, 1}};
  const auto between = p.plan_for(all_reduce_of(std::size_t{1} << 24), hosts);
  const std::size_t longer = largest_slice(*between) * sizeof(float);
  CHECK(longer > 512 * 1024);
  CHECK(longer <= 1024 * 1024 + 256);
}

TEST_CASE("explain: between processes, buffers of blocks of different sizes are as long as their blocks") {
  constexpr std::size_t bytes = std::size_t{4} << 20;
  layout on = layout::flat(4);
  on.homes = {{0, 0}, {0, 1}, {0, 2}, {0, 3}};
  on.copies = true;
  for (const collective what : {collective::all_gather, collective::all_to_all}) {
    CAPTURE(name(what));
    call c = call_of(what, 0);
    c.uniform = false;
    std::vector<std::size_t> counts(static_cast<std::size_t>(block_count(what, 4)), 1);
    counts[2] = bytes / sizeof(float);  // rank 2's, or from rank 0 to rank 2
    planner p{with("fused")};
    const explanation e = explain(p, c, on, &counts);
    REQUIRE(e.unmapped);
    CHECK(e.unmapped->input == bytes + (what == collective::all_gather ? 0 : 3 * sizeof(float)));
    CHECK(e.unmapped->output == bytes + 3 * sizeof(float));
    CHECK(e.unmapped->alone);  // as long as that, each rank writes its own output
  }
}

TEST_CASE("blocks of different sizes") {
  engine_options o;
  o.chunk_bytes = 1024;
  o.protocol = "simple";
  planner p{o};
  call c = call_of(collective::all_to_all, 0);
  c.uniform = false;
  const std::vector<std::size_t> counts{0, 1, 7000, 3, 0, 5, 2, 2, 0};
  const auto made = p.plan_for(c, layout::flat(3), &counts);
  CHECK(made->count >= 7000);
  CHECK_FALSE(made->notes->uniform);
  CHECK(made->cut().slices > 1);
  CHECK(largest_slice(*made) <= 256 + 64);
  CHECK(p.plan_for(c, layout::flat(3), &counts) == made);
  auto others = counts;
  others[1] = 2;
  CHECK(p.plan_for(c, layout::flat(3), &others) == made);  // of the same class
  others[1] = 9000;
  CHECK(p.plan_for(c, layout::flat(3), &others) != made);
  const std::vector<std::size_t> nothing(9, 0);
  CHECK(p.plan_for(c, layout::flat(3), &nothing)->cut() == cutting{});
}

TEST_CASE("blocks of different sizes that a rank knows in part only: one plan for whatever sizes, or none") {
  planner p{engine_options{}};
  call c = call_of(collective::all_to_all, 0);
  c.uniform = false;
  c.counts = {1, 2, 3}, c.receive_counts = {1, 4, 5};
  const auto made = p.plan_for(c, layout::flat(3));
  REQUIRE(made);
  CHECK(made->direct());
  c.counts = {100000, 0, 7};
  CHECK(p.plan_for(c, layout::flat(3)) == made);
  plan_memo memo;
  CHECK(p.plan_for(c, layout::flat(3), memo).get() == made.get());
  // Where ranks do not share memory, or the caller wants messages, all counts must be known first.
  CHECK_FALSE(p.plan_for(c, layout::parse("2x2")));
  c.protocol = message_protocol::simple;
  CHECK_FALSE(p.plan_for(c, layout::flat(3)));
  CHECK_FALSE(p.plan_for(c, layout::flat(3), memo));
  c = call_of(collective::all_gather, 0);
  c.uniform = false;
  c.counts = {1, 2, 3};
  const auto known = p.plan_for(c, layout::flat(3));
  REQUIRE(known);
  CHECK(known->agrees());
  CHECK(known->count == 3);
}

TEST_CASE("a plan that is made with all counts is performed by mailbox, whatever the options wish") {
  const std::vector<std::size_t> counts{5, 0, 9, 1, 1, 1, 2, 3, 4};
  for (const char* wish : {"auto", "ll", "ll128", "direct", "simple"})
    for (const char* by : {"auto", "pairwise", "fused"}) {
      CAPTURE(wish);
      CAPTURE(by);
      engine_options o = with(by);
      o.protocol = wish;
      planner p{o};
      call c = call_of(collective::all_to_all, 0);
      c.uniform = false;
      c.counts = {5, 0, 9}, c.receive_counts = {5, 1, 2};
      const auto before = p.plan_for(c, layout::flat(3));
      const auto with_counts = p.plan_for(c, layout::flat(3), &counts);
      REQUIRE(with_counts);
      if (before) CHECK(with_counts == before);
      else CHECK(with_counts->mailbox());
      CHECK((before != nullptr) == (std::string{by} != "pairwise" && std::string{wish} != "simple"));
    }
}

TEST_CASE("huge counts make a plan of bounded length or are too large, nothing else") {
  planner p{engine_options{}};
  for (int w = 0; w < collective_count; ++w)
    for (const int exponent : {40, 50, 58, 61, 63}) {
      const auto what = static_cast<collective>(w);
      CAPTURE(name(what));
      CAPTURE(exponent);
      const call c = call_of(what, std::size_t{1} << exponent, datatype::f64);
      const auto seen = failure_of([&] {
        const auto made = p.plan_for(c, layout::flat(4));
        std::size_t instructions = 0;
        for (rank_t r = 0; r < 4; ++r) {
          const program code = compile(*made->notes, r, made->shape(), made->cut());
          for (const auto& l : code.lanes) instructions += l.size();
        }
        CHECK(instructions <= std::size_t{1} << 21);
      });
      if (exponent >= 61 && what != collective::barrier) CHECK(seen.first == errc::size_overflow);
      else if (exponent <= 40) CHECK(seen.first == errc::ok);
      else CHECK((seen.first == errc::ok || seen.first == errc::size_overflow));
    }
}

// -- the user's own scores --------------------------------------------------------------------------------------------

TEST_CASE("a score file is a candidate where it fits") {
  const score_file file{to_json(written("ring", collective::all_reduce, 4))};
  planner p{with_file(file)};
  call c = all_reduce_of(1000);
  CHECK(named(p.candidates(c, layout::flat(4)), "mine").eligible());
  CHECK(mentions(named(p.candidates(c, layout::flat(5)), "mine").why_rejected, "is for 4 ranks, not 5"));
  CHECK(mentions(named(p.candidates(call_of(collective::all_gather, 1), layout::flat(4)), "mine").why_rejected,
                 "is for all_reduce"));
  c.choreography = "mine";
  const auto made = p.plan_for(c, layout::flat(4));
  CHECK(made->choreography == "mine");
  CHECK(made->notes->choreography == "mine");
  c.level = determinism::topology_stable;
  CHECK(p.plan_for(c, layout::flat(4))->verified->left_fold);
  c.in_place = true;
  const auto [code, text] = failure_of([&] { p.plan_for(c, layout::flat(4)); });
  CHECK(code == errc::unsupported);
  CHECK(mentions(text, "out of place"));
  c.type = datatype::f16;  // staged, so out of place for the score
  CHECK(p.plan_for(c, layout::flat(4))->choreography == "mine");
}

TEST_CASE("a score file for a root") {
  const score_file file{to_json(written("binomial", collective::broadcast, 4, 2))};
  planner p{with_file(file)};
  call c = call_of(collective::broadcast, 10);
  c.choreography = "mine";
  c.root = 2;
  CHECK(p.plan_for(c, layout::flat(4))->notes->root == 2);
  c.root = 1;
  CHECK(mentions(failure_of([&] { p.plan_for(c, layout::flat(4)); }).second, "is for root 2, not 1"));
}

TEST_CASE("bounds of options are the same for an engine, for the planner and in a configuration") {
  const auto setting = [](std::string_view key) {
    for (const config_setting& s : config_schema())
      if (s.key == key) return s;
    return config_setting{};
  };
  for (const auto& each :
       {std::pair{"engine.channels", &engine_options::channels}, std::pair{"engine.credits", &engine_options::credits},
        std::pair{"engine.streams", &engine_options::streams}}) {
    const char* const key = each.first;
    const auto field = each.second;
    CAPTURE(key);
    const auto least = static_cast<int>(setting(key).least), most = static_cast<int>(setting(key).most);
    for (const int value : {least - 1, least, most, most + 1}) {
      CAPTURE(value);
      engine_options o;
      o.*field = value;
      const errc right = value < least || value > most ? errc::bad_config : errc::ok;
      CHECK(failure_of([&] { planner{o}; }).first == right);
      CHECK(failure_of([&] { troupe::engine{o}; }).first == right);
    }
  }
}

TEST_CASE("a wrong score file is refused with the step") {
  score s = written("ring", collective::all_reduce, 4);
  auto& steps = s.players[2].lanes[0];
  steps.erase(steps.begin() + 1);
  const score_file broken{to_json(s)};
  auto [code, text] = failure_of([&] { planner{with_file(broken)}; });
  CHECK(code == errc::bad_score);
  CHECK(mentions(text, broken.path()));
  CHECK(mentions(text, "rank"));
  CHECK(mentions(text, "step"));
  const score_file nonsense{"{\"troupe_score\": 1"};
  CHECK(failure_of([&] { planner{with_file(nonsense)}; }).first == errc::bad_score);
  engine_options o;
  o.score_files["mine"] = "/nowhere/at/all.json";
  CHECK(failure_of([&] { planner{o}; }).first == errc::io);
  const score_file fine{to_json(written("ring", collective::all_reduce, 4))};
  o.score_files = {{"ring", fine.path()}};
  CHECK(failure_of([&] { planner{o}; }).first == errc::bad_config);
}

// -- cache ------------------------------------------------------------------------------------------------------------

TEST_CASE("calls that are alike share a plan, and so do sizes of a class") {
  planner p{with("ring")};
  const layout four = layout::flat(4);
  call c = all_reduce_of(100);
  const auto first = p.plan_for(c, four);
  c.root = 3;              // means nothing to an all_reduce
  c.reduction.scale = 17;  // nor to a sum
  CHECK(p.plan_for(c, four) == first);
  CHECK(p.plan_for(all_reduce_of(112), four) == first);
  const auto larger = p.plan_for(all_reduce_of(113), four);
  CHECK(larger != first);
  CHECK(larger->notes == first->notes);
  CHECK(larger->verified == first->verified);
  CHECK(p.plan_for(all_reduce_of(100, datatype::i32), four) != first);
  CHECK(p.plan_for(all_reduce_of(100, datatype::f32, determinism::size_stable), four) != first);
  CHECK(p.plan_for(all_reduce_of(100), layout::flat(5)) != first);
  CHECK(p.plan_for(all_reduce_of(100), layout::grid(2, 2)) != first);
  c = all_reduce_of(100);
  c.reduction.kind = op_kind::max;
  CHECK(p.plan_for(c, four) != first);
  c = all_reduce_of(100);
  c.in_place = true;
  CHECK(p.plan_for(c, four) != first);
}

TEST_CASE("eight threads get the same plans") {
  planner p{engine_options{}};
  constexpr int threads = 8, sizes = 20;
  std::vector<std::vector<std::shared_ptr<const plan>>> seen(threads);
  std::vector<std::thread> callers;
  for (int t = 0; t < threads; ++t)
    callers.emplace_back([&, t] {
      for (int repeat = 0; repeat < 3; ++repeat)
        for (int s = 0; s < sizes; ++s) {
          const int size = (s + t * 3) % sizes;
          const auto made =
              p.plan_for(all_reduce_of(static_cast<std::size_t>(size) * 1000), layout::flat(2 + size % 5));
          compile_for(*made, t % 2);
          if (repeat == 2) seen[static_cast<std::size_t>(t)].push_back(made);
        }
      if (t == 0) p.candidates(all_reduce_of(5), layout::flat(3));
    });
  for (auto& t : callers) t.join();
  for (auto& list : seen) std::sort(list.begin(), list.end());
  for (const auto& list : seen) CHECK(list == seen[0]);
  CHECK(std::set<std::shared_ptr<const plan>>(seen[0].begin(), seen[0].end()).size() == sizes);
}

// -- explain ----------------------------------------------------------------------------------------------------------

TEST_CASE("explain: every candidate, the winner marked, in text and in JSON") {
  planner p{engine_options{}};
  const explanation e = explain(p, call_of(collective::all_gather, 1000), layout::flat(4));
  CHECK(e.bytes == 16000);
  const std::string winner = e.candidates.front().choreography;
  const std::string text = to_text(e);
  CHECK(mentions(text, "* " + winner));
  const auto json = nlohmann::json::parse(to_json(e));
  CHECK(json["chosen"] == winner);
  // The rejected ones once, the others with every protocol.
  std::set<std::string> names;
  for (const auto& c : json["candidates"]) names.insert(c["choreography"]);
  CHECK(names.size() == all_choreographies().size());
  CHECK(json["candidates"].size() > names.size());
  for (const auto& c : json["candidates"]) {
    CHECK(mentions(text, c["choreography"].get<std::string>()));
    CHECK(c["eligible"] == c["why_rejected"].get<std::string>().empty());
    if (!c["eligible"]) {
      CHECK(c["predicted_us"].is_null());
      continue;
    }
    // algbw in GB/s = bytes / µs / 1000
    CHECK(c["algbw"].get<double>() == doctest::Approx(16000 / c["predicted_us"].get<double>() / 1000));
    CHECK(c["busbw"].get<double>() == doctest::Approx(c["algbw"].get<double>() * 3 / 4));
  }
  const explanation barrier = explain(p, call_of(collective::barrier, 0), layout::flat(4));
  CHECK(nlohmann::json::parse(to_json(barrier))["candidates"][0]["busbw"].is_null());
  CHECK(mentions(to_text(barrier), " -"));
}

TEST_CASE("bus factors of nccl-tests") {
  CHECK(traits_of(collective::all_reduce).bus_factor(4) == doctest::Approx(1.5));
  CHECK(traits_of(collective::all_to_all).bus_factor(4) == doctest::Approx(0.75));
  CHECK(traits_of(collective::broadcast).bus_factor(4) == doctest::Approx(1));
  CHECK(bus_bytes(collective::reduce_scatter, 4, 100) == 400);
  CHECK(bus_bytes(collective::reduce, 4, 100) == 100);
}

TEST_CASE("small collectives go over slots, and there nobody ends before he has heard of everybody") {
  planner p{engine_options{}};
  const layout two = layout::flat(2);
  for (int w = 0; w < collective_count; ++w)
    for (const int ranks : {2, 3, 8, 17, 64}) {
      const auto what = static_cast<collective>(w);
      CAPTURE(name(what));
      CAPTURE(ranks);
      call c = call_of(what, 2);
      c.root = has_root(what) ? ranks / 2 : 0;
      const auto made = p.plan_for(c, layout::flat(ranks));
      REQUIRE(made->on_board());
      CHECK(made->verified->ok());
      if (made->slots()) CHECK(everybody_hears_of_everybody(*made->notes));
      check_programs(*made);
      const auto rows = p.candidates(c, layout::flat(ranks));
      CHECK(rows.front().chosen);
      CHECK(rows.front().predicted_seconds == made->predicted_seconds);
    }
  CHECK_FALSE(p.plan_for(call_of(collective::scan, 1 << 20), two)->on_board());
  CHECK(p.plan_for(call_of(collective::gather, 1 << 20), two)->direct());
  CHECK(p.plan_for(all_reduce_of(1 << 20), two)->direct());
  const auto half = p.plan_for(all_reduce_of(2, datatype::f16), two);  // partial sums must not be rounded
  CHECK(half->on_board());
  CHECK(half->widened != (half->direct() != nullptr));
  call scaled = all_reduce_of(2, datatype::f64);
  scaled.reduction.kind = op_kind::pre_mul_sum;
  CHECK(p.plan_for(scaled, two)->on_board());
  CHECK(p.plan_for(call_of(collective::all_gather, 2, datatype::f16), two)->slots());
  CHECK(p.plan_for(all_reduce_of(2), layout::flat(65))->on_board());  // no cliff where 64 bits end
  CHECK_FALSE(p.plan_for(all_reduce_of(2), layout::parse("2x2"))->on_board());
  // Everybody's blocks to everybody: the more ranks, the more of the time of a first call is for room.
  for (const collective what : {collective::all_gather, collective::reduce_scatter}) {
    CAPTURE(name(what));
    const auto block = [what](std::size_t bytes) { return call_of(what, bytes / sizeof(float)); };
    CHECK(p.plan_for(block(1024), layout::flat(64))->on_board());
    CHECK(p.plan_for(block(16), layout::flat(256))->slots());
    CHECK_FALSE(p.plan_for(block(256), layout::flat(256))->on_board());
  }
}

TEST_CASE("what one pass over all ranks' buffers can do is done by the callers themselves") {
  planner p{engine_options{}};
  for (const int ranks : {2, 3, 8})
    for (const collective what : find_choreography("fused")->collectives) {
      CAPTURE(name(what));
      const auto made = p.plan_for(call_of(what, 100'000), layout::flat(ranks));
      CHECK(made->choreography == "fused");
      REQUIRE(made->protocol() == message_protocol::direct);
      CHECK(made->direct_program_of_all() == made->direct_program_of_all());  // one for all ranks
    }
  for (const int ranks : {65, 300}) CHECK(p.plan_for(all_reduce_of(1 << 20), layout::flat(ranks))->direct());
  // What everybody has for everybody is n² steps, which a few ranks would perform for all.
  CHECK_FALSE(p.plan_for(call_of(collective::all_gather, 1 << 10), layout::flat(128))->direct());
  CHECK_FALSE(p.plan_for(call_of(collective::all_to_all, 1 << 10), layout::flat(128))->direct());
  // Small ones would take as many messages, and a slot channel for each pair of ranks.
  CHECK(p.plan_for(call_of(collective::all_to_all, 1), layout::flat(128))->direct());
  call own = call_of(collective::all_to_all, 0);
  own.uniform = false;
  own.counts = own.receive_counts = std::vector<std::size_t>(128, 3);
  CHECK(p.plan_for(own, layout::flat(128))->direct());
  // So would blocks of different sizes.
  for (const collective what : {collective::all_gather, collective::reduce_scatter}) {
    CAPTURE(name(what));
    call blocks = call_of(what, 0);
    blocks.uniform = false;
    blocks.counts = std::vector<std::size_t>(256, 3);
    CHECK(p.plan_for(blocks, layout::flat(256))->direct());
  }
  call meet = call_of(collective::barrier, 0);
  meet.protocol = message_protocol::direct;
  for (const int ranks : {2, 32, 300}) {
    const auto made = p.plan_for(meet, layout::flat(ranks));
    REQUIRE(made->direct());
    CHECK(made->direct_program_of_all()->most_operands == 0);
  }
  CHECK_FALSE(p.plan_for(all_reduce_of(1 << 20), layout::parse("2x2"))->direct());
  call scaled = all_reduce_of(1 << 20);
  scaled.reduction.kind = op_kind::pre_mul_sum;
  CHECK(p.plan_for(scaled, layout::flat(2))->direct());
  call average = all_reduce_of(1 << 20, datatype::f8e4m3);
  average.reduction.kind = op_kind::avg;
  CHECK(p.plan_for(average, layout::flat(2))->direct());
  CHECK_FALSE(p.plan_for(all_reduce_of(1 << 20, datatype::f16, determinism::fast), layout::flat(2))->widened);
  engine_options forced;
  forced.choreography = "ring";
  CHECK_FALSE(planner{forced}.plan_for(all_reduce_of(1 << 20), layout::flat(2))->direct());
  forced = {};
  forced.protocol = "direct";
  CHECK(planner{forced}.plan_for(all_reduce_of(1), layout::flat(2))->direct());
}

TEST_CASE("the protocol's option: none, or one format wherever it is possible") {
  engine_options o;
  o.protocol = "simple";
  CHECK_FALSE(planner{o}.plan_for(all_reduce_of(2), layout::flat(2))->on_board());
  for (const auto& [text, format] : {std::pair{"ll", slot_format::ll}, std::pair{"ll128", slot_format::ll128}}) {
    o.protocol = text;
    planner p{o};
    const auto made = p.plan_for(all_reduce_of(8192), layout::flat(4));
    CHECK(made->protocol() == parse_message_protocol(text));
    REQUIRE(made->slots());
    CHECK(made->slots()->format == format);
    CHECK(p.plan_for(all_reduce_of(1 << 20), layout::flat(4))->direct());  // a wish: else the planner's own choice
    const auto rows = p.candidates(all_reduce_of(2), layout::flat(4));
    const auto chosen = std::find_if(rows.begin(), rows.end(), [](const candidate& c) { return c.chosen; });
    REQUIRE(chosen != rows.end());
    CHECK(chosen->protocol == text);
  }
  o.protocol = "auto";
  o.faults.drop = 0.1;
  CHECK_FALSE(planner{o}.plan_for(all_reduce_of(2), layout::flat(2))->on_board());
}

TEST_CASE("what is chosen is what pricing everything would choose") {
  engine_options options;
  options.tuning = "none";
  const auto check = [&](planner& by, const call& c, int ranks) {
    CAPTURE(to_string(c));
    CAPTURE(ranks);
    const layout placement = layout::flat(ranks);
    const auto made = by.plan_for(c, placement);
    // Every row is priced there, also those that plan_for() had no need to price.
    const auto rows = by.candidates(c, placement);
    const auto chosen = std::ranges::find_if(rows, [](const candidate& r) { return r.chosen; });
    REQUIRE(chosen != rows.end());
    CHECK(chosen->choreography == made->choreography);
    CHECK(chosen->protocol == name(made->protocol()));
    for (const candidate& row : rows) {
      CAPTURE(row.choreography);
      CAPTURE(row.protocol);
      CHECK((!row.eligible() || chosen->predicted_seconds <= row.predicted_seconds));
    }
  };
  for (const int ranks : {2, 3, 8, 17, 33, 48, 64}) {
    planner by{options};
    for (int w = 0; w < collective_count; ++w)
      for (const std::size_t bytes : {std::size_t{64}, std::size_t{65536}, std::size_t{1} << 20}) {
        call c = call_of(static_cast<collective>(w), moves_data(static_cast<collective>(w)) ? bytes / 4 : 0);
        // Sizes of a class share the plan of the largest, and candidates() are for the size itself.
        c.count = largest_of_class(c.count);
        check(by, c, ranks);
      }
  }
  // Where there are so many ranks that bounds are guessed from fewer.
  planner by{options};
  for (const collective what : {collective::all_reduce, collective::reduce_scatter, collective::broadcast})
    check(by, call_of(what, largest_of_class(16)), 100);
}

TEST_CASE("between hosts a v-form needs no more sizes than each rank knows, and a rooted one may run ahead there") {
  planner p{engine_options{}};
  layout on = layout::placed({{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}});
  on.homes = {{0, 0}, {1, 1}, {2, 2}, {3, 3}};
  for (const collective what : {collective::all_to_all, collective::gather, collective::scatter}) {
    call c;
    c.what = what;
    c.uniform = false;
    c.type = datatype::f32;
    c.counts = {3, 0, 5, 7};
    c.receive_counts = {1, 2, 3, 4};
    if (has_root(what)) c.agreement = agreement_time::eager;
    const auto made = p.plan_for(c, on);
    REQUIRE(made);
    CAPTURE(made->title());
    CHECK(made->mailbox() != nullptr);
    CHECK(made->agrees());
    CHECK(needs_only_own_blocks(*made->notes));
    CHECK(made->may_run_ahead() == has_root(what));
    if (made->ahead) CHECK(needs_only_own_blocks(*made->ahead->notes));
    // Which of them has which sizes makes no difference, as the others do not know them.
    c.counts = {100'000, 1, 1, 1};
    CHECK(p.plan_for(c, on) == made);
    // A model's messages stay in the process, where they are planned with all sizes.
    CHECK(p.plan_for(c, layout::parse("4x1")) == nullptr);
  }
  call broadcast;
  broadcast.what = collective::broadcast;
  broadcast.count = 2;
  broadcast.agreement = agreement_time::eager;
  const auto made = p.plan_for(broadcast, on);
  REQUIRE(made->ahead);
  CHECK(made->ahead->mailbox() != nullptr);
  CHECK(step_total(*made->ahead->notes) < step_total(*made->notes));
}

TEST_CASE("between hosts ranks whose blocks differ receive from all at once, unless somebody names another way") {
  for (const bool one_computer : {false, true})
    for (int ranks = 2; ranks <= 9; ++ranks) {
      std::vector<coordinates> at;
      std::vector<residence> homes;
      for (int r = 0; r < ranks; ++r) {
        at.push_back({r, 0, 0});
        homes.push_back({r, r, one_computer ? 0 : -1});
      }
      layout on = layout::placed(at);
      on.homes = homes;
      call c;
      c.what = collective::all_to_all;
      c.uniform = false;
      c.type = datatype::f32;
      c.counts = c.receive_counts = std::vector<std::size_t>(static_cast<std::size_t>(ranks), 5);
      CAPTURE(ranks);
      CAPTURE(one_computer);
      CHECK(planner{engine_options{}}.plan_for(c, on)->choreography == "one_shot");
      CHECK(planner{with("pairwise")}.plan_for(c, on)->choreography == "pairwise");
      CHECK(planner{with("^one_shot")}.plan_for(c, on)->choreography != "one_shot");
    }
}

TEST_CASE("choreographies that are excluded by name are not chosen, whoever says so") {
  const layout on = layout::flat(8);
  const call what = all_reduce_of(100000);
  const std::string usual = planner{engine_options{}}.plan_for(what, on)->choreography;
  const std::string second = planner{with("^" + usual)}.plan_for(what, on)->choreography;
  CHECK(second != usual);
  const std::string third = planner{with("^" + usual + ", " + second)}.plan_for(what, on)->choreography;
  CHECK(third != usual);
  CHECK(third != second);

  engine_options of_collective;
  of_collective.choreography_of["all_reduce"] = "^" + usual;
  CHECK(planner{of_collective}.plan_for(what, on)->choreography == second);
  of_collective.choreography = "^" + second;  // both hold
  CHECK(planner{of_collective}.plan_for(what, on)->choreography == third);
  call own = what;
  own.choreography = "^" + usual;
  CHECK(planner{engine_options{}}.plan_for(own, on)->choreography == second);
  own.choreography = usual;  // an order is stronger
  CHECK(planner{with("^" + usual)}.plan_for(own, on)->choreography == usual);

  planner p{with("^" + usual)};
  CHECK(mentions(named(p.candidates(what, on), usual).why_rejected, "excluded by the options (\"^" + usual + "\")"));
  CHECK(mentions(to_text(explain(p, what, on)), "excluded"));
  call stable = all_reduce_of(100000, datatype::f32, determinism::size_stable);
  const std::string same = planner{engine_options{}}.plan_for(stable, on)->choreography;
  CHECK(planner{with("^" + same)}.plan_for(stable, on)->choreography != same);
  // Blocks of which a rank knows its own only: nobody takes the one pass by itself.
  call v = call_of(collective::all_to_all, 10);
  v.uniform = false;
  v.counts.assign(4, 10);
  const auto without = planner{with("^fused")}.plan_for(v, layout::flat(4));
  CHECK((!without || without->choreography != "fused"));
}

TEST_CASE("excluding a family: all whose names have the word, unless it is a name itself") {
  const call what = all_reduce_of(1000);
  const layout on = layout::grid(4, 2);
  const auto excluded = [&](const std::string& text) {
    std::set<std::string> names;
    planner p{with(text)};
    for (const candidate& c : p.candidates(what, on))
      if (mentions(c.why_rejected, "excluded by the options (\"" + text + "\")")) names.insert(c.choreography);
    return names;
  };
  CHECK(excluded("^tree") ==
        std::set<std::string>{"double_binary_tree", "chained_double_tree", "nvls_tree", "tree_per_nic"});
  CHECK(excluded("^tree, ring") ==
        std::set<std::string>{"double_binary_tree", "chained_double_tree", "nvls_tree", "tree_per_nic", "ring"});
  CHECK(excluded("^hierarchical") == std::set<std::string>{"hierarchical"});
  CHECK(excluded("^doubling") == std::set<std::string>{"recursive_doubling", "halving_doubling"});
  call own = what;
  own.choreography = "^tree";
  CHECK(mentions(named(planner{engine_options{}}.candidates(own, on), "double_binary_tree").why_rejected, "excluded"));
  // A choreography of one's own may have the word for its name.
  const std::vector<std::string> known{"tree", "double_binary_tree"};
  CHECK(choreography_wish{"^tree"}.excludes("tree", known));
  CHECK_FALSE(choreography_wish{"^tree"}.excludes("double_binary_tree", known));
  // One that is wanted has to be named.
  CHECK(mentions(failure_of([&] { planner{with("tree")}; }).second,
                 "there is no choreography tree; did you mean double_binary_tree, chained_double_tree, nvls_tree or "
                 "tree_per_nic?"));
  CHECK(mentions(failure_of([&] { planner{with("^binary,tre")}; }).second, "there is no choreography tre"));
  configuration file;
  file.add_text("[engine]\nchoreography = \"tree\"\n", "a.toml");
  CHECK(mentions(failure_of([&] { file.engine(); }).second,
                 "did you mean double_binary_tree, chained_double_tree, nvls_tree or"));
  configuration misspelt;
  misspelt.add_text("[engine]\nchoreography = \"aut\"\n", "a.toml");
  CHECK(mentions(failure_of([&] { misspelt.engine(); }).second, "did you mean auto?"));
  configuration empty;
  empty.add_text("[engine]\nchoreography = \"\"\n", "a.toml");
  CHECK(mentions(failure_of([&] { empty.engine(); }).second, "is empty"));
}

TEST_CASE("unknown names among the excluded are errors that list the known ones") {
  for (const char* text : {"^rings", "^ring,rings", "^ring, rings"}) {
    const auto [code, said] = failure_of([&] { planner{with(text)}; });
    CHECK(code == errc::bad_config);
    CHECK(mentions(said, "there is no choreography rings"));
    CHECK(mentions(said, "ring"));
    for (const choreography* c : all_choreographies()) CHECK(mentions(said, std::string{c->name}));
  }
  for (const char* text : {"^", "^ring,", "^,ring"})
    CHECK(mentions(failure_of([&] { planner{with(text)}; }).second, "a name is missing"));
  call own = all_reduce_of(10);
  own.choreography = "^rings";
  CHECK(failure_of([&] { planner{engine_options{}}.plan_for(own, layout::flat(2)); }).first == errc::unsupported);
  std::string everybody = "^";
  for (const choreography* c : all_choreographies())
    everybody += (everybody.size() > 1 ? "," : "") + std::string{c->name};
  const auto [code, said] = failure_of([&] { planner{with(everybody)}.plan_for(all_reduce_of(10), layout::flat(4)); });
  CHECK(code == errc::unsupported);
  CHECK(mentions(said, "excluded by the options"));
}

namespace {
layout hosts_with(int hosts, int of_host) {
  layout made = layout::parse(std::to_string(hosts) + "x" + std::to_string(of_host));
  for (int r = 0; r < hosts * of_host; ++r) made.homes.push_back({r / of_host, r});
  return made;
}
}  // namespace

TEST_CASE("in tiers: three plans of fewer ranks, where that should be faster; else a reason") {
  planner p{engine_options{}};
  const layout on = hosts_with(2, 4);
  for (const collective what :
       {collective::all_reduce, collective::all_gather, collective::reduce_scatter, collective::barrier}) {
    CAPTURE(name(what));
    const auto made = p.plan_in_tiers(call_of(what, 100), on, 4);
    REQUIRE(made);
    REQUIRE(made->tiers() != nullptr);
    const tiers_plan& stages = *made->tiers();
    CHECK(stages.hosts() == 2);
    CHECK(stages.collect->on_board());
    CHECK(stages.spread->on_board());
    REQUIRE(stages.across->mailbox() != nullptr);
    CHECK(made == p.plan_in_tiers(call_of(what, 100), on, 4));
    // Between hosts only first ranks, by their numbers among all.
    std::set<rank_t> peers;
    for (int host = 0; host < 2; ++host) {
      const auto code = stages.across->program_of(host);
      for (const auto& lane : code->lanes)
        for (const instruction& i : lane) peers.insert({i.from, i.to});
    }
    peers.erase(-1);
    CHECK(peers == std::set<rank_t>{0, 4});
    CHECK(mentions(to_text(explain(p, call_of(what, 100), on)), "it is performed in tiers"));
  }
  const auto why = [&](planner& by, const call& what) { return by.tiers_of(what, on, 4).why_not; };
  CHECK(mentions(why(p, call_of(collective::broadcast, 10)), "only all_reduce"));
  CHECK(mentions(why(p, all_reduce_of(10, datatype::f32, determinism::size_stable)), "determinism"));
  CHECK(mentions(why(p, all_reduce_of(10, datatype::bf16)), "wider type"));
  call mean = all_reduce_of(10);
  mean.reduction = average;
  CHECK(mentions(why(p, mean), "scales"));
  planner ring{with("ring")};
  CHECK(mentions(why(ring, all_reduce_of(10)), "the options name ring"));
  call own = all_reduce_of(10);
  own.choreography = "^ring";
  CHECK(mentions(why(p, own), "^ring"));
  own.choreography.clear();
  own.protocol = message_protocol::simple;
  CHECK(mentions(why(p, own), "protocol"));
  CHECK_FALSE(ring.plan_in_tiers(all_reduce_of(10), on, 4));
}
