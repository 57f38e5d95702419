// SPDX-License-Identifier: Apache-2.0
// troupe show CHOREOGRAPHY
#include "engine/tools/cli/cli.hpp"

#include <iostream>
#include <memory>

#include "actors/elements/offload/offload_messages.hpp"
#include "engine/tools/extent.hpp"
#include "memory/error.hpp"
#include "memory/large_pages.hpp"
#include "memory/read_file.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/offload/offload_compiler.hpp"
#include "protocols/offload/offload_proof.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe::cli {

namespace show_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe show ring --collective all_reduce --ranks 4
  troupe show hierarchical --collective all_gather --layout 2x4
  troupe show binomial --collective broadcast --ranks 8 --root 3 --lowered
  troupe show halving_doubling --collective all_reduce --ranks 4 --descriptors           (what NICs would be given: docs/offload.md)
  troupe show double_binary_tree --collective all_reduce --ranks 8 --json > mine.json    (edit it, and run it: docs/config.md)
  troupe show hierarchical --layout 128x8 --json > many.json   (for 1 024 ranks; troupe study reads it: docs/choreographies.md))";

struct arguments {
  std::string choreography, collective = "all_reduce", placement;
  int ranks = 0, root = 0, streams = 4, nics = 0;
  bool in_place = false, v_form = false, through_scratch = false, contiguous = false, lowered = false, as_json = false;
  bool root_said = false, streams_said = false;
  bool descriptors = false;
  std::string block;  ///< bytes; empty: not said
};

setup setup_of(const arguments& a) {
  const layout placement = placement_of("--ranks", a.ranks, a.placement, 4, most_ranks_of_a_score);
  if (a.root >= placement.size())
    usage_error("--root " + std::to_string(a.root) + ": there is no root " + std::to_string(a.root) + " among " +
                plural(static_cast<std::size_t>(placement.size()), "rank") + ", which are counted from 0");
  setup on = flat_setup(parse_collective_option(a.collective), placement.size(), a.root, a.in_place, !a.v_form);
  on.placement = placement;
  on.streams = a.streams;
  on.nics = a.nics;
  on.through_scratch = a.through_scratch;
  on.contiguous = a.contiguous;
  return on;
}

const choreography& find(const std::string& wanted) {
  if (const choreography* found = find_choreography(wanted)) return *found;
  std::vector<std::string_view> names;
  for (const choreography* c : all_choreographies()) names.push_back(c->name);
  const auto near = closest(wanted, names);
  usage_error("there is no choreography \"" + wanted + "\"; " +
              (near.empty() ? "`troupe list` shows all" : "did you mean " + std::string{near} + "?"));
}

/// An option that changes nothing was meant for another choreography.
void check_said(const arguments& a, const choreography& which, const setup& on, const score& written) {
  if (a.root_said && !has_root(on.what))
    usage_error("--root would do nothing: " + std::string{name(on.what)} + " has no root");
  const auto check = [&](const char* option, auto change) {
    setup other = on;
    change(other);
    if (refusal(which, other).empty() && write_score(which, other) == written)
      usage_error(std::string{option} + " would do nothing: " + std::string{which.name} + " is the same without it");
  };
  if (a.streams_said) check("--streams", [&](setup& other) { other.streams = on.streams == 1 ? 2 : 1; });
  if (a.nics > 0) {
    check("--nics", [](setup& other) { other.nics = other.nics == 1 ? 2 : 1; });
    if (const int most = choreographies::hierarchy{on.placement}.smallest(); a.nics > most)
      usage_error("--nics " + std::to_string(a.nics) + ": the smallest server has " +
                  plural(static_cast<std::size_t>(most), "rank") + ", and no more NICs than that are used; say 1 to " +
                  std::to_string(most));
  }
  if (a.through_scratch) check("--through-scratch", [](setup& other) { other.through_scratch = false; });
  if (a.contiguous) check("--contiguous", [](setup& other) { other.contiguous = false; });
}

// -- descriptors ------------------------------------------------------------------------------------------------------

constexpr std::size_t element_bytes = 8;
constexpr int offload_credits = 8;
/// Beyond, the proof on symbols takes more than a moment.
constexpr int most_ranks_to_prove = 128;
constexpr std::size_t most_elements_to_prove = std::size_t{1} << 20;  ///< of all descriptors

std::size_t elements_of(const std::vector<offload::rank_program>& all) {
  std::size_t elements = 0;
  for (const offload::rank_program& p : all)
    for (const offload::sequence& q : p.sequences)
      for (const offload::descriptor& d : q.descriptors) elements += d.elements;
  return elements;
}

struct finding {
  std::string difference;  ///< empty: none
  std::string says;
};

/// The proof's result for the descriptors that are shown, or for shorter ones of the same score where that would take long.
finding proof_of(const score& s, const verdict& v, const call_shape& shape, const offload::compile_options& how,
                 const std::vector<offload::rank_program>& shown) {
  if (s.ranks > most_ranks_to_prove)
    return {{}, "not proved here: more than " + std::to_string(most_ranks_to_prove) + " ranks"};
  if (elements_of(shown) <= most_elements_to_prove)
    return {offload::why_not_the_score({s, v, shape}, shown, how.packet_elements),
            "proved: the descriptors perform the score"};
  // Of these, too, some messages are one packet and some are several.
  const call_shape few{static_cast<std::size_t>(s.parts) + 1, {}, {}, {}, element_bytes};
  return {offload::why_not_the_score({s, v, few}, offload::compile(s, few, {how.credits, how.places, 1}), 1),
          "not proved for this size, but for blocks of " + plural(few.count, "element") +
              " in packets of one: the descriptors perform the score"};
}

/// What NICs would be given, and the proof that it is the score.
int show_descriptors(const arguments& a, const score& s) {
  const std::size_t bytes = a.block.empty() ? 1024 : parse_size("--block", a.block);
  if (bytes % element_bytes != 0)
    usage_error("--block " + a.block + ": blocks are shown as of elements of " + std::to_string(element_bytes) +
                " bytes, of which it is no multiple");
  const actors::offload_config nic;
  const offload::compile_options how{offload_credits, {}, nic.packet_bytes / element_bytes};
  const verdict v = verify(s, {offload_credits, 1});
  if (!v.ok()) {
    std::cerr << "troupe: does not verify: " << to_string(*v.first_fault) << '\n';
    return exit_wrong;
  }
  const call_shape shape{bytes / element_bytes, {}, {}, {}, element_bytes};
  const auto programs = offload::compile(s, shape, how);
  const finding proof = proof_of(s, v, shape, how, programs);
  if (!proof.difference.empty()) {
    std::cerr << "troupe: the descriptors are not the score: " << proof.difference << '\n';
    return exit_wrong;
  }
  if (a.as_json) {
    std::cout << offload::to_json(programs) << '\n';
    return exit_ok;
  }
  std::size_t total = 0;
  for (const offload::rank_program& p : programs) {
    std::cout << offload::to_text(p);
    for (const offload::sequence& q : p.sequences) total += q.descriptors.size();
  }
  std::cout << '\n' << proof.says << "; " << plural(total, "descriptor") << " for " << plural(v.steps, "step") << '\n';
  return exit_ok;
}

void check_descriptor_options(const arguments& a) {
  if (!a.block.empty() && !a.descriptors) usage_error("--block is the size of the blocks of --descriptors");
  if (a.descriptors && a.lowered) usage_error("--lowered would do nothing: descriptors are made of the lowered score");
  if (a.descriptors && a.v_form) usage_error("--descriptors need sizes, and --v leaves the blocks' open");
}

int show(const arguments& a) {
  put_heap_on_large_pages(computing_heap);
  const interrupt_guard guard;
  check_descriptor_options(a);
  const choreography& which = find(a.choreography);
  const setup on = setup_of(a);
  if (const std::string why = too_many_steps(which, on, bytes_of_a_printed_step); !why.empty())
    throw error(errc::out_of_memory, why);
  score s = write_score(which, on);
  check_said(a, which, on, s);
  if (a.descriptors) return show_descriptors(a, lower_syncs(std::move(s)));
  if (a.lowered) s = one_cell_per_step(lower_syncs(std::move(s)));
  if (a.as_json) {
    const std::string text = to_json(s) + '\n';
    std::cout << text;
    if (text.size() > most_score_file_bytes)
      std::cerr << "troupe: the score has " << (text.size() >> 20) << " MiB; a score file is read up to "
                << (most_score_file_bytes >> 20) << " MiB\n";
    if (is_too_large(lower_syncs(std::move(s)), {}))
      std::cerr << "troupe: the score is too large to be verified, so it cannot be read as a score file\n";
    return exit_ok;
  }
  const verdict v = verify(lower_syncs(s));
  std::cout << to_text(s) << '\n';
  if (!v.ok() && v.first_fault->too_large) {  // which is no fault of the score's; engines perform it, too
    std::cout << "not verified: " << to_string(*v.first_fault) << '\n';
    return exit_ok;
  }
  if (!v.ok()) {
    std::cerr << "troupe: does not verify: " << to_string(*v.first_fault) << '\n';
    return exit_wrong;
  }
  std::cout << "verified: " << plural(v.steps, "step") << ", " << plural(v.messages, "message");
  if (is_reduction(s.what))
    std::cout << "; "
              << (v.left_fold      ? "left fold in rank order"
                  : v.rank_ordered ? "combines in rank order"
                                   : "does not combine in rank order")
              << (v.same_tree_everywhere ? ", every element in the same tree" : ", elements in different trees");
  std::cout << '\n';
  return exit_ok;
}

}  // namespace
}  // namespace show_command

void add_show(command program, action& chosen) {
  using namespace show_command;
  auto a = std::make_shared<arguments>();
  const command sub =
      program.add_command("show", "print a choreography's score: who sends what to whom, in which order");
  sub.add_option("choreography", a->choreography, "see `troupe list`").required().type_name("CHOREOGRAPHY");
  sub.add_option("--collective", a->collective, "default all_reduce").type_name("COLLECTIVE");
  sub.add_option("--ranks", a->ranks, "default 4, or the layout's").within(1, most_ranks_of_a_score);
  sub.add_option("--root", a->root, "default 0").within(0, most_ranks_of_a_score - 1);
  sub.add_option("--layout", a->placement,
                 "such as 2x4 (servers × cards), 2x2x4 (× core groups) or 2x2x4x1 (pods in front)")
      .type_name("LAYOUT");
  sub.add_option("--streams", a->streams, "of direct_full_mesh (default 4)").within(1, 64);
  sub.add_flag("--in-place", a->in_place, "for calls whose input and output are one buffer");
  sub.add_flag("--v", a->v_form, "blocks of different sizes");
  sub.add_option("--nics", a->nics, "of ring_per_nic, tree_per_nic: NICs of a server (default one for each rank)")
      .within(1, 64);
  sub.add_flag("--through-scratch", a->through_scratch, "pairwise, direct_full_mesh: BCopy instead of ZCopy");
  sub.add_flag("--contiguous", a->contiguous, "all_gather by csc: blocks beside each other are fetched at once");
  sub.add_flag("--lowered", a->lowered, "as it is performed: barriers as tokens, one cell a step");
  sub.add_flag("--descriptors", a->descriptors, "what each rank gives a NIC that performs its part");
  sub.add_option("--block", a->block, "with --descriptors: bytes of a block (default 1K)").type_name("BYTES");
  sub.add_flag("--json", a->as_json, "as a score file; with --descriptors, those");
  sub.footer(footer);
  sub.when_named([a, sub, &chosen] {
    a->root_said = sub.came("--root");
    a->streams_said = sub.came("--streams");
    chosen = [a] { return show(*a); };
  });
}

}  // namespace troupe::cli
