// SPDX-License-Identifier: Apache-2.0
#include "protocols/collective.hpp"

#include "memory/error.hpp"

namespace troupe {

namespace {

// -- blocks -----------------------------------------------------------------------------------------------------------

constexpr auto no_block = [](std::int64_t) { return std::int64_t{0}; };
constexpr auto one_block = [](std::int64_t) { return std::int64_t{1}; };
constexpr auto one_a_rank = [](std::int64_t n) { return n; };
constexpr auto one_a_pair = [](std::int64_t n) { return n * n; };

constexpr auto nothing_at_all = [](int, rank_t, rank_t) { return block_run{0, 0, 1}; };
constexpr auto the_block = [](int, rank_t, rank_t) { return block_run{0, 1, 1}; };
constexpr auto the_block_at_root = [](int, rank_t root, rank_t r) { return block_run{0, r == root ? 1 : 0, 1}; };
constexpr auto the_block_but_at_0 = [](int, rank_t, rank_t r) { return block_run{0, r > 0 ? 1 : 0, 1}; };
constexpr auto own_block = [](int, rank_t, rank_t r) { return block_run{r, 1, 1}; };
constexpr auto every_block = [](int n, rank_t, rank_t) { return block_run{0, n, 1}; };
constexpr auto every_block_at_root = [](int n, rank_t root, rank_t r) { return block_run{0, r == root ? n : 0, 1}; };
constexpr auto row_of_pairs = [](int n, rank_t, rank_t r) { return block_run{std::int64_t{r} * n, n, 1}; };
constexpr auto column_of_pairs = [](int n, rank_t, rank_t r) { return block_run{r, n, n}; };

constexpr auto everybody = [](int n, rank_t, rank_t, std::int64_t) { return rank_range{0, n}; };
constexpr auto nobody = [](int, rank_t, rank_t, std::int64_t) { return rank_range{0, 0}; };
constexpr auto the_root = [](int, rank_t root, rank_t, std::int64_t) { return rank_range{root, 1}; };
constexpr auto rank_of_block = [](int, rank_t, rank_t, std::int64_t block) {
  return rank_range{static_cast<rank_t>(block), 1};
};
constexpr auto up_to_rank = [](int, rank_t, rank_t r, std::int64_t) { return rank_range{0, r + 1}; };
constexpr auto below_rank = [](int, rank_t, rank_t r, std::int64_t) { return rank_range{0, r}; };
constexpr auto sender_of_pair = [](int n, rank_t, rank_t, std::int64_t block) {
  return rank_range{static_cast<rank_t>(block / n), 1};
};

// -- tiers ------------------------------------------------------------------------------------------------------------

constexpr std::optional<tier_stages> no_tiers;

// -- traffic ----------------------------------------------------------------------------------------------------------

constexpr auto once = [](double) { return 1.0; };
constexpr auto zero = [](double) { return 0.0; };
constexpr auto two_a_rank = [](double n) { return 2 * n; };
constexpr auto all_but_own = [](double n) { return (n - 1) / n; };

constexpr auto no_traffic = [](int, rank_t, rank_t) { return least_traffic::nothing; };
constexpr auto a_block = [](int, rank_t, rank_t) { return least_traffic::block; };
constexpr auto other_blocks = [](int, rank_t, rank_t) { return least_traffic::others; };
constexpr auto a_block_at_root = [](int, rank_t root, rank_t r) {
  return r == root ? least_traffic::block : least_traffic::nothing;
};
constexpr auto a_block_elsewhere = [](int, rank_t root, rank_t r) {
  return r == root ? least_traffic::nothing : least_traffic::block;
};
constexpr auto a_block_but_at_0 = [](int, rank_t, rank_t r) {
  return r > 0 ? least_traffic::block : least_traffic::nothing;
};
constexpr auto a_block_but_at_last = [](int n, rank_t, rank_t r) {
  return r < n - 1 ? least_traffic::block : least_traffic::nothing;
};
constexpr auto others_at_root = [](int, rank_t root, rank_t r) {
  return r == root ? least_traffic::others : least_traffic::nothing;
};

}  // namespace

// -- the table --------------------------------------------------------------------------------------------------------

namespace detail {

constexpr std::array<collective_traits, collective_count> rows{{
    {.what = collective::all_reduce,
     .name = "all_reduce",
     .root = root_role::none,
     .reduces = true,
     .synchronizes = false,
     .data_tell_all = true,
     .v = v_counts::none,
     .place = in_place_rule::agreed,
     .partitioned = true,
     .tiers = tier_stages{{{collective::reduce, tier_block::one, tier_place::output},
                           {collective::all_reduce, tier_block::one, tier_place::output},
                           {collective::broadcast, tier_block::one, tier_place::output}}},
     .blocks = one_block,
     .input = the_block,
     .output = the_block,
     .contributors = everybody,
     .footprint = two_a_rank,
     .bus_factor = [](double n) { return 2 * (n - 1) / n; },
     .sent = a_block,
     .received = a_block,
     .sent_by_all = [](double n) { return 2 * (n - 1); }},
    {.what = collective::all_gather,
     .name = "all_gather",
     .root = root_role::none,
     .reduces = false,
     .synchronizes = false,
     .data_tell_all = true,
     .v = v_counts::common,
     .place = in_place_rule::agreed,
     .partitioned = true,
     .tiers = tier_stages{{{collective::gather, tier_block::one, tier_place::host_of_output},
                           {collective::all_gather, tier_block::of_host, tier_place::output},
                           {collective::broadcast, tier_block::of_all, tier_place::output}}},
     .blocks = one_a_rank,
     .input = own_block,
     .output = every_block,
     .contributors = rank_of_block,
     .footprint = [](double n) { return n * (n + 1); },
     .bus_factor = all_but_own,
     .sent = a_block,
     .received = other_blocks,
     .sent_by_all = zero},
    {.what = collective::reduce_scatter,
     .name = "reduce_scatter",
     .root = root_role::none,
     .reduces = true,
     .synchronizes = false,
     .data_tell_all = true,
     .v = v_counts::common,
     .place = in_place_rule::agreed,
     .partitioned = true,
     .tiers = tier_stages{{{collective::reduce, tier_block::of_all, tier_place::apart},
                           {collective::reduce_scatter, tier_block::of_host, tier_place::apart},
                           {collective::scatter, tier_block::one, tier_place::output}}},
     .blocks = one_a_rank,
     .input = every_block,
     .output = own_block,
     .contributors = everybody,
     .footprint = [](double n) { return n * (n + 1); },
     .bus_factor = all_but_own,
     .sent = other_blocks,
     .received = a_block,
     .sent_by_all = zero},
    {.what = collective::broadcast,
     .name = "broadcast",
     .root = root_role::source,
     .reduces = false,
     .synchronizes = false,
     .data_tell_all = false,
     .v = v_counts::none,
     .place = in_place_rule::at_root,
     .partitioned = true,
     .tiers = no_tiers,
     .blocks = one_block,
     .input = the_block_at_root,
     .output = the_block,
     .contributors = the_root,
     .footprint = [](double n) { return n; },
     .bus_factor = once,
     .sent = a_block_at_root,
     .received = a_block_elsewhere,
     .sent_by_all = zero},
    {.what = collective::reduce,
     .name = "reduce",
     .root = root_role::sink,
     .reduces = true,
     .synchronizes = false,
     .data_tell_all = false,
     .v = v_counts::none,
     .place = in_place_rule::at_root,
     .partitioned = true,
     .tiers = no_tiers,
     .blocks = one_block,
     .input = the_block,
     .output = the_block_at_root,
     .contributors = everybody,
     .footprint = [](double n) { return n + 1; },
     .bus_factor = once,
     .sent = a_block_elsewhere,
     .received = a_block_at_root,
     .sent_by_all = zero},
    {.what = collective::gather,
     .name = "gather",
     .root = root_role::sink,
     .reduces = false,
     .synchronizes = false,
     .data_tell_all = false,
     .v = v_counts::rooted,
     .place = in_place_rule::at_root,
     .partitioned = true,
     .tiers = no_tiers,
     .blocks = one_a_rank,
     .input = own_block,
     .output = every_block_at_root,
     .contributors = rank_of_block,
     .footprint = two_a_rank,
     .bus_factor = all_but_own,
     .sent = a_block_elsewhere,
     .received = others_at_root,
     .sent_by_all = zero},
    {.what = collective::scatter,
     .name = "scatter",
     .root = root_role::source,
     .reduces = false,
     .synchronizes = false,
     .data_tell_all = false,
     .v = v_counts::rooted,
     .place = in_place_rule::at_root,
     .partitioned = true,
     .tiers = no_tiers,
     .blocks = one_a_rank,
     .input = every_block_at_root,
     .output = own_block,
     .contributors = the_root,
     .footprint = two_a_rank,
     .bus_factor = all_but_own,
     .sent = others_at_root,
     .received = a_block_elsewhere,
     .sent_by_all = zero},
    {.what = collective::all_to_all,
     .name = "all_to_all",
     .root = root_role::none,
     .reduces = false,
     .synchronizes = false,
     .data_tell_all = true,
     .v = v_counts::every_pair,
     .place = in_place_rule::agreed,
     .partitioned = true,
     .tiers = no_tiers,
     .blocks = one_a_pair,
     .input = row_of_pairs,
     .output = column_of_pairs,
     .contributors = sender_of_pair,
     .footprint = [](double n) { return 2 * n * n; },
     .bus_factor = all_but_own,
     .sent = other_blocks,
     .received = other_blocks,
     .sent_by_all = zero},
    {.what = collective::barrier,
     .name = "barrier",
     .root = root_role::none,
     .reduces = false,
     .synchronizes = true,
     .data_tell_all = true,
     .v = v_counts::none,
     .place = in_place_rule::never,
     .partitioned = false,
     .tiers = tier_stages{{{collective::barrier, tier_block::one, tier_place::nowhere},
                           {collective::barrier, tier_block::one, tier_place::nowhere},
                           {collective::barrier, tier_block::one, tier_place::nowhere}}},
     .blocks = no_block,
     .input = nothing_at_all,
     .output = nothing_at_all,
     .contributors = nobody,
     .footprint = zero,
     .bus_factor = zero,
     .sent = no_traffic,
     .received = no_traffic,
     .sent_by_all = zero},
    {.what = collective::scan,
     .name = "scan",
     .root = root_role::none,
     .reduces = true,
     .synchronizes = false,
     .data_tell_all = false,
     .v = v_counts::none,
     .place = in_place_rule::agreed,
     .partitioned = false,
     .tiers = no_tiers,
     .blocks = one_block,
     .input = the_block,
     .output = the_block,
     .contributors = up_to_rank,
     .footprint = two_a_rank,
     .bus_factor = once,
     .sent = a_block_but_at_last,
     .received = a_block_but_at_0,
     .sent_by_all = zero},
    {.what = collective::exscan,
     .name = "exscan",
     .root = root_role::none,
     .reduces = true,
     .synchronizes = false,
     .data_tell_all = false,
     .v = v_counts::none,
     .place = in_place_rule::agreed,
     .partitioned = false,
     .tiers = no_tiers,
     .blocks = one_block,
     .input = the_block,
     .output = the_block_but_at_0,
     .contributors = below_rank,
     .footprint = [](double n) { return 2 * n - 1; },
     .bus_factor = once,
     .sent = a_block_but_at_last,
     .received = a_block_but_at_0,
     .sent_by_all = zero},
}};

/// A value that is no enumerator is printed as a cast.
template <collective What>
consteval bool has_a_name() {
  const std::string_view text = __PRETTY_FUNCTION__;
  return text.find("What = (") == std::string_view::npos;
}

static_assert(
    [] {
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (rows[i].what != static_cast<collective>(i)) return false;
      return true;
    }(),
    "the rows of the table are in another order than the names in `collective`");
static_assert(
    [] {
      for (const collective_traits& row : rows)
        if (row.tiers.value && (*row.tiers.value)[1].what != row.what.value) return false;
      return true;
    }(),
    "the second of the three tiers of a collective is another collective");
static_assert(has_a_name<static_cast<collective>(collective_count - 1)>(),
              "collective_count is more than there are names in `collective`");
static_assert(!has_a_name<static_cast<collective>(collective_count)>(),
              "a collective has a name but no row of traits: add the row, and count it in collective_count");

}  // namespace detail

std::optional<collective> parse_collective(std::string_view text) {
  for (const collective_traits& t : detail::rows)
    if (t.name == text) return t.what;
  return std::nullopt;
}

std::string names_of(bool (*is)(const collective_traits&)) {
  std::string text;
  std::string_view last;
  for (const collective_traits& t : detail::rows) {
    if (!is(t)) continue;
    if (!last.empty()) text += (text.empty() ? "" : ", ") + std::string{last};
    last = t.name;
  }
  return text.empty() ? std::string{last} : text + " and " + std::string{last};
}

void bad_collective(collective what) {
  throw error(errc::invalid_argument,
              std::to_string(static_cast<unsigned>(what)) + " is not one of troupe::collective");
}

int contributor_count(collective what, int ranks, rank_t root, rank_t rank) {
  const block_run run = output_blocks(what, ranks, root, rank);
  return run.count == 0 ? 0 : contributors(what, ranks, root, rank, run.first).count;
}

bool shares_buffers(collective what, int ranks, rank_t root, rank_t rank) {
  return input_blocks(what, ranks, root, rank).count > 0 && output_blocks(what, ranks, root, rank).count > 0;
}

}  // namespace troupe
